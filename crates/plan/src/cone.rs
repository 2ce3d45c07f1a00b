//! What one kernel computes: its roots, with everything between them and memory inlined.

use crate::expr::{Coordinate, Expr, ExprId, Exprs};
use crate::problem::{Fold, FoldMonoid, Item, ItemDef, Iteration, Problem};
use crate::substitute::Substitution;
use crate::types::Types;
use einloom_algebra::NodeId;
use einloom_cascade::{DType, IndexId};
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// The expressions of one kernel. Pointwise nodes have disappeared into their readers; reductions are still read as
/// nodes, at their own axes.
#[derive(Clone, Debug)]
pub(crate) struct Cone {
    /// What is stored, and its value over the node's axes.
    pub roots: Vec<(NodeId, ExprId)>,
    /// The reductions, by node.
    pub folds: BTreeMap<NodeId, Fold>,
    /// The same, each after those it needs.
    pub order: Vec<NodeId>,
    /// The iterative tensors.
    pub iterations: BTreeMap<NodeId, Iteration>,
    /// The index of the recurrence that the kernel runs, if any.
    pub recurrence: Option<IndexId>,
    /// What it reads from memory.
    pub loads: BTreeSet<NodeId>,
    /// Every node it computes.
    pub computed: BTreeSet<NodeId>,
    /// Readable names for expressions.
    pub names: FxHashMap<ExprId, String>,
}

/// Why roots cannot share a kernel as asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ConeError {
    /// This node is read at other positions than it is computed at, so it has to be in memory.
    NotPlain(NodeId),
    /// This node's expression is nested so deeply that what reads it should not nest it further.
    TooDeep(NodeId),
}

/// Reductions nested in one another that share no index, and such that wait for one another, in one kernel. Each
/// nested one may be computed again for every step of the one around it.
const NESTED: usize = 4;
const CHAINED: usize = 12;

/// Levels of nesting that a pointwise node may have and still disappear into its readers.
const DEEPEST: u32 = 64;

impl Cone {
    /// The kernel that computes `roots` from the nodes in `memory`.
    pub(crate) fn new(
        p: &Problem,
        x: &mut Exprs,
        types: &mut Types,
        roots: &[NodeId],
        memory: &BTreeSet<NodeId>,
    ) -> Result<Self, ConeError> {
        let mut r = Resolver {
            p,
            x,
            types,
            roots,
            memory,
            anchors: BTreeSet::new(),
            memo: FxHashMap::default(),
            depths: BTreeMap::new(),
            cone: Self {
                roots: vec![],
                folds: BTreeMap::new(),
                order: vec![],
                iterations: BTreeMap::new(),
                recurrence: None,
                loads: BTreeSet::new(),
                computed: BTreeSet::new(),
                names: FxHashMap::default(),
            },
        };
        r.in_order()?;
        for &root in roots {
            let value = r.root(root)?;
            r.cone.roots.push((root, value));
        }
        // A member of a recurrence may have been met first by way of one that needs it at the position before.
        let places: FxHashMap<NodeId, usize> = p.order.iter().enumerate().map(|(k, &n)| (n, k)).collect();
        r.cone.order.sort_by_key(|n| places.get(n));
        Ok(r.cone)
    }

    /// Every expression that is the whole of something: stored values, bodies, filters, repairs, steps.
    pub(crate) fn tops(&self) -> Vec<ExprId> {
        let mut out: Vec<ExprId> = self.roots.iter().map(|r| r.1).collect();
        out.extend(self.folds.values().flat_map(Fold::parts));
        out.extend(self.iterations.values().flat_map(|i| i.initial.iter().map(|x| x.1).chain([i.step])));
        out
    }

    /// Indices that some reduction of the kernel reduces.
    pub(crate) fn reduced(&self) -> BTreeSet<IndexId> {
        self.folds.values().flat_map(|f| f.over.iter().copied()).collect()
    }
}

struct Resolver<'a> {
    p: &'a Problem,
    x: &'a mut Exprs,
    types: &'a mut Types,
    roots: &'a [NodeId],
    memory: &'a BTreeSet<NodeId>,
    /// What some reduction of the kernel is anchored at: its value is needed while it is incomplete.
    anchors: BTreeSet<NodeId>,
    memo: FxHashMap<ExprId, ExprId>,
    /// How many reductions are nested in each, and how many wait for one another, itself included.
    depths: BTreeMap<NodeId, (usize, usize)>,
    cone: Cone,
}

