//! Products.

use super::element::{Emitter, digits};
use super::load::zero;
use super::type_name;
use crate::schedule::{FrameId, Instruction, Operand, Product, Side};
use einloom_cascade::DType;
use einloom_tile::{AxisId, Op, ValueId};

impl Emitter<'_> {
    /// `dst = acc + left · right`.
    pub fn mma(&mut self, dst: ValueId, acc: Option<ValueId>) {
        let Some(p) = self.schedule.products.get(&dst).cloned() else { return };
        for v in [p.left, p.right] {
            self.arrived(v);
        }
        match p.instruction {
            Instruction::TensorCore(operand) => self.tensor_core(dst, acc, &p, operand),
            Instruction::Fma(number) => self.multiply_add(dst, acc, &p, number),
        }
    }

    /// Declares the result and sets it to what is added to, or to 0.
    pub(super) fn start_sum(&mut self, dst: ValueId, acc: Option<ValueId>) {
        let frame = self.frame_of(dst);
        self.declare(dst, frame);
        let (to, from) = (self.element(dst, frame), acc.map(|a| self.element(a, frame)));
        if from.as_ref() == Some(&to) {
            return;
        }
        let loops = self.each_element(dst, frame);
        let from = from.unwrap_or_else(|| zero(self.facts.carrier(dst)).to_string());
        self.w.line(format!("{to} = {from};"));
        self.close(loops);
    }

    /// Rounds a sum to the result's number type, if that is narrower than its carrier.
    pub(super) fn finish_sum(&mut self, dst: ValueId) {
        let dtype = self.facts.dtype(dst);
        if matches!(dtype, DType::F32 | DType::F64 | DType::I32) {
            return;
        }
        let frame = self.frame_of(dst);
        let loops = self.each_element(dst, frame);
        let element = self.element(dst, frame);
        self.w.line(format!("{element} = {}::round({element});", type_name(dtype)));
        self.close(loops);
    }

    fn tensor_core(&mut self, dst: ValueId, acc: Option<ValueId>, p: &Product, operand: Operand) {
        let f = p.frame;
        let (Some(down), Some(across)) = (self.along(dst, f, Side::Down), self.along(dst, f, Side::Across)) else {
            return;
        };
        let (m, n) = (self.span(f, down).count / 2, self.span(f, across).count / 4);
        let depths = self.facts.size(p.sum).div_ceil(operand.depth());
        // The compiler would start more loads of operands at once than it has registers for.
        let held = self.schedule.held.contains(&dst);
        let rolled = depths > 8 && !p.left_in_registers && !held;
        let from_zero = acc.is_none() && !rolled;
        if from_zero {
            let frame = self.frame_of(dst);
            self.declare(dst, frame);
        } else {
            self.start_sum(dst, acc);
        }
        self.w.open("");
        if self.open.is_empty() {
            self.w.line("const int own = lane;");
        } else {
            self.w.line("const int own = pinned<32>(lane);");
        }
        let from_registers = p.left_in_registers || held;
        let left = if from_registers { None } else { self.operand("left", p, p.left, f, down) };
        let Some(right) = self.operand("right", p, p.right, f, across) else { return };
        if rolled {
            self.w.line("#pragma unroll 4");
            self.w.open(format!("for (int k = 0; k < {depths}; ++k)"));
        } else {
            self.w.unrolled("k", depths);
        }
        if held {
            self.w.line(format!("const auto& left = {}_held[k];", self.names.value(p.left)));
        } else {
            self.w.line(format!("u32 left[{m}][4];"));
            self.w.unrolled("x", m);
            match left {
                Some(at) => self.w.line(at.load("left[x]", "x")),
                None => self.left_from_registers(p, operand),
            }
            self.w.close("");
        }
        self.w.unrolled("y", n);
        self.w.line("u32 right[4];");
        self.w.line(right.load("right", "y"));
        self.w.unrolled("x", m);
        let c = self.variable_of(dst, Some(f));
        for (half, j) in [(0, "4 * y"), (1, "4 * y + 2")] {
            let (r0, r1) = (2 * half, 2 * half + 1);
            let name = instruction(operand);
            let arguments = format!("(&{c}[2 * x][{j}], &{c}[2 * x + 1][{j}], left[x], right[{r0}], right[{r1}]);");
            if from_zero {
                self.w.line(format!("if (k == 0) {name}_zero{arguments}"));
                self.w.line(format!("else {name}{arguments}"));
            } else {
                self.w.line(format!("{name}{arguments}"));
            }
        }
        for _ in 0..4 {
            self.w.close("");
        }
        self.finish_sum(dst);
    }

    /// Reads the left operands that stay in registers through a stream, before it; its first `ahead` groups of copies may
    /// be under way.
    pub fn hold(&mut self, body: &[Op], ahead: Option<usize>) {
        let held = body.iter().filter_map(|op| {
            let Op::Mma { dst, .. } = op else { return None };
            let p = self.schedule.products.get(dst).filter(|_| self.schedule.held.contains(dst))?;
            Some((*dst, p.clone()))
        });
        let held: Vec<(ValueId, Product)> = held.collect();
        if held.is_empty() {
            return;
        }
        match ahead {
            Some(groups) => {
                self.w.line(format!("copies_wait<{groups}>();"));
                self.w.line("__syncthreads();");
            }
            None => held.iter().for_each(|(_, p)| self.arrived(p.left)),
        }
        let mut done = vec![];
        for (dst, p) in held {
            let Instruction::TensorCore(operand) = p.instruction else { continue };
            let Some(down) = self.along(dst, p.frame, Side::Down) else { continue };
            if done.contains(&p.left) {
                continue;
            }
            done.push(p.left);
            let (m, depths) = (self.span(p.frame, down).count / 2, self.facts.size(p.sum).div_ceil(operand.depth()));
            let name = format!("{}_held", self.names.value(p.left));
            self.w.line(format!("u32 {name}[{depths}][{m}][4];"));
            self.w.open("");
            self.w.line("const int own = lane;");
            if let Some(at) = self.operand("left", &p, p.left, p.frame, down) {
                self.w.unrolled("k", depths);
                self.w.unrolled("x", m);
                self.w.line(at.load(&format!("{name}[k][x]"), "x"));
                self.close(2);
            }
            self.w.close("");
        }
    }

    /// Declares where a thread's first row of an operand's first matrices begins; `kept` is its axis that the result has.
    fn operand(&mut self, name: &str, p: &Product, v: ValueId, f: FrameId, kept: AxisId) -> Option<Matrices> {
        let tile = self.shared_tile(v)?;
        let span = self.span(f, kept);
        // Rows of 16 of the kept axis that a warp owns begin here.
        let first = parenthesised(&digits(&span.start[..1]));
        let by_sum = tile.inner == p.sum;
        // Lane l gives the address of row l % 8 of matrix l / 8: PTX ISA, "ldmatrix".
        let (row, at) = match (by_sum, name) {
            (true, "left") => (format!("{first} + own % 16"), "own / 16 * 16".to_string()),
            (false, "left") => ("own % 8 + own / 16 * 8".to_string(), format!("({first} + own / 8 % 2 * 8) * 2")),
            (true, _) => (format!("{first} + own % 8 + own / 16 * 8"), "own / 8 % 2 * 16".to_string()),
            (false, _) => ("own % 16".to_string(), format!("({first} + own / 16 * 8) * 2")),
        };
        let (place, offset) = (Self::place(&tile, &row, &at), self.tile_offset(v, &tile));
        self.w.line(format!("const u32 {name}_from = shared_base + {offset} + {place};"));
        let matrices = span.count / if name == "left" { 2 } else { 4 };
        let apart = by_sum || span.start[0].modulus == 1 || matrices.is_power_of_two();
        let s = tile.swizzle;
        let otherwise = (!apart).then(|| {
            let place = Self::place(&tile, &format!("k * 16 + {row}"), &format!("{at} + x * 32"));
            format!("shared_base + {offset} + {place}")
        });
        Some(Matrices { name: name.to_string(), by_sum, pitch: s.pitch, mask: s.mask, otherwise })
    }

    /// Accumulators of one product as the left operand of the next: neighbouring columns become halves of a register.
    fn left_from_registers(&mut self, p: &Product, operand: Operand) {
        let pair = if operand == Operand::Bf16 { "BF16::pair" } else { "F16::pair" };
        let name = self.variable_of(p.left, Some(p.frame));
        self.w.unrolled("e", 4);
        if self.is_packed(p.left, Some(p.frame)) {
            let packed = format!("{name}[2 * x + e % 2][2 * k + e / 2]");
            let exists = |x: usize| self.exists(p.frame, p.sum, &format!("(4 * k + e / 2 * 2 + {x})"));
            let line = match (exists(0), exists(1)) {
                (Some(low), Some(high)) => format!("left[x][e] = keep_halves({packed}, {low}, {high});"),
                _ => format!("left[x][e] = {packed};"),
            };
            self.w.line(line);
            return self.w.close("");
        }
        let part = |x: usize| {
            let j = format!("(4 * k + e / 2 * 2 + {x})");
            let element = format!("{name}[2 * x + e % 2][{j}]");
            match self.exists(p.frame, p.sum, &j) {
                Some(test) => format!("{test} ? {element} : 0.0f"),
                None => element,
            }
        };
        let line = format!("left[x][e] = {pair}({}, {});", part(0), part(1));
        self.w.line(line);
        self.w.close("");
    }
}

