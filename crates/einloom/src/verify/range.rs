//! Whether a text itself leaves the range of its numbers.
//!
//! The meaning is evaluated in f64, a run computes in f32: `log(exp(a) + exp(b))` has a meaning where `a` and `b` are -200, and in f32 it
//! is the logarithm of 0. That is no fault of a kernel. Told apart by the text alone, without the run: it is evaluated once more in
//! f64, each value that leaves the range of f32 becoming what it becomes there, infinite or 0. Elements that this moves away from the
//! meaning are the text's; all others must agree. No such finding for texts with numbers in f64.

use crate::prove::wide::{Range, Wide};
use einloom_algebra::stream::{Cut, Followed, Reals, evaluate_in};
use einloom_algebra::{Def, Graph, NodeId, flatten};
use einloom_cascade::meaning::{Array, Arrays};
use einloom_cascade::{Bound, Cascade, DType, TensorId};
use std::cell::Cell;
use std::fmt;

/// Difference from which on an element has been moved, in parts of the largest of its row.
const MOVED: f64 = 1e-3;
/// Half of the least number of f32: what is below rounds to 0.
const LEAST: f64 = 1.0 / (1u64 << 50) as f64 / (1u64 << 50) as f64 / (1u64 << 50) as f64;

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
        write!(
            f,
            "the text leaves the range of {of} at statement {statement} (value {value:.3e}): an element that is {expected:.6e} {by} is {becomes} there",
        )
    }
}

/// What becomes of a number in the range of f32, if it leaves that.
fn lost(v: f64) -> Option<f64> {
    match v.abs() {
        // As a conversion rounds: from halfway to the next power of two on.
        m if m.is_finite() && m >= f64::from(f32::MAX) * (1.0 + f64::from(f32::EPSILON) / 4.0) => {
            Some(v * f64::INFINITY)
        }
        m if m > 0.0 && m <= LEAST => Some(0.0 * v),
        _ => None,
    }
}

/// Which elements are not what they were, in the scale of their rows.
fn moved(expected: &[f64], becomes: &[f64], row: usize) -> Vec<bool> {
    let rows = expected.chunks(row.max(1)).zip(becomes.chunks(row.max(1)));
    let one = |(expected, becomes): (&[f64], &[f64])| -> Vec<bool> {
        let largest = expected.iter().filter(|e| e.is_finite()).fold(0.0f64, |m, e| m.max(e.abs()));
        let each = expected.iter().zip(becomes);
        each.map(|(&e, &b)| e != b && !e.is_nan() && (b.is_nan() || (e - b).abs() > MOVED * largest)).collect()
    };
    rows.flat_map(one).collect()
}

/// The finding for an output, with the found values of all elements that are the text's own replaced by those of the meaning.
pub(super) fn leaves_range(
    cascade: &Cascade,
    bound: &Bound,
    inputs: &Arrays,
    output: TensorId,
    expected: &Array,
    found: &[f64],
) -> Option<(LeavesRange, Vec<f64>)> {
    if cascade.tensors.iter().any(|t| t.dtype == Some(DType::F64)) {
        return None;
    }
    let graph = flatten(cascade);
    let number = cascade.outputs.iter().position(|&o| o == output)?;
    let (narrow, _) = values(&graph, bound, inputs)?;
    let (_, becomes) = narrow.get(number)?;
    let lost = moved(&expected.values, becomes, expected.shape.last().copied().unwrap_or(1));
    if !lost.contains(&true) {
        return None;
    }
    let rest =
        found.iter().zip(&expected.values).zip(&lost).map(|((&f, &e), &lost)| if lost { e } else { f }).collect();
    Some((first(&graph, bound, inputs)?, rest))
}

type Evaluated = Vec<(Vec<usize>, Vec<f64>)>;

/// The outputs in the range of f32, and the first value that left it.
fn values(graph: &Graph, bound: &Bound, inputs: &Arrays) -> Option<(Evaluated, Option<f64>)> {
    let left = Cell::new(None);
    let each = |_, v: f64| {
        let Some(held) = lost(v) else { return v };
        left.set(left.get().or(Some(v)));
        held
    };
    let values = evaluate_in(&Followed { reals: Reals { graph, bound, inputs }, each }, graph, bound, Cut::Whole)?;
    Some((values, left.get()))
}

