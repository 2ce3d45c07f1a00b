//! What a derivation and a plan say, as JSON: the keys are those of `einloom … --json` (docs/command-line.md).

use crate::failure::Failure;
use crate::text::Text;
use einloom::gpu::Gpu;
use einloom::{Derived, Planned};
use einloom_algebra::{RankPasses, Refusal, Step, StreamingForm, TensorPasses, streaming_forms};
use einloom_cascade::{Cascade, DType};
use einloom_model::KernelTransfers;
use einloom_plan::PlannedKernel;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The derivation.
pub(crate) fn derivation(derived: &Derived, text: &Text) -> String {
    let d = derived.derivation();
    let graph = &d.derived;
    let value = json!({
        "cascade": derived.cascade().name,
        "ranks": d.passes.ranks.iter().map(rank).collect::<Vec<_>>(),
        "steps": d.steps.iter().map(|s| step(s, derived.cascade())).collect::<Vec<_>>(),
        "refusals": d.refusals.iter().map(|r| refusal(r, derived.cascade(), text)).collect::<Vec<_>>(),
        "streams": streaming_forms(graph).iter().map(|f| json!({
            "over": f.over.iter().map(|&i| graph.cascade[i].name.clone()).collect::<Vec<_>>(),
            "traversal": f.level + 1,
            "states": f.states.iter().map(|&s| graph[s].name.clone()).collect::<Vec<_>>(),
            "init": StreamingForm::init(f, graph),
            "step": f.step(graph),
            "merge": f.merge(graph),
            "finish": f.finish(graph),
        })).collect::<Vec<_>>(),
    });
    value.to_string()
}

fn rank(r: &RankPasses) -> Value {
    let tensor = |t: &TensorPasses| {
        json!({
            "tensor": t.tensor,
            "written": t.written,
            "derived": t.derived,
            "footprint": t.footprint,
            "written_by": t.written_by,
            "derived_by": t.derived_by,
        })
    };
    json!({
        "rank": r.rank,
        "written": r.written,
        "derived": r.derived,
        "tensors": r.tensors.iter().map(tensor).collect::<Vec<_>>(),
    })
}

/// What a statement defines: how people speak of it.
fn target(cascade: &Cascade, statement: usize) -> String {
    cascade.statements.get(statement).map_or_else(String::new, |s| cascade[s.target].name.clone())
}

fn step(s: &Step, cascade: &Cascade) -> Value {
    json!({
        "rule": s.rule.name(),
        "statement": target(cascade, s.statement),
        "rank": s.ranks.join(","),
        "condition": s.rule.condition(),
        "why": s.why,
        "node": s.node,
        "before": s.before,
        "after": s.after,
    })
}

fn refusal(r: &Refusal, cascade: &Cascade, text: &Text) -> Value {
    json!({
        "rule": r.rule.name(),
        "statement": target(cascade, r.statement),
        "rank": r.ranks.join(","),
        "reason": r.reason,
        "hint": r.hint,
        "line": text.place(r.span).line,
    })
}

/// The plan, with what a roofline needs of the machine; `run` says of a kernel that ran where its code came from, and
/// slower ways that it took.
pub(crate) fn plan(planned: &Planned, run: Option<(&str, &[String])>) -> String {
    let (cascade, machine) = (planned.cascade(), planned.machine());
    let sizes: Vec<(&str, usize)> =
        cascade.ranks.iter().map(|r| r.name.as_str()).zip(planned.bound().sizes().iter().copied()).collect();
    let transfers = planned.transfers();
    let shared = machine.levels.iter().filter(|l| l.shared_by >= machine.cores && l.bandwidth.0.is_finite());
    let value = json!({
        "cascade": cascade.name,
        "machine": machine.name,
        "sizes": sizes,
        "kernels": planned.kernels().iter().zip(transfers).map(|(k, t)| kernel(planned, k, t)).collect::<Vec<_>>(),
        "compulsory_bytes": planned.compulsory_bytes(),
        "levels": machine.levels.iter().map(|l| json!({"level": l.name, "bandwidth": l.bandwidth.0})).collect::<Vec<_>>(),
        "shared": shared.map(|l| json!([l.name, l.capacity.map(|c| c.0)])).collect::<Vec<_>>(),
        "rate": planned.program().tensors.iter().map(|t| machine.rate(t.dtype).0).fold(0.0, f64::max),
        "program": einloom_tile::print(planned.program()),
        "code": run.map(|r| r.0),
        "fallbacks": run.map_or(&[][..], |r| r.1),
    });
    value.to_string()
}

fn kernel(planned: &Planned, kernel: &PlannedKernel, transfers: &KernelTransfers) -> Value {
    let mut statements: Vec<String> = kernel.statements.iter().map(|&s| target(planned.cascade(), s)).collect();
    statements.dedup();
    // A core's model knows more than bytes and operations.
    let on_gpu = kernel.gpu.as_ref().map(|g| (g.seconds, g.bound_by.as_str()));
    let (seconds, bound_by) = on_gpu.unwrap_or((transfers.seconds, &transfers.bound_by));
    let axes = |axes: &[(String, usize)]| axes.iter().map(|(n, t)| json!([n, t])).collect::<Vec<_>>();
    json!({
        "name": kernel.name,
        "statements": statements,
        "group": axes(&kernel.group),
        "stream": axes(&kernel.stream),
        "levels": transfers.levels.iter().map(|l| json!({
            "level": l.level,
            "bytes": l.bytes,
            "bound_bytes": l.bound_bytes,
            "seconds": l.seconds,
        })).collect::<Vec<_>>(),
        "seconds": seconds,
        "bound_by": bound_by,
        "flops": transfers.flops,
        "resident_bytes": transfers.resident_bytes,
        "data_dependent": transfers.data_dependent,
        "writes": kernel.materialised,
        "notes": kernel.notes,
    })
}

/// The source of a planned program's kernels.
pub(crate) fn source(planned: &Planned, target: &str) -> Result<String, Failure> {
    match target {
        "pseudo" => Ok(einloom_tile::print(planned.program())),
        "cuda" => {
            let machine = planned.machine();
            let target = Gpu::target_of(machine, Gpu::arch_of(machine));
            Ok(einloom::gpu::source(planned, &target)?.text)
        }
        other => Err(Failure::new("UsageError", "unknown-target", format!("there is no source for `{other}`"))
            .hint("the targets are \"pseudo\" and \"cuda\"")),
    }
}

/// Number types of inputs as declared types and what replaces them.
pub(crate) fn follows(cascade: &Cascade, dtypes: &BTreeMap<String, String>) -> Result<BTreeMap<DType, DType>, Failure> {
    let mut out = BTreeMap::new();
    for (name, dtype) in dtypes {
        let declared = cascade.tensor(name).and_then(|t| cascade[t].dtype);
        let Some(declared) = declared.filter(|_| cascade.inputs().any(|t| cascade[t].name == *name)) else {
            return Err(Failure::new("UnknownInput", "unknown-input", format!("there is no input {name}")));
        };
        let Some(given) = DType::from_name(dtype).filter(|&g| g == declared || crate::numbers::may_follow(declared, g))
        else {
            return Err(Failure::new(
                "DtypeError",
                "wrong-dtype",
                format!("{name} is declared {declared} and cannot be {dtype}"),
            ));
        };
        if out.insert(declared, given).is_some_and(|before| before != given) {
            let message = format!("inputs that are declared {declared} are given different types");
            return Err(Failure::new("DtypeError", "wrong-dtype", message));
        }
    }
    Ok(out)
}
