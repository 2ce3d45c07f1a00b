//! A wave is issued: what it takes, what it gives back, and what is done with it.

use super::route::{By, contributions, readers, uses};
use super::{Engine, Made, Op};
use crate::simulate::part::{At, Read};
use crate::simulate::pool::Pool;
use crate::simulate::{Cause, Wave};

/// Computes the numbers of an operation: its slots by read, and its result's.
pub(in crate::simulate) type Value<'v> = dyn FnMut(&Op, &Engine<'_>, &[Option<usize>], usize) -> Option<Vec<f64>> + 'v;

impl Engine<'_> {
    /// Whether a read means the slice that a recurrence starts from.
    pub(in crate::simulate) fn is_initial(&self, op: &Op, read: &Read) -> bool {
        let at = self.setup.nest.at(op.tile as usize);
        read.at.iter().zip(at).any(|(a, &x)| *a == At::Before && x == 0)
    }

    /// How many uses a word of the result has in its element's registers, and where else it goes straight: the edge and
    /// the cycles to get there.
    pub(super) fn kept(&self, op: &Op) -> (u16, Vec<(usize, i64)>) {
        let p = op.part as usize;
        let mut here = u16::from(self.routes[p].drains);
        let mut edges: Vec<(usize, i64)> = vec![];
        for (q, reader) in self.setup.parts.iter().enumerate() {
            for (read, route) in reader.reads.iter().zip(&self.routes[q].reads).filter(|(r, _)| r.from == Some(p)) {
                if route.by == By::Buffer || readers(self.setup, op, reader, read) == 0 {
                    continue;
                }
                match route.by {
                    By::Local => here += 1,
                    _ if !edges.iter().any(|e| e.0 == reader.array) => edges.push((reader.array, route.latency)),
                    _ => {}
                }
            }
        }
        (here, edges)
    }

    fn open(&mut self, op: &Op, words: usize, elements: usize, now: i64) -> usize {
        let part = &self.setup.parts[op.part as usize];
        let key = (op.part, op.instance, self.setup.result(op));
        if let Some(&slot) = self.found.get(&key) {
            let made = &mut self.made[slot];
            made.open -= 1;
            made.done.fill(None);
            return slot;
        }
        let (here, _) = self.kept(op);
        let mut edge: Vec<(usize, Vec<u16>)> = vec![];
        for (q, reader) in self.setup.parts.iter().enumerate() {
            for (read, route) in reader.reads.iter().zip(&self.routes[q].reads) {
                if read.from != Some(op.part as usize) || route.by != By::Edge {
                    continue;
                }
                if readers(self.setup, op, reader, read) == 0 {
                    continue;
                }
                match edge.iter_mut().find(|e| e.0 == reader.array) {
                    Some(e) => e.1.iter_mut().for_each(|n| *n += 1),
                    None => edge.push((reader.array, vec![1; words])),
                }
            }
        }
        let bytes = if part.in_buffer { self.bytes(elements as u64) } else { 0 };
        let made = Made {
            part: op.part as usize,
            key,
            done: vec![None; words],
            open: contributions(self.setup, part) - 1,
            uses: uses(self.setup, op),
            here: vec![here; words],
            edge,
            bytes,
            ..Made::default()
        };
        if bytes > 0 {
            self.buffer.take(bytes, now);
            self.computed += bytes;
        }
        let slot = self.unused.pop().unwrap_or_else(|| {
            self.made.push(Made::default());
            self.made.len() - 1
        });
        self.made[slot] = made;
        self.found.insert(key, slot);
        slot
    }

    pub(super) fn issue(&mut self, a: usize, at: i64, cause: Cause, known: Option<i64>, value: &mut Value<'_>) {
        let turn = self.arrays[a].turn;
        let active = &self.arrays[a].active[turn];
        let (op, step, shape) = (active.op, active.step, active.shape);
        let cycles = i64::from(self.shapes[shape].cycles.get(step).copied().unwrap_or(0));
        let end = at + cycles;
        let steps = self.shapes[shape].cycles.len();
        self.stalled(a, &op, at, cause, known);
        if step == 0 {
            let (words, elements) = (self.shapes[shape].words, self.shapes[shape].elements);
            let slot = self.open(&op, words, elements, at + self.offsets[a]);
            self.arrays[a].active[turn].result = Some(slot);
            self.filled(a, turn);
            let steady = self.setup.steady();
            self.counts.arrays[a].steady.start(op.group, at, steady);
        }
        self.count(a, &op, shape, at, cycles);
        if steps > 0 {
            self.produce(a, turn, at, end);
            self.consume(a, turn, end);
        }
        self.arrays[a].free = end;
        let active = &mut self.arrays[a].active[turn];
        active.step += 1;
        if active.step >= steps {
            self.complete(a, turn, end, value);
            self.issued += 1;
        }
        let array = &mut self.arrays[a];
        if array.active.is_empty() {
            return;
        }
        // In turn: the next one that is under way.
        let finished = array.active.get(turn).is_none_or(|x| x.op.part != op.part || x.op.tile != op.tile);
        array.turn = if finished { turn % array.active.len() } else { (turn + 1) % array.active.len() };
    }

    fn stalled(&mut self, a: usize, op: &Op, at: i64, cause: Cause, known: Option<i64>) {
        let free = self.arrays[a].free;
        if at <= free {
            return;
        }
        let (steady, over) = self.setup.steady();
        let counts = &mut self.counts.arrays[a];
        let place = |cause: Cause| match cause {
            Cause::Phase | Cause::Dependency | Cause::Flight if op.group < steady => Cause::Start,
            Cause::Phase | Cause::Dependency | Cause::Flight if op.group >= over => Cause::End,
            cause => cause,
        };
        let split = known.unwrap_or(free).clamp(free, at);
        if split > free {
            *counts.stalls.entry(place(Cause::Dependency)).or_default() += (split - free) as u64;
        }
        if at > split {
            *counts.stalls.entry(place(cause)).or_default() += (at - split) as u64;
        }
    }

    fn count(&mut self, a: usize, op: &Op, shape: usize, at: i64, cycles: i64) {
        let counts = &mut self.counts.arrays[a];
        counts.first.get_or_insert(at);
        counts.busy += cycles as u64;
        counts.used += cycles as f64 * self.shapes[shape].filled;
        counts.profile.add((at + self.offsets[a]) as u64, cycles as u64);
        self.counts.busy[op.part as usize] += cycles as u64;
        if let Some(trace) = self.counts.trace.get_mut(a) {
            let (instance, tile) = (op.instance as usize, op.tile as usize);
            trace.push(Wave { part: op.part as usize, instance, tile, at, cycles: cycles as u64 });
        }
    }

    /// The links that shift operands in are taken until the first step.
    fn filled(&mut self, a: usize, turn: usize) {
        let active = &self.arrays[a].active[turn];
        let p = active.op.part as usize;
        let mut fill_free = self.arrays[a].fill_free;
        let mut fetch = active.op.fetches as usize;
        for (r, (read, route)) in self.setup.parts[p].reads.iter().zip(&self.routes[p].reads).enumerate() {
            let words = self.shapes[active.shape].reads[r].words as i64;
            let there = match (read.from, active.slots[r]) {
                (None, _) => {
                    fetch += 1;
                    self.fetches.chunks[self.fetches.of_op[fetch - 1] as usize].arrival.map(|t| t + route.latency)
                }
                (_, Some(slot)) => {
                    let made = &self.made[slot];
                    let done = made.left.or_else(|| made.done.iter().filter_map(|d| *d).max());
                    done.map(|t| t + route.latency)
                }
                _ => None,
            };
            if let (true, Some(there)) = (route.fill > 0, there) {
                fill_free = fill_free.max(there) + route.fill * words;
            }
        }
        self.arrays[a].fill_free = fill_free;
    }

    /// A word is begun, or done.
    fn produce(&mut self, a: usize, turn: usize, at: i64, end: i64) {
        let active = &self.arrays[a].active[turn];
        let Some(slot) = active.result else { return };
        let shape = &self.shapes[active.shape];
        let op = active.op;
        let word = active.step / shape.per_word;
        if active.step.is_multiple_of(shape.per_word) && self.made[slot].here[word] > 0 && self.made[slot].open == 0 {
            self.registers[a].take(1, at);
        }
        if !(active.step + 1).is_multiple_of(shape.per_word) {
            return;
        }
        self.made[slot].done[word] = Some(end);
        if self.made[slot].open > 0 {
            return;
        }
        let depth = self.setup.options.queue.or(self.setup.setting.chip.timing.queue);
        for (edge, latency) in self.kept(&op).1 {
            let pool = self.queues.entry((op.part as usize, edge));
            pool.or_insert_with(|| Pool::new(depth.map(|n| n as u64))).take(1, end + latency);
        }
    }

    /// Words that are read for the last time give back their room.
    fn consume(&mut self, a: usize, turn: usize, end: i64) {
        let (op, step, shape) = {
            let x = &self.arrays[a].active[turn];
            (x.op, x.step, x.shape)
        };
        let p = op.part as usize;
        let steps = self.shapes[shape].cycles.len();
        for r in 0..self.setup.parts[p].reads.len() {
            let Some(slot) = self.arrays[a].active[turn].slots[r] else { continue };
            let by = self.routes[p].reads[r].by;
            let of = &self.shapes[shape].reads[r];
            let words = self.made[slot].done.len();
            let range = if of.word.is_empty() || self.routes[p].reads[r].fill > 0 {
                if step + 1 < steps { 0..0 } else { 0..words }
            } else if of.last[step] {
                of.word[step] as usize..of.word[step] as usize + 1
            } else {
                0..0
            };
            for word in range {
                self.release(slot, word, by, a, end);
            }
        }
    }

    fn release(&mut self, slot: usize, word: usize, by: By, reader: usize, end: i64) {
        let made = &mut self.made[slot];
        let maker = self.setup.parts[made.part].array;
        match by {
            By::Local => {
                made.here[word] -= 1;
                if made.here[word] == 0 {
                    self.registers[maker].give(1, end);
                }
            }
            By::Edge => {
                let Some((_, left)) = made.edge.iter_mut().find(|e| e.0 == reader) else { return };
                left[word] -= 1;
                if left[word] == 0
                    && let Some(queue) = self.queues.get_mut(&(made.part, reader))
                {
                    queue.give(1, end);
                }
            }
            By::Buffer | By::Dram => {}
        }
    }

    /// All steps of an operation are issued.
    fn complete(&mut self, a: usize, turn: usize, end: i64, value: &mut Value<'_>) {
        let active = self.arrays[a].active.remove(turn);
        let op = active.op;
        let p = op.part as usize;
        let array = &mut self.arrays[a];
        match array.ends.back_mut() {
            Some(last) if last.0 == op.group => last.1 = end,
            _ => array.ends.push_back((op.group, end)),
        }
        if array.ends.len() > 4 {
            array.ends.pop_front();
        }
        let there = end + self.offsets[a];
        if let Some(slot) = active.result {
            if let Some(values) = value(&op, self, &active.slots, slot) {
                self.made[slot].values = values;
            }
            if self.made[slot].open == 0 {
                self.finished(a, slot, end);
            }
        }
        for (r, slot) in active.slots.iter().enumerate() {
            if let Some(slot) = slot
                && !self.is_initial(&op, &self.setup.parts[p].reads[r])
            {
                self.used(*slot, there);
            }
        }
        let fetched = self.setup.parts[p].reads.iter().filter(|r| r.from.is_none()).count();
        for k in op.fetches as usize..op.fetches as usize + fetched {
            let chunk = &mut self.fetches.chunks[self.fetches.of_op[k] as usize];
            chunk.uses -= 1;
            if chunk.uses == 0 {
                let bytes = chunk.words * self.setup.setting.chip.word.0;
                self.buffer.give(bytes, there);
            }
        }
    }

    /// A result is complete: it drains, and goes to DRAM if that is where it belongs.
    fn finished(&mut self, a: usize, slot: usize, end: i64) {
        let p = self.made[slot].part;
        let words = self.made[slot].done.len();
        let mut out = end + self.routes[p].out;
        if self.routes[p].drains {
            let rows = self.setup.sides[a].row_count as u64 * self.setup.setting.chip.timing.hop;
            let left = end.max(self.arrays[a].drain_free) + (rows * words as u64) as i64;
            self.arrays[a].drain_free = left;
            self.made[slot].left = Some(left);
            out = left + self.routes[p].out;
            for word in 0..words {
                self.release(slot, word, By::Local, a, left);
            }
        }
        let there = out + self.offsets[a] + self.setup.setting.chip.timing.buffer as i64;
        if self.setup.parts[p].exported {
            let words = self.made[slot].bytes / self.setup.setting.chip.word.0.max(1);
            self.writes.insert((there, self.written), (slot, words));
            self.written += 1;
        }
        if self.made[slot].uses == 0 {
            self.drop(slot, there);
        }
    }

    /// One use fewer.
    pub(super) fn used(&mut self, slot: usize, at: i64) {
        let made = &mut self.made[slot];
        made.uses -= 1;
        made.last_use = made.last_use.max(at);
        if made.uses == 0 {
            let last = made.last_use;
            self.drop(slot, last);
        }
    }

    fn drop(&mut self, slot: usize, at: i64) {
        let made = std::mem::take(&mut self.made[slot]);
        self.buffer.give(made.bytes, at);
        self.computed -= made.bytes;
        self.found.remove(&made.key);
        self.unused.push(slot);
    }
}
