//! Arrays from `__dlpack__`: capsules whose content is ours from then on.

use super::abi::{Managed, ManagedVersioned, READ_ONLY};
use super::{Arrays, DataType};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::CStr;

const PLAIN: &CStr = c"dltensor";
const PLAIN_USED: &CStr = c"used_dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
const VERSIONED_USED: &CStr = c"used_dltensor_versioned";

/// An array that a framework handed over: given back when dropped, which must happen while Python may be called.
#[derive(Debug)]
pub(crate) enum Owned {
    /// Without a version.
    Plain(*mut Managed),
    /// With a version and flags.
    Versioned(*mut ManagedVersioned),
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: taken out of its capsule once, in `take`, and not used after this.
        unsafe {
            match *self {
                Self::Plain(m) => {
                    if let Some(delete) = (*m).deleter {
                        delete(m);
                    }
                }
                Self::Versioned(m) => {
                    if let Some(delete) = (*m).deleter {
                        delete(m);
                    }
                }
            }
        }
    }
}

impl Arrays {
    /// Adds the array in a capsule that `__dlpack__` gave; as elements of `dtype` where that is given, which are as wide.
    pub(crate) fn take(&mut self, capsule: &Bound<'_, PyAny>, dtype: Option<DataType>) -> PyResult<()> {
        let pointer = capsule.as_ptr();
        // SAFETY: names are checked before the pointer is taken for what they say; renaming makes the content ours
        // (DLPack, "Python specification").
        unsafe {
            if ffi::PyCapsule_IsValid(pointer, VERSIONED.as_ptr()) != 0 {
                let managed = ffi::PyCapsule_GetPointer(pointer, VERSIONED.as_ptr()).cast::<ManagedVersioned>();
                if (*managed).version.major > 1 {
                    return Err(PyBufferError::new_err("its version of DLPack is newer than 1"));
                }
                renamed(capsule, VERSIONED_USED)?;
                self.owned.push(Owned::Versioned(managed));
                self.push(&(*managed).tensor, dtype, (*managed).flags & READ_ONLY != 0)
            } else if ffi::PyCapsule_IsValid(pointer, PLAIN.as_ptr()) != 0 {
                let managed = ffi::PyCapsule_GetPointer(pointer, PLAIN.as_ptr()).cast::<Managed>();
                renamed(capsule, PLAIN_USED)?;
                self.owned.push(Owned::Plain(managed));
                self.push(&(*managed).tensor, dtype, false)
            } else {
                Err(PyBufferError::new_err("`__dlpack__` gave no DLPack capsule"))
            }
        }
    }
}

/// Gives the capsule another name.
///
/// # Safety
/// It is a capsule.
unsafe fn renamed(capsule: &Bound<'_, PyAny>, name: &'static CStr) -> PyResult<()> {
    // SAFETY: by the contract; the name lives as long as the program.
    if unsafe { ffi::PyCapsule_SetName(capsule.as_ptr(), name.as_ptr()) } == 0 {
        Ok(())
    } else {
        Err(PyErr::fetch(capsule.py()))
    }
}
