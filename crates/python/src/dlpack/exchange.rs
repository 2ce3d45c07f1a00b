//! DLPack's exchange table: a framework's arrays and streams without a call of Python.

use super::abi::{self, Exchange, Header, Tensor};
use super::{Arrays, DataType, Device};
use pyo3::exceptions::{PyBufferError, PyMemoryError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_char, c_void};

const CAPSULE: &CStr = c"dlpack_exchange_api";

/// A framework's table. It lives as long as the process: frameworks are never unloaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table(*const Exchange);

// SAFETY: the table is constant, and its functions are called while attached to Python.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    /// The table of a type, if it has one that this version understands and that is complete.
    pub(crate) fn of(class: &Bound<'_, PyAny>) -> Option<Self> {
        let capsule = class.getattr("__dlpack_c_exchange_api__").ok()?;
        let pointer = capsule.as_ptr();
        // SAFETY: the name says what the capsule holds.
        let mut header = unsafe {
            if ffi::PyCapsule_IsValid(pointer, CAPSULE.as_ptr()) == 0 {
                return None;
            }
            ffi::PyCapsule_GetPointer(pointer, CAPSULE.as_ptr()).cast::<Header>().cast_const()
        };
        // SAFETY: every table begins with a header, and older ones follow the newest (DLPack, "Exchange API").
        unsafe {
            while !header.is_null() && (*header).version.major != 1 {
                header = (*header).previous;
            }
            let table = header.cast::<Exchange>();
            let complete = !table.is_null()
                && (*table).allocate.is_some()
                && (*table).managed_to_object.is_some()
                && (*table).tensor_from_object.is_some()
                && (*table).current_stream.is_some();
            complete.then_some(Self(table))
        }
    }

    fn table(&self) -> &Exchange {
        // SAFETY: see the type.
        unsafe { &*self.0 }
    }

    /// Adds an array of the framework, which the caller keeps alive.
    pub(crate) fn read(&self, object: &Bound<'_, PyAny>, into: &mut Arrays) -> PyResult<()> {
        let Some(read) = self.table().tensor_from_object else { return Err(incomplete()) };
        let mut tensor = blank();
        // SAFETY: the object's type is one that the table was found on; the description is used before control returns
        // to Python.
        unsafe {
            if read(object.as_ptr().cast(), &mut tensor) != 0 {
                return Err(PyErr::fetch(object.py()));
            }
            into.push(&tensor, None, false)
        }
    }

    /// A new array of the framework, dense; adds where it is.
    pub(crate) fn allocate<'py>(
        &self,
        py: Python<'py>,
        dtype: DataType,
        device: Device,
        shape: &mut [i64],
        addresses: &mut Vec<u64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (Some(allocate), Some(convert)) = (self.table().allocate, self.table().managed_to_object) else {
            return Err(incomplete());
        };
        let dims = i32::try_from(shape.len()).unwrap_or(i32::MAX);
        let wanted = Tensor { device, dtype, dims, shape: shape.as_mut_ptr(), ..blank() };
        let mut managed = std::ptr::null_mut();
        let mut why = String::new();
        // SAFETY: only the type, the device and the shape of the description are read; what comes out is owned by the
        // object that it is converted to; `why` outlives the call.
        unsafe {
            let code = allocate(&wanted, &mut managed, (&raw mut why).cast(), tell);
            if code != 0 || managed.is_null() {
                return Err(match PyErr::take(py) {
                    Some(error) => error,
                    None => PyMemoryError::new_err(why),
                });
            }
            let tensor = &(*managed).tensor;
            addresses.push((tensor.data as u64).wrapping_add(tensor.byte_offset));
            let mut object = std::ptr::null_mut();
            if convert(managed, &mut object) != 0 {
                return Err(PyErr::fetch(py));
            }
            Bound::from_owned_ptr_or_err(py, object.cast())
        }
    }

    /// The stream that the framework works on at the moment.
    pub(crate) fn stream(&self, py: Python<'_>, device: Device) -> PyResult<u64> {
        let Some(current) = self.table().current_stream else { return Err(incomplete()) };
        let mut stream = std::ptr::null_mut();
        // SAFETY: writes one handle.
        match unsafe { current(device.kind, device.number, &mut stream) } {
            0 => Ok(stream as u64),
            _ => Err(PyErr::take(py).unwrap_or_else(|| PyRuntimeError::new_err("the framework has no current stream"))),
        }
    }
}

fn blank() -> Tensor {
    let none = std::ptr::null_mut();
    Tensor {
        data: std::ptr::null_mut(),
        device: Device { kind: abi::CPU, number: 0 },
        dims: 0,
        dtype: DataType { code: 0, bits: 0, lanes: 1 },
        shape: none,
        strides: none,
        byte_offset: 0,
    }
}

/// `SetError`: keeps the message.
///
/// # Safety
/// `context` is a `String`, `message` ends in 0.
unsafe extern "C" fn tell(context: *mut c_void, _kind: *const c_char, message: *const c_char) {
    if !context.is_null() && !message.is_null() {
        // SAFETY: by the contract, which `allocate` keeps.
        unsafe { *context.cast::<String>() = CStr::from_ptr(message).to_string_lossy().into_owned() };
    }
}

fn incomplete() -> PyErr {
    PyBufferError::new_err("its table of DLPack functions is incomplete")
}
