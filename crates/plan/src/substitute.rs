//! Substitution of coordinates for indices: what makes an intermediate disappear into its readers.

use crate::expr::{Atom, Coordinate, Expr, ExprId, Exprs, Linear};
use einloom_cascade::{BinaryOp, IndexId, UnaryOp};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// What stands for an index.
pub(crate) type Substitution = BTreeMap<IndexId, Coordinate>;

impl Exprs {
    /// `id` with every index in `by` replaced.
    pub(crate) fn substitute(&mut self, id: ExprId, by: &Substitution) -> ExprId {
        if by.iter().all(|(&i, c)| c.as_index() == Some(i)) {
            return id;
        }
        self.substitute_memo(id, by, &mut FxHashMap::default())
    }

    fn substitute_memo(&mut self, id: ExprId, by: &Substitution, memo: &mut FxHashMap<ExprId, ExprId>) -> ExprId {
        if let Some(&done) = memo.get(&id) {
            return done;
        }
        let out = match self.get(id).clone() {
            Expr::Position(i) => match by.get(&i) {
                Some(at) => self.value_of(at),
                None => id,
            },
            Expr::Within(all) => self.substitute_within(&all, by),
            Expr::Read(node, at) => {
                let at = at.iter().map(|c| self.substitute_coordinate(c, by, memo)).collect();
                self.intern(Expr::Read(node, at))
            }
            _ => self.rebuild(id, &mut |s, x| s.substitute_memo(x, by, memo)),
        };
        memo.insert(id, out);
        out
    }

    fn substitute_coordinate(
        &mut self,
        at: &Coordinate,
        by: &Substitution,
        memo: &mut FxHashMap<ExprId, ExprId>,
    ) -> Coordinate {
        let mut out = Coordinate::fixed(at.offset);
        for (atom, &c) in &at.terms {
            match atom {
                Atom::Index(i) => match by.get(i) {
                    Some(x) => out.add_scaled(x, c),
                    None => out.push(c, atom.clone()),
                },
                Atom::Floor(numerator, d) => {
                    let numerator = self.substitute_coordinate(numerator, by, memo);
                    match numerator.as_fixed() {
                        Some(n) => out.offset = out.offset.saturating_add(c.saturating_mul(n.div_euclid(*d))),
                        None => out.push(c, Atom::Floor(Box::new(numerator), *d)),
                    }
                }
                Atom::Value(e) => {
                    let e = self.substitute_memo(*e, by, memo);
                    out.push(c, Atom::Value(e));
                }
            }
        }
        out
    }

    fn substitute_within(&mut self, all: &[Linear], by: &Substitution) -> ExprId {
        let mut out = None;
        for form in all {
            let mut sum = Coordinate::fixed(form.constant);
            for (&i, &c) in &form.terms {
                match by.get(&i) {
                    Some(x) => sum.add_scaled(x, c),
                    None => sum.push(c, Atom::Index(i)),
                }
            }
            // An affine form becomes a predicate again by itself; one with divisions or gathers stays a comparison, in which what
            // these are of stands on one side: it is computed for rows alone, not for elements.
            let (mut compound, mut inside) = (Coordinate::fixed(sum.offset), BTreeSet::new());
            for atom in sum.terms.keys().filter(|a| !matches!(a, Atom::Index(_))) {
                let one = Coordinate { terms: [(atom.clone(), 1)].into(), offset: 0 };
                Self::coordinate_indices(&one, &mut |i| _ = inside.insert(i), &mut |_| {});
            }
            let mut plain = Coordinate::default();
            for (atom, &c) in &sum.terms {
                match atom {
                    Atom::Index(i) if !inside.contains(i) => plain.push(-c, atom.clone()),
                    _ => compound.push(c, atom.clone()),
                }
            }
            let (value, others) = (self.value_of(&compound), self.value_of(&plain));
            let one = self.binary(BinaryOp::Ge, value, others);
            out = Some(match out {
                None => one,
                Some(before) => self.binary(BinaryOp::And, before, one),
            });
        }
        match out {
            Some(e) => e,
            None => self.constant(1.0),
        }
    }

    /// A coordinate as a value.
    pub(crate) fn value_of(&mut self, at: &Coordinate) -> ExprId {
        let mut sum = None;
        for (atom, &c) in &at.terms {
            let value = match atom {
                Atom::Index(i) => self.position(*i),
                Atom::Floor(numerator, d) => {
                    let (n, d) = (self.value_of(numerator), self.constant(*d as f64));
                    let quotient = self.binary(BinaryOp::Div, n, d);
                    self.unary(UnaryOp::Floor, quotient)
                }
                Atom::Value(e) => *e,
            };
            let factor = self.constant(c as f64);
            let term = self.binary(BinaryOp::Mul, factor, value);
            sum = Some(match sum {
                None => term,
                Some(s) => self.binary(BinaryOp::Add, s, term),
            });
        }
        let offset = self.constant(at.offset as f64);
        match sum {
            None => offset,
            Some(s) if at.offset == 0 => s,
            Some(s) => self.binary(BinaryOp::Add, s, offset),
        }
    }
}
