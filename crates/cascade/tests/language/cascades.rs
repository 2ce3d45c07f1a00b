//! The texts of `cascades/`: nothing to complain of, and printing keeps their meaning.

use einloom_cascade::{erase_spans, parse, print, render_plain};
use std::path::{Path, PathBuf};

/// Printing and parsing again gives the same cascade, and the same text.
pub fn survives_printing(text: &str) {
    let first = parse(text).cascade;
    let printed = print(&first);
    let second = parse(&printed);
    let told: String = second.diagnostics.iter().filter(|d| d.is_error()).map(|d| render_plain(d, &printed)).collect();
    assert!(told.is_empty(), "{text}\nprints as\n{printed}\nwhich gets\n{told}");
    assert_eq!(erase_spans(&first), erase_spans(&second.cascade), "{text}\nprints as\n{printed}");
    assert_eq!(printed, print(&second.cascade));
}

/// Every text with its path.
pub fn texts() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cascades");
    let mut out = vec![];
    for folder in [root.clone(), root.join("published")] {
        for entry in std::fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("the folder can be listed").path();
            if path.extension().is_some_and(|e| e == "ein") {
                let text = std::fs::read_to_string(&path).expect("the text can be read");
                out.push((path, text));
            }
        }
    }
    out
}

#[test]
fn no_published_text_gets_a_finding() {
    let texts = texts();
    assert!(texts.len() >= 40, "only {} texts found", texts.len());
    for (path, text) in texts {
        let told = super::diagnostics(&text);
        assert!(told.is_empty(), "{}:\n{told}", path.display());
        assert!(text.starts_with("# "), "{} starts with what it is", path.display());
        let named = format!("cascade {}\n", path.file_stem().unwrap_or_default().display());
        assert!(text.contains(&named), "{} is named after its file", path.display());
    }
}

#[test]
fn published_texts_survive_printing() {
    texts().iter().for_each(|(_, text)| survives_printing(text));
}
