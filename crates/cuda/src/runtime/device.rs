//! A GPU.

use super::driver::Driver;
use super::{Buffer, RunError, Unavailable};
use crate::schedule::{Arch, Target};
use std::sync::Arc;

/// An opened GPU.
#[derive(Clone, Debug)]
pub struct Device {
    pub(super) driver: Arc<Driver>,
}

impl Device {
    /// Opens the first GPU.
    ///
    /// # Errors
    /// If there is no driver, no GPU, or none that is new enough.
    pub fn open() -> Result<Self, Unavailable> {
        Self::open_number(0)
    }

    /// Opens the GPU with this number.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_number(number: usize) -> Result<Self, Unavailable> {
        let device = Self { driver: Arc::new(Driver::open(number)?) };
        let capability = device.capability();
        if capability.0 < 8 {
            return Err(Unavailable::TooOld { name: device.name(), capability });
        }
        Ok(device)
    }

    /// Its name, such as `NVIDIA H200`.
    pub fn name(&self) -> String {
        self.driver.name()
    }

    /// Its compute capability, such as (9, 0).
    pub fn capability(&self) -> (u32, u32) {
        self.driver.capability()
    }

    /// Its multiprocessors.
    pub fn multiprocessors(&self) -> usize {
        self.driver.multiprocessors()
    }

    /// The newest CUDA version that its driver supports, such as 13000.
    pub fn driver_version(&self) -> usize {
        self.driver.version()
    }

    /// What to schedule for on this GPU.
    pub fn target(&self) -> Target {
        match self.capability() {
            (9, 0) => Target::SM_90A,
            _ => Target { arch: Arch::Sm80, shared_bytes: self.driver.shared_bytes(), ..Target::SM_80 },
        }
    }

    /// What to compile for: machine code of one capability does not run on a GPU of the next.
    pub fn architecture(&self) -> String {
        match self.capability() {
            (9, 0) => "sm_90a".to_string(),
            (major, minor) => format!("sm_{major}{minor}"),
        }
    }

    /// Memory on it; what it holds is not known.
    ///
    /// # Errors
    /// If there is not enough.
    pub fn allocate(&self, bytes: usize) -> Result<Buffer, RunError> {
        Buffer::new(&self.driver, bytes)
    }

    /// Waits for all work that was started.
    ///
    /// # Errors
    /// If some of it failed.
    pub fn wait(&self) -> Result<(), RunError> {
        self.driver.wait()
    }
}
