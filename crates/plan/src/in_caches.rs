//! In which order a processor visits the points of a kernel's grid, and blocks of the cache that all of its cores share.
//!
//! Points are taken one after the other by whichever core is free. Along the last axis of the grid they follow each other: factors of
//! products that do not depend on it are put in order once for all of them. What a region of the points asks for again stays in
//! the caches where it fits, and by blocks what a block asks for again stays in the shared one. So orders are compared by the time
//! of the slowest level, a part of the time of all, and the time that the factors take; the kernel's own order goes before
//! others that are as good, and no blocks before blocks.
//!
//! Condition: points need nothing of each other, as of every kernel here: what does is inside one.

use crate::build::{Built, Workshop};
use crate::cuts::contracts;
use crate::grid_order::orders;
use crate::program::program_of;
use einloom_machine::Machine;
use einloom_model::{Factors, Held, LevelTransfers, level_transfers};
use einloom_tile::{AxisId, Block, Kernel, Op, Program, grid_steps};
use std::collections::BTreeSet;
use std::rc::Rc;

/// Of the time of all levels together what counts beside the slowest: levels work at the same time, but what moves less is
/// better wherever it moves.
const BESIDE: f64 = 0.5;
/// An order must take less than this part of another's time to be better, and blocks of it.
const BETTER: f64 = 0.999;
const BETTER_BY_BLOCKS: f64 = 0.99;

/// With more such points ([`steered`]) the order stays: counting them in all orders would take seconds.
const MOST_STEERED: usize = 2048;

impl Workshop<'_> {
    /// The kernel with its points in the best order, where that is not its own.
    pub(crate) fn in_caches(&mut self, built: &Built) -> Option<Built> {
        let machine = self.machine;
        if machine.lanes.is_some() || machine.element.is_some() {
            return None;
        }
        if built.kernel.grid.iter().filter(|&&a| grid_steps(built.kernel.axis(a)) > 1).count() < 2 {
            return None;
        }
        if steered(&built.kernel) > MOST_STEERED {
            return None;
        }
        let mut program = program_of(self.p, self.x, self.types, vec![built.kernel.clone()]);
        let own = &program.kernels[0];
        let (held, factors) = (Held::new(own), Factors::new(&program, own));
        let mut look = |program: &Program| {
            self.work.tilings += 1;
            Found::new(program, machine, &held, &factors)
        };
        let own = look(&program);
        let mut best = (own, built.kernel.grid.clone(), vec![]);
        let mut unlike = vec![];
        for grid in orders(&built.kernel) {
            program.kernels[0].grid.clone_from(&grid);
            let found = look(&program);
            if found.seconds < BETTER * best.0.seconds {
                best = (found, grid.clone(), vec![]);
            }
            unlike.push(grid);
        }
        // Blocks spare memory what the shared cache can keep.
        if let Some(cache) = shared_cache(machine).filter(|_| !best.0.is_least) {
            for grid in unlike {
                program.kernels[0].grid.clone_from(&grid);
                for block in blocks(&program.kernels[0], &cache) {
                    program.kernels[0].blocks = vec![block];
                    let found = look(&program);
                    if found.seconds < BETTER_BY_BLOCKS * best.0.seconds {
                        best = (found, grid.clone(), std::mem::take(&mut program.kernels[0].blocks));
                    }
                }
                program.kernels[0].blocks.clear();
            }
        }
        let (_, grid, blocks) = best;
        if grid == built.kernel.grid && blocks.is_empty() {
            return None;
        }
        let mut out = built.clone();
        (out.kernel.grid, out.kernel.blocks) = (grid, blocks);
        let program = program_of(self.p, self.x, self.types, vec![out.kernel.clone()]);
        out.cost = match contracts(self.p, self.x, &out.cone) {
            true => self.cost_beside(&program, &Rc::default(), f64::INFINITY, (None, 0.0, 1.0)),
            false => self.cost_of_sweeps(&program, &Rc::default()),
        };
        Some(out)
    }
}

/// Points of the grid along axes that decide what streams visit: what is moved is counted at each.
fn steered(kernel: &Kernel) -> usize {
    fn asked(ops: &[Op], of: &mut BTreeSet<AxisId>) {
        for op in ops {
            if let Op::Stream { within, body, .. } = op {
                of.extend(within.all.iter().flat_map(|form| &form.terms).map(|t| t.1));
                asked(body, of);
            }
        }
    }
    let mut steering = BTreeSet::new();
    asked(&kernel.body, &mut steering);
    kernel.grid.iter().filter(|a| steering.contains(a)).map(|&a| grid_steps(kernel.axis(a))).product()
}

/// What an order comes to.
struct Found {
    seconds: f64,
    /// Whether memory moves no more than it must.
    is_least: bool,
}

impl Found {
    fn new(program: &Program, machine: &Machine, held: &Held, factors: &Factors) -> Self {
        let kernel = &program.kernels[0];
        let levels = level_transfers(program, kernel, machine, held, &Rc::default());
        let outside = &levels[..levels.len().saturating_sub(1).max(1).min(levels.len())];
        let longest = outside.iter().map(|l| l.seconds).fold(0.0, f64::max);
        let all: f64 = outside.iter().map(|l| l.seconds).sum();
        let private = machine.trunk().filter(|l| l.capacity.is_some()).find(|l| l.shared_by <= 1);
        let copied = private.map_or(0.0, |l| factors.moved(kernel) as f64 / l.bandwidth.0);
        let is_least = |l: &LevelTransfers| l.bytes as f64 * BETTER_BY_BLOCKS <= l.bound_bytes as f64;
        Self { seconds: longest + BESIDE * all + copied, is_least: levels.first().is_none_or(is_least) }
    }
}

/// The outermost cache, if all cores share it.
pub(crate) fn shared_cache(machine: &Machine) -> Option<String> {
    let cache = machine.trunk().nth(1)?;
    (cache.capacity.is_some() && cache.shared_by >= machine.cores).then(|| cache.name.clone())
}

/// Blocks with one window, all, or a power of two of them along the last two axes that have several, and one along the others.
pub(crate) fn blocks(kernel: &Kernel, memory: &str) -> Vec<Block> {
    let moving: Vec<AxisId> = kernel.grid.iter().filter(|&&a| grid_steps(kernel.axis(a)) > 1).copied().collect();
    let mut all: Vec<Vec<(AxisId, usize)>> = vec![vec![]];
    for (k, &axis) in moving.iter().enumerate() {
        let steps = grid_steps(kernel.axis(axis));
        let powers = std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|&n| n < steps);
        let sides: Vec<usize> = if k + 2 < moving.len() { vec![1] } else { powers.chain([steps]).collect() };
        let side = |n: usize| (axis, (n * kernel.axis(axis).tile).min(kernel.axis(axis).extent));
        let with = |one: &Vec<_>| sides.iter().map(|&n| [&one[..], &[side(n)]].concat()).collect::<Vec<_>>();
        all = all.iter().flat_map(with).collect();
    }
    all.into_iter().map(|sides| Block { memory: memory.to_string(), sides }).collect()
}
