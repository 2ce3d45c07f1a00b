//! The hyperbolic tangent by vectors: a polynomial of small numbers, a quotient of two of others, which have no steps one of
//! which waits for a table. Where vectors side by side hold small numbers only, no quotient is computed; what becomes of a number
//! does not hang on what is beside it.

use super::isa::Instructions;
use super::wide::{Wide, WideWork, with_wide};

/// From here on the tangent rounds to 1: half a unit in the last place of f32 is `2^-25`, and `1 - tanh(x)` is
/// `2 / (exp(2x) + 1)`.
const MOST: f32 = 9.02;

/// `tanh(x) = x * p(x^2) / q(x^2)` for `|x| <= MOST`: the coefficients of `p` and `q` from that of `x^2` on; both begin with 1,
/// so that small numbers are their own tangents. Fitted for the least relative error by weighted least squares, the weights
/// raised where the error was large (Lawson, 1961): it is at most `2.2e-8`, with coefficients in f32 `3.6e-8`.
const P: [f32; 4] = [0.133_826_85, 0.003_497_455_7, 2.063_579_3e-5, 1.338_425_5e-8];
const Q: [f32; 4] = [0.467_160_08, 0.025_884_353, 3.288_514_3e-4, 7.790_233_7e-7];

/// The square of the largest small number.
const NEAR: f32 = 0.5;
/// `tanh(x) = x * (1 + x^2 * p(x^2))` of small numbers, fitted in the same way: the relative error is at most `1.8e-8`.
const NEAR_P: [f32; 5] = [-0.333_331_76, 0.133_288_03, -0.053_537_443, 0.020_034_25, -0.005_085_662];

/// `d[i] = tanh(x[i] / over) * times`, where `x` is `from`, or `d` itself; `from` has as many elements as `d`. It is within 5.5 ulp and
/// at most `times`: the divisor and the factor are part of the polynomials. False if the instructions are not there, or nothing is
/// promised for the numbers: nothing is done then.
#[inline(always)]
pub(super) fn run<I: Instructions>(d: &mut [f32], from: Option<&[f32]>, over: f32, times: f32) -> bool {
    is_promised(over, times) && with_wide::<I, _>(Strip { d, from, over, times })
}

/// Whether the polynomials have coefficients with this divisor, and the numbers between are finite.
pub(super) fn is_promised(over: f32, times: f32) -> bool {
    const FAR: f32 = 4096.0;
    (1.0 / FAR..=FAR).contains(&over.abs()) && (times / over).is_normal() && (times * MOST).is_finite()
}

/// From here on a rough tangent is that of this number.
const ROUGH_MOST: f32 = 6.2;
/// As [`P`] and [`Q`], for a relative error of `1.0e-5`, which is what `1 - tanh` is at most beyond.
const ROUGH_P: [f32; 2] = [0.114_615_99, 0.001_498_728];
const ROUGH_Q: [f32; 3] = [0.447_907_9, 0.017_524_032, 5.520_593e-5];
/// `tanh(x) = x * p(x^2)` of small numbers, for a relative error of `7.3e-6`.
const ROUGH_NEAR_P: [f32; 4] = [0.999_992_8, -0.332_866_13, 0.128_479_61, -0.037_029_36];
/// Twice that error of this is a thousandth at most.
const ROUGH_TIMES: f32 = 50.0;

/// The same within a thousandth: of what is an exponential's argument that is rounded to eight bits, two of which are three thousandths
/// apart at least. False, and nothing done, also where it would not be.
#[inline(always)]
pub(crate) fn roughly<I: Instructions>(d: &mut [f32], over: f32, times: f32) -> bool {
    is_promised(over, times) && times.abs() <= ROUGH_TIMES && with_wide::<I, _>(Roughly { d, over, times })
}

struct Roughly<'a> {
    d: &'a mut [f32],
    over: f32,
    times: f32,
}

impl<V: Wide> WideWork<V> for Roughly<'_> {
    #[inline(always)]
    unsafe fn run(self) -> bool {
        let Self { d, over, times } = self;
        let n = d.len();
        // SAFETY: the caller has the instructions, and the elements are there.
        unsafe {
            let cap = Rough::<V>::new(over, times);
            let to = d.as_mut_ptr();
            let mut at = 0;
            while at + 64 <= n {
                let mut x = [cap.near; 4];
                for (i, x) in x.iter_mut().enumerate() {
                    *x = V::load(to.add(at + 16 * i));
                }
                for (i, y) in cap.of(x).into_iter().enumerate() {
                    y.store(to.add(at + 16 * i));
                }
                at += 64;
            }
            while at < n {
                let left = (n - at).min(16);
                let [y] = cap.of([V::load_first(to.add(at), left)]);
                y.store_first(to.add(at), left);
                at += 16;
            }
        }
        true
    }
}

