//! `M`: values that the lower level holds at once.

use super::diagram::{Diagram, Kernel, NoFormula};
use super::stages::{Role, Stages};
use super::transfer::is_state;
use super::{Partition, Poly, Symbol, SymbolKind};
use einloom_algebra::NodeId;
use einloom_cascade::{IndexExpr, IndexId};
use std::collections::BTreeSet;
use std::fmt;

/// One column: a moment, and what is present.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Such as `before S`, or `enter` for the first column of a body.
    pub moment: String,
    /// Names of the arrays that are present.
    pub present: Vec<String>,
    /// Their values together.
    pub values: Poly,
}

/// The columns of a diagram: `M` is the largest.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// In the order in which they are drawn.
    pub columns: Vec<Column>,
}

impl Memory {
    /// The values of the largest column.
    pub fn eval(&self, value: impl Fn(&Symbol) -> f64) -> f64 {
        self.columns.iter().map(|c| c.values.eval(&value)).fold(0.0, f64::max)
    }

    /// What grows fastest with sizes, in all columns together: what published formulas keep. Columns that others
    /// cover go.
    #[must_use]
    pub fn leading(&self) -> Self {
        let all = self.columns.iter().flat_map(|c| c.values.terms());
        let Some(most) = all.map(|t| t.0.degree()).max() else { return self.clone() };
        self.only(|m| m.degree() == most)
    }

    /// As if batches were as short as can be: without the terms that shrink with them.
    #[must_use]
    pub fn short_batches(&self) -> Self {
        self.only(|m| m.powers().all(|(s, _)| s.kind != SymbolKind::Stream))
    }

    fn only(&self, keep: impl Fn(&super::Monomial) -> bool) -> Self {
        let cut = |c: &Column| Column { values: c.values.only(&keep), ..c.clone() };
        let mut columns: Vec<Column> = vec![];
        for column in self.columns.iter().map(cut) {
            if !columns.iter().any(|c| c.values.covers(&column.values)) {
                columns.retain(|c| !column.values.covers(&c.values));
                columns.push(column);
            }
        }
        Self { columns }
    }
}

/// `M ≥ max(…)`, equal and covered columns left out.
impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let distinct = self.only(|_| true);
        let texts: Vec<String> = distinct.columns.iter().map(|c| c.values.to_string()).collect();
        match texts.as_slice() {
            [one] => write!(f, "M ≥ {one}"),
            several => write!(f, "M ≥ max({})", several.join(", ")),
        }
    }
}

impl Diagram {
    /// What the lower level holds, column by column.
    ///
    /// # Errors
    /// A partition that names an axis which the diagram lacks.
    pub fn memory(&self, partition: &Partition) -> Result<Memory, NoFormula> {
        self.check(partition)?;
        let columns = self.kernels.iter().flat_map(|k| Drawing::new(self, k, partition).columns()).collect();
        Ok(Memory { columns })
    }
}

/// An array that is present at some times.
struct Present {
    node: NodeId,
    /// How it is read from the upper level; `None` for what is computed.
    at: Option<Vec<IndexExpr>>,
    values: Poly,
    /// From which time on, and until which.
    from: usize,
    to: usize,
    /// Comes anew with each batch.
    batch: bool,
}

struct Drawing<'a> {
    d: &'a Diagram,
    kernel: &'a Kernel,
    stages: Stages,
    arrays: Vec<Present>,
    /// Reductions over axes that groups divide.
    handed_on: BTreeSet<NodeId>,
}

