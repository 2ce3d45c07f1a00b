//! A kernel on the cores of a GPU: whether its tiles fit in registers and shared memory, and how long it takes.
//!
//! The model has five steady rates and one chain. Per chunk of a stream a core's matrix unit, its shared memory, its
//! share of L2, its special-function lanes and its arithmetic lanes are each busy for some cycles; the groups of a
//! block work at the same time, but each goes through its own chunk in order: products, then arithmetic, then the
//! products that need its results. A chunk takes the longest of all these, and something of the others, for nothing
//! overlaps perfectly. The constants stand in `cycles`, each with what it was fitted to.

mod block;
mod by_lanes;
mod cycles;
mod device;
mod fit;
mod issue;
mod lane_products;
mod left;
mod lying;
pub(crate) mod registers;
mod run;
mod structure;
mod time;
pub(crate) mod uses;

pub use by_lanes::{ByLanes, by_lanes, by_lanes_of};

use block::Block;
use cycles::Clock;
pub use device::ByOrder;
use device::Device;
pub(crate) use device::l2_traffic;
use einloom_cascade::DType;
use einloom_machine::{Machine, MatrixUnit};
use einloom_tile::{Kernel, Op, Program, ValueId};
use std::fmt;
pub use structure::Structure;

/// How a kernel runs on a core.
#[derive(Clone, Debug, PartialEq)]
pub struct OnGpu {
    /// The matrix unit that computes its products; `None` for a kernel without products.
    pub unit: Option<String>,
    /// Groups of threads of a block, down and across the tiles' rows and columns.
    pub groups: [usize; 2],
    /// Threads of a block that hold tiles.
    pub threads: usize,
    /// Registers of such a thread at the worst point of the kernel, estimated.
    pub registers: usize,
    /// Registers that it can have.
    pub register_limit: usize,
    /// Bytes of shared memory of a block.
    pub shared_bytes: u64,
    /// Bytes that it can have.
    pub shared_limit: u64,
    /// Stages of the rings through which streamed tiles arrive; 0 without any.
    pub stages: usize,
    /// Blocks that a core holds at once.
    pub blocks: usize,
    /// Predicted time, without the launch.
    pub seconds: f64,
    /// What takes that time: `device memory`, `L2`, `shared memory`, the unit's name, `special functions`,
    /// `arithmetic` or `latency`.
    pub bound_by: String,
    /// How long each resource is busy, by the names of `bound_by`, longest first; `latency` is what is waited for and
    /// nothing hides. They overlap: the time is less than their sum.
    pub parts: Vec<(String, f64)>,
    /// The part of the time of the device's memory in which blocks read what others have read before: they come apart, and L2
    /// does not hold it until all have it. Traffic is counted without.
    pub again: f64,
    /// The other depths that fit, deepest first. The one taken is the fastest, of equally fast ones the deepest.
    pub depths: Vec<Depth>,
}

/// A depth of a kernel's pipelines that was worked out and not taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Depth {
    /// Stages of each ring.
    pub stages: usize,
    /// Blocks that a core holds with as many.
    pub blocks: usize,
    /// Predicted time, without the launch; or what the cores take alone, where that is too much already.
    pub seconds: f64,
}

impl fmt::Display for OnGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.unit, self.groups) {
            (Some(unit), [down, 1]) => write!(f, "{unit} by {down} group{}", if down == 1 { "" } else { "s" })?,
            (Some(unit), [down, across]) => write!(f, "{unit} by {down}x{across} groups")?,
            (None, _) => write!(f, "no products, {} threads", self.threads)?,
        }
        write!(f, ": {} of {} registers a thread", self.registers, self.register_limit)?;
        if self.shared_bytes > 0 {
            let kib = |bytes: u64| bytes.div_ceil(1024);
            write!(f, ", {} of {} KiB of shared memory", kib(self.shared_bytes), kib(self.shared_limit))?;
        }
        if self.stages > 0 {
            write!(f, " in {} stage{}", self.stages, if self.stages == 1 { "" } else { "s" })?;
        }
        if self.blocks > 1 {
            write!(f, ", {} blocks a core", self.blocks)?;
        }
        write!(f, "; bound by {}", self.bound_by)?;
        match self.again {
            again if again >= 0.005 => {
                write!(f, ", {:.0} % of it for what blocks out of step read again", 100.0 * again)
            }
            _ => Ok(()),
        }
    }
}

/// Why a kernel does not run on a matrix unit, or on a core at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misfit {
    /// The unit's name; `lanes` for a kernel without products.
    pub unit: String,
    /// The condition that it does not meet.
    pub reason: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not {}: {}", self.unit, self.reason)
    }
}

/// How a kernel of a well-formed program runs on the machine's cores: on the first of its matrix units (on the one
/// called `unit`, if given) that takes all of the kernel's products, in the arrangement of groups that takes least time.
///
/// # Errors
/// Per matrix unit the first condition that no arrangement meets. Empty for a machine whose cores are not a GPU's.
pub fn on_gpu(program: &Program, kernel: &Kernel, machine: &Machine, unit: Option<&str>) -> Result<OnGpu, Vec<Misfit>> {
    match on_gpu_below(program, kernel, machine, unit, &Structure::of(kernel), f64::INFINITY)? {
        Below::Found(found) => Ok(found),
        Below::Slower(_) => {
            Err(vec![Misfit { unit: machine.name.clone(), reason: "its time is not finite".to_string() }])
        }
    }
}

/// What [`on_gpu_below`] finds.
#[derive(Clone, Debug, PartialEq)]
pub enum Below {
    /// It fits, and takes less than the limit.
    Found(OnGpu),
    /// It fits and takes at least the limit; and at least this long, whatever it moves.
    Slower(f64),
}

