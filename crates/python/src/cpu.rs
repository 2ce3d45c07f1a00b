//! Runs on the processor, on arrays where they are.
#![allow(unsafe_code)]

use crate::failure::{Failure, run_class};
use crate::kernel::Places;
use einloom::Planned;
use einloom_cpu::{Executable, Options, RunError, RunOptions, View, ViewMut};
use einloom_tile::{Program, TensorDecl, TensorRole};

/// A program for the processor.
#[derive(Debug)]
pub(crate) struct Loaded {
    executable: Executable,
    threads: usize,
    places: Places,
}

/// Below this predicted time other threads are not woken: that alone takes as long.
const ALONE_SECONDS: f64 = 30e-6;

impl Loaded {
    /// Makes a planned program ready; `program` is its tile program with the caller's layouts.
    pub fn new(planned: &Planned, program: &Program, threads: usize) -> Result<Self, Failure> {
        let executable = Executable::new(program, &Options::default()).map_err(einloom::Error::Build)?;
        let predicted: f64 = planned.transfers().iter().map(|k| k.seconds).sum::<f64>() * threads as f64;
        let places = crate::kernel::places(planned);
        Ok(Self { executable, threads: if predicted < ALONE_SECONDS { 1 } else { threads }, places })
    }

    /// Runs it on arrays at these addresses, inputs and then outputs in the order of the tile program.
    ///
    /// # Safety
    /// Each address is that of memory that is valid for what the tensor's layout reaches, the outputs' for writing, and
    /// nobody else writes to any of them, or reads the outputs, before this returns.
    pub unsafe fn run(&self, addresses: &[u64]) -> Result<(), Failure> {
        let tensors = &self.executable.program().tensors;
        let role = |role| tensors.iter().filter(move |t| t.role == role);
        let count = role(TensorRole::Input).count();
        let (inputs, outputs) = addresses.split_at(count.min(addresses.len()));
        let inputs: Vec<View<'_>> = role(TensorRole::Input)
            .zip(inputs)
            .map(|(t, &address)| {
                // SAFETY: by the contract.
                let bytes = unsafe { std::slice::from_raw_parts(pointer(t, address), length(t)) };
                View { dtype: t.dtype, dims: t.shape(), bytes }
            })
            .collect();
        let mut outputs: Vec<ViewMut<'_>> = role(TensorRole::Output)
            .zip(outputs)
            .map(|(t, &address)| {
                // SAFETY: by the contract.
                let bytes = unsafe { std::slice::from_raw_parts_mut(pointer(t, address), length(t)) };
                ViewMut { dtype: t.dtype, dims: t.shape(), bytes }
            })
            .collect();
        let pool = if self.threads == 1 { None } else { Some(crate::pool::pool(self.threads)?) };
        let options = RunOptions { threads: Some(self.threads), pool, ..RunOptions::default() };
        match self.executable.run(&inputs, &mut outputs, &options) {
            Ok(_) => Ok(()),
            Err(e) => {
                let span = match &e {
                    RunError::OutOfRange { kernel, .. } => self.places.get(kernel).copied(),
                    _ => None,
                };
                Err(Failure { class: run_class(&e), findings: einloom::Error::Run(e).findings() }.at(span))
            }
        }
    }
}

fn length(tensor: &TensorDecl) -> usize {
    tensor.reach_bytes().unwrap_or(0)
}

/// An empty array may be anywhere, even nowhere.
fn pointer(tensor: &TensorDecl, address: u64) -> *mut u8 {
    match length(tensor) {
        0 => std::ptr::NonNull::<u64>::dangling().as_ptr().cast(),
        _ => address as usize as *mut u8,
    }
}
