//! Blocks of a GPU's L2: in which order the points of a kernel's grid are visited.
//!
//! Cores take the points one after the other. Those that are under way together and read the same bring it into L2 once, and
//! what a block's points read again stays, if there is room for it. So the order of the grid's axes, and how many windows of them a
//! block has, decide what passes from memory.
//!
//! The order of the axes does not depend on sizes, so that code is shared by all sizes of a class: those along which streams differ
//! in length come first, then those by which most moves; along the last one points that follow each other share most. Blocks have all
//! windows or one along each axis, or some along one of them. Of those that pass as little as the best
//!
//! 1. where streams differ in length, one is taken that begins with the longest, and the largest: little is left for the end;
//! 2. then the one that passes least if L2 kept nothing;
//! 3. then one that cuts no axis, with about as many points as are under way at once.
//!
//! Condition: points need nothing of each other, which is so on every GPU, whose blocks run side by side.

use crate::build::{Built, Workshop, time};
use crate::gpu::cost_on_core;
use crate::program::program_of;
use einloom_model::{Below, ByOrder, Structure, by_lanes, on_gpu_below};
use einloom_tile::{AxisId, Block, Kernel, Program, grid_points, grid_steps, lengthens, visits};
use std::rc::Rc;

/// Orders whose traffic differs by less are as good as each other.
const EQUAL: f64 = 1.01;

/// An order of the points.
struct Found {
    block: Block,
    /// Bytes that are read from memory, and that would be if nothing stayed from one wave to the next.
    bytes: f64,
    in_step: f64,
    /// Points of a block that begins with its longest, if points differ.
    longest_first: usize,
    /// Whether some axis is neither whole in a block nor has one window in it.
    cut: bool,
    /// How many times more points a block has than are under way at once, or fewer.
    unlike: usize,
}

impl Workshop<'_> {
    /// The kernel with its points in the best order, where that makes a difference.
    pub(crate) fn in_order(&mut self, built: &Built) -> Option<Built> {
        self.machine.lanes?;
        let l2 = self.machine.trunk().nth(1)?.name.clone();
        let program = program_of(self.p, self.x, self.types, vec![built.kernel.clone()]);
        let own = &program.kernels[0];
        let moving: Vec<AxisId> = own.grid.iter().copied().filter(|&a| grid_steps(own.axis(a)) > 1).collect();
        let of_core = match &built.gpu {
            Some(gpu) => gpu.blocks,
            None => by_lanes(&program, own, self.machine).map_or(1, |l| l.blocks),
        };
        let traffic = ByOrder::new(&program, own, self.machine, of_core);
        if moving.len() < 2 || !moving.iter().any(|&a| traffic.shares(a)) {
            return None;
        }
        let under_way = grid_points(own).min(self.machine.cores.max(1) * of_core.max(1));
        let longer = lengthens(own);
        let uneven = |a: AxisId| longer[a.at()] != 0 && grid_steps(own.axis(a)) > 1;
        let some_uneven = own.grid.iter().any(|&a| uneven(a));
        let mut kernel = own.clone();
        kernel.grid.sort_by_cached_key(|&a| (longer[a.at()] == 0, std::cmp::Reverse(traffic.moved_by(a))));
        let mut found: Vec<Found> = vec![];
        for block in blocks(own, &moving, &l2) {
            kernel.blocks = vec![block];
            let visits = visits(&kernel);
            let first = visits.iter().find(|v| v.steps > 1 && v.side > 1);
            let begins = first.is_some_and(|v| uneven(v.axis) && v.side == v.steps);
            let points: usize = visits.iter().map(|v| v.side).product();
            found.push(Found {
                in_step: traffic.in_step(&kernel),
                bytes: f64::INFINITY,
                longest_first: if begins { points } else { 0 },
                cut: visits.iter().any(|v| v.side > 1 && v.side < v.steps),
                unlike: points.max(under_way) / points.min(under_way).max(1),
                block: kernel.blocks.remove(0),
            });
        }
        // Where points in step alone bring in no more than must come, nothing has to stay.
        let least = traffic.least() * EQUAL;
        let in_step = !some_uneven && found.iter().any(|f| f.in_step <= least);
        for f in &mut found {
            kernel.blocks = vec![f.block.clone()];
            f.bytes = if in_step || f.in_step <= least { f.in_step } else { traffic.bytes(&kernel) };
        }
        let fewest = found.iter().map(|f| f.bytes).fold(f64::INFINITY, f64::min);
        found.retain(|f| f.bytes <= fewest * EQUAL);
        let largest = found.iter().map(|f| f.longest_first).max()?;
        found.retain(|f| f.longest_first == largest);
        let fewest = found.iter().map(|f| f.in_step).fold(f64::INFINITY, f64::min);
        let best = found.into_iter().filter(|f| f.in_step <= fewest * EQUAL).min_by_key(|f| (f.cut, f.unlike))?;
        let mut out = built.clone();
        (out.kernel.grid, out.kernel.blocks) = (kernel.grid, vec![best.block]);
        let program = program_of(self.p, self.x, self.types, vec![out.kernel.clone()]);
        self.recosted(&program, &mut out);
        if out.cost.seconds != built.cost.seconds {
            out.notes.push(format!("in this order of its points: predicted {}", time(out.cost.seconds)));
        }
        Some(out)
    }

    /// Predicts anew what the kernel takes, which is this program's only one: before, its points had no order.
    fn recosted(&mut self, program: &Program, built: &mut Built) {
        let (machine, kernel) = (self.machine, &program.kernels[0]);
        let Some(before) = &built.gpu else {
            if let Some(fit) = by_lanes(program, kernel, machine) {
                built.cost = self.cost_by_lanes(program, &Rc::default(), &fit, f64::INFINITY);
            }
            return;
        };
        let structure = Structure::of(kernel);
        let found = on_gpu_below(program, kernel, machine, before.unit.as_deref(), &structure, f64::INFINITY);
        if let Ok(Below::Found(gpu)) = found {
            built.kernel.stages = Some(gpu.stages).filter(|s| *s > 0);
            built.cost = cost_on_core(&gpu, machine.overhead.kernel.0);
            built.gpu = Some(gpu);
        }
    }
}

/// Blocks with all windows or one along each axis that has several; and with some along one of them.
fn blocks(kernel: &Kernel, moving: &[AxisId], memory: &str) -> Vec<Block> {
    let steps = |a: AxisId| grid_steps(kernel.axis(a));
    let mut all: Vec<(bool, Vec<(AxisId, usize)>)> = vec![(false, vec![])];
    for &axis in moving {
        let parts: Vec<usize> =
            std::iter::successors(Some(2), |n| Some(2 * n)).take_while(|&n| n < steps(axis)).collect();
        let with = |(cut, sides): (bool, Vec<(AxisId, usize)>)| {
            let some: &[usize] = if cut { &[] } else { &parts };
            let whole = [(cut, 1), (cut, steps(axis))];
            let each = whole.into_iter().chain(some.iter().map(|&n| (true, n)));
            each.map(|(cut, n)| (cut, [sides.clone(), vec![(axis, n)]].concat())).collect::<Vec<_>>()
        };
        all = all.into_iter().flat_map(with).collect();
    }
    let in_positions = |(axis, n): (AxisId, usize)| (axis, (n * kernel.axis(axis).tile).min(kernel.axis(axis).extent));
    let block = |(_, sides): (bool, Vec<(AxisId, usize)>)| Block {
        memory: memory.to_string(),
        sides: sides.into_iter().map(in_positions).collect(),
    };
    all.into_iter().map(block).collect()
}
