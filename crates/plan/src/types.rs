//! Number types of values that declare none: f32, or f64, i32 or b1 where the operands ask for it.
//!
//! What is made of numbers that are known exactly (literals, positions, integers that tensors hold) has no
//! precision of its own: it is *weak*. Beside a number of another type it takes that type; kept alone it is f64 where the
//! program has any f64, else f32. That is asked of the whole program, not of a value's neighbours, and a value stays weak
//! where a tile, a state or memory holds it: so it has one type wherever it is computed, and the same neighbours make the
//! same number of it whether it was kept or is computed again.

use crate::expr::{Coordinate, Expr, ExprId, Exprs};
use crate::problem::{Fold, FoldMonoid, ItemDef, Problem};
use einloom_algebra::NodeId;
use einloom_cascade::{BinaryOp, DType, IndexId, UnaryOp};
use rustc_hash::FxHashMap;

/// Largest magnitude below which every integer is an f32.
const EXACT_IN_F32: f64 = 16_777_216.0;

/// Number types found so far.
#[derive(Clone, Default)]
pub(crate) struct Types {
    exprs: FxHashMap<ExprId, Type>,
    /// Of items that declare none.
    items: FxHashMap<NodeId, Type>,
    /// Of expressions, a magnitude that no value exceeds.
    most: FxHashMap<ExprId, f64>,
}

/// The type of an expression; a weak one takes the type of what it is combined with.
#[derive(Clone, Copy, PartialEq)]
enum Type {
    Strong(DType),
    /// An integer that no tensor holds, of at most this magnitude.
    Integer(f64),
    /// A constant that is no integer, or a function of integers that is none: as exact as the program's numbers are.
    Real,
    /// The same of integers that tensors hold.
    Ratio,
}

impl Types {
    /// The type a tile of this expression has.
    pub(crate) fn of(&mut self, p: &Problem, x: &Exprs, e: ExprId) -> DType {
        self.infer(p, x, e).alone(p)
    }

    /// The type in which a reduction accumulates.
    pub(crate) fn of_fold(&mut self, p: &Problem, x: &Exprs, fold: &Fold, declared: Option<DType>) -> DType {
        let body = self.of(p, x, fold.body);
        match (fold.monoid, declared) {
            (_, Some(DType::F64)) => DType::F64,
            (FoldMonoid::Sum, Some(DType::I32)) => DType::I32,
            (FoldMonoid::Sum, _) if body.is_integer() => DType::I32,
            // A product of a few integers leaves every integer type.
            (FoldMonoid::Prod, _) if body.is_integer() => DType::F64,
            // Over nothing an extremum is infinite, which no integer type holds.
            (_, _) if body == DType::I32 || body == DType::F64 => DType::F64,
            _ => DType::F32,
        }
    }

    /// Whether it is a function of integers that tensors hold, and none itself.
    pub(crate) fn is_ratio(&mut self, p: &Problem, x: &Exprs, e: ExprId) -> bool {
        self.infer(p, x, e) == Type::Ratio
    }

    /// Whether it is an integer that f32 may not have, of numbers that it has.
    pub(crate) fn outgrows_f32(&mut self, p: &Problem, x: &Exprs, e: ExprId) -> bool {
        match self.infer(p, x, e) {
            Type::Integer(most) => most >= EXACT_IN_F32,
            Type::Strong(DType::I32) => self.most(p, x, e) >= EXACT_IN_F32,
            _ => false,
        }
    }

    /// A magnitude that no value of the expression exceeds, by the number types of tensors.
    fn most(&mut self, p: &Problem, x: &Exprs, e: ExprId) -> f64 {
        if let Some(&most) = self.most.get(&e) {
            return most;
        }
        let of_type = |d: Option<DType>| match d.and_then(DType::integer_range) {
            Some((low, high)) => (low.unsigned_abs() as f64).max(high as f64),
            None => f64::INFINITY,
        };
        let read = match *x.get(e) {
            Expr::Read(n, _) | Expr::Old(n) => {
                let kept = of_type(Some(self.of_item(p, x, n)));
                match p[n].def {
                    // As where it is computed again.
                    ItemDef::Map(e) if p[n].dtype.is_none() => kept.min(self.most(p, x, e)),
                    _ => kept,
                }
            }
            _ => f64::INFINITY,
        };
        let mut part = |e: ExprId| self.most(p, x, e);
        let most = match *x.get(e) {
            Expr::Const(_) => x.as_const(e).map_or(f64::INFINITY, f64::abs),
            Expr::Position(i) => p[i].extent as f64,
            Expr::Within(_) | Expr::Unary(UnaryOp::Not | UnaryOp::Sign, _) => 1.0,
            Expr::Read(..) | Expr::Old(_) => read,
            Expr::Round(d, _) => of_type(Some(d)),
            Expr::Unary(UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Relu, a) => part(a),
            Expr::Unary(UnaryOp::Floor | UnaryOp::Round, a) => part(a) + 1.0,
            Expr::Binary(op, ..) if op.is_predicate() => 1.0,
            Expr::Binary(BinaryOp::Add | BinaryOp::Sub, a, b) => part(a) + part(b),
            Expr::Binary(BinaryOp::Mul, a, b) => part(a) * part(b),
            Expr::Binary(BinaryOp::Div, a, b) => x.as_const(b).map_or(f64::INFINITY, |c| part(a) / c.abs()),
            Expr::Binary(BinaryOp::Min | BinaryOp::Max, a, b) | Expr::Select(_, a, b) => part(a).max(part(b)),
            _ => f64::INFINITY,
        };
        // No bound where one is 0 times infinity.
        let most = if most.is_nan() { f64::INFINITY } else { most };
        self.most.insert(e, most);
        most
    }

