//! Reading of TOML tables: every mistake at once, each with its line.

use crate::Problem;
use einloom_machine::UnitError;
use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Collects the problems of one text.
pub(crate) struct Reader<'t> {
    file: &'t str,
    text: &'t str,
    pub problems: Vec<Problem>,
}

/// A table with the name under which people know it, and where it stands.
pub(crate) struct Section<'a, 't> {
    table: &'a DeTable<'t>,
    name: String,
    span: Range<usize>,
}

/// Reads `text` with `read`.
///
/// # Errors
/// All problems, in the order of the text.
pub(crate) fn document<T>(
    file: &str,
    text: &str,
    read: impl FnOnce(&mut Reader<'_>, &Section<'_, '_>) -> Option<T>,
) -> Result<T, Vec<Problem>> {
    let (root, syntax) = DeTable::parse_recoverable(text);
    let mut reader = Reader { file, text, problems: vec![] };
    for error in syntax {
        reader.problem(error.span().unwrap_or(0..0), "", error.message().to_string(), None);
    }
    let mut value = None;
    if reader.problems.is_empty() {
        value = read(&mut reader, &Section { table: root.get_ref(), name: String::new(), span: 0..0 });
    }
    reader.problems.sort_by_key(|e| (e.line, e.column));
    match value {
        Some(value) if reader.problems.is_empty() => Ok(value),
        _ if reader.problems.is_empty() => Err(vec![Problem::new("", "cannot be read").of(file)]),
        _ => Err(reader.problems),
    }
}

impl<'a, 't> Section<'a, 't> {
    /// What a key of this section is called.
    pub fn field(&self, key: &str) -> String {
        if self.name.is_empty() { key.to_string() } else { format!("{} {key}", self.name) }
    }

    /// Whether the key is there.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// Every key, in the order of the text.
    pub fn names(&self) -> impl Iterator<Item = String> + use<'a> {
        let mut keys: Vec<(usize, String)> = vec![];
        for k in self.table.keys() {
            let name: &str = k.get_ref();
            keys.push((k.span().start, name.to_owned()));
        }
        keys.sort();
        keys.into_iter().map(|(_, name)| name)
    }
}

impl<'t> Reader<'t> {
    /// Refuses keys outside `known`.
    pub fn keys(&mut self, at: &Section<'_, '_>, known: &[&str]) {
        for key in at.table.keys() {
            let name: &str = key.get_ref();
            if !known.contains(&name) {
                let hint = Some(format!("known here: {}", known.join(", ")));
                self.problem(key.span(), &at.field(name), "is not a known key".to_string(), hint);
            }
        }
    }

    /// A text, if the key is there.
    pub fn string(&mut self, at: &Section<'_, '_>, key: &str) -> Option<String> {
        let value = at.table.get(key)?;
        match value.get_ref().as_str() {
            Some(text) => Some(text.to_string()),
            None => self.wrong_type(at, key, value, "a text in quotes"),
        }
    }

    /// A text that must be there.
    pub fn needed_string(&mut self, at: &Section<'_, '_>, key: &str) -> Option<String> {
        self.string(at, key).or_else(|| self.missing(at, key))
    }

    /// A text, if the key is there and holds one.
    pub fn quiet_string(&mut self, at: &Section<'_, '_>, key: &str) -> Option<String> {
        at.table.get(key).and_then(|value| value.get_ref().as_str()).map(str::to_string)
    }

    /// Texts; none if the key is not there.
    pub fn strings(&mut self, at: &Section<'_, '_>, key: &str) -> Vec<String> {
        let Some(value) = at.table.get(key) else { return vec![] };
        let texts = value.get_ref().as_array().map(|list| {
            list.iter().map(|item| item.get_ref().as_str().map(str::to_string)).collect::<Option<Vec<String>>>()
        });
        match texts {
            Some(Some(texts)) => texts,
            _ => self.wrong_type(at, key, value, "a list of texts in quotes").unwrap_or_default(),
        }
    }

    /// A whole number of at least 1.
    pub fn count(&mut self, at: &Section<'_, '_>, key: &str) -> Option<usize> {
        let value = at.table.get(key)?;
        match whole(value.get_ref()) {
            Some(0) => {
                self.at(at, key, "is zero".to_string());
                None
            }
            Some(number) => Some(number),
            None => self.wrong_type(at, key, value, "a whole number"),
        }
    }

    /// A list of whole numbers of at least 1.
    pub fn counts(&mut self, at: &Section<'_, '_>, key: &str) -> Vec<usize> {
        let Some(value) = at.table.get(key) else { return vec![] };
        let all = value.get_ref().as_array().and_then(|list| {
            list.iter().map(|item| whole(item.get_ref()).filter(|&n| n > 0)).collect::<Option<Vec<usize>>>()
        });
        match all {
            Some(all) => all,
            None => self.wrong_type(at, key, value, "a list of whole numbers above 0").unwrap_or_default(),
        }
    }

    /// A number of at least 0.
    pub fn number(&mut self, at: &Section<'_, '_>, key: &str) -> Option<f64> {
        let value = at.table.get(key)?;
        let number = match value.get_ref() {
            DeValue::Integer(n) => i64::from_str_radix(n.as_str(), n.radix()).ok().map(|n| n as f64),
            DeValue::Float(x) => x.as_str().parse::<f64>().ok(),
            _ => None,
        };
        match number {
            Some(x) if x >= 0.0 && x.is_finite() => Some(x),
            Some(_) => {
                self.at(at, key, "is not a finite number of at least 0".to_string());
                None
            }
            None => self.wrong_type(at, key, value, "a number"),
        }
    }

