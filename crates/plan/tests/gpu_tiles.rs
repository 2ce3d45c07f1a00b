//! The tiles that the planner chooses on GPUs, per program, sizes and machine, and what they take of a core.
//! `EINLOOM_BLESS=1 cargo test` rewrites the answers in `tests/gpu/*.txt`; the difference is what a review reads.
//!
//! A line `# program in dtype on machine [by unit]` starts a section, in which floats of 32 bits are replaced by the
//! number type; each line below it holds sizes, and after `->` the answer.

#![allow(clippy::disallowed_methods)] // cascades and expectations are files

mod support;

use einloom_algebra::derive;
use einloom_machine::{Bytes, built_in};
use einloom_plan::{Form, Options, choose, plan};
use std::path::Path;
use support::{read, sized};

fn check_file(name: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gpu").join(name);
    let expected = std::fs::read_to_string(&file).expect("a table");
    let mut found = String::new();
    let mut section: Vec<&str> = vec![];
    for line in expected.lines() {
        if let Some(title) = line.strip_prefix("# ") {
            section = title.split_whitespace().collect();
        }
        match line.split_once("->").map_or(line, |l| l.0).trim() {
            sizes if sizes.is_empty() || sizes.starts_with('#') => found += line,
            sizes => found += &format!("{sizes:40} -> {}", answer(&section, sizes)),
        }
        found.push('\n');
    }
    if std::env::var_os("EINLOOM_BLESS").is_some() {
        std::fs::write(&file, &found).expect("a writable folder");
        return;
    }
    assert_eq!(found, expected, "{} is out of date: EINLOOM_BLESS=1 rewrites it", file.display());
}

/// A core that holds no tile is told with what would do, whichever unit multiplies.
#[test]
fn a_core_too_small_for_any_tile_is_refused() {
    let with_shared = |bytes: u64| {
        let machine = built_in("h200").expect("a machine");
        let level = machine.levels.iter().position(|l| l.name == "shared memory").expect("a level");
        machine.with_level_capacity(level, Bytes(bytes)).expect("less than L2")
    };
    for (program, dtype, sizes) in [
        ("matmul", "f32", "M=256, N=256, K=256"),
        ("matmul", "bf16", "M=256, N=256, K=256"),
        ("softmax", "bf16", "M=256, N=65536"),
        ("softmax", "f32", "M=256, N=100"),
    ] {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cascades").join(format!("{program}.ein"));
        let cascade = read(&std::fs::read_to_string(&source).expect("a cascade").replace("f32", dtype));
        let derivation = derive(&cascade);
        let planned =
            |bytes: u64| plan(&derivation.derived, &sized(&cascade, sizes), &with_shared(bytes), &Options::default());
        let told = planned(64).expect_err("64 bytes").to_string();
        let need = told.strip_suffix(" KiB would do").and_then(|t| t.rsplit(' ').next());
        let need: u64 = need.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("{program}: {told}"));
        assert!(planned(need << 10).is_ok(), "{program} in {dtype}: {need} KiB would do");
    }
}

