//! `einloom emit`: a kernel's source.

use super::args::{Backend, EmitArgs, Language};
use super::failure::Failure;
use super::ui::Ui;
use super::{prepare, source};
use einloom::Planned;
use einloom::gpu::{Gpu, Toolchain};
use einloom_cuda::Arch;
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
    let arch = match backend {
        Backend::Cpu => None,
        Backend::Cuda => Some(architecture(args)?),
    };
    let planned = prepare::planned(&derived, &given, &args.sizing, &args.target, backend, arch)?;
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

/// The architecture asked for, or the machine's.
fn architecture(args: &EmitArgs) -> Result<Arch, Failure> {
    if let Some(arch) = args.arch {
        return Ok(arch.arch());
    }
    Ok(Gpu::arch_of(&prepare::machine(&args.target, Backend::Cuda, None)?))
}

/// CUDA C++ for the architecture asked for; slower ways that had to be taken become notes.
fn cuda(ui: &Ui, args: &EmitArgs, planned: &Planned) -> Result<einloom_cuda::Source, Failure> {
    let arch = architecture(args)?;
    let target = Gpu::target_of(&prepare::machine(&args.target, Backend::Cuda, Some(arch))?, arch);
    let target = einloom_cuda::Target { clusters: args.clusters.clusters(), ..target };
    let source = einloom::gpu::source(planned, &target)?;
    source.fallbacks.iter().for_each(|(kernel, f)| ui.note(&format!("{kernel}: {f}")));
    Ok(source)
}