/// `tanh(x / over) * times`, roughly: what it needs of numbers.
#[derive(Clone, Copy)]
struct Rough<V> {
    /// The largest square of a small number.
    near: V,
    near_p: [V; 4],
    ends: [V; 2],
    p: [V; 3],
    q: [V; 4],
}

impl<V: Wide> Rough<V> {
    /// # Safety
    /// The processor has the vectors.
    #[inline(always)]
    unsafe fn new(over: f32, times: f32) -> Self {
        let (by, square) = (f64::from(times) / f64::from(over), f64::from(over) * f64::from(over));
        let scaled = |first: f64, x: f32, power: i32| (first * f64::from(x) / square.powi(power)) as f32;
        // SAFETY: the caller's.
        unsafe {
            let most = ROUGH_MOST * over.abs();
            let mut near_p = [V::splat(0.0); 4];
            for (i, (p, x)) in near_p.iter_mut().zip(ROUGH_NEAR_P).enumerate() {
                *p = V::splat(scaled(by, x, i as i32));
            }
            let p = [V::splat(by as f32), V::splat(scaled(by, ROUGH_P[0], 1)), V::splat(scaled(by, ROUGH_P[1], 2))];
            let mut q = [V::splat(1.0); 4];
            for (i, (q, x)) in q[1..].iter_mut().zip(ROUGH_Q).enumerate() {
                *q = V::splat(scaled(1.0, x, i as i32 + 1));
            }
            let near = V::splat((square * f64::from(NEAR)) as f32);
            Self { near, near_p, ends: [V::splat(-most), V::splat(most)], p, q }
        }
    }

    /// # Safety
    /// The processor has the vectors.
    #[inline(always)]
    unsafe fn of<const N: usize>(&self, x: [V; N]) -> [V; N] {
        let Self { near, near_p, ends, p, q } = *self;
        // SAFETY: the caller's.
        unsafe {
            let t = each!(i => x[i].mul(x[i]));
            // Squares are ordered as the integers that they are coded as, and a NaN is its own tangent by either way.
            let far = each!(i => t[i].exceeds(near));
            let small = each!(i => near_p[2].fused(t[i], near_p[3]));
            let small = each!(i => near_p[1].fused(t[i], small[i]));
            let small = each!(i => near_p[0].fused(t[i], small[i]));
            let small = each!(i => x[i].mul(small[i]));
            if far == [0; N] {
                return small;
            }
            let x = each!(i => x[i].between(ends[0], ends[1]));
            let t = each!(i => x[i].mul(x[i]));
            let over = each!(i => q[2].fused(t[i], q[3]));
            let under = each!(i => p[1].fused(t[i], p[2]));
            let over = each!(i => q[1].fused(t[i], over[i]));
            let under = each!(i => p[0].fused(t[i], under[i]));
            let over = each!(i => q[0].fused(t[i], over[i]));
            let under = each!(i => x[i].mul(under[i]));
            each!(i => under[i].over(over[i]).or_elsewhere(far[i], small[i]))
        }
    }
}

/// Tangents of a strip.
struct Strip<'a> {
    d: &'a mut [f32],
    from: Option<&'a [f32]>,
    over: f32,
    times: f32,
}

impl<V: Wide> WideWork<V> for Strip<'_> {
    /// One loop for all elements, four vectors at a time, then one.
    #[inline(always)]
    unsafe fn run(self) -> bool {
        let Self { d, from, over, times } = self;
        let n = d.len();
        assert!(from.is_none_or(|x| x.len() >= n), "an operand is too short");
        let to = d.as_mut_ptr();
        let from = from.map_or(to.cast_const(), <[f32]>::as_ptr);
        // SAFETY: the caller has the instructions, and the elements are there.
        unsafe {
            let cap = Cap::<V>::new(over, times);
            let mut at = 0;
            while at + 64 <= n {
                let mut x = [V::splat(0.0); 4];
                for (i, x) in x.iter_mut().enumerate() {
                    *x = V::load(from.add(at + 16 * i));
                }
                let y = cap.of(x);
                for (i, y) in y.into_iter().enumerate() {
                    y.store(to.add(at + 16 * i));
                }
                at += 64;
            }
            while at < n {
                let left = (n - at).min(16);
                let [y] = cap.of([V::load_first(from.add(at), left)]);
                y.store_first(to.add(at), left);
                at += 16;
            }
        }
        true
    }
}

