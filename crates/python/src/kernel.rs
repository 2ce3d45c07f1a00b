//! What a call runs: made once for a signature, kept.

use crate::dlpack::{DataType, Found};
use crate::failure::Failure;
use crate::numbers::to_dlpack;
use crate::prepare::{self, Choices, Extra};
use crate::signature::{Place, Signature};
use crate::{cpu, gpu};
use einloom::{PlanOptions, Planned};
use einloom_cascade::{Cascade, TensorId};
use einloom_tile::{Layout, TensorRole};

/// A program with its sizes, number types and layouts, ready to run at its place.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub place: Place,
    /// Of the outputs, in the order in which the program declares them.
    pub outputs: Vec<Output>,
    /// Which of a call's arrays (inputs, then outputs, in the order of their declarations) each tensor of the tile
    /// program is.
    order: Vec<usize>,
    /// What it was made from.
    pub planned: Planned,
    backend: Backend,
}

/// An output as it will be.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    pub dtype: DataType,
    pub shape: Vec<i64>,
}

#[derive(Debug)]
enum Backend {
    Cpu(cpu::Loaded),
    Cuda(gpu::Loaded),
}

/// What a kernel is made from.
pub(crate) struct Recipe<'a> {
    pub cascade: &'a Cascade,
    pub inputs: &'a [TensorId],
    pub signature: &'a Signature,
    pub choices: &'a Choices,
    pub extra: &'a Extra,
    /// Layouts of outputs that the caller brings, in the order of their declarations.
    pub outputs: Option<Vec<Option<Layout>>>,
    /// Those outputs as they were found; none if the caller brings none.
    pub wanted: &'a [Found],
}

impl Kernel {
    /// Plans, compiles and loads.
    ///
    /// # Errors
    /// Sizes that do not fit, what no plan exists for, what the place lacks.
    pub fn new(recipe: &Recipe<'_>) -> Result<Self, Failure> {
        let Recipe { cascade, inputs, signature, choices, extra, outputs, wanted } = recipe;
        let planned = prepare::plan_for(cascade, signature, choices, extra, PlanOptions::default())?;
        let bound = planned.bound();
        let output = |&t: &TensorId| {
            let shape = bound.shape(cascade, t).into_iter().map(|n| n as i64).collect();
            Output { dtype: to_dlpack(planned.dtype(t)), shape }
        };
        let results: Vec<Output> = cascade.outputs.iter().map(output).collect();
        crate::outputs::fit(cascade, &results, wanted)?;
        let names = || inputs.iter().chain(&cascade.outputs).map(|&t| cascade[t].name.as_str());
        let tensors = &planned.program().tensors;
        let outside: Vec<_> = tensors.iter().filter(|t| t.role != TensorRole::Temporary).collect();
        let order: Vec<usize> = outside.iter().filter_map(|t| names().position(|name| name == t.name)).collect();
        let given = outputs.clone().unwrap_or_else(|| vec![None; cascade.outputs.len()]);
        let layouts: Vec<Option<Layout>> = signature.layouts.iter().cloned().chain(given).collect();
        let of_tensor = order.iter().map(|&k| layouts.get(k).cloned().flatten());
        let program = planned.program().clone().with_layouts(of_tensor);
        let backend = match signature.place {
            Place::Cpu => Backend::Cpu(cpu::Loaded::new(&planned, &program, choices.threads())?),
            Place::Cuda(number) => Backend::Cuda(gpu::Loaded::new(&program, number)?),
        };
        Ok(Self { place: signature.place, outputs: results, planned, order, backend })
    }

    /// Runs it on arrays at these addresses: inputs and then outputs, in the order of their declarations. On a GPU it
    /// only starts, in `stream`.
    ///
    /// # Safety
    /// As [`cpu::Loaded::run`]; on a GPU until the stream has come to its end.
    #[allow(unsafe_code)]
    pub unsafe fn run(&self, addresses: &[u64], stream: u64) -> Result<(), Failure> {
        let ordered: Vec<u64> = self.order.iter().filter_map(|&k| addresses.get(k).copied()).collect();
        // SAFETY: by the contract; every array of the tile program has its address.
        unsafe {
            match &self.backend {
                Backend::Cpu(loaded) => loaded.run(&ordered),
                Backend::Cuda(loaded) => loaded.launch(&ordered, stream),
            }
        }
    }

    /// Slower ways that it had to take, each with its reason.
    pub fn notes(&self) -> Vec<String> {
        match &self.backend {
            Backend::Cpu(_) => vec![],
            Backend::Cuda(loaded) => loaded.notes(),
        }
    }

    /// Bytes of memory that a run needs beside its arrays, on the device.
    pub fn scratch_bytes(&self) -> usize {
        match &self.backend {
            Backend::Cpu(_) => 0,
            Backend::Cuda(loaded) => loaded.scratch_bytes(),
        }
    }
}
