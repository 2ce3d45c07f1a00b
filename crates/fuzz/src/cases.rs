//! Cases: a program with sizes and values, as a text that reads back.
//!
//! A case is an `.ein` text whose first comments hold what the language has no words for:
//!
//! ```text
//! # open: why it is not repaired yet
//! # sizes A=2 B=3
//! # values X 1 2 -inf 0 0 0.5
//! # plan 4711
//! ```

use einloom_cascade::meaning::{Array, Arrays};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// A program, sizes for its ranks, and values for its inputs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Case {
    /// The program.
    pub text: String,
    /// Sizes by rank name.
    pub sizes: BTreeMap<String, usize>,
    /// The elements of each input, row-major. An input without any has random ones.
    pub values: BTreeMap<String, Vec<f64>>,
    /// The number that its plan is drawn from, if it is not the planner's.
    pub plan: Option<u64>,
    /// Why it is known to disagree, if it does.
    pub open: Option<String>,
}

impl Case {
    /// Reads a case. Comments that are none of ours stay in the text.
    ///
    /// # Errors
    /// A line that starts like one of ours and cannot be read.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut case = Case { text: text.to_owned(), ..Case::default() };
        for line in text.lines().take_while(|l| l.starts_with('#')) {
            let line = line.trim_start_matches('#').trim();
            let wrong = || format!("cannot read `{line}`");
            if let Some(sizes) = line.strip_prefix("sizes ") {
                for one in sizes.split_whitespace() {
                    let (rank, size) = one.split_once('=').ok_or_else(wrong)?;
                    case.sizes.insert(rank.to_owned(), size.parse().map_err(|_| wrong())?);
                }
            } else if let Some(values) = line.strip_prefix("values ") {
                let mut words = values.split_whitespace();
                let name = words.next().ok_or_else(wrong)?;
                let values: Result<Vec<f64>, _> = words.map(str::parse).collect();
                case.values.insert(name.to_owned(), values.map_err(|_| wrong())?);
            } else if let Some(plan) = line.strip_prefix("plan ") {
                case.plan = Some(plan.trim().parse().map_err(|_| wrong())?);
            } else if let Some(why) = line.strip_prefix("open: ") {
                case.open = Some(why.to_owned());
            }
        }
        Ok(case)
    }

    /// The case as text.
    pub fn write(&self) -> String {
        let mut out = String::new();
        if let Some(why) = &self.open {
            _ = writeln!(out, "# open: {why}");
        }
        if !self.sizes.is_empty() {
            let sizes: Vec<String> = self.sizes.iter().map(|(rank, size)| format!("{rank}={size}")).collect();
            _ = writeln!(out, "# sizes {}", sizes.join(" "));
        }
        for (name, values) in &self.values {
            let values: Vec<String> = values.iter().map(f64::to_string).collect();
            _ = writeln!(out, "# values {name} {}", values.join(" "));
        }
        if let Some(plan) = self.plan {
            _ = writeln!(out, "# plan {plan}");
        }
        let ours = |l: &&str| {
            ["sizes ", "values ", "plan ", "open: "].iter().any(|w| l.trim_start_matches("# ").starts_with(w))
        };
        let head = self.text.lines().take_while(|l| l.starts_with('#')).filter(|l| !ours(l));
        let body = self.text.lines().skip_while(|l| l.starts_with('#'));
        head.chain(body).for_each(|line| out += &format!("{line}\n"));
        out
    }

    /// The values in the shapes that the sizes give the inputs; `None` if there are none, or too few.
    pub fn arrays(&self, shape: impl Fn(&str) -> Vec<usize>, inputs: &[String]) -> Option<Arrays> {
        let one = |name: &String| {
            let (shape, values) = (shape(name), self.values.get(name)?.clone());
            (shape.iter().product::<usize>() == values.len()).then(|| (name.clone(), Array { shape, values }))
        };
        inputs.iter().map(one).collect()
    }
}

/// The cases in a folder, by name.
///
/// # Errors
/// A folder or a file that cannot be read.
pub fn load(folder: &Path) -> Result<Vec<(PathBuf, Case)>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).map_err(failed)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|p| p.extension().is_some_and(|e| e == "ein"));
    paths.sort();
    let one = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok((path, Case::read(&text)?))
    };
    paths.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_reads_back() {
        let text = "# open: a reason\n# sizes A=2 B=0\n# values X 1 -inf NaN 0.25\n# plan 7\n# said by nobody\ninput X[a]: f32\n";
        let case = Case::read(text).expect("a case");
        assert_eq!((case.sizes["A"], case.sizes["B"], case.open.as_deref()), (2, 0, Some("a reason")));
        assert_eq!(case.values["X"][..2], [1.0, f64::NEG_INFINITY]);
        assert_eq!(case.plan, Some(7));
        assert_eq!(case.write(), text);
        assert!(Case::read("# sizes A=two\n").is_err() && Case::read("# plan -1\n").is_err());
    }
}
