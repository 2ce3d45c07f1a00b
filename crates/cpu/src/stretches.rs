//! Which points of a kernel's grid each thread runs: those of one stretch, which follow each other, so that what stays from one point to the next
//! is there for one thread and is not copied by all of them; then what is left of others' stretches.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The points of a kernel, in as many stretches as there are threads.
pub(crate) struct Stretches {
    stretches: Vec<Stretch>,
    /// Points that are taken at a time.
    batch: usize,
    /// How many threads have begun.
    begun: AtomicUsize,
}

/// Points that follow each other, up to the next that nobody has taken.
#[repr(align(128))]
struct Stretch {
    next: AtomicUsize,
    end: usize,
}

impl Stretch {
    fn left(&self) -> usize {
        self.end.saturating_sub(self.next.load(Ordering::Relaxed))
    }

    fn take(&self, batch: usize) -> Option<Range<usize>> {
        let first = self.next.fetch_add(batch, Ordering::Relaxed);
        (first < self.end).then(|| first..(first + batch).min(self.end))
    }
}

impl Stretches {
    pub(crate) fn new(count: usize, threads: usize) -> Self {
        let threads = threads.max(1);
        let of = |k: usize| Stretch { next: AtomicUsize::new(count * k / threads), end: count * (k + 1) / threads };
        // Small points are taken several at a time, but never so many that threads end up waiting.
        let batch = (count / (threads * 64)).max(1);
        Self { stretches: (0..threads).map(of).collect(), batch, begun: AtomicUsize::new(0) }
    }

    /// The stretch of a thread that begins.
    pub(crate) fn begin(&self) -> usize {
        self.begun.fetch_add(1, Ordering::Relaxed) % self.stretches.len()
    }

    /// The next points for a thread with this stretch: of others' where its own is used up, of the one of which most is left.
    pub(crate) fn take(&self, own: usize) -> Option<Range<usize>> {
        self.stretches[own].take(self.batch).or_else(|| {
            loop {
                let most = self.stretches.iter().max_by_key(|s| s.left()).filter(|s| s.left() > 0)?;
                if let Some(taken) = most.take(self.batch) {
                    return Some(taken);
                }
            }
        })
    }

    /// The same a point early, unless few are left of its own, which whoever is free should take.
    pub(crate) fn take_early(&self, own: usize) -> Option<Range<usize>> {
        let stretch = &self.stretches[own];
        (stretch.left() > 8 * self.batch).then(|| stretch.take(self.batch)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::Stretches;
    use std::sync::Mutex;

    #[test]
    fn every_point_is_taken_once_and_each_thread_begins_with_its_share() {
        for (count, threads) in [(0, 2), (1, 4), (7, 2), (16, 2), (1000, 3)] {
            let (stretches, all) = (Stretches::new(count, threads), Mutex::new(vec![]));
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        let own = stretches.begin();
                        let mut early = None;
                        while let Some(points) = early.take().or_else(|| stretches.take(own)) {
                            early = stretches.take_early(own);
                            all.lock().unwrap().extend(points);
                        }
                    });
                }
            });
            let mut all = all.into_inner().unwrap();
            all.sort_unstable();
            assert_eq!(all, (0..count).collect::<Vec<_>>(), "{count} points, {threads} threads");
        }
    }

    #[test]
    fn a_thread_whose_share_is_used_up_takes_of_another() {
        let stretches = Stretches::new(8, 2);
        let [one, other] = [stretches.begin(), stretches.begin()];
        let firsts: Vec<usize> = (0..5).map(|_| stretches.take(one).unwrap().start).collect();
        assert_eq!(firsts, [0, 1, 2, 3, 4]);
        assert_eq!(stretches.take(other).unwrap().start, 5);
    }
}
