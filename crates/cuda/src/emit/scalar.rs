//! Elementwise operations.

use super::element::Emitter;
use super::type_name;
use crate::schedule::facts::leaves;
use crate::schedule::{Carrier, FrameId, Side, narrow};
use einloom_cascade::{BinaryOp, DType, UnaryOp};
use einloom_tile::{AxisId, Predicate, Scalar, ValueId};

/// Where an expression is evaluated.
#[derive(Clone, Copy)]
struct Context {
    frame: Option<FrameId>,
    /// In f64, else in f32.
    wide: bool,
    /// Whether the result may be off by a relative 2^-20: see `schedule::tolerance`.
    short: bool,
}

impl Emitter<'_> {
    /// `dst = expr`, elementwise.
    pub fn map(&mut self, dst: ValueId, expr: &Scalar) {
        let frame = self.frame_of(dst);
        self.declare(dst, frame);
        if let (true, Some(f)) = (self.is_packed(dst, frame), frame) {
            let context = self.context(dst, expr, frame);
            return self.map_pairs(dst, f, &self.value(expr, context));
        }
        let value = self.mapped(dst, expr, frame);
        let loops = self.each_element(dst, frame);
        let line = format!("{} = {value};", self.element(dst, frame));
        self.w.line(line);
        self.close(loops);
    }

    /// The element `(i, j)` of a tile that is computed where it is read.
    pub fn inlined(&self, v: ValueId, frame: Option<FrameId>) -> String {
        match crate::schedule::inline::definition(&self.facts, v) {
            Some(expr) => format!("({})", self.mapped(v, expr, frame)),
            // A load that is made where its tile is stored: see `Emitter::store`.
            None => {
                let (name, dtype) = (self.names.value(v), type_name(self.facts.dtype(v)));
                format!("{dtype}::half({name}.x[j % {name}_in / 2], j % 2)")
            }
        }
    }

    /// An element of a map's result.
    fn mapped(&self, dst: ValueId, expr: &Scalar, frame: Option<FrameId>) -> String {
        let dtype = self.facts.dtype(dst);
        let context = self.context(dst, expr, frame);
        if dtype == DType::B1 {
            format!("{} ? 1.0f : 0.0f", self.condition(expr, context))
        } else {
            self.rounded(dtype, &self.value(expr, context), context.wide)
        }
    }

    fn context(&self, dst: ValueId, expr: &Scalar, frame: Option<FrameId>) -> Context {
        let dtype = self.facts.dtype(dst);
        let wide = self.facts.kernel.rounds_wide(dtype, expr);
        // Of a vector there are few elements: there is nothing to save.
        let axes = |v: u32| self.facts.axes(ValueId(v)).len();
        let largest = (0..self.facts.kernel.values.len() as u32).map(axes).max().unwrap_or(0);
        let short = narrow(dtype) || self.facts.loose.contains(&dst) && axes(dst.0) == largest;
        Context { frame, wide, short }
    }

    /// Sets a packed tile, two neighbours at a time.
    fn map_pairs(&mut self, dst: ValueId, frame: FrameId, value: &str) {
        let down = self.along(dst, frame, Side::Down);
        if let Some(a) = down {
            let count = self.span(frame, a).count;
            self.w.unrolled("i", count);
        }
        let pairs = self.along(dst, frame, Side::Across).map_or(1, |a| self.span(frame, a).count / 2);
        self.w.unrolled("y", pairs);
        self.w.line("float pair[2];");
        self.w.unrolled("e", 2);
        self.w.line("const int j = 2 * y + e;");
        self.fused(dst, frame);
        self.w.line(format!("pair[e] = {};", bare(value)));
        self.w.close("");
        let target = format!("{}{}", self.variable_of(dst, Some(frame)), self.brackets(dst, Some(frame), "i", "y"));
        self.w.line(format!("{target} = {}::pair(pair[0], pair[1]);", type_name(self.facts.dtype(dst))));
        self.w.close("");
        if down.is_some() {
            self.w.close("");
        }
    }

    /// The element that a packed tile is made from, added to its thread's part of a sum.
    fn fused(&mut self, dst: ValueId, frame: FrameId) {
        let Some(fused) = self.schedule.fused.get(&dst).copied() else { return };
        let v = fused.source;
        let Some(expr) = crate::schedule::inline::definition(&self.facts, v) else { return };
        let line = format!("const float {} = {};", self.names.value(v), bare(&self.mapped(v, expr, Some(frame))));
        self.w.line(line);
        self.add_element(fused.reduction, v, frame);
    }

    /// A value of the number type, from a float, or from a double if `wide`.
    pub fn rounded(&self, dtype: DType, value: &str, wide: bool) -> String {
        match (dtype, wide) {
            (DType::F32, false) | (DType::F64, true) => bare(value),
            (DType::F64, false) => format!("static_cast<double>({})", bare(value)),
            _ => format!("{}::round({})", type_name(dtype), bare(value)),
        }
    }

    /// A monoid's combination of two values of the type that reductions use.
    pub fn combination(&self, combine: &Scalar, a: &str, b: &str, wide: bool) -> String {
        let context = Context { frame: None, wide, short: false };
        let text = self.value(combine, context);
        text.replace("argument0", a).replace("argument1", b)
    }

    fn value(&self, expr: &Scalar, context: Context) -> String {
        let Context { frame, wide, short } = context;
        let exact = Context { short: false, ..context };
        match expr {
            Scalar::Const(x) => literal(*x, wide),
            Scalar::Tile(v) => {
                let element = self.element(*v, frame);
                match (self.facts.carrier(*v), wide) {
                    (Carrier::F32, false) | (Carrier::F64, true) => element,
                    _ => format!("{}({element})", number(wide)),
                }
            }
            Scalar::Position(axis) => format!("{}({})", number(wide), self.absolute(*axis, frame)),
            Scalar::Argument(k) => format!("argument{k}"),
            Scalar::Round(dtype, x) => {
                // As wide as it is, whatever is around it.
                let own = self.facts.kernel.rounds_wide(*dtype, x);
                let inner = self.value(x, Context { wide: own, ..exact });
                match (self.rounded(*dtype, &inner, own), own, *dtype) {
                    (inner, false, DType::F32) if !wide => format!("({inner})"),
                    (inner, ..) => format!("{}({})", number(wide), bare(&inner)),
                }
            }
            Scalar::Within(_) | Scalar::Unary(UnaryOp::Not, _) => self.truth(expr, exact),
            Scalar::Binary(op, ..) if op.is_predicate() => self.truth(expr, exact),
            Scalar::Unary(UnaryOp::Neg, x) => format!("(-{})", self.value(x, context)),
            Scalar::Unary(UnaryOp::Exp, x) if short && !wide => self.exp_short(x, exact),
            Scalar::Unary(op @ (UnaryOp::Sigmoid | UnaryOp::Silu), x) if short && !wide => {
                format!("{}short({})", function(*op), bare(&self.value(x, exact)))
            }
            // Some ulp are no more than what comes with the argument.
            Scalar::Unary(UnaryOp::Tanh, x) if !wide && self.is_computed(x) => {
                format!("tanh_short({})", bare(&self.value(x, exact)))
            }
            Scalar::Unary(op, x) => format!("{}({})", function(*op), bare(&self.value(x, exact))),
            Scalar::Binary(BinaryOp::Mul, a, b) => {
                format!("({} * {})", self.value(a, context), self.value(b, context))
            }
            Scalar::Binary(BinaryOp::Div, a, b) => {
                let (a, b) = (self.value(a, context), self.value(b, context));
                let name = if short && !wide { "divide_short" } else { "divide" };
                format!("{name}({}, {})", bare(&a), bare(&b))
            }
            // A library's function takes some eighty instructions.
            Scalar::Binary(BinaryOp::Pow, x, exponent) if let Some(times) = few(exponent) => {
                format!("power_<{times}>({})", bare(&self.value(x, exact)))
            }
            Scalar::Binary(BinaryOp::Pow, x, exponent) if !wide && let Some([high, low]) = log2_of(x) => {
                let [high, low] = [high, low].map(|x| literal(x.into(), false));
                format!("power_of({}, {high}, {low})", bare(&self.value(exponent, exact)))
            }
            Scalar::Binary(op, a, b) => {
                let (a, b) = (self.value(a, exact), self.value(b, exact));
                match op {
                    BinaryOp::Pow => format!("pow_({}, {})", bare(&a), bare(&b)),
                    BinaryOp::Min => format!("min_({}, {})", bare(&a), bare(&b)),
                    BinaryOp::Max => format!("max_({}, {})", bare(&a), bare(&b)),
                    _ => format!("({a} {} {b})", op.symbol()),
                }
            }
            Scalar::Select(c, a, b) => {
                let c = self.condition(c, exact);
                format!("({c} ? {} : {})", self.value(a, context), self.value(b, context))
            }
        }
    }

    /// Whether the expression carries roundings of f32 sums.
    fn is_computed(&self, expr: &Scalar) -> bool {
        let mut computed = false;
        leaves(expr, &mut |v| computed |= self.facts.rounded.contains(&v));
        computed
    }

    /// `exp(x)` to 2^-20. A difference of which the first part carries roundings of f32 sums may be off by another one of
    /// that size: then its scaling, by log2(e) and by a constant that it is multiplied with, is one with the subtraction.
    fn exp_short(&self, x: &Scalar, exact: Context) -> String {
        let Scalar::Binary(BinaryOp::Sub, a, b) = x else {
            return format!("exp_short({})", bare(&self.value(x, exact)));
        };
        if !self.is_computed(a) {
            return format!("exp_short({})", bare(&self.value(x, exact)));
        }
        let b = self.value(b, exact);
        if let Scalar::Binary(BinaryOp::Mul, x, c) = &**a
            && let Scalar::Const(c) = **c
        {
            let scale = literal(c * std::f64::consts::LOG2_E, false);
            return format!("exp_short_scaled({}, {scale}, {})", bare(&self.value(x, exact)), bare(&b));
        }
        format!("exp_short_difference({}, {})", bare(&self.value(a, exact)), bare(&b))
    }

    /// A condition as a number.
    fn truth(&self, expr: &Scalar, context: Context) -> String {
        let condition = self.condition(expr, context);
        if context.wide { format!("({condition} ? 1.0 : 0.0)") } else { format!("({condition} ? 1.0f : 0.0f)") }
    }

    /// An expression as a condition: whether it is not 0.
    fn condition(&self, expr: &Scalar, context: Context) -> String {
        match self.open.last() {
            Some(&axis) if !matches!(expr, Scalar::Within(_)) && self.is_guarded(expr) => {
                format!("({}_full || {})", self.names.axis(axis), self.tested(expr, context))
            }
            _ => self.tested(expr, context),
        }
    }

    fn tested(&self, expr: &Scalar, context: Context) -> String {
        let context = Context { short: false, ..context };
        match expr {
            Scalar::Within(predicate) => self.holds(predicate, context.frame),
            Scalar::Unary(UnaryOp::Not, x) => format!("!{}", self.condition(x, context)),
            Scalar::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) => {
                let op = if *op == BinaryOp::And { "&&" } else { "||" };
                format!("({} {op} {})", self.condition(a, context), self.condition(b, context))
            }
            // Whole numbers as they are: no conversion, and the same answer.
            Scalar::Binary(op, a, b) if op.is_comparison() && self.is_whole(a) && self.is_whole(b) => {
                let [a, b] = [a, b].map(|x| match &**x {
                    Scalar::Tile(v) => self.element(*v, context.frame),
                    other => self.value(other, context),
                });
                format!("({a} {} {b})", op.symbol())
            }
            Scalar::Binary(op, a, b) if op.is_comparison() => {
                // As wide as they are, whatever they decide.
                let wide = self.is_wide(a, context) || self.is_wide(b, context);
                let context = Context { wide, ..context };
                if let (Some(a), Some(b)) = (self.whole(a, context.frame), self.whole(b, context.frame)) {
                    return format!("({} {} {})", a.text, op.symbol(), b.text);
                }
                format!("({} {} {})", self.value(a, context), op.symbol(), self.value(b, context))
            }
            Scalar::Const(x) => if *x != 0.0 { "true" } else { "false" }.to_string(),
            _ => {
                let wide = self.is_wide(expr, context);
                format!("({} != {})", self.value(expr, Context { wide, ..context }), literal(0.0, wide))
            }
        }
    }

    /// Whether what is decided about is computed in f64. A monoid's arguments are as wide as its reduction.
    fn is_wide(&self, expr: &Scalar, context: Context) -> bool {
        self.facts.kernel.is_wide(expr) || context.wide && has_arguments(expr)
    }

    /// Whether the expression is an element of a tile that is held in integer registers.
    fn is_whole(&self, expr: &Scalar) -> bool {
        matches!(expr, Scalar::Tile(v) if self.facts.carrier(*v) == Carrier::I32)
    }

    /// Whether a predicate holds at the element. In a full chunk of the innermost stream it does everywhere.
    fn holds(&self, predicate: &Predicate, frame: Option<FrameId>) -> String {
        let small = |c: i64| c.unsigned_abs() < 1 << 30;
        let narrow = predicate.all.iter().all(|a| small(a.constant) && a.terms.iter().all(|t| t.0.abs() == 1));
        let near = predicate.all.iter().flat_map(|a| &a.terms).all(|t| self.facts.kernel.axis(t.1).extent < 1 << 28);
        let tests: Vec<String> = predicate
            .all
            .iter()
            .map(|affine| {
                let mut sum = affine.constant.to_string();
                if !(narrow && near) {
                    for &(c, axis) in &affine.terms {
                        sum =
                            super::element::add(&sum, c, &format!("static_cast<i64>({})", self.absolute(axis, frame)));
                    }
                    return format!("{sum} >= 0");
                }
                // What the unrolled loops count stands on the right, so that a test is one comparison with a constant.
                let mut counted = "0".to_string();
                for &(c, axis) in &affine.terms {
                    let (first, offset) = self.absolute_parts(axis, frame);
                    sum = super::element::add(&sum, c, &first);
                    counted = super::element::add(&counted, -c, &offset);
                }
                format!("{sum} >= {counted}")
            })
            .collect();
        if tests.is_empty() {
            return "true".to_string();
        }
        let tests = tests.join(" && ");
        match self.open.last() {
            Some(&axis) => format!("({}_full || ({tests}))", self.names.axis(axis)),
            None => format!("({tests})"),
        }
    }

    /// The element's position along an axis: a thread's first, and how far the element is from it.
    fn absolute_parts(&self, axis: AxisId, frame: Option<FrameId>) -> (String, String) {
        let grouped = |text: String| if text.contains(' ') { format!("({text})") } else { text };
        let base = self.base(axis);
        let side = frame.and_then(|f| self.schedule.frame(f).sides.get(&axis).map(|&s| (f, s)));
        match side {
            Some((f, side)) if self.facts.wide(axis) => {
                let at = self.at(f, axis);
                let position = self.position(f, axis, super::element::variable(side));
                let offset = position.strip_prefix(&format!("{at} + ")).unwrap_or("0").to_string();
                (grouped(super::element::add(&base, 1, &at)), grouped(offset))
            }
            _ => (base, "0".to_string()),
        }
    }

    /// The element's position along an axis, as an integer.
    pub fn absolute(&self, axis: AxisId, frame: Option<FrameId>) -> String {
        let base = self.base(axis);
        let side = frame.and_then(|f| self.schedule.frame(f).sides.get(&axis).map(|&s| (f, s)));
        match side {
            Some((f, side)) if self.facts.wide(axis) => {
                super::element::add(&base, 1, &self.position(f, axis, super::element::variable(side)))
            }
            _ => base,
        }
    }
}

