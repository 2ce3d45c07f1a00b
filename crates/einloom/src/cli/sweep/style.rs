//! Colours of charts: in dark browsers light on dark, on paper always dark on light.

use plotters::style::RGBColor;

/// Lines and letters.
pub(super) const INK: RGBColor = RGBColor(0x1f, 0x23, 0x28);
/// Lines of the grid.
pub(super) const FAINT: RGBColor = RGBColor(0xd8, 0xde, 0xe4);
/// Behind everything.
pub(super) const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xfe);
/// What was planned.
pub(super) const PLANNED: RGBColor = RGBColor(0x09, 0x69, 0xda);
/// What bounds it.
pub(super) const BOUND: RGBColor = RGBColor(0xcf, 0x22, 0x2e);
/// What bounds it otherwise.
pub(super) const OTHER: RGBColor = RGBColor(0x82, 0x50, 0xdf);

/// Each colour with the one in its place on a dark background.
const DARK: [(RGBColor, &str); 6] = [
    (INK, "#e6edf3"),
    (FAINT, "#30363d"),
    (PAPER, "#0d1117"),
    (PLANNED, "#58a6ff"),
    (BOUND, "#ff7b72"),
    (OTHER, "#d2a8ff"),
];

/// The chart with a style sheet that exchanges its colours where a dark page is preferred.
pub(super) fn for_light_and_dark(svg: &str) -> String {
    let Some(end) = svg.find('>') else { return svg.to_string() };
    let rule = |(from, to): &(RGBColor, &str)| {
        let from = format!("#{:02X}{:02X}{:02X}", from.0, from.1, from.2);
        format!("[fill=\"{from}\"]{{fill:{to}}}[stroke=\"{from}\"]{{stroke:{to}}}")
    };
    let rules: String = DARK.iter().map(rule).collect();
    let sheet = format!("<style>@media screen and (prefers-color-scheme: dark){{{rules}}}</style>");
    format!("{}\n{sheet}{}", &svg[..=end], &svg[end + 1..])
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_style_sheet_stands_inside_the_picture() {
        let svg = super::for_light_and_dark("<svg width=\"1\"><rect/></svg>");
        assert!(svg.starts_with("<svg width=\"1\">\n<style>@media screen and (prefers-color-scheme: dark)"));
        assert!(svg.ends_with("</style><rect/></svg>"));
    }
}
