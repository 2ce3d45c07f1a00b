//! `H`: values that enter and leave the lower level.

use super::diagram::{Diagram, Kernel, NoFormula};
use super::stages::{Role, Stages};
use super::{Part, Partition, Poly, Symbol};
use einloom_algebra::{Def, NodeId};
use einloom_cascade::{IndexExpr, IndexId};
use std::collections::BTreeSet;
use std::fmt;

/// Values of one array in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfer {
    /// The array.
    pub wire: String,
    /// Into the lower level, or out of it.
    pub load: bool,
    /// Per group: along streams every value counts once per loop around it.
    pub per_group: Poly,
    /// For all groups.
    pub values: Poly,
    /// Values of the whole array as far as it is touched, if each index moves one of its dimensions.
    whole: Option<Poly>,
    /// Size and part of the axes that repeat the transfer.
    repeats: Vec<(Poly, Poly)>,
}

/// All transfers of a diagram under a partition.
#[derive(Clone, Debug, PartialEq)]
pub struct Transfers {
    /// Each array that enters or leaves.
    pub arrays: Vec<Transfer>,
    /// Number of groups, per kernel.
    pub groups: Vec<Poly>,
}

impl Transfers {
    /// `H`: all values, all groups.
    pub fn total(&self) -> Poly {
        self.arrays.iter().fold(Poly::default(), |sum, t| sum.plus(&t.values))
    }

    /// `H_g`: values of one group; of several kernels, of one group of each.
    pub fn local(&self) -> Poly {
        self.arrays.iter().fold(Poly::default(), |sum, t| sum.plus(&t.per_group))
    }

    /// Values for integer sizes and groups, of which the last may be ragged; `None` beyond what can be counted, for a
    /// symbol without a value, or where a group is 0.
    pub fn counted(&self, value: impl Fn(&Symbol) -> Option<u64>) -> Option<u128> {
        let whole = |p: &Poly| {
            let known = p.symbols().all(|s| value(s).is_some());
            let x = p.eval(|s| value(s).unwrap_or(0) as f64);
            (known && x >= 0.0 && x < 2f64.powi(53)).then_some(x.round() as u128)
        };
        self.arrays.iter().try_fold(0u128, |sum, t| {
            let mut values = whole(t.whole.as_ref().unwrap_or(&t.per_group))?;
            for (size, part) in &t.repeats {
                let part = whole(part).filter(|&p| p > 0)?;
                values = values.checked_mul(whole(size)?.div_ceil(part))?;
            }
            sum.checked_add(values)
        })
    }
}

impl fmt::Display for Transfers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for t in &self.arrays {
            writeln!(f, "{} {}: {}", if t.load { "load " } else { "store" }, t.wire, t.values)?;
        }
        write!(f, "H = {}", self.total())
    }
}

impl Diagram {
    /// What enters and leaves the lower level.
    ///
    /// # Errors
    /// A partition that names an axis which the diagram lacks.
    pub fn transfers(&self, partition: &Partition) -> Result<Transfers, NoFormula> {
        self.check(partition)?;
        let mut out = Transfers { arrays: vec![], groups: vec![] };
        for kernel in &self.kernels {
            let mut k = Counting::new(self, kernel, partition);
            k.loads();
            k.stores();
            out.groups.push(k.groups());
            out.arrays.extend(k.arrays);
        }
        Ok(out)
    }
}

impl Diagram {
    /// Whether a box is a reduction over an axis that groups divide: each takes over what the one before left.
    pub(super) fn is_handed_on(&self, n: NodeId, partition: &Partition) -> bool {
        let divided = |i: &IndexId| matches!(partition.part(self.index_name(*i)), Part::Group | Part::Single);
        match &self.graph[n].def {
            Def::Reduce(r) => r.over.iter().any(divided),
            _ => false,
        }
    }
}

struct Counting<'a> {
    d: &'a Diagram,
    kernel: &'a Kernel,
    partition: &'a Partition,
    indices: BTreeSet<IndexId>,
    arrays: Vec<Transfer>,
}

impl<'a> Counting<'a> {
    fn new(d: &'a Diagram, kernel: &'a Kernel, partition: &'a Partition) -> Self {
        Self { d, kernel, partition, indices: d.indices(kernel), arrays: vec![] }
    }

    fn part(&self, i: IndexId) -> Part {
        self.partition.part(self.d.index_name(i))
    }

    fn depth(&self, i: IndexId) -> Option<usize> {
        self.partition.depth(self.d.index_name(i))
    }

