//! The numbers: what an operation computes from the tiles that are in the machine when it runs.

use super::code::{Access, Code, Compiler, Row, Source, Value};
use super::engine::{Engine, Op, Setup};
use super::part::Carried;
use crate::{Problem, Program};
use einloom_algebra::{Def, NodeId};
use einloom_cascade::meaning::{Array, Arrays};
use einloom_cascade::{BinaryOp, Bound, IndexId, Monoid, numeric};
use std::collections::BTreeMap;

/// Tensors in DRAM, and the Einsums of the present kernel as code.
pub(super) struct Values<'a> {
    program: &'a Program,
    bound: Bound,
    /// By instance: inputs, and results of kernels that others or the caller want.
    memory: Vec<BTreeMap<NodeId, Vec<f64>>>,
    parts: Vec<Compiled>,
    spare: Vec<Vec<f64>>,
}

struct Compiled {
    /// The node's axes, then what it reduces.
    indices: Vec<IndexId>,
    axes: usize,
    accesses: Vec<Access>,
    filter: Vec<Code>,
    body: Code,
    monoid: Option<Monoid>,
    initial: Option<f64>,
}

impl<'a> Values<'a> {
    pub fn new(program: &'a Program, bound: &Bound, inputs: &[Arrays], instances: usize) -> Result<Self, Vec<Problem>> {
        if inputs.len() != instances {
            let message = format!("there are inputs for {} of {instances} instances", inputs.len());
            return Err(vec![Problem::new("inputs", message)]);
        }
        let graph = &program.graph;
        let mut memory = vec![];
        for arrays in inputs {
            let mut own = BTreeMap::new();
            for id in graph.ids().filter(|&id| matches!(graph[id].def, Def::Input)) {
                let node = &graph[id];
                let shape = shape(program, bound, id);
                let given = arrays.get(&node.name).filter(|a| a.shape == shape && a.values.len() == count(&shape));
                let Some(given) = given else {
                    let message = format!("the input {} is missing or not of shape {shape:?}", node.name);
                    return Err(vec![Problem::new("inputs", message)]);
                };
                let rounded = |&x: &f64| node.dtype.map_or(x, |d| numeric::round(d, x));
                own.insert(id, given.values.iter().map(rounded).collect());
            }
            memory.push(own);
        }
        Ok(Self { program, bound: bound.clone(), memory, parts: vec![], spare: vec![] })
    }