fn has_arguments(expr: &Scalar) -> bool {
    match expr {
        Scalar::Argument(_) => true,
        Scalar::Round(_, x) | Scalar::Unary(_, x) => has_arguments(x),
        Scalar::Binary(_, x, y) => has_arguments(x) || has_arguments(y),
        Scalar::Select(c, x, y) => [c, x, y].into_iter().any(|e| has_arguments(e)),
        Scalar::Const(_) | Scalar::Tile(_) | Scalar::Position(_) | Scalar::Within(_) => false,
    }
}

fn number(wide: bool) -> &'static str {
    if wide { "double" } else { "float" }
}

/// Without one pair of parentheses around it all.
pub(super) fn bare(text: &str) -> String {
    let inner = text.strip_prefix('(').and_then(|t| t.strip_suffix(')'));
    let Some(inner) = inner else { return text.to_string() };
    let mut depth = 0i32;
    for c in inner.chars() {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        if depth < 0 {
            return text.to_string();
        }
    }
    inner.to_string()
}

/// A constant as a literal of double, or rounded to float.
pub(super) fn literal(x: f64, wide: bool) -> String {
    if x.is_nan() {
        return if wide { "static_cast<double>(nan_())" } else { "nan_()" }.to_string();
    }
    let narrowed = x as f32;
    if wide && x.is_infinite() || !wide && narrowed.is_infinite() {
        let inf = if wide { "static_cast<double>(inf())" } else { "inf()" };
        return if x < 0.0 { format!("(-{inf})") } else { inf.to_string() };
    }
    let text = if wide { format!("{x:?}") } else { format!("{narrowed:?}f") };
    if x.is_sign_negative() { format!("({text})") } else { text }
}

