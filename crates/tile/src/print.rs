//! Prints a tile program as pseudocode, the form in which people read it: `emit --target pseudo` and `--dump=tile`.

mod expr;
mod guard;

use crate::{
    Axis, AxisId, AxisKind, Guard, Init, Kernel, Op, Program, State, TensorId, TensorRole, TileMonoid, ValueId,
};
use einloom_cascade::DType;
use expr::Names;
use std::fmt::Write;

/// The program as pseudocode: its tensors, then one block per kernel. The same program gives the same text.
///
/// - An axis in a coordinate shows its tile, as in `m:128`; `:` is a whole dimension.
/// - A value's number type is shown where it is written, unless it is f32 or that of the loaded tensor.
/// - A stream's states are set before it (`Z = 0`) and moved on at the end of its body (`Z = z`).
pub fn print(program: &Program) -> String {
    let mut out = format!("program {}\n", program.name);
    for tensor in &program.tensors {
        let role = match tensor.role {
            TensorRole::Input => "input ",
            TensorRole::Output => "output",
            TensorRole::Temporary => "temp  ",
        };
        let dims: Vec<String> = tensor.dims.iter().map(usize::to_string).collect();
        let _ = write!(out, "{role} {}[{}]: {}", tensor.name, dims.join(", "), tensor.dtype);
        if let Some(layout) = &tensor.layout {
            let _ = write!(out, "   strides {:?}, aligned to {} bytes", layout.strides, layout.alignment);
        }
        out.push('\n');
    }
    for kernel in &program.kernels {
        out.push('\n');
        out.push_str(&print_kernel(program, kernel));
    }
    out
}

/// One kernel of the program as pseudocode.
pub fn print_kernel(program: &Program, kernel: &Kernel) -> String {
    let mut printer = Printer { program, kernel, names: Names::new(kernel), out: String::new() };
    printer.header();
    printer.ops(&kernel.body, 1);
    printer.out
}

/// A guard of the kernel as the condition that it stands for.
pub fn print_guard(program: &Program, kernel: &Kernel, guard: &Guard) -> String {
    let printer = Printer { program, kernel, names: Names::new(kernel), out: String::new() };
    printer.names.guard(guard, &|e| printer.element(e.of, &e.at))
}

struct Printer<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    names: Names<'a>,
    out: String,
}

