//! The charts of a sweep.

use super::Point;
use super::style::{BOUND, FAINT, INK, OTHER, PAPER, PLANNED, for_light_and_dark};
use crate::cli::units;
use einloom_cascade::DType;
use einloom_machine::Machine;
use plotters::chart::SeriesAnno;
use plotters::prelude::*;
use std::collections::BTreeSet;
use std::ops::Range;

const SIZE: (u32, u32) = (860, 540);

/// Transfers against the capacity of a memory, with the bound as a line. The text of the SVG file, or what went wrong.
pub(super) fn transfers(title: &str, level: &str, points: &[Point]) -> Result<String, String> {
    let at = |p: &Point, bytes: Option<u64>| Some((p.capacity_bytes as f64, bytes? as f64)).filter(|p| p.1 > 0.0);
    let planned: Vec<(f64, f64)> = points.iter().filter_map(|p| at(p, p.bytes)).collect();
    let bound: Vec<(f64, f64)> = points.iter().filter_map(|p| at(p, p.bound_bytes)).collect();
    let all = || planned.iter().chain(&bound);
    let (x, y) = (Axis::bytes(all().map(|p| p.0)), Axis::bytes(all().map(|p| p.1)));
    let names = [&format!("capacity of {level}"), "bytes moved"];
    let mut svg = String::new();
    draw(&mut svg, title, [x, y], names, SeriesLabelPosition::UpperRight, |chart| {
        // Broader, so that it shows where the two are one.
        line(chart, bound.clone(), BOUND.stroke_width(5), "bound")?;
        line(chart, planned.clone(), PLANNED.stroke_width(2), "planned")?;
        dots(chart, planned.clone()).map(drop)
    })
    .map_err(|e| e.to_string())?;
    Ok(for_light_and_dark(&svg))
}

/// Rates against operations per byte, under what the memory and the arithmetic in these number types allow.
pub(super) fn roofline(
    title: &str,
    machine: &Machine,
    outer: usize,
    dtypes: &BTreeSet<DType>,
    points: &[Point],
) -> Result<String, String> {
    let bandwidth = machine.levels[outer].bandwidth.0;
    // What no pipe computes as it is, is computed in f32.
    let mut peaks: Vec<(f64, DType)> = dtypes.iter().map(|&d| (machine.rate(d).0, d)).collect();
    let lone = (machine.rate(DType::F32).0, DType::F32);
    peaks.retain(|p| p.0 != lone.0);
    peaks.push(lone);
    peaks.sort_by(|a, b| b.0.total_cmp(&a.0));
    peaks.dedup_by(|a, b| a.0 == b.0);
    let at = |p: &Point| Some((p.flops? / p.bytes? as f64, p.flops? / p.seconds?));
    let plans: Vec<(f64, f64)> = points.iter().filter_map(at).filter(|p| p.0.is_finite() && p.1.is_finite()).collect();
    let ridges: Vec<f64> = peaks.iter().map(|p| p.0 / bandwidth).collect();
    let x = Axis::decimal(plans.iter().map(|p| p.0).chain(ridges));
    let top = peaks.iter().map(|p| p.0);
    let y = Axis::decimal(plans.iter().map(|p| p.1).chain(top).chain([x.range.start * bandwidth]));
    let names = ["operations per byte", "operations per second"];
    let mut svg = String::new();
    let (low, high) = (x.range.start, x.range.end);
    draw(&mut svg, title, [x, y], names, SeriesLabelPosition::LowerRight, |chart| {
        for (k, &(peak, dtype)) in peaks.iter().enumerate() {
            let ridge = (peak / bandwidth).clamp(low, high);
            let roof = vec![(low, (low * bandwidth).min(peak)), (ridge, peak), (high, peak)];
            let colour = if k == 0 { BOUND } else { OTHER };
            line(chart, roof, colour.stroke_width(2), &format!("{} and {dtype}", machine.levels[outer].name))?;
        }
        let drawn = dots(chart, plans.clone())?;
        drawn.label("plans").legend(|(x, y)| Circle::new((x + 9, y), 3, PLANNED.filled()));
        Ok(())
    })
    .map_err(|e| e.to_string())?;
    Ok(for_light_and_dark(&svg))
}

/// A logarithmic axis, from one of its labels to another.
struct Axis {
    range: Range<f64>,
    base: f64,
    label: fn(f64) -> String,
}

impl Axis {
    /// Labels at powers of 2.
    fn bytes(values: impl Iterator<Item = f64>) -> Self {
        Self { range: around(values, 2.0), base: 2.0, label: units::bytes }
    }

