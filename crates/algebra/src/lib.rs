//! The algebra: passes, separation and streaming forms, with the steps and their reasons.
//!
//! This crate knows no memory sizes and no backend.

mod graph;

pub use graph::*;
