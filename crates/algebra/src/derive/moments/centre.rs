//! What a variable is taken relative to: its running mean, or its running extremum where the text subtracts that.

use super::vector::shrunk;
use super::{Moments, binary};
use crate::derive::polynomial::Polynomial;
use crate::derive::separate::to_old;
use crate::derive::{Deriver, guard};
use crate::{Def, NodeId, Product, Reduction, Streaming, Term, product};
use einloom_cascade::{BinaryOp, IndexId, Monoid, SizeExpr};
use std::collections::BTreeSet;

/// The centre of one variable.
pub(super) struct Centre {
    /// `u - a`, with `a` as it runs.
    pub(super) difference: Term,
    /// How far it moved: `a_old - a_new`; `None` where an earlier traversal completes it.
    pub(super) moved: Option<Term>,
    /// `a` of everything; 0 over nothing.
    pub(super) complete: Term,
    /// The same as a product, without its guard.
    pub(super) bare: Product,
    /// For an extremum: whether there was one before, and it moves. Among nothing but infinities there is none, and what was
    /// summed about 0 is infinite wherever the centre moves; and an infinite moment stays what it is where none moves.
    pub(super) stood: Option<Term>,
    /// Reductions whose running values it is made of.
    pub(super) anchors: BTreeSet<NodeId>,
    /// Of an exponential: its maximum as an exponent, `exp(M)`, which belongs to the slope.
    pub(super) lift: Option<Product>,
    /// Of one that is divided: the range of the elements so far, which the difference is relative to.
    pub(super) range: Option<Term>,
    /// What it is multiplied with when what it is relative to moves, and the states of that.
    pub(super) shrinks: Option<(Term, Vec<NodeId>)>,
}

