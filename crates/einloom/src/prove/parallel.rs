//! Independent pieces of work on all cores, with results that do not depend on how many there are.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;

/// `work(0)`, `work(1)`, … in order, as far as they are needed. Pieces are started in order; when `enough` is true of
/// those that are done, in whatever order they ended, no further one is started, and those at work are finished. So
/// whatever beginning `enough` is true of is complete. `progress` is told the done fraction.
pub(super) fn in_order<T: Send>(
    pieces: usize,
    work: impl Fn(usize) -> T + Sync,
    enough: impl Fn(&mut dyn Iterator<Item = &T>) -> bool,
    progress: &mut dyn FnMut(f64),
) -> Vec<T> {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get()).min(pieces);
    let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    let mut done: Vec<Option<T>> = (0..pieces).map(|_| None).collect();
    std::thread::scope(|scope| {
        let (send, receive) = channel();
        for _ in 0..threads {
            let (send, work, next, stop) = (send.clone(), &work, &next, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let k = next.fetch_add(1, Ordering::Relaxed);
                    if k >= pieces || send.send((k, work(k))).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        for (count, (k, result)) in receive.into_iter().enumerate() {
            progress((count + 1) as f64 / pieces as f64);
            done[k] = Some(result);
            if enough(&mut done.iter().flatten()) {
                stop.store(true, Ordering::Relaxed);
            }
        }
    });
    done.into_iter().map_while(|d| d).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_order_and_stop_where_there_are_enough() {
        let work = |k: usize| {
            std::thread::sleep(std::time::Duration::from_millis((k * 7 % 5) as u64));
            k
        };
        let mut told = 0.0;
        assert_eq!(in_order(20, work, |_| false, &mut |part| told = part), (0..20).collect::<Vec<_>>());
        assert_eq!(told, 1.0);
        let some = in_order(1000, work, |done| done.filter(|&&k| k % 2 == 1).count() >= 3, &mut |_| {});
        assert!(some.starts_with(&[0, 1, 2, 3, 4, 5]) && some.len() < 1000, "{some:?}");
        assert!(in_order(0, work, |_| true, &mut |_| {}).is_empty());
    }
}
