//! Frames: who holds which element of a tile in registers.
//!
//! A frame puts some axes *down* and some *across*. A tile with one of each is spread over the block's threads as a
//! product: a thread holds the elements at `down positions × across positions`. The accumulator fragments of `mma.sync`
//! are of this form, and so is the usual "neighbouring threads hold neighbouring elements", so that one emitter serves
//! both. A tile with one axis is held by every thread that shares its positions; a tile with none by all.

use super::facts::Carrier;
use einloom_tile::AxisId;
use std::collections::BTreeMap;

/// Names a [`Frame`] of its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub usize);

/// A direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Side {
    /// The rows of accumulator fragments.
    Down,
    /// Their columns.
    Across,
}

/// How the block's threads are arranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arrangement {
    /// Accumulator fragments of `mma.sync.m16n8`, `warps` being down and across. PTX ISA, "Matrix fragments for mma.m16n8k16".
    Fragment {
        /// Warps down and across, powers of two.
        warps: [usize; 2],
    },
    /// Warps, and lanes of a warp, down and across, powers of two; `vector` neighbouring elements across belong to one
    /// thread.
    Blocked {
        /// Warps down and across.
        warps: [usize; 2],
        /// Lanes of a warp down and across, 32 in all.
        lanes: [usize; 2],
        /// Neighbouring lanes that stand below each other; the others stand beside each other first.
        below: usize,
        /// Adjacent elements per thread.
        vector: usize,
    },
}

/// Sides of axes, and threads over them.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// The arrangement of threads.
    pub arrangement: Arrangement,
    /// The side of every axis that tiles of this frame have.
    pub sides: BTreeMap<AxisId, Side>,
}

/// `coefficient * ((thread / divisor) % modulus)`; divisor and modulus are powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digit {
    /// Positions per step.
    pub coefficient: usize,
    /// Threads per step.
    pub divisor: usize,
    /// Steps.
    pub modulus: usize,
}

/// The positions of one axis that a thread holds: element `k` is at
/// `start(thread) + k / vector * step + k % vector`.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// Where a thread's first position is.
    pub start: Vec<Digit>,
    /// Positions per thread.
    pub count: usize,
    /// Adjacent positions.
    pub vector: usize,
    /// From one group of adjacent positions to the next.
    pub step: usize,
    /// Positions `0..cover` are held by some thread; at least the axis's size.
    pub cover: usize,
}

impl Side {
    /// The other one.
    pub fn other(self) -> Self {
        match self {
            Self::Down => Self::Across,
            Self::Across => Self::Down,
        }
    }
}

impl Arrangement {
    /// Threads down and across, powers of two and no fewer than a warp; neighbours are neighbours across.
    pub fn blocked(threads: [usize; 2], vector: usize) -> Self {
        let across = threads[1].min(32);
        let lanes = [32 / across, across];
        let down = (threads[0] * threads[1] / 32 * across / threads[1]).max(1);
        Self::Blocked { warps: [down, threads[1] / across], lanes, below: 1, vector }
    }
}

/// The same with as few digits as there can be, but one.
fn joined(digits: &[Digit]) -> Vec<Digit> {
    let mut out: Vec<Digit> = vec![];
    for next in digits.iter().filter(|d| d.modulus > 1) {
        match out.last_mut() {
            Some(d) if next.divisor == d.divisor * d.modulus && next.coefficient == d.coefficient * d.modulus => {
                d.modulus *= next.modulus;
            }
            _ => out.push(*next),
        }
    }
    if out.is_empty() {
        out.extend(digits.first());
    }
    out
}

impl Span {
    /// The position of element `k` of a thread.
    pub fn position(&self, thread: usize, k: usize) -> usize {
        self.start_of(thread) + self.offset(k)
    }

    /// How far element `k` is from a thread's first.
    pub fn offset(&self, k: usize) -> usize {
        k / self.vector * self.step + k % self.vector
    }

    /// A thread's first position.
    pub fn start_of(&self, thread: usize) -> usize {
        self.start.iter().map(|d| d.coefficient * (thread / d.divisor % d.modulus)).sum()
    }
}

