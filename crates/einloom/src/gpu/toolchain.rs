//! What turns tile programs into machine code for NVIDIA GPUs. It needs no GPU.

use super::{failed, lacks};
use crate::{Error, Finding};
use einloom_cuda::runtime::{Binary, Cache, Compiler, RunError, Search};
use einloom_cuda::{Source, Target, emit};
use std::path::{Path, PathBuf};
use std::process::Command;

/// NVRTC, the folder of compiled kernels, and the places where further tools may be.
pub struct Toolchain {
    search: Search,
    /// The directories of `PATH`.
    path: Vec<PathBuf>,
    pub(super) compiler: Compiler,
    pub(super) cache: Option<Cache>,
}

impl Toolchain {
    /// NVRTC from the usual places: `CUDA_PATH` or `CUDA_HOME`, the Python environment in `VIRTUAL_ENV` or
    /// `CONDA_PREFIX`, the system's folders. Compiled kernels are kept in `EINLOOM_CACHE_DIR`, or else in the user's
    /// cache folder.
    ///
    /// # Errors
    /// [`Error::Gpu`] if there is no NVRTC.
    pub fn open() -> Result<Self, Error> {
        let variable = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
        let search = Search {
            directories: vec![],
            cuda_path: variable("CUDA_PATH").or(variable("CUDA_HOME")),
            python_environment: variable("VIRTUAL_ENV").or(variable("CONDA_PREFIX")),
        };
        let compiler = Compiler::open(&search).map_err(|e| lacks("no-compiler", e))?;
        let path = std::env::var_os("PATH").map(|p| std::env::split_paths(&p).collect()).unwrap_or_default();
        let home = || Some(variable("HOME")?.join(".cache"));
        let folder = variable("EINLOOM_CACHE_DIR")
            .or_else(|| variable("XDG_CACHE_HOME").or_else(home).map(|c| c.join("einloom")));
        Ok(Self { search, path, compiler, cache: folder.map(Cache::new) })
    }

    /// The PTX of a source, for the architecture that it was emitted for.
    ///
    /// # Errors
    /// [`Error::Gpu`] if NVRTC refuses it.
    pub fn ptx(&self, source: &Source) -> Result<String, Error> {
        self.compiler.ptx(&source.text, &source.arch.to_string()).map_err(|e| failed(RunError::Compile(e)))
    }

    /// The machine code of a source, disassembled.
    ///
    /// # Errors
    /// [`Error::Gpu`] if NVRTC refuses it, or there is no disassembler that can read what it makes.
    pub fn sass(&self, source: &Source) -> Result<String, Error> {
        let compiled = self.compiler.compile(&source.text, &source.arch.to_string(), self.cache.as_ref());
        let Binary { cubin, .. } = compiled.map_err(|e| failed(RunError::Compile(e)))?;
        self.disassemble(&cubin)
    }

    fn disassemble(&self, cubin: &[u8]) -> Result<String, Error> {
        let temporary = |e: std::io::Error| {
            lacks("no-disassembler", format!("a temporary file for the disassembler cannot be written: {e}"))
        };
        let mut file = tempfile::Builder::new().suffix(".cubin").tempfile().map_err(temporary)?;
        std::io::Write::write_all(&mut file, cubin).map_err(temporary)?;
        let mut tried = String::new();
        for (name, option) in [("nvdisasm", "-c"), ("cuobjdump", "--dump-sass")] {
            for program in self.search.programs(name, &self.path) {
                match disassembled(&program, option, file.path()) {
                    Ok(text) => return Ok(text),
                    Err(reason) => tried += &format!("\n  {}: {reason}", program.display()),
                }
            }
        }
        let message = if tried.is_empty() {
            "neither nvdisasm nor cuobjdump, which show machine code, was found on PATH, in a CUDA tool kit or in a Python \
             environment"
                .to_string()
        } else {
            format!("no disassembler could read the machine code:{tried}")
        };
        let hint = "`pip install nvidia-cuda-nvdisasm` brings nvdisasm; VIRTUAL_ENV or CUDA_PATH says where it is";
        let finding = Box::new(Finding::error("no-disassembler", message).hint(Some(hint)));
        Err(Error::Gpu { finding, lacks: true })
    }
}

/// What the program says about the cubin, or why it says nothing.
fn disassembled(program: &Path, option: &str, cubin: &Path) -> Result<String, String> {
    let output = Command::new(program).arg(option).arg(cubin).output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() && !text.trim().is_empty() {
        return Ok(text);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.lines().next().map_or_else(|| output.status.to_string(), str::to_string))
}

/// A planned program as CUDA C++.
///
/// # Errors
/// [`Error::Gpu`] if it cannot be scheduled for the target.
pub fn source(planned: &crate::Planned, target: &Target) -> Result<Source, Error> {
    emit(planned.program(), target)
        .map_err(|e| Error::Gpu { finding: Box::new(Finding::error("emit", e.to_string())), lacks: false })
}
