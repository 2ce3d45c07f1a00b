//! Elements: positions, lengths and registers of tiles as C++ expressions.

use super::names::Names;
use super::writer::Writer;
use crate::schedule::{Digit, Facts, FrameId, Made, Schedule, Side, Span};
use einloom_tile::{Affine, AxisId, AxisKind, Guard, TensorId, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// The text of one kernel under construction.
pub(super) struct Emitter<'a> {
    pub facts: Facts<'a>,
    pub schedule: &'a Schedule,
    pub names: Names,
    pub w: Writer,
    /// The kernel's number in its program.
    pub number: usize,
    /// Streams around the operation being emitted, outermost first.
    pub open: Vec<AxisId>,
    /// Their guards.
    pub conditions: Vec<Vec<Guard>>,
    /// Tiles whose asynchronous copies may not have arrived.
    pub pending: BTreeSet<ValueId>,
    /// For tiles with several stages, the stream whose stage is current.
    pub staged: BTreeMap<ValueId, AxisId>,
    /// Streams' axes whose chunks are never clipped.
    pub whole: BTreeSet<AxisId>,
    /// Tiles whose registers are declared outside of the loop that writes them.
    pub hoisted: BTreeSet<ValueId>,
    /// Streams emitted so far.
    pub streams: usize,
    /// Loads of pairs that an operation emitted so far has read.
    pub unpacked: BTreeSet<ValueId>,
    /// Reductions through shared memory emitted so far.
    pub reductions: usize,
    /// Tiles that only some warps make: see `rarely`.
    pub rare: BTreeMap<ValueId, ValueId>,
    /// Those that were declared with their condition.
    pub rare_declared: BTreeSet<ValueId>,
    /// Loads that may leave their tensor.
    pub checked_loads: Vec<TensorId>,
}

/// The loop variables over a thread's elements of a frame.
pub(super) fn variable(side: Side) -> &'static str {
    match side {
        Side::Down => "i",
        Side::Across => "j",
    }
}

