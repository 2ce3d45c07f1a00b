//! Cascade to graph: every reduction becomes a node of its own, equal reductions become one node.

use crate::{Def, Graph, Node, NodeId, Recurrence, Reduction, Streaming, Term};
use einloom_cascade::{
    Cascade, DType, Expr, ExprKind, IndexExpr, IndexId, Kind, Monoid, RankId, Role, SizeExpr, Statement, Step,
    TensorId, UnaryOp,
};
use std::collections::{BTreeMap, BTreeSet};

/// The cascade as a graph, computing what is written in the order in which it is written.
///
/// The cascade must be free of errors (see `einloom_cascade::parse`).
pub fn flatten(cascade: &Cascade) -> Graph {
    let mut f = Flattener {
        graph: Graph { cascade: cascade.clone(), nodes: vec![], outputs: vec![], recurrences: vec![] },
        node_of: BTreeMap::new(),
        initial: BTreeMap::new(),
        target: String::new(),
        statement: 0,
        target_order: vec![],
        read_by: readers(cascade),
        bound: bound_indices(cascade),
    };
    for tensor in cascade.inputs() {
        let t = &cascade[tensor];
        let node = Node {
            name: t.name.clone(),
            axes: vec![],
            extents: t.extents.clone(),
            def: Def::Input,
            dtype: t.dtype,
            tensor: Some(tensor),
            statement: None,
            span: t.span,
        };
        f.push_tensor(tensor, node);
    }
    for step in &cascade.order {
        match step {
            Step::Once(k) => f.once(*k),
            Step::Iterate { rank, statements } => f.iterate(*rank, statements),
        }
    }
    f.graph.outputs = cascade.outputs.iter().filter_map(|t| f.node_of.get(t).copied()).collect();
    crate::level::assign(&mut f.graph);
    f.graph
}

/// Tensors that some statement reads.
fn readers(cascade: &Cascade) -> BTreeSet<TensorId> {
    fn go(e: &Expr, out: &mut BTreeSet<TensorId>) {
        if let ExprKind::Read { tensor, at } = &e.kind {
            out.insert(*tensor);
            at.iter().for_each(|a| a.visit_gathers(&mut |t| _ = out.insert(t)));
        }
        e.for_each_child(&mut |c| go(c, out));
    }
    let mut out = BTreeSet::new();
    cascade.statements.iter().for_each(|s| go(&s.value, &mut out));
    out
}

/// Per rank the index that reductions over it shall share, so that it shows that they traverse the same rank: one that
/// reads an intermediate, which has its own names, else the first.
fn bound_indices(cascade: &Cascade) -> BTreeMap<RankId, IndexId> {
    fn go(cascade: &Cascade, e: &Expr, tied: bool, out: &mut BTreeMap<RankId, IndexId>) {
        if let ExprKind::Reduce { over, body, .. } = &e.kind {
            let mut names = BTreeSet::new();
            visit_reads(body, &mut |tensor, at| {
                if cascade[tensor].role != Role::Input {
                    names.extend(at.iter().filter_map(IndexExpr::as_var));
                }
            });
            for i in over.iter().filter(|i| !tied || names.contains(i)) {
                out.entry(cascade[*i].rank).or_insert(*i);
            }
        }
        e.for_each_child(&mut |c| go(cascade, c, tied, out));
    }
    let mut out = BTreeMap::new();
    for tied in [true, false] {
        cascade.statements.iter().for_each(|s| go(cascade, &s.value, tied, &mut out));
    }
    out
}

struct Flattener {
    graph: Graph,
    node_of: BTreeMap<TensorId, NodeId>,
    /// Slices of iterative tensors that are defined outside their loop.
    initial: BTreeMap<TensorId, Vec<(SizeExpr, Term, Vec<IndexId>)>>,
    /// The statement at work: its target's name, its number, its free indices in order.
    target: String,
    statement: usize,
    target_order: Vec<IndexId>,
    read_by: BTreeSet<TensorId>,
    /// Per rank the index that reductions over it are written with, where a reduction is free to choose.
    bound: BTreeMap<RankId, IndexId>,
}

