//! Spelling of names, coordinates, predicates and scalar expressions.

use crate::{Affine, AxisId, AxisKind, Coord, CoordAtom, Kernel, Predicate, Scalar, ValueId};
use einloom_cascade::{BinaryOp, UnaryOp};
use std::collections::BTreeSet;

/// One kernel's names, made unique: ids alone tell values apart, and a reader needs to as well.
pub(super) struct Names<'a> {
    kernel: &'a Kernel,
    axes: Vec<String>,
    values: Vec<String>,
}

impl<'a> Names<'a> {
    pub(super) fn new(kernel: &'a Kernel) -> Self {
        let mut taken = BTreeSet::new();
        let axes = kernel.axes.iter().map(|a| unique(&a.name, "axis", &mut taken)).collect();
        let mut taken = BTreeSet::new();
        let values = kernel.values.iter().map(|v| unique(&v.name, "tile", &mut taken)).collect();
        Self { kernel, axes, values }
    }

    pub(super) fn axis(&self, id: AxisId) -> &str {
        self.axes.get(id.at()).map_or("?", String::as_str)
    }

    pub(super) fn value(&self, id: ValueId) -> &str {
        self.values.get(id.at()).map_or("?", String::as_str)
    }

    /// The value's axes, as `[m, n]`.
    pub(super) fn shape(&self, id: ValueId) -> String {
        let axes: Vec<&str> = self.sides(id).map(|a| self.axis(a)).collect();
        format!("[{}]", axes.join(", "))
    }

    /// Whether `expr` mentions fewer axes than `dst` has, so that it does not tell `dst`'s shape.
    pub(super) fn spans_fewer_axes(&self, expr: &Scalar, dst: ValueId) -> bool {
        let mut seen = BTreeSet::new();
        self.mentioned(expr, &mut seen);
        self.sides(dst).any(|a| !seen.contains(&a))
    }

    fn sides(&self, id: ValueId) -> impl Iterator<Item = AxisId> {
        self.kernel.values.get(id.at()).into_iter().flat_map(|v| [v.rows, v.cols]).flatten()
    }

    fn mentioned(&self, expr: &Scalar, seen: &mut BTreeSet<AxisId>) {
        match expr {
            Scalar::Const(_) | Scalar::Argument(_) => {}
            Scalar::Tile(v) => seen.extend(self.sides(*v)),
            Scalar::Position(a) => {
                seen.insert(*a);
            }
            Scalar::Within(p) => seen.extend(p.all.iter().flat_map(|e| e.terms.iter().map(|t| t.1))),
            Scalar::Round(_, x) | Scalar::Unary(_, x) => self.mentioned(x, seen),
            Scalar::Binary(_, x, y) => [x, y].into_iter().for_each(|e| self.mentioned(e, seen)),
            Scalar::Select(c, x, y) => [c, x, y].into_iter().for_each(|e| self.mentioned(e, seen)),
        }
    }

    /// A coordinate in a dimension of `extent` elements: `m:128`, `:`, `2*i:64 + r - 1`, `h / 4`, `ids`.
    pub(super) fn coord(&self, coord: &Coord, extent: Option<usize>) -> String {
        if let [(1, CoordAtom::Axis(id))] = coord.terms.as_slice()
            && coord.offset == 0
            && let Some(axis) = self.kernel.axes.get(id.at())
            && axis.kind == AxisKind::Whole
            && Some(axis.extent) == extent
        {
            return ":".to_string();
        }
        let terms = coord.terms.iter().map(|(c, atom)| (*c, self.atom(atom)));
        sum(terms, coord.offset)
    }

    fn atom(&self, atom: &CoordAtom) -> String {
        match atom {
            CoordAtom::Axis(id) => match self.kernel.axes.get(id.at()) {
                Some(a) if a.kind == AxisKind::Whole && a.extent > 1 => format!("{}:{}", self.axis(*id), a.extent),
                Some(a) if a.kind != AxisKind::Whole && a.tile > 1 => format!("{}:{}", self.axis(*id), a.tile),
                _ => self.axis(*id).to_string(),
            },
            CoordAtom::Floor(numerator, denominator) => {
                let text = self.coord(numerator, None);
                let single = numerator.offset == 0 && matches!(numerator.terms.as_slice(), [(1, CoordAtom::Axis(_))]);
                if single { format!("{text} / {denominator}") } else { format!("({text}) / {denominator}") }
            }
            CoordAtom::Tile(id) => self.value(*id).to_string(),
        }
    }

    /// `n <= m and m < n + 8`; `true` for no condition.
    pub(super) fn predicate(&self, predicate: &Predicate) -> String {
        if predicate.all.is_empty() {
            return "true".to_string();
        }
        let parts: Vec<String> = predicate.all.iter().map(|a| self.condition(a)).collect();
        parts.join(" and ")
    }

