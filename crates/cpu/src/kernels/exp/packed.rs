//! Anchored exponentials that are packed for the matrix unit, in one part or in several.

#[cfg(target_arch = "x86_64")]
use super::strips::{ROWS, blocks};
use crate::kernels::contract::PackedLeft;
use crate::kernels::fold::Partial;
use crate::kernels::isa::Instructions;
use crate::kernels::live::Live;
#[cfg(target_arch = "x86_64")]
use std::ops::Range;

/// `2^(i/32)`.
#[cfg(target_arch = "x86_64")]
static THIRTY_SECONDS: [f32; 32] = [
    1.0,
    1.021_897_2,
    1.044_273_7,
    1.067_140_5,
    1.090_507_7,
    1.114_386_8,
    1.138_788_6,
    1.163_724_9,
    1.189_207_1,
    1.215_247_4,
    1.241_857_8,
    1.269_051,
    1.296_839_6,
    1.325_236_7,
    1.354_255_6,
    1.383_91,
    std::f32::consts::SQRT_2,
    1.445_180_8,
    1.476_826_2,
    1.509_164_5,
    1.542_210_8,
    1.575_980_9,
    1.610_490_3,
    1.645_755_5,
    1.681_792_9,
    1.718_619_3,
    1.756_252_2,
    1.794_709_1,
    1.834_008_1,
    1.874_167_7,
    1.915_206_6,
    1.957_144_1,
];

/// `exp(x * by - less)` of the rows of a matrix, `less` one per row, packed for the matrix unit.
pub(crate) struct Rows<'a, 't> {
    pub from: &'a [f32],
    /// Elements from row to row.
    pub pitch: usize,
    pub by: f32,
    /// One per row.
    pub less: &'a [f32],
    pub columns: usize,
    /// Others are 0, and blocks of 32 columns that are 0 in 32 rows are left out; all are live if that is not told.
    pub live: Option<&'a Live>,
    pub to: &'a mut PackedLeft<'t>,
    /// To which the exponentials are added: as they are packed if that is in one part, before they are rounded if in several.
    pub sums: Option<&'a mut [Partial]>,
}

#[cfg(target_arch = "x86_64")]
impl<'a> Rows<'a, '_> {
    /// # Panics
    /// If elements are not there.
    pub(super) fn check(&self) {
        let Self { from, pitch, less, columns, live, .. } = self;
        let rows = less.len();
        assert!(rows > 0 && *columns > 0 && from.len() >= (rows - 1) * pitch + columns, "too short");
        assert!(live.is_none_or(|live| live.columns() <= *columns), "columns that are not there");
    }

    /// Every row, with the blocks of 32 columns that are computed of it: the first, and how many.
    pub(super) fn each(&self) -> impl Iterator<Item = (usize, [usize; 2])> + use<'a> {
        let (rows, columns, live) = (self.less.len(), self.columns, self.live);
        let mut some = [0, columns.div_ceil(32)];
        (0..rows).map(move |row| {
            if row % ROWS == 0 && live.is_some() {
                some = blocks(live, row, ROWS.min(rows - row), columns);
            }
            (row, some)
        })
    }

    /// The blocks of a row.
    pub(super) fn blocks(&self, row: usize) -> [usize; 2] {
        let first = row / ROWS * ROWS;
        match self.live {
            None => [0, self.columns.div_ceil(32)],
            live => blocks(live, first, ROWS.min(self.less.len() - first), self.columns),
        }
    }

    /// Which columns of a row are not 0.
    pub(super) fn there(&self, row: usize) -> Range<usize> {
        self.live.map_or(0..self.columns, |live| live.row(row))
    }
}