/// Where the matrices of an operand are in shared memory.
struct Matrices {
    name: String,
    /// Whether the summed axis is along the rows.
    by_sum: bool,
    pitch: usize,
    mask: usize,
    /// The address for `k` and `x`, where steps and a warp's start have bits in common.
    otherwise: Option<String>,
}

impl Matrices {
    /// Loads four matrices: 32 bytes at step `k` of the summed axis and step `x` of the other one.
    fn load(&self, to: &str, x: &str) -> String {
        let Self { name, pitch, mask, .. } = self;
        let function = if self.by_sum { "load_matrices" } else { "load_matrices_transposed" };
        let address = match &self.otherwise {
            Some(address) => address.replace("+ x * 32", &format!("+ {x} * 32")),
            None if self.by_sum => format!("along<{mask}>({name}_from, k * 32) + {x} * {}", 16 * pitch),
            None => format!("along<{mask}>({name}_from, {x} * 32) + k * {}", 16 * pitch),
        };
        format!("{function}({to}, {address});")
    }
}

fn parenthesised(text: &str) -> String {
    if text.contains(' ') { format!("({text})") } else { text.to_string() }
}

fn instruction(operand: Operand) -> &'static str {
    match operand {
        Operand::Bf16 => "mma_bf16",
        Operand::F16 => "mma_f16",
        Operand::Bytes([true, true]) => "mma_s8_s8",
        Operand::Bytes([true, false]) => "mma_s8_u8",
        Operand::Bytes([false, true]) => "mma_u8_s8",
        Operand::Bytes([false, false]) => "mma_u8_u8",
    }
}
