//! Room that is taken and given back: registers, queues, the buffer.

use std::collections::BTreeMap;

/// So much room, and when what is taken will be given back.
#[derive(Clone, Debug, Default)]
pub(super) struct Pool {
    capacity: Option<u64>,
    taken: u64,
    returns: BTreeMap<i64, u64>,
    /// The most that was taken at once.
    pub peak: u64,
}

impl Pool {
    pub fn new(capacity: Option<u64>) -> Self {
        Self { capacity, ..Self::default() }
    }

    /// From when on there is room for `amount`, as far as is known; `None` if nothing known makes room.
    pub fn room(&self, amount: u64) -> Option<i64> {
        let Some(capacity) = self.capacity else { return Some(i64::MIN) };
        let mut taken = self.taken;
        if taken + amount <= capacity {
            return Some(i64::MIN);
        }
        for (&time, &n) in &self.returns {
            taken -= n;
            if taken + amount <= capacity {
                return Some(time);
            }
        }
        None
    }

    /// Takes room at a time not before [`Self::room`] says.
    pub fn take(&mut self, amount: u64, now: i64) {
        while let Some((&time, &n)) = self.returns.first_key_value()
            && time <= now
        {
            self.taken -= n;
            self.returns.remove(&time);
        }
        self.taken += amount;
        self.peak = self.peak.max(self.taken);
    }

    /// Gives room back at a time.
    pub fn give(&mut self, amount: u64, at: i64) {
        if amount > 0 {
            *self.returns.entry(at).or_default() += amount;
        }
    }
}
