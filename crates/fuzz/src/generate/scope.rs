//! Ranks, indices and tensors that a statement may mention.

use super::Writer;

/// A rank and the names of its indices.
pub(super) struct Rank {
    pub name: &'static str,
    pub indices: [&'static str; 3],
}

/// The ranks of every random program, those of recurrences, and those that only some families declare.
pub(super) const RANKS: [Rank; 8] = [
    Rank { name: "A", indices: ["a", "i", "x"] },
    Rank { name: "B", indices: ["b", "j", "y"] },
    Rank { name: "C", indices: ["c", "k", "z"] },
    Rank { name: "T", indices: ["t", "s", "r"] },
    Rank { name: "P", indices: ["p", "p2", "p3"] },
    Rank { name: "Q", indices: ["q", "q2", "q3"] },
    Rank { name: "W", indices: ["w", "w2", "w3"] },
    Rank { name: "L", indices: ["l", "l2", "l3"] },
];

/// Ranks from here on are declared where they are used.
pub(super) const OUTER: usize = 4;
/// The inner part of a split rank; its outer part is [`OUTER`].
pub(super) const INNER: usize = 5;
/// The rank that is split.
pub(super) const WHOLE: usize = 6;
/// A rank that is long enough for windows.
pub(super) const LONG: usize = 7;

/// The rank that recurrences step along.
pub(super) const TIME: usize = 3;

/// One of the three indices of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ix {
    pub rank: usize,
    pub which: usize,
}

impl Ix {
    pub fn name(self) -> &'static str {
        RANKS[self.rank].indices[self.which]
    }
}

/// What a tensor holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// Numbers.
    Real,
    /// Truth values.
    Truth,
    /// Positions along a rank.
    Positions(usize),
}

/// A tensor that may be read.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub name: String,
    pub ranks: Vec<usize>,
    pub known: Known,
    /// Whether the caller gives it.
    pub is_input: bool,
    /// The declared number type.
    pub dtype: Option<&'static str>,
}

/// `[a,b]`, or nothing.
pub(super) fn brackets(at: &[Ix]) -> String {
    if at.is_empty() {
        return String::new();
    }
    let names: Vec<&str> = at.iter().map(|i| i.name()).collect();
    format!("[{}]", names.join(","))
}

/// The indices of a statement's target, if they are all plain.
pub(super) fn parse_brackets(line: &str) -> Option<Vec<Ix>> {
    let left = line.split_once(" = ")?.0;
    let left = left.split_once(':').map_or(left, |(l, _)| l);
    let Some((_, inside)) = left.split_once('[') else { return Some(vec![]) };
    inside.trim_end_matches(']').split(',').map(find).collect()
}

fn find(name: &str) -> Option<Ix> {
    RANKS.iter().enumerate().find_map(|(rank, r)| {
        let which = r.indices.iter().position(|i| *i == name)?;
        Some(Ix { rank, which })
    })
}

/// The scope with one more index.
pub(super) fn with(scope: &[Ix], one: Ix) -> Vec<Ix> {
    let mut out = scope.to_vec();
    out.push(one);
    out
}

impl Writer {
    /// Indices for a new target: seldom none, seldom two of one rank.
    pub(super) fn free(&mut self) -> Vec<Ix> {
        let mut free: Vec<Ix> = vec![];
        for rank in 0..3 {
            if self.chance(0.4) {
                free.push(Ix { rank, which: 0 });
            }
        }
        if self.chance(0.1) {
            let rank = self.roll(3);
            free.push(Ix { rank, which: 1 });
        }
        free
    }

    /// An index that is not in scope, to reduce over.
    pub(super) fn bind_index(&mut self, scope: &[Ix]) -> Ix {
        let start = self.roll(3);
        for step in 0..9 {
            let rank = (start + step) % 3;
            for which in 0..3 {
                let ix = Ix { rank, which };
                if !scope.contains(&ix) {
                    return ix;
                }
            }
        }
        Ix { rank: TIME, which: 2 }
    }

    /// An element of a tensor of numbers over indices in scope, with `must` among them if there is such a tensor;
    /// a constant if there is none.
    pub(super) fn element(&mut self, scope: &[Ix], must: Option<Ix>) -> String {
        let fits = |t: &Tensor, rank: usize| {
            t.known == Known::Real
                && t.ranks.iter().all(|r| scope.iter().any(|i| i.rank == *r))
                && (rank == usize::MAX || t.ranks.contains(&rank))
        };
        let rank = must.map_or(usize::MAX, |m| m.rank);
        let mut candidates: Vec<usize> = (0..self.tensors.len()).filter(|&k| fits(&self.tensors[k], rank)).collect();
        if candidates.is_empty() {
            if let Some(gathered) = self.gathered(scope) {
                return gathered;
            }
            candidates = (0..self.tensors.len()).filter(|&k| fits(&self.tensors[k], usize::MAX)).collect();
        }
        if candidates.is_empty() {
            return self.constant();
        }
        // What was defined last is read more often, so that statements hang together.
        let k = self.roll(candidates.len()).max(self.roll(candidates.len()));
        let tensor = self.tensors[candidates[k]].clone();
        let mut used = false;
        let at: Vec<String> = tensor
            .ranks
            .iter()
            .map(|&rank| {
                if let Some(m) = must.filter(|m| m.rank == rank && !used) {
                    used = true;
                    return m.name().to_owned();
                }
                let choices: Vec<Ix> = scope.iter().copied().filter(|i| i.rank == rank).collect();
                let choice = choices[self.roll(choices.len())];
                choice.name().to_owned()
            })
            .collect();
        if at.is_empty() { tensor.name } else { format!("{}[{}]", tensor.name, at.join(",")) }
    }

    /// An element at a position that another tensor holds.
    pub(super) fn gathered(&mut self, scope: &[Ix]) -> Option<String> {
        let inside = |t: &Tensor| t.ranks.iter().all(|r| scope.iter().any(|i| i.rank == *r));
        let positions: Vec<Tensor> =
            self.tensors.iter().filter(|t| matches!(t.known, Known::Positions(_)) && inside(t)).cloned().collect();
        if positions.is_empty() {
            return None;
        }
        let through = positions[self.roll(positions.len())].clone();
        let Known::Positions(rank) = through.known else { return None };
        let others = |t: &Tensor| {
            t.known == Known::Real
                && t.ranks.contains(&rank)
                && t.ranks.iter().all(|r| *r == rank || scope.iter().any(|i| i.rank == *r))
        };
        let targets: Vec<Tensor> = self.tensors.iter().filter(|t| others(t)).cloned().collect();
        if targets.is_empty() {
            return None;
        }
        let target = targets[self.roll(targets.len())].clone();
        let name = |rank: usize| scope.iter().find(|i| i.rank == rank).map(|i| i.name().to_owned());
        let at: Vec<String> = through.ranks.iter().filter_map(|&r| name(r)).collect();
        let through = if at.is_empty() { through.name } else { format!("{}[{}]", through.name, at.join(",")) };
        let mut gathered = false;
        let at: Vec<String> = target
            .ranks
            .iter()
            .map(|&r| {
                if r == rank && !std::mem::replace(&mut gathered, true) {
                    through.clone()
                } else {
                    name(r).unwrap_or_else(|| "0".to_owned())
                }
            })
            .collect();
        Some(format!("{}[{}]", target.name, at.join(",")))
    }
}
