//! The diagram of a normalised cascade: boxes over wires, in the columns in which they are drawn.

use super::{Partition, Poly, Symbol};
use einloom_algebra::{Def, Graph, NodeId};
use einloom_cascade::{DType, IndexAtom, IndexExpr, IndexId, SizeExpr};
use std::collections::BTreeSet;
use std::fmt;

/// Names a [`Wire`] of its diagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WireId(pub usize);

/// An axis of a diagram: an index of the cascade.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// The index's name.
    pub name: String,
    /// Its rank's size.
    pub size: Poly,
}

/// An array of a diagram. Its residency is a path: an input is at the upper level, enters the lower one before its
/// first reader and leaves after its last; an inner wire is at the lower level only; what a kernel stores goes up.
#[derive(Clone, Debug, PartialEq)]
pub struct Wire {
    /// The array's name.
    pub name: String,
    /// Values in all of it.
    pub values: Poly,
    /// Its number type, where one is declared.
    pub dtype: Option<DType>,
    /// Whether it is kept at the upper level: inputs, outputs, and what is cut.
    pub upper: bool,
}

/// Why there is no formula.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoFormula {
    /// What stands against it.
    pub reason: String,
}

impl fmt::Display for NoFormula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for NoFormula {}

/// A fused computation, or several one after the other where wires are cut.
#[derive(Clone, Debug)]
pub struct Diagram {
    pub(super) graph: Graph,
    /// What is computed together, in order: the nodes that are stored, and all that they need.
    pub(super) kernels: Vec<Kernel>,
}

/// What is computed together.
#[derive(Clone, Debug)]
pub(super) struct Kernel {
    /// Stored.
    pub roots: Vec<NodeId>,
    /// Computed: the roots and what they need that is not read from the upper level, in the graph's order.
    pub nodes: Vec<NodeId>,
}

impl Diagram {
    /// The diagram of a graph as written or as derived. The named nodes are stored at the upper level and read from
    /// there, each in a kernel of its own; everything else is fused into what reads it.
    ///
    /// # Errors
    /// A name that is no node's; recurrences, whose positions depend on each other.
    pub fn new(graph: &Graph, cut: &[&str]) -> Result<Self, NoFormula> {
        if let Some(recurrence) = graph.recurrences.first() {
            let rank = &graph.cascade[recurrence.rank].name;
            return Err(NoFormula { reason: format!("a recurrence over {rank} computes position by position") });
        }
        let mut cuts = vec![];
        for name in cut {
            let found = graph.ids().find(|&n| graph[n].name == *name && graph[n].def != Def::Input);
            cuts.push(found.ok_or_else(|| NoFormula { reason: format!("the graph has no node `{name}`") })?);
        }
        cuts.sort_unstable();
        cuts.dedup();
        let last: Vec<NodeId> = graph.outputs.iter().copied().filter(|o| !cuts.contains(o)).collect();
        let mut roots: Vec<Vec<NodeId>> = cuts.iter().map(|&n| vec![n]).collect();
        roots.push(last);
        let kernels = roots.into_iter().filter(|r| !r.is_empty());
        let kernels = kernels.map(|roots| Kernel { nodes: needed(graph, &roots, &cuts), roots }).collect();
        Ok(Self { graph: graph.clone(), kernels })
    }

    /// The diagram of one kernel of several: of the nodes called `roots` with all that they need. Nodes called `stored` are
    /// at the upper level, whoever stores them.
    ///
    /// # Errors
    /// As [`Diagram::new`].
    pub fn of_kernel(graph: &Graph, roots: &[&str], stored: &[&str]) -> Result<Self, NoFormula> {
        let whole = Self::new(graph, stored)?;
        let place = |name: &&str| {
            let found = graph.ids().find(|&n| graph[n].name == **name && graph[n].def != Def::Input);
            found.ok_or_else(|| NoFormula { reason: format!("the graph has no node `{name}`") })
        };
        let roots = roots.iter().map(place).collect::<Result<Vec<NodeId>, _>>()?;
        let cuts = stored.iter().map(place).collect::<Result<Vec<NodeId>, _>>()?;
        let nodes = needed(graph, &roots, &cuts);
        Ok(Self { kernels: vec![Kernel { roots, nodes }], ..whole })
    }

    /// The axes, in the order in which the cascade names them.
    pub fn axes(&self) -> Vec<Axis> {
        let used: BTreeSet<IndexId> = self.kernels.iter().flat_map(|k| self.indices(k)).collect();
        used.into_iter().map(|i| Axis { name: self.index_name(i).to_string(), size: self.rank_size(i) }).collect()
    }

    /// The arrays, by the places of their nodes.
    pub fn wires(&self) -> Vec<Wire> {
        let stored: BTreeSet<NodeId> = self.kernels.iter().flat_map(|k| k.roots.iter().copied()).collect();
        let wire = |n: NodeId| Wire {
            name: self.graph[n].name.clone(),
            values: self.full(n),
            dtype: self.graph[n].dtype,
            upper: self.graph[n].def == Def::Input || stored.contains(&n),
        };
        self.graph.ids().map(wire).collect()
    }

