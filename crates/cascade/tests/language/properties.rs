//! Random programs: what is printed reads back the same, and no text makes the parser panic.

use einloom_cascade::parse;
use proptest::prelude::*;

/// Numbers as they may be written.
fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        (0u32..9).prop_map(|k| k.to_string()),
        Just("inf".to_owned()),
        Just("pi".to_owned()),
        (1e-9f64..1e9).prop_map(|v| format!("{v:e}")),
        (0.0f64..9.0).prop_map(|v| format!("{v}")),
    ]
}

/// Positions over the bound indices `m` and `n`.
fn position() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("m".to_owned()),
        Just("n".to_owned()),
        Just("M".to_owned()),
        Just("ids[m]".to_owned()),
        (0u32..5).prop_map(|k| k.to_string()),
    ];
    leaf.prop_recursive(3, 10, 2, |p| {
        prop_oneof![
            (p.clone(), p.clone()).prop_map(|(a, b)| format!("{a} + {b}")),
            (p.clone(), p.clone()).prop_map(|(a, b)| format!("{a} - ({b})")),
            (p.clone(), 1u32..4).prop_map(|(a, k)| format!("{k}*({a})")),
            p.clone().prop_map(|a| format!("-({a})")),
            p.clone().prop_map(|a| format!("({a})*(N + G)")),
            p.clone().prop_map(|a| format!("({a}) / G")),
            p.clone().prop_map(|a| format!("({a}) / (2*G + 1)")),
            p.prop_map(|a| format!("ids[{a}]")),
        ]
    })
}

/// Numbers over the bound indices `m` and `n`, and with a condition in `where` and filters.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        number(),
        Just("m".to_owned()),
        Just("n".to_owned()),
        Just("N".to_owned()),
        Just("scale".to_owned()),
        Just("c".to_owned()),
        (position(), position()).prop_map(|(a, b)| format!("X[{a},{b}]")),
        position().prop_map(|a| format!("V[{a}]")),
    ];
    leaf.prop_recursive(5, 40, 3, |v| {
        let operator = prop::sample::select(vec!["+", "-", "*", "/", "^"]);
        let compare = prop::sample::select(vec!["<", "<=", ">", ">=", "==", "!="]);
        let function = prop::sample::select(vec!["exp", "abs", "gelu", "log1p", "twice"]);
        let binary = prop::sample::select(vec!["max", "min", "blend"]);
        let reduction = prop::sample::select(vec![
            "sum",
            "prod",
            "max",
            "min",
            "argmax",
            "argmin",
            "reduce join",
            "softmax",
            "mean",
            "logsumexp",
            "var",
        ]);
        let over = prop::sample::select(vec!["n", "m", "m, n", "k"]);
        let plain = (v.clone(), operator, v.clone());
        prop_oneof![
            // Without parentheses the text decides what belongs together.
            plain.clone().prop_map(|(a, op, b)| format!("{a} {op} {b}")),
            plain.prop_map(|(a, op, b)| format!("({a}) {op} ({b})")),
            v.clone().prop_map(|a| format!("-{a}")),
            v.clone().prop_map(|a| format!("-({a})")),
            (function, v.clone()).prop_map(|(f, a)| format!("{f}({a})")),
            (binary, v.clone(), v.clone()).prop_map(|(f, a, b)| format!("{f}({a}, {b})")),
            (v.clone(), compare.clone(), v.clone(), v.clone())
                .prop_map(|(a, op, b, c)| format!("where(({a}) {op} ({b}) and not n < m, {c}, {a})")),
            (reduction.clone(), over.clone(), v.clone()).prop_map(|(f, i, a)| format!("{f}({i}) ({a})")),
            (reduction.clone(), over.clone(), v.clone()).prop_map(|(f, i, a)| format!("({f}({i}) ({a}))")),
            (reduction, over, compare, v.clone(), v)
                .prop_map(|(f, i, op, a, b)| format!("{f}({i}: n {op} m or ({a}) {op} 0) ({b})")),
        ]
    })
}

fn program() -> impl Strategy<Value = String> {
    (value(), value(), value()).prop_map(|(a, b, c)| {
        format!(
            "input X[m,n]: f32, V[n]: bf16, ids[m]: i32, c: f64\noutput Z: f16\nrank G = N / M\nindex k, j in M\n\
             param scale\nop twice(x) = x + x\nop blend(x, y) = x * (1 - y)\n\
             monoid join(a, b) = max(a, b) identity -inf\n\
             A[m,n] = {a}\nB[m,n]: bf16 = A[m,n] * ({b})\nH[0,n] = 0\nH[m+1,n] = H[m,n] + B[m,n]\n\
             Z[m,n] = H[M,n] - ({c})\n"
        )
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn printing_keeps_the_meaning(text in program()) {
        let parsed = parse(&text);
        // The generator makes sound programs, except that `softmax(k)` needs a `k` around it, and that `V[n + 1]` is
        // outside for the last n.
        for d in parsed.diagnostics.iter().filter(|d| d.is_error()) {
            prop_assert!(matches!(d.code, "unbound-index" | "out-of-range" | "too-large" | "too-complex"), "{}\n{}", text, einloom_cascade::render_plain(d, &text));
        }
        if !parsed.has_errors() {
            super::cascades::survives_printing(&text);
        }
    }

    #[test]
    fn damaged_programs_do_not_panic(
        text in prop_oneof![program(), prop::sample::select(super::cascades::texts()).prop_map(|(_, text)| text)],
        cuts in prop::collection::vec((any::<prop::sample::Index>(), 0usize..4, "[-+*/^()\\[\\],:=<>a-zA-Z0-9 \n#.]{0,3}"), 1..6),
    ) {
        let mut text = text;
        for (at, length, insert) in cuts {
            // Comments of the published texts hold more than ASCII.
            let at = text.floor_char_boundary(at.index(text.len()));
            let end = text.ceil_char_boundary((at + length).min(text.len()));
            text.replace_range(at..end, &insert);
        }
        let parsed = parse(&text);
        for d in &parsed.diagnostics {
            prop_assert!(text.get(d.span.range()).is_some());
        }
        if !parsed.has_errors() {
            super::cascades::survives_printing(&text);
        }
    }

    #[test]
    fn random_text_does_not_panic(text in "\\PC{0,200}", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        parse(&text);
        parse(&String::from_utf8_lossy(&bytes));
    }
}
