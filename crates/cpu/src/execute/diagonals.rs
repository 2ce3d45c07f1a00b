//! Parts of an elementwise operation with one value per diagonal of the tile.

use super::source::Source;
use crate::compile::Differences;
use crate::kernels::isa::{Instructions, Token, Work, dispatch};
use crate::kernels::real::Real;
use crate::kernels::strip::{self, Data, STRIP};

/// Computes the value of every diagonal of a tile that begins at a position and has so many rows and columns, from sources of the leaves
/// before it, into `to`. Registers and the strip are scratch.
pub(super) fn diagonals<T: Real>(
    token: Token,
    of: &Differences,
    [at, lengths]: [[usize; 2]; 2],
    sources: &[Source<'_, T>],
    to: &mut Vec<T>,
    (registers, strip): (&mut [Box<[T]>], &mut [T]),
) {
    to.clear();
    to.extend(of.difference.all(at, lengths).map(|x| T::from_f64(x as f64)));
    dispatch(token, Diagonals { of, sources, to, registers, strip });
}

struct Diagonals<'a, T> {
    of: &'a Differences,
    sources: &'a [Source<'a, T>],
    to: &'a mut [T],
    registers: &'a mut [Box<[T]>],
    strip: &'a mut [T],
}

impl<T: Real> Work for Diagonals<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Instructions>(self) {
        let Self { of, sources, to, registers, strip } = self;
        for values in to.chunks_mut(STRIP) {
            let differences = &mut strip[..values.len()];
            differences.copy_from_slice(values);
            let differences = &*differences;
            let leaf = |number: u16| match sources.get(usize::from(number)) {
                Some(Source::Same(x)) => Data::Same(*x),
                // Nothing else is read.
                _ => Data::Each(differences),
            };
            strip::run::<T, I>(&of.steps, values, registers, leaf);
        }
    }
}