impl Flattener {
    fn push_tensor(&mut self, tensor: TensorId, node: Node) -> NodeId {
        let id = self.push(node);
        self.node_of.insert(tensor, id);
        id
    }

    fn push(&mut self, node: Node) -> NodeId {
        self.graph.nodes.push(node);
        NodeId(self.graph.nodes.len() as u32 - 1)
    }

    fn once(&mut self, k: usize) {
        let statement = self.graph.cascade.statements[k].clone();
        let tensor = self.graph.cascade[statement.target].clone();
        if let Some(dim) = tensor.iterative {
            let (axes, term) = self.start(&statement, k, None);
            match statement.at[dim].as_shifted_var() {
                // Written at t + 1 yet on no cycle: a recurrence of one member.
                Some((index, _)) => {
                    let id = self.reserve(statement.target, k);
                    self.finish_iterative(id, &statement, dim, index, axes, term);
                    let recurrence = self.graph.recurrences.len();
                    let rank = tensor.ranks[dim];
                    self.graph.recurrences.push(Recurrence { rank, index, members: vec![id], within: vec![] });
                    if let Def::Iterative { recurrence: r, .. } = &mut self.graph.nodes[id.0 as usize].def {
                        *r = recurrence;
                    }
                }
                None => {
                    let position = statement.at[dim].offset.clone();
                    self.initial.entry(statement.target).or_default().push((position, term, axes));
                }
            }
            return;
        }
        let (axes, value) = self.start_value(&statement, k, None);
        let node = self.tensor_node(statement.target, k, axes);
        match value {
            // The statement is one reduction. Rounding, where somebody sees it, is a step of its own.
            Value::Reduction(reduction) => {
                if self.rounds_visibly(statement.target) {
                    let inner = Node {
                        name: self.fresh(&format!("{}.{}", node.name, reduction.monoid.name(&self.graph.cascade))),
                        dtype: None,
                        tensor: None,
                        def: Def::Reduce(reduction),
                        ..node.clone()
                    };
                    let at = node.axes.iter().map(|&i| IndexExpr::var(i)).collect();
                    let inner = self.push(inner);
                    self.push_tensor(statement.target, Node { def: Def::Map(Term::Read(inner, at)), ..node });
                } else {
                    self.push_tensor(statement.target, Node { def: Def::Reduce(reduction), ..node });
                }
            }
            Value::Term(term) => drop(self.push_tensor(statement.target, Node { def: Def::Map(term), ..node })),
        }
    }

    fn rounds_visibly(&self, target: TensorId) -> bool {
        let narrow = !matches!(self.graph.cascade[target].dtype, None | Some(DType::F64 | DType::F32 | DType::I32));
        narrow && self.read_by.contains(&target)
    }

    fn iterate(&mut self, rank: einloom_cascade::RankId, statements: &[usize]) {
        let recurrence = self.graph.recurrences.len();
        let list: Vec<Statement> = statements.iter().map(|&k| self.graph.cascade.statements[k].clone()).collect();
        let index_of = |s: &Statement| {
            s.at.iter().filter_map(|e| e.as_shifted_var()).map(|(i, _)| i).find(|&i| self.graph.cascade[i].rank == rank)
        };
        let Some(index) = list.iter().find_map(index_of) else { return };
        // Iterative tensors are read before they are complete, so their places come first.
        let own: Vec<Option<IndexId>> = list.iter().map(index_of).collect();
        let mut iterative = BTreeMap::new();
        for (s, &k) in list.iter().zip(statements) {
            if self.graph.cascade[s.target].iterative.is_some() {
                iterative.insert(s.target, self.reserve(s.target, k));
            }
        }
        let mut members = vec![];
        for ((s, &k), own) in list.iter().zip(statements).zip(own) {
            let rename = own.map(|o| (o, index));
            let before = self.graph.nodes.len();
            match (iterative.get(&s.target), self.graph.cascade[s.target].iterative) {
                (Some(&id), Some(dim)) => {
                    let (axes, term) = self.start(s, k, rename);
                    members.extend((before..self.graph.nodes.len()).map(|n| NodeId(n as u32)));
                    self.finish_iterative(id, s, dim, index, axes, term);
                    members.push(id);
                }
                _ => {
                    let (axes, value) = self.start_value(s, k, rename);
                    let node = self.tensor_node(s.target, k, axes);
                    let def = match value {
                        Value::Reduction(r) => Def::Reduce(r),
                        Value::Term(t) => Def::Map(t),
                    };
                    self.push_tensor(s.target, Node { def, ..node });
                    members.extend((before..self.graph.nodes.len()).map(|n| NodeId(n as u32)));
                }
            }
        }
        for &m in &members {
            if let Def::Iterative { recurrence: r, .. } = &mut self.graph.nodes[m.0 as usize].def {
                *r = recurrence;
            }
        }
        self.graph.recurrences.push(Recurrence { rank, index, members, within: vec![] });
    }

