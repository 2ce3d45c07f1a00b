//! The study of FuseMax (Nayak et al., MICRO 2024) against its published figures: `data/` holds numbers of the
//! artifact FPSG-UIUC/micro24-fusemax-artifact.

mod support;

use einloom_spatial::{Evaluation, Study};
use std::collections::BTreeMap;
use support::{close, fusemax as study};

fn length(text: &str) -> usize {
    match text.strip_suffix('K') {
        Some(k) => k.parse::<usize>().unwrap() << 10,
        None => text.strip_suffix('M').unwrap().parse::<usize>().unwrap() << 20,
    }
}

/// Rows of a table, by column name.
fn rows(text: &str) -> Vec<BTreeMap<&str, &str>> {
    let mut lines = text.lines();
    let head: Vec<&str> = lines.next().unwrap().split(',').collect();
    lines.map(|l| head.iter().copied().zip(l.split(',')).collect()).collect()
}

fn evaluated(study: &Study, configuration: &str, workload: &str, length: usize) -> Evaluation {
    let c = study.configuration(configuration).unwrap();
    let w = study.workloads.iter().find(|w| w.name == workload).unwrap();
    c.evaluate(study, &study.sizes(w, length), &c.faults("artifact").unwrap()).unwrap()
}

/// Every row of a table against the study; Einsums have columns, some under another name than the cascade's.
fn check(configuration: &str, text: &str, einsums: &[(&str, &str)]) {
    let study = study();
    let mut wrong = String::new();
    for row in rows(text) {
        let e = evaluated(&study, configuration, row["model"], length(row["seq_len"]));
        let what = |column: &str| format!("{configuration} {} {} {column}", row["model"], row["seq_len"]);
        let mut check = |column: &str, found: f64, tolerance: f64| {
            let expected: f64 = row[column].parse().unwrap();
            wrong.extend(close(found, expected, tolerance, &what(column)));
        };
        check("latency", e.seconds, 1e-9);
        check("traffic", e.traffic_bytes, 1e-9);
        check("util_2d", e.utilisation["2d"], 1e-9);
        check("util_1d", e.utilisation["1d"], 1e-9);
        for (column, name) in einsums {
            let einsum = e.einsums.iter().find(|x| x.name == *name).unwrap();
            check(column, einsum.utilisation, 1e-9);
        }
        // The buffer's energy an access is fitted; at the longest lengths numbers of first reads wrap, for some
        // workloads by a part.
        check("energy", e.energy.total() * 1e12, 2e-4);
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn unfused() {
    check("unfused", include_str!("data/attn-unfused.csv"), &[]);
}

#[test]
fn flat() {
    check("flat", include_str!("data/attn-flat.csv"), &[("QK", "QK"), ("AV", "AV")]);
}

#[test]
fn cascade() {
    check("cascade", include_str!("data/attn-cascade.csv"), &[("QK", "BQK"), ("SLNV", "SLNV")]);
}

const FUSEMAX: [(&str, &str); 5] = [("QK", "BQK"), ("LM", "LM"), ("SLN", "SLN"), ("SLD", "SLD"), ("SLNV", "SLNV")];

#[test]
fn architecture() {
    check("architecture", include_str!("data/attn-arch.csv"), &FUSEMAX);
}

#[test]
fn binding() {
    check("binding", include_str!("data/attn-binding.csv"), &FUSEMAX);
}

/// The linear layers of a model, all of them, on one configuration's chip.
fn check_layers(configuration: &str, text: &str) {
    let study = study();
    let c = study.configuration(configuration).unwrap();
    let faults = c.faults("artifact").unwrap();
    let mut wrong = String::new();
    for row in rows(text) {
        let w = study.workloads.iter().find(|w| w.name == row["model"]).unwrap();
        let layers = c.layers(&study, &study.sizes(w, length(row["seq_len"])), &faults).unwrap();
        let what = |column: &str| format!("{configuration} {} {} {column}", row["model"], row["seq_len"]);
        let expected = |column: &str| row[column].parse::<f64>().unwrap();
        wrong.extend(close(layers.seconds, expected("latency"), 1e-9, &what("latency")));
        wrong.extend(close(layers.traffic_bytes, expected("traffic"), 1e-9, &what("traffic")));
        wrong.extend(close(layers.joules * 1e12, expected("energy"), 2e-4, &what("energy")));
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn linear_layers() {
    for configuration in ["unfused", "flat", "cascade"] {
        check_layers(configuration, include_str!("data/end2end-flat.csv"));
    }
    for configuration in ["architecture", "binding"] {
        check_layers(configuration, include_str!("data/end2end-proposal.csv"));
    }
}

/// Weights that do not fit the buffer are read for every block of activations: 1.53 to 1.56 times the compulsory traffic
/// in 32 MiB, 2.07 to 2.11 times in 16.
#[test]
fn linear_layers_with_large_weights() {
    let study = study();
    let xlm = study.workloads.iter().find(|w| w.name == "XLM").unwrap();
    let (d, s) = (2048.0, 8192.0);
    for (configuration, least, most) in [("flat", 1.525, 1.565), ("binding", 2.065, 2.115)] {
        let c = study.configuration(configuration).unwrap();
        for &length in &study.lengths {
            let layers = c.layers(&study, &study.sizes(xlm, length), &c.faults("artifact").unwrap()).unwrap();
            let t = 64.0 * length as f64;
            let compulsory = 2.0 * (4.0 * (2.0 * t * d + d * d) + 2.0 * (t * d + t * s + d * s));
            let ratio = layers.traffic_bytes / compulsory;
            assert!((least..most).contains(&ratio), "{configuration} {length}: {ratio}");
        }
    }
}

#[test]
fn sweep() {
    let study = study();
    let points = study.sweep(&|c| c.faults("artifact")).unwrap();
    let mut wrong = String::new();
    for row in rows(include_str!("data/pareto.csv")) {
        let array: usize = row["PE_dim"].parse().unwrap();
        let point = points.iter().find(|p| p.workload == row["model"] && p.array == array).unwrap();
        let kernel = &point.cascade.kernels[0];
        let busy = |array: &str| point.cascade.utilisation[array] * point.cascade.seconds;
        let found = [
            ("traffic", point.cascade.traffic_bytes),
            ("mem_lat", kernel.dram_seconds),
            ("comp_2d_lat", busy("2d")),
            ("comp_1d_lat", busy("1d")),
            ("latency", point.cascade.seconds),
        ];
        for (column, found) in found {
            let what = format!("array of {array}: {column}");
            wrong.extend(close(found, row[column].parse().unwrap(), 1e-9, &what));
        }
        if let Some(area) = point.published_area {
            wrong.extend(close(area.0 * 1e12, row["area"].parse().unwrap(), 1e-12, "the study's area"));
        }
        wrong.extend(close(point.area.0 * 1e12, row["area"].parse().unwrap(), 1e-2, "our area"));
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// The averages that the paper leads with.
#[test]
fn headlines() {
    let study = study();
    let rows = study.rows(&|c| c.faults("artifact")).unwrap();
    let mut wrong = String::new();
    for mean in study.means(&rows) {
        let Some(published) = mean.ratio.published else { continue };
        // Both are published with three digits.
        wrong.extend(close(mean.arithmetic, published, 2e-3, &mean.ratio.title));
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// The headline ratios when each fault of the published counts is corrected, one by one and together. What changes, and
/// which way, follows from what the fault is; by how much is for the reader of `einloom study fusemax`.
#[test]
fn corrections() {
    let study = study();
    let effects = study.effects("artifact").unwrap();
    let names: Vec<Vec<String>> = effects.iter().map(|e| e.corrected.clone()).collect();
    let all = ["registers-of-one-element", "uncharged-exponential", "two-cycle-exponential", "wrapping-first-reads"]
        .map(String::from);
    let [a, b, c, d] = all.clone();
    assert_eq!(names, [vec![], vec![a], vec![b], vec![c], vec![d], all.to_vec()]);
    let mean =
        |effect: usize, title: &str| effects[effect].means.iter().find(|m| m.ratio.title == title).unwrap().arithmetic;
    let (speed, energy) = ("attention: speed of +Cascade over FLAT", "attention: energy of +Cascade over FLAT");
    // Registers and exponentials take no time; the cycle of a subtraction takes no energy worth telling.
    assert!((1..=2).all(|k| mean(k, speed) == mean(0, speed)));
    assert!((mean(3, energy) / mean(0, energy) - 1.0).abs() < 1e-4);
    assert!(mean(2, energy) > mean(0, energy));
    assert!(mean(3, speed) > mean(0, speed));
    assert_eq!(mean(5, speed), mean(3, speed));
    // All registers make the larger files of FuseMax's elements cost what they do.
    let over_flat = "attention: energy over FLAT";
    assert!(mean(1, over_flat) > mean(0, over_flat));
    assert_eq!(mean(2, over_flat), mean(0, over_flat));
    // Reads that are counted too often take no time. FLAT has whole matrices of scores of them, FuseMax a row a tile.
    assert_eq!(mean(4, speed), mean(0, speed));
    assert!(mean(4, over_flat) > mean(0, over_flat));
}

/// Where size times part does not pass 64 bits, nothing is read more than once; where it does, by what is left of it.
#[test]
fn first_reads_that_wrap() {
    let study = study();
    let c = study.configuration("binding").unwrap();
    let row = c.chip.buffer.row.0 as f64 / c.chip.word.0 as f64;
    // The numerator of the running sums: F words for every column of every tile, parts of F x 32Ki. At 64Ki positions
    // that is 2^61, at 256Ki 2^64 times the number of heads over 8.
    for (heads, length, again) in
        [(16, 65536, 0.0), (8, 262_144, 1.0), (12, 262_144, 2.0 / 3.0), (13, 262_144, 8.0 / 13.0)]
    {
        let sizes = [("B", 64), ("H", heads), ("M", length), ("P", length), ("E", 64), ("F", 64)];
        let sizes: BTreeMap<String, usize> = sizes.map(|(n, s)| (n.to_string(), s)).into();
        let buffer = |accounting: &str| {
            let mut faults = c.faults("artifact").unwrap();
            if accounting != "artifact" {
                faults.retain(|f| f != "wrapping-first-reads");
            }
            c.evaluate(&study, &sizes, &faults).unwrap().energy.buffer
        };
        let tiles = (64 * heads) as f64 * (length as f64 / 256.0).powi(2);
        let read = tiles * 64.0 * 256.0 / row * c.chip.buffer.read.0;
        let found = (buffer("artifact") - buffer("without")) / read;
        assert!((found - again).abs() < 1e-6, "{heads} heads, {length}: {found}");
    }
}

/// Registers of every element: three reads and three writes in each of its busy cycles, E + F + 9 for a score on the
/// large array and 10 + 2F + F/256 for a column of them in the lanes.
#[test]
fn registers_of_every_element() {
    let study = study();
    let c = study.configuration("binding").unwrap();
    let sizes = study.sizes(&study.workloads[0], 65536);
    let charged = |accounting: &str| c.evaluate(&study, &sizes, &c.faults(accounting).unwrap()).unwrap().energy;
    let scores = 64.0 * 12.0 * 65536.0 * 65536.0;
    let lanes = (10.0 + 128.0 + 64.0 * 256.0 / 65536.0) / 256.0;
    let expected = scores * (137.0 + lanes) * 3.0 * (0.653431e-12 + 0.56957e-12);
    assert_eq!(close(charged("corrected").registers, expected, 1e-9, "registers"), None);
    // One element of 65536 and one lane of 256.
    let one = scores * (137.0 / 65536.0 + lanes / 256.0) * 3.0 * (0.653431e-12 + 0.56957e-12);
    assert_eq!(close(charged("artifact").registers, one, 1e-9, "registers of one element"), None);
}

/// Charging one cycle makes the one-pass cascade 1.137 times as fast as FLAT on the same chip at 64K, instead of 0.885.
#[test]
fn equal_cycles() {
    let study = study();
    for (accounting, expected) in [("artifact", 0.885), ("corrected", 1.137)] {
        let [flat, cascade] = ["flat", "cascade"].map(|name| {
            let c = study.configuration(name).unwrap();
            let sizes = study.sizes(&study.workloads[0], 65536);
            c.evaluate(&study, &sizes, &c.faults(accounting).unwrap()).unwrap().seconds
        });
        assert!((flat / cascade - expected).abs() < 5e-4, "{accounting}: {}", flat / cascade);
    }
}