/// As [`on_gpu`], for callers that know a kernel of `limit` seconds. That another takes as long or longer is often known
/// from its cores, before its traffic is counted.
///
/// # Errors
/// As [`on_gpu`].
pub fn on_gpu_below(
    program: &Program,
    kernel: &Kernel,
    machine: &Machine,
    unit: Option<&str>,
    structure: &Structure,
    limit: f64,
) -> Result<Below, Vec<Misfit>> {
    let Some(lanes) = &machine.lanes else { return Err(vec![]) };
    let clock = Clock::new(machine, lanes);
    let device = || Device::new(program, kernel, structure.counts());
    if !multiplies(&kernel.body) {
        let misfit = |reason| vec![Misfit { unit: "lanes".to_string(), reason }];
        return fastest(lane_blocks(program, kernel, structure, clock), device(), limit).map_err(misfit);
    }
    let mut misfits = vec![];
    for candidate in machine.matrix.iter().filter(|u| unit.is_none_or(|name| name == u.name)) {
        let blocks = unit_blocks(program, kernel, structure, clock, candidate);
        match blocks.and_then(|blocks| fastest(blocks.into_iter(), device(), limit)) {
            Ok(found) => return Ok(found),
            Err(reason) => misfits.push(Misfit { unit: candidate.name.clone(), reason }),
        }
    }
    Err(misfits)
}

/// Blocks in every arrangement of groups that suits the rows.
fn unit_blocks<'a>(
    program: &'a Program,
    kernel: &'a Kernel,
    structure: &'a Structure,
    clock: Clock<'a>,
    unit: &'a MatrixUnit,
) -> Result<Vec<Block<'a>>, String> {
    let rows = fit::row_axis(kernel, unit)?;
    let whole_rows = fit::whole_rows(kernel, unit);
    let axis = kernel.axis(rows);
    let size = axis.tile.min(axis.extent).max(1);
    // Groups without any rows would only wait: where it can be helped there are none.
    let blocks = size.div_ceil(unit.rows);
    let fewest = unit.groups.iter().min().copied().unwrap_or(1);
    let suits = |down: usize| (blocks >= down || down == fewest) && blocks <= down * unit.row_blocks;
    let splits = unit.groups.iter().flat_map(|&g| (1..=g).filter(move |d| g % d == 0).map(move |d| [d, g / d]));
    let splits: Vec<[usize; 2]> = splits.filter(|s| s[1] == 1 || !whole_rows).filter(|s| suits(s[0])).collect();
    if splits.is_empty() {
        let groups = unit.groups.iter().max().copied().unwrap_or(0);
        let most = groups * unit.row_blocks * unit.rows;
        return Err(format!("{size} rows are more than the {most} that {groups} groups hold"));
    }
    Ok(splits.into_iter().map(|s| Block::with_unit(program, kernel, structure, clock, unit, (rows, s))).collect())
}

/// Blocks of every size.
fn lane_blocks<'a>(
    program: &'a Program,
    kernel: &'a Kernel,
    structure: &'a Structure,
    clock: Clock<'a>,
) -> impl Iterator<Item = Block<'a>> + 'a {
    let sizes = (5..).map(|e| 1usize << e).take_while(move |t| *t <= clock.lanes.block_threads);
    sizes.map(move |threads| Block::of_lanes(program, kernel, structure, clock, threads))
}

/// The one that takes least time, if that is less than `limit`; if none fits, why the last one does not, which is that
/// of the most threads.
fn fastest<'a>(all: impl Iterator<Item = Block<'a>>, mut device: Device<'_>, mut limit: f64) -> Result<Below, String> {
    let mut best: Result<Below, String> = Err("it has no arrangement of groups".to_string());
    for block in all {
        match (block.run(&mut device, limit), &best) {
            (Ok(Below::Found(found)), _) => {
                limit = found.seconds;
                best = Ok(Below::Found(found));
            }
            (Ok(Below::Slower(_)), Ok(Below::Found(_))) => {}
            (Ok(Below::Slower(a)), Ok(Below::Slower(b))) => best = Ok(Below::Slower(a.min(*b))),
            (other @ Ok(_), Err(_)) => best = other,
            (Err(reason), Err(_)) => best = Err(reason),
            (Err(_), Ok(_)) => {}
        }
    }
    best
}

pub(crate) fn multiplies(ops: &[Op]) -> bool {
    ops.iter().any(|op| match op {
        Op::Mma { .. } => true,
        Op::Stream { body, .. } => multiplies(body),
        _ => false,
    })
}

/// Whether some matrix unit takes the number types of all of a kernel's products.
pub(crate) fn some_unit_takes(kernel: &Kernel, machine: &Machine) -> bool {
    let all = |unit: &MatrixUnit| {
        let mut takes = true;
        uses::each(&kernel.body, &mut |op| {
            if let Op::Mma { dst, a, b, .. } = op {
                takes &= kernel.value(*dst).dtype != DType::F64 && operand(kernel, unit, *a, *b).is_some();
            }
        });
        takes
    };
    machine.matrix.iter().any(all)
}

/// The number type in which a unit multiplies these two tiles: the wider one's if it takes both.
fn operand(kernel: &Kernel, unit: &MatrixUnit, a: ValueId, b: ValueId) -> Option<DType> {
    let [a, b] = [a, b].map(|v| kernel.value(v).dtype);
    let takes = unit.operands.contains(&a) && unit.operands.contains(&b);
    (takes && a.bytes() == b.bytes() && a.is_integer() == b.is_integer()).then_some(a)
}
