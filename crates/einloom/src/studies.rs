//! Studies of spatial chips by name or file.

use crate::formats::FileError;
use crate::{Error, Finding};
use einloom_spatial::{Problem, Study};
use std::path::Path;

/// The built-in studies: name and file.
const STUDIES: [(&str, &str); 1] = [("fusemax", "fusemax.toml")];

/// The files that built-in studies are made of, as they name them.
const FILES: [(&str, &str); 13] = [
    ("fusemax.toml", include_str!("../../../studies/fusemax.toml")),
    ("chips/flat.toml", include_str!("../../../studies/chips/flat.toml")),
    ("chips/fusemax.toml", include_str!("../../../studies/chips/fusemax.toml")),
    ("bindings/unfused.toml", include_str!("../../../studies/bindings/unfused.toml")),
    ("bindings/flat.toml", include_str!("../../../studies/bindings/flat.toml")),
    ("bindings/cascade.toml", include_str!("../../../studies/bindings/cascade.toml")),
    ("bindings/architecture.toml", include_str!("../../../studies/bindings/architecture.toml")),
    ("bindings/interleaved.toml", include_str!("../../../studies/bindings/interleaved.toml")),
    ("bindings/interleaved_small.toml", include_str!("../../../studies/bindings/interleaved_small.toml")),
    ("bindings/linear.toml", include_str!("../../../studies/bindings/linear.toml")),
    ("../cascades/published/c4_stable.ein", include_str!("../../../cascades/published/c4_stable.ein")),
    ("../cascades/published/c5.ein", include_str!("../../../cascades/published/c5.ein")),
    ("../cascades/matmul.ein", include_str!("../../../cascades/matmul.ein")),
];

/// The study with this name: a built-in one, or one in a file that ends in `.toml`; the files that it names are found
/// from its folder.
///
/// # Errors
/// A name that is not known, a file that cannot be read, or all mistakes in the study and in what it names.
pub fn find(name: &str) -> Result<Study, Error> {
    if let Some((_, file)) = STUDIES.iter().find(|s| s.0 == name) {
        let mut read = |path: &str| built_in(path).map(str::to_owned).ok_or_else(|| "it is not built in".to_owned());
        let text = read(file).map_err(|why| failure(vec![Problem::new(*file, why)]))?;
        return Study::parse(file, &text, &mut read).map_err(failure);
    }
    if !name.ends_with(".toml") {
        let names: Vec<&str> = STUDIES.iter().map(|s| s.0).collect();
        let hint = format!("the built-in studies are {}; a file of yours ends in .toml", names.join(", "));
        let finding = Finding::error("unknown-study", format!("there is no study `{name}`")).hint(Some(hint));
        return Err(Error::Study(vec![finding]));
    }
    let path = Path::new(name);
    let text = std::fs::read_to_string(path).map_err(|e| FileError::io(path, "cannot read it", &e))?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut read = |named: &str| std::fs::read_to_string(folder.join(named)).map_err(|e| e.to_string());
    Study::parse(name, &text, &mut read).map_err(failure)
}

/// The chip with this name: one of a built-in study, or one in a file that ends in `.toml`.
///
/// # Errors
/// A name that is not known, a file that cannot be read, or all its mistakes.
pub fn chip(name: &str) -> Result<einloom_spatial::Chip, Error> {
    let text = named(name, "chip")?;
    einloom_spatial::Chip::parse(name, &text).map_err(failure)
}

/// The binding with this name: one of a built-in study, or one in a file that ends in `.toml`.
///
/// # Errors
/// A name that is not known, a file that cannot be read, or all its mistakes.
pub fn binding(name: &str) -> Result<einloom_spatial::Binding, Error> {
    let text = named(name, "binding")?;
    einloom_spatial::Binding::parse(name, &text).map_err(failure)
}

/// The text of a chip or a binding.
fn named(name: &str, kind: &str) -> Result<String, Error> {
    if name.ends_with(".toml") {
        let read = std::fs::read_to_string(name);
        return read.map_err(|e| FileError::io(Path::new(name), "cannot read it", &e).into());
    }
    let folder = format!("{kind}s/");
    if let Some(text) = built_in(&format!("{folder}{name}.toml")) {
        return Ok(text.to_owned());
    }
    let names: Vec<&str> = FILES.iter().filter_map(|f| f.0.strip_prefix(&folder)?.strip_suffix(".toml")).collect();
    let hint = format!("the built-in {kind}s are {}; a file of yours ends in .toml", names.join(", "));
    let finding = Finding::error(&format!("unknown-{kind}"), format!("there is no {kind} `{name}`")).hint(Some(hint));
    Err(Error::Study(vec![finding]))
}

/// The problems of a study as what to tell the user.
pub fn failure(problems: Vec<Problem>) -> Error {
    let one = |p: Problem| {
        let hint = p.hint.clone();
        Finding::error("study", Problem { hint: None, ..p }.to_string()).hint(hint)
    };
    Error::Study(problems.into_iter().map(one).collect())
}

fn built_in(path: &str) -> Option<&'static str> {
    FILES.iter().find(|f| f.0 == path).map(|f| f.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_study_can_be_read() {
        for (name, _) in STUDIES {
            assert!(find(name).is_ok(), "{name}: {:?}", find(name).err());
        }
    }
}
