//! One kernel: its signature, its windows, its operations in order.

use super::element::Emitter;
use super::names::Names;
use super::type_name;
use super::writer::Writer;
use crate::schedule::{Facts, Made, Schedule};
use einloom_tile::{Kernel, Op, Program, TensorId, grid_steps, print_kernel};
use std::collections::{BTreeMap, BTreeSet};

/// The text of a kernel.
pub(super) struct Emitted {
    pub function: String,
    pub text: String,
    pub tensors: Vec<TensorId>,
    pub checked_loads: Vec<TensorId>,
}

/// Emits the `number`th kernel of a program.
pub(super) fn emit(program: &Program, kernel: &Kernel, number: usize, schedule: &Schedule) -> Emitted {
    let mut e = Emitter {
        facts: Facts::new(program, kernel),
        schedule,
        names: Names::new(program, kernel, number),
        w: Writer::default(),
        number,
        open: vec![],
        pending: BTreeSet::new(),
        staged: BTreeMap::new(),
        whole: BTreeSet::new(),
        streams: 0,
        checked_loads: vec![],
    };
    let (mut read, mut written) = (BTreeSet::new(), BTreeSet::new());
    accesses(&kernel.body, &mut read, &mut written);
    let tensors: Vec<TensorId> = read.iter().chain(&written).copied().collect();
    for line in kernel.comments.iter().flat_map(|c| c.lines()) {
        e.w.line(format!("// {line}"));
    }
    e.w.line("//");
    for line in print_kernel(program, kernel).lines() {
        e.w.line(format!("//   {line}").trim_end());
    }
    let parameters: Vec<String> = tensors
        .iter()
        .map(|&t| {
            let constant = if written.contains(&t) { "" } else { "const " };
            format!("{constant}{}::raw* __restrict__ {}", type_name(program.tensor(t).dtype), e.names.tensor(t))
        })
        .chain(["Status* __restrict__ status".to_string()])
        .collect();
    e.w.open(format!(
        "extern \"C\" __global__ void __launch_bounds__({}) {}({})",
        schedule.threads(),
        e.names.kernel,
        parameters.join(", ")
    ));
    e.w.line("extern __shared__ __align__(1024) u8 shared[];");
    e.w.line("const u32 shared_base = shared_address(shared);");
    e.w.line("const int thread = threadIdx.x;");
    e.w.line("const int lane = thread % 32;");
    e.windows();
    e.declare_positions();
    e.clear_padding();
    e.ops(&kernel.body);
    e.w.close("");
    Emitted { function: e.names.kernel.clone(), text: e.w.finish(), tensors, checked_loads: e.checked_loads }
}

fn accesses(ops: &[Op], read: &mut BTreeSet<TensorId>, written: &mut BTreeSet<TensorId>) {
    for op in ops {
        match op {
            Op::Load { tensor, .. } => {
                read.insert(*tensor);
            }
            Op::Store { tensor, .. } => {
                written.insert(*tensor);
            }
            Op::Stream { body, .. } => accesses(body, read, written),
            _ => {}
        }
    }
}

impl Emitter<'_> {
    /// The windows of the grid's axes, from the block's number.
    fn windows(&mut self) {
        let kernel = self.facts.kernel;
        self.w.line("u32 point = blockIdx.x;");
        for &id in kernel.grid.iter().rev() {
            let axis = kernel.axis(id);
            let (name, steps) = (self.names.axis(id).to_string(), grid_steps(axis).max(1));
            self.w.line(format!("const int {name}_base = static_cast<int>(point % {steps}u) * {};", axis.tile));
            self.w.line(format!("point /= {steps}u;"));
            if self.facts.wide(id) && !self.always_full(id) {
                self.w.line(format!("const int {name}_len = min_int({}, {} - {name}_base);", axis.tile, axis.extent));
            }
        }
    }

    /// Operations in order.
    pub fn ops(&mut self, ops: &[Op]) {
        for op in ops {
            self.comment(op);
            match op {
                Op::Load { dst, tensor, at, fill } => match self.schedule.home(*dst).made {
                    Made::Shared => self.load_shared(*dst, *tensor, at, *fill),
                    Made::Registers(_) | Made::Everywhere => {
                        self.load_registers(*dst, *tensor, at, *fill);
                        self.share(*dst);
                    }
                },
                Op::Store { tensor, at, src } => self.store(*tensor, at, *src),
                Op::Map { dst, expr } => {
                    self.map(*dst, expr);
                    self.share(*dst);
                }
                Op::Mma { dst, acc, .. } => {
                    self.mma(*dst, *acc);
                    self.share(*dst);
                }
                Op::Reduce { dst, src, axis, monoid, acc } => {
                    self.reduce(*dst, *src, *axis, monoid, *acc);
                    self.share(*dst);
                }
                Op::Stream { axis, within, states, body } => self.stream(*axis, within, states, body),
                Op::SkipUnless { any } => self.skip_unless(*any),
            }
        }
    }

    /// The operation as the tile program prints it.
    pub fn comment(&mut self, op: &Op) {
        if matches!(op, Op::Stream { .. }) {
            return;
        }
        let alone = Kernel { body: vec![op.clone()], ..self.facts.kernel.clone() };
        let text = print_kernel(self.facts.program, &alone);
        if let Some(line) = text.lines().nth(1) {
            self.w.line(format!("// {}", line.trim_start()));
        }
    }
}
