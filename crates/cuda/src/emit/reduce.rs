//! Reductions: each thread over its own elements, then lanes by a butterfly of shuffles, then warps through shared
//! memory where more than one warp holds positions of the reduced axis.

use super::element::{Emitter, digit, variable};
use super::scalar::literal;
use crate::schedule::facts::each_op;
use crate::schedule::{FrameId, Side, rows};
use einloom_cascade::DType;
use einloom_tile::{AxisId, Op, State, TileMonoid, ValueId};

impl Emitter<'_> {
    /// `dst = acc ⊕ ⊕_axis src`.
    pub fn reduce(&mut self, dst: ValueId, src: ValueId, axis: AxisId, monoid: &TileMonoid, acc: Option<ValueId>) {
        let frame = self.frame_of(src);
        let wide = self.facts.reduces_wide(dst, src, acc);
        let number = if wide { "double" } else { "float" };
        self.declare(dst, self.frame_of(dst));
        let side = frame.and_then(|f| self.schedule.frame(f).sides.get(&axis).copied());
        let (Some(f), Some(side), true) = (frame, side, self.facts.wide(axis)) else {
            // A window of one position: there is nothing to sum.
            let loops = self.each_element(src, frame);
            let value = format!("{number}({})", self.element(src, frame));
            self.finish_reduction(dst, acc, monoid, &value, wide);
            return self.close(loops);
        };
        let (k, kept) = (variable(side), variable(side.other()));
        let other = self.along(src, f, side.other());
        let partial = self.schedule.partial.values().any(|p| p.reductions.contains(&dst));
        let turns = if partial { None } else { self.take_turns(f, side, other, wide) };
        if let Some(o) = other {
            let count = self.span(f, o).count;
            self.w.unrolled(kept, count);
        } else {
            self.w.open("");
        }
        match self.of_pairs(src, axis, monoid) {
            Some(pick) => self.reduce_pairs(src, f, axis, pick),
            None => {
                self.w.line(format!("{number} x = {};", literal(monoid.identity(), wide)));
                let count = self.span(f, axis).count;
                self.w.unrolled(k, count);
                let element = format!("{number}({})", self.element(src, frame));
                let element = match self.exists(f, axis, k) {
                    Some(test) => format!("({test} ? {element} : {})", literal(monoid.identity(), wide)),
                    None => element,
                };
                let line = format!("x = {};", self.combine(monoid, "x", &element, wide));
                self.w.line(line);
                self.w.close("");
            }
        }
        if partial {
            self.finish_reduction(dst, acc, monoid, "x", wide);
            return self.w.close("");
        }
        let at = other.map(|o| (o, self.position(f, o, kept)));
        let at = at.as_ref().map(|(o, at)| (*o, at.as_str()));
        self.across_threads(f, side, monoid, wide, at, turns);
        self.finish_reduction(dst, acc, monoid, "x", wide);
        self.w.close("");
        self.after_reduction(f, side);
    }

    /// How two pairs of 16-bit numbers are reduced as they are: the larger and the smaller of two such numbers are such
    /// numbers. Only where all of a thread's positions exist.
    pub fn of_pairs(&self, src: ValueId, axis: AxisId, monoid: &TileMonoid) -> Option<&'static str> {
        let pick = match monoid {
            TileMonoid::Max => "max",
            TileMonoid::Min => "min",
            _ => return None,
        };
        let f = self.frame_of(src)?;
        let across = self.schedule.frame(f).sides.get(&axis) == Some(&Side::Across);
        let stored = !self.schedule.inlined.contains(&src) && matches!(self.facts.dtype(src), DType::Bf16 | DType::F16);
        let whole = self.is_packed(src, Some(f)) && self.exists(f, axis, variable(Side::Across)).is_none();
        (across && stored && whole).then_some(pick)
    }

    /// `x`, the largest or smallest of this thread's elements across.
    fn reduce_pairs(&mut self, src: ValueId, f: FrameId, axis: AxisId, pick: &str) {
        let pairs = self.span(f, axis).count / 2;
        let dtype = super::type_name(self.facts.dtype(src));
        let name = self.variable_of(src, Some(f));
        let at = |k: &str| format!("{name}{}", self.brackets(src, Some(f), "i", k));
        let (first, next) = (at("0"), at("y"));
        self.w.line(format!("u32 both = {first};"));
        self.w.line("#pragma unroll");
        self.w.open(format!("for (int y = 1; y < {pairs}; ++y)"));
        self.w.line(format!("both = {dtype}::{pick}_pair(both, {next});"));
        self.w.close("");
        self.w.line(format!("float x = {pick}_({dtype}::half(both, 0), {dtype}::half(both, 1));"));
    }

    /// Adds the element `(i, j)` of a tile to this thread's part of what it is reduced to.
    pub fn add_element(&mut self, dst: ValueId, src: ValueId, frame: FrameId) {
        let mut reduction = None;
        each_op(&self.facts.kernel.body, &mut |op| {
            if let Op::Reduce { dst: d, axis, monoid, .. } = op
                && *d == dst
            {
                reduction = Some((*axis, monoid.clone()));
            }
        });
        let Some((axis, monoid)) = reduction else { return };
        let sum = self.element(dst, self.frame_of(dst));
        let element = self.element(src, Some(frame));
        let side = self.schedule.frame(frame).sides.get(&axis).copied().unwrap_or(Side::Across);
        let element = match self.exists(frame, axis, variable(side)) {
            Some(test) => format!("({test} ? {element} : {})", literal(monoid.identity(), false)),
            None => element,
        };
        let line = format!("{sum} = {};", self.combine(&monoid, &sum, &element, false));
        self.w.line(line);
    }

    /// Combines the parts of states that every thread has a part of.
    pub fn complete(&mut self, states: &[State]) {
        for s in states {
            let Some(partial) = self.schedule.partial.get(&s.value).cloned() else { continue };
            let Some(f) = self.frame_of(partial.source) else { continue };
            let (side, monoid) = (partial.side, &partial.monoid);
            self.w.line(format!("// every thread's part of {}", self.facts.name(s.value)));
            let kept = self.along(s.value, f, side.other());
            let k = variable(side.other());
            let turns = self.take_turns(f, side, kept, false);
            match kept {
                Some(o) => {
                    let count = self.span(f, o).count;
                    self.w.unrolled(k, count);
                }
                None => self.w.open(""),
            }
            let element = self.element(s.value, self.frame_of(s.value));
            self.w.line(format!("float x = {element};"));
            let at = kept.map(|o| (o, self.position(f, o, k)));
            let at = at.as_ref().map(|(o, at)| (*o, at.as_str()));
            self.across_threads(f, side, monoid, false, at, turns);
            self.w.line(format!("{element} = x;"));
            self.w.close("");
            self.after_reduction(f, side);
        }
    }

    /// Begins a loop in which warps take turns to add their parts, if there are more parts than rows for them: how many
    /// rows there are. Shared memory would not hold a row for each.
    fn take_turns(&mut self, f: FrameId, side: Side, kept: Option<AxisId>, wide: bool) -> Option<usize> {
        let part = self.schedule.frame(f).warp_part(side);
        let rows = rows(part.modulus, kept.map_or(1, |o| self.span(f, o).cover), wide);
        if rows >= part.modulus {
            return None;
        }
        self.w.line("#pragma unroll 1");
        self.w.open(format!("for (int turn = 0; turn < {}; ++turn)", part.modulus.div_ceil(rows)));
        self.w.open(format!("if (({}) / {rows} == turn)", digit(&part)));
        Some(rows)
    }

    /// Combines the `x` of all threads that hold positions of `side`, for every position of the other one: lanes by a
    /// butterfly of shuffles; warps, if several hold them, through shared memory. It is in a loop over the other side's
    /// positions, of which `at` is one, and that in the loop of `take_turns`; with several warps both are ended and the one
    /// over positions begun again.
    fn across_threads(
        &mut self,
        f: FrameId,
        side: Side,
        monoid: &TileMonoid,
        wide: bool,
        at: Option<(AxisId, &str)>,
        turns: Option<usize>,
    ) {
        let number = if wide { "double" } else { "float" };
        let schedule = self.schedule.frame(f);
        for mask in schedule.lane_masks(side).into_iter().filter(|&m| m < 32) {
            let other = format!("__shfl_xor_sync(0xffffffffu, x, {mask})");
            // Lanes choose apart where a monoid of the text does, and all must be there when they exchange.
            let line = match monoid {
                TileMonoid::Custom { .. } => {
                    format!("{{ const {number} other = {other}; x = {}; }}", self.combine(monoid, "x", "other", wide))
                }
                _ => format!("x = {};", self.combine(monoid, "x", &other, wide)),
            };
            self.w.line(line);
        }
        let part = schedule.warp_part(side);
        if part.modulus == 1 {
            return;
        }
        // Through shared memory: one row of partial results per warp part, or per several in turn.
        let positions = at.map_or(1, |(o, _)| self.span(f, o).cover);
        let place = at.map_or("0", |(_, at)| at);
        // Outside of loops two places take turns: whoever writes the one again has passed the barrier of the other.
        let offset = self.reductions % 2 * (self.schedule.scratch_bytes / 2);
        self.reductions += 1;
        let scratch = format!("reinterpret_cast<{number}*>(shared + {offset})");
        let first: Vec<String> = (schedule.first(side).iter())
            .filter(|d| d.divisor < 32)
            .map(|d| {
                let lanes = d.modulus.min(32 / d.divisor);
                digit(&crate::schedule::Digit { coefficient: 1, divisor: d.divisor, modulus: lanes })
            })
            .map(|d| format!("{d} == 0"))
            .collect();
        let guard = if first.is_empty() { String::new() } else { format!("if ({}) ", first.join(" && ")) };
        let row = match turns {
            Some(rows) => format!("({}) % {rows}", digit(&part)),
            None => digit(&part),
        };
        let own = format!("{scratch}[({row}) * {positions} + {place}]");
        let value = match turns {
            Some(_) => format!("turn == 0 ? x : {}", self.combine(monoid, &own, "x", wide)),
            None => "x".to_string(),
        };
        self.w.line(format!("{guard}{own} = {value};"));
        self.w.close("");
        if turns.is_some() {
            self.w.close("");
        }
        self.w.line("__syncthreads();");
        if turns.is_some() {
            self.w.close("");
        }
        if let Some((o, _)) = at {
            let count = self.span(f, o).count;
            self.w.unrolled(variable(side.other()), count);
        } else {
            self.w.open("");
        }
        self.w.line(format!("{number} x = {scratch}[{place}];"));
        self.w.line("#pragma unroll");
        self.w.open(format!("for (int part = 1; part < {}; ++part)", turns.unwrap_or(part.modulus)));
        let line =
            format!("x = {};", self.combine(monoid, "x", &format!("{scratch}[part * {positions} + {place}]"), wide));
        self.w.line(line);
        self.w.close("");
    }

    /// In a loop the same place is written again.
    fn after_reduction(&mut self, f: FrameId, side: Side) {
        if self.schedule.frame(f).warp_part(side).modulus > 1 && !self.open.is_empty() {
            self.w.line("__syncthreads();  // before the partial results are overwritten");
        }
    }

    fn finish_reduction(&mut self, dst: ValueId, acc: Option<ValueId>, monoid: &TileMonoid, value: &str, wide: bool) {
        let frame = self.frame_of(dst);
        let number = if wide { "double" } else { "float" };
        let value = match acc {
            Some(a) => {
                let start = format!("{number}({})", self.element(a, frame));
                self.combine(monoid, &start, value, wide)
            }
            None => value.to_string(),
        };
        let value = self.rounded(self.facts.dtype(dst), &value, wide);
        let line = format!("{} = {value};", self.element(dst, frame));
        self.w.line(line);
    }

    fn combine(&self, monoid: &TileMonoid, a: &str, b: &str, wide: bool) -> String {
        match monoid {
            TileMonoid::Sum => format!("{a} + {b}"),
            TileMonoid::Prod => format!("{a} * {b}"),
            TileMonoid::Max => format!("max_({a}, {b})"),
            TileMonoid::Min => format!("min_({a}, {b})"),
            TileMonoid::Custom { combine, .. } => self.combination(combine, a, b, wide),
        }
    }

    /// A constant of a number type.
    pub fn constant(&self, dtype: DType, x: f64) -> String {
        match dtype {
            DType::F32 => literal(x, false),
            DType::F64 => literal(x, true),
            _ => self.rounded(dtype, &literal(x, true), true),
        }
    }
}
