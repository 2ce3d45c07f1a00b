//! Which buffer holds which tile. Two tiles share a buffer if one is dead before the other is written, or if the
//! operation that writes one can overwrite the other in place: a stream's state is then updated where it stands.

use super::{Anchored, Carried, Carrier, Contract, ExpressionPlan, Leaf, Step, Tile, reads, writes};
use einloom_tile::{Kernel, ValueId};

/// Sets every tile's slot; the number of slots.
pub(super) fn assign(kernel: &Kernel, tiles: &mut [Tile], body: &[Step]) -> usize {
    let mut walk = Walk { clock: 0, born: vec![usize::MAX; tiles.len()], last: vec![0; tiles.len()], merges: vec![] };
    walk.body(tiles, body, &[]);
    let Walk { born, last, merges, .. } = walk;

    // Classes of tiles that share a buffer by being updated in place.
    let mut class: Vec<usize> = (0..tiles.len()).collect();
    for (dst, src) in merges {
        let (from, to) = (class[dst.at()], class[src.at()]);
        class.iter_mut().filter(|c| **c == from).for_each(|c| *c = to);
    }
    let mut spans = vec![(usize::MAX, 0, 0); tiles.len()];
    for v in 0..tiles.len() {
        if born[v] != usize::MAX {
            let span = &mut spans[class[v]];
            *span = (span.0.min(born[v]), span.1.max(last[v]).max(born[v]), span.2.max(elements(kernel, tiles[v])));
        }
    }
    let mut order: Vec<usize> = (0..tiles.len()).filter(|&c| spans[c].0 != usize::MAX).collect();
    order.sort_by_key(|&c| spans[c].0);
    // First fit, the buffer closest in size first, so that small tiles do not pin large buffers.
    let mut slots: Vec<(usize, usize)> = vec![];
    let mut slot_of = vec![0; tiles.len()];
    for c in order {
        let (born, last, size) = spans[c];
        let free = slots.iter_mut().enumerate().filter(|(_, s)| s.0 < born);
        let best = free.min_by_key(|(_, s)| s.1.abs_diff(size)).filter(|(_, s)| s.1 >= size / 2 && size >= s.1 / 2);
        match best {
            Some((at, slot)) => {
                *slot = (last, slot.1.max(size));
                slot_of[c] = at;
            }
            None => {
                slots.push((last, size));
                slot_of[c] = slots.len() - 1;
            }
        }
    }
    for (v, tile) in tiles.iter_mut().enumerate() {
        tile.slot = slot_of[class[v]];
    }
    slots.len()
}

fn elements(kernel: &Kernel, tile: Tile) -> usize {
    let length = |a| {
        let axis = kernel.axis(a);
        axis.tile.min(axis.extent)
    };
    tile.outer.map_or(1, length).saturating_mul(tile.inner.map_or(1, length)).saturating_mul(tile.carrier.bytes())
}

struct Walk {
    clock: usize,
    /// When each tile is first written.
    born: Vec<usize>,
    /// When each tile is last needed.
    last: Vec<usize>,
    /// `(dst, src)`: `dst` is written over `src`.
    merges: Vec<(ValueId, ValueId)>,
}

/// A tile that a step writes, and one that it can overwrite with it.
type Pair = (ValueId, ValueId);

/// The tiles that the step can overwrite with its results.
fn replaceable(tiles: &[Tile], step: &Step) -> Vec<Pair> {
    match step {
        Step::Map { dst, plan, ends } => {
            // What is packed lies otherwise than what it is made of.
            let tile = if ends.dropped || ends.packed.is_some() {
                None
            } else {
                overwritten(tiles, *dst, plan).map(|src| (*dst, src))
            };
            let starts = ends.folds.iter().filter_map(|f| Some((f.dst, f.start?)));
            tile.into_iter().chain(starts.filter(|pair| same_carrier(tiles, *pair))).collect()
        }
        Step::Contract(Contract { dst, start, fold, .. }) => {
            let folded = fold.as_ref().and_then(|p| Some((p.fold.dst, p.fold.start?)));
            let sums = start.map(|start| (*dst, start));
            sums.into_iter().chain(folded.filter(|pair| same_carrier(tiles, *pair))).collect()
        }
        Step::Reduce { dst, start: Some(start), .. } if same_carrier(tiles, (*dst, *start)) => vec![(*dst, *start)],
        _ => vec![],
    }
}

