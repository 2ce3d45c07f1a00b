//! What a call runs: made once for a signature, kept.

use crate::dlpack::{Arrays, DataType, Found};
use crate::failure::Failure;
use crate::frameworks::Framework;
use crate::numbers::to_dlpack;
use crate::prepare::{self, Choices, Extra};
use crate::signature::{Place, Signature};
use crate::sized::Sized;
use crate::wide::Wide;
use crate::{cpu, gpu, tuning};
use einloom::{PlanOptions, Planned};
use einloom_cascade::{Cascade, DType, Span, TensorId};
use einloom_cuda::runtime::Found as CodeFrom;
use einloom_plan::{Merging, PlannedKernel};
use einloom_tile::{Layout, TensorRole};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::time::Instant;

/// A program with its sizes, number types and layouts, ready to run at its place.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub place: Place,
    /// Of the outputs, in the order in which the program declares them.
    pub outputs: Vec<Output>,
    /// Which of a call's arrays (inputs, then outputs, in the order of their declarations) each tensor of the tile
    /// program is.
    order: Vec<usize>,
    /// The inputs of 64-bit integers.
    pub wide: Vec<Wide>,
    /// What it was made from.
    pub planned: Planned,
    /// Whether its tiles were chosen by the caller or measured before.
    pub decided: bool,
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
    Cpu(Box<cpu::Loaded>),
    Cuda(Box<gpu::Loaded>),
}

/// Where the program writes what a kernel computes, by the kernel's name.
pub(crate) type Places = BTreeMap<String, Span>;

/// The first statement that each kernel computes.
pub(crate) fn places(planned: &Planned) -> Places {
    let statements = &planned.cascade().statements;
    let first = |k: &PlannedKernel| Some((k.name.clone(), statements.get(*k.statements.first()?)?.span));
    planned.kernels().iter().filter_map(first).collect()
}

fn is_strided(layout: Option<&Layout>, found: &Found) -> bool {
    let shape: Vec<usize> = found.shape.iter().map(|&n| usize::try_from(n).unwrap_or(0)).collect();
    layout.is_some_and(|l| !l.is_dense(&shape))
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
    /// Tiles to try, in place of chosen, remembered and planned ones.
    pub tiles: Option<&'a BTreeMap<String, usize>>,
    /// What kernels of other sizes share.
    pub sized: &'a Sized,
}

