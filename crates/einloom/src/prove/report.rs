//! What a numeric proof tells.

use super::Kind;
use std::collections::BTreeMap;

/// What was tried and what came out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Proof {
    /// Sets of sizes.
    pub sizes: usize,
    /// Kinds of sizes of which the program's constraints allowed none that was found.
    pub missing: Vec<String>,
    /// Inputs on which both were compared.
    pub inputs: usize,
    /// Inputs on which the text has no value, such as positions in an empty tensor, and the program has none either, or 0 under
    /// a condition.
    pub undefined: usize,
    /// Inputs on which the meaning overflowed as written where the derived program is finite.
    pub overflowed: usize,
    /// Inputs on which the declared program is not finite as derived, and values of it as written are out of the range
    /// of f32: where a derivation could have avoided that, it did not.
    pub out_of_range: usize,
    /// Inputs with an infinity that the derived program multiplies by 0 where the text leaves it out: under a filter, or
    /// in an alternative that sums in another order.
    pub masked: usize,
    /// Inputs so sensitive that rounding on the way moves the meaning by more than a hundredth: they prove little.
    pub sensitive: usize,
    /// Elements among these that bounds on the text's own rounding errors do not determine, excused one by one.
    pub undetermined: usize,
    /// Inputs on which the derived form, equal in exact arithmetic, loses more digits than the text, as bounds on its rounding
    /// errors allow.
    pub less_precise: usize,
    /// Forms that have no plan for some sizes, by their number, and why: there they were not run.
    pub unplanned: BTreeMap<usize, String>,
    /// Largest relative error per output with everything in f64.
    pub worst: BTreeMap<String, f64>,
    /// Largest relative error per output in the declared number types.
    pub worst_declared: BTreeMap<String, f64>,
    /// Where they do not agree: none, or the derivation is not proved.
    pub disagreements: Vec<Disagreement>,
}

impl Proof {
    /// Adds what was found at one more set of sizes, which are counted already.
    pub(super) fn add(&mut self, more: Self) {
        self.inputs += more.inputs;
        self.undefined += more.undefined;
        self.overflowed += more.overflowed;
        self.out_of_range += more.out_of_range;
        self.masked += more.masked;
        self.sensitive += more.sensitive;
        self.undetermined += more.undetermined;
        self.less_precise += more.less_precise;
        for (all, more) in [(&mut self.worst, more.worst), (&mut self.worst_declared, more.worst_declared)] {
            for (name, error) in more {
                let worst = all.entry(name).or_insert(0.0);
                *worst = worst.max(error);
            }
        }
        self.unplanned.extend(more.unplanned);
        self.disagreements.extend(more.disagreements);
    }
}

/// An input on which the derived program is not the one that was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Disagreement {
    /// Sizes by rank.
    pub sizes: BTreeMap<String, usize>,
    /// What the inputs look like.
    pub kind: Kind,
    /// Their seed.
    pub seed: u64,
    /// Whether everything was in f64, or as declared.
    pub in_f64: bool,
    /// The output; empty if one of them stopped.
    pub output: String,
    /// Where in it, counted row-major.
    pub position: usize,
    /// What the meaning has there.
    pub expected: f64,
    /// What the derived program has there.
    pub found: f64,
    /// The scaled error there.
    pub error: f64,
    /// What would have been allowed.
    pub tolerance: f64,
    /// Which of the two stopped where the other did not, and why.
    pub stopped: Option<String>,
}