impl Resolver<'_> {
    /// Resolves what the roots need, each node after those it needs, so that long chains are no deep recursion.
    fn in_order(&mut self) -> Result<(), ConeError> {
        let mut needed = BTreeSet::new();
        let mut todo = self.roots.to_vec();
        while let Some(n) = todo.pop() {
            if needed.insert(n) {
                todo.extend(self.p.needed(n).iter().filter(|&&m| !self.in_memory(m)));
            }
        }
        let p = self.p;
        for &n in &needed {
            if let ItemDef::Fold(fold) = &p[n].def
                && !self.in_memory(n)
            {
                self.anchors.extend(&fold.anchors);
            }
        }
        for &n in p.order.iter().filter(|n| needed.contains(n)) {
            match &p[n].def {
                ItemDef::Map(e) if p[n].recurrence.is_none() => {
                    self.resolve(*e)?;
                }
                ItemDef::Fold(_) if p[n].recurrence.is_none() && self.count(n).is_none() => self.fold(n)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn root(&mut self, id: NodeId) -> Result<ExprId, ConeError> {
        let item = &self.p[id];
        self.cone.computed.insert(id);
        match &item.def {
            ItemDef::Input => Ok(self.x.plain(id, &item.axes)),
            ItemDef::Map(e) => {
                let value = self.resolve(*e)?;
                self.name(value, item);
                Ok(value)
            }
            ItemDef::Fold(_) => {
                self.fold(id)?;
                Ok(self.x.plain(id, &item.axes))
            }
            ItemDef::Iterative(_) => {
                self.iteration(id)?;
                Ok(self.x.plain(id, &item.axes))
            }
        }
    }

    fn name(&mut self, value: ExprId, item: &Item) {
        if !matches!(self.x.get(value), Expr::Read(..) | Expr::Const(_) | Expr::Within(_)) {
            self.cone.names.entry(value).or_insert_with(|| item.name.to_lowercase());
        }
    }

    fn resolve(&mut self, e: ExprId) -> Result<ExprId, ConeError> {
        if let Some(&done) = self.memo.get(&e) {
            return Ok(done);
        }
        let out = match self.x.get(e).clone() {
            Expr::Read(n, at) => {
                let at = self.coordinates(&at)?;
                self.read(n, at)?
            }
            Expr::Old(n) if self.in_memory(n) => {
                // A complete anchor does not move.
                self.cone.loads.insert(n);
                self.x.plain(n, &self.p[n].axes)
            }
            Expr::Old(n) => {
                self.fold(n)?;
                self.iteration(n)?;
                e
            }
            _ => {
                let mut failed = None;
                let children = self.x.children(e);
                let mut done = BTreeMap::new();
                for c in children {
                    match self.resolve(c) {
                        Ok(v) => {
                            done.insert(c, v);
                        }
                        Err(err) => failed = Some(err),
                    }
                }
                if let Some(err) = failed {
                    return Err(err);
                }
                self.x.rebuild(e, &mut |_, c| done[&c])
            }
        };
        self.memo.insert(e, out);
        Ok(out)
    }

    fn coordinates(&mut self, at: &[Coordinate]) -> Result<Vec<Coordinate>, ConeError> {
        let mut values = vec![];
        for c in at {
            Exprs::coordinate_values(c, &mut |e| values.push(e));
        }
        let mut done = BTreeMap::new();
        for v in values {
            done.insert(v, self.resolve(v)?);
        }
        Ok(at.iter().map(|c| self.x.map_values(c, &mut |_, e| done[&e])).collect())
    }

    fn in_memory(&self, n: NodeId) -> bool {
        matches!(self.p[n].def, ItemDef::Input) || self.memory.contains(&n) && !self.roots.contains(&n)
    }

    /// The value of a sum of a constant, such as how many positions an index has: known, unless it is needed while it is
    /// incomplete, by what is anchored at it. Only integers that every number type of a sum holds.
    fn count(&self, n: NodeId) -> Option<f64> {
        const EXACT: f64 = 16_777_216.0;
        let item = &self.p[n];
        let ItemDef::Fold(fold) = &item.def else { return None };
        let plain = fold.monoid == FoldMonoid::Sum && fold.filter.is_empty() && item.recurrence.is_none();
        let own = item.dtype.is_none() && !self.roots.contains(&n) && !self.anchors.contains(&n);
        let each = self.x.as_const(fold.body).filter(|_| plain && own)?;
        let value = fold.over.iter().map(|&i| self.p[i].extent as f64).product::<f64>() * each;
        (value.fract() == 0.0 && value.abs() <= EXACT).then_some(value)
    }

    fn read(&mut self, n: NodeId, at: Vec<Coordinate>) -> Result<ExprId, ConeError> {
        if self.in_memory(n) {
            self.cone.loads.insert(n);
            return Ok(self.x.intern(Expr::Read(n, at)));
        }
        if let Some(count) = self.count(n) {
            return Ok(self.x.constant(count));
        }
        self.cone.computed.insert(n);
        let item = &self.p[n];
        let plain = at.iter().zip(&item.axes).all(|(c, &i)| c.as_index() == Some(i));
        match &item.def {
            ItemDef::Input => Ok(self.x.intern(Expr::Read(n, at))),
            ItemDef::Map(body) => {
                let value = self.resolve(*body)?;
                let value = self.rounded(value, item.dtype);
                if plain {
                    self.name(value, item);
                }
                if self.x.depth(value) > DEEPEST && item.recurrence.is_none() {
                    return Err(ConeError::TooDeep(n));
                }
                if plain {
                    return Ok(value);
                }
                let by: Substitution = item.axes.iter().copied().zip(at).collect();
                // Reductions in it would be read at other positions too.
                let mut read = BTreeSet::new();
                self.x.reads(value, &mut BTreeSet::new(), &mut |inner, _| {
                    read.insert(inner);
                });
                match read.into_iter().find(|&inner| !self.cone.loads.contains(&inner) && self.moves(inner, &by)) {
                    // What a recurrence computes as it goes is stored as what is made of it.
                    Some(inner) if self.p[inner].recurrence.is_some() => Err(ConeError::NotPlain(n)),
                    Some(inner) => Err(ConeError::NotPlain(inner)),
                    None => Ok(self.x.substitute(value, &by)),
                }
            }
            ItemDef::Fold(fold) => {
                if !plain {
                    return Err(ConeError::NotPlain(n));
                }
                let fold = fold.clone();
                self.fold(n)?;
                let value = self.x.plain(n, &item.axes);
                let own = self.types.of_fold(self.p, self.x, &fold, item.dtype);
                Ok(match item.dtype {
                    Some(d) if d != own => self.x.round(d, value),
                    _ => value,
                })
            }
            ItemDef::Iterative(_) => {
                self.iteration(n)?;
                Ok(self.x.intern(Expr::Read(n, at)))
            }
        }
    }

    /// Whether a substitution changes where a node is read.
    fn moves(&self, n: NodeId, by: &Substitution) -> bool {
        let moved = |i: &IndexId| by.get(i).is_some_and(|c| c.as_index() != Some(*i));
        self.p[n].axes.iter().any(moved)
    }

    fn rounded(&mut self, value: ExprId, dtype: Option<DType>) -> ExprId {
        match dtype {
            Some(d) if self.types.of(self.p, self.x, value) != d => self.x.round(d, value),
            _ => value,
        }
    }

    fn fold(&mut self, n: NodeId) -> Result<(), ConeError> {
        let ItemDef::Fold(fold) = &self.p[n].def else { return Ok(()) };
        if self.cone.folds.contains_key(&n) {
            return Ok(());
        }
        let mut fold = fold.clone();
        self.cone.computed.insert(n);
        // Entered first: the members of a recurrence may need each other.
        self.cone.folds.insert(n, fold.clone());
        fold.body = self.resolve(fold.body)?;
        for f in &mut fold.filter {
            *f = self.resolve(*f)?;
        }
        if let Some(m) = self.leaves_chunk(n, &fold)? {
            return Err(ConeError::NotPlain(m));
        }
        if fold.is_joint() && fold.anchors.iter().any(|&a| self.in_memory(a)) {
            // The states of a vector move together, or not at all.
            fold.anchors.clear();
        }
        fold.anchors.retain(|&a| !self.in_memory(a));
        if fold.anchors.is_empty() {
            fold.repair = None;
        }
        if let Some(r) = &mut fold.repair {
            r.factor = self.resolve(r.factor)?;
            r.plus = r.plus.map(|k| self.resolve(k)).transpose()?;
            r.keep_if = r.keep_if.map(|k| self.resolve(k)).transpose()?;
        }
        self.limit(n, &fold)?;
        self.cone.folds.insert(n, fold);
        self.cone.order.push(n);
        Ok(())
    }

    /// What a reduction over all positions of a recurrence needs of the chunk at hand: the values are those of one chunk
    /// only, so what is put together from them has to be in memory.
    fn leaves_chunk(&mut self, n: NodeId, fold: &Fold) -> Result<Option<NodeId>, ConeError> {
        let chunked = |k: &usize| !self.p.loops[*k].within.is_empty() && fold.over.contains(&self.p.loops[*k].index);
        let loops: Vec<usize> = (0..self.p.loops.len()).filter(chunked).collect();
        if loops.is_empty() || self.p[n].internal {
            return Ok(None);
        }
        let local = |s: &Self, e: ExprId| {
            let mut found = None;
            s.x.reads(e, &mut BTreeSet::new(), &mut |m, _| {
                let own = s.p[m].internal && s.p[m].recurrence.is_some_and(|k| loops.contains(&k));
                found = found.or(own.then_some(m));
            });
            found
        };
        let Some(inner) = [fold.body].iter().chain(&fold.filter).find_map(|&e| local(self, e)) else { return Ok(None) };
        let ItemDef::Fold(written) = &self.p[n].def else { return Ok(Some(inner)) };
        let mut direct = BTreeSet::new();
        for &e in [written.body].iter().chain(&written.filter) {
            self.x.reads(e, &mut BTreeSet::new(), &mut |m, _| _ = direct.insert(m));
        }
        for m in direct {
            if let ItemDef::Map(body) = self.p[m].def
                && !self.in_memory(m)
            {
                let value = self.resolve(body)?;
                if local(self, value).is_some() {
                    return Ok(Some(m));
                }
            }
        }
        Ok(Some(inner))
    }

    /// Stops before a kernel computes too long a chain of reductions.
    fn limit(&mut self, n: NodeId, fold: &Fold) -> Result<(), ConeError> {
        let mut inner = BTreeSet::new();
        let mut seen = BTreeSet::new();
        for e in fold.parts() {
            self.x.reads(e, &mut seen, &mut |m, _| {
                inner.insert(m);
            });
        }
        let mut own = (1, 1);
        for m in inner {
            let (Some(&(nested, chained)), Some(other)) = (self.depths.get(&m), self.cone.folds.get(&m)) else {
                continue;
            };
            let apart = usize::from(other.over.iter().all(|i| !fold.over.contains(i)));
            if self.p[n].recurrence.is_none() && (nested + apart > NESTED || chained + 1 > CHAINED) {
                return Err(ConeError::TooDeep(m));
            }
            own = (own.0.max(nested + apart), own.1.max(chained + 1));
        }
        self.depths.insert(n, own);
        Ok(())
    }

    fn iteration(&mut self, n: NodeId) -> Result<(), ConeError> {
        let ItemDef::Iterative(iteration) = &self.p[n].def else { return Ok(()) };
        if self.cone.iterations.contains_key(&n) {
            return Ok(());
        }
        let mut iteration = iteration.clone();
        if let Some(r) = self.p[n].recurrence {
            let index = self.p.loops[r].index;
            // A kernel goes along one index position by position.
            if self.cone.recurrence.is_some_and(|other| other != index) {
                return Err(ConeError::NotPlain(n));
            }
            self.cone.recurrence = Some(index);
        }
        self.cone.computed.insert(n);
        self.cone.iterations.insert(n, iteration.clone());
        iteration.step = self.resolve(iteration.step)?;
        iteration.step = self.rounded(iteration.step, self.p[n].dtype);
        for (_, e) in &mut iteration.initial {
            *e = self.resolve(*e)?;
            *e = self.rounded(*e, self.p[n].dtype);
        }
        self.cone.iterations.insert(n, iteration);
        Ok(())
    }
}

impl Exprs {
    /// Calls `f` on every value gathered in a coordinate.
    pub(crate) fn coordinate_values(at: &Coordinate, f: &mut dyn FnMut(ExprId)) {
        Self::coordinate_indices(at, &mut |_| {}, f);
    }
}