    /// `affine >= 0`, each term on the side on which it is positive.
    fn condition(&self, affine: &Affine) -> String {
        let side = |sign: i64| {
            let terms = affine.terms.iter().filter(move |t| t.0.signum() == sign);
            terms.map(move |&(c, a)| (c * sign, self.axis(a).to_string()))
        };
        let (small, large) = (side(-1).count(), side(1).count());
        match (small, large, affine.constant) {
            (0, _, c) => format!("{} >= {}", sum(side(1), 0), -c),
            (_, 0, c) => format!("{} <= {c}", sum(side(-1), 0)),
            // Positions are integers: small + 1 <= large is small < large.
            (_, _, -1) => format!("{} < {}", sum(side(-1), 0), sum(side(1), 0)),
            (_, _, c) => format!("{} <= {}", sum(side(-1), (-c).max(0)), sum(side(1), c.max(0))),
        }
    }

    pub(super) fn scalar(&self, expr: &Scalar) -> String {
        self.expr(expr).0
    }

    /// The text and how tightly it binds.
    fn expr(&self, expr: &Scalar) -> (String, u8) {
        match expr {
            Scalar::Const(v) if *v < 0.0 => (number(*v), NEGATION),
            Scalar::Const(v) => (number(*v), ATOM),
            Scalar::Tile(v) => (self.value(*v).to_string(), ATOM),
            Scalar::Position(a) => (self.axis(*a).to_string(), ATOM),
            Scalar::Within(p) => (self.predicate(p), if p.all.len() > 1 { AND } else { COMPARISON }),
            Scalar::Argument(k) => (["a", "b"].get(usize::from(*k)).unwrap_or(&"?").to_string(), ATOM),
            Scalar::Round(dtype, x) => (format!("{dtype}({})", self.scalar(x)), ATOM),
            Scalar::Unary(UnaryOp::Neg, x) => (format!("-{}", self.tight(x, POWER)), NEGATION),
            Scalar::Unary(UnaryOp::Not, x) => (format!("not {}", self.tight(x, COMPARISON)), NOT),
            Scalar::Unary(op, x) => (format!("{}({})", op.name(), self.scalar(x)), ATOM),
            Scalar::Binary(op @ (BinaryOp::Min | BinaryOp::Max), x, y) => {
                (format!("{}({}, {})", op.symbol(), self.scalar(x), self.scalar(y)), ATOM)
            }
            Scalar::Binary(op, x, y) => {
                let own = binding(*op);
                // Left-associative, except `^`; comparisons do not chain.
                let (left, right) = match op {
                    BinaryOp::Pow => (own + 1, own),
                    _ if op.is_comparison() => (own + 1, own + 1),
                    _ => (own, own + 1),
                };
                (format!("{} {} {}", self.tight(x, left), op.symbol(), self.tight(y, right)), own)
            }
            Scalar::Select(c, x, y) => {
                (format!("where({}, {}, {})", self.scalar(c), self.scalar(x), self.scalar(y)), ATOM)
            }
        }
    }

    fn tight(&self, expr: &Scalar, at_least: u8) -> String {
        match self.expr(expr) {
            (text, binds) if binds >= at_least => text,
            (text, _) => format!("({text})"),
        }
    }
}

const OR: u8 = 0;
pub(super) const AND: u8 = 1;
pub(super) const NOT: u8 = 2;
pub(super) const COMPARISON: u8 = 3;
const SUM: u8 = 4;
const PRODUCT: u8 = 5;
pub(super) const NEGATION: u8 = 6;
pub(super) const POWER: u8 = 7;
pub(super) const ATOM: u8 = 8;

pub(super) fn binding(op: BinaryOp) -> u8 {
    match op {
        BinaryOp::Or => OR,
        BinaryOp::And => AND,
        BinaryOp::Add | BinaryOp::Sub => SUM,
        BinaryOp::Mul | BinaryOp::Div => PRODUCT,
        BinaryOp::Pow => POWER,
        BinaryOp::Min | BinaryOp::Max => ATOM,
        _ => COMPARISON,
    }
}

/// A constant, as a source text would write it.
pub(super) fn number(v: f64) -> String {
    if v.is_infinite() {
        return if v > 0.0 { "inf" } else { "-inf" }.to_string();
    }
    if v.fract() == 0.0 && v.abs() < 1e15 && !(v == 0.0 && v.is_sign_negative()) {
        return format!("{}", v as i64);
    }
    format!("{v:?}")
}

fn sum(terms: impl Iterator<Item = (i64, String)>, constant: i64) -> String {
    let mut out = String::new();
    let mut push = |negative: bool, text: &str| {
        out.push_str(match (out.is_empty(), negative) {
            (true, true) => "-",
            (true, false) => "",
            (false, true) => " - ",
            (false, false) => " + ",
        });
        out.push_str(text);
    };
    let mut any = false;
    for (c, name) in terms {
        any = true;
        match c.unsigned_abs() {
            1 => push(c < 0, &name),
            // `2*(h / 4)`: without brackets it would read as a quotient.
            k if name.contains(' ') => push(c < 0, &format!("{k}*({name})")),
            k => push(c < 0, &format!("{k}*{name}")),
        }
    }
    if constant != 0 || !any {
        push(constant < 0, &constant.unsigned_abs().to_string());
    }
    out
}

fn unique(name: &str, anonymous: &str, taken: &mut BTreeSet<String>) -> String {
    let base = if name.is_empty() { anonymous } else { name };
    let mut out = base.to_string();
    let mut k = 2;
    while !taken.insert(out.clone()) {
        out = format!("{base}.{k}");
        k += 1;
    }
    out
}
