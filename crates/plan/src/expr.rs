//! Scalar expressions with sizes and parameters filled in, interned: equal expressions have equal ids, so that a value
//! needed twice is recognised wherever it is written.

use einloom_algebra::NodeId;
use einloom_cascade::{BinaryOp, DType, IndexId, UnaryOp};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;

/// Names an expression of an [`Exprs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ExprId(u32);

/// A constant's bits, so that expressions can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Bits(u64);

/// One operation over other expressions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Expr {
    Const(Bits),
    Position(IndexId),
    /// Every linear form is at least 0.
    Within(Vec<Linear>),
    /// An element of a node.
    Read(NodeId, Vec<Coordinate>),
    /// In a repair: a reduction's running value before the chunk.
    Old(NodeId),
    Argument(u8),
    Round(DType, ExprId),
    Unary(UnaryOp, ExprId),
    Binary(BinaryOp, ExprId, ExprId),
    Select(ExprId, ExprId, ExprId),
}

/// `Σ coefficient · position + constant`, sorted by index, no zero coefficients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Linear {
    pub terms: BTreeMap<IndexId, i64>,
    pub constant: i64,
}

/// `Σ coefficient · atom + offset`, sorted by atom, no zero coefficients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Coordinate {
    pub terms: BTreeMap<Atom, i64>,
    pub offset: i64,
}

/// What a coordinate is affine in.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Atom {
    Index(IndexId),
    /// `floor(numerator / denominator)`, denominator positive.
    Floor(Box<Coordinate>, i64),
    /// An integer expression: a gather.
    Value(ExprId),
}

impl Linear {
    fn scaled(&self, by: i64) -> Option<Self> {
        let mut out = Self { terms: BTreeMap::new(), constant: self.constant.checked_mul(by)? };
        for (&i, &c) in &self.terms {
            out.add_term(i, c.checked_mul(by)?)?;
        }
        Some(out)
    }

    fn add_term(&mut self, index: IndexId, coefficient: i64) -> Option<()> {
        let c = self.terms.entry(index).or_default();
        *c = c.checked_add(coefficient)?;
        if *c == 0 {
            self.terms.remove(&index);
        }
        Some(())
    }

    fn plus(mut self, other: &Self) -> Option<Self> {
        for (&i, &c) in &other.terms {
            self.add_term(i, c)?;
        }
        self.constant = self.constant.checked_add(other.constant)?;
        Some(self)
    }
}

impl Coordinate {
    pub(crate) fn fixed(offset: i64) -> Self {
        Self { terms: BTreeMap::new(), offset }
    }

    pub(crate) fn index(index: IndexId) -> Self {
        Self { terms: BTreeMap::from([(Atom::Index(index), 1)]), offset: 0 }
    }

    pub(crate) fn push(&mut self, coefficient: i64, atom: Atom) {
        let c = self.terms.entry(atom.clone()).or_default();
        *c = c.saturating_add(coefficient);
        if *c == 0 {
            self.terms.remove(&atom);
        }
    }

    /// Adds `other · by`.
    pub(crate) fn add_scaled(&mut self, other: &Self, by: i64) {
        for (atom, &c) in &other.terms {
            self.push(c.saturating_mul(by), atom.clone());
        }
        self.offset = self.offset.saturating_add(other.offset.saturating_mul(by));
    }

    /// The index and `k` if it is `index + k`.
    pub(crate) fn as_shifted(&self) -> Option<(IndexId, i64)> {
        match self.terms.iter().next() {
            Some((Atom::Index(i), 1)) if self.terms.len() == 1 => Some((*i, self.offset)),
            _ => None,
        }
    }

    /// The index if it is exactly one.
    pub(crate) fn as_index(&self) -> Option<IndexId> {
        self.as_shifted().filter(|s| s.1 == 0).map(|s| s.0)
    }

    /// The position if it does not move.
    pub(crate) fn as_fixed(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.offset)
    }
}

