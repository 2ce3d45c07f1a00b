//! Chains of operations on the elements of a row, reduced in passing: in registers from what is loaded to what is stored (`registers.rs`), or,
//! where these are few, piece by piece in the first-level cache (`memory.rs`). Strip by strip every step copies its operands there, and what
//! is not f32 is widened and rounded there besides.

/// What each operation is: `$each` is given an expression of an element and another operand's, `$pairs` one of two elements and two of the other's,
/// as exponentials are quicker two at a time. Copies are the caller's, and so is what chooses by bits.
macro_rules! operate {
    ($of:expr, $same:expr, $each:ident, $pairs:ident) => {
        match $of {
            Do::Copy | Do::Shortcut { .. } | Do::Select { .. } => {}
            Do::Add => $each!(y, w => y.add(w)),
            Do::Sub => $each!(y, w => y.minus(w)),
            Do::SubFrom => $each!(y, w => w.minus(y)),
            Do::Mul => $each!(y, w => y.mul(w)),
            Do::Div => match $same {
                Some(by) if codes::divides(by) => {
                    let inverse = V::splat(1.0 / by);
                    $each!(y, w => y.quotient(w, inverse));
                }
                _ => $each!(y, w => y.divided(w)),
            },
            Do::DivInto => $each!(y, w => w.divided(y)),
            Do::Max => $each!(y, w => y.larger(w)),
            Do::Min => $each!(y, w => y.smaller(w)),
            Do::Neg => {
                let sign = V::splat(-0.0);
                $each!(y, _w => y.signed(sign));
            }
            Do::Abs => $each!(y, _w => y.magnitude()),
            Do::Relu => {
                let (none, most) = (V::splat(0.0), V::splat(f32::INFINITY));
                $each!(y, _w => y.between(none, most));
            }
            Do::Exp([by, least]) => {
                let (by, least, table) = (V::splat(by), V::splat(least), V::table());
                $pairs!(y, w => V::exps([y[0].times_less(by, w[0]), y[1].times_less(by, w[1])], least, table));
            }
        }
    };
}

mod memory;
mod registers;
#[cfg(test)]
mod tests;

use super::fold::{Monoid, Partial};
use super::isa::Instructions;
use super::lanes::Floats;
use super::math::EXP_LEAST;
use super::strip::{Operand, Step};
use super::truths;
use super::wide::{Wide, WideWork, with_wide};
use einloom_cascade::{BinaryOp, UnaryOp};

/// Registers beside the first.
const MORE: usize = 3;
const LANES: usize = 16;

/// One operation on a register.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Do {
    Copy,
    Add,
    Sub,
    /// The other one less this one.
    SubFrom,
    Mul,
    Div,
    /// The other one by this one.
    DivInto,
    Max,
    Min,
    Neg,
    Abs,
    Relu,
    /// The exponential of this one times a number less the other one, 0 below another number.
    Exp([f32; 2]),
    /// This one where a leaf's bit is set, or is not if `flipped`, the other one elsewhere.
    Select {
        mask: usize,
        flipped: bool,
    },
    /// The other one, and the next links are left out, where a leaf that is the same everywhere is no zero, or is one.
    Shortcut {
        mask: usize,
        when: bool,
        skip: usize,
    },
}

#[derive(Clone, Copy, Debug)]
enum With {
    Leaf(usize),
    /// One of those beside the first.
    Register(usize),
    Const(f32),
}

#[derive(Clone, Copy, Debug)]
struct Link {
    of: Do,
    d: usize,
    with: With,
}

