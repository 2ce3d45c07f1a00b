//! Small systems of linear equations, solved exactly.

use num_rational::Ratio;

type Q = Ratio<i64>;

/// A solution of `rows · x = right`, and whether it is the only one; `None` if there is none.
pub(super) fn solve(rows: &[Vec<Q>], right: &[Q]) -> Option<(Vec<Q>, bool)> {
    let unknowns = rows.first().map_or(0, Vec::len);
    let zero = Q::default();
    let mut m: Vec<Vec<Q>> = rows.iter().zip(right).map(|(r, b)| r.iter().copied().chain([*b]).collect()).collect();
    let mut pivots = vec![];
    let mut at = 0;
    for column in 0..unknowns {
        let Some(found) = (at..m.len()).find(|&r| m[r][column] != zero) else { continue };
        m.swap(at, found);
        let by = m[at][column];
        m[at].iter_mut().for_each(|x| *x /= by);
        let pivot = m[at].clone();
        for (r, row) in m.iter_mut().enumerate().filter(|(r, _)| *r != at) {
            debug_assert_ne!(r, at);
            let factor = row[column];
            row.iter_mut().zip(&pivot).for_each(|(x, p)| *x -= factor * p);
        }
        pivots.push(column);
        at += 1;
    }
    if m[at..].iter().any(|row| row[unknowns] != zero) {
        return None;
    }
    let mut x = vec![zero; unknowns];
    for (row, &column) in pivots.iter().enumerate() {
        x[column] = m[row][unknowns];
    }
    Some((x, pivots.len() == unknowns))
}
