//! `einloom sweep`: plans for many capacities of one memory, as a table, a CSV file and charts.

mod chart;
mod style;

use super::args::SweepArgs;
use super::compare::written;
use super::failure::Failure;
use super::plan::{bound, bounds_from, kernels, legend, names, time};
use super::table::Table;
use super::ui::Ui;
use super::{prepare, source, units};
use einloom::formats::{Destination, FileError};
use einloom::{Derived, Planned};
use einloom_cascade::Given;
use einloom_machine::{Bytes, LevelKind, Machine};
use einloom_model::bounds::BoundFrom;
use einloom_tile::TensorRole;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// One capacity with the best plan for it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Point {
    pub capacity_bytes: u64,
    /// Between the level outside the swept one and it.
    pub bytes: Option<u64>,
    pub bound_bytes: Option<u64>,
    /// What it rests on, of several kernels with `+` in between: `bound_from` of `einloom plan`.
    #[serde(serialize_with = "written")]
    pub bound_from: Option<BTreeSet<BoundFrom>>,
    pub ratio: Option<f64>,
    pub flops: Option<f64>,
    pub seconds: Option<f64>,
    pub bound_by: Option<String>,
    pub kernels: Option<usize>,
    pub tiles: Option<String>,
    /// Why there is no plan.
    pub error: Option<String>,
}

impl Point {
    fn without_plan(capacity_bytes: u64) -> Self {
        Self {
            capacity_bytes,
            bytes: None,
            bound_bytes: None,
            bound_from: None,
            ratio: None,
            flops: None,
            seconds: None,
            bound_by: None,
            kernels: None,
            tiles: None,
            error: None,
        }
    }
}

#[derive(Debug, Serialize)]
struct SweepJson {
    cascade: String,
    machine: String,
    level: String,
    sizes: BTreeMap<String, usize>,
    points: Vec<Point>,
    files: Vec<String>,
}

pub(crate) fn command(ui: &mut Ui, args: &SweepArgs) -> Result<(), Failure> {
    let derived = source::checked(ui, &args.source)?.derive();
    let machine = einloom::machines::find(&args.machine)?;
    let level = level(&machine, &args.over.level)?;
    let given = prepare::given(&args.sizing, BTreeMap::new())?;
    prepare::not_empty(derived.cascade(), &args.sizing, &given)?;
    let (mut points, mut sizes, mut dtypes) = (vec![], BTreeMap::new(), BTreeSet::new());
    for capacity in capacities(args.over.from, args.over.to, args.points.map(|n| n as usize)) {
        let point = match machine.clone().with_level_capacity(level, Bytes(capacity)) {
            Ok(machine) => point(args, &derived, &given, &machine, level, capacity)?,
            Err(contradiction) => (Point { error: Some(contradiction), ..Point::without_plan(capacity) }, None),
        };
        if let Some(planned) = &point.1 {
            let ranks = planned.cascade().ranks.iter().map(|r| r.name.clone());
            dtypes.extend(planned.program().tensors.iter().filter(|t| t.role == TensorRole::Input).map(|t| t.dtype));
            sizes = ranks.zip(planned.bound().sizes().iter().copied()).collect();
        }
        points.push(point.0);
    }
    let name = &derived.cascade().name;
    let stem = args.output.clone().unwrap_or_else(|| PathBuf::from(name));
    let title = format!("{name} on {}: {}", machine.name, shown(&sizes));
    let level_name = &machine.levels[level].name;
    let mut files = vec![write(&stem, ".csv", &csv(&points))?];
    if points.iter().any(|p| p.bytes.is_some()) {
        let failed = |why: String| FileError::new(&stem, format!("cannot draw the chart: {why}"));
        files.push(write(&stem, ".svg", &chart::transfers(&title, level_name, &points).map_err(failed)?)?);
        let roof = chart::roofline(&title, &machine, outside(&machine, level), &dtypes, &points).map_err(failed)?;
        files.push(write(&stem, "_roofline.svg", &roof)?);
    }
    let files: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
    let failed = points.iter().all(|p| p.error.is_some());
    let data = SweepJson {
        cascade: name.clone(),
        machine: machine.name.clone(),
        level: level_name.clone(),
        sizes,
        points: points.clone(),
        files: files.clone(),
    };
    ui.result(|| text(&title, &points, &files), &data)?;
    if failed { Err(Failure::Told) } else { Ok(()) }
}

