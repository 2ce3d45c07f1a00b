//! The anchored exponential by vectors: AVX-512's instructions for table look-up and scaling save half of the work of
//! [`super::math::exp`], and not caring for subnormal results a third of it with AVX2. Everything else of the language is left to
//! the compiler's vectoriser.

#[cfg(target_arch = "x86_64")]
mod below;
#[cfg(target_arch = "x86_64")]
mod lines;
mod packed;
mod passing;
mod quotients;
#[cfg(target_arch = "x86_64")]
mod rounded;
mod strips;

use super::isa::Instructions;
#[cfg(target_arch = "x86_64")]
use super::math::{EXP_MOST, LN2_HIGH, LN2_LOW};
use super::wide::{Wide, WideWork, with_wide};
#[cfg(target_arch = "x86_64")]
pub(crate) use below::Below;
#[cfg(target_arch = "x86_64")]
pub(crate) use lines::Lines;
pub(crate) use packed::{Rows, rows};
pub(crate) use passing::InPassing;
pub(crate) use quotients::Quotients;
#[cfg(target_arch = "x86_64")]
pub(crate) use rounded::{Piece, is_whole};
pub(crate) use strips::{ROWS, Strips, blocks};

/// The most that an exponential may be that is made before its row's maximum is known: so much larger may what is summed be
/// than where every weight is 1 at most, and be represented.
pub(crate) const MOST_WEIGHT: f32 = 65_536.0;

/// `2^(i/16)`.
#[cfg(target_arch = "x86_64")]
pub(super) static SIXTEENTHS: [f32; 16] = [
    1.0,
    1.044_273_7,
    1.090_507_7,
    1.138_788_6,
    1.189_207_1,
    1.241_857_8,
    1.296_839_6,
    1.354_255_6,
    std::f32::consts::SQRT_2,
    1.476_826_2,
    1.542_210_8,
    1.610_490_3,
    1.681_792_9,
    1.756_252_2,
    1.834_008_1,
    1.915_206_6,
];

/// `d[i] = exp(x[i] * by - less)`, the argument rounded once, where `x` is `from`, or `d` itself; `from` has as many
/// elements as `d`, and `less` one or as many. Within 1.07 ulp where the result is normal, else within 1 ulp of the
/// least subnormal; 0 where the argument is less than `least`, and below `2^-125.5` with AVX2. False if the instructions are not
/// there, or do not end there: nothing is done then.
#[inline(always)]
pub(super) fn run<I: Instructions>(d: &mut [f32], from: Option<&[f32]>, by: f32, less: &[f32], least: f32) -> bool {
    with_wide::<I, _>(Strip { d, from, by, less, least })
}

/// Exponentials of a strip.
struct Strip<'a> {
    d: &'a mut [f32],
    from: Option<&'a [f32]>,
    by: f32,
    less: &'a [f32],
    least: f32,
}

impl<V: Wide> WideWork<V> for Strip<'_> {
    /// One loop for all elements; the last vector is masked.
    #[inline(always)]
    unsafe fn run(self) -> bool {
        let Self { d, from, by, less, least } = self;
        if !V::ends_at(least) {
            return false;
        }
        let n = d.len();
        let same = less.len() == 1;
        assert!(from.is_none_or(|x| x.len() >= n) && (same || less.len() >= n), "an operand is too short");
        let to = d.as_mut_ptr();
        let from = from.map_or(to.cast_const(), <[f32]>::as_ptr);
        // SAFETY: the caller has the instructions; all elements are there, and `less` has as many unless it has one.
        unsafe {
            let (table, least, by) = (V::table(), V::splat(least), V::splat(by));
            let first = V::splat(less.first().copied().unwrap_or_default());
            let mut at = 0;
            // Two vectors at a time: each is a long chain of operations.
            while same && at + 32 <= n {
                let x = V::load(from.add(at)).times_less(by, first);
                let y = V::load(from.add(at + 16)).times_less(by, first);
                let [x, y] = V::exps([x, y], least, table);
                x.store(to.add(at));
                y.store(to.add(at + 16));
                at += 32;
            }
            while at + 16 <= n {
                let less = if same { first } else { V::load(less.as_ptr().add(at)) };
                let [x] = V::exps([V::load(from.add(at)).times_less(by, less)], least, table);
                x.store(to.add(at));
                at += 16;
            }
            if at < n {
                let less = if same { first } else { V::load_first(less.as_ptr().add(at), n - at) };
                let [x] = V::exps([V::load_first(from.add(at), n - at).times_less(by, less)], least, table);
                x.store_first(to.add(at), n - at);
            }
        }
        true
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) type Vector = std::arch::x86_64::__m512;

/// The exponentials of several vectors of 16 numbers; 0 where they are less than `least`.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
pub(super) fn exps<const N: usize>(x: [Vector; N], least: Vector, sixteenths: Vector) -> [Vector; N] {
    use std::arch::x86_64::*;

    // A NaN is not less; and the minimum keeps one that is its second operand.
    let there = each!(i => _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x[i], least));
    let most = _mm512_set1_ps(EXP_MOST);
    let x = each!(i => _mm512_min_ps(most, x[i]));
    // To the nearest sixteenth of a power of two: adding a large number rounds, and leaves the number of the
    // sixteenth in the lowest bits.
    let magic = _mm512_set1_ps(786_432.0); // 1.5 * 2^(23 - 4)
    let log2 = _mm512_set1_ps(std::f32::consts::LOG2_E);
    let shifted = each!(i => _mm512_fmadd_ps(x[i], log2, magic));
    let n = each!(i => _mm512_sub_ps(shifted[i], magic));
    let (high, low) = (_mm512_set1_ps(LN2_HIGH), _mm512_set1_ps(LN2_LOW));
    let r = each!(i => _mm512_fnmadd_ps(n[i], high, x[i]));
    let r = each!(i => _mm512_fnmadd_ps(n[i], low, r[i]));
    // `|r| <= ln(2)/32`: the fourth power is below a quarter of an ulp.
    let (sixth, half) = (_mm512_set1_ps(1.0 / 6.0), _mm512_set1_ps(0.5));
    let p = each!(i => _mm512_fmadd_ps(r[i], sixth, half));
    let square = each!(i => _mm512_mul_ps(r[i], r[i]));
    let e = each!(i => _mm512_fmadd_ps(square[i], p[i], r[i]));
    let power = each!(i => _mm512_permutexvar_ps(_mm512_castps_si512(shifted[i]), sixteenths));
    let e = each!(i => _mm512_fmadd_ps(power[i], e[i], power[i]));
    // It scales by the largest whole power that is no larger: the sixteenths are in the table's entry.
    each!(i => _mm512_maskz_scalef_ps(there[i], e[i], n[i]))
}
