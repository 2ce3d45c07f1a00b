//! Whose arrays a call brings: how to read them, make new ones and find the stream they are worked on.

use crate::dlpack::{Arrays, DataType, Device, NO_MEMORY, Table};
use crate::numbers::{framework_name, of_extension};
use crate::signature::Place;
use pyo3::exceptions::{PyAttributeError, PyBufferError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};
use std::sync::{Mutex, PoisonError};

/// A framework, by the type of its arrays.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Framework {
    /// PyTorch, through its exchange table if it is new enough to have one.
    Torch(Option<Table>),
    /// Another framework with an exchange table.
    Table(Table),
    /// Classes of PyTorch's tensors that say themselves what an operation means: there may be no memory behind them.
    TorchDispatch,
    /// NumPy.
    Numpy,
    /// One number of NumPy's, as its reductions give.
    NumpyScalar,
    /// JAX, whose arrays are never written once they are seen.
    Jax,
    /// Anything with `__dlpack__`.
    Other,
}

/// Frameworks by the address of the type. Types of arrays are not freed while their framework is in use, and an entry of
/// one that is would be found again only by a type at the same address.
static KNOWN: Mutex<Vec<(usize, Framework)>> = Mutex::new(vec![]);
/// Beyond this many types something else is going on than several frameworks.
const MOST_KNOWN: usize = 32;

impl Framework {
    /// Of an array.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let class = object.get_type();
        let address = class.as_ptr() as usize;
        let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, framework)) = known().iter().find(|(a, _)| *a == address) {
            return Ok(*framework);
        }
        // Not under the lock: this calls Python, which may let another thread run that wants the lock.
        let framework = Self::of_class(&class)?;
        let mut known = known();
        if known.len() < MOST_KNOWN {
            // Held for ever, so that no other type can take its address.
            std::mem::forget(class.clone().unbind());
            known.push((address, framework));
        }
        Ok(framework)
    }

    fn of_class(class: &Bound<'_, PyType>) -> PyResult<Self> {
        let module: String = class.getattr("__module__")?.extract()?;
        let name: String = class.getattr("__name__")?.extract()?;
        let root = module.split('.').next().unwrap_or_default();
        // A subclass may hold anything; only the framework's own types are what the table takes them for.
        let own = class.getattr("__dict__")?.contains("__dlpack_c_exchange_api__")?;
        match (root, name.as_str()) {
            ("torch", "Tensor" | "Parameter") => Ok(Self::Torch(Table::of(class))),
            ("numpy", "ndarray") => Ok(Self::Numpy),
            ("jax" | "jaxlib", _) => Ok(Self::Jax),
            _ if own => Ok(Table::of(class).map_or(Self::Other, Self::Table)),
            _ if descends(class, "torch", "Tensor")? => {
                let none = class.py().import("torch")?.getattr("Tensor")?.getattr("__torch_dispatch__")?;
                let own = !class.getattr("__torch_dispatch__")?.is(&none);
                Ok(if own { Self::TorchDispatch } else { Self::Torch(None) })
            }
            _ if descends(class, "numpy", "generic")? => Ok(Self::NumpyScalar),
            _ => Ok(Self::Other),
        }
    }

    /// Adds an array.
    pub fn read(self, object: &Bound<'_, PyAny>, into: &mut Arrays) -> PyResult<()> {
        let py = object.py();
        match self {
            Self::Table(table) => table.read(object, into),
            Self::Torch(Some(table)) => {
                let at = into.words.len();
                table.read(object, into)?;
                as_in_memory(object, into, at)
            }
            Self::TorchDispatch => Err(PyBufferError::new_err("its class says what operations on it mean")),
            Self::Torch(None) => {
                // The method would wait for streams; this function does not.
                static EXPORT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
                let export = EXPORT.get_or_try_init(py, || -> PyResult<_> {
                    Ok(py.import("torch.utils.dlpack")?.getattr("to_dlpack")?.unbind())
                })?;
                let detached = object.call_method0(intern!(py, "detach"))?;
                let at = into.words.len();
                into.take(&export.bind(py).call1((detached,))?, None)?;
                as_in_memory(object, into, at)
            }
            Self::Numpy => match exported(object) {
                Ok(capsule) => into.take(&capsule, None),
                // NumPy exports its own types only.
                Err(e) => match of_extension(object.getattr("dtype")?.getattr("name")?.extract()?) {
                    Some(dtype) => {
                        let plain = format!("uint{}", dtype.bits);
                        into.take(&exported(&object.call_method1("view", (plain,))?)?, Some(dtype))
                    }
                    None => Err(e),
                },
            },
            Self::NumpyScalar => {
                let array = py.import("numpy")?.call_method1("asarray", (object,))?;
                Self::Numpy.read(&array, into)
            }
            Self::Jax | Self::Other => into.take(&exported(object)?, None),
        }
    }

    /// A new dense array like those of `like`; adds where it is.
    pub fn empty<'py>(
        self,
        like: &Bound<'py, PyAny>,
        place: Place,
        dtype: DataType,
        shape: &[i64],
        into: &mut Arrays,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = like.py();
        match self {
            Self::Torch(Some(table)) | Self::Table(table) => {
                table.allocate(py, dtype, place.device(), &mut shape.to_vec(), &mut into.addresses)
            }
            Self::Torch(None) | Self::TorchDispatch => {
                let torch = py.import("torch")?;
                let options = PyDict::new(py);
                options.set_item("dtype", torch.getattr(framework_name(dtype))?)?;
                options.set_item("device", like.getattr("device")?)?;
                let object = torch.call_method("empty", (shape.to_vec(),), Some(&options))?;
                self.read(&object, into)?;
                Ok(object)
            }
            Self::Numpy | Self::NumpyScalar => {
                let name = framework_name(dtype);
                let object = match of_extension(&name) {
                    None => {
                        static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
                        let empty = EMPTY.get_or_try_init(py, || -> PyResult<_> {
                            Ok(py.import("numpy")?.getattr("empty")?.unbind())
                        })?;
                        empty.bind(py).call1((PyTuple::new(py, shape)?, name))?
                    }
                    Some(_) => {
                        let types = py.import("ml_dtypes").map_err(|_| {
                            PyTypeError::new_err(format!("NumPy has no {name}: `pip install ml_dtypes` brings it"))
                        })?;
                        py.import("numpy")?.getattr("empty")?.call1((PyTuple::new(py, shape)?, types.getattr(name)?))?
                    }
                };
                self.read(&object, into)?;
                Ok(object)
            }
            Self::Jax | Self::Other => {
                let space = like.call_method0("__array_namespace__").map_err(|e| namespace_needed(py, like, &e))?;
                let options = PyDict::new(py);
                options.set_item("dtype", space.getattr(framework_name(dtype))?)?;
                options.set_item("device", like.getattr("device")?)?;
                let object = space.call_method("empty", (PyTuple::new(py, shape)?,), Some(&options))?;
                self.read(&object, into)?;
                Ok(object)
            }
        }
    }

    /// The stream that the framework works on, and whether it learns of work that is started there. Frameworks that do
    /// not tell get the default stream and a wait.
    pub fn stream(self, py: Python<'_>, device: Device) -> PyResult<(u64, bool)> {
        match self {
            Self::Torch(Some(table)) | Self::Table(table) => Ok((table.stream(py, device)?, true)),
            Self::Torch(None) | Self::TorchDispatch => {
                let stream = py.import("torch.cuda")?.call_method1("current_stream", (device.number,))?;
                Ok((stream.getattr("cuda_stream")?.extract()?, true))
            }
            Self::Numpy | Self::NumpyScalar | Self::Jax | Self::Other => Ok((0, false)),
        }
    }

    /// Whether arrays of the framework are never written, which not all of them say.
    pub fn is_immutable(self) -> bool {
        matches!(self, Self::Jax | Self::NumpyScalar)
    }

    /// Whether it is PyTorch, whose dispatcher knows what to do with tensors that are not in memory.
    pub fn is_torch(self) -> bool {
        matches!(self, Self::Torch(_) | Self::TorchDispatch)
    }

    /// Whether a result must carry a gradient back to this array.
    pub fn wants_gradient(self, object: &Bound<'_, PyAny>) -> PyResult<bool> {
        match self {
            Self::Torch(_) | Self::TorchDispatch => object.getattr(intern!(object.py(), "requires_grad"))?.is_truthy(),
            _ => Ok(false),
        }
    }
}