    fn reserve(&mut self, tensor: TensorId, k: usize) -> NodeId {
        let node = self.tensor_node(tensor, k, vec![]);
        self.push_tensor(tensor, node)
    }

    fn finish_iterative(
        &mut self,
        id: NodeId,
        s: &Statement,
        dim: usize,
        index: IndexId,
        mut axes: Vec<IndexId>,
        step: Term,
    ) {
        axes.truncate(s.at.len());
        axes[dim] = index;
        let initial = self.initial.remove(&s.target).unwrap_or_default();
        let initial = initial
            .into_iter()
            .map(|(position, term, own)| {
                // The initial slice may name its indices differently.
                let others: Vec<IndexId> = (0..axes.len()).filter(|&d| d != dim).map(|d| axes[d]).collect();
                let term = rename_term(&term, &|i| own.iter().position(|&o| o == i).map_or(i, |p| others[p]));
                (position, term)
            })
            .collect();
        let node = &mut self.graph.nodes[id.0 as usize];
        node.axes = axes;
        node.def = Def::Iterative { recurrence: usize::MAX, dim, initial, step };
    }

    fn tensor_node(&self, tensor: TensorId, k: usize, axes: Vec<IndexId>) -> Node {
        let t = &self.graph.cascade[tensor];
        Node {
            name: t.name.clone(),
            axes,
            extents: t.extents.clone(),
            def: Def::Input,
            // An output always has a declared type; f32 is what everything computes in anyway.
            dtype: t.dtype,
            tensor: Some(tensor),
            statement: Some(k),
            span: self.graph.cascade.statements[k].span,
        }
    }

    fn start(&mut self, s: &Statement, k: usize, rename: Option<(IndexId, IndexId)>) -> (Vec<IndexId>, Term) {
        let (axes, expr) = self.prepare(s, k, rename);
        let term = self.term(&expr);
        (axes, term)
    }

    fn start_value(&mut self, s: &Statement, k: usize, rename: Option<(IndexId, IndexId)>) -> (Vec<IndexId>, Value) {
        let (axes, expr) = self.prepare(s, k, rename);
        let value = match &expr.kind {
            ExprKind::Reduce { monoid, over, filter, body } => {
                Value::Reduction(self.reduction(*monoid, over, filter.as_deref(), body, true))
            }
            _ => Value::Term(self.term(&expr)),
        };
        (axes, value)
    }

    /// Sets the statement at work and renames its free indices after those of the tensors it reads, where that makes
    /// reads plain (the same index at the same dimension).
    fn prepare(&mut self, s: &Statement, k: usize, rename: Option<(IndexId, IndexId)>) -> (Vec<IndexId>, Expr) {
        self.target = self.graph.cascade[s.target].name.clone();
        self.statement = k;
        let mut axes: Vec<IndexId> = s.at.iter().filter_map(|e| e.as_shifted_var()).map(|(i, _)| i).collect();
        let mut expr = s.value.clone();
        if let Some((from, to)) = rename
            && from != to
        {
            expr = rename_expr(&expr, from, to);
            axes.iter_mut().filter(|i| **i == from).for_each(|i| *i = to);
        }
        for position in 0..axes.len() {
            let from = axes[position];
            if rename.is_some_and(|r| r.1 == from) {
                continue;
            }
            if let Some(to) = self.plainer_name(&expr, from, &axes) {
                expr = rename_expr(&expr, from, to);
                axes[position] = to;
            }
        }
        self.target_order = axes.clone();
        (axes, expr)
    }

