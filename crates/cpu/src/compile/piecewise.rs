//! Contractions of whose results nothing is wanted but what a map makes of each element, which is packed as the left factor of
//! another contraction: both are computed a piece at a time, and the results are never in memory as a whole.

use super::anchored::changed;
use super::{Contract, Step, Tile};

/// Finds such contractions.
pub(super) fn find(tiles: &[Tile], steps: &mut [Step], uses: &[usize]) {
    for at in 0..steps.len() {
        if let Step::Stream { body, .. } = &mut steps[at] {
            find(tiles, body, uses);
        }
        if let Some(to) = packed(tiles, &steps[at..], uses) {
            // What the map reads besides has to be there.
            steps[at..at + to].rotate_left(1);
            if let Step::Contract(Contract { piecewise, .. }) = &mut steps[at + to - 1] {
                *piecewise = true;
            }
        }
    }
}

/// Steps from the first of these, if it is such a contraction, to its map, which could follow at once.
fn packed(tiles: &[Tile], steps: &[Step], uses: &[usize]) -> Option<usize> {
    let to = changed(tiles, steps, uses)?;
    let Step::Map { ends, .. } = &steps[to] else { return None };
    (ends.packed == Some(1) && ends.is_empty()).then_some(to)
}
