//! Simpler values.

use crate::cases::Case;
use einloom_cascade::Cascade;

/// Inputs with this many elements are simplified element by element.
const FEW: usize = 40;

/// Cases with simpler values: constants, whole numbers, then one element at a time.
pub(super) fn simpler(case: &Case) -> Box<dyn Iterator<Item = Case> + '_> {
    let with = |name: &str, values: Vec<f64>| {
        let mut out = case.clone();
        out.values.insert(name.to_owned(), values);
        out
    };
    let mut out = vec![];
    for (name, values) in &case.values {
        let mut all = |f: &dyn Fn(f64) -> f64| {
            let simple: Vec<f64> = values.iter().map(|&v| f(v)).collect();
            if simple.iter().zip(values).any(|(a, b)| a.to_bits() != b.to_bits()) {
                out.push(with(name, simple));
            }
        };
        let is_plain = |v: f64| v == 0.0 || v == 1.0;
        if !values.iter().all(|&v| v == 0.0) {
            all(&|_| 0.0);
            if !values.iter().all(|&v| is_plain(v)) {
                all(&|_| 1.0);
            }
        }
        all(&|v| if v.abs() < 1e15 { v.round() + 0.0 } else { v });
        if values.len() <= FEW {
            for k in 0..values.len() {
                for simple in [0.0, 1.0] {
                    if values[k] != simple && !(simple == 1.0 && values[k] == 0.0) {
                        let mut changed = values.clone();
                        changed[k] = simple;
                        out.push(with(name, changed));
                    }
                }
            }
        }
    }
    Box::new(out.into_iter())
}

/// The case with one rank shorter: what no longer fits is left out of every input.
pub(super) fn crop(case: &Case, cascade: &Cascade, rank: &str, size: usize) -> Option<Case> {
    let mut out = case.clone();
    out.sizes.insert(rank.to_owned(), size);
    for (name, values) in &mut out.values {
        let tensor = &cascade[cascade.tensor(name)?];
        let of = |sizes: &std::collections::BTreeMap<String, usize>| -> Option<Vec<usize>> {
            let extent = |e: &einloom_cascade::SizeExpr| {
                e.eval(|r| sizes.get(&cascade[r].name).map_or(0, |&s| s as i64)).map(|v| v.max(0) as usize)
            };
            tensor.extents.iter().map(extent).collect()
        };
        let (old, new) = (of(&case.sizes)?, of(&out.sizes)?);
        if old.iter().product::<usize>() != values.len() {
            return None;
        }
        let kept = |flat: &usize| {
            let mut rest = *flat;
            old.iter().zip(&new).rev().all(|(&o, &n)| {
                let at = rest % o;
                rest /= o;
                at < n
            })
        };
        *values = (0..values.len()).filter(kept).map(|k| values[k]).collect();
    }
    Some(out)
}