fn function(op: UnaryOp) -> &'static str {
    match op {
        UnaryOp::Neg => "-",
        UnaryOp::Not => "!",
        UnaryOp::Abs => "abs_",
        UnaryOp::Exp => "exp_",
        UnaryOp::Exp2 => "exp2_",
        UnaryOp::Log => "log_",
        UnaryOp::Log2 => "log2_",
        UnaryOp::Log1p => "log1p_",
        UnaryOp::Sqrt => "sqrt_",
        UnaryOp::Rsqrt => "rsqrt_",
        UnaryOp::Tanh => "tanh_",
        UnaryOp::Sigmoid => "sigmoid_",
        UnaryOp::Erf => "erf_",
        UnaryOp::Sin => "sin_",
        UnaryOp::Cos => "cos_",
        UnaryOp::Floor => "floor_",
        UnaryOp::Round => "round_",
        UnaryOp::Sign => "sign_",
        UnaryOp::Relu => "relu_",
        UnaryOp::Silu => "silu_",
        UnaryOp::Gelu => "gelu_",
    }
}

/// The binary logarithm of a constant in two parts, if all of its powers are powers of two: if it is a number above 0 and not 1.
fn log2_of(base: &Scalar) -> Option<[f32; 2]> {
    let Scalar::Const(c) = base else { return None };
    // As f32 has it, which is what is raised.
    let c = f64::from(*c as f32);
    if !(c.is_normal() && c.is_sign_positive() && c != 1.0) {
        return None;
    }
    let log2 = c.log2();
    let high = log2 as f32;
    Some([high, (log2 - f64::from(high)) as f32])
}

/// How many factors a power is a product of, if that is few.
fn few(exponent: &Scalar) -> Option<u8> {
    let Scalar::Const(c) = exponent else { return None };
    [2u8, 3, 4].into_iter().find(|n| f64::from(*n) == *c)
}
