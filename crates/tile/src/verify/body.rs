//! The rules for operations: scopes of values and axes, and the shapes each operation needs.

use super::Defect;
use crate::{AxisId, AxisKind, Guard, Init, Kernel, Op, Predicate, Program, State, ValueId};
use einloom_cascade::DType;
use einloom_cascade::numeric::round;

pub(super) fn check(program: &Program, kernel: &Kernel, defects: &mut Vec<Defect>) {
    let values = kernel.values.len();
    let mut walk = Walk {
        program,
        kernel,
        defects,
        path: vec![],
        streams: vec![],
        defined: vec![false; values],
        readable: vec![false; values],
    };
    walk.ops(&kernel.body);
}

/// A walk over one kernel's operations.
pub(super) struct Walk<'a> {
    pub(super) program: &'a Program,
    pub(super) kernel: &'a Kernel,
    defects: &'a mut Vec<Defect>,
    path: Vec<usize>,
    /// The streams that enclose the operation, outermost first.
    pub(super) streams: Vec<(AxisId, &'a Predicate)>,
    /// Written anywhere so far.
    defined: Vec<bool>,
    /// Readable here.
    readable: Vec<bool>,
}

impl<'a> Walk<'a> {
    pub(super) fn fault(&mut self, message: String) {
        self.defects.push(Defect { kernel: self.kernel.name.clone(), op: self.path.clone(), message });
    }

