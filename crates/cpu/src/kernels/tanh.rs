//! The hyperbolic tangent with AVX-512: a quotient of two polynomials, which has no steps one of which waits for a table.

use super::isa::Instructions;

/// From here on the tangent rounds to 1: half a unit in the last place of f32 is `2^-25`, and `1 - tanh(x)` is
/// `2 / (exp(2x) + 1)`.
const MOST: f32 = 9.02;

/// `tanh(x) = x * p(x^2) / q(x^2)` for `|x| <= MOST`: the coefficients of `p` and `q` from that of `x^2` on; both begin with 1,
/// so that small numbers are their own tangents. Fitted for the least relative error by weighted least squares, the weights
/// raised where the error was large (Lawson, 1961): it is at most `2.2e-8`, with coefficients in f32 `3.6e-8`.
#[cfg(target_arch = "x86_64")]
const P: [f32; 4] = [0.133_826_85, 0.003_497_455_7, 2.063_579_3e-5, 1.338_425_5e-8];
#[cfg(target_arch = "x86_64")]
const Q: [f32; 4] = [0.467_160_08, 0.025_884_353, 3.288_514_3e-4, 7.790_233_7e-7];

/// `d[i] = tanh(x[i] / over) * times`, where `x` is `from`, or `d` itself; `from` has as many elements as `d`. It is within 5.5 ulp and
/// at most `times`: the divisor and the factor are part of the polynomials. False if the instructions are not there, or nothing is
/// promised for the numbers: nothing is done then.
#[inline(always)]
pub(super) fn run<I: Instructions>(d: &mut [f32], from: Option<&[f32]>, over: f32, times: f32) -> bool {
    #[cfg(target_arch = "x86_64")]
    if I::AVX512 && is_promised(over, times) {
        // SAFETY: the type that says AVX512 is only named by code that runs where the instructions are.
        unsafe { avx512(d, from, over, times) };
        return true;
    }
    let _ = (d, from, over, times);
    false
}

/// Whether the polynomials have coefficients with this divisor, and the numbers between are finite.
pub(super) fn is_promised(over: f32, times: f32) -> bool {
    const FAR: f32 = 4096.0;
    (1.0 / FAR..=FAR).contains(&over.abs()) && (times / over).is_normal() && (times * MOST).is_finite()
}

/// One loop for all elements, four vectors at a time, then one.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
fn avx512(d: &mut [f32], from: Option<&[f32]>, over: f32, times: f32) {
    use std::arch::x86_64::*;

    let n = d.len();
    assert!(from.is_none_or(|x| x.len() >= n), "an operand is too short");
    let to = d.as_mut_ptr();
    let from = from.map_or(to.cast_const(), <[f32]>::as_ptr);
    let cap = Cap::new(over, times);
    let mut at = 0;
    while at + 64 <= n {
        // SAFETY: 64 elements are there.
        unsafe {
            let mut x = [_mm512_setzero_ps(); 4];
            for (i, x) in x.iter_mut().enumerate() {
                *x = _mm512_loadu_ps(from.add(at + 16 * i));
            }
            let y = cap.of(x);
            for (i, y) in y.into_iter().enumerate() {
                _mm512_storeu_ps(to.add(at + 16 * i), y);
            }
        }
        at += 64;
    }
    while at < n {
        let mask = 0xffffu16 >> (16 - (n - at).min(16));
        // SAFETY: the mask has a bit per element that is there.
        unsafe {
            let [y] = cap.of([_mm512_maskz_loadu_ps(mask, from.add(at))]);
            _mm512_mask_storeu_ps(to.add(at), mask, y);
        }
        at += 16;
    }
}

#[cfg(target_arch = "x86_64")]
type Vector = std::arch::x86_64::__m512;

/// `tanh(x / over) * times`: what it needs of numbers.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Cap {
    /// Beyond it, and below its negative, nothing changes any more.
    most: Vector,
    /// What small numbers are multiplied by, if not by 1.
    by: Option<Vector>,
    /// The coefficients for this divisor.
    p: [Vector; 4],
    q: [Vector; 4],
    /// The magnitude that no result exceeds.
    times: Vector,
}

