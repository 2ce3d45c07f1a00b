//! One kernel: its signature, its windows, its operations in order.

use super::element::Emitter;
use super::names::Names;
use super::type_name;
use super::writer::Writer;
use crate::schedule::facts::written;
use crate::schedule::{Facts, Made, Schedule, Side, inline};
use einloom_tile::{Kernel, Op, Program, TensorId, ValueId, print_kernel};
use std::collections::{BTreeMap, BTreeSet};

/// The text of a kernel.
pub(super) struct Emitted {
    pub function: String,
    pub text: String,
    pub tensors: Vec<TensorId>,
    pub checked_loads: Vec<TensorId>,
}

/// An emitter at the start of a kernel.
pub(super) fn begin<'a>(
    program: &'a Program,
    kernel: &'a Kernel,
    number: usize,
    schedule: &'a Schedule,
) -> Emitter<'a> {
    let facts = Facts::new(program, kernel);
    let rare = super::rarely::find(&facts, schedule);
    Emitter {
        facts,
        rare,
        rare_declared: BTreeSet::new(),
        schedule,
        names: Names::new(program, kernel, number),
        w: Writer::default(),
        number,
        open: vec![],
        conditions: vec![],
        pending: BTreeSet::new(),
        staged: BTreeMap::new(),
        whole: BTreeSet::new(),
        hoisted: BTreeSet::new(),
        streams: 0,
        unpacked: BTreeSet::new(),
        reductions: 0,
        checked_loads: vec![],
    }
}

/// What the kernel computes, as comments; its tensors, and the parameters that every kernel has.
pub(super) fn head(e: &mut Emitter<'_>) -> (Vec<TensorId>, Vec<String>) {
    let (program, kernel) = (e.facts.program, e.facts.kernel);
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
    (tensors, parameters)
}

/// Emits the `number`th kernel of a program.
pub(super) fn emit(program: &Program, kernel: &Kernel, number: usize, schedule: &Schedule) -> Emitted {
    let mut e = begin(program, kernel, number, schedule);
    let (tensors, parameters) = head(&mut e);
    let resident = crate::schedule::resident(&e.facts, schedule).filter(|&n| n > 1);
    e.w.open(format!(
        "extern \"C\" __global__ void __launch_bounds__({}{}) {}({})",
        schedule.threads(),
        resident.map_or(String::new(), |n| format!(", {n}")),
        e.names.kernel,
        parameters.join(", ")
    ));
    e.w.line("extern __shared__ __align__(1024) u8 shared[];");
    e.w.line("const u32 shared_base = shared_address(shared);");
    e.w.line("const int thread = threadIdx.x;");
    e.w.line("const int lane = thread % 32;");
    e.windows("blockIdx.x");
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
            Op::Stream { guards, body, .. } => {
                read.extend(guards.iter().flat_map(|g| g.tensors()));
                accesses(body, read, written);
            }
            _ => {}
        }
    }
}

impl Emitter<'_> {
    /// Operations in order.
    pub fn ops(&mut self, ops: &[Op]) {
        let mut open = None;
        for op in ops {
            self.rarely(Some(op), &mut open);
            self.comment(op);
            self.forget_unpacked(op);
            match op {
                Op::Load { dst, .. } if self.schedule.inlined.contains(dst) => self.w.line("// (where it is read)"),
                Op::Load { dst, tensor, at, fill } => match self.schedule.home(*dst).made {
                    Made::Shared => self.load_shared(*dst, *tensor, at, *fill),
                    Made::Registers(_) | Made::Everywhere => {
                        self.load_registers(*dst, *tensor, at, *fill);
                        self.share(*dst);
                    }
                },
                Op::Store { tensor, at, src } => self.store(*tensor, at, *src),
                Op::Map { dst, .. } | Op::Reduce { dst, .. } if self.is_fused(*dst) => {
                    self.w.line("// (where it is packed)");
                }
                Op::Map { dst, .. } if self.schedule.inlined.contains(dst) => self.w.line("// (where it is read)"),
                Op::Map { dst, expr } => {
                    self.map(*dst, expr);
                    self.ask_warp(*dst);
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
                Op::Pick { dst, src, axis, at, fill } => {
                    self.pick(*dst, *src, *axis, at, *fill);
                    self.share(*dst);
                }
                Op::Stream { axis, within, guards, states, body } => {
                    self.stream(*axis, (within, guards), states, body);
                }
                Op::SkipUnless { any } => self.skip_unless(*any),
            }
        }
        self.rarely(None, &mut open);
    }

    /// Whether the tile is made in the loop that packs another.
    fn is_fused(&self, v: ValueId) -> bool {
        self.schedule.fused.values().any(|f| f.source == v || f.reduction == v)
    }

    /// Before an operation unpacks pairs that another has unpacked before: see `forget` in the prelude.
    fn forget_unpacked(&mut self, op: &Op) {
        if written(op).is_some_and(|v| self.schedule.inlined.contains(&v)) {
            return;
        }
        if let Op::Reduce { src, axis, monoid, .. } = op
            && self.of_pairs(*src, *axis, monoid).is_some()
        {
            return;
        }
        for v in inline::operands(&self.facts, &self.schedule.inlined, op) {
            let Some(f) = self.frame_of(v).filter(|&f| !self.schedule.frame(f).is_fragment()) else { continue };
            if !self.is_packed(v, Some(f)) || self.schedule.inlined.contains(&v) || self.unpacked.insert(v) {
                continue;
            }
            let count = |side| self.along(v, f, side).map_or(1, |a| self.span(f, a).count);
            let (rows, pairs) = (count(Side::Down), count(Side::Across) / 2);
            self.w.unrolled("i", rows);
            self.w.unrolled("y", pairs);
            let line = format!("forget({}{});", self.variable_of(v, Some(f)), self.brackets(v, Some(f), "i", "y"));
            self.w.line(line);
            self.close(2);
        }
    }

    /// The operation as the tile program prints it.
    pub fn comment(&mut self, op: &Op) {
        if matches!(op, Op::Stream { .. }) {
            return;
        }
        let alone = Kernel { body: vec![op.clone()], blocks: vec![], ..self.facts.kernel.clone() };
        let text = print_kernel(self.facts.program, &alone);
        if let Some(line) = text.lines().nth(1) {
            self.w.line(format!("// {}", line.trim_start()));
        }
    }
}
