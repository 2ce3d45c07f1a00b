//! Bounds where a memory holds elements of each number type alike, and moves them in as many bytes as they have.
//!
//! All that bounds here are made of counts what comes in beside what the memory held before. Give each array a price per byte held, no more than what
//! it moves: then what comes in costs no more than moves, and what the memory held is worth its capacity at the highest price. So each bound
//! holds for prices, in units of the highest, of what comes in, and for places of what is held. Prices here are what moves, but for a highest
//! price: the lowest that there is makes all alike, the highest tells most where what rests is dear.

use super::{Incoming, ProjectiveNest};
use std::collections::BTreeSet;

impl ProjectiveNest {
    /// The most bytes that a bound gives for any highest price.
    pub(super) fn bytes(&self, bound: impl Fn(&Self) -> Incoming) -> f64 {
        let of =
            |part: Self| part.highest_prices().map(|price| price * bound(&part.at(price)).all()).fold(0.0, f64::max);
        self.parts().map(of).fold(0.0, f64::max)
    }

    /// The same for bounds where all points are met, so that every element that is read comes in: what each has beyond its price is moved once.
    pub(super) fn bytes_where_all_meet(&self, bound: impl Fn(&Self) -> Option<Incoming>) -> f64 {
        let bytes = |price: f64| {
            let priced = self.at(price);
            let more = |(moved, paid): (f64, f64)| moved - price * paid;
            let once = self.arrays.iter().zip(&priced.arrays);
            let beyond: f64 = once.map(|(a, p)| more((a.read_bytes, p.read_bytes)) * self.positions(&a.over)).sum();
            Some(price * bound(&priced)?.all() + beyond)
        };
        self.highest_prices().filter_map(bytes).fold(0.0, f64::max)
    }

    /// What bytes of arrays that are read move per byte held.
    pub(super) fn highest_prices(&self) -> impl Iterator<Item = f64> {
        let read = self.arrays.iter().filter(|a| a.read_bytes > 0.0 && a.bytes > 0.0);
        // They are positive, so that their bits are in their order.
        let prices: BTreeSet<u64> = read.map(|a| (a.read_bytes / a.bytes).to_bits()).collect();
        prices.into_iter().map(f64::from_bits)
    }

    /// The same nest, what moves counted in units of this highest price.
    pub(super) fn at(&self, price: f64) -> Self {
        let mut out = self.clone();
        for a in &mut out.arrays {
            a.read_bytes = (a.read_bytes / price).min(a.bytes);
            a.again_bytes = (a.again_bytes / price).min(a.bytes);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use crate::bounds::{NestArray, ProjectiveNest};
    use std::collections::BTreeSet;

    /// A product of `q` rows and `n` columns of results that sum up `k` products each, of which elements of the factors and sums move in so many bytes. All are held in four.
    fn product([q, n, k]: [u64; 3], [one, other, sum]: [f64; 3]) -> ProjectiveNest {
        let array = |name: &str, over: [usize; 2], read_bytes: f64, again_bytes: f64| {
            let sum = read_bytes == 0.0;
            NestArray { name: name.to_string(), over: BTreeSet::from(over), bytes: 4.0, read_bytes, again_bytes, sum }
        };
        let arrays =
            vec![array("A", [0, 2], one, one), array("B", [1, 2], other, other), array("C", [0, 1], 0.0, 2.0 * sum)];
        ProjectiveNest { extents: vec![q, n, k], points: (q * n * k) as f64, arrays, ..ProjectiveNest::default() }
    }

    /// The least that comes in, of all tiles of sums, rows that stay of either factor, and factors that stay as a whole.
    fn least([q, n, k]: [u64; 3], [one, other]: [f64; 2], elements: u64) -> f64 {
        let mut least = f64::INFINITY;
        let [a, b] = [one * (q * k) as f64, other * (n * k) as f64];
        for r in 1..=q {
            let columns = (elements.saturating_sub(1 + r) / r).min(n);
            let tiles = |s: u64| n.div_ceil(s) as f64 * a + q.div_ceil(r) as f64 * b;
            least = least.min(if columns > 0 { tiles(columns) } else { f64::INFINITY });
            least = least.min(if r * k + k < elements { a + q.div_ceil(r) as f64 * b } else { f64::INFINITY });
            least = least.min(if r * k + k < elements { b + n.div_ceil(r) as f64 * a } else { f64::INFINITY });
        }
        least
    }

    #[test]
    fn what_moves_counts_and_not_what_is_held() {
        let (mut all, mut near) = (0, 0);
        for sizes in [[64, 64, 256], [200, 90, 300], [90, 200, 300], [128, 128, 16]] {
            for types in [[2.0, 4.0], [4.0, 2.0], [8.0, 8.0], [8.0, 4.0], [1.0, 8.0], [2.0, 2.0], [4.0, 4.0]] {
                for elements in [100u64, 400, 1600] {
                    let nest = product(sizes, [types[0], types[1], types[0].max(types[1])]);
                    let (found, capacity) = (least(sizes, types, elements), 4.0 * elements as f64);
                    let any = nest.bytes(|n| n.incoming(capacity));
                    let some = nest.bytes_where_all_meet(|n| n.incoming_beside_a_factor_or_sums(capacity));
                    let case = format!("{sizes:?} of {types:?} bytes at {elements}: {found} of {any} and {some}");
                    assert!(any <= found && some <= found, "{case}");
                    (all, near) = (all + 1, near + usize::from(1.3 * any.max(some) > found));
                }
            }
        }
        assert!(4 * near > 3 * all, "{near} of {all}");
    }

    /// `2abc √(xy) / √M`, where elements of the factors move in `x` and `y` bytes; half as much for half as many.
    #[test]
    fn products_of_two_number_types_have_a_closed_form() {
        for [one, other, sum] in [[2.0, 4.0, 4.0], [8.0, 8.0, 8.0], [8.0, 4.0, 8.0], [2.0, 2.0, 4.0], [4.0, 4.0, 2.0]] {
            let (sizes, elements) = ([512u64, 512, 512], 1024.0f64);
            let closed = 2.0 * 512f64.powi(3) * f64::sqrt(one * other) / elements.sqrt();
            let found = product(sizes, [one, other, sum]).bytes(|n| n.incoming(4.0 * elements));
            assert!((found / closed - 1.0).abs() < 1e-3, "{one}, {other}, {sum}: {found} and {closed}");
        }
    }
}
