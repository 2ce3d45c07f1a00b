//! Reads a machine from its TOML description.

mod gpu;
mod levels;
mod overhead;
mod pipes;

use crate::{Bytes, Hertz, Machine, UnitError, Watts};
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
///     parent = "DRAM"            # if left out, the level before it
///     shared_by = 2              # cores per instance; if left out, all of the outermost level and 1 of others
///     bandwidth = "400 GB/s"     # towards the cores, all instances together
///
///     [rates]                    # of everything that computes; or one [[pipe]] for each part
///     f32 = "256 GFLOP/s"
/// "#).expect("a machine");
/// assert_eq!(machine.levels[1].capacity.map(|c| c.to_string()).as_deref(), Some("1 MiB"));
/// ```
///
/// # Errors
/// Every mistake at once: wrong syntax, unknown or missing keys, wrong types and units, parents that do not exist or
/// go in circles or lead plans past the memories near the cores, memories that do not shrink inwards or hold no element,
/// and figures that contradict each other.
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

/// More cores than any machine has; what is counted per core stays within 64 bits.
const MOST_CORES: usize = 1 << 20;

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
        let known = [
            "name",
            "description",
            "cores",
            "clock",
            "element",
            "power",
            "overhead",
            "level",
            "rates",
            "pipe",
            "lanes",
            "calibration",
            "matrix",
        ];
        self.keys(&top, &known);
        let name = self.name(&top);
        let description = self.string(&top, "description").unwrap_or_default();
        let cores = self.count(&top, "cores").or_else(|| self.missing(&top, "cores"));
        let clock = self.quantity::<Hertz>(&top, "clock").or_else(|| self.missing(&top, "clock"));
        let element = self.quantity::<Bytes>(&top, "element");
        if element == Some(Bytes(0)) {
            self.at(&top, "element", "is zero".to_string());
        }
        let power = self.quantity::<Watts>(&top, "power");
        if power.is_some_and(|p| p.0 <= 0.0) {
            self.at(&top, "power", "is zero; leave it out if it is not known".to_string());
        }
        let overhead = self.overhead(&top);
        if clock.is_some_and(|c| c.0 <= 0.0) {
            self.at(&top, "clock", "is zero".to_string());
        }
        if let Some(many) = cores.filter(|&c| c > MOST_CORES) {
            self.at(&top, "cores", format!("{many} are more than the {MOST_CORES} that can be planned for"));
        }
        let levels = self.levels(&top, cores, element);
        let pipes = self.pipes(&top);
        let (lanes, matrix) = (self.lanes(&top), self.matrix(&top));
        let (name, cores, clock) = (name?, cores?, clock?);
        let mut machine =
            Machine { name, description, cores, clock, element, power, overhead, levels, pipes, lanes, matrix };
        self.agreement(&top, &machine);
        self.units_fit(&top, &machine);
        machine.fill_exchanges();
        Some(machine)
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

    /// What a machine or a part of it is called: one line, and not an empty one.
    fn name(&mut self, at: &Section<'_, 't>) -> Option<String> {
        let name = self.string(at, "name").or_else(|| self.missing(at, "name"))?;
        if name.trim().is_empty() {
            self.at(at, "name", "is empty".to_string());
        } else if name.contains(char::is_control) {
            self.at(at, "name", "is more than one line of text".to_string());
        }
        Some(name)
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