#[cfg(target_arch = "x86_64")]
impl Cap {
    /// `over` and `times` as of [`is_promised`].
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(super) fn new(over: f32, times: f32) -> Self {
        use std::arch::x86_64::*;
        let by = times / over;
        let [most, times, factor] = [MOST * over.abs(), times.abs(), by].map(|x| _mm512_set1_ps(x));
        let scaled = |all: [f32; 4]| {
            let square = f64::from(over) * f64::from(over);
            let mut power = 1.0;
            all.map(|x| {
                power *= square;
                (f64::from(x) / power) as f32
            })
        };
        let [p, q] = [scaled(P), scaled(Q)].map(|all| all.map(|x| _mm512_set1_ps(x)));
        Self { most, by: (by != 1.0).then_some(factor), p, q, times }
    }

    /// Of several vectors side by side, operation by operation: the processor does not look far enough ahead to find the next
    /// vector's behind a chain of them.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(super) fn of<const N: usize>(&self, x: [Vector; N]) -> [Vector; N] {
        use std::arch::x86_64::*;
        // No closures: those of a function with instructions of its own are not always part of it.
        let Self { most, by, p, q, times } = *self;
        let (zero, one) = (_mm512_setzero_ps(), _mm512_set1_ps(1.0));
        let (least, less_times) = (_mm512_sub_ps(zero, most), _mm512_sub_ps(zero, times));
        // Both keep a NaN that is their second operand.
        let x = each!(i => _mm512_max_ps(least, _mm512_min_ps(most, x[i])));
        let t = each!(i => _mm512_mul_ps(x[i], x[i]));
        let x = match by {
            Some(by) => each!(i => _mm512_mul_ps(x[i], by)),
            None => x,
        };
        let over = each!(i => _mm512_fmadd_ps(t[i], q[3], q[2]));
        let under = each!(i => _mm512_fmadd_ps(t[i], p[3], p[2]));
        let over = each!(i => _mm512_fmadd_ps(t[i], over[i], q[1]));
        let under = each!(i => _mm512_fmadd_ps(t[i], under[i], p[1]));
        let over = each!(i => _mm512_fmadd_ps(t[i], over[i], q[0]));
        let under = each!(i => _mm512_fmadd_ps(t[i], under[i], p[0]));
        let cube = each!(i => _mm512_mul_ps(t[i], x[i]));
        let over = each!(i => _mm512_fmadd_ps(t[i], over[i], one));
        // Small numbers are not rounded before they are divided.
        let under = each!(i => _mm512_fmadd_ps(cube[i], under[i], x[i]));
        // The quotient by an approximate inverse, corrected once, such that a zero keeps its sign.
        let inverse = each!(i => _mm512_rcp14_ps(over[i]));
        let about = each!(i => _mm512_mul_ps(under[i], inverse[i]));
        let more = each!(i => _mm512_fmsub_ps(about[i], over[i], under[i]));
        let result = each!(i => _mm512_fnmadd_ps(more[i], inverse[i], about[i]));
        each!(i => _mm512_max_ps(less_times, _mm512_min_ps(times, result[i])))
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

    /// Every 997th number of f32, of either sign: within 5.5 ulp, at most 1, and of the argument's sign.
    #[test]
    fn tangents_are_as_exact_as_promised() {
        let Some(token) = Token::new(Isa::Avx512) else { return };
        let numbers: Vec<u32> = (0..0x7f80_0000u32).step_by(997).collect();
        for some in numbers.chunks(1 << 16) {
            let x: Vec<f32> = some.iter().flat_map(|&bits| [f32::from_bits(bits), -f32::from_bits(bits)]).collect();
            for over in [1.0f32, 7.0] {
                let mut found = x.clone();
                assert!(dispatch(token, Capped(&mut found, None, over, 1.0)));
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
        assert_eq!(ran, Token::new(Isa::Avx512).is_some(), "only AVX-512 has it");
    }
}
