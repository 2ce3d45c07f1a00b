//! `einloom compare`: one program on several machines and in several number types.

use super::args::CompareArgs;
use super::failure::Failure;
use super::plan::{bound, bounds_from, kernels, legend, names, time};
use super::table::Table;
use super::ui::Ui;
use super::{explain, prepare, source, units};
use einloom::{Checked, Planned};
use einloom_cascade::{DType, Given};
use einloom_machine::Machine;
use einloom_model::bounds::BoundFrom;
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

/// A program on one machine in one number type; `error` where there is no plan, and then nothing else.
#[derive(Debug, Serialize)]
struct RowJson {
    machine: String,
    /// `as written` if none was asked for.
    dtype: String,
    seconds: Option<f64>,
    bound_by: Option<String>,
    flops: Option<f64>,
    /// Between the outermost memory and the next one in.
    bytes: Option<u64>,
    bound_bytes: Option<u64>,
    /// What it rests on: `bound_from` of `einloom plan`; of several kernels what comes in and goes out.
    #[serde(serialize_with = "written")]
    bound_from: Option<BTreeSet<BoundFrom>>,
    ratio: Option<f64>,
    energy_joules: Option<f64>,
    /// What is known of it.
    known_joules: Option<f64>,
    tiles: Option<String>,
    notes: Vec<String>,
    error: Option<String>,
}

pub(super) fn written<S: Serializer>(from: &Option<BTreeSet<BoundFrom>>, out: S) -> Result<S::Ok, S::Error> {
    from.as_ref().map(names).serialize(out)
}

pub(crate) fn command(ui: &mut Ui, args: &CompareArgs) -> Result<(), Failure> {
    let program = source::checked(ui, &args.source)?;
    // What is named twice is compared once.
    let mut types: Vec<DType> = vec![];
    for name in &args.dtype {
        let dtype = number_type(name)?;
        if !types.contains(&dtype) {
            types.push(dtype);
        }
    }
    let mut machines: Vec<Machine> = vec![];
    for name in &args.machine {
        let machine = prepare::with_capacity(einloom::machines::find(name)?, args.capacity)?;
        if !machines.contains(&machine) {
            machines.push(machine);
        }
    }
    let given = prepare::given(&args.sizing, BTreeMap::new())?;
    prepare::not_empty(program.cascade(), &args.sizing, &given)?;
    let types: Vec<Option<DType>> = if types.is_empty() { vec![None] } else { types.into_iter().map(Some).collect() };
    let mut rows = vec![];
    for machine in &machines {
        for &dtype in &types {
            rows.push(row(args, &program, &given, machine, dtype)?);
        }
    }
    ui.result(|| text(&rows), &rows)?;
    // A row without a plan is an answer; no plan at all is none.
    if rows.iter().all(|r| r.error.is_some()) { Err(Failure::Told) } else { Ok(()) }
}

fn number_type(name: &str) -> Result<DType, Failure> {
    let floats: Vec<String> = DType::ALL.into_iter().filter(|d| d.is_float()).map(|d| d.to_string()).collect();
    let found = DType::ALL.into_iter().find(|d| d.is_float() && d.to_string() == name.trim());
    let message = format!("`{name}` is no floating-point number type");
    found.ok_or_else(|| Failure::usage(message, format!("there are {}", floats.join(", "))))
}

fn row(
    args: &CompareArgs,
    program: &Checked,
    given: &Given,
    machine: &Machine,
    dtype: Option<DType>,
) -> Result<RowJson, Failure> {
    let typed = dtype.map(|d| program.in_type(d));
    let options = prepare::options(&args.sizing, machine)?;
    let planned = typed.as_ref().unwrap_or(program).derive().plan(given, machine, &options);
    let empty = RowJson {
        machine: machine.name.clone(),
        dtype: dtype.map_or("as written".to_string(), |d| d.to_string()),
        seconds: None,
        bound_by: None,
        flops: None,
        bytes: None,
        bound_bytes: None,
        bound_from: None,
        ratio: None,
        energy_joules: None,
        known_joules: None,
        tiles: None,
        notes: dtype.filter(|d| !computes(machine, *d)).map(|d| no_rate(machine, d)).into_iter().collect(),
        error: None,
    };
    match planned.and_then(|p| prepare::fits(&p).map_err(einloom::Error::Plan).map(|()| p)) {
        Ok(planned) => Ok(filled(empty, &planned)),
        Err(einloom::Error::Plan(e)) => Ok(RowJson { error: Some(e.to_string()), ..empty }),
        // Sizes that do not fit are the same mistake on every machine.
        Err(e) => Err(e.into()),
    }
}

