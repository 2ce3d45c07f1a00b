//! Guards: the test of a chunk by intervals, as straight code without a branch, the same in every thread that runs it.
//!
//! Every role computes it from the same windows, tensors and constants in the same number type, so that a producer
//! leaves out exactly the chunks that its consumers do.

use super::element::{Emitter, add};
use super::scalar::literal;
use super::type_name;
use crate::schedule::facts::written;
use einloom_cascade::{BinaryOp, UnaryOp};
use einloom_tile::{AROUND, Affine, AxisId, Coord, Extremes, Guard, Op, Scalar, TensorId, ValueId};

/// A part of a guard: the names of its bounds, or constants.
#[derive(Clone)]
enum Part {
    /// The smallest and the largest value.
    Number([String; 2]),
    /// Whether it may hold, and whether it must.
    Truth([String; 2]),
}

/// The names of parts, one after the other, and the number type.
struct Parts {
    count: usize,
    wide: bool,
}

impl Parts {
    fn number(&self) -> &'static str {
        if self.wide { "double" } else { "float" }
    }
}

impl Emitter<'_> {
    /// Declares `axis_reach`, which tells of the chunk at a position whether the guards hold nowhere (0), perhaps (1) or
    /// everywhere (2), and `axis_next`, the first position from one on at which they may. Nothing without guards.
    pub(super) fn guards(&mut self, axis: AxisId, guards: &[Guard]) {
        if guards.is_empty() {
            return;
        }
        let name = self.names.axis(axis).to_string();
        let tile = self.facts.kernel.axis(axis).tile;
        let wide = !guards.iter().all(|g| g.fits_f32(self.facts.program, self.facts.kernel));
        let mut parts = Parts { count: 0, wide };
        self.w.line("// Whether the chunk's conditions hold nowhere, perhaps or everywhere, by intervals.");
        self.w.open(format!("const auto {name}_reach = [&](const int {name}_base)"));
        self.w.line(format!("const int {name}_len = min_int({tile}, {name}_end - {name}_base);"));
        let (mut may, mut must) = (vec![], vec![]);
        for guard in guards {
            let part = self.part(guard, &mut parts);
            let [may_hold, must_hold] = self.truth_of(part, &mut parts);
            may.push(may_hold);
            must.push(must_hold);
        }
        self.w.line(format!("return {} ? ({} ? 2 : 1) : 0;", may.join(" && "), must.join(" && ")));
        self.w.close(";");
        self.w.open(format!("const auto {name}_next = [&](int {name}_base, int& {name}_kind)"));
        self.w.line(format!(
            "while ({name}_base < {name}_end && ({name}_kind = {name}_reach({name}_base)) == 0) {name}_base += {tile};"
        ));
        self.w.line(format!("return {name}_base;"));
        self.w.close(";");
    }

    /// Whether the innermost stream's guards say that the condition holds in its full chunks.
    pub(super) fn is_guarded(&self, condition: &Scalar) -> bool {
        let Some(guards) = self.conditions.last() else { return false };
        let made = |v: ValueId| maker(&self.facts.kernel.body, v);
        guards.iter().any(|g| g.is_tested_by(condition, &made))
    }

    fn declare_part(&mut self, parts: &mut Parts, kind: &str, values: [String; 2]) -> [String; 2] {
        let k = parts.count;
        parts.count += 1;
        let ends = if kind == "bool" { ["may", "must"] } else { ["low", "high"] };
        let names = ends.map(|end| format!("{end}{k}"));
        for (name, value) in names.iter().zip(values) {
            self.w.line(format!("const {kind} {name} = {value};"));
        }
        names
    }

    fn part(&mut self, guard: &Guard, parts: &mut Parts) -> Part {
        let (number, wide) = (parts.number(), parts.wide);
        match guard {
            Guard::Const(x) => Part::Number([literal(*x, wide), literal(*x, wide)]),
            Guard::Position(a) => {
                let affine = Affine::axis(*a);
                let ends = [false, true].map(|upper| format!("static_cast<{number}>({})", self.bound(&affine, upper)));
                Part::Number(self.declare_part(parts, number, ends))
            }
            Guard::Within(p) => {
                let all = |upper: bool| match p.all.is_empty() {
                    true => "true".to_string(),
                    false => {
                        let tests = p.all.iter().map(|a| format!("{} >= 0", add("0", 1, &self.bound(a, upper))));
                        tests.collect::<Vec<_>>().join(" && ")
                    }
                };
                let ends = [all(true), all(false)];
                Part::Truth(self.declare_part(parts, "bool", ends))
            }
            Guard::Element(e) => {
                let ends = self.extremes(e).map(|x| format!("static_cast<{number}>({x})"));
                Part::Number(self.declare_part(parts, number, ends))
            }
            Guard::Around(x) => {
                let [low, high] = self.number_of(x, parts);
                let by = literal(AROUND, wide);
                let ends = [format!("{low} - abs_({low}) * {by}"), format!("{high} + abs_({high}) * {by}")];
                Part::Number(self.declare_part(parts, number, ends))
            }
            Guard::Unary(UnaryOp::Not, x) => {
                let x = self.part(x, parts);
                let [may, must] = self.truth_of(x, parts);
                Part::Truth([format!("!{must}"), format!("!{may}")])
            }
            Guard::Unary(op, x) => {
                let [low, high] = self.number_of(x, parts);
                let ends = match op {
                    UnaryOp::Neg => [format!("-{high}"), format!("-{low}")],
                    UnaryOp::Abs => {
                        [format!("max_(max_({low}, -{high}), {})", literal(0.0, wide)), format!("max_({high}, -{low})")]
                    }
                    UnaryOp::Round => [format!("round_({low})"), format!("round_({high})")],
                    UnaryOp::Sign => [format!("sign_({low})"), format!("sign_({high})")],
                    _ => [format!("floor_({low})"), format!("floor_({high})")],
                };
                Part::Number(self.declare_part(parts, number, ends))
            }
            Guard::Binary(op @ (BinaryOp::And | BinaryOp::Or), x, y) => {
                let [x, y] = [x, y].map(|g| {
                    let part = self.part(g, parts);
                    self.truth_of(part, parts)
                });
                let op = if *op == BinaryOp::And { "&&" } else { "||" };
                let ends = [0, 1].map(|k| format!("{} {op} {}", x[k], y[k]));
                Part::Truth(self.declare_part(parts, "bool", ends))
            }
            Guard::Binary(op, x, y) => {
                let [x, y] = [x, y].map(|g| self.number_of(g, parts));
                self.binary(*op, [&x[0], &x[1]], [&y[0], &y[1]], parts)
            }
            Guard::Select(c, x, y) => {
                let c = self.part(c, parts);
                let [may, must] = self.truth_of(c, parts);
                let [x, y] = [x, y].map(|g| self.number_of(g, parts));
                let either = [format!("min_({}, {})", x[0], y[0]), format!("max_({}, {})", x[1], y[1])];
                let ends = [0, 1].map(|k| format!("{must} ? {} : {may} ? {} : {}", x[k], either[k], y[k]));
                Part::Number(self.declare_part(parts, number, ends))
            }
        }
    }

    fn binary(&mut self, op: BinaryOp, [a, b]: [&str; 2], [c, d]: [&str; 2], parts: &mut Parts) -> Part {
        // From here on a..b and c..d.
        let extremes = |of: [String; 4]| {
            let [p, q, r, s] = of;
            ["min_", "max_"].map(|f| format!("{f}({f}({p}, {q}), {f}({r}, {s}))"))
        };
        let each = |sign: &str| [(a, c), (a, d), (b, c), (b, d)].map(|(x, y)| format!("{x} {sign} {y}"));
        let equal = [format!("{a} <= {d} && {c} <= {b}"), format!("{a} == {b} && {c} == {d} && {a} == {c}")];
        let ends = match op {
            BinaryOp::Add => [format!("{a} + {c}"), format!("{b} + {d}")],
            BinaryOp::Sub => [format!("{a} - {d}"), format!("{b} - {c}")],
            BinaryOp::Mul => extremes(each("*")),
            BinaryOp::Min => [format!("min_({a}, {c})"), format!("min_({b}, {d})")],
            BinaryOp::Max => [format!("max_({a}, {c})"), format!("max_({b}, {d})")],
            BinaryOp::Lt => [format!("{a} < {d}"), format!("{b} < {c}")],
            BinaryOp::Le => [format!("{a} <= {d}"), format!("{b} <= {c}")],
            BinaryOp::Gt => [format!("{b} > {c}"), format!("{a} > {d}")],
            BinaryOp::Ge => [format!("{b} >= {c}"), format!("{a} >= {d}")],
            BinaryOp::Eq => equal,
            BinaryOp::Ne => {
                let [may, must] = equal;
                [format!("!({must})"), format!("!({may})")]
            }
            // Divisors are constants; powers and logic do not come here.
            _ => extremes(each("/")),
        };
        match op.is_comparison() {
            true => Part::Truth(self.declare_part(parts, "bool", ends)),
            false => Part::Number(self.declare_part(parts, parts.number(), ends)),
        }
    }

    /// The bounds of a number; of a condition, 0 and 1.
    fn number_of(&mut self, guard: &Guard, parts: &mut Parts) -> [String; 2] {
        match self.part(guard, parts) {
            Part::Number(ends) => ends,
            Part::Truth([may, must]) => {
                let [zero, one] = [0.0, 1.0].map(|x| literal(x, parts.wide));
                let number = parts.number();
                self.declare_part(parts, number, [must, may].map(|t| format!("{t} ? {one} : {zero}")))
            }
        }
    }

    /// Whether it may hold and whether it must; of a number, whether it is not 0.
    fn truth_of(&mut self, part: Part, parts: &mut Parts) -> [String; 2] {
        match part {
            Part::Truth(ends) => ends,
            Part::Number([low, high]) => {
                let zero = literal(0.0, parts.wide);
                let ends =
                    [format!("{low} != {zero} || {high} != {zero}"), format!("{low} > {zero} || {high} < {zero}")];
                self.declare_part(parts, "bool", ends)
            }
        }
    }

    /// The smallest and the largest element over the windows.
    fn extremes(&self, e: &Extremes) -> [String; 2] {
        [e.low, e.high].map(|tensor| {
            let element = type_name(self.facts.program.tensor(tensor).dtype);
            format!("{element}::decode({}[{}])", self.names.tensor(tensor), self.offset_of(tensor, &e.places))
        })
    }

    fn offset_of(&self, tensor: TensorId, at: &[Coord]) -> String {
        let mut out = "0".to_string();
        for (coord, stride) in at.iter().zip(self.facts.strides(tensor)) {
            let text = self.coordinate(coord, &|axis| self.base(axis), &|_| "0".to_string());
            out = add(&out, stride, &format!("static_cast<i64>({text})"));
        }
        out
    }
}

/// The operation that makes a tile.
fn maker(body: &[Op], v: ValueId) -> Option<&Op> {
    body.iter().find_map(|op| match op {
        Op::Stream { body, .. } => maker(body, v),
        _ => (written(op) == Some(v)).then_some(op),
    })
}
