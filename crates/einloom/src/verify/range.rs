//! Whether a text itself leaves the range of its numbers.
//!
//! The meaning is evaluated in f64, a run computes in f32: `log(exp(a) + exp(b))` has a meaning where `a` and `b` are -200, and in f32 it
//! is the logarithm of 0. That is no fault of a kernel. Told apart by the text alone, without the run: it is evaluated once more in
//! f64, each value that leaves the range of f32 becoming what it becomes there, infinite, 0 or a number of fewer digits. Arithmetic may
//! take what is below the smallest normal number for 0 as well, so it is evaluated in this way too. Elements that either moves away
//! from the meaning are the text's; all others must agree. And sums in another order may leave the range where the text's does not,
//! and make no number of two infinities: what is not finite where numbers came near the end of the range is the text's as well. No
//! such finding for texts with numbers in f64.

use crate::prove::wide::{Range, Wide};
use einloom_algebra::stream::{Cut, Followed, Reals, evaluate_in};
use einloom_algebra::{Def, Graph, NodeId, flatten};
use einloom_cascade::meaning::{Array, Arrays};
use einloom_cascade::{Bound, Cascade, DType, TensorId};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;

/// Difference from which on an element has been moved, in parts of the largest of its row, unless less is allowed.
const MOVED: f64 = 1e-3;

/// What becomes of numbers that leave the range. All are ways of f32: processors and GPUs have either of the first two, and functions
/// often the second only.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    /// Those below the smallest normal one lose digits, and all of them in the end; what is too large is infinite.
    Rounded,
    /// Those below the smallest normal one are 0.
    Zero,
    /// As the second, and those from this one on are lost: as many of them as a sum may have leave the range in some order.
    Order(f64),
}

/// A text that leaves the range of its numbers.
#[derive(Clone, Debug, PartialEq)]
pub struct LeavesRange {
    /// Of which number type: that of runs, or f64, in which the meaning is evaluated.
    pub of: DType,
    /// The first statement of which an element is lost.
    pub statement: String,
    /// A value that is computed for it and that the type does not hold; of f64 the element that is not finite.
    pub value: f64,
    /// The element over numbers that do.
    pub expected: f64,
    /// The element in the range of the type.
    pub becomes: f64,
}

impl fmt::Display for LeavesRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, statement, value, expected, becomes } = self;
        let by = if *of == DType::F64 { "over numbers without one" } else { "by the meaning" };
        // What still has digits is told from what has none.
        let (of, there) = match *value as f32 {
            v if *of == DType::F32 && v.is_subnormal() => {
                ("the normal numbers of f32".to_string(), "where such numbers have fewer digits or none")
            }
            v if *of == DType::F32 && v.is_normal() => ("the range of f32".to_string(), "in some order of its sums"),
            _ => (format!("the range of {of}"), "there"),
        };
        write!(
            f,
            "the text leaves {of} at statement {statement} (value {value:.3e}): an element that is {expected:.6e} {by} is {becomes} {there}",
        )
    }
}

/// What becomes of a number in the range of f32, if it leaves that.
fn lost(v: f64, fate: Fate) -> Option<f64> {
    // As a conversion rounds: from halfway to the next power of two on it is infinite.
    let held = match v.abs() {
        m if m < f64::from(f32::MIN_POSITIVE) && fate != Fate::Rounded => 0.0 * v,
        m if matches!(fate, Fate::Order(most) if m > most) => f64::NAN,
        m if m < f64::from(f32::MIN_POSITIVE) || m > f64::from(f32::MAX) => f64::from(v as f32),
        _ => return None,
    };
    (held != v && v.is_finite() && (!held.is_finite() || v.abs() < 1.0)).then_some(held)
}

/// Which elements are not what they were, by more than a part of the largest of their rows.
fn moved(expected: &[f64], becomes: &[f64], row: usize, part: f64) -> Vec<bool> {
    let rows = expected.chunks(row.max(1)).zip(becomes.chunks(row.max(1)));
    let one = |(expected, becomes): (&[f64], &[f64])| -> Vec<bool> {
        let largest = expected.iter().filter(|e| e.is_finite()).fold(0.0f64, |m, e| m.max(e.abs()));
        let each = expected.iter().zip(becomes);
        each.map(|(&e, &b)| e != b && !e.is_nan() && (b.is_nan() || (e - b).abs() > part * largest)).collect()
    };
    rows.flat_map(one).collect()
}

/// The finding for an output, if what is found agrees with the meaning but for the elements that are the text's own; `part` is how
/// far an element may be from it, in parts of the largest of its row, and `longest` how many elements its sums have.
pub(super) fn leaves_range(
    cascade: &Cascade,
    bound: &Bound,
    inputs: &Arrays,
    output: TensorId,
    [expected, found]: [&[f64]; 2],
    (row, part, longest): (usize, f64, f64),
    agrees: &dyn Fn(&[f64]) -> bool,
) -> Option<LeavesRange> {
    if cascade.tensors.iter().any(|t| t.dtype == Some(DType::F64)) {
        return None;
    }
    let graph = flatten(cascade);
    let number = cascade.outputs.iter().position(|&o| o == output)?;
    let mut rest = found.to_vec();
    let part = part.min(MOVED);
    for fate in [Fate::Rounded, Fate::Zero, Fate::Order(f64::from(f32::MAX) / longest.max(1.0))] {
        let (narrow, _) = values(&graph, bound, inputs, fate)?;
        let (_, becomes) = narrow.get(number)?;
        let own = match fate {
            // Lost, and not finite: all else is told by the others.
            Fate::Order(_) => becomes.iter().zip(&rest).map(|(b, r)| b.is_nan() && !r.is_finite()).collect(),
            _ => moved(expected, becomes, row, part),
        };
        rest.iter_mut().zip(expected).zip(&own).filter(|(_, own)| **own).for_each(|((r, &e), _)| *r = e);
        if own.contains(&true) && agrees(&rest) {
            return first(&graph, bound, inputs, (fate, part));
        }
    }
    None
}

