//! Tiles that are computed row by row in registers, where the steps allow it.

use super::arena::Scratch;
use super::elementwise::{Ends, Gather, Gathered, Sink, ask, ask_below};
use super::source::Source;
use crate::compile::Strips;
use crate::kernels::chain::{Elements, To};
use crate::kernels::isa::Instructions;
use crate::kernels::real::Real;
use crate::kernels::strip::STRIP;
use crate::kernels::truths;
use bytemuck::Pod;
use einloom_cascade::DType;

/// Leaves at most.
pub(super) const LEAVES: usize = 8;
/// Elements of a row, at least: several shorter ones are a strip together. Measured on a Zen 5, in strips and in chains, ms: retention in chunks of 64,
/// 18.6 and 23.0; LayerNorm of rows of 128, 5.9 and 8.0, of rows of 256, 6.6 and 5.6.
const LEAST: usize = 256;

/// Computes the whole tile if its rows are not short and its steps a chain on what is loaded as it lies, and one reduction of each row
/// at most becomes of it besides, or one of the columns of a tile that stays; false, and nothing lost, if not.
#[inline(always)]
pub(super) fn chained<T: Real + Pod, I: Instructions>(
    strips: &Strips,
    sources: &[Source<'_, T>],
    scratch: &mut Scratch<T>,
    sink: &mut Sink<'_, T>,
    ends: &mut Ends<'_>,
    [rows, columns, pitch]: [usize; 3],
) -> bool {
    if !I::FMA || T::floats(&[]).is_none() || columns < LEAST || sources.len() > LEAVES {
        return false;
    }
    let Some(chain) = strips.chain() else { return false };
    let (mut fold, mut across) = match &mut *ends.folds {
        [] => (None, None),
        [Gather { monoid, gathered: Gathered::Partial(partials) }] => (Some((*monoid, partials)), None),
        [all @ Gather { gathered: Gathered::Columns(_), .. }] if matches!(sink, Sink::Same(_)) => (None, Some(all)),
        _ => return false,
    };
    let Scratch { vectors, row: spare, .. } = scratch;
    let Some(spare) = T::floats_mut(spare) else { return false };
    let mut encoded = [0; STRIP];
    for row in 0..rows {
        for at in (0..columns).step_by(STRIP) {
            let width = STRIP.min(columns - at);
            ask(ends.asked, width);
            let mut leaves = [Elements::Same(0.0); LEAVES];
            for (number, (source, leaf)) in sources.iter().zip(&mut leaves).enumerate() {
                let vector = || T::floats(&vectors[number]).unwrap_or_default();
                *leaf = match source {
                    Source::InPlace => Elements::Own,
                    Source::Rows(from) => {
                        let data = T::floats(from.data).unwrap_or_default();
                        Elements::Floats(&data[row * from.pitch + at..][..width])
                    }
                    Source::Floats(from) => Elements::Floats(&from.data[row * from.pitch + at..][..width]),
                    Source::Bf16(from) | Source::F16(from) => {
                        let begin = row * from.pitch + at;
                        ask_below(from, begin, width);
                        let codes = &from.data[begin..][..width];
                        if matches!(source, Source::Bf16(_)) { Elements::Bf16(codes) } else { Elements::F16(codes) }
                    }
                    Source::PerRow => Elements::Same(vector()[row]),
                    Source::PerColumn => Elements::Floats(&vector()[at..][..width]),
                    Source::Columns(from) => Elements::Floats(&T::floats(from).unwrap_or_default()[at..][..width]),
                    Source::Diagonals => Elements::Floats(&vector()[rows - 1 - row + at..][..width]),
                    Source::Same(x) => Elements::Same(x.to_f32()),
                    // Pieces begin with a word.
                    Source::Bits(bits) => Elements::Bits(bits.row(row, at)),
                    Source::ColumnBits(bits) => Elements::Bits(&bits[at / truths::WORD..]),
                    Source::Integers(_) | Source::Holds(_) => return false,
                };
            }
            let to = match (&mut *sink, &ends.store) {
                (Sink::Same(target), _) => match T::floats_mut(target) {
                    Some(target) => To::Floats(&mut target[row * pitch + at..][..width]),
                    None => return false,
                },
                (Sink::Nowhere, Some(outlet)) if outlet.dtype == DType::Bf16 => To::Bf16(&mut encoded[..width]),
                (Sink::Nowhere, Some(_)) => To::Floats(&mut spare[..width]),
                (Sink::Nowhere, None) => To::Nowhere,
                _ => return false,
            };
            let fold = fold.as_mut().map(|(monoid, partials)| (*monoid, &mut partials[row]));
            if !chain.run::<I>(&leaves, to, width, fold) {
                return false;
            }
            if let (Some(all), Sink::Same(target)) = (&mut across, &*sink) {
                all.add::<I>(row, at, width, &T::floats(target).unwrap_or_default()[row * pitch + at..][..width]);
            }
            let Some(outlet) = &ends.store else { continue };
            match &mut *sink {
                Sink::Same(target) => {
                    let target = T::floats(target).unwrap_or_default();
                    outlet.write::<I>(row, at, width, &target[row * pitch + at..][..width], &mut encoded);
                }
                _ if outlet.dtype == DType::Bf16 => {
                    let start = outlet.start + outlet.outer * row as i64 + at as i64;
                    outlet.memory.write::<I, u16>(start, &encoded[..width], outlet.memory.is_large());
                }
                _ => outlet.write::<I>(row, at, width, &spare[..width], &mut encoded),
            }
        }
    }
    true
}
