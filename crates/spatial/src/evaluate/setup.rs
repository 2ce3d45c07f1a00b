//! Names to numbers: do cascade, chip, binding and sizes fit together?

use super::Setting;
use crate::binding::BindingFault;
use crate::{Array, Binding, Chip, Einsum, Extent, Operation, Problem, Program};
use einloom_algebra::NodeId;
use einloom_cascade::{Bound, RankId};
use std::collections::{BTreeMap, BTreeSet};

/// A setting whose names all stand for something.
pub(super) struct Setup<'a> {
    pub setting: &'a Setting<'a>,
    pub bound: Bound,
    /// By kernel: tile extents of the ranks that are cut.
    pub tiles: Vec<BTreeMap<RankId, usize>>,
    /// By array: how many positions of which rank it computes at once.
    pub space: BTreeMap<&'a str, BTreeMap<RankId, usize>>,
    /// In which kernel a node is computed.
    pub kernel_of: BTreeMap<NodeId, usize>,
    /// Faults of the binding that are kept.
    pub faults: Vec<&'a BindingFault>,
    /// What the reader should know about the sizes.
    pub notes: Vec<String>,
}

pub(super) fn setup<'a>(setting: &'a Setting<'a>) -> Result<Setup<'a>, Vec<Problem>> {
    let mut problems = vec![];
    let (program, binding) = (setting.program, setting.binding);
    let mut sizes = setting.sizes.clone();
    for (rank, extent) in &binding.sizes {
        if known_rank(setting, rank, "sizes", &mut problems).is_some()
            && let Some(n) = extent_on(setting, extent, "sizes", &mut problems)
        {
            sizes.insert(rank.clone(), n);
        }
    }
    let mut space = BTreeMap::new();
    for (name, sides) in &binding.space {
        let Some(array) = known_array(setting, name, "space", &mut problems) else { continue };
        let mut at_once = BTreeMap::new();
        for (rank, n) in [(&sides.rows, array.rows), (&sides.columns, array.columns)] {
            if let Some(rank) = rank
                && let Some(rank) = known_rank(setting, rank, "space", &mut problems)
            {
                *at_once.entry(rank).or_insert(1) *= n;
            }
        }
        space.insert(name.as_str(), at_once);
    }
    let mut tiles = vec![];
    let mut kernel_of = BTreeMap::new();
    for (k, kernel) in binding.kernels.iter().enumerate() {
        let field = format!("kernel {}", kernel.name);
        let mut tile = BTreeMap::new();
        for (rank, extent) in &kernel.tile {
            if let (Some(rank), Some(n)) =
                (known_rank(setting, rank, &field, &mut problems), extent_on(setting, extent, &field, &mut problems))
            {
                tile.insert(rank, n);
            }
        }
        tiles.push(tile);
        for phase in &kernel.phases {
            for name in phase.runs.keys().chain(&phase.drains) {
                known_array(setting, name, &field, &mut problems);
            }
            for (array, names) in &phase.runs {
                for name in names {
                    let Some(einsum) = program.einsum(name) else {
                        problems.push(unknown_einsum(setting, name, &field));
                        continue;
                    };
                    if kernel_of.insert(einsum.node, k).is_some() {
                        problems.push(Problem::new(&field, format!("{name} runs twice")).of(&binding.name).about(name));
                    }
                    if let Some(array) = setting.chip.array(array) {
                        missing_operations(setting, einsum, array, &field, &mut problems);
                    }
                }
            }
        }
        let flows = kernel.dataflows.iter();
        for name in flows.flat_map(|d| d.past.iter().chain(d.within.iter().map(|w| &w.array))) {
            known_array(setting, name, &field, &mut problems);
        }
        names_of_tensors(setting, k, &field, &mut problems);
    }
    for einsum in &program.einsums {
        if !kernel_of.contains_key(&einsum.node) {
            let message = format!("{} runs nowhere", einsum.name);
            let hint = "name it in a phase of one kernel";
            problems.push(Problem::new("kernel", message).of(&binding.name).hint(hint));
        }
    }
    // Sizes make sense only for a cascade that is understood.
    if !problems.is_empty() {
        let mut once: Vec<Problem> = vec![];
        for problem in problems {
            if !once.contains(&problem) {
                once.push(problem);
            }
        }
        return Err(once);
    }
    let notes = fill_up(program, &binding.sizes, &mut sizes);
    let bound = program.bind(&sizes)?;
    let faults = binding.faults.iter().filter(|(name, _)| setting.faults.contains(*name)).map(|f| f.1).collect();
    Ok(Setup { setting, bound, tiles, space, kernel_of, faults, notes })
}