    /// Another index of the same rank under which `expr` reads intermediates plainly, if `from` does not and the
    /// other is free to take.
    fn plainer_name(&self, expr: &Expr, from: IndexId, taken: &[IndexId]) -> Option<IndexId> {
        let mut votes: Vec<IndexId> = vec![];
        visit_reads(expr, &mut |tensor, at| {
            let Some(&node) = self.node_of.get(&tensor) else { return };
            for (axis, e) in self.graph[node].axes.iter().zip(at) {
                if e.as_var() == Some(from) {
                    votes.push(*axis);
                }
            }
        });
        if votes.is_empty() || votes.contains(&from) {
            return None;
        }
        let mut used = BTreeSet::new();
        indices_of(expr, &mut used);
        votes.into_iter().find(|v| {
            self.graph.cascade[*v].rank == self.graph.cascade[from].rank && !used.contains(v) && !taken.contains(v)
        })
    }

    /// The index that other reductions over the rank are written with, if this one reads only inputs at `from` and the
    /// other is free to take.
    fn shared_name(&self, expr: &Expr, from: IndexId, taken: &[IndexId], top: bool) -> Option<IndexId> {
        let to = *self.bound.get(&self.graph.cascade[from].rank)?;
        let mut tied = false;
        visit_reads(expr, &mut |tensor, at| {
            tied |= self.graph.cascade[tensor].role != Role::Input && at.iter().any(|e| e.as_var() == Some(from));
        });
        let mut used = BTreeSet::new();
        indices_of(expr, &mut used);
        // A nested reduction becomes a node of its own, over what it reads; a statement's is over the target's axes.
        let free = !top || !self.target_order.contains(&to);
        (to != from && !tied && !used.contains(&to) && !taken.contains(&to) && free).then_some(to)
    }

    fn reduction(
        &mut self,
        monoid: Monoid,
        over: &[IndexId],
        filter: Option<&Expr>,
        body: &Expr,
        top: bool,
    ) -> Reduction {
        let mut over = over.to_vec();
        let (mut filter, mut body) = (filter.cloned(), body.clone());
        for k in 0..over.len() {
            let mut whole = body.clone();
            if let Some(f) = &filter {
                whole = Expr::new(
                    ExprKind::Select(Box::new(f.clone()), Box::new(whole.clone()), Box::new(whole)),
                    body.span,
                );
            }
            // A statement's own reduction is over no index that its target carries, used or not.
            let mut taken = over.clone();
            taken.extend(self.target_order.iter().filter(|_| top));
            let to =
                self.plainer_name(&whole, over[k], &taken).or_else(|| self.shared_name(&whole, over[k], &over, top));
            if let Some(to) = to {
                body = rename_expr(&body, over[k], to);
                filter = filter.map(|f| rename_expr(&f, over[k], to));
                over[k] = to;
            }
        }
        let mut conjuncts = vec![];
        if let Some(f) = &filter {
            split_and(f, &mut conjuncts);
        }
        let filter = conjuncts.iter().map(|c| self.term(c)).collect();
        let body = self.term(&body);
        Reduction { monoid, over, filter, body, streaming: Streaming::default() }
    }

    fn term(&mut self, e: &Expr) -> Term {
        match &e.kind {
            ExprKind::Number(v) => Term::Number(*v),
            ExprKind::Param(p) => Term::Param(*p),
            ExprKind::Size(s) => s.as_constant().map_or_else(|| Term::Size(s.clone()), |c| Term::Number(c as f64)),
            ExprKind::Position(i) => Term::Position(*i),
            ExprKind::Argument(k) => Term::Argument(*k),
            ExprKind::Read { tensor, at } => match self.node_of.get(tensor) {
                Some(&n) => Term::Read(n, at.clone()),
                // Only a cascade with errors reads what nothing defines.
                None => Term::Number(f64::NAN),
            },
            ExprKind::Unary(op, x) => Term::Unary(*op, Box::new(self.term(x))),
            ExprKind::Binary(op, a, b) => Term::Binary(*op, Box::new(self.term(a)), Box::new(self.term(b))),
            ExprKind::Select(c, a, b) => {
                Term::Select(Box::new(self.term(c)), Box::new(self.term(a)), Box::new(self.term(b)))
            }
            ExprKind::Reduce { monoid, over, filter, body } => {
                let integer = self.graph.cascade.kind(e) == Kind::Int && *monoid == Monoid::Sum;
                let reduction = self.reduction(*monoid, over, filter.as_deref(), body, false);
                self.lift(reduction, e, integer)
            }
        }
    }

