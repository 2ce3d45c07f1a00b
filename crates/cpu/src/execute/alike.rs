//! Tiles all of whose elements of a row are the same number: what a mask leaves out altogether becomes one.

use super::arena::Scratch;
use super::elementwise::{Ends, Sink, ask};
use super::source::Source;
use crate::compile::Strips;
use crate::kernels::isa::Instructions;
use crate::kernels::real::Real;
use crate::kernels::strip::{self, Data, STRIP};
use bytemuck::Pod;

/// Computes one number of each row and fills the rows with them, if nothing that the steps read differs within a row and nothing is
/// stored to memory; false, and nothing done, if not.
#[inline(always)]
pub(super) fn alike<T: Real + Pod, I: Instructions>(
    strips: &Strips,
    sources: &[Source<'_, T>],
    scratch: &mut Scratch<T>,
    sink: &mut Sink<'_, T>,
    ends: &mut Ends<'_>,
    [rows, columns, pitch]: [usize; 3],
) -> bool {
    let per_row = |source: &Source<'_, T>| matches!(source, Source::PerRow | Source::Same(_));
    if columns < 2 || ends.store.is_some() || !sources.iter().all(per_row) {
        return false;
    }
    if !matches!(sink, Sink::Same(_) | Sink::Packed(_)) || T::floats(&[]).is_none() {
        return false;
    }
    let Scratch { registers, vectors, row: spare, .. } = scratch;
    let (mut each, mut zero) = ([T::default(); STRIP], true);
    for first in (0..rows).step_by(STRIP) {
        let count = STRIP.min(rows - first);
        let leaf = |number: u16| match &sources[usize::from(number)] {
            Source::Same(x) => Data::Same(*x),
            _ => Data::Each(&vectors[usize::from(number)][first..][..count]),
        };
        strip::run::<T, I>(&strips.steps, &mut each[..count], registers, leaf);
        zero &= each[..count].iter().all(|x| *x == T::default());
        for (row, &x) in (first..).zip(&each[..count]) {
            for at in (0..columns).step_by(STRIP) {
                let width = STRIP.min(columns - at);
                ask(ends.asked, width);
                let filled = match &mut *sink {
                    Sink::Same(target) => &mut target[row * pitch + at..][..width],
                    _ => &mut spare[..width],
                };
                filled.fill(x);
                let Some(filled) = T::floats(filled) else { continue };
                for fold in ends.folds.iter_mut() {
                    fold.add::<I>(row, at, width, filled);
                }
                if let Sink::Packed(left) = sink {
                    // They are where no tile is.
                    left.put::<I>(row, at, T::floats(&spare[..width]).unwrap_or_default());
                }
            }
        }
    }
    *ends.zero = zero;
    true
}
