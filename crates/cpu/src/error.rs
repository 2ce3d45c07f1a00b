//! What can go wrong, as values.

use einloom_cascade::DType;
use einloom_tile::Defect;
use std::fmt;

/// Why a program cannot be made executable.
#[derive(Clone, Debug, PartialEq)]
pub enum BuildError {
    /// It is not well-formed: see [`einloom_tile::verify`].
    Defects(Vec<Defect>),
    /// A tensor has more bytes than memory has addresses.
    TooLarge {
        /// Its name.
        tensor: String,
    },
    /// Something that this backend does not compute.
    Unsupported {
        /// The kernel's name.
        kernel: String,
        /// What it is.
        what: String,
    },
    /// This processor does not have the instructions that [`crate::Options::isa`] asks for.
    Isa {
        /// Their name.
        isa: &'static str,
    },
    /// Not a name of [`crate::Bf16Products`].
    Bf16 {
        /// What was given.
        given: String,
    },
}

/// Why a run stopped.
#[derive(Clone, Debug, PartialEq)]
pub enum RunError {
    /// The number of inputs or outputs is not the program's.
    Count {
        /// "inputs" or "outputs".
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
    /// An output does not begin at a multiple of its element's size.
    Misaligned {
        /// The tensor's name.
        tensor: String,
        /// Bytes per element.
        alignment: usize,
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
        /// Coordinates must be less than this.
        size: usize,
        /// Where the element would have stood: positions along the loaded tile's axes.
        position: Vec<(String, usize)>,
    },
    /// The threads that were asked for could not be started.
    Threads {
        /// Why.
        reason: String,
    },
    /// There is not enough memory for the program's temporary tensors.
    Memory {
        /// Bytes of the tensor that did not fit.
        bytes: usize,
    },
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Defects(defects) => {
                write!(f, "the tile program is not well-formed:")?;
                defects.iter().try_for_each(|d| write!(f, "\n  {d}"))
            }
            Self::TooLarge { tensor } => write!(f, "tensor `{tensor}` is too large to address"),
            Self::Unsupported { kernel, what } => write!(f, "kernel {kernel}: {what} is not supported on the CPU"),
            Self::Isa { isa } => write!(f, "this processor does not have {isa}"),
            Self::Bf16 { given } => {
                write!(f, "`{given}` is no way to multiply bf16: there are fastest, widened, pairs and tiles")
            }
        }
    }
}

impl std::error::Error for BuildError {}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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
            Self::Misaligned { tensor, alignment } => {
                write!(f, "the memory for output `{tensor}` does not begin at a multiple of {alignment} bytes")
            }
            Self::OutOfRange { kernel, tensor, dimension, coordinate, size, position } => {
                let at: Vec<String> = position.iter().map(|(axis, p)| format!("{axis} = {p}")).collect();
                write!(
                    f,
                    "kernel {kernel}: coordinate {coordinate} in dimension {dimension} of `{tensor}` is outside \
                     0..{size}{}{}",
                    if at.is_empty() { "" } else { ", at " },
                    at.join(", ")
                )
            }
            Self::Threads { reason } => write!(f, "no threads: {reason}"),
            Self::Memory { bytes } => write!(f, "no memory for a temporary tensor of {bytes} bytes"),
        }
    }
}

impl std::error::Error for RunError {}
