//! When a schedule is *in order*: a second definition of what the abstract machine looks for, without interleavings and
//! without numbers. A mutation is harmless if and only if the schedule it leaves is in order.
//!
//! 1. Memory: stages lie apart and inside of shared memory; as many readers complete a phase as there are consumers, of
//!    all blocks of a cluster where a tile is shared; all bytes are announced; parts are brought to all blocks, which
//!    meet at the start and at the end.
//! 2. The producer acquires each filling before it starts it. Both roles wait for the phase that their counts say.
//! 3. A consumer reads a ring between awaiting and releasing, and releases a stage after the products that read it have
//!    been waited for. After every grid point it holds nothing.
//! 4. Between a product and the step that waits for it, nothing touches the registers that it writes or takes a factor
//!    from, but products that add to the same registers.
//! 5. Turns are taken and passed on alternately.
//! 6. When every step waits only for the counts that it needs, all roles come to their ends, with equal counts.

use einloom_cuda::hopper::{OpAt, RingId, Specialised, Step};
use einloom_tile::{Init, Kernel, Op, Scalar, ValueId, chunks, grid_points, initial_windows, set_grid_point};

/// Whether the schedule is in order for one block that executes the whole grid.
pub fn in_order(kernel: &Kernel, s: &Specialised) -> bool {
    let points = |steps| (0..grid_points(kernel)).map(|p| unroll(kernel, p, steps)).collect::<Vec<_>>();
    let (producer, consumer) = (points(&s.producer), points(&s.consumer));
    let mut copies = Producer { acquired: vec![0; s.rings.len()], filled: vec![0; s.rings.len()] };
    let zeros = vec![0; s.rings.len()];
    let mut reader = Consumer { kernel, s, awaited: zeros.clone(), released: zeros, groups: vec![], turn: false };
    memory(s)
        && producer.iter().flatten().all(|step| copies.step(step).is_some())
        && consumer.iter().all(|point| {
            point.iter().all(|step| reader.step(step).is_some())
                && reader.awaited == reader.released
                && reader.groups.is_empty()
                && !reader.turn
        })
        && copies.filled == reader.released
        && ends(s, &producer.concat(), &consumer.concat())
}

fn unroll<'a>(kernel: &Kernel, point: usize, steps: &'a [Step]) -> Vec<&'a Step> {
    let mut windows = initial_windows(kernel);
    set_grid_point(kernel, point, &mut windows);
    let mut out = vec![];
    for step in steps {
        let Step::Chunks { stream, first, rest, after } = step else {
            out.push(step);
            continue;
        };
        let Op::Stream { axis, within, .. } = &kernel.body[*stream] else { panic!("no stream") };
        let count = chunks(kernel, *axis, within, &windows).count();
        for k in 0..count {
            out.extend(if k == 0 { first } else { rest });
        }
        if count > 0 {
            out.extend(after);
        }
    }
    out
}

fn memory(s: &Specialised) -> bool {
    let mut stages = vec![];
    for r in &s.rings {
        let bytes = r.tiles.iter().map(|t| t.offset + t.bytes()).max().unwrap_or(0);
        stages.extend((0..r.stages).map(|k| (r.offset + k * r.stage_bytes, bytes)));
    }
    stages.sort_unstable();
    let apart = stages.windows(2).all(|p| p[0].0 + p[0].1 <= p[1].0);
    let end = stages.last().map_or(0, |(from, bytes)| from + bytes);
    let blocks = s.cluster.map_or(1, |c| c.size);
    let counts = s.rings.iter().all(|r| {
        let shared = r.tiles.iter().any(|t| t.shared.is_some());
        r.readers == s.consumers * if shared { blocks } else { 1 }
            && r.bytes == r.tiles.iter().map(|t| t.bytes()).sum::<usize>()
            && r.tiles.iter().filter_map(|t| t.shared).all(|share| share.mask == (1 << blocks) - 1)
    });
    apart && end <= s.shared_bytes && counts && s.cluster.is_none_or(|c| c.meets_first && c.meets_last)
}

struct Producer {
    acquired: Vec<usize>,
    filled: Vec<usize>,
}

impl Producer {
    fn step(&mut self, step: &Step) -> Option<()> {
        match step {
            Step::Acquire { ring, ahead: 1 } => self.acquired[ring.0] = self.filled[ring.0] + 1,
            Step::Fill { ring } if self.acquired[ring.0] > self.filled[ring.0] => self.filled[ring.0] += 1,
            _ => return None,
        }
        Some(())
    }
}

/// A product under way: the homes it writes and takes, and the fillings it reads.
struct Group {
    writes: ValueId,
    takes: Option<ValueId>,
    reads: Vec<(RingId, usize)>,
}

struct Consumer<'a> {
    kernel: &'a Kernel,
    s: &'a Specialised,
    awaited: Vec<usize>,
    released: Vec<usize>,
    groups: Vec<Group>,
    turn: bool,
}

