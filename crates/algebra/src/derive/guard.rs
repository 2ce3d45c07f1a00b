//! Guards: what moves out of a reduction must not be applied where the reduction is over nothing, and an anchor must
//! be finite while it is used.

use super::Deriver;
use crate::{Def, Node, NodeId, Product, Reduction, Streaming, Term, flatten::fresh_name, product};
use einloom_cascade::{BinaryOp, Cascade, DType, IndexId, Monoid, SizeExpr, UnaryOp};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::rc::Rc;

fn binary(op: BinaryOp, a: Term, b: Term) -> Term {
    Term::Binary(op, Box::new(a), Box::new(b))
}

/// Whether `x` is a finite number.
pub(super) fn is_finite(x: &Term) -> Term {
    binary(BinaryOp::Lt, Term::Unary(UnaryOp::Abs, Box::new(x.clone())), Term::Number(f64::INFINITY))
}

/// Whether something can be taken relative to `x`: a finite number that is not 0.
pub(super) fn is_usable(x: &Term) -> Term {
    binary(BinaryOp::And, binary(BinaryOp::Ne, x.clone(), Term::Number(0.0)), is_finite(x))
}

/// `x` where something can be taken relative to it, else 1.
pub(super) fn usable(x: &Term) -> Term {
    where_some(is_usable(x), x.clone(), 1.0)
}

/// `x` where it is finite, else 0: a legitimate anchor in every case, since any finite number is one.
pub(super) fn finite(x: &Term) -> Term {
    Term::Select(Box::new(is_finite(x)), Box::new(x.clone()), Box::new(Term::Number(0.0)))
}

/// The term with `x` in place of `x` where it is finite, else 0.
pub(super) fn as_if_finite(t: &Term) -> Term {
    let t = t.map_children(&mut as_if_finite);
    match &t {
        Term::Select(_, x, _) if t == finite(x) => (**x).clone(),
        _ => t,
    }
}

/// `then` where the reduction is over something, else the identity; `then` alone where it is known to be.
pub(super) fn where_some(seen: Term, then: Term, identity: f64) -> Term {
    Term::Select(Box::new(seen), Box::new(then), Box::new(Term::Number(identity)))
}

/// What is made of an extremum, or its identity where the extremum is that.
pub(super) fn unless_identity(extremum: &Term, identity: f64, made: impl FnOnce(Term) -> Term) -> Term {
    let nothing = binary(BinaryOp::Eq, extremum.clone(), Term::Number(identity));
    Term::Select(Box::new(nothing), Box::new(Term::Number(identity)), Box::new(made(extremum.clone())))
}

impl Deriver<'_> {
    /// A term that tells whether the reduction is over anything, for each position of the node's axes.
    pub(super) fn seen(&mut self, node: &Node, over: &[IndexId], filter: &[Term]) -> Term {
        if let Some(known) = by_positions(&self.out.cascade, over, filter) {
            return known;
        }
        // The filter depends on data, or on several indices: count by traversing.
        let any = self.reduction_node(node, "any", any_of(over, filter));
        binary(BinaryOp::Gt, self.out.read(any), Term::Number(0.0))
    }

    /// Adds a reduction that belongs to `node`, or finds the equal one that exists.
    pub(super) fn reduction_node(&mut self, node: &Node, what: &str, reduction: Reduction) -> NodeId {
        match self.find_equal(&reduction, |n| !self.pinned.contains_key(&n)) {
            Some(n) => n,
            None => self.new_reduction(node, what, reduction),
        }
    }

    /// A node that is this reduction and passes a test, if there is one.
    pub(super) fn find_equal(&self, wanted: &Reduction, test: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let product = OnceCell::new();
        let product = || product.get_or_init(|| Product::of(&wanted.body, &self.out));
        self.out.ids().find(|&n| test(n) && self.equal_reduction(n, wanted, &product))
    }

    /// The body of node `n`, a reduction, as a product.
    fn product_of(&self, n: NodeId, body: &Term) -> Rc<Product> {
        let mut products = self.products.borrow_mut();
        products.entry(n).or_insert_with(|| Rc::new(Product::of(body, &self.out))).clone()
    }

    /// Whether a node is this reduction, over the axes that it would have. Factors of a sum have no order.
    fn equal_reduction<'a>(&self, n: NodeId, wanted: &Reduction, wanted_product: &dyn Fn() -> &'a Product) -> bool {
        let node = &self.out[n];
        let Def::Reduce(r) = &node.def else { return false };
        // Lifted sums of integers are exact, whoever reads them.
        let exact = !super::inline::rounds(node) || (node.dtype == Some(DType::I32) && node.tensor.is_none());
        if !exact || r.monoid != wanted.monoid || r.over != wanted.over || r.filter != wanted.filter {
            return false;
        }
        if r.streaming != wanted.streaming {
            return false;
        }
        let same =
            r.body == wanted.body || r.monoid == Monoid::Sum && self.product_of(n, &r.body).same_as(wanted_product());
        if !same {
            return false;
        }
        // Equal products may mention different indices: `exp(x[c] - x[c])` is 1. Whoever wants the one without must not
        // have to say where the other is read.
        let mentioned = |r: &Reduction| {
            let mut free = BTreeSet::new();
            r.body.indices(&mut free);
            r.filter.iter().for_each(|t| t.indices(&mut free));
            free
        };
        let (free, wanted) = (mentioned(r), mentioned(wanted));
        node.axes.len() == free.iter().filter(|i| !r.over.contains(i)).count()
            && node.axes.iter().all(|a| free.contains(a) && wanted.contains(a))
    }

    /// Adds a reduction that belongs to `node`, over those of its axes that it needs.
    pub(super) fn new_reduction(&mut self, node: &Node, what: &str, reduction: Reduction) -> NodeId {
        let mut free = BTreeSet::new();
        reduction.body.indices(&mut free);
        reduction.filter.iter().for_each(|t| t.indices(&mut free));
        let kept = |(axis, _): &(&IndexId, &SizeExpr)| free.contains(axis);
        let (axes, extents) = node.axes.iter().zip(&node.extents).filter(kept).unzip::<_, _, Vec<_>, Vec<_>>();
        let node = Node {
            name: fresh_name(&self.out.nodes, &format!("{}.{what}", node.name)),
            axes: axes.into_iter().copied().collect(),
            extents: extents.into_iter().cloned().collect(),
            def: Def::Reduce(reduction),
            dtype: None,
            tensor: None,
            statement: node.statement,
            span: node.span,
        };
        self.push(node)
    }
}

