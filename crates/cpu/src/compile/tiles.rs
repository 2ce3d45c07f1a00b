//! Which contractions the processor's matrix unit computes. It multiplies numbers of bf16; a factor of another type is the
//! sum of several ([`crate::kernels::contract::parts`]), and each of them costs a multiplication.

use super::{Carrier, Contract, Keep, Plan, Product, Step, Tile, Viewable, order};
use crate::kernels::contract::{ProductRates, parts};
use einloom_cascade::DType;
use einloom_tile::{AxisId, Kernel, Program};

/// Rows, columns and terms of the unit's squares: edges are filled up with zeros.
const SQUARE: [usize; 3] = [32, 32, 32];

/// Operations of multiply-adds in f32 that take as long as packing an element: of one part, and of each further one.
/// (Measured with three parts: 2.3 ns for 16 elements, beside 170 operations a nanosecond.)
const PACKING: [f64; 2] = [8.0, 10.0];

/// What makes the unit worth its while.
const GAIN: f64 = 1.15;

/// Lets the unit compute the contractions of `plan` for which it is faster than multiply-adds by `rates`, or all that
/// it can if there are none.
pub(crate) fn choose(program: &Program, plan: &mut Plan, rates: Option<ProductRates>) {
    let Plan { kernel, tiles, body, .. } = plan;
    let mut way = vec![Reads::Nothing; tiles.len()];
    let mut kept = vec![false; tiles.len()];
    super::each_step(body, &mut |step| {
        if let Step::Load { dst, kept: Keep::Panels, .. } = step {
            kept[dst.at()] = true;
        }
    });
    let faster = |c: &Contract, of| rates.is_none_or(|rates| pays((kernel, tiles), c, of, kept[c.right.at()], rates));
    contractions(tiles, body, &faster, &mut way);
    loads(body, &way);
    let mut packed = order::only_terms(tiles, body);
    super::each_step(body, &mut |step| {
        if let Step::Contract(c) = step {
            packed[c.left.at()] &= c.parts.is_some();
        }
    });
    leave(program, tiles, body, &packed);
}

/// Lets the tiles that are only packed, as rows of terms, stay where they are.
fn leave(program: &Program, tiles: &[Tile], steps: &mut [Step], packed: &[bool]) {
    for step in steps {
        match step {
            Step::Load { dst, tensor, access, view, .. } if packed[dst.at()] => {
                let (from, to) = (program.tensor(*tensor).dtype, tiles[dst.at()].dtype);
                if access.is_adjacent() && from == to && matches!(from, DType::F32 | DType::Bf16) {
                    *view = Viewable::Once;
                }
            }
            Step::Stream { body, .. } => leave(program, tiles, body, packed),
            _ => {}
        }
    }
}

/// What reads a value as a right factor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    Nothing,
    Unit,
    Others,
}

/// Whether the unit can compute it.
pub(crate) fn can(tiles: &[Tile], contract: &Contract) -> bool {
    contract.product == Product::Broadcast && tiles[contract.dst.at()].carrier == Carrier::F32
}

fn contractions(
    tiles: &[Tile],
    steps: &mut [Step],
    faster: &impl Fn(&Contract, [usize; 2]) -> bool,
    way: &mut [Reads],
) {
    for step in steps {
        match step {
            Step::Stream { body, .. } => contractions(tiles, body, faster, way),
            Step::Contract(c) if can(tiles, c) => {
                let of = [c.left, c.right].map(|v| parts(tiles[v.at()].dtype));
                if faster(c, of) {
                    c.parts = Some(of);
                }
                let reads = if c.parts.is_some() { Reads::Unit } else { Reads::Others };
                let before = &mut way[c.right.at()];
                *before = if *before == Reads::Nothing || *before == reads { reads } else { Reads::Others };
            }
            Step::Contract(c) => way[c.right.at()] = Reads::Others,
            _ => {}
        }
    }
}

/// Whether the unit is the faster way for factors of so many parts, the right one of which is packed once for many
/// contractions if it is kept.
fn pays((kernel, tiles): (&Kernel, &[Tile]), c: &Contract, of: [usize; 2], kept: bool, rates: ProductRates) -> bool {
    let Some(unit) = rates.tiles else { return false };
    let (dst, left) = (tiles[c.dst.at()], tiles[c.left.at()]);
    let length = |axis: Option<AxisId>| {
        axis.map_or(1, |a| {
            let axis = kernel.axis(a);
            axis.tile.min(axis.extent)
        })
    };
    debug_assert!(left.inner == Some(c.sum) || left.outer == Some(c.sum));
    let lengths = [length(dst.outer), length(dst.inner), length(Some(c.sum))];
    let operations = |[m, n, k]: [usize; 3]| 2.0 * m as f64 * n as f64 * k as f64;
    let filled: [usize; 3] = std::array::from_fn(|i| lengths[i].next_multiple_of(SQUARE[i]));
    let [m, n, k] = lengths.map(|x| x as f64);
    let pack = |parts: usize| PACKING[0] + PACKING[1] * (parts - 1) as f64;
    let packing = m * k * pack(of[0]) + if kept { 0.0 } else { k * n * pack(of[1]) };
    let by_unit = operations(filled) * unit.seconds(of, products(of)) + packing / rates.widened;
    // Two others are the fastest without it.
    let others = rates.pairs.filter(|_| of == [1, 1]).map_or(rates.widened, |p| p.max(rates.widened));
    by_unit * GAIN < operations(lengths) / others
}

/// How many products of parts a product takes: those that matter.
fn products([left, right]: [usize; 2]) -> usize {
    (0..left).map(|i| right.min(3 - i)).sum()
}

/// Right factors that are kept are kept as the unit wants them, if nothing else reads them; and loads of tiles that it
/// multiplies are not left to multiply-adds to copy in passing.
fn loads(steps: &mut [Step], way: &[Reads]) {
    let unit = steps.iter().any(|s| matches!(s, Step::Contract(c) if c.parts.is_some()));
    let mut wanted = vec![];
    for step in steps.iter() {
        if let Step::Contract(c) = step
            && let Some([_, right]) = c.parts
        {
            wanted.push((c.right, right as u8));
        }
    }
    for step in steps {
        match step {
            Step::Load { dst, ahead, kept, .. } => {
                *ahead &= !unit;
                if *kept == Keep::Panels && way[dst.at()] != Reads::Others {
                    let parts = wanted.iter().find(|(v, _)| v == dst).map(|w| w.1);
                    *kept = parts.map_or(*kept, Keep::Packed);
                } else if *kept == Keep::Panels && wanted.iter().any(|(v, _)| v == dst) {
                    *kept = Keep::Rows;
                }
            }
            Step::Stream { body, .. } => loads(body, way),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::products;

    #[test]
    fn products_of_parts_that_are_less_than_a_rounding_are_not_counted() {
        assert_eq!([[1, 1], [3, 1], [1, 3], [2, 2], [3, 3]].map(products), [1, 3, 3, 4, 6]);
    }
}
