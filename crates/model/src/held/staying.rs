//! What a kernel holds where some of its tiles stay from one point of the grid, or one chunk, to the next: nothing takes their place meanwhile.
//!
//! Which tiles stay is asked many times with the same sizes. What is there at each moment is added up once for them all; where some stay,
//! that is the most that there can be beside them, and moments are looked at from the largest on, as long as one may be more than those before.

use super::{Held, Way, elements_of, side};
use crate::by_rows::{ByRows, TailByRows};
use crate::gpu::registers::Moments;
use einloom_tile::{Kernel, ValueId};
use std::cell::OnceCell;
use std::collections::BTreeSet;

/// A kernel with some size of tiles, of which some may stay.
pub(crate) struct Staying<'a> {
    held: &'a Held,
    kernel: &'a Kernel,
    /// By tile.
    sizes: OnceCell<Vec<f64>>,
    /// Of each way to go through the kernel its places.
    ways: OnceCell<Vec<Vec<Place<'a>>>>,
}

/// A place of a kernel.
struct Place<'a> {
    /// Elements that are there besides.
    beside: f64,
    /// The ways to go through it.
    courses: Vec<Course<'a>>,
}

/// One way to go through a place, with its moments.
struct Course<'a> {
    goes: Goes<'a>,
    /// What is there at all of them.
    whole: f64,
    /// What is there beside that at each, descending.
    moments: Vec<(f64, usize)>,
}

/// Operation by operation, or along rows, of which a tile has so many.
enum Goes<'a> {
    AtOnce(&'a Moments),
    ByRows(&'a ByRows, f64),
    AtTheEnd(&'a TailByRows, f64),
}

impl Goes<'_> {
    fn count(&self) -> usize {
        match self {
            Self::AtOnce(m) => m.count(),
            Self::ByRows(r, _) => r.count(),
            Self::AtTheEnd(r, _) => r.count(),
        }
    }

    fn whole(&self, counted: &[f64]) -> f64 {
        match self {
            Self::AtOnce(_) => 0.0,
            Self::ByRows(r, _) => r.whole(counted),
            Self::AtTheEnd(r, _) => r.whole(counted),
        }
    }

    fn sum(&self, moment: usize, sizes: &[f64], counted: &[f64]) -> f64 {
        match self {
            Self::AtOnce(m) => m.sum(moment, sizes, counted),
            Self::ByRows(r, side) => r.sum(moment, counted, *side),
            Self::AtTheEnd(r, side) => r.sum(moment, counted, *side),
        }
    }
}

impl<'a> Course<'a> {
    fn new(goes: Goes<'a>, sizes: &[f64]) -> Self {
        let mut moments: Vec<(f64, usize)> = (0..goes.count()).map(|m| (goes.sum(m, sizes, sizes), m)).collect();
        moments.sort_by(|a, b| b.0.total_cmp(&a.0));
        Self { whole: goes.whole(sizes), moments, goes }
    }

    /// The most that there can be, whatever stays beside.
    fn bound(&self) -> f64 {
        self.whole + self.moments.first().map_or(0.0, |m| m.0)
    }

    /// The most that there is at once of what is `counted`; `None` if that is `limit` or more.
    fn most(&self, sizes: &[f64], counted: &[f64], limit: f64) -> Option<f64> {
        let whole = self.goes.whole(counted);
        let mut most = 0.0f64;
        for &(bound, moment) in &self.moments {
            if whole + most >= limit {
                return None;
            }
            if bound <= most {
                break;
            }
            most = most.max(self.goes.sum(moment, sizes, counted));
        }
        Some(whole + most).filter(|most| *most < limit)
    }
}

impl<'a> Staying<'a> {
    pub fn new(held: &'a Held, kernel: &'a Kernel) -> Self {
        Self { held, kernel, sizes: OnceCell::new(), ways: OnceCell::new() }
    }

    /// [`held_elements`](super::held_elements) where these tiles are there all the time.
    pub fn elements(&self, kept: &BTreeSet<ValueId>) -> u64 {
        if kept.is_empty() {
            return self.held.elements(self.kernel);
        }
        let sizes = self.sizes.get_or_init(|| elements_of(self.kernel, &self.held.sides));
        let ways = self.ways.get_or_init(|| self.held.ways.iter().map(|way| places(way, self.kernel, sizes)).collect());
        // Beside what stays.
        let mut counted = sizes.clone();
        kept.iter().for_each(|v| counted[v.at()] = 0.0);
        let least = ways.iter().fold(f64::INFINITY, |least, places| {
            // As long as it may be less than that of the ways before.
            let most = places
                .iter()
                .fold(0.0f64, |most, place| if most < least { place.most(sizes, &counted, most) } else { most });
            least.min(most)
        });
        (kept.iter().map(|v| sizes[v.at()]).sum::<f64>() + least) as u64
    }
}

impl Place<'_> {
    /// What is there of what is `counted` in the best of the ways to go through it, or `others` if that is more.
    fn most(&self, sizes: &[f64], counted: &[f64], others: f64) -> f64 {
        if self.courses.iter().any(|c| c.bound() + self.beside <= others) {
            return others;
        }
        let mut least = f64::INFINITY;
        for course in &self.courses {
            least = course.most(sizes, counted, least).unwrap_or(least);
        }
        others.max(least + self.beside)
    }
}