fn shown(sizes: &BTreeMap<String, usize>) -> String {
    sizes.iter().map(|(rank, size)| format!("{rank}={size}")).collect::<Vec<_>>().join(", ")
}

/// The memory to sweep, as a place in the machine's levels; `M` is the innermost one.
fn level(machine: &Machine, name: &str) -> Result<usize, Failure> {
    let swept = |l: &einloom_machine::Level| l.parent.is_some() && l.kind == LevelKind::Memory;
    let innermost = machine.trunk().next_back().map(|l| l.name.clone());
    let wanted = if name == "M" { innermost } else { Some(name.to_string()) };
    let found = machine.levels.iter().position(|l| swept(l) && Some(&l.name) == wanted.as_ref());
    let names: Vec<&str> = machine.levels.iter().filter(|l| swept(l)).map(|l| l.name.as_str()).collect();
    let message = format!("{} has no memory `{name}` inside another one", machine.name);
    let hint = match names.is_empty() {
        true => "it has a single memory".to_string(),
        false => format!("it has {}; M is the last of them", names.join(", ")),
    };
    found.ok_or_else(|| Failure::usage(message, hint))
}

/// The place of the memory outside.
fn outside(machine: &Machine, level: usize) -> usize {
    let names: Vec<&str> = machine.trunk().map(|l| l.name.as_str()).collect();
    let at = names.iter().position(|n| *n == machine.levels[level].name).unwrap_or(1);
    let outer = names.get(at.saturating_sub(1)).copied().unwrap_or_default();
    machine.levels.iter().position(|l| l.name == outer).unwrap_or(0)
}

/// Capacities in equal ratios, both ends among them, in whole elements of 4 bytes where they are more than one.
fn capacities(from: u64, to: u64, count: Option<usize>) -> Vec<u64> {
    let doublings = (to as f64 / from as f64).log2();
    let count = count.unwrap_or_else(|| ((2.0 * doublings).round() as usize + 1).clamp(2, 200));
    let at = |k: usize| from as f64 * (doublings * k as f64 / (count - 1) as f64).exp2();
    let round = |bytes: f64| if bytes >= 8.0 { (bytes / 4.0).round() as u64 * 4 } else { bytes.round() as u64 };
    let mut out: Vec<u64> = (1..count - 1).map(|k| round(at(k))).collect();
    out.insert(0, from);
    out.push(to);
    out.dedup();
    out
}

fn point(
    args: &SweepArgs,
    derived: &Derived,
    given: &Given,
    machine: &Machine,
    level: usize,
    capacity: u64,
) -> Result<(Point, Option<Planned>), Failure> {
    let empty = Point::without_plan(capacity);
    let options = prepare::options(&args.sizing, machine)?;
    let planned = derived.plan(given, machine, &options);
    let planned = match planned.and_then(|p| prepare::fits(&p).map_err(einloom::Error::Plan).map(|()| p)) {
        Ok(planned) => planned,
        Err(einloom::Error::Plan(e)) => return Ok((Point { error: Some(e.to_string()), ..empty }, None)),
        Err(e) => return Err(e.into()),
    };
    let outer = &machine.levels[outside(machine, level)].name;
    let all: Vec<_> = kernels(&planned).collect();
    let moved = || all.iter().filter_map(|(k, t)| Some((k, t.levels.iter().find(|l| l.level == *outer)?)));
    let bytes = moved().map(|(_, l)| l.bytes).sum::<u64>();
    let bound = moved().map(|(k, l)| bound(k, l)).sum::<u64>();
    let longest = all.iter().max_by(|a, b| a.0.seconds.total_cmp(&b.0.seconds));
    let tiles = longest.map(|(kernel, _)| {
        let tiled = kernel.group.iter().chain(&kernel.stream).filter(|t| t.1 > 1);
        tiled.map(|(name, tile)| format!("{name}:{tile}")).collect::<Vec<_>>().join(" ")
    });
    let found = Point {
        bytes: Some(bytes),
        bound_bytes: Some(bound),
        bound_from: Some(bounds_from(moved().map(|(k, l)| (*k, l)))),
        ratio: (bound > 0).then(|| bytes as f64 / bound as f64),
        flops: Some(all.iter().map(|(_, t)| t.flops).sum()),
        seconds: Some(all.iter().map(|(k, t)| time(&planned, k, t).0).sum()),
        bound_by: longest.map(|(k, t)| time(&planned, k, t).1.to_string()),
        kernels: Some(all.len()),
        tiles,
        ..empty
    };
    Ok((found, Some(planned)))
}

