//! Numbers of rows and of columns that are added to blocks of a result just stored: they are near then, and sums have all registers for
//! themselves.

use super::{Scale, Side};
use crate::kernels::lanes::Lanes;

/// A block and what is added to it.
pub(super) struct Sides<T> {
    sides: [Edge<T>; 2],
    c: *mut T,
    c_i: usize,
    rows: usize,
    columns: usize,
}

/// Numbers of rows, this far apart, or of columns if that is `None`, times a factor; null if there are none.
struct Edge<T> {
    from: *const T,
    step: Option<usize>,
    by: T,
}

impl<T: Copy> Sides<T> {
    /// For the block at `c` of a result with this row stride: its first row and column, and how many there are.
    pub(super) fn new(
        sides: &[Option<Side<'_, T>>; 2],
        [row, column]: [usize; 2],
        (c, c_i): (*mut T, usize),
        [rows, columns]: [usize; 2],
    ) -> Self
    where
        T: Default,
    {
        let sides = sides.each_ref().map(|side| {
            let none = Edge { from: std::ptr::null(), step: None, by: T::default() };
            let Some(Side { of, by }) = side else { return none };
            match of {
                Scale::Rows(all) => Edge { from: all[row..].as_ptr(), step: Some(1), by: *by },
                Scale::Columns(all) => Edge { from: all[column..].as_ptr(), step: None, by: *by },
                Scale::Same(x) => Edge { from: x, step: Some(0), by: *by },
                Scale::One | Scale::Apart => none,
            }
        });
        Self { sides, c, c_i, rows, columns }
    }
}

/// Adds them.
///
/// # Safety
/// The processor has `V`'s instructions, and the block and the numbers of its rows and columns are there.
#[inline(always)]
pub(super) unsafe fn add_sides<V: Lanes>(x: Sides<V::Element>) {
    // SAFETY: the caller's.
    unsafe {
        for side in x.sides.iter().filter(|side| !side.from.is_null()) {
            let by = V::splat(side.by);
            for i in 0..x.rows {
                let row = x.c.wrapping_add(i * x.c_i);
                let same = side.step.map(|step| V::splat(*side.from.add(i * step)));
                let mut j = 0;
                while j < x.columns {
                    let n = V::LANES.min(x.columns - j);
                    let load = |from| if n < V::LANES { V::load_first(from, n) } else { V::load(from) };
                    let to = row.wrapping_add(j);
                    let sum = load(to.cast_const()).scaled(same.unwrap_or_else(|| load(side.from.wrapping_add(j))), by);
                    if n < V::LANES {
                        sum.store_first(to, n)
                    } else {
                        sum.store(to)
                    }
                    j += V::LANES;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kernels::contract::blocks::tests::{numbers, quarter};
    use crate::kernels::contract::{Scale, Side, Start};
    use crate::kernels::isa::{Isa, Token};

    /// After the multiplication, once, and to the right rows however many there are.
    #[test]
    fn sides_are_added_once_after_all_terms() {
        let none = None::<(Scale<'_, f32>, f32)>;
        for (m, n, k) in [(1, 1, 1), (15, 70, 3), (215, 70, 64), (97, 200, 553)] {
            let (rows, columns) = (numbers(m, 5), numbers(n, 11));
            let (a, b) = (numbers(m * k, 37), numbers(k * n, 23));
            let (r, c) = (Some((Scale::Rows(&rows), 1.0)), Some((Scale::Columns(&columns), -1.0)));
            for sides in [[r, c], [c, r], [c, none], [Some((Scale::Same(3.0), -1.0)), r]] {
                for token in Isa::ALL.into_iter().filter_map(Token::new) {
                    let start = Start::Sides(sides.map(|s| s.map(|(of, by)| Side { of, by })));
                    let to = quarter(token, [m, n, k], [&a, &b], (start, Scale::One));
                    for (at, &got) in to.iter().enumerate() {
                        let (i, j) = (at / n, at % n);
                        let sum: f64 = (0..k).map(|t| f64::from(a[i * k + t]) * f64::from(b[t * n + j])).sum();
                        let added = sides.into_iter().flatten().map(|(of, by)| match of {
                            Scale::Rows(rows) => f64::from(rows[i] * by),
                            Scale::Columns(columns) => f64::from(columns[j] * by),
                            _ => -3.0,
                        });
                        let want = sum * 0.25 + added.sum::<f64>();
                        assert!(
                            (f64::from(got) - want).abs() < 1e-3,
                            "{m} by {n}, {k} terms: {got} for {want} at {at}"
                        );
                    }
                }
            }
        }
    }
}
