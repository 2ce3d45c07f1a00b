//! What the text leaves the range of its numbers for, and the processor does not.

use super::Subject;
use super::bounds::Compared;
use super::compare::differs;
use super::propagated::{Bounded, Propagated};
use einloom::prove::wide::Range;
use einloom_algebra::Graph;
use einloom_algebra::stream::{Cut, evaluate_in};
use einloom_cascade::meaning::Arrays;

/// A value is that of a text whose numbers do not run out if it is so much nearer to it than to the meaning's.
const NEARER: f64 = 1e-3;

impl Subject {
    /// Whether a difference is the meaning's, which overflows or vanishes on its way to a finite number, as
    /// `exp(max x - log(sum exp(x)))` does: what was found is what the text gives over numbers whose exponents do not run
    /// out. Every element answers for itself.
    pub(super) fn is_right_in_range(&self, written: &Graph, inputs: &Arrays, compared: &Compared) -> bool {
        let Some(number) = self.wide.outputs.iter().position(|o| *o == compared.output) else { return false };
        let numbers = Propagated(Range::new(written, &self.bound, inputs));
        let Some(mut outputs) = evaluate_in(&numbers, written, &self.bound, Cut::Whole) else { return false };
        let truth: Vec<Bounded> = outputs.swap_remove(number).1;
        let mut left = compared.found.clone();
        for ((v, &e), t) in left.values.iter_mut().zip(&compared.expected.values).zip(&truth) {
            let (near, far) = ((*v - t.value().to_f64()).abs() + t.error(), (*v - e).abs());
            if near <= NEARER * far {
                *v = e;
            }
        }
        let name = &self.wide[compared.output].name;
        differs(compared.precision, compared.dtype, name, compared.expected, &left).is_none()
    }
}
