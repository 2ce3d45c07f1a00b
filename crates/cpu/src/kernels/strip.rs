//! Elementwise programs over strips: short runs of elements that stay in the first-level cache, so that an expression
//! over tiles needs no full-tile temporaries.

use super::isa::Instructions;
use super::math::EXP_LEAST;
use super::real::Real;
use super::wide::{Wide, WideWork, with_wide};
use einloom_cascade::{BinaryOp, DType, UnaryOp};
use std::hint::black_box;

/// Elements of a strip at most.
pub(crate) const STRIP: usize = 1024;

/// Elements of a vector.
const LANES: usize = 16;

/// What a step reads besides its own register.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operand {
    /// Another register.
    Register(u8),
    /// A leaf of the program.
    Leaf(u16),
    /// A constant.
    Const(f64),
}

/// One step of a strip program. `d` is the register that it changes; register 0 ends as the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    /// `d = from`.
    Copy { d: u8, from: Operand },
    /// `d = op(d)`.
    Unary { op: UnaryOp, d: u8 },
    /// `d = op(d, with)`, or `op(with, d)` if `reversed`.
    Binary { op: BinaryOp, d: u8, with: Operand, reversed: bool },
    /// `d = exp(d * by - less)`, each operation rounded: the heart of every anchored exponential. 0 where the argument is less
    /// than `least`, or somewhat below.
    ScaledExp { d: u8, by: Operand, less: Operand, least: f32 },
    /// `d = tanh(d / over) * times`, each operation rounded: a soft cap.
    ScaledTanh { d: u8, over: f64, times: f64 },
    /// `d = mask ? d : other`, or `mask ? other : d` if `flipped`.
    Select { d: u8, mask: Operand, other: Operand, flipped: bool },
    /// Where `mask` is `when` everywhere, `d = from`, and the next `skip` steps, which would compute it too, are not done.
    Shortcut { d: u8, mask: Operand, when: bool, from: Operand, skip: usize },
    /// `d` rounded to a number type.
    Round { d: u8, dtype: DType },
}

impl Step {
    /// The register that it changes.
    pub(crate) fn register(&self) -> u8 {
        let (Self::Copy { d, .. }
        | Self::Unary { d, .. }
        | Self::Binary { d, .. }
        | Self::ScaledExp { d, .. }
        | Self::ScaledTanh { d, .. }
        | Self::Select { d, .. }
        | Self::Shortcut { d, .. }
        | Self::Round { d, .. }) = *self;
        d
    }

    /// What it reads besides.
    pub(crate) fn operands(&self) -> impl IntoIterator<Item = Operand> + use<> {
        let [first, second] = match *self {
            Self::Copy { from, .. } => [Some(from), None],
            Self::Binary { with, .. } => [Some(with), None],
            Self::ScaledExp { by, less, .. } => [Some(by), Some(less)],
            Self::Select { mask, other, .. } => [Some(mask), Some(other)],
            Self::Shortcut { mask, from, .. } => [Some(mask), Some(from)],
            Self::Unary { .. } | Self::ScaledTanh { .. } | Self::Round { .. } => [None, None],
        };
        first.into_iter().chain(second)
    }
}

/// What an operand is over one strip.
#[derive(Clone, Copy)]
pub(crate) enum Data<'a, T> {
    /// An element each.
    Each(&'a [T]),
    /// The same everywhere.
    Same(T),
}

/// Elements that a loop with a heavy body takes at once, so that it has no scalar remainder.
const GROUP: usize = 16;

/// `d[i] = f(d[i])`, for light bodies.
#[inline(always)]
fn each<T: Real>(d: &mut [T], f: impl Fn(T) -> T) {
    for x in d {
        *x = f(*x);
    }
}

/// `d[i] = op(d[i])`, for heavy bodies: the last group is padded. Not a function of a closure, which would be a function of its own, without
/// the instructions of who calls it.
macro_rules! heavy {
    ($d:expr, $op:expr) => {{
        let (groups, rest) = $d.as_chunks_mut::<GROUP>();
        for group in groups {
            for x in group {
                *x = x.function::<I>($op);
            }
        }
        if !rest.is_empty() {
            let mut group = [T::ONE; GROUP];
            group[..rest.len()].copy_from_slice(rest);
            for x in &mut group {
                *x = x.function::<I>($op);
            }
            rest.copy_from_slice(&group[..rest.len()]);
        }
    }};
}