    fn grouped(&self) -> impl Iterator<Item = IndexId> + '_ {
        self.indices.iter().copied().filter(|&i| matches!(self.part(i), Part::Group | Part::Single))
    }

    /// Positions of an axis in one group, streams in full.
    fn in_group(&self, i: IndexId) -> Poly {
        match self.part(i) {
            Part::Stream => self.d.rank_size(i),
            _ => self.partition.seen(self.d.index_name(i), &self.d.rank_size(i)),
        }
    }

    fn groups(&self) -> Poly {
        self.grouped().fold(Poly::constant(1.0), |n, i| n.times(&self.ways(i)))
    }

    /// How often an axis is divided: its size by its part.
    fn ways(&self, i: IndexId) -> Poly {
        let (size, part) = (self.d.rank_size(i), self.partition.seen(self.d.index_name(i), &self.d.rank_size(i)));
        part.as_monomial().map_or(size.clone(), |(m, c)| size.over(m).times(&Poly::constant(1.0 / c)))
    }

    /// Adds an array that is transferred in every group in which it is touched at `at`.
    fn add(&mut self, node: NodeId, at: &[IndexExpr], load: bool) {
        let deepest = self.indices.iter().filter(|&&i| Diagram::carries(at, i)).filter_map(|&i| self.depth(i)).max();
        // Streams around the innermost one that it moves along, along which it stands still.
        let around: Vec<IndexId> = self
            .indices
            .iter()
            .copied()
            .filter(|&i| self.depth(i) < deepest && self.depth(i).is_some() && !Diagram::carries(at, i))
            .collect();
        let per_group = self.d.touched(at, &|i| self.in_group(i));
        let per_group = around.iter().fold(per_group, |p, &i| p.times(&self.ways(i)));
        let values = per_group.times(&self.groups());
        let plain = at.iter().all(|e| e.as_var().is_some() || e.terms.is_empty());
        let still: Vec<IndexId> =
            self.grouped().filter(|&i| !plain || !Diagram::carries(at, i)).chain(around).collect();
        let repeats = still
            .into_iter()
            .map(|i| (self.d.rank_size(i), self.partition.seen(self.d.index_name(i), &self.d.rank_size(i))))
            .collect();
        let whole = plain.then(|| self.d.touched(at, &|i| self.d.rank_size(i)));
        let wire = self.d.graph[node].name.clone();
        self.arrays.push(Transfer { wire, load, per_group, values, whole, repeats });
    }

    /// Arrays from the upper level: once, or once per body of streams that they move along.
    fn loads(&mut self) {
        let stages = Stages::new(self.d, self.kernel, self.partition);
        let mut seen: Vec<(NodeId, Vec<IndexExpr>, usize)> = vec![];
        for &n in &self.kernel.nodes {
            for operand in self.d.graph.operands(n) {
                if !self.d.is_outer(self.kernel, operand.node) {
                    continue;
                }
                let moves = self.indices.iter().any(|&i| self.depth(i).is_some() && Diagram::carries(operand.at, i));
                for time in stages.of(n) {
                    let key = (operand.node, operand.at.to_vec(), if moves { time } else { 0 });
                    if !seen.contains(&key) {
                        self.add(operand.node, operand.at, true);
                        seen.push(key);
                    }
                }
            }
        }
        // Sums over groups are taken over from the group before, and left to the next.
        for &n in &self.kernel.nodes {
            if self.d.is_handed_on(n, self.partition) {
                let at = self.own_axes(n);
                self.add(n, &at, true);
                self.add(n, &at, false);
            }
        }
    }

    /// Results: once each. One that is made of a handed-on sum element by element takes its place in the last group.
    fn stores(&mut self) {
        for &root in &self.kernel.roots {
            let sums: Vec<NodeId> =
                self.kernel.nodes.iter().copied().filter(|&n| self.d.is_handed_on(n, self.partition)).collect();
            let takes_place = sums.iter().any(|&s| s == root || self.d.graph[s].axes == self.d.graph[root].axes);
            if !takes_place {
                let at = self.own_axes(root);
                self.add_once(root, &at);
            }
        }
    }

    /// A result: groups along axes that it lacks do not repeat it.
    fn add_once(&mut self, root: NodeId, at: &[IndexExpr]) {
        let values = self.d.touched(at, &|i| self.d.rank_size(i));
        let own: Vec<IndexId> = self.grouped().filter(|&i| Diagram::carries(at, i)).collect();
        let per_group = own.iter().fold(values.clone(), |p, &i| {
            let ways = self.ways(i);
            ways.as_monomial().map_or(p.clone(), |(m, c)| p.over(m).times(&Poly::constant(1.0 / c)))
        });
        let wire = self.d.graph[root].name.clone();
        let whole = Some(values.clone());
        self.arrays.push(Transfer { wire, load: false, per_group, values, whole, repeats: vec![] });
    }

    fn own_axes(&self, n: NodeId) -> Vec<IndexExpr> {
        self.d.graph[n].axes.iter().map(|&i| IndexExpr::var(i)).collect()
    }
}

/// Whether a box keeps values from batch to batch.
pub(super) fn is_state(stages: &Stages, n: NodeId) -> bool {
    stages.roles.get(&n) == Some(&Role::State)
}