/// All expressions of one planning.
#[derive(Clone, Default)]
pub(crate) struct Exprs {
    pool: Vec<Expr>,
    /// How deep each expression is nested.
    depths: Vec<u32>,
    ids: FxHashMap<Expr, ExprId>,
}

impl Exprs {
    pub(crate) fn get(&self, id: ExprId) -> &Expr {
        &self.pool[id.0 as usize]
    }

    pub(crate) fn intern(&mut self, expr: Expr) -> ExprId {
        if let Some(&id) = self.ids.get(&expr) {
            return id;
        }
        let id = ExprId(self.pool.len() as u32);
        self.pool.push(expr.clone());
        self.ids.insert(expr, id);
        let below = self.children(id).into_iter().map(|c| self.depth(c)).max();
        self.depths.push(below.map_or(0, |d| d + 1));
        id
    }

    /// How deep an expression is nested.
    pub(crate) fn depth(&self, id: ExprId) -> u32 {
        self.depths[id.0 as usize]
    }

    pub(crate) fn constant(&mut self, value: f64) -> ExprId {
        self.intern(Expr::Const(Bits(value.to_bits())))
    }

    pub(crate) fn as_const(&self, id: ExprId) -> Option<f64> {
        if let Expr::Const(bits) = self.get(id) { Some(f64::from_bits(bits.0)) } else { None }
    }

    pub(crate) fn position(&mut self, index: IndexId) -> ExprId {
        self.intern(Expr::Position(index))
    }

    /// A read at the node's own axes.
    pub(crate) fn plain(&mut self, node: NodeId, axes: &[IndexId]) -> ExprId {
        self.intern(Expr::Read(node, axes.iter().map(|&i| Coordinate::index(i)).collect()))
    }

    pub(crate) fn unary(&mut self, op: UnaryOp, x: ExprId) -> ExprId {
        if let Some(v) = self.as_const(x) {
            return self.constant(op.apply(v));
        }
        if op == UnaryOp::Not
            && let Expr::Within(all) = self.get(x)
            && let [one] = all.as_slice()
            && let Some(mut negated) = one.scaled(-1)
        {
            negated.constant -= 1;
            return self.intern(Expr::Within(vec![negated]));
        }
        if let Some(same) = self.without_overflow(op, x) {
            return same;
        }
        self.intern(Expr::Unary(op, x))
    }

    /// Logarithms of exponentials that leave their type's range where what is asked for does not, in other words:
    /// `log(sigmoid(x)) = min(x, 0) - log1p(exp(-|x|))` and `log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|))`.
    fn without_overflow(&mut self, op: UnaryOp, x: ExprId) -> Option<ExprId> {
        let exponent = |e: ExprId| if let Expr::Unary(UnaryOp::Exp, y) = *self.get(e) { Some(y) } else { None };
        let is_one = |e: ExprId| self.as_const(e) == Some(1.0);
        let (y, outer, with) = match (op, self.get(x)) {
            (UnaryOp::Log, &Expr::Unary(UnaryOp::Sigmoid, y)) => (y, BinaryOp::Min, BinaryOp::Sub),
            (UnaryOp::Log1p, _) => (exponent(x)?, BinaryOp::Max, BinaryOp::Add),
            (UnaryOp::Log, &Expr::Binary(BinaryOp::Add, a, b)) if is_one(a) => {
                (exponent(b)?, BinaryOp::Max, BinaryOp::Add)
            }
            (UnaryOp::Log, &Expr::Binary(BinaryOp::Add, a, b)) if is_one(b) => {
                (exponent(a)?, BinaryOp::Max, BinaryOp::Add)
            }
            _ => return None,
        };
        // Nothing is gained where it is below 0 by its form, and it is that form itself.
        if let Expr::Unary(UnaryOp::Neg, z) = *self.get(y)
            && matches!(self.get(z), Expr::Unary(UnaryOp::Abs, _))
        {
            return None;
        }
        let zero = self.constant(0.0);
        let line = self.binary(outer, y, zero);
        let size = self.unary(UnaryOp::Abs, y);
        let less = self.unary(UnaryOp::Neg, size);
        let weight = self.unary(UnaryOp::Exp, less);
        let rest = self.intern(Expr::Unary(UnaryOp::Log1p, weight));
        Some(self.binary(with, line, rest))
    }