/// `d[i] = f(d[i], with[i])`.
#[inline(always)]
fn both<T: Real>(d: &mut [T], with: Data<'_, T>, f: impl Fn(T, T) -> T) {
    match with {
        Data::Each(with) => {
            for (x, &y) in d.iter_mut().zip(with) {
                *x = f(*x, y);
            }
        }
        Data::Same(y) => {
            for x in d {
                *x = f(*x, y);
            }
        }
    }
}

#[inline(always)]
fn truth<T: Real>(x: bool) -> T {
    if x { T::ONE } else { T::default() }
}

/// `d = op(d)`.
#[inline(always)]
pub(crate) fn unary<T: Real, I: Instructions>(op: UnaryOp, d: &mut [T]) {
    let zero = T::default();
    match op {
        UnaryOp::Neg => each(d, |x| -x),
        UnaryOp::Not => each(d, |x| truth(x == zero)),
        UnaryOp::Abs => each(d, T::magnitude),
        UnaryOp::Sqrt => each(d, T::root),
        UnaryOp::Rsqrt => each(d, |x| T::ONE / x.root()),
        UnaryOp::Floor => each(d, T::down),
        UnaryOp::Round => each(d, T::nearest),
        UnaryOp::Sign => each(d, |x| {
            let below = if x < zero { -T::ONE } else { x };
            if x > zero { T::ONE } else { below }
        }),
        UnaryOp::Relu => each(d, |x| if x < zero { zero } else { x }),
        UnaryOp::Exp => {
            if !T::exp_kernel::<I>(d, None, T::ONE, &[zero], EXP_LEAST) {
                heavy!(d, UnaryOp::Exp);
            }
        }
        UnaryOp::Exp2 => heavy!(d, UnaryOp::Exp2),
        UnaryOp::Log => heavy!(d, UnaryOp::Log),
        UnaryOp::Log2 => heavy!(d, UnaryOp::Log2),
        UnaryOp::Log1p => heavy!(d, UnaryOp::Log1p),
        UnaryOp::Tanh => {
            if !T::tanh_kernel::<I>(d, None, 1.0, 1.0) {
                heavy!(d, UnaryOp::Tanh);
            }
        }
        UnaryOp::Sigmoid => {
            if !T::sigmoid_kernel::<I>(d) {
                heavy!(d, UnaryOp::Sigmoid);
            }
        }
        UnaryOp::Silu => heavy!(d, UnaryOp::Silu),
        UnaryOp::Erf => heavy!(d, UnaryOp::Erf),
        UnaryOp::Gelu => heavy!(d, UnaryOp::Gelu),
        UnaryOp::Sin | UnaryOp::Cos => waves::<T, I>(op, d),
    }
}

#[inline(always)]
fn waves<T: Real, I: Instructions>(op: UnaryOp, d: &mut [T]) {
    let limit = T::from_f32(super::math::WAVE_LIMIT);
    // Far arguments need a longer reduction than the vector form has.
    if d.iter().any(|x| x.magnitude() > limit) {
        each(d, |x| T::from_f64(op.apply(x.to_f64())));
    } else if op == UnaryOp::Sin {
        heavy!(d, UnaryOp::Sin);
    } else {
        heavy!(d, UnaryOp::Cos);
    }
}

/// `d = op(d, with)`, or `op(with, d)`.
#[inline(always)]
pub(crate) fn binary<T: Real, I: Instructions>(op: BinaryOp, d: &mut [T], with: Data<'_, T>, reversed: bool) {
    let zero = T::default();
    if let (BinaryOp::Div, Data::Same(by), false) = (op, with, reversed)
        && T::quotient_kernel::<I>(d, None, by)
    {
        return;
    }
    let not_number = |x: T| x.partial_cmp(&x).is_none();
    match (op, reversed) {
        (BinaryOp::Add, _) => both(d, with, |x, y| x + y),
        (BinaryOp::Sub, false) => both(d, with, |x, y| x - y),
        (BinaryOp::Sub, true) => both(d, with, |x, y| y - x),
        (BinaryOp::Mul, _) => both(d, with, |x, y| x * y),
        (BinaryOp::Div, false) => both(d, with, |x, y| x / y),
        (BinaryOp::Div, true) => both(d, with, |x, y| y / x),
        (BinaryOp::Pow, false) => both(d, with, T::pow),
        (BinaryOp::Pow, true) => both(d, with, |x, y| y.pow(x)),
        // Two selections: the first is a single instruction.
        (BinaryOp::Min, _) => both(d, with, |x, y| {
            let smaller = if x < y { x } else { y };
            if not_number(x) { x } else { smaller }
        }),
        (BinaryOp::Max, _) => both(d, with, |x, y| {
            let larger = if x > y { x } else { y };
            if not_number(x) { x } else { larger }
        }),
        (BinaryOp::Lt, false) | (BinaryOp::Gt, true) => both(d, with, |x, y| truth(x < y)),
        (BinaryOp::Gt, false) | (BinaryOp::Lt, true) => both(d, with, |x, y| truth(x > y)),
        (BinaryOp::Le, false) | (BinaryOp::Ge, true) => both(d, with, |x, y| truth(x <= y)),
        (BinaryOp::Ge, false) | (BinaryOp::Le, true) => both(d, with, |x, y| truth(x >= y)),
        (BinaryOp::Eq, _) => both(d, with, |x, y| truth(x == y)),
        (BinaryOp::Ne, _) => both(d, with, |x, y| truth(x != y)),
        (BinaryOp::And, _) => both(d, with, |x, y| truth((x != zero) & (y != zero))),
        (BinaryOp::Or, _) => both(d, with, |x, y| truth((x != zero) | (y != zero))),
    }
}

