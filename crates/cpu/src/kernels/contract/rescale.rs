//! Rows of sums that are multiplied where they lie, before the matrix unit goes on with them: most of them by 1, since an
//! anchor seldom changes.

use super::{Scale, Start};
use std::ops::Range;

/// Whether sums that go on from what is there are to be multiplied by a number for each row, or by none.
pub(super) fn by_rows(start: Start<'_, f32>, scale: Scale<'_, f32>) -> bool {
    matches!(start, Start::Kept) && matches!(scale, Scale::One | Scale::Same(_) | Scale::Rows(_))
}

/// Multiplies columns of rows, of which the first is row `first` of the result, so many elements apart.
///
/// # Safety
/// The elements are there, and nobody else holds them; the processor has AVX-512.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma"))]
pub(super) unsafe fn rescale(
    from: *mut f32,
    pitch: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    scale: Scale<'_, f32>,
) {
    let first = rows.start;
    let times = |row: usize, by: f32| {
        if by != 1.0 {
            let from = from.wrapping_add((row - first) * pitch + columns.start);
            // SAFETY: the caller's.
            unsafe { std::slice::from_raw_parts_mut(from, columns.len()) }.iter_mut().for_each(|x| *x *= by);
        }
    };
    match scale {
        Scale::One | Scale::Apart | Scale::Columns(_) => {}
        Scale::Same(by) => rows.for_each(|row| times(row, by)),
        // Seldom any: told without a decision for each.
        Scale::Rows(by) if by[rows.clone()].iter().fold(true, |all, &by| all & (by == 1.0)) => {}
        Scale::Rows(by) => by[rows.clone()].iter().zip(rows).for_each(|(&by, row)| times(row, by)),
    }
}
