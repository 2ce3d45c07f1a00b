//! Elementwise operations.

use super::element::Emitter;
use super::type_name;
use crate::schedule::{Carrier, FrameId, Side};
use einloom_cascade::{BinaryOp, DType, UnaryOp};
use einloom_tile::{AxisId, Predicate, Scalar, ValueId};

/// Where an expression is evaluated.
#[derive(Clone, Copy)]
struct Context {
    frame: Option<FrameId>,
    /// In f64, else in f32.
    wide: bool,
    /// Whether the result's relative error may be as large as that of the short exponential, because it is rounded
    /// to 11 bits or fewer and only products stand between.
    short: bool,
}

impl Emitter<'_> {
    /// `dst = expr`, elementwise.
    pub fn map(&mut self, dst: ValueId, expr: &Scalar) {
        let frame = self.frame_of(dst);
        let dtype = self.facts.dtype(dst);
        let wide = dtype == DType::F64 || dtype == DType::I32 || self.is_wide(expr);
        let short = matches!(dtype, DType::Bf16 | DType::F16 | DType::E4m3 | DType::E5m2);
        let context = Context { frame, wide, short };
        let value = if dtype == DType::B1 {
            format!("{} ? 1.0f : 0.0f", self.condition(expr, context))
        } else {
            self.rounded(dtype, &self.value(expr, context), wide)
        };
        self.declare(dst, frame);
        if let (true, Some(f)) = (self.is_packed(dst, frame), frame) {
            return self.map_pairs(dst, f, &self.value(expr, context));
        }
        let loops = self.each_element(dst, frame);
        let line = format!("{} = {value};", self.element(dst, frame));
        self.w.line(line);
        self.close(loops);
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
        self.w.line(format!("pair[e] = {};", bare(value)));
        self.w.close("");
        let target = format!("{}{}", self.variable_of(dst, Some(frame)), self.brackets(dst, Some(frame), "i", "y"));
        self.w.line(format!("{target} = {}::pair(pair[0], pair[1]);", type_name(self.facts.dtype(dst))));
        self.w.close("");
        if down.is_some() {
            self.w.close("");
        }
    }

    /// A value of the number type, from a float, or from a double if `wide`.
    pub fn rounded(&self, dtype: DType, value: &str, wide: bool) -> String {
        match (dtype, wide) {
            (DType::F32, false) | (DType::F64, true) => bare(value),
            (DType::F64, false) => format!("static_cast<double>({})", bare(value)),
            _ => format!("{}::round({})", type_name(dtype), bare(value)),
        }
    }

    /// Whether it must be computed in f64: see [`Scalar`].
    fn is_wide(&self, expr: &Scalar) -> bool {
        let far = |axis: AxisId| self.facts.kernel.axis(axis).extent > 1 << 24;
        match expr {
            Scalar::Tile(v) => matches!(self.facts.dtype(*v), DType::F64 | DType::I32),
            Scalar::Position(axis) => far(*axis),
            Scalar::Const(_) | Scalar::Within(_) | Scalar::Argument(_) => false,
            Scalar::Round(_, x) | Scalar::Unary(_, x) => self.is_wide(x),
            Scalar::Binary(_, x, y) => self.is_wide(x) || self.is_wide(y),
            Scalar::Select(c, x, y) => self.is_wide(c) || self.is_wide(x) || self.is_wide(y),
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
                let inner = self.value(x, exact);
                format!("{}({}::round({}))", number(wide), type_name(*dtype), bare(&inner))
            }
            Scalar::Within(_) | Scalar::Unary(UnaryOp::Not, _) => self.truth(expr, exact),
            Scalar::Binary(op, ..) if op.is_predicate() => self.truth(expr, exact),
            Scalar::Unary(UnaryOp::Neg, x) => format!("(-{})", self.value(x, context)),
            Scalar::Unary(UnaryOp::Exp, x) if short && !wide => match &**x {
                Scalar::Binary(BinaryOp::Sub, a, b) => {
                    let (a, b) = (self.value(a, exact), self.value(b, exact));
                    format!("exp_short_difference({}, {})", bare(&a), bare(&b))
                }
                x => format!("exp_short({})", bare(&self.value(x, exact))),
            },
            Scalar::Unary(op, x) => format!("{}({})", function(*op), bare(&self.value(x, exact))),
            Scalar::Binary(BinaryOp::Mul, a, b) => {
                format!("({} * {})", self.value(a, context), self.value(b, context))
            }
            Scalar::Binary(BinaryOp::Div, a, b) => {
                let (a, b) = (self.value(a, context), self.value(b, context));
                format!("divide({}, {})", bare(&a), bare(&b))
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

    /// A condition as a number.
    fn truth(&self, expr: &Scalar, context: Context) -> String {
        let condition = self.condition(expr, context);
        if context.wide { format!("({condition} ? 1.0 : 0.0)") } else { format!("({condition} ? 1.0f : 0.0f)") }
    }

    /// An expression as a condition: whether it is not 0.
    fn condition(&self, expr: &Scalar, context: Context) -> String {
        let context = Context { short: false, ..context };
        match expr {
            Scalar::Within(predicate) => self.holds(predicate, context.frame),
            Scalar::Unary(UnaryOp::Not, x) => format!("!{}", self.condition(x, context)),
            Scalar::Binary(op @ (BinaryOp::And | BinaryOp::Or), a, b) => {
                let op = if *op == BinaryOp::And { "&&" } else { "||" };
                format!("({} {op} {})", self.condition(a, context), self.condition(b, context))
            }
            Scalar::Binary(op, a, b) if op.is_comparison() => {
                format!("({} {} {})", self.value(a, context), op.symbol(), self.value(b, context))
            }
            Scalar::Const(x) => if *x != 0.0 { "true" } else { "false" }.to_string(),
            _ => format!("({} != {})", self.value(expr, context), literal(0.0, context.wide)),
        }
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
                for &(c, axis) in &affine.terms {
                    let at = self.absolute(axis, frame);
                    let at = if at.contains(' ') { format!("({at})") } else { at };
                    let at = if narrow && near { at } else { format!("static_cast<i64>({at})") };
                    sum = super::element::add(&sum, c, &at);
                }
                format!("{sum} >= 0")
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
