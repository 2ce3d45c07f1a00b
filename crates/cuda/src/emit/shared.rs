//! Tiles in shared memory: how they get there and back.

use super::element::{Emitter, digits};
use super::load::zero;
use super::type_name;
use crate::schedule::{Copy, FrameId, SharedTile, Side, adjacent, affine};
use einloom_cascade::DType;
use einloom_tile::{AxisId, Coord, TensorId, ValueId};

impl Emitter<'_> {
    /// The tile's place in shared memory; every caller has made sure that it has one.
    pub fn shared_tile(&self, v: ValueId) -> Option<SharedTile> {
        self.schedule.home(v).shared.clone()
    }

    /// Where the tile's current copy begins, in bytes.
    pub fn tile_offset(&self, v: ValueId, tile: &SharedTile) -> String {
        match self.staged.get(&v) {
            Some(axis) if tile.stages > 1 => {
                format!("({} + {}_stage * {})", tile.offset, self.names.axis(*axis), tile.stage_bytes())
            }
            _ => tile.offset.to_string(),
        }
    }

    /// `place<…>(row, at)`.
    pub fn place(tile: &SharedTile, row: &str, at: &str) -> String {
        let s = tile.swizzle;
        format!("place<{}, {}, {}>({row}, {at})", s.pitch, s.shift, s.mask)
    }

    /// An element of the tile in shared memory as an lvalue of its raw type.
    pub fn shared_element(&self, v: ValueId, tile: &SharedTile, position: &dyn Fn(AxisId) -> String) -> String {
        let element = type_name(tile.element);
        let row = tile.outer.map_or("0".to_string(), |a| super::scalar::bare(&position(a)));
        let bytes = tile.element.bytes();
        let at = position(tile.inner);
        let at =
            if bytes == 1 { super::scalar::bare(&at) } else { format!("({}) * {bytes}", super::scalar::bare(&at)) };
        let place = Self::place(tile, &row, &at);
        format!("*reinterpret_cast<{element}::raw*>(shared + {} + {place})", self.tile_offset(v, tile))
    }

    /// Emits a load into shared memory that is waited for where it is first read.
    pub fn load_shared(&mut self, dst: ValueId, tensor: TensorId, at: &[Coord], fill: Option<f64>) {
        let staged = self.staged.contains_key(&dst);
        if !staged {
            if !self.open.is_empty() {
                self.w.line("__syncthreads();  // the previous chunk has been read");
            }
            match self.schedule.copies.get(&dst).cloned() {
                Some(Copy::Async { bytes }) => {
                    self.copy_async(dst, tensor, at, bytes, "0");
                    self.w.line("copies_commit();");
                    self.pending.insert(dst);
                }
                _ => {
                    self.copy_elements(dst, tensor, at, fill);
                    self.w.line("__syncthreads();");
                }
            }
        }
        self.read_back(dst);
    }

    /// `cp.async` of the tile's current window into a stage.
    pub fn copy_async(&mut self, dst: ValueId, tensor: TensorId, at: &[Coord], bytes: usize, stage: &str) {
        let Some(tile) = self.shared_tile(dst) else { return };
        let addresses = self.affine(dst, tensor, at);
        let element = tile.element.bytes();
        let per = bytes / element;
        let groups = tile.columns.div_ceil(per);
        let total = tile.rows * groups;
        let threads = self.schedule.threads();
        let raw = type_name(tile.element);
        self.w.open("");
        let line = format!("const {raw}::raw* const from = {} + ({});", self.names.tensor(tensor), addresses.origin);
        self.w.line(line);
        let begin = if stage == "0" || tile.stages == 1 {
            tile.offset.to_string()
        } else {
            format!("{} + {stage} * {}", tile.offset, tile.stage_bytes())
        };
        self.w.line(format!("const u32 to = shared_base + {begin};"));
        let rounds = total.div_ceil(threads);
        let first = if stage == "stage" { format!("pinned<{threads}>(thread)") } else { "thread".to_string() };
        let valid = |row: &str| {
            let row_test = tile.outer.and_then(|a| self.in_copy(a, row, tile.rows));
            let valid = match self.in_copy(tile.inner, "column", tile.columns) {
                None => bytes.to_string(),
                Some(_) => {
                    let len = self.len(tile.inner);
                    if per == 1 {
                        format!("(column < {len} ? {bytes} : 0)")
                    } else {
                        format!("max_int(0, min_int({per}, {len} - column)) * {element}")
                    }
                }
            };
            row_test.map_or(valid.clone(), |t| format!("{t} ? {valid} : 0"))
        };
        let offset = self.offset(&addresses, |axis| if axis == tile.inner { "column".into() } else { "row".into() });
        let column = if element == 1 { "column".to_string() } else { format!("column * {element}") };
        let place = Self::place(&tile, "row", &column);
        // Rows from one round to the next.
        let step = threads / groups;
        let swizzle = tile.swizzle;
        if threads.is_multiple_of(groups) && step.is_multiple_of((swizzle.mask + 1) << swizzle.shift) && rounds <= 32 {
            // Each round's addresses are a constant from the first's.
            let stride = addresses.strides.iter().find(|s| Some(s.0) == tile.outer).map_or(0, |s| s.1);
            let valid = valid(&format!("row + e * {step}"));
            self.w.line(format!("const int own = {first};"));
            self.w.line(format!("const int row = own / {groups}, column = own % {groups} * {per};"));
            self.w.line(format!("const {raw}::raw* const start = from + {offset};"));
            self.w.line(format!("const u32 into = to + {place};"));
            self.w.unrolled("e", rounds);
            let guard = if tile.rows.is_multiple_of(step) {
                String::new()
            } else {
                format!("if (row + e * {step} < {}) ", tile.rows)
            };
            let apart = step as i64 * stride;
            let (pitch, far) = (step * swizzle.pitch, apart.saturating_mul(rounds as i64) > i64::from(i32::MAX));
            let e = if far { "static_cast<i64>(e)" } else { "e" };
            self.w.line(format!("{guard}copy_async<{bytes}>(into + e * {pitch}, start + {e} * {apart}, {valid});"));
            self.w.close("");
            return self.w.close("");
        }
        let valid = valid("row");
        // More addresses at a time cost registers.
        self.w.line(if rounds <= 8 { "#pragma unroll" } else { "#pragma unroll 4" });
        self.w.open(format!("for (int e = {first}; e < {total}; e += {threads})"));
        self.w.line(format!("const int row = e / {groups}, column = e % {groups} * {per};"));
        self.w.line(format!("copy_async<{bytes}>(to + {place}, from + {offset}, {valid});"));
        self.w.close("");
        self.w.close("");
    }

    /// The test that a copied row or column is in the window; `None` if all are.
    fn in_copy(&self, axis: AxisId, position: &str, count: usize) -> Option<String> {
        let full = self.always_full(axis) && self.facts.size(axis) == count;
        (!full).then(|| format!("{position} < {}", self.len(axis)))
    }

    /// Squares of four by four bytes whose columns lie in memory as the tile's rows do in shared memory, each of them transposed
    /// in registers, with zeros outside the tile's windows; false if the tile is not made of them: types of one byte that are the
    /// same in both, at addresses that are affine, where four neighbours in memory begin at multiples of four bytes.
    fn copy_squares(&mut self, dst: ValueId, tensor: TensorId, at: &[Coord], fill: Option<f64>) -> bool {
        /// Bytes of a word, and lanes of a warp that take neighbours in memory: what memory gives at a time.
        const WORD: usize = 4;
        const BESIDE: usize = 8;
        let Some(tile) = self.shared_tile(dst) else { return false };
        let Some(outer) = tile.outer else { return false };
        let memory = self.facts.program.tensor(tensor).dtype;
        let plain = matches!(memory, DType::I8 | DType::U8 | DType::E4m3 | DType::E5m2);
        let same = plain && memory == tile.element && self.facts.dtype(dst) == memory;
        let regular = fill.is_none() && affine(&self.facts, at, &self.facts.axes(dst));
        let whole = tile.rows.is_multiple_of(WORD) && tile.columns.is_multiple_of(WORD);
        if !same || !regular || !whole || adjacent(&self.facts, tensor, at, outer) < WORD {
            return false;
        }
        let (down, across) = (tile.rows / WORD, tile.columns / WORD);
        let (threads, total) = (self.schedule.threads(), down * across);
        self.w.line("#pragma unroll 4");
        self.w.open(format!("for (int e = thread; e < {total}; e += {threads})"));
        let beside = 32 / BESIDE;
        // A warp takes eight by four squares: as many neighbours, and rows of shared memory in few of its banks.
        let line = if down.is_multiple_of(BESIDE) && across.is_multiple_of(beside) {
            let blocks = down / BESIDE;
            format!(
                "const int row = (e / 32 % {blocks} * {BESIDE} + e % {BESIDE}) * {WORD}, \
                 column = (e / 32 / {blocks} * {beside} + e / {BESIDE} % {beside}) * {WORD};"
            )
        } else {
            format!("const int row = e % {down} * {WORD}, column = e / {down} * {WORD};")
        };
        self.w.line(line);
        let raw = type_name(tile.element);
        let addresses = self.affine(dst, tensor, at);
        let offset =
            self.offset(&addresses, |axis| if axis == tile.inner { "(column + i)".into() } else { "row".into() });
        self.w.line("u32 words[4];");
        self.w.unrolled("i", WORD);
        let from = format!("{} + ({} + {offset})", self.names.tensor(tensor), addresses.origin);
        let column = self.in_copy(tile.inner, "column + i", tile.columns);
        self.w.line("words[i] = 0;");
        self.w.open(column.map_or(String::new(), |test| format!("if ({test})")));
        self.w.line(format!("const {raw}::raw* const from = {from};"));
        match self.in_copy(outer, &format!("row + {}", WORD - 1), tile.rows) {
            None => self.w.line("words[i] = *reinterpret_cast<const u32*>(from);"),
            Some(test) => {
                self.w.open(format!("if ({test})"));
                self.w.line("words[i] = *reinterpret_cast<const u32*>(from);");
                self.w.close("");
                self.w.open("else");
                self.w.unrolled("k", WORD);
                let len = self.len(outer);
                self.w.line(format!(
                    "if (row + k < {len}) words[i] |= u32(reinterpret_cast<const u8*>(from)[k]) << (8 * k);"
                ));
                self.w.close("");
                self.w.close("");
            }
        }
        self.w.close("");
        self.w.close("");
        self.w.line("transpose_bytes(words);");
        self.w.unrolled("i", WORD);
        let place = Self::place(&tile, "row + i", "column");
        let offset = self.tile_offset(dst, &tile);
        self.w.line(format!("*reinterpret_cast<u32*>(shared + {offset} + {place}) = words[i];"));
        self.w.close("");
        self.w.close("");
        true
    }

    /// Element by element, with zeros outside the tile's windows.
    fn copy_elements(&mut self, dst: ValueId, tensor: TensorId, at: &[Coord], fill: Option<f64>) {
        if self.copy_squares(dst, tensor, at, fill) {
            return;
        }
        let Some(tile) = self.shared_tile(dst) else { return };
        let threads = self.schedule.threads();
        let total = tile.rows * tile.columns;
        self.w.open(format!("for (int e = thread; e < {total}; e += {threads})"));
        // Neighbouring threads take neighbours in memory, whichever way the tile lies in shared memory.
        let along_rows = tile.outer.is_some_and(|a| self.facts.stride(tensor, at, a) == Some(1))
            && self.facts.stride(tensor, at, tile.inner) != Some(1);
        let line = if along_rows {
            format!("const int row = e % {0}, column = e / {0};", tile.rows)
        } else {
            format!("const int row = e / {0}, column = e % {0};", tile.columns)
        };
        self.w.line(line);
        let carrier = self.facts.carrier(dst);
        self.w.line(format!("{} x = {};", carrier.name(), zero(carrier)));
        let mut tests: Vec<String> = tile.outer.and_then(|a| self.in_copy(a, "row", tile.rows)).into_iter().collect();
        tests.extend(self.in_copy(tile.inner, "column", tile.columns));
        self.w.open(if tests.is_empty() { String::new() } else { format!("if ({})", tests.join(" && ")) });
        let regular = fill.is_none() && affine(&self.facts, at, &self.facts.axes(dst));
        if regular {
            let addresses = self.affine(dst, tensor, at);
            let offset =
                self.offset(&addresses, |axis| if axis == tile.inner { "column".into() } else { "row".into() });
            let raw = format!("{}[{} + {offset}]", self.names.tensor(tensor), addresses.origin);
            let line = format!("x = {};", self.decoded(dst, tensor, &raw));
            self.w.line(line);
        } else {
            let position = |axis: AxisId| {
                let inside = if axis == tile.inner {
                    "column"
                } else if Some(axis) == tile.outer {
                    "row"
                } else {
                    "0"
                };
                super::element::add(&self.base(axis), 1, inside)
            };
            let coordinates: Vec<String> =
                at.iter().map(|c| self.coordinate(c, &position, &|_| "0".to_string())).collect();
            self.checked_element(dst, tensor, at, &coordinates, fill, |s, value| s.w.line(format!("x = {value};")));
        }
        self.w.close("");
        let target = self.shared_element(dst, &tile, &|axis| {
            if axis == tile.inner { "column".into() } else { "row".into() }
        });
        self.w.line(format!("{target} = {}::encode(x);", type_name(tile.element)));
        self.w.close("");
    }

    /// Puts a tile that was made in registers into shared memory, if it is read from there; then into other frames.
    pub fn share(&mut self, v: ValueId) {
        let (Some(tile), Some(f)) = (self.shared_tile(v), self.frame_of(v)) else { return };
        if !self.open.is_empty() {
            let line = format!("__syncthreads();  // the previous {} has been read", self.names.value(v));
            self.w.line(line);
        }
        let owner = self.is_owner(v, f);
        self.w.open(owner.map_or(String::new(), |o| format!("if ({o})")));
        let loops = self.each_element(v, Some(f));
        let mut held = vec![];
        for (axis, count) in [(tile.outer, tile.rows), (Some(tile.inner), tile.columns)] {
            if let Some(axis) = axis
                && self.span(f, axis).cover > count
            {
                held.push(format!("{} < {count}", self.in_window(f, axis)));
            }
        }
        let target = self.shared_element(v, &tile, &|axis| self.in_window(f, axis));
        let element = self.element(v, Some(f));
        let element = match self.element_exists(v, f) {
            // What lies outside the tile adds nothing to a sum.
            Some(test) => format!("{test} ? {element} : {}", zero(self.facts.carrier(v))),
            None => element,
        };
        let guard = if held.is_empty() { String::new() } else { format!("if ({}) ", held.join(" && ")) };
        self.w.line(format!("{guard}{target} = {}::encode({element});", type_name(tile.element)));
        self.close(loops);
        self.w.close("");
        self.w.line("__syncthreads();");
        self.read_back(v);
    }

    /// Reads a tile back into the frames that need it.
    fn read_back(&mut self, v: ValueId) {
        let frames = self.schedule.home(v).read_back.clone();
        let Some(tile) = self.shared_tile(v) else { return };
        if frames.is_empty() {
            return;
        }
        self.arrived(v);
        for f in frames {
            self.declare(v, Some(f));
            let loops = self.each_element(v, Some(f));
            let mut held = vec![];
            for (axis, count) in [(tile.outer, tile.rows), (Some(tile.inner), tile.columns)] {
                if let Some(axis) = axis
                    && self.span(f, axis).cover > count
                {
                    held.push(format!("{} < {count}", self.in_window(f, axis)));
                }
            }
            let source = self.shared_element(v, &tile, &|axis| self.in_window(f, axis));
            let mut value = format!("{}::decode({source})", type_name(tile.element));
            if !held.is_empty() {
                value = format!("{} ? {value} : {}", held.join(" && "), zero(self.facts.carrier(v)));
            }
            let line = format!("{} = {value};", self.element(v, Some(f)));
            self.w.line(line);
            self.close(loops);
        }
    }

    /// Waits for the tile's copies, if they may still be under way.
    pub fn arrived(&mut self, v: ValueId) {
        if self.pending.contains(&v) {
            self.w.line("copies_wait<0>();");
            self.w.line("__syncthreads();");
            self.pending.clear();
        }
    }

    /// Clears what no copy ever writes: the parts of tiles that only instructions reach.
    pub fn clear_padding(&mut self) {
        for v in (0..self.facts.kernel.values.len() as u32).map(ValueId) {
            let (Some(tile), crate::schedule::Made::Registers(f)) = (self.shared_tile(v), self.schedule.home(v).made)
            else {
                continue;
            };
            let sides = [(tile.outer, tile.rows), (Some(tile.inner), tile.columns)];
            let short = |(axis, count): (Option<AxisId>, usize)| axis.is_some_and(|a| self.span(f, a).cover < count);
            if sides.into_iter().any(short) {
                let (offset, bytes, threads) = (tile.offset, tile.stage_bytes(), self.schedule.threads());
                self.w.line(format!("// {}: zeros beyond the tile", self.names.value(v)));
                self.w.line(format!(
                    "for (int e = thread; e < {}; e += {threads}) reinterpret_cast<u32*>(shared + {offset})[e] = 0;",
                    bytes / 4
                ));
                self.w.line("__syncthreads();");
            }
        }
    }

    /// Declares a thread's first position along every axis of every frame.
    pub fn declare_positions(&mut self) {
        for (k, frame) in self.schedule.frames.iter().enumerate() {
            for (&axis, &side) in &frame.sides {
                let f = FrameId(k);
                let span = frame.span(side, self.facts.size(axis));
                let what = if side == Side::Down { "down" } else { "across" };
                let line = format!(
                    "const int {} = {};  // {what}: {} of {} positions",
                    self.at(f, axis),
                    digits(&span.start),
                    span.count,
                    span.cover
                );
                self.w.line(line);
            }
        }
    }
}
