//! YAML as a tree in which everything knows its place.

use crate::Problem;
use saphyr_parser::{Event, Parser, Span};

/// A value and where it starts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub value: Value,
    /// From 1.
    pub line: usize,
    /// From 1.
    pub column: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Scalar(String),
    List(Vec<Node>),
    /// In the order of the text.
    Map(Vec<(Node, Node)>),
}

/// Deeper nesting is no specification.
const DEEPEST: usize = 64;

/// The first document of a text; an empty map if there is none.
pub(super) fn parse(file: &str, text: &str) -> Result<Node, Vec<Problem>> {
    let at = |line: usize, column: usize, message: String| {
        vec![Problem { file: file.to_owned(), line, column: column + 1, message, ..Problem::default() }]
    };
    let mut open: Vec<(Node, Option<Node>)> = vec![];
    let mut root: Option<Node> = None;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| at(e.marker().line(), e.marker().col(), e.info().to_owned()))?;
        let node = |value: Value, span: &Span| Node { value, line: span.start.line(), column: span.start.col() + 1 };
        let done = match event {
            Event::Scalar(text, ..) => Some(node(Value::Scalar(text.into_owned()), &span)),
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                let list = matches!(event, Event::SequenceStart(..));
                let value = if list { Value::List(vec![]) } else { Value::Map(vec![]) };
                if open.len() >= DEEPEST {
                    return Err(at(span.start.line(), span.start.col(), "is nested too deeply".to_owned()));
                }
                open.push((node(value, &span), None));
                None
            }
            Event::SequenceEnd | Event::MappingEnd => open.pop().map(|n| n.0),
            Event::Alias(_) => {
                return Err(at(span.start.line(), span.start.col(), "aliases (*name) are not supported".to_owned()));
            }
            Event::DocumentEnd if root.is_some() => break,
            _ => None,
        };
        let Some(done) = done else { continue };
        match open.last_mut() {
            None => root = Some(done),
            Some((Node { value: Value::List(list), .. }, _)) => list.push(done),
            Some((Node { value: Value::Map(map), .. }, key)) => match key.take() {
                None => *key = Some(done),
                Some(k) => {
                    if k.scalar().is_some() && map.iter().any(|(other, _)| other.scalar() == k.scalar()) {
                        let name = k.scalar().unwrap_or_default();
                        return Err(at(k.line, k.column - 1, format!("`{name}` is there twice")));
                    }
                    map.push((k, done));
                }
            },
            Some(_) => {}
        }
    }
    Ok(root.unwrap_or(Node { value: Value::Map(vec![]), line: 1, column: 1 }))
}

impl Node {
    pub fn scalar(&self) -> Option<&str> {
        match &self.value {
            Value::Scalar(text) => Some(text),
            _ => None,
        }
    }

    pub fn list(&self) -> Option<&[Node]> {
        match &self.value {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    pub fn map(&self) -> Option<&[(Node, Node)]> {
        match &self.value {
            Value::Map(map) => Some(map),
            // A key without a value.
            Value::Scalar(text) if text.is_empty() || text == "~" || text == "null" => Some(&[]),
            _ => None,
        }
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        self.map()?.iter().find(|(k, _)| k.scalar() == Some(key)).map(|(_, v)| v)
    }
}
