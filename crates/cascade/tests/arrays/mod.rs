//! Arrays as text, `[[1, 2], [3, 4]]`, so that a test reads as an example.
#![allow(dead_code)] // no test needs all of it

use einloom_cascade::meaning::{Array, Arrays};
use einloom_cascade::{Cascade, Given, parse};

/// The cascade of a text that must be free of errors.
pub fn cascade(text: &str) -> Cascade {
    let parsed = parse(text);
    let errors: Vec<_> = parsed.diagnostics.iter().filter(|d| d.is_error()).collect();
    assert!(errors.is_empty(), "{text}\n{errors:#?}");
    parsed.cascade
}

/// What is given by lines such as `N = 4` for a size, `scale = 0.5` for a parameter and `X = [1, 2]` for an input;
/// a name tells which it is.
pub fn given(cascade: &Cascade, text: &str) -> (Given, Arrays) {
    let (mut given, mut inputs) = (Given::default(), Arrays::new());
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let (name, value) = line.split_once(" = ").expect("NAME = VALUE");
        if cascade.tensor(name).is_some() {
            let array = array(value);
            given.shapes.insert(name.to_owned(), array.shape.clone());
            inputs.insert(name.to_owned(), array);
        } else if cascade.rank(name).is_some() {
            given.sizes.insert(name.to_owned(), value.parse().expect("a size"));
        } else {
            given.params.insert(name.to_owned(), value.parse().expect("a number"));
        }
    }
    (given, inputs)
}

/// Reads nested brackets; a number alone has no dimensions.
pub fn array(text: &str) -> Array {
    // Elements of the open brackets, and of the closed ones by depth.
    let (mut open, mut shape, mut values) = (vec![], vec![], vec![]);
    let spaced = text.replace('[', " [ ").replace(']', " ] ").replace(',', " ");
    for token in spaced.split_whitespace() {
        if token != "]"
            && let Some(count) = open.last_mut()
        {
            *count += 1;
        }
        match token {
            "[" => open.push(0),
            "]" => {
                let count = open.pop().expect("an open bracket");
                shape.resize(shape.len().max(open.len() + 1), None);
                let known = *shape[open.len()].get_or_insert(count);
                assert_eq!(known, count, "ragged: {text}");
            }
            number => values.push(number.parse().expect("a number")),
        }
    }
    Array { shape: shape.into_iter().flatten().collect(), values }
}

/// The inverse of [`array`], with at most six digits after the point.
pub fn text(array: &Array) -> String {
    let Some((_, inner)) = array.shape.split_first() else { return number(array.values[0]) };
    let size = inner.iter().product::<usize>();
    let part = |k: usize| text(&Array { shape: inner.to_vec(), values: array.values[k * size..][..size].to_vec() });
    format!("[{}]", (0..array.shape[0]).map(part).collect::<Vec<_>>().join(", "))
}

fn number(x: f64) -> String {
    if !x.is_finite() {
        return x.to_string();
    }
    format!("{x:.6}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Deterministic numbers between -1 and 1.
pub fn noise(seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    };
    (0..count).map(|_| next()).collect()
}
