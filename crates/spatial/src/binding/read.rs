//! Reads a binding from its TOML description.

use super::{Beside, Binding, BindingFault, Block, Dataflow, Extent, Kernel, Phase, Space, Within};
use crate::read::{Reader, Section, document};
use crate::{Operation, Problem};
use einloom_machine::Bytes;
use std::collections::BTreeMap;

impl Binding {
    /// The binding that a TOML text describes; `file` is what problems call it. Whether it fits a cascade and a chip is
    /// found out by [`crate::evaluate`].
    ///
    /// # Errors
    /// Every mistake at once: wrong syntax, unknown or missing keys, wrong types.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        document(file, text, binding)
    }
}

fn binding(r: &mut Reader<'_>, top: &Section<'_, '_>) -> Option<Binding> {
    r.keys(top, &["name", "description", "sizes", "space", "kernel", "fault"]);
    let name = r.needed_string(top, "name");
    let description = r.string(top, "description").unwrap_or_default();
    let sizes = extents(r, top, "sizes");
    let mut space = BTreeMap::new();
    for (array, at) in r.named_sections(top, "space") {
        r.keys(&at, &["rows", "columns"]);
        space.insert(array, Space { rows: r.string(&at, "rows"), columns: r.string(&at, "columns") });
    }
    let sections = r.sections(top, "kernel");
    if sections.is_empty() {
        r.missing::<()>(top, "kernel");
    }
    let kernels = sections.iter().map(|at| kernel(r, at)).collect();
    let faults = faults(r, top);
    Some(Binding { name: name?, description, sizes, space, kernels, faults })
}

/// A table of extents: `2048`, `"2d.rows"` or `"2d.columns"`.
fn extents(r: &mut Reader<'_>, at: &Section<'_, '_>, key: &str) -> BTreeMap<String, Extent> {
    let Some(table) = r.section(at, key) else { return BTreeMap::new() };
    let names: Vec<String> = table.names().collect();
    let mut out = BTreeMap::new();
    for name in names {
        if let Some(text) = r.quiet_string(&table, &name) {
            let extent = match text.rsplit_once('.') {
                Some((array, "rows")) => Some(Extent::Rows(array.to_owned())),
                Some((array, "columns")) => Some(Extent::Columns(array.to_owned())),
                _ => None,
            };
            match extent {
                Some(extent) => drop(out.insert(name, extent)),
                None => r.at_hint(
                    &table,
                    &name,
                    format!("`{text}` is not a number of positions"),
                    Some("write a whole number, or the side of an array such as \"2d.rows\"".to_string()),
                ),
            }
        } else if let Some(n) = r.count(&table, &name) {
            out.insert(name, Extent::Size(n));
        }
    }
    out
}

fn kernel(r: &mut Reader<'_>, at: &Section<'_, '_>) -> Kernel {
    r.keys(at, &["name", "tile", "phase", "lag", "dataflow", "through"]);
    let name = r.needed_string(at, "name").unwrap_or_default();
    let tile = extents(r, at, "tile");
    let sections = r.sections(at, "phase");
    if sections.is_empty() {
        r.missing::<()>(at, "phase");
    }
    let phases = sections.iter().map(|s| phase(r, s)).collect();
    let lags = r.sizes(at, "lag");
    let dataflows: Vec<Dataflow> = r.sections(at, "dataflow").iter().map(|s| dataflow(r, s)).collect();
    if dataflows.is_empty() {
        r.missing::<()>(at, "dataflow");
    }
    Kernel { name, tile, phases, lags, dataflows, through: r.strings(at, "through") }
}

fn phase(r: &mut Reader<'_>, at: &Section<'_, '_>) -> Phase {
    let arrays: Vec<String> = at.names().filter(|n| n != "drains" && n != "in_turn").collect();
    let runs = arrays.into_iter().map(|a| (a.clone(), r.strings(at, &a))).collect();
    Phase { runs, drains: r.string(at, "drains"), in_turn: r.flag(at, "in_turn").unwrap_or(false) }
}

fn dataflow(r: &mut Reader<'_>, at: &Section<'_, '_>) -> Dataflow {
    let known = [
        "block",
        "block_size",
        "block_most",
        "blocks_as_at",
        "least_tiles",
        "holds",
        "uncut",
        "whole",
        "spills",
        "past",
        "beside",
        "within",
        "capacity",
    ];
    r.keys(at, &known);
    let rank = r.string(at, "block");
    let size = r.count(at, "block_size");
    let as_at = r.sizes(at, "blocks_as_at");
    let least = r.count(at, "least_tiles");
    let most = r.count(at, "block_most");
    let given = [size.is_some(), most.is_some(), !as_at.is_empty(), least.is_some()].into_iter().filter(|&g| g).count();
    if given > 1 {
        let message = "has more than one of `block_size`, `block_most`, `blocks_as_at` and `least_tiles`".to_string();
        r.at(at, "block", message);
    }
    if given > 0 && rank.is_none() {
        r.missing::<()>(at, "block");
    }
    let block = rank.map(|rank| match (size, least) {
        (Some(size), _) => Block::Fixed { rank, size },
        (None, Some(least)) => Block::Balanced { rank, least },
        (None, None) => Block::Largest { rank, as_at, most },
    });
    Dataflow {
        block,
        holds: r.strings(at, "holds"),
        uncut: r.strings(at, "uncut"),
        whole: r.strings(at, "whole"),
        spills: r.strings(at, "spills"),
        past: r.strings(at, "past"),
        beside: beside(r, at),
        within: r.section(at, "within").and_then(|at| within(r, &at)),
        capacity: r.quantity::<Bytes>(at, "capacity"),
    }
}

fn beside(r: &mut Reader<'_>, at: &Section<'_, '_>) -> BTreeMap<String, Beside> {
    let Some(table) = r.section(at, "beside") else { return BTreeMap::new() };
    let names: Vec<String> = table.names().collect();
    let mut out = BTreeMap::new();
    for name in names {
        let Some(text) = r.string(&table, &name) else { continue };
        match text.as_str() {
            "tile" => drop(out.insert(name, Beside::Tile)),
            "block" => drop(out.insert(name, Beside::Block)),
            "whole" => drop(out.insert(name, Beside::Whole)),
            _ => r.at(&table, &name, format!("`{text}` is not `tile`, `block` or `whole`")),
        }
    }
    out
}

fn within(r: &mut Reader<'_>, at: &Section<'_, '_>) -> Option<Within> {
    r.keys(at, &["array", "multiples"]);
    let multiples = extents(r, at, "multiples");
    Some(Within { array: r.needed_string(at, "array")?, multiples })
}

fn faults(r: &mut Reader<'_>, top: &Section<'_, '_>) -> BTreeMap<String, BindingFault> {
    let mut out = BTreeMap::new();
    for (name, at) in r.named_sections(top, "fault") {
        r.keys(&at, &["description", "uncharged", "split"]);
        let description = r.string(&at, "description").unwrap_or_default();
        let uncharged = operations(r, &at, "uncharged");
        let split = operations(r, &at, "split");
        out.insert(name, BindingFault { description, uncharged, split });
    }
    out
}

fn operations(r: &mut Reader<'_>, at: &Section<'_, '_>, key: &str) -> Vec<Operation> {
    let mut out = vec![];
    for name in r.strings(at, key) {
        match name.parse() {
            Ok(operation) => out.push(operation),
            Err(()) => {
                let all: Vec<&str> = Operation::names().collect();
                let hint = Some(format!("operations are {}", all.join(", ")));
                r.at_hint(at, key, format!("`{name}` is not an operation"), hint);
            }
        }
    }
    out
}
