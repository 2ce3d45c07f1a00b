//! What masks leave of products by multiply-adds: of a left factor some elements are 0, and of a result nobody reads some. Neither
//! is multiplied. (The matrix unit has its own way, see [`super::tiles`].)

use super::{Carrier, ExpressionPlan, Product, Step, Tile, reads};
use einloom_tile::{AxisId, Predicate, ValueId};

/// What of a contraction need not be computed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Masks {
    /// Nothing reads elements of the result for which it does not hold.
    pub wanted: Option<Predicate>,
    /// What the map computes that makes the left factor: where its predicates do not hold it may be 0.
    pub left: Option<ExpressionPlan>,
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
        c.masks.wanted = wanted(tiles, after, c.dst, uses[c.dst.at()]);
        c.masks.left = before.iter().rev().find_map(|step| match step {
            Step::Map { dst, plan, .. } if *dst == c.left => Some(plan).filter(|p| !p.predicates.is_empty()).cloned(),
            _ => None,
        });
    }
}

/// The predicate under which all readers of a tile read it, of which there are so many. It is about the tile's own elements: along an
/// axis that a reader has and the tile has not, each is read at several positions.
fn wanted(tiles: &[Tile], after: &[Step], v: ValueId, uses: usize) -> Option<Predicate> {
    let readers: Vec<&Step> = after.iter().filter(|s| reads(s).contains(&v)).collect();
    let axes = |v: ValueId| [tiles[v.at()].outer, tiles[v.at()].inner].into_iter().flatten();
    let own = |predicate: &Predicate, reader: ValueId| {
        let mentions = |axis: &AxisId| predicate.all.iter().any(|a| a.terms.iter().any(|(_, x)| x == axis));
        axes(reader).filter(mentions).all(|axis| axes(v).any(|x| x == axis))
    };
    let only = |step: &Step, predicate: &Predicate| match step {
        Step::Map { dst, plan, ends, .. } => {
            own(predicate, *dst) && plan.reads_only_where(predicate, v) && ends.folds.iter().all(|f| f.start != Some(v))
        }
        _ => false,
    };
    let (Some(Step::Map { plan, .. }), true) = (readers.first(), readers.len() == uses) else { return None };
    plan.predicates.iter().find(|p| readers.iter().all(|step| only(step, p))).cloned()
}
