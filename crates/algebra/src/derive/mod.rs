//! From the cascade as written to one that streams: each reduction over an index is rewritten so that it needs as
//! few other reductions over the same index complete before it starts as the rules allow.
//!
//! Nodes are visited once, in order. Nothing here asks which operator it is looking at: a rule fires because the
//! condition written beside it holds, and says why not where it does not.

mod addends;
mod again;
mod alike;
mod along;
mod apart;
mod arg;
mod attained;
mod beside;
mod cancels;
mod chunk;
mod condition;
mod distribute;
mod elements;
mod ends;
mod equal;
mod extremum;
mod filter;
mod guard;
mod inline;
mod logarithm;
mod moments;
mod nested;
mod next;
mod pick;
mod pieces;
mod polynomial;
mod powers;
mod quotient;
mod reasons;
mod reassociate;
mod rebuild;
mod scale;
mod scan;
mod separate;
mod shape;
mod told;
mod waiting;
mod whole;
mod window;

pub(crate) use reassociate::bound;

use crate::level::Levels;
use crate::{Graph, Node, NodeId, Passes, Product, Refusal, Rule, Step, Term, flatten, passes};
use einloom_cascade::{Cascade, SizeExpr};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

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
    /// Other derived forms of the same program. Which one is best depends on sizes.
    pub alternatives: Vec<Alternative>,
}

/// Another derived form: equal to what is written in exact arithmetic, with sums in another order or recurrences in
/// another rhythm.
#[derive(Clone, Debug, PartialEq)]
pub struct Alternative {
    /// What is different, in a few words.
    pub name: String,
    /// The form.
    pub derived: Graph,
    /// What was done, in order, from what is written.
    pub steps: Vec<Step>,
    /// What was not done, and why.
    pub refusals: Vec<Refusal>,
    /// Passes per rank and input, as written and in this form.
    pub passes: Passes,
    /// Of a form whose reductions are nested in one of several orders: what these cost, in operations.
    pub cost: Option<SizeExpr>,
    /// Numbers made of parameters and sizes that must lie between -1 and 1: with others it overflows where the text does not.
    pub within_one: Vec<Term>,
}

impl Derivation {
    /// The derivation of an alternative, as if it were the only one.
    pub fn of_alternative(&self, k: usize) -> Option<Self> {
        let a = self.alternatives.get(k)?.clone();
        let Alternative { derived, steps, refusals, passes, .. } = a;
        Some(Self { written: self.written.clone(), derived, steps, refusals, passes, alternatives: vec![] })
    }
}

