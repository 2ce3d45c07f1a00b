//! The programs that come with the project.

use std::path::Path;

/// Names and texts of the cascades in `cascades/` and `cascades/published/`, sorted.
pub fn programs() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cascades");
    let mut out = vec![];
    for folder in [root.clone(), root.join("published")] {
        for entry in std::fs::read_dir(folder).expect("programs") {
            let path = entry.expect("entry").path();
            if path.extension().is_some_and(|e| e == "ein") {
                let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
                out.push((name, std::fs::read_to_string(&path).expect("text")));
            }
        }
    }
    out.sort();
    out
}
