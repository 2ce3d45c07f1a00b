//! Arithmetic: operations by the number type that decides their rate.

use crate::count::elements;
use crate::nest::{Loop, grid_loops, sides};
use einloom_cascade::DType;
use einloom_machine::Machine;
use einloom_tile::{AxisId, Kernel, Op, Scalar, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Operations of a kernel: two per multiply-add, one per element and function of an elementwise expression
/// (whichever function), one per reduced element.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    /// By the number types of the operands: those of a product's two factors, else f32 or f64 twice.
    by_type: BTreeMap<(DType, DType), f64>,
}

impl Work {
    pub fn new(kernel: &Kernel) -> Self {
        let mut work = Self::default();
        work.ops(kernel, &kernel.body, &mut grid_loops(kernel));
        work
    }

    /// All of them.
    pub fn total(&self) -> f64 {
        self.by_type.values().sum()
    }

    /// Their time if every core works. Factors of two types go at the slower one's rate.
    pub fn seconds(&self, machine: &Machine) -> f64 {
        let rate = |t: &(DType, DType)| machine.rate(t.0).0.min(machine.rate(t.1).0);
        self.by_type.iter().map(|(t, operations)| operations / rate(t)).sum()
    }

    fn ops<'a>(&mut self, kernel: &'a Kernel, ops: &'a [Op], loops: &mut Vec<Loop<'a>>) {
        let dtype = |v: ValueId| kernel.value(v).dtype;
        let scalar = |v: ValueId| if dtype(v) == DType::F64 { DType::F64 } else { DType::F32 };
        for op in ops {
            match op {
                Op::Mma { dst, a, b, .. } => {
                    let axes = sides(kernel, *a).union(&sides(kernel, *b)).copied().collect();
                    let wide = dtype(*dst) == DType::F64;
                    let types = if wide { (DType::F64, DType::F64) } else { (dtype(*a), dtype(*b)) };
                    self.add(kernel, loops, &axes, 2, types);
                }
                Op::Map { dst, expr } => {
                    let t = scalar(*dst);
                    self.add(kernel, loops, &sides(kernel, *dst), functions(expr), (t, t));
                }
                Op::Reduce { dst, src, .. } => {
                    let t = scalar(*dst);
                    self.add(kernel, loops, &sides(kernel, *src), 1, (t, t));
                }
                Op::Stream { axis, within, body, .. } => {
                    loops.push(Loop { axis: *axis, within: Some(within) });
                    self.ops(kernel, body, loops);
                    loops.pop();
                }
                Op::Load { .. } | Op::Store { .. } | Op::SkipUnless { .. } => {}
            }
        }
    }

    fn add(&mut self, kernel: &Kernel, loops: &[Loop<'_>], axes: &BTreeSet<AxisId>, each: u64, types: (DType, DType)) {
        if each > 0 {
            let operations = each as f64 * elements(kernel, loops, axes) as f64;
            *self.by_type.entry(types).or_insert(0.0) += operations;
        }
    }
}

/// Number of functions that an expression applies.
fn functions(expr: &Scalar) -> u64 {
    match expr {
        Scalar::Const(_) | Scalar::Tile(_) | Scalar::Position(_) | Scalar::Argument(_) => 0,
        Scalar::Within(p) => p.all.len() as u64,
        Scalar::Round(_, x) => functions(x),
        Scalar::Unary(_, x) => 1 + functions(x),
        Scalar::Binary(_, x, y) => 1 + functions(x) + functions(y),
        Scalar::Select(c, x, y) => 1 + functions(c) + functions(x) + functions(y),
    }
}
