//! Chains of operations on the elements of a row, in registers from what is loaded to what is stored, reduced in passing: strip
//! by strip every step reads and writes the first-level cache, and what is not f32 is widened and rounded there besides.

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
/// Vectors side by side where they are in memory: rows of so many elements or more. Two in registers took 72 ms for a layer norm and 45 for an RMS norm of 4096
/// squared, four in memory 49 and 32, eight as long (medians, one thread of a Zen 3, others using it).
const IN_MEMORY: usize = 4;

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
#[derive(Debug)]
pub(crate) struct Chain {
    links: [Link; LINKS],
    count: usize,
}

impl Chain {
    /// Of steps that add, multiply, divide, take the larger or smaller or exponentiate, in few registers; `None` if there are others.
    pub(crate) fn new(steps: &[Step]) -> Option<Self> {
        let mut links = [Link { of: Do::Copy, d: 0, with: With::Const(0.0) }; LINKS];
        for (k, step) in steps.iter().enumerate() {
            *links.get_mut(k)? = link(step)?;
        }
        Some(Self { links, count: steps.len() })
    }

    fn links(&self) -> &[Link] {
        &self.links[..self.count]
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
        for link in self.links() {
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
        with_wide::<I, _>(Row { links: self.links(), leaves, to, count, fold })
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
        for link in self.links {
            if let Do::Exp([_, least]) = link.of
                && !V::ends_at(least)
            {
                return false;
            }
        }
        // SAFETY: the caller's.
        unsafe {
            // As many side by side as there are registers for; or many in memory, as what chooses an operation counts once for all of them.
            match (V::WIDE, self.count >= IN_MEMORY * LANES) {
                (true, _) => pieces::<V, 8, false>(self),
                (false, true) => pieces::<V, IN_MEMORY, true>(self),
                (false, false) => pieces::<V, 2, false>(self),
            }
        }
        true
    }
}

/// # Safety
/// The processor has the vectors; lengths were checked.
#[inline(always)]
unsafe fn pieces<V: Wide, const SIDE: usize, const MEMORY: bool>(row: Row<'_>) {
    let Row { links, leaves, to, count, fold } = row;
    let (floats, codes): (*mut f32, *mut u16) = match to {
        To::Nowhere => (std::ptr::null_mut(), std::ptr::null_mut()),
        To::Floats(to) => (to.as_mut_ptr(), std::ptr::null_mut()),
        To::Bf16(to) => (std::ptr::null_mut(), to.as_mut_ptr()),
    };
    let block = Block { links, leaves, own: floats.cast_const() };
    let monoid = fold.as_ref().map(|fold| fold.0);
    let identity = monoid.map_or(0.0, Monoid::identity);
    // SAFETY: the caller's; masks have a bit for each element that is there.
    unsafe {
        let none = V::splat(identity);
        let mut all = [none; SIDE];
        let mut more = [[none; SIDE]; MORE];
        let mut registers = [[none; SIDE]; 1 + MORE];
        let mut at = 0;
        while at < count {
            let left = count - at;
            let full = left >= SIDE * LANES;
            let mut x = match (MEMORY, full) {
                (false, true) => block.all::<V, SIDE, true>(at, left, &mut more),
                (false, false) => block.all::<V, SIDE, false>(at, left, &mut more),
                (true, true) => block.in_memory::<V, SIDE, true>(at, left, &mut registers),
                (true, false) => block.in_memory::<V, SIDE, false>(at, left, &mut registers),
            };
            if full {
                for i in 0..SIDE {
                    if !floats.is_null() {
                        x[i].store(floats.add(at + LANES * i));
                    } else if !codes.is_null() && i % 2 == 0 {
                        V::store_bf16([x[i], x[i + 1]], [u16::MAX; 2], codes.add(at + LANES * i));
                    }
                }
            } else {
                for i in 0..SIDE {
                    let (mask, to) = (there(left, i), at + LANES * i);
                    if !floats.is_null() {
                        x[i].store_where(mask, floats.wrapping_add(to));
                    } else if !codes.is_null() && i % 2 == 0 {
                        V::store_bf16([x[i], x[i + 1]], [mask, there(left, i + 1)], codes.wrapping_add(to));
                    }
                }
                for (i, x) in x.iter_mut().enumerate() {
                    *x = x.or_elsewhere(there(left, i), none);
                }
            }
            if let Some(monoid) = monoid {
                for i in 0..SIDE {
                    all[i] = of(monoid, all[i], x[i]);
                }
            }
            at += SIDE * LANES;
        }
        let Some((monoid, partial)) = fold else { return };
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

/// A bit for each lane of a vector of which there is an element, if so many are left.
#[inline(always)]
fn there(left: usize, vector: usize) -> u16 {
    ((1u32 << left.saturating_sub(LANES * vector).min(LANES)) - 1) as u16
}

struct Block<'a> {
    links: &'a [Link],
    leaves: &'a [Elements<'a>],
    own: *const f32,
}

impl Block<'_> {
    /// The results of some vectors, from an element on, all of them there if `FULL`; `more` is room for the other registers, each of which
    /// is written before it is read.
    ///
    /// # Safety
    /// As of [`pieces`].
    #[inline(always)]
    unsafe fn all<V: Wide, const SIDE: usize, const FULL: bool>(
        &self,
        at: usize,
        left: usize,
        more: &mut [[V; SIDE]; MORE],
    ) -> [V; SIDE] {
        // SAFETY: the caller's.
        unsafe {
            let mut x = [V::splat(0.0); SIDE];
            let mut next = 0;
            while let Some(link) = self.links.get(next) {
                next += 1;
                if let Do::Shortcut { mask, when, skip } = link.of {
                    if !matches!(self.leaves[mask], Elements::Same(y) if (y != 0.0) == when) {
                        continue;
                    }
                    next += skip;
                }
                let mut w = [V::splat(0.0); SIDE];
                let mut same = None;
                match link.with {
                    With::Leaf(number) => same = self.load::<V, SIDE, FULL>(&mut w, number, at, left),
                    With::Register(number) => w = more[number],
                    With::Const(y) => same = Some(y),
                }
                if let Some(number) = same {
                    w = [V::splat(number); SIDE];
                }
                let mut y = if link.d == 0 { x } else { more[link.d - 1] };
                self.act(link.of, &mut y, |i| w[i], same, at);
                if link.d == 0 {
                    x = y;
                } else {
                    more[link.d - 1] = y;
                }
            }
            x
        }
    }
}

