//! The planned program on the processor against the meaning.

use super::bounds::Compared;
use super::compare::{NEAR_OVERFLOW, NEAR_OVERFLOW_NARROW, Verdict, differs};
use super::{Difference, Effort, Report, Subject, Way, forms};
use einloom::compare::{Precision, unit_roundoff};
use einloom::prove::{self, Kind};
use einloom::random::Random;
use einloom::{Derived, PlanOptions, Planned, RunOptions};
use einloom_algebra::{Derivation, derive};
use einloom_cascade::meaning::{self, Array, Arrays};
use einloom_cascade::{Cascade, DType, Expr, ExprKind, Role, TensorId};
use einloom_machine::Machine;
use einloom_plan::{Chunks, Fusion, Merging, PlannedKernel};
use std::collections::BTreeSet;
use std::fmt;

/// Plans that are drawn for given inputs, beside those of the planner.
const DRAWN: u64 = 12;

/// How a program is cut.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// Positions of every tile, 0 for the planner's.
    tile: usize,
    fuse: Fusion,
    /// Of reductions over the first index that takes them, 0 for the planner's.
    shares: usize,
    merge: Merging,
    chunks: Chunks,
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tile {}, {:?}", self.tile, self.fuse)?;
        if self.merge == Merging::Always {
            write!(f, ", merged")?;
        }
        if self.chunks == Chunks::SideBySide {
            write!(f, ", chunks side by side")?;
        }
        if self.shares > 0 { write!(f, ", {} shares", self.shares) } else { Ok(()) }
    }
}

impl Subject {
    /// On inputs of several kinds, in a plan that is drawn or with random tiles and shares: in f64 and as declared.
    pub(super) fn cpu(&self, wide: Derived, machine: &Machine, effort: &Effort, seed: u64, report: &mut Report) {
        let mut random = Random::new(seed, "cpu");
        let declared = Derived::from_derivation(derive(&self.cascade));
        for (way, derived) in [(Way::CpuWide, wide), (Way::Cpu, declared)] {
            let tile = random.pick(&[0, 1, 2, 3, 4, 8]);
            let fuse = if random.unit() < 0.2 { Fusion::None } else { Fusion::Auto };
            let shares = random.pick(&[0, 0, 0, 2, 3, 5]);
            let merge = if random.unit() < 0.5 { Merging::Always } else { Merging::Auto };
            let chunks = if random.unit() < 0.5 { Chunks::SideBySide } else { Chunks::Auto };
            let cut = Cut { tile, fuse, shares, merge, chunks };
            // Both are drawn, each for itself.
            let number = effort.plan.map(|number| number.wrapping_add(way as u64));
            let drawn = number.and_then(|number| self.draw(&derived, machine, number, report));
            let by_planner = || Some((self.plan(&derived, machine, cut, report)?, (cut.to_string(), None)));
            let Some((planned, how)) = drawn.or_else(by_planner) else { continue };
            for (k, &kind) in effort.kinds.iter().enumerate() {
                let inputs = prove::inputs(planned.cascade(), &self.bound, kind, seed.wrapping_add(k as u64));
                self.run(&planned, derived.derivation(), way, &inputs, Some(kind), how.clone(), report);
            }
        }
    }

    /// On these inputs alone: in the plan that is drawn from this number, or else in many.
    pub(super) fn cpu_on(
        &self,
        wide: &Derived,
        machine: &Machine,
        inputs: &Arrays,
        plan: Option<u64>,
        report: &mut Report,
    ) {
        let declared = Derived::from_derivation(derive(&self.cascade));
        for (way, derived) in [(Way::CpuWide, wide), (Way::Cpu, &declared)] {
            for number in plan.map_or(0..DRAWN, |number| number..number.saturating_add(1)) {
                let Some((planned, how)) = self.draw(derived, machine, number, report) else { continue };
                self.run(&planned, derived.derivation(), way, inputs, None, how, report);
            }
            if plan.is_some() {
                continue;
            }
            for tile in [0, 1, 2, 3, 4] {
                for (fuse, shares, merge, chunks) in [
                    (Fusion::Auto, 0, Merging::Auto, Chunks::Auto),
                    (Fusion::None, 0, Merging::Auto, Chunks::Auto),
                    (Fusion::Auto, 0, Merging::Always, Chunks::Auto),
                    (Fusion::Auto, 2, Merging::Auto, Chunks::Auto),
                    (Fusion::Auto, 3, Merging::Always, Chunks::Auto),
                    (Fusion::Auto, 0, Merging::Auto, Chunks::SideBySide),
                ] {
                    let cut = Cut { tile, fuse, shares, merge, chunks };
                    let Some(planned) = self.plan(derived, machine, cut, report) else { continue };
                    self.run(&planned, derived.derivation(), way, inputs, None, (cut.to_string(), None), report);
                }
            }
        }
    }