    /// A nested reduction as a node, or as a read of an equal node that exists.
    fn lift(&mut self, reduction: Reduction, e: &Expr, integer: bool) -> Term {
        let mut free = BTreeSet::new();
        reduction.body.indices(&mut free);
        reduction.filter.iter().for_each(|t| t.indices(&mut free));
        reduction.over.iter().for_each(|i| _ = free.remove(i));
        let mut axes: Vec<IndexId> = self.target_order.iter().copied().filter(|i| free.remove(i)).collect();
        axes.extend(free);
        let read = |id: NodeId, axes: &[IndexId]| Term::Read(id, axes.iter().map(|&i| IndexExpr::var(i)).collect());
        let def = Def::Reduce(reduction);
        let equal = self.graph.ids().find(|&n| {
            let node = &self.graph[n];
            let exact = matches!(node.dtype, None | Some(DType::F32 | DType::F64 | DType::I32));
            node.def == def && node.axes == axes && exact
        });
        if let Some(id) = equal {
            return read(id, &axes);
        }
        let Def::Reduce(r) = &def else { unreachable!("made above") };
        let name = self.fresh(&format!("{}.{}", self.target, r.monoid.name(&self.graph.cascade)));
        let extents = axes.iter().map(|&i| SizeExpr::rank(self.graph.cascade[i].rank)).collect();
        let dtype = integer.then_some(DType::I32);
        let node = Node {
            name,
            axes: axes.clone(),
            extents,
            def,
            dtype,
            tensor: None,
            statement: Some(self.statement),
            span: e.span,
        };
        let id = self.push(node);
        read(id, &axes)
    }

    fn fresh(&self, wanted: &str) -> String {
        fresh_name(&self.graph.nodes, wanted)
    }
}

enum Value {
    Reduction(Reduction),
    Term(Term),
}

/// `wanted`, or `wanted2`, `wanted3`, … if taken.
pub(crate) fn fresh_name(nodes: &[Node], wanted: &str) -> String {
    let taken = |n: &str| nodes.iter().any(|node| node.name == n);
    if !taken(wanted) {
        return wanted.to_string();
    }
    (2..).map(|k| format!("{wanted}{k}")).find(|n| !taken(n)).expect("some number is free")
}

/// The body of a user's monoid as a term over its two arguments; `None` if it is more than that.
pub fn argument_term(e: &Expr) -> Option<Term> {
    Some(match &e.kind {
        ExprKind::Number(v) => Term::Number(*v),
        ExprKind::Param(p) => Term::Param(*p),
        ExprKind::Size(s) => Term::Size(s.clone()),
        ExprKind::Argument(k) => Term::Argument(*k),
        ExprKind::Unary(op, x) => Term::Unary(*op, Box::new(argument_term(x)?)),
        ExprKind::Binary(op, a, b) => Term::Binary(*op, Box::new(argument_term(a)?), Box::new(argument_term(b)?)),
        ExprKind::Select(c, a, b) => {
            Term::Select(Box::new(argument_term(c)?), Box::new(argument_term(a)?), Box::new(argument_term(b)?))
        }
        ExprKind::Position(_) | ExprKind::Read { .. } | ExprKind::Reduce { .. } => return None,
    })
}

fn split_and(e: &Expr, out: &mut Vec<Expr>) {
    match &e.kind {
        ExprKind::Binary(einloom_cascade::BinaryOp::And, a, b) => {
            split_and(a, out);
            split_and(b, out);
        }
        _ => match within(e) {
            Some(bounds) => out.extend(bounds),
            None => out.push(e.clone()),
        },
    }
}

