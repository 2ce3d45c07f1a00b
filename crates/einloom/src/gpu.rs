//! The road's last step on an NVIDIA GPU.

mod room;
mod toolchain;

pub(crate) use room::{Fitting, fitting};
pub use toolchain::{Toolchain, source};

use crate::road::{Outcome, Planned};
use crate::{Error, Finding, Tensor};
use einloom_cuda::runtime::{Bound, Buffer, Device, Executable, RunError, View, ViewMut};
use einloom_cuda::{Arch, Target};
use einloom_machine::Machine;
use einloom_tile::{TensorDecl, TensorRole};
use std::collections::BTreeMap;
use std::fmt;

/// A GPU and a compiler for it.
pub struct Gpu {
    device: Device,
    tools: Toolchain,
}

/// Longer than the L2 cache of any GPU so far, and what other benchmarks overwrite too (`triton.testing.do_bench`).
const EVICTING_BYTES: usize = 256 << 20;

impl Gpu {
    /// The first GPU, with the tools that [`Toolchain::open`] finds.
    ///
    /// # Errors
    /// [`Error::Gpu`] if this computer has no driver, no GPU since Ampere, or no NVRTC.
    pub fn open() -> Result<Self, Error> {
        let device = Device::open().map_err(|e| lacks("no-gpu", e))?;
        Ok(Self { device, tools: Toolchain::open()? })
    }

    /// What it is: the GPU's name, its architecture, and the compiler.
    pub fn description(&self) -> String {
        format!("{} ({}), NVRTC {}", self.device.name(), self.device.architecture(), self.tools.compiler.version())
    }

    /// What to schedule for: an architecture that this GPU can run, or its own.
    ///
    /// # Errors
    /// [`Error::Gpu`] if the GPU does not have its instructions.
    pub fn target(&self, arch: Option<Arch>) -> Result<Target, Error> {
        let own = self.device.target();
        match arch {
            None => Ok(own),
            Some(arch) if arch == own.arch => Ok(own),
            // The instructions are the older ones, the memory is this GPU's.
            Some(Arch::Sm80) => Ok(Target { shared_bytes: own.shared_bytes, ..Target::SM_80 }),
            Some(arch) => Err(lacks("no-gpu", format!("{} does not run code for {arch}", self.device.name()))),
        }
    }

    /// The architecture of a described machine: Hopper's if it has matrix units that run beside its threads.
    pub fn arch_of(machine: &Machine) -> Arch {
        let older = !machine.matrix.is_empty() && machine.matrix.iter().all(|unit| !unit.asynchronous);
        if older { Arch::Sm80 } else { Arch::Sm90a }
    }

    /// What to schedule for on a described machine: the architecture's instructions, the machine's memory.
    pub fn target_of(machine: &Machine, arch: Arch) -> Target {
        let usual = match arch {
            Arch::Sm80 => Target::SM_80,
            Arch::Sm90a => Target::SM_90A,
        };
        let private = machine.trunk().rev().find(|l| l.shared_by <= 1).and_then(|l| l.capacity);
        let described = private.filter(|_| machine.lanes.is_some()).and_then(|c| usize::try_from(c.0).ok());
        Target { shared_bytes: described.unwrap_or(usual.shared_bytes), ..usual }
    }

    /// Memory to overwrite between timed runs, so that each finds an L2 cache without its tensors.
    ///
    /// # Errors
    /// [`Error::Gpu`] if there is not enough memory.
    pub fn evicting_memory(&self) -> Result<Buffer, Error> {
        self.device.allocate(EVICTING_BYTES).map_err(failed)
    }
}

/// A program that a GPU can run, again and again.
pub struct GpuProgram<'a> {
    planned: &'a Planned,
    executable: Executable,
}

/// Which way a program takes on the GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The instructions that it was scheduled for.
    pub arch: Arch,
    /// Its kernels.
    pub kernels: usize,
    /// Those whose tiles arrive by the bulk tensor copy unit.
    pub bulk_copied: usize,
    /// Slower ways that were taken.
    pub fallbacks: usize,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.arch)?;
        if self.bulk_copied > 0 {
            write!(f, " tma {}/{}", self.bulk_copied, self.kernels)?;
        }
        Ok(())
    }
}

/// Times of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// Of runs on the device, in seconds: from before the first kernel to after the last.
    pub device: Vec<f64>,
    /// Of launches on the host, in seconds: the driver's calls for all kernels of one run, without waiting.
    pub host: Vec<f64>,
}

impl Planned {
    /// Makes it ready to run on a GPU, with all that the GPU has.
    ///
    /// # Errors
    /// [`Error::Gpu`] if it cannot be emitted, compiled or loaded.
    pub fn compile_for(&self, gpu: &Gpu) -> Result<GpuProgram<'_>, Error> {
        self.compile_for_target(gpu, &gpu.device.target())
    }

    /// As [`Planned::compile_for`], scheduled for a target of [`Gpu::target`].
    ///
    /// # Errors
    /// As [`Planned::compile_for`].
    pub fn compile_for_target(&self, gpu: &Gpu, target: &Target) -> Result<GpuProgram<'_>, Error> {
        let Toolchain { compiler, cache, .. } = &gpu.tools;
        let executable = Executable::with_target(self.program(), &gpu.device, compiler, cache.as_ref(), target);
        Ok(GpuProgram { planned: self, executable: executable.map_err(failed)? })
    }
}

fn failed(e: RunError) -> Error {
    let lacks = matches!(e, RunError::Lacks { .. });
    Error::Gpu { finding: Box::new(Finding::error("gpu", e.to_string())), lacks }
}

