//! Launches whose parameters stay in place.

use super::super::RunError;
use super::{Address, Driver, Function, Handle, TensorMap};
use std::ffi::{c_int, c_uint, c_void};

/// A stream of the driver's: 0 is the default one. Streams of other users of the same device are as good as ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::runtime) struct Stream(pub u64);

/// How many blocks of how many threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::runtime) struct Shape {
    pub grid: u32,
    pub block: u32,
    /// Bytes of dynamic shared memory per block.
    pub shared_bytes: u32,
    /// Blocks per cluster; 1 for none.
    pub cluster: u32,
}

/// A kernel with its parameters: launching it again costs one call of the driver.
#[derive(Debug)]
pub(in crate::runtime) struct Prepared {
    function: Function,
    shape: Shape,
    /// Where each parameter is: in `_addresses` or `_maps`.
    pointers: Vec<*mut c_void>,
    _addresses: Vec<Address>,
    _maps: Vec<TensorMap>,
    _sizes: Vec<u32>,
}

// SAFETY: the pointers lead into the value's own vectors, which are only read after construction.
unsafe impl Send for Prepared {}
// SAFETY: as above.
unsafe impl Sync for Prepared {}

impl Prepared {
    /// Parameters in the order in which the kernel declares them: addresses, then tensor maps, then, where the kernel is a
    /// template, its sizes.
    pub fn new(
        function: Function,
        shape: Shape,
        addresses: Vec<Address>,
        maps: Vec<TensorMap>,
        sizes: Vec<u32>,
    ) -> Self {
        let address = |a: &Address| std::ptr::from_ref(a).cast_mut().cast();
        let map = |m: &TensorMap| std::ptr::from_ref(m).cast_mut().cast();
        let words = sizes.first().map(|w| std::ptr::from_ref(w).cast_mut().cast());
        let pointers = addresses.iter().map(address).chain(maps.iter().map(map)).chain(words).collect();
        Self { function, shape, pointers, _addresses: addresses, _maps: maps, _sizes: sizes }
    }
}

/// `CUlaunchConfig`.
#[repr(C)]
pub(in crate::runtime) struct Config {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: Handle,
    attributes: *const Attribute,
    count: c_uint,
}

/// `CUlaunchAttribute`: which, and 64 bytes of which the first words are its value.
#[repr(C, align(8))]
struct Attribute {
    id: c_int,
    pad: [u8; 4],
    value: [c_uint; 16],
}

const CLUSTER_DIMENSION: c_int = 4;

impl Driver {
    /// Starts a kernel. The caller has checked that its parameters are those that the function takes and that each names
    /// enough memory.
    pub fn launch(&self, kernel: &Prepared) -> Result<(), RunError> {
        self.enter()?;
        self.start(kernel, self.stream)
    }

    /// As [`Self::launch`], in a stream of the caller's, which exists. The thread's current context stays what it was:
    /// other users of the driver in this process rely on it.
    pub fn launch_in(&self, kernels: &[Option<Prepared>], stream: Stream) -> Result<(), RunError> {
        let mut before = std::ptr::null_mut();
        // SAFETY: writes one handle.
        self.check("cuCtxGetCurrent", unsafe { (self.entries.context_get)(&mut before) })?;
        let foreign = before != self.context;
        if foreign {
            self.enter()?;
        }
        let handle = stream.0 as Handle;
        let started = kernels.iter().flatten().try_for_each(|k| self.start(k, handle));
        if foreign && !before.is_null() {
            // SAFETY: it was current a moment ago.
            self.check("cuCtxSetCurrent", unsafe { (self.entries.context_set)(before) })?;
        }
        started
    }

    /// Seconds that launches in a stream of the caller's, which exists, take on the device, one by one.
    pub fn time_in(&self, kernels: &[Option<Prepared>], stream: Stream, repeats: usize) -> Result<Vec<f64>, RunError> {
        let mut marks = vec![];
        for _ in 0..repeats {
            let start = self.mark_in(stream.0 as Handle)?;
            self.launch_in(kernels, stream)?;
            marks.push((start, self.mark_in(stream.0 as Handle)?));
        }
        marks.into_iter().map(|(start, end)| self.between(start, end)).collect()
    }

    /// Waits for a stream of the caller's, which exists.
    pub fn wait_for(&self, stream: Stream) -> Result<(), RunError> {
        self.enter()?;
        // SAFETY: by the contract.
        self.check("cuStreamSynchronize", unsafe { (self.entries.stream_wait)(stream.0 as Handle) })
    }

    /// The context is current.
    fn start(&self, kernel: &Prepared, stream: Handle) -> Result<(), RunError> {
        let Shape { grid, block, shared_bytes, cluster } = kernel.shape;
        // The driver copies parameters before it returns and writes none.
        let parameters = kernel.pointers.as_ptr().cast_mut();
        let none = std::ptr::null_mut();
        if cluster <= 1 {
            // SAFETY: see above.
            let code = unsafe {
                let launch = self.entries.launch;
                launch(kernel.function.0, grid, 1, 1, block, 1, 1, shared_bytes, stream, parameters, none)
            };
            return self.check("cuLaunchKernel", code);
        }
        let mut value = [0; 16];
        value[..3].copy_from_slice(&[cluster, 1, 1]);
        let attribute = Attribute { id: CLUSTER_DIMENSION, pad: [0; 4], value };
        let config =
            Config { grid: [grid, 1, 1], block: [block, 1, 1], shared_bytes, stream, attributes: &attribute, count: 1 };
        let newer = self.newer()?;
        // SAFETY: see above; the structures are laid out as `cuda.h` does.
        self.check("cuLaunchKernelEx", unsafe { (newer.launch_ex)(&config, kernel.function.0, parameters, none) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_are_those_of_the_header() {
        // Sizes and offsets on 64-bit machines, read off `cuda.h` of CUDA 13.0 with a C++ compiler.
        assert_eq!((size_of::<Config>(), std::mem::offset_of!(Config, stream)), (56, 32));
        assert_eq!((size_of::<Attribute>(), std::mem::offset_of!(Attribute, value)), (72, 8));
        assert_eq!((size_of::<TensorMap>(), align_of::<TensorMap>()), (128, 128));
    }

    #[test]
    fn parameters_stay_in_place_when_the_kernel_moves() {
        let shape = Shape { grid: 1, block: 32, shared_bytes: 0, cluster: 1 };
        let kernel =
            Prepared::new(Function(std::ptr::null_mut()), shape, vec![7, 9], vec![TensorMap::default()], vec![5, 6]);
        let moved = Box::new(kernel);
        // SAFETY: the vectors live in `moved`.
        let read: Vec<u32> = moved.pointers.iter().map(|p| unsafe { p.cast::<u32>().read() }).collect();
        assert_eq!(read, [7, 9, 0, 5]);
    }
}
