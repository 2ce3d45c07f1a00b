//! The driver's interface. Signatures: CUDA Driver API reference, `cuda.h`.
#![allow(unsafe_code)]

mod launch;
mod pinned;
mod tensor_map;

pub(super) use launch::{Prepared, Shape, Stream};
pub(super) use pinned::Pinned;
pub(super) use tensor_map::{TensorMap, reach};

use super::library::{functions, open};
use super::{RunError, Unavailable};
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::path::Path;
use std::sync::Arc;

/// An address in the device's memory.
pub(super) type Address = u64;
type Handle = *mut c_void;

functions! {
    /// Entry points of `libcuda`.
    Entries {
        init = b"cuInit\0" (c_uint) -> c_int;
        driver_version = b"cuDriverGetVersion\0" (*mut c_int) -> c_int;
        device_count = b"cuDeviceGetCount\0" (*mut c_int) -> c_int;
        device_get = b"cuDeviceGet\0" (*mut c_int, c_int) -> c_int;
        device_name = b"cuDeviceGetName\0" (*mut c_char, c_int, c_int) -> c_int;
        device_attribute = b"cuDeviceGetAttribute\0" (*mut c_int, c_int, c_int) -> c_int;
        context_retain = b"cuDevicePrimaryCtxRetain\0" (*mut Handle, c_int) -> c_int;
        context_release = b"cuDevicePrimaryCtxRelease_v2\0" (c_int) -> c_int;
        context_set = b"cuCtxSetCurrent\0" (Handle) -> c_int;
        context_get = b"cuCtxGetCurrent\0" (*mut Handle) -> c_int;
        context_wait = b"cuCtxSynchronize\0" () -> c_int;
        module_load = b"cuModuleLoadData\0" (*mut Handle, *const c_void) -> c_int;
        module_unload = b"cuModuleUnload\0" (Handle) -> c_int;
        module_function = b"cuModuleGetFunction\0" (*mut Handle, Handle, *const c_char) -> c_int;
        function_set = b"cuFuncSetAttribute\0" (Handle, c_int, c_int) -> c_int;
        function_get = b"cuFuncGetAttribute\0" (*mut c_int, c_int, Handle) -> c_int;
        launch = b"cuLaunchKernel\0" (
            Handle, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Handle, *mut *mut c_void, *mut *mut c_void,
        ) -> c_int;
        allocate = b"cuMemAlloc_v2\0" (*mut Address, usize) -> c_int;
        free = b"cuMemFree_v2\0" (Address) -> c_int;
        allocate_host = b"cuMemHostAlloc\0" (*mut Handle, usize, c_uint) -> c_int;
        free_host = b"cuMemFreeHost\0" (Handle) -> c_int;
        host_address = b"cuMemHostGetDevicePointer_v2\0" (*mut Address, Handle, c_uint) -> c_int;
        upload = b"cuMemcpyHtoDAsync_v2\0" (Address, *const c_void, usize, Handle) -> c_int;
        download = b"cuMemcpyDtoH_v2\0" (*mut c_void, Address, usize) -> c_int;
        fill = b"cuMemsetD8Async\0" (Address, u8, usize, Handle) -> c_int;
        fill_words = b"cuMemsetD16Async\0" (Address, u16, usize, Handle) -> c_int;
        stream_create = b"cuStreamCreate\0" (*mut Handle, c_uint) -> c_int;
        stream_destroy = b"cuStreamDestroy_v2\0" (Handle) -> c_int;
        stream_wait = b"cuStreamSynchronize\0" (Handle) -> c_int;
        event_create = b"cuEventCreate\0" (*mut Handle, c_uint) -> c_int;
        event_destroy = b"cuEventDestroy_v2\0" (Handle) -> c_int;
        event_record = b"cuEventRecord\0" (Handle, Handle) -> c_int;
        event_wait = b"cuEventSynchronize\0" (Handle) -> c_int;
        event_elapsed = b"cuEventElapsedTime\0" (*mut f32, Handle, Handle) -> c_int;
        error_name = b"cuGetErrorName\0" (c_int, *mut *const c_char) -> c_int;
        error_text = b"cuGetErrorString\0" (c_int, *mut *const c_char) -> c_int;
    }
}

