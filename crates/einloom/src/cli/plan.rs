//! `einloom plan`: kernels, tiles, and what they move at each level of the memory next to what they must.

use super::args::{Backend, PlanArgs};
use super::failure::Failure;
use super::table::Table;
use super::ui::Ui;
use super::{explain, kernel_formula, prepare, source, units};
use einloom::{Derived, Planned};
use einloom_model::bounds::BoundFrom;
use einloom_model::{KernelTransfers, OnGpu, by_lanes};
use einloom_plan::PlannedKernel;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

#[derive(Debug, Serialize)]
struct PlanJson {
    cascade: String,
    machine: String,
    sizes: BTreeMap<String, usize>,
    kernels: Vec<KernelJson>,
    /// Of all kernels, at the outermost memory.
    bytes: u64,
    /// What passes it wherever the program is cut into kernels.
    least_bytes: u64,
    /// Of all kernels, launches included.
    seconds: f64,
    /// Of all kernels; `null` where the machine does not tell.
    energy_joules: Option<f64>,
    /// What the planner went by: `lost` and `doubled` are compared with it. On a machine that counts elements what passes its memories.
    planner_seconds: f64,
    shares: Vec<SharesJson>,
    lost: Vec<explain::LostJson>,
    /// With `--explain`.
    doubled: Option<Vec<explain::DoubledJson>>,
    work: explain::WorkJson,
}

/// Positions of an index.
#[derive(Debug, Serialize)]
struct PartJson {
    index: String,
    from: usize,
    positions: usize,
    /// The other index that is cut, where two are.
    #[serde(skip_serializing_if = "Option::is_none")]
    across: Option<AcrossJson>,
    /// How many parts there are.
    parts: usize,
    /// What all parts together move at the level that they were cut for, what they have to, and the ratio of these.
    level: String,
    bytes: u64,
    bound_bytes: u64,
    bound_from: &'static str,
    ratio: Option<f64>,
}

#[derive(Debug, Serialize)]
struct AcrossJson {
    index: String,
    from: usize,
    positions: usize,
}

/// Positions along axes that are finished together, and the memory that keeps what they share.
#[derive(Debug, Serialize)]
struct BlockJson {
    memory: String,
    sides: BTreeMap<String, usize>,
}

/// `statements` are the tensors that the kernel's statements define; `group` and `stream` are tile sizes by index.
#[derive(Debug, Serialize)]
struct KernelJson {
    name: String,
    statements: Vec<String>,
    group: BTreeMap<String, usize>,
    stream: BTreeMap<String, usize>,
    /// Tiles of memories between the outermost and the innermost, outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    blocks: Vec<BlockJson>,
    /// What of it this kernel computes, if another computes the rest.
    part: Option<PartJson>,
    levels: Vec<LevelJson>,
    seconds: f64,
    bound_by: String,
    flops: f64,
    energy_joules: Option<f64>,
    energy: explain::EnergyJson,
    /// How long each resource is busy.
    busy: BTreeMap<String, f64>,
    resident_bytes: u64,
    data_dependent: bool,
    writes: Vec<String>,
    formula: kernel_formula::KernelFormulaJson,
    gpu: Option<GpuJson>,
    notes: Vec<String>,
}

/// An index that reductions go through in `count` shares of `each` positions.
#[derive(Debug, Serialize)]
struct SharesJson {
    index: String,
    count: usize,
    each: usize,
}

/// How a kernel runs on one core of a GPU; `groups` are those down and across.
#[derive(Debug, Serialize)]
struct GpuJson {
    unit: Option<String>,
    groups: [usize; 2],
    threads: usize,
    registers: usize,
    register_limit: usize,
    shared_bytes: u64,
    shared_limit: u64,
    stages: usize,
    blocks: usize,
}

#[derive(Debug, Serialize)]
struct LevelJson {
    level: String,
    bytes: u64,
    bound_bytes: u64,
    /// `once`, `contraction`, `parts` or `apart` in any order; `rows`, `sums`, `side`, `groups`, `factor`, `tiles` or
    /// `results` in some.
    bound_from: &'static str,
    /// The bound without what holds only for some orders; of a part by itself, as `bound_bytes`.
    bound_any_order_bytes: u64,
    /// What is asked for again and stays in what tiles leave free.
    kept_bytes: u64,
    /// What of `bytes` are states that wait between parts of a stream, and of no tensor.
    #[serde(skip_serializing_if = "is_zero")]
    carried_bytes: u64,
    /// `null` where nothing has to move.
    ratio: Option<f64>,
    /// Of one instance; `null` without a limit.
    capacity_bytes: Option<u64>,
    /// What one instance holds of the kernel's data at once.
    resident_bytes: u64,
    /// `bytes` without `carried_bytes`, by tensor and direction.
    tensors: BTreeMap<String, TensorJson>,
}

