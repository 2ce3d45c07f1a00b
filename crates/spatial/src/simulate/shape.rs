//! One Einsum on one tile as an array walks it: steps, each for all elements at once, and words of each element.

use super::nest::Nest;
use super::part::{Carried, Part};
use crate::{Chip, Operation, Program, Space};
use einloom_algebra::NodeId;
use einloom_cascade::{Bound, RankId};
use std::collections::BTreeMap;

/// Which ranks lie along an array's sides.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sides {
    pub rows: Option<RankId>,
    pub columns: Option<RankId>,
    pub row_count: usize,
    pub column_count: usize,
}

impl Sides {
    pub fn of(program: &Program, space: Option<&Space>, rows: usize, columns: usize) -> Self {
        let rank = |name: &Option<String>| name.as_ref().and_then(|n| program.graph.cascade.rank(n));
        let (r, c) = space.map_or((None, None), |s| (rank(&s.rows), rank(&s.columns)));
        Self { rows: r, columns: c, row_count: rows.max(1), column_count: columns.max(1) }
    }

    /// Positions of a rank that are computed at once.
    pub fn at_once(&self, rank: RankId) -> usize {
        let side = |is: Option<RankId>, n: usize| if is == Some(rank) { n } else { 1 };
        side(self.rows, self.row_count) * side(self.columns, self.column_count)
    }
}

/// The walk of one Einsum over a tile of some extents.
#[derive(Clone, Debug, Default)]
pub(super) struct Shape {
    /// Cycles of every step.
    pub cycles: Vec<u32>,
    /// Steps for one word of the result: the last one completes it.
    pub per_word: usize,
    /// Words of the result in every element.
    pub words: usize,
    /// Elements of the result in the whole tile.
    pub elements: usize,
    /// By read.
    pub reads: Vec<ReadShape>,
    /// The part of the array's elements that the tile fills.
    pub filled: f64,
}

/// How a tensor is used up by the steps.
#[derive(Clone, Debug, Default)]
pub(super) struct ReadShape {
    /// By step: the word that it needs; empty if it needs all of them.
    pub word: Vec<u32>,
    /// By step: whether it is the last one that needs its word.
    pub last: Vec<bool>,
    /// Words of the operand in every element of the reading array.
    pub words: usize,
}

/// Extents of one tile.
pub(super) struct Extents<'a> {
    pub bound: &'a Bound,
    pub nest: &'a Nest,
    pub at: &'a [u32],
}

impl Extents<'_> {
    pub fn of(&self, rank: RankId) -> usize {
        match self.nest.cut(rank) {
            Some(cut) => self.nest.range(cut, self.at[cut]).1,
            None => self.bound.size(rank),
        }
    }

    /// Extents of a tensor's part in the tile; one slice of a recurrence.
    pub fn tensor(&self, program: &Program, node: NodeId, carried: Option<&[Carried]>) -> Vec<(RankId, usize)> {
        let one = |rank: RankId| match (self.nest.cut(rank), carried) {
            (Some(cut), Some(carried)) if carried[cut] == Carried::Slices => (rank, 1),
            _ => (rank, self.of(rank)),
        };
        program.dims(node).into_iter().map(one).collect()
    }
}

