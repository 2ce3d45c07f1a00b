//! Anchored exponentials that are wanted as bf16 only: 32 at a time in whole numbers of 16 bits, which takes half of the work
//! of computing them in f32 first.
//!
//! `256 y / ln 2`, rounded, is a number whose upper byte is the power of two, but for the bias of 127, and whose lower byte
//! tells which of 256 steps between two powers it is. A table has the steps' seven bits of bf16.

use super::packed::Rows;
use super::packed::x86::{one, table};
use crate::kernels::amx::TILE;
use crate::kernels::live::bits;
use std::arch::x86_64::*;
use std::ops::Range;
use std::sync::LazyLock;

/// Steps between two powers of two.
const STEPS: usize = 256;
/// Steps for one in the argument.
const STEPS_PER_ONE: f32 = STEPS as f32 * std::f32::consts::LOG2_E;
/// Where 1 lies.
const ONE: f32 = 127.0 * STEPS as f32;
/// Where infinity lies, which has no steps.
const INFINITE: f32 = 255.0 * STEPS as f32;

/// The seven bits of `2^(i/256)` in bf16 after the first.
static MANTISSAS: LazyLock<[u8; STEPS]> =
    LazyLock::new(|| std::array::from_fn(|i| ((i as f64 / STEPS as f64).exp2() * 128.0).round() as u8 & 0x7f));

/// What all rows share.
struct Table([__m512i; 4]);

impl Table {
    #[target_feature(
        enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c,bmi1,bmi2,lzcnt"
    )]
    #[inline]
    fn new() -> Self {
        let from = MANTISSAS.as_ptr();
        // SAFETY: the table has 256 bytes.
        Self([0, 64, 128, 192].map(|at| unsafe { _mm512_loadu_si512(from.wrapping_add(at).cast()) }))
    }
}

/// Computes rows that are packed in one part; those with numbers that are not finite as others are.
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c,bmi1,bmi2,lzcnt"
)]
pub(super) fn rows(mut job: Rows<'_, '_>) {
    job.check();
    let steps = Table::new();
    for (number, some) in job.each() {
        let there = job.there(number);
        let sum = job.sums.as_mut().and_then(|sums| sums.get_mut(number));
        let row = Row {
            from: job.from[number * job.pitch..][..job.columns].as_ptr(),
            columns: 32 * some[0]..32 * (some[0] + some[1]),
            there,
            by: job.by,
            less: job.less[number],
            sum: sum.map_or(std::ptr::null_mut(), |sum| sum.as_mut_ptr()),
            to: job.to.row(number, job.columns).wrapping_add(some[0] * TILE),
        };
        // SAFETY: so many columns are there, and a line for each 32 of them.
        if !unsafe { row.run(&steps) } {
            // SAFETY: the job was checked.
            unsafe { one::<1>(&mut job, number, some, table()) };
        }
    }
}

/// A row of them.
struct Row {
    /// The row's elements.
    pub from: *const f32,
    /// The columns that are computed, whole blocks of 32; those of them that are not `there` become 0.
    pub columns: Range<usize>,
    pub there: Range<usize>,
    pub by: f32,
    pub less: f32,
    /// Where the first block's line goes; others a tile's bytes apart.
    pub to: *mut u8,
    /// Sixteen sums, to which what is packed is added; null if nothing is summed.
    pub sum: *mut f32,
}

impl Row {
    /// Computes `exp(x * by - less)`, the power that is nearest of 256 between two powers of two, which is within 0.136 %,
    /// rounded to bf16, which is within 0.391 %; the argument is as exact as `x * by` and `less` with relative errors of 2^-23. What is
    /// less than the least normal number becomes some number less than that. False if some are infinite or no numbers: the
    /// lines may then hold anything, and nothing is added.
    ///
    /// # Safety
    /// The elements, lines and sums are there.
    #[target_feature(
        enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c,bmi1,bmi2,lzcnt"
    )]
    #[inline]
    unsafe fn run(self, table: &Table) -> bool {
        let Self { from, columns, there, by, less, to, sum } = self;
        let by = _mm512_set1_ps(by * STEPS_PER_ONE);
        let less = _mm512_set1_ps(less * STEPS_PER_ONE - ONE);
        let infinite = _mm512_set1_ps(INFINITE);
        let (mut low_finite, mut high_finite) = (u16::MAX, u16::MAX);
        let mut all = _mm512_setzero_ps();
        let (mut at, mut to) = (columns.start, to);
        // SAFETY: the caller's; the masks have a bit for each element that is there.
        unsafe {
            while at < columns.end {
                let whole = if there.start <= at { there.end.min(columns.end).saturating_sub(at) / 32 } else { 0 };
                for _ in 0..whole {
                    let (x, y) = (_mm512_loadu_ps(from.add(at)), _mm512_loadu_ps(from.add(at + 16)));
                    let (x, y) = (_mm512_fmsub_ps(x, by, less), _mm512_fmsub_ps(y, by, less));
                    low_finite = _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(low_finite, x, infinite);
                    high_finite = _mm512_mask_cmp_ps_mask::<_CMP_LT_OQ>(high_finite, y, infinite);
                    let packed = powers(x, y, table);
                    _mm512_storeu_si512(to.cast(), packed);
                    all = add(all, packed);
                    (at, to) = (at + 32, to.wrapping_add(TILE));
                }
                if at < columns.end {
                    let mask = bits(&there, at);
                    let [low, high] = [mask as u16, (mask >> 16) as u16];
                    let x = _mm512_maskz_loadu_ps(low, from.wrapping_add(at));
                    let y = _mm512_maskz_loadu_ps(high, from.wrapping_add(at + 16));
                    let (x, y) = (_mm512_fmsub_ps(x, by, less), _mm512_fmsub_ps(y, by, less));
                    low_finite &= !low | _mm512_cmp_ps_mask::<_CMP_LT_OQ>(x, infinite);
                    high_finite &= !high | _mm512_cmp_ps_mask::<_CMP_LT_OQ>(y, infinite);
                    let packed = _mm512_maskz_mov_epi16(mask, powers(x, y, table));
                    _mm512_storeu_si512(to.cast(), packed);
                    all = add(all, packed);
                    (at, to) = (at + 32, to.wrapping_add(TILE));
                }
            }
            let good = low_finite & high_finite == u16::MAX;
            if good && !sum.is_null() {
                _mm512_storeu_ps(sum, _mm512_add_ps(_mm512_loadu_ps(sum), all));
            }
            good
        }
    }
}

