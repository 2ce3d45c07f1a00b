//! Elements that are no numbers where rounding alone may make the text's none either.
//!
//! A kernel may store a maximum and another compute what it was taken over once more, in another order: scores less their
//! maximum are then off by the last digits of a score, and of scores of 10^18 the exponential is infinite. The text has
//! the same scores twice, so nothing that it does shows it; noise that is another one for every read does.

use super::Subject;
use super::bounds::Compared;
use super::compare::{OPINIONS, Verdict, differs};
use einloom::prove;
use einloom_cascade::Cascade;
use einloom_cascade::meaning::{Array, Arrays};
use std::collections::BTreeSet;

impl Subject {
    /// Excuses the elements that are no numbers and that noise of size `step`, in every operation or in every read by
    /// itself, takes from the numbers in the text too. The others answer as ever.
    pub(super) fn settled(&self, cascade: &Cascade, inputs: &Arrays, step: f64, compared: &Compared) -> Verdict {
        let Compared { output, dtype, precision, expected, found, .. } = *compared;
        let (noisy, extra) = prove::in_reads(cascade);
        let mut more = inputs.clone();
        more.extend(extra);
        let mut unsettled = BTreeSet::new();
        for seed in 0..OPINIONS {
            for (cascade, inputs) in [(cascade, inputs), (&noisy, &more)] {
                match prove::moved(cascade, &self.bound, inputs, output, step, seed) {
                    Ok(moved) => unsettled.extend(moved.undetermined),
                    // The noise moved a position out of its tensor.
                    Err(_) => return Verdict::Sensitive,
                }
            }
        }
        let (mut left, mut excused) = (found.values.clone(), 0);
        for at in unsettled.into_iter().filter(|&at| !found.values[at].is_finite()) {
            left[at] = expected.values[at];
            excused += 1;
        }
        let left = Array { shape: found.shape.clone(), values: left };
        match differs(precision, dtype, &cascade[output].name, expected, &left) {
            None => Verdict::Undetermined(excused),
            Some(rest) if rest.error.is_finite() => self.excuse(cascade, inputs, output, step, rest),
            Some(rest) => Verdict::Differs(rest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use einloom::compare::Precision;
    use einloom_cascade::DType;

    /// What is said to a NaN in the place of one softmax weight, of scores of this size.
    fn said_of_nan(size: f64) -> Verdict {
        let text = "input Q[d]: f64, K[n,d]: f64\noutput W: f64\n\
            W[n] = exp((sum(d) Q[d] * K[n,d]) - max(n) sum(d) Q[d] * K[n,d])\n";
        let subject = Subject::new(text, &[("N".into(), 2), ("D".into(), 2)].into()).unwrap();
        let array = |shape: &[usize], values: &[f64]| Array { shape: shape.to_vec(), values: values.to_vec() };
        let inputs: Arrays = [
            ("Q".to_owned(), array(&[2], &[size, size / 3.0])),
            ("K".to_owned(), array(&[2, 2], &[0.3, 0.7, -0.2, 0.1])),
        ]
        .into();
        let precision = Precision { arithmetic: DType::F64, longest: 2.0, rounding: 0.0 };
        let (expected, found) = (array(&[2], &[1.0, 0.0]), array(&[2], &[f64::NAN, 0.0]));
        let output = subject.wide.outputs[0];
        let (dtype, unit) = (DType::F64, f64::EPSILON / 2.0);
        let compared = Compared { output, dtype, precision: &precision, unit, expected: &expected, found: &found };
        let step = precision.tolerance(dtype).arithmetic;
        subject.settled(&subject.wide, &inputs, step, &compared)
    }

    #[test]
    fn scores_of_which_the_last_digit_is_an_exponent_excuse_a_nan() {
        assert!(matches!(said_of_nan(5e18), Verdict::Undetermined(1)));
    }

    #[test]
    fn ordinary_scores_excuse_none() {
        assert!(matches!(said_of_nan(50.0), Verdict::Differs(_)));
    }
}
