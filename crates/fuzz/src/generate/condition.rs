//! Conditions: affine in positions, or of the data.

use super::Writer;
use super::scope::{Ix, Known, RANKS, Tensor};

impl Writer {
    /// `: condition` for a reduction over `over`, or nothing.
    pub(super) fn filter(&mut self, scope: &[Ix], over: Ix) -> String {
        if self.chance(0.65) { String::new() } else { format!(": {}", self.condition(scope, Some(over))) }
    }

    /// A truth value; about `of`'s position if it is given.
    pub(super) fn condition(&mut self, scope: &[Ix], of: Option<Ix>) -> String {
        if scope.is_empty() {
            let x = self.element(scope, None);
            return format!("{x} > 0");
        }
        let first = of.unwrap_or(scope[self.roll(scope.len())]);
        let compare = self.random.pick(&["<=", "<", ">=", ">", "==", "!="]);
        match self.roll(12) {
            0..=4 => {
                // Two positions of one rank, or of any two.
                let alike: Vec<Ix> = scope.iter().copied().filter(|i| i.rank == first.rank && *i != first).collect();
                let other = match alike.as_slice() {
                    [] => scope[self.roll(scope.len())],
                    some => some[self.roll(some.len())],
                };
                match self.roll(4) {
                    0 => format!("{} - {} {compare} {}", first.name(), other.name(), self.roll(3)),
                    _ => format!("{} {compare} {}", first.name(), other.name()),
                }
            }
            5 => format!("{} {compare} {}", first.name(), self.roll(4)),
            6 => format!("{} {compare} {} - {}", first.name(), RANKS[first.rank].name, self.roll(3)),
            7 | 8 => {
                let x = self.element(scope, of);
                format!("{x} {} 0", self.random.pick(&[">", ">=", "<"]))
            }
            9 => match self.truth(scope) {
                Some(mask) => mask,
                None => format!("{} {compare} 1", first.name()),
            },
            10 => format!("{} and {}", self.condition(scope, of), self.condition(scope, None)),
            _ => match self.roll(2) {
                0 => format!("not ({})", self.condition(scope, of)),
                _ => format!("({} or {})", self.condition(scope, of), self.condition(scope, None)),
            },
        }
    }

    /// An element of a tensor of truth values.
    fn truth(&mut self, scope: &[Ix]) -> Option<String> {
        let fits = |t: &&Tensor| t.known == Known::Truth && t.ranks.iter().all(|r| scope.iter().any(|i| i.rank == *r));
        let tensor = self.tensors.iter().find(fits)?.clone();
        let at: Vec<&str> =
            tensor.ranks.iter().filter_map(|&r| scope.iter().find(|i| i.rank == r).map(|i| i.name())).collect();
        Some(if at.is_empty() { tensor.name } else { format!("{}[{}]", tensor.name, at.join(",")) })
    }
}
