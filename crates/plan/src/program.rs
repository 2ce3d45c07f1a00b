//! Kernels over numbered nodes become a program over declared tensors.

use crate::assembled::Stored;
use crate::expr::Exprs;
use crate::problem::{ItemDef, Problem};
use crate::types::Types;
use einloom_algebra::NodeId;
use einloom_cascade::Role;
use einloom_tile::{Kernel, Op, Program, TensorDecl, TensorId, TensorRole};
use std::collections::{BTreeMap, BTreeSet};

/// The program of these kernels: all inputs, then the outputs, then what lives in between.
pub(crate) fn program_of(p: &Problem, x: &Exprs, types: &mut Types, mut kernels: Vec<Kernel>) -> Program {
    let mut used = BTreeSet::new();
    for kernel in &mut kernels {
        tensors(&mut kernel.body, &mut |t| {
            used.insert(NodeId(t.0));
        });
    }
    let all = || (0..p.items.len() as u32).map(NodeId);
    let inputs = all().filter(|&n| matches!(p[n].def, ItemDef::Input));
    let outputs = p.outputs.iter().copied().filter(|n| used.contains(n));
    let mut order: Vec<NodeId> = inputs.chain(outputs).collect();
    order.extend(used.iter().copied().filter(|n| !order.contains(n)).collect::<Vec<_>>());
    let place: BTreeMap<NodeId, u32> = order.iter().enumerate().map(|(k, &n)| (n, k as u32)).collect();
    for kernel in &mut kernels {
        tensors(&mut kernel.body, &mut |t| *t = TensorId(place[&NodeId(t.0)]));
    }
    let declare = |&n: &NodeId| {
        let item = &p[n];
        let role = match item.role {
            Role::Input => TensorRole::Input,
            Role::Output => TensorRole::Output,
            Role::Intermediate => TensorRole::Temporary,
        };
        let dtype = p.storage(n, types, x);
        let dims = match &item.at {
            Some(Stored::Later(later)) => &later.extents,
            _ => &item.extents,
        };
        TensorDecl { name: item.name.clone(), dims: dims.clone(), shape: item.shape.clone(), dtype, role, layout: None }
    };
    Program { name: p.name.clone(), tensors: order.iter().map(declare).collect(), kernels }
}

/// Calls `f` on every tensor that the operations mention.
fn tensors(ops: &mut [Op], f: &mut dyn FnMut(&mut TensorId)) {
    for op in ops {
        match op {
            Op::Load { tensor, .. } | Op::Store { tensor, .. } => f(tensor),
            Op::Stream { guards, body, .. } => {
                guards.iter_mut().for_each(|g| {
                    g.elements_mut(&mut |e| [&mut e.of, &mut e.low, &mut e.high].into_iter().for_each(&mut *f));
                });
                tensors(body, f);
            }
            _ => {}
        }
    }
}
