//! Differences: `Σ g(x)·(u(x) - c)^p`, where `c` is made of other reductions over the same indices.
//!
//! Condition: what mixes the reduced indices with values it waits for multiplies out into finitely many terms
//! `g_k(x)·h_k(c)` (see [`super::polynomial`]). Then `Σ_k h_k(c)·Σ g_k(x)` would be one traversal, but it subtracts
//! large numbers from each other (`E[x²] - E[x]²`). So the states are *central* moments
//! `M_α = Σ g·Π (u_j - a_j)^α_j` about the running means `a_j` of the `u_j` themselves, whatever `c` is, and what the
//! text subtracts leaves the sum as the offset `a_j - c`. When the means move by `d = a_old - a_new`, the vector of
//! states moves by a triangular linear map,
//!
//! ```text
//! M_α ← Σ_{γ ≤ α} Π_j binomial(α_j, γ_j)·d_j^(α_j - γ_j) · M_γ,
//! ```
//!
//! which for the variance is the update of Chan, Golub and LeVeque, "Updating Formulae and a Pairwise Algorithm for
//! Computing Sample Variances", 1979, and for higher powers that of Pébay, "Formulas for Robust, One-Pass Parallel
//! Computation of Covariances and Arbitrary-Order Statistical Moments", 2008.
//!
//! Where the text subtracts the largest or smallest `u` itself, that is the centre: it moves one way, so all terms of the
//! binomial sum have one sign and nothing cancels.
//!
//! A variable that is an exponential is taken relative to its running maximum, `u = exp(x - M)`, and `exp(M)` belongs to its
//! slope. When the maximum moves, `u` and its mean shrink by `r = exp(M_old - M_new)`: then `d = r·a_old - a_new`, and a state
//! shrinks by `r` to its power of `u` before it is moved.
//!
//! The mean is weighted with `g` where no factor of `g` can be negative, else every position counts once. First
//! moments about a mean of their own weight are 0 and no state. Any finite running mean is a legitimate one: where
//! nothing has been counted, or something infinite, it is 0; the offset has the mean as it is, so that what is not finite
//! as written is not finite as derived.

use super::polynomial::{Monomial, Offset, Polynomial};
use super::separate::{Anchor, to_old};
use super::{Deriver, guard};
use crate::{Def, Node, NodeId, Product, Reduction, Repair, Rule, Streaming, Term, product, show};
use einloom_cascade::{BinaryOp, IndexExpr, IndexId, Monoid, SizeExpr};
use std::collections::{BTreeMap, BTreeSet};

/// Operations of an offset, written out, beyond which it is not asked whether it is 0.
const LARGEST_OFFSET: usize = 512;

/// The centre of one variable.
struct Centre {
    /// `u - a`, with `a` as it runs.
    difference: Term,
    /// How far it moved: `a_old - a_new`; `None` where an earlier traversal completes it.
    moved: Option<Term>,
    /// `a` of everything; 0 over nothing.
    complete: Term,
    /// The same as a product, without its guard.
    bare: Product,
    /// For an extremum: whether there was one before, and it moves. Among nothing but infinities there is none, and what was
    /// summed about 0 is infinite wherever the centre moves; and an infinite moment stays what it is where none moves.
    stood: Option<Term>,
    /// Reductions whose running values it is made of.
    anchors: BTreeSet<NodeId>,
    /// Of an exponential: its maximum as an exponent, `exp(M)`, which belongs to the slope.
    lift: Option<Product>,
    /// Of an exponential: what it is multiplied with when its maximum moves, and the maximum's state.
    shrinks: Option<(Term, NodeId)>,
}

/// Names a state: which factor besides the weight, and which powers.
type Key = (usize, Vec<u32>);

/// The vector of states under construction.
struct Moments<'a> {
    node: &'a Node,
    r: &'a Reduction,
    weight: &'a Product,
    anchor: &'a Anchor,
    floor: usize,
    centres: Vec<Centre>,
    /// The means are weighted with the weight of the states.
    weighted: bool,
    /// Factors besides the weight, 1 first.
    rests: Vec<Product>,
    states: BTreeMap<Key, NodeId>,
}

fn binary(op: BinaryOp, a: Term, b: Term) -> Term {
    Term::Binary(op, Box::new(a), Box::new(b))
}