    /// Whether every name of a partition is an axis.
    ///
    /// # Errors
    /// The first that is none.
    pub(super) fn check(&self, partition: &Partition) -> Result<(), NoFormula> {
        let axes = self.axes();
        match partition.named().find(|name| !axes.iter().any(|a| a.name == *name)) {
            Some(name) => Err(NoFormula { reason: format!("the diagram has no axis `{name}`") }),
            None => Ok(()),
        }
    }

    pub(super) fn index_name(&self, index: IndexId) -> &str {
        &self.graph.cascade[index].name
    }

    pub(super) fn rank_size(&self, index: IndexId) -> Poly {
        let cascade = &self.graph.cascade;
        Poly::symbol(Symbol::size(&cascade[cascade[index].rank].name))
    }

    pub(super) fn size(&self, size: &SizeExpr) -> Poly {
        let cascade = &self.graph.cascade;
        size.terms().iter().fold(Poly::default(), |sum, (ranks, c)| {
            let ranks = ranks.iter().map(|&r| Poly::symbol(Symbol::size(&cascade[r].name)));
            sum.plus(&ranks.fold(Poly::constant(*c as f64), |product, r| product.times(&r)))
        })
    }

    /// Values of a whole array.
    pub(super) fn full(&self, node: NodeId) -> Poly {
        let extents = self.graph[node].extents.iter().map(|e| self.size(e));
        extents.fold(Poly::constant(1.0), |product, e| product.times(&e))
    }

    /// The axes of everything that a kernel computes.
    pub(super) fn indices(&self, kernel: &Kernel) -> BTreeSet<IndexId> {
        let mut out = BTreeSet::new();
        for &n in &kernel.nodes {
            out.extend(self.graph[n].axes.iter().copied());
            if let Def::Reduce(r) = &self.graph[n].def {
                out.extend(r.over.iter().copied());
            }
        }
        out
    }

    /// Whether an array is read from the upper level in this kernel.
    pub(super) fn is_outer(&self, kernel: &Kernel, node: NodeId) -> bool {
        !kernel.nodes.contains(&node)
    }

    /// Values that a read touches, `seen` being the positions of each axis.
    pub(super) fn touched(&self, at: &[IndexExpr], seen: &impl Fn(IndexId) -> Poly) -> Poly {
        at.iter().fold(Poly::constant(1.0), |product, e| product.times(&self.positions(e, seen)))
    }

    /// Values of an array over its own axes.
    pub(super) fn over_axes(&self, node: NodeId, seen: &impl Fn(IndexId) -> Poly) -> Poly {
        let axes = self.graph[node].axes.iter();
        axes.fold(Poly::constant(1.0), |product, &a| product.times(&seen(a)))
    }

    /// Positions that an index expression takes. Where several indices are added, a contiguous range.
    fn positions(&self, e: &IndexExpr, seen: &impl Fn(IndexId) -> Poly) -> Poly {
        let one = Poly::constant(1.0);
        let atom = |atom: &IndexAtom| match atom {
            IndexAtom::Var(i) => seen(*i),
            IndexAtom::Floor { numerator, denominator } => {
                let above = self.positions(numerator, seen);
                let below = self.size(denominator);
                match below.as_monomial() {
                    // A group holds whole blocks of the denominator: it is one of its divisors. One position is in one.
                    Some((m, c)) if above != one => above.over(m).times(&Poly::constant(1.0 / c)),
                    _ => above,
                }
            }
            // Each position reads another element.
            IndexAtom::Gather { at, .. } => self.touched(at, seen),
        };
        match e.terms.as_slice() {
            [] => one,
            [(_, a)] => atom(a),
            several => several.iter().fold(one.clone(), |sum, (c, a)| {
                let minus = Poly::constant(-1.0);
                sum.plus(&self.size(c).times(&atom(a).plus(&minus)))
            }),
        }
    }

    /// Whether a read moves with an index.
    pub(super) fn carries(at: &[IndexExpr], index: IndexId) -> bool {
        let mut found = false;
        at.iter().for_each(|e| e.visit_indices(&mut |i| found |= i == index));
        found
    }
}

/// What the roots need, down to inputs and cuts.
fn needed(graph: &Graph, roots: &[NodeId], cuts: &[NodeId]) -> Vec<NodeId> {
    let mut found: BTreeSet<NodeId> = BTreeSet::new();
    let mut open = roots.to_vec();
    while let Some(n) = open.pop() {
        let outer = graph[n].def == Def::Input || (cuts.contains(&n) && !roots.contains(&n));
        if !outer && found.insert(n) {
            open.extend(graph.operands(n).into_iter().map(|o| o.node));
        }
    }
    found.into_iter().collect()
}