fn csv(points: &[Point]) -> String {
    let mut out =
        "capacity_bytes,bytes,bound_bytes,bound_from,ratio,flops,seconds,bound_by,kernels,tiles,error\n".to_string();
    let quoted = |text: &str| match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    };
    fn cell<T: ToString>(value: &Option<T>) -> String {
        value.as_ref().map_or(String::new(), T::to_string)
    }
    for p in points {
        let cells = [
            p.capacity_bytes.to_string(),
            cell(&p.bytes),
            cell(&p.bound_bytes),
            cell(&p.bound_from.as_ref().map(names)),
            cell(&p.ratio),
            cell(&p.flops),
            cell(&p.seconds),
            quoted(&cell(&p.bound_by)),
            cell(&p.kernels),
            quoted(&cell(&p.tiles)),
            quoted(&cell(&p.error)),
        ];
        out += &cells.join(",");
        out.push('\n');
    }
    out
}

/// Writes a file named `stem` and `ending`; the stem may have dots of its own.
fn write(stem: &Path, ending: &str, text: &str) -> Result<PathBuf, Failure> {
    let mut name = stem.as_os_str().to_owned();
    name.push(ending);
    let path = PathBuf::from(name);
    Destination::open(&path)?.write(|out| out.write_all(text.as_bytes()))?;
    Ok(path)
}

fn text(title: &str, points: &[Point], files: &[String]) -> String {
    let mut out = format!("{title}\n");
    let mut table = Table::new(&["capacity", "planned", "bound", "from", "ratio", "time", "bound by", "tiles"]);
    let mut errors = vec![];
    for p in points {
        let bytes = |b: Option<u64>| b.map_or("-".to_string(), |b| units::bytes(b as f64));
        if let Some(error) = &p.error {
            errors.push(format!("  {}: {error}\n", units::bytes(p.capacity_bytes as f64)));
        }
        table.row([
            units::bytes(p.capacity_bytes as f64),
            bytes(p.bytes),
            bytes(p.bound_bytes),
            p.bound_from.as_ref().map(names).unwrap_or_default(),
            p.ratio.map_or("-".to_string(), |r| format!("{r:.3}")),
            p.seconds.map_or("-".to_string(), units::seconds),
            p.bound_by.clone().unwrap_or_default(),
            p.tiles.clone().unwrap_or_default(),
        ]);
    }
    out += &table.text();
    out += &legend(points.iter().filter_map(|p| p.bound_from.clone()).flatten().collect());
    out += &errors.concat();
    out + &format!("wrote {}\n", files.join(", "))
}

#[cfg(test)]
mod tests {
    use super::capacities;

    #[test]
    fn capacities_include_both_ends_in_equal_ratios() {
        assert_eq!(capacities(1024, 4096, Some(3)), [1024, 2048, 4096]);
        assert_eq!(capacities(1024, 4096, None), [1024, 1448, 2048, 2896, 4096]);
        assert_eq!(capacities(1000, 1001, None), [1000, 1001]);
    }
}
