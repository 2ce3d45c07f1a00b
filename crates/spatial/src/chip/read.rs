//! Reads a chip from its TOML description.

use super::{Accounting, Array, Buffer, Chip, ChipFault, Cost, Dram, Element, Registers, Unit};
use crate::read::{Reader, Section, document};
use crate::simulate::Timing;
use crate::{Operation, Problem};
use einloom_machine::{Bytes, BytesPerSecond, Hertz, Joules, JoulesPerByte, SquareMetres};
use std::collections::BTreeMap;

impl Chip {
    /// The chip that a TOML text describes; `file` is what problems call it.
    ///
    /// # Errors
    /// Every mistake at once: wrong syntax, unknown or missing keys, wrong types and units, names that stand for
    /// nothing.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        document(file, text, chip)
    }
}

fn chip(r: &mut Reader<'_>, top: &Section<'_, '_>) -> Option<Chip> {
    let known =
        ["name", "description", "clock", "word", "dram", "buffer", "unit", "array", "accounting", "fault", "timing"];
    r.keys(top, &known);
    let name = r.needed_string(top, "name");
    let description = r.string(top, "description").unwrap_or_default();
    let clock = r.needed::<Hertz>(top, "clock");
    let word = r.needed::<Bytes>(top, "word");
    if word == Some(Bytes(0)) {
        r.at(top, "word", "is zero".to_string());
    }
    if clock == Some(Hertz(0.0)) {
        r.at(top, "clock", "is zero".to_string());
    }
    let dram = dram(r, top);
    let buffer = buffer(r, top, word);
    let units = units(r, top);
    let arrays = arrays(r, top, &units);
    let faults = faults(r, top);
    let accountings = accountings(r, top);
    let timing = Timing::read(r, top);
    Some(Chip {
        name: name?,
        description,
        clock: clock?,
        word: word?,
        dram: dram?,
        buffer: buffer?,
        units,
        arrays,
        accountings,
        faults,
        timing,
    })
}

fn dram(r: &mut Reader<'_>, top: &Section<'_, '_>) -> Option<Dram> {
    let Some(at) = r.section(top, "dram") else { return r.missing(top, "dram") };
    r.keys(&at, &["bandwidth", "energy"]);
    let bandwidth = r.needed::<BytesPerSecond>(&at, "bandwidth");
    if bandwidth == Some(BytesPerSecond(0.0)) {
        r.at(&at, "bandwidth", "is zero".to_string());
    }
    let energy = r.quantity::<JoulesPerByte>(&at, "energy").unwrap_or_default();
    Some(Dram { bandwidth: bandwidth?, energy })
}

fn buffer(r: &mut Reader<'_>, top: &Section<'_, '_>, word: Option<Bytes>) -> Option<Buffer> {
    let Some(at) = r.section(top, "buffer") else { return r.missing(top, "buffer") };
    r.keys(&at, &["capacity", "row", "read", "write", "area_per_byte"]);
    let capacity = r.needed::<Bytes>(&at, "capacity");
    let row = r.quantity::<Bytes>(&at, "row").or(word);
    if row == Some(Bytes(0)) {
        r.at(&at, "row", "is zero".to_string());
    }
    let read = r.quantity::<Joules>(&at, "read").unwrap_or_default();
    let write = r.quantity::<Joules>(&at, "write").unwrap_or_default();
    let area_per_byte = r.quantity::<SquareMetres>(&at, "area_per_byte").unwrap_or_default();
    Some(Buffer { capacity: capacity?, row: row?, read, write, area_per_byte })
}

fn units(r: &mut Reader<'_>, top: &Section<'_, '_>) -> BTreeMap<String, Unit> {
    let mut out = BTreeMap::new();
    for (name, at) in r.named_sections(top, "unit") {
        r.keys(&at, &["energy", "area"]);
        let energy = r.quantity::<Joules>(&at, "energy").unwrap_or_default();
        let area = r.quantity::<SquareMetres>(&at, "area").unwrap_or_default();
        out.insert(name, Unit { energy, area });
    }
    out
}

