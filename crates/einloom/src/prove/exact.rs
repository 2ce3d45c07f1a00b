//! The exact proof, at several small sets of sizes.

use super::{named_forms, sizes};
use crate::Derived;
use einloom_algebra::exact::{Certificate, certify};

/// What identity testing over finite fields says of a derivation, over several sets of sizes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExactProof {
    /// Forms that were tested: the main one and its alternatives.
    pub forms: usize,
    /// Sets of sizes.
    pub sizes: usize,
    /// Random points at each of which both forms agreed.
    pub points: usize,
    /// A wrong identity would have passed with a probability below 2 to minus this, at each set of sizes.
    pub bits: u32,
    /// An output that differed, with the alternative's name if it is one: not certified by these means, which is not the
    /// same as wrong.
    pub not_certified: Option<String>,
}

/// Points of a set of sizes: with three, the error is far below that of the hardware.
const POINTS: usize = 3;
/// Scalar operations of an evaluation of the meaning at sizes for the exact proof, which is much slower.
const EXACT_WORK: f64 = 4e3;
/// Sets of random sizes for the exact proof.
const EXACT_SIZES: usize = 4;

/// Tests exactly that every derived form is the written one: see [`einloom_algebra::exact`].
pub fn prove_exactly(derived: &Derived, seed: u64) -> ExactProof {
    let (bindings, _) = sizes::bindings(derived.cascade(), seed, EXACT_SIZES, EXACT_WORK);
    let forms = named_forms(derived);
    let mut proof = ExactProof { forms: forms.len(), bits: u32::MAX, ..ExactProof::default() };
    let mut told = vec![false; forms.len()];
    for bound in &bindings {
        let mut all = true;
        for ((name, form), told) in forms.iter().zip(&mut told) {
            match certify(form.derivation(), bound, POINTS) {
                Certificate::Certified { points, bits } => {
                    proof.points += points;
                    proof.bits = proof.bits.min(bits);
                    *told = true;
                }
                Certificate::NotCertified { output } => {
                    proof.not_certified = Some(match name {
                        None => output,
                        Some(name) => format!("{output}, with {name},"),
                    });
                    return ExactProof { bits: 0, ..proof };
                }
                // A gather through random positions leaves its tensor: these sizes tell nothing.
                Certificate::NotEvaluated => all = false,
            }
        }
        proof.sizes += usize::from(all);
    }
    if !told.iter().all(|&told| told) {
        proof.sizes = 0;
    }
    if proof.sizes == 0 {
        proof.bits = 0;
    }
    proof
}