/// Bf16 of 32 numbers of steps, those of the first register first.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c,bmi1,bmi2,lzcnt"
)]
fn powers(x: __m512, y: __m512, Table([a, b, c, d]): &Table) -> __m512i {
    // What is negative becomes 0. Pieces of four elements of each take turns afterwards.
    let steps = _mm512_packus_epi32(_mm512_cvtps_epi32(x), _mm512_cvtps_epi32(y));
    let steps = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), steps);
    // The look-up takes seven bits of each byte; the eighth tells which half of the table holds it.
    let upper = _mm512_test_epi8_mask(steps, _mm512_set1_epi16(0x80));
    let low = _mm512_permutex2var_epi8(*a, steps, *b);
    let high = _mm512_permutex2var_epi8(*c, steps, *d);
    let mantissas = _mm512_mask_mov_epi8(low, upper, high);
    // Bits of the mantissa where the third operand has them, of the power elsewhere.
    const CHOOSE: i32 = 0b1101_1000;
    _mm512_ternarylogic_epi32::<CHOOSE>(_mm512_srli_epi16::<1>(steps), mantissas, _mm512_set1_epi16(0x7f))
}

/// Adds pairs of bf16.
#[inline]
#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512vbmi,avx512bf16,avx2,fma,f16c,bmi1,bmi2,lzcnt"
)]
fn add(all: __m512, packed: __m512i) -> __m512 {
    let ones = _mm512_set1_epi16(0x3f80);
    // SAFETY: registers of as many bits.
    unsafe {
        _mm512_dpbf16_ps(
            all,
            std::mem::transmute::<__m512i, __m512bh>(packed),
            std::mem::transmute::<__m512i, __m512bh>(ones),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::packed::{Rows, rows};
    use crate::kernels::amx::TileToken;
    use crate::kernels::contract::PackedLeft;
    use crate::kernels::fold::Partial;
    use crate::kernels::isa::{Instructions, Isa, Token, Work, dispatch};
    use einloom_cascade::numeric::bf16_to_f32;

    struct Run<'a, 't>(Rows<'a, 't>);

    impl Work for Run<'_, '_> {
        type Output = bool;
        #[inline(always)]
        fn run<I: Instructions>(self) -> bool {
            rows::<I>(self.0)
        }
    }

    /// Every lane of whole blocks and of the last one, in rows with numbers that are not finite and without; sums are of what is
    /// packed.
    #[test]
    fn exponentials_that_are_rounded_are_as_exact_as_documented() {
        let Some(unit) = Token::new(Isa::Avx512).and_then(TileToken::new) else { return };
        const COLUMNS: usize = 75;
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, -1e30, 1e30, 88.8, 88.7, 0.0, -87.33, -87.4];
        let finite = (-1_000_000..887_000).step_by(13).map(|i| i as f32 / 10_000.0);
        for arguments in finite.chain(special).collect::<Vec<_>>().chunks(COLUMNS) {
            let mut from = arguments.to_vec();
            from.resize(COLUMNS, f32::NEG_INFINITY);
            let (by, less) = (2.0, [0.25]);
            from.iter_mut().for_each(|x| *x = (*x + 0.25) / 2.0);
            let (mut to, mut sums, mut most) = ([f32::NAN; 3 * 256], [Partial::all(1.0)], vec![]);
            let mut packed = PackedLeft::new(unit, &mut to, [1, COLUMNS], 1, &mut most);
            let (columns, to_here, sums_here) = (COLUMNS, &mut packed, Some(&mut sums[..]));
            let job = Rows {
                from: &from,
                pitch: COLUMNS,
                by,
                less: &less,
                columns,
                live: None,
                to: to_here,
                sums: sums_here,
            };
            assert!(dispatch(unit.token(), Run(job)));
            let codes: &[u16] = bytemuck::cast_slice(&to);
            let (mut total, mut finite) = (0.0, true);
            for (column, half) in from.iter().enumerate() {
                let got = f64::from(bf16_to_f32(codes[column / 32 * 512 + column % 32]));
                let y = 2.0 * f64::from(*half) - 0.25;
                let want = if y.is_nan() { y } else { y.exp() };
                let near = (got - want).abs() <= want * 0.0053 + f64::from(f32::MIN_POSITIVE);
                let same = want.is_nan() && got.is_nan() || want > 3.39e38 && got == f64::INFINITY;
                assert!(near || same, "exp({y}) is {got:e} for {want:e}");
                (total, finite) = (total + got, finite && got.is_finite() && total + got < f64::from(f32::MAX));
            }
            let sum = sums[0].iter().map(|&x| f64::from(x)).sum::<f64>() - 16.0;
            assert!(!finite || (sum - total).abs() <= 1e-5 * (total + 16.0), "the sum is {sum} for {total}");
            assert!(
                codes[2 * 512 + COLUMNS % 32..][..32 - COLUMNS % 32].iter().all(|&code| code == 0),
                "what fills up"
            );
        }
    }
}
