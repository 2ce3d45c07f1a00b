//! Memory on the device.

use super::RunError;
use super::driver::{Address, Driver};
use std::sync::Arc;

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
