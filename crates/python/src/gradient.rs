//! Calls whose result must carry a gradient back: they go to whoever knows how.

use crate::arguments::Arguments;
use crate::cascade::Cascade;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Whether gradients are recorded at the moment; then what `Cascade._with_gradient` makes of the call.
pub(crate) fn instead<'py>(
    cascade: &Bound<'py, Cascade>,
    arguments: &Arguments<'py>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = cascade.py();
    let recorded: bool = py.import(intern!(py, "torch"))?.call_method0(intern!(py, "is_grad_enabled"))?.extract()?;
    if !recorded {
        return Ok(None);
    }
    let arrays = PyTuple::new(py, &arguments.arrays)?;
    let out = arguments.out.as_ref().map(|o| PyTuple::new(py, o)).transpose()?;
    let (sizes, params) = (arguments.extra.sizes.clone(), arguments.extra.params.clone());
    cascade.call_method1(intern!(py, "_with_gradient"), (arrays, out, sizes, params)).map(Some)
}
