//! Reads a study and the files it names.

use super::{Configuration, Files, Layer, Linear, PublishedArea, Quantity, Ratio, Study, Sweep, Workload};
use crate::read::{Reader, Section, document};
use crate::{Binding, Chip, Problem, Program};
use std::collections::BTreeMap;

impl Study {
    /// The study that a TOML text describes, with the files it names; `file` is what problems call it.
    ///
    /// # Errors
    /// Every mistake at once, in the study and in the files it names.
    pub fn parse(file: &str, text: &str, files: &mut Files<'_>) -> Result<Self, Vec<Problem>> {
        let mut elsewhere = vec![];
        let result = document(file, text, |r, top| {
            let mut library = Library { files, problems: &mut elsewhere, texts: BTreeMap::new() };
            study(r, top, &mut library)
        });
        match result {
            Ok(study) if elsewhere.is_empty() => Ok(study),
            Ok(_) => Err(elsewhere),
            Err(mut problems) => {
                // A file that cannot be read makes the study unreadable: that alone needs no telling.
                problems.retain(|p| p.line > 0 || elsewhere.is_empty());
                problems.extend(elsewhere);
                Err(problems)
            }
        }
    }
}

/// The files that a study names, and what is wrong in them.
struct Library<'l, 'f> {
    files: &'l mut Files<'f>,
    problems: &'l mut Vec<Problem>,
    /// Texts of files that were read, by the names they have in the study.
    texts: BTreeMap<String, String>,
}

impl Library<'_, '_> {
    /// The file that a key names, read with `parse`.
    fn read<T>(
        &mut self,
        r: &mut Reader<'_>,
        at: &Section<'_, '_>,
        key: &str,
        parse: impl FnOnce(&str, &str) -> Result<T, Vec<Problem>>,
    ) -> Option<T> {
        let path = r.needed_string(at, key)?;
        match (self.files)(&path) {
            Err(why) => {
                r.at(at, key, format!("cannot read `{path}`: {why}"));
                None
            }
            Ok(text) => match parse(&path, &text) {
                Ok(value) => {
                    self.texts.insert(path, text);
                    Some(value)
                }
                Err(problems) => {
                    self.tell(problems);
                    None
                }
            },
        }
    }

    /// The same file may be named twice; its mistakes are told once.
    fn tell(&mut self, problems: impl IntoIterator<Item = Problem>) {
        for problem in problems {
            if !self.problems.contains(&problem) {
                self.problems.push(problem);
            }
        }
    }

    /// Whether a binding fits its cascade and chip; its mistakes have their places in its file.
    fn check(&mut self, path: Option<&String>, program: &Program, chip: &Chip, binding: &Binding) {
        let Some((path, text)) = path.and_then(|p| self.texts.get_key_value(p)) else { return };
        let problems: Vec<_> =
            crate::check(program, chip, binding).into_iter().map(|p| p.found_in(path, text)).collect();
        self.tell(problems);
    }
}

fn study(r: &mut Reader<'_>, top: &Section<'_, '_>, library: &mut Library<'_, '_>) -> Option<Study> {
    let known = [
        "name",
        "description",
        "outer",
        "accounting",
        "configuration",
        "workload",
        "lengths",
        "linear",
        "ratio",
        "sweep",
    ];
    r.keys(top, &known);
    let name = r.needed_string(top, "name");
    let description = r.string(top, "description").unwrap_or_default();
    let outer = r.strings(top, "outer");
    let accounting = r.needed_string(top, "accounting");
    let (layers, linear) = linear(r, top, library);
    let mut configurations = vec![];
    let mut names = vec![];
    let sections = r.sections(top, "configuration");
    if sections.is_empty() {
        r.missing::<()>(top, "configuration");
    }
    for at in &sections {
        names.extend(r.quiet_string(at, "name"));
        configurations.extend(configuration(r, at, library));
    }
    let workloads = workloads(r, top);
    let (length_ranks, lengths) = lengths(r, top);
    let ratios = r.sections(top, "ratio").iter().filter_map(|at| ratio(r, at, &names)).collect();
    let sweep = r.section(top, "sweep").and_then(|at| sweep(r, &at, library, &names));
    Some(Study {
        name: name?,
        description,
        outer,
        accounting: accounting?,
        configurations,
        workloads,
        length_ranks,
        lengths,
        layers,
        linear,
        ratios,
        sweep,
    })
}

fn configuration(r: &mut Reader<'_>, at: &Section<'_, '_>, library: &mut Library<'_, '_>) -> Option<Configuration> {
    r.keys(at, &["name", "title", "cascade", "chip", "binding"]);
    let name = r.needed_string(at, "name");
    let title = r.string(at, "title").or_else(|| name.clone()).unwrap_or_default();
    let program = library.read(r, at, "cascade", Program::parse);
    let chip = library.read(r, at, "chip", Chip::parse);
    let binding = library.read(r, at, "binding", Binding::parse);
    let (name, program, chip, binding) = (name?, program?, chip?, binding?);
    library.check(r.quiet_string(at, "binding").as_ref(), &program, &chip, &binding);
    Some(Configuration { name, title, program, chip, binding })
}

