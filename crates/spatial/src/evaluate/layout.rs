//! The inputs of an evaluation as numbers, for those who need more than its sums: what is cut, and what is held.

use super::dataflow::{self, Flow};
use super::{Setting, cycles, setup};
use crate::{Dataflow, Problem};
use einloom_cascade::{Bound, RankId};
use std::collections::BTreeMap;

/// A setting whose names all stand for something, and the dataflow that fits.
pub(crate) struct Layout<'a> {
    pub bound: Bound,
    pub kernels: Vec<KernelLayout<'a>>,
}

/// One kernel of it.
pub(crate) struct KernelLayout<'a> {
    /// Tile extents of the ranks that are cut.
    pub tiles: BTreeMap<RankId, usize>,
    pub dataflow: &'a Dataflow,
    /// Tiles of a block along the rank that is cut outermost.
    pub block_tiles: usize,
}

/// Names to numbers; the dataflow is the one that [`super::evaluate`] takes.
///
/// # Errors
/// As [`super::evaluate`].
pub(crate) fn layout<'a>(setting: &'a Setting<'a>) -> Result<Layout<'a>, Vec<Problem>> {
    let setup = setup::setup(setting)?;
    let mut problems = vec![];
    let mut kernels = vec![];
    for (k, kernel) in setting.binding.kernels.iter().enumerate() {
        let cost = cycles::kernel(&setup, kernel);
        match dataflow::choose(&setup, k, &cost) {
            Ok(Flow { dataflow, block_tiles, .. }) => {
                kernels.push(KernelLayout { tiles: setup.tiles[k].clone(), dataflow, block_tiles });
            }
            Err(found) => problems.extend(found),
        }
    }
    if problems.is_empty() { Ok(Layout { bound: setup.bound, kernels }) } else { Err(problems) }
}
