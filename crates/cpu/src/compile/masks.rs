//! What masks leave of products by multiply-adds: of a left factor some elements are 0, and of a result nobody reads some. Neither
//! is multiplied. (The matrix unit has its own way, see [`super::tiles`].)

use super::{Carrier, Product, Step, Tile, reads};
use einloom_tile::{Predicate, ValueId};

/// What of a contraction need not be computed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Masks {
    /// Nothing reads elements of the result for which it does not hold.
    pub wanted: Option<Predicate>,
    /// The map that makes the left factor tells which of its elements are 0.
    pub zeros: bool,
}

/// Finds it for all of `steps`; `uses` counts readers of tiles.
pub(super) fn find(tiles: &[Tile], steps: &mut [Step], uses: &[usize]) {
    for at in 0..steps.len() {
        let (before, rest) = steps.split_at_mut(at);
        let Some((step, after)) = rest.split_first_mut() else { return };
        let c = match step {
            Step::Stream { body, .. } => {
                find(tiles, body, uses);
                continue;
            }
            Step::Contract(c) => c,
            _ => continue,
        };
        let plain = c.product == Product::Broadcast && tiles[c.dst.at()].carrier == Carrier::F32;
        if !plain || c.parts.is_some() {
            continue;
        }
        c.masks.wanted = wanted(after, c.dst, uses[c.dst.at()]);
        let left = tiles[c.left.at()];
        if left.outer.is_some() && left.inner == Some(c.sum) {
            c.masks.zeros = before.iter_mut().any(|step| match step {
                Step::Map { dst, plan, ends } if *dst == c.left && !plan.predicates.is_empty() => {
                    ends.masked = true;
                    true
                }
                _ => false,
            });
        }
    }
}

/// The predicate under which all readers of a tile read it, of which there are so many.
fn wanted(after: &[Step], v: ValueId, uses: usize) -> Option<Predicate> {
    let readers: Vec<&Step> = after.iter().filter(|s| reads(s).contains(&v)).collect();
    let only = |step: &Step, predicate: &Predicate| match step {
        Step::Map { plan, ends, .. } => {
            plan.reads_only_where(predicate, v) && ends.folds.iter().all(|f| f.start != Some(v))
        }
        _ => false,
    };
    let (Some(Step::Map { plan, .. }), true) = (readers.first(), readers.len() == uses) else { return None };
    plan.predicates.iter().find(|p| readers.iter().all(|step| only(step, p))).cloned()
}
