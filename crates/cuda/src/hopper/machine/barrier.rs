//! Barriers in shared memory, and turns.

/// An mbarrier (PTX ISA, "mbarrier"): a phase completes when all arrivals and all announced bytes are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Barrier {
    arrivals: usize,
    pending: usize,
    /// Announced and not there; negative if another block's copies are there before this one has announced them.
    bytes: i64,
    completed: usize,
}

/// More arrivals than the phase has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMany;

impl Barrier {
    /// Whose phases take this many arrivals.
    pub fn new(arrivals: usize) -> Self {
        Self { arrivals, pending: arrivals, bytes: 0, completed: 0 }
    }

    /// Phases completed.
    pub fn completed(&self) -> usize {
        self.completed
    }

    /// What `try_wait.parity` says: whether the phase completed last has this parity. Before the first one it is 1.
    pub fn passes(&self, parity: usize) -> bool {
        self.completed % 2 != parity % 2
    }

    /// An arrival that announces bytes.
    pub fn arrive(&mut self, bytes: usize) -> Result<(), TooMany> {
        self.pending = self.pending.checked_sub(1).ok_or(TooMany)?;
        self.bytes += bytes as i64;
        self.turn();
        Ok(())
    }

    /// Bytes that were, or will be, announced are there.
    pub fn land(&mut self, bytes: usize) {
        self.bytes -= bytes as i64;
        self.turn();
    }

    /// Whether nothing is outstanding and nothing has arrived in the current phase.
    pub fn idle(&self) -> bool {
        self.pending == self.arrivals && self.bytes == 0
    }

    fn turn(&mut self) {
        if self.pending == 0 && self.bytes == 0 {
            self.pending = self.arrivals;
            self.completed += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_completes_when_arrivals_and_bytes_are_there() {
        let mut full = Barrier::new(1);
        assert!(full.passes(1) && !full.passes(0), "nothing has completed: as if parity 1 had");
        assert_eq!(full.arrive(48), Ok(()));
        full.land(16);
        assert!(!full.passes(0) && !full.idle());
        assert_eq!(full.arrive(48), Err(TooMany));
        full.land(32);
        assert!(full.passes(0) && !full.passes(1) && full.idle());
        assert_eq!(full.completed(), 1);
    }

    #[test]
    fn bytes_may_be_there_before_they_are_announced() {
        let mut full = Barrier::new(1);
        full.land(16);
        assert!(!full.passes(0) && !full.idle());
        assert_eq!(full.arrive(48), Ok(()));
        full.land(32);
        assert!(full.passes(0) && full.idle());
    }

    #[test]
    fn waiting_one_phase_too_late_waits_for_the_next_one() {
        let mut empty = Barrier::new(2);
        for _ in 0..4 {
            assert_eq!(empty.arrive(0), Ok(()));
        }
        assert_eq!(empty.completed(), 2);
        assert!(!empty.passes(0) && empty.passes(1));
    }
}
