//! The cascades of the folder `cascades/` have values, and where the literature says that some are equal they are.
#![allow(clippy::disallowed_methods)] // The library of cascades is read from files.

mod arrays;

use arrays::{cascade, noise};
use einloom_cascade::meaning::{self, Array, Arrays};
use einloom_cascade::{Bound, Cascade, Given, bind};
use std::path::Path;

/// The cascade with sizes, and inputs between -2 and 2.
fn bound(text: &str, sizes: &[(&str, usize)]) -> (Cascade, Bound, Arrays) {
    let cascade = cascade(text);
    let mut given = Given::default();
    for rank in cascade.ranks.iter().filter(|r| r.default.is_none()) {
        let size = sizes.iter().find(|(name, _)| *name == rank.name).map_or(3, |s| s.1);
        given.sizes.insert(rank.name.clone(), size);
    }
    for param in cascade.params.iter().filter(|p| p.default.is_none()) {
        given.params.insert(param.name.clone(), 0.5);
    }
    let bound = bind(&cascade, &given).unwrap_or_else(|errors| panic!("{}: {errors:#?}", cascade.name));
    let input = |(seed, id)| {
        let shape = bound.shape(&cascade, id);
        let values = noise(seed, shape.iter().product()).into_iter().map(|x| 2.0 * x);
        // Integers may be positions: 0 and 1 are inside of every rank here.
        let integer = cascade[id].dtype.is_some_and(|d| d.is_integer());
        let values = values.map(|x| if integer { f64::from(x > 0.0) } else { x }).collect();
        (cascade[id].name.clone(), Array { shape, values })
    };
    let inputs = (1..).zip(cascade.inputs()).map(input).collect();
    (cascade, bound, inputs)
}

#[test]
fn every_cascade_has_finite_values() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cascades");
    let mut count = 0;
    for file in std::fs::read_dir(folder).expect("the folder of cascades") {
        let path = file.expect("a file of the folder").path();
        if path.extension().is_none_or(|e| e != "ein") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("text");
        let (cascade, bound, inputs) =
            bound(&text, &[("B", 2), ("H", 4), ("G", 2), ("J", 2), ("K", 4), ("M", 5), ("N", 5), ("L", 7)]);
        let outputs = meaning::evaluate(&cascade, &bound, &inputs).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        assert_eq!(outputs.len(), cascade.outputs.len(), "{path:?}");
        for (name, array) in &outputs {
            assert!(
                !array.values.is_empty() && array.values.iter().all(|v| v.is_finite()),
                "{path:?} {name}: {array:?}"
            );
        }
        count += 1;
    }
    assert!(count >= 20, "{count} cascades");
}

/// `texts` give the same output `name`, up to the rounding to f32 and the order of summation.
fn check_equal(texts: &[&str], name: &str, sizes: &[(&str, usize)]) {
    let values = |text: &str| {
        let (cascade, bound, inputs) = bound(text, sizes);
        meaning::evaluate(&cascade, &bound, &inputs).unwrap_or_else(|e| panic!("{e}"))[name].clone()
    };
    let first = values(texts[0]);
    for text in &texts[1..] {
        let other = values(text);
        assert_eq!(first.shape, other.shape, "{text}");
        for (a, b) in first.values.iter().zip(&other.values) {
            assert!((a - b).abs() <= 1e-6 * a.abs().max(1.0), "{a} {b} {sizes:?}\n{text}");
        }
    }
}

macro_rules! published {
    ($name:literal) => {
        include_str!(concat!("../../../cascades/published/", $name, ".ein"))
    };
}

/// FuseMax (MICRO 2024), cascades 1 to 3.
#[test]
fn the_published_forms_of_a_repeated_dot_product_are_equal() {
    check_equal(&[published!("c1"), published!("c2"), published!("c3")], "Z", &[("K", 9)]);
}

/// FuseMax (MICRO 2024), section IV: softmax attention in three passes, two and one.
#[test]
fn the_published_forms_of_attention_are_equal() {
    for (m1, m0) in [(1, 12), (3, 4), (12, 1)] {
        check_equal(
            &[
                published!("c4_stable"),
                published!("c4_stable_deferred"),
                published!("naive"),
                published!("naive_deferred"),
                published!("two_pass"),
                published!("two_pass_deferred"),
                published!("c5"),
            ],
            "AV",
            &[("M", 12), ("M1", m1), ("M0", m0), ("E", 4), ("F", 6), ("P", 5)],
        );
    }
}
