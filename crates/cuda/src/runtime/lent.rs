//! Programs on memory of the caller's, in a stream of the caller's.
#![allow(unsafe_code)]

use super::bound::{Place, prepare_at};
use super::driver::{Address, Pinned, Prepared, Stream};
use super::{Device, Executable, RunError};
use einloom_tile::TensorRole;
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// An executable that runs on memory which others lend it: a framework's arrays.
#[derive(Debug)]
pub struct Lent {
    executable: Executable,
    /// What gathers that leave their tensor report in; `None` where no kernel has any.
    status: Option<Pinned>,
    /// The parameters of the last launches, newest first: frameworks hand out the same few pieces of memory again and again.
    last: Mutex<VecDeque<Ready>>,
    /// Where each temporary begins in the scratch memory, by tensor.
    scratch: Vec<Option<usize>>,
    scratch_bytes: usize,
}

/// Parameters in place for these addresses.
#[derive(Debug)]
struct Ready {
    addresses: Vec<Address>,
    kernels: Vec<Option<Prepared>>,
}

/// Launches whose parameters are kept.
const KEPT: usize = 4;
/// What temporaries begin at multiples of.
const SCRATCH_ALIGNMENT: usize = 256;

impl Lent {
    /// Wraps an executable.
    ///
    /// # Errors
    /// If there is no memory for reports.
    pub fn new(executable: Executable) -> Result<Self, RunError> {
        let checks = executable.source().kernels.iter().any(|k| !k.checked_loads.is_empty());
        let status = if checks { Some(Pinned::new(&executable.device.driver)?) } else { None };
        let mut scratch_bytes = 0usize;
        let mut scratch = vec![];
        for tensor in &executable.program().tensors {
            scratch.push((tensor.role == TensorRole::Temporary).then_some(scratch_bytes));
            if tensor.role == TensorRole::Temporary {
                // More than a machine can address is refused when it is allocated.
                let bytes = tensor.reach_bytes().unwrap_or(usize::MAX / 2);
                scratch_bytes = scratch_bytes.saturating_add(bytes.next_multiple_of(SCRATCH_ALIGNMENT));
            }
        }
        Ok(Self { executable, status, last: Mutex::default(), scratch, scratch_bytes })
    }

    /// What it runs.
    pub fn executable(&self) -> &Executable {
        &self.executable
    }

    /// Bytes of memory on the device that a launch needs beside its arrays, from a multiple of 256 on.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch_bytes
    }

    /// Starts every kernel, in order, and does not wait. `addresses` are those of the inputs and outputs in the order of
    /// the program's tensors, and then, where [`Self::scratch_bytes`] is not 0, that of the scratch memory. `stream` is a
    /// `CUstream` of the device's primary context, 0 for the default one.
    ///
    /// # Errors
    /// If the driver refuses, or an earlier launch has reported a gather outside its tensor since this was last told
    /// ([`RunError::OutOfRange`]).
    ///
    /// # Safety
    /// Until the stream has come to its end, each address is that of memory of the device that is valid for what the
    /// tensor's layout reaches, for writing where it is an output or scratch, and nobody else writes to it, or reads what
    /// this writes. The stream exists.
    pub unsafe fn launch(&self, addresses: &[Address], stream: Address) -> Result<(), RunError> {
        self.told()?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match last.iter().position(|ready| ready.addresses == addresses) {
            Some(0) => {}
            Some(at) => last.swap(0, at),
            None => {
                let kernels = self.prepared(addresses)?;
                last.truncate(KEPT - 1);
                last.push_front(Ready { addresses: addresses.to_vec(), kernels });
            }
        }
        let kernels = last.front().map_or(&[][..], |ready| &ready.kernels);
        // The driver copies parameters before it returns, so the lock may go with the call.
        self.executable.device.driver.launch_in(kernels, Stream(stream))
    }

    /// Times of whole launches on the device, in seconds, after one that is not timed.
    ///
    /// # Errors
    /// As [`Self::launch`].
    ///
    /// # Safety
    /// As [`Self::launch`].
    pub unsafe fn time(&self, addresses: &[Address], stream: Address, repeats: usize) -> Result<Vec<f64>, RunError> {
        let kernels = self.prepared(addresses)?;
        let driver = &self.executable.device.driver;
        driver.launch_in(&kernels, Stream(stream))?;
        driver.time_in(&kernels, Stream(stream), repeats)
    }

    /// Puts the parameters of every kernel in place.
    fn prepared(&self, addresses: &[Address]) -> Result<Vec<Option<Prepared>>, RunError> {
        let tensors = &self.executable.program().tensors;
        let outside = self.scratch.iter().filter(|s| s.is_none()).count();
        let expected = outside + usize::from(self.scratch_bytes > 0);
        if addresses.len() != expected {
            return Err(RunError::Count { what: "addresses", expected, given: addresses.len() });
        }
        let (mut given, scratch) = (addresses[..outside].iter(), addresses.get(outside).copied().unwrap_or(0));
        let place = |(tensor, at): (&einloom_tile::TensorDecl, &Option<usize>)| {
            let address = match at {
                Some(at) => scratch.wrapping_add(*at as u64),
                // As many as were counted.
                None => given.next().copied().unwrap_or(0),
            };
            Place { address, bytes: tensor.reach_bytes().unwrap_or(0) }
        };
        let mut places: Vec<Place> = tensors.iter().zip(&self.scratch).map(place).collect();
        places.push(Place { address: self.status.as_ref().map_or(0, Pinned::address), bytes: 0 });
        (0..self.executable.functions.len()).map(|k| prepare_at(&self.executable, k, &places)).collect()
    }

    /// Whether a launch so far has reported a gather outside its tensor; told once.
    ///
    /// # Errors
    /// [`RunError::OutOfRange`] if one did.
    pub fn told(&self) -> Result<(), RunError> {
        let Some(status) = &self.status else { return Ok(()) };
        let words = status.words();
        if words[0] == 0 {
            return Ok(());
        }
        status.clear();
        self.executable.reported(words)
    }
}

impl Device {
    /// Waits for a stream of the caller's, of the device's primary context.
    ///
    /// # Errors
    /// If some of its work failed.
    ///
    /// # Safety
    /// The stream exists.
    pub unsafe fn wait_for(&self, stream: Address) -> Result<(), RunError> {
        self.driver.wait_for(Stream(stream))
    }
}
