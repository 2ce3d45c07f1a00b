//! Whether a difference is one.

use super::Subject;
use super::bounds::Compared;
use super::propagated::{Bounded, Propagated};
use einloom::compare::{Precision, distance};
use einloom::prove;
use einloom::prove::wide::Range;
use einloom::random::Random;
use einloom_algebra::exact::{Certificate, in_fields};
use einloom_algebra::stream::{Cut, Reals, evaluate_in};
use einloom_algebra::{Def, Derivation, Graph, NodeId, Rule, Step, flatten};
use einloom_cascade::meaning::{Array, Arrays};
use einloom_cascade::{Cascade, DType, Expr, ExprKind, IndexExpr, Monoid, TensorId};

/// Where an output is not what it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The output; empty if one of the two stopped.
    pub output: String,
    /// Where in it, counted row-major.
    pub position: usize,
    /// The meaning.
    pub expected: f64,
    /// What was found.
    pub found: f64,
    /// In the scale of its row.
    pub error: f64,
    /// What would have been allowed.
    pub tolerance: f64,
}

impl Difference {
    /// The meaning has a value, the other stopped.
    pub(super) fn stopped() -> Self {
        let nan = f64::NAN;
        Self { output: String::new(), position: 0, expected: nan, found: nan, error: f64::INFINITY, tolerance: 0.0 }
    }
}

/// What came of a comparison.
pub(super) enum Verdict {
    Agrees,
    /// Rounding alone moves the meaning as far.
    Sensitive,
    /// Bounds on the text's own rounding errors are as wide, at this many elements.
    Undetermined(usize),
    /// The text as written leaves the range of f64, or comes near its end.
    Range,
    /// A position of an extremum among values that are no numbers.
    Undefined,
    /// The same in exact arithmetic, but rounding errors grow more than in the text as it is written.
    Unstable(Difference),
    Differs(Difference),
}

/// Independent measurements of the sensitivity before a difference counts: one that is missed is a false alarm.
pub(super) const OPINIONS: u64 = 4;
/// Intermediate values beyond two to this power are near the end of f64's range: a derivation may square them.
pub(super) const NEAR_OVERFLOW: i64 = 250;
/// The same of f32, where three factors may meet.
pub(super) const NEAR_OVERFLOW_NARROW: i64 = 40;
/// Intermediate values beyond two to this power leave the range of f32 when they are squared.
pub(super) const SQUARE_OVERFLOWS_NARROW: i64 = 63;
/// Bits of an f32 that a few roundings leave alone.
const CERTAIN_NARROW: i64 = 20;
/// Intermediate values below two to this power vanish when they are squared.
const NEAR_ZERO: i64 = -500;
/// Results below this in magnitude have lost their precision, or may have in another order of operations.
const NEAR_UNDERFLOW: f64 = 1e-120;

impl Subject {
    /// The streamed form in f64.
    pub(super) fn compare_wide(
        &self,
        derivation: &Derivation,
        inputs: &Arrays,
        expected: &Arrays,
        found: &Arrays,
        cut: Cut,
    ) -> Verdict {
        let longest = self.bound.sizes().iter().map(|&s| s.max(1) as f64).product();
        let precision = Precision { arithmetic: DType::F64, longest, rounding: 0.0 };
        let mut verdict = Verdict::Agrees;
        for &output in &self.wide.outputs {
            let name = &self.wide[output].name;
            let (Some(expected), Some(found)) = (expected.get(name), found.get(name)) else { continue };
            match self.compare_output(&precision, inputs, output, expected, found) {
                Verdict::Agrees => {}
                Verdict::Differs(d) => match self.explain(derivation, inputs, output, expected, found, cut, d) {
                    Verdict::Differs(difference) => {
                        let (dtype, unit) = (self.wide[output].dtype.unwrap_or(DType::F64), f64::EPSILON / 2.0);
                        let compared = Compared { output, dtype, precision: &precision, unit, expected, found };
                        match self.within_bounds(&[derivation], inputs, &compared) {
                            Some(excuse) => verdict = excuse,
                            None => return Verdict::Differs(difference),
                        }
                    }
                    excuse => verdict = excuse,
                },
                excuse => verdict = excuse,
            }
        }
        verdict
    }

