//! What a caller chooses.

use crate::Isa;

/// How a program is made executable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Instructions to use; the fastest that this processor has if `None`.
    pub isa: Option<Isa>,
}

/// How a program is run.
#[derive(Clone, Copy, Default)]
pub struct RunOptions<'a> {
    /// Number of threads; as many as rayon's global pool has if `None`. The results do not depend on it.
    pub threads: Option<usize>,
    /// Whether to count the bytes that every kernel loads and stores.
    pub count: bool,
    /// Told the done fraction of the run, from 0 to 1, by whichever thread gets there. Fractions may arrive out of
    /// order.
    pub progress: Option<&'a (dyn Fn(f64) + Sync)>,
}
