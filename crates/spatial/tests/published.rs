//! The study of FuseMax (Nayak et al., MICRO 2024) against its published figures: `data/` holds numbers of the
//! artifact FPSG-UIUC/micro24-fusemax-artifact.

#![allow(clippy::disallowed_methods)] // Studies are read from files.

use einloom_spatial::{Evaluation, Study};
use std::collections::BTreeMap;

fn study() -> Study {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/");
    let mut read = |name: &str| std::fs::read_to_string(format!("{root}{name}")).map_err(|e| e.to_string());
    let text = read("fusemax.toml").unwrap();
    match Study::parse("fusemax.toml", &text, &mut read) {
        Ok(study) => study,
        Err(problems) => panic!("{}", problems.iter().map(|p| format!("{p}\n")).collect::<String>()),
    }
}

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

fn close(found: f64, expected: f64, tolerance: f64, what: &str) -> Option<String> {
    let error = (found / expected - 1.0).abs();
    let bad = error.is_nan() || error > tolerance;
    bad.then(|| format!("{what}: {found} instead of {expected} ({error:.2e} off)\n"))
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
        // Up to 64K; what the published counts add beyond that is unknown.
        if length(row["seq_len"]) <= 65536 {
            check("energy", e.energy.total() * 1e12, 5e-4);
        }
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