/// Fills up ranks that are products (`rank M = M1 * M0`) to whole multiples of the factors that the binding gives.
pub(crate) fn fill_up(
    program: &Program,
    binding: &BTreeMap<String, Extent>,
    sizes: &mut BTreeMap<String, usize>,
) -> Vec<String> {
    let cascade = &program.graph.cascade;
    let mut notes = vec![];
    for rank in &cascade.ranks {
        let Some(default) = rank.default.as_ref().filter(|d| d.denominator.as_constant() == Some(1)) else { continue };
        let ([(factors, 1)], Some(&size)) = (default.numerator.terms(), sizes.get(&rank.name)) else { continue };
        let given = factors.iter().filter(|&&f| binding.contains_key(&cascade[f].name));
        let part: usize = given.filter_map(|&f| sizes.get(&cascade[f].name)).product();
        if let Some(padded) = size.checked_next_multiple_of(part)
            && padded != size
        {
            notes.push(format!("{} is filled up from {size} to {padded}, whole tiles of {part}", rank.name));
            sizes.insert(rank.name.clone(), padded);
        }
    }
    notes
}

/// The sizes that are evaluated: those of a setting with what the binding takes from the chip, filled up to whole
/// tiles.
pub fn filled_up(setting: &Setting<'_>) -> BTreeMap<String, usize> {
    let mut sizes = setting.sizes.clone();
    let of_chip = setting.binding.sizes.iter().filter_map(|(r, e)| Some((r.clone(), e.on(setting.chip)?)));
    sizes.extend(of_chip);
    fill_up(setting.program, &setting.binding.sizes, &mut sizes);
    sizes
}

/// Whether every name of a binding stands for something in a cascade and on a chip; sizes are left open.
pub fn check(program: &Program, chip: &Chip, binding: &Binding) -> Vec<Problem> {
    let (sizes, faults) = (BTreeMap::new(), BTreeSet::new());
    let setting = Setting { program, chip, binding, sizes: &sizes, instances: 1.0, faults: &faults };
    // Without sizes ranks have none: those problems have no file.
    setup(&setting).err().unwrap_or_default().into_iter().filter(|p| !p.file.is_empty()).collect()
}

impl Setup<'_> {
    /// How many pieces a rank is cut into.
    pub fn pieces(&self, rank: RankId, piece: usize) -> usize {
        self.bound.size(rank).div_ceil(piece.max(1))
    }

    /// Whether a kernel takes a rank in several tiles.
    pub fn is_cut(&self, kernel: usize, rank: RankId) -> bool {
        self.tiles[kernel].get(&rank).is_some_and(|&n| self.pieces(rank, n) > 1)
    }

    /// Whether the number of first reads of a result wraps at 64 bits.
    pub fn first_reads_wrap(&self) -> bool {
        let faults = &self.setting.chip.faults;
        faults.iter().any(|(name, f)| f.first_reads_wrap && self.setting.faults.contains(name))
    }

    /// Whether an operation is charged as the parts that it can be done in.
    pub fn is_split(&self, operation: &Operation) -> bool {
        self.faults.iter().any(|f| f.split.contains(operation))
    }

    /// Whether an operation's energy is left out.
    pub fn is_uncharged(&self, operation: &Operation) -> bool {
        self.faults.iter().any(|f| f.uncharged.contains(operation))
    }
}

