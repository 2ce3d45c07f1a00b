//! What a caller chooses.

use crate::{BuildError, Isa};

/// How a program is made executable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Instructions to use; the fastest that this processor has if `None`.
    pub isa: Option<Isa>,
    /// How products of bf16 are computed.
    pub bf16: Bf16Products,
}

/// How products of bf16 are computed. All ways sum in f32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bf16Products {
    /// As [`crate::ProductRates`] says is faster here.
    #[default]
    Fastest,
    /// The factors are widened to f32.
    Widened,
    /// By instructions that multiply pairs of bf16 (AVX512-BF16), and those of wider numbers too, as sums of several of bf16
    /// (`f32`: of three, which lack at most a rounding of each product). They take subnormal factors and results for 0.
    Pairs,
    /// The same by the processor's matrix unit (AMX).
    Tiles,
}

impl std::str::FromStr for Bf16Products {
    type Err = BuildError;

    /// `fastest`, `widened`, `pairs` or `tiles`.
    fn from_str(given: &str) -> Result<Self, BuildError> {
        match given {
            "fastest" => Ok(Self::Fastest),
            "widened" => Ok(Self::Widened),
            "pairs" => Ok(Self::Pairs),
            "tiles" => Ok(Self::Tiles),
            _ => Err(BuildError::Bf16 { given: given.to_string() }),
        }
    }
}

/// How a program is run.
#[derive(Clone, Copy, Default)]
pub struct RunOptions<'a> {
    /// Number of threads; as many as rayon's global pool has if `None`. The results do not depend on it.
    pub threads: Option<usize>,
    /// Threads to use in place of ones of the executable's own.
    pub pool: Option<&'a rayon::ThreadPool>,
    /// Whether to count the bytes that every kernel loads and stores.
    pub count: bool,
    /// Told the done fraction of the run, from 0 to 1, by whichever thread gets there. Fractions may arrive out of
    /// order.
    pub progress: Option<&'a (dyn Fn(f64) + Sync)>,
    /// For tests, which find by it what a result must not depend on: the points of every kernel are taken in an order
    /// drawn from this number, and memory that nothing was written to holds NaN: tiles before each point, outputs and
    /// temporaries before the run.
    pub disturb: Option<u64>,
}
