//! What the text subtracts besides a centre, `a - c`, and whether it is 0.

use super::centre::lifted;
use super::{Moments, binary};
use crate::derive::Deriver;
use crate::derive::polynomial::Offset;
use crate::{Def, Node, Product, Reduction, Rule, Term, product, show};
use einloom_cascade::{BinaryOp, IndexExpr, IndexId};
use std::collections::BTreeMap;

/// Operations of an offset, written out, beyond which it is not asked whether it is 0.
const LARGEST_OFFSET: usize = 512;

impl Deriver<'_> {
    /// An offset `β + Σ slope·a` as a term, and whether it is 0 wherever it is a number.
    pub(super) fn offset(&mut self, node: &Node, offset: &Offset, m: &Moments) -> (Term, bool) {
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
            let mut written_out = slope.clone();
            if centre.range.is_some() {
                written_out = Product::of(&show::unguarded(&self.expanded(&slope.term(), 0, &mut left)), &self.out);
            }
            add(1.0, written_out.times(&centre.bare));
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

    /// The addends of a sum, with pointwise definitions put in place of their reads, without their guards if these do not
    /// matter.
    pub(in crate::derive) fn opened_addends(&self, sum: &product::Sum, unguarded: bool) -> product::Sum {
        let mut left = LARGEST_OFFSET;
        let mut out = vec![];
        for (number, t) in sum {
            let opened = self.expanded(t, 0, &mut left);
            let opened = if unguarded { show::unguarded(&opened) } else { opened };
            out.extend(product::sum(&opened).into_iter().map(|(c, t)| (number * c, t)));
        }
        if left == 0 { sum.clone() } else { out }
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
            Def::Map(def) if !crate::derive::inline::rounds(&self.out[*n]) => match def.substitute(&map) {
                Some(moved) => self.at_own_axes(node, &moved),
                None => t.clone(),
            },
            Def::Reduce(r) if r.streaming.anchors.is_empty() && !crate::derive::inline::rounds(&self.out[*n]) => {
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
            Def::Map(def) if self.out.is_plain(n, at) && !crate::derive::inline::rounds(&self.out[n]) => {
                *left = left.saturating_sub(crate::derive::inline::operations(def));
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
}