impl Printer<'_> {
    fn header(&mut self) {
        let (mut read, mut written) = (vec![], vec![]);
        tensors(&self.kernel.body, &mut read, &mut written);
        let list = |ids: &[TensorId]| {
            let names: Vec<&str> = ids.iter().map(|&t| self.tensor(t)).collect();
            names.join(", ")
        };
        let mut head = format!("kernel {}({} → {})", self.kernel.name, list(&read), list(&written));
        let grid: Vec<String> = self.kernel.grid.iter().map(|&a| self.with_tile(a)).collect();
        if !grid.is_empty() {
            let _ = write!(head, "   grid {}", grid.join(", "));
        }
        if let Some(stages) = self.kernel.stages {
            let _ = write!(head, "   stages {stages}");
        }
        self.line(0, &head);
        for block in &self.kernel.blocks {
            let side = |&(a, side): &(AxisId, usize)| format!("{}:{side}", self.kernel.axis(a).name);
            let sides: Vec<String> = block.sides.iter().map(side).collect();
            self.line(1, &format!("by blocks of {} in {}", sides.join(" "), block.memory));
        }
        for comment in &self.kernel.comments {
            for text in comment.lines() {
                self.line(1, &format!("# {text}"));
            }
        }
    }

    fn ops(&mut self, ops: &[Op], depth: usize) {
        for op in ops {
            self.op(op, depth);
        }
    }

    fn op(&mut self, op: &Op, depth: usize) {
        match op {
            Op::Load { dst, tensor, at, fill } => {
                let mut text = format!("load {}", self.element(*tensor, at));
                if let Some(fill) = fill {
                    let _ = write!(text, " else {}", expr::number(*fill));
                }
                let expected = self.program.tensors.get(tensor.at()).map_or(DType::F32, |t| t.dtype);
                self.assign(depth, *dst, expected, &text);
            }
            Op::Store { tensor, at, src } => {
                let text = format!("store {} = {}", self.element(*tensor, at), self.names.value(*src));
                self.line(depth, &text);
            }
            Op::Map { dst, expr } => {
                let text = self.names.scalar(expr);
                self.assign_shaped(depth, *dst, self.names.spans_fewer_axes(expr, *dst), &text);
            }
            Op::Mma { dst, a, b, acc } => {
                let text = self.mma(*dst, *a, *b);
                let text = match acc {
                    Some(acc) => format!("{} + {text}", self.names.value(*acc)),
                    None => text,
                };
                self.assign(depth, *dst, DType::F32, &text);
            }
            Op::Reduce { dst, src, axis, monoid, acc } => {
                let text = self.reduce(*src, *axis, monoid, *acc);
                self.assign(depth, *dst, DType::F32, &text);
            }
            Op::Pick { dst, src, axis, at, fill } => {
                let (from, axis) = (self.names.value(*src), self.names.axis(*axis));
                let text = format!("pick {from}[{axis} = {}] else {}", self.names.coord(at, None), expr::number(*fill));
                let expected = self.kernel.values.get(src.at()).map_or(DType::F32, |v| v.dtype);
                self.assign(depth, *dst, expected, &text);
            }
            Op::Stream { axis, within, guards, states, body } => {
                self.states(depth, states, |p, s| match &s.init {
                    Init::Const(v) => expr::number(*v),
                    Init::Value(v) => p.names.value(*v).to_string(),
                });
                let mut head = format!("stream {}", self.with_tile(*axis));
                if !within.all.is_empty() {
                    let _ = write!(head, " while {}", self.names.predicate(within));
                }
                for (k, guard) in guards.iter().enumerate() {
                    let text = self.names.guard(guard, &|e| self.element(e.of, &e.at));
                    let _ = write!(head, "{}{text}", if k == 0 { " where some " } else { " and some " });
                }
                self.line(depth, &head);
                self.ops(body, depth + 1);
                self.states(depth + 1, states, |p, s| p.names.value(s.next).to_string());
            }
            Op::SkipUnless { any } => {
                let text = format!("skip unless any {}", self.names.value(*any));
                self.line(depth, &text);
            }
        }
    }

    /// The factor that holds `dst`'s rows stands first, and each is shown the way round that makes it a product of
    /// matrices.
    fn mma(&self, dst: ValueId, a: ValueId, b: ValueId) -> String {
        let axes = |v: ValueId| self.kernel.values.get(v.at()).map_or((None, None), |v| (v.rows, v.cols));
        let has = |v: ValueId, axis: Option<AxisId>| axis.is_some() && (axes(v).0 == axis || axes(v).1 == axis);
        let (rows, cols) = axes(dst);
        let (a, b) = if has(a, cols) || has(b, rows) { (b, a) } else { (a, b) };
        let shared = [axes(a).0, axes(a).1].into_iter().find(|&x| has(b, x)).flatten();
        let turned = |stands: bool| if stands { "" } else { "ᵀ" };
        let left = turned(axes(a).1 == shared);
        let right = turned(axes(b).0 == shared);
        format!("mma {}{left} · {}{right}", self.names.value(a), self.names.value(b))
    }

    fn reduce(&self, src: ValueId, axis: AxisId, monoid: &TileMonoid, acc: Option<ValueId>) -> String {
        let name = match monoid {
            TileMonoid::Sum => "sum",
            TileMonoid::Prod => "prod",
            TileMonoid::Max => "max",
            TileMonoid::Min => "min",
            TileMonoid::Custom { name, .. } => name,
        };
        let text = format!("{name}({}) {}", self.names.axis(axis), self.names.value(src));
        let Some(acc) = acc.map(|v| self.names.value(v)) else { return text };
        match monoid {
            TileMonoid::Sum => format!("{acc} + {text}"),
            TileMonoid::Prod => format!("{acc} * {text}"),
            _ => format!("{name}({acc}, {text})"),
        }
    }

    /// `A, B = x, y`, or nothing without states.
    fn states(&mut self, depth: usize, states: &[State], right: impl Fn(&Self, &State) -> String) {
        if states.is_empty() {
            return;
        }
        let left: Vec<&str> = states.iter().map(|s| self.names.value(s.value)).collect();
        let right: Vec<String> = states.iter().map(|s| right(self, s)).collect();
        let text = format!("{} = {}", left.join(", "), right.join(", "));
        self.line(depth, &text);
    }

    fn assign(&mut self, depth: usize, dst: ValueId, expected: DType, text: &str) {
        let text = format!("{}{} = {text}", self.names.value(dst), self.type_note(dst, expected));
        self.line(depth, &text);
    }

    /// As `assign`, naming the axes where the expression alone would not tell them.
    fn assign_shaped(&mut self, depth: usize, dst: ValueId, shaped: bool, text: &str) {
        let shape = if shaped { self.names.shape(dst) } else { String::new() };
        let text = format!("{}{shape}{} = {text}", self.names.value(dst), self.type_note(dst, DType::F32));
        self.line(depth, &text);
    }

    fn type_note(&self, value: ValueId, expected: DType) -> String {
        match self.kernel.values.get(value.at()) {
            Some(v) if v.dtype != expected => format!(": {}", v.dtype),
            _ => String::new(),
        }
    }

    fn element(&self, tensor: TensorId, at: &[crate::Coord]) -> String {
        let dims = self.program.tensors.get(tensor.at()).map_or(&[][..], |t| &t.dims);
        let coords: Vec<String> =
            at.iter().enumerate().map(|(k, c)| self.names.coord(c, dims.get(k).copied())).collect();
        format!("{}[{}]", self.tensor(tensor), coords.join(", "))
    }

    fn tensor(&self, id: TensorId) -> &str {
        self.program.tensors.get(id.at()).map_or("?", |t| &t.name)
    }

    fn with_tile(&self, axis: AxisId) -> String {
        match self.kernel.axes.get(axis.at()) {
            Some(Axis { tile, kind, .. }) if *tile > 1 && *kind != AxisKind::Whole => {
                format!("{} by {tile}", self.names.axis(axis))
            }
            _ => self.names.axis(axis).to_string(),
        }
    }

    fn line(&mut self, depth: usize, text: &str) {
        let _ = writeln!(self.out, "{:1$}{text}", "", 2 * depth);
    }
}

/// The tensors that the operations read and write, each once, in order of first use.
fn tensors(ops: &[Op], read: &mut Vec<TensorId>, written: &mut Vec<TensorId>) {
    for op in ops {
        match op {
            Op::Load { tensor, .. } if !read.contains(tensor) => read.push(*tensor),
            Op::Store { tensor, .. } if !written.contains(tensor) => written.push(*tensor),
            Op::Stream { guards, body, .. } => {
                for t in guards.iter().flat_map(|g| g.tensors()) {
                    if !read.contains(&t) {
                        read.push(t);
                    }
                }
                tensors(body, read, written);
            }
            _ => {}
        }
    }
}
