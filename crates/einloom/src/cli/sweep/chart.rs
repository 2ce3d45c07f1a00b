//! The charts of a sweep.

use super::Point;
use super::style::{BOUND, FAINT, INK, PAPER, PLANNED, for_light_and_dark};
use crate::cli::units;
use einloom_cascade::DType;
use einloom_machine::Machine;
use plotters::prelude::*;
use std::ops::Range;

const SIZE: (u32, u32) = (860, 540);

/// Transfers against the capacity of a memory, with the bound as a line. The text of the SVG file, or what went wrong.
pub(super) fn transfers(title: &str, level: &str, points: &[Point]) -> Result<String, String> {
    let at = |p: &Point, bytes: Option<u64>| Some((p.capacity_bytes as f64, bytes? as f64)).filter(|p| p.1 > 0.0);
    let planned: Vec<(f64, f64)> = points.iter().filter_map(|p| at(p, p.bytes)).collect();
    let bound: Vec<(f64, f64)> = points.iter().filter_map(|p| at(p, p.bound_bytes)).collect();
    let all = || planned.iter().chain(&bound);
    let (x, y) = (around(all().map(|p| p.0)), around(all().map(|p| p.1)));
    let mut svg = String::new();
    draw(&mut svg, title, [x, y], [&format!("capacity of {level}"), "bytes moved"], |chart| {
        line(chart, bound.clone(), BOUND, "bound")?;
        line(chart, planned.clone(), PLANNED, "planned")?;
        dots(chart, planned.clone())
    })
    .map_err(|e| e.to_string())?;
    Ok(for_light_and_dark(&svg))
}

/// Rates against operations per byte, under what the arithmetic and the memory allow.
pub(super) fn roofline(title: &str, machine: &Machine, outer: usize, points: &[Point]) -> Result<String, String> {
    let bandwidth = machine.levels[outer].bandwidth.0;
    let fastest = DType::ALL.into_iter().map(|d| (machine.rate(d).0, d));
    let peaks = [fastest.reduce(|a, b| if b.0 > a.0 { b } else { a }), Some((machine.rate(DType::F32).0, DType::F32))];
    let mut peaks: Vec<(f64, DType)> = peaks.into_iter().flatten().collect();
    peaks.dedup_by(|a, b| a.0 == b.0);
    let at = |p: &Point| Some((p.flops? / p.bytes? as f64, p.flops? / p.seconds?));
    let plans: Vec<(f64, f64)> = points.iter().filter_map(at).filter(|p| p.0.is_finite() && p.1.is_finite()).collect();
    let ridges: Vec<f64> = peaks.iter().map(|p| p.0 / bandwidth).collect();
    let x = around(plans.iter().map(|p| p.0).chain(ridges));
    let top = peaks.iter().map(|p| p.0);
    let y = around(plans.iter().map(|p| p.1).chain(top).chain([x.start * bandwidth]));
    let mut svg = String::new();
    draw(&mut svg, title, [x.clone(), y], ["operations per byte", "operations per second"], |chart| {
        for &(peak, dtype) in &peaks {
            let ridge = (peak / bandwidth).clamp(x.start, x.end);
            let roof = vec![(x.start, (x.start * bandwidth).min(peak)), (ridge, peak), (x.end, peak)];
            let roof = roof.into_iter().filter(|p| p.1 <= peak * 1.0001 && p.1 > 0.0).collect();
            line(chart, roof, BOUND, &format!("{} and {dtype}", machine.levels[outer].name))?;
        }
        dots(chart, plans.clone())
    })
    .map_err(|e| e.to_string())?;
    Ok(for_light_and_dark(&svg))
}

type Log = plotters::coord::combinators::LogCoord<f64>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<Log, Log>>;
type Drawn<'b> = Result<(), DrawingAreaErrorKind<<SVGBackend<'b> as DrawingBackend>::ErrorType>>;

fn draw<'b>(
    svg: &'b mut String,
    title: &str,
    [x, y]: [Range<f64>; 2],
    [x_name, y_name]: [&str; 2],
    content: impl FnOnce(&mut Chart<'_, 'b>) -> Drawn<'b>,
) -> Drawn<'b> {
    let area = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    area.fill(&PAPER)?;
    let text = |size: i32| ("sans-serif", size).into_font().color(&INK);
    let mut chart = ChartBuilder::on(&area)
        .margin(16)
        .caption(title, text(15))
        .x_label_area_size(46)
        .y_label_area_size(84)
        .build_cartesian_2d(x.log_scale(), y.log_scale())?;
    let label = |unit: &'static str| {
        move |value: &f64| match unit {
            "B" => units::bytes(*value),
            _ => units::rate(*value, ""),
        }
    };
    let unit = |name: &str| if name.contains("capacity") || name.contains("bytes moved") { "B" } else { "" };
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
        .x_label_formatter(&label(unit(x_name)))
        .y_label_formatter(&label(unit(y_name)))
        .draw()?;
    content(&mut chart)?;
    chart
        .configure_series_labels()
        .background_style(PAPER)
        .border_style(FAINT)
        .label_font(text(13))
        .position(SeriesLabelPosition::UpperRight)
        .draw()?;
    drop(chart);
    area.present()
}

fn line<'b>(chart: &mut Chart<'_, 'b>, points: Vec<(f64, f64)>, colour: RGBColor, name: &str) -> Drawn<'b> {
    let style = colour.stroke_width(2);
    let drawn = chart.draw_series(LineSeries::new(points, style))?;
    drawn.label(name).legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
    Ok(())
}

fn dots<'b>(chart: &mut Chart<'_, 'b>, points: Vec<(f64, f64)>) -> Drawn<'b> {
    let drawn = chart.draw_series(points.into_iter().map(|p| Circle::new(p, 3, PLANNED.filled())))?;
    drawn.label("plans").legend(|(x, y)| Circle::new((x + 9, y), 3, PLANNED.filled()));
    Ok(())
}

/// A range with some room at both ends, for a logarithmic axis.
fn around(values: impl Iterator<Item = f64>) -> Range<f64> {
    let usable = values.filter(|v| v.is_finite() && *v > 0.0);
    let (low, high) = usable.fold((f64::INFINITY, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
    if low > high { 1.0..10.0 } else { low / 1.3..high * 1.3 }
}
