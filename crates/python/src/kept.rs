//! Kernels that were made, by what they were made for.

use crate::kernel::Kernel;
use std::collections::HashMap;
use std::sync::Arc;

/// Kernels by the words that describe a call ([`crate::dlpack::Arrays::words`]).
#[derive(Debug, Default)]
pub(crate) struct Kept {
    last: Option<(Box<[u64]>, Arc<Kernel>)>,
    all: HashMap<Box<[u64]>, (u64, Arc<Kernel>)>,
    clock: u64,
}

/// Beyond this many the one that was used longest ago goes.
const MOST: usize = 1024;

impl Kept {
    /// The kernel for these words. The same as last time costs a comparison.
    pub fn get(&mut self, words: &[u64]) -> Option<Arc<Kernel>> {
        if let Some((of, kernel)) = &self.last
            && **of == *words
        {
            return Some(kernel.clone());
        }
        self.clock += 1;
        let (used, kernel) = self.all.get_mut(words)?;
        *used = self.clock;
        self.last = Some((words.into(), kernel.clone()));
        Some(kernel.clone())
    }

    /// Keeps a kernel.
    pub fn put(&mut self, words: &[u64], kernel: Arc<Kernel>) {
        if self.all.len() >= MOST
            && let Some(oldest) = self.all.iter().min_by_key(|(_, (used, _))| *used).map(|(k, _)| k.clone())
        {
            self.all.remove(&oldest);
        }
        self.clock += 1;
        self.last = Some((words.into(), kernel.clone()));
        self.all.insert(words.into(), (self.clock, kernel));
    }

    /// The one that was used last.
    pub fn last(&self) -> Option<Arc<Kernel>> {
        self.last.as_ref().map(|(_, kernel)| kernel.clone())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Lets all of them go.
    pub fn clear(&mut self) {
        *self = Self::default();
    }
}
