//! Collects what is wrong with a specification.

use super::yaml::Node;
use crate::Problem;

pub(super) struct Reader<'t> {
    file: &'t str,
    pub problems: Vec<Problem>,
    pub notes: Vec<String>,
}

impl<'t> Reader<'t> {
    pub fn new(file: &'t str) -> Self {
        Self { file, problems: vec![], notes: vec![] }
    }

    pub fn problem(&mut self, at: &Node, field: &str, message: &str, hint: &str) {
        self.problems.push(Problem {
            file: self.file.to_owned(),
            line: at.line,
            column: at.column,
            field: field.to_owned(),
            message: message.to_owned(),
            hint: (!hint.is_empty()).then(|| hint.to_owned()),
            ..Problem::default()
        });
    }

    /// Refuses keys outside `known`.
    pub fn keys(&mut self, at: &Node, field: &str, known: &[&str]) {
        for (key, _) in self.entries(at, field) {
            let name = key.scalar().unwrap_or("this key");
            if !known.contains(&name) {
                self.problem(
                    key,
                    field,
                    &format!("`{name}` is not supported"),
                    &format!("known: {}", known.join(", ")),
                );
            }
        }
    }

    /// Keys and values of a map.
    pub fn entries<'n>(&mut self, at: &'n Node, field: &str) -> &'n [(Node, Node)] {
        match at.map() {
            Some(map) => map,
            None => {
                self.problem(at, field, "is not a map", "");
                &[]
            }
        }
    }

    /// Texts of a list.
    pub fn texts<'n>(&mut self, at: &'n Node, field: &str) -> Vec<(&'n Node, &'n str)> {
        let Some(list) = at.list() else {
            self.problem(at, field, "is not a list", "");
            return vec![];
        };
        let mut out = vec![];
        for item in list {
            match item.scalar() {
                Some(text) => out.push((item, text)),
                None => self.problem(item, field, "is not a text", ""),
            }
        }
        out
    }

    /// A text that must be there.
    pub fn text<'n>(&mut self, at: &'n Node, key: &str, field: &str) -> Option<&'n str> {
        match at.get(key).map(|n| (n, n.scalar())) {
            Some((_, Some(text))) => Some(text),
            Some((n, None)) => {
                self.problem(n, field, &format!("{key} is not a text"), "");
                None
            }
            None => {
                self.problem(at, field, &format!("{key} is missing"), "");
                None
            }
        }
    }

    /// A number, if the key is there.
    pub fn number(&mut self, at: &Node, key: &str, field: &str) -> Option<f64> {
        let node = at.get(key)?;
        let number = node.scalar().and_then(|t| t.replace('_', "").parse::<f64>().ok());
        match number.filter(|n| n.is_finite() && *n > 0.0) {
            Some(n) => Some(n),
            None => {
                self.problem(node, field, &format!("{key} is not a number above 0"), "");
                None
            }
        }
    }
}
