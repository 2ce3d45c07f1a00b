//! What bounds on rounding errors say to a difference ([`einloom::prove::rounding_bounds`]).

use super::Subject;
use super::compare::{Verdict, differs};
use einloom::compare::Precision;
use einloom::prove::{beyond_bounds, rounding_bounds};
use einloom_algebra::Derivation;
use einloom_algebra::exact::{Certificate, in_fields};
use einloom_algebra::stream::Cut;
use einloom_cascade::meaning::{Array, Arrays};
use einloom_cascade::{DType, TensorId};

/// What a comparison was about.
pub(super) struct Compared<'a> {
    pub(super) output: TensorId,
    pub(super) dtype: DType,
    pub(super) precision: &'a Precision,
    /// Unit roundoff of the arithmetic.
    pub(super) unit: f64,
    pub(super) expected: &'a Array,
    pub(super) found: &'a Array,
}

impl Subject {
    /// What the bounds on rounding errors say to a difference: [`Verdict::Undetermined`] if those of the text as written
    /// explain it, [`Verdict::Sensitive`] if a condition of it hangs on rounding, [`Verdict::Unstable`] if those of a derived form are needed for that, and nothing otherwise.
    pub(super) fn within_bounds(&self, forms: &[&Derivation], inputs: &Arrays, compared: &Compared) -> Option<Verdict> {
        let name = &self.wide[compared.output].name;
        let number = self.wide.outputs.iter().position(|o| *o == compared.output)?;
        let (expected, found) = (&compared.expected.values, &compared.found.values);
        let rest = |bounds: &[f64]| {
            let (values, excused) = beyond_bounds(found, expected, bounds);
            let left = Array { shape: compared.found.shape.clone(), values };
            (differs(compared.precision, compared.dtype, name, compared.expected, &left), excused)
        };
        let seen = differs(compared.precision, compared.dtype, name, compared.expected, compared.found)?;
        let written = &forms.first()?.written;
        let bounds = |graph, cut| rounding_bounds(graph, &self.bound, inputs, number, compared.unit, cut);
        let (mut all, doubtful) = bounds(written, Cut::Whole)?;
        match rest(&all) {
            _ if doubtful => return Some(Verdict::Sensitive),
            (None, excused) => return Some(Verdict::Undetermined(excused)),
            _ => {}
        }
        let mut doubtful = false;
        for (form, cut) in forms.iter().flat_map(|f| [(f, Cut::Whole), (f, Cut::Chunks(1)), (f, Cut::Parts(2))]) {
            let Some((own, doubt)) = bounds(&form.derived, cut) else { continue };
            all.iter_mut().zip(own).for_each(|(a, b)| *a = a.max(b));
            doubtful |= doubt;
        }
        // Where a condition that only the derived form has hangs on rounding, exact arithmetic has the last word.
        let certified = |d: &&Derivation| matches!(in_fields(d, &self.bound, 1), Certificate::Certified { .. });
        let explained = rest(&all).0.is_none() || doubtful && forms.iter().all(certified);
        explained.then_some(Verdict::Unstable(seen))
    }
}
