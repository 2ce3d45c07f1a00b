//! Tiles by what they have sides along: those with the same sides are of one size, whatever tiles are chosen, and are counted
//! together.

use einloom_tile::{AxisId, ValueId};
use std::collections::BTreeMap;

/// The kinds of a kernel's tiles.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kinds {
    /// Of each kind its sides.
    pub sides: Vec<Vec<AxisId>>,
    /// Of each tile its kind.
    of: Vec<usize>,
}

/// How many tiles there are of each kind, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tiles(Vec<(usize, u32)>);

impl Kinds {
    /// Of tiles with these sides.
    pub fn new(sides: &[Vec<AxisId>]) -> Self {
        let (mut out, mut known) = (Self::default(), BTreeMap::new());
        for own in sides {
            let kind = *known.entry(own).or_insert_with(|| {
                out.sides.push(own.clone());
                out.sides.len() - 1
            });
            out.of.push(kind);
        }
        out
    }

    pub fn of(&self, v: ValueId) -> usize {
        self.of[v.at()]
    }

    pub fn tiles(&self, values: impl Iterator<Item = ValueId>) -> Tiles {
        let mut all: Vec<usize> = values.map(|v| self.of(v)).collect();
        all.sort_unstable();
        Tiles(all.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u32)).collect())
    }
}

impl Tiles {
    pub fn elements(&self, sizes: &[f64]) -> f64 {
        self.0.iter().map(|&(kind, count)| f64::from(count) * sizes[kind]).sum()
    }

    /// Whether they are no more than others, whatever the sizes.
    pub fn are_among(&self, others: &Self) -> bool {
        self.0.iter().all(|own| others.0.iter().any(|other| other.0 == own.0 && own.1 <= other.1))
    }
}

/// Those that are not known to be no more than another one.
pub(crate) fn largest<T>(all: impl Iterator<Item = T>, no_more: impl Fn(&T, &T) -> bool) -> Vec<T> {
    let mut out: Vec<T> = vec![];
    for one in all {
        if !out.iter().any(|other| no_more(&one, other)) {
            out.retain(|other| !no_more(other, &one));
            out.push(one);
        }
    }
    out
}
