//! The exact proof, at several small sets of sizes.

use super::{named_forms, parallel::in_order, sizes};
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
    /// A wrong identity would have passed with a probability below 2 to minus this, at each set of sizes; in the region of
    /// each real point where these were needed.
    pub bits: u32,
    /// Random real points that the form with the fewest of them agreed at, in their regions, where fields alone do not do: see
    /// [`Certificate::InRegions`]. 0 if no form needed any.
    pub regions: usize,
    /// An output that differed, with the alternative's name if it is one: not certified by these means, which is not the
    /// same as wrong.
    pub not_certified: Option<String>,
}

/// What was found of a form at a set of sizes.
#[derive(Clone, Copy)]
struct Found {
    points: usize,
    bits: u32,
    /// Whether the points are real ones, each with its region.
    real: bool,
}

/// Points of a set of sizes: with three, the error is far below that of the hardware.
const POINTS: usize = 3;
/// Bits at a set of sizes below which it says little, as where steps square a degree many times over: it counts only if no
/// other says more.
const LITTLE: u32 = 40;
/// Scalar operations of an evaluation of the meaning at sizes for the exact proof, which is much slower.
const EXACT_WORK: f64 = 4e3;
/// Sets of random sizes for the exact proof.
const EXACT_SIZES: usize = 4;

/// Tests exactly that every derived form is the written one: see [`einloom_algebra::exact`].
pub fn prove_exactly(derived: &Derived, seed: u64) -> ExactProof {
    let (bindings, _) = sizes::bindings(derived.cascade(), seed, EXACT_SIZES, EXACT_WORK);
    let forms = named_forms(derived);
    let mut proof = ExactProof { forms: forms.len(), bits: u32::MAX, ..ExactProof::default() };
    // Per set of sizes what was found of each form, up to one that is not certified.
    let at = |k: usize| -> Result<Vec<Option<Found>>, String> {
        let mut here = vec![];
        for (name, form) in &forms {
            match certify(form.derivation(), &bindings[k], POINTS) {
                Certificate::Certified { points, bits } => here.push(Some(Found { points, bits, real: false })),
                Certificate::InRegions { points, bits } => here.push(Some(Found { points, bits, real: true })),
                Certificate::NotCertified { output } => {
                    return Err(match name {
                        None => output,
                        Some(name) => format!("{output}, with {name},"),
                    });
                }
                // A gather through random positions leaves its tensor: these sizes tell nothing.
                Certificate::NotEvaluated => here.push(None),
            }
        }
        Ok(here)
    };
    let failed = |done: &mut dyn Iterator<Item = &Result<_, _>>| done.filter(|here| here.is_err()).count() > 0;
    let mut found = vec![];
    for here in in_order(bindings.len(), at, failed, &mut |_| {}) {
        match here {
            Ok(here) => found.push(here),
            Err(output) => return ExactProof { bits: 0, not_certified: Some(output), ..proof },
        }
    }
    let tells = |least: u32, k: usize| found.iter().any(|here| here[k].is_some_and(|f| f.bits >= least));
    let least = if (0..forms.len()).all(|k| tells(LITTLE, k)) { LITTLE } else { 0 };
    if !(0..forms.len()).all(|k| tells(least, k)) {
        return ExactProof { bits: 0, ..proof };
    }
    let mut regions = vec![0; forms.len()];
    for here in &found {
        let told = || here.iter().enumerate().filter_map(|(k, f)| Some((k, f.filter(|f| f.bits >= least)?)));
        proof.sizes += usize::from(told().count() == forms.len());
        for (k, Found { points, bits, real }) in told() {
            proof.points += points;
            proof.bits = proof.bits.min(bits);
            regions[k] += if real { points } else { 0 };
        }
    }
    proof.regions = regions.into_iter().filter(|&points| points > 0).min().unwrap_or(0);
    if proof.sizes == 0 {
        proof.bits = 0;
    }
    proof
}