fn linear(r: &mut Reader<'_>, top: &Section<'_, '_>, library: &mut Library<'_, '_>) -> (Vec<Layer>, Option<Linear>) {
    let Some(at) = r.section(top, "linear") else { return (vec![], None) };
    r.keys(&at, &["cascade", "binding", "layer"]);
    let program = library.read(r, &at, "cascade", Program::parse);
    let binding = library.read(r, &at, "binding", Binding::parse);
    let mut layers = vec![];
    for at in r.sections(&at, "layer") {
        r.keys(&at, &["name", "count", "sizes"]);
        let name = r.needed_string(&at, "name");
        let count = r.count(&at, "count").unwrap_or(1);
        let mut sizes = BTreeMap::new();
        if let Some(table) = r.section(&at, "sizes") {
            let ranks: Vec<String> = table.names().collect();
            for rank in ranks {
                let factors = r.strings(&table, &rank);
                sizes.insert(rank, factors);
            }
        } else {
            r.missing::<()>(&at, "sizes");
        }
        layers.extend(name.map(|name| Layer { name, count, sizes }));
    }
    let linear = program.zip(binding).map(|(program, binding)| Linear { program, binding });
    (layers, linear)
}

fn workloads(r: &mut Reader<'_>, top: &Section<'_, '_>) -> Vec<Workload> {
    let mut out: Vec<Workload> = vec![];
    for at in r.sections(top, "workload") {
        r.keys(&at, &["name", "sizes"]);
        let name = r.needed_string(&at, "name");
        let sizes = r.sizes(&at, "sizes");
        if let Some(name) = name {
            if out.iter().any(|w| w.name == name) {
                r.at(&at, "name", format!("there is another workload `{name}`"));
            }
            out.push(Workload { name, sizes });
        }
    }
    out
}

fn lengths(r: &mut Reader<'_>, top: &Section<'_, '_>) -> (Vec<String>, Vec<usize>) {
    let Some(at) = r.section(top, "lengths") else { return (vec![], vec![]) };
    r.keys(&at, &["ranks", "sizes"]);
    (r.strings(&at, "ranks"), r.counts(&at, "sizes"))
}

/// The name of a configuration that a key gives.
fn named(r: &mut Reader<'_>, at: &Section<'_, '_>, key: &str, names: &[String]) -> Option<String> {
    let name = r.needed_string(at, key)?;
    if !names.contains(&name) {
        let hint = format!("there are {}", names.join(", "));
        r.at_hint(at, key, format!("there is no configuration `{name}`"), Some(hint));
        return None;
    }
    Some(name)
}

fn ratio(r: &mut Reader<'_>, at: &Section<'_, '_>, names: &[String]) -> Option<Ratio> {
    r.keys(at, &["title", "of", "numerator", "denominator", "end_to_end", "published"]);
    let title = r.needed_string(at, "title");
    let of = match r.needed_string(at, "of").as_deref() {
        Some("seconds") => Some(Quantity::Seconds),
        Some("joules") => Some(Quantity::Joules),
        Some(other) => {
            let message = format!("`{other}` is not `seconds` or `joules`");
            r.at(at, "of", message);
            None
        }
        None => None,
    };
    let numerator = named(r, at, "numerator", names);
    let denominator = named(r, at, "denominator", names);
    let end_to_end = r.flag(at, "end_to_end").unwrap_or(false);
    let published = r.number(at, "published");
    Some(Ratio { title: title?, of: of?, numerator: numerator?, denominator: denominator?, end_to_end, published })
}

fn sweep(r: &mut Reader<'_>, at: &Section<'_, '_>, library: &mut Library<'_, '_>, names: &[String]) -> Option<Sweep> {
    r.keys(at, &["configuration", "binding", "length", "arrays", "published"]);
    let configuration = named(r, at, "configuration", names);
    let binding = if at.has("binding") { library.read(r, at, "binding", Binding::parse) } else { None };
    let length = r.count(at, "length").or_else(|| r.missing(at, "length"));
    let arrays = r.counts(at, "arrays");
    let published = r.sections(at, "published").iter().filter_map(|at| published(r, at)).collect();
    Some(Sweep { configuration: configuration?, binding, length: length?, arrays, published })
}

fn published(r: &mut Reader<'_>, at: &Section<'_, '_>) -> Option<PublishedArea> {
    r.keys(at, &["workload", "array", "area"]);
    let workload = r.needed_string(at, "workload");
    let array = r.count(at, "array").or_else(|| r.missing(at, "array"));
    let area = r.needed(at, "area");
    Some(PublishedArea { workload: workload?, array: array?, area: area? })
}
