//! What starting work costs, whatever its size.

use crate::Seconds;

/// Times that pass beside what is moved and computed, and what is computed beside what is asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Overhead {
    /// To start a kernel.
    pub kernel: Seconds,
    /// To dispatch one tile operation, where a core interprets them one after the other: why tiles must not be small.
    /// Cores with lanes run compiled code and have the waits of their calibration instead.
    pub operation: Seconds,
    /// Until a run of elements arrives that does not follow the one before: no prefetcher knows where it begins.
    pub run: Seconds,
    /// Side of the squares of a tile, in elements, by which matrices are multiplied, and that are not computed where a mask leaves nothing of them; `None` where
    /// only whole tiles are left out.
    pub masked: Option<usize>,
    /// Where tiles are gone through element by element: the part of the time of the faster levels that adds to that of the
    /// slowest, because nothing is computed but what the bytes that have arrived allow.
    pub inner_shows: f64,
}

impl Default for Overhead {
    /// Of a machine that tells nothing. `kernel` and `operation` are estimates: a task handed to another thread, and a
    /// call through a table; so is `inner_shows`. `run` was measured: row operations of 512 rows of 131072 elements on two cores of an
    /// Emerald Rapids, by runs of 512 elements and by whole rows.
    fn default() -> Self {
        // As "5 us" and so on are read.
        let (kernel, operation, run) = (Seconds(5.0 * 1e-6), Seconds(100.0 * 1e-9), Seconds(60.0 * 1e-9));
        Self { kernel, operation, run, masked: None, inner_shows: 0.25 }
    }
}