type Evaluated = Vec<(Vec<usize>, Vec<f64>)>;

/// The outputs in the range of f32, and the first value that left it.
fn values(graph: &Graph, bound: &Bound, inputs: &Arrays, fate: Fate) -> Option<(Evaluated, Option<f64>)> {
    let left = Cell::new(None);
    let each = |_, v: f64| {
        let Some(held) = lost(v, fate) else { return v };
        left.set(left.get().or(Some(v)));
        held
    };
    let values = evaluate_in(&Followed { reals: Reals { graph, bound, inputs }, each }, graph, bound, Cut::Whole)?;
    Some((values, left.get()))
}

/// The first statement with an element that is moved.
fn first(graph: &Graph, bound: &Bound, inputs: &Arrays, (fate, part): (Fate, f64)) -> Option<LeavesRange> {
    let all = with_all(graph);
    let (narrow, _) = values(&all, bound, inputs, fate)?;
    let meaning = evaluate_in(&Reals { graph: &all, bound, inputs }, &all, bound, Cut::Whole)?;
    let moved = |k: usize| {
        let ((shape, expected), (_, becomes)) = (&meaning[k], &narrow[k]);
        moved(expected, becomes, shape.last().copied().unwrap_or(1), part).iter().position(|&lost| lost)
    };
    let (k, at) = (0..all.outputs.len()).find_map(|k| Some((k, moved(k)?)))?;
    // Once more by itself: which value left first on the way to it.
    let alone = Graph { outputs: vec![all.outputs[k]], ..all.clone() };
    let (_, left) = values(&alone, bound, inputs, fate)?;
    let (expected, becomes) = (meaning[k].1[at], narrow[k].1[at]);
    let statement = named(graph, all.outputs[k]);
    Some(LeavesRange { of: DType::F32, statement, value: left?, expected, becomes })
}

/// The graph with all as outputs that its own need, so that one evaluation tells of each.
fn with_all(graph: &Graph) -> Graph {
    let mut needed = BTreeSet::new();
    let mut todo = graph.outputs.clone();
    while let Some(n) = todo.pop() {
        if needed.insert(n) {
            todo.extend(graph.operands(n).iter().map(|o| o.node));
            let own = graph.recurrences.iter().filter(|r| r.members.contains(&n));
            todo.extend(own.flat_map(|r| r.members.iter().copied()));
        }
    }
    needed.retain(|&n| !matches!(graph[n].def, Def::Input));
    Graph { outputs: needed.into_iter().collect(), ..graph.clone() }
}

/// What the text calls the statement of a node.
fn named(graph: &Graph, n: NodeId) -> String {
    let target = |s: usize| graph.cascade[graph.cascade.statements[s].target].name.clone();
    graph[n].statement.map_or_else(|| graph[n].name.clone(), target)
}

/// The finding for an output of which the meaning, in f64, is not finite where it is over numbers whose exponents do not run out, as
/// `sum(exp(x) * y) / sum(exp(x))` where all `x` are -900, if the output agrees with the meaning over those. Nothing is said of inputs
/// that are not finite themselves.
pub(super) fn meaning_leaves_range(
    cascade: &Cascade,
    bound: &Bound,
    inputs: &Arrays,
    output: TensorId,
    expected: &[f64],
    agrees: &dyn Fn(&[f64]) -> bool,
) -> Option<LeavesRange> {
    let finite = |all: &[f64]| all.iter().all(|v| v.is_finite());
    if finite(expected) || !inputs.values().all(|array| finite(&array.values)) {
        return None;
    }
    let graph = flatten(cascade);
    let number = cascade.outputs.iter().position(|&o| o == output)?;
    let wide = |graph: &Graph| -> Option<Vec<Vec<f64>>> {
        let numbers = Range::new(graph, bound, inputs);
        let values = evaluate_in(&numbers, graph, bound, Cut::Whole)?;
        let narrow = |(_, values): (_, Vec<Wide>)| values.into_iter().map(Wide::to_f64).collect();
        // What cancels but for rounding may be 0: that is no matter of range.
        (!numbers.left_noise.get()).then(|| values.into_iter().map(narrow).collect())
    };
    let truth = wide(&graph)?.swap_remove(number);
    let lost =
        |narrow: &[f64], truth: &[f64]| narrow.iter().zip(truth).position(|(n, t)| !n.is_finite() && t.is_finite());
    let at = lost(expected, &truth)?;
    let rest: Vec<f64> = expected.iter().zip(&truth).map(|(&e, &t)| if e.is_finite() { e } else { t }).collect();
    if !agrees(&rest) {
        return None;
    }
    let all = with_all(&graph);
    let narrow = evaluate_in(&Reals { graph: &all, bound, inputs }, &all, bound, Cut::Whole);
    let first = narrow.zip(wide(&all)).and_then(|(narrow, wide)| {
        let k = narrow.iter().zip(&wide).position(|((_, narrow), truth)| lost(narrow, truth).is_some())?;
        Some(named(&graph, all.outputs[k]))
    });
    let (of, becomes) = (DType::F64, expected[at]);
    let statement = first.unwrap_or_else(|| cascade[output].name.clone());
    Some(LeavesRange { of, statement, value: becomes, expected: truth[at], becomes })
}

/// An array as the meaning takes it.
pub(super) fn array(t: &crate::Tensor) -> Array {
    Array { shape: t.dims().to_vec(), values: t.values() }
}
