//! Small sizes for a proof: nothing, one, several that divide nothing, and one long rank at a time.

use crate::random::Random;
use einloom_cascade::{Bound, Cascade, Given, RankId, bind, meaning};
use std::collections::BTreeSet;

/// Sizes that tiles of 4, 8, 16 and 32 divide, nearly divide, and do not.
const SEVERAL: [usize; 12] = [1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 33];
const FEW: [usize; 4] = [1, 2, 3, 4];
const MANY: [usize; 6] = [33, 48, 65, 67, 97, 129];

/// Attempts for one set of sizes before it is given up: programs whose ranks hang together refuse most.
const ATTEMPTS: usize = 64;

/// Different bindings, and a note for each kind of sizes of which none was found.
pub(super) fn bindings(cascade: &Cascade, seed: u64, several: usize, work: f64) -> (Vec<Bound>, Vec<String>) {
    let mut draw = Draw { cascade, random: Random::new(seed, "sizes"), work, seen: BTreeSet::new() };
    let free: Vec<RankId> = (0..cascade.ranks.len() as u32).map(RankId).filter(|&r| is_free(cascade, r)).collect();
    let mut found = vec![];
    let mut missing = vec![];
    let mut wanted: Vec<(String, Choose)> = vec![];
    wanted.push(("every rank 1".into(), Box::new(|_| Choice::Exactly(1))));
    for &rank in &free {
        let name = &cascade[rank].name;
        let zero = move |r: RankId| if r == rank { Choice::Exactly(0) } else { Choice::Few };
        wanted.push((format!("{name} = 0"), Box::new(zero)));
        let one = move |r: RankId| if r == rank { Choice::Exactly(1) } else { Choice::Several };
        wanted.push((format!("{name} = 1"), Box::new(one)));
        let long = move |r: RankId| if r == rank { Choice::Many } else { Choice::Few };
        wanted.push((format!("a long {name}"), Box::new(long)));
    }
    for _ in 0..several {
        wanted.push(("random sizes".into(), Box::new(|_| Choice::Several)));
    }
    for (name, choose) in wanted {
        match draw.bind(&free, &*choose) {
            Drawn::New(bound) => found.push(bound),
            Drawn::Known => {}
            Drawn::Refused => missing.push(name),
        }
    }
    missing.dedup();
    (found, missing)
}

/// Whether the program leaves the size to its caller; a default that is a formula of other ranks is a relation to keep.
pub(crate) fn is_free(cascade: &Cascade, rank: RankId) -> bool {
    match &cascade[rank].default {
        None => true,
        Some(d) => d.numerator.as_constant().is_some() && d.denominator.as_constant().is_some(),
    }
}

/// How to choose the size of one rank.
#[derive(Clone, Copy)]
enum Choice {
    Exactly(usize),
    Few,
    Several,
    Many,
}

/// How to choose every rank's size.
type Choose = Box<dyn Fn(RankId) -> Choice>;

enum Drawn {
    New(Bound),
    /// The same as an earlier one.
    Known,
    Refused,
}

struct Draw<'a> {
    cascade: &'a Cascade,
    random: Random,
    work: f64,
    seen: BTreeSet<Vec<usize>>,
}

impl Draw<'_> {
    fn bind(&mut self, free: &[RankId], choose: &dyn Fn(RankId) -> Choice) -> Drawn {
        let mut known = false;
        for attempt in 0..ATTEMPTS {
            let mut given = Given { params: self.params(), ..Given::default() };
            for &rank in free {
                let size = match choose(rank) {
                    Choice::Exactly(size) => size,
                    Choice::Many => self.random.pick(&MANY),
                    // Some ranks can only be long together.
                    Choice::Few if attempt % 2 == 1 && self.random.unit() < 0.3 => self.random.pick(&MANY),
                    // Where only small sizes keep the work small, try those in the end.
                    Choice::Several if attempt < ATTEMPTS / 2 => self.random.pick(&SEVERAL),
                    Choice::Few | Choice::Several => self.random.pick(&FEW),
                };
                given.sizes.insert(self.cascade[rank].name.clone(), size);
            }
            if attempt % 2 == 1 {
                self.turn_around(&mut given, choose);
            }
            let Ok(bound) = bind(self.cascade, &given) else { continue };
            if meaning::work(self.cascade, &bound) > self.work {
                continue;
            }
            if self.seen.insert(bound.sizes().to_vec()) {
                return Drawn::New(bound);
            }
            known = true;
        }
        if known { Drawn::Known } else { Drawn::Refused }
    }

    /// Where a rank's default is a quotient, such as `G = H / J`, dividing seldom leaves a whole number: chooses the
    /// quotient, and leaves the dividend to follow from it.
    fn turn_around(&mut self, given: &mut Given, choose: &dyn Fn(RankId) -> Choice) {
        for rank in &self.cascade.ranks {
            let dividend = rank.default.as_ref().and_then(|d| d.numerator.as_rank());
            if let Some(dividend) = dividend
                && matches!(choose(dividend), Choice::Few | Choice::Several)
            {
                given.sizes.remove(&self.cascade[dividend].name);
                given.sizes.insert(rank.name.clone(), self.random.pick(&FEW));
            }
        }
    }

    /// A program must be derived for every value of its parameters, not for its defaults.
    fn params(&mut self) -> std::collections::BTreeMap<String, f64> {
        let mut params = std::collections::BTreeMap::new();
        for param in &self.cascade.params {
            let value = match param.default {
                Some(default) if self.random.unit() < 0.5 => default,
                Some(default) if default.fract() == 0.0 => self.random.integer(1, 8) as f64,
                Some(default) => default * (0.5 + 1.5 * self.random.unit()),
                None => 0.25 + self.random.unit(),
            };
            params.insert(param.name.clone(), value);
        }
        params
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> (Vec<Vec<usize>>, Vec<String>) {
        let parsed = einloom_cascade::parse(text);
        assert_eq!(parsed.diagnostics, []);
        let (bounds, missing) = bindings(&parsed.cascade, 0, 3, 1e5);
        (bounds.iter().map(|b| b.sizes().to_vec()).collect(), missing)
    }

    #[test]
    fn nothing_one_and_many_of_every_rank() {
        let (sizes, missing) = found("input A[m,k]: f32\noutput B: f32\nB[m] = sum(k) A[m,k]");
        assert_eq!(missing, Vec::<String>::new());
        for rank in [0, 1] {
            for wanted in [0, 1] {
                assert!(sizes.iter().any(|s| s[rank] == wanted), "{sizes:?}");
            }
            assert!(sizes.iter().any(|s| s[rank] >= 33), "{sizes:?}");
        }
    }

    #[test]
    fn relations_between_ranks_are_kept() {
        let text = "rank M = M1 * M0\ninput A[m]: f32\noutput B: f32\nindex m1 in M1\nindex m0 in M0\n\
                    B[m1] = sum(m0) A[m1*M0 + m0]";
        let (sizes, _) = found(text);
        assert!(sizes.len() > 6);
        assert!(sizes.iter().all(|s| s[0] == s[1] * s[2]), "{sizes:?}");
    }
}