functions! {
    /// Entry points that drivers have since CUDA 12.0.
    Newer {
        encode_tiled = b"cuTensorMapEncodeTiled\0" (
            *mut TensorMap, c_int, u32, *mut c_void, *const u64, *const u64, *const u32, *const u32, c_int, c_int, c_int,
            c_int,
        ) -> c_int;
        launch_ex = b"cuLaunchKernelEx\0" (*const launch::Config, Handle, *mut *mut c_void, *mut *mut c_void) -> c_int;
    }
}

const CAPABILITY_MAJOR: c_int = 75;
const CAPABILITY_MINOR: c_int = 76;
const MULTIPROCESSORS: c_int = 16;
const SHARED_PER_BLOCK_OPTIN: c_int = 97;
const FUNCTION_LOCAL_BYTES: c_int = 3;
const FUNCTION_REGISTERS: c_int = 4;
const FUNCTION_SHARED_BYTES: c_int = 8;

/// A device's context and one stream, through which everything goes. Handles never leave this module.
pub(super) struct Driver {
    entries: Entries,
    /// Or why they are not there.
    newer: Result<Newer, String>,
    device: c_int,
    context: Handle,
    stream: Handle,
}

// SAFETY: the driver's functions may be called from any thread; each call here makes the context current first.
unsafe impl Send for Driver {}
// SAFETY: as above; the fields are never changed after construction.
unsafe impl Sync for Driver {}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("device", &self.device).finish_non_exhaustive()
    }
}

/// A loaded module. Unloaded when dropped.
#[derive(Debug)]
pub(super) struct Module {
    driver: Arc<Driver>,
    handle: Handle,
}

impl Drop for Module {
    fn drop(&mut self) {
        // Work that still uses the code ends first.
        if self.driver.wait_for_all().is_ok() {
            // SAFETY: the owner gives the module up.
            unsafe { (self.driver.entries.module_unload)(self.handle) };
        }
    }
}

/// A function of a loaded module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Function(Handle);
/// A point in the stream.
#[derive(Debug)]
pub(super) struct Event(Handle);

// SAFETY: names of objects that the driver synchronises itself.
unsafe impl Send for Module {}
// SAFETY: as above.
unsafe impl Sync for Module {}
// SAFETY: as above.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