/// `abs(m - n) <= c` as its two bounds, `m - n <= c` and `n - m <= c`, where it is a condition on positions alone: each of them is a bound
/// on a loop.
fn within(e: &Expr) -> Option<[Expr; 2]> {
    use einloom_cascade::BinaryOp::{Ge, Gt, Le, Lt, Sub};
    let ExprKind::Binary(op, a, b) = &e.kind else { return None };
    let (op, inner, most) = match (op, &a.kind, &b.kind) {
        (Le | Lt, ExprKind::Unary(UnaryOp::Abs, x), _) => (*op, x, b),
        (Ge, _, ExprKind::Unary(UnaryOp::Abs, x)) => (Le, x, a),
        (Gt, _, ExprKind::Unary(UnaryOp::Abs, x)) => (Lt, x, a),
        _ => return None,
    };
    let reads = |e: &Expr| {
        let mut found = false;
        visit_reads(e, &mut |_, _| found = true);
        found || has_reduction(e)
    };
    if reads(inner) || reads(most) {
        return None;
    }
    let other = match &inner.kind {
        ExprKind::Binary(Sub, x, y) => ExprKind::Binary(Sub, y.clone(), x.clone()),
        _ => ExprKind::Unary(UnaryOp::Neg, inner.clone()),
    };
    let bound = |x: Box<Expr>| Expr::new(ExprKind::Binary(op, x, most.clone()), e.span);
    Some([bound(inner.clone()), bound(Box::new(Expr::new(other, inner.span)))])
}

fn has_reduction(e: &Expr) -> bool {
    let mut found = matches!(e.kind, ExprKind::Reduce { .. });
    e.for_each_child(&mut |c| found |= has_reduction(c));
    found
}

fn visit_reads(e: &Expr, f: &mut dyn FnMut(TensorId, &[IndexExpr])) {
    if let ExprKind::Read { tensor, at } = &e.kind {
        f(*tensor, at);
    }
    e.for_each_child(&mut |c| visit_reads(c, f));
}

/// Every index that occurs, bound or free.
fn indices_of(e: &Expr, out: &mut BTreeSet<IndexId>) {
    match &e.kind {
        ExprKind::Position(i) => drop(out.insert(*i)),
        ExprKind::Read { at, .. } => at.iter().for_each(|a| a.visit_indices(&mut |i| _ = out.insert(i))),
        ExprKind::Reduce { over, .. } => out.extend(over.iter().copied()),
        _ => {}
    }
    e.for_each_child(&mut |c| indices_of(c, out));
}

/// Renames the free occurrences of an index.
fn rename_expr(e: &Expr, from: IndexId, to: IndexId) -> Expr {
    let map = |i: IndexId| if i == from { to } else { i };
    let go = |x: &Expr| Box::new(rename_expr(x, from, to));
    let kind = match &e.kind {
        ExprKind::Position(i) => ExprKind::Position(map(*i)),
        ExprKind::Read { tensor, at } => {
            ExprKind::Read { tensor: *tensor, at: at.iter().map(|a| a.map_indices(&map)).collect() }
        }
        ExprKind::Unary(op, x) => ExprKind::Unary(*op, go(x)),
        ExprKind::Binary(op, a, b) => ExprKind::Binary(*op, go(a), go(b)),
        ExprKind::Select(c, a, b) => ExprKind::Select(go(c), go(a), go(b)),
        ExprKind::Reduce { monoid, over, filter, body } if !over.contains(&from) => ExprKind::Reduce {
            monoid: *monoid,
            over: over.clone(),
            filter: filter.as_ref().map(|f| go(f)),
            body: go(body),
        },
        other => other.clone(),
    };
    Expr::new(kind, e.span)
}

/// Renames the indices of a term.
pub(crate) fn rename_term(t: &Term, map: &impl Fn(IndexId) -> IndexId) -> Term {
    match t {
        Term::Position(i) => Term::Position(map(*i)),
        Term::Read(n, at) => Term::Read(*n, at.iter().map(|e| e.map_indices(map)).collect()),
        Term::Old(n, at) => Term::Old(*n, at.iter().map(|e| e.map_indices(map)).collect()),
        other => other.map_children(&mut |c| rename_term(c, map)),
    }
}
