//! Positions: which are visited, and where indices stand.

use einloom_cascade::IndexId;
use std::ops::Range;

/// Positions of a shape, row-major.
pub(super) struct Places {
    ranges: Vec<Range<usize>>,
    at: Vec<usize>,
    begun: bool,
}

impl Places {
    /// All of a shape.
    pub fn of(shape: &[usize]) -> Self {
        Self { ranges: shape.iter().map(|&n| 0..n).collect(), at: vec![], begun: false }
    }

    /// Only those that lie in a range along a dimension.
    pub fn within(&mut self, dim: usize, range: Range<usize>) {
        let own = &mut self.ranges[dim];
        *own = own.start.max(range.start)..own.end.min(range.end);
    }

    /// The next one.
    pub fn next(&mut self) -> Option<&[usize]> {
        if !std::mem::replace(&mut self.begun, true) {
            self.at = self.ranges.iter().map(|r| r.start).collect();
            return self.ranges.iter().all(|r| !r.is_empty()).then_some(&self.at);
        }
        for (at, range) in self.at.iter_mut().zip(&self.ranges).rev() {
            *at += 1;
            if range.contains(at) {
                return Some(&self.at);
            }
            *at = range.start;
        }
        None
    }

    /// All of them, as they are counted row-major in this shape.
    pub fn numbers(mut self, shape: &[usize]) -> Vec<usize> {
        let mut out = vec![];
        while let Some(at) = self.next() {
            out.push(at.iter().zip(shape).fold(0, |number, (p, size)| number * size + p));
        }
        out
    }
}

/// Where indices stand: a few, which are looked through.
#[derive(Clone)]
pub(super) struct Standing(Vec<(IndexId, i64)>);

impl Standing {
    pub fn new(axes: &[IndexId], at: &[usize]) -> Self {
        let mut standing = Self(Vec::with_capacity(axes.len() + 2));
        axes.iter().zip(at).for_each(|(&i, &p)| standing.set(i, p as i64));
        standing
    }

    pub fn get(&self, index: IndexId) -> Option<i64> {
        self.0.iter().find(|(i, _)| *i == index).map(|(_, p)| *p)
    }

    pub fn set(&mut self, index: IndexId, position: i64) {
        match self.0.iter_mut().find(|(i, _)| *i == index) {
            Some((_, p)) => *p = position,
            None => self.0.push((index, position)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(mut places: Places) -> Vec<Vec<usize>> {
        let mut out = vec![];
        while let Some(at) = places.next() {
            out.push(at.to_vec());
        }
        out
    }

    #[test]
    fn positions_are_visited_row_major_and_within_ranges_only() {
        assert_eq!(all(Places::of(&[2, 2])), [[0, 0], [0, 1], [1, 0], [1, 1]]);
        assert_eq!(all(Places::of(&[])), [[0usize; 0]], "one position of no dimensions");
        assert_eq!(all(Places::of(&[2, 0])), [[0usize; 0]; 0]);
        let mut some = Places::of(&[2, 4]);
        some.within(1, 2..7);
        assert_eq!(some.numbers(&[2, 4]), [2, 3, 6, 7]);
        let mut none = Places::of(&[2, 4]);
        none.within(0, 2..3);
        assert_eq!(all(none), [[0usize; 0]; 0]);
    }
}
