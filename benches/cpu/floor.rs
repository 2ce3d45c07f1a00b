//! What the processor can do at best: prints JSON with the rates of multiply-adds and of memory, all threads together.
//!
//! `rustc -O --edition 2024 floor.rs && ./floor THREADS`

use std::arch::asm;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

const ROUNDS: usize = 5;
const BYTES: usize = 256 << 20;

/// Repeats an instruction on twelve independent accumulators; none of the operands is ever but zero.
macro_rules! repeat {
    ($name:ident, $features:literal, $instruction:literal, $register:literal) => {
        #[target_feature(enable = $features)]
        fn $name(turns: u64) {
            // SAFETY: registers only, all of them declared; the function has the features.
            unsafe {
                asm!(
                    "vzeroall",
                    "2:",
                    concat!($instruction, " ", $register, "0, ", $register, "14, ", $register, "15"),
                    concat!($instruction, " ", $register, "1, ", $register, "14, ", $register, "15"),
                    concat!($instruction, " ", $register, "2, ", $register, "14, ", $register, "15"),
                    concat!($instruction, " ", $register, "3, ", $register, "14, ", $register, "15"),
                    concat!($instruction, " ", $register, "4, ", $register, "14, ", $register, "15"),
                    concat!($instruction, " ", $register, "5, ", $register, "14, ", $register, "15"),
                    concat!($instruction, " ", $register, "6, ", $register, "14, ", $register, "15"),
                    concat!($instruction, " ", $register, "7, ", $register, "14, ", $register, "15"),
                    concat!($instruction, " ", $register, "8, ", $register, "14, ", $register, "15"),
                    concat!($instruction, " ", $register, "9, ", $register, "14, ", $register, "15"),
                    concat!($instruction, " ", $register, "10, ", $register, "14, ", $register, "15"),
                    concat!($instruction, " ", $register, "11, ", $register, "14, ", $register, "15"),
                    "dec {turns}",
                    "jnz 2b",
                    "vzeroupper",
                    turns = inout(reg) turns => _,
                    out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                    out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                    out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
                );
            }
        }
    };
}

repeat!(fma_512, "avx512f", "vfmadd231ps", "zmm");
repeat!(fma_256, "avx2,fma", "vfmadd231ps", "ymm");
repeat!(pairs_512, "avx512f,avx512bf16", "vdpbf16ps", "zmm");

/// Reads everything, a register at a time.
#[target_feature(enable = "avx2")]
fn sum_256(part: &[u64]) -> u64 {
    sum(part)
}

#[inline(always)]
fn sum(part: &[u64]) -> u64 {
    part.iter().fold(0u64, |sum, x| sum.wrapping_add(*x))
}

/// Operations per second of all threads: the best of a few rounds, in each of which they begin together.
fn rate(threads: usize, operations: f64, work: impl Fn(usize) + Sync) -> f64 {
    let barrier = Barrier::new(threads);
    let mut best = 0.0f64;
    std::thread::scope(|scope| {
        let run = |thread: usize| {
            let mut best = 0.0f64;
            for _ in 0..ROUNDS {
                barrier.wait();
                let begun = Instant::now();
                work(thread);
                barrier.wait();
                best = best.max(operations / begun.elapsed().as_secs_f64());
            }
            best
        };
        let others: Vec<_> = (1..threads).map(|k| scope.spawn(move || run(k))).collect();
        best = run(0);
        others.into_iter().for_each(|other| assert!(other.join().is_ok()));
    });
    best
}

fn main() {
    let threads = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1usize).max(1);
    const TURNS: u64 = 5_000_000;
    let each = |lanes: f64| threads as f64 * TURNS as f64 * 12.0 * 2.0 * lanes;
    let wide = is_x86_feature_detected!("avx512f");
    let fma = if wide {
        // SAFETY: the processor has the instructions.
        rate(threads, each(16.0), |_| unsafe { fma_512(TURNS) })
    } else if is_x86_feature_detected!("fma") {
        // SAFETY: as above.
        rate(threads, each(8.0), |_| unsafe { fma_256(TURNS) })
    } else {
        0.0
    };
    let pairs = if wide && is_x86_feature_detected!("avx512bf16") {
        // SAFETY: as above.
        rate(threads, each(32.0), |_| unsafe { pairs_512(TURNS) })
    } else {
        0.0
    };
    let (from, to) = (vec![1u64; BYTES / 8], std::sync::Mutex::new(vec![2u64; BYTES / 8]));
    let part = BYTES / 8 / threads;
    let read = rate(threads, (part * threads * 8) as f64, |k| {
        let part = &from[k * part..][..part];
        // SAFETY: the processor has the instructions.
        black_box(if is_x86_feature_detected!("avx2") { unsafe { sum_256(part) } } else { sum(part) });
    });
    let mut target = to.into_inner().unwrap_or_default();
    let parts: Vec<std::sync::Mutex<&mut [u64]>> = target.chunks_mut(part).map(std::sync::Mutex::new).collect();
    let copy = rate(threads, 2.0 * (part * threads * 8) as f64, |k| {
        if let Ok(mut to) = parts[k].lock() {
            to.copy_from_slice(&from[k * part..][..part]);
        }
    });
    println!(
        "{{\"threads\": {threads}, \"fma_gflops\": {:.1}, \"bf16_pairs_gflops\": {:.1}, \"read_gbs\": {:.1}, \"copy_gbs\": {:.1}}}",
        fma / 1e9,
        pairs / 1e9,
        read / 1e9,
        copy / 1e9
    );
}
