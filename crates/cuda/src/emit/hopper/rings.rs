//! Rings in the source: where stages and barriers are, who has got how far.

use crate::emit::element::Emitter;
use crate::emit::tensor_map::{TensorMapSpec, TmaSwizzle};
use crate::hopper::fit::BARRIER;
use crate::hopper::{RingId, RingTile, Specialised, SwizzleBytes, pieces};
use crate::schedule::Facts;

/// The identifier of a ring: its name, made legal.
pub(super) fn name(s: &Specialised, id: RingId) -> String {
    let legal: String = s.ring(id).name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let twice = s.rings.iter().filter(|r| r.name == s.ring(id).name).count() > 1;
    if twice || legal.is_empty() { format!("ring{}_{legal}", id.0) } else { format!("{legal}_ring") }
}

/// Bytes from the first barrier to the ring's full barriers; its empty barriers follow.
fn barriers(s: &Specialised, id: RingId) -> usize {
    s.rings[..id.0].iter().map(|r| 2 * r.stages * BARRIER).sum()
}

/// The address of a full or empty barrier of a stage.
pub(super) fn barrier(s: &Specialised, id: RingId, full: bool, stage: &str) -> String {
    let ring = s.ring(id);
    let base = barriers(s, id) + if full { 0 } else { ring.stages * BARRIER };
    if ring.stages == 1 {
        format!("shared_base + {base}")
    } else {
        format!("shared_base + {base} + {stage} * {BARRIER}")
    }
}

impl Emitter<'_> {
    /// Declares a role's counters of a ring: the stage and parity of the next filling or wait.
    pub(super) fn ring_counters(&mut self, s: &Specialised, id: RingId, consumer: bool) {
        let (ring, name) = (s.ring(id), name(s, id));
        if ring.stages == 1 {
            self.w.line(format!("u32 {name}_parity = 0;"));
            return;
        }
        self.w.line(format!("u32 {name}_next = 0, {name}_parity = 0;"));
        if consumer {
            self.w.line(format!("u32 {name}_stage = 0, {name}_oldest = 0;"));
        }
    }

    /// Goes on to the next stage.
    pub(super) fn ring_advance(&mut self, s: &Specialised, id: RingId) {
        let (ring, name) = (s.ring(id), name(s, id));
        if ring.stages == 1 {
            self.w.line(format!("{name}_parity ^= 1;"));
        } else {
            self.w.line(format!("{name}_parity ^= {name}_next + 1 == {};", ring.stages));
            self.w.line(format!("{name}_next = {name}_next + 1 == {0} ? 0 : {name}_next + 1;", ring.stages));
        }
    }
}

/// What the copy engine has to know of the tile's tensor: dimensions of one element are left out.
pub(super) fn tensor_map(facts: &Facts<'_>, s: &Specialised, tile: &RingTile) -> TensorMapSpec {
    let decl = facts.program.tensor(tile.tensor);
    let strides = facts.strides(tile.tensor);
    let dims = dimensions(facts, tile);
    let element = decl.dtype.bytes() as u64;
    let rows = pieces(tile, s.blocks(), 0).first().map_or(tile.rows, |piece| piece.rows);
    let size = |d: usize| match d {
        d if d == tile.dims[1] => tile.panel() as u32,
        d if d == tile.dims[0] => rows as u32,
        _ => 1,
    };
    TensorMapSpec {
        tensor: tile.tensor,
        element: decl.dtype,
        dims: dims.iter().map(|&d| decl.dims[d] as u64).collect(),
        strides: dims[1..].iter().map(|&d| strides[d] as u64 * element).collect(),
        tile_box: dims.iter().map(|&d| size(d)).collect(),
        swizzle: match tile.swizzle {
            SwizzleBytes::B32 => TmaSwizzle::B32,
            SwizzleBytes::B64 => TmaSwizzle::B64,
            SwizzleBytes::B128 => TmaSwizzle::B128,
        },
    }
}

/// The tensor's dimensions that a copy names, innermost first: the tile's inner one, then the others from the last on.
pub(super) fn dimensions(facts: &Facts<'_>, tile: &RingTile) -> Vec<usize> {
    let dims = &facts.program.tensor(tile.tensor).dims;
    let named = |d: &usize| tile.dims.contains(d) || dims[*d] > 1;
    let others = (0..dims.len()).rev().filter(named).filter(|d| *d != tile.dims[1]);
    std::iter::once(tile.dims[1]).chain(others).collect()
}
