//! The algebra: passes, separation and streaming forms, with the steps and their reasons.
//!
//! This crate knows no memory sizes and no backend.

mod derive;
pub mod exact;
mod explain;
mod flatten;
mod form;
mod graph;
mod level;
pub mod passes;
mod product;
pub mod show;
mod sign;
mod size;
mod steps;
pub mod stream;
mod term;

pub use derive::{Alternative, Derivation, derive};
pub use explain::explain;
pub use flatten::{argument_term, flatten};
pub use form::{StreamingForm, streaming_forms};
pub use graph::*;
pub use passes::{Passes, RankPasses, TensorPasses};
pub(crate) use product::Product;
pub use steps::{Refusal, Rule, Step};
pub use term::Operand;
