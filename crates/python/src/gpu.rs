//! Runs on NVIDIA GPUs, on arrays where they are, in the framework's stream.
#![allow(unsafe_code)]

use crate::failure::Failure;
use crate::kernel::Places;
use crate::settings;
use einloom::Finding;
use einloom_cuda::runtime::{Cache, Compiler, Device, Family, Found, Lent, RunError, Search};
use einloom_machine::Machine;
use einloom_tile::Program;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

/// A program for a GPU.
#[derive(Debug)]
pub(crate) struct Loaded {
    lent: Lent,
    found: Found,
    places: Places,
}

impl Loaded {
    /// Compiles and loads a tile program.
    pub fn new(program: &Program, places: Places, number: usize, family: &Mutex<Family>) -> Result<Self, Failure> {
        let device = device(number)?;
        let compiler = compiler()?;
        let mut family = family.lock().unwrap_or_else(PoisonError::into_inner);
        let made = family.executable(program, &device, compiler, cache().as_ref());
        let (executable, found) = made.map_err(failed)?;
        Ok(Self { lent: Lent::new(executable).map_err(failed)?, found, places })
    }

    /// Where its code came from.
    pub fn found(&self) -> Found {
        self.found
    }

    /// Times of launches on the device, in seconds.
    ///
    /// # Safety
    /// As [`Lent::launch`].
    pub unsafe fn time(&self, addresses: &[u64], stream: u64, repeats: usize) -> Result<Vec<f64>, Failure> {
        // SAFETY: by the contract.
        unsafe { self.lent.time(addresses, stream, repeats) }.map_err(failed)
    }

    /// Slower ways that it takes, each with its reason.
    pub fn notes(&self) -> Vec<String> {
        self.lent.executable().source().fallbacks.iter().map(|(kernel, f)| format!("{kernel}: {f}")).collect()
    }

    /// Bytes that a launch needs beside its arrays.
    pub fn scratch_bytes(&self) -> usize {
        self.lent.scratch_bytes()
    }

    /// Starts it.
    ///
    /// # Safety
    /// As [`Lent::launch`].
    pub unsafe fn launch(&self, addresses: &[u64], stream: u64) -> Result<(), Failure> {
        // SAFETY: by the contract.
        unsafe { self.lent.launch(addresses, stream) }.map_err(|e| {
            let span = match &e {
                RunError::OutOfRange { kernel, .. } => self.places.get(kernel).copied(),
                _ => None,
            };
            failed(e).at(span)
        })
    }
}

/// Waits for a stream, which exists.
pub(crate) fn wait(number: usize, stream: u64) -> Result<(), Failure> {
    // SAFETY: the framework named the stream, or it is the default one.
    unsafe { device(number)?.wait_for(stream) }.map_err(failed)
}

/// The GPU with this number, opened once.
pub(crate) fn device(number: usize) -> Result<Device, Failure> {
    static OPEN: Mutex<BTreeMap<usize, Device>> = Mutex::new(BTreeMap::new());
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(device) = open.get(&number) {
        return Ok(device.clone());
    }
    let device = Device::open_number(number).map_err(|e| lacks("no-gpu", e.to_string()))?;
    open.insert(number, device.clone());
    Ok(device)
}

/// The description to plan with: the built-in machine of the GPU's name, else of its generation with its own number of
/// cores.
pub(crate) fn machine(number: usize) -> Result<Machine, Failure> {
    let device = device(number)?;
    let name = device.name().to_lowercase();
    let known = einloom_machine::BUILT_IN.iter().map(|m| m.0).find(|known| name.contains(known));
    let nearest = if device.capability() == (9, 0) { "h200" } else { "a100" };
    let machine = einloom::machines::find(known.unwrap_or(nearest))?;
    Ok(match known {
        Some(_) => machine,
        None => einloom::machines::with_cores(machine, device.multiprocessors()),
    })
}

/// NVRTC, opened once; a failure is tried again, because packages may be installed meanwhile.
pub(crate) fn compiler() -> Result<&'static Compiler, Failure> {
    static COMPILER: OnceLock<Compiler> = OnceLock::new();
    if let Some(compiler) = COMPILER.get() {
        return Ok(compiler);
    }
    let places = settings::places();
    let search = Search {
        directories: places.libraries.clone(),
        cuda_path: settings::folder("CUDA_PATH").or_else(|| settings::folder("CUDA_HOME")),
        python_environment: settings::folder("VIRTUAL_ENV").or(places.prefix),
    };
    let opened = Compiler::open(&search).map_err(|e| lacks("no-compiler", e.to_string()))?;
    Ok(COMPILER.get_or_init(|| opened))
}

/// Where compiled kernels are kept.
pub(crate) fn cache() -> Option<Cache> {
    settings::cache_folder().map(|folder: PathBuf| Cache::new(folder))
}

fn lacks(code: &str, message: String) -> Failure {
    Failure::new("DeviceError", code, message)
}

fn failed(e: RunError) -> Failure {
    let class = match &e {
        RunError::OutOfRange { .. } => "OutOfRange",
        RunError::Driver { .. } | RunError::Lacks { .. } | RunError::Launch { .. } => "DeviceError",
        RunError::Emit(_) => "PlanError",
        _ => "EinloomError",
    };
    Failure { class, findings: vec![Finding::error("gpu", e.to_string())] }
}