/// What this computer does not have, by the finding's code.
fn lacks(code: &str, reason: impl fmt::Display) -> Error {
    Error::Gpu { finding: Box::new(Finding::error(code, reason.to_string())), lacks: true }
}

impl GpuProgram<'_> {
    /// Slower ways that the emitter had to take, each with its reason.
    pub fn fallbacks(&self) -> Vec<String> {
        self.executable.source().fallbacks.iter().map(|(kernel, f)| format!("{kernel}: {f}")).collect()
    }

    /// Which way it takes.
    pub fn path(&self) -> Path {
        let source = self.executable.source();
        Path {
            arch: source.arch,
            kernels: source.kernels.len(),
            bulk_copied: source.kernels.iter().filter(|k| !k.tensor_maps.is_empty()).count(),
            fallbacks: source.fallbacks.len(),
        }
    }

    /// Runs it on these inputs. Memory that it is to write holds NaN before. Times are those of the kernels, without
    /// copies.
    ///
    /// # Errors
    /// [`Error::Input`] for a missing input, [`Error::Gpu`].
    pub fn run(&self, inputs: &BTreeMap<String, Tensor>) -> Result<Outcome, Error> {
        let mut outputs: Vec<Tensor> =
            self.decls(TensorRole::Output).map(|t| Tensor::zeros(t.dtype, t.shape())).collect::<Result<_, _>>()?;
        let dims: Vec<Vec<usize>> = outputs.iter().map(|t| t.dims().to_vec()).collect();
        let mut wanted: Vec<ViewMut<'_>> = outputs
            .iter_mut()
            .zip(&dims)
            .map(|(t, dims)| ViewMut { dtype: t.dtype(), dims, bytes: t.view_mut().bytes })
            .collect();
        let report = self.executable.run(&self.views(inputs)?, &mut wanted).map_err(failed)?;
        drop(wanted);
        let names = self.decls(TensorRole::Output).map(|t| t.name.clone());
        Ok(Outcome { outputs: names.zip(outputs).collect(), report: common(&report) })
    }

    /// Times `repeats` runs on the same inputs after `warmup` more, and then launches alone. `evicting` is overwritten
    /// before every timed run ([`Gpu::evicting_memory`]).
    ///
    /// # Errors
    /// As [`GpuProgram::run`].
    pub fn time(
        &self,
        inputs: &BTreeMap<String, Tensor>,
        warmup: u32,
        repeats: u32,
        evicting: &mut Buffer,
    ) -> Result<Times, Error> {
        let mut memory = self.executable.allocate().map_err(failed)?;
        let mut given = self.views(inputs)?.into_iter();
        for (decl, buffer) in self.planned.program().tensors.iter().zip(&mut memory) {
            if decl.role == TensorRole::Input
                && let Some(view) = given.next()
            {
                buffer.upload(view.bytes).map_err(failed)?;
            }
        }
        let bound = self.executable.bind(&memory).map_err(failed)?;
        let kernels = self.executable.source().kernels.len();
        let times = timed(&bound, kernels, warmup, repeats, evicting).map_err(failed)?;
        self.executable.status(&memory).map_err(failed)?;
        Ok(times)
    }

    fn views<'a>(&self, inputs: &'a BTreeMap<String, Tensor>) -> Result<Vec<View<'a>>, Error> {
        let view = |decl: &TensorDecl| {
            let given = inputs.get(&decl.name).ok_or_else(|| {
                Error::Input(Finding::error("missing-input", format!("the input {} is missing", decl.name)))
            })?;
            Ok(View { dtype: given.dtype(), dims: given.dims(), bytes: given.bytes() })
        };
        self.decls(TensorRole::Input).map(view).collect()
    }

    fn decls(&self, role: TensorRole) -> impl Iterator<Item = &TensorDecl> {
        self.planned.program().tensors.iter().filter(move |t| t.role == role)
    }
}

/// At least this long a GPU runs before it is timed: its clock rises from idle.
const WARM_SECONDS: f64 = 0.025;
/// Launches whose host time is taken, and how long they may keep the device busy.
const LAUNCHES: f64 = 300.0;
const LAUNCHES_SECONDS: f64 = 0.1;
/// Kernels that may be under way: the driver's queue holds about a thousand, and a full one makes launches wait.
const QUEUE: f64 = 800.0;

fn timed(
    bound: &Bound<'_>,
    kernels: usize,
    warmup: u32,
    repeats: u32,
    evicting: &mut Buffer,
) -> Result<Times, RunError> {
    let once = bound.time(1, 1, None)?.into_iter().fold(1e-6, f64::max);
    let warm = (warmup as usize).max((WARM_SECONDS / once).ceil().min(1e4) as usize);
    let device = bound.time(warm, repeats.max(1) as usize, Some(evicting))?;
    let launches = (LAUNCHES_SECONDS / once).clamp(20.0, LAUNCHES.min(QUEUE / kernels.max(1) as f64).max(20.0));
    let host = bound.host_times(launches as usize)?;
    Ok(Times { device, host })
}

/// The report in the form that all backends share.
fn common(report: &einloom_cuda::runtime::Report) -> einloom_cpu::Report {
    let kernel = |k: &einloom_cuda::runtime::KernelReport| einloom_cpu::KernelReport {
        name: k.name.clone(),
        seconds: k.seconds,
        traffic: vec![],
        skipped_chunks: 0,
        serial: None,
    };
    einloom_cpu::Report { seconds: report.seconds, kernels: report.kernels.iter().map(kernel).collect(), isa: "cuda" }
}
