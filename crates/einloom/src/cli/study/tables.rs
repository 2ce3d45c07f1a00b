//! A study as tables.

use super::json::Whole;
use crate::cli::table::Table;
use crate::cli::units;
use einloom_spatial::{Effect, Mean, Point, Study, Totals};
use std::fmt::Write;

/// The configurations at one set of sizes.
pub(super) fn points(study: &Study, points: &[Point], accounting: &str) -> String {
    let arrays = arrays(points);
    let mut head = vec!["configuration", "time", "DRAM traffic", "energy"];
    let busy: Vec<String> = arrays.iter().map(|a| format!("{a} busy")).collect();
    head.extend(busy.iter().map(String::as_str));
    head.push("bound by");
    let mut table = Table::new(&head);
    for p in points {
        let t = p.totals(true);
        let mut cells = vec![title(study, &p.configuration), units::seconds(t.seconds)];
        cells.extend([units::bytes(t.traffic_bytes), joules(t.joules)]);
        cells.extend(arrays.iter().map(|a| percent(t.utilisation(a))));
        let compute: f64 = p.cascade.kernels.iter().map(|k| k.compute_seconds).sum();
        let bound = if compute >= p.cascade.seconds * (1.0 - 1e-12) { "arrays" } else { "DRAM, in part or whole" };
        cells.push(bound.to_owned());
        table.row(cells);
    }
    let layers = if points.iter().any(|p| p.layers.is_some()) { ", with the layers around the cascade" } else { "" };
    format!("{}, {accounting} accounting{layers}\n{}{}", study.name, table.text(), notes(points.iter()))
}

/// A whole study.
pub(super) fn whole(w: &Whole<'_>) -> String {
    let mut out = format!("{}: {}\n{} accounting\n", w.study.name, w.study.description, w.accounting);
    let quantity = |heading: &str, cell: &dyn Fn(&Totals) -> String, out: &mut String| {
        let titles: Vec<String> = w.study.configurations.iter().map(|c| c.title.clone()).collect();
        let mut head = vec!["workload", "length"];
        head.extend(titles.iter().map(String::as_str));
        let mut table = Table::new(&head);
        for row in w.rows {
            let mut cells = vec![row.workload.clone(), row.length.to_string()];
            cells.extend(row.points.iter().map(|p| cell(&p.totals(false))));
            table.row(cells);
        }
        let _ = write!(out, "\n{heading}\n{}", table.text());
    };
    quantity("time", &|t| units::seconds(t.seconds), &mut out);
    quantity("energy", &|t| joules(t.joules), &mut out);
    quantity("DRAM traffic", &|t| units::bytes(t.traffic_bytes), &mut out);
    let all: Vec<Point> = w.rows.iter().flat_map(|r| r.points.iter().cloned()).collect();
    for array in arrays(&all) {
        quantity(&format!("part of the time in which {array} computes"), &|t| percent(t.utilisation(&array)), &mut out);
    }
    averages(w, &mut out);
    effects(w, &mut out);
    sweep(w, &mut out);
    out += &notes(all.iter());
    out
}

fn averages(w: &Whole<'_>, out: &mut String) {
    let Some((_, first)) = w.averages.first() else { return };
    if first.is_empty() {
        return;
    }
    let names: Vec<String> =
        w.averages.iter().flat_map(|(name, _)| [name.clone(), format!("{name}, geometric")]).collect();
    let is_published = first.iter().any(|m| m.ratio.published.is_some());
    let mut head = vec!["mean over all rows"];
    head.extend(is_published.then_some("published"));
    head.extend(names.iter().map(String::as_str));
    let mut table = Table::new(&head);
    for (k, mean) in first.iter().enumerate() {
        let mut cells = vec![mean.ratio.title.clone()];
        cells.extend(is_published.then(|| mean.ratio.published.map_or(String::new(), ratio)));
        let columns = w.averages.iter().filter_map(|(_, means)| means.get(k));
        cells.extend(columns.flat_map(|m: &Mean| [ratio(m.arithmetic), ratio(m.geometric)]));
        table.row(cells);
    }
    let _ = write!(out, "\naverages of {} rows\n{}", w.rows.len(), table.text());
}

