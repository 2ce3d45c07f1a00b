//! In which order a kernel visits its grid, for machines whose innermost memory keeps what the next point uses again.
//!
//! Points of the grid need nothing of each other, so that any order computes the same. What two points in a row have in common stays
//! for the second: with rows outside and columns inside a tile of rows comes in once and columns come in again and again; the other
//! way round it is the columns that rest. Kernels are compared in the order of their text; the longest of a chosen plan is tried in the others where
//! it moves more than it must.

use einloom_tile::{AxisId, Kernel};

/// All orders of so many axes are tried; of more of them each is tried innermost.
const ALL: usize = 3;

/// Orders of the grid, the kernel's own first.
pub(crate) fn orders(kernel: &Kernel) -> Vec<Vec<AxisId>> {
    let moving: Vec<AxisId> = kernel.grid.iter().copied().filter(|&a| kernel.axis(a).extent > 1).collect();
    let still = || kernel.grid.iter().copied().filter(|a| !moving.contains(a));
    let orders = if moving.len() <= ALL { permutations(&moving) } else { each_innermost(&moving) };
    orders.into_iter().map(|order| still().chain(order).collect()).collect()
}

fn permutations(of: &[AxisId]) -> Vec<Vec<AxisId>> {
    if of.is_empty() {
        return vec![vec![]];
    }
    let first = |k: usize| {
        let rest = [&of[..k], &of[k + 1..]].concat();
        permutations(&rest).into_iter().map(move |tail| [vec![of[k]], tail].concat())
    };
    (0..of.len()).flat_map(first).collect()
}

fn each_innermost(of: &[AxisId]) -> Vec<Vec<AxisId>> {
    let innermost = |k: usize| [&of[..k], &of[k + 1..], &of[k..=k]].concat();
    (0..of.len()).rev().map(innermost).collect()
}

#[cfg(test)]
mod tests {
    use super::{each_innermost, permutations};
    use einloom_tile::AxisId;

    #[test]
    fn the_first_order_is_that_of_the_text() {
        let axes: Vec<AxisId> = (0..4).map(AxisId).collect();
        for (orders, count) in [(permutations(&axes[..3]), 6), (each_innermost(&axes), 4)] {
            assert_eq!(orders.len(), count);
            assert!(orders[0].is_sorted() && orders.iter().all(|o| o.len() == orders[0].len()));
            assert!(orders.iter().enumerate().all(|(k, o)| !orders[..k].contains(o)), "{orders:?}");
        }
    }
}
