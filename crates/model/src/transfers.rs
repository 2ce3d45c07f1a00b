//! The prediction for a whole program.

use crate::blocks::{Blocks, into_shared};
use crate::bounds::{BoundFrom, Needed, Spaces, compulsory_in_any_tiles};
use crate::counts::Counts;
use crate::energy::Energy;
use crate::gpu::{l2_traffic, multiplies, some_unit_takes};
use crate::guarded::has_guards;
use crate::held::{Held, Staying};
use crate::levels::{KeptElements, Reuse, Traffic};
use crate::nest::Nest;
use crate::parallel::of_each;
use crate::resident::{resident_bytes, resident_in_passing};
use crate::work::Work;
use einloom_cascade::UnaryOp;
use einloom_machine::{Bytes, Level, Machine};
use einloom_tile::{
    AxisId, Guard, Kernel, Op, Predicate, Program, Scalar, TensorId, ValueId, alike, grid_points, initial_windows,
    set_grid_point, unknown, visited,
};
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, OnceLock};

/// Times a bound: a plan that moves no more is near it.
const NEAR: f64 = 1.05;
/// Points of a grid that are looked at one by one, at most.
const MOST_POINTS: usize = 1 << 13;

/// What one kernel moves and computes.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelTransfers {
    /// The kernel's name.
    pub name: String,
    /// Innermost: exactly what its loads and stores move between memory and tiles, per tensor that it mentions, in
    /// order of their ids. An element counts the bytes of the tensor's number type; elements that a load with a
    /// fill finds outside its tensor do not count.
    pub tensors: Vec<TensorTransfer>,
    /// The memories of the machine's trunk, outermost first. The last one's traffic is the innermost.
    pub levels: Vec<LevelTransfers>,
    /// The most bytes of tiles that are live at once at one point of the grid. On an abstract machine elements of
    /// [`Machine::element`] bytes, results in the place of operands that nothing reads later.
    pub resident_bytes: u64,
    /// Bytes that must be written at every level.
    pub least_written: u64,
    /// What must move at every level, per tensor: each element that it touches once.
    pub least: Vec<TensorTransfer>,
    /// Operations, a multiply-add being two.
    pub flops: f64,
    /// Predicted time: the slowest of arithmetic and each level.
    pub seconds: f64,
    /// The time of arithmetic alone.
    pub compute_seconds: f64,
    /// What takes that time: a level's name, or `compute`.
    pub bound_by: String,
    /// Energy of what it moves and computes.
    pub energy: Energy,
    /// Data decide how much is executed or loaded: chunks may be skipped, or a gather with a fill may miss its
    /// tensor; or there are too many chunks to tell which of them positions leave. Every number is then for the case that no chunk is skipped and no gather misses, the largest.
    pub data_dependent: bool,
}

/// Bytes of one tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TensorTransfer {
    /// Which.
    pub tensor: TensorId,
    /// From memory.
    pub loaded_bytes: u64,
    /// To memory.
    pub stored_bytes: u64,
}

/// Bytes between one level and the next one in.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelTransfers {
    /// The level's name.
    pub level: String,
    /// The capacity of one of its instances; `None` if it is never full.
    pub capacity: Option<u64>,
    /// Bytes of the kernel's data that one instance holds at once: tiles, and what regions of the loops use again. Of the
    /// outermost level all that the kernel touches.
    pub resident_bytes: u64,
    /// In both directions together.
    pub bytes: u64,
    /// No program with these loads and stores moves less: see [`crate::bounds`]. From [`kernel_transfers`] what must
    /// move whatever the capacities, from [`transfers`] also what they make necessary.
    pub bound_bytes: u64,
    /// What `bound_bytes` rests on, and for which orders it holds.
    pub bound_from: BoundFrom,
    /// `bound_bytes` without what holds only for some orders, which [`BoundFrom`] names: the bound for every order.
    pub any_order_bytes: u64,
    /// What `any_order_bytes` rests on.
    pub any_order_from: BoundFrom,
    /// Bytes that the tiles' loops ask for again and that need not come, because they stay in what the tiles leave free:
    /// `bytes` is so much less than what moves without. 0 of caches.
    pub kept_bytes: u64,
    /// Bytes of a stream's states that leave and come back, where blocks of the level have parts of the stream: see
    /// [`einloom_tile::Block`]. They pass the innermost level too. In `bytes`, and of no tensor.
    pub carried_bytes: u64,
    /// `bytes` without `carried_bytes`, per tensor.
    pub tensors: Vec<TensorTransfer>,
    /// `bytes` at the level's bandwidth.
    pub seconds: f64,
}

