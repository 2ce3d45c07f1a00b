//! Stores from registers.

use super::element::Emitter;
use super::type_name;
use crate::schedule::{Side, adjacent};
use einloom_tile::{Coord, TensorId, ValueId};

impl Emitter<'_> {
    /// `tensor[at] = src`, by the threads that own the elements.
    pub fn store(&mut self, tensor: TensorId, at: &[Coord], src: ValueId) {
        let dtype = type_name(self.facts.program.tensor(tensor).dtype);
        let name = self.names.tensor(tensor).to_string();
        let Some(f) = self.frame_of(src) else {
            // A tile without axes is in every thread.
            let position = |axis| self.base(axis);
            let offset = self.scalar_offset(tensor, at, &position);
            let value = self.names.value(src).to_string();
            self.w.line(format!("if (thread == 0) {name}[{offset}] = {dtype}::encode({value});"));
            return;
        };
        let regular = crate::schedule::affine(&self.facts, at, &self.facts.axes(src));
        let owner = self.is_owner(src, f);
        self.w.open(owner.map_or(String::new(), |o| format!("if ({o})")));
        if !regular {
            let loops = self.each_element(src, Some(f));
            let position = |axis| self.absolute(axis, Some(f));
            let offset = self.scalar_offset(tensor, at, &position);
            let test = self.element_exists(src, f).map_or(String::new(), |t| format!("if ({t}) "));
            let line = format!("{test}{name}[{offset}] = {dtype}::encode({});", self.element(src, Some(f)));
            self.w.line(line);
            self.close(loops);
            self.w.close("");
            return;
        }
        let addresses = self.affine(src, tensor, at);
        self.w.line(format!("{dtype}::raw* const to = {name} + ({});", addresses.origin));
        let across = self.along(src, f, Side::Across);
        let vector = across.map_or(1, |a| {
            let vector = self.span(f, a).vector;
            if adjacent(&self.facts, tensor, at, a).is_multiple_of(vector) { vector } else { 1 }
        });
        match across {
            Some(a) if vector > 1 => {
                let down = self.along(src, f, Side::Down);
                if let Some(d) = down {
                    let count = self.span(f, d).count;
                    self.w.unrolled("i", count);
                }
                let span = self.span(f, a);
                self.w.unrolled("y", span.count / vector);
                let first = format!("{} + y * {}", self.at(f, a), span.step);
                let row = down.and_then(|d| self.exists(f, d, "i"));
                let offset = self.offset(&addresses, |axis| {
                    if axis == a { format!("({first})") } else { format!("({})", self.position(f, axis, "i")) }
                });
                let whole = self.within_window(a, &format!("{first} + {}", vector - 1), span.cover);
                let element = self.element_at(src, Some(f), "i", &format!("y * {vector} + e"));
                self.w.line(format!("Pack<{dtype}::raw, {vector}> pack;"));
                self.w.unrolled("e", vector);
                self.w.line(format!("pack.x[e] = {dtype}::encode({element});"));
                self.w.close("");
                let tests: Vec<String> = row.iter().chain(&whole).cloned().collect();
                let head = if tests.is_empty() { String::new() } else { format!("if ({}) ", tests.join(" && ")) };
                self.w.line(format!("{head}*reinterpret_cast<Pack<{dtype}::raw, {vector}>*>(to + {offset}) = pack;"));
                if let Some(one) = self.within_window(a, &format!("{first} + e"), span.cover) {
                    let head = row.map_or("else".to_string(), |r| format!("else if ({r})"));
                    self.w.open(head);
                    self.w.unrolled("e", vector);
                    self.w.line(format!("if ({one}) to[{offset} + e] = pack.x[e];"));
                    self.w.close("");
                    self.w.close("");
                }
                self.w.close("");
                if down.is_some() {
                    self.w.close("");
                }
            }
            _ => {
                let loops = self.each_element(src, Some(f));
                let offset = self.offset(&addresses, |axis| self.in_window(f, axis));
                let test = self.element_exists(src, f).map_or(String::new(), |t| format!("if ({t}) "));
                let line = format!("{test}to[{offset}] = {dtype}::encode({});", self.element(src, Some(f)));
                self.w.line(line);
                self.close(loops);
            }
        }
        self.w.close("");
    }

    /// The address of one element, every coordinate computed.
    fn scalar_offset(
        &self,
        tensor: TensorId,
        at: &[Coord],
        position: &dyn Fn(einloom_tile::AxisId) -> String,
    ) -> String {
        let mut out = "0".to_string();
        for (coord, stride) in at.iter().zip(self.facts.strides(tensor)) {
            let text = self.coordinate(coord, position, &|_| "0".to_string());
            out = super::element::add(&out, stride, &format!("static_cast<i64>({text})"));
        }
        out
    }

    /// Goes on with the next chunk unless an element of the tile holds.
    pub fn skip_unless(&mut self, any: ValueId) {
        let frame = self.frame_of(any);
        self.w.open("");
        self.w.line("bool some = false;");
        let loops = self.each_element(any, frame);
        let exists = frame.and_then(|f| self.element_exists(any, f)).map_or(String::new(), |t| format!("{t} && "));
        let line = format!("some = some || ({exists}{} != 0);", self.element(any, frame));
        self.w.line(line);
        self.close(loops);
        self.w.line("if (!__syncthreads_or(some)) return;");
        self.w.close("");
    }
}
