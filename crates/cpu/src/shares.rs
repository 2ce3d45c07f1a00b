//! Which points of a kernel's grid each thread runs: those of one share, which follow each other, so that what stays from one point to the next
//! is there for one thread and is not copied by all of them; then what is left of others' shares.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The points of a kernel, in as many shares as there are threads.
pub(crate) struct Shares {
    shares: Vec<Share>,
    /// Points that are taken at a time.
    batch: usize,
    /// How many threads have begun.
    begun: AtomicUsize,
}

/// Points that follow each other, up to the next that nobody has taken.
#[repr(align(128))]
struct Share {
    next: AtomicUsize,
    end: usize,
}

impl Share {
    fn left(&self) -> usize {
        self.end.saturating_sub(self.next.load(Ordering::Relaxed))
    }

    fn take(&self, batch: usize) -> Option<Range<usize>> {
        let first = self.next.fetch_add(batch, Ordering::Relaxed);
        (first < self.end).then(|| first..(first + batch).min(self.end))
    }
}

impl Shares {
    pub(crate) fn new(count: usize, threads: usize) -> Self {
        let threads = threads.max(1);
        let of = |k: usize| Share { next: AtomicUsize::new(count * k / threads), end: count * (k + 1) / threads };
        // Small points are taken several at a time, but never so many that threads end up waiting.
        let batch = (count / (threads * 64)).max(1);
        Self { shares: (0..threads).map(of).collect(), batch, begun: AtomicUsize::new(0) }
    }

    /// The share of a thread that begins.
    pub(crate) fn begin(&self) -> usize {
        self.begun.fetch_add(1, Ordering::Relaxed) % self.shares.len()
    }

    /// The next points for a thread with this share: of others' where its own is used up, of the one of which most is left.
    pub(crate) fn take(&self, own: usize) -> Option<Range<usize>> {
        self.shares[own].take(self.batch).or_else(|| {
            loop {
                let most = self.shares.iter().max_by_key(|s| s.left()).filter(|s| s.left() > 0)?;
                if let Some(taken) = most.take(self.batch) {
                    return Some(taken);
                }
            }
        })
    }

    /// The same a point early, unless few are left of its own, which whoever is free should take.
    pub(crate) fn take_early(&self, own: usize) -> Option<Range<usize>> {
        let share = &self.shares[own];
        (share.left() > 8 * self.batch).then(|| share.take(self.batch)).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::Shares;
    use std::sync::Mutex;

    #[test]
    fn every_point_is_taken_once_and_each_thread_begins_with_its_share() {
        for (count, threads) in [(0, 2), (1, 4), (7, 2), (16, 2), (1000, 3)] {
            let (shares, all) = (Shares::new(count, threads), Mutex::new(vec![]));
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        let own = shares.begin();
                        let mut early = None;
                        while let Some(points) = early.take().or_else(|| shares.take(own)) {
                            early = shares.take_early(own);
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
        let shares = Shares::new(8, 2);
        let [one, other] = [shares.begin(), shares.begin()];
        let firsts: Vec<usize> = (0..5).map(|_| shares.take(one).unwrap().start).collect();
        assert_eq!(firsts, [0, 1, 2, 3, 4]);
        assert_eq!(shares.take(other).unwrap().start, 5);
    }
}
