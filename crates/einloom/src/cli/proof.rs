//! The two proofs of a derivation, for people and as data.

use einloom::prove::{ExactProof, Proof};
use serde::Serialize;
use std::collections::BTreeMap;

/// What `derive --prove` finds.
#[derive(Debug)]
pub(crate) struct Proofs {
    pub exact: ExactProof,
    pub numeric: Proof,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct ProofsJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    exact: Option<ExactJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    numeric: Option<NumericJson>,
}

/// Identity testing over finite fields: a wrong derivation passes with a probability below `2^-bits`, in each of the regions
/// where there are any.
#[derive(Debug, Serialize)]
struct ExactJson {
    certified: bool,
    forms: usize,
    sizes: usize,
    points: usize,
    bits: u32,
    regions: usize,
    not_certified: Option<String>,
}

#[derive(Debug, Serialize)]
struct NumericJson {
    proved: bool,
    sizes: usize,
    inputs: usize,
    undefined: usize,
    meaning_overflowed: usize,
    out_of_range: usize,
    masked_infinities: usize,
    sensitive: usize,
    undetermined_elements: usize,
    less_precise: usize,
    /// Forms without a plan at some sizes, and why.
    unplanned: Vec<String>,
    missing_sizes: Vec<String>,
    worst_rel_error: BTreeMap<String, f64>,
    worst_rel_error_as_declared: BTreeMap<String, f64>,
    disagreements: Vec<DisagreementJson>,
}

#[derive(Debug, Serialize)]
struct DisagreementJson {
    sizes: BTreeMap<String, usize>,
    inputs: &'static str,
    seed: u64,
    in_f64: bool,
    output: String,
    position: usize,
    expected: f64,
    found: f64,
    error: f64,
    tolerance: f64,
    stopped: Option<String>,
}

impl ProofsJson {
    pub fn of(proofs: &Proofs) -> Self {
        Self { exact: Some(exact(&proofs.exact)), numeric: Some(numeric(&proofs.numeric)) }
    }
}

/// The proofs in the manner of the explanation that they follow.
pub(crate) fn text(proofs: &Proofs) -> String {
    format!("\nproof\n{}{}", exact_text(&proofs.exact), numeric_text(&proofs.numeric))
}

fn exact(proof: &ExactProof) -> ExactJson {
    ExactJson {
        certified: proof.sizes > 0 && proof.not_certified.is_none(),
        forms: proof.forms,
        sizes: proof.sizes,
        points: proof.points,
        bits: proof.bits,
        regions: proof.regions,
        not_certified: proof.not_certified.clone(),
    }
}

fn exact_text(proof: &ExactProof) -> String {
    let what = match &proof.not_certified {
        Some(output) => format!(
            "not certified exactly: {output} needs more than the axioms of fields, exp(a + b) = exp(a)·exp(b), sqrt(a·b) = sqrt(a)·sqrt(b) and the order of the reals"
        ),
        None if proof.sizes == 0 => {
            "not certified exactly: at random points of the fields it has no value (a gather leaves its tensor, a condition on a quotient never holds), or one of too high a degree".to_string()
        }
        None => {
            let forms = if proof.forms == 1 { String::new() } else { format!("{} forms ", proof.forms) };
            let (points, sizes, bits) = (proof.points, proof.sizes, proof.bits);
            match proof.regions {
                0 => format!("{forms}exactly at {points} random points of finite fields, {sizes} sizes (error < 2^-{bits})"),
                regions => format!(
                    "{forms}exactly in the regions of {regions} random real points, {sizes} sizes: where the same values are the\n  larger, at random points of finite fields (error < 2^-{bits} in a region; of what is wrong at one point in ten < 2^-{})",
                    missed_by_all(regions, bits)
                ),
            }
        }
    };
    format!("  {what}\n")
}

/// What is wrong at one real point in ten agrees at each with nine of ten, or by the error of a region: `b` with all of them
/// agreeing with a probability below `2^-b`.
fn missed_by_all(points: usize, bits: u32) -> u32 {
    (-(0.9 + 0.1 * (-f64::from(bits)).exp2()).log2() * points as f64) as u32
}

fn numeric(proof: &Proof) -> NumericJson {
    let disagreement = |d: &einloom::prove::Disagreement| DisagreementJson {
        sizes: d.sizes.clone(),
        inputs: d.kind.name(),
        seed: d.seed,
        in_f64: d.in_f64,
        output: d.output.clone(),
        position: d.position,
        expected: d.expected,
        found: d.found,
        error: d.error,
        tolerance: d.tolerance,
        stopped: d.stopped.clone(),
    };
    NumericJson {
        proved: proof.disagreements.is_empty(),
        sizes: proof.sizes,
        inputs: proof.inputs,
        undefined: proof.undefined,
        meaning_overflowed: proof.overflowed,
        out_of_range: proof.out_of_range,
        masked_infinities: proof.masked,
        sensitive: proof.sensitive,
        undetermined_elements: proof.undetermined,
        less_precise: proof.less_precise,
        unplanned: proof.unplanned.values().cloned().collect(),
        missing_sizes: proof.missing.clone(),
        worst_rel_error: proof.worst.clone(),
        worst_rel_error_as_declared: proof.worst_declared.clone(),
        disagreements: proof.disagreements.iter().map(disagreement).collect(),
    }
}

fn numeric_text(proof: &Proof) -> String {
    if let Some(d) = proof.disagreements.first() {
        let sizes: Vec<String> = d.sizes.iter().map(|(r, s)| format!("{r}={s}")).collect();
        let place = format!("inputs: {}, seed {}, {}", d.kind.name(), d.seed, sizes.join(", "));
        let what = match &d.stopped {
            Some(reason) => reason.clone(),
            None => format!(
                "{}, element {}: {} by the meaning, {} as derived (error {:.1e}, allowed {:.1e})",
                d.output, d.position, d.expected, d.found, d.error, d.tolerance
            ),
        };
        return format!(
            "  NOT PROVED: {} of {} inputs disagree, the first:\n    {what}\n    {place}{}\n",
            proof.disagreements.len(),
            proof.inputs,
            if d.in_f64 { ", all in f64" } else { ", number types as declared" }
        );
    }
    let worst = |all: &BTreeMap<String, f64>| all.values().fold(0.0f64, |m, &e| m.max(e));
    let mut out = format!(
        "  numerically on {} inputs of {} sizes, worst relative error {:.1e} in f64, {:.1e} as declared\n",
        proof.inputs,
        proof.sizes,
        worst(&proof.worst),
        worst(&proof.worst_declared)
    );
    let of_these = [
        (proof.undefined, "no value as written, for a position outside a tensor"),
        (proof.overflowed, "overflow as written, not as derived"),
        (proof.out_of_range, "not finite as derived, for values out of the range of f32 as written"),
        (proof.masked, "NaN as derived, from an infinity under a filter or met in another order (0 * inf)"),
        (proof.sensitive, "too sensitive to rounding to prove much"),
        (proof.less_precise, "less precise as derived than as written, as its rounding errors may be"),
    ];
    for (count, what) in of_these.iter().filter(|p| p.0 > 0) {
        out += &format!("    of these {count}: {what}\n");
    }
    if proof.undetermined > 0 {
        out += &format!(
            "    elements that the text's own rounding does not determine, excused one by one: {}\n",
            proof.undetermined
        );
    }
    for why in proof.unplanned.values() {
        out += &format!("  another form is not run where it has no plan: {why}\n");
    }
    if !proof.missing.is_empty() {
        out += &format!("  not tried, for no such sizes were found: {}\n", proof.missing.join("; "));
    }
    out
}
