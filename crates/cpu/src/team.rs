//! Threads that work beside the caller's.

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

/// All threads of a run but the caller's. One more would sleep, and while it falls asleep where it ran last, the system wakes
/// another one beside the caller's, where it waits for as long as there is work.
#[derive(Debug)]
pub(crate) struct Team {
    pool: ThreadPool,
    places: places::Places,
}

impl Team {
    /// So many threads with the caller's, two at least.
    pub(crate) fn new(threads: usize) -> Result<Self, ThreadPoolBuildError> {
        let places = places::Places::default();
        let pool = places.noted(ThreadPoolBuilder::new().num_threads(threads - 1)).build()?;
        Ok(Self { pool, places })
    }

    pub(crate) fn pool(&self) -> &ThreadPool {
        &self.pool
    }

    /// Keeps the threads off the processor that the caller's thread runs on, if there are enough others. In a guest (KVM) the system
    /// woke the second of two threads on the caller's processor in nearly all runs of 0.2 ms, where it waited until the caller was
    /// done: a processor that sleeps seems to be taken there for one on which the host runs something else.
    pub(crate) fn make_room(&self) {
        self.places.without_callers(self.pool.current_num_threads());
    }
}

#[cfg(target_os = "linux")]
mod places {
    use rayon::ThreadPoolBuilder;
    use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_getcpu, sched_setaffinity};
    use std::sync::{Arc, Mutex, PoisonError};

    /// Threads, and where each may run by itself.
    #[derive(Debug, Default)]
    pub(super) struct Places {
        threads: Arc<Mutex<Vec<(Pid, CpuSet)>>>,
        /// The processor that all of them are kept off.
        off: Mutex<Option<usize>>,
    }

    impl Places {
        /// The builder of threads that will be known.
        pub(super) fn noted(&self, builder: ThreadPoolBuilder) -> ThreadPoolBuilder {
            let threads = self.threads.clone();
            builder.start_handler(move |_| {
                if let Ok(all) = sched_getaffinity(None) {
                    threads.lock().unwrap_or_else(PoisonError::into_inner).push((gettid(), all));
                }
            })
        }

        pub(super) fn without_callers(&self, count: usize) {
            let mut off = self.off.lock().unwrap_or_else(PoisonError::into_inner);
            let here = sched_getcpu();
            if *off == Some(here) {
                return;
            }
            let threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            let kept_off = threads.iter().all(|(thread, all)| {
                let mut others = *all;
                if here < CpuSet::MAX_CPU {
                    others.unset(here);
                }
                // What the system refuses was only a wish.
                others.count() as usize >= count && sched_setaffinity(Some(*thread), &others).is_ok()
            });
            // Threads that have only begun to start are not known yet.
            *off = Some(here).filter(|_| kept_off && threads.len() == count);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod places {
    use rayon::ThreadPoolBuilder;

    /// Of systems that place threads well enough, as far as is known.
    #[derive(Debug, Default)]
    pub(super) struct Places;

    impl Places {
        pub(super) fn noted(&self, builder: ThreadPoolBuilder) -> ThreadPoolBuilder {
            builder
        }

        pub(super) fn without_callers(&self, _: usize) {}
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::Team;
    use rustix::thread::{sched_getaffinity, sched_getcpu};
    use std::sync::mpsc;

    #[test]
    fn no_thread_runs_where_the_caller_does() {
        let all = sched_getaffinity(None).expect("known").count() as usize;
        if all < 2 {
            return;
        }
        let team = Team::new(2).expect("started");
        for _ in 0..50 {
            // It starts, so that it is known.
            team.pool().install(|| ());
            let before = sched_getcpu();
            team.make_room();
            let allowed = team.pool().install(|| sched_getaffinity(None).expect("known"));
            // Unless the caller's thread was moved meanwhile.
            if sched_getcpu() == before {
                assert!(!allowed.is_set(before));
                assert_eq!(allowed.count() as usize, all - 1);
                return;
            }
        }
        unreachable!("never twice on the same processor");
    }

    #[test]
    fn more_threads_than_processors_stay_where_they_are() {
        let all = sched_getaffinity(None).expect("known").count() as usize;
        let team = Team::new(all + 2).expect("started");
        let (send, receive) = mpsc::channel();
        team.pool().broadcast(|_| ());
        team.make_room();
        team.pool().broadcast(|_| send.send(sched_getaffinity(None).expect("known").count() as usize).expect("heard"));
        drop(send);
        assert!(receive.iter().all(|count| count == all));
    }
}
