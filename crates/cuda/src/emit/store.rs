//! Stores from registers.

use super::element::Emitter;
use super::type_name;
use crate::schedule::{Carrier, FrameId, Side, adjacent};
use einloom_cascade::DType;
use einloom_tile::{AxisId, Coord, Op, TensorId, ValueId};

impl Emitter<'_> {
    /// `tensor[at] = src`, by the threads that own the elements.
    pub fn store(&mut self, tensor: TensorId, at: &[Coord], src: ValueId) {
        let dtype = type_name(self.facts.program.tensor(tensor).dtype);
        let name = self.names.tensor(tensor).to_string();
        let Some(f) = self.frame_of(src) else {
            // A tile without axes is in every thread.
            let position = |axis| self.base(axis);
            let offset = self.scalar_offset(tensor, at, &position);
            // It may live in a state's place.
            let value = self.element(src, None);
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
                let element = self.element(src, Some(f));
                let number = self.facts.program.tensor(tensor).dtype;
                // Two neighbours are rounded together by one instruction.
                let pairs = matches!(number, DType::Bf16 | DType::F16) && self.facts.carrier(src) == Carrier::F32;
                let (unit, units) =
                    if pairs { ("u32".to_string(), vector / 2) } else { (format!("{dtype}::raw"), vector) };
                self.late_loads(src, f, a, vector, &first, row.as_deref());
                self.w.line(format!("Pack<{unit}, {units}> pack;"));
                self.w.unrolled("e", units);
                if pairs && self.is_packed(src, Some(f)) && self.facts.dtype(src) == number {
                    let whole = self.brackets(src, Some(f), "i", &format!("y * {units} + e"));
                    let line = format!("pack.x[e] = {}{whole};", self.variable_of(src, Some(f)));
                    self.w.line(line);
                } else if pairs {
                    self.w.line("float pair[2];");
                    self.w.unrolled("part", 2);
                    self.w.line(format!("const int j = y * {vector} + 2 * e + part;"));
                    self.w.line(format!("pair[part] = {element};"));
                    self.w.close("");
                    self.w.line(format!("pack.x[e] = {dtype}::pair(pair[0], pair[1]);"));
                } else {
                    self.w.line(format!("const int j = y * {vector} + e;"));
                    self.w.line(format!("pack.x[e] = {dtype}::encode({element});"));
                }
                self.w.close("");
                let tests: Vec<String> = row.iter().chain(&whole).cloned().collect();
                let head = if tests.is_empty() { String::new() } else { format!("if ({}) ", tests.join(" && ")) };
                self.w.line(if pairs {
                    format!("{head}store_words(to + {offset}, pack.x);")
                } else {
                    format!("{head}*reinterpret_cast<Pack<{unit}, {units}>*>(to + {offset}) = pack;")
                });
                if let Some(one) = self.within_window(a, &format!("{first} + e"), span.cover) {
                    let head = row.map_or("else".to_string(), |r| format!("else if ({r})"));
                    let part = if pairs { "pack.x[e / 2] >> e % 2 * 16" } else { "pack.x[e]" };
                    self.w.open(head);
                    self.w.unrolled("e", vector);
                    self.w.line(format!("if ({one}) to[{offset} + e] = static_cast<{dtype}::raw>({part});"));
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

    /// Loads what waits until `src` is stored: the vector at position `first` along `axis`.
    fn late_loads(&mut self, src: ValueId, f: FrameId, axis: AxisId, vector: usize, first: &str, row: Option<&str>) {
        let mut late = vec![];
        crate::schedule::late::each_leaf(&self.facts, &self.schedule.inlined, src, &mut |v| late.push(v));
        for v in late.into_iter().filter(|v| self.schedule.inlined.contains(v)) {
            let load = self.facts.kernel.body.iter().find_map(|op| match op {
                Op::Load { dst, tensor, at, .. } if *dst == v => Some((*tensor, at)),
                _ => None,
            });
            let Some((tensor, at)) = load else { continue };
            let addresses = self.affine(v, tensor, at);
            let offset = self.offset(&addresses, |a| {
                if a == axis { format!("({first})") } else { format!("({})", self.position(f, a, "i")) }
            });
            let cover = self.span(f, axis).cover;
            let down = self.along(v, f, Side::Down).and(row).map(str::to_string);
            let tests: Vec<String> = down.into_iter().chain(self.within_window(axis, first, cover)).collect();
            let name = self.names.value(v).to_string();
            let kind = format!("Pack<u32, {}>", vector / 2);
            let from = format!(
                "*reinterpret_cast<const {kind}*>({} + ({}) + {offset})",
                self.names.tensor(tensor),
                addresses.origin
            );
            self.w.line(format!("constexpr int {name}_in = {vector};"));
            self.w.line(if tests.is_empty() {
                format!("const {kind} {name} = {from};")
            } else {
                format!("const {kind} {name} = {} ? {from} : {kind}{{}};", tests.join(" && "))
            });
        }
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