    /// The plan that is drawn from a number, with what a reader is told of it; `None` if it is refused.
    fn draw(
        &self,
        derived: &Derived,
        machine: &Machine,
        number: u64,
        report: &mut Report,
    ) -> Option<(Planned, (String, Option<u64>))> {
        let options = PlanOptions { drawn: Some(number), ..PlanOptions::default() };
        match derived.plan(&self.given, machine, &options) {
            Ok(planned) => {
                report.drawn += 1;
                let kernels: Vec<String> = planned.kernels().iter().map(told).collect();
                let how = format!("plan {number}, form {}: {}", planned.form(), kernels.join("; "));
                Some((planned, (how, Some(number))))
            }
            Err(error) => {
                report.undrawn.push(error.to_string());
                None
            }
        }
    }

    fn plan(&self, derived: &Derived, machine: &Machine, cut: Cut, report: &mut Report) -> Option<Planned> {
        let indices = || derived.cascade().indices.iter().map(|i| i.name.clone());
        let tiles = match cut.tile {
            0 => Default::default(),
            tile => indices().map(|i| (i, tile)).collect(),
        };
        let Cut { fuse, merge, chunks, .. } = cut;
        let options = PlanOptions { tiles, fuse, merge, chunks, ..PlanOptions::default() };
        // The first index that some reduction can be in shares of: one of two positions at least.
        let cascade = derived.cascade();
        let mut long = cascade.indices.iter().filter(|i| self.bound.size(i.rank) > 1).map(|i| i.name.clone());
        let in_shares = |index: String| {
            let options = PlanOptions { shares: Some([(index, cut.shares)].into()), ..options.clone() };
            derived.plan(&self.given, machine, &options).ok().filter(|p| !p.shares().is_empty())
        };
        if cut.shares > 0
            && let Some(planned) = long.find_map(in_shares)
        {
            return Some(planned);
        }
        match derived.plan(&self.given, machine, &options) {
            Ok(planned) => Some(planned),
            Err(error) => {
                report.unplanned.push(error.to_string());
                None
            }
        }
    }

