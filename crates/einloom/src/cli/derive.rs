//! `einloom derive`: the steps with their reasons, and the proof on request.

use super::args::DeriveArgs;
use super::failure::Failure;
use super::passes::{RefusalJson, refusals};
use super::progress::Progress;
use super::proof::{self, Proofs, ProofsJson};
use super::source;
use super::ui::Ui;
use einloom::Derived;
use einloom::prove::{Effort, prove, prove_exactly};
use serde::Serialize;

#[derive(Debug, Serialize)]
struct DeriveJson {
    cascade: String,
    steps: Vec<StepJson>,
    proofs: ProofsJson,
    refusals: Vec<RefusalJson>,
    streams: Vec<StreamJson>,
}

/// One traversal: the four parts of the streaming algorithm as pseudocode.
#[derive(Debug, Serialize)]
struct StreamJson {
    over: Vec<String>,
    traversal: usize,
    states: Vec<String>,
    init: String,
    step: String,
    merge: String,
    finish: String,
}

/// A rule's application. `statement` is the tensor that the statement defines.
#[derive(Debug, Serialize)]
struct StepJson {
    rule: &'static str,
    statement: String,
    rank: String,
    condition: &'static str,
    why: String,
    node: String,
    before: String,
    after: String,
}

pub(crate) fn command(ui: &mut Ui, args: &DeriveArgs) -> Result<(), Failure> {
    let derived = source::checked(ui, &args.source)?.derive();
    if super::dumped(ui, &derived)? {
        return Ok(());
    }
    let proofs = match args.prove {
        true => Some(prove_both(ui, args, &derived)?),
        false => None,
    };
    let data = DeriveJson {
        cascade: derived.cascade().name.clone(),
        steps: steps(&derived),
        proofs: proofs.as_ref().map(ProofsJson::of).unwrap_or_default(),
        refusals: refusals(ui, &derived),
        streams: streams(&derived),
    };
    let text = || {
        let mut text = einloom_algebra::explain(derived.derivation());
        if let Some(proofs) = &proofs {
            text += &proof::text(proofs);
        }
        text
    };
    ui.result(text, &data)?;
    match proofs {
        Some(proofs) if !proofs.numeric.disagreements.is_empty() => Err(Failure::Told),
        _ => Ok(()),
    }
}

fn prove_both(ui: &Ui, args: &DeriveArgs, derived: &Derived) -> Result<Proofs, Failure> {
    let machine = einloom::host::machine();
    let progress = Progress::start(ui, "proving");
    let exact = prove_exactly(derived, args.seed);
    let mut tell = |part| progress.at(part);
    let numeric = prove(derived.cascade(), &machine, args.exact, args.seed, Effort::FULL, &mut tell)?;
    Ok(Proofs { exact, numeric })
}

fn steps(derived: &Derived) -> Vec<StepJson> {
    let step = |s: &einloom_algebra::Step| StepJson {
        rule: s.rule.name(),
        statement: super::target(derived.cascade(), s.statement),
        rank: s.ranks.join(","),
        condition: s.rule.condition(),
        why: s.why.clone(),
        node: s.node.clone(),
        before: s.before.clone(),
        after: s.after.clone(),
    };
    derived.derivation().steps.iter().map(step).collect()
}

fn streams(derived: &Derived) -> Vec<StreamJson> {
    let graph = &derived.derivation().derived;
    let stream = |f: &einloom_algebra::StreamingForm| StreamJson {
        over: f.over.iter().map(|&i| graph.cascade[i].name.clone()).collect(),
        traversal: f.level + 1,
        states: f.states.iter().map(|&s| graph[s].name.clone()).collect(),
        init: f.init(graph),
        step: f.step(graph),
        merge: f.merge(graph),
        finish: f.finish(graph),
    };
    einloom_algebra::streaming_forms(graph).iter().map(stream).collect()
}