/// `d = mask ? d : other`, or the other way round.
#[inline(always)]
fn select<T: Real, I: Instructions>(d: &mut [T], mask: Data<'_, T>, other: Data<'_, T>, flipped: bool) {
    let zero = T::default();
    let mask = match mask {
        Data::Same(mask) if (mask != zero) != flipped => return,
        Data::Same(_) => return both(d, other, |_, y| y),
        Data::Each(mask) => mask,
    };
    let done = T::chosen_kernel::<I>(d, mask, other, flipped);
    let choose = |x: &mut T, m: T, y: T| *x = if (m != zero) ^ flipped { *x } else { y };
    let rest = d[done..].iter_mut().zip(&mask[done..]);
    match other {
        Data::Same(y) => rest.for_each(|(x, &m)| choose(x, m, y)),
        Data::Each(other) => rest.zip(&other[done..]).for_each(|((x, &m), &y)| choose(x, m, y)),
    }
}

/// What [`select`] does with the first elements, as many as there are vectors of. All are written, through a pointer of which the compiler
/// does not know that it is the same: it makes stores under a mask of loops that write back what they loaded, each of which takes an AMD processor
/// without AVX-512 some twenty cycles.
struct Chosen<'a> {
    d: &'a mut [f32],
    mask: &'a [f32],
    other: Data<'a, f32>,
    flipped: bool,
}

impl<V: Wide> WideWork<V> for Chosen<'_> {
    #[inline(always)]
    unsafe fn run(self) -> bool {
        let n = self.mask.len().min(self.d.len());
        let flip = if self.flipped { 0 } else { u16::MAX };
        // SAFETY: the caller has the instructions; there are as many elements.
        unsafe {
            let from = self.d.as_mut_ptr();
            let to = black_box(from);
            let zero = V::splat(0.0);
            let same = if let Data::Same(y) = self.other { V::splat(y) } else { zero };
            for at in (0..n - n % LANES).step_by(LANES) {
                let other = match self.other {
                    Data::Each(y) => V::load(y[at..at + LANES].as_ptr()),
                    Data::Same(_) => same,
                };
                let keeps = V::load(self.mask.as_ptr().add(at)).magnitude().equals(zero) ^ flip;
                V::load(from.add(at)).or_elsewhere(keeps, other).store(to.add(at));
            }
        }
        true
    }
}

/// How many elements were chosen.
#[inline(always)]
pub(super) fn chosen<I: Instructions>(d: &mut [f32], mask: &[f32], other: Data<'_, f32>, flipped: bool) -> usize {
    let n = mask.len().min(d.len());
    if with_wide::<I, _>(Chosen { d, mask, other, flipped }) { n - n % LANES } else { 0 }
}

/// Where exponentials of f32 become subnormal, which takes a processor hundreds of cycles, and again wherever they are
/// multiplied. An exponential relative to another that is that small is 0.
pub(crate) const LEAST_NORMAL: f32 = -87.336_54;

/// Below which exponentials relative to the largest one of a row's, of whose size nothing else depends, are 0: a product with
/// what is `2^-18` at least is no subnormal number. What they lack is `2^-108` of the largest.
pub(crate) const LEAST_BESIDE: f32 = -74.859_89;