    #[allow(clippy::too_many_arguments)] // All there is to know of a run.
    fn run(
        &self,
        planned: &Planned,
        derivation: &Derivation,
        way: Way,
        inputs: &Arrays,
        kind: Option<Kind>,
        how: (String, Option<u64>),
        report: &mut Report,
    ) {
        let cascade = planned.cascade();
        // Every other run is disturbed: its results are to be the same.
        let disturb = (report.ran % 2 == 1).then_some(report.ran as u64 / 2);
        let options = RunOptions { threads: Some(1), disturb, ..RunOptions::default() };
        let found = planned.run(&prove::tensors(cascade, inputs), &options);
        let expected = meaning::evaluate(cascade, &self.bound, inputs);
        let (found, expected) = match (found, expected) {
            (Ok(found), Ok(expected)) => (found.outputs, expected),
            // A position outside its tensor, which the derived form may never need.
            (_, Err(_)) => {
                report.undefined += 1;
                return;
            }
            (Err(_), Ok(_)) if self.finds_nan(cascade, inputs) || self.skips_reads() => {
                report.undefined += 1;
                return;
            }
            (Err(_), Ok(_)) => {
                return self.disagree(report, way, how, inputs, kind, Difference::stopped());
            }
        };
        report.ran += 1;
        let mut precision = Precision::of(cascade, &self.bound, planned.program());
        if has_narrow(cascade) {
            precision.arithmetic = DType::F32;
        }
        let infinite = inputs.values().any(|array| array.values.iter().any(|v| !v.is_finite()));
        for &output in &cascade.outputs {
            let name = &cascade[output].name;
            let (Some(found), Some(expected)) = (found.get(name), expected.get(name)) else { continue };
            let dtype = planned.dtype(output);
            let mut values = found.values();
            for (v, &e) in values.iter_mut().zip(&expected.values) {
                // An overflow of the text; and where tiles of products are filtered by 0, `0 * inf` is a NaN.
                if !e.is_finite() || (v.is_nan() && infinite) {
                    *v = e;
                }
            }
            let found = Array { shape: expected.shape.clone(), values };
            let Some(difference) = differs(&precision, dtype, name, expected, &found) else { continue };
            if self.finds_nan(cascade, inputs) {
                report.undefined += 1;
                continue;
            }
            if !dtype.is_float() {
                // A position or a rounding to integers that the last digit decides.
                let step = precision.tolerance(DType::F32).total();
                match prove::sensitivity(cascade, &self.bound, inputs, output, step, 0) {
                    Ok(0.0) => {}
                    _ => {
                        report.sensitive += 1;
                        continue;
                    }
                }
            }
            let tolerance = precision.tolerance(dtype);
            let step = tolerance.arithmetic + tolerance.rounding;
            // f32 and narrower types may run out of range where f64 does not.
            let narrow = way == Way::Cpu || precision.arithmetic == DType::F32;
            let farthest = if narrow { NEAR_OVERFLOW_NARROW } else { NEAR_OVERFLOW };
            let excused = way == Way::Cpu && kind != Some(Kind::Normal);
            if !difference.error.is_finite() && (excused || self.leaves_range(cascade, inputs, farthest)) {
                report.range += 1;
                continue;
            }
            let unit = unit_roundoff(precision.arithmetic) + tolerance.rounding;
            let compared = Compared { output, dtype, precision: &precision, unit, expected, found: &found };
            let verdict = match difference.error.is_finite() {
                true => self.excuse(cascade, inputs, output, step, difference),
                false if self.leaves_noise(cascade, inputs, narrow) => Verdict::Sensitive,
                false => self.settled(cascade, inputs, step, &compared),
            };
            match verdict {
                Verdict::Differs(d) => {
                    let all = forms(derivation);
                    let forms: Vec<&Derivation> = all.iter().map(|f| &f.1).collect();
                    match self.within_bounds(&forms, inputs, &compared) {
                        _ if self.saturates(inputs) => report.range += 1,
                        Some(Verdict::Unstable(difference)) => report.unstable.push(difference.error),
                        Some(Verdict::Undetermined(elements)) => report.undetermined(elements),
                        Some(_) => report.sensitive += 1,
                        None if self.is_right_in_range(&forms[0].written, inputs, &compared) => report.range += 1,
                        // An element of the text that became 0, and then an infinity, may be hidden by an extremum.
                        None if self.leaves_range(cascade, inputs, NEAR_OVERFLOW) => {
                            report.range += 1;
                        }
                        None if narrow && self.finds_overflow(cascade, inputs) => report.range += 1,
                        None => return self.disagree(report, way, how, inputs, kind, d),
                    }
                }
                Verdict::Range => report.range += 1,
                Verdict::Undefined => report.undefined += 1,
                Verdict::Unstable(difference) => report.unstable.push(difference.error),
                Verdict::Undetermined(elements) => report.undetermined(elements),
                Verdict::Sensitive => report.sensitive += 1,
                Verdict::Agrees => {}
            }
        }
    }
}

/// A kernel and its tiles.
fn told(kernel: &PlannedKernel) -> String {
    let tiles =
        |of: &[(String, usize)]| of.iter().map(|(i, tile)| format!("{i} by {tile}")).collect::<Vec<_>>().join(" ");
    format!("{} [{} | {}]", kernel.name, tiles(&kernel.group), tiles(&kernel.stream))
}

/// Whether some value has no f64 among its operands: constants, positions and integers make numbers that are computed
/// in f32 whatever the program's floating-point types are. A derivation may split such a value off, so one integer input
/// is enough.
fn has_narrow(cascade: &Cascade) -> bool {
    if cascade.inputs().any(|t| cascade[t].dtype.is_some_and(|d| !d.is_float())) {
        return true;
    }
    let mut wide: BTreeSet<TensorId> = (0..cascade.tensors.len() as u32).map(TensorId).collect();
    wide.retain(|&t| cascade[t].role == Role::Input && cascade[t].dtype == Some(DType::F64));
    loop {
        let reached: Vec<TensorId> =
            cascade.statements.iter().filter(|s| reads(&s.value, &wide)).map(|s| s.target).collect();
        let before = wide.len();
        wide.extend(reached);
        if wide.len() == before {
            break;
        }
    }
    cascade.statements.iter().any(|s| narrow(&s.value, &wide))
}

fn reads(expr: &Expr, wide: &BTreeSet<TensorId>) -> bool {
    let mut found = matches!(&expr.kind, ExprKind::Read { tensor, .. } if wide.contains(tensor));
    expr.for_each_child(&mut |child| found |= reads(child, wide));
    found
}

fn narrow(expr: &Expr, wide: &BTreeSet<TensorId>) -> bool {
    let leaf = matches!(
        expr.kind,
        ExprKind::Number(_) | ExprKind::Param(_) | ExprKind::Size(_) | ExprKind::Position(_) | ExprKind::Read { .. }
    );
    if !leaf && !reads(expr, wide) && !matches!(&expr.kind, ExprKind::Binary(op, ..) if op.is_predicate()) {
        return true;
    }
    let mut found = false;
    expr.for_each_child(&mut |child| found |= narrow(child, wide));
    found
}
