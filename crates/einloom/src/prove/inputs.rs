//! The inputs of a numeric proof: ordinary ones and those that break a streaming form which is not quite right.

use crate::random::{Random, integer_range, random_values};
use einloom_cascade::meaning::{Array, Arrays};
use einloom_cascade::{Bound, Cascade, DType, TensorId, numeric};

/// What an input's values look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Standard normal.
    Normal,
    /// All the same value in a tensor: every maximum is tied.
    Equal,
    /// All zero.
    Zero,
    /// Whole numbers from -3 to 3: many ties, and sums that are exact.
    Whole,
    /// Normal times 10⁻⁶.
    Tiny,
    /// Normal times 8: exponents in the hundreds.
    Large,
    /// Normal times 24: exponents that overflow without an anchor.
    Larger,
    /// Normal times 10⁴.
    Huge,
    /// ±3 in turns: sums that cancel.
    Alternating,
    /// Sorted upwards: a running maximum moves at every step.
    Rising,
    /// Sorted downwards: a running maximum never moves.
    Falling,
    /// Normal, with some elements -inf.
    SomeInfinite,
    /// Normal, with some whole rows -inf.
    RowsInfinite,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 13] = [
        Self::Normal,
        Self::Equal,
        Self::Zero,
        Self::Whole,
        Self::Tiny,
        Self::Large,
        Self::Larger,
        Self::Huge,
        Self::Alternating,
        Self::Rising,
        Self::Falling,
        Self::SomeInfinite,
        Self::RowsInfinite,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Equal => "equal",
            Self::Zero => "zero",
            Self::Whole => "whole numbers",
            Self::Tiny => "tiny",
            Self::Large => "large",
            Self::Larger => "larger",
            Self::Huge => "huge",
            Self::Alternating => "alternating signs",
            Self::Rising => "rising",
            Self::Falling => "falling",
            Self::SomeInfinite => "some -inf",
            Self::RowsInfinite => "rows of -inf",
        }
    }

    /// Whether some values are not finite to begin with.
    pub fn is_infinite(self) -> bool {
        matches!(self, Self::SomeInfinite | Self::RowsInfinite)
    }
}

/// Values for every input, representable in its number type.
pub fn inputs(cascade: &Cascade, bound: &Bound, kind: Kind, seed: u64) -> Arrays {
    let float = |t: &TensorId| cascade[*t].dtype.is_none_or(DType::is_float);
    let floats: Vec<TensorId> = cascade.inputs().filter(float).collect();
    // -inf in one input at a time: in two, hardly anything but NaN is left to compare.
    let infinite = (!floats.is_empty()).then(|| floats[seed as usize % floats.len()]);
    let one = |id: TensorId| {
        let dtype = cascade[id].dtype.unwrap_or(DType::F32);
        let values = if dtype.is_float() {
            let kind = if kind.is_infinite() && Some(id) != infinite { Kind::Normal } else { kind };
            floats_of(cascade, bound, id, kind, seed)
        } else {
            integers_of(cascade, bound, id, kind, seed)
        };
        let values = values.into_iter().map(|v| numeric::round(dtype, v)).collect();
        (cascade[id].name.clone(), Array { shape: bound.shape(cascade, id), values })
    };
    cascade.inputs().map(one).collect()
}

fn floats_of(cascade: &Cascade, bound: &Bound, id: TensorId, kind: Kind, seed: u64) -> Vec<f64> {
    let mut values = random_values(cascade, bound, id, seed);
    let row = bound.shape(cascade, id).last().copied().unwrap_or(1).max(1);
    let mut random = Random::new(seed, "kind");
    let mut each = |f: &mut dyn FnMut(usize, f64) -> f64| {
        values.iter_mut().enumerate().for_each(|(k, v)| *v = f(k, *v));
    };
    match kind {
        Kind::Normal => {}
        Kind::Equal => {
            let value = random.normal();
            each(&mut |_, _| value);
        }
        Kind::Zero => each(&mut |_, _| 0.0),
        Kind::Whole => each(&mut |_, _| random.integer(-3, 3) as f64),
        Kind::Tiny => each(&mut |_, v| v * 1e-6),
        Kind::Large => each(&mut |_, v| v * 8.0),
        Kind::Larger => each(&mut |_, v| v * 24.0),
        Kind::Huge => each(&mut |_, v| v * 1e4),
        Kind::Alternating => each(&mut |k, _| if k % 2 == 0 { 3.0 } else { -3.0 }),
        Kind::Rising => values.sort_by(f64::total_cmp),
        Kind::Falling => values.sort_by(|a, b| b.total_cmp(a)),
        Kind::SomeInfinite => each(&mut |_, v| if random.unit() < 0.2 { f64::NEG_INFINITY } else { v }),
        Kind::RowsInfinite => {
            for row in values.chunks_mut(row) {
                if random.unit() < 0.4 {
                    row.fill(f64::NEG_INFINITY);
                }
            }
        }
    }
    values
}

fn integers_of(cascade: &Cascade, bound: &Bound, id: TensorId, kind: Kind, seed: u64) -> Vec<f64> {
    let (low, high) = integer_range(cascade, bound, id);
    let mut values = random_values(cascade, bound, id, seed);
    match kind {
        Kind::Equal => values.fill(low as f64),
        Kind::Zero => values.fill(0i64.clamp(low, high.max(low)) as f64),
        Kind::Large => values.fill(high.max(low) as f64),
        Kind::Rising => values.sort_by(f64::total_cmp),
        Kind::Falling => values.sort_by(|a, b| b.total_cmp(a)),
        _ => {}
    }
    values
}