/// The prediction for every kernel of a well-formed program, in their order.
///
/// ```
/// use einloom_cascade::DType::F32;
/// let program = einloom_tile::by_hand::matmul([256, 256, 256], [64, 128, 32], F32).expect("well-formed");
/// let machine = einloom_machine::built_in("cpu-generic").expect("built in");
/// let kernel = &einloom_model::transfers(&program, &machine)[0];
/// // A is loaded once per column of tiles, B once per row, C is stored once.
/// let loaded: Vec<u64> = kernel.tensors.iter().map(|t| t.loaded_bytes / 4).collect();
/// assert_eq!(loaded, [256 * 256 * 2, 256 * 256 * 4, 0]);
/// ```
pub fn transfers(program: &Program, machine: &Machine) -> Vec<KernelTransfers> {
    transfers_of_blocks(program, machine, &|_| 1)
}

/// As [`transfers`], for kernels of which a core of a machine with lanes holds so many blocks at once: [`OnGpu::blocks`]
/// by the kernel's place in the program. They share the core's part of L2.
///
/// [`OnGpu::blocks`]: crate::OnGpu::blocks
pub fn transfers_of_blocks(
    program: &Program,
    machine: &Machine,
    blocks: &(dyn Fn(usize) -> usize + Sync),
) -> Vec<KernelTransfers> {
    let known = KnownBounds::default();
    let kernels: Vec<(usize, &Kernel)> = program.kernels.iter().enumerate().collect();
    of_each(&kernels, |&(k, kernel)| {
        let mut found = kernel_transfers_of(program, kernel, machine, &Arc::default(), blocks(k));
        known.bound(program, kernel, machine, &mut found);
        found
    })
}

/// Bounds by capacity that were found, for kernels that differ in names alone. All of them are for one machine.
#[derive(Debug, Default)]
pub struct KnownBounds(Mutex<FxHashMap<String, Arc<OnceLock<Vec<LevelBound>>>>>);

/// What bounds a level's traffic: in the orders of the plan, and in any.
type LevelBound = [(u64, BoundFrom); 2];

impl KnownBounds {
    /// As [`transfers`] of the program's first kernel.
    pub fn transfers(&self, program: &Program, machine: &Machine) -> Option<KernelTransfers> {
        let kernel = program.kernels.first()?;
        let mut found = kernel_transfers(program, kernel, machine);
        self.bound(program, kernel, machine, &mut found);
        Some(found)
    }

    /// What bounds the traffic of a level if the first kernel computes what it does in another way, in which so many bytes pass there.
    pub fn if_moved(&self, program: &Program, machine: &Machine, level: &str, bytes: u64) -> Option<(u64, BoundFrom)> {
        let kernel = program.kernels.first()?;
        let mut found = kernel_transfers(program, kernel, machine);
        found.levels.iter_mut().filter(|l| l.level == level).for_each(|l| l.bytes = bytes);
        self.bound(program, kernel, machine, &mut found);
        found.levels.iter().find(|l| l.level == level).map(|l| (l.bound_bytes, l.bound_from))
    }

    fn bound(&self, program: &Program, kernel: &Kernel, machine: &Machine, found: &mut KernelTransfers) {
        let passing: Vec<[u64; 2]> = found.levels.iter().map(|l| [l.bytes, l.bound_bytes]).collect();
        let rest = (found.least_written, found.resident_bytes, passing);
        let key = format!("{} {rest:?}", alike(program, kernel));
        let place = self.0.lock().map(|mut known| known.entry(key).or_default().clone()).unwrap_or_default();
        // Who asks for the same meanwhile waits for it.
        let known = place.get_or_init(|| {
            bound_by_capacity(program, kernel, machine, found);
            let of = |l: &LevelTransfers| [(l.bound_bytes, l.bound_from), (l.any_order_bytes, l.any_order_from)];
            found.levels.iter().map(of).collect()
        });
        for (level, &[bound, any_order]) in found.levels.iter_mut().zip(known.iter()) {
            (level.bound_bytes, level.bound_from) = bound;
            (level.any_order_bytes, level.any_order_from) = any_order;
        }
    }
}

