//! Any text gets an answer, soon, and without deep recursion.

use einloom_cascade::{parse, print};

const HEAD: &str = "input X[n]: f32\noutput Y: f32\n";

/// The codes of the diagnostics, without repetition.
fn codes(text: &str) -> Vec<&'static str> {
    let mut codes: Vec<_> = parse(text).diagnostics.iter().map(|d| d.code).collect();
    codes.dedup();
    codes
}

fn of_value(value: &str) -> Vec<&'static str> {
    codes(&format!("{HEAD}Y[n] = {value}"))
}

#[test]
fn deep_nesting_is_refused() {
    for (open, close) in
        [("(", ")"), ("exp(", ")"), ("-", ""), ("X[", "]"), ("2 ^ ", ""), ("sum(n) ", ""), ("where(", "")]
    {
        let value = format!("{}X[n]{}", open.repeat(100_000), close.repeat(100_000));
        assert_eq!(of_value(&value), ["too-deep"], "{open}");
    }
}

#[test]
fn long_chains_are_refused() {
    for operator in [" + ", " * ", " / ", " ^ "] {
        assert_eq!(of_value(&vec!["X[n]"; 100_000].join(operator)), ["too-deep"], "{operator}");
    }
}

#[test]
fn what_is_accepted_can_be_printed_and_read_again() {
    for (open, close) in [("(1 - ", ")"), ("exp(", ")"), ("-", ""), ("2 ^ ", ""), ("(1 / ", ")"), ("-(1 + ", ")")] {
        let mut accepted = 0;
        for depth in [50, 95, 195, 199, 250] {
            let text = format!("{HEAD}Y[n] = {}X[n]{}", open.repeat(depth), close.repeat(depth));
            let parsed = parse(&text);
            if !parsed.has_errors() {
                accepted += 1;
                super::cascades::survives_printing(&text);
            }
        }
        assert!((2..5).contains(&accepted), "{open}: {accepted}");
    }
}

#[test]
fn expansion_is_bounded() {
    let nested = format!("{}X[n]{}", "double(".repeat(60), ")".repeat(60));
    assert_eq!(codes(&format!("op double(x) = x + x\n{HEAD}Y[n] = {nested}")), ["too-large"]);
    assert_eq!(of_value(&format!("{}X[n]", "softmax(n) ".repeat(60))), ["too-large"]);
    let tower: String = (1..60).map(|k| format!("op f{k}(x) = f{0}(f{0}(x))\n", k - 1)).collect();
    assert_eq!(codes(&format!("op f0(x) = x + 1\n{tower}{HEAD}Y[n] = f59(X[n])")), ["too-large", "too-deep"]);
}

#[test]
fn multiplied_out_sizes_are_bounded() {
    let ranks: String = (0..40).map(|k| format!("rank A{k}\n")).collect();
    let product: Vec<_> = (0..20).map(|k| format!("(A{} + A{})", 2 * k, 2 * k + 1)).collect();
    assert_eq!(codes(&format!("{HEAD}{ranks}Y[n] = X[{}*n]", product.join("*"))), ["too-complex"]);
    assert_eq!(codes(&format!("{HEAD}{ranks}rank B = {}\nY[n] = X[n] + B", product.join("*"))), ["too-complex"]);
}

#[test]
fn long_programs_are_quick() {
    let mut text = format!("{HEAD}T0[n] = X[n]\n");
    for k in 1..20_000 {
        text.push_str(&format!("T{k}[n] = T{}[n] + 1\n", k - 1));
    }
    text.push_str("Y[n] = T19999[n]\n");
    let parsed = parse(&text);
    assert!(parsed.diagnostics.is_empty());
    assert_eq!(parse(&print(&parsed.cascade)).cascade.order, parsed.cascade.order);
}

#[test]
fn long_circles_are_found() {
    let mut text = format!("{HEAD}Y[n] = X[n] + T0[n]\nT0[n] = T4999[n]\n");
    for k in 1..5_000 {
        text.push_str(&format!("T{k}[n] = T{}[n]\n", k - 1));
    }
    assert_eq!(codes(&text), ["cyclic-definition"]);
}

#[test]
fn many_mistakes_are_cut_short() {
    let wrong: String = (0..20_000).map(|k| format!("Z{k}[n] = Q{k}[n] + zz{k} + f{k}(1)\n")).collect();
    let parsed = parse(&format!("{HEAD}{wrong}"));
    assert_eq!(parsed.diagnostics.len(), 101);
    assert_eq!(parsed.diagnostics[100].code, "too-many-findings");
}

#[test]
fn one_long_line_of_anything_is_quick() {
    for piece in [
        "[",
        "(",
        "a[",
        "a=",
        "max(a,",
        "1 ",
        "\u{1F600}",
        "sum(n",
        ":",
        "a\n",
        "input x\n",
        "H[t+1]=",
        "index a in A\n",
    ] {
        parse(&piece.repeat(50_000));
    }
}