impl Frame {
    /// Threads of the block.
    pub fn threads(&self) -> usize {
        match self.arrangement {
            Arrangement::Fragment { warps } => 32 * warps[0] * warps[1],
            Arrangement::Blocked { warps, .. } => 32 * warps[0] * warps[1],
        }
    }

    /// Whether it holds accumulator fragments.
    pub fn is_fragment(&self) -> bool {
        matches!(self.arrangement, Arrangement::Fragment { .. })
    }

    /// The positions along an axis of at most `size` positions on `side`.
    pub fn span(&self, side: Side, size: usize) -> Span {
        let digit = |coefficient, divisor, modulus| Digit { coefficient, divisor, modulus };
        match (self.arrangement, side) {
            (Arrangement::Fragment { warps }, Side::Down) => {
                let tiles = size.div_ceil(16 * warps[0]).max(1);
                let start = vec![digit(16 * tiles, 32 * warps[1], warps[0]), digit(1, 4, 8)];
                Span { start, count: 2 * tiles, vector: 1, step: 8, cover: 16 * tiles * warps[0] }
            }
            (Arrangement::Fragment { warps }, Side::Across) => {
                // Pairs of tiles: one ldmatrix.x4 feeds two, and two make one operand of the next product.
                let tiles = size.div_ceil(16 * warps[1]).max(1) * 2;
                let start = vec![digit(8 * tiles, 32, warps[1]), digit(2, 1, 4)];
                Span { start, count: 2 * tiles, vector: 2, step: 8, cover: 8 * tiles * warps[1] }
            }
            (Arrangement::Blocked { warps, lanes, below, .. }, Side::Down) => {
                let step = warps[0] * lanes[0];
                let count = size.div_ceil(step).max(1);
                let rest = digit(below, below * lanes[1], lanes[0] / below);
                let start = joined(&[digit(1, 1, below), rest, digit(lanes[0], 32 * warps[1], warps[0])]);
                Span { start, count, vector: 1, step, cover: count * step }
            }
            (Arrangement::Blocked { warps, lanes, below, vector }, Side::Across) => {
                let step = warps[1] * lanes[1] * vector;
                let groups = size.div_ceil(step).max(1);
                let start = joined(&[digit(vector, below, lanes[1]), digit(vector * lanes[1], 32, warps[1])]);
                Span { start, count: groups * vector, vector, step, cover: groups * step }
            }
        }
    }

    /// The bits of the thread number that tell positions on `side` apart, as digits of coefficient 1.
    fn digits(&self, side: Side) -> Vec<Digit> {
        // Neither divisor nor modulus depends on the size.
        self.span(side, 1).start
    }

    /// Lanes that hold other positions of `side` and the same of the other side: masks for a butterfly of shuffles.
    pub fn lane_masks(&self, side: Side) -> Vec<usize> {
        let mut masks = vec![];
        for d in self.digits(side) {
            let mut bit = d.divisor;
            while bit < d.divisor * d.modulus && bit < 32 {
                masks.push(bit);
                bit *= 2;
            }
        }
        masks.sort_unstable();
        masks
    }

    /// The warps that share the positions of `side`: which one a thread's warp is. Modulus 1: a single one.
    pub fn warp_part(&self, side: Side) -> Digit {
        for d in self.digits(side) {
            let end = d.divisor * d.modulus;
            if end > 32 {
                let divisor = d.divisor.max(32);
                return Digit { coefficient: 1, divisor, modulus: end / divisor };
            }
        }
        Digit { coefficient: 1, divisor: 32, modulus: 1 }
    }

    /// A thread for which all of these digits are 0 holds the first positions of `side`.
    pub fn first(&self, side: Side) -> Vec<Digit> {
        self.digits(side).into_iter().filter(|d| d.modulus > 1).collect()
    }

