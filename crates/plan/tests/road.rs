//! Every cascade of the collection, planned as written and as derived, computes what it means.

#![allow(clippy::disallowed_methods)] // the cascades are files

mod support;

use einloom_cascade::Given;
use einloom_plan::{Fusion, Options};
use std::path::{Path, PathBuf};
use support::{check, check_on, read};

fn cascades() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cascades");
    let mut files: Vec<PathBuf> = vec![];
    let mut folders = vec![root];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("the folder of cascades") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "ein") {
                files.push(path);
            }
        }
    }
    files.sort();
    files.iter().map(|f| (f.display().to_string(), std::fs::read_to_string(f).expect("text"))).collect()
}

/// Gives every rank without a default a size from `sizes`, in turn.
fn given(cascade: &einloom_cascade::Cascade, sizes: &[usize]) -> Given {
    let mut out = Given::default();
    for (k, rank) in cascade.ranks.iter().enumerate() {
        if rank.default.as_ref().is_none_or(|d| d.numerator.as_constant().is_some()) {
            out.sizes.insert(rank.name.clone(), sizes[k % sizes.len()]);
        }
    }
    for p in cascade.params.iter().filter(|p| p.default.is_none()) {
        out.params.insert(p.name.clone(), 3.0);
    }
    out
}

fn all_with(sizes: &[usize], tile: Option<usize>, fuse: Fusion) {
    let mut ran = 0;
    for (file, text) in cascades() {
        let cascade = read(&text);
        let Ok(bound) = einloom_cascade::bind(&cascade, &given(&cascade, sizes)) else { continue };
        let tiles = cascade.indices.iter().filter_map(|i| Some((i.name.clone(), tile?))).collect();
        check(&file, &cascade, &bound, &Options { tiles, fuse, ..Options::default() }, 7);
        ran += 1;
    }
    assert!(ran > 20, "only {ran} cascades accept the sizes {sizes:?}");
}

/// Tiles so small that every loop runs several times and ends in a part of a tile.
#[test]
fn ragged_sizes() {
    all_with(&[6, 4, 10, 12, 8], Some(3), Fusion::Auto);
}

#[test]
fn sizes_of_one() {
    all_with(&[1], None, Fusion::Auto);
}

#[test]
fn planner_chooses_tiles() {
    all_with(&[4, 8, 12], None, Fusion::Auto);
}

#[test]
fn without_fusion() {
    all_with(&[4, 6, 8], Some(3), Fusion::None);
}

/// In 16 bits, so that products run on matrix units; sizes leave parts of a tile.
#[test]
fn on_gpus() {
    let mut ran = 0;
    for (file, text) in cascades() {
        let cascade = read(&text.replace("f32", "bf16"));
        let Ok(bound) = einloom_cascade::bind(&cascade, &given(&cascade, &[18, 3, 70, 5])) else { continue };
        let machine = einloom_machine::built_in(["h200", "a100"][ran % 2]).expect("built in");
        check_on(&machine, &file, &cascade, &bound, &Options::default(), 7);
        ran += 1;
    }
    assert!(ran > 20, "only {ran} cascades accept the sizes");
}
