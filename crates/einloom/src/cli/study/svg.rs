//! Line charts as SVG: axes, ticks, lines with marks, a legend. Plain text, no fonts. Where the reader prefers dark
//! pages the colours follow; on paper they are those of light pages, and each line has a mark of its own.

use std::fmt::Write;

/// A row of panels with one legend.
pub(super) struct Figure {
    pub title: String,
    pub panels: Vec<Panel>,
}

/// One pair of axes.
pub(super) struct Panel {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Clone)]
pub(super) struct Axis {
    pub label: String,
    pub logarithmic: bool,
}

/// Points in one colour, joined by lines.
pub(super) struct Series {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

const WIDTH: f64 = 300.0;
const HEIGHT: f64 = 230.0;
const LEFT: f64 = 62.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 44.0;
const GAP: f64 = 18.0;
/// Okabe and Ito's colours, which people with colour-blindness can tell apart.
const COLOURS: [&str; 7] = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"];
/// The same, lighter, for dark pages.
const ON_DARK: [&str; 7] = ["#4DA3E0", "#FF8A3D", "#2FC79A", "#E39BC4", "#A5DBF7", "#F2C14E", "#FFFFFF"];
/// Marks around a point, one for each colour.
const MARKS: [&str; 7] = [
    "m-3.5 0 a3.5 3.5 0 1 0 7 0 a3.5 3.5 0 1 0 -7 0z",
    "m-3.2 -3.2 h6.4 v6.4 h-6.4z",
    "m0 -4.4 l4.2 7.4 h-8.4z",
    "m0 -4.6 l4.6 4.6 l-4.6 4.6 l-4.6 -4.6z",
    "m0 4.4 l4.2 -7.4 h-8.4z",
    "m-1.4 -4.2 h2.8 v2.8 h2.8 v2.8 h-2.8 v2.8 h-2.8 v-2.8 h-2.8 v-2.8 h2.8z",
    "m-4.4 -1.4 h8.8 v2.8 h-8.8z",
];

/// The rules for dark pages; elsewhere the attributes of the elements hold.
fn style() -> String {
    let mut out = "<style>@media screen and (prefers-color-scheme: dark) {\
                   .ground{fill:#15181c}.ink{fill:#e6e6e6}.grid{stroke:#3a3f45}.frame{stroke:#aaa}"
        .to_owned();
    for (k, colour) in ON_DARK.iter().enumerate() {
        let _ = write!(out, ".l{k}{{stroke:{colour}}}.m{k}{{fill:{colour}}}");
    }
    out + "}</style>\n"
}

/// The mark of a series at a place.
fn mark(out: &mut String, k: usize, (x, y): (f64, f64)) {
    let k = k % COLOURS.len();
    let (mark, colour) = (MARKS[k], COLOURS[k]);
    let _ = writeln!(out, "<path class=\"m{k}\" d=\"M{x:.1} {y:.1} {mark}\" fill=\"{colour}\"/>");
}

impl Figure {
    /// The figure as an SVG document.
    pub fn svg(&self) -> String {
        let panel = LEFT + WIDTH + GAP;
        let legend = self.panels.iter().map(|p| p.series.len()).max().unwrap_or(0);
        let (width, height) = (panel * self.panels.len() as f64 + 130.0, TOP + HEIGHT + BOTTOM);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"11\">\n\
             {}<rect class=\"ground\" width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
            style()
        );
        text(&mut out, (LEFT, 20.0), "start", 14, &self.title);
        for (k, p) in self.panels.iter().enumerate() {
            p.draw(&mut out, LEFT + panel * k as f64);
        }
        let names = self.panels.iter().max_by_key(|p| p.series.len()).map(|p| &p.series);
        for (k, series) in names.into_iter().flatten().enumerate().take(legend) {
            let (x, y) = (panel * self.panels.len() as f64 + 4.0, TOP + 14.0 + 18.0 * k as f64);
            let (c, colour) = (k % COLOURS.len(), COLOURS[k % COLOURS.len()]);
            let _ =
                writeln!(out, "<path class=\"l{c}\" d=\"M{x:.1} {y:.1} h18\" stroke=\"{colour}\" stroke-width=\"2\"/>");
            mark(&mut out, k, (x + 9.0, y));
            text(&mut out, (x + 24.0, y + 4.0), "start", 11, &series.name);
        }
        out + "</svg>\n"
    }
}

