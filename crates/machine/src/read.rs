//! Reads a machine from its TOML description.

mod gpu;

use crate::{Bytes, BytesPerSecond, FlopsPerSecond, Hertz, JoulesPerByte, Level, Machine, UnitError};
use einloom_cascade::DType;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// One mistake in a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineError {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// Where in the machine, such as `level 2 bandwidth`; empty for the text as a whole.
    pub field: String,
    /// What is wrong.
    pub message: String,
    /// What to write instead, if that can be told.
    pub hint: Option<String>,
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.line, self.column)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl std::error::Error for MachineError {}

/// The machine that a TOML text describes.
///
/// ```
/// let machine = einloom_machine::parse(r#"
///     name = "toy"
///     cores = 4
///     clock = "2 GHz"
///
///     [[level]]                  # outermost first
///     name = "DRAM"              # no capacity: never full
///     bandwidth = "20 GB/s"
///
///     [[level]]
///     name = "cache"
///     capacity = "1 MiB"
///     shared_by = 2              # cores per instance; if left out, all of the outermost level and 1 of others
///     bandwidth = "400 GB/s"     # towards the cores, all instances together
///
///     [rates]
///     f32 = "256 GFLOP/s"
/// "#).expect("a machine");
/// assert_eq!(machine.levels[1].capacity.map(|c| c.to_string()).as_deref(), Some("1 MiB"));
/// ```
///
/// # Errors
/// Every mistake at once: wrong syntax, unknown or missing keys, wrong types and units, and levels that do not
/// shrink inwards.
pub fn parse(text: &str) -> Result<Machine, Vec<MachineError>> {
    let (root, syntax) = DeTable::parse_recoverable(text);
    let mut reader = Reader { text, errors: vec![] };
    for error in syntax {
        reader.error(error.span().unwrap_or(0..0), "", error.message().to_string(), None);
    }
    if !reader.errors.is_empty() {
        return Err(reader.errors);
    }
    let machine = reader.machine(root.get_ref());
    match machine {
        Some(machine) if reader.errors.is_empty() => Ok(machine),
        _ => {
            reader.errors.sort_by_key(|e| (e.line, e.column));
            Err(reader.errors)
        }
    }
}

struct Reader<'t> {
    text: &'t str,
    errors: Vec<MachineError>,
}

/// A table with the name under which people know it, and where it stands.
struct Section<'a, 't> {
    table: &'a DeTable<'t>,
    name: String,
    span: Range<usize>,
}

impl Section<'_, '_> {
    fn field(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_string() } else { format!("{} {key}", self.name) }
    }
}

impl<'t> Reader<'t> {
    fn machine(&mut self, root: &DeTable<'t>) -> Option<Machine> {
        let top = Section { table: root, name: String::new(), span: 0..0 };
        let known = ["name", "description", "cores", "clock", "registers", "level", "rates", "lanes", "matrix"];
        self.keys(&top, &known);
        let name = self.string(&top, "name").or_else(|| self.missing(&top, "name"));
        let description = self.string(&top, "description").unwrap_or_default();
        let cores = self.count(&top, "cores").or_else(|| self.missing(&top, "cores"));
        let clock = self.quantity::<Hertz>(&top, "clock").or_else(|| self.missing(&top, "clock"));
        let registers = self.quantity::<Bytes>(&top, "registers");
        let levels = self.levels(&top, cores);
        let rates = self.rates(&top);
        let (lanes, matrix) = (self.lanes(&top), self.matrix(&top));
        Some(Machine {
            name: name?,
            description,
            cores: cores?,
            clock: clock?,
            registers,
            levels,
            rates,
            lanes,
            matrix,
        })
    }

    fn levels(&mut self, top: &Section<'_, 't>, cores: Option<usize>) -> Vec<Level> {
        let Some(value) = top.table.get("level") else {
            self.missing::<()>(top, "level");
            return vec![];
        };
        let Some(array) = value.get_ref().as_array().filter(|a| !a.is_empty()) else {
            let hint = Some("start each level with `[[level]]`".to_string());
            self.error(value.span(), "level", "is not a list of levels".to_string(), hint);
            return vec![];
        };
        let mut levels: Vec<Level> = vec![];
        for (k, item) in array.iter().enumerate() {
            let name = format!("level {}", k + 1);
            let Some(table) = item.get_ref().as_table() else {
                self.error(item.span(), &name, "is not a table".to_string(), None);
                continue;
            };
            let section = Section { table, name, span: item.span() };
            if let Some(level) = self.level(&section, cores, levels.last(), k == 0) {
                if levels.iter().any(|l| l.name == level.name) {
                    self.at(&section, "name", format!("there is another level `{}`", level.name));
                }
                levels.push(level);
            }
        }
        levels
    }