/// What a leaf is over a piece of a row.
#[derive(Clone, Copy)]
pub(crate) enum Elements<'a> {
    /// Those that the result takes the place of.
    Own,
    Floats(&'a [f32]),
    Bf16(&'a [u16]),
    F16(&'a [u16]),
    Same(f32),
    /// Truth values, from a whole word on: masks only.
    Bits(&'a [u32]),
}

/// Where the results go.
pub(crate) enum To<'a> {
    Nowhere,
    Floats(&'a mut [f32]),
    Bf16(&'a mut [u16]),
}

/// Steps of a chain, at most.
const LINKS: usize = 16;

/// Steps that registers are enough for.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    links: Vec<Link>,
}

impl Chain {
    /// Of steps that add, multiply, divide, take the larger or smaller or exponentiate, in few registers; `None` if there are others.
    pub(crate) fn new(steps: &[Step]) -> Option<Self> {
        if steps.len() > LINKS {
            return None;
        }
        Some(Self { links: steps.iter().map(link).collect::<Option<_>>()? })
    }

    /// Of `count` elements of a row; `leaves` by number, as many elements each. All results are reduced besides, if `fold` tells
    /// how. False, and nothing done, if the instructions are not there or what chooses among steps is not the same for all. Panics if elements are missing.
    #[inline(always)]
    pub(crate) fn run<I: Instructions>(
        &self,
        leaves: &[Elements<'_>],
        to: To<'_>,
        count: usize,
        fold: Option<(Monoid, &mut Partial)>,
    ) -> bool {
        let len = match &to {
            To::Nowhere => count,
            To::Floats(to) => to.len(),
            To::Bf16(to) => to.len(),
        };
        assert!(len >= count, "room for each element");
        for link in &self.links {
            match link.of {
                Do::Shortcut { mask, .. } if !matches!(leaves[mask], Elements::Same(_)) => return false,
                Do::Select { mask, .. } => match leaves[mask] {
                    Elements::Bits(x) => assert!(x.len() >= truths::words(count), "a bit each"),
                    _ => return false,
                },
                _ => {}
            }
            if let With::Leaf(number) = link.with {
                let len = match leaves[number] {
                    Elements::Own if matches!(to, To::Floats(_)) => count,
                    Elements::Own => 0,
                    Elements::Floats(x) => x.len(),
                    Elements::Bf16(x) | Elements::F16(x) => x.len(),
                    Elements::Same(_) => count,
                    Elements::Bits(_) => return false,
                };
                assert!(len >= count, "an element each");
            }
        }
        with_wide::<I, _>(Row { links: &self.links, leaves, to, count, fold })
    }
}

/// The link for a step; `None` if it needs more than a register and another operand.
fn link(step: &Step) -> Option<Link> {
    let one = With::Const(0.0);
    let (of, d, with) = match *step {
        Step::Copy { d, from } => (Do::Copy, d, operand(from)?),
        Step::Unary { op, d } => match op {
            UnaryOp::Neg => (Do::Neg, d, one),
            UnaryOp::Abs => (Do::Abs, d, one),
            UnaryOp::Relu => (Do::Relu, d, one),
            UnaryOp::Exp => (Do::Exp([1.0, EXP_LEAST]), d, one),
            _ => return None,
        },
        Step::Binary { op, d, with, reversed } => {
            let of = match (op, reversed) {
                (BinaryOp::Add, _) => Do::Add,
                (BinaryOp::Sub, false) => Do::Sub,
                (BinaryOp::Sub, true) => Do::SubFrom,
                (BinaryOp::Mul, _) => Do::Mul,
                (BinaryOp::Div, false) => Do::Div,
                (BinaryOp::Div, true) => Do::DivInto,
                (BinaryOp::Max, _) => Do::Max,
                (BinaryOp::Min, _) => Do::Min,
                _ => return None,
            };
            (of, d, operand(with)?)
        }
        Step::Shortcut { d, mask: Operand::Leaf(mask), when, from, skip } => {
            (Do::Shortcut { mask: mask.into(), when, skip }, d, operand(from)?)
        }
        Step::Select { d, mask: Operand::Leaf(mask), other, flipped } => {
            (Do::Select { mask: mask.into(), flipped }, d, operand(other)?)
        }
        Step::ScaledExp { d, by: Operand::Const(by), less, least } => (Do::Exp([by as f32, least]), d, operand(less)?),
        _ => return None,
    };
    let d = usize::from(d);
    (d <= MORE).then_some(Link { of, d, with })
}

fn operand(operand: Operand) -> Option<With> {
    match operand {
        Operand::Leaf(number) => Some(With::Leaf(number.into())),
        // Nothing reads the first.
        Operand::Register(number @ 1..) if usize::from(number) <= MORE => Some(With::Register(usize::from(number) - 1)),
        Operand::Register(_) => None,
        Operand::Const(x) => Some(With::Const(x as f32)),
    }
}

/// A piece of a row.
struct Row<'a> {
    links: &'a [Link],
    leaves: &'a [Elements<'a>],
    to: To<'a>,
    count: usize,
    fold: Option<(Monoid, &'a mut Partial)>,
}

impl<V: Wide> WideWork<V> for Row<'_> {
    #[inline(always)]
    unsafe fn run(self) -> bool {
        let Row { links, leaves, to, count, fold } = self;
        for link in links {
            if let Do::Exp([_, least]) = link.of
                && !V::ends_at(least)
            {
                return false;
            }
        }
        let to = match to {
            To::Nowhere => Results { floats: std::ptr::null_mut(), codes: std::ptr::null_mut() },
            To::Floats(to) => Results { floats: to.as_mut_ptr(), codes: std::ptr::null_mut() },
            To::Bf16(to) => Results { floats: std::ptr::null_mut(), codes: to.as_mut_ptr() },
        };
        let block = Block { links, leaves, to };
        let mut nowhere = Partial::all(0.0);
        let (monoid, partial) = match fold {
            Some((monoid, partial)) => (Some(monoid), partial),
            None => (None, &mut nowhere),
        };
        // SAFETY: the caller's; lengths were checked.
        unsafe {
            // As many side by side as there are registers for. Where there are few, that is two vectors, and what chooses an operation
            // counts as much as the operation: pieces in memory then.
            if V::WIDE {
                registers::run::<V, 8>(&block, 0..count, monoid, partial);
            } else {
                let done = memory::run::<V>(&block, count, monoid, partial);
                registers::run::<V, 2>(&block, done..count, monoid, partial);
            }
        }
        true
    }
}

/// Where results go: null if not there.
#[derive(Clone, Copy)]
struct Results {
    floats: *mut f32,
    codes: *mut u16,
}

/// A chain and what it is of.
struct Block<'a> {
    links: &'a [Link],
    leaves: &'a [Elements<'a>],
    to: Results,
}

