//! The threads that programs run on.
//!
//! They are our own and not rayon's global ones, because a process that was forked (as data loaders do) has none of its
//! parent's threads: work given to them would wait for ever. Pools are never ended; a forked process leaves its parent's
//! alone and starts others.

use crate::failure::Failure;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

struct Pools {
    process: u32,
    by_threads: BTreeMap<usize, &'static ThreadPool>,
}

static POOLS: Mutex<Pools> = Mutex::new(Pools { process: 0, by_threads: BTreeMap::new() });

/// As many threads as this process may use at once.
pub(crate) fn most() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The pool of this many threads.
pub(crate) fn pool(threads: usize) -> Result<&'static ThreadPool, Failure> {
    let mut pools = POOLS.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if pools.process != process {
        *pools = Pools { process, by_threads: BTreeMap::new() };
    }
    if let Some(pool) = pools.by_threads.get(&threads) {
        return Ok(pool);
    }
    let built = ThreadPoolBuilder::new().num_threads(threads).thread_name(|k| format!("einloom-{k}")).build();
    let pool = built
        .map_err(|e| Failure::new("OutOfMemory", "threads", format!("{threads} threads cannot be started: {e}")))?;
    let pool: &'static ThreadPool = Box::leak(Box::new(pool));
    pools.by_threads.insert(threads, pool);
    Ok(pool)
}