    /// The type in which an item is kept.
    pub(crate) fn of_item(&mut self, p: &Problem, x: &Exprs, id: NodeId) -> DType {
        self.item(p, x, id).alone(p)
    }

    /// The type of what an item holds.
    fn item(&mut self, p: &Problem, x: &Exprs, id: NodeId) -> Type {
        if let Some(d) = p[id].dtype {
            return Type::Strong(d);
        }
        if let Some(&t) = self.items.get(&id) {
            return t;
        }
        // What an iterative tensor's own step reads of it does not decide its type. What was found on the way may hang
        // on this guess.
        let iterative = |n: NodeId| matches!(p[n].def, ItemDef::Iterative(_));
        let before = iterative(id).then(|| (self.exprs.clone(), self.items.clone()));
        // What stands between a state and its next one has a type when the state has one.
        if let Some(r) = p[id].recurrence.filter(|_| before.is_none()) {
            for &m in p.loops[r].members.iter().filter(|&&m| iterative(m)) {
                self.item(p, x, m);
            }
        }
        self.items.insert(id, Type::Real);
        let own = match &p[id].def {
            ItemDef::Input => Type::Strong(DType::F32),
            ItemDef::Map(e) => self.infer(p, x, *e),
            ItemDef::Fold(f) => match self.infer(p, x, f.body) {
                Type::Strong(_) => Type::Strong(self.of_fold(p, x, f, None)),
                weak => weak.gathered(),
            },
            ItemDef::Iterative(i) => {
                let mut own = self.infer(p, x, i.step).computed();
                for (_, e) in &i.initial {
                    own = own.join(self.infer(p, x, *e).computed(), f64::max);
                }
                own.gathered()
            }
        };
        let own = match own {
            Type::Strong(DType::F64 | DType::B1) => own,
            Type::Strong(d) if d.is_integer() => Type::Strong(DType::I32),
            Type::Strong(_) => Type::Strong(DType::F32),
            weak => weak,
        };
        if let Some((exprs, items)) = before.filter(|_| own != Type::Real) {
            (self.exprs, self.items) = (exprs, items);
        }
        self.items.insert(id, own);
        own
    }

    /// Whether a choice is between an infinite number, as elements that do not count are to an extremum, and integers that tensors
    /// hold and f32 does not: f64 has both.
    fn beside_infinity(&mut self, p: &Problem, x: &Exprs, [a, b]: [ExprId; 2]) -> bool {
        let infinite = |e: ExprId| x.as_const(e).is_some_and(f64::is_infinite);
        let e = if infinite(a) { b } else { a };
        infinite(a) != infinite(b)
            && self.infer(p, x, e).computed() == Type::Strong(DType::I32)
            && self.most(p, x, e) >= EXACT_IN_F32
    }