/// Whether these indices have any positions at all.
pub(super) fn some_positions(cascade: &Cascade, over: &[IndexId]) -> Term {
    let sizes = over.iter().map(|&i| SizeExpr::rank(cascade[i].rank));
    let size = sizes.fold(SizeExpr::constant(1), |a, b| a.mul(&b));
    binary(BinaryOp::Gt, Term::Size(size), Term::Number(0.0))
}

/// Whether a reduction is over anything, where positions and sizes alone decide that.
pub(super) fn by_positions(cascade: &Cascade, over: &[IndexId], filter: &[Term]) -> Option<Term> {
    let some = some_positions(cascade, over);
    if filter.is_empty() {
        return Some(some);
    }
    let bounds = interval(cascade, over, filter)?;
    Some(bounds.into_iter().fold(some, |a, b| binary(BinaryOp::And, a, b)))
}

/// The reduction that is 1 if a filter lets anything through.
pub(super) fn any_of(over: &[IndexId], filter: &[Term]) -> Reduction {
    Reduction {
        monoid: Monoid::Max,
        over: over.to_vec(),
        filter: filter.to_vec(),
        body: Term::Number(1.0),
        streaming: Streaming::default(),
    }
}

/// For a filter of integer bounds on one index with coefficient ±1: the comparisons that say that the interval is
/// not empty. `None` if the filter is not of this form.
fn interval(cascade: &Cascade, over: &[IndexId], filter: &[Term]) -> Option<Vec<Term>> {
    let &[index] = over else { return None };
    let position = Term::Position(index);
    // Inclusive bounds.
    let mut lower = vec![vec![]];
    let size = Term::Size(SizeExpr::rank(cascade[index].rank));
    let mut upper = vec![vec![(1.0, size), (-1.0, Term::Number(1.0))]];
    for term in filter {
        let Term::Binary(op, a, b) = term else { return None };
        let mut difference = product::sum(a);
        product::append(&mut difference, product::sum(b), -1.0);
        let at = difference.iter().position(|(_, t)| *t == position)?;
        let (own, _) = difference.remove(at);
        let integer = |(c, t): &(f64, Term)| {
            c.fract() == 0.0 && !t.mentions(over) && matches!(t, Term::Number(_) | Term::Size(_) | Term::Position(_))
        };
        if own.abs() != 1.0 || !difference.iter().all(integer) {
            return None;
        }
        // own·n + d OP 0, so n OP' -d/own
        let mut bound: product::Sum = vec![];
        product::append(&mut bound, difference, -own);
        let below = |mut b: product::Sum, by: f64| {
            product::append(&mut b, vec![(by, Term::Number(1.0))], 1.0);
            b
        };
        match (op, own > 0.0) {
            (BinaryOp::Le, true) | (BinaryOp::Ge, false) => upper.push(bound),
            (BinaryOp::Lt, true) | (BinaryOp::Gt, false) => upper.push(below(bound, -1.0)),
            (BinaryOp::Ge, true) | (BinaryOp::Le, false) => lower.push(bound),
            (BinaryOp::Gt, true) | (BinaryOp::Lt, false) => lower.push(below(bound, 1.0)),
            (BinaryOp::Eq, _) => {
                lower.push(bound.clone());
                upper.push(bound);
            }
            _ => return None,
        }
    }
    let mut out = vec![];
    for (k, lo) in lower.iter().enumerate() {
        for (j, hi) in upper.iter().enumerate() {
            if (k, j) == (0, 0) {
                continue;
            }
            let mut room = hi.clone();
            product::append(&mut room, lo.clone(), -1.0);
            let trivial = room.iter().all(|(c, t)| *c > 0.0 && !matches!(t, Term::Number(v) if *v < 0.0));
            if !trivial {
                out.push(binary(BinaryOp::Ge, product::sum_term(&room), Term::Number(0.0)));
            }
        }
    }
    Some(out)
}