impl Deriver<'_> {
    /// The states of a sum of `weight · exponential · polynomial`, and the sum in terms of them. Returns the state of
    /// the highest powers for explanations.
    #[allow(clippy::too_many_arguments)] // The parts of one rewriting.
    pub(super) fn moments(
        &mut self,
        node: &Node,
        r: &Reduction,
        weight: &Product,
        polynomial: &Polynomial,
        anchor: &Anchor,
        floor: usize,
        before: &str,
    ) -> (Reduction, Term) {
        let weighted = weight.nonnegative(&self.out);
        let mut m = Moments {
            node,
            r,
            weight,
            anchor,
            floor,
            centres: vec![],
            weighted,
            rests: vec![Product::one()],
            states: BTreeMap::new(),
        };
        for (k, u) in polynomial.variables.iter().enumerate() {
            let centre = match self.subtracted_extremum(&m, polynomial, k) {
                Some(extremum) => self.extremum_as_centre(&m, u, extremum),
                None if polynomial.anchored.contains(&k) => self.exponential_centre(&m, u),
                None => self.centre(&m, u, None),
            };
            m.centres.push(centre);
        }
        let offsets: Vec<(Term, bool)> = polynomial.offsets.iter().map(|o| self.offset(node, o, &m)).collect();
        // Where an offset is known to be 0, provided that it is a number at all.
        let mut known: Option<Term> = None;
        for (offset, _) in offsets.iter().filter(|o| o.1) {
            let finite = guard::is_finite(offset);
            known = Some(known.map_or(finite.clone(), |k| binary(BinaryOp::And, k, finite)));
        }
        let mut highest: Option<(u32, NodeId)> = None;
        let (mut short, mut full) = (vec![], vec![]);
        for monomial in &polynomial.monomials {
            let Some((state, term)) = self.monomial(&mut m, monomial, &offsets) else { continue };
            let degree: u32 = monomial.powers.iter().sum();
            if highest.is_none_or(|h| degree > h.0) {
                highest = Some((degree, state));
            }
            if monomial.offsets.iter().zip(&offsets).all(|(&k, o)| k == 0 || !o.1) {
                short.push((monomial.number, term.clone()));
            }
            full.push((monomial.number, term));
        }
        let full = product::sum_term(&full);
        let value = match known {
            Some(known) => Term::Select(Box::new(known), Box::new(product::sum_term(&short)), Box::new(full)),
            None => full,
        };
        let shown = match highest.map(|h| &self.out[h.1].def) {
            Some(Def::Reduce(r)) => r.clone(),
            _ => r.clone(),
        };
        self.explain_moments(&m, polynomial, &shown, before, &value);
        (shown, value)
    }

    /// The reduction that gives the largest or smallest `u_k` over the very elements of the sum, if that is what the text
    /// subtracts from `u_k` wherever it subtracts something: alone, or beside other things where nothing is squared (a
    /// square is the more precise about the mean).
    fn subtracted_extremum(&self, m: &Moments, p: &Polynomial, k: usize) -> Option<NodeId> {
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
    pub(super) fn is_extremum_of(&self, t: &Term, u: &Product, over: &[IndexId]) -> Option<NodeId> {
        let Term::Read(n, at) = t else { return None };
        let node = &self.out[*n];
        let Def::Reduce(r) = &node.def else { return None };
        let same = matches!(r.monoid, Monoid::Max | Monoid::Min)
            && r.over == over
            && r.streaming.anchors.is_empty()
            && product::sum(&r.body) == product::sum(&u.term());
        let plain = self.out.is_plain(*n, at) && !super::inline::rounds(node) && !self.pinned.contains_key(n);
        (same && plain).then_some(*n)
    }

    /// The addends of a sum, with pointwise definitions put in place of their reads, without their guards if these do not
    /// matter.
    pub(super) fn opened_addends(&self, sum: &product::Sum, unguarded: bool) -> product::Sum {
        let mut left = LARGEST_OFFSET;
        let mut out = vec![];
        for (number, t) in sum {
            let opened = self.expanded(t, 0, &mut left);
            let opened = if unguarded { show::unguarded(&opened) } else { opened };
            out.extend(product::sum(&opened).into_iter().map(|(c, t)| (number * c, t)));
        }
        if left == 0 { sum.clone() } else { out }
    }

    fn extremum_as_centre(&self, m: &Moments, u: &Product, extremum: NodeId) -> Centre {
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
            shrinks: None,
        }
    }

    /// Adds the running mean of `u`, an exponential, relative to its own running maximum.
    fn exponential_centre(&mut self, m: &Moments, u: &Product) -> Centre {
        let mut u = u.clone();
        let mut exponent = std::mem::take(&mut u.exponent);
        product::append(&mut exponent, std::mem::take(&mut u.exponent2), std::f64::consts::LN_2);
        let (anchor, _, maximum) = self.anchor(m.node, m.r, &exponent, m.floor);
        u.exponent = anchor.exponent;
        let lift = Product { exponent: product::sum(&maximum), ..Product::one() };
        let shrinks = anchor.factor.zip(anchor.state);
        Centre { lift: Some(lift), ..self.centre(m, &u, shrinks) }
    }

    /// Adds the running mean of `u`, which is multiplied by a factor when a state moves.
    fn centre(&mut self, m: &Moments, u: &Product, shrinks: Option<(Term, NodeId)>) -> Centre {
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
            shrinks,
        }
    }

    /// An offset `β + Σ slope·a` as a term, and whether it is 0 wherever it is a number.
    fn offset(&mut self, node: &Node, offset: &Offset, m: &Moments) -> (Term, bool) {
        let rest: product::Sum = offset.rest.iter().map(|(c, t)| (*c, self.at_own_axes(node, t))).collect();
        let mut total: Vec<(f64, Product)> = vec![];
        let mut add = |number: f64, mut p: Product| {
            let number = number * std::mem::replace(&mut p.coefficient, 1.0);
            match total.iter_mut().find(|(_, other)| other.same_as(&p)) {
                Some((n, _)) => *n += number,
                None => total.push((number, p)),
            }
        };
        // Beside an extremum that is a centre, what the text makes of it is subtracted part by part.
        let stands = offset.slopes.iter().any(|(variable, _)| m.centres[*variable].stood.is_some());
        let mut term = if stands { self.opened_addends(&rest, false) } else { rest.clone() };
        let mut left = LARGEST_OFFSET;
        for (number, t) in &rest {
            let written_out = show::unguarded(&self.expanded(t, 0, &mut left));
            if left == 0 {
                break;
            }
            for (c, addend) in product::sum(&written_out) {
                add(number * c, Product::of(&addend, &self.out));
            }
        }
        for (variable, slope) in &offset.slopes {
            let centre = &m.centres[*variable];
            let mut slope = lifted(slope, centre, 1);
            add(1.0, slope.times(&centre.bare));
            let number = std::mem::replace(&mut slope.coefficient, 1.0);
            let scaled = match slope.is_one() {
                true => centre.complete.clone(),
                false => binary(BinaryOp::Mul, slope.term(), centre.complete.clone()),
            };
            // Not merged: what is subtracted from itself is 0 only where it is finite. But first of all, so that nothing else
            // loses digits to it.
            let subtracted = |(c, t): &(f64, Term)| *c == -number && *t == scaled;
            match term.iter().position(subtracted).filter(|_| centre.stood.is_some()) {
                Some(k) => term[k] = (number, binary(BinaryOp::Sub, scaled.clone(), scaled)),
                None => term.push((number, scaled)),
            }
        }
        if left == 0 {
            self.offset_too_large(node, &m.r.over);
        }
        (product::sum_term(&term), left > 0 && total.iter().all(|(n, _)| *n == 0.0))
    }

    /// One monomial as a term, and the state that it reads. `None` where the state is 0.
    fn monomial(&mut self, m: &mut Moments, monomial: &Monomial, offsets: &[(Term, bool)]) -> Option<(NodeId, Term)> {
        let rest = match m.rests.iter().position(|r| r.same_as(&monomial.rest)) {
            Some(k) => k,
            None => {
                m.rests.push(monomial.rest.clone());
                m.rests.len() - 1
            }
        };
        let state = self.moment(m, &(rest, monomial.powers.clone()), true)?;
        let mut term = self.out.read(state);
        for (&power, (offset, _)) in monomial.offsets.iter().zip(offsets) {
            if power > 0 {
                term = binary(BinaryOp::Mul, term, raise(offset, power));
            }
        }
        let outer = m.centres.iter().zip(&monomial.powers).fold(monomial.outer.clone(), |o, (c, &k)| lifted(&o, c, k));
        if !outer.is_one() {
            term = binary(BinaryOp::Mul, term, outer.term());
        }
        Some((state, term))
    }

    /// The state of these powers, with all that its repair needs. `None` where it is 0: a first moment about the mean that
    /// runs with it, or, once it is complete, about the mean of everything.
    fn moment(&mut self, m: &mut Moments, key: &Key, complete: bool) -> Option<NodeId> {
        let (rest, powers) = key;
        let degree: u32 = powers.iter().sum();
        let about_mean = |c: &Centre| c.stood.is_none() && (complete || c.moved.is_some());
        let first = || powers.iter().position(|&p| p == 1).is_some_and(|k| about_mean(&m.centres[k]));
        if *rest == 0 && degree == 1 && m.weighted && first() {
            return None;
        }
        if let Some(&state) = m.states.get(key) {
            return Some(state);
        }
        let mut inside = m.weight.times(&m.rests[*rest]);
        for (centre, &power) in m.centres.iter().zip(powers) {
            if power > 0 {
                inside.factors.push((centre.difference.clone(), f64::from(power)));
            }
        }
        let shrinks: Vec<Option<(Term, NodeId)>> = m.centres.iter().map(|c| c.shrinks.clone()).collect();
        let mut reduction = shrunk(m.anchor.reduction(m.r, inside), &shrinks, powers);
        let mut anchors: BTreeSet<NodeId> = reduction.streaming.anchors.iter().copied().collect();
        let mut plus: Option<Term> = None;
        for below in below(powers) {
            let Some(factor) = m.moves(powers, &below) else { continue };
            let Some(state) = self.moment(m, &(*rest, below.clone()), false) else { continue };
            anchors.insert(state);
            let old = to_old(&self.out.read(state));
            let old = below.iter().zip(&shrinks).fold(old, |old, (&k, s)| match s {
                Some((r, _)) if k > 0 => binary(BinaryOp::Mul, old, raise(r, k)),
                _ => old,
            });
            let mut term = binary(BinaryOp::Mul, old, factor);
            let moved = m.centres.iter().zip(powers.iter().zip(&below)).filter(|(_, (a, b))| a != b);
            for stood in moved.filter_map(|(c, _)| c.stood.as_ref()) {
                term = guard::where_some(stood.clone(), term, 0.0);
            }
            plus = Some(plus.map_or(term.clone(), |p| binary(BinaryOp::Add, p, term)));
        }
        for (centre, &power) in m.centres.iter().zip(powers) {
            if power > 0 {
                anchors.extend(&centre.anchors);
            }
        }
        let what = name_of(*rest, powers);
        if let Some(plus) = plus {
            let plus = match &m.anchor.factor {
                Some(factor) => binary(BinaryOp::Mul, plus, factor.clone()),
                None => plus,
            };
            let factor = reduction.streaming.repair.map_or(Term::Number(1.0), |r| r.factor);
            let repair = Repair { combine: BinaryOp::Mul, factor, plus: Some(plus), keep_if: None };
            reduction.streaming = Streaming { level: 0, anchors: self.with_theirs(anchors), repair: Some(repair) };
        }
        let state = self.state_node(m.node, &what, reduction, m.floor);
        m.states.insert(key.clone(), state);
        Some(state)
    }

    /// The anchors and what they are anchored at themselves, in order.
    fn with_theirs(&self, mut anchors: BTreeSet<NodeId>) -> Vec<NodeId> {
        let mut todo: Vec<NodeId> = anchors.iter().copied().collect();
        while let Some(a) = todo.pop() {
            if let Def::Reduce(r) = &self.out[a].def {
                todo.extend(r.streaming.anchors.iter().filter(|&&b| anchors.insert(b)));
            }
        }
        anchors.into_iter().collect()
    }

    /// The number of positions of these indices.
    fn positions(&self, over: &[IndexId]) -> Term {
        let size = |i: &IndexId| SizeExpr::rank(self.out.cascade[*i].rank);
        let size = over.iter().map(size).fold(SizeExpr::constant(1), |a, b| a.mul(&b));
        size.as_constant().map_or_else(|| Term::Size(size.clone()), |c| Term::Number(c as f64))
    }

    /// A state that runs in the traversal `floor`: an equal one of an earlier traversal would be complete.
    fn state_node(&mut self, node: &Node, what: &str, reduction: Reduction, floor: usize) -> NodeId {
        if floor == 0 {
            return self.reduction_node(node, what, reduction);
        }
        let runs = |n: NodeId| self.levels.of(n) >= floor || self.pinned.get(&n) == Some(&floor);
        if let Some(n) = self.find_equal(&reduction, runs) {
            return n;
        }
        let state = self.new_reduction(node, what, reduction);
        if self.levels.of(state) < floor {
            self.pinned.insert(state, floor);
        }
        state
    }

    /// A term with every reduction in it read at its own axes, where a copy of the reduction makes that possible: a
    /// mean over `x[i]` read at `j` is the mean over `x[j]`.
    fn at_own_axes(&mut self, node: &Node, t: &Term) -> Term {
        let Term::Read(n, at) = t else {
            return t.map_children(&mut |c| self.at_own_axes(node, c));
        };
        if self.out.is_plain(*n, at) {
            return t.clone();
        }
        let axes = self.out[*n].axes.clone();
        let to: BTreeMap<IndexId, IndexExpr> = axes.into_iter().zip(at.iter().cloned()).collect();
        let map = |i: IndexId| to.get(&i).cloned();
        match self.out[*n].def.clone() {
            Def::Map(def) if !super::inline::rounds(&self.out[*n]) => match def.substitute(&map) {
                Some(moved) => self.at_own_axes(node, &moved),
                None => t.clone(),
            },
            Def::Reduce(r) if r.streaming.anchors.is_empty() && !super::inline::rounds(&self.out[*n]) => {
                let renames = at.iter().all(|e| e.as_var().is_some_and(|i| !r.over.contains(&i)));
                let filter: Option<Vec<Term>> = r.filter.iter().map(|f| f.substitute(&map)).collect();
                match (renames, r.body.substitute(&map), filter) {
                    (true, Some(body), Some(filter)) => {
                        let copy = self.reduction_node(node, "sum", Reduction { body, filter, ..r });
                        self.out.read(copy)
                    }
                    _ => t.clone(),
                }
            }
            _ => t.clone(),
        }
    }

    /// A term with pointwise definitions put in place of their reads, as long as `left` operations last: a definition
    /// that reads the one before twice doubles it.
    fn expanded(&self, t: &Term, depth: usize, left: &mut usize) -> Term {
        if depth > 16 {
            return t.clone();
        }
        t.replace_reads(&mut |n, at| match &self.out[n].def {
            Def::Map(def) if self.out.is_plain(n, at) && !super::inline::rounds(&self.out[n]) => {
                *left = left.saturating_sub(super::inline::operations(def));
                if *left == 0 { None } else { Some(self.expanded(def, depth + 1, left)) }
            }
            _ => None,
        })
    }

    /// Says that nobody looked whether an offset is 0.
    fn offset_too_large(&mut self, node: &Node, over: &[IndexId]) {
        if self.refusals.iter().any(|r| r.rule == Rule::Centre && r.node == node.name) {
            return;
        }
        let reason = format!(
            "whether what {} subtracts is the running mean itself was not looked for: written out it is more than {LARGEST_OFFSET} operations",
            node.name
        );
        let hint = "the sum streams all the same, and subtracts the two numbers; a definition that reads the one before only once does not double it";
        self.refuse(Rule::Centre, node, over, reason, Some(hint.into()));
    }

    /// That an exponential is taken relative to a maximum.
    fn shrinking(&self, (by, maximum): &(Term, NodeId)) -> String {
        let (by, maximum) = (show::term(&self.out, &show::unguarded(by)), &self.out[*maximum].name);
        format!("; its exponential is relative to {maximum}, the maximum so far, and shrinks by {by} when that grows")
    }

    fn explain_moments(&mut self, m: &Moments, p: &Polynomial, shown: &Reduction, before: &str, value: &Term) {
        let means: Vec<String> =
            m.centres.iter().map(|c| show::term(&self.out, &show::unguarded(&c.bare.term()))).collect();
        // What is subtracted is the centre itself where that is an extremum.
        let beside = |o: &&Offset| !o.rest.is_empty() && o.slopes.iter().all(|s| m.centres[s.0].stood.is_none());
        let added: Vec<String> =
            (p.offsets.iter().filter(beside)).map(|o| show::term(&self.out, &product::sum_term(&o.rest))).collect();
        let added = match added.as_slice() {
            [] => String::new(),
            [one] => format!("; {one} is added to the elements"),
            all => format!("; {} are added to the elements", all.join(" and ")),
        };
        let states: Vec<&str> = m.states.values().map(|&s| self.out[s].name.as_str()).collect();
        let what = match (m.centres.iter().any(|c| c.stood.is_none()), m.centres.iter().any(|c| c.stood.is_some())) {
            (_, false) => "mean",
            (false, _) => "extremum",
            _ => "centre",
        };
        let means = match (means.as_slice(), what) {
            ([one], _) => format!("the running {what} is {one}"),
            (_, "extremum") => format!("the running extrema are {}", means.join(" and ")),
            _ => format!("the running {what}s are {}", means.join(" and ")),
        };
        let mut shrinks: Vec<String> =
            m.centres.iter().filter_map(|c| c.shrinks.as_ref()).map(|s| self.shrinking(s)).collect();
        shrinks.dedup();
        let why = format!("{means}, the states are {}{added}{}", states.join(", "), shrinks.concat());
        let after =
            format!("{}; {} = {}", self.state_text(shown), m.node.name, show::term(&self.out, &show::unguarded(value)));
        let over = m.r.over.clone();
        self.step(Rule::Centre, m.node, &over, why, before.to_string(), after);
    }
}

