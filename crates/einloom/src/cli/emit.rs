//! `einloom emit`: a kernel's source.

use super::args::{Architecture, Backend, EmitArgs, Language};
use super::failure::Failure;
use super::ui::Ui;
use super::{prepare, source};
use einloom::Planned;
use einloom::gpu::Toolchain;
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
        Language::Cuda | Language::Ptx | Language::Sass => Backend::Cuda,
    };
    let planned = prepare::planned(&derived, &given, &args.sizing, &args.target, backend)?;
    if prepare::dumped(ui, &derived, &planned)? {
        return Ok(());
    }
    let (target, source) = match args.language {
        Language::Pseudo => ("pseudo", einloom_tile::print(planned.program())),
        Language::Cuda => ("cuda", cuda(ui, args, &planned)?.text),
        Language::Ptx => ("ptx", Toolchain::open()?.ptx(&cuda(ui, args, &planned)?)?),
        Language::Sass => ("sass", Toolchain::open()?.sass(&cuda(ui, args, &planned)?)?),
    };
    ui.result(|| source.clone(), &EmitJson { target, source: source.clone() })
}

/// CUDA C++ for the architecture asked for; slower ways that had to be taken become notes.
fn cuda(ui: &Ui, args: &EmitArgs, planned: &Planned) -> Result<einloom_cuda::Source, Failure> {
    let target = match args.arch {
        Architecture::Sm80 => einloom_cuda::Target::SM_80,
        Architecture::Sm90a => einloom_cuda::Target::SM_90A,
    };
    let source = einloom::gpu::source(planned, &target)?;
    source.fallbacks.iter().for_each(|(kernel, f)| ui.note(&format!("{kernel}: {f}")));
    Ok(source)
}
