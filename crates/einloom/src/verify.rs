//! A run's outputs against the reference meaning.

pub mod battery;
mod range;
mod sizes;

use crate::compare::{Distance, Precision, Tolerance, distance, unit_roundoff};
use crate::prove::{beyond_bounds, moved, rounding_bounds};
use crate::{Error, Planned, Tensor};
use einloom_algebra::flatten;
use einloom_algebra::stream::Cut;
use einloom_cascade::meaning::Arrays;
use std::collections::BTreeMap;

pub use range::LeavesRange;

/// One output, compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    /// Its name.
    pub output: String,
    /// How far it is from the meaning.
    pub distance: Distance,
    /// How far it may be.
    pub tolerance: Tolerance,
    /// Elements that the text's own rounding does not determine, as the position of the larger of two equal sums, or what is finite or not by
    /// the last digits of what it is made of: not counted in the distance.
    pub undetermined: usize,
    /// It does not agree because the text itself leaves the range of f32 there, or the meaning that of f64: everything else of it agrees.
    pub range: Option<LeavesRange>,
}

impl Verified {
    /// Whether the run agrees with the meaning.
    pub fn agrees(&self) -> bool {
        self.tolerance.allows(&self.distance)
    }

    /// `agrees`, `range` or `disagrees`.
    pub fn verdict(&self) -> &'static str {
        match (self.agrees(), &self.range) {
            (true, _) => "agrees",
            (_, Some(_)) => "range",
            (_, None) => "disagrees",
        }
    }
}

/// Compares the outputs of a run with what the reference says they are. `progress` is told how much is done.
///
/// Where an output is farther off than the arithmetic explains, it is measured how much the meaning itself moves when
/// its inputs are rounded; only what remains counts as wrong.
///
/// # Errors
/// Those of the meaning.
pub fn verify(
    planned: &Planned,
    inputs: &BTreeMap<String, Tensor>,
    outputs: &BTreeMap<String, Tensor>,
    progress: &mut dyn FnMut(f64),
) -> Result<Vec<Verified>, Error> {
    let expected = planned.meaning(inputs, progress)?;
    compare(planned, inputs, outputs, &expected)
}

/// As [`verify`], with the meaning's outputs.
fn compare(
    planned: &Planned,
    inputs: &BTreeMap<String, Tensor>,
    outputs: &BTreeMap<String, Tensor>,
    expected: &Arrays,
) -> Result<Vec<Verified>, Error> {
    let cascade = planned.cascade();
    let precision = Precision::of(cascade, planned.bound(), planned.program());
    let mut all = vec![];
    for &id in &cascade.outputs {
        let name = &cascade[id].name;
        let (Some(found), Some(expected)) = (outputs.get(name), expected.get(name)) else { continue };
        let dtype = planned.dtype(id);
        let row = expected.shape.last().copied().unwrap_or(1);
        let mut distance = distance(&found.values(), &expected.values, row, precision.floor(dtype));
        let mut tolerance = precision.tolerance(dtype);
        let mut range = None;
        let mut undetermined = 0;
        if !tolerance.allows(&distance) && !dtype.is_float() {
            let inputs: Arrays = inputs.iter().map(|(name, t)| (name.clone(), range::array(t))).collect();
            let unit = unit_roundoff(precision.arithmetic) + precision.rounding;
            let number = cascade.outputs.iter().position(|&o| o == id).unwrap_or_default();
            let bounds = rounding_bounds(&flatten(cascade), planned.bound(), &inputs, number, unit, Cut::Whole);
            // Where a condition hangs on rounding no element is excused by itself.
            if let Some((bounds, false)) = bounds {
                let (left, excused) = beyond_bounds(&found.values(), &expected.values, &bounds);
                distance = crate::compare::distance(&left, &expected.values, row, precision.floor(dtype));
                undetermined = excused;
            }
        }
        if !tolerance.allows(&distance) && dtype.is_float() {
            let inputs: Arrays = inputs.iter().map(|(name, t)| (name.clone(), range::array(t))).collect();
            let step = tolerance.arithmetic + tolerance.rounding;
            let moved = moved(cascade, planned.bound(), &inputs, id, step, 0)?;
            tolerance.sensitivity = moved.most;
            // What is finite or not by rounding is excused by itself; the others must agree.
            let mut left = found.values();
            moved.undetermined.iter().for_each(|&at| left[at] = expected.values[at]);
            let among = crate::compare::distance(&left, &expected.values, row, precision.floor(dtype));
            if tolerance.allows(&among) {
                (distance, undetermined) = (among, moved.undetermined.len());
            }
            if !tolerance.allows(&distance) {
                let agrees = |found: &[f64], expected: &[f64]| {
                    tolerance.allows(&crate::compare::distance(found, expected, row, precision.floor(dtype)))
                };
                let found = found.values();
                let pair = [&expected.values[..], &found];
                let scale = (row, tolerance.total(), precision.longest);
                let but_its_own = |rest: &[f64]| agrees(rest, &expected.values);
                let bound = planned.bound();
                range = range::leaves_range(cascade, bound, &inputs, id, pair, scale, &but_its_own);
                let over_wide = |truth: &[f64]| agrees(&found, truth);
                let values = &expected.values;
                range = range.or_else(|| range::meaning_leaves_range(cascade, bound, &inputs, id, values, &over_wide));
            }
        }
        all.push(Verified { output: name.clone(), distance, tolerance, undetermined, range });
    }
    Ok(all)
}