    /// `true` or `false`.
    pub fn flag(&mut self, at: &Section<'_, '_>, key: &str) -> Option<bool> {
        let value = at.table.get(key)?;
        match value.get_ref().as_bool() {
            Some(flag) => Some(flag),
            None => self.wrong_type(at, key, value, "`true` or `false`"),
        }
    }

    /// A quantity with its unit.
    pub fn quantity<T: FromStr<Err = UnitError>>(&mut self, at: &Section<'_, '_>, key: &str) -> Option<T> {
        let value = at.table.get(key)?;
        let Some(text) = value.get_ref().as_str() else {
            return self.wrong_type(at, key, value, "a quantity with its unit, in quotes");
        };
        match text.parse() {
            Ok(quantity) => Some(quantity),
            Err(UnitError { message, hint }) => {
                self.problem(value.span(), &at.field(key), message, hint);
                None
            }
        }
    }

    /// A quantity that must be there.
    pub fn needed<T: FromStr<Err = UnitError>>(&mut self, at: &Section<'_, '_>, key: &str) -> Option<T> {
        self.quantity(at, key).or_else(|| self.missing(at, key))
    }

    /// A table, if the key is there.
    pub fn section<'a, 'd>(&mut self, at: &Section<'a, 'd>, key: &str) -> Option<Section<'a, 'd>> {
        let value = at.table.get(key)?;
        match value.get_ref().as_table() {
            Some(table) => Some(Section { table, name: at.field(key), span: value.span() }),
            None => self.wrong_type(at, key, value, "a table"),
        }
    }

    /// A list of tables, each called `key N`; none if the key is not there.
    pub fn sections<'a, 'd>(&mut self, at: &Section<'a, 'd>, key: &str) -> Vec<Section<'a, 'd>> {
        let Some(value) = at.table.get(key) else { return vec![] };
        let Some(list) = value.get_ref().as_array() else {
            let hint = Some(format!("start each one with `[[{key}]]`"));
            self.problem(value.span(), &at.field(key), "is not a list of tables".to_string(), hint);
            return vec![];
        };
        let mut out = vec![];
        for (k, item) in list.iter().enumerate() {
            let name = at.field(&format!("{key} {}", k + 1));
            match item.get_ref().as_table() {
                Some(table) => out.push(Section { table, name, span: item.span() }),
                None => self.problem(item.span(), &name, "is not a table".to_string(), None),
            }
        }
        out
    }

    /// A table of tables by name.
    pub fn named_sections<'a, 'd>(&mut self, at: &Section<'a, 'd>, key: &str) -> Vec<(String, Section<'a, 'd>)> {
        let Some(outer) = self.section(at, key) else { return vec![] };
        let names: Vec<String> = outer.names().collect();
        names.into_iter().filter_map(|n| self.section(&outer, &n).map(|s| (n, s))).collect()
    }

    /// A table of whole numbers of at least 1 by name.
    pub fn sizes(&mut self, at: &Section<'_, '_>, key: &str) -> BTreeMap<String, usize> {
        let Some(table) = self.section(at, key) else { return BTreeMap::new() };
        let names: Vec<String> = table.names().collect();
        names.into_iter().filter_map(|n| self.count(&table, &n).map(|size| (n, size))).collect()
    }

    /// Reports a missing key where its section starts, once: not if the key is there but wrong.
    pub fn missing<T>(&mut self, at: &Section<'_, '_>, key: &str) -> Option<T> {
        if !at.table.contains_key(key) {
            self.problem(at.span.clone(), &at.field(key), "is missing".to_string(), None);
        }
        None
    }

    /// Reports a mistake at a key's value, or at its section if the key is not there.
    pub fn at(&mut self, at: &Section<'_, '_>, key: &str, message: String) {
        self.at_hint(at, key, message, None);
    }

    /// The same with what to write instead.
    pub fn at_hint(&mut self, at: &Section<'_, '_>, key: &str, message: String, hint: Option<String>) {
        let span = at.table.get(key).map_or(at.span.clone(), Spanned::span);
        self.problem(span, &at.field(key), message, hint);
    }

    fn wrong_type<T>(
        &mut self,
        at: &Section<'_, '_>,
        key: &str,
        value: &Spanned<DeValue<'_>>,
        want: &str,
    ) -> Option<T> {
        self.problem(value.span(), &at.field(key), format!("is not {want}"), None);
        None
    }

    fn problem(&mut self, span: Range<usize>, field: &str, message: String, hint: Option<String>) {
        let before = self.text.get(..span.start).unwrap_or(self.text);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|&c| c != '\n').count() + 1;
        self.problems.push(Problem {
            file: self.file.to_string(),
            line,
            column,
            field: field.to_string(),
            subject: None,
            message,
            hint,
        });
    }
}

fn whole(value: &DeValue<'_>) -> Option<usize> {
    value.as_integer().and_then(|n| usize::from_str_radix(n.as_str(), n.radix()).ok())
}