pub(super) fn shape(
    program: &Program,
    chip: &Chip,
    sides: &[Sides],
    parts: &[Part<'_>],
    p: usize,
    is_split: &dyn Fn(&Operation) -> bool,
    extents: &Extents<'_>,
) -> Shape {
    let part = &parts[p];
    let own = &sides[part.array];
    let count = |rank: RankId| extents.of(rank).div_ceil(own.at_once(rank));
    let loops: Vec<(RankId, usize)> = part.einsum.ranks.iter().map(|&r| (r, count(r))).collect();
    let dims = program.dims(part.einsum.node);
    let outer = loops.iter().take_while(|(r, _)| dims.contains(r)).count();
    let words: usize = loops[..outer].iter().map(|l| l.1).product();
    let per_word: usize = loops[outer..].iter().map(|l| l.1).product();
    let steps = words * per_word;
    let costs: Vec<(Vec<bool>, f64)> = part
        .einsum
        .work
        .iter()
        .filter_map(|w| {
            let cost = chip.arrays[part.array].cost(&w.operation, is_split(&w.operation))?;
            Some((loops.iter().map(|(r, _)| w.ranks.contains(r)).collect(), cost.cycles))
        })
        .collect();
    let mut out = Shape { per_word: per_word.max(1), words, ..Shape::default() };
    let tables: Vec<Option<Vec<usize>>> =
        part.reads.iter().map(|read| strides(program, sides, parts, part, read, extents, &loops)).collect();
    let mut at = vec![0usize; loops.len()];
    let mut words_at: Vec<Vec<u32>> = vec![vec![]; part.reads.len()];
    for _ in 0..steps {
        // What an operation does not repeat along a rank is done at its first position.
        let here = |of: &[bool]| at.iter().zip(of).all(|(&x, &has)| has || x == 0);
        let cycles: f64 = costs.iter().filter(|(of, _)| here(of)).map(|c| c.1).sum();
        out.cycles.push(cycles.ceil() as u32);
        for (table, words) in tables.iter().zip(&mut words_at) {
            if let Some(strides) = table {
                words.push(at.iter().zip(strides).map(|(x, s)| x * s).sum::<usize>() as u32);
            }
        }
        for (x, (_, n)) in at.iter_mut().zip(&loops).rev() {
            *x += 1;
            if *x < *n {
                break;
            }
            *x = 0;
        }
    }
    for (read, word) in part.reads.iter().zip(words_at) {
        let of = extents.tensor(program, read.node, read.from.map(|f| parts[f].result.as_slice()));
        let words = of.iter().map(|&(r, n)| n.div_ceil(own.at_once(r))).product();
        let last = last_uses(&word, words);
        out.reads.push(ReadShape { word, last, words });
    }
    out.elements = extents.tensor(program, part.einsum.node, Some(&part.result)).iter().map(|d| d.1).product();
    out.filled = [(own.rows, own.row_count), (own.columns, own.column_count)]
        .into_iter()
        .filter_map(|(rank, side)| rank.filter(|r| part.einsum.ranks.contains(r)).map(|r| (extents.of(r), side)))
        .map(|(n, side)| n as f64 / (n.div_ceil(side).max(1) * side) as f64)
        .product();
    out
}

/// By loop: how far the word moves that is read; `None` if the elements that read it hold other words of the tensor
/// than those that made it.
fn strides(
    program: &Program,
    sides: &[Sides],
    parts: &[Part<'_>],
    part: &Part<'_>,
    read: &super::part::Read,
    extents: &Extents<'_>,
    loops: &[(RankId, usize)],
) -> Option<Vec<usize>> {
    let from = &parts[read.from?];
    let dims = extents.tensor(program, read.node, Some(&from.result));
    let mut strides: BTreeMap<RankId, usize> = BTreeMap::new();
    let mut stride = 1;
    for &(rank, n) in dims.iter().rev() {
        let here = n.div_ceil(sides[part.array].at_once(rank));
        if here != n.div_ceil(sides[from.array].at_once(rank)) {
            return None;
        }
        if here > 1 {
            loops.iter().find(|l| *l == &(rank, here))?;
            strides.insert(rank, stride);
        }
        stride *= here;
    }
    // Every index of the read must be the one that the loop walks.
    let plain = read.text.iter().all(|at| {
        at.iter().zip(&dims).all(|(e, (rank, n))| {
            n.div_ceil(sides[part.array].at_once(*rank)) == 1
                || e.as_var().is_some_and(|i| program.graph.cascade[i].rank == *rank)
        })
    });
    plain.then(|| loops.iter().map(|(r, _)| strides.get(r).copied().unwrap_or(0)).collect())
}

fn last_uses(word: &[u32], words: usize) -> Vec<bool> {
    let mut seen = vec![false; words];
    let mut out = vec![false; word.len()];
    for (s, &w) in word.iter().enumerate().rev() {
        if let Some(seen) = seen.get_mut(w as usize) {
            out[s] = !*seen;
            *seen = true;
        }
    }
    out
}
