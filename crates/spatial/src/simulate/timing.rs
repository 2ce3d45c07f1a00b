//! How long signals take on a chip, and how much they may pile up: what a simulation needs and closed forms leave out.

use crate::read::{Reader, Section};

/// Latencies in cycles and depths in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// From a processing element to its neighbour.
    pub hop: u64,
    /// From one array's edge to another's.
    pub link: u64,
    /// Of one access to the shared buffer.
    pub buffer: u64,
    /// From the end of a transfer on DRAM's channel to its words in the buffer.
    pub dram: u64,
    /// Words that wait at an array's edge for one of its elements, for each tensor; no limit if not given.
    pub queue: Option<usize>,
}

impl Default for Timing {
    fn default() -> Self {
        Self { hop: 1, link: 1, buffer: 1, dram: 0, queue: None }
    }
}

impl Timing {
    /// Reads the `timing` table of a chip, if it has one.
    pub(crate) fn read(r: &mut Reader<'_>, top: &Section<'_, '_>) -> Self {
        let usual = Self::default();
        let Some(at) = r.section(top, "timing") else { return usual };
        r.keys(&at, &["hop", "link", "buffer", "dram", "queue"]);
        let mut cycles = |key: &str, usual: u64| r.count(&at, key).map_or(usual, |n| n as u64);
        Self {
            hop: cycles("hop", usual.hop),
            link: cycles("link", usual.link),
            buffer: cycles("buffer", usual.buffer),
            dram: cycles("dram", usual.dram),
            queue: r.count(&at, "queue"),
        }
    }
}