    /// One output, up to rounding. What is not finite in the meaning is compared too.
    pub(super) fn compare_output(
        &self,
        precision: &Precision,
        inputs: &Arrays,
        output: TensorId,
        expected: &Array,
        found: &Array,
    ) -> Verdict {
        let dtype = self.wide[output].dtype.unwrap_or(DType::F64);
        match differs(precision, dtype, &self.wide[output].name, expected, found) {
            None => Verdict::Agrees,
            Some(difference) => {
                let step = precision.tolerance(DType::F64).arithmetic;
                self.excuse(&self.wide, inputs, output, step, difference)
            }
        }
    }

    /// Excuses a difference that noise of size `step` in every operation, or in every read by itself, explains.
    pub(super) fn excuse(
        &self,
        cascade: &Cascade,
        inputs: &Arrays,
        output: TensorId,
        step: f64,
        difference: Difference,
    ) -> Verdict {
        let mut most = 0.0f64;
        // A derivation may read an element in two places where the text reads it in one, as when a difference is split.
        let (noisy, extra) = prove::in_reads(cascade);
        let mut more = inputs.clone();
        more.extend(extra);
        for seed in 0..OPINIONS {
            for (cascade, inputs) in [(cascade, inputs), (&noisy, &more)] {
                match prove::sensitivity(cascade, &self.bound, inputs, output, step, seed) {
                    Ok(moved) => most = most.max(moved),
                    // The noise moved a position out of its tensor.
                    Err(_) => return Verdict::Sensitive,
                }
                if difference.error <= difference.tolerance + most || most > 0.5 {
                    return Verdict::Sensitive;
                }
            }
        }
        Verdict::Differs(Difference { tolerance: difference.tolerance + most, ..difference })
    }

    /// Whether the text asks for the position of an extremum or compares data, and meets a NaN somewhere. Among values
    /// that are no numbers the derived form finds no position where the meaning finds the first; and where a sum of
    /// infinities is no number as written and is one as derived, a comparison hides that it ever was.
    pub(super) fn finds_nan(&self, cascade: &Cascade, inputs: &Arrays) -> bool {
        if !compares(cascade) {
            return false;
        }
        let graph = flatten(cascade);
        let range = Range::new(&graph, &self.bound, inputs);
        evaluate_in(&range, &graph, &self.bound, Cut::Whole).is_none()
            || range.met_nan.get()
            || range.farthest.get() >= 1023
            || range.nearest.get() <= -1022
            || self.meets_infinity(inputs)
    }

    /// Whether the text has a read that may leave its tensor, and elements that it skips: a derived form may compute what
    /// is read for all of them at once, and stop at a position that the text never asks for.
    pub(super) fn skips_reads(&self) -> bool {
        let skips = |e: &Expr| match &e.kind {
            ExprKind::Reduce { filter, over, .. } => {
                filter.is_some() || over.iter().any(|&i| self.bound.size(self.wide[i].rank) == 0)
            }
            ExprKind::Select(..) => true,
            _ => false,
        };
        let strays = |e: &Expr| match &e.kind {
            ExprKind::Read { tensor, at } => {
                let shape = self.bound.shape(&self.wide, *tensor);
                let inside = |(e, &size): (&IndexExpr, &usize)| {
                    e.as_var().is_some_and(|i| self.bound.size(self.wide[i].rank) <= size)
                };
                !at.iter().zip(&shape).all(inside)
            }
            _ => false,
        };
        let any = |holds: &dyn Fn(&Expr) -> bool| self.wide.statements.iter().any(|s| some(&s.value, holds));
        any(&strays) && (any(&skips) || self.bound.sizes().contains(&0))
    }

    /// Whether a sum of integers inside the text leaves the integers: there it saturates, and the meaning goes on.
    pub(super) fn saturates(&self, inputs: &Arrays) -> bool {
        let mut graph = flatten(&self.wide);
        let integers = |&n: &NodeId| graph[n].dtype == Some(DType::I32) && !matches!(graph[n].def, Def::Input);
        graph.outputs = graph.ids().filter(integers).collect();
        let reals = Reals { graph: &graph, bound: &self.bound, inputs };
        let Some(all) = evaluate_in(&reals, &graph, &self.bound, Cut::Whole) else { return true };
        all.iter().any(|(_, values)| values.iter().any(|v| v.abs() >= f64::from(i32::MAX)))
    }

    /// Whether sums that change places may be over nothing without it showing where they stand: over a rank of size 0, or
    /// of what a condition on data leaves of the positions up to one. Then the text does not even look at their factors.
    fn sums_over_nothing(&self, derivation: &Derivation) -> bool {
        let has = |rule: Rule| derivation.steps.iter().any(|s| s.rule == rule);
        let filters = |e: &Expr| matches!(e.kind, ExprKind::Reduce { filter: Some(_), .. } | ExprKind::Select(..));
        let filtered = || self.wide.statements.iter().any(|s| some(&s.value, &filters));
        has(Rule::Reassociate) && self.bound.sizes().contains(&0) || has(Rule::Prefix) && filtered()
    }