fn effects(w: &Whole<'_>, out: &mut String) {
    let Some(first) = w.effects.first().filter(|_| w.effects.len() > 1) else { return };
    if first.means.is_empty() {
        return;
    }
    let titles: Vec<String> = w.effects.iter().map(name).collect();
    let mut head = vec!["arithmetic mean"];
    head.extend(titles.iter().map(String::as_str));
    let mut table = Table::new(&head);
    for (k, mean) in first.means.iter().enumerate() {
        let mut cells = vec![mean.ratio.title.clone()];
        cells.extend(w.effects.iter().filter_map(|e| e.means.get(k)).map(|m| ratio(m.arithmetic)));
        table.row(cells);
    }
    let _ = write!(out, "\nwhat corrected faults of the {} accounting change\n{}", w.study.accounting, table.text());
    for fault in w.effects.iter().filter(|e| e.corrected.len() == 1).flat_map(|e| &e.corrected) {
        let _ = writeln!(out, "  {fault}: {}", w.study.describe_fault(fault));
    }
}

/// Columns are short; what they mean stands below the table.
fn name(effect: &Effect) -> String {
    match effect.corrected.as_slice() {
        [] => "as published".to_owned(),
        [one] => format!("without {one}"),
        _ => "without all".to_owned(),
    }
}

fn sweep(w: &Whole<'_>, out: &mut String) {
    let Some(sweep) = w.study.sweep.as_ref().filter(|_| !w.sweep.is_empty()) else { return };
    let is_published = w.sweep.iter().any(|p| p.published_area.is_some());
    let mut head = vec!["workload", "array", "time", "of DRAM", "DRAM traffic", "area"];
    head.extend(is_published.then_some("published area"));
    head.push("on the front");
    let mut table = Table::new(&head);
    for p in w.sweep {
        let dram: f64 = p.cascade.kernels.iter().map(|k| k.dram_seconds).sum();
        let mut cells = vec![
            p.workload.clone(),
            p.array.to_string(),
            units::seconds(p.cascade.seconds),
            units::seconds(dram),
            units::bytes(p.cascade.traffic_bytes),
            p.area.to_string(),
        ];
        cells.extend(is_published.then(|| p.published_area.map_or(String::new(), |a| a.to_string())));
        cells.push(if p.on_front { "yes" } else { "no" }.to_owned());
        table.row(cells);
    }
    let name = title(w.study, &sweep.configuration);
    let _ = write!(out, "\n{name} with arrays of other sizes, length {}\n{}", sweep.length, table.text());
}

/// Every note once, with the configurations it is about.
fn notes<'a>(points: impl Iterator<Item = &'a Point>) -> String {
    let mut seen: Vec<(String, String)> = vec![];
    for p in points {
        for note in &p.cascade.notes {
            let line = (p.configuration.clone(), note.clone());
            if !seen.contains(&line) {
                seen.push(line);
            }
        }
    }
    seen.iter().fold(String::new(), |out, (name, note)| format!("{out}note: {name}: {note}\n"))
}

fn title(study: &Study, name: &str) -> String {
    study.configuration(name).map_or_else(|| name.to_owned(), |c| c.title.clone())
}

fn arrays(points: &[Point]) -> Vec<String> {
    let mut all: Vec<String> = points.iter().flat_map(|p| p.cascade.utilisation.keys().cloned()).collect();
    all.sort();
    all.dedup();
    all
}

fn joules(value: f64) -> String {
    einloom_machine::Joules(value).to_string()
}

fn percent(value: f64) -> String {
    format!("{:.1} %", value * 100.0)
}

fn ratio(value: f64) -> String {
    let digits = if value >= 10.0 {
        2
    } else if value >= 1.0 {
        3
    } else {
        4
    };
    format!("{value:.digits$}")
}