impl Block<'_> {
    /// The same, operands and results of each operation in memory.
    ///
    /// # Safety
    /// As of [`pieces`].
    #[inline(always)]
    unsafe fn in_memory<V: Wide, const SIDE: usize, const FULL: bool>(
        &self,
        at: usize,
        left: usize,
        registers: &mut [[V; SIDE]; 1 + MORE],
    ) -> [V; SIDE] {
        let all = registers.as_mut_ptr();
        let mut next = 0;
        while let Some(link) = self.links.get(next) {
            next += 1;
            if let Do::Shortcut { mask, when, skip } = link.of {
                if !matches!(self.leaves[mask], Elements::Same(y) if (y != 0.0) == when) {
                    continue;
                }
                next += skip;
            }
            // Where the other operand's numbers are; null if they are not there as f32, or those that are written.
            let there: *const f32 = match link.with {
                With::Leaf(number) => match self.leaves[number] {
                    Elements::Own if FULL => self.own.wrapping_add(at),
                    Elements::Floats(from) if FULL => from.as_ptr().wrapping_add(at),
                    _ => std::ptr::null(),
                },
                With::Register(number) if link.d != number + 1 => all.wrapping_add(number + 1).cast(),
                With::Register(_) | With::Const(_) => std::ptr::null(),
            };
            // SAFETY: the caller's; there are so many registers, and none that is written is read through the pointer.
            unsafe {
                let y = &mut *all.add(link.d);
                if !there.is_null() {
                    self.act(link.of, y, |i| V::load(there.add(LANES * i)), None, at);
                    continue;
                }
                let mut w = [V::splat(0.0); SIDE];
                let same = match link.with {
                    With::Leaf(number) => self.load::<V, SIDE, FULL>(&mut w, number, at, left),
                    With::Register(_) => {
                        w = *y;
                        None
                    }
                    With::Const(number) => Some(number),
                };
                match same {
                    Some(number) => {
                        let w = V::splat(number);
                        self.act(link.of, y, |_| w, same, at);
                    }
                    None => self.act(link.of, y, |i| w[i], None, at),
                }
            }
        }
        registers[0]
    }

    /// One operation on some vectors; `same` tells what all elements of the other operand are, if that is known.
    ///
    /// # Safety
    /// As of [`pieces`].
    #[inline(always)]
    unsafe fn act<V: Wide, const SIDE: usize>(
        &self,
        of: Do,
        y: &mut [V; SIDE],
        w: impl Fn(usize) -> V,
        same: Option<f32>,
        at: usize,
    ) {
        // SAFETY: the caller's.
        unsafe {
            let Do::Select { mask, flipped } = of else { return of.apply(y, w, same) };
            let Elements::Bits(bits) = self.leaves[mask] else { return };
            let flip = if flipped { u16::MAX } else { 0 };
            for (i, y) in y.iter_mut().enumerate() {
                // Beyond the last word there is no element.
                let first = (at + LANES * i).min(LANES * (2 * bits.len() - 1));
                *y = y.or_elsewhere(truths::of_vector(bits, first) ^ flip, w(i));
            }
        }
    }

    /// Elements of a leaf; if all are the same number, only that.
    ///
    /// # Safety
    /// As of [`pieces`].
    #[inline(always)]
    unsafe fn load<V: Wide, const SIDE: usize, const FULL: bool>(
        &self,
        w: &mut [V; SIDE],
        leaf: usize,
        at: usize,
        left: usize,
    ) -> Option<f32> {
        let mask = |i: usize| if FULL { u16::MAX } else { there(left, i) };
        // SAFETY: the caller's.
        unsafe {
            match self.leaves[leaf] {
                Elements::Own => load::<V, SIDE, FULL>(w, self.own.wrapping_add(at), left),
                Elements::Floats(from) => load::<V, SIDE, FULL>(w, from.as_ptr().wrapping_add(at), left),
                Elements::Bf16(from) => {
                    for (i, w) in w.iter_mut().enumerate() {
                        *w = V::load_bf16(mask(i), from.as_ptr().wrapping_add(at + LANES * i));
                    }
                }
                Elements::F16(from) => {
                    for (i, w) in w.iter_mut().enumerate() {
                        *w = V::load_f16(mask(i), from.as_ptr().wrapping_add(at + LANES * i));
                    }
                }
                Elements::Same(number) => return Some(number),
                // No operand.
                Elements::Bits(_) => {}
            }
        }
        None
    }
}

