//! Kernels that differ in names alone.
//!
//! Layers of a network repeat each other's kernels on other tensors. What is found of one holds for all of them.

use crate::ir::{Kernel, Op, Program, TensorDecl, TensorId};

/// A kernel of a program with its tensors as text that is the same for every kernel which differs from it in names alone: of the kernel, its axes,
/// tiles and tensors, which are numbered as the kernel mentions them.
pub fn alike(program: &Program, kernel: &Kernel) -> String {
    let mut order = vec![];
    let mut kernel = Kernel { name: String::new(), comments: vec![], ..kernel.clone() };
    kernel.axes.iter_mut().for_each(|a| a.name.clear());
    kernel.values.iter_mut().for_each(|v| v.name.clear());
    number(&mut kernel.body, &mut order);
    let decl = |&t: &TensorId| TensorDecl { name: String::new(), ..program.tensor(t).clone() };
    let tensors: Vec<TensorDecl> = order.iter().map(decl).collect();
    format!("{tensors:?} {kernel:?}")
}

/// Numbers tensors in the order in which operations mention them.
fn number(ops: &mut [Op], order: &mut Vec<TensorId>) {
    for op in ops {
        match op {
            Op::Load { tensor, .. } | Op::Store { tensor, .. } => *tensor = numbered(*tensor, order),
            Op::Stream { guards, body, .. } => {
                for guard in guards {
                    guard.elements_mut(&mut |e| {
                        [&mut e.of, &mut e.low, &mut e.high].into_iter().for_each(|t| *t = numbered(*t, order));
                    });
                }
                number(body, order);
            }
            _ => {}
        }
    }
}

fn numbered(tensor: TensorId, order: &mut Vec<TensorId>) -> TensorId {
    let at = order.iter().position(|&o| o == tensor).unwrap_or_else(|| {
        order.push(tensor);
        order.len() - 1
    });
    TensorId(at as u32)
}
