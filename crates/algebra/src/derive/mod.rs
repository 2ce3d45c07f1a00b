//! From the cascade as written to one that streams: each reduction over an index is rewritten so that it needs as
//! few other reductions over the same index complete before it starts as the rules allow.
//!
//! Nodes are visited once, in order. Nothing here asks which operator it is looking at: a rule fires because the
//! condition written beside it holds, and says why not where it does not.

mod arg;
mod extremum;
mod filter;
mod guard;
mod inline;
mod moments;
mod polynomial;
mod reasons;
mod rebuild;
mod scan;
mod separate;

use crate::level::Levels;
use crate::{Graph, Node, NodeId, Passes, Refusal, Rule, Step, Term, flatten, passes};
use einloom_cascade::Cascade;
use std::collections::{BTreeMap, BTreeSet};

/// A program as written and as derived, with everything that was done on the way.
#[derive(Clone, Debug, PartialEq)]
pub struct Derivation {
    /// As written.
    pub written: Graph,
    /// As derived: equal to `written` in exact arithmetic.
    pub derived: Graph,
    /// What was done, in order.
    pub steps: Vec<Step>,
    /// What was not done, and why.
    pub refusals: Vec<Refusal>,
    /// Passes per rank and input, before and after.
    pub passes: Passes,
}

/// Derives the streaming form of a cascade (which must be free of errors).
pub fn derive(cascade: &Cascade) -> Derivation {
    let written = flatten(cascade);
    // Exponents without an anchor get one only if every consumer cancels it: tried, and taken back node by node
    // where one does not. Each round takes back at least one, so this ends.
    let mut unanchored = BTreeSet::new();
    let (derived, steps, refusals) = loop {
        let mut d = Deriver::new(&written, &unanchored);
        d.run();
        if d.failed.is_empty() {
            d.finish();
            break (d.out, d.steps, d.refusals);
        }
        unanchored.append(&mut d.failed);
    };
    let passes = passes::compare(&written, &derived);
    Derivation { written, derived, steps, refusals, passes }
}

/// The state of one derivation.
struct Deriver<'a> {
    old: &'a Graph,
    out: Graph,
    /// The node of `out` that holds each node of `old`.
    new_of: Vec<NodeId>,
    steps: Vec<Step>,
    refusals: Vec<Refusal>,
    /// Nodes of `old` whose exponents stay as they are.
    unanchored: &'a BTreeSet<NodeId>,
    /// Nodes of `out` with an exponential that their readers must cancel.
    scaled: BTreeMap<NodeId, Scaled>,
    /// The traversal that each node of `out` belongs to so far.
    levels: Levels,
    /// States that must run in this traversal though they could be computed in an earlier one.
    pinned: BTreeMap<NodeId, usize>,
    /// Nodes of `old` whose consumers did not.
    failed: BTreeSet<NodeId>,
}

/// `term`, in which exponentials of anchors remain that stabilisation introduced.
struct Scaled {
    /// The nodes of `old` that were stabilised.
    origins: BTreeSet<NodeId>,
    /// The definition, exponentials included.
    term: Term,
    /// The anchors' states.
    anchors: BTreeSet<NodeId>,
}

impl<'a> Deriver<'a> {
    fn new(old: &'a Graph, unanchored: &'a BTreeSet<NodeId>) -> Self {
        let out = Graph { cascade: old.cascade.clone(), nodes: vec![], outputs: vec![], recurrences: vec![] };
        Self {
            old,
            out,
            new_of: vec![],
            steps: vec![],
            refusals: vec![],
            unanchored,
            scaled: BTreeMap::new(),
            levels: Levels::default(),
            pinned: BTreeMap::new(),
            failed: BTreeSet::new(),
        }
    }

    /// Adds a node.
    fn push(&mut self, node: Node) -> NodeId {
        self.out.nodes.push(node);
        self.levels.push(&self.out);
        NodeId(self.out.nodes.len() as u32 - 1)
    }

    fn rank_names(&self, over: &[einloom_cascade::IndexId]) -> Vec<String> {
        over.iter().map(|&i| self.old.cascade[self.old.cascade[i].rank].name.clone()).collect()
    }

    #[allow(clippy::too_many_arguments)] // A step is just its parts.
    fn step(
        &mut self,
        rule: Rule,
        node: &Node,
        over: &[einloom_cascade::IndexId],
        why: String,
        before: String,
        after: String,
    ) {
        let ranks = self.rank_names(over);
        let step =
            Step { rule, statement: node.statement.unwrap_or(0), node: node.name.clone(), ranks, why, before, after };
        if !self.steps.contains(&step) {
            self.steps.push(step);
        }
    }

    fn refuse(
        &mut self,
        rule: Rule,
        node: &Node,
        over: &[einloom_cascade::IndexId],
        reason: String,
        hint: Option<String>,
    ) {
        self.refusals.push(Refusal {
            rule,
            statement: node.statement.unwrap_or(0),
            node: node.name.clone(),
            ranks: self.rank_names(over),
            reason,
            hint,
            span: node.span,
        });
    }
}
