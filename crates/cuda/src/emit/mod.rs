//! Schedules as CUDA C++.
//!
//! The source names what the program names, says in comments what each region computes, and spells PTX in one prelude
//! only. It compiles with NVRTC and nvcc, without headers.

mod element;
mod kernel;
mod load;
mod mma;
mod names;
mod reduce;
mod scalar;
mod shared;
mod store;
mod stream;
mod writer;

use crate::schedule::{self, Arch, Fallback, Refusal, Schedule, Target};
use einloom_cascade::DType;
use einloom_tile::{Defect, Program, TensorId, grid_points, verify};
use std::fmt;

/// The functions that are PTX instructions; every source begins with them.
pub const PTX: &str = include_str!("ptx.cuh");
/// Number types and functions, in terms of [`PTX`]; every source goes on with them.
pub const PRELUDE: &str = include_str!("prelude.cuh");

/// A program as CUDA C++.
#[derive(Clone, Debug, PartialEq)]
pub struct Source {
    /// What to compile it for.
    pub arch: Arch,
    /// The source text, the prelude included.
    pub text: String,
    /// One per kernel of the program, in order.
    pub kernels: Vec<LaunchInfo>,
    /// The schedules as text.
    pub schedule: String,
    /// Slower ways taken, with the kernel's name.
    pub fallbacks: Vec<(String, Fallback)>,
}

/// How a kernel is launched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchInfo {
    /// The kernel's name in the program.
    pub kernel: String,
    /// Its function.
    pub function: String,
    /// Blocks; 0 for a kernel with nothing to do, which is not launched.
    pub grid: usize,
    /// Threads per block.
    pub block: usize,
    /// Bytes of dynamic shared memory.
    pub shared_bytes: usize,
    /// The tensors whose pointers it takes, in order. A pointer to the status words comes last.
    pub tensors: Vec<TensorId>,
    /// Its loads that may leave their tensor, as the status words number them.
    pub checked_loads: Vec<TensorId>,
}

/// Why there is no source.
#[derive(Clone, Debug, PartialEq)]
pub enum EmitError {
    /// The program is not well-formed: see [`einloom_tile::verify`].
    Defects(Vec<Defect>),
    /// A kernel does not fit the target.
    Refused(Refusal),
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Defects(defects) => {
                write!(f, "the tile program is not well-formed:")?;
                defects.iter().try_for_each(|d| write!(f, "\n  {d}"))
            }
            Self::Refused(refusal) => refusal.fmt(f),
        }
    }
}

impl std::error::Error for EmitError {}

/// Schedules and emits every kernel of a program.
///
/// # Errors
/// If the program is not well-formed, or a kernel does not fit: see [`EmitError`].
pub fn emit(program: &Program, target: &Target) -> Result<Source, EmitError> {
    let defects = verify(program);
    if !defects.is_empty() {
        return Err(EmitError::Defects(defects));
    }
    let mut text = format!("// {} for {}\n\n{PTX}\n{PRELUDE}", program.name, target.arch);
    let (mut kernels, mut schedules, mut fallbacks) = (vec![], String::new(), vec![]);
    for (number, kernel) in program.kernels.iter().enumerate() {
        let schedule: Schedule = schedule::schedule(program, kernel, target).map_err(EmitError::Refused)?;
        let emitted = kernel::emit(program, kernel, number, &schedule);
        text.push('\n');
        text.push_str(&emitted.text);
        kernels.push(LaunchInfo {
            kernel: kernel.name.clone(),
            function: emitted.function,
            grid: grid_points(kernel),
            block: schedule.threads(),
            shared_bytes: schedule.shared_bytes,
            tensors: emitted.tensors,
            checked_loads: emitted.checked_loads,
        });
        schedules.push_str(&schedule::print(program, kernel, &schedule));
        fallbacks.extend(schedule.fallbacks.into_iter().map(|f| (kernel.name.clone(), f)));
    }
    Ok(Source { arch: target.arch, text, kernels, schedule: schedules, fallbacks })
}

/// The prelude's type for a number type.
fn type_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "F64",
        DType::F32 => "F32",
        DType::Tf32 => "TF32",
        DType::Bf16 => "BF16",
        DType::F16 => "F16",
        DType::E4m3 => "E4M3",
        DType::E5m2 => "E5M2",
        DType::I32 => "I32",
        DType::I16 => "I16",
        DType::I8 => "I8",
        DType::I4 => "I4",
        DType::U8 => "U8",
        DType::U4 => "U4",
        DType::B1 => "B1",
    }
}
