//! When an array can issue its next wave, and what it waits for until then.

use super::route::By;
use super::{Active, Engine, Next};
use crate::simulate::Cause;

impl Engine<'_> {
    /// Takes up the next operation of an array, or all of a phase that take turns.
    pub(super) fn load(&mut self, a: usize) {
        if !self.arrays[a].active.is_empty() {
            return;
        }
        self.arrays[a].turn = 0;
        let kernel = &self.setup.setting.binding.kernels[self.setup.kernel];
        while let Some(&op) = self.ops[a].get(self.arrays[a].next) {
            let first = self.arrays[a].active.first().map(|f| f.op.group);
            let in_turn = kernel.phases[self.setup.parts[op.part as usize].phase].in_turn;
            if first.is_some_and(|group| !in_turn || group != op.group) {
                break;
            }
            let shape = self.shape(&op);
            let slots = vec![None; self.setup.parts[op.part as usize].reads.len()];
            self.arrays[a].active.push(Active { op, shape, step: 0, slots, result: None });
            self.arrays[a].next += 1;
        }
    }

    /// The next wave of an array: of the operations that take turns, the one that can start first.
    pub(super) fn next(&mut self, a: usize) -> (usize, Next) {
        self.load(a);
        let many = self.arrays[a].active.len();
        if many == 0 {
            return (0, Next::Finished);
        }
        let mut best: Option<(i64, usize, Next)> = None;
        for k in 0..many {
            let turn = (self.arrays[a].turn + k) % many;
            let next = self.next_of(a, turn);
            let time = match &next {
                Next::At(at, ..) => *at,
                _ => i64::MAX,
            };
            if best.as_ref().is_none_or(|(t, ..)| time < *t) {
                best = Some((time, turn, next));
            }
            if time <= self.arrays[a].free {
                break;
            }
        }
        best.map_or((0, Next::Finished), |(_, turn, next)| (turn, next))
    }

    /// Finds what an operation reads, as far as it has been started.
    fn resolve(&mut self, a: usize, turn: usize) {
        let active = &mut self.arrays[a].active[turn];
        for (slot, read) in active.slots.iter_mut().zip(&self.setup.parts[active.op.part as usize].reads) {
            if let (None, Some(from)) = (&slot, read.from) {
                let key = (from as u16, active.op.instance, self.setup.key(&active.op, &read.at));
                *slot = self.found.get(&key).copied();
            }
        }
    }

    fn next_of(&mut self, a: usize, turn: usize) -> Next {
        self.resolve(a, turn);
        let array = &self.arrays[a];
        let active = &array.active[turn];
        let op = &active.op;
        let part = &self.setup.parts[op.part as usize];
        let shape = &self.shapes[active.shape];
        let routes = &self.routes[op.part as usize];
        let wait = |what: &str| {
            let name = &self.setup.setting.chip.arrays[a].name;
            Next::Waits(format!("{name} cannot go on with {} of tile {}: {what}", part.einsum.name, op.tile))
        };
        let mut at = array.free;
        let mut cause = Cause::Dependency;
        let mut known = None;
        let mut raise = |time: i64, why: Cause, done: Option<i64>| {
            if time > at {
                (at, cause, known) = (time, why, done);
            }
        };
        if active.step == 0 {
            if !self.setup.options.free {
                for b in (0..self.arrays.len()).filter(|&b| b != a) {
                    match self.boundary(b, op.group) {
                        Some(end) => raise(end, Cause::Phase, None),
                        None => return wait("the phase before is not over"),
                    }
                }
            }
            if part.in_buffer && !self.found.contains_key(&(op.part, op.instance, self.setup.result(op))) {
                match self.buffer.room(self.bytes(shape.elements as u64)) {
                    Some(time) => raise(time.saturating_sub(self.offsets[a]), Cause::Buffer, None),
                    None => return wait("the buffer is full"),
                }
            }
        }
        let mut fetch = op.fetches as usize;
        for (r, (read, route)) in part.reads.iter().zip(&routes.reads).enumerate() {
            let of = &shape.reads[r];
            if read.from.is_none() {
                if active.step == 0 {
                    let chunk = &self.fetches.chunks[self.fetches.of_op[fetch] as usize];
                    let name = self.name(chunk.node);
                    let Some(arrival) = chunk.arrival else { return wait(&format!("DRAM has not delivered {name}")) };
                    let there = arrival + route.latency;
                    raise(there, Cause::Dram, None);
                    if route.fill > 0 {
                        raise(there.max(array.fill_free) + route.fill * of.words as i64, Cause::Fill, None);
                    }
                }
                fetch += 1;
                continue;
            }
            // The slice before the first is a constant.
            if self.is_initial(op, read) {
                continue;
            }
            let missing = || wait(&format!("{} is not there", self.name(read.node)));
            let Some(slot) = active.slots[r] else { return missing() };
            let made = &self.made[slot];
            if made.open > 0 {
                return missing();
            }
            let coarse = of.word.is_empty() || route.fill > 0;
            if coarse && active.step > 0 {
                continue;
            }
            let done = if self.routes[made.part].drains && route.by != By::Local {
                made.left
            } else if coarse {
                made.done.iter().copied().collect::<Option<Vec<i64>>>().and_then(|d| d.into_iter().max())
            } else {
                made.done[of.word[active.step] as usize]
            };
            let Some(done) = done else { return missing() };
            let there = done + route.latency;
            raise(there, Cause::Flight, Some(done));
            if route.fill > 0 {
                raise(there.max(array.fill_free) + route.fill * of.words as i64, Cause::Fill, None);
            }
        }
        let word_starts = active.step.is_multiple_of(shape.per_word);
        let (kept, edges) = self.kept(op);
        if kept > 0 && word_starts {
            match self.registers[a].room(1) {
                Some(time) => raise(time, Cause::Registers, None),
                None => return wait("the registers of its elements are full"),
            }
        }
        let cycles = shape.cycles.get(active.step).copied().unwrap_or(0) as i64;
        if (active.step + 1).is_multiple_of(shape.per_word) {
            for (edge, latency) in edges {
                let room = self.queues.get(&(op.part as usize, edge)).map_or(Some(i64::MIN), |q| q.room(1));
                match room {
                    Some(time) => raise(time.saturating_sub(latency + cycles), Cause::Queue, None),
                    None => return wait("the queue at the other array's edge is full"),
                }
            }
        }
        Next::At(at, cause, known)
    }

    /// The end of an array's last operation before a group; `None` as long as it has not come so far.
    fn boundary(&self, b: usize, group: u64) -> Option<i64> {
        let array = &self.arrays[b];
        let open = array.active.first().map(|x| x.op.group).or_else(|| self.ops[b].get(array.next).map(|o| o.group));
        if open.is_some_and(|g| g < group) {
            return None;
        }
        Some(array.ends.iter().rev().find(|e| e.0 < group).map_or(0, |e| e.1))
    }
}