/// # Safety
/// As of [`pieces`].
#[inline(always)]
unsafe fn load<V: Wide, const SIDE: usize, const FULL: bool>(x: &mut [V; SIDE], from: *const f32, left: usize) {
    for (i, x) in x.iter_mut().enumerate() {
        let from = from.wrapping_add(LANES * i);
        // SAFETY: the caller's.
        *x = unsafe { if FULL { V::load(from) } else { V::load_where(there(left, i), from) } };
    }
}

impl Do {
    /// `y = op(y, w)`; `same` tells what all of the latter are, if that is known.
    ///
    /// # Safety
    /// The processor has the vectors.
    #[inline(always)]
    unsafe fn apply<V: Wide, const SIDE: usize>(self, y: &mut [V; SIDE], w: impl Fn(usize) -> V, same: Option<f32>) {
        macro_rules! each {
            ($y:ident, $w:ident => $of:expr) => {
                for i in 0..SIDE {
                    let ($y, $w) = (y[i], w(i));
                    y[i] = $of;
                }
            };
        }
        // SAFETY: the caller's.
        unsafe {
            match self {
                Self::Copy | Self::Shortcut { .. } => {
                    for (i, y) in y.iter_mut().enumerate() {
                        *y = w(i);
                    }
                }
                // Its bits are not here.
                Self::Select { .. } => {}
                Self::Add => each!(y, w => y.add(w)),
                Self::Sub => each!(y, w => y.minus(w)),
                Self::SubFrom => each!(y, w => w.minus(y)),
                Self::Mul => each!(y, w => y.mul(w)),
                Self::Div => match same {
                    Some(by) if super::codes::divides(by) => {
                        let inverse = V::splat(1.0 / by);
                        each!(y, w => y.quotient(w, inverse));
                    }
                    _ => each!(y, w => y.divided(w)),
                },
                Self::DivInto => each!(y, w => w.divided(y)),
                Self::Max => each!(y, w => y.larger(w)),
                Self::Min => each!(y, w => y.smaller(w)),
                Self::Neg => {
                    let sign = V::splat(-0.0);
                    for y in y {
                        *y = y.signed(sign);
                    }
                }
                Self::Abs => {
                    for y in y {
                        *y = y.magnitude();
                    }
                }
                Self::Relu => {
                    let (none, most) = (V::splat(0.0), V::splat(f32::INFINITY));
                    for y in y {
                        *y = y.between(none, most);
                    }
                }
                Self::Exp([by, least]) => {
                    let (by, least, table) = (V::splat(by), V::splat(least), V::table());
                    for i in 0..SIDE / 2 {
                        let two = [y[2 * i].times_less(by, w(2 * i)), y[2 * i + 1].times_less(by, w(2 * i + 1))];
                        [y[2 * i], y[2 * i + 1]] = V::exps(two, least, table);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Chain, Elements, To};
    use crate::kernels::fold::{Monoid, Partial};
    use crate::kernels::isa::{Instructions, Isa, Token, Work, dispatch};
    use crate::kernels::strip::{self, Data, Operand, STRIP, Step};
    use einloom_cascade::numeric::{bf16_to_f32, f32_to_bf16, f32_to_f16};
    use einloom_cascade::{BinaryOp, UnaryOp};

    struct Run<'a>(&'a Chain, &'a [Elements<'a>], To<'a>, usize, Option<(Monoid, &'a mut Partial)>);

    impl Work for Run<'_> {
        type Output = bool;
        #[inline(always)]
        fn run<I: Instructions>(self) -> bool {
            self.0.run::<I>(self.1, self.2, self.3, self.4)
        }
    }

