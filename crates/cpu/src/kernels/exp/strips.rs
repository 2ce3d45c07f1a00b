//! Anchored exponentials that become a left factor of the matrix unit, 32 rows at a time: while the unit multiplies some
//! rows, the next ones are computed between its instructions.

use crate::kernels::contract::PackedLeft;
use crate::kernels::fold::Partial;
use crate::kernels::live::Live;
use crate::kernels::unit::{SIDE, TERMS};
#[cfg(target_arch = "x86_64")]
use crate::kernels::{lanes::x86::F32x16, strip::LEAST_NORMAL, wide::WideWork};

/// Rows that are computed at a time.
pub(crate) const ROWS: usize = 2 * SIDE;

/// `exp(x * by - less)` of the rows of a matrix, `less` one per row; 0 where they are not live.
pub(crate) struct Strips<'a> {
    pub from: &'a [f32],
    /// Elements from row to row.
    pub pitch: usize,
    pub by: f32,
    /// One per row.
    pub less: &'a [f32],
    pub columns: usize,
    /// All are, if that is not told.
    pub live: Option<&'a Live>,
    /// To which the exponentials are added, before they are rounded; one per row.
    pub sums: Option<&'a mut [Partial]>,
}

/// The blocks of 32 columns, of so many, that hold all that is live in 32 rows: the first, and how many, at least one.
pub(crate) fn blocks(live: Option<&Live>, first: usize, rows: usize, columns: usize) -> [usize; 2] {
    let [some, _] = live.map_or([0..columns, 0..columns], |live| live.rows(first..first + rows));
    let at = if some.is_empty() { 0 } else { some.start / TERMS };
    [at, some.end.div_ceil(TERMS).saturating_sub(at).max(1)]
}

impl Strips<'_> {
    /// Checks that the elements are there.
    ///
    /// # Panics
    /// If they are not.
    pub(crate) fn check(&self) {
        let rows = self.less.len();
        assert!(rows > 0 && self.columns > 0, "nothing to compute");
        assert!(self.from.len() >= (rows - 1) * self.pitch + self.columns, "too short");
        assert!(self.live.is_none_or(|live| live.columns() <= self.columns), "columns that are not there");
        assert!(self.sums.as_ref().is_none_or(|sums| sums.len() >= rows), "rows to sum");
    }

    /// Elements of f32 in whose memory 32 rows of so many parts lie, packed.
    pub(crate) fn len(&self, parts: usize) -> usize {
        PackedLeft::len([ROWS, self.columns], parts)
    }

    /// The 32 rows from one on, as f32, one after the other: for what cannot be told from its parts.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(crate) fn plain(&self, first: usize) -> Vec<f32> {
        let rows = ROWS.min(self.less.len() - first);
        let mut out = vec![0.0; rows * self.columns];
        for (row, out) in out.chunks_exact_mut(self.columns).enumerate() {
            let (from, less) = (&self.from[(first + row) * self.pitch..], &self.less[first + row..][..1]);
            let (from, by, least) = (Some(from), self.by, LEAST_NORMAL);
            // SAFETY: the instructions are those of this function.
            unsafe { WideWork::<F32x16>::run(super::Strip { d: &mut *out, from, by, less, least }) };
            if let Some(live) = self.live.map(|live| live.row(first + row)) {
                out[..live.start].fill(0.0);
                out[live.end..].fill(0.0);
            }
        }
        out
    }
}
