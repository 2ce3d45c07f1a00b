//! What can go wrong while evaluating.

use crate::{Cascade, Span, TensorId, spell};
use std::fmt;

/// Why a cascade has no value for these inputs.
#[derive(Clone, Debug, PartialEq)]
pub enum MeaningError {
    /// No array for this input.
    MissingInput {
        /// The input.
        tensor: String,
    },
    /// An array for what is not an input.
    UnknownInput {
        /// Its name.
        tensor: String,
    },
    /// An array that is not what the sizes ask for.
    WrongShape {
        /// The input.
        tensor: String,
        /// Elements per dimension by the sizes.
        expected: Vec<usize>,
        /// Elements per dimension of the array.
        given: Vec<usize>,
        /// How many values the array holds.
        values: usize,
    },
    /// A read outside its tensor.
    OutOfRange {
        /// The tensor that is read.
        tensor: String,
        /// Which of its dimensions, from 0.
        dim: usize,
        /// That dimension's extent, as written, such as `T + 1`.
        extent: String,
        /// How many elements that is.
        elements: i64,
        /// The position that was to be read.
        position: i128,
        /// The read.
        span: Span,
    },
    /// No memory for a tensor.
    OutOfMemory {
        /// The tensor.
        tensor: String,
        /// Its elements, 8 bytes each.
        elements: usize,
    },
}

impl MeaningError {
    /// The place in the source, where there is one.
    pub fn span(&self) -> Option<Span> {
        if let Self::OutOfRange { span, .. } = self { Some(*span) } else { None }
    }
}

impl fmt::Display for MeaningError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape = |s: &[usize]| s.iter().map(usize::to_string).collect::<Vec<_>>().join(" × ");
        match self {
            Self::MissingInput { tensor } => write!(f, "the input {tensor} is missing"),
            Self::UnknownInput { tensor } => write!(f, "there is no input {tensor}"),
            Self::WrongShape { tensor, expected, given, values } if expected == given => {
                write!(f, "{tensor} has the shape {} but {values} values", shape(given))
            }
            Self::WrongShape { tensor, expected, given, .. } => {
                write!(f, "{tensor} has the shape {}, but its sizes ask for {}", shape(given), shape(expected))
            }
            Self::OutOfRange { tensor, dim, extent, elements, position, .. } => write!(
                f,
                "position {position} of {tensor} is read along {extent} (dimension {}), which has {elements} elements",
                dim + 1
            ),
            Self::OutOfMemory { tensor, elements } => {
                write!(f, "no memory for the {elements} elements of {tensor}")
            }
        }
    }
}

impl std::error::Error for MeaningError {}

/// [`MeaningError::OutOfRange`] before names are looked up.
pub(super) struct Fault {
    pub tensor: TensorId,
    pub dim: usize,
    pub position: i128,
    pub extent: i64,
    pub span: Span,
}

impl Fault {
    pub fn explain(&self, cascade: &Cascade) -> MeaningError {
        let tensor = &cascade[self.tensor];
        MeaningError::OutOfRange {
            tensor: tensor.name.clone(),
            dim: self.dim,
            extent: spell::size(cascade, &tensor.extents[self.dim]),
            elements: self.extent,
            position: self.position,
            span: self.span,
        }
    }
}
