//! Which elements of a tile's rows a predicate leaves.

use std::ops::Range;

/// Where all of `outer * row + inner * column + rest >= 0`: in every row adjacent columns, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Live {
    conjuncts: Vec<[i64; 3]>,
    columns: usize,
}

/// The first column for which a conjunct holds, and the first after them for which it does not; of so many columns or not.
fn ends([outer, inner, rest]: [i64; 3], row: usize, columns: i64) -> (i64, i64) {
    let rest = rest + outer * row as i64;
    match inner {
        0 if rest < 0 => (0, 0),
        0 => (0, columns),
        // The most frequent ones need no division.
        1 => (-rest, columns),
        -1 => (0, rest + 1),
        c if c > 0 => (-rest.div_euclid(c), columns),
        c => (0, rest.div_euclid(-c) + 1),
    }
}

/// Both ends moved into so many columns.
fn within([low, high]: [i64; 2], columns: usize) -> Range<usize> {
    let low = low.clamp(0, columns as i64);
    low as usize..high.clamp(low, columns as i64) as usize
}

impl Live {
    /// Of rows of so many columns.
    pub(crate) fn new(conjuncts: Vec<[i64; 3]>, columns: usize) -> Self {
        Self { conjuncts, columns }
    }

    /// Columns of the tile: those of its rows are among them.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// The columns of a row.
    pub(crate) fn row(&self, row: usize) -> Range<usize> {
        let columns = self.columns as i64;
        let both = self.conjuncts.iter().fold([0, columns], |[low, high], conjunct| {
            let (from, to) = ends(*conjunct, row, columns);
            [low.max(from), high.min(to)]
        });
        within(both, self.columns)
    }

    /// Columns outside of which none of these rows has any, and columns that all of them have.
    pub(crate) fn rows(&self, rows: Range<usize>) -> [Range<usize>; 2] {
        let columns = self.columns as i64;
        let (mut some, mut all) = ([0, columns], [0, columns]);
        let last = rows.end.max(rows.start + 1) - 1;
        for conjunct in &self.conjuncts {
            // Each conjunct's ends only grow from row to row, or only fall.
            let (first, last) = (ends(*conjunct, rows.start, columns), ends(*conjunct, last, columns));
            some = [some[0].max(first.0.min(last.0)), some[1].min(first.1.max(last.1))];
            all = [all[0].max(first.0.max(last.0)), all[1].min(first.1.min(last.1))];
        }
        [within(some, self.columns), within(all, self.columns)]
    }
}

/// Of 32 elements from one on, a bit for each that is among these.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(crate) fn bits(live: &Range<usize>, from: usize) -> u32 {
    let below = |end: usize| (1u64 << end.saturating_sub(from).min(32)) - 1;
    (below(live.end) & !below(live.start)) as u32
}

#[cfg(test)]
mod tests {
    use super::{Live, bits};

    /// Every small predicate of up to two conjuncts, against its definition.
    #[test]
    fn intervals_and_hulls_are_what_the_definition_says() {
        let few = [-3, -2, -1, 0, 1, 2, 3];
        let mut all = vec![];
        for outer in few {
            for inner in few {
                all.extend([-7, -1, 0, 4, 9].map(|rest| [outer, inner, rest]));
            }
        }
        for (number, one) in all.iter().enumerate() {
            let another = all[(number * 31 + 7) % all.len()];
            for conjuncts in [vec![*one], vec![*one, another]] {
                let columns = 11;
                let live = Live::new(conjuncts.clone(), columns);
                let holds = |row: usize, column: usize| {
                    conjuncts.iter().all(|[o, i, r]| o * row as i64 + i * column as i64 + r >= 0)
                };
                for row in 0..9 {
                    let range = live.row(row);
                    for column in 0..columns {
                        assert_eq!(range.contains(&column), holds(row, column), "{conjuncts:?} {row} {column}");
                    }
                }
                let [some, every] = live.rows(2..6);
                for column in 0..columns {
                    let of = (2..6).map(|row| holds(row, column));
                    assert!(some.contains(&column) || !of.clone().any(|x| x), "{conjuncts:?} {column}");
                    assert!(!every.contains(&column) || of.clone().all(|x| x), "{conjuncts:?} {column}");
                }
            }
        }
        let causal = Live::new(vec![[1, -1, 0]], 100);
        assert_eq!(causal.rows(32..64), [0..64, 0..33]);
    }

    #[test]
    fn a_bit_stands_for_each_element() {
        assert_eq!(bits(&(0..100), 32), u32::MAX);
        assert_eq!(bits(&(3..5), 0), 0b11000);
        assert_eq!(bits(&(3..40), 32), 0xff);
        assert_eq!(bits(&(40..70), 32), 0xffff_ff00);
        assert_eq!(bits(&(0..4), 32), 0);
        assert_eq!(bits(&(70..70), 64), 0);
    }
}