impl<'a> Drawing<'a> {
    fn new(d: &'a Diagram, kernel: &'a Kernel, partition: &'a Partition) -> Self {
        let stages = Stages::new(d, kernel, partition);
        let seen = |i: IndexId| partition.seen(d.index_name(i), &d.rank_size(i));
        let streamed = |i: IndexId| partition.depth(d.index_name(i)).is_some();
        let mut arrays: Vec<Present> = vec![];
        for &n in &kernel.nodes {
            for operand in d.graph.operands(n) {
                if !d.is_outer(kernel, operand.node) {
                    continue;
                }
                let moves = d.indices(kernel).into_iter().any(|i| streamed(i) && Diagram::carries(operand.at, i));
                for time in stages.of(n) {
                    let same = |p: &&mut Present| {
                        p.node == operand.node && p.at.as_deref() == Some(operand.at) && (!moves || p.from == time)
                    };
                    if let Some(known) = arrays.iter_mut().find(same) {
                        (known.from, known.to) = (known.from.min(time), known.to.max(time));
                        continue;
                    }
                    let (values, at) = (d.touched(operand.at, &seen), Some(operand.at.to_vec()));
                    arrays.push(Present { node: operand.node, at, values, from: time, to: time, batch: moves });
                }
            }
        }
        for &n in &kernel.nodes {
            let values = d.over_axes(n, &seen);
            if stages.roles[&n] == Role::Batch {
                for time in stages.of(n) {
                    let values = values.clone();
                    arrays.push(Present { node: n, at: None, values, from: time, to: time, batch: true });
                }
                continue;
            }
            let from = stages.of(n).min().unwrap_or(0);
            let readers = kernel.nodes.iter().filter(|&&r| d.graph.operands(r).iter().any(|o| o.node == n));
            let last = readers.flat_map(|&r| stages.of(r)).max().unwrap_or(from);
            let to = if kernel.roots.contains(&n) { stages.last } else { last };
            arrays.push(Present { node: n, at: None, values, from, to, batch: false });
        }
        let handed_on = kernel.nodes.iter().copied().filter(|&n| d.is_handed_on(n, partition)).collect();
        Self { d, kernel, stages, arrays, handed_on }
    }

    fn columns(&self) -> Vec<Column> {
        (0..=self.stages.last).flat_map(|time| self.body(time)).collect()
    }

    /// The columns of one body: what enters, then each box.
    fn body(&self, time: usize) -> Vec<Column> {
        let boxes: Vec<NodeId> =
            self.kernel.nodes.iter().copied().filter(|&n| self.stages.of(n).any(|t| t == time)).collect();
        if boxes.is_empty() {
            return vec![];
        }
        let mut out = vec![];
        // Loops hold what does not move with them from their first batch to their last.
        let looped = time % 2 == 1;
        // What groups hand on to each other enters as it is.
        let carried = |n: NodeId| (looped && is_state(&self.stages, n)) || self.handed_on.contains(&n);
        let enters = |p: &Present| p.at.is_some() || p.from < time || carried(p.node);
        let mut live: BTreeSet<usize> = BTreeSet::new();
        for (k, p) in self.arrays.iter().enumerate() {
            if p.from <= time && time <= p.to && enters(p) && (!p.batch || p.from == time) {
                live.insert(k);
            }
        }
        out.push(self.column("enter".to_string(), &live));
        for (done, &n) in boxes.iter().enumerate() {
            let name = &self.d.graph[n].name;
            if done > 0 {
                out.push(self.column(format!("before {name}"), &live));
            }
            let later = &boxes[done + 1..];
            live.retain(|&k| self.outlives(k, time, looped, later));
            let own = |p: &Present| p.node == n && p.at.is_none() && p.from == time;
            live.extend(self.arrays.iter().position(own));
            out.push(self.column(format!("after {name}"), &live));
        }
        out
    }

    /// Whether an array is still needed once only the boxes `later` are left in this body.
    fn outlives(&self, array: usize, time: usize, looped: bool, later: &[NodeId]) -> bool {
        let p = &self.arrays[array];
        let reads = |n: &NodeId| {
            let same = |at: &[IndexExpr]| p.at.as_deref().is_none_or(|own| own == at);
            self.d.graph.operands(*n).iter().any(|o| o.node == p.node && same(o.at))
        };
        let kept = !p.batch && (p.to > time || looped);
        let handed_on = self.handed_on.contains(&p.node) && later.contains(&p.node);
        kept || handed_on || later.iter().any(reads) || (p.at.is_none() && self.kernel.roots.contains(&p.node))
    }

    fn column(&self, moment: String, live: &BTreeSet<usize>) -> Column {
        let present = live.iter().map(|&k| self.d.graph[self.arrays[k].node].name.clone()).collect();
        let values = live.iter().fold(Poly::default(), |sum, &k| sum.plus(&self.arrays[k].values));
        Column { moment, present, values }
    }
}