    /// Registers of a tile with these extents on the frame's sides (`None`: no such axis).
    pub fn registers(&self, down: Option<usize>, across: Option<usize>, carrier: Carrier) -> usize {
        let count = |side, size: Option<usize>| size.map_or(1, |s| self.span(side, s).count);
        count(Side::Down, down) * count(Side::Across, across) * carrier.words()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<Frame> {
        let mut out = vec![];
        for warps in [[1, 1], [4, 1], [2, 2], [2, 4], [8, 1]] {
            out.push(Arrangement::Fragment { warps });
        }
        for (threads, vector) in [([1, 32], 1), ([1, 256], 8), ([8, 16], 2), ([4, 64], 4), ([32, 32], 1)] {
            out.push(Arrangement::blocked(threads, vector));
        }
        for (warps, lanes, vector) in
            [([4, 2], [4, 8], 4), ([2, 4], [8, 4], 4), ([1, 4], [2, 16], 1), ([4, 1], [16, 2], 2)]
        {
            let blocked = |below| Arrangement::Blocked { warps, lanes, below, vector };
            out.extend([1, 2].map(blocked));
        }
        out.into_iter().map(|arrangement| Frame { arrangement, sides: BTreeMap::new() }).collect()
    }

    #[test]
    fn every_element_of_a_tile_has_exactly_one_place() {
        for frame in frames() {
            for (rows, columns) in [(64, 64), (128, 64), (100, 24), (1, 300), (37, 1)] {
                let (down, across) = (frame.span(Side::Down, rows), frame.span(Side::Across, columns));
                assert!(down.cover >= rows && across.cover >= columns);
                let mut seen = vec![0; down.cover * across.cover];
                for t in 0..frame.threads() {
                    for i in 0..down.count {
                        for j in 0..across.count {
                            seen[down.position(t, i) * across.cover + across.position(t, j)] += 1;
                        }
                    }
                }
                assert!(seen.iter().all(|&n| n == 1), "{frame:?} {rows}x{columns}");
            }
        }
    }

    /// A reduction along one side: shuffles by the masks, then the partial sums of `warp_part`, must meet every
    /// thread that holds the same positions of the other side exactly once.
    #[test]
    fn butterflies_and_warp_parts_meet_every_position_once() {
        for frame in frames() {
            for side in [Side::Down, Side::Across] {
                let (reduced, kept) = (frame.span(side, 1), frame.span(side.other(), 1));
                let part = frame.warp_part(side);
                for t in 0..frame.threads() {
                    let mut group = std::collections::BTreeSet::from([t]);
                    for mask in frame.lane_masks(side) {
                        group = group.iter().flat_map(|&x| [x, x ^ mask]).collect();
                    }
                    let warps: Vec<usize> = (0..part.modulus)
                        .map(|w| t - t / part.divisor % part.modulus * part.divisor + w * part.divisor)
                        .collect();
                    let whole: std::collections::BTreeSet<usize> =
                        warps.iter().flat_map(|w| group.iter().map(move |g| w / 32 * 32 + g % 32)).collect();
                    let expected: std::collections::BTreeSet<usize> =
                        (0..frame.threads()).filter(|&x| kept.start_of(x) == kept.start_of(t)).collect();
                    assert_eq!(whole, expected, "{frame:?} {side:?} thread {t}");
                    let mut positions: Vec<usize> = whole.iter().map(|&x| reduced.start_of(x)).collect();
                    positions.sort_unstable();
                    positions.dedup();
                    assert_eq!(positions.len(), whole.len(), "{frame:?} {side:?}");
                }
            }
        }
    }

    /// PTX ISA, "Matrix fragments for mma.m16n8k16": the accumulator element `c[2h + p]` of a lane is at row
    /// `lane/4 + 8h` and column `lane%4*2 + p`; the element `a[r].x` of operand A, for register `r` and half `x`, at
    /// row `lane/4 + 8*(r%2)` and column `lane%4*2 + x + 8*(r/2)`.
    #[test]
    fn accumulators_become_the_left_operand_without_moving() {
        let frame = Frame { arrangement: Arrangement::Fragment { warps: [4, 1] }, sides: BTreeMap::new() };
        let (down, across) = (frame.span(Side::Down, 128), frame.span(Side::Across, 64));
        for t in 0..frame.threads() {
            let (warp, lane) = (t / 32, t % 32);
            for m in 0..down.count / 2 {
                for k in 0..across.cover / 16 {
                    for r in 0..4 {
                        for x in 0..2 {
                            let (i, j) = super::super::product::left_element(m, k, r, x);
                            assert_eq!(down.position(t, i), warp * 32 + m * 16 + lane / 4 + 8 * (r % 2));
                            assert_eq!(across.position(t, j), k * 16 + lane % 4 * 2 + x + 8 * (r / 2));
                        }
                    }
                }
            }
        }
    }
}