/// Derives the streaming form of a cascade (which must be free of errors).
pub fn derive(cascade: &Cascade) -> Derivation {
    let written = flatten(cascade);
    let (equal, places) = equal::placed(&written);
    let (start, picks, unsolved) = pick::picked(&equal);
    let (alone, few) = elements::few(&start);
    // What is whole may be there in any case, or be faster through memory: either is a form. That which is written comes first, and where an
    // equation has been solved that in which what it picks from need not be in memory, as it needed not before.
    let other = (!few.is_empty()).then(|| match picks.is_empty() {
        true => (elements::ALONE, window::unrolled(&alone), [places.clone(), few.clone()].concat()),
        false => (elements::WHOLE, window::unrolled(&equal), places.clone()),
    });
    let (start, few) = if picks.is_empty() { (start, vec![]) } else { (alone, few) };
    let (start, windows) = window::unrolled(&start);
    let first: Vec<Step> = [places, picks, few, windows].concat();
    let after = |own: Vec<Step>| -> Vec<Step> { first.iter().cloned().chain(own).collect() };
    let Streamed { graph: derived, steps, mut refusals, unanchored } = streaming(&start, false);
    let steps = after(steps);
    refusals.extend(unsolved);
    let waiting = Some(streaming(&start, true)).filter(|w| w.graph != derived && w.unanchored == unanchored);
    let passes = passes::compare(&written, &derived);
    refusals.extend(again::unsaid(&derived, &passes, &refusals));
    let (mut rewritten, refused) = reassociate::alternatives(&start);
    refusals.extend(refused);
    let (mut nested, refused) = distribute::alternatives(&start);
    refusals.extend(refused);
    // The same where others have changed places: of those that could, all at once.
    if let Some(other) = rewritten.first() {
        let same = |n: &distribute::Nested| nested.iter().any(|o| o.name == n.name);
        let both = distribute::alternatives(&other.graph).0.into_iter().filter(same).map(|n| distribute::Nested {
            name: format!("{}; {}", named(&other.steps), n.name),
            steps: other.steps.iter().cloned().chain(n.steps).collect(),
            ..n
        });
        nested.extend(both.collect::<Vec<_>>());
    }
    let name = "in the order written".into();
    let main = Alternative { name, derived, steps, refusals, passes, cost: None, within_one: vec![] };
    let (main, mut alternatives) = in_chunks(main);
    if let Some(Streamed { graph: derived, steps, refusals, .. }) = waiting {
        let (name, passes) = (waiting::NAME.into(), passes::compare(&written, &derived));
        let form = Alternative { name, derived, steps: after(steps), refusals, passes, cost: None, within_one: vec![] };
        let (one, chunked) = in_chunks(form);
        alternatives.push(one);
        alternatives.extend(chunked);
    }
    rewritten.extend(along::alternative(&start));
    if let Some((name, (graph, windows), few)) = other {
        let Streamed { graph: derived, steps: own, refusals, .. } = streaming(&graph, false);
        let (name, steps) = (name.into(), [few, windows, own].concat());
        let passes = passes::compare(&written, &derived);
        let (one, chunked) =
            in_chunks(Alternative { name, derived, steps, refusals, passes, cost: None, within_one: vec![] });
        alternatives.push(one);
        alternatives.extend(chunked);
    }
    for r in rewritten {
        let Streamed { graph: derived, steps: own, refusals, .. } = streaming(&r.graph, false);
        let name = named(&r.steps);
        let mut steps = after(r.steps);
        steps.extend(own);
        let passes = passes::compare(&written, &derived);
        let (one, chunked) =
            in_chunks(Alternative { name, derived, steps, refusals, passes, cost: None, within_one: vec![] });
        alternatives.push(one);
        alternatives.extend(chunked);
    }
    for n in nested {
        let Streamed { graph: derived, steps: own, refusals, .. } = streaming(&n.graph, false);
        let steps = after(n.steps).into_iter().chain(own).collect();
        let passes = passes::compare(&written, &derived);
        let form =
            Alternative { name: n.name, derived, steps, refusals, passes, cost: Some(n.cost), within_one: vec![] };
        let (one, chunked) = in_chunks(form);
        alternatives.push(one);
        alternatives.extend(chunked);
    }
    let Alternative { derived, steps, refusals, passes, .. } = main;
    Derivation { written, derived, steps, refusals, passes, alternatives }
}

/// A form with what is to be said about its recurrences, and the forms in which they advance by chunks, if they can: all but extrema, and all.
/// Chunks stay on chip, so the passes are the same.
fn in_chunks(mut form: Alternative) -> (Alternative, Vec<Alternative>) {
    let scans = form.refusals.iter().filter(|r| r.rule == Rule::Scan);
    let sequential: Vec<&str> = scans.map(|r| r.node.as_str()).collect();
    let chunked = chunk::chunked(&form.derived, &sequential);
    let other = |(k, (derived, steps, within_one)): (usize, (Graph, Vec<Step>, Vec<Term>))| Alternative {
        name: format!("{}, {}by chunks", form.name, if k == 0 { "" } else { "extrema too " }),
        derived,
        steps: form.steps.iter().cloned().chain(steps).collect(),
        refusals: form.refusals.iter().chain(&chunked.refusals).cloned().collect(),
        passes: form.passes.clone(),
        cost: form.cost.clone(),
        within_one,
    };
    let others = chunked.graphs.into_iter().enumerate().map(other).collect();
    form.refusals.extend(chunked.refusals);
    (form, others)
}

