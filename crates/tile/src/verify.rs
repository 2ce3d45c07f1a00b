//! Checks that a tile program is well-formed. Backends and the model may rely on every rule checked here.

mod access;
mod blocks;
mod body;
mod guards;
mod scalars;

use crate::{AxisKind, Kernel, Op, Program, TensorRole};
use std::collections::BTreeSet;
use std::fmt;

/// A rule that a program breaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    /// The kernel's name; empty if the program as a whole is at fault.
    pub kernel: String,
    /// The place of the operation: its number in the body and in each nested stream, from 0. Empty for a
    /// declaration.
    pub op: Vec<usize>,
    /// What is wrong, naming the rule.
    pub message: String,
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.kernel.is_empty() {
            write!(f, "kernel {}", self.kernel)?;
            if !self.op.is_empty() {
                let op: Vec<String> = self.op.iter().map(usize::to_string).collect();
                write!(f, ", op {}", op.join("."))?;
            }
            write!(f, ": ")?;
        }
        f.write_str(&self.message)
    }
}

/// Every defect of the program; none if it is well-formed. Gathers may still read outside a tensor at run time:
/// that depends on data.
pub fn verify(program: &Program) -> Vec<Defect> {
    let mut defects = vec![];
    let mut written = BTreeSet::new();
    for kernel in &program.kernels {
        if declarations(kernel, &mut defects) {
            body::check(program, kernel, &mut defects);
            blocks::check(kernel, &mut defects);
        }
        tensor_use(program, kernel, &mut written, &mut defects);
    }
    for (k, tensor) in program.tensors.iter().enumerate() {
        if let Some(message) = tensor.misplaced() {
            defects.push(Defect { kernel: String::new(), op: vec![], message });
        }
        if tensor.role == TensorRole::Output && !written.contains(&k) {
            let message = format!("output `{}` is never stored", tensor.name);
            defects.push(Defect { kernel: String::new(), op: vec![], message });
        }
    }
    defects
}

/// Axes, grid and values. False if the body cannot be checked on top of them.
fn declarations(kernel: &Kernel, defects: &mut Vec<Defect>) -> bool {
    let before = defects.len();
    let mut fault = |message| defects.push(Defect { kernel: kernel.name.clone(), op: vec![], message });
    for axis in &kernel.axes {
        if axis.tile == 0 {
            fault(format!("axis `{}` has tile 0; a tile is at least 1", axis.name));
        } else if axis.kind == AxisKind::Whole && axis.tile < axis.extent {
            fault(format!(
                "whole axis `{}` has tile {} but extent {}; its tile is at least its extent",
                axis.name, axis.tile, axis.extent
            ));
        }
    }
    for (k, id) in kernel.grid.iter().enumerate() {
        match kernel.axes.get(id.at()) {
            None => fault(format!("the grid names axis {}, which is not declared", id.0)),
            Some(a) if a.kind != AxisKind::Grid => fault(format!("the grid lists `{}`, which is no grid axis", a.name)),
            Some(a) if kernel.grid[..k].contains(id) => fault(format!("the grid lists axis `{}` twice", a.name)),
            Some(_) => {}
        }
    }
    for (k, axis) in kernel.axes.iter().enumerate() {
        if axis.kind == AxisKind::Grid && !kernel.grid.iter().any(|a| a.at() == k) {
            fault(format!("grid axis `{}` is missing from the grid", axis.name));
        }
    }
    for value in &kernel.values {
        for side in [value.rows, value.cols].into_iter().flatten() {
            if side.at() >= kernel.axes.len() {
                fault(format!("tile `{}` has axis {}, which is not declared", value.name, side.0));
            }
        }
        if value.rows.is_some() && value.rows == value.cols {
            fault(format!("tile `{}` has the same axis on both sides", value.name));
        }
    }
    defects.len() == before
}

/// Which tensors a kernel reads and writes, and whether it may. Adds what it writes to `written`.
fn tensor_use(program: &Program, kernel: &Kernel, written: &mut BTreeSet<usize>, defects: &mut Vec<Defect>) {
    let (mut reads, mut writes) = (vec![], vec![]);
    accesses(&kernel.body, &mut vec![], &mut reads, &mut writes);
    let mut fault =
        |op: &Vec<usize>, message| defects.push(Defect { kernel: kernel.name.clone(), op: op.clone(), message });
    for (path, id) in &reads {
        let Some(tensor) = program.tensors.get(*id) else { continue };
        if writes.iter().any(|w| w.1 == *id) {
            fault(path, format!("tensor `{}` is both read and written by one kernel", tensor.name));
        } else if tensor.role != TensorRole::Input && !written.contains(id) {
            fault(path, format!("tensor `{}` is read before any kernel has written it", tensor.name));
        }
    }
    for (path, id) in &writes {
        if let Some(tensor) = program.tensors.get(*id)
            && tensor.role == TensorRole::Input
        {
            fault(path, format!("input `{}` is stored to", tensor.name));
        }
    }
    written.extend(writes.iter().map(|w| w.1));
}

type Access = (Vec<usize>, usize);

fn accesses(ops: &[Op], path: &mut Vec<usize>, reads: &mut Vec<Access>, writes: &mut Vec<Access>) {
    for (k, op) in ops.iter().enumerate() {
        path.push(k);
        match op {
            Op::Load { tensor, .. } => reads.push((path.clone(), tensor.at())),
            Op::Store { tensor, .. } => writes.push((path.clone(), tensor.at())),
            Op::Stream { guards, body, .. } => {
                reads.extend(guards.iter().flat_map(|g| g.tensors()).map(|t| (path.clone(), t.at())));
                accesses(body, path, reads, writes);
            }
            _ => {}
        }
        path.pop();
    }
}
