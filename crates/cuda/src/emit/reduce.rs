//! Reductions: each thread over its own elements, then lanes by a butterfly of shuffles, then warps through shared
//! memory where more than one warp holds positions of the reduced axis.

use super::element::{Emitter, digit, variable};
use super::scalar::literal;
use crate::schedule::Carrier;
use einloom_cascade::DType;
use einloom_tile::{AxisId, TileMonoid, ValueId};

impl Emitter<'_> {
    /// `dst = acc ⊕ ⊕_axis src`.
    pub fn reduce(&mut self, dst: ValueId, src: ValueId, axis: AxisId, monoid: &TileMonoid, acc: Option<ValueId>) {
        let frame = self.frame_of(src);
        let wide = [Some(dst), Some(src), acc].into_iter().flatten().any(|v| self.facts.carrier(v) != Carrier::F32);
        let number = if wide { "double" } else { "float" };
        self.declare(dst, self.frame_of(dst));
        let side = frame.and_then(|f| self.schedule.frame(f).sides.get(&axis).copied());
        let (Some(f), Some(side), true) = (frame, side, self.facts.wide(axis)) else {
            // A window of one position: there is nothing to sum.
            let loops = self.each_element(src, frame);
            let value = format!("{number}({})", self.element(src, frame));
            self.finish_reduction(dst, acc, monoid, &value, wide);
            return self.close(loops);
        };
        let (k, kept) = (variable(side), variable(side.other()));
        let other = self.along(src, f, side.other());
        if let Some(o) = other {
            let count = self.span(f, o).count;
            self.w.unrolled(kept, count);
        } else {
            self.w.open("");
        }
        self.w.line(format!("{number} x = {};", literal(monoid.identity(), wide)));
        let count = self.span(f, axis).count;
        self.w.unrolled(k, count);
        let element = format!("{number}({})", self.element(src, frame));
        let element = match self.exists(f, axis, k) {
            Some(test) => format!("({test} ? {element} : {})", literal(monoid.identity(), wide)),
            None => element,
        };
        let line = format!("x = {};", self.combine(monoid, "x", &element, wide));
        self.w.line(line);
        self.w.close("");
        let schedule = self.schedule.frame(f);
        let masks: Vec<usize> = schedule.lane_masks(side).into_iter().filter(|&m| m < 32).collect();
        for mask in masks {
            let other = format!("__shfl_xor_sync(0xffffffffu, x, {mask})");
            let line = format!("x = {};", self.combine(monoid, "x", &other, wide));
            self.w.line(line);
        }
        let part = schedule.warp_part(side);
        if part.modulus == 1 {
            self.finish_reduction(dst, acc, monoid, "x", wide);
            return self.w.close("");
        }
        // Through shared memory: one row of partial results per warp part.
        let positions = other.map_or(1, |o| self.span(f, o).cover);
        let at = other.map_or("0".to_string(), |o| self.position(f, o, kept));
        let scratch = format!("reinterpret_cast<{number}*>(shared)");
        let first: Vec<String> = (schedule.first(side).iter())
            .filter(|d| d.divisor < 32)
            .map(|d| {
                let lanes = d.modulus.min(32 / d.divisor);
                digit(&crate::schedule::Digit { coefficient: 1, divisor: d.divisor, modulus: lanes })
            })
            .map(|d| format!("{d} == 0"))
            .collect();
        let guard = if first.is_empty() { String::new() } else { format!("if ({}) ", first.join(" && ")) };
        self.w.line(format!("{guard}{scratch}[({}) * {positions} + {at}] = x;", digit(&part)));
        self.w.close("");
        self.w.line("__syncthreads();");
        if let Some(o) = other {
            let count = self.span(f, o).count;
            self.w.unrolled(kept, count);
        } else {
            self.w.open("");
        }
        self.w.line(format!("{number} x = {};", literal(monoid.identity(), wide)));
        self.w.unrolled("part", part.modulus);
        let line =
            format!("x = {};", self.combine(monoid, "x", &format!("{scratch}[part * {positions} + {at}]"), wide));
        self.w.line(line);
        self.w.close("");
        self.finish_reduction(dst, acc, monoid, "x", wide);
        self.w.close("");
        self.w.line("__syncthreads();  // before the partial results are overwritten");
    }

    fn finish_reduction(&mut self, dst: ValueId, acc: Option<ValueId>, monoid: &TileMonoid, value: &str, wide: bool) {
        let frame = self.frame_of(dst);
        let number = if wide { "double" } else { "float" };
        let value = match acc {
            Some(a) => {
                let start = format!("{number}({})", self.element(a, frame));
                self.combine(monoid, &start, value, wide)
            }
            None => value.to_string(),
        };
        let value = self.rounded(self.facts.dtype(dst), &value, wide);
        let line = format!("{} = {value};", self.element(dst, frame));
        self.w.line(line);
    }

    fn combine(&self, monoid: &TileMonoid, a: &str, b: &str, wide: bool) -> String {
        match monoid {
            TileMonoid::Sum => format!("{a} + {b}"),
            TileMonoid::Prod => format!("{a} * {b}"),
            TileMonoid::Max => format!("max_({a}, {b})"),
            TileMonoid::Min => format!("min_({a}, {b})"),
            TileMonoid::Custom { combine, .. } => self.combination(combine, a, b, wide),
        }
    }

    /// A constant of a number type.
    pub fn constant(&self, dtype: DType, x: f64) -> String {
        match dtype {
            DType::F32 => literal(x, false),
            DType::F64 => literal(x, true),
            _ => self.rounded(dtype, &literal(x, true), true),
        }
    }
}
