//! `einloom formula`: what a partition of the axes moves and holds, with sizes as symbols.

use super::args::FormulaArgs;
use super::failure::Failure;
use super::prepare;
use super::source;
use super::ui::Ui;
use einloom::{Error, Finding};
use einloom_machine::Work;
use einloom_model::calculus::{Diagram, NoFormula, Optimum, Partition, Symbol, SymbolKind};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write as _;

#[derive(Debug, Serialize)]
struct FormulaJson {
    cascade: String,
    transfers: Vec<TransferJson>,
    h: String,
    h_per_group: String,
    groups: Vec<String>,
    m: String,
    m_leading: String,
    /// Operations by what does them.
    k: BTreeMap<&'static str, String>,
    /// `null` where there is no closed form: `why` tells.
    h_star: Option<String>,
    why: Option<String>,
    at: Option<AtJson>,
}

#[derive(Debug, Serialize)]
struct TransferJson {
    array: String,
    direction: &'static str,
    values: String,
}

/// `H*` for numbers, in values.
#[derive(Debug, Serialize)]
struct AtJson {
    capacity: u64,
    values: f64,
    groups: BTreeMap<String, f64>,
    /// Why no plan has these groups, if one has more positions than its index or fewer than one.
    outside: Option<String>,
}

pub(crate) fn command(ui: &mut Ui, args: &FormulaArgs) -> Result<(), Failure> {
    let derived = source::checked(ui, &args.source)?.derive();
    if super::dumped(ui, &derived)? {
        return Ok(());
    }
    let graph = if args.as_written { &derived.derivation().written } else { &derived.derivation().derived };
    let cut: Vec<&str> = args.cut.iter().map(String::as_str).collect();
    let group: Vec<&str> = args.group.iter().map(String::as_str).collect();
    let single: Vec<&str> = args.single.iter().map(String::as_str).collect();
    once(&[("--group", &args.group), ("--single", &args.single), ("--stream", &args.stream)])?;
    let mut partition = Partition::whole().group(&group).single(&single);
    for axis in &args.stream {
        partition = partition.stream(axis);
    }
    let diagram = Diagram::new(graph, &cut).map_err(refused)?;
    let transfers = diagram.transfers(&partition).map_err(refused)?;
    let memory = diagram.memory(&partition).map_err(refused)?;
    let work = diagram.work(&partition).map_err(refused)?;
    let optimum = diagram.optimum(&partition);
    let at = match (&optimum, args.capacity) {
        (Ok(optimum), Some(capacity)) => Some(numbers(&derived, args, optimum, capacity)?),
        _ => None,
    };
    let kinds = Work::ALL.into_iter().map(|w| (w.name(), work.total(w))).filter(|(_, k)| !k.is_zero());
    let data = FormulaJson {
        cascade: derived.cascade().name.clone(),
        transfers: transfers
            .arrays
            .iter()
            .map(|t| TransferJson {
                array: t.wire.clone(),
                direction: if t.load { "load" } else { "store" },
                values: t.values.to_string(),
            })
            .collect(),
        h: transfers.total().to_string(),
        h_per_group: transfers.local().to_string(),
        groups: transfers.groups.iter().map(ToString::to_string).collect(),
        m: memory.to_string(),
        m_leading: memory.leading().to_string(),
        k: kinds.map(|(name, k)| (name, k.to_string())).collect(),
        h_star: optimum.as_ref().ok().map(ToString::to_string),
        why: optimum.as_ref().err().map(ToString::to_string),
        at,
    };
    ui.result(|| text(&data), &data)
}

/// An axis is divided in one way.
fn once(options: &[(&str, &[String])]) -> Result<(), Failure> {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for (option, axes) in options {
        for axis in *axes {
            if let Some(before) = seen.insert(axis, option).filter(|before| before != option) {
                let message = format!("`{axis}` is divided by {before} and by {option}");
                return Err(Failure::usage(message, "an axis is in groups, in groups of one position, or streams"));
            }
        }
    }
    Ok(())
}

fn text(data: &FormulaJson) -> String {
    let mut out = format!("{}, values moved and held\n", data.cascade);
    let width = data.transfers.iter().map(|t| t.array.chars().count()).max().unwrap_or(0);
    for t in &data.transfers {
        let _ = writeln!(out, "  {:5} {:width$}  {}", t.direction, t.array, t.values);
    }
    let _ = writeln!(out, "  H  = {}", data.h);
    let _ = writeln!(out, "  H of one group = {}", data.h_per_group);
    let _ = writeln!(out, "  {}", data.m);
    if data.m != data.m_leading {
        let _ = writeln!(out, "  {} to leading order", data.m_leading);
    }
    for (name, k) in &data.k {
        let _ = writeln!(out, "  K  = {k} ({name})");
    }
    match (&data.h_star, &data.why) {
        (Some(h), _) => drop(writeln!(out, "  {h}")),
        (_, Some(why)) => drop(writeln!(out, "  no closed form for H*: {why}")),
        _ => {}
    }
    if let Some(at) = &data.at {
        let groups: String = at.groups.iter().map(|(g, n)| format!(", {g} = {n:.1}")).collect();
        let _ = writeln!(out, "  for a capacity of {}: H* = {:.0}{groups}", at.capacity, at.values);
        if let Some(outside) = &at.outside {
            let _ = writeln!(out, "  which no plan has: {outside}");
        }
    }
    out
}

/// The optimum for numbers.
fn numbers(
    derived: &einloom::Derived,
    args: &FormulaArgs,
    optimum: &Optimum,
    capacity: u64,
) -> Result<AtJson, Failure> {
    let given = prepare::given(&args.sizing, BTreeMap::new())?;
    let bound = einloom_cascade::bind(derived.cascade(), &given).map_err(Error::Bind)?;
    let ranks = derived.cascade().ranks.iter().map(|r| r.name.as_str()).zip(bound.sizes());
    let sizes: BTreeMap<&str, f64> = ranks.map(|(name, &n)| (name, n as f64)).collect();
    let size = |s: &Symbol| match s.kind {
        SymbolKind::Size => sizes.get(s.name.as_str()).copied().unwrap_or(1.0),
        SymbolKind::Group | SymbolKind::Stream => 1.0,
    };
    let groups = optimum.groups.iter().filter_map(|g| {
        let n = optimum.group(&g.0, capacity as f64, size)?;
        Some((g.0.to_string(), n))
    });
    let groups: BTreeMap<String, f64> = groups.collect();
    // The formula knows neither end of a group.
    let extent = |s: &Symbol| {
        let index = derived.cascade().indices.iter().find(|i| i.name == s.name)?;
        Some((&index.name, bound.size(index.rank)))
    };
    let outside = optimum.groups.iter().find_map(|(s, ..)| {
        let ((name, extent), n) = (extent(s)?, *groups.get(&s.to_string())?);
        match n {
            n if n > extent as f64 => Some(format!("{name} has {extent} positions, all of them in one group then")),
            n if n < 1.0 => Some("a group has at least one position: the capacity holds no group".to_string()),
            _ => None,
        }
    });
    Ok(AtJson { capacity, values: optimum.eval(capacity as f64, size), groups, outside })
}

fn refused(why: NoFormula) -> Failure {
    Failure::from(Error::Input(Finding::error("no-formula", why.to_string())))
}
