//! The file of results: JSON that people can share.

// Results outlive the process.
#![allow(clippy::disallowed_methods)]

use crate::failure::Failure;
use crate::settings;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// A result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// The program's name, for people.
    pub program: String,
    /// What it was measured on.
    pub device: String,
    /// The sizes of its ranks.
    pub sizes: BTreeMap<String, usize>,
    /// The best tiles by index; empty where the planner's are.
    pub tiles: BTreeMap<String, usize>,
    /// The measured time with them.
    pub seconds: f64,
    /// The measured time with the planner's.
    pub planned_seconds: f64,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Results {
    /// Results by [`super::key`].
    results: BTreeMap<String, Entry>,
}

/// What was read, and how old the file was then.
static READ: Mutex<Option<(PathBuf, Option<SystemTime>, Results)>> = Mutex::new(None);

/// The file's place.
fn file() -> Option<PathBuf> {
    settings::cache_folder().map(|folder| folder.join("tuning.json"))
}

/// The result with this key. A file that cannot be read holds none.
pub(crate) fn lookup(key: &str) -> Option<Entry> {
    let file = file()?;
    let age = std::fs::metadata(&file).and_then(|m| m.modified()).ok();
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if read.as_ref().is_none_or(|(path, then, _)| *path != file || *then != age) {
        *read = Some((file.clone(), age, results(&file)));
    }
    read.as_ref()?.2.results.get(key).cloned()
}

fn results(file: &Path) -> Results {
    std::fs::read_to_string(file).ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default()
}

/// Adds a result to the file: it is written beside its place and renamed, so that readers see all of it or the old one.
pub(crate) fn remember(key: &str, entry: Entry) -> Result<(), Failure> {
    let Some(file) = file() else { return Ok(()) };
    let mut all = results(&file);
    all.results.insert(key.to_string(), entry);
    let refused = |e: std::io::Error| {
        Failure::new("EinloomError", "cache", format!("{}: the result cannot be kept: {e}", file.display()))
    };
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).map_err(refused)?;
    let text = serde_json::to_string_pretty(&all).unwrap_or_default() + "\n";
    let new = folder.join(format!("tuning.json.{}.new", std::process::id()));
    let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &file));
    written.inspect_err(|_| _ = std::fs::remove_file(&new)).map_err(refused)
}
