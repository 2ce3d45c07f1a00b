//! Products of a warpgroup.

use super::rings::name;
use crate::emit::element::{Emitter, add};
use crate::hopper::{OpAt, Specialised, SwizzleBytes};
use crate::schedule::{FrameId, Instruction, Operand, Product, Side};
use einloom_tile::{Op, ValueId};
use std::collections::BTreeSet;

/// A shape of `wgmma` that a source uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::emit) struct Shape {
    /// Columns.
    pub n: usize,
    /// Operand type.
    pub f16: bool,
    /// Whether the left operand comes from registers.
    pub registers: bool,
}

impl Shape {
    fn name(self) -> String {
        let (ty, from) = (if self.f16 { "f16" } else { "bf16" }, if self.registers { "rs" } else { "ss" });
        format!("multiply_n{}_{ty}_{from}", self.n)
    }

    /// The function that is this instruction. Accumulators are two rows, 8 apart, of pairs of columns.
    pub fn function(self) -> String {
        let count = self.n / 2;
        let ty = if self.f16 { "f16" } else { "bf16" };
        let element = |k: usize| format!("\"+f\"(d[{}][{}])", k % 4 / 2, k / 4 * 2 + k % 2);
        let registers: Vec<String> = (0..count).map(|k| format!("%{k}")).collect();
        let elements: Vec<String> = (0..count).map(element).collect();
        let mut out = String::new();
        let head = if self.registers {
            "template <int TRANSPOSED_B>\nDEVICE void NAME(float (&d)[2][COUNT], const u32 (&a)[4], u64 b, u32 onto) {\n"
        } else {
            "template <int TRANSPOSED_A, int TRANSPOSED_B>\nDEVICE void NAME(float (&d)[2][COUNT], u64 a, u64 b, u32 onto) {\n"
        };
        out.push_str(&head.replace("NAME", &self.name()).replace("COUNT", &(count / 2).to_string()));
        out.push_str("  asm volatile(\n      \"{\\n.reg .pred p;\\n");
        let (a, b, onto, flags) = if self.registers {
            let a: Vec<String> = (0..4).map(|k| format!("%{}", count + k)).collect();
            (format!("{{{}}}", a.join(", ")), count + 4, count + 5, vec![count + 6])
        } else {
            (format!("%{count}"), count + 1, count + 2, vec![count + 3, count + 4])
        };
        out.push_str(&format!("setp.ne.b32 p, %{onto}, 0;\\n\"\n"));
        out.push_str(&format!("      \"wgmma.mma_async.sync.aligned.m64n{}k16.f32.{ty}.{ty} \"\n", self.n));
        wrapped(&mut out, "{", &registers, "}, ");
        let flags: Vec<String> = flags.iter().map(|f| format!("%{f}")).collect();
        out.push_str(&format!("      \"{a}, %{b}, p, 1, 1, {};\\n}}\"\n", flags.join(", ")));
        let mut lines = elements.chunks(8).map(|c| c.join(", ")).collect::<Vec<_>>().join(",\n        ");
        lines.push('\n');
        out.push_str(&format!("      : {lines}"));
        let operands = if self.registers {
            "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"l\"(b), \"r\"(onto), \"n\"(TRANSPOSED_B)"
        } else {
            "\"l\"(a), \"l\"(b), \"r\"(onto), \"n\"(TRANSPOSED_A), \"n\"(TRANSPOSED_B)"
        };
        out.push_str(&format!("      : {operands});\n}}\n"));
        out
    }
}

fn wrapped(out: &mut String, head: &str, items: &[String], tail: &str) {
    let lines: Vec<String> = items.chunks(16).map(|c| c.join(", ")).collect();
    for (k, line) in lines.iter().enumerate() {
        let (first, last) = (k == 0, k + 1 == lines.len());
        let (head, tail) = (if first { head } else { "" }, if last { tail } else { ", " });
        out.push_str(&format!("      \"{head}{line}{tail}\"\n"));
    }
}