fn places<'a>(way: &'a Way, kernel: &Kernel, sizes: &[f64]) -> Vec<Place<'a>> {
    let place = |beside: f64, at_once: &'a Moments, rows: Vec<Goes<'a>>| {
        let all = std::iter::once(Goes::AtOnce(at_once)).chain(rows);
        Place { beside, courses: all.map(|goes| Course::new(goes, sizes)).collect() }
    };
    let (tail, rows) = &way.tail;
    let rows = rows.iter().map(|r| Goes::AtTheEnd(r, side(kernel, r.axis))).collect();
    let ends = [place(way.beside, &way.moments, vec![]), place(way.beside, tail, rows)];
    let streams = way.streams.iter().map(|(moments, rows)| {
        let rows = rows.iter().map(|r| Goes::ByRows(r, side(kernel, r.axis))).collect();
        place(0.0, moments, rows)
    });
    ends.into_iter().chain(streams).collect()
}

#[cfg(test)]
mod tests {
    use super::{Held, Staying};
    use einloom_cascade::DType::F32;
    use einloom_tile::ValueId;
    use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
    use std::collections::BTreeSet;

    #[test]
    fn a_factor_that_stays_is_whole_and_the_other_passes() {
        let program = matmul([256, 256, 256], [64, 128, 32], F32).expect("well-formed");
        let kernel = &program.kernels[0];
        let held = Held::new(kernel);
        let (staying, sums) = (Staying::new(&held, kernel), 64 * 128);
        let with = |name: &str| {
            let at = kernel.values.iter().position(|v| v.name == name).expect("it has this tile");
            staying.elements(&BTreeSet::from([ValueId(at as u32)]))
        };
        assert_eq!(with("a"), sums + 64 * 32 + 1);
        assert_eq!(with("b"), sums + 32 * 128 + 1);
    }

    #[test]
    fn what_stays_adds_at_most_its_elements_and_more_of_it_never_less() {
        let sizes = AttentionSizes { b: 1, h: 2, m: 100, n: 130, d: 24, e: 40 };
        let program = attention(sizes, [16, 32], false, F32).expect("well-formed");
        let kernel = &program.kernels[0];
        let held = Held::new(kernel);
        let staying = Staying::new(&held, kernel);
        let (mut kept, mut before) = (BTreeSet::new(), held.elements(kernel));
        let sides = super::elements_of(kernel, &held.sides);
        for (v, size) in sides.into_iter().enumerate() {
            kept.insert(ValueId(v as u32));
            let now = staying.elements(&kept);
            assert!((before..=before + size as u64).contains(&now), "{v}: {before} and {size}, {now}");
            before = now;
        }
    }
}