impl Deriver<'_> {
    /// The reduction that gives the largest or smallest `u_k` over the very elements of the sum, if that is what the text
    /// subtracts from `u_k` wherever it subtracts something: alone, or beside other things where nothing is squared (a
    /// square is the more precise about the mean).
    pub(super) fn subtracted_extremum(&self, m: &Moments, p: &Polynomial, k: usize) -> Option<NodeId> {
        let mut offsets = p.offsets.iter().filter(|o| o.slopes.iter().any(|s| s.0 == k));
        let offset = offsets.next()?;
        if offsets.next().is_some() {
            return None;
        }
        let linear = p.monomials.iter().all(|m| m.powers.iter().sum::<u32>() + m.offsets.iter().sum::<u32>() <= 1);
        let slope = &offset.slopes.iter().find(|s| s.0 == k)?.1;
        if !slope.is_number() || !linear && (offset.slopes.len() > 1 || offset.rest.len() > 1 || !slope.is_one()) {
            return None;
        }
        let rest = if linear { self.opened_addends(&offset.rest, true) } else { offset.rest.clone() };
        let own = |n: &NodeId| matches!(&self.out[*n].def, Def::Reduce(r) if r.filter == m.r.filter);
        rest.iter()
            .filter(|(number, _)| *number == -slope.coefficient)
            .filter_map(|(_, t)| self.is_extremum_of(t, &p.variables[k], &m.r.over))
            .find(own)
    }

    /// The reduction that a term reads, if it is the largest or smallest `u` over these indices.
    pub(in crate::derive) fn is_extremum_of(&self, t: &Term, u: &Product, over: &[IndexId]) -> Option<NodeId> {
        let Term::Read(n, at) = t else { return None };
        let node = &self.out[*n];
        let Def::Reduce(r) = &node.def else { return None };
        let same = matches!(r.monoid, Monoid::Max | Monoid::Min)
            && r.over == over
            && r.streaming.anchors.is_empty()
            && product::sum(&r.body) == product::sum(&u.term());
        let plain = self.out.is_plain(*n, at) && !crate::derive::inline::rounds(node) && !self.pinned.contains_key(n);
        (same && plain).then_some(*n)
    }

    pub(super) fn extremum_as_centre(&self, m: &Moments, u: &Product, extremum: NodeId) -> Centre {
        let value = self.out.read(extremum);
        let running = guard::finite(&value);
        let moves = self.levels.of(extremum) >= m.floor;
        Centre {
            difference: binary(BinaryOp::Sub, u.term(), running.clone()),
            moved: moves.then(|| binary(BinaryOp::Sub, to_old(&running), running)),
            bare: Product::of(&value, &self.out),
            complete: value,
            stood: Some(moved_from(&self.out.read(extremum))),
            anchors: moves.then_some(extremum).into_iter().collect(),
            lift: None,
            range: None,
            shrinks: None,
        }
    }

    /// Adds the running mean of `u`, of which powers are taken relative to the range of the elements so far: a number between
    /// -1 and 1 has powers where its third power would leave the range of the numbers.
    pub(super) fn ranged_centre(&mut self, m: &Moments, u: &Product) -> Centre {
        let centre = self.centre(m, u, None);
        let u = u.term();
        let (high, most) = self.running_max(m.node, &u, &m.r.over, &m.r.filter);
        let least = Reduction { monoid: Monoid::Min, body: u, streaming: Streaming::default(), ..m.r.clone() };
        let low = self.reduction_node(m.node, "min", least);
        let range = binary(BinaryOp::Sub, most, self.out.read(low));
        let usable = guard::usable(&range);
        let moves = self.levels.of(high) >= m.floor;
        // Among equal elements, or none, every moment about their mean is 0, and nothing moves from where nothing was.
        let old = to_old(&range);
        let ratio = binary(BinaryOp::Div, old.clone(), usable.clone());
        let ratio = guard::where_some(guard::is_usable(&old), ratio, 0.0);
        let relative = |t: Term| binary(BinaryOp::Div, t, usable.clone());
        // A range that an earlier traversal completes was the same before.
        let both = match moves {
            true => binary(BinaryOp::And, guard::is_finite(&old), guard::is_usable(&range)),
            false => guard::is_usable(&range),
        };
        let moved = |d: Term| guard::where_some(both, relative(d), 0.0);
        let mut anchors = centre.anchors;
        anchors.extend([high, low].iter().filter(|_| moves));
        Centre {
            difference: relative(centre.difference),
            moved: centre.moved.map(moved),
            anchors,
            shrinks: moves.then(|| (ratio, vec![high, low])),
            range: Some(usable),
            ..centre
        }
    }

    /// Adds the running mean of `u`, an exponential, relative to its own running maximum.
    pub(super) fn exponential_centre(&mut self, m: &Moments, u: &Product) -> Centre {
        let mut u = u.clone();
        let mut exponent = std::mem::take(&mut u.exponent);
        product::append(&mut exponent, std::mem::take(&mut u.exponent2), std::f64::consts::LN_2);
        let (anchor, _, maximum) = self.anchor(m.node, m.r, &exponent, m.floor);
        u.exponent = anchor.exponent;
        let lift = Product { exponent: product::sum(&maximum), ..Product::one() };
        let shrinks = anchor.factor.map(|factor| (factor, anchor.states));
        Centre { lift: Some(lift), ..self.centre(m, &u, shrinks) }
    }

    /// Adds the running mean of `u`, which is multiplied by a factor when a state moves.
    pub(super) fn centre(&mut self, m: &Moments, u: &Product, shrinks: Option<(Term, Vec<NodeId>)>) -> Centre {
        let one = std::slice::from_ref(&shrinks);
        let (sum, count) = if m.weighted {
            let sum = m.anchor.reduction(m.r, m.weight.times(u));
            (shrunk(sum, one, &[1]), m.anchor.reduction(m.r, m.weight.clone()))
        } else {
            let plain = |body: Term| Reduction { body, streaming: Streaming::default(), ..m.r.clone() };
            (shrunk(plain(u.term()), one, &[1]), plain(Term::Number(1.0)))
        };
        let counted = count.body == Term::Number(1.0);
        let sum = self.state_node(m.node, "sum", sum, m.floor);
        // A mean that an earlier traversal completes stays where it is.
        let moves = self.levels.of(sum) >= m.floor;
        let at = if moves { m.floor } else { 0 };
        let whole = counted.then(|| self.positions(&m.r.over)).filter(|_| m.r.filter.is_empty());
        let count = match (&whole, moves) {
            (Some(size), false) => size.clone(),
            _ => {
                let count = self.state_node(m.node, if counted { "count" } else { "weight" }, count, at);
                self.out.read(count)
            }
        };
        let total = self.out.read(sum);
        let mean = |count: Term| binary(BinaryOp::Div, total.clone(), count);
        let running = guard::finite(&mean(count.clone()));
        let mut anchors = BTreeSet::new();
        if moves {
            let mut reads = vec![];
            self.out.reads(&running, &mut reads);
            anchors.extend(reads.iter().map(|o| o.node));
        }
        // Not made finite: where the elements are infinite so is what the text subtracts them from. Only 0 / 0, where
        // everything has the weight 0, stands for no number.
        let bare = mean(whole.clone().unwrap_or(count));
        let some = binary(BinaryOp::Ne, total.clone(), Term::Number(0.0));
        let complete = match whole {
            Some(_) => bare.clone(),
            None => Term::Select(Box::new(some), Box::new(bare.clone()), Box::new(Term::Number(0.0))),
        };
        Centre {
            difference: binary(BinaryOp::Sub, u.term(), running.clone()),
            moved: moves.then(|| {
                let old = to_old(&running);
                let old = match &shrinks {
                    Some((r, _)) => binary(BinaryOp::Mul, old, r.clone()),
                    None => old,
                };
                binary(BinaryOp::Sub, old, running)
            }),
            complete,
            bare: Product::of(&bare, &self.out),
            stood: None,
            anchors,
            lift: None,
            range: None,
            shrinks,
        }
    }

    /// The number of positions of these indices.
    fn positions(&self, over: &[IndexId]) -> Term {
        let size = |i: &IndexId| SizeExpr::rank(self.out.cascade[*i].rank);
        let size = over.iter().map(size).fold(SizeExpr::constant(1), |a, b| a.mul(&b));
        size.as_constant().map_or_else(|| Term::Size(size.clone()), |c| Term::Number(c as f64))
    }
}

/// What multiplies a power of a variable, as what multiplies that power of it relative to its maximum.
pub(super) fn lifted(factor: &Product, centre: &Centre, power: u32) -> Product {
    let lift = |_| centre.lift.as_ref();
    (0..power).filter_map(lift).fold(factor.clone(), |f, l| f.times(l))
}

/// Whether an anchor was finite, and is another one now.
fn moved_from(value: &Term) -> Term {
    let (old, new) = (to_old(value), value.clone());
    binary(BinaryOp::And, guard::is_finite(&old), binary(BinaryOp::Ne, old, new))
}
