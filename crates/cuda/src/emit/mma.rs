//! Products.

use super::element::{Emitter, digits};
use super::load::zero;
use super::scalar::bare;
use super::type_name;
use crate::schedule::{Carrier, FrameId, Instruction, Operand, Product, SharedTile, Side};
use einloom_cascade::DType;
use einloom_tile::{AxisId, ValueId};

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
    fn start_sum(&mut self, dst: ValueId, acc: Option<ValueId>) {
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
    fn finish_sum(&mut self, dst: ValueId) {
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
        self.start_sum(dst, acc);
        let f = p.frame;
        let (Some(down), Some(across)) = (self.along(dst, f, Side::Down), self.along(dst, f, Side::Across)) else {
            return;
        };
        let (m, n) = (self.span(f, down).count / 2, self.span(f, across).count / 4);
        let depths = self.facts.size(p.sum).div_ceil(operand.depth());
        let warp_row = digits(&self.span(f, down).start[..1]);
        let warp_column = digits(&self.span(f, across).start[..1]);
        self.w.open("");
        if self.open.is_empty() {
            self.w.line("const int own = lane;");
        } else {
            self.w.line("const int own = pinned<32>(lane);");
        }
        if depths > 8 && !p.left_in_registers {
            // The compiler would start more loads of operands at once than it has registers for.
            self.w.line("#pragma unroll 4");
            self.w.open(format!("for (int k = 0; k < {depths}; ++k)"));
        } else {
            self.w.unrolled("k", depths);
        }
        self.w.line(format!("u32 left[{m}][4];"));
        self.w.unrolled("x", m);
        if p.left_in_registers {
            self.left_from_registers(p, operand);
        } else if let Some(tile) = self.shared_tile(p.left) {
            let by_sum = tile.inner == p.sum;
            let first = super::element::add("x * 16", 1, &parenthesised(&warp_row));
            let (row, at) = if by_sum {
                (format!("{first} + own % 16"), "k * 32 + own / 16 * 16".to_string())
            } else {
                ("k * 16 + own % 8 + own / 16 * 8".to_string(), format!("({first} + own / 8 % 2 * 8) * 2"))
            };
            self.matrices("left[x]", p.left, &tile, &row, &at, !by_sum);
        }
        self.w.close("");
        if let Some(tile) = self.shared_tile(p.right) {
            self.w.unrolled("y", n);
            self.w.line("u32 right[4];");
            let by_sum = tile.inner == p.sum;
            let first = super::element::add("y * 16", 1, &parenthesised(&warp_column));
            let (row, at) = if by_sum {
                (format!("{first} + own % 8 + own / 16 * 8"), "k * 32 + own / 8 % 2 * 16".to_string())
            } else {
                ("k * 16 + own % 16".to_string(), format!("({first} + own / 16 * 8) * 2"))
            };
            self.matrices("right", p.right, &tile, &row, &at, !by_sum);
            self.w.unrolled("x", m);
            let c = self.variable_of(dst, Some(f));
            for (half, j) in [(0, "4 * y"), (1, "4 * y + 2")] {
                let (r0, r1) = (2 * half, 2 * half + 1);
                self.w.line(format!(
                    "{}(&{c}[2 * x][{j}], &{c}[2 * x + 1][{j}], left[x], right[{r0}], right[{r1}]);",
                    instruction(operand)
                ));
            }
            self.w.close("");
            self.w.close("");
        }
        self.w.close("");
        self.w.close("");
        self.finish_sum(dst);
    }

    fn matrices(&mut self, to: &str, v: ValueId, tile: &SharedTile, row: &str, at: &str, transposed: bool) {
        let name = if transposed { "load_matrices_transposed" } else { "load_matrices" };
        let line =
            format!("{name}({to}, shared_base + {} + {});", self.tile_offset(v, tile), Self::place(tile, row, at));
        self.w.line(line);
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

    fn multiply_add(&mut self, dst: ValueId, acc: Option<ValueId>, p: &Product, number: Carrier) {
        let carrier = self.facts.carrier(dst);
        let frame = self.frame_of(dst);
        // Sums of another type than the result's have registers of their own.
        let apart = carrier != number;
        let sum = if apart { "product".to_string() } else { self.variable_of(dst, frame) };
        if apart {
            self.declare(dst, frame);
            self.w.open("");
            let count = |side| frame.and_then(|f| self.along(dst, f, side).map(|a| self.span(f, a).count.to_string()));
            let (i, j) = (count(Side::Down).unwrap_or_default(), count(Side::Across).unwrap_or_default());
            let line = format!("{} product{};", number.name(), self.brackets(dst, frame, &i, &j));
            self.w.line(line);
            let loops = self.each_element(dst, frame);
            let line = format!("product{} = {};", self.brackets(dst, frame, "i", "j"), zero(number));
            self.w.line(line);
            self.close(loops);
        } else {
            self.start_sum(dst, acc);
        }
        let len = self.len(p.sum);
        self.w.line("#pragma unroll 4");
        self.w.open(format!("for (int e = 0; e < {len}; ++e)"));
        for (name, v, side) in [("left", p.left, Side::Down), ("right", p.right, Side::Across)] {
            self.factor(name, v, side, dst, frame, p.sum, number);
        }
        let loops = self.each_element(dst, frame);
        let has = |side| frame.is_some_and(|f| self.along(dst, f, side).is_some());
        let left = if has(Side::Down) { "left[i]" } else { "left" };
        let right = if has(Side::Across) { "right[j]" } else { "right" };
        let target = format!("{sum}{}", self.brackets(dst, frame, "i", "j"));
        let line = match number {
            Carrier::F32 => format!("{target} = fmaf({left}, {right}, {target});"),
            Carrier::F64 => format!("{target} = fma({left}, {right}, {target});"),
            Carrier::I32 => format!("{target} += {left} * {right};"),
        };
        self.w.line(line);
        self.close(loops);
        self.w.close("");
        if apart {
            let loops = self.each_element(dst, frame);
            let brackets = self.brackets(dst, frame, "i", "j");
            let product = format!("static_cast<double>(product{brackets})");
            let value = match acc {
                Some(a) => format!("static_cast<double>({}) + {product}", self.element(a, frame)),
                None => product,
            };
            let value = self.rounded(self.facts.dtype(dst), &value, true);
            let line = format!("{} = {value};", self.element(dst, frame));
            self.w.line(line);
            self.close(loops);
            self.w.close("");
        } else {
            self.finish_sum(dst);
        }
    }

    /// Reads what a thread needs of a factor for term `e`.
    #[allow(clippy::too_many_arguments)]
    fn factor(
        &mut self,
        name: &str,
        v: ValueId,
        side: Side,
        dst: ValueId,
        frame: Option<FrameId>,
        sum: AxisId,
        number: Carrier,
    ) {
        let kept = frame.and_then(|f| self.along(dst, f, side).map(|a| (f, a)));
        if let Some((f, axis)) = kept {
            let span = self.span(f, axis);
            let k = super::element::variable(side);
            self.w.line(format!("{} {name}[{}];", number.name(), span.count));
            self.w.unrolled(k, span.count);
            let mut position = self.position(f, axis, k);
            if span.cover > self.facts.size(axis) {
                position = format!("min_int({position}, {})", self.facts.size(axis) - 1);
            }
            let value = self.term(v, sum, Some((axis, &position)));
            self.w.line(format!("{name}[{k}] = {}({value});", number.name()));
            self.w.close("");
        } else {
            let value = self.term(v, sum, None);
            self.w.line(format!("const {} {name} = {}({value});", number.name(), number.name()));
        }
    }

    /// The factor's element at term `e` of the summed axis and a position of its other axis.
    fn term(&self, v: ValueId, sum: AxisId, kept: Option<(AxisId, &str)>) -> String {
        let Some(tile) = self.shared_tile(v) else { return self.names.value(v).to_string() };
        let element = self.shared_element(v, &tile, &|axis| match kept {
            _ if axis == sum => "e".to_string(),
            Some((a, position)) if a == axis => format!("({})", bare(position)),
            _ => "0".to_string(),
        });
        format!("{}::decode({element})", type_name(tile.element))
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
