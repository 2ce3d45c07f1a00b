//! Streams: the loop over chunks, the pipeline of copies before it, and full chunks apart from partial ones.

use super::element::{Emitter, add};
use einloom_tile::{Affine, AxisId, Guard, Init, Op, Predicate, Scalar, State, ValueId};

impl Emitter<'_> {
    /// Emits a stream with its body.
    pub fn stream(&mut self, axis: AxisId, (within, guards): (&Predicate, &[Guard]), states: &[State], body: &[Op]) {
        let pipeline = self.schedule.pipelines.get(self.streams).cloned();
        self.streams += 1;
        let stages = pipeline.as_ref().map_or(1, |p| p.stages);
        let loads = pipeline.map_or(vec![], |p| p.loads);
        self.start_states(states);
        // Another stream may run over the same axis.
        self.w.open("");
        self.range(axis, within);
        self.guards(axis, guards);
        if self.never_clipped(axis, within) {
            self.whole.insert(axis);
        }
        let name = self.names.axis(axis).to_string();
        let tile = self.facts.kernel.axis(axis).tile;
        let nested = !self.open.is_empty();
        self.open.push(axis);
        self.conditions.push(guards.to_vec());
        let guarded = !guards.is_empty();
        // The position after one, or the first: with guards, of a chunk that is visited.
        let after = |at: &str, kind: &str| match guarded {
            true => format!("{name}_next({at}, {kind})"),
            false => at.to_string(),
        };
        let ahead = stages > 1;
        if ahead {
            self.fetch(axis, body, &loads);
            if nested {
                self.w.line("__syncthreads();  // the previous run of this loop has read its tiles");
            }
            if guarded {
                self.w.line(format!("int {name}_other = 0;  // what the chunk that is copied ahead is like"));
                self.w.line(format!("int {name}_ahead = {name}_next({name}_begin, {name}_other);"));
            }
            self.w.line("#pragma unroll");
            self.w.open(format!("for (int stage = 0; stage < {}; ++stage)", stages - 1));
            if guarded {
                self.w.line(format!("if ({name}_ahead < {name}_end) {name}_fetch({name}_ahead, stage);"));
                let next = after(&format!("{name}_ahead + {tile}"), &format!("{name}_other"));
                self.w.line(format!("{name}_ahead = {next};"));
            } else {
                self.w.line(format!("const int ahead = {name}_begin + stage * {tile};"));
                self.w.line(format!("if (ahead < {name}_end) {name}_fetch(ahead, stage);"));
            }
            self.w.line("copies_commit();");
            self.w.close("");
        }
        let before = self.pending.clone();
        if ahead {
            self.staged.extend(loads.iter().map(|&v| (v, axis)));
            // Copies issued before the pipeline's first complete before it does.
            self.pending.clear();
        }
        self.hold(body, ahead.then(|| stages - 1));
        let splits = self.chunk(axis, body, states);
        self.pending.extend(before);
        if ahead {
            self.w.line(format!("int {name}_stage = 0;"));
        }
        let plain = !ahead && !guarded && splits.is_none();
        let unrolled = if plain { crate::schedule::ahead(&self.facts, self.schedule, axis, body) } else { 1 };
        let one = |e: &mut Self, head: String, full: bool| {
            e.w.line(format!("#pragma unroll {unrolled}"));
            e.w.open(head);
            if ahead {
                e.w.line(format!("copies_wait<{}>();", stages - 2));
                e.w.line("__syncthreads();  // this chunk is there, and the one before it has been read");
                let stage = format!("({name}_stage + {}) % {stages}", stages - 1);
                if guarded {
                    e.w.line(format!("if ({name}_ahead < {name}_end) {name}_fetch({name}_ahead, {stage});"));
                    let next = after(&format!("{name}_ahead + {tile}"), &format!("{name}_other"));
                    e.w.line(format!("{name}_ahead = {next};"));
                } else {
                    e.w.line(format!(
                        "if ({name}_base + {0} < {name}_end) {name}_fetch({name}_base + {0}, {stage});",
                        (stages - 1) * tile
                    ));
                }
                e.w.line("copies_commit();");
            }
            e.w.line(format!("const int {name}_len = min_int({tile}, {name}_end - {name}_base);"));
            let stage = if ahead { format!("{name}_stage") } else { "0".to_string() };
            e.w.line(format!("{name}_chunk(Bool<{full}>(), {name}_base, {name}_len, {stage});"));
            if ahead {
                e.w.line(format!("{name}_stage = {name}_stage + 1 == {stages} ? 0 : {name}_stage + 1;"));
            }
            e.w.close("");
        };
        let on = format!("{name}_base < {name}_end");
        let step = match guarded {
            true => format!("{name}_base = {}", after(&format!("{name}_base + {tile}"), &format!("{name}_kind"))),
            false => format!("{name}_base += {tile}"),
        };
        let begin = after(&format!("{name}_begin"), &format!("{name}_kind"));
        if guarded {
            self.w.line(format!("int {name}_kind = 0;"));
        }
        match splits {
            Some(mut all) => {
                if !self.always_full(axis) {
                    all.insert(0, format!("{name}_len == {}", self.facts.size(axis)));
                }
                // Runs of full and of partial chunks have loops of their own: each keeps its registers in its own places.
                self.w.open(format!("const auto {name}_test = [&](const int {name}_base)"));
                self.w.line(format!("const int {name}_len = min_int({tile}, {name}_end - {name}_base);"));
                self.w.line(format!("return {};", all.join(" && ")));
                self.w.close(";");
                self.w.line(format!("int {name}_base = {begin};"));
                self.w.open(format!("while ({on})"));
                for (test, full) in [("", true), ("!", false)] {
                    let head = format!("for (; {on} && {test}{name}_test({name}_base); {step})");
                    one(self, head, full);
                }
                self.w.close("");
            }
            None => one(self, format!("for (int {name}_base = {begin}; {on}; {step})"), false),
        }
        self.open.pop();
        self.conditions.pop();
        self.whole.remove(&axis);
        self.w.close("");
        for v in loads {
            self.staged.remove(&v);
        }
        self.complete(states);
        // Each chunk has read them where what follows puts them.
        if self.open.is_empty() && states.iter().any(|s| self.shared_tile(s.value).is_some()) {
            self.w.line("__syncthreads();  // the last chunk has been read");
        }
        for s in states {
            self.share(s.value);
        }
    }

    /// Declares states and sets them to what they are before the first chunk.
    pub(super) fn start_states(&mut self, states: &[State]) {
        for s in states {
            let frame = self.frame_of(s.value);
            self.declare(s.value, frame);
            let from = match s.init {
                Init::Const(x) => self.constant(self.facts.dtype(s.value), x),
                Init::Value(v) => {
                    let value = self.element(v, frame);
                    if self.facts.dtype(v) == self.facts.dtype(s.value) {
                        value
                    } else {
                        self.rounded(self.facts.dtype(s.value), &format!("static_cast<double>({value})"), true)
                    }
                }
            };
            let loops = self.each_element(s.value, frame);
            let line = format!("{} = {from};", self.element(s.value, frame));
            self.w.line(line);
            self.close(loops);
        }
    }

    /// Declares the positions that the loop runs over: those at which `within` can hold.
    pub(super) fn range(&mut self, axis: AxisId, within: &Predicate) {
        let name = self.names.axis(axis).to_string();
        let decl = self.facts.kernel.axis(axis);
        let (extent, tile) = (decl.extent, decl.tile);
        if within.all.is_empty() {
            self.w.line(format!("constexpr int {name}_begin = 0, {name}_end = {extent};"));
            return;
        }
        self.w.line(format!("i64 {name}_low = 0, {name}_high = {extent};"));
        for affine in &within.all {
            let own: i64 = affine.terms.iter().filter(|t| t.1 == axis).map(|t| t.0).sum();
            let mut rest = affine.clone();
            rest.terms.retain(|t| t.1 != axis);
            let rest = format!("static_cast<i64>({})", self.bound(&rest, true));
            let line = match own {
                0 => format!("if ({rest} < 0) {name}_high = 0;"),
                c if c > 0 => {
                    let low = if c == 1 { format!("-({rest})") } else { format!("-floor_div({rest}, {c})") };
                    format!("{{ const i64 low = {low}; {name}_low = low > {name}_low ? low : {name}_low; }}")
                }
                c => {
                    let high = if c == -1 { rest } else { format!("floor_div({rest}, {})", -c) };
                    format!("{{ const i64 high = {high} + 1; {name}_high = high < {name}_high ? high : {name}_high; }}")
                }
            };
            self.w.line(line);
        }
        self.w.line(format!("const int {name}_end = {name}_low < {name}_high ? static_cast<int>({name}_high) : 0;"));
        self.w.line(format!(
            "const int {name}_begin = {name}_low < {name}_high ? static_cast<int>({name}_low - {name}_low % {tile}) : 0;"
        ));
    }

    /// Whether the last chunk is as long as the others wherever the loop stands: the extent, and every bound that
    /// `within` sets, is a multiple of the tile.
    pub(super) fn never_clipped(&self, axis: AxisId, within: &Predicate) -> bool {
        let decl = self.facts.kernel.axis(axis);
        let tile = decl.tile as i64;
        let multiple = |affine: &Affine| {
            let own: i64 = affine.terms.iter().filter(|t| t.1 == axis).map(|t| t.0).sum();
            // Lower bounds are rounded down to a chunk's start anyway.
            if own >= 0 {
                return true;
            }
            let mut high = affine.constant + 1;
            for &(c, other) in affine.terms.iter().filter(|t| t.1 != axis) {
                let a = self.facts.kernel.axis(other);
                let step = if a.tile >= a.extent { 0 } else { a.tile as i64 };
                // A last window that is shorter must end as far from a chunk's start as the others do.
                let shorter = if self.always_full(other) { 0 } else { a.extent as i64 - self.facts.size(other) as i64 };
                if c * shorter % tile != 0 || c * step % tile != 0 {
                    return false;
                }
                high += if c > 0 { c * (self.facts.size(other) as i64 - 1) } else { 0 };
            }
            own == -1 && high % tile == 0
        };
        decl.extent.is_multiple_of(decl.tile) && within.all.iter().all(multiple)
    }

    /// The function that issues the copies of one chunk.
    fn fetch(&mut self, axis: AxisId, body: &[Op], loads: &[ValueId]) {
        let name = self.names.axis(axis).to_string();
        let tile = self.facts.kernel.axis(axis).tile;
        self.w.open(format!("const auto {name}_fetch = [&](const int {name}_base, const int stage)"));
        self.w.line(format!("const int {name}_len = min_int({tile}, {name}_end - {name}_base);"));
        for op in body {
            if let Op::Load { dst, tensor, at, .. } = op
                && loads.contains(dst)
                && let Some(crate::schedule::Copy::Async { bytes }) = self.schedule.copies.get(dst)
            {
                let bytes = *bytes;
                self.comment(op);
                self.copy_async(*dst, *tensor, at, bytes, "stage");
            }
        }
        self.w.close(";");
    }

    /// The function that computes one chunk; the conditions under which it is full beside its length, or nothing if
    /// that makes no difference.
    fn chunk(&mut self, axis: AxisId, body: &[Op], states: &[State]) -> Option<Vec<String>> {
        let name = self.names.axis(axis).to_string();
        let outside = std::mem::take(&mut self.w);
        self.w = outside.nested();
        for s in states {
            self.share(s.value);
        }
        self.ops(body);
        for s in states {
            self.advance(s);
        }
        let inside = std::mem::replace(&mut self.w, outside);
        let text = inside.finish();
        let uses = text.contains(&format!("{name}_full"));
        let full = if uses { "full" } else { "" };
        self.w.open(format!(
            "const auto {name}_chunk = [&](auto {full}, const int {name}_base, const int {name}_len, const int {name}_stage)"
        ));
        if uses {
            self.w.line(format!("constexpr bool {name}_full = decltype(full)::value;"));
        }
        self.w.paste(&text);
        self.w.close(";");
        uses.then(|| self.full_conditions(body))
    }

    /// The predicates of the body's own operations, as conditions that they hold at every element.
    pub(super) fn full_conditions(&self, body: &[Op]) -> Vec<String> {
        let mut out = vec![];
        if let (Some(guards), Some(axis)) = (self.conditions.last(), self.open.last())
            && !guards.is_empty()
        {
            out.push(format!("{}_kind == 2", self.names.axis(*axis)));
        }
        for op in body {
            if let Op::Map { expr, .. } = op {
                self.predicates(expr, &mut |p| {
                    for affine in &p.all {
                        let smallest = self.bound(affine, false);
                        let test = format!("{} >= 0", add("0", 1, &smallest));
                        if !out.contains(&test) {
                            out.push(test);
                        }
                    }
                });
            }
        }
        out
    }

    pub(super) fn advance(&mut self, state: &State) {
        let frame = self.frame_of(state.value);
        let (to, from) = (self.element(state.value, frame), self.element(state.next, frame));
        if to == from {
            return;
        }
        let loops = self.each_element(state.value, frame);
        self.w.line(format!("{to} = {from};"));
        self.close(loops);
    }

    /// Calls `f` with the predicates that an expression tests, but for those of conditions that guards tell of.
    fn predicates<'s>(&self, expr: &'s Scalar, f: &mut dyn FnMut(&'s Predicate)) {
        if self.is_guarded(expr) {
            return;
        }
        match expr {
            Scalar::Within(p) => f(p),
            Scalar::Const(_) | Scalar::Tile(_) | Scalar::Position(_) | Scalar::Argument(_) => {}
            Scalar::Round(_, x) | Scalar::Unary(_, x) => self.predicates(x, f),
            Scalar::Binary(_, x, y) => [x, y].into_iter().for_each(|e| self.predicates(e, f)),
            Scalar::Select(c, x, y) => [c, x, y].into_iter().for_each(|e| self.predicates(e, f)),
        }
    }
}
