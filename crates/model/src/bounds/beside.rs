//! What a group of rows holds beside the rows while it meets a column.

use std::collections::BTreeSet;

/// What a group of rows holds beside what is read of them and their sums.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beside {
    /// Bytes that each row carries from column to column: maxima, sums of weights.
    pub carried: f64,
    /// Numbers of a row and a column at once, the sum or weight among them, at the worst moment between the first product of
    /// the two and the last: `x`. 0 if nothing is known of them.
    pub numbers: usize,
    /// Bytes of one of these numbers.
    pub number: f64,
    /// The arrays that a row uses only when its weight for the column is complete.
    pub last: BTreeSet<String>,
}

impl Beside {
    /// Rows of `row` bytes that a group may have, for columns of `column` bytes, of which a row uses `last` when its weight is
    /// complete.
    ///
    /// A group's `p` rows meet a column that is neither its first nor its last, so that all of them are there. Beside them are
    /// held at some moment, counted in numbers, at least `min(D + x, p - 1 + min(x, V + 1))`, where `D` and `V` are a column's
    /// elements and those of them that wait for the weight. Of a row that has begun with the column and is not done with it
    /// there is a number at least. A row that is done has used all `D`, one that has not begun needs all of them: while there
    /// are both, `D` are there. Let `θ` be when the first row uses its last element.
    ///
    /// - If then none has still to begin, `p - 1` others have a number. If one of them has used nothing of the `V`, these are
    ///   all there, with the first row's weight. Else all `x` of each row were there before any row was done: when the last row
    ///   had its `x`, the `p - 1` others had one.
    /// - Else `D` are there, with the first row's weight and the numbers of `b` rows that are on their way: `D + b + 1`. The
    ///   next row that comes to hold its `x` finds a row that has still to begin: then `D + x` are there. Or it finds none:
    ///   then all of the `p - 2 - b` others that had still to begin have a number, and as its weight is not used yet the `V`
    ///   are there: `V + p - 2 - b + x`. If `b + 1 ≥ x` the former is at least `D + x`, else the latter at least `V + p`.
    pub(super) fn rows(&self, capacity: f64, [row, column]: [f64; 2], last: f64) -> f64 {
        if self.numbers == 0 {
            // A byte of a column at least.
            return ((capacity - 1.0) / row).floor();
        }
        let x = self.numbers as f64 * self.number;
        let one_by_one = (capacity - column - x) / row;
        let together = (capacity + self.number - x.min(last + self.number)) / (row + self.number);
        one_by_one.floor().max(together.floor())
    }
}

#[cfg(test)]
mod tests {
    use super::Beside;
    use std::cmp::Reverse;
    use std::collections::{BTreeSet, BinaryHeap};

    /// An element of a column.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Element {
        Outside,
        There,
        Gone,
    }

    /// How far a row is: it sums up the first elements, makes a weight of the sum, multiplies the last ones by it.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Row {
        Sums(u8),
        Weighs(u8),
    }

    type State = (Vec<Element>, Vec<Row>);

    /// The fewest elements with which so many rows meet a column of `first` and `last` elements, each brought in once, found by
    /// trying all orders; `x` numbers are held when a sum becomes a weight.
    fn fewest(rows: usize, first: usize, last: usize, x: usize) -> usize {
        let whole = |n: usize| (1u8 << n) - 1;
        let numbers = |r: &Row| match r {
            Row::Sums(0) => 0,
            Row::Sums(_) => 1,
            Row::Weighs(v) => usize::from(*v != whole(last)),
        };
        let held = |(elements, rows): &State| {
            elements.iter().filter(|e| **e == Element::There).count() + rows.iter().map(numbers).sum::<usize>()
        };
        let start: State = (vec![Element::Outside; first + last], vec![Row::Sums(0); rows]);
        let mut seen = BTreeSet::new();
        let mut queue = BinaryHeap::from([Reverse((0usize, start))]);
        while let Some(Reverse((peak, state))) = queue.pop() {
            if !seen.insert(state.clone()) {
                continue;
            }
            if state.1.iter().all(|r| *r == Row::Weighs(whole(last))) {
                return peak;
            }
            let now = held(&state);
            let mut go = |next: State, during: usize| {
                let peak = peak.max(during).max(held(&next));
                queue.push(Reverse((peak, next)));
            };
            for e in 0..first + last {
                let to = match state.0[e] {
                    Element::Outside => Element::There,
                    Element::There => Element::Gone,
                    Element::Gone => continue,
                };
                let mut next = state.clone();
                next.0[e] = to;
                go(next, now);
            }
            for r in 0..rows {
                let mut step = |to: Row, during: usize| {
                    let mut next = state.clone();
                    next.1[r] = to;
                    next.1.sort();
                    go(next, during);
                };
                match state.1[r] {
                    Row::Sums(k) if k == whole(first) => step(Row::Weighs(0), now - 1 + x),
                    Row::Sums(k) => (0..first)
                        .filter(|e| k >> e & 1 == 0 && state.0[*e] == Element::There)
                        .for_each(|e| step(Row::Sums(k | 1 << e), now)),
                    // The weight is there while the last product is added.
                    Row::Weighs(v) => (0..last)
                        .filter(|e| v >> e & 1 == 0 && state.0[first + e] == Element::There)
                        .for_each(|e| step(Row::Weighs(v | 1 << e), now)),
                }
            }
        }
        usize::MAX
    }

    #[test]
    fn no_order_holds_less() {
        let (mut tried, mut met) = (0, 0);
        for (rows, first, last, x) in (1..=5)
            .flat_map(|p| [1, 2].into_iter().flat_map(move |k| [1, 2].into_iter().map(move |v| (p, k, v))))
            .flat_map(|(p, k, v)| (1..=3).map(move |x| (p, k, v, x)))
        {
            let names = BTreeSet::from(["V".to_string()]);
            let beside = Beside { carried: 0.0, numbers: x, number: 1.0, last: names };
            let fewest = fewest(rows, first, last, x);
            // Rows of as much as a row may have, so that one more or less is seen.
            let (row, column) = (100.0, (first + last) as f64);
            let fits = |elements: usize| {
                beside.rows(rows as f64 * row + elements as f64, [row, column], last as f64) >= rows as f64
            };
            assert!(fits(fewest), "{rows} rows, {first} and {last} elements, {x} numbers: {fewest} do");
            (tried, met) = (tried + 1, met + usize::from(!fits(fewest - 1)));
        }
        assert!(2 * met > tried, "{met} of {tried} are as few as can be");
    }
}