impl Emitter<'_> {
    /// Declares the descriptors of every tile that products read: those of its first stage.
    pub(super) fn descriptors(&mut self, s: &Specialised) {
        let mut done = BTreeSet::new();
        for d in &s.descriptors {
            let descriptor = descriptor_name(self.names.value(d.value), d.left);
            if !done.insert(descriptor.clone()) {
                continue;
            }
            let at = add(&format!("shared_base + {}", d.at), d.each as i64, "warpgroup");
            let code = match d.swizzle {
                SwizzleBytes::B128 => 1,
                SwizzleBytes::B64 => 2,
                SwizzleBytes::B32 => 3,
            };
            self.w.line(format!("const u64 {descriptor} = matrix({at}, {}, {}, {code});", d.leading, d.stride));
        }
    }

    /// Starts a product as one group.
    pub(super) fn multiply(&mut self, s: &Specialised, at: OpAt, shapes: &mut BTreeSet<Shape>) -> Option<ValueId> {
        let op = s.op(self.facts.kernel, at)?.clone();
        let Op::Mma { dst, acc, .. } = op else { return None };
        let p = s.layout.products.get(&dst)?.clone();
        let Instruction::TensorCore(operand) = p.instruction else { return None };
        let f = p.frame;
        let across = self.along(dst, f, Side::Across)?;
        let n = self.span(f, across).count * 4;
        let shape = Shape { n, f16: operand == Operand::F16, registers: p.left_in_registers };
        shapes.insert(shape);
        self.comment(&op);
        self.declare(dst, Some(f));
        let place = self.variable_of(dst, Some(f));
        if let Some(acc) = acc {
            let (to, from) = (self.element(dst, Some(f)), self.element(acc, Some(f)));
            if to != from {
                let loops = self.each_element(dst, Some(f));
                self.w.line(format!("{to} = {from};"));
                self.close(loops);
            }
        }
        if acc.is_none() {
            // Not read, but a register without a value may be given one that another product is still writing.
            let loops = self.each_element(dst, Some(f));
            let line = format!("{} = 0.0f;", self.element(dst, Some(f)));
            self.w.line(line);
            self.close(loops);
        }
        let depths = self.facts.size(p.sum).div_ceil(operand.depth());
        self.w.open("");
        let right = self.factor_at(s, p.right, false);
        let left = (!p.left_in_registers).then(|| self.factor_at(s, p.left, true));
        self.w.line(format!("const u64 right = {right};"));
        if let Some(left) = &left {
            self.w.line(format!("const u64 left = {left};"));
        } else {
            self.w.line(format!("u32 left[{depths}][4];"));
            self.w.unrolled("k", depths);
            self.left_operand(&p, operand, f);
            self.w.close("");
            self.w.line("pin(left);");
        }
        self.w.line(format!("pin({place});"));
        self.w.line("products_fence();");
        self.w.unrolled("k", depths);
        let onto = if acc.is_some() { "1" } else { "k > 0" };
        let [right_step, right_flag] = self.depth_step(s, dst, false);
        let line = if p.left_in_registers {
            format!("{}<{right_flag}>({place}, left[k], right + {right_step}, {onto});", shape.name())
        } else {
            let [left_step, left_flag] = self.depth_step(s, dst, true);
            let flags = format!("{left_flag}, {right_flag}");
            format!("{}<{flags}>({place}, left + {left_step}, right + {right_step}, {onto});", shape.name())
        };
        self.w.line(line);
        self.w.close("");
        self.w.line("products_commit();");
        self.w.close("");
        Some(self.schedule.in_place.get(&dst).copied().unwrap_or(dst))
    }

    /// The descriptor of a factor in the stage awaited last.
    fn factor_at(&self, s: &Specialised, v: ValueId, left: bool) -> String {
        let descriptor = descriptor_name(self.names.value(v), left);
        match s.tile(v) {
            Some((id, _)) if s.ring(id).stages > 1 => {
                format!("{descriptor} + {}_stage * {}", name(s, id), s.ring(id).stage_bytes >> 4)
            }
            _ => descriptor,
        }
    }

    /// How far step `k` of the summed axis is from the first, in units of 16 bytes, and whether the factor is transposed.
    fn depth_step(&self, s: &Specialised, product: ValueId, left: bool) -> [String; 2] {
        let Some(d) = s.descriptors.iter().find(|d| (d.product, d.left) == (product, left)) else {
            return ["0".to_string(), "0".to_string()];
        };
        let (step, next) = (d.step >> 4, d.next >> 4);
        let panels = s.tile(d.value).map_or(1, |(_, tile)| tile.columns / tile.panel());
        let step = match (d.steps, panels) {
            (1, _) => format!("k * {next}"),
            (_, 1) => format!("k * {step}"),
            (steps, _) => format!("(k % {steps} * {step} + k / {steps} * {next})"),
        };
        [step, usize::from(d.transposed).to_string()]
    }

    /// `left[k]`: accumulators of one product as the left operand of the next.
    fn left_operand(&mut self, p: &Product, operand: Operand, f: FrameId) {
        let pair = if operand == Operand::Bf16 { "BF16::pair" } else { "F16::pair" };
        let name = self.variable_of(p.left, Some(f));
        let count = self.span(f, p.sum).count;
        self.w.unrolled("e", 4);
        if self.is_packed(p.left, Some(f)) {
            self.w.line(format!("left[k][e] = {name}[e % 2][2 * k + e / 2];"));
        } else {
            let part = |x: usize| {
                let j = format!("(4 * k + e / 2 * 2 + {x})");
                let element = format!("{name}[e % 2][{j}]");
                match self.exists(f, p.sum, &j) {
                    Some(test) => format!("{test} ? {element} : 0.0f"),
                    None => element,
                }
            };
            self.w.line(format!("left[k][e] = {pair}({}, {});", part(0), part(1)));
        }
        self.w.close("");
        debug_assert!(count.is_multiple_of(4));
    }
}

fn descriptor_name(value: &str, left: bool) -> String {
    format!("{value}_{}", if left { "left" } else { "right" })
}
