//! Calls that PyTorch's dispatcher must see: those whose result carries a gradient back, and those of tensors that are not in
//! memory. They go to whoever knows how.

use crate::arguments::Arguments;
use crate::cascade::Cascade;
use crate::frameworks::Framework;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

/// Whether gradients are recorded at the moment.
pub(crate) fn is_recorded(py: Python<'_>) -> PyResult<bool> {
    py.import(intern!(py, "torch"))?.call_method0(intern!(py, "is_grad_enabled"))?.extract()
}

/// Whether an operator of PyTorch can take a tensor that could not be read: one without data, or one that a transformation
/// (`vmap`, `grad`) wraps.
pub(crate) fn is_dispatched(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    object.py().import("einloom.torch.gradient")?.call_method1("is_dispatched", (object,))?.extract()
}

/// Whether PyTorch differentiates forwards at the moment, and one of these has a tangent.
pub(crate) fn has_tangents(py: Python<'_>, arrays: &[Bound<'_, PyAny>]) -> PyResult<bool> {
    static MODULE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let module =
        MODULE.get_or_try_init(py, || PyResult::Ok(py.import("torch.autograd.forward_ad")?.into_any().unbind()))?;
    match module.bind(py).getattr_opt(intern!(py, "_current_level"))? {
        Some(level) if level.extract::<i64>()? >= 0 => {
            py.import("einloom.torch.gradient")?.call_method1("has_tangents", (PyTuple::new(py, arrays)?,))?.extract()
        }
        Some(_) => Ok(false),
        None => Ok(false),
    }
}

/// What `Cascade._as_operator` makes of the call.
pub(crate) fn instead<'py>(cascade: &Bound<'py, Cascade>, arguments: &Arguments<'py>) -> PyResult<Bound<'py, PyAny>> {
    let py = cascade.py();
    let arrays = PyTuple::new(py, &arguments.arrays)?;
    let out = arguments.out.as_ref().map(|o| PyTuple::new(py, o)).transpose()?;
    let (sizes, params) = (arguments.extra.sizes.clone(), arguments.extra.params.clone());
    cascade.call_method1(intern!(py, "_as_operator"), (arrays, out, sizes, params))
}

/// Tells PyTorch that tensors were written, so that a gradient that needs what was in them is refused and not wrong.
pub(crate) fn written(arrays: &[Bound<'_, PyAny>]) -> PyResult<()> {
    static TELL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    for array in arrays {
        // Those that were made in inference mode are in no graph, and have no version.
        let py = array.py();
        if Framework::of(array)?.is_torch() && !array.call_method0(intern!(py, "is_inference"))?.is_truthy()? {
            let tell = TELL.get_or_try_init(py, || -> PyResult<_> {
                Ok(py.import("torch.autograd.graph")?.getattr("increment_version")?.unbind())
            })?;
            tell.bind(py).call1((array,))?;
        }
    }
    Ok(())
}
