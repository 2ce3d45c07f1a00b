//! What is said of a vector of states.

use super::Moments;
use super::centre::Centre;
use crate::derive::Deriver;
use crate::derive::polynomial::{Offset, Polynomial};
use crate::{Reduction, Rule, Term, product, show};

impl Deriver<'_> {
    /// That a variable is taken relative to a maximum, or to a range.
    fn shrinking(&self, centre: &Centre) -> Option<String> {
        let (by, states) = centre.shrinks.as_ref()?;
        let by = show::term(&self.out, &show::unguarded(by));
        Some(match &centre.range {
            Some(range) => format!(
                "; its powers are relative to {}, the range so far, and shrink by {by} when that grows: a power of a quotient may be a number where the quotient of powers is none",
                show::term(&self.out, &show::unguarded(range))
            ),
            None => format!(
                "; its exponential is relative to {}, the maximum so far, and shrinks by {by} when that grows",
                self.names(states)
            ),
        })
    }

    pub(super) fn explain_moments(
        &mut self,
        m: &Moments,
        p: &Polynomial,
        shown: &Reduction,
        before: &str,
        value: &Term,
    ) {
        let means: Vec<String> =
            m.centres.iter().map(|c| show::term(&self.out, &show::unguarded(&c.bare.term()))).collect();
        // What is subtracted is the centre itself where that is an extremum.
        let beside = |o: &&Offset| !o.rest.is_empty() && o.slopes.iter().all(|s| m.centres[s.0].stood.is_none());
        let added: Vec<String> =
            (p.offsets.iter().filter(beside)).map(|o| show::term(&self.out, &product::sum_term(&o.rest))).collect();
        let added = match added.as_slice() {
            [] => String::new(),
            [one] => format!("; {one} is added to the elements"),
            all => format!("; {} are added to the elements", all.join(" and ")),
        };
        let states: Vec<&str> = m.states.values().map(|&s| self.out[s].name.as_str()).collect();
        let what = match (m.centres.iter().any(|c| c.stood.is_none()), m.centres.iter().any(|c| c.stood.is_some())) {
            (_, false) => "mean",
            (false, _) => "extremum",
            _ => "centre",
        };
        let means = match (means.as_slice(), what) {
            ([one], _) => format!("the running {what} is {one}"),
            (_, "extremum") => format!("the running extrema are {}", means.join(" and ")),
            _ => format!("the running {what}s are {}", means.join(" and ")),
        };
        let mut shrinks: Vec<String> = m.centres.iter().filter_map(|c| self.shrinking(c)).collect();
        shrinks.dedup();
        let why = format!("{means}, the states are {}{added}{}", states.join(", "), shrinks.concat());
        let after =
            format!("{}; {} = {}", self.state_text(shown), m.node.name, show::term(&self.out, &show::unguarded(value)));
        let over = m.r.over.clone();
        self.step(Rule::Centre, m.node, &over, why, before.to_string(), after);
    }
}
