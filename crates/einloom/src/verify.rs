//! A run's outputs against the reference meaning.

pub mod battery;
mod sizes;

use crate::compare::{Distance, Precision, Tolerance, distance};
use crate::prove::sensitivity;
use crate::{Error, Planned, Tensor};
use einloom_cascade::meaning::{Array, Arrays};
use std::collections::BTreeMap;

/// One output, compared.
#[derive(Clone, Debug, PartialEq)]
pub struct Verified {
    /// Its name.
    pub output: String,
    /// How far it is from the meaning.
    pub distance: Distance,
    /// How far it may be.
    pub tolerance: Tolerance,
}

impl Verified {
    /// Whether the run agrees with the meaning.
    pub fn agrees(&self) -> bool {
        self.distance.scaled <= self.tolerance.total()
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
        let distance = distance(&found.values(), &expected.values, row, precision.floor(dtype));
        let mut tolerance = precision.tolerance(dtype);
        if distance.scaled > tolerance.total() && dtype.is_float() {
            let array = |t: &Tensor| Array { shape: t.dims().to_vec(), values: t.values() };
            let inputs: Arrays = inputs.iter().map(|(name, t)| (name.clone(), array(t))).collect();
            let step = tolerance.arithmetic + tolerance.rounding;
            tolerance.sensitivity = sensitivity(cascade, planned.bound(), &inputs, id, step, 0)?;
        }
        all.push(Verified { output: name.clone(), distance, tolerance });
    }
    Ok(all)
}