/// `tanh(x / over) * times`: what it needs of numbers.
#[derive(Clone, Copy)]
pub(super) struct Cap<V> {
    /// Beyond the second, and below the first, nothing changes any more.
    ends: [V; 2],
    /// What small numbers are multiplied by, if not by 1.
    by: Option<V>,
    /// The largest square of a small number.
    near: V,
    /// The coefficients for this divisor.
    near_p: [V; 5],
    p: [V; 4],
    q: [V; 4],
    /// What no result is below, and what none exceeds.
    caps: [V; 2],
}

impl<V: Wide> Cap<V> {
    /// `over` and `times` as of [`is_promised`].
    ///
    /// # Safety
    /// The processor has the vectors.
    #[inline(always)]
    pub(super) unsafe fn new(over: f32, times: f32) -> Self {
        let by = times / over;
        let square = f64::from(over) * f64::from(over);
        let (mut near_p, mut p, mut q) = (NEAR_P, P, Q);
        for all in [&mut near_p[..], &mut p, &mut q] {
            let mut power = 1.0;
            for x in all {
                power *= square;
                *x = (f64::from(*x) / power) as f32;
            }
        }
        // SAFETY: the caller's.
        unsafe {
            let (mut ends, mut caps) = ([V::splat(MOST * over.abs()); 2], [V::splat(times.abs()); 2]);
            ends[0] = V::splat(-MOST * over.abs());
            caps[0] = V::splat(-times.abs());
            let (mut of_near, mut of_p, mut of_q) = ([ends[0]; 5], [ends[0]; 4], [ends[0]; 4]);
            for i in 0..5 {
                of_near[i] = V::splat(near_p[i]);
            }
            for i in 0..4 {
                of_p[i] = V::splat(p[i]);
                of_q[i] = V::splat(q[i]);
            }
            let by = if by == 1.0 { None } else { Some(V::splat(by)) };
            let near = V::splat((square * f64::from(NEAR)) as f32);
            Self { ends, by, near, near_p: of_near, p: of_p, q: of_q, caps }
        }
    }

    /// Of several vectors side by side, operation by operation: the processor does not look far enough ahead to find the next
    /// vector's behind a chain of them.
    ///
    /// # Safety
    /// The processor has the vectors.
    #[inline(always)]
    pub(super) unsafe fn of<const N: usize>(&self, x: [V; N]) -> [V; N] {
        // No closures: those of a function with instructions of its own are not always part of it.
        let Self { ends, by, near, near_p, p, q, caps } = *self;
        // SAFETY: the caller's.
        unsafe {
            let t = each!(i => x[i].mul(x[i]));
            // Squares are ordered as the integers that they are coded as, and a NaN is its own tangent by either way.
            let far = each!(i => t[i].exceeds(near));
            let scaled = match by {
                Some(by) => each!(i => x[i].mul(by)),
                None => x,
            };
            let small = each!(i => near_p[3].fused(t[i], near_p[4]));
            let small = each!(i => near_p[2].fused(t[i], small[i]));
            let small = each!(i => near_p[1].fused(t[i], small[i]));
            let small = each!(i => near_p[0].fused(t[i], small[i]));
            let one = V::splat(1.0);
            let small = each!(i => one.fused(t[i], small[i]));
            let small = each!(i => scaled[i].mul(small[i]));
            if far == [0; N] {
                return small;
            }
            let x = each!(i => x[i].between(ends[0], ends[1]));
            let t = each!(i => x[i].mul(x[i]));
            let x = match by {
                Some(by) => each!(i => x[i].mul(by)),
                None => x,
            };
            let over = each!(i => q[2].fused(t[i], q[3]));
            let under = each!(i => p[2].fused(t[i], p[3]));
            let over = each!(i => q[1].fused(t[i], over[i]));
            let under = each!(i => p[1].fused(t[i], under[i]));
            let over = each!(i => q[0].fused(t[i], over[i]));
            let under = each!(i => p[0].fused(t[i], under[i]));
            let cube = each!(i => t[i].mul(x[i]));
            let over = each!(i => one.fused(t[i], over[i]));
            // Small numbers are not rounded before they are divided.
            let under = each!(i => x[i].fused(cube[i], under[i]));
            let result = each!(i => under[i].over(over[i]));
            each!(i => result[i].between(caps[0], caps[1]).or_elsewhere(far[i], small[i]))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kernels::isa::{Instructions, Isa, Token, Work, dispatch};

    /// `d = tanh(from / over) * times`, or of `d` itself.
    struct Capped<'a>(&'a mut [f32], Option<&'a [f32]>, f32, f32);

    impl Work for Capped<'_> {
        type Output = bool;
        #[inline(always)]
        fn run<I: Instructions>(self) -> bool {
            super::run::<I>(self.0, self.1, self.2, self.3)
        }
    }

    struct Roughly<'a>(&'a mut [f32], f32, f32);

