//! Steps and refusals: what a derivation did, what it would not do, and why.

use einloom_cascade::Span;

/// The rules. Each has its side condition written where it is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// A reduction over what attains an extremum, such as the first position that does, becomes the extremum and a state beside it.
    Split,
    /// A condition under which the reduced value is neutral becomes the reduction's filter.
    Filter,
    /// A pointwise definition is put in place of its read.
    Inline,
    /// A factor that does not carry the reduced index leaves the reduction.
    Defer,
    /// A factor that depends on another reduction's running value can be repaired when that value moves.
    Separate,
    /// An extremum of what moves one way with a value, or turns once, is that of the value's own extrema.
    Ends,
    /// Exponents are taken relative to their running maximum.
    Stabilise,
    /// Differences are taken relative to the running mean; a move of the mean moves a vector of moments linearly.
    Centre,
    /// One reduction over several indices becomes several, one inside the other.
    Distribute,
    /// Two sums, one inside the other, change places.
    Reassociate,
    /// A reduction over all positions up to one becomes a recurrence.
    Prefix,
    /// A reduction over all positions from one on is taken from the end.
    Reverse,
    /// A reduction over all positions becomes one up to a position and one beyond it.
    Halves,
    /// A reduction over a few positions near one is its elements one after the other.
    Window,
    /// A reduction over an index that an equation leaves one position of is what stands there.
    Pick,
    /// What an equation says of two places that they are one is read at that which does not move.
    Place,
    /// A reduction of which few elements are read is computed for these alone.
    Elements,
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
            Self::Ends => "ends",
            Self::Stabilise => "stabilise",
            Self::Centre => "centre",
            Self::Distribute => "distribute",
            Self::Reassociate => "reassociate",
            Self::Prefix => "prefix",
            Self::Reverse => "reverse",
            Self::Halves => "halves",
            Self::Window => "window",
            Self::Pick => "pick",
            Self::Place => "place",
            Self::Elements => "elements",
            Self::Scan => "scan",
            Self::Share => "share",
        }
    }

    /// What must hold for it to be applied, and what it then does: one sentence.
    pub fn condition(self) -> &'static str {
        match self {
            Self::Split => {
                "an element attains the extremum so far or it does not: first the extremum, then what is made of those that attain it, void when it moves"
            }
            Self::Filter => {
                "where the condition fails the body is neutral for the reduction, so such elements are left out"
            }
            Self::Inline => "the definition is pointwise, so it is computed for just the elements that are read",
            Self::Defer => {
                "a factor that does not carry the reduced index leaves a sum, and an extremum if it cannot be negative; so does an addend of an extremum"
            }
            Self::Separate => {
                "exp(x - c) = exp(x)·exp(-c) and (x / c)^k = x^k / c^k, sums of such products are sums by parts, and · distributes over sum: when the anchor moves, one factor repairs the sum so far"
            }
            Self::Ends => {
                "what rises or falls with one value, whichever it does, or turns once on its way, is most extreme at the largest or the smallest value"
            }
            Self::Stabilise => {
                "every reader is unchanged when all exponents are shifted alike, so they may be taken relative to their maximum so far, where exp cannot overflow"
            }
            Self::Centre => {
                "a whole power of a difference multiplies out into finitely many products g(x)·h(c): their sums are a vector of states, kept about the running mean, and a move of the mean takes them through a triangular linear map"
            }
            Self::Distribute => {
                "· distributes over sum, and + over an extremum, as · does with what cannot be negative: factors that do not carry an index leave the reduction over it, which is made before them"
            }
            Self::Reassociate => {
                "between two sums stand only products, and each factor belongs to one side: · distributes over both sums, so they may change places"
            }
            Self::Prefix => {
                "a reduction over the positions up to one is that up to the one before and one more element; what decays by a factor per step, or under an extremum by an addend, decays with the state"
            }
            Self::Reverse => "counted from the end, the positions from one on are those up to one",
            Self::Halves => {
                "which of two positions is the larger is the same on one side of either, so a reduction over all is one of each side"
            }
            Self::Window => {
                "an index that is bounded on both sides at fixed distances from a position takes a few values there, and each element that exists is read where it is"
            }
            Self::Pick => {
                "an equation with a whole number that does not move with an index leaves one position of it, or none: what stands there is read, and else there is nothing to reduce"
            }
            Self::Place => {
                "under an equation of two places what stands at the one stands at the other, so it is read at that which does not move with what is reduced"
            }
            Self::Elements => {
                "which elements of a reduction are read is told by fewer indices than it has, so these are computed by themselves, under the conditions under which they are read"
            }
            Self::Scan => {
                "steps that are affine in the slice before compose into such a step, so a chunk of them is one step and a sum within the chunk"
            }
            Self::Share => "the same reduction over the same elements has the same value",
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
    /// What satisfied the rule's condition ([`Rule::condition`]) here.
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