/// `loaded_bytes` pass inwards, `stored_bytes` outwards.
#[derive(Debug, Serialize)]
struct TensorJson {
    loaded_bytes: u64,
    stored_bytes: u64,
}

pub(crate) fn command(ui: &mut Ui, args: &PlanArgs) -> Result<(), Failure> {
    let derived = source::checked(ui, &args.source)?.derive();
    let given = prepare::given(&args.sizing, BTreeMap::new())?;
    prepare::not_empty(derived.cascade(), &args.sizing, &given)?;
    // A plan for a GPU is that of the GPU's backend.
    let machine = prepare::machine(&args.target, Backend::Cpu, None)?;
    prepare::threads_fit(&args.target, &machine)?;
    let backend = prepare::backend_of(&machine);
    let start = Instant::now();
    let planned = prepare::planned(&derived, &given, &args.sizing, &args.target, backend, None)?;
    let took = start.elapsed().as_secs_f64();
    prepare::fits(&planned).map_err(einloom::Error::Plan)?;
    if prepare::dumped(ui, &derived, &planned)? {
        return Ok(());
    }
    let doubled = match args.explain {
        true => Some(derived.doubled(&planned, &prepare::options(&args.sizing, planned.machine())?)?),
        false => None,
    };
    let cascade = planned.cascade();
    let all: Vec<_> = kernels(&planned).collect();
    let data = PlanJson {
        cascade: cascade.name.clone(),
        machine: planned.machine().name.clone(),
        sizes: cascade.ranks.iter().map(|r| r.name.clone()).zip(planned.bound().sizes().iter().copied()).collect(),
        kernels: all.iter().enumerate().map(|(n, (k, t))| kernel(&derived, &planned, n, k, t)).collect(),
        bytes: outermost(all.iter().map(|(_, t)| *t)),
        least_bytes: planned.least_bytes(planned.transfers()),
        seconds: all.iter().map(|(k, t)| time(&planned, k, t).0).sum(),
        energy_joules: all.iter().map(|(_, t)| t.energy.joules()).sum(),
        planner_seconds: planned.seconds(),
        shares: planned.shares().iter().map(shares).collect(),
        lost: explain::lost(&planned),
        doubled: doubled.as_ref().map(|d| explain::doubled(&planned, d)),
        work: explain::work(&planned),
    };
    let shown = || text(&derived, &planned) + &doubled.as_ref().map_or(String::new(), |d| explain::text(&planned, d));
    ui.result(shown, &data)?;
    if ui.is_watched() {
        ui.note(&format!("planned in {}: {}", units::seconds(took), explain::work_text(&planned)));
    }
    Ok(())
}

fn shares(s: &einloom_plan::Shares) -> SharesJson {
    SharesJson { index: s.index.clone(), count: s.count, each: s.each }
}

/// Bytes that kernels move at the outermost memory.
fn outermost<'a>(kernels: impl Iterator<Item = &'a KernelTransfers>) -> u64 {
    kernels.filter_map(|t| t.levels.first()).map(|l| l.bytes).sum()
}

pub(crate) fn kernels(planned: &Planned) -> impl Iterator<Item = (&PlannedKernel, &KernelTransfers)> {
    planned.kernels().iter().zip(planned.transfers())
}