/// A state with exponentials to these powers in it, whose repair shrinks it as they shrink.
fn shrunk(mut r: Reduction, shrinks: &[Option<(Term, NodeId)>], powers: &[u32]) -> Reduction {
    for (shrink, &power) in shrinks.iter().zip(powers) {
        let Some((by, state)) = shrink.as_ref().filter(|_| power > 0) else { continue };
        let by = raise(by, power);
        let factor = match r.streaming.repair.take() {
            Some(repair) => binary(BinaryOp::Mul, repair.factor, by),
            None => by,
        };
        r.streaming.repair = Some(Repair { combine: BinaryOp::Mul, factor, plus: None, keep_if: None });
        if !r.streaming.anchors.contains(state) {
            r.streaming.anchors.push(*state);
            r.streaming.anchors.sort();
        }
    }
    r
}

/// What multiplies a power of a variable, as what multiplies that power of it relative to its maximum.
fn lifted(factor: &Product, centre: &Centre, power: u32) -> Product {
    let lift = |_| centre.lift.as_ref();
    (0..power).filter_map(lift).fold(factor.clone(), |f, l| f.times(l))
}

impl Moments<'_> {
    /// `Π binomial(α, γ)·d^(α - γ)`; `None` if a mean in it does not move.
    fn moves(&self, powers: &[u32], lower: &[u32]) -> Option<Term> {
        let mut number = 1.0;
        let mut out: Option<Term> = None;
        for ((&a, &g), centre) in powers.iter().zip(lower).zip(&self.centres) {
            if a == g {
                continue;
            }
            number *= (0..a - g).fold(1.0, |b, k| b * f64::from(a - k) / f64::from(k + 1));
            let term = raise(centre.moved.as_ref()?, a - g);
            out = Some(out.map_or(term.clone(), |o| binary(BinaryOp::Mul, o, term)));
        }
        let out = out?;
        Some(if number == 1.0 { out } else { binary(BinaryOp::Mul, Term::Number(number), out) })
    }
}

/// Whether an anchor was finite, and is another one now.
fn moved_from(value: &Term) -> Term {
    let (old, new) = (to_old(value), value.clone());
    binary(BinaryOp::And, guard::is_finite(&old), binary(BinaryOp::Ne, old, new))
}

fn raise(t: &Term, power: u32) -> Term {
    if power == 1 { t.clone() } else { binary(BinaryOp::Pow, t.clone(), Term::Number(f64::from(power))) }
}

/// All powers that are nowhere larger and somewhere smaller, highest first.
fn below(powers: &[u32]) -> Vec<Vec<u32>> {
    let mut out = vec![vec![]];
    for &p in powers {
        out =
            out.into_iter().flat_map(|v: Vec<u32>| (0..=p).rev().map(move |k| [v.clone(), vec![k]].concat())).collect();
    }
    out.retain(|v| v != powers);
    out
}

/// `moment2`, `moment11`; of a further factor, `acc`.
fn name_of(rest: usize, powers: &[u32]) -> String {
    let digits: String = powers.iter().map(u32::to_string).collect();
    match (rest, powers.iter().all(|&p| p == 0)) {
        (_, true) => "acc".into(),
        _ => format!("moment{digits}"),
    }
}
