//! Index expressions: which element of a tensor a read or a definition means.

use crate::{IndexId, SizeExpr, TensorId};

/// `Σ coefficient · atom + offset`, with coefficients that depend on sizes alone.
/// Canonical: equal atoms are merged, order is that of first appearance, no zero coefficients.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IndexExpr {
    /// Coefficients and what they multiply.
    pub terms: Vec<(SizeExpr, IndexAtom)>,
    /// The part that does not move.
    pub offset: SizeExpr,
}

/// What an index expression is affine in.
#[derive(Clone, Debug, PartialEq)]
pub enum IndexAtom {
    /// The position along an index.
    Var(IndexId),
    /// `floor(numerator / denominator)`, such as `h / G`.
    Floor {
        /// Divided.
        numerator: Box<IndexExpr>,
        /// Divides; positive once sizes are known.
        denominator: SizeExpr,
    },
    /// The value of an integer tensor, such as `ids[t]`.
    Gather {
        /// The integer tensor.
        tensor: TensorId,
        /// Where it is read.
        at: Vec<IndexExpr>,
    },
}

impl IndexExpr {
    /// Just an index.
    pub fn var(index: IndexId) -> Self {
        Self { terms: vec![(SizeExpr::constant(1), IndexAtom::Var(index))], offset: SizeExpr::default() }
    }

    /// A position that does not move.
    pub fn fixed(offset: SizeExpr) -> Self {
        Self { terms: vec![], offset }
    }

    /// The index it is, if it is exactly one index.
    pub fn as_var(&self) -> Option<IndexId> {
        match self.terms.as_slice() {
            [(c, IndexAtom::Var(i))] if c.as_constant() == Some(1) && self.offset.as_constant() == Some(0) => Some(*i),
            _ => None,
        }
    }

    /// The index and the constant `k`, if it is `index + k`.
    pub fn as_shifted_var(&self) -> Option<(IndexId, i64)> {
        match self.terms.as_slice() {
            [(c, IndexAtom::Var(i))] if c.as_constant() == Some(1) => Some((*i, self.offset.as_constant()?)),
            _ => None,
        }
    }

    /// Adds `coefficient · atom`, merging equal atoms.
    pub fn push(&mut self, coefficient: SizeExpr, atom: IndexAtom) {
        match self.terms.iter_mut().find(|(_, a)| *a == atom) {
            Some((c, _)) => *c = c.add(&coefficient),
            None => self.terms.push((coefficient, atom)),
        }
        self.terms.retain(|(c, _)| c.as_constant() != Some(0));
    }

    /// The sum.
    pub fn add(&self, other: &Self) -> Self {
        let mut out = self.clone();
        for (c, a) in &other.terms {
            out.push(c.clone(), a.clone());
        }
        out.offset = out.offset.add(&other.offset);
        out
    }

    /// The product with a size.
    pub fn scale(&self, by: &SizeExpr) -> Self {
        let mut out = Self::fixed(self.offset.mul(by));
        for (c, a) in &self.terms {
            out.push(c.mul(by), a.clone());
        }
        out
    }

    /// Calls `f` on every index it mentions, also inside divisions and gathers.
    pub fn visit_indices(&self, f: &mut impl FnMut(IndexId)) {
        for (_, atom) in &self.terms {
            match atom {
                IndexAtom::Var(i) => f(*i),
                IndexAtom::Floor { numerator, .. } => numerator.visit_indices(f),
                IndexAtom::Gather { at, .. } => at.iter().for_each(|e| e.visit_indices(f)),
            }
        }
    }

    /// Calls `f` on every tensor it gathers from.
    pub fn visit_gathers(&self, f: &mut impl FnMut(TensorId)) {
        for (_, atom) in &self.terms {
            match atom {
                IndexAtom::Var(_) => {}
                IndexAtom::Floor { numerator, .. } => numerator.visit_gathers(f),
                IndexAtom::Gather { tensor, at } => {
                    f(*tensor);
                    at.iter().for_each(|e| e.visit_gathers(f));
                }
            }
        }
    }

    /// The same expression with every index replaced.
    pub fn map_indices(&self, f: &impl Fn(IndexId) -> IndexId) -> Self {
        let mut out = Self::fixed(self.offset.clone());
        for (c, atom) in &self.terms {
            let atom = match atom {
                IndexAtom::Var(i) => IndexAtom::Var(f(*i)),
                IndexAtom::Floor { numerator, denominator } => {
                    IndexAtom::Floor { numerator: Box::new(numerator.map_indices(f)), denominator: denominator.clone() }
                }
                IndexAtom::Gather { tensor, at } => {
                    IndexAtom::Gather { tensor: *tensor, at: at.iter().map(|e| e.map_indices(f)).collect() }
                }
            };
            out.push(c.clone(), atom);
        }
        out
    }
}
