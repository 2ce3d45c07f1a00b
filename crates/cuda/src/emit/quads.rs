//! Stores of accumulator fragments, 16 bytes per lane.
//!
//! In a fragment the four lanes of a quad hold two neighbouring columns each of every eight. Four such groups of columns,
//! exchanged within the quad, leave each lane with all eight columns of one group: four times fewer, four times wider
//! stores, and no half-written sectors.

use super::element::Emitter;
use super::type_name;
use crate::hopper::epilogue::{self, Epilogue, WIDE};
use crate::schedule::Side;
use einloom_tile::{Coord, TensorId, ValueId};

impl Emitter<'_> {
    /// Emits the store if it goes [`Epilogue::Quads`]' way. Whether it did.
    pub fn store_quads(&mut self, tensor: TensorId, at: &[Coord], src: ValueId) -> bool {
        if epilogue::choose(&self.facts, self.schedule, tensor, at, src) != Epilogue::Quads {
            return false;
        }
        let dtype = self.facts.program.tensor(tensor).dtype;
        let Some(f) = self.frame_of(src) else { return false };
        let sides = [Side::Down, Side::Across].map(|side| self.along(src, f, side));
        let [Some(down), Some(across)] = sides else { return false };
        let span = self.span(f, across);
        let ty = type_name(dtype);
        let addresses = self.affine(src, tensor, at);
        self.w.open("");
        let name = self.names.tensor(tensor).to_string();
        self.w.line(format!("{ty}::raw* const to = {name} + ({});", addresses.origin));
        self.w.unrolled("i", self.span(f, down).count);
        self.w.unrolled("y", span.count / WIDE);
        self.w.line("u32 quad[4];");
        self.w.unrolled("e", 4);
        let pair = |x: usize| self.element_at(src, Some(f), "i", &format!("y * {WIDE} + 2 * e + {x}"));
        let line = format!("quad[e] = {ty}::pair({}, {});", pair(0), pair(1));
        self.w.line(line);
        self.w.close("");
        self.w.line("exchange_quad(quad, lane);");
        self.w.line(format!("const int first = {} + lane % 4 * 6 + y * 32;", self.at(f, across)));
        let row = self.exists(f, down, "i");
        let whole = self.within_window(across, &format!("first + {}", WIDE - 1), span.cover);
        let offset = self.offset(&addresses, |axis| {
            if axis == across { "first".to_string() } else { format!("({})", self.position(f, axis, "i")) }
        });
        let tests: Vec<String> = row.iter().chain(&whole).cloned().collect();
        let head = if tests.is_empty() { String::new() } else { format!("if ({}) ", tests.join(" && ")) };
        self.w.line(format!("{head}store_16(to + {offset}, quad);"));
        if let Some(one) = self.within_window(across, "first + e", span.cover) {
            self.w.open(row.map_or("else".to_string(), |r| format!("else if ({r})")));
            self.w.unrolled("e", WIDE);
            self.w.line(format!("if ({one}) to[{offset} + e] = static_cast<{ty}::raw>(quad[e / 2] >> (e % 2 * 16));"));
            self.w.close("");
            self.w.close("");
        }
        self.w.close("");
        self.w.close("");
        self.w.close("");
        true
    }
}
