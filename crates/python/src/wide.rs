//! 64-bit integers that are read where they are as 32-bit ones: whether they are the same numbers.
#![allow(unsafe_code)]

use crate::failure::Failure;
use crate::frameworks::Framework;
use crate::signature::Place;
use einloom_cascade::{Cascade, TensorId};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// An input whose array has 64-bit integers.
#[derive(Clone, Debug)]
pub(crate) struct Wide {
    /// The number of the input.
    pub input: usize,
    /// Elements per dimension.
    pub shape: Vec<usize>,
    /// Elements from one coordinate to the next, per dimension.
    pub strides: Vec<usize>,
}

impl Wide {
    /// Looks for an element that is no 32-bit integer: its value and its coordinates.
    ///
    /// # Safety
    /// At `address` begins an array of this shape and these strides, which nobody writes meanwhile.
    unsafe fn beyond(&self, address: u64) -> Option<(i64, Vec<usize>)> {
        if self.shape.contains(&0) {
            return None;
        }
        // What is repeated need not be read again.
        let walked: Vec<usize> = (0..self.shape.len()).filter(|&d| self.strides[d] != 0 && self.shape[d] > 1).collect();
        let (inner, outer) = walked.split_last().map_or((None, &[][..]), |(&i, o)| (Some(i), o));
        let (length, step) = inner.map_or((1, 1), |d| (self.shape[d], self.strides[d]));
        let mut at = vec![0usize; self.shape.len()];
        loop {
            let offset: usize = outer.iter().map(|&d| at[d] * self.strides[d]).sum();
            // SAFETY: coordinates are within the shape, so the elements are the array's.
            let element = |k: usize| unsafe {
                std::ptr::read_unaligned((address as usize as *const i64).wrapping_add(offset + k * step))
            };
            let differs = |x: i64| i64::from(x as i32) ^ x;
            // Without a way out in the middle the loop is one of vectors.
            let any = (0..length).fold(0, |any, k| any | differs(element(k)));
            if any != 0
                && let Some(k) = (0..length).find(|&k| differs(element(k)) != 0)
            {
                if let Some(d) = inner {
                    at[d] = k;
                }
                return Some((element(k), at));
            }
            let next = outer.iter().rev().find(|&&d| {
                at[d] = if at[d] + 1 < self.shape[d] { at[d] + 1 } else { 0 };
                at[d] != 0
            });
            next?;
        }
    }
}

/// Whether every 64-bit integer of a call is the number that the kernel reads. On the processor they are looked at; on a GPU
/// PyTorch is told to, in the stream and without a wait, as it does where it indexes.
///
/// # Errors
/// The first that is not.
///
/// # Safety
/// The addresses are those of the inputs that were found so, which nobody writes meanwhile.
pub(crate) unsafe fn check(
    py: Python<'_>,
    cascade: &Cascade,
    inputs: &[TensorId],
    place: Place,
    wide: &[Wide],
    addresses: &[u64],
    arrays: &[Bound<'_, PyAny>],
) -> Result<(), crate::arguments::Refused> {
    for w in wide {
        let t = &cascade[inputs[w.input]];
        if matches!(place, Place::Cuda(_)) {
            if !Framework::of(&arrays[w.input])?.is_torch() {
                let message = format!("{} is declared i32, but the array is int64", t.name);
                let failure = Failure::new("DtypeError", "wrong-dtype", message).at(Some(t.span));
                return Err(failure.hint("on a GPU only PyTorch's are looked at: convert it to int32").into());
            }
            static ASSERT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            let assert = ASSERT.get_or_try_init(py, || -> PyResult<_> {
                Ok(py.import("einloom.torch.integers")?.getattr("assert_within")?.unbind())
            })?;
            assert.bind(py).call1((&arrays[w.input], t.name.as_str()))?;
            continue;
        }
        let address = addresses[w.input];
        // SAFETY: by the contract.
        if let Some((value, at)) = py.detach(|| unsafe { w.beyond(address) }) {
            let place: Vec<String> = at.iter().map(ToString::to_string).collect();
            let place = if place.is_empty() { String::new() } else { format!("[{}]", place.join(", ")) };
            let message = format!("{}{place} is {value}, which is no 32-bit integer", t.name);
            let failure = Failure::new("OutOfRange", "too-wide", message).at(Some(t.span));
            return Err(failure.hint("64-bit integers are read as 32-bit ones: there are no wider ones").into());
        }
    }
    Ok(())
}
