//! A graph with sizes and parameters filled in, and with every reduction in a form that tiles can compute.

use crate::PlanError;
use crate::assembled::Stored;
use crate::expr::{Atom, Coordinate, Expr, ExprId, Exprs};
use crate::reader::Reader;
use crate::shares::Span;
use einloom_algebra::{Def, Graph, NodeId};
use einloom_cascade::{BinaryOp, Bound, DType, IndexId, Monoid, MonoidId, Role};
use std::collections::{BTreeMap, BTreeSet};

/// An index: its name and its number of positions.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub name: String,
    pub extent: usize,
}

/// A node with sizes filled in.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub name: String,
    pub axes: Vec<IndexId>,
    pub extents: Vec<usize>,
    /// The extents as declared, where an index of it became two.
    pub shape: Option<Vec<usize>>,
    pub def: ItemDef,
    /// The declared number type.
    pub dtype: Option<DType>,
    pub role: Role,
    pub statement: Option<usize>,
    /// It needs itself: it is computed position by position of a recurrence's index.
    pub recurrence: Option<usize>,
    /// Made by the planner: nothing outside its recurrence reads it.
    pub internal: bool,
    /// It goes through memory whatever the search finds: a partial state ([`crate::shares`]).
    pub stored: bool,
    /// Where it is stored, if elsewhere than in a tensor of its own.
    pub at: Option<Stored>,
}

#[derive(Clone, Debug)]
pub(crate) enum ItemDef {
    Input,
    Map(ExprId),
    Fold(Fold),
    Iterative(Iteration),
}

/// A reduction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fold {
    pub monoid: FoldMonoid,
    pub over: Vec<IndexId>,
    /// All must hold.
    pub filter: Vec<ExprId>,
    pub body: ExprId,
    pub anchors: Vec<NodeId>,
    pub repair: Option<FoldRepair>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FoldMonoid {
    Sum,
    Prod,
    Max,
    Min,
    Custom(MonoidId),
}

impl FoldMonoid {
    /// Whether it is the largest or the smallest.
    pub fn is_extremum(self) -> bool {
        matches!(self, Self::Max | Self::Min)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FoldRepair {
    pub combine: BinaryOp,
    pub factor: ExprId,
    /// What the other states of a vector contribute.
    pub plus: Option<ExprId>,
    pub keep_if: Option<ExprId>,
}

impl FoldRepair {
    /// Every expression it is made of.
    pub(crate) fn parts(&self) -> impl Iterator<Item = ExprId> + use<> {
        [Some(self.factor), self.plus, self.keep_if].into_iter().flatten()
    }
}

/// An iterative tensor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Iteration {
    pub dim: usize,
    pub initial: Vec<(i64, ExprId)>,
    pub step: ExprId,
}

/// A user's monoid.
#[derive(Clone, Debug)]
pub(crate) struct CustomMonoid {
    pub name: String,
    pub combine: ExprId,
    pub identity: f64,
}

/// A recurrence: its index and its members in order.
#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub index: IndexId,
    pub members: Vec<NodeId>,
    /// If not empty, it advances by chunks of positions, and these indices run over the chunk at hand.
    pub within: Vec<IndexId>,
}

/// Everything the planner knows about the program.
pub(crate) struct Problem {
    pub name: String,
    pub indices: Vec<Index>,
    pub items: Vec<Item>,
    pub loops: Vec<Loop>,
    pub monoids: Vec<CustomMonoid>,
    pub outputs: Vec<NodeId>,
    /// Every item after those it needs, the members of a recurrence in their own order.
    pub order: Vec<NodeId>,
    /// Conditions that the bounds of a loop over an index answer for: see [`crate::shares`].
    pub spans: Vec<Span>,
    /// Conditions that elements are tested by, and that leave no chunk out: see [`crate::merged`].
    pub tested: BTreeSet<ExprId>,
    /// Maps that a product makes again for tiles of its other factor: see [`crate::factors`].
    pub factors: BTreeSet<NodeId>,
    /// Those of them that wait for the result of a reduction.
    pub completed: BTreeSet<NodeId>,
    /// Sets of items that begin in one kernel.
    pub together: Vec<BTreeSet<NodeId>>,
    /// The reductions that partial states are of.
    pub partial_of: BTreeMap<NodeId, NodeId>,
    /// Positions per chunk, of recurrences that advance by chunks.
    pub chunk: usize,
    /// What each item needs, once no item changes any more.
    needed: Vec<BTreeSet<NodeId>>,
}

