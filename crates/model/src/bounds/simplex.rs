//! Linear programs of a few variables, solved exactly.

use num_rational::Ratio;

type Q = Ratio<i64>;

/// A solution of `max Σ y, A y ≤ 1, y ≥ 0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Solution {
    /// The optimum, which is also that of the dual `min Σ s, Aᵀ s ≥ 1, s ≥ 0`.
    pub value: Q,
    /// One per column.
    pub primal: Vec<Q>,
    /// One per row.
    pub dual: Vec<Q>,
}

/// Solves it by the simplex method with Bland's rule, which ends; `None` if some column is in no row: unbounded.
/// `rows[r]` lists the columns with coefficient 1.
pub(super) fn pack(rows: &[Vec<usize>], columns: usize) -> Option<Solution> {
    let (zero, one) = (Q::default(), Q::from(1));
    let width = columns + rows.len();
    // The tableau: constraints with slacks, and the right side last.
    let mut table: Vec<Vec<Q>> = vec![];
    for (r, row) in rows.iter().enumerate() {
        let mut line = vec![zero; width + 1];
        row.iter().filter(|&&c| c < columns).for_each(|&c| line[c] = one);
        line[columns + r] = one;
        line[width] = one;
        table.push(line);
    }
    // What raising a variable gains, less what it costs.
    let mut gain: Vec<Q> = (0..=width).map(|c| if c < columns { one } else { zero }).collect();
    let mut basis: Vec<usize> = (columns..width).collect();
    while let Some(enter) = (0..width).find(|&c| gain[c] > zero) {
        let ratio = |r: &usize| (table[*r][width] / table[*r][enter], basis[*r]);
        let leave = (0..table.len()).filter(|&r| table[r][enter] > zero).min_by_key(ratio)?;
        let by = table[leave][enter];
        table[leave].iter_mut().for_each(|x| *x /= by);
        let pivot = table[leave].clone();
        for (r, line) in table.iter_mut().enumerate() {
            if r != leave {
                let factor = line[enter];
                line.iter_mut().zip(&pivot).for_each(|(x, p)| *x -= factor * p);
            }
        }
        let factor = gain[enter];
        gain.iter_mut().zip(&pivot).for_each(|(x, p)| *x -= factor * p);
        basis[leave] = enter;
    }
    let mut primal = vec![zero; columns];
    for (r, &c) in basis.iter().enumerate().filter(|(_, c)| **c < columns) {
        primal[c] = table[r][width];
    }
    let dual: Vec<Q> = (0..rows.len()).map(|r| -gain[columns + r]).collect();
    Some(Solution { value: primal.iter().sum(), primal, dual })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(rows: &[&[usize]], columns: usize, value: (i64, i64)) -> Solution {
        let rows: Vec<Vec<usize>> = rows.iter().map(|r| r.to_vec()).collect();
        let found = pack(&rows, columns).expect("bounded");
        assert_eq!(found.value, Q::new(value.0, value.1));
        assert_eq!(found.value, found.dual.iter().sum(), "no gap");
        for row in &rows {
            assert!(row.iter().map(|&c| found.primal[c]).sum::<Q>() <= Q::from(1));
        }
        for c in 0..columns {
            let covered = rows.iter().zip(&found.dual).filter(|(r, _)| r.contains(&c)).map(|(_, s)| *s).sum::<Q>();
            assert!(covered >= Q::from(1));
        }
        found
    }

    #[test]
    fn programs_of_loop_nests() {
        // A matmul: 3/2. A matrix times a vector: 1. n-body: 2. Four axes, pairs in a circle: 2. All triples of four: 4/3.
        let matmul = check(&[&[0, 2], &[1, 2], &[0, 1]], 3, (3, 2));
        assert_eq!(matmul.primal, vec![Q::new(1, 2); 3]);
        check(&[&[0, 1], &[1], &[0]], 2, (1, 1));
        check(&[&[0], &[1]], 2, (2, 1));
        check(&[&[0, 1], &[1, 2], &[2, 3], &[3, 0]], 4, (2, 1));
        check(&[&[0, 1, 2], &[0, 1, 3], &[0, 2, 3], &[1, 2, 3]], 4, (4, 3));
        assert_eq!(pack(&[vec![0]], 2), None, "an axis in no array");
        assert_eq!(pack(&[], 0).map(|s| s.value), Some(Q::from(0)));
    }
}
