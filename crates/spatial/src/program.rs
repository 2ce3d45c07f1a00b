//! A cascade as the Einsums that arrays run: iteration spaces and classes of operations.

use crate::Problem;
use crate::operation::{self, Operation};
use einloom_algebra::{Def, Graph, NodeId, Term};
use einloom_cascade::{Bound, Cascade, Given, RankId, Severity};
use std::collections::BTreeMap;

/// A cascade and its Einsums.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// One reduction per node, as written.
    pub graph: Graph,
    /// Every node that computes something, in an order in which each needs only earlier ones and itself one step ago.
    pub einsums: Vec<Einsum>,
}

/// One Einsum of a cascade.
#[derive(Clone, Debug, PartialEq)]
pub struct Einsum {
    /// The tensor it defines.
    pub name: String,
    /// Its node in the graph.
    pub node: NodeId,
    /// Its iteration space: the ranks of its result, then those it reduces.
    pub ranks: Vec<RankId>,
    /// What is done, and at which points.
    pub work: Vec<Work>,
    /// What it reads, each once; statements that only rename elements are looked through by [`Program::root`] alone.
    pub operands: Vec<NodeId>,
}

/// An operation for every point of some ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// What is done.
    pub operation: Operation,
    /// Once for every point of these ranks.
    pub ranks: Vec<RankId>,
}

impl Program {
    /// The Einsums of a checked cascade.
    pub fn new(cascade: &Cascade) -> Self {
        let graph = einloom_algebra::flatten(cascade);
        let einsums = graph.ids().filter_map(|id| einsum(&graph, id)).collect();
        Self { graph, einsums }
    }

    /// The Einsums of a cascade's text.
    ///
    /// # Errors
    /// What the text's diagnostics call errors.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        let parsed = einloom_cascade::parse(text);
        let errors: Vec<Problem> = parsed
            .diagnostics
            .iter()
            .filter(|d| d.severity == Severity::Error)
            .map(|d| {
                let before = text.get(..d.span.start as usize).unwrap_or(text);
                Problem {
                    file: file.to_owned(),
                    line: before.matches('\n').count() + 1,
                    column: before.chars().rev().take_while(|&c| c != '\n').count() + 1,
                    field: String::new(),
                    subject: None,
                    message: d.message.clone(),
                    hint: d.hints.first().cloned(),
                }
            })
            .collect();
        if errors.is_empty() { Ok(Self::new(&parsed.cascade)) } else { Err(errors) }
    }

    /// The Einsum with this name.
    pub fn einsum(&self, name: &str) -> Option<&Einsum> {
        self.einsums.iter().find(|e| e.name == name)
    }

    /// The node with this name.
    pub fn node(&self, name: &str) -> Option<NodeId> {
        self.graph.ids().find(|&n| self.graph[n].name == name)
    }

    /// The ranks of a node's dimensions.
    pub fn dims(&self, node: NodeId) -> Vec<RankId> {
        let n = &self.graph[node];
        match n.tensor {
            Some(tensor) => self.graph.cascade[tensor].ranks.clone(),
            None => n.axes.iter().map(|&i| self.graph.cascade[i].rank).collect(),
        }
    }

    /// The tensor whose elements a node has: itself, or what it renames.
    pub fn root(&self, node: NodeId) -> NodeId {
        match &self.graph[node].def {
            Def::Map(Term::Read(source, _)) if *source != node => self.root(*source),
            _ => node,
        }
    }

    /// A size for every rank of the cascade. Names in `sizes` that it does not have are left out.
    ///
    /// # Errors
    /// Ranks without a size, with two, or that do not divide.
    pub fn bind(&self, sizes: &BTreeMap<String, usize>) -> Result<Bound, Vec<Problem>> {
        let cascade = &self.graph.cascade;
        let known = sizes.iter().filter(|(name, _)| cascade.rank(name).is_some());
        let given = Given { sizes: known.map(|(n, s)| (n.clone(), *s)).collect(), ..Given::default() };
        einloom_cascade::bind(cascade, &given).map_err(|errors| {
            let one = |e: einloom_cascade::BindError| Problem { hint: e.hint, ..Problem::new(e.subject, e.message) };
            errors.into_iter().map(one).collect()
        })
    }
}

fn einsum(graph: &Graph, id: NodeId) -> Option<Einsum> {
    let node = &graph[id];
    let rank = |i: &einloom_cascade::IndexId| graph.cascade[*i].rank;
    let axes: Vec<RankId> = node.axes.iter().map(rank).collect();
    let mut ranks = axes.clone();
    let mut work = vec![];
    let mut add = |operations: Vec<Operation>, ranks: &[RankId]| {
        work.extend(operations.into_iter().map(|operation| Work { operation, ranks: ranks.to_vec() }));
    };
    let mut operations = vec![];
    match &node.def {
        Def::Input => return None,
        // Renames elements.
        Def::Map(Term::Read(..)) => return None,
        Def::Map(term) => {
            operation::operations(term, &mut operations);
            add(operations, &axes);
        }
        Def::Reduce(r) => {
            ranks.extend(r.over.iter().map(rank));
            r.filter.iter().for_each(|t| operation::operations(t, &mut operations));
            operation::reduction(r.monoid, &r.body, &mut operations);
            add(operations, &ranks);
        }
        Def::Iterative { dim, initial, step, .. } => {
            operation::operations(step, &mut operations);
            add(operations, &axes);
            let slice: Vec<RankId> = axes.iter().enumerate().filter(|(k, _)| k != dim).map(|(_, r)| *r).collect();
            for (_, term) in initial {
                let mut operations = vec![];
                operation::operations(term, &mut operations);
                add(operations, &slice);
            }
        }
    }
    let mut operands = vec![];
    for operand in graph.operands(id) {
        if !operands.contains(&operand.node) {
            operands.push(operand.node);
        }
    }
    Some(Einsum { name: node.name.clone(), node: id, ranks, work, operands })
}