fn kernel(
    derived: &Derived,
    planned: &Planned,
    place: usize,
    kernel: &PlannedKernel,
    transfers: &KernelTransfers,
) -> KernelJson {
    let tensor = |t: &einloom_model::TensorTransfer| {
        let name = planned.program().tensor(t.tensor).name.clone();
        (name, TensorJson { loaded_bytes: t.loaded_bytes, stored_bytes: t.stored_bytes })
    };
    let level = |l: &einloom_model::LevelTransfers| LevelJson {
        level: l.level.clone(),
        bytes: l.bytes,
        bound_bytes: l.bound_bytes,
        bound_from: l.bound_from.name(),
        bound_any_order_bytes: l.any_order_bytes,
        kept_bytes: l.kept_bytes,
        carried_bytes: l.carried_bytes,
        ratio: own_ratio(kernel, l),
        capacity_bytes: l.capacity,
        resident_bytes: resident(planned, kernel, l),
        tensors: l.tensors.iter().map(tensor).collect(),
    };
    let (seconds, bound_by) = time(planned, kernel, transfers);
    KernelJson {
        name: kernel.name.clone(),
        statements: statements(planned, kernel),
        group: kernel.group.iter().cloned().collect(),
        stream: kernel.stream.iter().cloned().collect(),
        blocks: blocks(planned, place)
            .map(|(memory, sides)| BlockJson { memory, sides: sides.into_iter().collect() })
            .collect(),
        part: kernel.part.as_ref().map(|p| {
            let bytes = of_all(planned, p);
            let ratio = (p.bound_bytes > 0).then(|| bytes as f64 / p.bound_bytes as f64);
            let (index, level, bound_bytes) = (p.index.clone(), p.level.clone(), p.bound_bytes);
            let bound_from = p.bound_from.name();
            let across = p.across.clone().map(|(index, from, positions)| AcrossJson { index, from, positions });
            let (from, positions, parts) = (p.from, p.len, p.place[1]);
            PartJson { index, from, positions, across, parts, level, bytes, bound_bytes, bound_from, ratio }
        }),
        levels: transfers.levels.iter().map(level).collect(),
        seconds,
        bound_by: bound_by.to_string(),
        flops: transfers.flops,
        energy_joules: transfers.energy.joules(),
        energy: explain::energy(&transfers.energy, seconds, planned.machine()),
        busy: kernel.parts.iter().cloned().collect(),
        resident_bytes: transfers.resident_bytes,
        data_dependent: transfers.data_dependent,
        writes: kernel.materialised.clone(),
        formula: kernel_formula::json(derived, planned, place, transfers),
        gpu: kernel.gpu.as_ref().map(gpu),
        notes: kernel.notes.clone(),
    }
}

fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

/// Of the kernel at this place the memories that keep blocks, with the sides of these.
fn blocks(planned: &Planned, place: usize) -> impl Iterator<Item = (String, Vec<(String, usize)>)> {
    let kernel = planned.program().kernels.get(place);
    kernel.into_iter().flat_map(|k| {
        k.blocks.iter().map(|b| {
            let sides = b.sides.iter().map(|&(a, side)| (k.axis(a).name.clone(), side));
            (b.memory.clone(), sides.collect())
        })
    })
}

fn gpu(g: &OnGpu) -> GpuJson {
    GpuJson {
        unit: g.unit.clone(),
        groups: g.groups,
        threads: g.threads,
        registers: g.registers,
        register_limit: g.register_limit,
        shared_bytes: g.shared_bytes,
        shared_limit: g.shared_limit,
        stages: g.stages,
        blocks: g.blocks,
    }
}

/// The predicted time and what it goes to: what the planner went by, the launch included. An abstract machine's planner
/// goes by bytes alone, and starts nothing.
pub(crate) fn time<'a>(planned: &Planned, kernel: &'a PlannedKernel, transfers: &'a KernelTransfers) -> (f64, &'a str) {
    if planned.machine().element.is_some() {
        return (transfers.seconds, &transfers.bound_by);
    }
    // A core's model knows what waits for what; elsewhere the busiest resource is the one.
    let busiest = kernel.parts.first().map(|p| p.0.as_str()).filter(|_| kernel.gpu.is_none());
    (kernel.seconds, busiest.unwrap_or(&kernel.bound_by))
}

/// What a level holds: of the memory of a GPU's core what its blocks take, which the core's model knows.
fn resident(planned: &Planned, kernel: &PlannedKernel, level: &einloom_model::LevelTransfers) -> u64 {
    let innermost = planned.machine().trunk().next_back().is_some_and(|l| l.name == level.level);
    let by_lanes = || {
        let program = planned.program();
        let found = by_lanes(program, program.kernels.iter().find(|k| k.name == kernel.name)?, planned.machine())?;
        Some((found.shared_bytes, found.blocks))
    };
    match kernel.gpu.as_ref().map(|g| (g.shared_bytes, g.blocks)).or_else(by_lanes).filter(|_| innermost) {
        Some((bytes, blocks)) => bytes.saturating_mul(blocks as u64),
        None => level.resident_bytes,
    }
}

pub(crate) fn ratio(l: &einloom_model::LevelTransfers) -> Option<f64> {
    (l.bound_bytes > 0).then(|| l.bytes as f64 / l.bound_bytes as f64)
}