    /// Whether some value of the text is infinite, however large its numbers may be.
    fn meets_infinity(&self, inputs: &Arrays) -> bool {
        let mut graph = flatten(&self.wide);
        // Also what no element of an output needs: a sum over nothing of what is infinite.
        graph.outputs = graph.ids().filter(|&n| !matches!(graph[n].def, Def::Input)).collect();
        let range = Range::new(&graph, &self.bound, inputs);
        let Some(all) = evaluate_in(&range, &graph, &self.bound, Cut::Whole) else { return true };
        range.met_infinity.get() || all.iter().any(|(_, values)| values.iter().any(|v| v.to_f64().is_infinite()))
    }

    /// Looks for what explains a difference that rounding does not: both forms again, over numbers whose exponents do not
    /// run out, and over finite fields.
    #[allow(clippy::too_many_arguments)] // All there is to know of a difference.
    fn explain(
        &self,
        derivation: &Derivation,
        inputs: &Arrays,
        output: TensorId,
        expected: &Array,
        found: &Array,
        cut: Cut,
        seen: Difference,
    ) -> Verdict {
        let Some(number) = self.wide.outputs.iter().position(|o| *o == output) else { return Verdict::Agrees };
        if self.finds_nan(&self.wide, inputs) {
            return Verdict::Undefined;
        }
        // Where something infinite reaches an element in the text, a form that multiplies out, that takes sums in another order
        // or that keeps moments promises no number there, and a number everywhere else: q·(a·h + u) is q·a·h + q·u, which
        // has inf · 0 where the text has inf · u. Every element answers for itself.
        let mut forgiven = vec![];
        let mut seen = seen;
        if found.values.iter().any(|v| v.is_nan()) && derivation.steps.iter().any(reorders) {
            let reached = self.reached(&derivation.written, inputs, number).unwrap_or_default();
            let over_nothing = self.sums_over_nothing(derivation) && self.meets_infinity(inputs);
            let mut left = found.clone();
            for (k, (v, &e)) in left.values.iter_mut().zip(&expected.values).enumerate() {
                if v.is_nan() && (over_nothing || reached.get(k) == Some(&true)) {
                    *v = e;
                    forgiven.push(k);
                }
            }
            let dtype = self.wide[output].dtype.unwrap_or(DType::F64);
            let precision = Precision { arithmetic: DType::F64, longest: 1e6, rounding: 0.0 };
            match differs(&precision, dtype, &seen.output, expected, &left) {
                None => return Verdict::Undefined,
                Some(rest) => seen = rest,
            }
        }
        // So is an exponent that is multiplied out: -inf · (1 - 0) is no -inf + inf · 0.
        if seen.found.is_nan() && derivation.steps.iter().any(|s| s.rule == Rule::Separate) {
            let graph = flatten(&self.wide);
            let range = Range::new(&graph, &self.bound, inputs);
            let met = evaluate_in(&range, &graph, &self.bound, Cut::Whole).is_none();
            if met || range.met_infinite_factor.get() {
                return Verdict::Undefined;
            }
        }
        let evaluate = |graph: &Graph, cut: Cut| -> Option<(Array, bool, f64, Vec<f64>)> {
            let numbers = Propagated(Range::new(graph, &self.bound, inputs));
            let (shape, values) = evaluate_in(&numbers, graph, &self.bound, cut)?.swap_remove(number);
            let errors = values.iter().map(Bounded::error).collect();
            let values = values.into_iter().map(|v| v.value().to_f64()).collect();
            let range = numbers.0;
            // A product of numbers that vanish is a small number, a quotient by one is none.
            let vanishes = seen.error.is_infinite() && range.nearest.get() < NEAR_ZERO;
            let extreme = vanishes || range.farthest.get() > NEAR_OVERFLOW;
            Some((Array { shape, values }, extreme, range.noise.get(), errors))
        };
        let (Some((truth, extreme, noise, errors)), Some((mut derived, ..))) =
            (evaluate(&derivation.written, Cut::Whole), evaluate(&derivation.derived, cut))
        else {
            return Verdict::Differs(Difference::stopped());
        };
        forgiven.into_iter().for_each(|k| derived.values[k] = truth.values[k]);
        // What is left where numbers cancel is known no better than these digits round: of each element what the text's own operations do.
        for ((d, &t), &error) in derived.values.iter_mut().zip(&truth.values).zip(&errors) {
            if error.is_finite() && (*d - t).abs() <= error {
                *d = t;
            }
        }
        let dtype = self.wide[output].dtype.unwrap_or(DType::F64);
        let name = &self.wide[output].name;
        // Coarser by far: only what is wrong is in question.
        let precision = Precision { arithmetic: DType::F64, longest: 1e10, rounding: 0.0 };
        let apart = |a: &Array, b: &Array| differs(&precision, dtype, name, a, b);
        let tiny = |d: &Difference| d.expected.abs() < NEAR_UNDERFLOW && d.found.abs() < NEAR_UNDERFLOW;
        let Some(difference) = apart(&truth, &derived) else {
            return match apart(&truth, expected) {
                // The one that lost its range or its precision is to blame.
                Some(d) if d.error.is_infinite() => Verdict::Range,
                Some(_) => Verdict::Sensitive,
                None if extreme || tiny(&seen) => Verdict::Range,
                None if seen.error.is_finite() => Verdict::Unstable(seen),
                None if self.by_accident(derivation, inputs, number, cut) => Verdict::Sensitive,
                None => Verdict::Differs(seen),
            };
        };
        // Where the meaning has no value even then, it divides by zero or meets infinities of the inputs, and no two ways
        // to compute that are the same.
        if only_undefined(&truth, &derived, &precision, dtype) {
            return Verdict::Range;
        }
        // What is left where numbers cancel is no more than these digits round.
        if (difference.expected - difference.found).abs() <= noise {
            return Verdict::Sensitive;
        }
        let accident = match difference.error.is_finite() {
            true => self.by_noise(derivation, inputs, number, &truth, &difference),
            false => self.by_accident(derivation, inputs, number, cut),
        };
        if accident {
            return Verdict::Sensitive;
        }
        // The text divides by a sum of which only rounding is left even here, and that exact arithmetic may find to be 0:
        // as derived it is, and the quotient is no number.
        if noise > 0.0
            && difference.error.is_infinite()
            && let Certificate::Certified { .. } = in_fields(derivation, &self.bound, 2)
        {
            return Verdict::Sensitive;
        }
        // What cancels beyond even these digits: only exact arithmetic can tell that both are the same.
        if difference.error.is_finite()
            && let Certificate::Certified { .. } = in_fields(derivation, &self.bound, 2)
        {
            return Verdict::Unstable(seen);
        }
        self.excuse(&self.wide, inputs, output, 1e-12, difference)
    }

