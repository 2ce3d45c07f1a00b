//! Which statements a statement needs.

use crate::{Cascade, Expr, ExprKind, IndexExpr, Span, Statement, Step, TensorId};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

/// A use of a tensor's element.
#[derive(Debug)]
pub(super) struct Use<'c> {
    pub tensor: TensorId,
    pub at: &'c [IndexExpr],
    pub span: Span,
}

/// Every use in a statement, gathers included, in source order.
pub(super) fn uses(statement: &Statement) -> Vec<Use<'_>> {
    let mut out = vec![];
    in_expr(&statement.value, &mut out);
    out
}

fn in_expr<'c>(expr: &'c Expr, out: &mut Vec<Use<'c>>) {
    if let ExprKind::Read { tensor, at } = &expr.kind {
        out.push(Use { tensor: *tensor, at, span: expr.span });
        at.iter().for_each(|e| in_index(e, expr.span, out));
    }
    expr.for_each_child(&mut |child| in_expr(child, out));
}

fn in_index<'c>(e: &'c IndexExpr, span: Span, out: &mut Vec<Use<'c>>) {
    for (_, atom) in &e.terms {
        match atom {
            crate::IndexAtom::Var(_) => {}
            crate::IndexAtom::Floor { numerator, .. } => in_index(numerator, span, out),
            crate::IndexAtom::Gather { tensor, at } => {
                out.push(Use { tensor: *tensor, at, span });
                at.iter().for_each(|e| in_index(e, span, out));
            }
        }
    }
}

/// Statement numbers by what they define.
#[derive(Debug, Default)]
pub(super) struct Definitions {
    /// Per tensor the statement that defines it, or its slices at `t + 1`.
    pub main: Vec<Option<usize>>,
    /// Per tensor the statement that defines its slice 0.
    pub initial: Vec<Option<usize>>,
}

impl Definitions {
    pub fn new(cascade: &Cascade) -> Self {
        let none = vec![None; cascade.tensors.len()];
        let mut out = Self { main: none.clone(), initial: none };
        for (k, statement) in cascade.statements.iter().enumerate() {
            let first = cascade[statement.target].iterative.is_some_and(|d| is_fixed(&statement.at[d]));
            let place = if first { &mut out.initial } else { &mut out.main };
            place[statement.target.0 as usize] = Some(k);
        }
        out
    }

    /// The statements that a use needs: that of slice 0 alone when this is what it reads.
    pub fn needed(&self, cascade: &Cascade, of: &Use<'_>) -> impl Iterator<Item = usize> + use<> {
        let first = cascade[of.tensor].iterative.is_some_and(|d| reads_first(&of.at[d]));
        let main = if first { None } else { self.main[of.tensor.0 as usize] };
        main.into_iter().chain(self.initial[of.tensor.0 as usize])
    }
}

fn is_fixed(e: &IndexExpr) -> bool {
    e.terms.is_empty()
}

/// Whether it is position 0.
pub(super) fn reads_first(e: &IndexExpr) -> bool {
    is_fixed(e) && e.offset.as_constant() == Some(0)
}

/// Strongly connected components, each in ascending order. Written with an explicit stack (Tarjan 1972, in the
/// iterative form of Pearce 2016), for a chain of statements may be as long as the text.
pub(super) fn components(needs: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let count = needs.len();
    let (mut number, mut low) = (vec![usize::MAX; count], vec![0; count]);
    let (mut on_stack, mut stack) = (vec![false; count], vec![]);
    let mut next = 0;
    let mut out = vec![];
    for root in 0..count {
        if number[root] != usize::MAX {
            continue;
        }
        let mut calls = vec![(root, 0)];
        while let Some((v, edge)) = calls.pop() {
            if edge == 0 {
                (number[v], low[v]) = (next, next);
                next += 1;
                stack.push(v);
                on_stack[v] = true;
            }
            match needs[v].get(edge) {
                Some(&w) => {
                    calls.push((v, edge + 1));
                    if number[w] == usize::MAX {
                        calls.push((w, 0));
                    } else if on_stack[w] {
                        low[v] = low[v].min(number[w]);
                    }
                }
                None => {
                    if low[v] == number[v] {
                        let mut component = vec![];
                        while let Some(w) = stack.pop() {
                            on_stack[w] = false;
                            component.push(w);
                            if w == v {
                                break;
                            }
                        }
                        component.sort_unstable();
                        out.push(component);
                    }
                    if let Some(&(parent, _)) = calls.last() {
                        low[parent] = low[parent].min(low[v]);
                    }
                }
            }
        }
    }
    out
}

/// An order in which each item comes after what it needs, as near to ascending as that allows. Items on a cycle, and
/// those that need one, are left out.
pub(super) fn topological(needs: &[Vec<usize>]) -> Vec<usize> {
    let mut users = vec![vec![]; needs.len()];
    for (k, needed) in needs.iter().enumerate() {
        needed.iter().for_each(|&n| users[n].push(k));
    }
    let mut missing: Vec<usize> = needs.iter().map(Vec::len).collect();
    let mut ready: BinaryHeap<_> = (0..needs.len()).filter(|&k| missing[k] == 0).map(Reverse).collect();
    let mut out = vec![];
    while let Some(Reverse(k)) = ready.pop() {
        out.push(k);
        for &user in &users[k] {
            missing[user] -= 1;
            if missing[user] == 0 {
                ready.push(Reverse(user));
            }
        }
    }
    out
}

/// A shortest way from `start` back to itself among `within`; `start` alone if there is none.
pub(super) fn cycle(start: usize, within: &[usize], needs: &[Vec<usize>]) -> Vec<usize> {
    let mut came_from = BTreeMap::new();
    let mut queue = VecDeque::from([start]);
    while let Some(v) = queue.pop_front() {
        for &w in &needs[v] {
            if w == start {
                let mut path = vec![start];
                let mut at = v;
                while at != start {
                    path.push(at);
                    at = came_from[&at];
                }
                path[1..].reverse();
                return path;
            }
            if within.binary_search(&w).is_ok() && !came_from.contains_key(&w) {
                came_from.insert(w, v);
                queue.push_back(w);
            }
        }
    }
    vec![start]
}

/// The statements of a step.
pub(super) fn members(step: &Step) -> &[usize] {
    match step {
        Step::Once(k) => std::slice::from_ref(k),
        Step::Iterate { statements, .. } => statements,
    }
}