/// Whether the class is, or descends from, a class of this module and name.
fn descends(class: &Bound<'_, PyType>, module: &str, name: &str) -> PyResult<bool> {
    for ancestor in class.getattr("__mro__")?.try_iter()? {
        let ancestor = ancestor?;
        let of = |attribute| -> PyResult<String> { ancestor.getattr(attribute)?.extract() };
        if of("__module__")? == module && of("__name__")? == name {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Refuses a tensor of PyTorch, read from the word `at` on, whose elements are the negatives of those in memory: DLPack
/// does not tell. They are parts of complex tensors (`x.conj().imag`), whose elements lie two apart, so that only tensors
/// without odd strides are asked.
fn as_in_memory(object: &Bound<'_, PyAny>, into: &Arrays, at: usize) -> PyResult<()> {
    if into.has_odd_stride(at) || !object.call_method0(intern!(object.py(), "is_neg"))?.is_truthy()? {
        return Ok(());
    }
    Err(PyBufferError::new_err("its elements are the negatives of those in memory: give `resolve_neg()` of it"))
}

/// What `__dlpack__` gives. Those who know versions may tell that an array is not to be written; the others are asked
/// without.
fn exported<'py>(object: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static OPTIONS: PyOnceLock<Py<PyDict>> = PyOnceLock::new();
    let py = object.py();
    let options = OPTIONS.get_or_try_init(py, || -> PyResult<_> {
        let options = PyDict::new(py);
        options.set_item("max_version", (1, 0))?;
        Ok(options.unbind())
    })?;
    let export = object.getattr(intern!(py, "__dlpack__")).map_err(|e| {
        if e.is_instance_of::<PyAttributeError>(py) {
            PyTypeError::new_err(format!("{} has no `__dlpack__`: it is no array", kind(object)))
        } else {
            e
        }
    })?;
    match export.call((), Some(options.bind(py))) {
        Err(e) if e.is_instance_of::<PyTypeError>(py) => export.call0(),
        result => result,
    }
}

/// Whether an array could not be read because it is traced: there is no array yet, only what it will be like.
pub(crate) fn is_traced(py: Python<'_>, error: &PyErr) -> bool {
    if error.value(py).to_string() == NO_MEMORY {
        return true;
    }
    // JAX's, which are kinds of `TypeError`.
    let name = error.get_type(py).name().map(|n| n.to_string()).unwrap_or_default();
    matches!(name.as_str(), "ConcretizationTypeError" | "TracerArrayConversionError")
}

fn kind(object: &Bound<'_, PyAny>) -> String {
    object.get_type().fully_qualified_name().map_or_else(|_| "the object".to_string(), |n| n.to_string())
}

fn namespace_needed(py: Python<'_>, like: &Bound<'_, PyAny>, e: &PyErr) -> PyErr {
    let error = PyBufferError::new_err(format!(
        "{} does not say how to make a new array (`__array_namespace__`): give `out=`",
        kind(like)
    ));
    error.set_cause(py, Some(e.clone_ref(py)));
    error
}
