//! Loads into registers, and addresses in memory.

use super::element::{Emitter, add, variable};
use super::scalar::literal;
use super::type_name;
use crate::schedule::{Carrier, FrameId, Side, adjacent, affine, gathers};
use einloom_tile::{AxisId, Coord, CoordAtom, TensorId, ValueId};

/// The addresses of a tile whose coordinates are affine in its positions.
pub(super) struct Affine {
    /// The address of the tile's first element, as elements from the tensor's first.
    pub origin: String,
    /// The tile's axes and the elements between neighbours along them.
    pub strides: Vec<(AxisId, i64)>,
}

impl Emitter<'_> {
    /// Emits a load into registers of `frame`, or into a variable of every thread.
    pub fn load_registers(&mut self, dst: ValueId, tensor: TensorId, at: &[Coord], fill: Option<f64>) {
        let frame = self.frame_of(dst);
        self.declare(dst, frame);
        if fill.is_none() && !at.iter().any(gathers) && affine(&self.facts, at, &self.facts.axes(dst)) {
            self.load_affine(dst, tensor, at, frame);
        } else {
            self.load_anyhow(dst, tensor, at, fill, frame);
        }
    }

    fn load_affine(&mut self, dst: ValueId, tensor: TensorId, at: &[Coord], frame: Option<FrameId>) {
        let addresses = self.affine(dst, tensor, at);
        let Some(f) = frame else {
            let value = self.decoded(dst, tensor, &format!("{}[{}]", self.names.tensor(tensor), addresses.origin));
            let line = format!("{} = {value};", self.names.value(dst));
            return self.w.line(line);
        };
        let raw = format!("{}::raw", type_name(self.facts.program.tensor(tensor).dtype));
        self.w.open("");
        let line =
            format!("const {raw}* const from = {} + {};", self.names.tensor(tensor), parenthesised(&addresses.origin));
        self.w.line(line);
        let across = self.along(dst, f, Side::Across);
        let wide = across.map_or(1, |a| {
            let vector = self.span(f, a).vector;
            // Neighbours of one thread are adjacent from a multiple of their number on.
            if adjacent(&self.facts, tensor, at, a).is_multiple_of(vector) { vector } else { 1 }
        });
        let target = self.variable_of(dst, frame);
        match across {
            Some(a) if wide > 1 => {
                let down = self.along(dst, f, Side::Down);
                if let Some(d) = down {
                    let count = self.span(f, d).count;
                    self.w.unrolled("i", count);
                }
                let span = self.span(f, a);
                self.w.unrolled("y", span.count / wide);
                let first = format!("{} + y * {}", self.at(f, a), span.step);
                let row_exists = down.and_then(|d| self.exists(f, d, "i"));
                let offset = self.offset(&addresses, |axis| {
                    if axis == a { format!("({first})") } else { format!("({})", self.position(f, axis, "i")) }
                });
                let all = self.within_window(a, &format!("{first} + {}", wide - 1), span.cover);
                let tests: Vec<String> = row_exists.iter().chain(&all).cloned().collect();
                // Pairs stay as they are in memory.
                let pairs = self.is_packed(dst, frame);
                let (unit, units) = if pairs { ("u32", wide / 2) } else { (raw.as_str(), wide) };
                let target = format!("{target}{}", self.brackets(dst, frame, "i", &format!("y * {units} + e")));
                let outside = |e: &str| {
                    let exists = self.within_window(a, &format!("{first} + {e}"), span.cover);
                    row_exists.iter().cloned().chain(exists).collect::<Vec<_>>().join(" && ")
                };
                let (each, one) = if pairs {
                    let half = |e: &str| format!("({} ? from[{offset} + {e}] : 0u)", outside(e));
                    let one = format!("{target} = {} | {} << 16;", half("2 * e"), half("2 * e + 1"));
                    (format!("{target} = pack.x[e];"), one)
                } else {
                    let element = self.decoded(dst, tensor, &format!("from[{offset} + e]"));
                    let zero = zero(self.facts.carrier(dst));
                    let one = format!("{target} = {} ? {element} : {zero};", outside("e"));
                    (format!("{target} = {};", self.decoded(dst, tensor, "pack.x[e]")), one)
                };
                if !tests.is_empty() {
                    self.w.open(format!("if ({})", tests.join(" && ")));
                }
                self.w.line(format!(
                    "const Pack<{unit}, {units}> pack = *reinterpret_cast<const Pack<{unit}, {units}>*>(from + {offset});"
                ));
                self.w.unrolled("e", units);
                self.w.line(each);
                self.w.close("");
                if !tests.is_empty() {
                    self.w.close(" else {");
                    self.w.indent();
                    self.w.unrolled("e", units);
                    self.w.line(one);
                    self.w.close("");
                    self.w.close("");
                }
                self.w.close("");
                if down.is_some() {
                    self.w.close("");
                }
            }
            _ => {
                let loops = self.each_element(dst, frame);
                let offset = self.offset(&addresses, |axis| self.in_window(f, axis));
                let value = self.decoded(dst, tensor, &format!("from[{offset}]"));
                let element = self.element(dst, frame);
                let line = match self.element_exists(dst, f) {
                    None => format!("{element} = {value};"),
                    Some(test) => format!("{element} = {test} ? {value} : {};", zero(self.facts.carrier(dst))),
                };
                self.w.line(line);
                self.close(loops);
            }
        }
        self.w.close("");
    }

    /// Element by element, with every coordinate computed and checked.
    fn load_anyhow(&mut self, dst: ValueId, tensor: TensorId, at: &[Coord], fill: Option<f64>, frame: Option<FrameId>) {
        let loops = self.each_element(dst, frame);
        let element = self.element(dst, frame);
        let line = format!("{element} = {};", zero(self.facts.carrier(dst)));
        self.w.line(line);
        let exists = frame.and_then(|f| self.element_exists(dst, f)).unwrap_or_else(|| "true".to_string());
        self.w.open(format!("if ({exists})"));
        let position = |axis: AxisId| self.absolute(axis, frame);
        let tile = |v: ValueId| self.element(v, frame);
        let coordinates: Vec<String> = at.iter().map(|c| self.coordinate(c, &position, &tile)).collect();
        self.checked_element(dst, tensor, at, &coordinates, fill, |s, value| {
            let line = format!("{element} = {value};");
            s.w.line(line);
        });
        self.w.close("");
        self.close(loops);
    }

    /// Declares the coordinates `y0`, `y1`, … and gives the element there to `put`, or what stands for it outside.
    pub fn checked_element(
        &mut self,
        dst: ValueId,
        tensor: TensorId,
        at: &[Coord],
        coordinates: &[String],
        fill: Option<f64>,
        put: impl Fn(&mut Self, &str),
    ) {
        let strides = self.facts.strides(tensor);
        let dims = self.facts.program.tensor(tensor).dims.clone();
        let mut offset = "0".to_string();
        for (d, text) in coordinates.iter().enumerate() {
            self.w.line(format!("const i64 y{d} = {text};"));
            offset = add(&offset, strides[d], &format!("y{d}"));
        }
        let value = self.decoded(dst, tensor, &format!("{}[{offset}]", self.names.tensor(tensor)));
        let checked: Vec<usize> = match fill {
            Some(_) => (0..at.len()).collect(),
            None => (0..at.len()).filter(|&d| gathers(&at[d])).collect(),
        };
        let inside = |d: usize| format!("y{d} >= 0 && y{d} < {}", dims[d]);
        match fill {
            _ if checked.is_empty() => put(self, &value),
            Some(x) => {
                let dtype = self.facts.dtype(dst);
                let fill = self.rounded(dtype, &literal(x, true), true);
                let tests: Vec<String> = checked.iter().map(|&d| inside(d)).collect();
                put(self, &format!("{} ? {value} : {fill}", tests.join(" && ")));
            }
            None => {
                let load = self.checked_loads.len();
                self.checked_loads.push(tensor);
                for (k, &d) in checked.iter().enumerate() {
                    let head = format!("if (!({}))", inside(d));
                    if k == 0 {
                        self.w.open(head);
                    } else {
                        self.w.close(&format!(" else {head} {{"));
                        self.w.indent();
                    }
                    let number = self.number + 1;
                    self.w.line(format!("report(status, {number}, {load}, {d}, y{d});"));
                }
                self.w.close(" else {");
                self.w.indent();
                put(self, &value);
                self.w.close("");
            }
        }
    }

    /// An element as it is in memory, as the tile's carrier.
    pub fn decoded(&self, dst: ValueId, tensor: TensorId, raw: &str) -> String {
        let (from, to) = (self.facts.program.tensor(tensor).dtype, self.facts.dtype(dst));
        let value = format!("{}::decode({raw})", type_name(from));
        if from == to { value } else { format!("{}::round({value})", type_name(to)) }
    }

    /// The address of an affine access.
    pub fn affine(&self, tile: ValueId, tensor: TensorId, at: &[Coord]) -> Affine {
        let mut origin = "0".to_string();
        for (coord, stride) in at.iter().zip(self.facts.strides(tensor)) {
            let text = self.coordinate(coord, &|axis| self.base(axis), &|_| "0".to_string());
            if let Ok(n) = text.parse::<i64>() {
                origin = add(&origin, 1, &(n * stride).to_string());
            } else {
                let text = if text.contains(' ') { format!("({text})") } else { text };
                origin = add(&origin, stride, &format!("static_cast<i64>({})", super::scalar::bare(&text)));
            }
        }
        let axes = self.facts.axes(tile);
        let strides = axes.into_iter().map(|a| (a, self.facts.stride(tensor, at, a).unwrap_or(0))).collect();
        Affine { origin, strides }
    }

    /// How far an element is from the tile's first, given its positions within the windows.
    pub fn offset(&self, addresses: &Affine, position: impl Fn(AxisId) -> String) -> String {
        let reach: i64 = addresses
            .strides
            .iter()
            .map(|(a, s)| s.saturating_abs().saturating_mul(2 * self.facts.size(*a) as i64))
            .sum();
        let mut out = "0".to_string();
        for &(axis, stride) in &addresses.strides {
            let at = position(axis);
            let at = if reach > i64::from(i32::MAX) { format!("static_cast<i64>({at})") } else { at };
            out = add(&out, stride, &at);
        }
        out
    }

    /// The position within the window of the element `(i, j)`, in parentheses.
    pub fn in_window(&self, frame: FrameId, axis: AxisId) -> String {
        let side = self.schedule.frame(frame).sides.get(&axis).copied().unwrap_or(Side::Across);
        format!("({})", self.position(frame, axis, variable(side)))
    }

    /// A coordinate, given positions and elements of tiles.
    pub fn coordinate(
        &self,
        coord: &Coord,
        position: &dyn Fn(AxisId) -> String,
        tile: &dyn Fn(ValueId) -> String,
    ) -> String {
        let mut out = coord.offset.to_string();
        for (c, atom) in &coord.terms {
            let text = match atom {
                CoordAtom::Axis(axis) => {
                    let at = position(*axis);
                    if at.contains(' ') { format!("({at})") } else { at }
                }
                CoordAtom::Floor(inner, d) => {
                    format!("floor_div({}, {d})", self.coordinate(inner, position, tile))
                }
                CoordAtom::Tile(v) => format!("static_cast<i64>({})", tile(*v)),
            };
            out = add(&out, *c, &text);
        }
        out
    }
}

/// 0 of a carrier.
pub(super) fn zero(carrier: Carrier) -> &'static str {
    match carrier {
        Carrier::F32 => "0.0f",
        Carrier::F64 => "0.0",
        Carrier::I32 => "0",
    }
}

fn parenthesised(text: &str) -> String {
    if text.contains(' ') { format!("({text})") } else { text.to_string() }
}