impl ItemDef {
    /// The same of other expressions.
    pub(crate) fn map(&mut self, f: &mut dyn FnMut(ExprId) -> ExprId) {
        match self {
            Self::Input => {}
            Self::Map(e) => *e = f(*e),
            Self::Fold(fold) => {
                fold.body = f(fold.body);
                fold.filter.iter_mut().for_each(|e| *e = f(*e));
                if let Some(r) = &mut fold.repair {
                    r.factor = f(r.factor);
                    r.plus = r.plus.map(&mut *f);
                    r.keep_if = r.keep_if.map(f);
                }
            }
            Self::Iterative(i) => {
                i.initial.iter_mut().for_each(|(_, e)| *e = f(*e));
                i.step = f(i.step);
            }
        }
    }
}

impl std::ops::Index<NodeId> for Problem {
    type Output = Item;
    fn index(&self, id: NodeId) -> &Item {
        &self.items[id.0 as usize]
    }
}

impl std::ops::Index<IndexId> for Problem {
    type Output = Index;
    fn index(&self, id: IndexId) -> &Index {
        &self.indices[id.0 as usize]
    }
}

impl Fold {
    /// Whether its repair reads other states: these and its anchors then run in the traversal that it is computed in,
    /// or all of them are complete.
    pub(crate) fn is_joint(&self) -> bool {
        self.repair.as_ref().is_some_and(|r| r.plus.is_some())
    }

    /// Every expression it is made of.
    pub(crate) fn parts(&self) -> Vec<ExprId> {
        let mut out = vec![self.body];
        out.extend(&self.filter);
        out.extend(self.repair.iter().flat_map(FoldRepair::parts));
        out
    }
}

impl Problem {
    pub(crate) fn new(graph: &Graph, bound: &Bound, exprs: &mut Exprs) -> Result<Self, PlanError> {
        let cascade = &graph.cascade;
        let indices =
            cascade.indices.iter().map(|i| Index { name: i.name.clone(), extent: bound.size(i.rank) }).collect();
        let mut reader = Reader { graph, bound, exprs };
        let monoids = cascade
            .monoids
            .iter()
            .map(|m| {
                let combine = reader.monoid(&m.combine.kind)?;
                Ok(CustomMonoid { name: m.name.clone(), combine, identity: m.identity })
            })
            .collect::<Result<_, PlanError>>()?;
        let mut items = vec![];
        for node in &graph.nodes {
            items.push(Item {
                name: node.name.clone(),
                axes: node.axes.clone(),
                extents: node.extents.iter().map(|e| bound.extent(e).max(0) as usize).collect(),
                shape: None,
                def: reader.def(&node.def)?,
                dtype: node.dtype,
                role: node.tensor.map_or(Role::Intermediate, |t| cascade[t].role),
                statement: node.statement,
                recurrence: None,
                internal: false,
                stored: false,
                at: None,
            });
        }
        let mut loops = vec![];
        for (k, r) in graph.recurrences.iter().enumerate() {
            let mut members = r.members.clone();
            if !r.within.is_empty() {
                // Values of one chunk stay in its loop; what they are put together to is like any other node.
                let inside = |m: &NodeId| {
                    let item = &items[m.0 as usize];
                    !matches!(item.def, ItemDef::Map(_)) || item.axes.iter().any(|i| r.within.contains(i))
                };
                members.retain(inside);
            }
            for &m in &members {
                let item = &mut items[m.0 as usize];
                item.recurrence = Some(k);
                item.internal |= !r.within.is_empty();
            }
            loops.push(Loop { index: r.index, members, within: r.within.clone() });
        }
        let mut problem = Self {
            name: cascade.name.clone(),
            indices,
            items,
            loops,
            monoids,
            outputs: graph.outputs.clone(),
            order: vec![],
            spans: vec![],
            tested: BTreeSet::new(),
            factors: BTreeSet::new(),
            completed: BTreeSet::new(),
            together: vec![],
            partial_of: BTreeMap::new(),
            chunk: 1,
            needed: vec![],
        };
        for (k, node) in graph.nodes.iter().enumerate() {
            if let Def::Reduce(r) = &node.def
                && matches!(r.monoid, Monoid::ArgMax | Monoid::ArgMin)
            {
                problem.split_arg(NodeId(k as u32), r.monoid == Monoid::ArgMax, exprs);
            }
        }
        problem.straighten(exprs);
        (0..problem.loops.len()).for_each(|r| problem.let_go(r, exprs));
        problem.order = problem.topological(exprs);
        Ok(problem)
    }