fn same_carrier(tiles: &[Tile], (a, b): Pair) -> bool {
    tiles[a.at()].carrier == tiles[b.at()].carrier
}

/// The leaf whose place a map's result can take.
fn overwritten(tiles: &[Tile], dst: ValueId, plan: &ExpressionPlan) -> Option<ValueId> {
    let carrier = if plan.wide { Carrier::F64 } else { Carrier::F32 };
    // Variants that read it otherwise copy each strip before they write it.
    let first = plan.variants.iter().find_map(|v| match v.leaves.get(usize::from(v.first?)) {
        Some(Leaf::Tile(leaf, _)) => Some(*leaf),
        _ => None,
    })?;
    let (dst, leaf) = (tiles[dst.at()], tiles[first.at()]);
    let fits = dst.carrier == carrier && leaf.carrier == carrier;
    (fits && (dst.outer, dst.inner) == (leaf.outer, leaf.inner)).then_some(first)
}

impl Walk {
    fn read(&mut self, v: ValueId) {
        self.last[v.at()] = self.last[v.at()].max(self.clock);
    }

    /// Walks a body, of a stream with these states if any.
    fn body(&mut self, tiles: &[Tile], body: &[Step], states: &[Carried]) {
        let mut marks = vec![vec![]; body.len()];
        for state in states {
            chain(tiles, body, state, states, &mut marks);
        }
        local_chains(tiles, body, states, &mut marks);
        for (at, (step, pairs)) in body.iter().zip(&marks).enumerate() {
            self.clock += 1;
            reads(step).into_iter().for_each(|v| self.read(v));
            // The map before may be computed with it.
            if matches!(step, Step::Contract(Contract { made: true, .. })) {
                reads(&body[at - 1]).into_iter().for_each(|v| self.read(v));
            }
            self.merges.extend(pairs);
            for v in writes(step) {
                self.born[v.at()] = self.born[v.at()].min(self.clock);
                self.read(v);
            }
            // What becomes of its result may be made with it.
            if let Step::Contract(Contract { anchored: Some(Anchored { between, map, less, .. }), .. }) = step {
                let made = less.iter().chain([map]).flat_map(|more| writes(&body[at + more]));
                // The reduction may be of the map after the one that changes the result.
                let reduced = between.iter().map(|passing| passing.fold.dst);
                made.chain(reduced).for_each(|v| self.born[v.at()] = self.born[v.at()].min(self.clock));
            }
            if matches!(step, Step::Contract(Contract { piecewise: true, .. })) {
                reads(&body[at + 1]).into_iter().for_each(|v| self.read(v));
                writes(&body[at + 1]).into_iter().for_each(|v| self.born[v.at()] = self.born[v.at()].min(self.clock));
            }
            if let Step::Stream { states, body, .. } = step {
                self.stream(tiles, states, body);
            }
        }
    }

    fn stream(&mut self, tiles: &[Tile], states: &[Carried], body: &[Step]) {
        let started = self.clock;
        for state in states {
            self.born[state.value.at()] = started;
        }
        self.body(tiles, body, states);
        self.clock += 1;
        for state in states {
            self.read(state.value);
            self.read(state.next);
        }
        // What was there before the stream and is read in it is needed in every chunk.
        for (born, last) in self.born.iter().zip(&mut self.last) {
            if *born <= started && *last > started {
                *last = self.clock;
            }
        }
    }
}

/// Uses of `v` in the steps, those in nested streams included.
fn uses(steps: &[Step], v: ValueId) -> usize {
    let nested = |step: &Step| match step {
        Step::Stream { body, states, .. } => {
            uses(body, v) + states.iter().filter(|s| s.next == v || s.value == v).count()
        }
        _ => 0,
    };
    steps.iter().map(|s| reads(s).iter().filter(|r| **r == v).count() + nested(s)).sum()
}

/// Whether the step at `at` may overwrite `src`: it reads it as one operand, and nothing reads it afterwards.
fn is_last_use(body: &[Step], at: usize, src: ValueId) -> bool {
    reads(&body[at]).iter().filter(|v| **v == src).count() == 1 && uses(&body[at + 1..], src) == 0
}