impl Panel {
    fn draw(&self, out: &mut String, left: f64) {
        let all = || self.series.iter().flat_map(|s| s.points.iter().copied());
        let (x, y) = (Scale::of(&self.x, all().map(|p| p.0)), Scale::of(&self.y, all().map(|p| p.1)));
        let place = |(px, py): (f64, f64)| (left + WIDTH * x.part(px), TOP + HEIGHT * (1.0 - y.part(py)));
        for tick in x.ticks() {
            let (at, _) = place((tick, y.least));
            let _ = writeln!(out, "<path class=\"grid\" d=\"M{at:.1} {TOP} v{HEIGHT}\" stroke=\"#ddd\"/>");
            text(out, (at, TOP + HEIGHT + 15.0), "middle", 10, &number(tick, x.binary()));
        }
        for tick in y.ticks() {
            let (_, at) = place((x.least, tick));
            let _ = writeln!(out, "<path class=\"grid\" d=\"M{left:.1} {at:.1} h{WIDTH}\" stroke=\"#ddd\"/>");
            text(out, (left - 5.0, at + 4.0), "end", 10, &number(tick, false));
        }
        let _ = writeln!(
            out,
            "<rect class=\"frame\" x=\"{left:.1}\" y=\"{TOP}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"none\" stroke=\"#444\"/>"
        );
        text(out, (left + WIDTH / 2.0, TOP - 8.0), "middle", 12, &self.title);
        text(out, (left + WIDTH / 2.0, TOP + HEIGHT + 34.0), "middle", 11, &self.x.label);
        let (lx, ly) = (left - 46.0, TOP + HEIGHT / 2.0);
        let _ = writeln!(
            out,
            "<text class=\"ink\" x=\"{lx:.1}\" y=\"{ly:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 {lx:.1} {ly:.1})\">{}</text>",
            escaped(&self.y.label)
        );
        for (k, series) in self.series.iter().enumerate() {
            let (c, colour) = (k % COLOURS.len(), COLOURS[k % COLOURS.len()]);
            let points: Vec<(f64, f64)> = series.points.iter().map(|&p| place(p)).collect();
            let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                out,
                "<polyline class=\"l{c}\" points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                path.join(" ")
            );
            for at in points {
                mark(out, k, at);
            }
        }
    }
}

/// From values to a part of an axis.
struct Scale {
    least: f64,
    most: f64,
    logarithmic: bool,
    powers_of_two: bool,
}

impl Scale {
    fn of(axis: &Axis, values: impl Iterator<Item = f64> + Clone) -> Self {
        let finite = values.filter(|v| v.is_finite() && (!axis.logarithmic || *v > 0.0));
        let least = finite.clone().fold(f64::INFINITY, f64::min);
        let most = finite.clone().fold(f64::NEG_INFINITY, f64::max);
        let powers_of_two = axis.logarithmic && finite.clone().all(|v| v.log2().fract() == 0.0);
        let (least, most) = match (least.is_finite(), axis.logarithmic) {
            (false, _) => (1.0, 10.0),
            (true, true) if powers_of_two => (least, most),
            (true, true) => (10f64.powf(least.log10().floor()), 10f64.powf(most.log10().ceil())),
            // A line along the frame is hard to see: the axis ends at the next round number above all values.
            (true, false) => {
                let (least, step) = (0f64.min(least), step(0f64.min(least), most));
                (least, ((most / step + 1e-9).floor() + 1.0) * step)
            }
        };
        let most = if most > least { most } else { least * 2.0 + 1.0 };
        Self { least, most, logarithmic: axis.logarithmic, powers_of_two }
    }

    fn part(&self, value: f64) -> f64 {
        let part = if self.logarithmic {
            (value / self.least).ln() / (self.most / self.least).ln()
        } else {
            (value - self.least) / (self.most - self.least)
        };
        if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 }
    }

    fn binary(&self) -> bool {
        self.powers_of_two && self.most >= 1024.0
    }

    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let base: f64 = if self.powers_of_two { 2.0 } else { 10.0 };
            let steps = ((self.most / self.least).ln() / base.ln()).round().max(1.0);
            let every = (steps / 6.0).ceil();
            let count = (steps / every).floor() as usize;
            return (0..=count).map(|k| self.least * base.powf(every * k as f64)).collect();
        }
        let step = step(self.least, self.most);
        let first = (self.least / step).ceil();
        (0..).map(|k| (first + f64::from(k)) * step).take_while(|t| *t <= self.most * (1.0 + 1e-9)).collect()
    }
}

/// The distance of ticks on a linear axis: 1, 2 or 5 of some power of ten.
fn step(least: f64, most: f64) -> f64 {
    let rough = ((most - least) / 5.0).max(f64::MIN_POSITIVE);
    let unit = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].iter().map(|m| m * unit).find(|s| *s >= rough).unwrap_or(rough)
}

/// A tick's text.
fn number(value: f64, binary: bool) -> String {
    if binary && value >= 1024.0 {
        let (value, unit) = if value >= 1048576.0 { (value / 1048576.0, "Mi") } else { (value / 1024.0, "Ki") };
        return format!("{value}{unit}");
    }
    if value == 0.0 || (1e-3..1e5).contains(&value.abs()) {
        let text = format!("{value:.4}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    format!("{value:.0e}")
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, size: u8, content: &str) {
    let content = escaped(content);
    let _ = writeln!(
        out,
        "<text class=\"ink\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{content}</text>"
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axis(logarithmic: bool) -> Axis {
        Axis { label: "n & m".into(), logarithmic }
    }

    #[test]
    fn a_figure_is_well_formed() {
        let series = Series { name: "a<b".into(), points: vec![(1024.0, 0.5), (4096.0, 2.0)] };
        let panel = Panel { title: "p".into(), x: axis(true), y: axis(false), series: vec![series] };
        let svg = Figure { title: "t".into(), panels: vec![panel] }.svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("a&lt;b") && svg.contains("n &amp; m") && svg.contains(">1Ki<"));
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn ticks_are_round() {
        let of = |log, values: &[f64]| Scale::of(&axis(log), values.iter().copied()).ticks();
        assert_eq!(of(false, &[0.0, 11.6]), [0.0, 5.0, 10.0, 15.0]);
        assert_eq!(of(false, &[0.5, 2.0]), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]);
        assert_eq!(of(true, &[0.3, 250.0]), [0.1, 1.0, 10.0, 100.0, 1000.0]);
        assert_eq!(of(true, &[16.0, 512.0]), [16.0, 32.0, 64.0, 128.0, 256.0, 512.0]);
    }
}
