//! How fast the ways to multiply bf16 are on the processor at hand, measured once.

use super::tiles::{Partly, Room, SQUARE};
use super::{Ahead, Contraction, Layout, Packed, Scale, Start};
use crate::kernels::isa::{Isa, Token};
use crate::kernels::unit::{Engaged, UnitToken, Way};
use std::sync::OnceLock;
use std::time::Instant;

/// Rates of one thread's products of bf16 matrices in the caches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProductRates {
    /// Operations per second by widening to f32 and multiply-adds of f32.
    pub widened: f64,
    /// By instructions that multiply pairs of bf16 and add to f32. `None` if the processor has none.
    pub pairs: Option<UnitRates>,
    /// By the processor's matrix unit. `None` if it has none.
    pub tiles: Option<UnitRates>,
}

/// How long what multiplies bf16 takes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitRates {
    /// Seconds of one thread for an operation (of the product that is wanted) on factors of one part each.
    pub single: f64,
    /// The same on factors that are sums of three parts each, which take six products.
    pub triple: f64,
}

impl UnitRates {
    /// Seconds for an operation on factors of so many parts: some for each part that is loaded, some for each product.
    pub(crate) fn seconds(self, parts: [usize; 2], products: usize) -> f64 {
        // single = 2 part + product, triple = 6 part + 6 product.
        let part = (self.single - self.triple / 6.0).clamp(0.0, self.single / 2.0);
        let product = self.single - 2.0 * part;
        part * (parts[0] + parts[1]) as f64 + product.max(0.0) * products as f64
    }
}

impl ProductRates {
    pub(crate) fn of(&self, way: Way) -> Option<UnitRates> {
        match way {
            Way::Tiles => self.tiles,
            Way::Pairs => self.pairs,
        }
    }

    /// The rates of this processor, with its fastest instructions: measured at the first call, in a fraction of a
    /// millisecond.
    pub fn measured() -> Self {
        static RATES: OnceLock<ProductRates> = OnceLock::new();
        *RATES.get_or_init(Self::measured_now)
    }

    /// The same, measured at each call.
    pub(crate) fn measured_now() -> Self {
        let mut all = Self { widened: 0.0, pairs: None, tiles: None };
        let Some(token) = Token::new(Isa::best()) else { return all };
        let units: Vec<UnitToken> = UnitToken::all(token).collect();
        let mut room = Room::default();
        // Alternating, so that all see the clock that the others leave behind.
        let (mut widened, mut best) = (f64::INFINITY, vec![[f64::INFINITY; 2]; units.len()]);
        for _ in 0..ROUNDS {
            widened = widened.min(seconds([M, N, K], Layout::Rows(N), |job| job.run(token)));
            for (unit, best) in units.iter().zip(&mut best) {
                for (parts, best) in [1, 3].into_iter().zip(best) {
                    let layout = Layout::Packed(Packed::new(parts));
                    let parts = [usize::from(parts); 2];
                    let run = |job: Contraction<'_, '_, f32>| {
                        job.run_tiles(None, &Engaged::new(*unit), parts, &mut room, None, Partly::default())
                    };
                    *best = best.min(seconds(SQUARES, layout, run));
                }
            }
        }
        let operations = |[m, n, k]: [usize; 3]| 2.0 * (m * n * k) as f64;
        all.widened = operations([M, N, K]) / widened;
        for (unit, best) in units.iter().zip(best) {
            let [single, triple] = best.map(|seconds| seconds / operations(SQUARES));
            let rates = Some(UnitRates { single, triple });
            match unit.way() {
                Way::Tiles => all.tiles = rates,
                Way::Pairs => all.pairs = rates,
            }
        }
        all
    }
}

const M: usize = 24;
const N: usize = 64;
const K: usize = 128;
/// Of packed squares: so many columns that packing the left factor takes little.
const SQUARES: [usize; 3] = [SQUARE, 512, 256];
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
    use super::UnitRates;

    #[test]
    fn what_was_measured_comes_out_again_and_what_lies_between_lies_between() {
        let rates = UnitRates { single: 5.0, triple: 24.0 };
        assert_eq!(rates.seconds([1, 1], 1), 5.0);
        assert_eq!(rates.seconds([3, 3], 6), 24.0);
        assert_eq!(rates.seconds([3, 1], 3), 13.0);
        // Loads that take no time, and products that take none.
        assert_eq!(UnitRates { single: 1.0, triple: 6.5 }.seconds([3, 1], 3), 3.0);
        assert_eq!(UnitRates { single: 6.0, triple: 12.0 }.seconds([3, 1], 3), 12.0);
    }
}
