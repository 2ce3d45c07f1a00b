//! Terms of the graph as expressions, with sizes and parameters filled in.

use crate::PlanError;
use crate::expr::{Atom, Coordinate, Expr, ExprId, Exprs};
use crate::problem::{Fold, FoldMonoid, FoldRepair, ItemDef, Iteration};
use einloom_algebra::{Def, Graph, Reduction, Term};
use einloom_cascade::{Bound, DType, ExprKind, IndexAtom, IndexExpr, Monoid};

/// Reads terms of the graph.
pub(crate) struct Reader<'a> {
    pub graph: &'a Graph,
    pub bound: &'a Bound,
    pub exprs: &'a mut Exprs,
}

impl Reader<'_> {
    pub(crate) fn def(&mut self, def: &Def) -> Result<ItemDef, PlanError> {
        Ok(match def {
            Def::Input => ItemDef::Input,
            Def::Map(t) => ItemDef::Map(self.term(t)?),
            Def::Reduce(r) => ItemDef::Fold(self.fold(r)?),
            Def::Iterative { dim, initial, step, .. } => ItemDef::Iterative(Iteration {
                dim: *dim,
                initial: initial.iter().map(|(at, t)| Ok((self.bound.extent(at), self.term(t)?))).collect::<Result<
                    _,
                    PlanError,
                >>(
                )?,
                step: self.term(step)?,
            }),
        })
    }

    fn fold(&mut self, r: &Reduction) -> Result<Fold, PlanError> {
        let monoid = match r.monoid {
            Monoid::Sum => FoldMonoid::Sum,
            Monoid::Prod => FoldMonoid::Prod,
            Monoid::Max | Monoid::ArgMax => FoldMonoid::Max,
            Monoid::Min | Monoid::ArgMin => FoldMonoid::Min,
            Monoid::Custom(id) => FoldMonoid::Custom(id),
        };
        let mut filter = vec![];
        for t in &r.filter {
            let e = self.term(t)?;
            if self.exprs.as_const(e).is_none_or(|v| v == 0.0) {
                filter.push(e);
            }
        }
        let mut body = self.term(&r.body)?;
        // A sum over `where(c, x, 0)` is the filtered sum of x.
        while monoid == FoldMonoid::Sum
            && let Expr::Select(c, x, zero) = *self.exprs.get(body)
            && self.exprs.as_const(zero) == Some(0.0)
        {
            filter.push(c);
            body = x;
        }
        let repair = match &r.streaming.repair {
            Some(r) => Some(FoldRepair {
                combine: r.combine,
                factor: self.term(&r.factor)?,
                plus: r.plus.as_ref().map(|t| self.term(t)).transpose()?,
                keep_if: r.keep_if.as_ref().map(|t| self.term(t)).transpose()?,
            }),
            None => None,
        };
        Ok(Fold { monoid, over: r.over.clone(), filter, body, anchors: r.streaming.anchors.clone(), repair })
    }

    fn term(&mut self, t: &Term) -> Result<ExprId, PlanError> {
        Ok(match t {
            Term::Number(v) => self.exprs.constant(*v),
            Term::Param(p) => self.exprs.constant(self.bound.param(*p)),
            Term::Size(s) => self.exprs.constant(self.bound.extent(s) as f64),
            Term::Position(i) => self.exprs.position(*i),
            Term::Argument(k) => self.exprs.intern(Expr::Argument(*k)),
            Term::Read(n, at) => {
                let at = at.iter().map(|e| self.coordinate(e)).collect::<Result<_, _>>()?;
                self.exprs.intern(Expr::Read(*n, at))
            }
            Term::Old(n, at) => {
                let plain = at.iter().zip(&self.graph[*n].axes).all(|(e, &i)| e.as_var() == Some(i));
                if !plain {
                    let name = &self.graph[*n].name;
                    return Err(PlanError::unsupported(name, "its repair reads an anchor at other positions"));
                }
                self.exprs.intern(Expr::Old(*n))
            }
            Term::Unary(op, x) => {
                let x = self.term(x)?;
                self.exprs.unary(*op, x)
            }
            Term::Binary(op, a, b) => {
                let (a, b) = (self.term(a)?, self.term(b)?);
                self.exprs.binary(*op, a, b)
            }
            Term::Select(c, a, b) => {
                let (c, a, b) = (self.term(c)?, self.term(a)?, self.term(b)?);
                self.exprs.select(c, a, b)
            }
        })
    }

    fn coordinate(&mut self, e: &IndexExpr) -> Result<Coordinate, PlanError> {
        let mut out = Coordinate::fixed(self.bound.extent(&e.offset));
        for (c, atom) in &e.terms {
            let c = self.bound.extent(c);
            match atom {
                IndexAtom::Var(i) => out.push(c, Atom::Index(*i)),
                IndexAtom::Floor { numerator, denominator } => {
                    let numerator = self.coordinate(numerator)?;
                    let d = self.bound.extent(denominator).max(1);
                    match numerator.as_fixed() {
                        Some(n) => out.offset = out.offset.saturating_add(c.saturating_mul(n.div_euclid(d))),
                        None => out.push(c, Atom::Floor(Box::new(numerator), d)),
                    }
                }
                IndexAtom::Gather { tensor, at } => {
                    let Some(node) = self.graph.node_of(*tensor) else {
                        let name = &self.graph.cascade[*tensor].name;
                        return Err(PlanError::unsupported(name, "nothing computes the tensor it is gathered by"));
                    };
                    let at = at.iter().map(|e| self.coordinate(e)).collect::<Result<_, _>>()?;
                    let mut value = self.exprs.intern(Expr::Read(node, at));
                    if !self.graph[node].dtype.is_some_and(DType::is_integer) {
                        value = self.exprs.round(DType::I32, value);
                    }
                    out.push(c, Atom::Value(value));
                }
            }
        }
        Ok(out)
    }

    /// A user monoid's expression: arguments, constants, parameters and sizes.
    pub(crate) fn monoid(&mut self, e: &ExprKind) -> Result<ExprId, PlanError> {
        Ok(match e {
            ExprKind::Number(v) => self.exprs.constant(*v),
            ExprKind::Param(p) => self.exprs.constant(self.bound.param(*p)),
            ExprKind::Size(s) => self.exprs.constant(self.bound.extent(s) as f64),
            ExprKind::Argument(k) => self.exprs.intern(Expr::Argument(*k)),
            ExprKind::Unary(op, x) => {
                let x = self.monoid(&x.kind)?;
                self.exprs.unary(*op, x)
            }
            ExprKind::Binary(op, a, b) => {
                let (a, b) = (self.monoid(&a.kind)?, self.monoid(&b.kind)?);
                self.exprs.binary(*op, a, b)
            }
            ExprKind::Select(c, a, b) => {
                let (c, a, b) = (self.monoid(&c.kind)?, self.monoid(&a.kind)?, self.monoid(&b.kind)?);
                self.exprs.select(c, a, b)
            }
            ExprKind::Position(_) | ExprKind::Read { .. } | ExprKind::Reduce { .. } => {
                return Err(PlanError::unsupported(
                    "monoid",
                    "its expression may use its arguments and constants only",
                ));
            }
        })
    }
}