/// Raises the bounds to what the capacities make necessary. One for fewer orders is told where a plan is farther than that from the others.
fn bound_by_capacity(program: &Program, kernel: &Kernel, machine: &Machine, found: &mut KernelTransfers) {
    let nest = Nest::new(kernel);
    let spaces = Spaces::new(program, kernel, &nest, machine);
    let written = found.least_written;
    let trunk: Vec<&Level> = machine.trunk().collect();
    // Levels may be outside of the same memory.
    let mut finer: Option<(f64, Vec<(f64, BoundFrom)>)> = None;
    for (k, bound) in found.levels.iter_mut().enumerate() {
        // What one instance of the next level holds with all that is inside it. Tiles live in there: a plan whose tiles
        // are larger is compared with what it takes for itself.
        let inside = machine.capacity_inside(trunk[k]);
        let part = trunk.get(k + 1).map_or(1, |next| next.shared_by) as f64 / machine.cores.max(1) as f64;
        let Some(inside) = inside.map(|b| b.0 as f64 * part) else { continue };
        let tiles = found.resident_bytes as f64;
        let Needed { any, some } = spaces.incoming(inside.max(tiles));
        // What moves less is in none of the orders that a bound for some orders is for.
        let (moved, bytes) = (bound.bytes, |b: f64| (b as u64).saturating_add(written));
        bound.raise(bytes(any.0), any.1);
        (bound.any_order_bytes, bound.any_order_from) = (bound.bound_bytes, bound.bound_from);
        for (needed, from) in some {
            if bytes(needed) <= moved {
                bound.raise(bytes(needed), from);
            }
        }
        if moved as f64 > NEAR * bound.bound_bytes as f64 {
            let inside = inside.max(tiles);
            if finer.as_ref().is_none_or(|f| f.0 != inside) {
                finer = Some((inside, spaces.incoming_finer(inside)));
            }
            for (needed, from) in finer.iter().flat_map(|f| f.1.iter().copied()) {
                if bytes(needed) <= moved {
                    bound.raise(bytes(needed), from);
                }
            }
        }
    }
}

impl LevelTransfers {
    fn raise(&mut self, bytes: u64, from: BoundFrom) {
        if bytes > self.bound_bytes {
            (self.bound_bytes, self.bound_from) = (bytes, from);
        }
    }
}

/// The prediction for one kernel of a well-formed program, a core holding one of its blocks at a time.
pub fn kernel_transfers(program: &Program, kernel: &Kernel, machine: &Machine) -> KernelTransfers {
    kernel_transfers_counted(program, kernel, machine, &Arc::default())
}

/// The same where something was counted of the kernel already, and products are as fast as the machine multiplies their types: `counts` are those of the kernel, for all sizes of its tiles.
pub fn kernel_transfers_counted(
    program: &Program,
    kernel: &Kernel,
    machine: &Machine,
    counts: &Arc<Counts>,
) -> KernelTransfers {
    kernel_transfers_of(program, kernel, machine, counts, 1)
}

fn kernel_transfers_of(
    program: &Program,
    kernel: &Kernel,
    machine: &Machine,
    counts: &Arc<Counts>,
    blocks: usize,
) -> KernelTransfers {
    // A machine that counts elements updates tiles in place; others are taken as executors are.
    let held = machine.element.map(|_| Held::new(kernel));
    let found = Found::new(program, kernel, machine, held.as_ref(), counts, blocks);
    let Found { levels, innermost, least, resident_bytes, data_dependent } = found;
    let least_written = least.iter().map(|t| t.stored_bytes).fold(0, u64::saturating_add);
    let trunk: Vec<&Level> = machine.trunk().collect();
    let work = Work::with(kernel, counts);
    let compute = compute_seconds_counted(kernel, machine, counts);
    let slowest = levels
        .iter()
        .map(|l| (l.seconds, l.level.as_str()))
        .fold((compute, "compute"), |a, b| if b.0 > a.0 { b } else { a });
    let energy = Energy::new(machine, &trunk, &levels, &work);
    KernelTransfers {
        name: kernel.name.clone(),
        tensors: in_bytes(program, &innermost),
        resident_bytes,
        least_written,
        least,
        flops: work.total(),
        seconds: slowest.0,
        compute_seconds: compute,
        bound_by: slowest.1.to_string(),
        energy,
        data_dependent,
        levels,
    }
}