/// Computes them, 0 where they are subnormal. Before they are rounded to three parts they are within `2 + |y| / 20` ulp for
/// an argument `y`, which is rounded once; to two, which are 16 bits, within a relative error of 2^-16; to one, which is 8, as
/// of [`super::rounded`]. False if the instructions are not there: nothing is done then.
#[inline(always)]
pub(crate) fn rows<I: Instructions>(job: Rows<'_, '_>) -> bool {
    #[cfg(target_arch = "x86_64")]
    if I::AVX512 {
        // SAFETY: the type that says AVX512 is only named by code that runs where the instructions are.
        unsafe {
            match job.to.parts() {
                1 => super::rounded::rows(job),
                2 => x86::rows::<2>(job),
                _ => x86::rows::<3>(job),
            }
        }
        return true;
    }
    let _ = job;
    false
}

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    use super::{Rows, THIRTY_SECONDS};
    use crate::kernels::contract::put_parts;
    use crate::kernels::live::bits;
    use crate::kernels::math::EXP_MOST;
    use crate::kernels::strip::LEAST_NORMAL;
    use crate::kernels::unit::TILE;
    use std::arch::x86_64::*;

    pub(in super::super) type Vector = __m512;

    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(super) fn rows<const PARTS: usize>(mut job: Rows<'_, '_>) {
        job.check();
        let table = table();
        for (row, some) in job.each() {
            // SAFETY: the job was checked.
            unsafe { one::<PARTS>(&mut job, row, some, table) };
        }
    }

    /// Computes a row, of so many blocks of 32 columns from one on.
    ///
    /// # Safety
    /// The job was checked.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(in super::super) unsafe fn one<const PARTS: usize>(
        job: &mut Rows<'_, '_>,
        row: usize,
        some: [usize; 2],
        table: [Vector; 2],
    ) {
        let there = job.there(row);
        let from = job.from[row * job.pitch..][..job.columns].as_ptr();
        let (by, less) = (_mm512_set1_ps(job.by), _mm512_set1_ps(job.less[row]));
        let exp = |x: Vector| {
            // Of one part are those rows that take longer because their anchors are far: each operation is rounded, so that
            // what is as large as the anchor is 1.
            let y = if PARTS == 1 { _mm512_sub_ps(_mm512_mul_ps(x, by), less) } else { _mm512_fmsub_ps(x, by, less) };
            if PARTS == 3 { exp(y, table) } else { rounded_exp(y) }
        };
        let mut lines = job.to.row(row, job.columns).wrapping_add(some[0] * PARTS * TILE);
        let mut all = [_mm512_setzero_ps(); 2];
        let mut most = _mm512_setzero_ps();
        // SAFETY: so many columns are there, of lines that are not whole the masks have a bit per element; `to` has a line for
        // each 32 of them, a tile apart, and that they are packed says that the processor rounds to bf16.
        unsafe {
            let (mut at, end) = (32 * some[0], 32 * (some[0] + some[1]));
            while at < end {
                // Those that are whole follow each other.
                while there.start <= at && at + 32 <= there.end {
                    let (x, y) = (exp(_mm512_loadu_ps(from.add(at))), exp(_mm512_loadu_ps(from.add(at + 16))));
                    all = [_mm512_add_ps(all[0], x), _mm512_add_ps(all[1], y)];
                    put_parts::<PARTS>(x, y, lines);
                    if PARTS > 1 {
                        most = larger(larger(x, y), most);
                    }
                    lines = lines.wrapping_add(PARTS * TILE);
                    at += 32;
                }
                if at < end {
                    let bits = bits(&there, at);
                    let half = |mask: u16, at: usize| {
                        _mm512_maskz_mov_ps(mask, exp(_mm512_maskz_loadu_ps(mask, from.wrapping_add(at))))
                    };
                    let (x, y) = (half(bits as u16, at), half((bits >> 16) as u16, at + 16));
                    all = [_mm512_add_ps(all[0], x), _mm512_add_ps(all[1], y)];
                    put_parts::<PARTS>(x, y, lines);
                    most = larger(larger(x, y), most);
                    lines = lines.wrapping_add(PARTS * TILE);
                    at += 32;
                }
            }
        }
        if PARTS > 1 {
            job.to.note(row, _mm512_reduce_max_epu32(_mm512_castps_si512(most)));
        }
        if let Some(sum) = job.sums.as_mut().and_then(|sums| sums.get_mut(row)) {
            // SAFETY: 16 elements.
            unsafe {
                let all = _mm512_add_ps(_mm512_loadu_ps(sum.as_ptr()), _mm512_add_ps(all[0], all[1]));
                _mm512_storeu_ps(sum.as_mut_ptr(), all);
            }
        }
    }

    /// The powers that [`exp`] takes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(in super::super) fn table() -> [Vector; 2] {
        // SAFETY: the table has 32 entries.
        unsafe { [_mm512_loadu_ps(THIRTY_SECONDS.as_ptr()), _mm512_loadu_ps(THIRTY_SECONDS[16..].as_ptr())] }
    }

    /// The larger ones of numbers that are not negative; no number is the largest.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(in super::super) fn larger(x: Vector, y: Vector) -> Vector {
        let magnitude = |x| _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fff_ffff));
        _mm512_castsi512_ps(_mm512_max_epu32(magnitude(x), magnitude(y)))
    }

    /// The exponentials of 16 numbers; 0 where they are subnormal.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(in super::super) fn exp(x: Vector, table: [Vector; 2]) -> Vector {
        // A NaN is not less; and the minimum keeps one that is its second operand.
        let there = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, _mm512_set1_ps(LEAST_NORMAL));
        scaled(_mm512_min_ps(_mm512_set1_ps(EXP_MOST), x), there, table)
    }

    /// Those of numbers of which none is too large, where the mask has a bit; 0 elsewhere. Of what is too large, infinite or no
    /// number: the factor that is scaled is positive for all numbers.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(in super::super) fn scaled(x: Vector, there: __mmask16, table: [Vector; 2]) -> Vector {
        // To the nearest 32nd of a power of two: adding a large number rounds, and leaves the number of the 32nd in the
        // lowest bits.
        let magic = _mm512_set1_ps(393_216.0); // 1.5 * 2^(23 - 5)
        let shifted = _mm512_fmadd_ps(x, _mm512_set1_ps(std::f32::consts::LOG2_E), magic);
        let n = _mm512_sub_ps(shifted, magic);
        // The constant is `ln 2` but for 2e-9: that times `n` is what the result is off by.
        let r = _mm512_fnmadd_ps(n, _mm512_set1_ps(std::f32::consts::LN_2), x);
        // `|r| <= ln(2)/64`: the third power is a sixth of 1.3e-6, of which the linear term takes on three quarters.
        let p = _mm512_fmadd_ps(r, _mm512_set1_ps(0.5), _mm512_set1_ps(1.000_014_7));
        let power = _mm512_permutex2var_ps(table[0], _mm512_castps_si512(shifted), table[1]);
        // It scales by the largest whole power that is no larger: the 32nds are in the table's entry.
        _mm512_maskz_scalef_ps(there, _mm512_fmadd_ps(_mm512_mul_ps(power, r), p, power), n)
    }

    /// The same for what is rounded to 16 bits at most: within a relative error of 2^-16.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    fn rounded_exp(x: Vector) -> Vector {
        // A NaN is not less.
        let there = _mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, _mm512_set1_ps(LEAST_NORMAL));
        let x = _mm512_mul_ps(x, _mm512_set1_ps(std::f32::consts::LOG2_E));
        // What is above the next whole number below, which is the one that the power is scaled by; 0 of infinity.
        let r = _mm512_reduce_ps::<1>(x);
        // `2^r` within 3.4e-6 of itself, exactly at 0, and nearly so at 1.
        let p = _mm512_fmadd_ps(r, _mm512_set1_ps(0.013_557_23), _mm512_set1_ps(0.052_030_284));
        let p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(0.241_380_08));
        let p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(0.693_032_4));
        let p = _mm512_fmadd_ps(r, p, _mm512_set1_ps(1.0));
        _mm512_maskz_scalef_ps(there, p, x)
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
pub(super) mod tests {
    use super::{Rows, rows};
    use crate::kernels::contract::PackedLeft;
    use crate::kernels::fold::Partial;
    use crate::kernels::isa::{Instructions, Work, dispatch};
    use crate::kernels::unit::units;