impl Block<'_> {
    /// The next link that is not left out, from this number on, which then is the one after.
    #[inline(always)]
    fn next(&self, number: &mut usize) -> Option<&Link> {
        while let Some(link) = self.links.get(*number) {
            *number += 1;
            let Do::Shortcut { mask, when, skip } = link.of else { return Some(link) };
            if matches!(self.leaves[mask], Elements::Same(y) if (y != 0.0) == when) {
                *number += skip;
                return Some(link);
            }
        }
        None
    }
}

/// # Safety
/// The processor has the vectors.
#[inline(always)]
unsafe fn of<V: Floats>(monoid: Monoid, x: V, y: V) -> V {
    // SAFETY: the caller's.
    unsafe {
        match monoid {
            Monoid::Sum => x.add(y),
            Monoid::Prod => x.mul(y),
            Monoid::Max => x.larger(y),
            Monoid::Min => x.smaller(y),
        }
    }
}

/// Combines what vectors hold with a partial result.
///
/// # Safety
/// The processor has the vectors; a power of two of them.
#[inline(always)]
unsafe fn gather<V: Floats, const SIDE: usize>(monoid: Monoid, mut all: [V; SIDE], partial: &mut Partial) {
    // SAFETY: the caller's.
    unsafe {
        let mut width = SIDE;
        while width > 1 {
            width /= 2;
            for i in 0..width {
                all[i] = of(monoid, all[2 * i], all[2 * i + 1]);
            }
        }
        let to = partial.as_mut_ptr();
        of(monoid, V::load(to), all[0]).store(to);
    }
}

/// Where the chosen bits of a vector's elements are: of those after the last word there is none.
#[inline(always)]
fn chosen(bits: &[u32], first: usize, flipped: bool) -> u16 {
    let flip = if flipped { u16::MAX } else { 0 };
    truths::of_vector(bits, first.min(LANES * (2 * bits.len() - 1))) ^ flip
}