impl Emitter<'_> {
    /// The first position of the axis's window.
    pub fn base(&self, axis: AxisId) -> String {
        match self.facts.kernel.axis(axis).kind {
            AxisKind::Whole => "0".to_string(),
            AxisKind::Grid | AxisKind::Stream => format!("{}_base", self.names.axis(axis)),
        }
    }

    /// Whether the window always has `size` positions.
    pub fn always_full(&self, axis: AxisId) -> bool {
        let a = self.facts.kernel.axis(axis);
        match a.kind {
            AxisKind::Grid => a.extent > 0 && a.extent.is_multiple_of(a.tile.min(a.extent)),
            AxisKind::Whole => a.extent > 0,
            AxisKind::Stream => self.whole.contains(&axis),
        }
    }

    /// Positions in the axis's window.
    pub fn len(&self, axis: AxisId) -> String {
        if self.always_full(axis) {
            return self.facts.size(axis).to_string();
        }
        match self.facts.kernel.axis(axis).kind {
            AxisKind::Whole => self.facts.kernel.axis(axis).extent.to_string(),
            _ if !self.facts.wide(axis) => "1".to_string(),
            _ => format!("{}_len", self.names.axis(axis)),
        }
    }

    /// The largest or smallest value of an affine expression over the current windows.
    pub fn bound(&self, affine: &Affine, upper: bool) -> String {
        let mut out = affine.constant.to_string();
        for &(c, axis) in &affine.terms {
            let base = self.base(axis);
            let last = match self.len(axis).as_str() {
                "1" => base.clone(),
                len => format!("({base} + {len} - 1)"),
            };
            let at = if (c > 0) == upper { last } else { base };
            out = add(&out, c, &at);
        }
        out
    }

    /// The tile's axis on this side of the frame.
    pub fn along(&self, v: ValueId, frame: FrameId, side: Side) -> Option<AxisId> {
        let sides = &self.schedule.frame(frame).sides;
        self.facts.axes(v).into_iter().find(|a| sides.get(a) == Some(&side))
    }

    /// The positions of the axis that a thread holds in this frame.
    pub fn span(&self, frame: FrameId, axis: AxisId) -> Span {
        let frame = self.schedule.frame(frame);
        let side = frame.sides.get(&axis).copied().unwrap_or(Side::Across);
        frame.span(side, self.facts.size(axis))
    }

    /// The name of a thread's first position along the axis.
    pub fn at(&self, frame: FrameId, axis: AxisId) -> String {
        let number = if frame.0 == 0 { String::new() } else { frame.0.to_string() };
        format!("{}_at{number}", self.names.axis(axis))
    }

    /// The position within the window of element `k` along the axis.
    pub fn position(&self, frame: FrameId, axis: AxisId, k: &str) -> String {
        let span = self.span(frame, axis);
        let at = self.at(frame, axis);
        match (span.count, span.vector) {
            (1, _) => at,
            (n, v) if n == v => format!("{at} + {k}"),
            (_, 1) => format!("{at} + {k} * {}", span.step),
            (_, v) => format!("{at} + {k} / {v} * {} + {k} % {v}", span.step),
        }
    }

    /// Whether the position exists in the current window; `None` if it always does.
    pub fn exists(&self, frame: FrameId, axis: AxisId, k: &str) -> Option<String> {
        let span = self.span(frame, axis);
        let position = self.position(frame, axis, k);
        self.within_window(axis, &position, span.cover)
    }

    /// Whether `position`, which is less than `cover`, lies in the axis's window; `None` if it always does.
    pub fn within_window(&self, axis: AxisId, position: &str, cover: usize) -> Option<String> {
        let exact = cover == self.facts.size(axis);
        if exact && self.always_full(axis) {
            return None;
        }
        let test = format!("{position} < {}", self.len(axis));
        let a = self.facts.kernel.axis(axis);
        if exact && a.kind == AxisKind::Stream && a.tile <= a.extent {
            return Some(format!("({}_full || {test})", self.names.axis(axis)));
        }
        Some(test)
    }

    /// Whether the element `(i, j)` of the tile exists; `None` if it always does.
    pub fn element_exists(&self, v: ValueId, frame: FrameId) -> Option<String> {
        let tests: Vec<String> = [Side::Down, Side::Across]
            .into_iter()
            .filter_map(|side| self.exists(frame, self.along(v, frame, side)?, variable(side)))
            .collect();
        if tests.is_empty() { None } else { Some(tests.join(" && ")) }
    }

    /// Whether this thread is the one among those that hold the same elements of the tile; `None` if it is alone.
    pub fn is_owner(&self, v: ValueId, frame: FrameId) -> Option<String> {
        let f = self.schedule.frame(frame);
        let mut tests = vec![];
        for side in [Side::Down, Side::Across] {
            if self.along(v, frame, side).is_none() {
                tests.extend(f.first(side).iter().map(|d| format!("{} == 0", digit(d))));
            }
        }
        if tests.is_empty() { None } else { Some(tests.join(" && ")) }
    }

    /// The frame that the tile's registers belong to, if it has axes and is made in registers.
    pub fn frame_of(&self, v: ValueId) -> Option<FrameId> {
        match self.schedule.home(v).made {
            Made::Registers(f) => Some(f),
            Made::Shared => self.schedule.home(v).read_back.first().copied(),
            Made::Everywhere => None,
        }
    }

    /// The variable that holds the tile in a frame.
    pub fn variable_of(&self, v: ValueId, frame: Option<FrameId>) -> String {
        let home = self.schedule.home(v);
        match (home.made, frame) {
            (Made::Registers(f), Some(g)) if f != g => format!("{}_in{}", self.names.value(v), g.0),
            (Made::Everywhere | Made::Registers(_), _) => {
                let place = self.schedule.in_place.get(&v).copied().unwrap_or(v);
                self.names.value(place).to_string()
            }
            (Made::Shared, f) => format!("{}_in{}", self.names.value(v), f.map_or(0, |f| f.0)),
        }
    }

    /// The brackets after a tile's variable in a frame: `[i][j]`, fewer for fewer axes.
    pub fn brackets(&self, v: ValueId, frame: Option<FrameId>, i: &str, j: &str) -> String {
        let Some(f) = frame else { return String::new() };
        let mut out = String::new();
        for (side, k) in [(Side::Down, i), (Side::Across, j)] {
            if self.along(v, f, side).is_some() {
                out.push_str(&format!("[{k}]"));
            }
        }
        out
    }

    /// The element `(i, j)` of the tile.
    pub fn element(&self, v: ValueId, frame: Option<FrameId>) -> String {
        self.element_at(v, frame, "i", "j")
    }

    /// An element of the tile, given its numbers along the frame's sides; `i` and `j` for one that is computed where it
    /// is read.
    pub fn element_at(&self, v: ValueId, frame: Option<FrameId>, i: &str, j: &str) -> String {
        if self.schedule.inlined.contains(&v) {
            return self.inlined(v, frame);
        }
        if self.schedule.fused.values().any(|f| f.source == v) {
            // A variable of the loop that packs.
            return self.names.value(v).to_string();
        }
        let variable = self.variable_of(v, frame);
        if self.is_packed(v, frame) {
            let pair = self.brackets(v, frame, i, &format!("({j}) / 2"));
            return format!("{}::half({variable}{pair}, ({j}) % 2)", super::type_name(self.facts.dtype(v)));
        }
        format!("{variable}{}", self.brackets(v, frame, i, j))
    }

    /// Whether these registers hold pairs.
    pub fn is_packed(&self, v: ValueId, frame: Option<FrameId>) -> bool {
        self.schedule.packed.contains(&v) && frame == self.frame_of(v)
    }

    /// Declares the tile's registers in a frame, unless it lives in a state's.
    pub fn declare(&mut self, v: ValueId, frame: Option<FrameId>) {
        let elsewhere = self.hoisted.contains(&v) || self.rare_declared.contains(&v);
        if (self.schedule.in_place.contains_key(&v) || elsewhere) && frame == self.frame_of(v) {
            return;
        }
        let packed = self.is_packed(v, frame);
        let count = |side, halves: usize| {
            frame.and_then(|f| self.along(v, f, side).map(|a| (self.span(f, a).count / halves).to_string()))
        };
        let halves = if packed { 2 } else { 1 };
        let (i, j) = (count(Side::Down, 1).unwrap_or_default(), count(Side::Across, halves).unwrap_or_default());
        let line = format!(
            "{} {}{};",
            if packed { "u32" } else { self.facts.carrier(v).name() },
            self.variable_of(v, frame),
            self.brackets(v, frame, &i, &j)
        );
        self.w.line(line);
    }

    /// Opens loops over a thread's elements of the tile; the number of loops.
    pub fn each_element(&mut self, v: ValueId, frame: Option<FrameId>) -> usize {
        let Some(f) = frame else { return 0 };
        let mut loops = 0;
        for side in [Side::Down, Side::Across] {
            if let Some(axis) = self.along(v, f, side) {
                let count = self.span(f, axis).count;
                self.w.unrolled(variable(side), count);
                loops += 1;
            }
        }
        loops
    }

    /// Closes loops.
    pub fn close(&mut self, loops: usize) {
        for _ in 0..loops {
            self.w.close("");
        }
    }
}

