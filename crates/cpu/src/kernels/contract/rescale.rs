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
/// The elements are there, and nobody else holds them.
pub(super) unsafe fn rescale(
    from: *mut f32,
    pitch: usize,
    rows: Range<usize>,
    columns: Range<usize>,
    scale: Scale<'_, f32>,
) {
    for (number, row) in rows.enumerate() {
        let by = match scale {
            Scale::One | Scale::Columns(_) => return,
            Scale::Same(by) => by,
            Scale::Rows(by) => by[row],
        };
        if by != 1.0 {
            let from = from.wrapping_add(number * pitch + columns.start);
            // SAFETY: the caller's.
            unsafe { std::slice::from_raw_parts_mut(from, columns.len()) }.iter_mut().for_each(|x| *x *= by);
        }
    }
}