    fn level(
        &mut self,
        at: &Section<'_, 't>,
        cores: Option<usize>,
        outer: Option<&Level>,
        first: bool,
    ) -> Option<Level> {
        self.keys(at, &["name", "capacity", "shared_by", "bandwidth", "energy"]);
        let name = self.string(at, "name").or_else(|| self.missing(at, "name"));
        let capacity = self.quantity::<Bytes>(at, "capacity");
        if capacity.is_none() && !first && !at.table.contains_key("capacity") {
            self.missing::<()>(at, "capacity");
        }
        let shared_by = self.count(at, "shared_by").unwrap_or(if first { cores.unwrap_or(1) } else { 1 });
        let bandwidth = self.quantity::<BytesPerSecond>(at, "bandwidth").or_else(|| self.missing(at, "bandwidth"));
        if bandwidth == Some(BytesPerSecond(0.0)) {
            self.at(at, "bandwidth", "is zero".to_string());
        }
        let energy = self.quantity::<JoulesPerByte>(at, "energy");
        // Without the number of cores, nothing can be said about who shares what.
        if let Some(cores) = cores
            && (shared_by > cores || !cores.is_multiple_of(shared_by))
        {
            self.at(at, "shared_by", format!("{shared_by} does not divide the {cores} cores"));
        }
        if let Some(outer) = outer {
            if cores.is_some() && shared_by > outer.shared_by {
                let text = format!("more cores share it ({shared_by}) than the level outside it ({})", outer.shared_by);
                self.at(at, "shared_by", text);
            }
            if let (Some(inner), Some(outside)) = (capacity, outer.capacity)
                && inner >= outside
            {
                self.at(at, "capacity", format!("{inner} is not less than the {outside} of the level outside it"));
            }
        }
        Some(Level { name: name?, capacity, shared_by, bandwidth: bandwidth?, energy })
    }

    fn rates(&mut self, top: &Section<'_, 't>) -> BTreeMap<DType, FlopsPerSecond> {
        let mut rates = BTreeMap::new();
        let Some(value) = top.table.get("rates") else {
            self.missing::<()>(top, "rates");
            return rates;
        };
        let Some(table) = value.get_ref().as_table() else {
            self.error(value.span(), "rates", "is not a table".to_string(), None);
            return rates;
        };
        let section = Section { table, name: "rates".to_string(), span: value.span() };
        let names: Vec<&str> = DType::ALL.iter().map(|d| d.name()).collect();
        self.keys(&section, &names);
        for dtype in DType::ALL {
            if let Some(rate) = self.quantity::<FlopsPerSecond>(&section, dtype.name()) {
                if rate == FlopsPerSecond(0.0) {
                    self.at(&section, dtype.name(), "is zero; leave it out if it is computed in f32".to_string());
                }
                rates.insert(dtype, rate);
            }
        }
        if !table.contains_key("f32") {
            self.missing::<()>(&section, "f32");
        }
        rates
    }

    /// Refuses keys outside `known`.
    fn keys(&mut self, at: &Section<'_, 't>, known: &[&str]) {
        for key in at.table.keys() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let hint = Some(format!("known here: {}", known.join(", ")));
                self.error(key.span(), &at.field(name), "is not a known key".to_string(), hint);
            }
        }
    }

    fn string(&mut self, at: &Section<'_, 't>, key: &str) -> Option<String> {
        let value = at.table.get(key)?;
        match value.get_ref().as_str() {
            Some(text) => Some(text.to_string()),
            None => self.wrong_type(at, key, value, "a text in quotes"),
        }
    }

    fn count(&mut self, at: &Section<'_, 't>, key: &str) -> Option<usize> {
        let value = at.table.get(key)?;
        let number = value.get_ref().as_integer().and_then(|n| usize::from_str_radix(n.as_str(), n.radix()).ok());
        match number {
            Some(0) => {
                self.at(at, key, "is zero".to_string());
                None
            }
            Some(number) => Some(number),
            None => self.wrong_type(at, key, value, "a whole number"),
        }
    }

    fn quantity<T: FromStr<Err = UnitError>>(&mut self, at: &Section<'_, 't>, key: &str) -> Option<T> {
        let value = at.table.get(key)?;
        let Some(text) = value.get_ref().as_str() else {
            return self.wrong_type(at, key, value, "a quantity with its unit, in quotes");
        };
        match text.parse() {
            Ok(quantity) => Some(quantity),
            Err(UnitError { message, hint }) => {
                self.error(value.span(), &at.field(key), message, hint);
                None
            }
        }
    }

    fn wrong_type<T>(
        &mut self,
        at: &Section<'_, 't>,
        key: &str,
        value: &Spanned<DeValue<'t>>,
        want: &str,
    ) -> Option<T> {
        let message = format!("is not {want}");
        self.error(value.span(), &at.field(key), message, None);
        None
    }

    /// Reports a missing key where its section starts, once: not if the key is there but wrong.
    fn missing<T>(&mut self, at: &Section<'_, 't>, key: &str) -> Option<T> {
        if !at.table.contains_key(key) {
            self.error(at.span.clone(), &at.field(key), "is missing".to_string(), None);
        }
        None
    }

    /// Reports a mistake at a key's value, or at its section if the value is a default.
    fn at(&mut self, at: &Section<'_, 't>, key: &str, message: String) {
        let span = at.table.get(key).map_or(at.span.clone(), Spanned::span);
        self.error(span, &at.field(key), message, None);
    }

    fn error(&mut self, span: Range<usize>, field: &str, message: String, hint: Option<String>) {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
        self.errors.push(MachineError { line, column, field: field.to_string(), message, hint });
    }
}
