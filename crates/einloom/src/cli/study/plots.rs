//! A study's figures: time, energy and utilisation over the length, and time against area.

use super::super::failure::Failure;
use super::svg::{Axis, Figure, Panel, Series};
use einloom::formats::FileError;
use einloom_spatial::{Row, Study, SweepPoint, Totals};
use std::path::Path;

/// Writes every figure into a folder, which is made if it is not there.
pub(super) fn write(folder: &Path, study: &Study, rows: &[Row], sweep: &[SweepPoint]) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|e| FileError::io(folder, "cannot make the folder", &e))?;
    let mut figures = vec![("time.svg", over_length(study, rows, "time", "seconds", true, &|_, t| t.seconds))];
    // Energies are close to each other and grow with the square of the length: only their ratios can be seen.
    if let Some(first) = study.configurations.first() {
        let title = format!("energy over that of {}", first.title);
        let ratio = |r: &Row, t: &Totals| r.points.first().map_or(f64::NAN, |p| t.joules / p.totals(false).joules);
        figures.push(("energy.svg", over_length(study, rows, &title, "ratio", false, &ratio)));
    }
    let points = rows.iter().flat_map(|r| &r.points);
    let arrays: Vec<String> = points.flat_map(|p| p.cascade.utilisation.keys().cloned()).collect();
    let mut names = vec![];
    for array in arrays {
        if !names.iter().any(|(n, _)| *n == array) {
            names.push((array.clone(), format!("utilisation_{array}.svg")));
        }
    }
    for (array, file) in &names {
        let title = format!("part of the time in which {array} computes");
        figures.push((file, over_length(study, rows, &title, "part", false, &|_, t| t.utilisation(array))));
    }
    if !sweep.is_empty() {
        figures.push(("pareto.svg", pareto(sweep)));
    }
    for (name, figure) in figures {
        let path = folder.join(name);
        std::fs::write(&path, figure.svg()).map_err(|e| FileError::io(&path, "cannot write it", &e))?;
    }
    Ok(())
}

/// A panel for each workload, a line for each configuration.
fn over_length(
    study: &Study,
    rows: &[Row],
    title: &str,
    label: &str,
    logarithmic: bool,
    value: &dyn Fn(&Row, &Totals) -> f64,
) -> Figure {
    let axis = |label: &str, logarithmic| Axis { label: label.to_owned(), logarithmic };
    let panel = |workload: &str| {
        let own = || rows.iter().filter(|r| r.workload == workload);
        let series = |c: &einloom_spatial::Configuration| {
            let point = |r: &Row| {
                let point = r.points.iter().find(|p| p.configuration == c.name)?;
                Some((r.length as f64, value(r, &point.totals(false))))
            };
            Series { name: c.title.clone(), points: own().filter_map(point).collect() }
        };
        Panel {
            title: workload.to_owned(),
            x: axis("length", true),
            y: axis(label, logarithmic),
            series: study.configurations.iter().map(series).collect(),
        }
    };
    let panels = study.workloads.iter().map(|w| panel(&w.name)).collect();
    Figure { title: format!("{}: {title}", study.name), panels }
}

/// Time against area, a line for each workload.
fn pareto(sweep: &[SweepPoint]) -> Figure {
    let mut series: Vec<Series> = vec![];
    for p in sweep {
        let point = (p.area.0 * 1e4, p.cascade.seconds);
        match series.iter_mut().find(|s| s.name == p.workload) {
            Some(s) => s.points.push(point),
            None => series.push(Series { name: p.workload.clone(), points: vec![point] }),
        }
    }
    let axis = |label: &str| Axis { label: label.to_owned(), logarithmic: true };
    let panel = Panel { title: "arrays of other sizes".into(), x: axis("area in cm²"), y: axis("seconds"), series };
    Figure { title: "time against area".into(), panels: vec![panel] }
}
