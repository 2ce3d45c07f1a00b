//! Arithmetic: operations by the number type that decides their rate.

use crate::count::{Group, parts_of_elements};
use crate::counts::Counts;
use crate::nest::{Loop, grid_loops, side_set, sides};
use einloom_cascade::{BinaryOp, DType, UnaryOp};
use einloom_machine::{Machine, Work as Kind};
use einloom_tile::{AxisId, AxisKind, Kernel, Op, Scalar, ValueId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Operations of a kernel: two per multiply-add, one per element and function of an elementwise expression
/// (whichever function), one per reduced element.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    /// By the number types of the operands, of maps and reductions f32 or f64 twice, and of products the sides of what they are added to.
    by_type: BTreeMap<(DType, DType, Option<[usize; 2]>), f64>,
    /// By what does them, and in which number type: energy differs where rates do not.
    by_pipe: BTreeMap<(Kind, DType), f64>,
}

/// What one operation of a kernel does, whatever the sizes of tiles.
#[derive(Debug)]
pub(crate) struct Task {
    /// How often it does it: the product of their sums.
    elements: Vec<Arc<Group>>,
    /// Operations for each, and the types that decide their rate.
    each: u64,
    types: (DType, DType),
    /// The sides of the tile that products are added to.
    result: Option<[Option<AxisId>; 2]>,
    pipes: Vec<(Kind, DType, u64)>,
}

impl Work {
    /// Of a kernel of which something may have been counted already, with these tiles or others.
    pub fn with(kernel: &Kernel, counts: &Counts) -> Self {
        let mut work = Self::default();
        for task in counts.tasks(|| tasks(kernel, counts)).iter() {
            let elements = task.elements.iter().fold(1u64, |n, part| n.saturating_mul(part.total(kernel))) as f64;
            let side = |axis: Option<AxisId>| axis.map_or(1, |a| side(kernel, a));
            let sides = task.result.map(|axes| axes.map(side));
            *work.by_type.entry((task.types.0, task.types.1, sides)).or_insert(0.0) += task.each as f64 * elements;
            for &(kind, dtype, n) in &task.pipes {
                *work.by_pipe.entry((kind, dtype)).or_insert(0.0) += n as f64 * elements;
            }
        }
        work
    }

    /// All of them.
    pub fn total(&self) -> f64 {
        // A sum of no floating-point numbers is -0.
        self.by_type.values().fold(0.0, |all, n| all + n)
    }

    /// What does them, in which number type, and how many.
    pub fn by_pipe(&self) -> impl Iterator<Item = (Kind, DType, f64)> + '_ {
        self.by_pipe.iter().map(|(&(kind, dtype), &n)| (kind, dtype, n))
    }

    /// Their time if every core works. Factors of two types go at the slower one's rate; by `lanes`, at that of products one by one. Where matrices are
    /// multiplied by squares those that are not full take as long, or as long as multiply-adds one by one if that is less.
    pub fn seconds(&self, machine: &Machine, lanes: bool) -> f64 {
        let alone = |t: DType| machine.pipe(Kind::Arithmetic, t).and_then(|p| p.rates.get(&t)).map_or(0.0, |r| r.0);
        // Where lanes multiply, what has no rate of its own is widened.
        let widened = |t: DType| if alone(t) > 0.0 { alone(t) } else { alone(DType::F32) };
        let rate = |&(a, b, sides): &(DType, DType, Option<[usize; 2]>)| {
            let (fastest, least) = (machine.rate(a).0.min(machine.rate(b).0), alone(a).min(alone(b)));
            match (sides, machine.overhead.masked) {
                (Some(_), _) if lanes => widened(a).min(widened(b)),
                (Some(sides), Some(square)) if least < fastest => {
                    let full = |side: usize| side as f64 / side.next_multiple_of(square) as f64;
                    least.max(fastest * full(sides[0]) * full(sides[1]))
                }
                _ => fastest,
            }
        };
        self.by_type.iter().map(|(t, operations)| operations / rate(t)).sum()
    }
}

/// What a kernel's operations do, in their order.
fn tasks(kernel: &Kernel, counts: &Counts) -> Vec<Task> {
    let mut out = vec![];
    Tasks { kernel, counts, out: &mut out }.ops(&kernel.body, &mut grid_loops(kernel));
    out
}