impl Kernel {
    /// Plans, compiles and loads.
    ///
    /// # Errors
    /// Sizes that do not fit, what no plan exists for, what the place lacks.
    pub fn new(recipe: &Recipe<'_>) -> Result<Self, Failure> {
        let Recipe { cascade, inputs, signature, choices, extra, outputs, wanted, tiles, sized } = recipe;
        let brought = outputs.iter().flatten().zip(*wanted);
        let strided =
            signature.strided || brought.into_iter().any(|(layout, found)| is_strided(layout.as_ref(), found));
        let merge = if strided { Merging::Never } else { Merging::Auto };
        let with = |tiles: &BTreeMap<String, usize>| {
            let options = PlanOptions { tiles: tiles.clone(), merge, ..PlanOptions::default() };
            prepare::plan_for(cascade, signature, choices, extra, options)
        };
        let remembered = match tiles {
            Some(_) => None,
            None if !choices.tiles.is_empty() => None,
            None => tuning::lookup(&tuning::key(cascade, signature, choices, extra)).map(|e| e.tiles),
        };
        let planned = match (tiles, &remembered) {
            (Some(tiles), _) => with(tiles)?,
            (None, _) if !choices.tiles.is_empty() => with(&choices.tiles)?,
            // Arrays laid out otherwise may have had other indices.
            (None, Some(tiles)) => with(tiles).or_else(|_| sized.plan(cascade, signature, choices, extra, merge))?,
            (None, None) => sized.plan(cascade, signature, choices, extra, merge)?,
        };
        let decided = tiles.is_some() || remembered.is_some() || !choices.tiles.is_empty();
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
            Place::Cpu => Backend::Cpu(Box::new(cpu::Loaded::new(&planned, &program, choices.threads())?)),
            Place::Cuda(number) => {
                Backend::Cuda(Box::new(gpu::Loaded::new(&program, places(&planned), number, &sized.family)?))
            }
        };
        Ok(Self {
            place: signature.place,
            outputs: results,
            wide: signature.wide.clone(),
            planned,
            decided,
            order,
            backend,
        })
    }

    /// Runs it on arrays at these addresses: inputs and then outputs, in the order of their declarations. On a GPU it
    /// only starts, in `stream`.
    ///
    /// # Safety
    /// As [`cpu::Loaded::run`]; on a GPU until the stream has come to its end.
    #[allow(unsafe_code)]
    pub unsafe fn run(&self, addresses: &[u64], stream: u64) -> Result<(), Failure> {
        let ordered = self.ordered(addresses);
        // SAFETY: by the contract; every array of the tile program has its address.
        unsafe {
            match &self.backend {
                Backend::Cpu(loaded) => loaded.run(&ordered),
                Backend::Cuda(loaded) => loaded.launch(&ordered, stream),
            }
        }
    }

    /// The median time of runs, in seconds, after one that is not timed.
    ///
    /// # Safety
    /// As [`Self::run`].
    #[allow(unsafe_code)]
    pub unsafe fn measure(&self, addresses: &[u64], stream: u64, runs: usize, most: f64) -> Result<f64, Failure> {
        let ordered = self.ordered(addresses);
        let mut times = match &self.backend {
            // SAFETY: by the contract.
            Backend::Cuda(loaded) => unsafe { loaded.time(&ordered, stream, runs)? },
            Backend::Cpu(loaded) => {
                let (begun, mut times) = (Instant::now(), vec![]);
                while times.len() < runs + 1 && (times.len() < 3 || begun.elapsed().as_secs_f64() < most) {
                    let start = Instant::now();
                    // SAFETY: by the contract.
                    unsafe { loaded.run(&ordered)? };
                    times.push(start.elapsed().as_secs_f64());
                }
                times.split_off(1)
            }
        };
        times.sort_by(f64::total_cmp);
        Ok(times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY))
    }

    /// The addresses in the order of the tile program, and scratch memory's after them.
    fn ordered(&self, addresses: &[u64]) -> Vec<u64> {
        let scratch = addresses.get(self.order.len()..).unwrap_or_default();
        self.order.iter().filter_map(|&k| addresses.get(k)).chain(scratch).copied().collect()
    }

    /// Scratch memory for a run, if it needs any; adds where it is. Freed when dropped: a framework hands it out again
    /// only to later work on the same stream.
    pub fn scratch<'py>(
        &self,
        framework: Framework,
        like: &Bound<'py, PyAny>,
        arrays: &mut Arrays,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let bytes = match &self.backend {
            Backend::Cpu(_) => 0,
            Backend::Cuda(loaded) => loaded.scratch_bytes(),
        };
        if bytes == 0 {
            return Ok(None);
        }
        framework.empty(like, self.place, to_dlpack(DType::U8), &[bytes as i64], arrays).map(Some)
    }

    /// The stream to run in, and whether the framework learns of work that is started there.
    pub fn stream(&self, py: Python<'_>, framework: Framework) -> PyResult<(u64, bool)> {
        match self.place {
            Place::Cpu => Ok((0, true)),
            Place::Cuda(_) => framework.stream(py, self.place.device()),
        }
    }

    /// Where its code came from, for people.
    pub fn code(&self) -> String {
        match &self.backend {
            Backend::Cpu(_) => "tile primitives".to_string(),
            Backend::Cuda(loaded) => match loaded.found() {
                CodeFrom::Own => "compiled for these sizes".to_string(),
                CodeFrom::Class { parameters } => format!("compiled for a size class of {parameters} parameters"),
                CodeFrom::Shared => "shared with other sizes".to_string(),
            },
        }
    }

    /// Slower ways that it had to take, each with its reason.
    pub fn notes(&self) -> Vec<String> {
        match &self.backend {
            Backend::Cpu(_) => vec![],
            Backend::Cuda(loaded) => loaded.notes(),
        }
    }
}
