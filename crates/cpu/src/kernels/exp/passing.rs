//! What is done to elements on their way to their exponentials.

use crate::kernels::add::Addend;
use crate::kernels::factors::Factors;
use crate::kernels::truths::{Bits, WORD};

/// Of some rows and columns.
#[derive(Clone, Copy)]
pub(crate) enum InPassing<'a> {
    /// Something is added.
    Added(Addend<'a>),
    /// They are multiplied, by factors from the first row and column on.
    Scaled(Factors<'a>),
    /// Those whose bit is not set, or is if that is told, count as the lowest.
    Kept {
        bits: Bits<'a>,
        flipped: bool,
        /// The first row and column.
        at: [usize; 2],
    },
}

impl InPassing<'_> {
    /// # Panics
    /// If it does not have so many rows of so many columns, a multiple of 32.
    pub(crate) fn check(&self, rows: usize, columns: usize) {
        match self {
            Self::Added(addend) => addend.check(rows, columns),
            Self::Scaled(by) => {
                assert!(by.rows.is_none_or(|x| x.len() >= rows), "a factor for each row");
                assert!(by.columns.is_none_or(|x| x.len() >= columns), "a factor for each column");
            }
            Self::Kept { bits, at: [row, column], .. } => {
                let last = bits.row(row + rows - 1, *column);
                assert!(column.is_multiple_of(WORD) && last.len() * WORD >= columns, "a bit for each element");
            }
        }
    }
}
