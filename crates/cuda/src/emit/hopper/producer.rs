//! The producer's steps.

use super::rings::{barrier, dimensions, name};
use crate::emit::element::{Emitter, add};
use crate::hopper::{RingId, Specialised, Step, pieces};
use einloom_tile::Op;

impl Emitter<'_> {
    /// What one thread of the last warpgroup does.
    pub(super) fn producer(&mut self, s: &Specialised, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Acquire { ring, ahead } => {
                    let name = name(s, *ring);
                    let at = barrier(s, *ring, false, &format!("{name}_next"));
                    self.w.line(format!("barrier_wait({at}, {name}_parity ^ {});", ahead % 2));
                }
                Step::Fill { ring } => self.fill(s, *ring),
                Step::Chunks { stream, rest, .. } => {
                    let Some(Op::Stream { axis, within, guards, .. }) = self.facts.kernel.body.get(*stream) else {
                        continue;
                    };
                    let name = self.names.axis(*axis).to_string();
                    let tile = self.facts.kernel.axis(*axis).tile;
                    self.w.open("");
                    self.range(*axis, within);
                    self.guards(*axis, guards);
                    let (mut start, mut step) = (format!("{name}_begin"), format!("{name}_base += {tile}"));
                    if !guards.is_empty() {
                        self.w.line(format!("int {name}_kind = 0;"));
                        start = format!("{name}_next({name}_begin, {name}_kind)");
                        step = format!("{name}_base = {name}_next({name}_base + {tile}, {name}_kind)");
                    }
                    self.w.line("#pragma unroll 1");
                    self.w.open(format!("for (int {name}_base = {start}; {name}_base < {name}_end; {step})"));
                    self.producer(s, rest);
                    self.w.close("");
                    self.w.close("");
                }
                // The consumers' part.
                _ => {}
            }
        }
    }

    /// Announces the bytes and starts the copies, panel by panel: of a shared tile, those of this block's part.
    fn fill(&mut self, s: &Specialised, id: RingId) {
        let ring = s.ring(id);
        let name = name(s, id);
        let full = barrier(s, id, true, &format!("{name}_next"));
        self.w.line(format!("barrier_expect({full}, {});", ring.bytes));
        for tile in &ring.tiles {
            let map = self.map_name(tile.value);
            let first = ring.offset + tile.offset;
            let stage = if ring.stages == 1 { String::new() } else { format!(" + {name}_next * {}", ring.stage_bytes) };
            let [outer, inner] = tile.dims;
            let dims = dimensions(&self.facts, tile);
            debug_assert_eq!(dims.first(), Some(&inner));
            let coordinates: Vec<String> = dims
                .iter()
                .map(|&d| self.coordinate(&tile.at[d], &|axis| self.base(axis), &|_| "0".to_string()))
                .map(|c| if c.contains("floor_div") { format!("static_cast<int>({c})") } else { c })
                .collect();
            // What a block's pieces are apart from those of the first one grows with its number.
            let [own, next] = [0, 1].map(|block| pieces(tile, s.blocks(), block));
            for (piece, next) in own.iter().zip(&next) {
                let by_rank = |step: usize| match step {
                    0 => String::new(),
                    n => format!(" + cluster_rank * {n}"),
                };
                let at = |k: usize, first: usize, step: usize| {
                    let at = add(&coordinates[k], 1, &first.to_string());
                    if step == 0 { at } else { format!("{at} + static_cast<int>(cluster_rank) * {step}") }
                };
                let part = by_rank(next.place - piece.place);
                let to = add(&format!("shared_base + {}{part}{stage}", first + piece.place), 1, "0");
                let places: Vec<String> = dims
                    .iter()
                    .enumerate()
                    .map(|(k, &d)| match d {
                        d if d == inner => at(k, piece.column, next.column - piece.column),
                        d if d == outer => at(k, 0, next.row - piece.row),
                        _ => coordinates[k].clone(),
                    })
                    .collect();
                let places = places.join(", ");
                self.w.line(match tile.shared {
                    None => format!("bulk_copy({to}, {map}, {full}, {places});"),
                    Some(share) => {
                        format!("bulk_copy_to_blocks({to}, {map}, {full}, {:#x}, {places});", share.mask)
                    }
                });
            }
        }
        self.ring_advance(s, id);
    }

    /// The tensor map of a tile.
    pub(super) fn map_name(&self, value: einloom_tile::ValueId) -> String {
        format!("{}_map", self.names.value(value))
    }
}