    /// Whether the text itself, over numbers that round far below f64's last digit, moves about as far as the difference
    /// when its inputs move by that last digit: then nothing but rounding was left of the element.
    fn by_noise(
        &self,
        derivation: &Derivation,
        inputs: &Arrays,
        output: usize,
        truth: &Array,
        seen: &Difference,
    ) -> bool {
        let apart = (seen.expected - seen.found).abs();
        (0..4).any(|seed| {
            let mut random = Random::new(seed, "noise");
            let moved = self.moved(inputs, f64::EPSILON, &mut random);
            let range = Range::new(&derivation.written, &self.bound, &moved);
            let Some(mut outputs) = evaluate_in(&range, &derivation.written, &self.bound, Cut::Whole) else {
                return true;
            };
            let (_, values) = outputs.swap_remove(output);
            let (here, there) = (truth.values.get(seen.position), values.get(seen.position));
            let (Some(here), Some(there)) = (here, there) else { return false };
            let far = (there.to_f64() - here).abs();
            !far.is_finite() || 8.0 * far >= apart
        })
    }

    /// The inputs, each number off by up to `step` of itself.
    fn moved(&self, inputs: &Arrays, step: f64, random: &mut Random) -> Arrays {
        let mut moved = inputs.clone();
        for (name, array) in &mut moved {
            if self.wide.tensor(name).is_some_and(|t| self.wide[t].dtype.is_none_or(DType::is_float)) {
                array.values.iter_mut().for_each(|v| *v *= 1.0 + step * (2.0 * random.unit() - 1.0));
            }
        }
        moved
    }