/// What distinguishes an order of summation.
fn named(steps: &[Step]) -> String {
    let of = |rule: Rule| {
        let mut names: Vec<&str> = vec![];
        for s in steps.iter().filter(|s| s.rule == rule) {
            if !names.contains(&s.node.as_str()) {
                names.push(&s.node);
            }
        }
        names.join(", ")
    };
    match (of(Rule::Reassociate).as_str(), of(Rule::Prefix).as_str()) {
        (sums, "") => {
            let mut made = steps.iter().filter(|s| s.rule == Rule::Reassociate);
            let word = if made.all(|s| s.before.starts_with("sum(")) { "summed" } else { "taken" };
            format!("{sums} {word} in another order")
        }
        (_, states) => format!("{states} carried from position to position"),
    }
}

/// A form that streams.
struct Streamed {
    graph: Graph,
    steps: Vec<Step>,
    refusals: Vec<Refusal>,
    /// Nodes of the graph that it was made of whose exponents stay as they are.
    unanchored: BTreeSet<NodeId>,
}

/// The form that streams, of a graph as it stands; or that in which what waits stays as it is ([`waiting`]).
fn streaming(written: &Graph, waiting: bool) -> Streamed {
    // Exponents without an anchor get one only if every consumer cancels it: tried, and taken back node by node
    // where one does not. Each round takes back at least one, so this ends.
    let mut unanchored = BTreeSet::new();
    let mut kept = BTreeSet::new();
    let mut first: Option<Streamed> = None;
    loop {
        let mut d = Deriver::new(written, &unanchored, &kept);
        d.waiting = waiting;
        d.run();
        if !d.failed.is_empty() {
            unanchored.append(&mut d.failed);
            continue;
        }
        d.finish();
        let worse = passes::more(written, &d.out);
        let pointless = std::mem::take(&mut d.pointless);
        let (graph, steps, refusals) = (d.out, d.steps, d.refusals);
        let found = Streamed { graph, steps, refusals, unanchored: unanchored.clone() };
        // A sum that must wait in any case is better left as it is where its parts would be read earlier and again.
        match first {
            None if worse && !pointless.is_empty() => {
                first = Some(found);
                (unanchored, kept) = (BTreeSet::new(), pointless);
            }
            Some(first) if worse => return first,
            _ => return found,
        }
    }
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
    /// Whether what waits stays as it is: see [`waiting`].
    waiting: bool,
    /// Nodes of `out` with an exponential that their readers must cancel.
    scaled: BTreeMap<NodeId, Scaled>,
    /// The traversal that each node of `out` belongs to so far.
    levels: Levels,
    /// States that must run in this traversal though they could be computed in an earlier one.
    pinned: BTreeMap<NodeId, usize>,
    /// Nodes of `old` whose consumers did not.
    failed: BTreeSet<NodeId>,
    /// Sums of `old` that stay as they are.
    kept: &'a BTreeSet<NodeId>,
    /// Sums of `old` that separate from what they must wait for all the same.
    pointless: BTreeSet<NodeId>,
    /// Per node of `out` the reductions that it is or needs, as far as anybody has asked.
    needed: RefCell<BTreeMap<NodeId, Rc<BTreeSet<NodeId>>>>,
    /// Bodies of reductions of `out` as products, as far as anybody has asked.
    products: RefCell<BTreeMap<NodeId, Rc<Product>>>,
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
    fn new(old: &'a Graph, unanchored: &'a BTreeSet<NodeId>, kept: &'a BTreeSet<NodeId>) -> Self {
        let out = Graph { cascade: old.cascade.clone(), nodes: vec![], outputs: vec![], recurrences: vec![] };
        Self {
            old,
            out,
            new_of: vec![],
            steps: vec![],
            refusals: vec![],
            unanchored,
            waiting: false,
            scaled: BTreeMap::new(),
            levels: Levels::default(),
            pinned: BTreeMap::new(),
            failed: BTreeSet::new(),
            kept,
            pointless: BTreeSet::new(),
            needed: RefCell::default(),
            products: RefCell::default(),
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
