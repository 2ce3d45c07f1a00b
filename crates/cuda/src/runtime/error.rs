//! What can go wrong, as values.

use crate::EmitError;
use einloom_cascade::DType;
use std::fmt;

/// Why there is no GPU or no compiler to use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unavailable {
    /// The driver's library is not there.
    NoDriver {
        /// What the system says.
        reason: String,
    },
    /// The driver is there but finds no GPU, or fails.
    Driver {
        /// The call.
        call: &'static str,
        /// What the driver says.
        reason: String,
    },
    /// The GPU is older than Ampere.
    TooOld {
        /// Its name.
        name: String,
        /// Its compute capability.
        capability: (u32, u32),
    },
    /// NVRTC is not there.
    NoCompiler {
        /// What was tried, and what the system said each time.
        tried: Vec<(String, String)>,
    },
}

/// Why a source did not compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// NVRTC refused it.
    Rejected {
        /// Its log.
        log: String,
    },
    /// It compiled, but the log holds messages that mean a slow or wrong kernel (ptxas C75xx and C76xx).
    Degraded {
        /// Those lines of the log.
        messages: Vec<String>,
    },
    /// NVRTC itself failed.
    Compiler {
        /// The call.
        call: &'static str,
        /// What it says.
        reason: String,
    },
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq)]
pub enum RunError {
    /// The program cannot be emitted.
    Emit(EmitError),
    /// Its source did not compile.
    Compile(CompileError),
    /// The driver reported an error.
    Driver {
        /// The call.
        call: &'static str,
        /// What the driver says.
        reason: String,
    },
    /// The driver is too old for what a kernel needs.
    Lacks {
        /// What is missing.
        what: &'static str,
        /// What the system says.
        reason: String,
    },
    /// What the emitter says of a launch cannot be done.
    Launch {
        /// The kernel's name.
        kernel: String,
        /// What is in the way.
        reason: String,
    },
    /// The number of inputs or outputs is not the program's.
    Count {
        /// "inputs", "outputs" or "buffers".
        what: &'static str,
        /// What the program has.
        expected: usize,
        /// What was given.
        given: usize,
    },
    /// An array's shape is not the tensor's.
    Shape {
        /// The tensor's name.
        tensor: String,
        /// What the program says.
        expected: Vec<usize>,
        /// What was given.
        given: Vec<usize>,
    },
    /// An array's number type is not the tensor's.
    Type {
        /// The tensor's name.
        tensor: String,
        /// What the program says.
        expected: DType,
        /// What was given.
        given: DType,
    },
    /// An element of an input is no value of its number type, though its bytes would hold one of a wider type.
    Value {
        /// The tensor's name.
        tensor: String,
        /// Its number type.
        dtype: DType,
        /// Where.
        index: Vec<usize>,
        /// What is there.
        value: i64,
    },
    /// An array's bytes are not as many as its shape and number type need.
    Length {
        /// The tensor's name.
        tensor: String,
        /// What the shape and number type need.
        expected: usize,
        /// What was given.
        given: usize,
    },
    /// A coordinate lies outside its tensor: a gather's data name an element that does not exist.
    OutOfRange {
        /// The kernel's name.
        kernel: String,
        /// The tensor's name.
        tensor: String,
        /// The dimension, from 0.
        dimension: usize,
        /// The coordinate.
        coordinate: i64,
    },
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoDriver { reason } => write!(f, "there is no NVIDIA driver on this machine ({reason})"),
            Self::Driver { call, reason } => write!(f, "the NVIDIA driver cannot be used: {call}: {reason}"),
            Self::TooOld { name, capability: (major, minor) } => {
                write!(f, "{name} has compute capability {major}.{minor}; 8.0 (Ampere) is the first that is supported")
            }
            Self::NoCompiler { tried } => {
                write!(f, "NVRTC, the compiler, was not found; `pip install nvidia-cuda-nvrtc` brings it. Tried:")?;
                tried.iter().try_for_each(|(file, reason)| write!(f, "\n  {file}: {reason}"))
            }
        }
    }
}

impl std::error::Error for Unavailable {}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rejected { log } => write!(f, "the emitted source does not compile:\n{log}"),
            Self::Degraded { messages } => {
                write!(f, "the emitted source compiles to something slower than scheduled:\n{}", messages.join("\n"))
            }
            Self::Compiler { call, reason } => write!(f, "the compiler failed: {call}: {reason}"),
        }
    }
}

impl std::error::Error for CompileError {}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Emit(e) => e.fmt(f),
            Self::Compile(e) => e.fmt(f),
            Self::Driver { call, reason } => write!(f, "the driver failed: {call}: {reason}"),
            Self::Lacks { what, reason } => write!(f, "{what} ({reason})"),
            Self::Launch { kernel, reason } => write!(f, "kernel {kernel} cannot be launched: {reason}"),
            Self::Count { what, expected, given } => write!(f, "the program has {expected} {what}, {given} were given"),
            Self::Shape { tensor, expected, given } => {
                write!(f, "`{tensor}` has shape {expected:?}, an array of shape {given:?} was given")
            }
            Self::Type { tensor, expected, given } => {
                write!(f, "`{tensor}` holds {expected}, an array of {given} was given")
            }
            Self::Value { tensor, dtype, index, value } => {
                write!(f, "`{tensor}` holds {dtype}, and its element at {index:?} is {value}")
            }
            Self::Length { tensor, expected, given } => {
                write!(f, "`{tensor}` needs {expected} bytes, {given} were given")
            }
            Self::OutOfRange { kernel, tensor, dimension, coordinate } => {
                write!(
                    f,
                    "kernel {kernel}: coordinate {coordinate} in dimension {dimension} of `{tensor}` is outside it"
                )
            }
        }
    }
}

impl std::error::Error for RunError {}

impl From<EmitError> for RunError {
    fn from(e: EmitError) -> Self {
        Self::Emit(e)
    }
}

impl From<CompileError> for RunError {
    fn from(e: CompileError) -> Self {
        Self::Compile(e)
    }
}
