//! What this processor does, measured: how fast memory is copied, and products are computed, by all threads at the same time.

use crate::ProductRates;
use std::hint::black_box;
use std::sync::Barrier;
use std::thread::scope;
use std::time::{Duration, Instant};

/// How long is measured, at least.
const LONG: Duration = Duration::from_millis(20);

/// Bytes per second, in and out, when so many threads each copy one half of so many bytes to the other half, again and again.
/// What is copied is in whatever memory holds it.
///
/// ```
/// assert!(einloom_cpu::copied_per_second(16 << 10, 1).is_normal());
/// ```
pub fn copied_per_second(bytes: usize, threads: usize) -> f64 {
    let (barrier, half) = (Barrier::new(threads.max(1)), (bytes / 2).max(1));
    let one = || {
        let (from, mut to) = (vec![1u8; half], vec![0u8; half]);
        let mut copies = |times: usize| {
            for _ in 0..times {
                to.copy_from_slice(black_box(&from));
                black_box(&mut to);
            }
        };
        // So often that reading the clock does not count.
        let often = ((1 << 20) / half).max(1);
        copies(often);
        barrier.wait();
        let (begun, mut times) = (Instant::now(), 0);
        while begun.elapsed() < LONG {
            copies(often);
            times += often;
        }
        (2 * half * times) as f64 / begun.elapsed().as_secs_f64()
    };
    scope(|s| {
        let others: Vec<_> = (1..threads).map(|_| s.spawn(one)).collect();
        let own = one();
        own + others.into_iter().filter_map(|t| t.join().ok()).sum::<f64>()
    })
}

/// Operations per second of so many threads together: of multiply-adds in f32, and of products of bf16 by the fastest way, if that is not
/// theirs.
pub fn multiplied_per_second(threads: usize) -> (f64, Option<f64>) {
    let barrier = Barrier::new(threads.max(1));
    let one = || {
        barrier.wait();
        // The first look finds the clock as it was.
        let looks = [(); 3].map(|()| ProductRates::measured_now());
        let most = |of: fn(&ProductRates) -> Option<f64>| looks.iter().filter_map(of).fold(0.0, f64::max);
        let faster = |rates: &ProductRates| {
            let ways = [rates.pairs, rates.tiles].into_iter().flatten();
            ways.map(|way| 1.0 / way.single).reduce(f64::max)
        };
        (most(|rates| Some(rates.widened)), most(faster))
    };
    let all: Vec<(f64, f64)> = scope(|s| {
        let others: Vec<_> = (1..threads).map(|_| s.spawn(one)).collect();
        let own = one();
        std::iter::once(own).chain(others.into_iter().filter_map(|t| t.join().ok())).collect()
    });
    let (widened, faster) = all.iter().fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (widened, Some(faster).filter(|faster| *faster > widened))
}
