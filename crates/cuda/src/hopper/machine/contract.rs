//! Sums of products of two matrices.

/// A factor: one row per position that the result keeps, one column per term.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Matrix {
    rows: usize,
    terms: usize,
    elements: Vec<f64>,
}

impl Matrix {
    /// With the element `f(row, term)`.
    pub fn new(rows: usize, terms: usize, f: impl Fn(usize, usize) -> f64) -> Self {
        let f = &f;
        Self { rows, terms, elements: (0..rows).flat_map(|r| (0..terms).map(move |k| f(r, k))).collect() }
    }
}

/// `Σ_k left[i, k]·right[j, k]` at `[i, j]`, the terms added in ascending order. A term where one factor is exactly 0
/// and the other finite adds nothing, so that the zeros that tensor cores see beyond an edge leave every bit as it is.
pub(super) fn contract(left: &Matrix, right: &Matrix) -> Vec<f64> {
    let mut out = vec![0.0; left.rows * right.rows];
    // Term by term along rows of the result, which vectorises.
    let mut column = vec![0.0; right.rows];
    for k in 0..left.terms.min(right.terms) {
        column.iter_mut().enumerate().for_each(|(j, x)| *x = right.elements[j * right.terms + k]);
        for i in 0..left.rows {
            let x = left.elements[i * left.terms + k];
            let row = &mut out[i * right.rows..][..right.rows];
            row.iter_mut().zip(&column).for_each(|(sum, y)| *sum += x * y);
        }
    }
    out
}
