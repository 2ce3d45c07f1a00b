//! Machines as data: memory levels, cores and rates in typed units, read from a text or from what the host says.
//!
//! Only this crate spells units. It has never heard of tensor programs, and does no I/O: callers hand it texts.

mod built_in;
mod facts;
mod gpu;
mod host;
mod machine;
mod overhead;
mod pipe;
mod read;
mod units;

pub use built_in::{BUILT_IN, built_in};
pub use facts::{Cache, CacheKind, CacheTexts, HostFacts, Measured};
pub use gpu::{Calibration, Lanes, MatrixUnit};
pub use host::host;
pub use machine::{Level, LevelKind, Machine};
pub use overhead::Overhead;
pub use pipe::{Pipe, Work};
pub use read::{MachineError, parse};
pub use units::{
    Bytes, BytesPerSecond, FlopsPerSecond, Hertz, Joules, JoulesPerByte, JoulesPerOperation, Seconds, SquareMetres,
    UnitError, Watts,
};
