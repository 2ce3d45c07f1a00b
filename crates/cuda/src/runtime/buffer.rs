//! Memory on the device.

use super::RunError;
use super::driver::{Address, Driver};
use std::sync::Arc;

/// What memory that kernels are to write holds before, in every 16-bit word: a NaN of every floating-point type of 16 bits
/// and more, in whole elements too, with bits that no arithmetic gives; an unlikely integer.
pub const POISON: u16 = 0xffe5;

/// Bytes on a device. Freed when dropped.
#[derive(Debug)]
pub struct Buffer {
    driver: Arc<Driver>,
    address: Address,
    len: usize,
}

impl Buffer {
    pub(super) fn new(driver: &Arc<Driver>, len: usize) -> Result<Self, RunError> {
        Ok(Self { driver: driver.clone(), address: driver.allocate(len)?, len })
    }

    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn address(&self) -> Address {
        self.address
    }

    /// Writes all of it.
    ///
    /// # Errors
    /// If the lengths differ, or the driver fails.
    pub fn upload(&mut self, bytes: &[u8]) -> Result<(), RunError> {
        self.same(bytes.len())?;
        self.driver.upload(self.address, bytes)
    }

    /// Reads all of it, after all work that was started before.
    ///
    /// # Errors
    /// If the lengths differ, or the driver fails.
    pub fn download(&self, bytes: &mut [u8]) -> Result<(), RunError> {
        self.same(bytes.len())?;
        self.driver.download(bytes, self.address)
    }

    /// Sets every byte.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn fill(&mut self, value: u8) -> Result<(), RunError> {
        self.driver.fill(self.address, value, self.len)
    }

    /// Sets every word to [`POISON`]; an odd byte at the end to its high byte.
    ///
    /// # Errors
    /// If the driver fails.
    pub fn poison(&mut self) -> Result<(), RunError> {
        let whole = self.len / 2;
        self.driver.fill_words(self.address, POISON, whole)?;
        self.driver.fill(self.address + 2 * whole as u64, POISON.to_be_bytes()[0], self.len % 2)
    }

    fn same(&self, given: usize) -> Result<(), RunError> {
        if given == self.len {
            Ok(())
        } else {
            Err(RunError::Length { tensor: "buffer".to_string(), expected: self.len, given })
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.driver.free(self.address);
    }
}
