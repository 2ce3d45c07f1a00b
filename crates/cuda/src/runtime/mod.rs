//! Compiles, loads and runs emitted programs.
//!
//! The driver and NVRTC are opened at run time with `libloading` and a few bindings of our own: existing bindings look
//! for libraries by name alone and abort when there is none, while here a machine without a GPU gets a message and NVRTC
//! is looked for where Python's wheels put it. Everything `unsafe` of this crate is in `library`, `driver` and `nvrtc`,
//! whose functions are safe to call.

mod bound;
mod buffer;
mod cache;
mod compile;
mod device;
mod driver;
mod error;
mod executable;
mod family;
mod lent;
mod library;
mod nvrtc;
mod search;
mod view;

pub use bound::Bound;
pub use buffer::{Buffer, POISON};
pub use cache::Cache;
pub use compile::{Binary, Compiler};
pub use device::Device;
pub use error::{CompileError, RunError, Unavailable};
pub use executable::{Executable, KernelReport, Report};
pub use family::{Family, Found};
pub use lent::Lent;
pub use search::Search;
pub use view::{View, ViewMut};
