//! Which positions the indices in scope can have at some place of the program.

use super::Bound;
use super::remainder::remainder;
use crate::{BinaryOp, Cascade, Expr, ExprKind, IndexAtom, IndexExpr, IndexId, UnaryOp};
use std::collections::{BTreeMap, BTreeSet};

/// `Σ coefficient · index + constant`, with sizes filled in.
#[derive(Clone, Default)]
struct Affine {
    terms: BTreeMap<IndexId, i128>,
    constant: i128,
}

impl Affine {
    fn add_scaled(mut self, other: &Affine, by: i128) -> Self {
        for (&index, c) in &other.terms {
            *self.terms.entry(index).or_default() += c * by;
        }
        self.terms.retain(|_, c| *c != 0);
        self.constant += other.constant * by;
        self
    }
}

/// A box of positions, cut by conditions.
#[derive(Clone)]
pub(crate) struct Region<'a> {
    cascade: &'a Cascade,
    bound: &'a Bound,
    /// First and last position of every index in scope.
    ranges: BTreeMap<IndexId, (i128, i128)>,
    /// Each is at least 0 everywhere in the region.
    conditions: Vec<Affine>,
    /// Some condition holds nowhere.
    contradiction: bool,
    /// Indices that a condition relates to one another, or restricts in a way that was not understood: the box says
    /// too much of their positions. Of all other indices it says what is so.
    entangled: Vec<BTreeSet<IndexId>>,
    /// A condition that was not understood names no index: nothing may be evaluated at all.
    vague: bool,
}

/// Where an index expression can lead.
pub(crate) enum Reach {
    /// It stays inside.
    Inside,
    /// It reaches this position, at these positions of its indices.
    Outside(i128, Vec<(IndexId, i128)>),
    /// Not decided.
    Unknown,
}

impl<'a> Region<'a> {
    /// No index in scope.
    pub(crate) fn new(cascade: &'a Cascade, bound: &'a Bound) -> Self {
        Self {
            cascade,
            bound,
            ranges: BTreeMap::new(),
            conditions: vec![],
            contradiction: false,
            entangled: vec![],
            vague: false,
        }
    }

    /// Brings an index into scope, over its whole rank; an index of an enclosing scope is hidden.
    pub(crate) fn enter(&mut self, index: IndexId) {
        self.conditions.retain(|c| !c.terms.contains_key(&index));
        self.entangled.retain(|group| !group.contains(&index));
        let size = self.bound.size(self.cascade[index].rank);
        self.ranges.insert(index, (0, size as i128 - 1));
    }

