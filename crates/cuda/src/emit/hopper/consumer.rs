//! The consumers' steps.

use super::multiply::Shape;
use super::rings::{barrier, name};
use crate::emit::element::Emitter;
use crate::emit::type_name;
use crate::hopper::beyond::is_neutral;
use crate::hopper::{OpAt, RingId, Specialised, Step, TURN_BARRIER};
use crate::schedule::facts::written;
use crate::schedule::{Carrier, Instruction, Side};
use einloom_tile::{AxisId, Op, TileMonoid, ValueId};
use std::collections::{BTreeSet, VecDeque};

/// What emission remembers from step to step.
#[derive(Default)]
pub(super) struct Progress {
    /// The registers of groups under way, oldest first.
    pub pending: VecDeque<ValueId>,
    /// Shapes of products used.
    pub shapes: BTreeSet<Shape>,
    /// Sums computed since the last wait.
    pub sums: Vec<ValueId>,
}

impl Emitter<'_> {
    /// What every consumer warpgroup does.
    pub(super) fn consumer(&mut self, s: &Specialised, steps: &[Step], progress: &mut Progress) {
        let mut open = None;
        for step in steps {
            let op = match step {
                Step::Compute(at) => s.op(self.facts.kernel, *at).cloned(),
                _ => None,
            };
            self.rarely(op.as_ref(), &mut open);
            match step {
                Step::Await { ring, ahead } => self.await_stage(s, *ring, *ahead),
                Step::Release { ring } => self.release(s, *ring),
                Step::Compute(at) => {
                    self.compute(s, *at);
                    if let Some(Op::Reduce { dst, monoid: TileMonoid::Sum, .. }) = s.op(self.facts.kernel, *at) {
                        progress.sums.push(*dst);
                    }
                }
                Step::Read { ring, value } => self.read(s, *ring, *value),
                Step::Multiply(at) => {
                    let place = self.multiply(s, *at, &mut progress.shapes);
                    progress.pending.extend(place);
                }
                Step::Settle { pending } => self.settle(*pending, progress),
                Step::TakeTurn => {
                    self.w.line(format!("turn_take({TURN_BARRIER} + warpgroup, 256);"));
                }
                Step::PassTurn => {
                    let next = format!("warpgroup + 1 == {} ? 0 : warpgroup + 1", s.consumers);
                    self.w.line(format!("turn_pass({TURN_BARRIER} + ({next}), 256);"));
                }
                Step::Start { stream } => {
                    if let Some(Op::Stream { states, .. }) = self.facts.kernel.body.get(*stream) {
                        self.start_states(states);
                    }
                }
                Step::Advance { stream } => {
                    if let Some(Op::Stream { states, .. }) = self.facts.kernel.body.get(*stream) {
                        states.iter().for_each(|state| self.advance(state));
                    }
                }
                Step::Chunks { stream, first, rest, after } => {
                    self.chunks(s, *stream, [first, rest, after], progress);
                }
                // The producer's part.
                Step::Acquire { .. } | Step::Fill { .. } => {}
            }
        }
        self.rarely(None, &mut open);
    }

    fn await_stage(&mut self, s: &Specialised, id: RingId, ahead: usize) {
        let ring = name(s, id);
        if s.ring(id).stages > 1 {
            self.w.line(format!("{ring}_stage = {ring}_next;"));
        }
        let at = barrier(s, id, true, &format!("{ring}_stage"));
        let parity = if ahead.is_multiple_of(2) { format!("{ring}_parity") } else { format!("{ring}_parity ^ 1") };
        self.w.line(format!("barrier_wait({at}, {parity});"));
        self.ring_advance(s, id);
    }

    fn release(&mut self, s: &Specialised, id: RingId) {
        let ring = name(s, id);
        let at = barrier(s, id, false, &format!("{ring}_oldest"));
        // Each warp has waited for its own part of the products only.
        self.w.line(match s.ring(id).is_shared() {
            false => format!("if (lane == 0) barrier_arrive({at});"),
            true => format!("if (lane < {}) barrier_arrive_at_block({at}, lane);", s.blocks()),
        });
        if s.ring(id).stages > 1 {
            self.w
                .line(format!("{ring}_oldest = {ring}_oldest + 1 == {0} ? 0 : {ring}_oldest + 1;", s.ring(id).stages));
        }
    }

    fn settle(&mut self, left: usize, progress: &mut Progress) {
        let sums = std::mem::take(&mut progress.sums);
        if progress.pending.len() > left {
            // The compiler would move arithmetic behind the wait, where no product runs any more.
            for v in sums {
                if self.facts.carrier(v) != Carrier::F32 {
                    continue;
                }
                let frame = self.frame_of(v);
                let loops = self.each_element(v, frame);
                let line = format!("hold({}, shared_base);", self.element(v, frame));
                self.w.line(line);
                self.close(loops);
            }
        }
        self.w.line(format!("products_wait<{left}>();"));
        let mut done = vec![];
        while progress.pending.len() > left {
            done.extend(progress.pending.pop_front());
        }
        done.retain(|v| !progress.pending.contains(v));
        done.dedup();
        for v in done {
            let variable = self.variable_of(v, self.frame_of(v));
            self.w.line(format!("pin({variable});"));
        }
    }

    fn compute(&mut self, s: &Specialised, at: OpAt) {
        let Some(op) = s.op(self.facts.kernel, at).cloned() else { return };
        self.comment(&op);
        match &op {
            Op::Load { dst, tensor, at, fill } => self.load_registers(*dst, *tensor, at, *fill),
            Op::Store { tensor, at, src } => {
                if !self.store_quads(*tensor, at, *src) {
                    self.store(*tensor, at, *src);
                }
            }
            Op::Map { dst, expr } => {
                self.map(*dst, expr);
                self.ask_warp(*dst);
                self.clear_operand(*dst);
            }
            Op::Reduce { dst, src, axis, monoid, acc } => self.reduce(*dst, *src, *axis, monoid, *acc),
            // Picks are refused: see `hopper::specialise`.
            Op::Mma { .. } | Op::Pick { .. } | Op::Stream { .. } | Op::SkipUnless { .. } => {}
        }
    }

    /// Zeros where a left operand that is multiplied later, perhaps under another window, does not exist.
    fn clear_operand(&mut self, v: ValueId) {
        let f = self.frame_of(v);
        let Some(frame) = f.filter(|_| self.is_packed(v, f)) else { return };
        let product = self.schedule.products.values().find(|p| p.left == v && p.left_in_registers);
        let Some(sum) = product.filter(|p| matches!(p.instruction, Instruction::TensorCore(_))).map(|p| p.sum) else {
            return;
        };
        let exists = |x: usize| self.exists(frame, sum, &format!("(2 * y + {x})"));
        let (Some(low), Some(high)) = (exists(0), exists(1)) else { return };
        let name = self.variable_of(v, f);
        let (rows, pairs) = (
            self.along(v, frame, Side::Down).map_or(1, |a| self.span(frame, a).count),
            self.span(frame, sum).count / 2,
        );
        self.w.unrolled("i", rows);
        self.w.unrolled("y", pairs);
        self.w.line(format!("{name}[i][y] = keep_halves({name}[i][y], {low}, {high});"));
        self.w.close("");
        self.w.close("");
    }

    /// Elements of a tile in shared memory into registers.
    fn read(&mut self, s: &Specialised, id: RingId, v: ValueId) {
        let Some(f) = self.frame_of(v) else { return };
        let Some((_, tile)) = s.tile(v) else { return };
        let (tile, ring) = (tile.clone(), s.ring(id).clone());
        self.declare(v, Some(f));
        self.w.open("");
        let stage =
            if ring.stages > 1 { format!(" + {}_stage * {}", name(s, id), ring.stage_bytes) } else { String::new() };
        self.w.line(format!("const u8* const from = shared + {}{stage};", ring.offset + tile.offset));
        let loops = self.each_element(v, Some(f));
        let position = |axis: AxisId| self.in_window(f, axis);
        let (row, column) = (position(tile.outer), position(tile.inner));
        let bytes = tile.swizzle.bytes();
        let place = format!(
            "({column}) / {0} * {1} + panel_place<{bytes}>(({row}) * {bytes} + ({column}) % {0} * {2})",
            tile.panel(),
            tile.panel_bytes(),
            tile.element.bytes()
        );
        let element = type_name(tile.element);
        let value = format!("{element}::decode(*reinterpret_cast<const {element}::raw*>(from + {place}))");
        let line = format!("{} = {value};", self.element(v, Some(f)));
        self.w.line(line);
        self.close(loops);
        self.w.close("");
    }

    /// The chunks of a stream: the first apart from the others, full ones apart from partial ones.
    fn chunks(&mut self, s: &Specialised, stream: usize, steps: [&Vec<Step>; 3], progress: &mut Progress) {
        let Some(Op::Stream { axis, within, guards, body, states }) = self.facts.kernel.body.get(stream) else {
            return;
        };
        let [first, rest, after] = steps;
        let name = self.names.axis(*axis).to_string();
        let tile = self.facts.kernel.axis(*axis).tile;
        self.hoist(s, rest);
        self.w.open("");
        self.range(*axis, within);
        // Before anything that only this role knows of the chunks: see `Emitter::guards`.
        self.guards(*axis, guards);
        let guarded = !guards.is_empty();
        let neutral = is_neutral(&self.facts, &s.layout.products, *axis, within, body);
        if neutral || self.never_clipped(*axis, within) {
            self.whole.insert(*axis);
        }
        self.open.push(*axis);
        self.conditions.push(guards.clone());
        let full = self.full_tests(*axis, body);
        let one = self.chunk_function(s, &format!("{name}_first"), *axis, first, progress);
        let other = self.chunk_function(s, &format!("{name}_rest"), *axis, rest, progress);
        let first = if guarded { format!("{name}_first_base") } else { format!("{name}_begin") };
        if guarded {
            self.w.line(format!("int {name}_kind = 0;"));
            self.w.line(format!("const int {first} = {name}_next({name}_begin, {name}_kind);"));
        }
        self.part_sums(s, body);
        self.w.open(format!("if ({first} < {name}_end)"));
        self.w.open("");
        self.w.line(format!("const int {name}_base = {first};"));
        self.call(&format!("{name}_first"), *axis, one, &full);
        self.w.close("");
        self.w.line("#pragma unroll 1");
        self.w.open(if guarded {
            let next = |at: &str| format!("{name}_next({at} + {tile}, {name}_kind)");
            let (start, step) = (next(&first), next(&format!("{name}_base")));
            format!("for (int {name}_base = {start}; {name}_base < {name}_end; {name}_base = {step})")
        } else {
            format!("for (int {name}_base = {name}_begin + {tile}; {name}_base < {name}_end; {name}_base += {tile})")
        });
        self.call(&format!("{name}_rest"), *axis, other, &full);
        self.w.close("");
        self.open.pop();
        self.conditions.pop();
        self.consumer(s, after, progress);
        self.w.close("");
        self.whole.remove(axis);
        self.w.close("");
        self.complete(states);
    }

    /// Gives every sum registers of its own before the first product is started, where there are several: the compiler would else set
    /// those of one, equal at first to those of another, while that other's product runs, and wait for it.
    fn part_sums(&mut self, s: &Specialised, body: &[Op]) {
        let onto = |op: &Op| match op {
            Op::Mma { dst, acc: Some(_), .. } => s.layout.products.get(dst).map(|p| (*dst, p)),
            _ => None,
        };
        let sums: Vec<_> = body
            .iter()
            .filter_map(onto)
            .filter(|(dst, p)| {
                matches!(p.instruction, Instruction::TensorCore(_)) && self.schedule.in_place.contains_key(dst)
            })
            .map(|(dst, p)| self.variable_of(dst, Some(p.frame)))
            .collect();
        if sums.len() > 1 {
            sums.iter().for_each(|sum| self.w.line(format!("pin({sum});")));
        }
    }

    /// Declares what is alive from chunk to chunk without being a state: left operands of products that are started a
    /// chunk later.
    fn hoist(&mut self, s: &Specialised, rest: &[Step]) {
        let Some(turn) = rest.iter().position(|step| matches!(step, Step::Settle { .. })) else { return };
        for step in &rest[..turn] {
            let Step::Multiply(at) = step else { continue };
            let Some(Op::Mma { dst, .. }) = s.op(self.facts.kernel, *at) else { continue };
            let Some(p) = s.layout.products.get(dst).filter(|p| p.left_in_registers) else { continue };
            let (left, f) = (p.left, p.frame);
            if !self.made_in(*at, left) {
                continue;
            }
            if !self.hoisted.contains(&left) {
                self.declare(left, Some(f));
                self.hoisted.insert(left);
            }
        }
    }

    /// Whether the stream of the operation makes the tile.
    fn made_in(&self, at: OpAt, v: ValueId) -> bool {
        let body = at.stream.and_then(|k| self.facts.kernel.body.get(k));
        matches!(body, Some(Op::Stream { body, .. }) if body.iter().any(|op| written(op) == Some(v)))
    }

    /// The function of one kind of chunk; whether it distinguishes full chunks.
    fn chunk_function(
        &mut self,
        s: &Specialised,
        function: &str,
        axis: AxisId,
        steps: &[Step],
        progress: &mut Progress,
    ) -> bool {
        let name = self.names.axis(axis).to_string();
        let outside = std::mem::take(&mut self.w);
        self.w = outside.nested();
        progress.sums.clear();
        self.consumer(s, steps, progress);
        let inside = std::mem::replace(&mut self.w, outside);
        let text = inside.finish();
        let uses = text.contains(&format!("{name}_full"));
        let full = if uses { "full" } else { "" };
        self.w.open(format!("const auto {function} = [&](auto {full}, const int {name}_base, const int {name}_len)"));
        if uses {
            self.w.line(format!("constexpr bool {name}_full = decltype(full)::value;"));
        }
        self.w.paste(&text);
        self.w.close(";");
        uses
    }

    fn call(&mut self, function: &str, axis: AxisId, splits: bool, full: &[String]) {
        let name = self.names.axis(axis).to_string();
        let tile = self.facts.kernel.axis(axis).tile;
        self.w.line(format!("const int {name}_len = min_int({tile}, {name}_end - {name}_base);"));
        let call = |full: bool| format!("{function}(Bool<{full}>(), {name}_base, {name}_len);");
        if splits && !full.is_empty() {
            self.w.open(format!("if ({})", full.join(" && ")));
            self.w.line(call(true));
            self.w.close(" else {");
            self.w.indent();
            self.w.line(call(false));
            self.w.close("");
        } else {
            self.w.line(call(splits));
        }
    }

    /// The tests that a chunk needs no mask.
    fn full_tests(&self, axis: AxisId, body: &[Op]) -> Vec<String> {
        let mut all = self.full_conditions(body);
        if !self.always_full(axis) {
            all.insert(0, format!("{}_len == {}", self.names.axis(axis), self.facts.size(axis)));
        }
        all
    }
}
