//! Sums that stay apart: where a stream only ever adds to a state (and scales it), every thread sums the elements it
//! holds, and the threads' sums are added up once, after the stream. So it is with maxima and the like.

use super::facts::{Facts, Use, each_op, each_use, leaves, written};
use super::frame::Side;
use super::frames::Frames;
use einloom_cascade::{BinaryOp, DType};
use einloom_tile::{AxisId, Init, Op, Scalar, State, TileMonoid, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// A state of which every thread holds the part that its own elements make.
#[derive(Clone, Debug, PartialEq)]
pub struct Partial {
    /// The reductions that add to it.
    pub reductions: BTreeSet<ValueId>,
    /// A tile that is reduced into it: its frame is where the parts are.
    pub source: ValueId,
    /// The reduced axis's side in that frame.
    pub side: Side,
    /// How parts are combined.
    pub monoid: TileMonoid,
}

/// By state.
pub(crate) fn choose(
    facts: &Facts<'_>,
    frames: &Frames,
    in_place: &BTreeMap<ValueId, ValueId>,
) -> BTreeMap<ValueId, Partial> {
    let mut out = BTreeMap::new();
    block(facts, frames, in_place, &facts.kernel.body, &mut out);
    out
}

fn block(
    facts: &Facts<'_>,
    frames: &Frames,
    in_place: &BTreeMap<ValueId, ValueId>,
    ops: &[Op],
    out: &mut BTreeMap<ValueId, Partial>,
) {
    for op in ops {
        if let Op::Stream { states, body, .. } = op {
            block(facts, frames, in_place, body, out);
            for s in states {
                if let Some(partial) = partial(facts, frames, in_place, body, s) {
                    out.insert(s.value, partial);
                }
            }
        }
    }
}

fn partial(
    facts: &Facts<'_>,
    frames: &Frames,
    in_place: &BTreeMap<ValueId, ValueId>,
    body: &[Op],
    state: &State,
) -> Option<Partial> {
    if facts.dtype(state.value) != DType::F32 {
        return None;
    }
    let mut found: Option<Partial> = None;
    let (mut at, mut scaled) = (state.next, false);
    while at != state.value {
        if in_place.get(&at) != Some(&state.value) || facts.dtype(at) != DType::F32 {
            return None;
        }
        // Nothing else sees a part.
        let seen = facts.uses[at.at()].iter().filter(|u| !matches!(u, Use::Next(_))).count();
        if seen != usize::from(at != state.next) {
            return None;
        }
        at = match body.iter().find(|op| written(op) == Some(at))? {
            Op::Reduce { dst, src, axis, monoid, acc: Some(acc) } => {
                let side = side(facts, frames, *src, *axis)?;
                let one = found.get_or_insert_with(|| Partial {
                    reductions: BTreeSet::new(),
                    source: *src,
                    side,
                    monoid: monoid.clone(),
                });
                let alike =
                    one.side == side && one.monoid == *monoid && frames.of.get(&one.source) == frames.of.get(src);
                if !alike || facts.dtype(*src) == DType::F64 || facts.dtype(*src).is_integer() {
                    return None;
                }
                one.reductions.insert(*dst);
                *acc
            }
            Op::Map { expr, .. } => {
                scaled = true;
                scaled_by(expr, state, in_place)?
            }
            _ => return None,
        };
    }
    let found = found?;
    let mut reads = 0;
    each_op(body, &mut |op| each_use(op, &mut |v, u| reads += usize::from(v == state.value && !next(&u))));
    let start = match (&found.monoid, &state.init) {
        // Each thread would count it.
        (TileMonoid::Sum | TileMonoid::Prod, Init::Const(x)) => *x == found.monoid.identity(),
        (TileMonoid::Max | TileMonoid::Min, _) => true,
        _ => false,
    };
    (reads == 1 && start && (!scaled || found.monoid == TileMonoid::Sum)).then_some(found)
}

fn next(u: &Use) -> bool {
    matches!(u, Use::Next(_))
}

fn side(facts: &Facts<'_>, frames: &Frames, src: ValueId, axis: AxisId) -> Option<Side> {
    let f = frames.of.get(&src)?;
    if !facts.wide(axis) {
        return None;
    }
    frames.frames[f.0].sides.get(&axis).copied()
}

/// The tile of the state's chain that the expression multiplies with something that all threads agree on.
fn scaled_by(expr: &Scalar, state: &State, in_place: &BTreeMap<ValueId, ValueId>) -> Option<ValueId> {
    let Scalar::Binary(BinaryOp::Mul, a, b) = expr else { return None };
    let own = |v: ValueId| v == state.value || in_place.get(&v) == Some(&state.value);
    let (tile, factor) = match (&**a, &**b) {
        (Scalar::Tile(v), e) | (e, Scalar::Tile(v)) if own(*v) => (*v, e),
        _ => return None,
    };
    let mut clean = true;
    leaves(factor, &mut |v| clean &= !own(v));
    clean.then_some(tile)
}
