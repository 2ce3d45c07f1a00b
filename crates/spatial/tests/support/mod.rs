//! The shipped studies, read as the command line reads them.
#![allow(clippy::disallowed_methods)] // Studies are read from files.
#![allow(dead_code)] // Not every test needs everything.

use einloom_spatial::Study;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/");

/// A file beside the studies.
pub fn file(name: &str) -> Result<String, String> {
    std::fs::read_to_string(format!("{FOLDER}{name}")).map_err(|e| e.to_string())
}

/// The study of FuseMax.
pub fn fusemax() -> Study {
    let text = file("fusemax.toml").unwrap();
    match Study::parse("fusemax.toml", &text, &mut file) {
        Ok(study) => study,
        Err(problems) => panic!("{}", problems.iter().map(|p| format!("{p}\n")).collect::<String>()),
    }
}

/// What is wrong if `found` is further than `tolerance` from `expected`, relatively.
pub fn close(found: f64, expected: f64, tolerance: f64, what: &str) -> Option<String> {
    let error = (found / expected - 1.0).abs();
    let bad = error.is_nan() || error > tolerance;
    bad.then(|| format!("{what}: {found} instead of {expected} ({error:.2e} off)\n"))
}
