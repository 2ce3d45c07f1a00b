//! `architecture`: a chip. Levels with `num` elements make its array.

use super::reader::Reader;
use super::yaml::Node;
use crate::simulate::Timing;
use crate::{Accounting, Array, Buffer, Chip, Cost, Dram, Element, Operation};
use einloom_machine::{Bytes, BytesPerSecond, Hertz, Joules, JoulesPerByte, SquareMetres};
use std::collections::BTreeMap;

/// A chip, and which component is what.
#[derive(Debug)]
pub(super) struct Machine {
    pub chip: Chip,
    /// The name of the architecture's configuration.
    pub config: String,
    /// Names of components that do arithmetic.
    pub compute: Vec<String>,
    /// Names of components that hold parts of tensors beside the arrays.
    pub buffers: Vec<String>,
    /// All others that were read.
    pub others: Vec<String>,
}

#[derive(Default)]
struct Found {
    clock: Option<f64>,
    bandwidth: Option<f64>,
    /// Bits, and where they stand.
    buffer: Option<f64>,
    width: Option<f64>,
    /// Elements by level that has more than one.
    sides: Vec<usize>,
    operations: BTreeMap<Operation, Cost>,
    compute: Vec<String>,
    buffers: Vec<String>,
    others: Vec<String>,
}

pub(super) fn read(r: &mut Reader<'_>, root: &Node, name: &str) -> Option<Machine> {
    let at = root.get("architecture")?;
    let configs = r.entries(at, "architecture");
    let [(config, levels)] = configs else {
        r.problem(at, "architecture", "is not one configuration", "several configurations are not supported");
        return None;
    };
    let mut found = Found::default();
    for level in levels.list().unwrap_or_default() {
        self::level(r, level, &mut found);
    }
    if levels.list().is_none() {
        r.problem(levels, "architecture", "is not a list of levels", "");
    }
    if found.sides.len() > 2 {
        let sides: Vec<String> = found.sides.iter().map(usize::to_string).collect();
        let message = format!("{} levels of more than one element are not supported", sides.join(" by "));
        r.problem(levels, "architecture", &message, "an array has at most two sides");
    }
    let config = config.scalar().unwrap_or_default().to_owned();
    let need = |r: &mut Reader<'_>, value: Option<f64>, what: &str, hint: &str| {
        if value.is_none() {
            r.problem(levels, "architecture", &format!("{what} is missing"), hint);
        }
        value
    };
    let clock = need(r, found.clock, "clock_frequency", "an attribute of the outermost level, in hertz");
    let bandwidth = need(r, found.bandwidth, "a DRAM with a bandwidth", "in bits per second");
    let bits = need(r, found.buffer, "a Buffet or Cache outside the elements", "with width and depth");
    if found.compute.is_empty() {
        r.problem(levels, "architecture", "a component of class Compute is missing", "");
    }
    let (rows, columns) = match found.sides.as_slice() {
        [] => (1, 1),
        [n] => (1, *n),
        [n, m, ..] => (*n, *m),
    };
    let zero = Joules(0.0);
    let chip = Chip {
        name: name.to_owned(),
        description: format!("the architecture {config} of a TeAAL specification"),
        clock: Hertz(clock?),
        word: Bytes(4),
        dram: Dram { bandwidth: BytesPerSecond(bandwidth? / 8.0), energy: JoulesPerByte(0.0) },
        buffer: Buffer {
            capacity: Bytes((bits? / 8.0) as u64),
            row: Bytes(((found.width.unwrap_or(32.0) / 8.0) as u64).max(1)),
            read: zero,
            write: zero,
            area_per_byte: SquareMetres(0.0),
        },
        units: BTreeMap::new(),
        arrays: vec![Array {
            name: "array".to_owned(),
            rows,
            columns,
            element: Element::default(),
            operations: found.operations,
        }],
        accountings: BTreeMap::from([("plain".to_owned(), Accounting::default())]),
        faults: BTreeMap::new(),
        timing: Timing::default(),
    };
    Some(Machine { chip, config, compute: found.compute, buffers: found.buffers, others: found.others })
}

fn level(r: &mut Reader<'_>, at: &Node, found: &mut Found) {
    r.keys(at, "architecture", &["name", "num", "attributes", "local", "subtree"]);
    let num = r.number(at, "num", "architecture").map_or(1, |n| n as usize);
    if num > 1 {
        found.sides.push(num);
    }
    if let Some(attributes) = at.get("attributes") {
        r.keys(attributes, "attributes", &["clock_frequency"]);
        found.clock = r.number(attributes, "clock_frequency", "attributes").or(found.clock);
    }
    let many = !found.sides.is_empty();
    for component in at.get("local").and_then(Node::list).unwrap_or_default() {
        self::component(r, component, many, found);
    }
    for inner in at.get("subtree").and_then(Node::list).unwrap_or_default() {
        level(r, inner, found);
    }
}

fn component(r: &mut Reader<'_>, at: &Node, many: bool, found: &mut Found) {
    r.keys(at, "local", &["name", "class", "attributes", "num"]);
    let (Some(name), Some(class)) = (r.text(at, "name", "local"), r.text(at, "class", "local")) else { return };
    let name = name.to_owned();
    let none = Node { value: super::yaml::Value::Map(vec![]), line: at.line, column: at.column };
    let attributes = at.get("attributes").unwrap_or(&none);
    match class.to_lowercase().as_str() {
        "dram" => {
            r.keys(attributes, &name, &["bandwidth", "datawidth"]);
            found.bandwidth = r.number(attributes, "bandwidth", &name);
            found.others.push(name);
        }
        "buffet" | "cache" if !many => {
            r.keys(attributes, &name, &["width", "depth", "bandwidth", "datawidth"]);
            let width = r.number(attributes, "width", &name);
            let depth = r.number(attributes, "depth", &name);
            if width.is_none() || depth.is_none() {
                r.problem(at, &name, "has no width and depth", "width in bits, depth in entries");
            }
            found.width = width;
            found.buffer = Some(found.buffer.unwrap_or(0.0) + width.unwrap_or(0.0) * depth.unwrap_or(0.0));
            found.buffers.push(name);
        }
        "buffet" | "cache" => {
            r.notes.push(format!("{name} is inside the elements: what it holds is not counted"));
            found.others.push(name);
        }
        "compute" => {
            r.keys(attributes, &name, &["type", "datawidth"]);
            let all: &[Operation] = match r.text(attributes, "type", &name) {
                Some("mul") => &[Operation::Multiply],
                Some("add") => &[Operation::Add, Operation::Subtract],
                Some("div") => &[Operation::Divide],
                Some(other) => {
                    let message = format!("the type {other} is not supported");
                    r.problem(attributes, &name, &message, "types are mul, add, div");
                    &[]
                }
                None => &[],
            };
            let cost = Cost { cycles: 1.0, uses: BTreeMap::new() };
            found.operations.extend(all.iter().map(|o| (o.clone(), cost.clone())));
            found.compute.push(name);
        }
        _ => {
            let message = format!("a component of class {class} is not supported");
            r.problem(at, &name, &message, "classes are DRAM, Buffet, Cache, Compute");
        }
    }
}
