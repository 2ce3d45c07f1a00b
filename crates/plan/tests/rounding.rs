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

/// The last map of a program whose statements these are, over `x` in f32, `d` in the given type and integers `k`.
fn last_map(dtype: &str, statements: &str) -> String {
    let head = format!("input x[t]: f32, d[t]: {dtype}, k[t]: i32\noutput out: {dtype}\nindex j in T\n");
    let cascade = read(&format!("{head}{statements}\n"));
    let text = einloom_tile::print(&planned(&cascade, &sized(&cascade, "T=64"), true, &Options::default()).program);
    let line = text.lines().map(str::trim).rfind(|l| l.contains("out: ") || l.starts_with("out = ")).expect("a map");
    line.split_once(" = ").expect("a map").1.to_string()
}

#[test]
fn what_is_made_of_integers_alone_takes_the_type_of_what_stands_beside_it() {
    // A state, a reduction and a map without declared types; what each holds is known exactly but for its last digits.
    let state = "C[0] = 0\nC[t+1] = C[t] + 1\n";
    let fold = "C[t] = sum(j: j <= t) 1\n";
    let map = "C[t] = k[t] / 3\n";
    for (before, dtype, value, expected) in [
        (state, "f64", "d[t] - log(C[t+1])", "d - log(c)"),
        (state, "f64", "x[t] * C[t+1] + d[t]", "f32(x * c) + d"),
        (state, "f32", "d[t] - log(C[t+1])", "d - log(c)"),
        (state, "f32", "log(C[t+1]) * k[t]", "f32(log(c)) * k"),
        (fold, "f64", "d[t] - log(C[t])", "d - log(c)"),
        (fold, "f64", "x[t] * C[t] + d[t]", "f32(x * c) + d"),
        (fold, "f32", "log(C[t]) * k[t]", "f32(log(c)) * k"),
        (map, "f64", "d[t] - log(C[t])", "d - log(k / 3)"),
        (map, "f64", "x[t] * C[t] + d[t]", "f32(x * (k / 3)) + d"),
        (map, "f32", "log(C[t]) * k[t]", "f32(log(f32(k / 3))) * k"),
        // What floats are in has their type, beside f64 too.
        ("C[0] = 0\nC[t+1] = C[t] + x[t]\n", "f64", "d[t] - log(C[t+1])", "d - f32(log(c))"),
        ("C[t] = sum(j: j <= t) x[j]\n", "f64", "d[t] - log(C[t])", "d - f32(log(c))"),
    ] {
        assert_eq!(last_map(dtype, &format!("{before}out[t] = {value}")), expected, "{dtype}: {before}{value}");
    }
}

#[test]
fn what_was_kept_makes_the_same_numbers_as_what_is_computed_again() {
    // A gather reads what another kernel kept.
    for (at, kernels) in [("t", 1), ("g[t]", 2)] {
        let value = format!("C[t] = log(sum(j: j <= t) 1 / k[j])\nout[t] = x[t] * C[{at}] + d[t]");
        let head = "input x[t]: f32, d[t]: f64, k[t]: i32, g[t]: i32\noutput out: f64\nindex j in T";
        let cascade = read(&format!("{head}\n{value}\n"));
        let text = einloom_tile::print(&planned(&cascade, &sized(&cascade, "T=64"), true, &Options::default()).program);
        assert_eq!(text.matches("store").count(), kernels, "{text}");
        assert!(text.contains("out: f64 = f32(x * log(c.sum)) + d\n"), "{text}");
    }
}
