//! How fast the ways to multiply bf16 are on the processor at hand, measured once.

use super::pairs::PairToken;
use super::tiles::{Partly, Room, SQUARE};
use super::{Ahead, Contraction, Layout, Packed, Scale, Start};
use crate::kernels::amx::{Engaged, TileToken};
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
    pub tiles: Option<TileRates>,
}

/// How long the processor's matrix unit takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TileRates {
    /// Seconds of one thread for an operation (of the product that is wanted) on factors of one part each.
    pub single: f64,
    /// The same on factors that are sums of three parts each, which take six products.
    pub triple: f64,
}

impl TileRates {
    /// Seconds for an operation on factors of so many parts: some for each part that is loaded, some for each product.
    pub(crate) fn seconds(self, parts: [usize; 2], products: usize) -> f64 {
        // single = 2 part + product, triple = 6 part + 6 product.
        let part = (self.single - self.triple / 6.0).clamp(0.0, self.single / 2.0);
        let product = self.single - 2.0 * part;
        part * (parts[0] + parts[1]) as f64 + product.max(0.0) * products as f64
    }
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
            let (mut widened, mut paired, mut tiled) = (f64::INFINITY, f64::INFINITY, [f64::INFINITY; 2]);
            for _ in 0..ROUNDS {
                widened = widened.min(seconds([M, N, K], Layout::Rows(N), |job| job.run(token)));
                if let Some(pairs) = pairs {
                    paired = paired.min(seconds([M, N, K / 2], Layout::Rows(N), |job| job.run_pairs(pairs)));
                }
                if let Some(unit) = unit {
                    for (parts, tiled) in [1, 3].into_iter().zip(&mut tiled) {
                        let layout = Layout::Packed(Packed::new(parts));
                        let parts = [usize::from(parts); 2];
                        let run = |job: Contraction<'_, '_, f32>| {
                            job.run_tiles(None, &Engaged::new(unit), parts, &mut room, None, Partly::default())
                        };
                        *tiled = tiled.min(seconds(UNIT, layout, run));
                    }
                }
            }
            let operations = |[m, n, k]: [usize; 3]| 2.0 * (m * n * k) as f64;
            let of = operations([M, N, K]);
            let [single, triple] = tiled.map(|seconds| seconds / operations(UNIT));
            Self {
                widened: of / widened,
                pairs: pairs.map(|_| of / paired),
                tiles: unit.map(|_| TileRates { single, triple }),
            }
        })
    }
}

const M: usize = 24;
const N: usize = 64;
const K: usize = 128;
/// For the matrix unit: so many columns that packing the left factor takes little.
const UNIT: [usize; 3] = [SQUARE, 512, 256];
const ROUNDS: usize = 7;
const REPEATS: usize = 4;

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
            packed: None,
        });
    }
    begun.elapsed().as_secs_f64() / REPEATS as f64
}

#[cfg(test)]
mod tests {
    use super::TileRates;

    #[test]
    fn what_was_measured_comes_out_again_and_what_lies_between_lies_between() {
        let rates = TileRates { single: 5.0, triple: 24.0 };
        assert_eq!(rates.seconds([1, 1], 1), 5.0);
        assert_eq!(rates.seconds([3, 3], 6), 24.0);
        assert_eq!(rates.seconds([3, 1], 3), 13.0);
        // Loads that take no time, and products that take none.
        assert_eq!(TileRates { single: 1.0, triple: 6.5 }.seconds([3, 1], 3), 3.0);
        assert_eq!(TileRates { single: 6.0, triple: 12.0 }.seconds([3, 1], 3), 12.0);
    }
}
