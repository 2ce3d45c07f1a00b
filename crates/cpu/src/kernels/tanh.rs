//! The hyperbolic tangent with AVX-512, from `exp(2|x|) - 1` as [`super::exp`] computes the exponential: by a table of
//! sixteenths of powers of two.

use super::isa::Instructions;
#[cfg(target_arch = "x86_64")]
use super::{exp::SIXTEENTHS, math::LN2_HIGH, math::LN2_LOW};

/// What the entries of [`SIXTEENTHS`] lack, in parts of them.
#[cfg(target_arch = "x86_64")]
static LACKING: [f32; 16] = [
    0.0,
    4.628_547e-8,
    -1.199_215_8e-8,
    4.729_782_4e-8,
    3.193_418e-8,
    3.621_057_2e-8,
    -3.099_072e-8,
    -7.475_213e-9,
    1.711_427_1e-8,
    -3.047_683_4e-8,
    5.233_334e-9,
    6.107_591_8e-9,
    -1.471_960_5e-8,
    -5.258_795e-9,
    -6.128_259_7e-9,
    5.140_609_3e-9,
];

/// `d[i] = tanh(x[i] / over) * times`, each operation rounded, where `x` is `from`, or `d` itself; `from` has as many
/// elements as `d`. The tangent is within 3 ulp, the quotient the rounded one wherever the tangent depends on it. False
/// if the instructions are not there, or `over` and its inverse are not normal: nothing is done then.
#[inline(always)]
pub(super) fn run<I: Instructions>(d: &mut [f32], from: Option<&[f32]>, over: f32, times: f32) -> bool {
    #[cfg(target_arch = "x86_64")]
    if I::AVX512 && over.is_normal() && (1.0 / over).is_normal() {
        // SAFETY: the type that says AVX512 is only named by code that runs where the instructions are.
        unsafe { avx512(d, from, over, times) };
        return true;
    }
    let _ = (d, from, over, times);
    false
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
            let y = cap.of(std::array::from_fn::<_, 4, _>(|i| _mm512_loadu_ps(from.add(at + 16 * i))));
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

/// `tanh(x / over) * times`: what it needs of numbers and tables.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Cap {
    /// Nothing if it is 1.
    over: Option<[Vector; 2]>,
    times: Vector,
    sixteenths: Vector,
    lacking: Vector,
}

#[cfg(target_arch = "x86_64")]
impl Cap {
    /// `over` and its inverse are normal.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(super) fn new(over: f32, times: f32) -> Self {
        use std::arch::x86_64::*;
        let scaled = [_mm512_set1_ps(over), _mm512_set1_ps(1.0 / over)];
        // SAFETY: the tables have 16 entries.
        let [sixteenths, lacking] = unsafe { [&SIXTEENTHS, &LACKING].map(|table| _mm512_loadu_ps(table.as_ptr())) };
        Self { over: (over != 1.0).then_some(scaled), times: _mm512_set1_ps(times), sixteenths, lacking }
    }

    /// Of several vectors side by side.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(super) fn of<const N: usize>(&self, x: [Vector; N]) -> [Vector; N] {
        use std::arch::x86_64::*;
        let x = match self.over {
            Some(over) => quotients(x, over),
            None => x,
        };
        let y = tanhs(x, [self.sixteenths, self.lacking]);
        each!(i => _mm512_mul_ps(y[i], self.times))
    }
}

/// As [`super::math::quotients`]; infinities stay.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
fn quotients<const N: usize>(x: [Vector; N], [by, inverse]: [Vector; 2]) -> [Vector; N] {
    use std::arch::x86_64::*;

    let q = each!(i => _mm512_mul_ps(x[i], inverse));
    let left = each!(i => _mm512_fnmadd_ps(q[i], by, x[i]));
    /// Infinities and NaN. (Intel 64 and IA-32 Architectures Software Developer's Manual, `VFPCLASSPS`.)
    const NO_NUMBER: i32 = 0x99;
    let number = each!(i => !_mm512_fpclass_ps_mask::<NO_NUMBER>(left[i]));
    each!(i => _mm512_mask3_fmadd_ps(left[i], inverse, q[i], number[i]))
}

/// The tangents, operation by operation: the processor does not look far enough ahead to find the next vector's behind a
/// chain of them.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
fn tanhs<const N: usize>(x: [Vector; N], [sixteenths, lacking]: [Vector; 2]) -> [Vector; N] {
    use std::arch::x86_64::*;

    // From 10 on the result rounds to 1; the minimum keeps a NaN that is its second operand.
    let ten = _mm512_set1_ps(10.0);
    let a = each!(i => _mm512_min_ps(ten, _mm512_abs_ps(x[i])));
    let a = each!(i => _mm512_add_ps(a[i], a[i]));
    // To the nearest sixteenth of a power of two, as the exponential.
    let magic = _mm512_set1_ps(786_432.0); // 1.5 * 2^(23 - 4)
    let log2 = _mm512_set1_ps(std::f32::consts::LOG2_E);
    let shifted = each!(i => _mm512_fmadd_ps(a[i], log2, magic));
    let n = each!(i => _mm512_sub_ps(shifted[i], magic));
    let (high, low) = (_mm512_set1_ps(LN2_HIGH), _mm512_set1_ps(LN2_LOW));
    let r = each!(i => _mm512_fnmadd_ps(n[i], high, a[i]));
    let r = each!(i => _mm512_fnmadd_ps(n[i], low, r[i]));
    // `exp(r) - 1` for `|r| <= ln(2)/32`, with the relative precision that small results need.
    let [fourth, sixth, half] = [1.0 / 24.0, 1.0 / 6.0, 0.5].map(|x| _mm512_set1_ps(x));
    let p = each!(i => _mm512_fmadd_ps(r[i], fourth, sixth));
    let square = each!(i => _mm512_mul_ps(r[i], r[i]));
    let p = each!(i => _mm512_fmadd_ps(r[i], p[i], half));
    let number = each!(i => _mm512_castps_si512(shifted[i]));
    let power = each!(i => _mm512_permutexvar_ps(number[i], sixteenths));
    let e = each!(i => _mm512_fmadd_ps(square[i], p[i], r[i]));
    let power = each!(i => _mm512_scalef_ps(power[i], n[i]));
    let e = each!(i => _mm512_add_ps(e[i], _mm512_permutexvar_ps(number[i], lacking)));
    // `exp(a) - 1`; the power less 1 is exact where that matters.
    let [one, two] = [1.0, 2.0].map(|x| _mm512_set1_ps(x));
    let less = each!(i => _mm512_sub_ps(power[i], one));
    let most = each!(i => _mm512_fmadd_ps(power[i], e[i], less[i]));
    // `most / (most + 2)`: by an approximate inverse, corrected once.
    let over = each!(i => _mm512_add_ps(most[i], two));
    let inverse = each!(i => _mm512_rcp14_ps(over[i]));
    let q = each!(i => _mm512_mul_ps(most[i], inverse[i]));
    let left = each!(i => _mm512_fnmadd_ps(q[i], over[i], most[i]));
    let q = each!(i => _mm512_fmadd_ps(left[i], inverse[i], q[i]));
    // Where the third operand has a bit, the second's; else the first's.
    let sign = _mm512_castps_si512(_mm512_set1_ps(-0.0));
    each!(i => {
        let bits = [q[i], x[i]].map(|x| _mm512_castps_si512(x));
        _mm512_castsi512_ps(_mm512_ternarylogic_epi32::<0xd8>(bits[0], bits[1], sign))
    })
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