/// The same of one kernel. A part has none at the level that both were cut for: the bound is that of the whole.
fn own_ratio(kernel: &PlannedKernel, l: &einloom_model::LevelTransfers) -> Option<f64> {
    ratio(l).filter(|_| !is_cut_for(kernel, l))
}

/// More of the bound than this says what the bound does not count.
const NEAR: f64 = 1.05;

/// For which orders a bound holds, where not for all; and on machines that count elements what it leaves out, where a plan is far
/// from it. For both parts of a kernel beside the first.
fn bound_text(planned: &Planned, kernel: &PlannedKernel, l: &einloom_model::LevelTransfers) -> Option<String> {
    let part = kernel.part.as_ref().filter(|_| is_cut_for(kernel, l));
    if let Some(some) = l.bound_from.orders().filter(|_| part.is_none()) {
        return Some(format!("{some}; in any order {}", units::bytes(l.any_order_bytes as f64)));
    }
    let ratio = match part {
        Some(part) if part.place[0] > 0 => return None,
        Some(part) => of_all(planned, part) as f64 / (part.bound_bytes as f64).max(1.0),
        None => ratio(l)?,
    };
    if planned.machine().element.is_none() || ratio <= NEAR {
        return None;
    }
    let left_out = match l.bound_from {
        BoundFrom::Once => "everything once; what comes again because it does not fit is not known",
        BoundFrom::Contraction | BoundFrom::Factor | BoundFrom::Tiles => {
            "for tiles that need not be whole in number, with nothing beside their sums"
        }
        BoundFrom::Apart => "for each product by itself; what is between them is not counted",
        BoundFrom::Parts
        | BoundFrom::Rows
        | BoundFrom::Sums
        | BoundFrom::Side
        | BoundFrom::Results
        | BoundFrom::Groups => "for rows that need not be whole in number, with nothing beside them",
    };
    Some(format!("{left_out}; it holds in any order"))
}

fn is_cut_for(kernel: &PlannedKernel, l: &einloom_model::LevelTransfers) -> bool {
    kernel.part.as_ref().is_some_and(|p| p.level == l.level)
}

/// Bytes that a part and the others move together at the level that they were cut for. They follow one another in the plan.
fn of_all(planned: &Planned, part: &einloom_plan::Part) -> u64 {
    let [place, count] = part.place;
    let is_it = |k: &PlannedKernel| k.part.as_ref().is_some_and(|p| std::ptr::eq(p, part));
    let first = kernels(planned).position(|(k, _)| is_it(k)).map_or(0, |at| at.saturating_sub(place));
    let all = kernels(planned).skip(first).take(count);
    all.flat_map(|(_, t)| &t.levels).filter(|l| l.level == part.level).map(|l| l.bytes).sum()
}

/// What bounds a kernel's traffic at a level, such that the sum over kernels is the program's.
pub(crate) fn bound(kernel: &PlannedKernel, level: &einloom_model::LevelTransfers) -> u64 {
    let part = kernel.part.as_ref();
    part.map_or(level.bound_bytes, |p| p.bound_of(&level.level, level.bound_bytes))
}

/// What the bounds of kernels at a level rest on, each once.
pub(crate) fn bounds_from<'a>(
    kernels: impl Iterator<Item = (&'a PlannedKernel, &'a einloom_model::LevelTransfers)>,
) -> BTreeSet<BoundFrom> {
    let one = |(kernel, level): (&PlannedKernel, &einloom_model::LevelTransfers)| {
        let part = kernel.part.as_ref().filter(|_| is_cut_for(kernel, level));
        part.map_or(level.bound_from, |p| p.bound_from)
    };
    kernels.map(one).collect()
}

/// Their names, as a table's cell or an entry of a report for programs.
pub(crate) fn names(from: &BTreeSet<BoundFrom>) -> String {
    from.iter().map(|f| f.name()).collect::<Vec<_>>().join("+")
}

/// What the names in a table mean, a line each.
pub(crate) fn legend(from: BTreeSet<BoundFrom>) -> String {
    from.into_iter().map(|f| format!("  bound `{}`: {}\n", f.name(), f.text())).collect()
}

/// The targets of the statements it computes or helps to compute, each once.
fn statements(planned: &Planned, kernel: &PlannedKernel) -> Vec<String> {
    let mut names: Vec<String> = kernel.statements.iter().map(|&s| super::target(planned.cascade(), s)).collect();
    names.dedup();
    names
}