    /// Whether some sum of the text cancels but for rounding, however many digits there are, or with more of them leaves 0
    /// divided by 0: whether a quotient by it is a number is then an accident of the order of operations. In f32 that is
    /// also what a rounded number leaves of the sums it is taken from.
    pub(super) fn leaves_noise(&self, cascade: &Cascade, inputs: &Arrays, narrow: bool) -> bool {
        let graph = flatten(cascade);
        let mut range = Range::new(&graph, &self.bound, inputs);
        if narrow {
            range.certain = CERTAIN_NARROW;
        }
        evaluate_in(&range, &graph, &self.bound, Cut::Whole).is_some()
            && (range.left_noise.get() || range.met_nan.get())
    }

    /// Whether the text as written leaves the range of its numbers, or comes near its end.
    pub(super) fn leaves_range(&self, cascade: &Cascade, inputs: &Arrays, farthest: i64) -> bool {
        let graph = flatten(cascade);
        let range = Range::new(&graph, &self.bound, inputs);
        evaluate_in(&range, &graph, &self.bound, Cut::Whole).is_none()
            || range.farthest.get() > farthest
            || range.nearest.get() < -2 * farthest
    }

    /// Whether the text asks for positions or compares data, and its numbers leave the range of f32: among infinities the first one is as
    /// extreme as any, and the position found is finite.
    pub(super) fn finds_overflow(&self, cascade: &Cascade, inputs: &Arrays) -> bool {
        compares(cascade) && self.leaves_range(cascade, inputs, SQUARE_OVERFLOWS_NARROW)
    }

    /// Whether an element that is not finite in the derived form becomes finite when the inputs move a little, or the
    /// meaning's does not stay finite: then something cancelled to 0 by accident.
    fn by_accident(&self, derivation: &Derivation, inputs: &Arrays, output: usize, cut: Cut) -> bool {
        (0..3).any(|seed| {
            let mut random = Random::new(seed, "accident");
            let moved = self.moved(inputs, 1e-9, &mut random);
            let evaluate = |graph: &Graph, cut: Cut| -> Option<Vec<f64>> {
                let reals = Reals { graph, bound: &self.bound, inputs: &moved };
                Some(evaluate_in(&reals, graph, &self.bound, cut)?.swap_remove(output).1)
            };
            let (Some(meaning), Some(found)) =
                (evaluate(&derivation.written, Cut::Whole), evaluate(&derivation.derived, cut))
            else {
                return true;
            };
            !meaning.iter().zip(&found).any(|(m, f)| m.is_finite() && !f.is_finite())
        })
    }
}

/// Whether a step computes with numbers that the text does not have.
fn reorders(step: &Step) -> bool {
    matches!(step.rule, Rule::Centre | Rule::Reassociate | Rule::Prefix | Rule::Scan)
}

/// Whether the condition holds for some expression in this one.
pub(super) fn some(expr: &Expr, holds: &dyn Fn(&Expr) -> bool) -> bool {
    let mut found = holds(expr);
    expr.for_each_child(&mut |child| found = found || some(child, holds));
    found
}

/// The worst difference beyond the tolerance.
pub(super) fn differs(
    precision: &Precision,
    dtype: DType,
    name: &str,
    expected: &Array,
    found: &Array,
) -> Option<Difference> {
    let row = expected.shape.last().copied().unwrap_or(1);
    let error = distance(&found.values, &expected.values, row, precision.floor(dtype));
    let tolerance = precision.tolerance(dtype).total();
    let at = |values: &[f64]| values.get(error.worst).copied().unwrap_or(f64::NAN);
    (error.scaled > tolerance).then(|| Difference {
        output: name.to_owned(),
        position: error.worst,
        expected: at(&expected.values),
        found: at(&found.values),
        error: error.scaled,
        tolerance,
    })
}

/// Whether both agree wherever the first is a number.
fn only_undefined(truth: &Array, derived: &Array, precision: &Precision, dtype: DType) -> bool {
    let values = truth.values.iter().zip(&derived.values).map(|(&t, &d)| if t.is_finite() { d } else { t }).collect();
    differs(precision, dtype, "", truth, &Array { shape: truth.shape.clone(), values }).is_none()
}

/// Whether a text asks for the position of an extremum, or compares data.
fn compares(cascade: &Cascade) -> bool {
    let asks = |e: &Expr| match &e.kind {
        ExprKind::Reduce { monoid: Monoid::ArgMax | Monoid::ArgMin, .. } => true,
        ExprKind::Binary(op, ..) => op.is_comparison() && some(e, &|e| matches!(e.kind, ExprKind::Read { .. })),
        _ => false,
    };
    cascade.statements.iter().any(|s| some(&s.value, &asks))
}
