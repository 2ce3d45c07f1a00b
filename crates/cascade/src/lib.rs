//! The language: source text to a checked [`Cascade`], and what a cascade means.
//!
//! This crate knows text, types, spans and diagnostics. It knows no machine, no tile and no file.

mod bind;
mod cascade;
mod diagnostic;
mod dtype;
mod erase;
mod index;
pub mod meaning;
pub mod numeric;
mod parse;
mod print;
mod render;
mod resolve;
mod scalar;
mod size;
mod span;
mod spell;
mod syntax;

pub use bind::{BindError, Bound, Given, bind, undecided_reads, unproven_reads};
pub use cascade::*;
pub use diagnostic::{Diagnostic, Severity};
pub use dtype::DType;
pub use erase::erase_spans;
pub use index::{IndexAtom, IndexExpr};
pub use parse::{Parsed, parse};
pub use print::print;
pub use render::render_plain;
pub use scalar::{BinaryOp, UnaryOp};
pub use size::SizeExpr;
pub use span::Span;