    /// Lets those members of a recurrence that goes position by position go that need none of its states: the gates of a cell have a part that is
    /// made of inputs alone, which may be computed for all positions at once.
    fn let_go(&mut self, r: usize, exprs: &Exprs) {
        if !self.loops[r].within.is_empty() {
            return;
        }
        let members = std::mem::take(&mut self.loops[r].members);
        let is_state = |m: &&NodeId| matches!(self[**m].def, ItemDef::Iterative(_));
        let mut stay: BTreeSet<NodeId> = members.iter().filter(is_state).copied().collect();
        loop {
            let joins = |m: &&NodeId| !stay.contains(m) && !self.needs(**m, exprs).is_disjoint(&stay);
            let more: Vec<NodeId> = members.iter().filter(joins).copied().collect();
            if more.is_empty() {
                break;
            }
            stay.extend(more);
        }
        for m in members.iter().filter(|m| !stay.contains(m)) {
            self.items[m.0 as usize].recurrence = None;
        }
        self.loops[r].members = members.into_iter().filter(|m| stay.contains(m)).collect();
    }

    /// The index over whose chunk this one runs, if it does.
    pub(crate) fn chunk_of(&self, i: IndexId) -> Option<IndexId> {
        self.loops.iter().find(|l| l.within.contains(&i)).map(|l| l.index)
    }

    /// `argmax` as two reductions, each of which tiles know: the extremum, then the first position that attains it.
    fn split_arg(&mut self, id: NodeId, max: bool, exprs: &mut Exprs) {
        let item = self[id].clone();
        let ItemDef::Fold(fold) = item.def.clone() else { return };
        let best_monoid = if max { FoldMonoid::Max } else { FoldMonoid::Min };
        let best = Fold { monoid: best_monoid, ..fold.clone() };
        let part = |name: &str, def: Fold| Item {
            name: format!("{}.{name}", item.name),
            def: ItemDef::Fold(def),
            dtype: None,
            role: Role::Intermediate,
            ..item.clone()
        };
        let best = part(if max { "max" } else { "min" }, best);
        let best_id = NodeId(self.items.len() as u32);
        self.items.push(best);
        let best_read = exprs.plain(best_id, &item.axes);
        let mut at = Coordinate::default();
        for &i in &fold.over {
            at = {
                let mut scaled = Coordinate::default();
                scaled.add_scaled(&at, self[i].extent as i64);
                scaled
            };
            at.push(1, Atom::Index(i));
        }
        let (at, none) = (exprs.value_of(&at), exprs.constant(f64::INFINITY));
        let hit = exprs.binary(BinaryOp::Eq, fold.body, best_read);
        let body = exprs.select(hit, at, none);
        let first = part("at", Fold { monoid: FoldMonoid::Min, body, ..fold });
        let first_id = NodeId(self.items.len() as u32);
        self.items.push(first);
        let first_read = exprs.plain(first_id, &item.axes);
        let nothing = exprs.binary(BinaryOp::Eq, first_read, none);
        let minus_one = exprs.constant(-1.0);
        let term = exprs.select(nothing, minus_one, first_read);
        self.items[id.0 as usize].def = ItemDef::Map(term);
        if let Some(r) = item.recurrence {
            let members = &mut self.loops[r].members;
            let place = members.iter().position(|&m| m == id).unwrap_or(members.len());
            members.splice(place..place, [best_id, first_id]);
        }
    }

    /// The name for an index, or one like it that none has.
    pub(crate) fn fresh_name(&self, wanted: &str) -> String {
        let mut name = wanted.to_string();
        while self.indices.iter().any(|i| i.name == name) {
            name.push('\'');
        }
        name
    }

