//! Memory of the host that the device writes to: read without waiting for it.

use super::super::RunError;
use super::{Address, Driver, Handle};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Words that kernels report in. Freed when dropped.
#[derive(Debug)]
pub(in crate::runtime) struct Pinned {
    driver: Arc<Driver>,
    host: Handle,
    address: Address,
}

/// How many there are.
const WORDS: usize = 4;

// SAFETY: the words are only read and written as atomics.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Words that are 0.
    pub fn new(driver: &Arc<Driver>) -> Result<Self, RunError> {
        driver.enter()?;
        let (mut host, mut address) = (std::ptr::null_mut(), 0);
        // 3: of all contexts, and in the device's address space.
        // SAFETY: writes one pointer.
        driver.check("cuMemHostAlloc", unsafe { (driver.entries.allocate_host)(&mut host, WORDS * 8, 3) })?;
        // SAFETY: as long as was asked for.
        unsafe { host.cast::<[i64; WORDS]>().write([0; WORDS]) };
        // SAFETY: writes one address.
        let code = unsafe { (driver.entries.host_address)(&mut address, host, 0) };
        let out = Self { driver: driver.clone(), host, address };
        driver.check("cuMemHostGetDevicePointer", code).map(|()| out)
    }

    /// Where the device sees them.
    pub fn address(&self) -> Address {
        self.address
    }

    /// What they are at the moment.
    pub fn words(&self) -> [i64; WORDS] {
        // SAFETY: as long as was asked for, aligned, and written by nobody but as whole words.
        let words = unsafe { &*self.host.cast::<[AtomicI64; WORDS]>() };
        std::array::from_fn(|k| words[k].load(Ordering::Acquire))
    }

    /// Sets them to 0.
    pub fn clear(&self) {
        // SAFETY: as above.
        let words = unsafe { &*self.host.cast::<[AtomicI64; WORDS]>() };
        // The first one last: it says that the others mean something.
        words.iter().rev().for_each(|w| w.store(0, Ordering::Release));
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if self.driver.enter().is_ok() {
            // SAFETY: the owner gives the memory up.
            unsafe { (self.driver.entries.free_host)(self.host) };
        }
    }
}