/// `d = exp(x * by - less)` for `x` in `from` or in `d`, if there is a kernel for it; false, and nothing done, if not.
#[inline(always)]
fn exp_kernel<T: Real, I: Instructions>(
    d: &mut [T],
    from: Option<&[T]>,
    by: Data<'_, T>,
    less: Data<'_, T>,
    least: f32,
) -> bool {
    match (by, less) {
        (Data::Same(by), Data::Same(less)) => T::exp_kernel::<I>(d, from, by, &[less], least),
        (Data::Same(by), Data::Each(less)) => T::exp_kernel::<I>(d, from, by, less, least),
        (Data::Each(_), _) => false,
    }
}

#[inline(always)]
fn scaled_exp<T: Real, I: Instructions>(d: &mut [T], by: Data<'_, T>, less: Data<'_, T>, least: f32) {
    if !exp_kernel::<T, I>(d, None, by, less, least) {
        both(d, by, |x, y| x * y);
        both(d, less, |x, y| x - y);
        unary::<T, I>(UnaryOp::Exp, d);
    }
}

#[inline(always)]
fn scaled_tanh<T: Real, I: Instructions>(d: &mut [T], over: f64, times: f64) {
    if !T::tanh_kernel::<I>(d, None, over, times) {
        binary::<T, I>(BinaryOp::Div, d, Data::Same(T::from_f64(over)), false);
        unary::<T, I>(UnaryOp::Tanh, d);
        binary::<T, I>(BinaryOp::Mul, d, Data::Same(T::from_f64(times)), false);
    }
}

/// Elements of a mask that are looked at before the first of them can decide.
const MASK: usize = 64;

/// Whether all elements of a mask are `when`.
#[inline(always)]
fn everywhere<T: Real>(mask: Data<'_, T>, when: bool) -> bool {
    let is = |x: T| (x != T::default()) == when;
    match mask {
        Data::Same(x) => is(x),
        // Parts that are looked at whole: a loop that may end at any element does not become vector instructions.
        Data::Each(x) => x.chunks(MASK).all(|part| part.iter().fold(true, |so, &x| so & is(x))),
    }
}

/// `d` rounded to a number type.
#[inline(always)]
pub(crate) fn round<T: Real>(d: &mut [T], dtype: DType) {
    match dtype {
        DType::Bf16 => each(d, |x| x.rounded(DType::Bf16)),
        DType::F16 => each(d, |x| x.rounded(DType::F16)),
        DType::E4m3 => each(d, |x| x.rounded(DType::E4m3)),
        DType::E5m2 => each(d, |x| x.rounded(DType::E5m2)),
        DType::Tf32 => each(d, |x| x.rounded(DType::Tf32)),
        DType::F32 => each(d, |x| x.rounded(DType::F32)),
        DType::B1 => each(d, |x| x.rounded(DType::B1)),
        DType::F64 => {}
        integer => {
            if let Some((low, high)) = integer.integer_range() {
                let (low, high) = (T::from_f64(low as f64), T::from_f64(high as f64));
                let zero = T::default();
                each(d, |x| {
                    let x = x.nearest();
                    let x = if x < low { low } else { x };
                    let x = if x > high { high } else { x };
                    // Adding zero turns -0 into 0; a NaN becomes 0.
                    if x.partial_cmp(&x).is_some() { x + zero } else { zero }
                });
            }
        }
    }
}

/// Registers 1 and up; 0 is the strip of the result.
pub(crate) type Registers<T> = [Box<[T]>];

/// `d = op(from, with)`, or `op(with, from)`, for the operations that are too light to copy `from` first; false, and
/// nothing done, for the others.
#[inline(always)]
fn binary_from<T: Real, I: Instructions>(
    op: BinaryOp,
    d: &mut [T],
    from: &[T],
    with: Data<'_, T>,
    reversed: bool,
) -> bool {
    #[inline(always)]
    fn each<T: Real>(d: &mut [T], from: &[T], with: Data<'_, T>, f: impl Fn(T, T) -> T) -> bool {
        match with {
            Data::Each(with) => d.iter_mut().zip(from).zip(with).for_each(|((d, &x), &y)| *d = f(x, y)),
            Data::Same(y) => d.iter_mut().zip(from).for_each(|(d, &x)| *d = f(x, y)),
        }
        true
    }
    match (op, reversed) {
        (BinaryOp::Add, _) => each(d, from, with, |x, y| x + y),
        (BinaryOp::Sub, false) => each(d, from, with, |x, y| x - y),
        (BinaryOp::Sub, true) => each(d, from, with, |x, y| y - x),
        (BinaryOp::Mul, _) => each(d, from, with, |x, y| x * y),
        (BinaryOp::Div, false) => matches!(with, Data::Same(by) if T::quotient_kernel::<I>(d, Some(from), by)),
        _ => false,
    }
}

