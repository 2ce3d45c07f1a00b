//! Schedules as CUDA C++.
//!
//! The source names what the program names, says in comments what each region computes, and spells PTX in one prelude
//! only. It compiles with NVRTC and nvcc, without headers.

mod element;
mod guards;
mod hopper;
mod kernel;
mod load;
mod mma;
mod multiply_add;
mod names;
mod order;
mod pick;
mod quads;
mod rarely;
mod reduce;
mod scalar;
mod shared;
mod sizes;
mod store;
mod stream;
mod tensor_map;
mod whole;
mod writer;

use crate::hopper::{Reason, Roster, Specialised};
use crate::schedule::{self, Arch, Clusters, Fallback, Refusal, Schedule, Target};
use einloom_cascade::DType;
use einloom_tile::{Defect, Kernel, Op, Program, TensorId, grid_points, verify};
use std::collections::BTreeSet;
use std::fmt;

pub use sizes::{Pieces, Template};
pub use tensor_map::{TensorMapSpec, TmaSwizzle};

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
    /// The tensors whose pointers it takes, in order. A pointer to the status words follows, then `tensor_maps`.
    pub tensors: Vec<TensorId>,
    /// Tensor maps that it takes by value (`const __grid_constant__`, 128 bytes, aligned to 64), in order.
    pub tensor_maps: Vec<TensorMapSpec>,
    /// Blocks per cluster; `grid` is a multiple of it.
    pub cluster: usize,
    /// Blocks per multiprocessor of a kernel whose blocks take tasks in turn: no more than these are launched, and `grid`
    /// is the number of tasks.
    pub persistent: Option<usize>,
    /// Who takes which task, if the kernel reads that from memory: a pointer to it follows that to the status, and as many
    /// blocks are launched as it has.
    pub roster: Option<Roster>,
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

/// Schedules and emits every kernel of a program: as a producer and consumers where the target and the kernel allow it,
/// else by the common path, with the reason among the fallbacks.
///
/// # Errors
/// If the program is not well-formed, or a kernel does not fit: see [`EmitError`].
pub fn emit(program: &Program, target: &Target) -> Result<Source, EmitError> {
    let program = &prepared(program);
    write(program, target, &|kernel| crate::hopper::specialise(program, kernel, target).map(Some))
}

/// As [`emit`], by the common path alone: cp.async, ldmatrix, mma.sync.
///
/// # Errors
/// As [`emit`].
pub fn emit_common(program: &Program, target: &Target) -> Result<Source, EmitError> {
    write(&prepared(program), target, &|_| Ok(None))
}

/// The program that [`emit`] schedules: with cheaper instructions; as it is if it is not well-formed.
pub fn prepared(program: &Program) -> Program {
    if verify(program).is_empty() { crate::rewrite::rewritten(program) } else { program.clone() }
}

/// Why kernels of a program do not fit the target, one reason for each that does not: what [`emit`] would refuse, without a
/// source. None for a program that is not well-formed.
pub fn refusals(program: &Program, target: &Target) -> Vec<Refusal> {
    if !verify(program).is_empty() {
        return vec![];
    }
    let program = &prepared(program);
    let refused = |kernel: &Kernel| match crate::hopper::specialise(program, kernel, target) {
        Ok(_) => None,
        Err(_) => schedule::schedule(program, kernel, target).err(),
    };
    program.kernels.iter().filter_map(refused).collect()
}

/// A specialised schedule, none because nobody asked, or why there is none.
type Specialise<'a> = &'a dyn Fn(&Kernel) -> Result<Option<Specialised>, Reason>;

fn write(program: &Program, target: &Target, specialise: Specialise<'_>) -> Result<Source, EmitError> {
    let defects = verify(program);
    if !defects.is_empty() {
        return Err(EmitError::Defects(defects));
    }
    let mut out =
        Source { arch: target.arch, text: String::new(), kernels: vec![], schedule: String::new(), fallbacks: vec![] };
    let (mut bodies, mut shapes, mut specialised, mut clusters) = (String::new(), BTreeSet::new(), false, false);
    for (number, kernel) in program.kernels.iter().enumerate() {
        bodies.push('\n');
        match specialise(kernel) {
            Ok(Some(s)) => {
                let done = self::hopper::emit(program, kernel, number, &s);
                specialised = true;
                clusters |= s.cluster.is_some();
                if let (Some(why), Clusters::Of(2..)) = (&s.apart, target.clusters) {
                    let (op, reason) = (why.subject.clone(), format!("no clusters: {}", why.condition));
                    out.fallbacks.push((kernel.name.clone(), Fallback { op, reason }));
                }
                shapes.extend(done.shapes);
                bodies.push_str(&done.emitted.text);
                out.schedule.push_str(&crate::hopper::print(program, kernel, &s));
                let info = LaunchInfo {
                    block: s.threads(),
                    shared_bytes: s.shared_bytes,
                    tensor_maps: done.maps,
                    cluster: s.blocks(),
                    persistent: Some(1),
                    roster: done.roster,
                    ..LaunchInfo::new(kernel, &done.emitted)
                };
                out.kernels.push(info);
                continue;
            }
            Ok(None) => {}
            // Without tensor cores in it, a kernel loses nothing.
            Err(reason) if target.arch == Arch::Sm90a && has_products(kernel) => {
                let why = format!("no producer and consumers: {}", reason.condition);
                out.fallbacks.push((kernel.name.clone(), Fallback { op: reason.subject, reason: why }));
            }
            Err(_) => {}
        }
        let schedule: Schedule = schedule::schedule(program, kernel, target).map_err(EmitError::Refused)?;
        let emitted = kernel::emit(program, kernel, number, &schedule);
        bodies.push_str(&emitted.text);
        let (block, shared_bytes) = (schedule.threads(), schedule.shared_bytes);
        out.kernels.push(LaunchInfo { block, shared_bytes, ..LaunchInfo::new(kernel, &emitted) });
        out.schedule.push_str(&schedule::print(program, kernel, &schedule));
        out.fallbacks.extend(schedule.fallbacks.into_iter().map(|f| (kernel.name.clone(), f)));
    }
    out.text = format!("// {} for {}\n\n{PTX}\n{PRELUDE}", program.name, target.arch);
    if specialised {
        out.text.push('\n');
        out.text.push_str(self::hopper::PTX);
        if clusters {
            out.text.push_str(self::hopper::CLUSTER);
        }
        for shape in shapes {
            out.text.push_str(&shape.function());
        }
    }
    out.text.push_str(&bodies);
    Ok(out)
}

fn has_products(kernel: &Kernel) -> bool {
    kernel.body.iter().any(|op| match op {
        Op::Mma { .. } => true,
        Op::Stream { body, .. } => body.iter().any(|op| matches!(op, Op::Mma { .. })),
        _ => false,
    })
}

impl LaunchInfo {
    /// One block of no threads per point of the grid.
    fn new(kernel: &Kernel, emitted: &kernel::Emitted) -> Self {
        Self {
            kernel: kernel.name.clone(),
            function: emitted.function.clone(),
            grid: grid_points(kernel),
            block: 0,
            shared_bytes: 0,
            tensors: emitted.tensors.clone(),
            tensor_maps: vec![],
            cluster: 1,
            persistent: None,
            roster: None,
            checked_loads: emitted.checked_loads.clone(),
        }
    }
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
