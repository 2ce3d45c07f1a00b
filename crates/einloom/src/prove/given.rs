//! An input, with what the meaning says of it: asked once, however many forms are compared with it.

use super::{Kind, inputs, range, sensitivity, tensors};
use crate::{Error, Tensor};
use einloom_cascade::meaning::{self, Arrays, MeaningError};
use einloom_cascade::{Bound, Cascade, TensorId};
use std::collections::BTreeMap;

/// Inputs of one kind at one set of sizes.
pub(super) struct Given<'a> {
    cascade: &'a Cascade,
    bound: &'a Bound,
    pub kind: Kind,
    pub seed: u64,
    pub arrays: Arrays,
    pub tensors: BTreeMap<String, Tensor>,
    /// The outputs as the text has them.
    pub expected: Result<Arrays, MeaningError>,
    within: Option<Within>,
    /// Whether an operation of the text leaves the range of f32.
    leaves: Option<bool>,
    /// By output, by the bits of the step, and by whether each read is off by itself.
    moved: BTreeMap<(TensorId, u64, bool), f64>,
}

/// What values the tensors of the text hold.
#[derive(Clone, Copy)]
struct Within {
    /// Some are too small for f64 to hold precisely.
    underflows: bool,
    /// Some are out of the range of f32.
    leaves_f32: bool,
}

impl<'a> Given<'a> {
    pub fn new(cascade: &'a Cascade, bound: &'a Bound, kind: Kind, seed: u64) -> Self {
        let arrays = inputs(cascade, bound, kind, seed);
        let tensors = tensors(cascade, &arrays);
        let expected = meaning::evaluate(cascade, bound, &arrays);
        let moved = BTreeMap::new();
        Self { cascade, bound, kind, seed, arrays, tensors, expected, within: None, leaves: None, moved }
    }

    fn within(&mut self) -> Result<Within, Error> {
        if let Some(within) = self.within {
            return Ok(within);
        }
        let leaves = |v: f64| v.is_finite() && v != 0.0 && !(v as f32).is_normal();
        let all = meaning::evaluate_all(self.cascade, self.bound, &self.arrays)?;
        let mut values = all.values().flat_map(|a| &a.values);
        let underflows = values.clone().any(|v| v.is_subnormal());
        let within = Within { underflows, leaves_f32: values.any(|&v| leaves(v)) };
        self.within = Some(within);
        Ok(within)
    }

    /// Whether the meaning itself has lost digits: one of its tensors holds a number that f64 cannot hold precisely.
    pub fn underflows(&mut self) -> Result<bool, Error> {
        Ok(self.within()?.underflows)
    }

    /// Whether an operation of the program as written leaves the range of f32, in which the declared program computes it.
    pub fn operations_leave_f32(&mut self) -> bool {
        let (cascade, bound, arrays) = (self.cascade, self.bound, &self.arrays);
        *self.leaves.get_or_insert_with(|| range::leaves_f32(cascade, bound, arrays))
    }

    /// The same of its operations or its tensors.
    pub fn leaves_f32(&mut self) -> Result<bool, Error> {
        Ok(self.within()?.leaves_f32 || self.operations_leave_f32())
    }

    /// How far the output moves with every operation off by `step`: [`sensitivity`]; `in_reads` with every read off by
    /// itself as well.
    pub fn sensitivity(&mut self, output: TensorId, step: f64, in_reads: bool) -> Result<f64, Error> {
        let key = (output, step.to_bits(), in_reads);
        if let Some(&moved) = self.moved.get(&key) {
            return Ok(moved);
        }
        let moved = if in_reads {
            let (apart, factors) = super::in_reads(self.cascade);
            let more = self.arrays.clone().into_iter().chain(factors).collect();
            sensitivity(&apart, self.bound, &more, output, step, self.seed)?
        } else {
            sensitivity(self.cascade, self.bound, &self.arrays, output, step, self.seed)?
        };
        self.moved.insert(key, moved);
        Ok(moved)
    }
}
