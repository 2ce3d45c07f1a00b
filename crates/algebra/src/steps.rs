//! Steps and refusals: what a derivation did, what it would not do, and why.

use einloom_cascade::Span;

/// The rules. Each has its side condition written where it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// An arg-extremum becomes the extremum and the first position that attains it.
    Split,
    /// A condition under which the reduced value is neutral becomes the reduction's filter.
    Filter,
    /// A pointwise definition is put in place of its read.
    Inline,
    /// A factor that does not carry the reduced index leaves the reduction.
    Defer,
    /// A factor that depends on another reduction's running value can be repaired when that value moves.
    Separate,
    /// Exponents are taken relative to their running maximum.
    Stabilise,
    /// Differences are taken relative to the running mean; a move of the mean moves a vector of moments linearly.
    Centre,
    /// Positions of a recurrence are taken in chunks.
    Scan,
    /// A reduction that another statement computes is not computed again.
    Share,
}

impl Rule {
    /// Its name, as printed and as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Split => "split",
            Self::Filter => "filter",
            Self::Inline => "inline",
            Self::Defer => "defer",
            Self::Separate => "separate",
            Self::Stabilise => "stabilise",
            Self::Centre => "centre",
            Self::Scan => "scan",
            Self::Share => "share",
        }
    }
}

/// One application of a rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Which rule.
    pub rule: Rule,
    /// The statement it was applied in.
    pub statement: usize,
    /// The node it was applied to.
    pub node: String,
    /// The ranks of the reduced indices.
    pub ranks: Vec<String>,
    /// Why it may be applied: the side condition with what satisfied it.
    pub why: String,
    /// The definition before.
    pub before: String,
    /// The definition after.
    pub after: String,
}

/// A rule that did not fire where it would have saved a pass, or steps that follow one another.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// Which rule.
    pub rule: Rule,
    /// The statement it concerns.
    pub statement: usize,
    /// The node it concerns.
    pub node: String,
    /// The ranks of the reduced indices.
    pub ranks: Vec<String>,
    /// The condition that failed.
    pub reason: String,
    /// What would make it fire, where that is known.
    pub hint: Option<String>,
    /// The place in the source.
    pub span: Span,
}
