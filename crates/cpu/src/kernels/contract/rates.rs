//! How fast the two ways to multiply bf16 are on the processor at hand, measured once.

use super::pairs::PairToken;
use super::{Ahead, Contraction, Layout, Scale, Start};
use crate::kernels::isa::{Isa, Token};
use std::sync::OnceLock;
use std::time::Instant;

/// Rates of one thread's products of bf16 matrices in the caches, in operations per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProductRates {
    /// By widening to f32 and multiply-adds of f32.
    pub widened: f64,
    /// By instructions that multiply pairs of bf16 and add to f32. `None` if the processor has none.
    pub pairs: Option<f64>,
}

/// Packing costs something too.
const WORTH_PACKING: f64 = 1.15;

impl ProductRates {
    /// Whether pairs are the faster way.
    pub fn prefers_pairs(&self) -> bool {
        self.pairs.is_some_and(|pairs| pairs > self.widened * WORTH_PACKING)
    }

    /// The rates of this processor, with its fastest instructions: measured at the first call, in a fraction of a
    /// millisecond.
    pub fn measured() -> Self {
        static RATES: OnceLock<ProductRates> = OnceLock::new();
        *RATES.get_or_init(|| {
            let Some(token) = Token::new(Isa::best()) else { return Self { widened: 0.0, pairs: None } };
            let pairs = PairToken::new(token);
            // Alternating, so that both see the clock that the other leaves behind.
            let (mut widened, mut paired) = (f64::INFINITY, f64::INFINITY);
            for _ in 0..ROUNDS {
                widened = widened.min(seconds(K, |job| job.run(token)));
                if let Some(pairs) = pairs {
                    paired = paired.min(seconds(K / 2, |job| job.run_pairs(pairs)));
                }
            }
            let operations = 2.0 * (M * N * K) as f64;
            Self { widened: operations / widened, pairs: pairs.map(|_| operations / paired) }
        })
    }
}

const M: usize = 24;
const N: usize = 64;
const K: usize = 128;
const ROUNDS: usize = 9;
const REPEATS: usize = 8;

/// Seconds of a product of matrices that the first-level cache holds.
fn seconds(k: usize, run: impl Fn(Contraction<'_, '_, f32>)) -> f64 {
    let (a, b, mut c) = (vec![0.0f32; M * k], vec![0.0f32; k * N], vec![0.0f32; M * N]);
    let mut ahead = Ahead::default();
    let begun = Instant::now();
    for _ in 0..REPEATS {
        let (start, scale, ahead) = (Start::Kept, Scale::One, &mut ahead);
        let (a, b, c) = (&a[..], &b[..], &mut c[..]);
        run(Contraction {
            m: M,
            n: N,
            k,
            a,
            a_i: k,
            a_k: 1,
            b,
            b_layout: Layout::Rows(N),
            c,
            c_i: N,
            start,
            scale,
            times: None,
            ahead,
        });
    }
    begun.elapsed().as_secs_f64() / REPEATS as f64
}