/// Runs `steps` on one strip. `leaf` resolves leaves; every slice that it gives is at least as long as `result`.
#[inline(always)]
pub(crate) fn run<'a, T: Real, I: Instructions>(
    steps: &[Step],
    result: &mut [T],
    registers: &mut Registers<T>,
    leaf: impl Fn(u16) -> Data<'a, T>,
) {
    let n = result.len();
    // What an operand is, `registers` being as they are now.
    #[inline(always)]
    fn data<'r, 'a: 'r, T: Real>(
        operand: Operand,
        n: usize,
        registers: &'r Registers<T>,
        leaf: &impl Fn(u16) -> Data<'a, T>,
    ) -> Data<'r, T> {
        match operand {
            Operand::Register(r) => Data::Each(&registers[usize::from(r)][..n]),
            Operand::Leaf(l) => match leaf(l) {
                Data::Each(x) => Data::Each(&x[..n]),
                same => same,
            },
            Operand::Const(x) => Data::Same(T::from_f64(x)),
        }
    }
    // A copy at the start is left to the next step where that can read from elsewhere.
    let copied = match *steps.first().unwrap_or(&Step::Round { d: 0, dtype: DType::F64 }) {
        Step::Copy { d: 0, from } => Some((1, from)),
        Step::Shortcut { d: 0, mask, when, from, skip } if everywhere(data(mask, n, registers, &leaf), when) => {
            Some((1 + skip, from))
        }
        _ => None,
    };
    let mut done = 0;
    if let Some((next, from)) = copied
        && let Data::Each(from) = data(from, n, registers, &leaf)
    {
        let data = |operand| data(operand, n, registers, &leaf);
        let taken = match steps.get(next) {
            Some(&Step::Binary { op, d: 0, with, reversed }) => {
                binary_from::<T, I>(op, result, from, data(with), reversed)
            }
            Some(&Step::ScaledExp { d: 0, by, less, least }) => {
                exp_kernel::<T, I>(result, Some(from), data(by), data(less), least)
            }
            Some(&Step::ScaledTanh { d: 0, over, times }) => T::tanh_kernel::<I>(result, Some(from), over, times),
            _ => false,
        };
        if taken {
            done = next + 1;
        }
    }
    let mut skipped = done;
    for (number, step) in steps.iter().enumerate().skip(done) {
        if number < skipped {
            continue;
        }
        let d = step.register();
        // Taken out while it is written, so that the others can be read.
        let mut taken = if d == 0 { Box::default() } else { std::mem::take(&mut registers[usize::from(d)]) };
        // A step never reads its own register as an operand, and none but the last of a strip's steps ends in 0 while
        // another needs it: register 0 is only ever changed in place.
        let data = |operand: Operand| data(operand, n, registers, &leaf);
        let target = if d == 0 { &mut *result } else { &mut taken[..n] };
        match *step {
            Step::Copy { from, .. } => {
                let next = match (data(from), steps.get(number + 1)) {
                    (Data::Each(from), Some(&Step::Binary { op, d: next, with, reversed }))
                        if next == d && with != Operand::Register(d) =>
                    {
                        binary_from::<T, I>(op, target, from, data(with), reversed)
                    }
                    _ => false,
                };
                match data(from) {
                    _ if next => skipped = number + 2,
                    Data::Each(x) => target.copy_from_slice(x),
                    Data::Same(x) => target.fill(x),
                }
            }
            Step::Unary { op, .. } => unary::<T, I>(op, target),
            Step::Binary { op, with, reversed, .. } => binary::<T, I>(op, target, data(with), reversed),
            Step::ScaledExp { by, less, least, .. } => scaled_exp::<T, I>(target, data(by), data(less), least),
            Step::ScaledTanh { over, times, .. } => scaled_tanh::<T, I>(target, over, times),
            Step::Select { mask, other, flipped, .. } => select::<T, I>(target, data(mask), data(other), flipped),
            Step::Shortcut { mask, when, from, skip, .. } => {
                if everywhere(data(mask), when) {
                    match data(from) {
                        Data::Each(x) => target.copy_from_slice(x),
                        Data::Same(x) => target.fill(x),
                    }
                    skipped = number + 1 + skip;
                }
            }
            Step::Round { dtype, .. } => round(target, dtype),
        }
        if d != 0 {
            registers[usize::from(d)] = taken;
        }
    }
}
