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
//! A variable that is divided, or multiplied, before it is raised to a third power or a higher one is taken relative to the range of the
//! elements so far, `u = (x - a) / (max x - min x)`, and that range belongs to its slope: `x^3` may leave the range of the
//! numbers where `(x / s)^3` does not. When the range grows, its states shrink as those of an exponential do.
//!
//! The mean is weighted with `g` where no factor of `g` can be negative, else every position counts once. First
//! moments about a mean of their own weight are 0 and no state. Any finite running mean is a legitimate one: where
//! nothing has been counted, or something infinite, it is 0; the offset has the mean as it is, so that what is not finite
//! as written is not finite as derived.

mod centre;
mod offset;
mod tell;
mod vector;

use super::polynomial::Polynomial;
use super::separate::Anchor;
use super::{Deriver, guard};
use crate::{Def, Node, NodeId, Product, Reduction, Term, product};
use centre::Centre;
use einloom_cascade::BinaryOp;
use std::collections::BTreeMap;

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
    /// What each variable that has powers relative to its range is multiplied with.
    slopes: Vec<Option<Product>>,
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
    pub(in crate::derive) fn moments(
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
            slopes: (0..polynomial.variables.len()).map(|k| polynomial.scaled(k)).collect(),
            weighted,
            rests: vec![Product::one()],
            states: BTreeMap::new(),
        };
        for (k, u) in polynomial.variables.iter().enumerate() {
            let centre = match self.subtracted_extremum(&m, polynomial, k) {
                Some(extremum) => self.extremum_as_centre(&m, u, extremum),
                None if polynomial.anchored.contains(&k) => self.exponential_centre(&m, u),
                None if m.slopes[k].is_some() => self.ranged_centre(&m, u),
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
}
