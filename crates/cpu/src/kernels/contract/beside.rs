//! Products of factors of several parts that only become anchored exponentials: while the unit multiplies some, those before
//! are exponentiated between its instructions, out of the first-level cache.

use super::tiles::{Room, SQUARE, grown};
use super::weights::{SQUARES, Scores, Weights};
use crate::kernels::exp::{Below, MOST_WEIGHT, blocks};
use crate::kernels::fold::{Monoid, Partial};
use crate::kernels::memory::Line;
use crate::kernels::unit::{Engaged, SIDE, TERMS, products};

/// Bytes of the right factor's columns that all rows are multiplied by one after the other: they stay in the first-level cache
/// beside two pieces of sums, and what passes through it.
const RIGHT: usize = 24 << 10;

/// Parts of the exponentials.
const PARTS: usize = 3;

impl Scores<'_> {
    /// As of [`Scores::exponentiate`].
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(super) fn exponentiate_beside(&self, engaged: &Engaged, room: &mut Room, weights: Weights<'_, '_>) -> bool {
        let Self { parts, lengths: [m, n, k], live, .. } = *self;
        let Weights { by, less, to, sums } = weights;
        let less = &less[..m];
        let mut own = vec![];
        let sums = sums.unwrap_or_else(|| {
            own.resize(m, Partial::all(0.0));
            &mut own
        });
        let sums = &mut sums[..m];
        sums.fill(Partial::all(Monoid::Sum.identity()));

        let bytes = k.next_multiple_of(TERMS) * SQUARE * parts[1] * size_of::<u16>();
        let squares = (RIGHT / bytes).clamp(1, SQUARES);
        let pitch = squares * SQUARE + SIDE;
        let piece = pitch * SQUARE;
        let both = grown(&mut room.sums, 2 * piece * size_of::<f32>() / size_of::<Line>()).as_mut_ptr().cast::<f32>();
        let mut turn = 0;
        let mut before: Option<Below<'_>> = None;
        for start in (0..n).step_by(squares * SQUARE) {
            for row in (0..m).step_by(SQUARE) {
                let rows = row..m.min(row + SQUARE);
                let [first, count] = blocks(live, row, rows.len(), n);
                let columns = start.max(first * TERMS)..n.min(start + squares * SQUARE).min((first + count) * TERMS);
                if columns.is_empty() {
                    continue;
                }
                let from = both.wrapping_add(turn * piece);
                let all = self.squares([row, columns.start], columns.len(), (from, pitch));
                let turns = columns.len().div_ceil(SQUARE) * k.div_ceil(TERMS) * products(parts) * 4;
                let mut begun = before.take().map(|below| below.begin::<PARTS>(to, sums, turns));
                for square in all {
                    // SAFETY: the factors were checked, the rows and columns are there, and there is room for whole squares, of
                    // which those that are read are another piece's.
                    unsafe {
                        match (&mut begun, parts[0]) {
                            (None, _) => square.multiply(engaged, parts),
                            (Some(begun), 2) => square.multiply_beside::<2, _>(engaged, parts[1], begun),
                            (Some(begun), _) => square.multiply_beside::<3, _>(engaged, parts[1], begun),
                        }
                    }
                }
                // SAFETY: as above.
                if begun.as_mut().is_some_and(|begun| unsafe { !begun.rest() }) {
                    return false;
                }
                before = Some(Below { from, pitch, rows, columns, all: n, live, by, less });
                turn ^= 1;
            }
        }
        // SAFETY: as above.
        if before.is_some_and(|below| unsafe { !below.begin::<PARTS>(to, sums, 1).rest() }) {
            return false;
        }
        for (row, sum) in sums.iter().enumerate() {
            let all: f32 = sum.iter().sum();
            // No exponential is more than all of them, and one is as much as their mean.
            if all.is_nan() || all >= MOST_WEIGHT {
                return false;
            }
            to.note(row, (all / n as f32).to_bits());
        }
        true
    }
}
