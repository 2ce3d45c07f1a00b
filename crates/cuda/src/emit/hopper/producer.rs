//! The producer's steps.

use super::rings::{self, barrier, dimensions, name};
use crate::emit::element::{Emitter, add};
use crate::hopper::{RingId, Specialised, Step};
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
                    let Some(Op::Stream { axis, within, .. }) = self.facts.kernel.body.get(*stream) else { continue };
                    let name = self.names.axis(*axis).to_string();
                    let tile = self.facts.kernel.axis(*axis).tile;
                    self.w.open("");
                    self.range(*axis, within);
                    self.w.line("#pragma unroll 1");
                    self.w.open(format!(
                        "for (int {name}_base = {name}_begin; {name}_base < {name}_end; {name}_base += {tile})"
                    ));
                    self.producer(s, rest);
                    self.w.close("");
                    self.w.close("");
                }
                // The consumers' part.
                _ => {}
            }
        }
    }

    /// Announces the bytes and starts the copies, panel by panel.
    fn fill(&mut self, s: &Specialised, id: RingId) {
        let ring = s.ring(id);
        let name = name(s, id);
        let full = barrier(s, id, true, &format!("{name}_next"));
        self.w.line(format!("barrier_expect({full}, {});", rings::bytes(ring)));
        for tile in &ring.tiles {
            let map = self.map_name(tile.value);
            let first = ring.offset + tile.offset;
            let stage = if ring.stages == 1 { String::new() } else { format!(" + {name}_next * {}", ring.stage_bytes) };
            let inner = tile.dims[1];
            let coordinates: Vec<String> = dimensions(&self.facts, tile)
                .into_iter()
                .map(|d| self.coordinate(&tile.at[d], &|axis| self.base(axis), &|_| "0".to_string()))
                .map(|c| if c.contains("floor_div") { format!("static_cast<int>({c})") } else { c })
                .collect();
            let innermost = coordinates.first().cloned().unwrap_or_default();
            debug_assert_eq!(dimensions(&self.facts, tile).first(), Some(&inner));
            for panel in 0..tile.columns / tile.panel() {
                let to = add(&format!("shared_base + {}{stage}", first + panel * tile.panel_bytes()), 1, "0");
                let at = add(&innermost, 1, &(panel * tile.panel()).to_string());
                let others: String = coordinates[1..].iter().map(|c| format!(", {c}")).collect();
                self.w.line(format!("bulk_copy({to}, {map}, {full}, {at}{others});"));
            }
        }
        self.ring_advance(s, id);
    }

    /// The tensor map of a tile.
    pub(super) fn map_name(&self, value: einloom_tile::ValueId) -> String {
        format!("{}_map", self.names.value(value))
    }
}