/// A digit of the thread's number.
pub(super) fn digit(d: &Digit) -> String {
    let shifted = if d.divisor == 1 { "thread".to_string() } else { format!("thread / {}", d.divisor) };
    format!("{shifted} % {}", d.modulus)
}

/// The sum of digits, each times its coefficient.
pub(super) fn digits(list: &[Digit]) -> String {
    let terms: Vec<String> = list
        .iter()
        .filter(|d| d.modulus > 1)
        .map(|d| if d.coefficient == 1 { digit(d) } else { format!("{} * {}", digit(d), d.coefficient) })
        .collect();
    if terms.is_empty() { "0".to_string() } else { terms.join(" + ") }
}

/// `sum + c * term` without what changes nothing.
pub(super) fn add(sum: &str, c: i64, term: &str) -> String {
    let product = match (c.abs(), term) {
        (0, _) | (_, "0") => return sum.to_string(),
        (1, t) => t.to_string(),
        (n, t) if t.contains(' ') && !t.starts_with('(') => format!("({t}) * {n}"),
        (n, t) => format!("{t} * {n}"),
    };
    match (sum, c > 0) {
        ("0", true) => product,
        ("0", false) => format!("-{product}"),
        (s, true) => format!("{s} + {product}"),
        (s, false) => format!("{s} - {product}"),
    }
}
