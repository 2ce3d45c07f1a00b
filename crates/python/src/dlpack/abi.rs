//! DLPack's structures. Source: `dlpack.h`, version 1.3 (DLPack, "C API").

use std::ffi::{c_char, c_int, c_void};

/// `DLDevice`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Device {
    pub kind: i32,
    pub number: i32,
}

/// `kDLCPU`.
pub(crate) const CPU: i32 = 1;
/// `kDLCUDA`.
pub(crate) const CUDA: i32 = 2;
/// `kDLCUDAHost`: memory of the host that the GPU can read too.
pub(crate) const CUDA_HOST: i32 = 3;
/// `kDLCUDAManaged`.
pub(crate) const CUDA_MANAGED: i32 = 13;

/// `DLDataType`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DataType {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

/// `DLTensor`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Tensor {
    pub data: *mut c_void,
    pub device: Device,
    pub dims: i32,
    pub dtype: DataType,
    pub shape: *mut i64,
    pub strides: *mut i64,
    pub byte_offset: u64,
}

/// `DLManagedTensor`.
#[repr(C)]
pub(crate) struct Managed {
    pub tensor: Tensor,
    pub context: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

/// `DLPackVersion`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Version {
    pub major: u32,
    pub minor: u32,
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
pub(crate) struct ManagedVersioned {
    pub version: Version,
    pub context: *mut c_void,
    pub deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    pub flags: u64,
    pub tensor: Tensor,
}

/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
pub(crate) const READ_ONLY: u64 = 1;

/// `DLPackExchangeAPIHeader`.
#[repr(C)]
pub(crate) struct Header {
    pub version: Version,
    pub previous: *const Header,
}

/// Tells why an allocation failed: a kind of exception and a message.
pub(crate) type SetError = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char);

/// `DLPackExchangeAPI`.
#[repr(C)]
pub(crate) struct Exchange {
    pub header: Header,
    pub allocate:
        Option<unsafe extern "C" fn(*const Tensor, *mut *mut ManagedVersioned, *mut c_void, SetError) -> c_int>,
    pub managed_from_object: Option<unsafe extern "C" fn(*mut c_void, *mut *mut ManagedVersioned) -> c_int>,
    pub managed_to_object: Option<unsafe extern "C" fn(*mut ManagedVersioned, *mut *mut c_void) -> c_int>,
    pub tensor_from_object: Option<unsafe extern "C" fn(*mut c_void, *mut Tensor) -> c_int>,
    pub current_stream: Option<unsafe extern "C" fn(i32, i32, *mut *mut c_void) -> c_int>,
}

// Sizes and offsets on 64-bit machines, read off the header with a C compiler.
const _: () = {
    use std::mem::{offset_of, size_of};
    assert!(size_of::<Tensor>() == 48 && offset_of!(Tensor, strides) == 32);
    assert!(size_of::<Managed>() == 64 && offset_of!(Managed, deleter) == 56);
    assert!(size_of::<ManagedVersioned>() == 80 && offset_of!(ManagedVersioned, tensor) == 32);
    assert!(size_of::<Exchange>() == 56 && offset_of!(Exchange, current_stream) == 48);
};