impl Driver {
    /// Opens the driver and the `number`th device.
    pub fn open(number: usize) -> Result<Self, Unavailable> {
        let mut reason = String::new();
        let mut found = None;
        for name in ["libcuda.so.1", "libcuda.so"] {
            match open(Path::new(name)) {
                Ok(library) => {
                    found = Some((name, library));
                    break;
                }
                Err(e) => reason = e,
            }
        }
        let Some((name, library)) = found else { return Err(Unavailable::NoDriver { reason }) };
        let entries = Entries::load(library).map_err(|reason| Unavailable::NoDriver { reason })?;
        // Opening it again gives the same library.
        let newer = open(Path::new(name)).and_then(Newer::load);
        let text = |code| error_text(&entries, code);
        let check = |call: &'static str, code: c_int| {
            if code == 0 { Ok(()) } else { Err(Unavailable::Driver { call, reason: text(code) }) }
        };
        let (mut device, mut count) = (0, 0);
        let (mut context, mut stream) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: plain calls with pointers to local variables.
        unsafe {
            check("cuInit", (entries.init)(0))?;
            check("cuDeviceGetCount", (entries.device_count)(&mut count))?;
            if number >= usize::try_from(count).unwrap_or(0) {
                return Err(Unavailable::Driver { call: "cuDeviceGetCount", reason: format!("{count} devices") });
            }
            check("cuDeviceGet", (entries.device_get)(&mut device, number as c_int))?;
            check("cuDevicePrimaryCtxRetain", (entries.context_retain)(&mut context, device))?;
            check("cuCtxSetCurrent", (entries.context_set)(context))?;
            // 1: does not wait for the default stream.
            check("cuStreamCreate", (entries.stream_create)(&mut stream, 1))?;
        }
        Ok(Self { entries, newer, device, context, stream })
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), RunError> {
        if code == 0 { Ok(()) } else { Err(RunError::Driver { call, reason: error_text(&self.entries, code) }) }
    }

    /// What older drivers do not have.
    fn newer(&self) -> Result<&Newer, RunError> {
        self.newer.as_ref().map_err(|reason| RunError::Lacks {
            what: "the driver is older than CUDA 12.0, which kernels with tensor maps or clusters need",
            reason: reason.clone(),
        })
    }

    fn enter(&self) -> Result<(), RunError> {
        // SAFETY: the context is retained until `self` is dropped.
        self.check("cuCtxSetCurrent", unsafe { (self.entries.context_set)(self.context) })
    }

    /// The device's name.
    pub fn name(&self) -> String {
        let mut buffer = [0 as c_char; 256];
        // SAFETY: the buffer is as long as it says.
        if unsafe { (self.entries.device_name)(buffer.as_mut_ptr(), 255, self.device) } != 0 {
            return String::new();
        }
        // SAFETY: the last byte is 0 whatever the driver wrote.
        unsafe { CStr::from_ptr(buffer.as_ptr()) }.to_string_lossy().into_owned()
    }

    fn attribute(&self, which: c_int) -> usize {
        let mut value = 0;
        // SAFETY: writes one integer.
        unsafe { (self.entries.device_attribute)(&mut value, which, self.device) };
        usize::try_from(value).unwrap_or(0)
    }

    /// Compute capability.
    pub fn capability(&self) -> (u32, u32) {
        (self.attribute(CAPABILITY_MAJOR) as u32, self.attribute(CAPABILITY_MINOR) as u32)
    }

    /// Multiprocessors.
    pub fn multiprocessors(&self) -> usize {
        self.attribute(MULTIPROCESSORS)
    }

    /// Most bytes of shared memory a block can ask for.
    pub fn shared_bytes(&self) -> usize {
        self.attribute(SHARED_PER_BLOCK_OPTIN)
    }

    /// The newest CUDA version that the driver supports, such as 13000.
    pub fn version(&self) -> usize {
        let mut value = 0;
        // SAFETY: writes one integer.
        unsafe { (self.entries.driver_version)(&mut value) };
        usize::try_from(value).unwrap_or(0)
    }

    /// Allocates; at least one byte, aligned to 256.
    pub fn allocate(&self, bytes: usize) -> Result<Address, RunError> {
        self.enter()?;
        let mut address = 0;
        // SAFETY: writes one address.
        self.check("cuMemAlloc", unsafe { (self.entries.allocate)(&mut address, bytes.max(1)) })?;
        Ok(address)
    }

    /// Frees what `allocate` gave; called once, when the buffer is dropped.
    pub fn free(&self, address: Address) {
        if self.enter().is_ok() {
            // SAFETY: the caller gives the address up.
            unsafe { (self.entries.free)(address) };
        }
    }

    /// Copies to the device, and waits: the bytes are there for every stream. (`cuMemcpyHtoD` returns when they are
    /// staged, and this stream does not wait for the default one, in which they would follow.) The caller has checked that
    /// the buffer is as long.
    pub fn upload(&self, to: Address, from: &[u8]) -> Result<(), RunError> {
        self.enter()?;
        if from.is_empty() {
            return Ok(());
        }
        // SAFETY: `from` is valid for its length until the stream has come to its end.
        let started = unsafe { (self.entries.upload)(to, from.as_ptr().cast(), from.len(), self.stream) };
        self.check("cuMemcpyHtoDAsync", started).and(self.wait())
    }

    /// Copies from the device, after all work so far.
    pub fn download(&self, to: &mut [u8], from: Address) -> Result<(), RunError> {
        self.enter()?;
        self.wait()?;
        if to.is_empty() {
            return Ok(());
        }
        // SAFETY: `to` is valid for its length.
        self.check("cuMemcpyDtoH", unsafe { (self.entries.download)(to.as_mut_ptr().cast(), from, to.len()) })
    }

    /// Sets bytes, in the stream.
    pub fn fill(&self, to: Address, value: u8, bytes: usize) -> Result<(), RunError> {
        self.enter()?;
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the caller has checked the length.
        self.check("cuMemsetD8Async", unsafe { (self.entries.fill)(to, value, bytes, self.stream) })
    }

    /// Sets 16-bit words, in the stream.
    pub fn fill_words(&self, to: Address, value: u16, words: usize) -> Result<(), RunError> {
        self.enter()?;
        if words == 0 {
            return Ok(());
        }
        // SAFETY: the caller has checked the length; every allocation is aligned.
        self.check("cuMemsetD16Async", unsafe { (self.entries.fill_words)(to, value, words, self.stream) })
    }

    /// Loads a cubin.
    pub fn load(self: &Arc<Self>, cubin: &[u8]) -> Result<Module, RunError> {
        self.enter()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: a cubin says its own length; the compiler made this one.
        self.check("cuModuleLoadData", unsafe { (self.entries.module_load)(&mut module, cubin.as_ptr().cast()) })?;
        Ok(Module { driver: self.clone(), handle: module })
    }

    /// Waits for all work of the device, whoever started it.
    fn wait_for_all(&self) -> Result<(), RunError> {
        self.enter()?;
        // SAFETY: the context is current.
        self.check("cuCtxSynchronize", unsafe { (self.entries.context_wait)() })
    }

    /// A function of a module, allowed `shared_bytes` of dynamic shared memory.
    pub fn function(&self, module: &Module, name: &str, shared_bytes: usize) -> Result<Function, RunError> {
        self.enter()?;
        let mut function = std::ptr::null_mut();
        let name =
            CString::new(name).map_err(|e| RunError::Driver { call: "cuModuleGetFunction", reason: e.to_string() })?;
        // SAFETY: the module is loaded, the name ends in 0.
        unsafe {
            self.check(
                "cuModuleGetFunction",
                (self.entries.module_function)(&mut function, module.handle, name.as_ptr()),
            )?;
            let bytes = shared_bytes as c_int;
            self.check("cuFuncSetAttribute", (self.entries.function_set)(function, FUNCTION_SHARED_BYTES, bytes))?;
        }
        Ok(Function(function))
    }

    /// Registers and bytes of local memory of one thread.
    pub fn resources(&self, function: Function) -> (usize, usize) {
        let get = |which| {
            let mut value = 0;
            // SAFETY: writes one integer.
            unsafe { (self.entries.function_get)(&mut value, which, function.0) };
            usize::try_from(value).unwrap_or(0)
        };
        (get(FUNCTION_REGISTERS), get(FUNCTION_LOCAL_BYTES))
    }

    /// Waits for all work so far.
    pub fn wait(&self) -> Result<(), RunError> {
        self.enter()?;
        // SAFETY: the stream lives as long as `self`.
        self.check("cuStreamSynchronize", unsafe { (self.entries.stream_wait)(self.stream) })
    }

    /// Marks this point of the stream.
    pub fn mark(&self) -> Result<Event, RunError> {
        self.mark_in(self.stream)
    }

    /// Marks this point of a stream, which exists.
    fn mark_in(&self, stream: Handle) -> Result<Event, RunError> {
        self.enter()?;
        let mut event = std::ptr::null_mut();
        // SAFETY: writes one handle, then uses it.
        unsafe {
            self.check("cuEventCreate", (self.entries.event_create)(&mut event, 0))?;
            self.check("cuEventRecord", (self.entries.event_record)(event, stream))?;
        }
        Ok(Event(event))
    }

    /// Seconds between two marks, which are given up.
    pub fn between(&self, start: Event, end: Event) -> Result<f64, RunError> {
        self.enter()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events exist and are destroyed once, here.
        let result = unsafe {
            let waited = (self.entries.event_wait)(end.0);
            let elapsed = (self.entries.event_elapsed)(&mut milliseconds, start.0, end.0);
            (self.entries.event_destroy)(start.0);
            (self.entries.event_destroy)(end.0);
            if waited != 0 { waited } else { elapsed }
        };
        self.check("cuEventElapsedTime", result)?;
        Ok(f64::from(milliseconds) / 1e3)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if self.enter().is_ok() {
            // SAFETY: nothing uses the stream or the context after this.
            unsafe {
                (self.entries.stream_destroy)(self.stream);
                (self.entries.context_release)(self.device);
            }
        }
    }
}

fn error_text(entries: &Entries, code: c_int) -> String {
    let text = |get: unsafe extern "C" fn(c_int, *mut *const c_char) -> c_int| {
        let mut text = std::ptr::null();
        // SAFETY: the driver gives a pointer to a constant of its own, or leaves null.
        unsafe {
            get(code, &mut text);
            if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        }
    };
    format!("{} ({})", text(entries.error_text), text(entries.error_name))
}
