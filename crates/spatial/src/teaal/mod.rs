//! Reads specifications of TeAAL (Nayak et al., MICRO 2023; FPSG-UIUC/teaal-compiler): einsum, mapping, format,
//! architecture and binding, as a cascade, a chip and a binding of ours.
//!
//! A documented subset (`docs/spatial.md`). Tensors here are dense, so whatever is about sparsity is refused by its
//! name: compressed formats, `take`, partitioning by occupancy, `flatten`, intersection, mergers, sequencers. What
//! would change nothing is noted: the order of loops inside a tile.

mod architecture;
mod einsum;
mod mapping;
mod reader;
mod write;
mod yaml;

use crate::{Binding, Chip, Problem, Program};
use reader::Reader;

/// A specification in our terms.
#[derive(Clone, Debug, PartialEq)]
pub struct Teaal {
    /// The cascade's text.
    pub cascade: String,
    /// The same, read.
    pub program: Program,
    /// The chip, if there is an architecture.
    pub chip: Option<Chip>,
    /// How the cascade runs on it, if there are a chip and a mapping.
    pub binding: Option<Binding>,
    /// What was read and means nothing here.
    pub notes: Vec<String>,
}

impl Teaal {
    /// Reads a specification; `file` is what problems call it, and its stem names the cascade.
    ///
    /// # Errors
    /// Every mistake at once, and everything that is not supported, each with its place.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        let root = yaml::parse(file, text)?;
        let mut r = Reader::new(file);
        let known = ["einsum", "mapping", "format", "architecture", "binding", "bindings"];
        r.keys(&root, "", &known);
        let stem = file.rsplit(['/', '\\']).next().unwrap_or(file).split('.').next().unwrap_or("cascade");
        let einsum = einsum::read(&mut r, &root, stem);
        format(&mut r, &root);
        let machine = architecture::read(&mut r, &root, stem);
        let mapped = mapping::read(&mut r, &root, &einsum, machine.as_ref());
        if !r.problems.is_empty() {
            r.problems.sort_by_key(|p| (p.line, p.column));
            return Err(r.problems);
        }
        let program = Program::parse(file, &einsum.text).map_err(|problems| {
            let place = |line: usize| einsum.places.get(line.wrapping_sub(1)).copied().unwrap_or_default();
            let there = |p: Problem| {
                let (line, column) = place(p.line);
                Problem { line, column, field: "einsum".to_owned(), ..p }
            };
            problems.into_iter().map(there).collect::<Vec<_>>()
        })?;
        let chip = machine.map(|m| m.chip);
        let binding = match (&chip, mapped) {
            (Some(chip), Some(binding)) => {
                let problems = crate::evaluate::check(&program, chip, &binding);
                if !problems.is_empty() {
                    return Err(problems.into_iter().map(|p| p.found_in(file, text)).collect());
                }
                Some(binding)
            }
            _ => None,
        };
        Ok(Self { cascade: einsum.text, program, chip, binding, notes: r.notes })
    }
}

/// Formats say nothing about dense tensors; compressed ones are refused.
fn format(r: &mut Reader<'_>, root: &yaml::Node) {
    let Some(all) = root.get("format") else { return };
    for (tensor, configs) in r.entries(all, "format") {
        for (_, config) in r.entries(configs, "format") {
            for (rank, of) in r.entries(config, "format") {
                let Some(name) = rank.scalar() else { continue };
                if name == "rank-order" {
                    continue;
                }
                for (key, value) in r.entries(of, "format") {
                    match (key.scalar(), value.scalar()) {
                        (Some("format"), Some("U")) => {}
                        (Some("format"), _) => {
                            let which = format!("format {} {name}", tensor.scalar().unwrap_or_default());
                            let what =
                                format!("the format {} is not supported", value.scalar().unwrap_or("of this form"));
                            r.problem(value, &which, &what, "tensors are dense here: U");
                        }
                        (Some("cbits" | "pbits" | "fhbits" | "layout"), _) => {}
                        (other, _) => {
                            let what = format!("`{}` is not supported", other.unwrap_or("this"));
                            r.problem(key, "format", &what, "known: format, cbits, pbits, fhbits, layout");
                        }
                    }
                }
            }
        }
    }
}