    fn infer(&mut self, p: &Problem, x: &Exprs, e: ExprId) -> Type {
        if let Some(&t) = self.exprs.get(&e) {
            return t;
        }
        let t = match x.get(e) {
            Expr::Const(_) => match x.as_const(e) {
                // Beyond the integers, such as an identity of -1e30, it is no integer to compute with.
                Some(v) if v.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&v) => {
                    Type::Integer(v.abs())
                }
                _ => Type::Real,
            },
            Expr::Position(i) => Type::Integer(p[*i].extent as f64),
            Expr::Within(_) => Type::Strong(DType::B1),
            Expr::Argument(_) => Type::Real,
            Expr::Read(n, _) | Expr::Old(n) => self.item(p, x, *n),
            Expr::Round(d, _) => Type::Strong(*d),
            Expr::Unary(op, a) => match op {
                UnaryOp::Not => Type::Strong(DType::B1),
                UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Sign | UnaryOp::Relu => self.infer(p, x, *a).computed(),
                // A quotient of integers that is rounded to one is as exact as they are.
                UnaryOp::Floor | UnaryOp::Round => match self.infer(p, x, *a).computed() {
                    Type::Ratio => match self.most(p, x, *a) + 1.0 {
                        most if (EXACT_IN_F32..=f64::from(i32::MAX) + 1.0).contains(&most) => Type::Strong(DType::I32),
                        most => Type::Integer(most),
                    },
                    Type::Strong(DType::I32) => Type::Strong(DType::I32),
                    other => other.real(),
                },
                _ => self.infer(p, x, *a).real(),
            },
            Expr::Binary(op, a, b) => {
                let (left, right) = (*a, *b);
                let (a, b) = (self.infer(p, x, left), self.infer(p, x, right));
                match op {
                    _ if op.is_predicate() => Type::Strong(DType::B1),
                    BinaryOp::Max | BinaryOp::Min if self.beside_infinity(p, x, [left, right]) => {
                        Type::Strong(DType::F64)
                    }
                    BinaryOp::Div | BinaryOp::Pow => a.computed().join(b.computed(), |x, y| x.max(y)).real(),
                    BinaryOp::Mul => a.computed().join(b.computed(), |x, y| x * y),
                    BinaryOp::Add | BinaryOp::Sub => a.computed().join(b.computed(), |x, y| x + y),
                    _ => a.computed().join(b.computed(), f64::max),
                }
            }
            Expr::Select(_, a, b) => {
                let (ta, tb) = (self.infer(p, x, *a), self.infer(p, x, *b));
                // A choice between a narrow value and 0 is still narrow.
                match (ta, tb) {
                    _ if self.beside_infinity(p, x, [*a, *b]) => Type::Strong(DType::F64),
                    (Type::Strong(d), Type::Integer(0.0)) | (Type::Integer(0.0), Type::Strong(d)) if d != DType::B1 => {
                        Type::Strong(d)
                    }
                    (Type::Strong(c), Type::Strong(d)) if c == d => Type::Strong(d),
                    _ => ta.computed().join(tb.computed(), f64::max),
                }
            }
        };
        self.exprs.insert(e, t);
        t
    }
}

impl Type {
    /// The type of a value that stands alone: what has no other reason to be f32 is not the least exact part of a program
    /// in f64.
    fn alone(self, p: &Problem) -> DType {
        match self {
            Self::Strong(d) => d,
            _ if p.items.iter().any(|i| i.dtype == Some(DType::F64)) => DType::F64,
            Self::Integer(m) if m >= EXACT_IN_F32 => DType::F64,
            Self::Integer(_) | Self::Real | Self::Ratio => DType::F32,
        }
    }

    /// The type of a reduction over weak values, or of a state: how large it grows is not known, except that what needs
    /// f64 still does.
    fn gathered(self) -> Self {
        match self {
            Self::Integer(m) if m >= EXACT_IN_F32 => Self::Strong(DType::F64),
            Self::Integer(_) | Self::Real | Self::Ratio => Self::Real,
            strong => strong,
        }
    }

    /// The type in which one computes with values of this one.
    fn computed(self) -> Self {
        match self {
            Self::Strong(DType::F64) | Self::Integer(_) | Self::Real | Self::Ratio => self,
            Self::Strong(d) if d.is_integer() => Self::Strong(DType::I32),
            Self::Strong(_) => Self::Strong(DType::F32),
        }
    }

    fn real(self) -> Self {
        match self.computed() {
            Self::Strong(DType::I32) => Self::Ratio,
            Self::Integer(_) => Self::Real,
            other => other,
        }
    }

    fn join(self, other: Self, magnitude: impl Fn(f64, f64) -> f64) -> Self {
        match (self, other) {
            (Self::Strong(a), Self::Strong(b)) => Self::Strong(widest(a, b)),
            (Self::Integer(a), Self::Integer(b)) => Self::Integer(magnitude(a, b)),
            (Self::Strong(DType::I32), Self::Real | Self::Ratio) => Self::Ratio,
            (Self::Real | Self::Ratio, Self::Strong(DType::I32)) => Self::Ratio,
            (Self::Strong(d), _) | (_, Self::Strong(d)) => Self::Strong(d),
            (Self::Ratio, _) | (_, Self::Ratio) => Self::Ratio,
            _ => Self::Real,
        }
    }
}

fn widest(a: DType, b: DType) -> DType {
    match (a, b) {
        _ if a == b => a,
        (DType::F64, _) | (_, DType::F64) => DType::F64,
        _ => DType::F32,
    }
}

impl Exprs {
    /// Every index that stands in a coordinate, also inside divisions; `value` is called on gathered values.
    pub(crate) fn coordinate_indices(at: &Coordinate, index: &mut dyn FnMut(IndexId), value: &mut dyn FnMut(ExprId)) {
        use crate::expr::Atom;
        for atom in at.terms.keys() {
            match atom {
                Atom::Index(i) => index(*i),
                Atom::Floor(n, _) => Self::coordinate_indices(n, index, value),
                Atom::Value(e) => value(*e),
            }
        }
    }
}