impl Consumer<'_> {
    fn home(&self, v: ValueId) -> ValueId {
        self.s.layout.in_place.get(&v).copied().unwrap_or(v)
    }

    fn free(&self, v: ValueId) -> bool {
        let home = self.home(v);
        self.groups.iter().all(|g| g.writes != home && g.takes != Some(home))
    }

    /// The filling awaited last, if it is still held.
    fn held(&self, ring: RingId) -> Option<usize> {
        let last = self.awaited[ring.0].checked_sub(1)?;
        (self.released[ring.0] <= last).then_some(last)
    }

    /// `None` if the step is out of order.
    fn step(&mut self, step: &Step) -> Option<()> {
        let fine = match step {
            Step::Await { ring, ahead } => {
                self.awaited[ring.0] += 1;
                *ahead == 0
            }
            Step::Release { ring } => {
                let oldest = self.released[ring.0];
                self.released[ring.0] += 1;
                oldest < self.awaited[ring.0] && self.groups.iter().all(|g| !g.reads.contains(&(*ring, oldest)))
            }
            Step::Read { ring, value } => self.held(*ring).is_some() && self.free(*value),
            Step::Compute(at) => touched(self.s.op(self.kernel, *at)?).into_iter().all(|v| self.free(v)),
            Step::Multiply(at) => {
                let group = self.group(*at)?;
                self.groups.push(group);
                true
            }
            Step::Settle { pending } => {
                let done = self.groups.len().saturating_sub(*pending);
                self.groups.drain(..done);
                true
            }
            Step::TakeTurn => !std::mem::replace(&mut self.turn, true),
            Step::PassTurn => std::mem::replace(&mut self.turn, false),
            Step::Start { stream } | Step::Advance { stream } => {
                let Op::Stream { states, .. } = &self.kernel.body[*stream] else { return None };
                let start = matches!(step, Step::Start { .. });
                states.iter().all(|s| match (&s.init, start) {
                    (Init::Value(v), true) => self.free(s.value) && self.free(*v),
                    (Init::Const(_), true) => self.free(s.value),
                    _ => self.home(s.next) == self.home(s.value) || self.free(s.next) && self.free(s.value),
                })
            }
            _ => false,
        };
        fine.then_some(())
    }

    fn group(&self, at: OpAt) -> Option<Group> {
        let Op::Mma { dst, acc, .. } = self.s.op(self.kernel, at)? else { return None };
        let product = self.s.layout.products.get(dst)?;
        let mut reads = vec![];
        let mut takes = None;
        for (v, in_registers) in [(product.left, product.left_in_registers), (product.right, false)] {
            match self.s.tile(v).filter(|_| !in_registers) {
                Some((ring, _)) => reads.push((ring, self.held(ring)?)),
                None => takes = Some(self.home(v)),
            }
        }
        let writes = self.home(*dst);
        let onto = match acc {
            Some(acc) if self.home(*acc) == writes => self.groups.iter().all(|g| g.takes != Some(writes)),
            Some(acc) => self.free(*acc) && self.free(*dst),
            None => self.free(*dst),
        };
        let taken = takes.is_none_or(|t| self.groups.iter().all(|g| g.writes != t));
        (onto && taken).then_some(Group { writes, takes, reads })
    }
}

/// The tiles that an operation reads and writes.
fn touched(op: &Op) -> Vec<ValueId> {
    let mut out = vec![];
    match op {
        Op::Load { dst, .. } => out.push(*dst),
        Op::Store { src, .. } => out.push(*src),
        Op::Map { dst, expr } => {
            out.push(*dst);
            leaves(expr, &mut out);
        }
        Op::Reduce { dst, src, acc, .. } => out.extend([*dst, *src].into_iter().chain(*acc)),
        _ => {}
    }
    out
}

fn leaves(expr: &Scalar, out: &mut Vec<ValueId>) {
    match expr {
        Scalar::Tile(v) => out.push(*v),
        Scalar::Round(_, x) | Scalar::Unary(_, x) => leaves(x, out),
        Scalar::Binary(_, x, y) => [x, y].into_iter().for_each(|e| leaves(e, out)),
        Scalar::Select(c, x, y) => [c, x, y].into_iter().for_each(|e| leaves(e, out)),
        _ => {}
    }
}

/// Whether all roles come to their ends. Counts only grow and every step waits for some of them to be large enough, so
/// that one order of execution stands for all.
fn ends(s: &Specialised, producer: &[&Step], consumer: &[&Step]) -> bool {
    let mut next = vec![0; s.consumers + 1];
    let mut filled = vec![0; s.rings.len()];
    let mut awaited = vec![vec![0; s.consumers]; s.rings.len()];
    let mut released = awaited.clone();
    let mut turns: Vec<bool> = (0..s.consumers).map(|w| w == 0).collect();
    loop {
        let mut moved = false;
        while let Some(step) = producer.get(next[s.consumers]) {
            match step {
                Step::Acquire { ring, .. } => {
                    let needed = (filled[ring.0] + 1_usize).saturating_sub(s.ring(*ring).stages);
                    if released[ring.0].iter().any(|&r| r < needed) {
                        break;
                    }
                }
                Step::Fill { ring } => filled[ring.0] += 1,
                _ => {}
            }
            next[s.consumers] += 1;
            moved = true;
        }
        for w in 0..s.consumers {
            while let Some(step) = consumer.get(next[w]) {
                match step {
                    Step::Await { ring, .. } if awaited[ring.0][w] >= filled[ring.0] => break,
                    Step::Await { ring, .. } => awaited[ring.0][w] += 1,
                    Step::Release { ring } => released[ring.0][w] += 1,
                    Step::TakeTurn if !turns[w] => break,
                    Step::TakeTurn => turns[w] = false,
                    Step::PassTurn => turns[(w + 1) % s.consumers] = true,
                    _ => {}
                }
                next[w] += 1;
                moved = true;
            }
        }
        if !moved {
            return next[s.consumers] == producer.len() && next[..s.consumers].iter().all(|&n| n == consumer.len());
        }
    }
}
