//! `einloom teaal`: a TeAAL specification as files of ours.

use super::failure::Failure;
use super::ui::Ui;
use clap::Args;
use einloom::formats::FileError;
use einloom::studies::failure;
use einloom_spatial::Teaal;
use serde::Serialize;
use std::path::PathBuf;

/// The subset is in docs/spatial.md; what is outside it is an error with its place.
#[derive(Clone, Debug, Args)]
pub(crate) struct TeaalArgs {
    /// The specification (.yaml); `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Write cascade.ein, chip.toml and binding.toml into this folder
    #[arg(long, value_name = "FOLDER")]
    pub output: Option<PathBuf>,
}

#[derive(Debug, Serialize)]
struct Json {
    cascade: String,
    chip: Option<String>,
    binding: Option<String>,
    notes: Vec<String>,
}

pub(crate) fn command(ui: &Ui, args: &TeaalArgs) -> Result<(), Failure> {
    let source = super::source::text(&args.file)?;
    let read = Teaal::parse(&source.name, &source.text).map_err(failure)?;
    let json = Json {
        cascade: read.cascade,
        chip: read.chip.map(|c| c.to_toml()),
        binding: read.binding.map(|b| b.to_toml()),
        notes: read.notes,
    };
    let files = [
        ("cascade.ein", Some(&json.cascade)),
        ("chip.toml", json.chip.as_ref()),
        ("binding.toml", json.binding.as_ref()),
    ];
    if let Some(folder) = &args.output {
        std::fs::create_dir_all(folder).map_err(|e| FileError::io(folder, "cannot make it", &e))?;
        for (name, text) in files.iter().filter_map(|(n, t)| t.map(|t| (n, t))) {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|e| FileError::io(&path, "cannot write it", &e))?;
        }
    }
    for note in &json.notes {
        ui.note(note);
    }
    let text = || {
        let parts = files.iter().filter_map(|(n, t)| t.map(|t| format!("# {n}\n{}\n", t.trim_end())));
        parts.collect::<Vec<_>>().join("\n")
    };
    ui.result(text, &json)
}