/// The first statement with an element that is moved.
fn first(graph: &Graph, bound: &Bound, inputs: &Arrays) -> Option<LeavesRange> {
    let nodes: Vec<NodeId> = graph.ids().filter(|&n| !matches!(graph[n].def, Def::Input)).collect();
    nodes.into_iter().find_map(|n| {
        let mut alone = graph.clone();
        alone.outputs = vec![n];
        let (narrow, left) = values(&alone, bound, inputs)?;
        let meaning = evaluate_in(&Reals { graph: &alone, bound, inputs }, &alone, bound, Cut::Whole)?;
        let (expected, becomes) = (&meaning[0].1, &narrow[0].1);
        let at = moved(expected, becomes, expected.len()).iter().position(|&lost| lost)?;
        let (expected, becomes) = (expected[at], becomes[at]);
        let statement = graph[n]
            .statement
            .map_or_else(|| graph[n].name.clone(), |s| graph.cascade[graph.cascade.statements[s].target].name.clone());
        Some(LeavesRange { of: DType::F32, statement, value: left?, expected, becomes })
    })
}

/// The finding for an output of which the meaning, in f64, is not finite where it is over numbers whose exponents do not run out, as
/// `sum(exp(x) * y) / sum(exp(x))` where all `x` are -900; with the meaning's elements replaced by those. Nothing is said of inputs that
/// are not finite themselves.
pub(super) fn meaning_leaves_range(
    cascade: &Cascade,
    bound: &Bound,
    inputs: &Arrays,
    output: TensorId,
    expected: &Array,
) -> Option<(LeavesRange, Vec<f64>)> {
    let finite = |all: &[f64]| all.iter().all(|v| v.is_finite());
    if finite(&expected.values) || !inputs.values().all(|array| finite(&array.values)) {
        return None;
    }
    let graph = flatten(cascade);
    let number = cascade.outputs.iter().position(|&o| o == output)?;
    let wide = |graph: &Graph, number: usize| -> Option<Vec<f64>> {
        let numbers = Range::new(graph, bound, inputs);
        let (_, values) = evaluate_in(&numbers, graph, bound, Cut::Whole)?.swap_remove(number);
        // What cancels but for rounding may be 0: that is no matter of range.
        (!numbers.left_noise.get()).then(|| values.into_iter().map(Wide::to_f64).collect())
    };
    let truth = wide(&graph, number)?;
    let lost =
        |narrow: &[f64], truth: &[f64]| narrow.iter().zip(truth).position(|(n, t)| !n.is_finite() && t.is_finite());
    let at = lost(&expected.values, &truth)?;
    let rest = expected.values.iter().zip(&truth).map(|(&e, &t)| if e.is_finite() { e } else { t }).collect();
    let nodes: Vec<NodeId> = graph.ids().filter(|&n| !matches!(graph[n].def, Def::Input)).collect();
    let first = nodes.into_iter().find(|&n| {
        let mut alone = graph.clone();
        alone.outputs = vec![n];
        let narrow = evaluate_in(&Reals { graph: &alone, bound, inputs }, &alone, bound, Cut::Whole);
        let pair = narrow.map(|mut all| all.swap_remove(0).1).zip(wide(&alone, 0));
        pair.is_some_and(|(narrow, truth)| lost(&narrow, &truth).is_some())
    });
    let statement =
        first.and_then(|n| Some(graph.cascade[graph.cascade.statements[graph[n].statement?].target].name.clone()));
    let (of, becomes) = (DType::F64, expected.values[at]);
    let statement = statement.unwrap_or_else(|| cascade[output].name.clone());
    Some((LeavesRange { of, statement, value: becomes, expected: truth[at], becomes }, rest))
}

/// An array as the meaning takes it.
pub(super) fn array(t: &crate::Tensor) -> Array {
    Array { shape: t.dims().to_vec(), values: t.values() }
}