    pub(super) fn value_name(&self, id: ValueId) -> &'a str {
        &self.kernel.values[id.at()].name
    }

    pub(super) fn axis_name(&self, id: AxisId) -> &'a str {
        &self.kernel.axes[id.at()].name
    }

    /// The axes of a value's sides.
    pub(super) fn sides(&self, id: ValueId) -> Vec<AxisId> {
        let value = self.kernel.value(id);
        [value.rows, value.cols].into_iter().flatten().collect()
    }

    /// Whether the axis exists and has a window here.
    pub(super) fn open(&mut self, id: AxisId) -> bool {
        let Some(axis) = self.kernel.axes.get(id.at()) else {
            self.fault(format!("axis {} is not declared", id.0));
            return false;
        };
        let open = axis.kind != AxisKind::Stream || self.streams.iter().any(|s| s.0 == id);
        if !open {
            self.fault(format!("stream axis `{}` has no window outside a stream over it", axis.name));
        }
        open
    }

    /// Whether the value exists and may be read here.
    pub(super) fn read(&mut self, id: ValueId) -> bool {
        match self.readable.get(id.at()) {
            None => self.fault(format!("tile {} is not declared", id.0)),
            Some(true) => return true,
            Some(false) if self.defined[id.at()] => {
                self.fault(format!("tile `{}` is read outside the stream that writes it", self.value_name(id)));
            }
            Some(false) => self.fault(format!("tile `{}` is read before it is written", self.value_name(id))),
        }
        false
    }

    /// Makes the value readable from here on.
    fn write(&mut self, id: ValueId) -> bool {
        if id.at() >= self.kernel.values.len() {
            self.fault(format!("tile {} is not declared", id.0));
            return false;
        }
        if self.defined[id.at()] {
            self.fault(format!("tile `{}` is written by more than one operation", self.value_name(id)));
        }
        let mut open = true;
        for axis in self.sides(id) {
            open &= self.open(axis);
        }
        self.defined[id.at()] = true;
        self.readable[id.at()] = true;
        open
    }

    fn ops(&mut self, ops: &'a [Op]) {
        for (k, op) in ops.iter().enumerate() {
            self.path.push(k);
            self.op(op);
            self.path.pop();
        }
    }

    fn op(&mut self, op: &'a Op) {
        match op {
            Op::Load { dst, tensor, at, fill } => {
                // The tile is not readable in its own coordinates.
                if dst.at() < self.kernel.values.len() {
                    self.load(*dst, *tensor, at, fill.is_some());
                }
                self.write(*dst);
            }
            Op::Store { tensor, at, src } => {
                if self.read(*src) {
                    self.store(*src, *tensor, at);
                }
            }
            Op::Map { dst, expr } => {
                // The destination is not readable in its own expression.
                if dst.at() < self.kernel.values.len() {
                    self.elementwise(*dst, expr);
                }
                self.write(*dst);
            }
            Op::Mma { dst, a, b, acc } => {
                let operands = self.read(*a) & self.read(*b) & acc.is_none_or(|v| self.read(v));
                if self.write(*dst) && operands {
                    self.mma(*dst, *a, *b, *acc);
                }
            }
            Op::Reduce { dst, src, axis, monoid, acc } => {
                let operands = self.read(*src) & acc.is_none_or(|v| self.read(v));
                self.monoid(monoid);
                if self.write(*dst) && operands {
                    self.reduce(*dst, *src, *axis, *acc);
                }
            }
            Op::Pick { dst, src, axis, at, fill } => {
                // The result is not readable in its own positions.
                let known = dst.at() < self.kernel.values.len();
                let operands = self.read(*src) & (!known || self.coordinate(*dst, at));
                if self.write(*dst) && operands {
                    self.pick(*dst, *src, *axis);
                    self.fill(*dst, *fill);
                }
            }
            Op::Stream { axis, within, guards, states, body } => self.stream(*axis, (within, guards), states, body),
            Op::SkipUnless { any } => {
                if self.streams.is_empty() {
                    self.fault("a skip outside a stream".to_string());
                }
                if self.read(*any) && self.kernel.value(*any).dtype != DType::B1 {
                    self.fault(format!("the skip tests `{}`, which is not b1", self.value_name(*any)));
                }
            }
        }
    }

    fn mma(&mut self, dst: ValueId, a: ValueId, b: ValueId, acc: Option<ValueId>) {
        let (sides_a, sides_b, sides) = (self.sides(a), self.sides(b), self.sides(dst));
        let name = self.value_name(dst);
        let summed: Vec<_> = sides_a.iter().filter(|x| sides_b.contains(x) && !sides.contains(x)).collect();
        if summed.len() != 1 {
            self.fault(format!(
                "mma into `{name}`: the factors share {} axes that the result lacks, not one",
                summed.len()
            ));
        }
        if sides_a.iter().any(|x| sides_b.contains(x) && sides.contains(x)) {
            self.fault(format!("mma into `{name}`: an axis of the result belongs to both factors"));
        }
        let free = |v: &[AxisId], other: &[AxisId]| v.iter().filter(|x| !other.contains(x)).all(|x| sides.contains(x));
        if !free(&sides_a, &sides_b) || !free(&sides_b, &sides_a) {
            self.fault(format!("mma into `{name}`: a factor has an axis that is neither summed nor in the result"));
        }
        if sides.iter().any(|x| !sides_a.contains(x) && !sides_b.contains(x)) {
            self.fault(format!("mma into `{name}`: the result has an axis that no factor has"));
        }
        self.accumulator(dst, acc);
    }

    fn reduce(&mut self, dst: ValueId, src: ValueId, axis: AxisId, acc: Option<ValueId>) {
        if !self.open(axis) {
            return;
        }
        let mut rest = self.sides(src);
        if !rest.contains(&axis) {
            self.fault(format!(
                "`{}` is reduced along `{}`, which it lacks",
                self.value_name(src),
                self.axis_name(axis)
            ));
            return;
        }
        rest.retain(|&a| a != axis);
        if self.sides(dst) != rest {
            let (dst, src) = (self.value_name(dst), self.value_name(src));
            self.fault(format!("`{dst}` must have the axes of `{src}` less `{}`", self.axis_name(axis)));
        }
        self.accumulator(dst, acc);
    }

    fn pick(&mut self, dst: ValueId, src: ValueId, axis: AxisId) {
        if !self.open(axis) {
            return;
        }
        let (to, from) = (self.value_name(dst), self.value_name(src));
        let mut rest = self.sides(src);
        if !rest.contains(&axis) {
            return self.fault(format!("`{from}` is picked from along `{}`, which it lacks", self.axis_name(axis)));
        }
        if self.kernel.axis(axis).kind != AxisKind::Whole {
            let axis = self.axis_name(axis);
            self.fault(format!("`{from}` is picked from along `{axis}`, of which not all positions are there"));
        }
        rest.retain(|&a| a != axis);
        let sides = self.sides(dst);
        if let Some(&other) = rest.iter().find(|a| !sides.contains(a)) {
            self.fault(format!("`{to}` must have axis `{}` of `{from}`", self.axis_name(other)));
        }
        if self.kernel.value(dst).dtype != self.kernel.value(src).dtype {
            self.fault(format!("`{to}` must have the number type of `{from}`, from which it is picked"));
        }
    }

    /// What is found outside may lose digits, but an infinity stays one and an integer that integer.
    fn fill(&mut self, dst: ValueId, fill: f64) {
        let dtype = self.kernel.value(dst).dtype;
        let exact = dtype.is_integer() || dtype == DType::B1 || fill.is_infinite();
        if exact && round(dtype, fill) != fill {
            self.fault(format!("`{}` is {fill} outside, which no {dtype} is", self.value_name(dst)));
        }
    }

    fn accumulator(&mut self, dst: ValueId, acc: Option<ValueId>) {
        if let Some(acc) = acc
            && !self.same_sides(dst, acc)
        {
            let (dst, acc) = (self.value_name(dst), self.value_name(acc));
            self.fault(format!("accumulator `{acc}` must have the axes of `{dst}`"));
        }
    }

    fn same_sides(&self, a: ValueId, b: ValueId) -> bool {
        let (a, b) = (self.kernel.value(a), self.kernel.value(b));
        (a.rows, a.cols) == (b.rows, b.cols)
    }

    fn stream(
        &mut self,
        axis: AxisId,
        (within, guards): (&'a Predicate, &[Guard]),
        states: &'a [State],
        body: &'a [Op],
    ) {
        match self.kernel.axes.get(axis.at()) {
            None => return self.fault(format!("axis {} is not declared", axis.0)),
            Some(a) if a.kind != AxisKind::Stream => {
                return self.fault(format!("streams over `{}`, which is no stream axis", a.name));
            }
            Some(a) if self.streams.iter().any(|s| s.0 == axis) => {
                return self.fault(format!("streams over `{}` inside a stream over it", a.name));
            }
            Some(_) => {}
        }
        // A state outlives the windows of its stream's axis, so it is declared before that axis is open.
        let before = self.readable.clone();
        for state in states {
            self.state_start(state, &before);
        }
        let after = self.readable.clone();
        self.streams.push((axis, within));
        self.predicate(within, |_, _| true);
        guards.iter().for_each(|g| self.guard(g));
        self.ops(body);
        for state in states {
            self.state_next(state, &after);
        }
        self.streams.pop();
        // What the body wrote stays inside.
        self.readable = after;
    }

    fn state_start(&mut self, state: &State, before: &[bool]) {
        let ok = self.write(state.value);
        let Init::Value(init) = state.init else { return };
        if before.get(init.at()) == Some(&false) && self.readable[init.at()] {
            self.fault(format!("state `{}` starts from a state of the same stream", self.value_name(init)));
        } else if self.read(init) && ok && !self.same_sides(state.value, init) {
            let (value, init) = (self.value_name(state.value), self.value_name(init));
            self.fault(format!("state `{value}` and its start `{init}` must have the same axes"));
        }
    }

    fn state_next(&mut self, state: &State, outside: &[bool]) {
        if state.value.at() >= self.kernel.values.len() {
            return;
        }
        let name = self.value_name(state.value);
        match self.readable.get(state.next.at()) {
            None => return self.fault(format!("tile {} is not declared", state.next.0)),
            Some(true) if !outside[state.next.at()] => {}
            Some(_) => {
                let next = self.value_name(state.next);
                return self
                    .fault(format!("the next value `{next}` of state `{name}` is not written by the stream's body"));
            }
        }
        let same_type = self.kernel.value(state.value).dtype == self.kernel.value(state.next).dtype;
        if !same_type || !self.same_sides(state.value, state.next) {
            let next = self.value_name(state.next);
            self.fault(format!("state `{name}` and its next value `{next}` must have the same axes and number type"));
        }
    }
}