    /// Whether there is no position at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.contradiction || self.ranges.values().any(|(low, high)| low > high)
    }

    /// Keeps the part where `condition` has this truth value.
    pub(crate) fn assume(&mut self, condition: &Expr, truth: bool) {
        match &condition.kind {
            ExprKind::Unary(UnaryOp::Not, x) => self.assume(x, !truth),
            // All conjuncts of a true `and`, all disjuncts of a false `or`.
            ExprKind::Binary(op, a, b) if *op == if truth { BinaryOp::And } else { BinaryOp::Or } => {
                self.assume(a, truth);
                self.assume(b, truth);
            }
            ExprKind::Binary(op, a, b) if op.is_comparison() => {
                let Some((a, b)) = self.affine_value(a).zip(self.affine_value(b)) else {
                    self.not_understood(condition);
                    return;
                };
                let (less, greater) = (b.clone().add_scaled(&a, -1), a.add_scaled(&b, -1));
                match (op, truth) {
                    (BinaryOp::Le, true) | (BinaryOp::Gt, false) => self.at_least(less, 0),
                    (BinaryOp::Lt, true) | (BinaryOp::Ge, false) => self.at_least(less, 1),
                    (BinaryOp::Ge, true) | (BinaryOp::Lt, false) => self.at_least(greater, 0),
                    (BinaryOp::Gt, true) | (BinaryOp::Le, false) => self.at_least(greater, 1),
                    (BinaryOp::Eq, true) | (BinaryOp::Ne, false) => {
                        self.at_least(less, 0);
                        self.at_least(greater, 0);
                    }
                    _ => self.not_zero(&less),
                }
            }
            _ => self.not_understood(condition),
        }
    }

    fn not_understood(&mut self, condition: &Expr) {
        let mut group = BTreeSet::new();
        indices(condition, &mut group);
        self.vague |= group.is_empty();
        self.entangled.push(group);
    }

    /// Whether the box is exact in these indices: no condition relates one to another or restricts it unseen.
    fn is_free(&self, indices: &BTreeSet<IndexId>) -> bool {
        !self.vague && self.entangled.iter().all(|group| group.is_disjoint(indices))
    }

    /// Where `expr` leads in a dimension of this extent, if anything is evaluated at all.
    pub(crate) fn reach(&self, expr: &IndexExpr, extent: i128) -> Reach {
        if self.is_empty() {
            return Reach::Inside;
        }
        let Some((mut low, mut high)) = self.interval(expr) else { return Reach::Unknown };
        if low >= 0 && high < extent {
            return Reach::Inside;
        }
        let mut seen = vec![];
        expr.visit_indices(&mut |i| seen.push(i));
        let occurrences = seen.len();
        seen.sort_unstable();
        seen.dedup();
        // With every index in one place only, the bounds are reached.
        if seen.len() == occurrences && self.is_free(&seen.iter().copied().collect()) {
            let highest = high >= extent;
            let mut witness = vec![];
            self.witness(expr, highest, &mut witness);
            return Reach::Outside(if highest { high } else { low }, witness);
        }
        if let Some(affine) = self.affine_index(expr) {
            // A condition is at least 0, so that adding it can only raise an upper bound; where it cancels an index the
            // bound becomes sharper nevertheless.
            for condition in &self.conditions {
                high = high.min(self.range(&affine.clone().add_scaled(condition, 1)).1);
                low = low.max(self.range(&affine.clone().add_scaled(condition, -1)).0);
            }
        }
        if low >= 0 && high < extent { Reach::Inside } else { Reach::Unknown }
    }

    /// Smallest and largest value over the box. `None` if it gathers, or divides by what is not positive.
    pub(crate) fn interval(&self, expr: &IndexExpr) -> Option<(i128, i128)> {
        if let Some(found) = remainder(expr, |size| self.bound.try_extent(size)) {
            let (low, high) = self.interval(&found.rest)?;
            let last = self.bound.try_extent(&found.divisor)? as i128 - 1;
            return Some((low, high.saturating_add(last.saturating_mul(found.factor.into()))));
        }
        let offset = self.bound.try_extent(&expr.offset)? as i128;
        let (mut low, mut high) = (offset, offset);
        for (coefficient, atom) in &expr.terms {
            let c = self.bound.try_extent(coefficient)? as i128;
            let (first, last) = match atom {
                IndexAtom::Var(i) => *self.ranges.get(i)?,
                IndexAtom::Floor { numerator, denominator } => {
                    let d = self.bound.try_extent(denominator).filter(|d| *d > 0)? as i128;
                    let (first, last) = self.interval(numerator)?;
                    (first.div_euclid(d), last.div_euclid(d))
                }
                IndexAtom::Gather { .. } => return None,
            };
            low = low.saturating_add(c.saturating_mul(if c > 0 { first } else { last }));
            high = high.saturating_add(c.saturating_mul(if c > 0 { last } else { first }));
        }
        Some((low, high))
    }

    /// The positions that make `expr` largest or smallest.
    fn witness(&self, expr: &IndexExpr, largest: bool, out: &mut Vec<(IndexId, i128)>) {
        for (coefficient, atom) in &expr.terms {
            let largest = largest == (self.bound.extent(coefficient) > 0);
            match atom {
                IndexAtom::Var(i) => {
                    let (first, last) = self.ranges[i];
                    out.push((*i, if largest { last } else { first }));
                }
                IndexAtom::Floor { numerator, .. } => self.witness(numerator, largest, out),
                IndexAtom::Gather { .. } => {}
            }
        }
    }

    fn at_least(&mut self, expr: Affine, bound: i128) {
        let condition = expr.add_scaled(&Affine { constant: 1, ..Affine::default() }, -bound);
        match condition.terms.len() {
            0 => self.contradiction |= condition.constant < 0,
            1 => self.narrow(&condition),
            _ => {
                self.entangled.push(condition.terms.keys().copied().collect());
                self.conditions.push(condition);
                for k in 0..self.conditions.len() {
                    self.narrow(&self.conditions[k].clone());
                }
            }
        }
    }

    /// Takes a position away: from an end of a range it cuts, from the middle it leaves a hole that a box cannot have.
    fn not_zero(&mut self, expr: &Affine) {
        let mut terms = expr.terms.iter();
        let (Some((index, c)), None) = (terms.next(), terms.next()) else {
            self.contradiction |= expr.terms.is_empty() && expr.constant == 0;
            if !expr.terms.is_empty() {
                self.entangled.push(expr.terms.keys().copied().collect());
            }
            return;
        };
        let Some((first, last)) = self.ranges.get_mut(index) else { return };
        let hole = -expr.constant.div_euclid(*c);
        if expr.constant.rem_euclid(*c) != 0 || hole < *first || hole > *last {
            return;
        }
        if hole == *first {
            *first += 1;
        } else if hole == *last {
            *last -= 1;
        } else {
            self.entangled.push([*index].into());
        }
    }

    /// Cuts the ranges of the condition's indices: `c·i + rest ≥ 0` bounds `i` by the largest value of the rest.
    fn narrow(&mut self, condition: &Affine) {
        for (&index, &c) in &condition.terms {
            let mut rest = condition.clone();
            rest.terms.remove(&index);
            let most = self.range(&rest).1;
            if let Some((first, last)) = self.ranges.get_mut(&index) {
                if c > 0 {
                    *first = (*first).max(-most.div_euclid(c));
                } else {
                    *last = (*last).min(most.div_euclid(-c));
                }
            }
        }
    }

    fn range(&self, affine: &Affine) -> (i128, i128) {
        let (mut low, mut high) = (affine.constant, affine.constant);
        for (index, &c) in &affine.terms {
            let (first, last) = self.ranges.get(index).copied().unwrap_or((i64::MIN.into(), i64::MAX.into()));
            low = low.saturating_add(c.saturating_mul(if c > 0 { first } else { last }));
            high = high.saturating_add(c.saturating_mul(if c > 0 { last } else { first }));
        }
        (low, high)
    }

    fn affine_index(&self, expr: &IndexExpr) -> Option<Affine> {
        let mut out = Affine { constant: self.bound.try_extent(&expr.offset)?.into(), ..Affine::default() };
        for (coefficient, atom) in &expr.terms {
            let IndexAtom::Var(i) = atom else { return None };
            *out.terms.entry(*i).or_default() += self.bound.try_extent(coefficient)? as i128;
        }
        Some(out)
    }

    /// The value of a scalar expression, if it is affine and small enough for f64 to be exact.
    fn affine_value(&self, expr: &Expr) -> Option<Affine> {
        let constant = |value: i64| Affine { constant: value.into(), ..Affine::default() };
        let affine = match &expr.kind {
            ExprKind::Number(v) if v.fract() == 0.0 => Some(constant(*v as i64)),
            ExprKind::Size(size) => Some(constant(self.bound.try_extent(size)?)),
            ExprKind::Position(i) => Some(Affine { terms: BTreeMap::from([(*i, 1)]), constant: 0 }),
            ExprKind::Unary(UnaryOp::Neg, x) => Some(Affine::default().add_scaled(&self.affine_value(x)?, -1)),
            ExprKind::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) => {
                let sign = if *op == BinaryOp::Add { 1 } else { -1 };
                Some(self.affine_value(a)?.add_scaled(&self.affine_value(b)?, sign))
            }
            ExprKind::Binary(BinaryOp::Mul, a, b) => {
                let (a, b) = (self.affine_value(a)?, self.affine_value(b)?);
                let (factor, other) = if a.terms.is_empty() { (a, b) } else { (b, a) };
                factor.terms.is_empty().then(|| Affine::default().add_scaled(&other, factor.constant))
            }
            _ => None,
        };
        let small = |c: &i128| c.unsigned_abs() < 1 << f64::MANTISSA_DIGITS;
        affine.filter(|a| small(&a.constant) && a.terms.values().all(small))
    }
}

/// Every index that an expression mentions.
fn indices(e: &Expr, out: &mut BTreeSet<IndexId>) {
    match &e.kind {
        ExprKind::Position(i) => _ = out.insert(*i),
        ExprKind::Read { at, .. } => at.iter().for_each(|a| a.visit_indices(&mut |i| _ = out.insert(i))),
        _ => {}
    }
    e.for_each_child(&mut |c| indices(c, out));
}
