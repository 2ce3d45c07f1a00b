//! Spatial arrays: chips of processing elements around a buffer, what runs on which array when, and what that costs.
//!
//! A cascade says what is computed, a [`Chip`] what it is computed with, a [`Binding`] which Einsum runs on which array
//! and what the buffer holds, and sizes how much of it there is. [`evaluate`] gives cycles, bytes, joules and how busy
//! the arrays are, from these four alone. A [`Study`] is a file that names such inputs. After Nayak et al., "FuseMax",
//! MICRO 2024.
//!
//! This crate does no I/O: callers hand it texts.

mod binding;
mod chip;
mod evaluate;
mod operation;
mod problem;
mod program;
mod read;
mod search;
mod simulate;
mod study;
mod teaal;

pub use binding::{Beside, Binding, BindingFault, Block, Dataflow, Extent, Kernel, Phase, Space, Within};
pub use chip::{Accounting, Array, Buffer, Chip, ChipFault, Cost, Dram, Element, Registers, Unit};
pub use evaluate::{EinsumCost, Energy, Evaluation, KernelCost, Setting, check, evaluate, filled_up};
pub use operation::Operation;
pub use problem::Problem;
pub use program::{Einsum, Program, Work};
pub use search::{Found, Search, Split, Wanted, search, splits};
pub use simulate::{ArrayRun, Cause, EinsumRun, KernelRun, Options, Profile, Simulated, Timing, Wave, lags, simulate};
pub use study::{
    Configuration, Effect, Faults, Files, Layer, Linear, Mean, Point, PublishedArea, Quantity, Ratio, Row, Study,
    Sweep, SweepPoint, Totals, Workload, area,
};
pub use teaal::Teaal;