/// Marks the steps through which a state's next value can be computed in place of the state: from the step that writes
/// `next` back, each overwriting a tile that nothing else reads later.
fn chain(tiles: &[Tile], body: &[Step], state: &Carried, states: &[Carried], marks: &mut [Vec<Pair>]) {
    if states.iter().filter(|s| s.next == state.next).count() > 1 {
        return;
    }
    let mut path = vec![];
    let mut target = state.next;
    loop {
        let Some(at) = body.iter().position(|s| writes(s).contains(&target)) else { return };
        let Some((_, src)) = replaceable(tiles, &body[at]).into_iter().find(|pair| pair.0 == target) else { return };
        // A skip after it would have to leave the state as it was.
        let skips = body[at..].iter().any(|s| matches!(s, Step::SkipUnless { .. }));
        if skips || !is_last_use(body, at, src) {
            return;
        }
        path.push((at, (target, src)));
        if src == state.value {
            break;
        }
        // In between only tiles that are this chunk's alone.
        if states.iter().any(|s| s.next == src || s.value == src) {
            return;
        }
        target = src;
    }
    path.into_iter().for_each(|(at, pair)| marks[at].push(pair));
}

/// Marks further steps that can overwrite a tile of the same body.
fn local_chains(tiles: &[Tile], body: &[Step], states: &[Carried], marks: &mut [Vec<Pair>]) {
    for at in 0..body.len() {
        for (dst, src) in replaceable(tiles, &body[at]) {
            let ours = body[..at].iter().any(|s| writes(s).contains(&src));
            let carried = states.iter().any(|s| s.next == src || s.value == src);
            // A tile is overwritten once, and takes one place.
            let taken = marks.iter().flatten().any(|pair| pair.1 == src) || marks[at].iter().any(|pair| pair.0 == dst);
            if ours && !carried && !taken && is_last_use(body, at, src) {
                marks[at].push((dst, src));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::compile::{Step, Unit, compile, each_step};
    use einloom_cascade::DType::{Bf16, F32};
    use einloom_tile::{Builder, Scalar, TileMonoid, carry, select};

    /// What is added to scores for each key is there until they are exponentiated, which is when the anchor is written too, though the
    /// masked scores of which that is the maximum come after.
    #[test]
    fn what_is_added_to_scores_is_there_until_they_are_weights() {
        let mut p = Builder::new("keys");
        let [q, k, v] = ["Q", "K", "V"].map(|name| p.input(name, &[256, 64], Bf16));
        let (keys, y) = (p.input("keys", &[256], F32), p.output("Y", &[256, 64], F32));
        p.kernel("keys", |g| {
            let (i, d, j) = (g.grid("m", 256, 128), g.whole("d", 64), g.stream_axis("n", 256, 128));
            let seen = j.at_most(i);
            let q = g.load("q", q, [i, d]);
            let states = [carry("top", [i], f64::NEG_INFINITY), carry("sum", [i], 0.0), carry("acc", [i, d], 0.0)];
            let [_, sum, acc] = g.stream(j, seen.clone(), states, |g, [top, sum, acc]| {
                let k = g.load("k", k, [j, d]);
                let scores = Scalar::from(g.mma("scores", q, k)) * 0.125;
                let keys = g.load("keys", keys, [j]);
                let scores = g.map("changed", scores - keys);
                let masked = g.map("masked", select(seen.clone(), scores, f64::NEG_INFINITY));
                let next = g.reduce_onto("top.next", TileMonoid::Max, top, masked, j);
                let by = g.map("by", (top - next).exp());
                let weights = g.map("weights", select(seen, (scores - next).exp(), 0.0));
                let kept = g.map("sum.kept", sum * by);
                let sum = g.reduce_onto("sum.next", TileMonoid::Sum, kept, weights, j);
                let narrow = g.map("narrow", weights.round_to(Bf16));
                let v = g.load("v", v, [j, d]);
                let kept = g.map("acc.kept", acc * by);
                [next, sum, g.mma_onto("acc.next", kept, narrow, v)]
            });
            g.store(y, [i, d], acc / sum);
        });
        let program = p.finish().expect("well-formed");
        let plan = compile(&program, &program.kernels[0], Some(Unit { rates: None })).expect("planned");
        let mut anchored = 0;
        each_step(&plan.body, &mut |step| {
            if let Step::Contract(c) = step {
                anchored += usize::from(c.anchored.is_some());
            }
        });
        assert_eq!(anchored, 1);
    }
}
