//! Anything at all as a program's text: random bytes, soups of tokens, programs that were damaged. Whatever it is, the
//! language answers without a panic, soon, and what it accepts reads back from its own printing.

mod attempt;
mod campaign;
mod mutate;
mod scale;
mod soup;

pub use attempt::{Attempt, Depth, attempt};
pub use campaign::{Campaign, Finding, Tally, Watch};
pub use scale::{PATTERNS, Pattern, growth};

use einloom::random::Random;
use std::path::Path;

/// The texts that are damaged: every `.ein` file of a folder and of the folders in it.
///
/// # Errors
/// A folder or a file that cannot be read.
pub fn corpus(folder: &Path) -> Result<Vec<String>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut paths = vec![];
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.sort();
    let mut out = vec![];
    for path in paths {
        if path.is_dir() {
            out.extend(corpus(&path)?);
        } else if path.extension().is_some_and(|e| e == "ein") {
            out.push(std::fs::read_to_string(&path).map_err(failed)?);
        }
    }
    Ok(out)
}

/// The text of a seed.
pub fn text(seed: u64, corpus: &[String]) -> String {
    let mut random = Random::new(seed, "text");
    match random.integer(0, 19) {
        0 => soup::bytes(&mut random),
        1 | 2 => soup::tokens(&mut random),
        3 => soup::statements(&mut random),
        4..=6 => mutate::damaged(&crate::generate::program(seed).text, corpus, &mut random),
        7 => crate::generate::program(seed).text,
        _ if corpus.is_empty() => soup::tokens(&mut random),
        _ => {
            let start = &corpus[random.integer(0, corpus.len() as i64 - 1) as usize];
            mutate::damaged(start, corpus, &mut random)
        }
    }
}