    /// Labels at powers of 10.
    fn decimal(values: impl Iterator<Item = f64>) -> Self {
        Self { range: around(values, 10.0), base: 10.0, label: |v| units::rate(v, "") }
    }

    fn text(&self, value: f64) -> String {
        let text = (self.label)(value);
        match text.split_once(' ') {
            Some((number, unit)) => format!("{} {unit}", whole(number)).trim_end().to_string(),
            None => whole(&text).to_string(),
        }
    }
}

/// Without zeros behind the point.
fn whole(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

type Log = plotters::coord::combinators::LogCoord<f64>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Log, Log>>;
type Drawn<'b> = Result<(), DrawingAreaErrorKind<<SVGBackend<'b> as DrawingBackend>::ErrorType>>;

fn draw<'b>(
    svg: &'b mut String,
    title: &str,
    [x, y]: [Axis; 2],
    [x_name, y_name]: [&str; 2],
    legend: SeriesLabelPosition,
    content: impl FnOnce(&mut Chart<'_, 'b>) -> Drawn<'b>,
) -> Drawn<'b> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&PAPER)?;
    let text = |size: i32| ("sans-serif", size).into_font().color(&INK);
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .margin_right(36)
        .caption(title, text(15))
        .x_label_area_size(46)
        .y_label_area_size(84)
        .build_cartesian_2d(x.range.clone().log_scale().base(x.base), y.range.clone().log_scale().base(y.base))?;
    chart
        .configure_mesh()
        .light_line_style(PAPER)
        .bold_line_style(FAINT)
        .axis_style(INK)
        .label_style(text(13))
        .axis_desc_style(text(13))
        .x_desc(x_name)
        .y_desc(y_name)
        .x_labels(8)
        .y_labels(8)
        .x_label_formatter(&|v| x.text(*v))
        .y_label_formatter(&|v| y.text(*v))
        .draw()?;
    content(&mut chart)?;
    chart
        .configure_series_labels()
        .background_style(PAPER)
        .border_style(FAINT)
        .label_font(text(13))
        .position(legend)
        .draw()?;
    drop(chart);
    area.present()
}

fn line<'b>(chart: &mut Chart<'_, 'b>, points: Vec<(f64, f64)>, style: ShapeStyle, name: &str) -> Drawn<'b> {
    let drawn = chart.draw_series(LineSeries::new(points, style))?;
    drawn.label(name).legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
    Ok(())
}

fn dots<'a, 'c, 'b>(
    chart: &'c mut Chart<'a, 'b>,
    points: Vec<(f64, f64)>,
) -> Result<&'c mut SeriesAnno<'a, SVGBackend<'b>>, DrawingAreaErrorKind<<SVGBackend<'b> as DrawingBackend>::ErrorType>>
{
    chart.draw_series(points.into_iter().map(|p| Circle::new(p, 3, PLANNED.filled())))
}

/// From a power of the base below all values to one above them, so that both have a label.
fn around(values: impl Iterator<Item = f64>, base: f64) -> Range<f64> {
    /// What rounding may take from a label.
    const SLACK: f64 = 1e-9;
    let usable = values.filter(|v| v.is_finite() && *v > 0.0);
    let (low, high) = usable.fold((f64::INFINITY, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
    let (low, high) = if low > high { (1.0, base) } else { (low / 1.05, high * 1.05) };
    let power = |v: f64, round: fn(f64) -> f64| base.powf(round(v.ln() / base.ln()));
    power(low, f64::floor) * (1.0 - SLACK)..power(high, f64::ceil) * (1.0 + SLACK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_begin_and_end_at_labels() {
        let near = |range: Range<f64>, low: f64, high: f64| {
            assert!((range.start / low - 1.0).abs() < 1e-6 && (range.end / high - 1.0).abs() < 1e-6, "{range:?}");
        };
        near(around([3000.0, 5000.0].into_iter(), 2.0), 2048.0, 8192.0);
        near(around([2e9].into_iter(), 10.0), 1e9, 1e10);
        near(around([0.0, f64::INFINITY].into_iter(), 2.0), 1.0, 2.0);
        assert_eq!(Axis::bytes([4096.0].into_iter()).text(4096.0), "4 KiB");
        assert_eq!(Axis::decimal([1.0].into_iter()).text(1e12), "1 T");
        assert_eq!(Axis::decimal([1.0].into_iter()).text(0.1), "0.1");
        assert_eq!(Axis::decimal([1.0].into_iter()).text(100.0), "100");
    }
}
