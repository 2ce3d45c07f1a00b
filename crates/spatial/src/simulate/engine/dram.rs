//! DRAM's one channel: it fetches ahead as far as the buffer has room, and writes results as soon as they are there.

use super::Engine;

/// What the channel moves next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Transfer {
    Fetch,
    Write,
}

impl Engine<'_> {
    /// The next transfer and when it starts, as far as is known.
    pub(super) fn next_transfer(&self) -> Option<(f64, Transfer)> {
        let write = self.writes.first_key_value().map(|(&(ready, _), _)| self.dram_free.max(ready as f64));
        let fetch = self.fetches.chunks.get(self.next_chunk).and_then(|chunk| {
            // What the arrays compute must find its room.
            let kept = self.reserve.saturating_sub(self.computed);
            let room = self.buffer.room(self.bytes(chunk.words) + kept)?;
            Some(self.dram_free.max(room.max(0) as f64))
        });
        match (write, fetch) {
            (Some(w), Some(f)) if f < w => Some((f, Transfer::Fetch)),
            (Some(w), _) => Some((w, Transfer::Write)),
            (None, f) => f.map(|f| (f, Transfer::Fetch)),
        }
    }

    pub(super) fn transfer(&mut self, at: f64, transfer: Transfer) {
        let chip = self.setup.setting.chip;
        let words_per_cycle = chip.dram.bandwidth.0 / chip.word.0 as f64 / chip.clock.0;
        let mut busy = |words: u64| {
            let cycles = words as f64 / words_per_cycle;
            self.counts.dram_busy += cycles;
            self.counts.dram_words += words;
            self.dram_free = at + cycles;
            self.dram_free.ceil() as i64
        };
        match transfer {
            Transfer::Fetch => {
                let chunk = &mut self.fetches.chunks[self.next_chunk];
                let end = busy(chunk.words);
                chunk.arrival = Some(end + chip.timing.dram as i64);
                let bytes = chunk.words * chip.word.0;
                self.buffer.take(bytes, at.floor() as i64);
                self.next_chunk += 1;
            }
            Transfer::Write => {
                let Some((_, (slot, words))) = self.writes.pop_first() else { return };
                let end = busy(words);
                self.used(slot, end);
            }
        }
    }
}