struct Tasks<'t, 'k> {
    kernel: &'k Kernel,
    counts: &'t Counts,
    out: &'t mut Vec<Task>,
}

impl<'k> Tasks<'_, 'k> {
    fn ops(&mut self, ops: &'k [Op], loops: &mut Vec<Loop>) {
        let kernel = self.kernel;
        let dtype = |v: ValueId| kernel.value(v).dtype;
        let scalar = |v: ValueId| if dtype(v) == DType::F64 { DType::F64 } else { DType::F32 };
        for op in ops {
            match op {
                Op::Mma { dst, a, b, .. } => {
                    let axes = sides(kernel, *a).into_iter().chain(sides(kernel, *b)).collect();
                    let wide = dtype(*dst) == DType::F64;
                    let types = if wide { (DType::F64, DType::F64) } else { (dtype(*a), dtype(*b)) };
                    // Factors of two types meet in the wider one.
                    let wider = if types.0.bytes() >= types.1.bytes() { types.0 } else { types.1 };
                    let result = kernel.value(*dst);
                    let result = Some([result.rows, result.cols]);
                    self.add(loops, &axes, (2, types, result), &[(Kind::Products, wider, 2)]);
                }
                Op::Map { dst, expr } => {
                    let t = scalar(*dst);
                    let (all, special) = (functions(expr), special(expr));
                    let pipes = [(Kind::Arithmetic, t, all - special), (Kind::Special, t, special)];
                    self.add(loops, &side_set(kernel, *dst), (all, (t, t), None), &pipes);
                }
                Op::Reduce { dst, src, .. } => {
                    let t = scalar(*dst);
                    self.add(loops, &side_set(kernel, *src), (1, (t, t), None), &[(Kind::Arithmetic, t, 1)]);
                }
                Op::Stream { axis, within, guards, body, .. } => {
                    loops.push(Loop::stream(*axis, within, guards));
                    self.ops(body, loops);
                    loops.pop();
                }
                // What is picked is moved.
                Op::Load { .. } | Op::Store { .. } | Op::Pick { .. } | Op::SkipUnless { .. } => {}
            }
        }
    }

    fn add(
        &mut self,
        loops: &[Loop],
        axes: &BTreeSet<AxisId>,
        (each, types, result): (u64, (DType, DType), Option<[Option<AxisId>; 2]>),
        pipes: &[(Kind, DType, u64)],
    ) {
        if each > 0 {
            let pipes = pipes.iter().filter(|p| p.2 > 0).copied().collect();
            let elements = parts_of_elements(self.kernel, loops, axes, self.counts);
            self.out.push(Task { elements, each, types, result, pipes });
        }
    }
}

/// How long a tile's side is.
fn side(kernel: &Kernel, axis: AxisId) -> usize {
    let axis = kernel.axis(axis);
    if axis.kind == AxisKind::Whole { axis.extent } else { axis.tile.min(axis.extent) }
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

/// Number of exponentials, logarithms, reciprocals and roots among them.
fn special(expr: &Scalar) -> u64 {
    match expr {
        Scalar::Const(_) | Scalar::Tile(_) | Scalar::Position(_) | Scalar::Argument(_) | Scalar::Within(_) => 0,
        Scalar::Round(_, x) => special(x),
        Scalar::Unary(op, x) => u64::from(is_special(*op)) + special(x),
        Scalar::Binary(op, x, y) => u64::from(matches!(op, BinaryOp::Div | BinaryOp::Pow)) + special(x) + special(y),
        Scalar::Select(c, x, y) => special(c) + special(x) + special(y),
    }
}

fn is_special(op: UnaryOp) -> bool {
    match op {
        UnaryOp::Neg
        | UnaryOp::Abs
        | UnaryOp::Not
        | UnaryOp::Floor
        | UnaryOp::Round
        | UnaryOp::Sign
        | UnaryOp::Relu => false,
        UnaryOp::Exp
        | UnaryOp::Exp2
        | UnaryOp::Log
        | UnaryOp::Log2
        | UnaryOp::Log1p
        | UnaryOp::Sqrt
        | UnaryOp::Rsqrt
        | UnaryOp::Tanh
        | UnaryOp::Sigmoid
        | UnaryOp::Silu
        | UnaryOp::Erf
        | UnaryOp::Gelu
        | UnaryOp::Sin
        | UnaryOp::Cos => true,
    }
}