/// The plan for people.
pub(crate) fn text(derived: &Derived, planned: &Planned) -> String {
    let machine = planned.machine();
    let cascade = planned.cascade();
    let sizes = cascade.ranks.iter().zip(planned.bound().sizes());
    let sizes: Vec<String> = sizes.map(|(r, s)| format!("{}={s}", r.name)).collect();
    let total: f64 = kernels(planned).map(|(k, t)| time(planned, k, t).0).sum();
    let mut out = format!("{} on {}: {}\n", cascade.name, machine.name, sizes.join(", "));
    let count = planned.kernels().len();
    out += &format!("{count} kernel{}, {} predicted\n", if count == 1 { "" } else { "s" }, units::seconds(total));
    for (place, (kernel, transfers)) in kernels(planned).enumerate() {
        out += &kernel_text(derived, planned, place, kernel, transfers);
    }
    if count > 1
        && let Some(root) = machine.trunk().next()
    {
        let all = planned.transfers();
        let (bytes, least) = (outermost(all.iter()), planned.least_bytes(all));
        let [moved, alone] = [bytes, least].map(|b| units::bytes(b as f64));
        out += &format!(
            "\nall kernels move {moved} at {}; inputs and outputs alone {alone}, wherever it is cut: {:.2} times\n",
            root.name,
            bytes as f64 / (least as f64).max(1.0)
        );
    }
    out
}

fn kernel_text(
    derived: &Derived,
    planned: &Planned,
    place: usize,
    kernel: &PlannedKernel,
    transfers: &KernelTransfers,
) -> String {
    let axes = |axes: &[(String, usize)]| {
        let one = |(name, tile): &(String, usize)| if *tile > 1 { format!("{name}:{tile}") } else { name.clone() };
        if axes.is_empty() { "-".to_string() } else { axes.iter().map(one).collect::<Vec<_>>().join(" ") }
    };
    let (does, what) = match statements(planned, kernel) {
        none if none.is_empty() => ("finds", kernel.materialised.join(", ")),
        names => ("computes", names.join(", ")),
    };
    let mut out = format!("\n{} {does} {what}\n", kernel.name);
    out += &format!("  group   {}\n  stream  {}\n", axes(&kernel.group), axes(&kernel.stream));
    for (memory, sides) in blocks(planned, place) {
        out += &format!("  blocks  {} in {memory}\n", axes(&sides));
    }
    out += &kernel_formula::text(derived, planned, place, transfers);
    let (seconds, bound_by) = time(planned, kernel, transfers);
    out += &format!(
        "  time    {} predicted, by {bound_by}; {} operations, {} of tiles\n",
        units::seconds(seconds),
        units::rate(transfers.flops, "").trim_end(),
        units::bytes(transfers.resident_bytes as f64)
    );
    let mut table = Table::new(&["level", "planned", "bound", "ratio", "time"]);
    for l in &transfers.levels {
        table.row([
            l.level.clone(),
            units::bytes(l.bytes as f64),
            if is_cut_for(kernel, l) { "-".to_string() } else { units::bytes(l.bound_bytes as f64) },
            own_ratio(kernel, l).map_or("-".to_string(), |r| format!("{r:.2}")),
            units::seconds(l.seconds),
        ]);
    }
    out += &table.text();
    if let Some(part) = &kernel.part {
        let bytes = of_all(planned, part);
        let all = if part.place[1] == 2 { "both" } else { "all" };
        let [moved, bound] = [bytes, part.bound_bytes].map(|b| units::bytes(b as f64));
        let ratio = bytes as f64 / (part.bound_bytes as f64).max(1.0);
        out += &format!("  {all} parts at {}: {moved} planned, {bound} bound, ratio {ratio:.2}\n", part.level);
        if let Some(orders) = part.bound_from.orders().filter(|_| part.place[0] == 0) {
            out += &format!("  bound of {all} parts: {orders}\n");
        }
    }
    for l in &transfers.levels {
        if let Some(why) = bound_text(planned, kernel, l) {
            out += &format!("  bound of {}: {why}\n", l.level);
        }
        if l.kept_bytes > 0 {
            let kept = units::bytes(l.kept_bytes as f64);
            out += &format!("  {}: {kept} less than H, which stay in what the tiles leave free\n", l.level);
        }
        if l.carried_bytes > 0 {
            let carried = units::bytes(l.carried_bytes as f64);
            out += &format!("  {}: {carried} of states leave and come back between parts of the stream\n", l.level);
        }
    }
    if transfers.data_dependent {
        out += "  the data decide how much is skipped: these are the largest numbers\n";
    }
    for note in &kernel.notes {
        out += &format!("  note: {note}\n");
    }
    out
}
