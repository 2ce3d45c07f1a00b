//! The language: source text to a checked [`Cascade`], and what a cascade means.
//!
//! This crate knows text, types, spans and diagnostics. It knows no machine, no tile and no file.

mod cascade;
mod diagnostic;
mod dtype;
mod index;
mod scalar;
mod size;
mod span;

pub use cascade::*;
pub use diagnostic::{Diagnostic, Severity};
pub use dtype::DType;
pub use index::{IndexAtom, IndexExpr};
pub use scalar::{BinaryOp, UnaryOp};
pub use size::SizeExpr;
pub use span::Span;
