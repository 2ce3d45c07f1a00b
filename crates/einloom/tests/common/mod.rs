//! Expected texts in files.

use std::fmt::Write as _;
use std::path::Path;

/// Compares a file with what it should hold, or writes it when blessing.
pub fn check(path: &Path, expected: &str, found: &str, failures: &mut String) {
    if expected == found {
        return;
    }
    if std::env::var_os("EINLOOM_BLESS").is_some_and(|v| v == "1") {
        std::fs::write(path, found).expect("bless");
        return;
    }
    let _ = writeln!(failures, "--- {}", path.display());
    let (mut old, mut new) = (expected.lines(), found.lines());
    loop {
        match (old.next(), new.next()) {
            (None, None) => break,
            (a, b) if a == b => {}
            (a, b) => {
                let _ = writeln!(failures, "expected: {}\nfound:    {}", a.unwrap_or("(end)"), b.unwrap_or("(end)"));
                break;
            }
        }
    }
}
