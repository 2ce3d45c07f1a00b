//! `einloom plan`: kernels, tiles, and what they move at each level of the memory next to what they must.

use super::args::{Backend, PlanArgs};
use super::failure::Failure;
use super::table::Table;
use super::ui::Ui;
use super::{prepare, source, units};
use einloom::Planned;
use einloom_model::{KernelTransfers, OnGpu};
use einloom_plan::PlannedKernel;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
struct PlanJson {
    cascade: String,
    machine: String,
    sizes: BTreeMap<String, usize>,
    kernels: Vec<KernelJson>,
}

/// `statements` are the tensors that the kernel's statements define; `group` and `stream` are tile sizes by index.
#[derive(Debug, Serialize)]
struct KernelJson {
    name: String,
    statements: Vec<String>,
    group: BTreeMap<String, usize>,
    stream: BTreeMap<String, usize>,
    levels: Vec<LevelJson>,
    seconds: f64,
    bound_by: String,
    flops: f64,
    resident_bytes: u64,
    data_dependent: bool,
    writes: Vec<String>,
    gpu: Option<GpuJson>,
    notes: Vec<String>,
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
    /// `null` where nothing has to move.
    ratio: Option<f64>,
}

pub(crate) fn command(ui: &mut Ui, args: &PlanArgs) -> Result<(), Failure> {
    let derived = source::checked(ui, &args.source)?.derive();
    let given = prepare::given(&args.sizing, BTreeMap::new())?;
    // A plan for a GPU is that of the GPU's backend.
    let has_units = !prepare::machine(&args.target, Backend::Cpu, None)?.matrix.is_empty();
    let backend = if has_units { Backend::Cuda } else { Backend::Cpu };
    let planned = prepare::planned(&derived, &given, &args.sizing, &args.target, backend, None)?;
    if prepare::dumped(ui, &derived, &planned)? {
        return Ok(());
    }
    let cascade = planned.cascade();
    let data = PlanJson {
        cascade: cascade.name.clone(),
        machine: planned.machine().name.clone(),
        sizes: cascade.ranks.iter().map(|r| r.name.clone()).zip(planned.bound().sizes().iter().copied()).collect(),
        kernels: kernels(&planned).map(|(k, t)| kernel(&planned, k, &t)).collect(),
    };
    ui.result(|| text(&planned), &data)
}

fn kernels(planned: &Planned) -> impl Iterator<Item = (&PlannedKernel, KernelTransfers)> {
    planned.kernels().iter().zip(planned.transfers())
}

fn kernel(planned: &Planned, kernel: &PlannedKernel, transfers: &KernelTransfers) -> KernelJson {
    let level = |l: &einloom_model::LevelTransfers| LevelJson {
        level: l.level.clone(),
        bytes: l.bytes,
        bound_bytes: l.bound_bytes,
        ratio: ratio(l),
    };
    KernelJson {
        name: kernel.name.clone(),
        statements: statements(planned, kernel),
        group: kernel.group.iter().cloned().collect(),
        stream: kernel.stream.iter().cloned().collect(),
        levels: transfers.levels.iter().map(level).collect(),
        seconds: time(kernel, transfers).0,
        bound_by: time(kernel, transfers).1.to_string(),
        flops: transfers.flops,
        resident_bytes: transfers.resident_bytes,
        data_dependent: transfers.data_dependent,
        writes: kernel.materialised.clone(),
        gpu: kernel.gpu.as_ref().map(gpu),
        notes: kernel.notes.clone(),
    }
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

/// The predicted time and what it goes to: a core's model knows more than bytes and operations.
fn time<'a>(kernel: &'a PlannedKernel, transfers: &'a KernelTransfers) -> (f64, &'a str) {
    let gpu = kernel.gpu.as_ref().map(|g| (g.seconds, g.bound_by.as_str()));
    gpu.unwrap_or((transfers.seconds, &transfers.bound_by))
}

fn ratio(l: &einloom_model::LevelTransfers) -> Option<f64> {
    (l.bound_bytes > 0).then(|| l.bytes as f64 / l.bound_bytes as f64)
}

/// The targets of the statements it computes or helps to compute, each once.
fn statements(planned: &Planned, kernel: &PlannedKernel) -> Vec<String> {
    let mut names: Vec<String> = kernel.statements.iter().map(|&s| super::target(planned.cascade(), s)).collect();
    names.dedup();
    names
}

/// The plan for people.
pub(crate) fn text(planned: &Planned) -> String {
    let machine = planned.machine();
    let cascade = planned.cascade();
    let sizes = cascade.ranks.iter().zip(planned.bound().sizes());
    let sizes: Vec<String> = sizes.map(|(r, s)| format!("{}={s}", r.name)).collect();
    let total: f64 = kernels(planned).map(|(k, t)| time(k, &t).0).sum();
    let mut out = format!("{} on {}: {}\n", cascade.name, machine.name, sizes.join(", "));
    let count = planned.kernels().len();
    out += &format!("{count} kernel{}, {} predicted\n", if count == 1 { "" } else { "s" }, units::seconds(total));
    for (kernel, transfers) in kernels(planned) {
        out += &kernel_text(planned, kernel, &transfers);
    }
    out
}

fn kernel_text(planned: &Planned, kernel: &PlannedKernel, transfers: &KernelTransfers) -> String {
    let axes = |axes: &[(String, usize)]| {
        let one = |(name, tile): &(String, usize)| if *tile > 1 { format!("{name}:{tile}") } else { name.clone() };
        if axes.is_empty() { "-".to_string() } else { axes.iter().map(one).collect::<Vec<_>>().join(" ") }
    };
    let mut out = format!("\n{} computes {}\n", kernel.name, statements(planned, kernel).join(", "));
    out += &format!("  group   {}\n  stream  {}\n", axes(&kernel.group), axes(&kernel.stream));
    let (seconds, bound_by) = time(kernel, transfers);
    out += &format!(
        "  time    {} predicted, by {bound_by}; {} operations, {} of tiles\n",
        units::seconds(seconds),
        units::rate(transfers.flops, ""),
        units::bytes(transfers.resident_bytes as f64)
    );
    let mut table = Table::new(&["level", "planned", "bound", "ratio", "time"]);
    for l in &transfers.levels {
        table.row([
            l.level.clone(),
            units::bytes(l.bytes as f64),
            units::bytes(l.bound_bytes as f64),
            ratio(l).map_or("-".to_string(), |r| format!("{r:.2}")),
            units::seconds(l.seconds),
        ]);
    }
    out += &table.text();
    if transfers.data_dependent {
        out += "  the data decide how much is skipped: these are the largest numbers\n";
    }
    for note in &kernel.notes {
        out += &format!("  note: {note}\n");
    }
    out
}
