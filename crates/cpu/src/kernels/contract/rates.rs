//! How fast the ways to multiply bf16 are on the processor at hand, measured once.

use super::pairs::PairToken;
use super::tiles::{Room, SQUARE};
use super::{Ahead, Contraction, Layout, Packed, Scale, Start};
use crate::kernels::amx::TileToken;
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
    /// By the processor's matrix unit. `None` if it has none.
    pub tiles: Option<f64>,
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
            let Some(token) = Token::new(Isa::best()) else { return Self { widened: 0.0, pairs: None, tiles: None } };
            let pairs = PairToken::new(token);
            let unit = TileToken::new(token);
            let mut room = Room::default();
            // Alternating, so that both see the clock that the other leaves behind.
            let (mut widened, mut paired, mut tiled) = (f64::INFINITY, f64::INFINITY, f64::INFINITY);
            for _ in 0..ROUNDS {
                widened = widened.min(seconds([M, N, K], Layout::Rows(N), |job| job.run(token)));
                if let Some(pairs) = pairs {
                    paired = paired.min(seconds([M, N, K / 2], Layout::Rows(N), |job| job.run_pairs(pairs)));
                }
                if let Some(unit) = unit {
                    let layout = Layout::Packed(Packed::new(1));
                    tiled = tiled.min(seconds(UNIT, layout, |job| job.run_tiles(unit, [1, 1], &mut room, None)));
                }
            }
            let operations = |[m, n, k]: [usize; 3]| 2.0 * (m * n * k) as f64;
            let of = operations([M, N, K]);
            Self {
                widened: of / widened,
                pairs: pairs.map(|_| of / paired),
                tiles: unit.map(|_| operations(UNIT) / tiled),
            }
        })
    }
}

const M: usize = 24;
const N: usize = 64;
const K: usize = 128;
/// For the matrix unit: so many columns that packing the left factor takes little.
const UNIT: [usize; 3] = [SQUARE, 512, 256];
const ROUNDS: usize = 9;
const REPEATS: usize = 8;

/// Seconds of a product of matrices that the first-level cache holds.
fn seconds([m, n, k]: [usize; 3], b_layout: Layout, mut run: impl FnMut(Contraction<'_, '_, f32>)) -> f64 {
    let (a, b, mut c) = (vec![0.0f32; m * k], vec![0.0f32; b_layout.len(k, n)], vec![0.0f32; m * n]);
    let mut ahead = Ahead::default();
    let begun = Instant::now();
    for _ in 0..REPEATS {
        let (start, scale, ahead) = (Start::Kept, Scale::One, &mut ahead);
        let (a, b, c) = (&a[..], &b[..], &mut c[..]);
        run(Contraction {
            m,
            n,
            k,
            a,
            a_i: k,
            a_k: 1,
            b,
            b_layout,
            c,
            c_i: n,
            start,
            scale,
            times: None,
            ahead,
            packed: false,
        });
    }
    begun.elapsed().as_secs_f64() / REPEATS as f64
}
