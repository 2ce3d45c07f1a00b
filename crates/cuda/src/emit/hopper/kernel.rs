//! One specialised kernel: signature, barriers, the two branches.

use super::consumer::Progress;
use super::multiply::Shape;
use super::rings::{barrier, tensor_map};
use crate::emit::element::Emitter;
use crate::emit::kernel::{Emitted, begin, head};
use crate::emit::tensor_map::TensorMapSpec;
use crate::hopper::{RingId, Roster, Specialised, TURN_BARRIER, print, roster};
use einloom_tile::{Kernel, Program};
use std::collections::BTreeSet;

/// A specialised kernel's text, and what goes before it.
pub(in crate::emit) struct Specialist {
    pub emitted: Emitted,
    pub maps: Vec<TensorMapSpec>,
    pub roster: Option<Roster>,
    pub shapes: BTreeSet<Shape>,
}

/// Warps of a warpgroup: each arrives for itself.
const WARPS: usize = 4;

/// Emits the `number`th kernel of a program.
pub(in crate::emit) fn emit(program: &Program, kernel: &Kernel, number: usize, s: &Specialised) -> Specialist {
    let mut e = begin(program, kernel, number, &s.layout);
    let (tensors, mut parameters) = head(&mut e);
    e.w.line("//");
    for line in print(program, kernel, s).lines() {
        e.w.line(format!("//   {line}"));
    }
    let tiles: Vec<_> = s.rings.iter().flat_map(|r| &r.tiles).collect();
    let maps = tiles.iter().map(|t| tensor_map(&e.facts, s, t)).collect();
    let roster = roster(kernel, &s.layout.order, s.layout.target.multiprocessors());
    if roster.is_some() {
        parameters.push("const u32* __restrict__ roster".to_string());
    }
    parameters.extend(tiles.iter().map(|t| format!("const __grid_constant__ TensorMap {}", e.map_name(t.value))));
    e.w.open(format!(
        "extern \"C\" __global__ void __launch_bounds__({}, 1) {}({})",
        s.threads(),
        e.names.kernel,
        parameters.join(", ")
    ));
    e.w.line("extern __shared__ __align__(1024) u8 shared[];");
    e.w.line("const u32 shared_base = shared_address(shared);");
    e.w.line("const int thread = threadIdx.x;");
    e.w.line("const int lane = thread % 32;");
    e.w.line("// The same in all threads of a warp, which the compiler cannot see by itself.");
    e.w.line("const int warpgroup = __shfl_sync(0xffffffff, thread / 128, 0);");
    if s.cluster.is_some() {
        e.w.line("const u32 cluster_rank = block_of_cluster();");
    }
    barriers(&mut e, s);
    let tasks = Tasks { count: s.layout.order.points(), listed: roster.is_some(), cluster: s.blocks() };
    e.w.open(format!("if (warpgroup == {})", s.consumers));
    e.w.line(format!("registers_fewer<{}>();", s.registers.producer));
    e.w.open(format!("if (thread == {})", 128 * s.consumers));
    rings(&mut e, s, false);
    tasks.open(&mut e);
    e.producer(s, &s.producer);
    e.w.close("");
    e.w.close("");
    e.w.close(" else {");
    e.w.indent();
    e.w.line(format!("registers_more<{}>();", s.registers.consumer));
    if let Some(turns) = s.turns {
        e.w.line(format!(
            "if (warpgroup == {}) turn_pass({TURN_BARRIER}, 256);  // the first turn",
            turns.warpgroups - 1
        ));
    }
    rings(&mut e, s, true);
    e.declare_positions();
    e.descriptors(s);
    tasks.open(&mut e);
    let mut progress = Progress::default();
    e.consumer(s, &s.consumer, &mut progress);
    e.w.close("");
    e.w.close("");
    if s.cluster.is_some_and(|c| c.meets_last) {
        e.w.line("// Until then others may arrive on this block's barriers.");
        e.w.line("blocks_meet();");
    }
    e.w.close("");
    let emitted =
        Emitted { function: e.names.kernel.clone(), text: e.w.finish(), tensors, checked_loads: e.checked_loads };
    Specialist { emitted, maps, roster, shapes: progress.shapes }
}

/// The tasks of a block, which stays on its multiprocessor.
struct Tasks {
    count: usize,
    /// Whether a roster says who takes which.
    listed: bool,
    /// Blocks that take tasks together.
    cluster: usize,
}

impl Tasks {
    /// Opens the loop over them.
    fn open(&self, e: &mut Emitter<'_>) {
        let count = self.count;
        e.w.line("#pragma unroll 1");
        if self.listed {
            e.w.open("for (u32 place = blockIdx.x, task = roster[place], next; task != 0xffffffff; task = next)");
            e.w.line("next = roster[place += gridDim.x];");
        } else {
            let each = if self.cluster == 1 { String::new() } else { format!(" / {}u", self.cluster) };
            e.w.open(format!("for (u32 task = blockIdx.x{each}; task < {count}u; task += gridDim.x{each})"));
        }
        e.windows("task");
    }
}

fn rings(e: &mut Emitter<'_>, s: &Specialised, consumer: bool) {
    for id in (0..s.rings.len()).map(RingId) {
        e.ring_counters(s, id, consumer);
    }
}

fn barriers(e: &mut Emitter<'_>, s: &Specialised) {
    e.w.open("if (thread == 0)");
    for (k, ring) in s.rings.iter().enumerate() {
        for stage in 0..ring.stages {
            let at = |full| barrier(s, RingId(k), full, &stage.to_string());
            e.w.line(format!("barrier_init({}, 1);", at(true)));
            e.w.line(format!("barrier_init({}, {});", at(false), WARPS * ring.readers));
        }
        for tile in &ring.tiles {
            let map = e.map_name(tile.value);
            e.w.line(format!("bulk_prefetch({map});"));
        }
    }
    e.w.line("barriers_visible();");
    e.w.close("");
    e.w.line(match s.cluster {
        Some(c) if c.meets_first => "blocks_meet();",
        _ => "__syncthreads();",
    });
}
