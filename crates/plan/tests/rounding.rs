//! Where f32 meets wider numbers, a value is rounded where it is part of an expression as where it has a tile: what is
//! computed again equals what was stored. Text in, the last map of the plan out.

mod support;

use einloom_plan::{Fusion, Options};
use support::{planned, read, sized};

fn written(value: &str) -> String {
    let head = "input x[i]: f32, y[i]: f32, b[i]: bf16, k[i]: i32, l[i]: i32, q[i]: i8, s[i]: i16";
    // Where something is f64, functions of integers are.
    let wide = if value.contains("d[i]") { ", d[i]: f64" } else { "" };
    let cascade = read(&format!("{head}{wide}\noutput out: f32\nout[i] = {value}\n"));
    let options = Options { fuse: Fusion::None, ..Options::default() };
    let text = einloom_tile::print(&planned(&cascade, &sized(&cascade, "I=64"), true, &options).program);
    let line = text.lines().map(str::trim).rfind(|l| l.starts_with("out")).expect("a map");
    line.split_once(" = ").expect("a map").1.to_string()
}

#[test]
fn parts_of_a_wider_expression_are_rounded_to_their_own_type() {
    for (value, expected) in [
        // What is not wide has nothing to round, and neither has what is rounded as it is written.
        ("x[i] * y[i] + b[i]", "x * y + b"),
        ("x[i] * k[i]", "x * k"),
        // f32 beside i32 is an f32, and so is what is made of it.
        ("x[i] * k[i] + y[i]", "f32(x * k) + y"),
        ("exp(x[i] * k[i])", "exp(f32(x * k))"),
        ("exp(x[i]) * k[i]", "f32(exp(x)) * k"),
        ("(x[i] + y[i]) * d[i]", "f32(x + y) * d"),
        ("where(x[i] * k[i] == y[i], 1, 0)", "where(f32(x * k) == y, 1, 0)"),
        ("where(x[i] * y[i] == d[i], 1, 0)", "where(f32(x * y) == d, 1, 0)"),
        ("where(x[i] * y[i] < 2, k[i], l[i])", "where(x * y < 2, k, l)"),
        // What rounds nothing is left.
        ("-x[i] * k[i]", "-x * k"),
        ("max(x[i], y[i]) + k[i]", "max(x, y) + k"),
        // Integers are exact, of whatever width.
        ("(k[i] * l[i] - 1) * x[i]", "(k * l - 1) * x"),
        ("floor(k[i] / 3) * x[i]", "floor(k / 3) * x"),
        ("(q[i] - 3) * x[i]", "(q - 3) * x"),
        ("(s[i] * s[i] - 3) * x[i]", "(i32(s * s) - 3) * x"),
        ("where(k[i] / 3 == x[i], 1, 0)", "where(f32(k / 3) == x, 1, 0)"),
    ] {
        assert_eq!(written(value), expected, "{value}");
    }
}
