//! `einloom emit`: a kernel's source.

use super::args::{Architecture, Backend, EmitArgs, Language};
use super::failure::Failure;
use super::ui::Ui;
use super::{prepare, source};
use einloom::{Error, Finding, Planned};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
struct EmitJson {
    target: &'static str,
    source: String,
}

pub(crate) fn command(ui: &mut Ui, args: &EmitArgs) -> Result<(), Failure> {
    let derived = source::checked(ui, &args.source)?.derive();
    let given = prepare::given(&args.sizing, BTreeMap::new())?;
    let backend = match args.language {
        Language::Pseudo => Backend::Cpu,
        Language::Cuda => Backend::Cuda,
    };
    let planned = prepare::planned(&derived, &given, &args.sizing, &args.target, backend)?;
    if prepare::dumped(ui, &derived, &planned)? {
        return Ok(());
    }
    let (target, source) = match args.language {
        Language::Pseudo => ("pseudo", einloom_tile::print(planned.program())),
        Language::Cuda => ("cuda", cuda(ui, args, &planned)?),
    };
    ui.result(|| source.clone(), &EmitJson { target, source: source.clone() })
}

/// CUDA C++ for the architecture asked for; slower ways that had to be taken become notes.
fn cuda(ui: &Ui, args: &EmitArgs, planned: &Planned) -> Result<String, Failure> {
    let target = match args.arch {
        Architecture::Sm80 => einloom_cuda::Target::SM_80,
        Architecture::Sm90a => einloom_cuda::Target::SM_90A,
    };
    let source = einloom_cuda::emit(planned.program(), &target).map_err(|e| {
        let finding = Box::new(Finding::error("emit", e.to_string()));
        Failure::from(Error::Gpu { finding, lacks: false })
    })?;
    source.fallbacks.iter().for_each(|(kernel, f)| ui.note(&format!("{kernel}: {f}")));
    Ok(source.text)
}
