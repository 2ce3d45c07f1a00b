//! Products of exponentials of which each has a maximum of its own: `Σ_r exp(x(m,r) - max x)·exp(y(n,r) - max y)`.
//!
//! As one exponential, `exp(x + y - M)`, the sum would be no product of matrices any more, and each of its elements would need a maximum of its
//! own. So both stay, each relative to its own maximum so far; a state is multiplied with both repairs, each at most 1.
//!
//! Conditions: the exponent falls into groups of addends by the axes that they carry besides the reduced indices, none of which has all axes of
//! another; and from each the text subtracts its maximum over these elements, or over more. So nothing underflows that does
//! not as written.

use super::Deriver;
use super::separate::Separated;
use crate::{Def, Reduction, Term, product};
use einloom_cascade::{IndexId, Monoid};
use std::collections::BTreeSet;

impl Deriver<'_> {
    /// The groups of the exponent, each with the addends of the shift that stay beside it; nothing if it is one.
    pub(super) fn exponents_apart(&self, parts: &Separated, r: &Reduction) -> Option<Vec<[product::Sum; 2]>> {
        let mut groups: Vec<(BTreeSet<IndexId>, product::Sum)> = vec![];
        for addend in &parts.exponent {
            let mut axes = BTreeSet::new();
            addend.1.indices(&mut axes);
            axes.retain(|i| !r.over.contains(i));
            match groups.iter_mut().find(|(own, _)| *own == axes) {
                Some((_, group)) => group.push(addend.clone()),
                None => groups.push((axes, vec![addend.clone()])),
            }
        }
        let apart = |k: usize| groups.iter().enumerate().all(|(j, other)| j == k || !other.0.is_subset(&groups[k].0));
        if groups.len() < 2 || parts.mixed.is_some() || !(0..groups.len()).all(apart) {
            return None;
        }
        let mut rest = parts.shift.clone();
        let mut out = vec![];
        for (_, group) in groups {
            let k = rest.iter().position(|addend| self.is_maximum_of(addend, &group, r))?;
            out.push([group, vec![rest.remove(k)]]);
        }
        out.first_mut()?[1].append(&mut rest);
        Some(out)
    }

    /// Whether this takes away the maximum of a sum over these elements, or over more.
    fn is_maximum_of(&self, (number, t): &(f64, Term), sum: &product::Sum, r: &Reduction) -> bool {
        let Term::Read(n, at) = t else { return false };
        let Def::Reduce(m) = &self.out[*n].def else { return false };
        let mut left = sum.clone();
        product::append(&mut left, product::sum(&m.body), *number);
        m.monoid == Monoid::Max
            && *number < 0.0
            && left.is_empty()
            && r.over.iter().all(|i| m.over.contains(i))
            && m.filter.iter().all(|f| r.filter.contains(f))
            && self.out.is_plain(*n, at)
            && !super::inline::rounds(&self.out[*n])
    }
}
