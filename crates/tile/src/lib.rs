//! Tile programs: a small typed language of two-dimensional tiles, and the only one a backend sees.
//!
//! This crate does not know who made a program: the planner and people use the same builder.

mod ir;
mod window;

pub use ir::*;
pub use window::*;
