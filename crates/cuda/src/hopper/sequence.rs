//! Pass 6: the steps of both roles.

use super::overlap::{Known, Overlap, after_deferred, divide};
use super::{OpAt, Ring, RingId, Step};
use crate::schedule::facts::written;
use einloom_tile::{Op, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// The rings that hold a product's factors, and where each stream's products go.
pub(super) struct Sequencer<'a, 'b> {
    pub known: &'b Known<'a, 'b>,
    pub rings: &'b [Ring],
    pub overlaps: &'b BTreeMap<usize, Overlap>,
    pub turns: bool,
}

/// The products of every stream of the kernel.
pub(super) fn overlaps(known: &Known<'_, '_>) -> BTreeMap<usize, Overlap> {
    let streams = known.facts.kernel.body.iter().enumerate();
    let each = |(k, op): (usize, &Op)| match op {
        Op::Stream { body, .. } => Some((k, divide(known, k, body))),
        _ => None,
    };
    streams.filter_map(each).collect()
}

impl Sequencer<'_, '_> {
    /// What the producer does per grid point: every ring's tiles in the order in which they are first needed.
    pub fn producer(&self) -> Vec<Step> {
        let mut out = vec![];
        let mut done = BTreeSet::new();
        for (k, op) in self.known.facts.kernel.body.iter().enumerate() {
            match op {
                Op::Stream { .. } => {
                    for ring in self.of_stream(None, Some(k)) {
                        if done.insert(ring) {
                            fill(ring, &mut out);
                        }
                    }
                    let mut chunk = vec![];
                    self.in_stream(k).into_iter().for_each(|r| fill(r, &mut chunk));
                    if !chunk.is_empty() {
                        out.push(Step::Chunks { stream: k, first: chunk.clone(), rest: chunk, after: vec![] });
                    }
                }
                _ => {
                    for ring in self.of_ops(&[OpAt { stream: None, op: k }]) {
                        if done.insert(ring) {
                            fill(ring, &mut out);
                        }
                    }
                }
            }
        }
        out
    }

    /// What a consumer does per grid point.
    pub fn consumer(&self) -> Vec<Step> {
        let body = &self.known.facts.kernel.body;
        let mut out = vec![];
        let mut held: BTreeSet<RingId> = BTreeSet::new();
        for (k, op) in body.iter().enumerate() {
            let here = OpAt { stream: None, op: k };
            let rings = match op {
                Op::Stream { .. } => self.of_stream(None, Some(k)),
                _ => self.of_ops(&[here]),
            };
            for &ring in &rings {
                if held.insert(ring) {
                    await_(ring, &mut out);
                    self.reads(ring, &mut out);
                }
            }
            match op {
                Op::Stream { body, .. } => self.stream(k, body, &mut out),
                Op::Mma { .. } => out.extend([Step::Multiply(here), Step::Settle { pending: 0 }]),
                Op::Load { dst, .. } if self.known.copied.contains_key(dst) => {}
                _ => out.push(Step::Compute(here)),
            }
            // Nobody reads it later.
            let later = |r: &RingId| {
                (k + 1..body.len()).any(|l| {
                    self.of_ops(&[OpAt { stream: None, op: l }]).contains(r)
                        || self.of_stream(None, Some(l)).contains(r)
                })
            };
            let released: Vec<RingId> = held.iter().copied().filter(|r| rings.contains(r) && !later(r)).collect();
            out.extend(released.iter().map(|&ring| Step::Release { ring }));
        }
        out
    }

    fn stream(&self, k: usize, body: &[Op], out: &mut Vec<Step>) {
        let Some(overlap) = self.overlaps.get(&k) else { return };
        out.push(Step::Start { stream: k });
        let (first, rest, after) = if overlap.chained && !overlap.early.is_empty() {
            self.chain(k, body, overlap)
        } else {
            let (first, rest) = (self.chunk(k, body, overlap, true), self.chunk(k, body, overlap, false));
            (first, rest, self.last(overlap))
        };
        out.push(Step::Chunks { stream: k, first, rest, after });
    }

    /// One chain of products through all chunks.
    fn chain(&self, k: usize, body: &[Op], overlap: &Overlap) -> (Vec<Step>, Vec<Step>, Vec<Step>) {
        let rings = self.in_stream(k);
        let mut start = vec![];
        rings.iter().for_each(|&r| await_(r, &mut start));
        start.extend(overlap.early.iter().map(|&at| Step::Multiply(at)));
        let mut work = vec![];
        rings.iter().for_each(|&r| self.reads(r, &mut work));
        work.extend(self.others(k, body, overlap).into_iter().map(Step::Compute));
        work.push(Step::Advance { stream: k });
        let release = rings.iter().map(|&ring| Step::Release { ring });
        let mut rest = start.clone();
        rest.push(Step::Settle { pending: overlap.early.len() });
        rest.extend(release.clone());
        rest.extend(work.clone());
        let first = start.into_iter().chain(work).collect();
        let after = std::iter::once(Step::Settle { pending: 0 }).chain(release).collect();
        (first, rest, after)
    }

    fn chunk(&self, k: usize, body: &[Op], overlap: &Overlap, first: bool) -> Vec<Step> {
        let mut out = vec![];
        let turn = self.turns && !overlap.deferred.is_empty();
        let early = self.of_ops(&overlap.early);
        let deferred = self.of_ops(&overlap.deferred);
        let early: Vec<RingId> = early.into_iter().filter(|r| self.in_stream(k).contains(r)).collect();
        if turn {
            out.push(Step::TakeTurn);
        }
        early.iter().for_each(|&r| await_(r, &mut out));
        out.extend(overlap.early.iter().map(|&at| Step::Multiply(at)));
        let pending = if first { 0 } else { overlap.deferred.len() };
        if !first {
            self.start_deferred(overlap, &mut out);
        }
        if turn {
            out.push(Step::PassTurn);
        }
        // Tiles that are also read into registers are read while the products run.
        let plain = self.of_ops(&overlap.plain);
        early.iter().for_each(|&r| self.reads(r, &mut out));
        if !overlap.early.is_empty() {
            out.push(Step::Settle { pending });
        }
        let kept = |r: &&RingId| !plain.contains(r);
        out.extend(early.iter().filter(kept).map(|&ring| Step::Release { ring }));
        let late = after_deferred(self.known, overlap, body);
        let others = self.others(k, body, overlap);
        let mut held: BTreeSet<RingId> = early.iter().copied().collect();
        let (now, then): (Vec<OpAt>, Vec<OpAt>) = others.into_iter().partition(|at| !late.contains(&at.op));
        let now_plain = now.iter().any(|at| matches!(body[at.op], Op::Mma { .. }));
        if now_plain && pending > 0 {
            // A product in between waits for everything before it anyway.
            self.settle_deferred(overlap, &deferred, &mut out);
        }
        now.iter().for_each(|&at| self.operation(k, body, at, &mut held, &mut out));
        if !now_plain && pending > 0 {
            self.settle_deferred(overlap, &deferred, &mut out);
        }
        then.iter().for_each(|&at| self.operation(k, body, at, &mut held, &mut out));
        let left: Vec<RingId> = plain.iter().copied().filter(|r| held.contains(r)).collect();
        out.extend(left.into_iter().filter(|r| self.in_stream(k).contains(r)).map(|ring| Step::Release { ring }));
        out.push(Step::Advance { stream: k });
        out
    }

    fn start_deferred(&self, overlap: &Overlap, out: &mut Vec<Step>) {
        self.of_ops(&overlap.deferred).into_iter().for_each(|r| await_(r, out));
        out.extend(overlap.deferred.iter().map(|&at| Step::Multiply(at)));
    }

    fn settle_deferred(&self, overlap: &Overlap, rings: &[RingId], out: &mut Vec<Step>) {
        if !overlap.deferred.is_empty() {
            out.push(Step::Settle { pending: 0 });
            out.extend(rings.iter().map(|&ring| Step::Release { ring }));
        }
    }

    /// What is left after the last chunk.
    fn last(&self, overlap: &Overlap) -> Vec<Step> {
        let mut out = vec![];
        if !overlap.deferred.is_empty() {
            self.start_deferred(overlap, &mut out);
            self.settle_deferred(overlap, &self.of_ops(&overlap.deferred), &mut out);
        }
        out
    }

    fn operation(&self, k: usize, body: &[Op], at: OpAt, held: &mut BTreeSet<RingId>, out: &mut Vec<Step>) {
        if let Op::Mma { .. } = body[at.op] {
            for ring in self.of_ops(&[at]) {
                if self.in_stream(k).contains(&ring) && held.insert(ring) {
                    await_(ring, out);
                    self.reads(ring, out);
                }
            }
            out.extend([Step::Multiply(at), Step::Settle { pending: 0 }]);
        } else {
            out.push(Step::Compute(at));
        }
    }

    /// The body's operations that are neither copies nor started apart, in order.
    fn others(&self, k: usize, body: &[Op], overlap: &Overlap) -> Vec<OpAt> {
        let place = |op| OpAt { stream: Some(k), op };
        let apart = |at: &OpAt| overlap.early.contains(at) || overlap.deferred.contains(at);
        let copied = |op: &Op| matches!(op, Op::Load { dst, .. } if self.known.copied.contains_key(dst));
        (0..body.len()).filter(|&i| !copied(&body[i])).map(place).filter(|at| !apart(at)).collect()
    }

    /// Reads into registers what is needed there, too.
    fn reads(&self, ring: RingId, out: &mut Vec<Step>) {
        for tile in &self.rings[ring.0].tiles {
            if self.known.copied.get(&tile.value).is_some_and(|c| c.read.is_some()) {
                out.push(Step::Read { ring, value: tile.value });
            }
        }
    }

    fn ring_of(&self, v: ValueId) -> Option<RingId> {
        self.rings.iter().position(|r| r.tiles.iter().any(|t| t.value == v)).map(RingId)
    }

    /// Rings that are filled in every chunk of the stream, in the order of first need.
    fn in_stream(&self, k: usize) -> Vec<RingId> {
        let inside = |r: &RingId| {
            self.rings[r.0]
                .tiles
                .iter()
                .any(|t| self.known.copied.get(&t.value).is_some_and(|c| c.op.stream == Some(k)))
        };
        (0..self.rings.len()).map(RingId).filter(inside).collect()
    }

    /// Rings filled outside of streams that the stream's products read.
    fn of_stream(&self, filled: Option<usize>, stream: Option<usize>) -> Vec<RingId> {
        let Some(Op::Stream { body, .. }) = stream.and_then(|k| self.known.facts.kernel.body.get(k)) else {
            return vec![];
        };
        let ops: Vec<OpAt> = (0..body.len()).map(|op| OpAt { stream, op }).collect();
        let of = |r: &RingId| {
            let first = self.rings[r.0].tiles.first().and_then(|t| self.known.copied.get(&t.value));
            first.is_some_and(|c| c.op.stream == filled)
        };
        self.of_ops(&ops).into_iter().filter(of).collect()
    }

    /// Rings whose tiles these operations multiply, or read in registers.
    fn of_ops(&self, ops: &[OpAt]) -> Vec<RingId> {
        let mut out = vec![];
        for at in ops {
            let Some(op) = self.op(*at) else { continue };
            let mut add = |v: ValueId| {
                if let Some(r) = self.ring_of(v)
                    && !out.contains(&r)
                {
                    out.push(r);
                }
            };
            match written(op).and_then(|dst| self.known.products.get(&dst)) {
                Some(p) => {
                    if !p.left_in_registers {
                        add(p.left);
                    }
                    add(p.right);
                }
                None if matches!(op, Op::Load { .. }) => {}
                None => crate::schedule::facts::each_use(op, &mut |v, _| add(v)),
            }
        }
        out
    }

    fn op(&self, at: OpAt) -> Option<&Op> {
        let body = &self.known.facts.kernel.body;
        match at.stream {
            None => body.get(at.op),
            Some(k) => match body.get(k) {
                Some(Op::Stream { body, .. }) => body.get(at.op),
                _ => None,
            },
        }
    }
}

fn fill(ring: RingId, out: &mut Vec<Step>) {
    out.extend([Step::Acquire { ring, ahead: 1 }, Step::Fill { ring }]);
}

fn await_(ring: RingId, out: &mut Vec<Step>) {
    out.push(Step::Await { ring, ahead: 0 });
}
