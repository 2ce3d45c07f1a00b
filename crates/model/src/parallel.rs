//! Independent pieces of work on all cores.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{available_parallelism, scope};

/// What `work` makes of each item, in the order of the items, however many cores there are.
///
/// ```
/// assert_eq!(einloom_model::of_each(&[3, 1, 2], |n| n * n), [9, 1, 4]);
/// ```
pub fn of_each<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = match items.len() {
        0 | 1 => 1,
        several => available_parallelism().map_or(1, NonZero::get).min(several),
    };
    if threads == 1 {
        return items.iter().map(work).collect();
    }
    let (next, done) = (AtomicUsize::new(0), Mutex::new(Vec::with_capacity(items.len())));
    let some = || {
        while let Some((k, item)) = Some(next.fetch_add(1, Ordering::Relaxed)).and_then(|k| Some((k, items.get(k)?))) {
            let result = work(item);
            // A poisoned lock means that another thread panicked, which the scope passes on.
            if let Ok(mut done) = done.lock() {
                done.push((k, result));
            }
        }
    };
    scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(some)));
        some();
    });
    let mut done = done.into_inner().unwrap_or_default();
    done.sort_by_key(|d| d.0);
    done.into_iter().map(|d| d.1).collect()
}