    /// The strips that the steps are otherwise.
    struct Strips<'a>(&'a [Step], &'a mut [f32], &'a [Data<'a, f32>]);

    impl Work for Strips<'_> {
        type Output = ();
        #[inline(always)]
        fn run<I: Instructions>(self) {
            let mut registers = vec![vec![0.0; STRIP].into_boxed_slice(); 4];
            strip::run::<f32, I>(self.0, self.1, &mut registers, |number| self.2[usize::from(number)]);
        }
    }

    fn tokens() -> impl Iterator<Item = Token> {
        Isa::ALL.into_iter().filter(|isa| *isa != Isa::Portable).filter_map(Token::new)
    }

    fn numbers(count: usize, step: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * step + i / 5) % 67) as f32 / 16.0 - 2.0).collect()
    }

    fn binary(op: BinaryOp, d: u8, with: Operand, reversed: bool) -> Step {
        Step::Binary { op, d, with, reversed }
    }

    fn leaf(d: u8, number: u16) -> Step {
        Step::Copy { d, from: Operand::Leaf(number) }
    }

    /// Leaf 0 is f32, 1 bf16, 2 f16, 3 the same everywhere, 4 no zero everywhere.
    fn programs() -> Vec<Vec<Step>> {
        use BinaryOp::{Add, Div, Max, Min, Mul, Sub};
        use Operand::{Const, Leaf, Register};
        let every = [Add, Sub, Mul, Div, Max, Min].into_iter().flat_map(|op| [false, true].map(|r| (op, r)));
        let mut all: Vec<Vec<Step>> =
            every.clone().map(|(op, r)| vec![leaf(0, 1), binary(op, 0, Leaf(0), r)]).collect();
        all.extend(every.map(|(op, r)| vec![leaf(0, 0), binary(op, 0, Leaf(3), r)]));
        all.extend([UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Relu].map(|op| vec![leaf(0, 0), Step::Unary { op, d: 0 }]));
        let exp = Step::ScaledExp { d: 0, by: Const(0.75), less: Leaf(3), least: crate::kernels::strip::LEAST_NORMAL };
        all.push(vec![leaf(0, 2), exp]);
        // A difference's square, and what a norm makes of a row.
        let difference = |d| [leaf(d, 1), binary(Sub, d, Leaf(3), false)];
        let square = [Step::Copy { d: 0, from: Register(1) }, binary(Mul, 0, Register(1), false)];
        all.push([&difference(1)[..], &square].concat());
        let norm = [binary(Div, 0, Const(3.0), false), binary(Mul, 0, Leaf(2), false), binary(Add, 0, Leaf(0), false)];
        all.push([&difference(0)[..], &norm].concat());
        for when in [true, false] {
            let skip = Step::Shortcut { d: 0, mask: Leaf(4), when, from: Leaf(0), skip: 2 };
            all.push(vec![skip, leaf(0, 1), binary(Add, 0, Const(1.0), false), binary(Mul, 0, Const(2.0), false)]);
        }
        all
    }

    #[test]
    fn chains_are_strips_to_the_bit_wherever_the_results_go() {
        for token in tokens() {
            for (which, steps) in programs().into_iter().enumerate() {
                let chain = Chain::new(&steps).expect("a chain");
                for count in [1, 15, 16, 17, 31, 127, 128, 129, 300, 1000] {
                    chain_with(token, &chain, &steps, count, which);
                }
            }
        }
    }

    fn chain_with(token: Token, chain: &Chain, steps: &[Step], count: usize, which: usize) {
        let (floats, others) = (numbers(count, 37), numbers(count, 23));
        let bf16: Vec<u16> = others.iter().map(|&x| f32_to_bf16(x)).collect();
        let f16: Vec<u16> = others.iter().map(|&x| f32_to_f16(x)).collect();
        let leaves = [
            Elements::Floats(&floats),
            Elements::Bf16(&bf16),
            Elements::F16(&f16),
            Elements::Same(0.375),
            Elements::Same(1.0),
        ];
        let data = [Data::Each(&floats), Data::Each(&others), Data::Each(&others), Data::Same(0.375), Data::Same(1.0)];
        let mut want = vec![0.0; count];
        dispatch(token, Strips(steps, &mut want, &data[..]));
        for monoid in [Monoid::Sum, Monoid::Prod, Monoid::Max, Monoid::Min] {
            let mut got = vec![f32::NAN; count + 3];
            let mut partial = Partial::all(monoid.identity());
            let run = Run(chain, &leaves, To::Floats(&mut got), count, Some((monoid, &mut partial)));
            assert!(dispatch(token, run), "program {which}");
            let same = |x: f32, y: f32| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
            assert!(got.iter().zip(&want).all(|(x, y)| same(*x, *y)), "program {which}, {count} elements");
            assert!(got[count..].iter().all(|x| x.is_nan()), "beyond the row");
            let (mut total, mut size) = (f64::from(monoid.identity()), 0.0f64);
            for &x in &want {
                size += f64::from(x.abs());
                total = match monoid {
                    Monoid::Sum => total + f64::from(x),
                    Monoid::Prod => total * f64::from(x),
                    Monoid::Max => total.max(f64::from(x)),
                    Monoid::Min => total.min(f64::from(x)),
                };
            }
            let found = f64::from(monoid.total(partial));
            let error = if monoid == Monoid::Prod { total.abs() } else { size };
            // Products of many leave the range on the way.
            let within = total.is_finite() && (monoid != Monoid::Prod || count <= 17);
            assert!(!within || (found - total).abs() <= 1e-5 * error, "program {which}: {found} for {total}");
        }
        let mut codes = vec![7; count + 3];
        assert!(dispatch(token, Run(chain, &leaves, To::Bf16(&mut codes), count, None)));
        let right = |(x, y): (&u16, &f32)| *x == f32_to_bf16(*y) || bf16_to_f32(*x).is_nan() && y.is_nan();
        assert!(codes.iter().zip(&want).all(right), "program {which}, {count} codes");
        assert_eq!(codes[count..], [7; 3]);
    }

    /// Codes of every kind of number, and quotients of them.
    #[test]
    fn what_is_no_number_is_rounded_and_divided_as_elsewhere() {
        let special = [0x7fc0_0001u32, 0xff80_0001, 0x7f80_0000, 0xff80_0000, 0, 0x8000_0000, 1, 0x7f7f_ffff];
        let ties = (0..64u32).map(|i| 0x3f80_0000 + i * 0x4000);
        let x: Vec<f32> = special.into_iter().chain(ties).map(f32::from_bits).collect();
        let by = Step::Binary { op: BinaryOp::Div, d: 0, with: Operand::Leaf(1), reversed: false };
        for token in tokens() {
            for steps in [vec![leaf(0, 0)], vec![leaf(0, 0), by]] {
                let chain = Chain::new(&steps).expect("a chain");
                for over in [3.0, 1e-38, 1e38, 0.0, f32::INFINITY, f32::NAN] {
                    let leaves = [Elements::Floats(&x), Elements::Same(over)];
                    let (mut want, mut codes) = (vec![0.0; x.len()], vec![0; x.len()]);
                    dispatch(token, Strips(&steps, &mut want, &[Data::Each(&x), Data::Same(over)]));
                    assert!(dispatch(token, Run(&chain, &leaves, To::Bf16(&mut codes), x.len(), None)));
                    for (&code, &y) in codes.iter().zip(&want) {
                        let nan = bf16_to_f32(code).is_nan() && y.is_nan();
                        assert!(nan || code == f32_to_bf16(y), "{code:x} for {y} by {over}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_result_takes_the_place_of_its_operand() {
        for token in tokens() {
            let steps = [leaf(0, 0), binary(BinaryOp::Mul, 0, Operand::Leaf(0), false)];
            let chain = Chain::new(&steps).expect("a chain");
            let mut x = numbers(203, 11);
            let want: Vec<f32> = x.iter().map(|x| x * x).collect();
            assert!(dispatch(token, Run(&chain, &[Elements::Own], To::Floats(&mut x), 203, None)));
            assert_eq!(x, want);
        }
    }

    #[test]
    fn bits_choose_as_numbers_do() {
        for (token, count) in tokens().flat_map(|token| [1, 31, 128, 300].map(|count| (token, count))) {
            let (x, y) = (numbers(count, 37), numbers(count, 11));
            let mask: Vec<f32> = (0..count).map(|i| f32::from(u8::from(i * i % 7 < 3))).collect();
            let bits = crate::kernels::truths::of_numbers(&mask);
            for (other, flipped) in [(Operand::Leaf(2), false), (Operand::Const(-1.5), true), (Operand::Leaf(2), true)]
            {
                let select = Step::Select { d: 0, mask: Operand::Leaf(1), other, flipped };
                let after = binary(BinaryOp::Add, 0, Operand::Leaf(2), false);
                let steps = [leaf(0, 0), binary(BinaryOp::Mul, 0, Operand::Const(0.5), false), select, after];
                let chain = Chain::new(&steps).expect("a chain");
                let (mut want, mut got) = (vec![0.0; count], vec![0.0; count]);
                dispatch(token, Strips(&steps, &mut want, &[Data::Each(&x), Data::Each(&mask), Data::Each(&y)]));
                let mut leaves = [Elements::Floats(&x), Elements::Bits(&bits), Elements::Floats(&y)];
                assert!(dispatch(token, Run(&chain, &leaves, To::Floats(&mut got), count, None)));
                assert_eq!(got, want, "{count} {other:?} {flipped}");
                // Numbers choose in strips only.
                leaves[1] = Elements::Floats(&mask);
                assert!(!dispatch(token, Run(&chain, &leaves, To::Floats(&mut got), count, None)));
                assert_eq!(got, want);
            }
        }
    }

    #[test]
    fn other_steps_and_masks_that_differ_are_refused() {
        let mask = [1.0, 0.0];
        assert!(Chain::new(&[Step::Unary { op: UnaryOp::Gelu, d: 0 }]).is_none());
        assert!(Chain::new(&[leaf(9, 0)]).is_none());
        assert!(Chain::new(&[leaf(0, 0); 17]).is_none());
        let skip = Step::Shortcut { d: 0, mask: Operand::Leaf(0), when: true, from: Operand::Leaf(0), skip: 0 };
        let chain = Chain::new(&[skip]).expect("a chain");
        for token in tokens() {
            let mut to = [7.0; 2];
            assert!(!dispatch(token, Run(&chain, &[Elements::Floats(&mask)], To::Floats(&mut to), 2, None)));
            assert_eq!(to, [7.0; 2]);
        }
    }
}
