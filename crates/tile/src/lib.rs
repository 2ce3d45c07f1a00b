//! Tile programs: a small typed language of two-dimensional tiles, and the only one a backend sees.
//!
//! This crate does not know who made a program: the planner and people use the same [`Builder`]. A program is
//! well-formed if [`verify`] finds no defect; [`print()`] shows it as pseudocode; [`by_hand`] holds two worked examples.

mod alike;
mod anchor;
mod build;
pub mod by_hand;
pub mod guard;
mod interval;
mod ir;
mod layout;
mod print;
mod verify;
mod visits;
mod window;

pub use alike::alike;
pub use anchor::anchors;
pub use build::{Builder, Carry, KernelBuilder, carry, carry_from, select};
pub use guard::{Extremes, Guard};
pub use interval::{AROUND, Interval, first_position, interval, unknown, verdict, visited};
pub use ir::*;
pub use layout::{ALIGNMENT, Layout};
pub use print::{print, print_guard, print_kernel};
pub use verify::{Defect, verify};
pub use visits::{Visit, lengthens, row_major, visits};
pub use window::*;