    impl Work for Roughly<'_> {
        type Output = bool;
        #[inline(always)]
        fn run<I: Instructions>(self) -> bool {
            super::roughly::<I>(self.0, self.1, self.2)
        }
    }

    #[test]
    fn rough_caps_are_within_a_thousandth() {
        let finite = (-400_000..400_000).map(|i| i as f32 / 1000.0);
        let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, 1e30, -1e-30];
        let all: Vec<f32> = finite.chain(special).collect();
        for token in Isa::ALL.into_iter().filter_map(Token::new) {
            for (over, times) in [(50.0f32, 50.0f32), (400.0, 50.0), (30.0, -30.0), (-0.5, 1.0)] {
                let mut found = all.clone();
                if !dispatch(token, Roughly(&mut found, over, times)) {
                    assert_eq!(token.isa(), Isa::Portable);
                    return;
                }
                for (&x, &found) in all.iter().zip(&found) {
                    let want = (f64::from(x) / f64::from(over)).tanh() * f64::from(times);
                    let near = (f64::from(found) - want).abs() <= 1e-3 && found.abs() <= times.abs() * 1.000_02;
                    assert!(
                        near || want.is_nan() && found.is_nan(),
                        "tanh({x} / {over}) * {times}: {found} for {want}"
                    );
                }
            }
            assert!(!dispatch(token, Roughly(&mut [1.0], 50.0, 64.0)), "less exact than promised");
        }
    }

    /// Every 997th number of f32, of either sign: within 5.5 ulp, at most 1, and of the argument's sign.
    #[test]
    fn tangents_are_as_exact_as_promised() {
        for token in Isa::ALL.into_iter().filter_map(Token::new) {
            tangents_of(token);
        }
    }

    fn tangents_of(token: Token) {
        let numbers: Vec<u32> = (0..0x7f80_0000u32).step_by(997).collect();
        for some in numbers.chunks(1 << 16) {
            let x: Vec<f32> = some.iter().flat_map(|&bits| [f32::from_bits(bits), -f32::from_bits(bits)]).collect();
            for over in [1.0f32, 7.0] {
                let mut found = x.clone();
                if !dispatch(token, Capped(&mut found, None, over, 1.0)) {
                    assert_eq!(token.isa(), Isa::Portable);
                    return;
                }
                for (&x, found) in x.iter().zip(found) {
                    let want = (f64::from(x) / f64::from(over)).tanh();
                    let near = (want.abs() as f32).max(f32::MIN_POSITIVE);
                    let ulp = f64::from(near) - f64::from(near.next_down());
                    let error = (f64::from(found) - want).abs() / ulp;
                    assert!(error <= 5.5, "tanh({x:e} / {over}) is {want:e}, found {found:e}, {error} ulp");
                    assert!(found.abs() <= 1.0, "{x:e}");
                    assert_eq!(found.is_sign_negative(), x.is_sign_negative(), "{x:e}");
                }
            }
        }
    }

    /// A soft cap of numbers whose quotient is beyond f32: the tangent of an infinity is 1, not NaN, and what is beside it in the
    /// row is what it would be alone. Lengths with and without a tail.
    #[test]
    fn a_cap_by_a_shared_divisor_that_overflows_is_the_cap() {
        let mut ran = false;
        for token in Isa::ALL.into_iter().filter_map(Token::new) {
            for over in [1e-20f32, -1e-20, 3e-10, 1.0, 30.0] {
                let row = [1e30, -1e30, f32::MAX, f32::MIN, 1e19, 0.5e-20, -0.7e-10, 0.25, -8.0, 40.0];
                let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, -0.0];
                let all: Vec<f32> = row.iter().chain(&special).copied().cycle().take(45).collect();
                for n in [1, 15, 32, 45] {
                    let x = &all[..n];
                    let (mut apart, mut in_place) = (vec![9.0; n], x.to_vec());
                    let done = dispatch(token, Capped(&mut apart, Some(x), over, 50.0));
                    assert_eq!(done, dispatch(token, Capped(&mut in_place, None, over, 50.0)));
                    if !done {
                        continue;
                    }
                    ran = true;
                    for ((&x, &found), &other) in x.iter().zip(&apart).zip(&in_place) {
                        assert_eq!(found.to_bits(), other.to_bits(), "{x:e} / {over:e}");
                        let want = f64::from(x / over).tanh() * 50.0;
                        let same = if want.is_nan() {
                            found.is_nan()
                        } else {
                            (f64::from(found) - want).abs() <= 3e-7 * want.abs()
                        };
                        assert!(same, "tanh({x:e} / {over:e}) * 50 is {want:e}, found {found:e}");
                    }
                }
            }
        }
        assert_eq!(ran, Isa::best() != Isa::Portable, "all but portable code has it");
    }
}