    /// Takes up a kernel.
    ///
    /// # Errors
    /// Einsums that are not executed.
    pub fn kernel(&mut self, setup: &Setup<'_>) -> Result<(), Vec<Problem>> {
        let graph = &self.program.graph;
        self.parts.clear();
        let mut problems = vec![];
        for part in setup.parts {
            let node = &graph[part.einsum.node];
            let mut indices = node.axes.clone();
            let (mut monoid, mut initial, mut filters) = (None, None, &[][..]);
            let body = match &node.def {
                Def::Input => continue,
                Def::Map(t) => t,
                Def::Reduce(r) => {
                    indices.extend(&r.over);
                    monoid = Some(r.monoid);
                    filters = &r.filter;
                    &r.body
                }
                Def::Iterative { initial: first, step, .. } => {
                    initial = first.first().map(|f| &f.1);
                    step
                }
            };
            let mut compiler =
                Compiler { program: self.program, bound: setup.bound, part, indices: &indices, accesses: vec![] };
            let known =
                |m: Option<Monoid>| matches!(m, None | Some(Monoid::Sum | Monoid::Prod | Monoid::Max | Monoid::Min));
            let code = compiler.term(body).and_then(|body| {
                let filter = filters.iter().map(|f| compiler.term(f)).collect::<Result<Vec<_>, _>>()?;
                let initial = initial.map(|t| compiler.term(t)).transpose()?;
                let initial = match initial {
                    None => None,
                    Some(Code::Number(x)) => Some(x),
                    Some(_) => return Err("starts from values that differ from place to place".to_owned()),
                };
                if !known(monoid) {
                    return Err("reduces by something other than sum, prod, max or min".to_owned());
                }
                Ok((body, filter, initial))
            });
            match code {
                Ok((body, filter, initial)) => {
                    let (accesses, axes) = (compiler.accesses, node.axes.len());
                    self.parts.push(Compiled { axes, accesses, filter, body, monoid, initial, indices });
                }
                Err(message) => {
                    let field = format!("Einsum {}", part.einsum.name);
                    let hint = "simulate without numbers";
                    problems.push(Problem::new(field, format!("{message}: not executed")).hint(hint));
                }
            }
            if part.exported {
                for memory in &mut self.memory {
                    let shape = shape(self.program, &self.bound, part.einsum.node);
                    let mut values = vec![0.0; count(&shape)];
                    if let (Some(first), Def::Iterative { .. }) = (initial_of(self.parts.last()), &node.def) {
                        values.fill(first);
                    }
                    memory.insert(part.einsum.node, values);
                }
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(problems) }
    }

    /// The numbers of an operation's result, so far.
    pub fn run(
        &mut self,
        setup: &Setup<'_>,
        op: &Op,
        engine: &Engine<'_>,
        slots: &[Option<usize>],
        result: usize,
    ) -> Vec<f64> {
        let part = &setup.parts[op.part as usize];
        let compiled = &self.parts[op.part as usize];
        let cascade = &self.program.graph.cascade;
        let extents = setup.extents(op.tile as usize);
        let at = setup.nest.at(op.tile as usize);
        let range = |rank| match setup.nest.cut(rank) {
            Some(cut) => setup.nest.range(cut, at[cut]),
            None => (0, setup.bound.size(rank)),
        };
        let ranges: Vec<(usize, usize)> = compiled.indices.iter().map(|i| range(cascade[*i].rank)).collect();
        let memory = &self.memory[op.instance as usize];
        let no_data: &[f64] = &[];
        let initials: Vec<[f64; 1]> = compiled.accesses.iter().map(|a| [self.initial(setup, part, a)]).collect();
        let mut sources = vec![];
        for (access, initial) in compiled.accesses.iter().zip(&initials) {
            let read = &part.reads[access.read];
            let mut source = Source { data: no_data, base: 0, strides: vec![0; compiled.indices.len()] };
            let dims: Vec<(i64, usize)> = match read.from {
                None => {
                    source.data = memory.get(&access.node).map_or(no_data, Vec::as_slice);
                    shape(self.program, &self.bound, access.node).into_iter().map(|n| (0, n)).collect()
                }
                Some(_) if engine.is_initial(op, read) => {
                    source.data = initial;
                    vec![]
                }
                Some(from) => {
                    source.data = slots[access.read].map_or(no_data, |s| engine.values(s));
                    let carried = &setup.parts[from].result;
                    let of = extents.tensor(self.program, read.node, Some(carried));
                    let first = |rank| match setup.nest.cut(rank) {
                        // The slot holds the one slice that is meant.
                        Some(cut) if carried[cut] == Carried::Slices => None,
                        Some(cut) => Some(setup.nest.range(cut, at[cut]).0 as i64),
                        None => Some(0),
                    };
                    of.into_iter().map(|(r, n)| (first(r).unwrap_or(i64::MIN), n)).collect()
                }
            };
            let mut stride = 1i64;
            for ((first, n), (coefficients, offset)) in dims.iter().zip(&access.at).rev() {
                if *first != i64::MIN {
                    source.base += stride * (offset - first);
                    for (s, c) in source.strides.iter_mut().zip(coefficients) {
                        *s += stride * c;
                    }
                }
                stride *= *n as i64;
            }
            sources.push(source);
        }
        let mut values = engine.values(result).to_vec();
        walk(compiled, &ranges, &sources, &mut self.spare, &mut values);
        let node = &self.program.graph[part.einsum.node];
        if engine.is_complete(result) {
            if let Some(dtype) = node.dtype {
                values.iter_mut().for_each(|x| *x = numeric::round(dtype, *x));
            }
            if part.exported {
                self.export(setup, op, &values);
            }
        }
        values
    }

    fn initial(&self, setup: &Setup<'_>, part: &super::part::Part<'_>, access: &Access) -> f64 {
        let from = part.reads[access.read].from;
        let node = from.map(|f| setup.parts[f].einsum.node);
        let of = node.and_then(|n| setup.parts.iter().position(|p| p.einsum.node == n));
        of.and_then(|p| self.parts[p].initial).unwrap_or(f64::NAN)
    }

    /// Copies a tile to its place in DRAM.
    fn export(&mut self, setup: &Setup<'_>, op: &Op, values: &[f64]) {
        let part = &setup.parts[op.part as usize];
        let at = setup.nest.at(op.tile as usize);
        let extents = setup.extents(op.tile as usize).tensor(self.program, part.einsum.node, Some(&part.result));
        let whole = shape(self.program, &self.bound, part.einsum.node);
        let first = |rank| match setup.nest.cut(rank) {
            Some(cut) if part.result[cut] == Carried::Slices => at[cut] as usize + 1,
            Some(cut) => setup.nest.range(cut, at[cut]).0,
            None => 0,
        };
        let firsts: Vec<usize> = extents.iter().map(|d| first(d.0)).collect();
        let Some(out) = self.memory[op.instance as usize].get_mut(&part.einsum.node) else { return };
        let row = extents.last().map_or(1, |d| d.1).max(1);
        let mut position = vec![0usize; extents.len()];
        for chunk in values.chunks(row) {
            let place = position.iter().zip(&firsts).zip(&whole).fold(0, |p, ((x, f), n)| p * n + x + f);
            if let Some(to) = out.get_mut(place..place + chunk.len()) {
                to.copy_from_slice(chunk);
            }
            for d in (0..extents.len().saturating_sub(1)).rev() {
                position[d] += 1;
                if position[d] < extents[d].1 {
                    break;
                }
                position[d] = 0;
            }
        }
    }

    /// The cascade's outputs, by instance.
    pub fn outputs(self) -> Vec<Arrays> {
        let (program, bound) = (self.program, &self.bound);
        let one = |memory: BTreeMap<NodeId, Vec<f64>>| {
            let named = program.graph.outputs.iter().filter_map(|&node| {
                let values = memory.get(&program.root(node))?.clone();
                Some((program.graph[node].name.clone(), Array { shape: shape(program, bound, node), values }))
            });
            named.collect()
        };
        self.memory.into_iter().map(one).collect()
    }
}

fn initial_of(compiled: Option<&Compiled>) -> Option<f64> {
    compiled.and_then(|c| c.initial)
}

fn shape(program: &Program, bound: &Bound, node: NodeId) -> Vec<usize> {
    program.graph[node].extents.iter().map(|e| bound.extent(e).max(0) as usize).collect()
}

fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Evaluates an Einsum at every point of the ranges, into `values` over its axes.
fn walk(
    compiled: &Compiled,
    ranges: &[(usize, usize)],
    sources: &[Source<'_>],
    spare: &mut Vec<Vec<f64>>,
    values: &mut Vec<f64>,
) {
    let axes = compiled.axes;
    let total = ranges[..axes].iter().map(|r| r.1).product();
    let identity = match compiled.monoid {
        Some(Monoid::Prod) => 1.0,
        Some(Monoid::Max) => f64::NEG_INFINITY,
        Some(Monoid::Min) => f64::INFINITY,
        _ => 0.0,
    };
    if values.len() != total {
        values.clear();
        values.resize(total, identity);
    }
    let moving = axes.checked_sub(1);
    let length = moving.map_or(1, |m| ranges[m].1);
    if total == 0 {
        return;
    }
    let mut at: Vec<i64> = ranges.iter().map(|r| r.0 as i64).collect();
    let mut row = 0;
    loop {
        let out = &mut values[row * length..][..length];
        points(&ranges[axes..], axes, &mut at, &mut |at| {
            let mut along = Row { sources, at, moving, length, spare };
            let holds: Vec<Value> = compiled.filter.iter().map(|f| along.eval(f)).collect();
            if holds.iter().any(|h| matches!(h, Value::Same(x) if *x == 0.0)) {
                return;
            }
            let value = along.eval(&compiled.body);
            let used = |k: usize| holds.iter().all(|h| h.get(k) != 0.0);
            combine(compiled.monoid, out, &value, if holds.is_empty() { None } else { Some(&used) });
            holds.into_iter().chain([value]).for_each(|v| along.put_back(v));
        });
        row += 1;
        // The next row: all axes but the moving one.
        let mut open = false;
        for d in (0..axes.saturating_sub(1)).rev() {
            at[d] += 1;
            if at[d] < (ranges[d].0 + ranges[d].1) as i64 {
                open = true;
                break;
            }
            at[d] = ranges[d].0 as i64;
        }
        if !open {
            return;
        }
    }
}

/// Calls `f` at every point of the reduced indices, which start at `from` of the positions.
fn points(ranges: &[(usize, usize)], from: usize, at: &mut Vec<i64>, f: &mut dyn FnMut(&[i64])) {
    let [(start, n), inner @ ..] = ranges else { return f(at) };
    for x in *start..start + n {
        at[from] = x as i64;
        points(inner, from + 1, at, f);
    }
    at[from] = *start as i64;
}

fn combine(monoid: Option<Monoid>, out: &mut [f64], value: &Value, used: Option<&dyn Fn(usize) -> bool>) {
    let op = match monoid {
        None => {
            out.iter_mut().enumerate().for_each(|(k, o)| *o = value.get(k));
            return;
        }
        Some(Monoid::Prod) => BinaryOp::Mul,
        Some(Monoid::Max) => BinaryOp::Max,
        Some(Monoid::Min) => BinaryOp::Min,
        Some(_) => BinaryOp::Add,
    };
    match (value, used, op) {
        (Value::Row(row), None, BinaryOp::Add) => out.iter_mut().zip(row).for_each(|(o, x)| *o += x),
        (value, None, op) => out.iter_mut().enumerate().for_each(|(k, o)| *o = op.apply(*o, value.get(k))),
        (value, Some(used), op) => {
            out.iter_mut().enumerate().filter(|(k, _)| used(*k)).for_each(|(k, o)| *o = op.apply(*o, value.get(k)));
        }
    }
}
