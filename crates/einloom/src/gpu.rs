//! The road's last step on an NVIDIA GPU.

use crate::road::{Outcome, Planned};
use crate::{Error, Finding, Tensor};
use einloom_cuda::runtime::{Cache, Compiler, Device, Executable, RunError, Search, Unavailable, View, ViewMut};
use einloom_tile::{TensorDecl, TensorRole};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// A GPU and a compiler for it.
pub struct Gpu {
    device: Device,
    compiler: Compiler,
    cache: Option<Cache>,
}

impl Gpu {
    /// The first GPU, with NVRTC from the usual places: `CUDA_PATH` or `CUDA_HOME`, the Python environment in
    /// `VIRTUAL_ENV` or `CONDA_PREFIX`, the system's folders. Compiled kernels are kept in `EINLOOM_CACHE_DIR`, or else
    /// in the user's cache folder.
    ///
    /// # Errors
    /// [`Error::Gpu`] if this computer has no driver, no GPU since Ampere, or no NVRTC.
    pub fn open() -> Result<Self, Error> {
        let lacks =
            |e: Unavailable| Error::Gpu { finding: Box::new(Finding::error("no-gpu", e.to_string())), lacks: true };
        let device = Device::open().map_err(lacks)?;
        let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let search = Search {
            directories: vec![],
            cuda_path: variable("CUDA_PATH").or(variable("CUDA_HOME")),
            python_environment: variable("VIRTUAL_ENV").or(variable("CONDA_PREFIX")),
        };
        let compiler = Compiler::open(&search).map_err(lacks)?;
        let home = || Some(variable("HOME")?.join(".cache"));
        let folder = variable("EINLOOM_CACHE_DIR")
            .or_else(|| variable("XDG_CACHE_HOME").or_else(home).map(|c| c.join("einloom")));
        Ok(Self { device, compiler, cache: folder.map(Cache::new) })
    }

    /// What it is: the GPU's name, its architecture, and the compiler.
    pub fn description(&self) -> String {
        format!("{} ({}), NVRTC {}", self.device.name(), self.device.architecture(), self.compiler.version())
    }
}

/// A program that a GPU can run, again and again.
pub struct GpuProgram<'a> {
    planned: &'a Planned,
    architecture: String,
    executable: Executable,
}

impl Planned {
    /// Makes it ready to run on a GPU.
    ///
    /// # Errors
    /// [`Error::Gpu`] if it cannot be emitted, compiled or loaded.
    pub fn compile_for(&self, gpu: &Gpu) -> Result<GpuProgram<'_>, Error> {
        let executable = Executable::new(self.program(), &gpu.device, &gpu.compiler, gpu.cache.as_ref());
        Ok(GpuProgram {
            planned: self,
            architecture: gpu.device.architecture(),
            executable: executable.map_err(failed)?,
        })
    }
}

fn failed(e: RunError) -> Error {
    Error::Gpu { finding: Box::new(Finding::error("gpu", e.to_string())), lacks: false }
}

impl GpuProgram<'_> {
    /// What it was compiled for, such as `sm_90a`.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    /// Slower ways that the emitter had to take, each with its reason.
    pub fn fallbacks(&self) -> Vec<String> {
        self.executable.source().fallbacks.iter().map(|(kernel, f)| format!("{kernel}: {f}")).collect()
    }

    /// Runs it on these inputs. Times are those of the kernels, without copies.
    ///
    /// # Errors
    /// [`Error::Input`] for a missing input, [`Error::Gpu`].
    pub fn run(&self, inputs: &BTreeMap<String, Tensor>) -> Result<Outcome, Error> {
        let mut outputs: Vec<Tensor> =
            self.decls(TensorRole::Output).map(|t| Tensor::zeros(t.dtype, &t.dims)).collect::<Result<_, _>>()?;
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

    /// The kernels' time, added up, of `repeats` runs on the same inputs, after `warmup` more.
    ///
    /// # Errors
    /// As [`GpuProgram::run`].
    pub fn time(&self, inputs: &BTreeMap<String, Tensor>, warmup: u32, repeats: u32) -> Result<Vec<f64>, Error> {
        let mut memory = self.executable.allocate().map_err(failed)?;
        let mut given = self.views(inputs)?.into_iter();
        for (decl, buffer) in self.planned.program().tensors.iter().zip(&mut memory) {
            if decl.role == TensorRole::Input
                && let Some(view) = given.next()
            {
                buffer.upload(view.bytes).map_err(failed)?;
            }
        }
        let mut seconds = vec![];
        for k in 0..warmup + repeats {
            let report = self.executable.time(&memory, 1).map_err(failed)?;
            if k >= warmup {
                seconds.push(report.seconds);
            }
        }
        self.executable.status(&memory).map_err(failed)?;
        Ok(seconds)
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