/// The levels of [`kernel_transfers`] alone. `held` and `counts` are those of the kernel, for all sizes of its tiles.
pub fn level_transfers(
    program: &Program,
    kernel: &Kernel,
    machine: &Machine,
    held: &Held,
    counts: &Arc<Counts>,
) -> Vec<LevelTransfers> {
    let held = machine.element.map(|_| held);
    Found::new(program, kernel, machine, held, counts, 1).levels
}

/// What a kernel moves.
struct Found {
    levels: Vec<LevelTransfers>,
    innermost: Traffic,
    least: Vec<TensorTransfer>,
    resident_bytes: u64,
    data_dependent: bool,
}

impl Found {
    fn new(
        program: &Program,
        kernel: &Kernel,
        machine: &Machine,
        held: Option<&Held>,
        counts: &Arc<Counts>,
        blocks: usize,
    ) -> Self {
        let nest = Nest::with(kernel, counts.clone());
        let innermost = innermost(program, kernel, &nest);
        let resident_bytes = match (machine.element, held) {
            (Some(element), Some(held)) => held.elements(kernel).saturating_mul(element.0),
            _ => resident_bytes(kernel),
        };
        let element = placed_by_programs(machine);
        let in_place = machine.lanes.is_none() && element.is_none() && !multiplies(&kernel.body);
        let held_close = if in_place { resident_in_passing(kernel) } else { resident_bytes };
        let staying = held.map(|h| Staying::new(h, kernel));
        let with = staying.as_ref().map(|s| |kept: &BTreeSet<ValueId>| s.elements(kept));
        let held = with.as_ref().map(|w| w as &KeptElements<'_>);
        let reuse = Reuse { program, kernel, nest: &nest, resident_bytes: held_close, element, held, in_place };
        let least = in_bytes(program, &compulsory_in_any_tiles(&reuse).smaller(&innermost));
        let bound = total(&least);
        let mut levels: Vec<LevelTransfers> = vec![];
        let mut inner = innermost.clone();
        let mut resident = vec![touched_bytes(program, &innermost)];
        let trunk: Vec<&Level> = machine.trunk().collect();
        let by_blocks = Blocks::new(kernel, machine, &trunk);
        for (k, level) in trunk.iter().enumerate().rev() {
            let mut kept_bytes = 0;
            if let Some(memory) = trunk.get(k + 1) {
                // A level never moves more than the one inside it asks for.
                let into = match machine.lanes.is_some() && k == 0 {
                    true => l2_traffic(program, kernel, machine, blocks, counts),
                    false => {
                        let plain = || reuse.traffic_into(memory);
                        let blocked = by_blocks.as_ref().and_then(|b| b.into(program, k + 1, memory, &innermost));
                        let shared =
                            || into_shared(program, kernel, machine, memory, (held_close, in_place), &innermost, plain);
                        blocked.or_else(shared).unwrap_or_else(plain)
                    }
                };
                let without = total(&in_bytes(program, &into.without.smaller(&inner)));
                inner = into.traffic.smaller(&inner);
                kept_bytes = without.saturating_sub(total(&in_bytes(program, &inner)));
                let tiles = if k + 2 == trunk.len() { resident_bytes } else { 0 };
                let most = memory.capacity.filter(|_| machine.element.is_none()).map_or(u64::MAX, |c| c.0);
                // What is too much for a cache lies farther out.
                resident.push(into.resident_bytes.max(tiles).min(most));
            }
            let in_parts = by_blocks.as_ref().map(|b| b.in_parts(program, k)).unwrap_or_default();
            let tensors = in_bytes(program, &inner.clone().with(&in_parts.loaded));
            let carried_bytes = in_parts.states.saturating_mul(element.unwrap_or(1));
            let bytes = total(&tensors).saturating_add(carried_bytes);
            let utilisation = if level.shared_by < machine.cores { utilisation(kernel, machine) } else { 1.0 };
            levels.push(LevelTransfers {
                level: level.name.clone(),
                capacity: level.capacity.map(|c| c.0),
                bytes,
                resident_bytes: 0,
                bound_bytes: bound,
                bound_from: BoundFrom::Once,
                any_order_bytes: bound,
                any_order_from: BoundFrom::Once,
                kept_bytes,
                carried_bytes,
                tensors,
                seconds: (Bytes(bytes) / level.bandwidth).0 / utilisation,
            });
        }
        levels.reverse();
        // The memories were gone through from the inside.
        resident[1..].reverse();
        levels.iter_mut().zip(resident).for_each(|(level, bytes)| level.resident_bytes = bytes);
        Self { levels, innermost, least, resident_bytes, data_dependent: nest.data_dependent(kernel) }
    }
}

/// Bytes of all tensors that a kernel touches.
fn touched_bytes(program: &Program, traffic: &Traffic) -> u64 {
    let size = |(t, _): (TensorId, (u64, u64))| {
        let tensor = program.tensor(t);
        tensor.dims.iter().fold(tensor.dtype.bytes() as u64, |n, &d| n.saturating_mul(d as u64))
    };
    traffic.iter().map(size).fold(0, u64::saturating_add)
}

/// Bytes that pass into a memory and out of it, if all else is outside: what it keeps passes once. On abstract machines as
/// [`kernel_transfers`] counts them, which tells more and takes longer. `held` and `counts` are those of the kernel, for all
/// sizes of its tiles.
pub fn moved_bytes(
    program: &Program,
    kernel: &Kernel,
    machine: &Machine,
    memory: &Level,
    held: &Held,
    counts: &Arc<Counts>,
) -> u64 {
    let nest = Nest::with(kernel, counts.clone());
    let resident_bytes = held.elements(kernel).saturating_mul(machine.element.map_or(1, |e| e.0));
    let element = placed_by_programs(machine);
    let staying = Staying::new(held, kernel);
    let with = |kept: &BTreeSet<ValueId>| staying.elements(kept);
    let reuse = Reuse { program, kernel, nest: &nest, resident_bytes, element, held: Some(&with), in_place: false };
    let innermost = innermost(program, kernel, &nest);
    total(&in_bytes(program, &reuse.traffic_into(memory).traffic.smaller(&innermost)))
}

/// Bytes of an element in the memories of an abstract machine: what they hold is the program's choice.
fn placed_by_programs(machine: &Machine) -> Option<u64> {
    machine.element.map(|e| e.0.max(1))
}

/// Seconds of a kernel's arithmetic if its data were there: all of its products on one matrix unit of a machine whose lanes multiply too, or all by these.
pub fn compute_seconds(kernel: &Kernel, machine: &Machine) -> f64 {
    compute_seconds_of(
        kernel,
        machine,
        &Counts::default(),
        machine.lanes.is_some() && !some_unit_takes(kernel, machine),
    )
}

/// The same where something was counted of the kernel already: `counts` are those of the kernel, for all sizes of its tiles.
pub fn compute_seconds_counted(kernel: &Kernel, machine: &Machine, counts: &Counts) -> f64 {
    compute_seconds_of(kernel, machine, counts, false)
}

fn compute_seconds_of(kernel: &Kernel, machine: &Machine, counts: &Counts, lanes: bool) -> f64 {
    let work = match machine.overhead.masked.and_then(|side| by_squares(kernel, side)) {
        Some(kernel) => Work::with(&kernel, counts),
        None => Work::with(kernel, counts),
    };
    work.seconds(machine, lanes) / utilisation(kernel, machine)
}

/// The kernel with the tiles of its masks' axes cut into squares, which are counted one by one where the machine computes
/// them one by one: exponentials in a stream under its own condition, and what they are taken and summed of. `None` if
/// there are none; what other masks leave out is computed.
fn by_squares(kernel: &Kernel, side: usize) -> Option<Kernel> {
    fn masks<'k>(ops: &'k [Op], out: &mut Vec<&'k Predicate>) {
        for op in ops {
            if let Op::Stream { within, body, .. } = op {
                if body.iter().any(|op| matches!(op, Op::Map { expr, .. } if exponentiates(expr, within))) {
                    out.push(within);
                }
                masks(body, out);
            }
        }
    }
    fn exponentiates(expr: &Scalar, within: &Predicate) -> bool {
        match expr {
            Scalar::Round(_, x) => exponentiates(x, within),
            Scalar::Select(mask, x, other) => {
                let zero = matches!(other.as_ref(), Scalar::Const(x) if *x == 0.0);
                zero && **mask == Scalar::Within(within.clone()) && matches!(x.as_ref(), Scalar::Unary(UnaryOp::Exp, _))
            }
            _ => false,
        }
    }
    let mut found = vec![];
    masks(&kernel.body, &mut found);
    let axes: BTreeSet<AxisId> =
        found.iter().flat_map(|p| &p.all).flat_map(|affine| &affine.terms).map(|term| term.1).collect();
    // Guards leave whole chunks.
    if axes.is_empty() || has_guards(&kernel.body) {
        return None;
    }
    let mut kernel = kernel.clone();
    for axis in axes {
        let axis = &mut kernel.axes[axis.at()];
        axis.tile = axis.tile.min(side);
    }
    Some(kernel)
}

