//! An abstract machine that executes specialised schedules on the CPU.
//!
//! The producer and each consumer are threads of control, of which a [`Policy`] lets one go on at a time. Copies land and
//! products complete when the policy says, as late as the next step that waits for them: a stage is poison until its
//! copies have landed, and registers belong to a product until it has completed. What a GPU would do wrong on some days is
//! therefore an error here: a [`Hazard`] that names the role, the step, the stage and the chunk.
//!
//! Numbers are those of the tile program (see [`evaluate`]), so that results can be compared with [`interpret`] bit by
//! bit. What products read beyond a window is what the hardware would read: zeros beyond the tensor, whatever the tensor
//! holds inside of it, and zeros in registers.
//!
//! Blocks of a cluster run at the same time, in any order. A part of a shared tile reaches each of them for itself and
//! when it likes, and so do consumers' arrivals on other blocks' barriers.
//!
//! Tiles lie in a stage where the copy engine puts them and are read where descriptors say, both swizzled by address.
//!
//! Not modelled: which lane holds which element, proxies and fences, and time.

mod arrays;
mod barrier;
mod block;
mod cluster;
mod consumer;
mod contract;
pub mod evaluate;
mod hazard;
mod interpret;
mod layout;
mod policy;
mod product;
mod registers;
mod rings;
mod trace;

pub use arrays::Arrays;
pub use hazard::{Hazard, HazardKind, Place};
pub use interpret::interpret;
pub use policy::{Completion, Policy, Preference};

use super::{Specialised, Walk, walk};
use cluster::Cluster;
use einloom_tile::{Kernel, Program, Window, grid_steps};
use std::collections::BTreeMap;

/// Rows of one consumer. PTX ISA, wgmma: M is 64.
const ROWS: usize = 64;

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Grid points.
    pub points: usize,
    /// Steps of all roles.
    pub steps: usize,
    /// Stages filled.
    pub fillings: usize,
    /// Products started, by all consumers.
    pub products: usize,
    /// Most stages of one ring that were filled and not yet released by everyone.
    pub most_stages: usize,
    /// Most products of one consumer in flight.
    pub most_products: usize,
}

impl Statistics {
    fn add(&mut self, other: &Self) {
        self.points += other.points;
        self.steps += other.steps;
        self.fillings += other.fillings;
        self.products += other.products;
        self.most_stages = self.most_stages.max(other.most_stages);
        self.most_products = self.most_products.max(other.most_products);
    }
}

/// A point of the grid: where its windows begin, one per axis of the grid.
type Point = Vec<usize>;

/// Executes a kernel as scheduled on this many persistent blocks, in whole clusters: each takes the points that
/// [`walk`] gives it. Clusters do not depend on each other and run one after the other; within one, barriers, rings and
/// counts go on from one grid point to the next.
///
/// # Errors
/// The first hazard that this policy meets.
pub fn execute(
    program: &Program,
    kernel: &Kernel,
    s: &Specialised,
    memory: &mut Arrays,
    blocks: usize,
    policy: Policy,
) -> Result<Statistics, Hazard> {
    execute_walk(program, kernel, s, memory, &walk(kernel, s, blocks), policy)
}

/// As [`execute`], on another walk.
///
/// # Errors
/// The first hazard that this policy meets; also if some point is not computed exactly once.
pub fn execute_walk(
    program: &Program,
    kernel: &Kernel,
    s: &Specialised,
    memory: &mut Arrays,
    walk: &Walk,
    policy: Policy,
) -> Result<Statistics, Hazard> {
    layout::check(s)?;
    let rows = kernel.axis(s.rows);
    if rows.tile.min(rows.extent) > ROWS * s.consumers {
        return Err(Hazard::malformed(format!("{} consumers do not hold a tile of {}", s.consumers, rows.name)));
    }
    if s.layout.order.cluster() != s.blocks() {
        return Err(Hazard::malformed("the order is not one for clusters of this many blocks"));
    }
    let mut total = Statistics::default();
    let mut done: BTreeMap<(Point, usize), usize> = BTreeMap::new();
    for (number, places) in walk.clusters.iter().enumerate() {
        let cluster = Cluster::new(program, kernel, s, memory, (number, places, walk.counts_run_on))?;
        let (one, points) = cluster.run(policy)?;
        total.add(&one);
        points.into_iter().for_each(|p| *done.entry(p).or_default() += 1);
    }
    each_once(kernel, s, &done)?;
    Ok(total)
}

/// Whether every consumer has done every point of the grid once.
fn each_once(kernel: &Kernel, s: &Specialised, done: &BTreeMap<(Point, usize), usize>) -> Result<(), Hazard> {
    let mut points: Vec<Point> = vec![vec![]];
    for axis in kernel.grid.iter().map(|a| kernel.axis(*a)) {
        let bases = (0..grid_steps(axis)).map(|step| step * axis.tile);
        points = points.iter().flat_map(|p| bases.clone().map(move |b| [p.as_slice(), &[b]].concat())).collect();
    }
    for key in points.into_iter().flat_map(|p| (0..s.consumers).map(move |w| (p.clone(), w))) {
        let times = done.get(&key).copied().unwrap_or(0);
        if times != 1 {
            let (point, w) = key;
            let names = kernel.grid.iter().zip(point).map(|(a, base)| format!("{}={base}", kernel.axis(*a).name));
            let at = names.collect::<Vec<_>>().join(" ");
            let text = format!("point {at} is computed {times} times by consumer {w}");
            return Err(Hazard::new(HazardKind::Points, text));
        }
    }
    Ok(())
}

/// A consumer's windows: its 64 positions of the shared axis, all of every other.
fn narrow(s: &Specialised, windows: &[Window], consumer: usize) -> Vec<Window> {
    let mut own = windows.to_vec();
    if let Some(w) = own.get_mut(s.rows.at()) {
        let skip = (ROWS * consumer).min(w.len);
        *w = Window { base: w.base + skip, len: (w.len - skip).min(ROWS) };
    }
    own
}
