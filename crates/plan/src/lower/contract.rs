//! Sums of products as contractions of two tiles.

use super::range::largest;
use super::{How, Lowering, Product};
use crate::expr::{Expr, ExprId, Exprs, Linear};
use crate::problem::{Fold, FoldMonoid, ItemDef};
use crate::products::{Multiplied, mixed};
use einloom_algebra::NodeId;
use einloom_cascade::{BinaryOp, DType, IndexId, UnaryOp};
use std::collections::BTreeSet;

/// What is no larger does not overflow where it is added up.
const MOST_CALM: f64 = 65536.0;

impl Lowering<'_> {
    /// The reduction as a contraction, if its body is a product whose factors fall into two groups that share the
    /// tiled reduced index and no other tiled one. A side that has no factor along that index but a condition multiplies
    /// by 1 where it holds, if the other side is made of the program's inputs alone, or is no larger than they are: what is computed otherwise may be
    /// no number where the condition does not hold, which may be what it asks.
    pub(super) fn contraction(&mut self, n: NodeId, fold: &Fold, state: &BTreeSet<IndexId>) -> Option<How> {
        let reduced: Vec<IndexId> = fold.over.iter().copied().filter(|&i| self.tiling.tiled(i)).collect();
        let ([along], FoldMonoid::Sum) = (reduced.as_slice(), fold.monoid) else { return None };
        let own: Vec<IndexId> = state.iter().copied().filter(|&i| self.tiling.tiled(i)).collect();
        if own.is_empty() || own.len() > 2 {
            return None;
        }
        let mut product = Product::default();
        self.factorise(fold.body, false, &mut product);
        let mut groups = [Product::default(), Product::default()];
        let mut masks: [Vec<ExprId>; 2] = [vec![], vec![]];
        let mut carries = [false; 2];
        let mut chooses = [false; 2];
        let mut covered = BTreeSet::new();
        // The side a factor belongs to, by the result's axis it carries; nothing if it carries both.
        let mut loose = vec![];
        let all_masks: Vec<ExprId> = self.masks(&fold.filter).into_iter().flatten().rev().collect();
        let parts = (product.factors.iter().map(|&e| (e, Part::Factor)))
            .chain(product.divisors.iter().map(|&e| (e, Part::Divisor)))
            .chain(all_masks.iter().map(|&e| (e, Part::Mask)));
        for (e, part) in parts {
            let axes = self.tiled(e);
            let sides: Vec<usize> = (0..own.len()).filter(|&k| axes.contains(&own[k])).collect();
            covered.extend(axes.iter().copied());
            match sides.as_slice() {
                [] => loose.push((e, part, axes.contains(along))),
                [side] => {
                    part.put(e, &mut groups[*side], &mut masks[*side]);
                    carries[*side] |= axes.contains(along) && part != Part::Mask;
                    chooses[*side] |= axes.contains(along) && part == Part::Mask;
                }
                _ => return None,
            }
        }
        if own.iter().any(|i| !covered.contains(i)) {
            return None;
        }
        for (e, part, along) in loose {
            let side = match (carries, own.len()) {
                (_, 1) => 1,
                ([false, _], _) if along => 0,
                ([_, false], _) if along => 1,
                _ => usize::from(groups[0].factors.len() <= 1 && groups[1].factors.len() > 1),
            };
            part.put(e, &mut groups[side], &mut masks[side]);
            carries[side] |= along && part != Part::Mask;
        }
        // One side at most: what neither side's numbers vary along is counted, not multiplied.
        let calm = |g: &Product| {
            let all = g.divisors.is_empty() && g.factors.iter().all(|&e| self.is_given(e));
            all || g.divisors.is_empty() && matches!(g.factors.as_slice(), [one] if self.is_calm(*one))
        };
        let choosing = match (carries, own.len()) {
            ([false, true], 2) if chooses[0] && calm(&groups[1]) => Some(0),
            ([true, false], 2) if chooses[1] && calm(&groups[0]) => Some(1),
            _ => None,
        };
        if let Some(side) = choosing {
            carries[side] = true;
        }
        // With one axis left, a product with a matrix from memory; anything else is as well reduced in one go.
        let matrix = |g: &Product, x: &Exprs| match g.factors.as_slice() {
            [f] => g.divisors.is_empty() && matches!(x.get(*f), Expr::Read(n, _) if self.cone.loads.contains(n)),
            _ => false,
        };
        // Matrix units take no row by itself, and lanes share the rows of a matrix as well as its columns.
        let Multiplied { unit, .. } = self.products;
        if carries != [true; 2] || own.len() == 1 && (unit || !matrix(&groups[0], self.x) || !masks[0].is_empty()) {
            return None;
        }
        groups[usize::from(choosing == Some(0))].constant = product.constant;
        let alone = self.conditions_on(*along, &all_masks);
        // Terms that one condition leaves out for some results only cannot be made numbers in the other operand, which others need.
        let mut for_some = [false; 2];
        for side in 0..2 {
            let own: Vec<ExprId> = masks[side].iter().copied().filter(|m| !alone.contains(m)).collect();
            for_some[side] = own.into_iter().any(|m| self.tiled(m).contains(along));
        }
        for side in 0..2 {
            let value = self.product(None, &groups[side]);
            let infinite = for_some[1 - side] && (self.has_extremum_of_some(value) || self.has_infinity(value));
            if infinite && !self.range(value, &[]).finite {
                return None;
            }
        }
        let zero = self.x.constant(0.0);
        let mut operands = [zero; 2];
        for side in 0..2 {
            let value = self.product(None, &groups[side]);
            // A term that is left out is 0 in one operand, and must be a number in the other.
            let open = |c: &ExprId| !masks[side].iter().any(|&m| self.implies(m, *c));
            let open: Vec<ExprId> = alone.iter().copied().filter(open).collect();
            if !open.is_empty() && !self.range(value, &[]).finite {
                masks[side].extend(open);
            }
            operands[side] = masks[side].iter().fold(value, |v, &mask| self.x.select(mask, v, zero));
        }
        // Ones and zeros are of every type.
        if let Some(side) = choosing
            && groups[side].factors.is_empty()
            && groups[side].divisors.is_empty()
        {
            let other = self.types.of(self.p, self.x, operands[1 - side]);
            if other != DType::B1 && other != self.types.of(self.p, self.x, operands[side]) {
                operands[side] = self.x.round(other, operands[side]);
            }
        }
        // A condition that never holds leaves constants, which have no axes.
        if operands.iter().any(|&e| !self.tiled(e).contains(along)) {
            return None;
        }
        let [a, b] = self.operand_types(n, operands)?;
        Some(How::Contract(a, b))
    }

    /// Whether it is made of an extremum of what a condition leaves, which is infinite where that is nothing.
    fn has_extremum_of_some(&self, e: ExprId) -> bool {
        let of_some = |n: NodeId| {
            let ItemDef::Fold(fold) = &self.p[n].def else { return false };
            fold.monoid.is_extremum() && !fold.filter.is_empty()
        };
        let (mut todo, mut seen) = (vec![e], BTreeSet::new());
        while let Some(e) = todo.pop() {
            if let Expr::Read(n, _) = self.x.get(e) {
                match &self.p[*n].def {
                    ItemDef::Map(own) => todo.extend(Some(*own).filter(|&e| seen.insert(e))),
                    _ if of_some(*n) => return true,
                    // One of extrema, as shares of one are, is as infinite as they are.
                    ItemDef::Fold(fold) if fold.monoid.is_extremum() => {
                        todo.extend(Some(fold.body).filter(|&e| seen.insert(e)));
                    }
                    _ => {}
                }
            }
            todo.extend(self.x.children(e).into_iter().filter(|&e| seen.insert(e)));
        }
        false
    }

    /// Whether its text says of some numbers that they are infinite, or none. An exponential of `-inf` is 0.
    fn has_infinity(&self, e: ExprId) -> bool {
        let (mut todo, mut seen) = (vec![(e, false)], BTreeSet::new());
        while let Some((e, exponent)) = todo.pop() {
            if !seen.insert((e, exponent)) {
                continue;
            }
            match *self.x.get(e) {
                Expr::Const(_) => match self.x.as_const(e) {
                    Some(v) if !(v.is_finite() || exponent && v == f64::NEG_INFINITY) => return true,
                    _ => {}
                },
                // Conditions choose numbers and are none.
                Expr::Select(_, a, b) => todo.extend([(a, exponent), (b, exponent)]),
                Expr::Binary(op, ..) if op.is_comparison() => {}
                Expr::Unary(UnaryOp::Exp, a) => todo.push((a, true)),
                Expr::Read(n, _) => match &self.p[n].def {
                    ItemDef::Map(own) => todo.push((*own, exponent)),
                    ItemDef::Fold(fold) if fold.monoid.is_extremum() => todo.push((fold.body, exponent)),
                    _ => {}
                },
                _ => todo.extend(self.x.children(e).into_iter().map(|e| (e, exponent))),
            }
        }
        false
    }

    /// Whether it is an input's elements as they are, or rounded.
    fn is_given(&self, e: ExprId) -> bool {
        match *self.x.get(e) {
            Expr::Read(n, _) => matches!(self.p[n].def, ItemDef::Input),
            Expr::Round(_, e) => self.is_given(e),
            _ => false,
        }
    }

    /// Whether it is finite where the inputs are, and no larger than a few of them.
    fn is_calm(&self, e: ExprId) -> bool {
        if self.is_given(e) || self.x.as_const(e).is_some_and(f64::is_finite) {
            return true;
        }
        match *self.x.get(e) {
            Expr::Round(_, a) | Expr::Unary(UnaryOp::Neg | UnaryOp::Abs | UnaryOp::Relu, a) => self.is_calm(a),
            Expr::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Min | BinaryOp::Max, a, b) => {
                self.is_calm(a) && self.is_calm(b)
            }
            _ => {
                let range = self.range(e, &[]);
                range.finite && range.most() <= MOST_CALM
            }
        }
    }

    /// The parts of conditions that depend on the position along the reduced index and on nothing else that is tiled.
    fn conditions_on(&mut self, along: IndexId, masks: &[ExprId]) -> Vec<ExprId> {
        let mut out = vec![];
        let mut todo = masks.to_vec();
        while let Some(mask) = todo.pop() {
            let parts = match self.x.get(mask) {
                Expr::Binary(BinaryOp::And, a, b) => vec![*a, *b],
                Expr::Within(all) if all.len() > 1 => {
                    let own = |form: &Linear| form.terms.keys().all(|&i| i == along || !self.tiling.tiled(i));
                    let own: Vec<Linear> = all.iter().filter(|form| own(form)).cloned().collect();
                    if own.len() < all.len() && !own.is_empty() {
                        vec![self.x.intern(Expr::Within(own))]
                    } else if own.is_empty() {
                        continue;
                    } else {
                        vec![]
                    }
                }
                _ => vec![],
            };
            if parts.is_empty() {
                out.extend((self.tiled(mask) == BTreeSet::from([along])).then_some(mask));
            }
            todo.extend(parts);
        }
        out
    }

    /// Operands of one kind: integers with integers, floats with floats.
    fn operand_types(&mut self, n: NodeId, operands: [ExprId; 2]) -> Option<[ExprId; 2]> {
        let types = operands.map(|e| self.types.of(self.p, self.x, e));
        let float = |d: DType| d.is_float();
        match types {
            [a, b] if a == DType::B1 || b == DType::B1 => None,
            [a, b] if a.is_integer() && b.is_integer() => Some(operands),
            [a, b] if float(a) && float(b) => Some(self.narrowed(n, operands, types)),
            [a, b] => {
                let as_float = |x: &mut Exprs, e: ExprId, d: DType, other: DType| match d.is_integer() {
                    true => x.round(exact(d, other), e),
                    false => e,
                };
                let operands = [as_float(self.x, operands[0], a, b), as_float(self.x, operands[1], b, a)];
                let types = operands.map(|e| self.types.of(self.p, self.x, e));
                Some(self.narrowed(n, operands, types))
            }
        }
    }

    fn narrowed(&mut self, n: NodeId, operands: [ExprId; 2], types: [DType; 2]) -> [ExprId; 2] {
        let Multiplied { products, liberty, unit, eights } = self.products;
        if let Some(to) = eights.filter(|_| types.iter().all(|d| d.is_float() && d.bytes() == 1)) {
            let note = format!("both operands become {to}, which they are exactly");
            self.notes.push(format!("{}: {note}", self.p[n].name));
            return operands.map(|e| self.x.round(to, e));
        }
        let Some((wide, narrow)) = mixed(types) else { return operands };
        self.mixed.insert((wide, narrow));
        let Some(to) = products.to((wide, narrow), liberty, unit) else { return operands };
        let name = &self.p[n].name;
        let wider = operands[usize::from(types[1] == wide)];
        let fits = to == wide || largest(to).is_none_or(|most| self.range(wider, &[]).most() <= most);
        let (to, note) = match to {
            to if !fits => {
                (DType::Bf16, format!("both operands are rounded to bf16, because the wider one may leave {to}"))
            }
            to if to == narrow => (to, format!("the wider operand is rounded to {to}, the type of the narrower one")),
            to if to == wide => (to, format!("the narrower operand becomes {to}, which it is exactly")),
            to => (to, format!("the wider operand is rounded to {to}, which the narrower one is exactly")),
        };
        self.notes.push(format!("{name}: {note}"));
        operands.map(|e| if self.types.of(self.p, self.x, e) == to { e } else { self.x.round(to, e) })
    }
}

/// The narrowest type that holds every integer of a type and in which it is multiplied by elements of another: theirs, if it does.
pub(crate) fn exact(integer: DType, other: DType) -> DType {
    match (integer, other) {
        (_, DType::F64) | (DType::I32, _) => DType::F64,
        (DType::I4 | DType::U4, DType::E4m3) | (DType::I4, DType::E5m2) => other,
        (DType::I16, _) => DType::F32,
        (_, DType::F16) => DType::F16,
        // Seven bits and the first one.
        (_, d) if d.bytes() <= 2 => DType::Bf16,
        _ => DType::F32,
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Factor,
    Divisor,
    Mask,
}

impl Part {
    fn put(self, e: ExprId, group: &mut Product, masks: &mut Vec<ExprId>) {
        match self {
            Self::Factor => group.factors.push(e),
            Self::Divisor => group.divisors.push(e),
            Self::Mask => masks.push(e),
        }
    }
}
