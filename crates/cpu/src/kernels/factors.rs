//! Rows of sums that are multiplied by a number for each row and one for each column.

use super::isa::Instructions;
use super::wide::{Wide, WideWork, with_wide};

const LANES: usize = 16;

/// What elements are multiplied by besides a number that all have in common.
#[derive(Clone, Copy, Default)]
pub(crate) struct Factors<'a> {
    /// One for each row.
    pub rows: Option<&'a [f32]>,
    /// One for each column.
    pub columns: Option<&'a [f32]>,
}

/// `x = x * times * (row * column)`, from the left to the right, for so many elements of each row of `to`, which are `pitch` apart.
///
/// # Panics
/// If factors are missing, or the processor has no vectors for it.
#[inline(always)]
pub(crate) fn run<I: Instructions>(to: &mut [f32], [width, pitch]: [usize; 2], times: f32, by: Factors<'_>) {
    assert!(width <= pitch && by.rows.is_none_or(|rows| rows.len() >= to.len() / pitch), "a factor for each row");
    assert!(by.columns.is_none_or(|columns| columns.len() >= width), "a factor for each column");
    assert!(with_wide::<I, _>(Rows { to, width, pitch, times, by }), "vectors");
}

struct Rows<'a> {
    to: &'a mut [f32],
    width: usize,
    pitch: usize,
    times: f32,
    by: Factors<'a>,
}

impl<V: Wide> WideWork<V> for Rows<'_> {
    #[inline(always)]
    unsafe fn run(self) -> bool {
        let Self { to, width, pitch, times, by } = self;
        // SAFETY: the caller has the instructions; lengths were checked, and masks have a bit for each element that is there.
        unsafe {
            let times = V::splat(times);
            for (row, to) in to.chunks_exact_mut(pitch).enumerate() {
                let own = V::splat(by.rows.map_or(1.0, |rows| rows[row]));
                let to = to.as_mut_ptr();
                for at in (0..width).step_by(LANES) {
                    let there = ((1u32 << (width - at).min(LANES)) - 1) as u16;
                    let factor = match by.columns {
                        Some(columns) => own.mul(V::load_where(there, columns.as_ptr().add(at))),
                        None => own,
                    };
                    V::load_where(there, to.add(at)).mul(times).mul(factor).store_where(there, to.add(at));
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::Factors;
    use crate::kernels::isa::{Instructions, Isa, Token, Work, dispatch};

    struct Run<'a>(&'a mut [f32], [usize; 2], Factors<'a>);

    impl Work for Run<'_> {
        type Output = ();

        #[inline(always)]
        fn run<I: Instructions>(self) {
            if I::FMA {
                super::run::<I>(self.0, self.1, 0.75, self.2);
            }
        }
    }

    #[test]
    fn elements_are_multiplied_and_nothing_beyond_them() {
        let numbers: Vec<f32> = (0..4000).map(|i| ((i * 37 + i / 11) % 101) as f32 / 8.0 - 5.0).collect();
        for token in Isa::ALL.into_iter().filter(|isa| *isa != Isa::Portable).filter_map(Token::new) {
            for (rows, width, pitch) in [(1, 1, 1), (3, 16, 16), (5, 33, 64), (32, 96, 96), (7, 95, 96)] {
                for [of_rows, of_columns] in [[false, false], [true, false], [false, true], [true, true]] {
                    let by = Factors {
                        rows: of_rows.then_some(&numbers[100..100 + rows]),
                        columns: of_columns.then_some(&numbers[7..7 + width]),
                    };
                    let mut to: Vec<f32> = numbers[..rows * pitch].to_vec();
                    dispatch(token, Run(&mut to, [width, pitch], by));
                    for (at, (&got, &x)) in to.iter().zip(&numbers).enumerate() {
                        let (row, column) = (at / pitch, at % pitch);
                        let factor =
                            by.rows.map_or(1.0, |r| r[row]) * by.columns.map_or(1.0, |c| c[column.min(width - 1)]);
                        let want = if column < width { x * 0.75 * factor } else { x };
                        assert_eq!(got, want, "{rows} {width}: {row} {column}");
                    }
                }
            }
        }
    }
}
