//! What a result must not depend on: the order of points, and what memory held before.

/// A byte of memory that nothing was written to. Floating-point numbers of any type made of it are NaN.
pub(crate) const SPOILT: u8 = 0xff;

/// Points in another order.
pub(crate) struct Disorder(Vec<usize>);

impl Disorder {
    /// An order of so many points, drawn from a seed: by turns any, the usual one backwards, and the usual one in which
    /// neighbours changed places, because much is kept from one point to the next in that only. The usual one without a
    /// seed.
    pub(crate) fn new(seed: Option<u64>, count: usize) -> Self {
        let mut points: Vec<usize> = (0..count).collect();
        let Some(seed) = seed else { return Self(points) };
        // xorshift64* (S. Vigna, 2016).
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut below = |n: usize| {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % n
        };
        match seed % 3 {
            0 => (1..count).rev().for_each(|k| points.swap(k, below(k + 1))),
            1 => points.reverse(),
            _ => (1..count).for_each(|k| points.swap(k, k - below(3).min(k))),
        }
        Self(points)
    }

    /// The point that is taken in the place of this one.
    pub(crate) fn point(&self, number: usize) -> usize {
        self.0[number]
    }
}

#[cfg(test)]
mod tests {
    use super::Disorder;

    #[test]
    fn every_point_is_taken_once_whatever_the_seed() {
        for seed in 0..30 {
            for count in [0, 1, 2, 17, 100] {
                let mut points: Vec<usize> = (0..count).map(|k| Disorder::new(Some(seed), count).point(k)).collect();
                assert!(count < 17 || !points.is_sorted(), "seed {seed}");
                points.sort_unstable();
                assert_eq!(points, (0..count).collect::<Vec<_>>());
            }
        }
    }
}