    /// Whether rows are computed, by one instruction set.
    pub(in super::super) struct Run<'a, 't>(pub Rows<'a, 't>);

    impl Work for Run<'_, '_> {
        type Output = bool;
        #[inline(always)]
        fn run<I: Instructions>(self) -> bool {
            rows::<I>(self.0)
        }
    }

    #[test]
    fn exponentials_are_as_exact_as_documented() {
        let Some(unit) = units().next() else { return };
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -0.0, -87.4, -1e30, 1e30, 89.1, -87.3];
        let arguments: Vec<f32> =
            special.into_iter().chain((-880_000..885_000).step_by(7).map(|i| i as f32 / 10_000.0)).collect();
        for (from, parts) in arguments.chunks(16).flat_map(|from| [(from, 2), (from, 3)]) {
            // Twice as much less the same.
            let (by, less) = (2.0, [0.25]);
            let halves: Vec<f32> = from.iter().map(|x| (x + 0.25) / 2.0).collect();
            let (mut to, mut sums) = ([0f32; 768], [Partial::all(0.0)]);
            let mut most = vec![];
            let mut packed = PackedLeft::new(unit, &mut to, [1, from.len()], parts, &mut most);
            let job = Rows {
                from: &halves,
                pitch: from.len(),
                by,
                less: &less,
                columns: from.len(),
                live: None,
                to: &mut packed,
                sums: Some(&mut sums),
            };
            assert!(dispatch(unit.token(), Run(job)));
            for (lane, half) in halves.iter().enumerate() {
                let y = f64::from(half.mul_add(by, -less[0]));
                let (got, want) = (f64::from(sums[0][lane]), if y < -87.336_54 { 0.0 } else { y.exp() });
                let ulp = f64::from((want as f32).next_up()) - f64::from(want as f32);
                let error = if parts == 2 { want.abs() / 65536.0 } else { ulp * (2.0 + y.abs() / 20.0) };
                let near = (got - want).abs() <= error;
                let same = want.is_nan() && got.is_nan() || want as f32 == f32::INFINITY && got == f64::INFINITY;
                assert!(near || same, "exp({y}) is {got:e} for {want:e}, for {parts} parts");
            }
        }
    }
}
