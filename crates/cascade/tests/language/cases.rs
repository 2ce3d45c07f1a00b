//! Case files: `=== title`, a text, `---`, what is expected of it, and so on.

use std::path::PathBuf;

/// Runs every case of a file, or rewrites what the file expects if `EINLOOM_BLESS` is set.
pub fn check(file: &str, run: impl Fn(&str) -> String) {
    let path: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "language", file].iter().collect();
    let before = std::fs::read_to_string(&path).expect("the case file is there");
    let mut after = String::new();
    let mut cases = 0;
    for case in before.split("=== ").skip(1) {
        let (title, rest) = case.split_once('\n').expect("a case has a title line");
        let text = rest.split_once("---\n").map_or(rest, |(text, _)| text);
        after.push_str(&format!("=== {title}\n{text}---\n{}\n", run(text)));
        cases += 1;
    }
    assert!(cases > 0, "{file} holds no case");
    if std::env::var_os("EINLOOM_BLESS").is_some() {
        std::fs::write(&path, &after).expect("the case file can be written");
        return;
    }
    let cases = |text: &str| text.split("=== ").skip(1).map(|c| c.trim_end().to_owned()).collect::<Vec<_>>();
    for (expected, found) in cases(&before).iter().zip(cases(&after)) {
        assert!(*expected == found, "{file} expects\n\n{expected}\n\nbut\n\n{found}\n");
    }
}