    /// The operation, with constants folded and affine comparisons as [`Expr::Within`].
    pub(crate) fn binary(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> ExprId {
        let (ca, cb) = (self.as_const(a), self.as_const(b));
        match (op, ca, cb) {
            (_, Some(x), Some(y)) => return self.constant(op.apply(x, y)),
            (BinaryOp::Mul, Some(1.0), _) => return b,
            (BinaryOp::Mul | BinaryOp::Div, _, Some(1.0)) => return a,
            // A product by a constant is cheaper than a division, and exact for powers of two.
            (BinaryOp::Div, _, Some(y)) if is_power_of_two(y) => {
                let inverse = self.constant(1.0 / y);
                return self.binary(BinaryOp::Mul, a, inverse);
            }
            (BinaryOp::Sub, _, Some(0.0)) => return a,
            (BinaryOp::And, Some(x), _) if x != 0.0 && self.is_truth(b) => return b,
            (BinaryOp::And, _, Some(y)) if y != 0.0 && self.is_truth(a) => return a,
            _ => {}
        }
        if op.is_comparison()
            && let Some(within) = self.affine_comparison(op, a, b)
        {
            return within;
        }
        if op == BinaryOp::And
            && let (Expr::Within(x), Expr::Within(y)) = (self.get(a), self.get(b))
        {
            let mut all = x.clone();
            all.extend(y.iter().filter(|l| !x.contains(l)).cloned());
            return self.intern(Expr::Within(all));
        }
        self.intern(Expr::Binary(op, a, b))
    }

    pub(crate) fn select(&mut self, condition: ExprId, then: ExprId, otherwise: ExprId) -> ExprId {
        match self.as_const(condition) {
            Some(c) => {
                if c != 0.0 {
                    then
                } else {
                    otherwise
                }
            }
            None if then == otherwise => then,
            None => self.intern(Expr::Select(condition, then, otherwise)),
        }
    }

    pub(crate) fn round(&mut self, dtype: DType, x: ExprId) -> ExprId {
        match self.get(x) {
            Expr::Round(inner, _) if *inner == dtype => x,
            _ => self.intern(Expr::Round(dtype, x)),
        }
    }

    /// Whether its value is 0 or 1.
    pub(crate) fn is_truth(&self, id: ExprId) -> bool {
        match self.get(id) {
            Expr::Within(_) | Expr::Unary(UnaryOp::Not, _) => true,
            Expr::Binary(op, ..) => op.is_predicate(),
            _ => false,
        }
    }

    /// The conditions that all hold where this one does.
    pub(crate) fn conjuncts(&self, id: ExprId) -> Vec<ExprId> {
        match *self.get(id) {
            Expr::Binary(BinaryOp::And, a, b) => [a, b].into_iter().flat_map(|e| self.conjuncts(e)).collect(),
            _ => vec![id],
        }
    }

    /// The direct subexpressions, without those in coordinates.
    pub(crate) fn children(&self, id: ExprId) -> Vec<ExprId> {
        match *self.get(id) {
            Expr::Round(_, x) | Expr::Unary(_, x) => vec![x],
            Expr::Binary(_, a, b) => vec![a, b],
            Expr::Select(c, a, b) => vec![c, a, b],
            _ => vec![],
        }
    }

    /// The same expression over other subexpressions, simplified again.
    pub(crate) fn rebuild(&mut self, id: ExprId, f: &mut impl FnMut(&mut Self, ExprId) -> ExprId) -> ExprId {
        match self.get(id).clone() {
            Expr::Round(d, x) => {
                let x = f(self, x);
                self.round(d, x)
            }
            Expr::Unary(op, x) => {
                let x = f(self, x);
                self.unary(op, x)
            }
            Expr::Binary(op, a, b) => {
                let (a, b) = (f(self, a), f(self, b));
                self.binary(op, a, b)
            }
            Expr::Select(c, a, b) => {
                let (c, a, b) = (f(self, c), f(self, a), f(self, b));
                self.select(c, a, b)
            }
            _ => id,
        }
    }

    /// Coordinates with every gathered value replaced.
    pub(crate) fn map_values(&mut self, at: &Coordinate, f: &mut dyn FnMut(&mut Self, ExprId) -> ExprId) -> Coordinate {
        let mut out = Coordinate::fixed(at.offset);
        for (atom, &c) in &at.terms {
            let atom = match atom {
                Atom::Index(i) => Atom::Index(*i),
                Atom::Floor(n, d) => Atom::Floor(Box::new(self.map_values(n, f)), *d),
                Atom::Value(e) => Atom::Value(f(self, *e)),
            };
            out.push(c, atom);
        }
        out
    }

    fn affine_comparison(&mut self, op: BinaryOp, a: ExprId, b: ExprId) -> Option<ExprId> {
        let ((la, ca), (lb, cb)) = (self.affine(a)?, self.affine(b)?);
        // `difference + constant` compared with 0, where positions are integers and the constant need not be one.
        let at_least = |x: &Linear, y: &Linear, constant: f64, strict: bool| {
            let mut form = x.clone().plus(&y.scaled(-1)?)?;
            let bound = if strict { constant.ceil() - 1.0 } else { constant.floor() };
            if bound.abs() > 9e15 || bound.is_nan() || form.terms.is_empty() {
                return None;
            }
            form.constant = bound as i64;
            Some(form)
        };
        let all = match op {
            BinaryOp::Le => vec![at_least(&lb, &la, cb - ca, false)?],
            BinaryOp::Lt => vec![at_least(&lb, &la, cb - ca, true)?],
            BinaryOp::Ge => vec![at_least(&la, &lb, ca - cb, false)?],
            BinaryOp::Gt => vec![at_least(&la, &lb, ca - cb, true)?],
            BinaryOp::Eq | BinaryOp::Ne if (ca - cb).fract() == 0.0 => {
                vec![at_least(&la, &lb, ca - cb, false)?, at_least(&lb, &la, cb - ca, false)?]
            }
            _ => return None,
        };
        let within = self.intern(Expr::Within(all));
        Some(if op == BinaryOp::Ne { self.intern(Expr::Unary(UnaryOp::Not, within)) } else { within })
    }

    /// The value as positions with integer coefficients (constant 0) plus a real constant.
    pub(crate) fn affine(&self, id: ExprId) -> Option<(Linear, f64)> {
        let combine = |a, b, sign: i64| {
            let ((la, ca), (lb, cb)): ((Linear, f64), (Linear, f64)) = (self.affine(a)?, self.affine(b)?);
            Some((la.plus(&lb.scaled(sign)?)?, ca + sign as f64 * cb))
        };
        match *self.get(id) {
            Expr::Const(_) => Some((Linear::default(), self.as_const(id)?)),
            Expr::Position(i) => Some((Linear { terms: BTreeMap::from([(i, 1)]), constant: 0 }, 0.0)),
            Expr::Unary(UnaryOp::Neg, x) => {
                let (l, c) = self.affine(x)?;
                Some((l.scaled(-1)?, -c))
            }
            Expr::Binary(BinaryOp::Add, a, b) => combine(a, b, 1),
            Expr::Binary(BinaryOp::Sub, a, b) => combine(a, b, -1),
            Expr::Binary(BinaryOp::Mul, a, b) => {
                let (k, x) = if let Some(k) = self.as_const(a) { (k, b) } else { (self.as_const(b)?, a) };
                let (l, c) = self.affine(x)?;
                (k.fract() == 0.0 && k.abs() < 9e15).then_some(())?;
                Some((l.scaled(k as i64)?, c * k))
            }
            _ => None,
        }
    }
}

fn is_power_of_two(v: f64) -> bool {
    v.is_normal() && v.to_bits().trailing_zeros() >= 52 && (1.0 / v).is_normal()
}