/// Elements that loads and stores move between memory and tiles.
pub(crate) fn innermost(program: &Program, kernel: &Kernel, nest: &Nest) -> Traffic {
    let mut innermost = Traffic::new();
    for (k, access) in nest.accesses.iter().enumerate() {
        let elements = nest.moved(program, kernel, k);
        let (read, written) = innermost.of(access.tensor);
        let sum = if access.store { written } else { read };
        *sum = sum.saturating_add(elements);
    }
    innermost
}

/// The part of the cores that works on average: the last wave of grid points may leave some idle.
fn utilisation(kernel: &Kernel, machine: &Machine) -> f64 {
    let (points, cores) = (working(kernel), machine.cores.max(1));
    if points == 0 { 1.0 } else { points as f64 / (points.div_ceil(cores) as f64 * cores as f64) }
}

/// Grid points at which some stream has anything to do, where conditions on the grid alone leave streams out at the others.
fn working(kernel: &Kernel) -> usize {
    let points = grid_points(kernel);
    let streams = || {
        kernel.body.iter().filter_map(|op| match op {
            Op::Stream { axis, within, guards, .. } => Some((*axis, within, guards)),
            _ => None,
        })
    };
    let on_grid = |(axis, within, _): (AxisId, &Predicate, &Vec<Guard>)| {
        within.all.iter().any(|form| form.terms.iter().all(|t| t.1 != axis))
    };
    if points == 0 || streams().next().is_none() || !streams().all(on_grid) {
        return points;
    }
    let mut windows = initial_windows(kernel);
    // Of very many points every so manieth; the step is odd, so that it falls on all parts of grids of powers of two.
    let step = if points > MOST_POINTS { (points / MOST_POINTS) | 1 } else { 1 };
    let busy = (0..points).step_by(step).filter(|&point| {
        set_grid_point(kernel, point, &mut windows);
        streams()
            .any(|(axis, within, guards)| visited(kernel, (axis, within, guards), &windows, &unknown).next().is_some())
    });
    (busy.count() * step).clamp(1, points)
}

fn in_bytes(program: &Program, traffic: &Traffic) -> Vec<TensorTransfer> {
    let each = |(tensor, (read, written)): (TensorId, (u64, u64))| {
        let bytes = program.tensor(tensor).dtype.bytes() as u64;
        let (loaded_bytes, stored_bytes) = (read.saturating_mul(bytes), written.saturating_mul(bytes));
        TensorTransfer { tensor, loaded_bytes, stored_bytes }
    };
    traffic.iter().map(each).collect()
}

fn total(tensors: &[TensorTransfer]) -> u64 {
    tensors.iter().map(|t| t.loaded_bytes.saturating_add(t.stored_bytes)).fold(0, u64::saturating_add)
}