fn known_rank(setting: &Setting<'_>, name: &str, field: &str, problems: &mut Vec<Problem>) -> Option<RankId> {
    let cascade = &setting.program.graph.cascade;
    let rank = cascade.rank(name);
    if rank.is_none() {
        let all: Vec<&str> = cascade.ranks.iter().map(|r| r.name.as_str()).collect();
        let message = format!("the cascade {} has no rank `{name}`", cascade.name);
        let hint = format!("its ranks are {}", all.join(", "));
        problems.push(Problem::new(field, message).of(&setting.binding.name).hint(hint).about(name));
    }
    rank
}

fn known_array<'a>(setting: &Setting<'a>, name: &str, field: &str, problems: &mut Vec<Problem>) -> Option<&'a Array> {
    let array = setting.chip.array(name);
    if array.is_none() {
        let all: Vec<&str> = setting.chip.arrays.iter().map(|a| a.name.as_str()).collect();
        let message = format!("the chip {} has no array `{name}`", setting.chip.name);
        let hint = format!("its arrays are {}", all.join(", "));
        problems.push(Problem::new(field, message).of(&setting.binding.name).hint(hint).about(name));
    }
    array
}

fn extent_on(setting: &Setting<'_>, extent: &Extent, field: &str, problems: &mut Vec<Problem>) -> Option<usize> {
    if let Extent::Rows(array) | Extent::Columns(array) = extent {
        known_array(setting, array, field, problems)?;
    }
    extent.on(setting.chip)
}

fn unknown_einsum(setting: &Setting<'_>, name: &str, field: &str) -> Problem {
    let all: Vec<&str> = setting.program.einsums.iter().map(|e| e.name.as_str()).collect();
    let cascade = &setting.program.graph.cascade.name;
    let message = match setting.program.node(name) {
        Some(_) => format!("`{name}` is given or only renames elements: it runs nowhere"),
        None => format!("the cascade {cascade} has no Einsum `{name}`"),
    };
    Problem::new(field, message)
        .of(&setting.binding.name)
        .hint(format!("its Einsums are {}", all.join(", ")))
        .about(name)
}

/// Operations that an Einsum needs and an array does not have.
fn missing_operations(setting: &Setting<'_>, einsum: &Einsum, array: &Array, field: &str, problems: &mut Vec<Problem>) {
    for work in &einsum.work {
        if array.cost(&work.operation, false).is_none() {
            let (name, operation) = (&einsum.name, &work.operation);
            let message = format!("{name} needs `{operation}`, which elements of the array {} do not have", array.name);
            let hint =
                format!("run it elsewhere, or add [array.operation.{operation}] to the chip {}", setting.chip.name);
            problems.push(Problem::new(field, message).of(&setting.binding.name).hint(hint).about(name));
        }
    }
}

/// Checks the names of tensors and ranks in a kernel's dataflows.
fn names_of_tensors(setting: &Setting<'_>, k: usize, field: &str, problems: &mut Vec<Problem>) {
    let kernel = &setting.binding.kernels[k];
    let flows = kernel.dataflows.iter();
    let tensors = flows
        .clone()
        .flat_map(|d| d.holds.iter().chain(&d.whole).chain(&d.spills).chain(d.beside.keys()))
        .chain(&kernel.through);
    for name in tensors.chain(kernel.lags.keys()) {
        if setting.program.node(name).is_none() {
            let cascade = &setting.program.graph.cascade.name;
            let message = format!("the cascade {cascade} has no tensor `{name}`");
            problems.push(Problem::new(field, message).of(&setting.binding.name).about(name));
        }
    }
    let multiples = flows.clone().filter_map(|d| d.within.as_ref()).flat_map(|w| &w.multiples);
    for (_, extent) in multiples.clone() {
        extent_on(setting, extent, field, problems);
    }
    for rank in flows.clone().flat_map(|d| &d.uncut).chain(multiples.map(|m| m.0)) {
        known_rank(setting, rank, field, problems);
    }
    for block in flows.filter_map(|d| d.block.as_ref()) {
        if known_rank(setting, block.rank(), field, problems).is_some() && !kernel.tile.contains_key(block.rank()) {
            let message = format!("blocks of {} are made of tiles, and tiles do not cut it", block.rank());
            let hint = format!("give `tile` an extent of {}", block.rank());
            problems.push(Problem::new(field, message).of(&setting.binding.name).hint(hint).about(block.rank()));
        }
    }
}