fn computes(machine: &Machine, dtype: DType) -> bool {
    machine.pipes.iter().any(|p| p.rates.contains_key(&dtype))
}

fn no_rate(machine: &Machine, dtype: DType) -> String {
    let products = match machine.eights().filter(|_| dtype.is_float() && dtype.bytes() == 1) {
        Some(sixteen) => format!("products in {sixteen}, all else in f32"),
        None => "computed in f32".to_string(),
    };
    format!("{} has no pipe for {dtype}: {products}", machine.name)
}

fn filled(row: RowJson, planned: &Planned) -> RowJson {
    let all: Vec<_> = kernels(planned).collect();
    let longest = all.iter().max_by(|a, b| a.0.seconds.total_cmp(&b.0.seconds));
    let outer = || all.iter().filter_map(|(k, t)| Some((k, t.levels.first()?)));
    let bytes = outer().map(|(_, l)| l.bytes).sum::<u64>();
    // Where a program is cut is the plan's: of several kernels only what comes in and goes out is any plan's. Parts of one are one.
    let whole = all.iter().filter(|(k, _)| k.part.as_ref().is_none_or(|p| p.place[0] == 0)).count();
    let (bound, from) = match whole {
        0 | 1 => (outer().map(|(k, l)| bound(k, l)).sum::<u64>(), bounds_from(outer().map(|(k, l)| (*k, l)))),
        _ => (planned.least_bytes(planned.transfers()), BTreeSet::from([BoundFrom::Once])),
    };
    let tiles = longest.map(|(kernel, _)| {
        let tiled = kernel.group.iter().chain(&kernel.stream).filter(|t| t.1 > 1);
        tiled.map(|(name, tile)| format!("{name}:{tile}")).collect::<Vec<_>>().join(" ")
    });
    RowJson {
        seconds: Some(all.iter().map(|(k, t)| time(planned, k, t).0).sum()),
        bound_by: longest.map(|(k, t)| time(planned, k, t).1.to_string()),
        flops: Some(all.iter().map(|(_, t)| t.flops).sum()),
        bytes: Some(bytes),
        bound_bytes: Some(bound),
        bound_from: Some(from),
        ratio: (bound > 0).then(|| bytes as f64 / bound as f64),
        energy_joules: all.iter().map(|(_, t)| t.energy.joules()).sum(),
        known_joules: Some(all.iter().map(|(_, t)| t.energy.known_joules()).sum()),
        tiles,
        ..row
    }
}

fn text(rows: &[RowJson]) -> String {
    let head = ["machine", "type", "time", "bound by", "rate", "planned", "bound", "from", "ratio", "energy", "tiles"];
    let mut table = Table::new(&head);
    let (mut notes, mut from) = (vec![], BTreeSet::new());
    for r in rows {
        from.extend(r.bound_from.iter().flatten());
        notes.extend(r.notes.iter().map(|n| format!("  note: {n}\n")));
        if let Some(error) = &r.error {
            table.row([r.machine.clone(), r.dtype.clone(), "no plan".to_string()]);
            notes.push(format!("  {} {}: {error}\n", r.machine, r.dtype));
            continue;
        }
        let seconds = r.seconds.unwrap_or_default();
        let bytes = |b: Option<u64>| units::bytes(b.unwrap_or_default() as f64);
        let energy = match (r.energy_joules, r.known_joules) {
            (Some(all), _) => explain::joules(all),
            (None, Some(known)) if known > 0.0 => format!("unknown, over {}", explain::joules(known)),
            _ => "unknown".to_string(),
        };
        table.row([
            r.machine.clone(),
            r.dtype.clone(),
            units::seconds(seconds),
            r.bound_by.clone().unwrap_or_default(),
            units::rate(r.flops.unwrap_or_default() / seconds, "FLOP/s"),
            bytes(r.bytes),
            bytes(r.bound_bytes),
            r.bound_from.as_ref().map(names).unwrap_or_default(),
            r.ratio.map_or("-".to_string(), |ratio| format!("{ratio:.2}")),
            energy,
            r.tiles.clone().unwrap_or_default(),
        ]);
    }
    notes.dedup();
    table.text() + &legend(from) + &notes.concat()
}