/// The tiles of every kernel, and how it runs on a core.
fn answer(section: &[&str], sizes: &str) -> String {
    let (program, dtype, machine, unit) = match section {
        [program, "in", dtype, "on", machine] => (program, dtype, machine, None),
        [program, "in", dtype, "on", machine, "by", unit] => (program, dtype, machine, Some(unit.to_string())),
        _ => panic!("no section `{section:?}`"),
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cascades").join(format!("{program}.ein"));
    let text = std::fs::read_to_string(&source).expect("a cascade").replace("f32", dtype);
    let cascade = read(&text);
    let options = Options { narrow_contractions: true, matrix: unit, ..Options::default() };
    let machine = built_in(machine).expect("a machine");
    let planned = plan(&derive(&cascade).derived, &sized(&cascade, sizes), &machine, &options);
    let planned = planned.unwrap_or_else(|e| panic!("{program}: {e}"));
    let defects = einloom_tile::verify(&planned.program);
    assert!(defects.is_empty(), "{defects:#?}");
    // The order of the grid's points, by blocks of L2, if it is the plan's.
    let order = |kernel: &einloom_tile::Kernel| {
        let side = |v: einloom_tile::Visit| {
            let name = &kernel.axis(v.axis).name;
            if v.side == v.steps { name.clone() } else { format!("{name}:{}/{}", v.side, v.steps) }
        };
        let moving = einloom_tile::visits(kernel).into_iter().filter(|v| v.steps > 1);
        let all = moving.map(side).collect::<Vec<_>>().join(" ");
        if kernel.blocks.is_empty() { String::new() } else { format!(", blocks of {all}") }
    };
    let kernel = |(k, program): (&einloom_plan::PlannedKernel, &einloom_tile::Kernel)| {
        let tiled = k.group.iter().chain(&k.stream).filter(|t| t.1 > 1);
        let tiles = tiled.map(|(name, tile)| format!("{name}:{tile}")).collect::<Vec<_>>().join(" ");
        let tiles = if tiles.is_empty() { "-".to_string() } else { tiles };
        let core = k.gpu.as_ref().map_or("as for other machines".to_string(), ToString::to_string);
        let time = k.gpu.as_ref().map_or(String::new(), |g| format!(", {:.0} us", g.seconds * 1e6));
        format!("{tiles} | {core}{time}{}", order(program))
    };
    planned.kernels.iter().zip(&planned.program.kernels).map(kernel).collect::<Vec<_>>().join("  ||  ")
}

#[test]
fn products() {
    check_file("products.txt");
}

#[test]
fn attention() {
    check_file("attention.txt");
}

#[test]
fn rows() {
    check_file("rows.txt");
}

/// Microseconds of products in f32 on an H200 with the tiles that were measured (`docs/gpu-log.md`).
#[test]
fn products_by_lanes_take_about_as_long_as_measured() {
    let matmul = read("input A[m,k]: f32, B[k,n]: f32\noutput C: f32\nC[m,n] = sum(k) A[m,k] * B[k,n]\n");
    let machine = built_in("h200").expect("a machine");
    let predicted = |sizes: &str, tiles: [usize; 3]| {
        let tiles = ["m", "n", "k"].map(str::to_string).into_iter().zip(tiles).collect();
        // Measured in one piece.
        let shares = Some(Default::default());
        let options = Options { narrow_contractions: true, tiles, shares, ..Options::default() };
        plan(&derive(&matmul).derived, &sized(&matmul, sizes), &machine, &options).expect("a plan").seconds * 1e6
    };
    // In each group the fastest measured first.
    for (sizes, group) in [
        ("M=4096, N=4096, K=4096", vec![([128, 128, 32], 3028.0), ([128, 256, 64], 3107.0), ([128, 128, 64], 3412.0)]),
        ("M=2048, N=2048, K=2048", vec![([128, 128, 32], 390.7), ([64, 128, 128], 477.3), ([32, 128, 128], 975.3)]),
        ("M=128, N=4096, K=4096", vec![([64, 128, 128], 243.4), ([128, 128, 32], 439.1), ([128, 256, 64], 793.8)]),
        ("M=512, N=512, K=512", vec![([64, 128, 128], 34.6), ([128, 128, 32], 62.9), ([128, 256, 64], 111.7)]),
    ] {
        let found: Vec<f64> = group.iter().map(|(tiles, _)| predicted(sizes, *tiles)).collect();
        assert!(found.windows(2).all(|two| two[0] < two[1]), "{sizes}: {found:?}");
        for (found, (tiles, measured)) in found.iter().zip(&group) {
            assert!((found / measured - 1.0f64).abs() < 0.1, "{sizes} {tiles:?}: {found} µs, measured {measured}");
        }
    }
}

/// Microseconds of linear attention on an H200 (`docs/gpu-log.md`), whose scores lanes multiply beside a matrix unit: at sizes that the model was not
/// set by.
#[test]
fn products_by_lanes_beside_a_matrix_unit_take_about_as_long_as_measured() {
    let cascades = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cascades");
    let attention = read(&std::fs::read_to_string(cascades.join("linear_attention.ein")).expect("a cascade"));
    let machine = built_in("h200").expect("a machine");
    for (sizes, chosen, narrower) in [
        ("B=1, H=8, M=4096, N=4096", 440.5, 511.0),
        ("B=1, H=32, M=1024, N=1024", 134.1, 153.4),
        ("B=4, H=16, M=512, N=512", 81.1, 91.9),
        ("B=1, H=4, M=16384, N=16384", 3366.0, 4022.0),
    ] {
        let bound = sized(&attention, &format!("{sizes}, D=64, E=64"));
        let planned = |tiles| {
            let options = Options { narrow_contractions: true, tiles, ..Options::default() };
            plan(&derive(&attention).derived, &bound, &machine, &options).expect("a plan")
        };
        let tiles = [("m".to_string(), 64), ("n".to_string(), 128)].into();
        let (own, other) = (planned(Default::default()), planned(tiles));
        let [own_seconds, other_seconds] = [&own, &other].map(|plan| plan.seconds * 1e6);
        assert!(own.kernels[0].group.contains(&("m".to_string(), 128)), "{sizes}: {:?}", own.kernels[0].group);
        assert!(own_seconds < other_seconds, "{sizes}: {own_seconds} and {other_seconds} µs");
        for (found, measured) in [(own_seconds, chosen), (other_seconds, narrower)] {
            assert!((found / measured - 1.0f64).abs() < 0.2, "{sizes}: {found} µs, measured {measured}");
        }
    }
}

/// Microseconds of recurrences with their chunks side by side on an H200 (`docs/gpu-log.md`, "Chunks side by side"), of which most were not looked at
/// when the model was set.
#[test]
fn chunks_side_by_side_take_about_as_long_as_measured() {
    let cascades = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cascades");
    let machine = built_in("h200").expect("a machine");
    let (mut errors, mut told) = (vec![], vec![]);
    for (name, sizes, measured) in [
        ("mamba2", "H=16, T=2048, P=64, N=128", 104.3),
        ("mamba2", "H=64, T=4096, P=64, N=128", 701.7),
        ("mamba2", "H=24, T=1000, P=64, N=64", 59.4),
        ("linear_attention", "B=2, H=16, M=8192, N=8192, D=64, E=64", 420.8),
        ("linear_attention", "B=4, H=4, M=4096, N=4096, D=128, E=128", 310.9),
        ("linear_attention", "B=8, H=16, M=2048, N=2048, D=64, E=64", 399.4),
        ("linear_attention", "B=1, H=4, M=16384, N=16384, D=64, E=64", 144.9),
        ("retention", "B=2, H=16, M=8192, N=8192, D=64, E=64", 144.5),
        ("retention", "B=1, H=8, M=32768, N=32768, D=128, E=128", 274.3),
        ("exponential_moving_average", "T=65536, C=64", 76.0),
        ("exponential_moving_average", "T=16384, C=512", 97.2),
        ("cumulative_softmax", "M=4, N=65536", 58.7),
        ("discounted_returns", "B=64, T=16384", 69.8),
        ("two_sided_exponential", "C=16, T=65536", 268.2),
    ] {
        let cascade = read(&std::fs::read_to_string(cascades.join(format!("{name}.ein"))).expect("a cascade"));
        let derivation = derive(&cascade);
        let options = Options { narrow_contractions: true, ..Options::default() };
        let bound = sized(&cascade, sizes);
        let (_, plan) = choose(&Form::all(&derivation), &bound, &machine, &options).expect("a plan");
        assert!(plan.splits.iter().any(|s| s.outer.ends_with("_chunk")), "{name}, {sizes}");
        let found = plan.seconds * 1e6;
        told.push(format!("{name}, {sizes}: {found:.0} µs, measured {measured}"));
        errors.push((found / measured).ln().abs());
    }
    errors.sort_by(f64::total_cmp);
    let (middle, worst) = (errors[errors.len() / 2].exp(), errors[errors.len() - 1].exp());
    assert!(middle < 1.25 && worst < 2.1, "off by a factor of {middle:.2}, at most {worst:.2}: {told:#?}");
}

/// Milliseconds of attention in bf16 on an H200 by the unit that threads feed, with the tiles that were measured
/// (`docs/gpu-log.md`).
#[test]
fn attention_on_the_unit_that_threads_feed_takes_about_as_long_as_measured() {
    let cascades = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cascades");
    let machine = built_in("h200").expect("a machine");
    let mut found = vec![];
    for (name, sizes, keys, measured) in [
        ("attention", "B=4, M=4096, N=4096", 32, 1.499),
        ("attention", "B=1, M=16384, N=16384", 48, 5.777),
        ("attention_causal", "B=4, M=4096, N=4096", 32, 0.844),
        ("attention_causal", "B=1, M=16384, N=16384", 48, 3.106),
    ] {
        let text = std::fs::read_to_string(cascades.join(format!("{name}.ein"))).expect("a cascade");
        let attention = read(&text.replace("f32", "bf16"));
        let tiles = [("m".to_string(), 128), ("n".to_string(), keys)].into();
        let options =
            Options { narrow_contractions: true, matrix: Some("mma.sync".to_string()), tiles, ..Options::default() };
        let bound = sized(&attention, &format!("{sizes}, H=16, D=128, E=128"));
        let plan = plan(&derive(&attention).derived, &bound, &machine, &options).expect("a plan");
        let core = plan.kernels[0].gpu.as_ref().expect("a core");
        found.push((core.seconds * 1e3, measured));
    }
    assert!(found.iter().all(|(f, m)| (f / m - 1.0f64).abs() < 0.2), "{found:?}");
}
