//! What `wgmma` is told of factors in shared memory. PTX ISA, "Shared memory matrix layout" and "Matrix descriptor".

use super::rows::ROWS;
use super::{Ring, RingTile, SwizzleBytes};
use crate::schedule::Product;
use einloom_tile::ValueId;
use std::collections::BTreeMap;

/// Terms that one instruction sums.
const DEPTH: usize = 16;
/// Rows, or summed positions, that lie one after the other before an offset leads to the next ones.
const EIGHT: usize = 8;

/// A factor of a product in shared memory, as its instructions are told to read it. All in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The product.
    pub product: ValueId,
    /// Whether it is the left factor.
    pub left: bool,
    /// The factor.
    pub value: ValueId,
    /// Where the first consumer's part in the ring's first stage begins.
    pub at: usize,
    /// From one consumer's part to the next one's.
    pub each: usize,
    /// From stage to stage.
    pub stage: usize,
    /// Across panels, where the kept axis is adjacent in memory.
    pub leading: usize,
    /// From eight rows to the next.
    pub stride: usize,
    /// The pattern of a panel.
    pub swizzle: SwizzleBytes,
    /// Whether the kept axis is adjacent, not the summed one.
    pub transposed: bool,
    /// Steps of 16 terms that are `step` apart before the next panel.
    pub steps: usize,
    /// From step to step.
    pub step: usize,
    /// From the first of so many steps to the first of the next ones.
    pub next: usize,
}

/// The descriptors of all products, in their order, left before right.
pub fn descriptors(products: &BTreeMap<ValueId, Product>, rings: &[Ring], consumers: usize) -> Vec<Descriptor> {
    let tile = |v: ValueId| rings.iter().find_map(|r| Some((r, r.tiles.iter().find(|t| t.value == v)?)));
    let mut out = vec![];
    for (&dst, p) in products {
        let left = (!p.left_in_registers).then_some((p.left, true));
        for (v, is_left) in left.into_iter().chain([(p.right, false)]) {
            let Some((ring, tile)) = tile(v) else { continue };
            out.push(descriptor(dst, p, ring, tile, is_left && consumers > 1, is_left));
        }
    }
    out
}

fn descriptor(product: ValueId, p: &Product, ring: &Ring, tile: &RingTile, parts: bool, left: bool) -> Descriptor {
    let by_sum = tile.inner == p.sum;
    let (pattern, panel) = (tile.swizzle.bytes(), tile.panel_bytes());
    let (steps, step, next) =
        if by_sum { (tile.panel() / DEPTH, DEPTH * tile.element.bytes(), panel) } else { (1, 0, DEPTH * pattern) };
    Descriptor {
        product,
        left,
        value: tile.value,
        at: ring.offset + tile.offset,
        // 64 rows each: rows of a panel, or one panel.
        each: match (parts, by_sum) {
            (false, _) => 0,
            (true, true) => ROWS * pattern,
            (true, false) => panel,
        },
        stage: ring.stage_bytes,
        // Ignored where the summed axis is adjacent; the tile may be read both ways.
        leading: panel,
        stride: EIGHT * pattern,
        swizzle: tile.swizzle,
        transposed: !by_sum,
        steps,
        step,
        next,
    }
}

impl Descriptor {
    /// Where step `k` of 16 terms begins, from the first one.
    pub fn step_at(&self, k: usize) -> usize {
        k % self.steps.max(1) * self.step + k / self.steps.max(1) * self.next
    }

    /// Where an instruction finds an element, given the consumer and the stage: position `kept` of those that the result
    /// keeps and term `term` of the sum.
    pub fn address(&self, consumer: usize, stage: usize, kept: usize, term: usize) -> usize {
        let start = self.at + self.each * consumer + self.stage * stage + self.step_at(term / DEPTH);
        let (term, pattern) = (term % DEPTH, self.swizzle.bytes());
        let (eights, adjacent) = if self.transposed { (term, kept) } else { (kept, term) };
        let panel = if self.transposed { pattern / 2 } else { DEPTH };
        let within = eights / EIGHT * self.stride + eights % EIGHT * pattern + adjacent % panel * 2;
        self.swizzle.place(start + within + adjacent / panel * self.leading)
    }
}
