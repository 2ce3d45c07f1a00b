//! Naive tensor maths in, a fast kernel out, and every step in between can be looked at.
//!
//! The road, in one page:
//!
//! ```
//! use einloom::{Program, Tensor};
//! use einloom_cascade::{DType, Given};
//! use std::collections::BTreeMap;
//!
//! // What a textbook writes: a numerically naive softmax.
//! let text = "
//!     cascade softmax
//!     input  X[m,n]: f32
//!     output Y: f32
//!     P[m,n] = exp(X[m,n] - max(n) X[m,n])
//!     Y[m,n] = P[m,n] / (sum(n) P[m,n])
//! ";
//! let checked = Program::from_text(text).check()?;        // names and types; all diagnostics at once
//! let derived = checked.derive();                         // the streaming form, with its steps and reasons
//! let over_n = derived.derivation().passes.ranks.iter().find(|r| r.rank == "N").expect("X has the rank");
//! assert_eq!((over_n.written, over_n.derived), (3, 2));
//!
//! let x = Tensor::from_values(DType::F32, &[2, 3], &[0.0, 0.0, 0.0, 1e4, 0.0, 1e4]).expect("six values");
//! let given = Given { shapes: BTreeMap::from([("X".into(), x.dims().to_vec())]), ..Given::default() };
//! let planned = derived.plan(&given, &einloom::host::machine(), &Default::default())?;   // kernels and tiles
//! println!("{}", einloom_tile::print(planned.program()));                                // as pseudocode
//!
//! let inputs = BTreeMap::from([("X".into(), x)]);
//! let outcome = planned.run(&inputs, &Default::default())?;
//! let expected = planned.meaning(&inputs, &mut |_| {})?;                                 // the reference
//! assert_eq!(outcome.outputs["Y"].values()[3..], [0.5, 0.0, 0.5]);
//! assert_eq!(expected["Y"].values[3..], [0.5, 0.0, 0.5]);
//! # Ok::<(), einloom::Error>(())
//! ```
//!
//! The same road is the command line: `einloom check`, `derive`, `plan`, `run`.

// The one crate that reads files and asks the operating system.
#![allow(clippy::disallowed_methods)]

pub mod compare;
mod error;
pub mod formats;
mod formulas;
pub mod gpu;
pub mod host;
mod least;
pub mod machines;
pub mod prove;
pub mod random;
mod road;
pub mod studies;
mod tensor;
pub mod verify;

pub use error::{Error, Finding};
pub use formulas::KernelFormulas;
pub use road::{Checked, Compiled, Derived, Outcome, PlanOptions, Planned, Program, RunOptions};
pub use tensor::Tensor;