fn arrays(r: &mut Reader<'_>, top: &Section<'_, '_>, units: &BTreeMap<String, Unit>) -> Vec<Array> {
    let mut out: Vec<Array> = vec![];
    let sections = r.sections(top, "array");
    if sections.is_empty() {
        r.missing::<()>(top, "array");
    }
    for at in sections {
        r.keys(&at, &["name", "rows", "columns", "units", "registers", "operation"]);
        let name = r.needed_string(&at, "name");
        if let Some(name) = &name
            && out.iter().any(|a| a.name == *name)
        {
            r.at(&at, "name", format!("there is another array `{name}`"));
        }
        let rows = r.count(&at, "rows").unwrap_or(1);
        let columns = r.count(&at, "columns").unwrap_or(1);
        if rows.checked_mul(columns).is_none_or(|n| n > 1 << 40) {
            r.at(&at, "rows", "and columns make too many elements".to_string());
        }
        let element = Element { units: element_units(r, &at, units), registers: registers(r, &at) };
        let operations = operations(r, &at, units);
        if let Some(name) = name {
            out.push(Array { name, rows, columns, element, operations });
        }
    }
    out
}

fn element_units(r: &mut Reader<'_>, at: &Section<'_, '_>, units: &BTreeMap<String, Unit>) -> BTreeMap<String, usize> {
    let Some(section) = r.section(at, "units") else { return BTreeMap::new() };
    let out = r.sizes(at, "units");
    out.keys().for_each(|name| known_unit(r, &section, name, units));
    out
}

fn known_unit(r: &mut Reader<'_>, at: &Section<'_, '_>, name: &str, units: &BTreeMap<String, Unit>) {
    if !units.contains_key(name) {
        let all: Vec<&str> = units.keys().map(String::as_str).collect();
        let hint = format!("the chip's units are {}", all.join(", "));
        r.at_hint(at, name, format!("there is no unit `{name}`"), Some(hint));
    }
}

fn registers(r: &mut Reader<'_>, at: &Section<'_, '_>) -> Option<Registers> {
    let at = r.section(at, "registers")?;
    r.keys(&at, &["entries", "read", "write", "reads_per_cycle", "writes_per_cycle", "area"]);
    let entries = r.count(&at, "entries").or_else(|| r.missing(&at, "entries"));
    Some(Registers {
        read: r.quantity::<Joules>(&at, "read").unwrap_or_default(),
        write: r.quantity::<Joules>(&at, "write").unwrap_or_default(),
        reads_per_cycle: r.number(&at, "reads_per_cycle").unwrap_or(0.0),
        writes_per_cycle: r.number(&at, "writes_per_cycle").unwrap_or(0.0),
        area: r.quantity::<SquareMetres>(&at, "area").unwrap_or_default(),
        entries: entries?,
    })
}

fn operations(r: &mut Reader<'_>, at: &Section<'_, '_>, units: &BTreeMap<String, Unit>) -> BTreeMap<Operation, Cost> {
    let Some(table) = r.section(at, "operation") else {
        r.missing::<()>(at, "operation");
        return BTreeMap::new();
    };
    let mut out = BTreeMap::new();
    for (name, at) in r.named_sections(at, "operation") {
        r.keys(&at, &["cycles", "uses"]);
        let Ok(operation) = name.parse::<Operation>() else {
            let all: Vec<&str> = Operation::names().collect();
            let hint = Some(format!("operations are {}", all.join(", ")));
            r.at_hint(&table, &name, "is not an operation".to_string(), hint);
            continue;
        };
        let cycles = r.number(&at, "cycles").unwrap_or(1.0);
        let mut uses = BTreeMap::new();
        if let Some(section) = r.section(&at, "uses") {
            let names: Vec<String> = section.names().collect();
            for unit in names {
                known_unit(r, &section, &unit, units);
                uses.extend(r.number(&section, &unit).map(|n| (unit, n)));
            }
        }
        out.insert(operation, Cost { cycles, uses });
    }
    out
}

fn faults(r: &mut Reader<'_>, top: &Section<'_, '_>) -> BTreeMap<String, ChipFault> {
    let mut out = BTreeMap::new();
    for (name, at) in r.named_sections(top, "fault") {
        r.keys(&at, &["description", "registers_of_one_element", "first_reads_wrap"]);
        let description = r.string(&at, "description").unwrap_or_default();
        let registers_of_one_element = r.flag(&at, "registers_of_one_element").unwrap_or(false);
        let first_reads_wrap = r.flag(&at, "first_reads_wrap").unwrap_or(false);
        out.insert(name, ChipFault { description, registers_of_one_element, first_reads_wrap });
    }
    out
}

fn accountings(r: &mut Reader<'_>, top: &Section<'_, '_>) -> BTreeMap<String, Accounting> {
    let mut out = BTreeMap::new();
    for (name, at) in r.named_sections(top, "accounting") {
        r.keys(&at, &["description", "faults"]);
        let description = r.string(&at, "description").unwrap_or_default();
        let faults = r.strings(&at, "faults");
        out.insert(name, Accounting { description, faults });
    }
    out
}