    /// The value of a reduction over nothing.
    pub(crate) fn identity(&self, monoid: FoldMonoid) -> f64 {
        match monoid {
            FoldMonoid::Sum => 0.0,
            FoldMonoid::Prod => 1.0,
            FoldMonoid::Max => f64::NEG_INFINITY,
            FoldMonoid::Min => f64::INFINITY,
            FoldMonoid::Custom(id) => self.monoids[id.0 as usize].identity,
        }
    }

    /// The expressions an item is made of.
    pub(crate) fn parts(&self, id: NodeId) -> Vec<ExprId> {
        match &self[id].def {
            ItemDef::Input => vec![],
            ItemDef::Map(e) => vec![*e],
            ItemDef::Fold(f) => f.parts(),
            ItemDef::Iterative(i) => i.initial.iter().map(|x| x.1).chain([i.step]).collect(),
        }
    }

    /// Puts other expressions in the place of all.
    pub(crate) fn map(&mut self, f: &mut dyn FnMut(ExprId) -> ExprId) {
        self.items.iter_mut().for_each(|item| item.def.map(f));
    }

    /// The items it needs directly.
    pub(crate) fn needs(&self, id: NodeId, exprs: &Exprs) -> BTreeSet<NodeId> {
        let mut out = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for e in self.parts(id) {
            exprs.reads(e, &mut seen, &mut |n, _| {
                out.insert(n);
            });
        }
        out
    }

    /// Notes what each item needs: no item changes after that.
    pub(crate) fn settle(&mut self, exprs: &Exprs) {
        self.needed = (0..self.items.len() as u32).map(|n| self.needs(NodeId(n), exprs)).collect();
    }

    /// What an item needs, of a problem that is settled.
    pub(crate) fn needed(&self, id: NodeId) -> &BTreeSet<NodeId> {
        &self.needed[id.0 as usize]
    }

    pub(crate) fn topological(&self, exprs: &Exprs) -> Vec<NodeId> {
        let needs = |n: NodeId| -> Vec<NodeId> {
            match self[n].recurrence {
                // All that any member needs comes before the first of them.
                Some(r) => self.loops[r].members.iter().flat_map(|&m| self.needs(m, exprs)).collect(),
                None => self.needs(n, exprs).into_iter().collect(),
            }
        };
        let (mut seen, mut out) = (BTreeSet::new(), vec![]);
        for k in 0..self.items.len() as u32 {
            // A node stands twice on the stack: to be opened, and to be closed once all it needs is.
            let mut todo = vec![(NodeId(k), false)];
            while let Some((n, closed)) = todo.pop() {
                let members = self[n].recurrence.map_or_else(|| vec![n], |r| self.loops[r].members.clone());
                if closed {
                    out.extend(members);
                } else if !seen.contains(&n) {
                    seen.extend(members);
                    todo.push((n, true));
                    todo.extend(needs(n).into_iter().rev().map(|m| (m, false)));
                }
            }
        }
        out
    }

    /// The number type of an item in memory.
    pub(crate) fn storage(&self, id: NodeId, types: &mut crate::types::Types, exprs: &Exprs) -> DType {
        self[id].dtype.unwrap_or_else(|| types.of_item(self, exprs, id))
    }
}

impl Exprs {
    /// Calls `f` on every read, old read and gather below `id` (with its coordinates; none for an old read).
    pub(crate) fn reads(&self, id: ExprId, seen: &mut BTreeSet<ExprId>, f: &mut dyn FnMut(NodeId, &[Coordinate])) {
        if !seen.insert(id) {
            return;
        }
        match self.get(id) {
            Expr::Read(n, at) => {
                f(*n, at);
                at.iter().for_each(|c| self.coordinate_reads(c, seen, f));
            }
            Expr::Old(n) => f(*n, &[]),
            _ => self.children(id).into_iter().for_each(|c| self.reads(c, seen, f)),
        }
    }

    fn coordinate_reads(&self, at: &Coordinate, seen: &mut BTreeSet<ExprId>, f: &mut dyn FnMut(NodeId, &[Coordinate])) {
        for atom in at.terms.keys() {
            match atom {
                Atom::Index(_) => {}
                Atom::Floor(n, _) => self.coordinate_reads(n, seen, f),
                Atom::Value(e) => self.reads(*e, seen, f),
            }
        }
    }
}
