//! Exact identity testing: which derivations it certifies, and that it sees wrong ones.
#![allow(clippy::disallowed_methods)] // The library of cascades is read from files.

use einloom_algebra::exact::{Certificate, certify};
use einloom_algebra::{Def, Derivation, Term, derive};
use einloom_cascade::{BinaryOp, Bound, Given, bind, parse};

fn derivation(text: &str) -> (Derivation, Bound) {
    let parsed = parse(text);
    assert!(!parsed.diagnostics.iter().any(|d| d.is_error()), "{:?}", parsed.diagnostics);
    let mut given = Given::default();
    for rank in parsed.cascade.ranks.iter().filter(|r| r.default.is_none()) {
        given.sizes.insert(rank.name.clone(), 4);
    }
    given.params.extend(parsed.cascade.params.iter().filter(|p| p.default.is_none()).map(|p| (p.name.clone(), 0.5)));
    let bound = bind(&parsed.cascade, &given).expect("binds");
    (derive(&parsed.cascade), bound)
}

fn library(name: &str) -> String {
    let path = format!("{}/../../cascades/{name}.ein", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

#[test]
fn certifies_the_attention_family() {
    let names = [
        "attention",
        "attention_naive",
        "attention_causal",
        "attention_causal_where",
        "attention_gqa",
        "attention_mqa",
        "attention_window",
        "attention_alibi",
        "attention_softcap",
        "attention_bias",
        "attention_sink",
        "attention_l2",
        "attention_latent",
        "attention_decode",
        "attention_qk_rmsnorm",
        "attention_document",
        // An exponential in an exponent: the second attention's scores.
        "attention_twice",
        "softmax",
        "cross_entropy",
        "rmsnorm_matmul",
        "matmul",
    ];
    certified(&names);
}

#[test]
fn certifies_statistics() {
    certified(&[
        "variance",
        "covariance",
        "skewness",
        "batch_statistics",
        "layernorm",
        "layernorm_matmul",
        "logsumexp_weighted_variance",
        // sqrt(x·y) = sqrt(x)·sqrt(y).
        "correlation",
    ]);
}

#[test]
fn certifies_sequences() {
    certified(&[
        "cumulative_softmax",
        "linear_attention",
        "retention",
        "rwkv",
        "mamba2",
        "gated_linear_attention",
        "delta_rule",
        "viterbi",
        "shortest_paths",
        "mixture_of_experts",
    ]);
}

/// Each iteration takes the logarithm of a sum of exponentials of the one before: as deep as the fields go.
#[test]
fn certifies_two_iterations_of_sinkhorn_and_sees_them_wrong() {
    let text = "input C[m,n]: f64\noutput L: f64\nf[m] = -(logsumexp(n) (-C[m,n]))\ng[n] = -(logsumexp(m) (f[m] - C[m,n]))\n\
        h[m] = -(logsumexp(n) (g[n] - C[m,n]))\nk[n] = -(logsumexp(m) (h[m] - C[m,n]))\n\
        L = sum(m,n) exp(h[m] + k[n] - C[m,n]) * C[m,n]\n";
    let (right, bound) = derivation(text);
    match certify(&right, &bound, 4) {
        Certificate::Certified { bits, .. } => assert!(bits > 100, "{bits} bits"),
        other => panic!("{other:?}"),
    }
    sees_wrong_factors(&right, &bound, "L");
}

/// What roots and absolute values have besides being functions, and what they must not be given.
#[test]
fn knows_that_roots_multiply() {
    let program = |body: &str| format!("input X[m]: f64, Y[m]: f64\noutput Z: f64\nparam p, q\nZ[m] = {body}\n");
    let pairs = [
        ("sqrt(X[m] * Y[m])", "sqrt(X[m]) * sqrt(Y[m])", true),
        ("X[m] / sqrt(Y[m])", "X[m] * Y[m]^(-0.5)", true),
        ("X[m]^1.5", "X[m]^2 / sqrt(X[m])", false),
        ("sqrt(X[m] + Y[m])", "sqrt(X[m]) + sqrt(Y[m])", false),
        ("sqrt(X[m])", "sqrt(-X[m])", false),
        ("sqrt(exp(X[m]) / Y[m])", "exp(X[m] / 2) / sqrt(Y[m])", true),
        ("sqrt(exp(X[m]))", "exp(-X[m] / 2)", false),
        ("sqrt(exp(X[m]) + exp(Y[m]))", "exp(X[m] / 2) + exp(Y[m] / 2)", false),
        ("sqrt(X[m]^2)", "X[m]", false),
        ("(X[m] * exp(Y[m]))^p", "X[m]^p * exp(p * Y[m])", true),
        ("X[m]^(p + q)", "X[m]^p * X[m]^q", true),
        ("(X[m] + Y[m])^p", "X[m]^p + Y[m]^p", false),
        ("X[m]^(p * q)", "X[m]^p * X[m]^q", false),
        // A root of a number as the rounded number that a form multiplied out.
        ("X[m] / sqrt(2)", "X[m] * 0.7071067811865476", true),
        ("X[m] * (-1 / sqrt(2))", "X[m] * -0.7071067811865476", true),
        ("X[m] / sqrt(2 * pi)", "X[m] * 0.3989422804014327", true),
        ("sqrt(2) * sqrt(3) * X[m]", "2.449489742783178 * X[m]", true),
        ("X[m] / sqrt(2)", "X[m] * 0.7071067812", false),
        ("X[m] * sqrt(2)", "X[m] * 1.7320508075688772", false),
        ("X[m] * sqrt(2)", "X[m] * -1.4142135623730951", false),
        ("X[m] * sqrt(pi)", "X[m] * 3.141592653589793", false),
        ("abs(X[m] * Y[m])", "abs(X[m]) * abs(-Y[m])", true),
        ("abs(X[m])", "X[m]", false),
        ("abs(X[m] + Y[m])", "abs(X[m]) + abs(Y[m])", false),
        ("exp(exp(X[m] + Y[m]))", "exp(exp(X[m]) * exp(Y[m]))", true),
        ("exp(exp(X[m]) + exp(Y[m]))", "exp(exp(X[m])) * exp(exp(Y[m]))", true),
        ("exp(exp(X[m] + Y[m]))", "exp(exp(X[m])) * exp(exp(Y[m]))", false),
        ("exp(exp(exp(X[m] + Y[m])))", "exp(exp(exp(X[m]) * exp(Y[m])))", true),
    ];
    certified_if_equal(program, &pairs);
}

/// Logarithms of products, and what looks like them.
#[test]
fn knows_that_logarithms_add() {
    let program = |body: &str| format!("input X[m]: f64, Y[m]: f64\noutput Z: f64\nparam p\nZ[m] = {body}\n");
    let pairs = [
        ("log(X[m] * Y[m])", "log(X[m]) + log(Y[m])", true),
        ("log(X[m] / Y[m]^2)", "log(X[m]) - 2 * log(Y[m])", true),
        ("log((1 + X[m]^2) * (2 + Y[m]))", "log(2 + Y[m]) + log(1 + X[m]^2)", true),
        ("log(sqrt(X[m]) / 3)", "log(X[m]) / 2 - log(3)", true),
        ("log(X[m]^p)", "p * log(X[m])", true),
        ("log(X[m] * exp(Y[m]))", "log(X[m]) + Y[m]", true),
        ("log(X[m] * (Y[m] + 1))", "log(X[m] * Y[m] + X[m])", true),
        ("log(1 * X[m])", "log(X[m]) + log(1)", true),
        ("log(X[m] + Y[m])", "log(X[m]) + log(Y[m])", false),
        ("log(X[m] * Y[m])", "log(X[m]) - log(Y[m])", false),
        ("log(X[m] * Y[m])", "log(X[m]) * log(Y[m])", false),
        ("log(X[m]^2)", "log(X[m])", false),
        ("log(X[m])", "log(-X[m])", false),
        ("log(2 * X[m])", "log(X[m])", false),
        ("log(exp(X[m]) + exp(Y[m]))", "log(exp(X[m] - Y[m]) + 1) + Y[m]", true),
        ("log(exp(X[m]) + exp(Y[m]))", "log(exp(-Y[m]) + exp(-X[m])) + X[m] + Y[m]", true),
        ("log(2 * exp(X[m]) - Y[m] * exp(X[m]))", "log(2 - Y[m]) + X[m]", true),
        ("log(sqrt(exp(X[m]) + exp(Y[m])))", "log(exp(X[m] - Y[m]) + 1) / 2 + Y[m] / 2", true),
        ("log(1 / (exp(X[m]) + Y[m]))", "-log(1 + Y[m] * exp(-X[m])) - X[m]", true),
        ("log(X[m] / (2 + Y[m]) + 3 / (2 + Y[m]))", "log(X[m] + 3) - log(Y[m] + 2)", true),
        ("log(exp(X[m]) / (2 + Y[m]) + 3 / (2 + Y[m]))", "log(1 + 3 * exp(-X[m])) + X[m] - log(Y[m] + 2)", true),
        ("log(X[m] / (2 + Y[m]) + 3 / (1 + Y[m]))", "log(X[m] + 3) - log(Y[m] + 2)", false),
        ("log(X[m] / (2 + Y[m]) + 3)", "log(X[m] + 3) - log(Y[m] + 2)", false),
        ("log(exp(X[m]) + exp(Y[m]))", "log(exp(X[m] - Y[m]) + 1) + X[m]", false),
        ("log(exp(X[m]) + Y[m])", "log(1 + Y[m]) + X[m]", false),
        ("log(exp(X[m]) + exp(Y[m]))", "X[m] + Y[m]", false),
    ];
    certified_if_equal(program, &pairs);
}

/// Exponentials of states nest from step to step, deeper than there are fields; each step is proved by itself.
#[test]
fn certifies_what_a_step_reduces_and_sees_it_wrong() {
    let (right, bound) = derivation(&library("hmm_forward"));
    assert!(certify(&right, &bound, 2).is_certified());
    sees_wrong_factors(&right, &bound, "L");
}

/// Programs of two bodies each: the second is certified as a form of the first if it is told to be equal.
fn certified_if_equal(program: impl Fn(&str) -> String, pairs: &[(&str, &str, bool)]) {
    for &(a, b, equal) in pairs {
        let ((mut d, bound), (other, _)) = (derivation(&program(a)), derivation(&program(b)));
        d.derived = other.derived;
        let certified = matches!(certify(&d, &bound, 4), Certificate::Certified { .. });
        assert_eq!(certified, equal, "{a} and {b}");
    }
}

fn certified(names: &[&str]) {
    for name in names {
        let (d, bound) = derivation(&library(name));
        match certify(&d, &bound, 4) {
            Certificate::Certified { points: 4, bits } => assert!(bits > 100, "{name}: only {bits} bits"),
            other => panic!("{name}: {other:?}"),
        }
        for (k, a) in d.alternatives.iter().enumerate() {
            let d = d.of_alternative(k).expect("it is there");
            match certify(&d, &bound, 4) {
                Certificate::Certified { points: 4, bits } => assert!(bits > 100, "{name}, {}: {bits} bits", a.name),
                // Extrema with addends, in another order: which is the larger is known of the reals alone.
                Certificate::InRegions { bits, .. } if a.name.ends_with("by chunks") => {
                    assert!(bits > 50, "{name}, {}: {bits} bits", a.name);
                }
                other => panic!("{name}, {}: {other:?}", a.name),
            }
        }
    }
}

/// What rests on the order of the reals, and what looks like it and is wrong.
#[test]
fn knows_the_order_of_the_reals() {
    let program = |body: &str| {
        format!("input X[m,n]: f64, Y[m,n]: f64, A[m]: f64, B[m]: f64\noutput Z: f64\nindex k in M\nZ[m] = {body}\n")
    };
    let pairs = [
        ("max(n) (X[m,n] + A[m])", "(max(n) X[m,n]) + A[m]", true),
        ("max(n) (X[m,n] + A[m])", "(max(n) X[m,n]) - A[m]", false),
        ("min(n) (X[m,n] - A[m])", "(min(n) X[m,n]) - A[m]", true),
        ("max(n) (X[m,n] + Y[m,n])", "(max(n) X[m,n]) + (max(n) Y[m,n])", false),
        ("max(n) X[m,n] * abs(A[m])", "(max(n) X[m,n]) * abs(A[m])", true),
        ("max(n) X[m,n] * A[m]", "(max(n) X[m,n]) * A[m]", false),
        ("max(n) X[m,n] * A[m]", "max((max(n) X[m,n]) * A[m], (min(n) X[m,n]) * A[m])", true),
        ("max(n) X[m,n] * A[m]", "min((max(n) X[m,n]) * A[m], (min(n) X[m,n]) * A[m])", false),
        ("max(n) (-X[m,n])", "-(min(n) X[m,n])", true),
        ("max(n) (-X[m,n])", "-(max(n) X[m,n])", false),
        ("max(n) exp(X[m,n])", "exp(max(n) X[m,n])", true),
        ("max(n) exp(-X[m,n])", "exp(-(max(n) X[m,n]))", false),
        ("max(n) tanh(X[m,n])", "tanh(max(n) X[m,n])", true),
        ("max(n) abs(X[m,n] - A[m])", "max((max(n) X[m,n]) - A[m], A[m] - (min(n) X[m,n]))", true),
        ("max(n) abs(X[m,n] - A[m])", "max((min(n) X[m,n]) - A[m], A[m] - (max(n) X[m,n]))", false),
        ("max(n) max(X[m,n], Y[m,n])", "max(max(n) X[m,n], max(n) Y[m,n])", true),
        ("max(n) min(X[m,n], A[m])", "min(max(n) X[m,n], A[m])", true),
        ("max(n) min(X[m,n], Y[m,n])", "min(max(n) X[m,n], max(n) Y[m,n])", false),
        ("max(n) min(k) (X[k,n] + Y[m,n])", "min(k) max(n) (X[k,n] + Y[m,n])", false),
        ("max(n) max(k) (X[k,n] + Y[m,n])", "max(k) max(n) (X[k,n] + Y[m,n])", true),
        ("max(k: k <= m) (A[k] + B[m])", "(max(k: k <= m) A[k]) + B[m]", true),
        ("max(k: k <= m) (A[k] + B[m])", "(max(k: k < m) A[k]) + B[m]", false),
        ("relu(A[m] * abs(B[m]))", "relu(A[m]) * abs(B[m])", true),
        ("relu(A[m] * B[m])", "relu(A[m]) * B[m]", false),
        ("floor(A[m] + 1)", "floor(A[m]) + 1", true),
        ("floor(A[m] + B[m])", "floor(A[m]) + floor(B[m])", false),
        ("abs(A[m]) * abs(A[m])", "A[m]^2", true),
        ("sqrt(abs(A[m]))^2", "abs(A[m])", true),
        ("(A[m] / sqrt(abs(B[m])))^2", "A[m]^2 / abs(B[m])", true),
        ("(A[m] / sqrt(abs(B[m])))^2", "A[m]^2 / B[m]", false),
        ("sqrt(A[m]^2)", "A[m]", false),
    ];
    for (a, b, equal) in pairs {
        let ((mut d, bound), (other, _)) = (derivation(&program(a)), derivation(&program(b)));
        d.derived = other.derived;
        let found = certify(&d, &bound, 4);
        assert_eq!(found.is_certified(), equal, "{a} and {b}: {found:?}");
        if let Certificate::InRegions { bits, .. } = found {
            assert!(bits > 40, "{a} and {b}: {bits} bits");
        }
    }
}

/// With its first repair's factor squared, or left out, a derivation is not certified.
fn sees_wrong_factors(right: &Derivation, bound: &Bound, output: &str) {
    let square = |f: &Term| Term::Binary(BinaryOp::Mul, Box::new(f.clone()), Box::new(f.clone()));
    let wrongs: [&dyn Fn(&Term) -> Term; 2] = [&square, &|_| Term::Number(1.0)];
    for wrong in wrongs {
        let mut d = right.clone();
        sabotage(&mut d, wrong);
        assert_eq!(certify(&d, bound, 1), Certificate::NotCertified { output: output.into() });
    }
}

/// Replaces the first repair's factor.
fn sabotage(d: &mut Derivation, wrong: impl Fn(&Term) -> Term) {
    let node = d.derived.nodes.iter_mut().find_map(|n| match &mut n.def {
        Def::Reduce(r) => r.streaming.repair.as_mut(),
        _ => None,
    });
    let repair = node.expect("something is repaired");
    repair.factor = wrong(&repair.factor);
}

/// Replaces what the other states contribute to the last state that moves with them.
fn sabotage_vector(d: &mut Derivation, wrong: impl Fn(&Term) -> Option<Term>) {
    let repair = d.derived.nodes.iter_mut().rev().find_map(|n| match &mut n.def {
        Def::Reduce(r) => r.streaming.repair.as_mut().filter(|r| r.plus.is_some()),
        _ => None,
    });
    let repair = repair.expect("a vector of states");
    repair.plus = repair.plus.as_ref().and_then(wrong);
}

#[test]
fn sees_a_wrong_vector_repair() {
    let twice = |t: &Term| Some(Term::Binary(BinaryOp::Add, Box::new(t.clone()), Box::new(t.clone())));
    for (file, output) in
        [("variance", "V"), ("covariance", "C"), ("skewness", "G2"), ("logsumexp_weighted_variance", "V")]
    {
        let (mut d, bound) = derivation(&library(file));
        sabotage_vector(&mut d, |_| None);
        assert_eq!(certify(&d, &bound, 1), Certificate::NotCertified { output: output.into() }, "{file}");
        let (mut d, bound) = derivation(&library(file));
        sabotage_vector(&mut d, twice);
        assert_eq!(certify(&d, &bound, 1), Certificate::NotCertified { output: output.into() }, "{file}");
    }
}

#[test]
fn sees_a_wrong_repair() {
    let (mut d, bound) = derivation(&library("attention"));
    sabotage(&mut d, |f| Term::Binary(BinaryOp::Mul, Box::new(f.clone()), Box::new(f.clone())));
    assert_eq!(certify(&d, &bound, 1), Certificate::NotCertified { output: "O".into() });
    let (mut d, bound) = derivation(&library("attention"));
    sabotage(&mut d, |_| Term::Number(1.0));
    assert_eq!(certify(&d, &bound, 1), Certificate::NotCertified { output: "O".into() });
}

#[test]
fn does_not_certify_what_fields_do_not_know() {
    // √x·√y·√x = x·√y is a property of the reals, and no value here has the squares of two roots.
    let text = |body: &str| format!("input X[m]: f64, Y[m]: f64\noutput Z: f64\nZ[m] = {body}\n");
    let (mut d, bound) = derivation(&text("sqrt(X[m] + 2) * sqrt(Y[m] + 2) * sqrt(X[m] + 2)"));
    d.derived = derivation(&text("(X[m] + 2) * sqrt(Y[m] + 2)")).0.derived;
    assert_eq!(certify(&d, &bound, 1), Certificate::NotCertified { output: "Z".into() });
}

/// Quotients of positions have an order and whole parts.
#[test]
fn knows_quotients_of_positions() {
    let program = |body: &str| format!("input X[m]: f64, Y[m]: f64\noutput Z: f64\nZ[m] = {body}\n");
    let even = "where(m - 2 * floor(m / 2) == 0, X[m], Y[m])";
    let pairs = [
        (even, "where(floor((m + 1) / 2) == floor(m * 0.5), X[m], Y[m])", true),
        (even, "where(floor((m + 1) / 2) > m / 2, Y[m], X[m])", true),
        (even, "where(floor((m + 1) / 2) == floor(m / 2), Y[m], X[m])", false),
        ("X[m] * floor(-m / 3)", "X[m] * where(m > 3, -2, where(m > 0, -1, 0))", true),
        ("X[m] * sign(m / 3 - 1 / 3)", "X[m] * sign(m - 1)", true),
        ("X[m] * sign(m / 3 - 1 / 2)", "X[m] * sign(m - 1)", false),
    ];
    certified_if_equal(program, &pairs);
}

#[test]
fn certifies_nothing_where_nothing_has_a_value() {
    let text = "input X[m,n]: f64\noutput Y: f64\nY[m] = sum(n) X[m,n] / (m - m)";
    let (d, bound) = derivation(text);
    assert_eq!(certify(&d, &bound, 1), Certificate::NotEvaluated);
    let parsed = parse(&library("matmul"));
    let given = Given { sizes: [("M", 0), ("N", 3), ("K", 2)].map(|(k, v)| (k.into(), v)).into(), ..Given::default() };
    let bound = bind(&parsed.cascade, &given).expect("binds");
    assert_eq!(certify(&derive(&parsed.cascade), &bound, 1), Certificate::NotEvaluated);
}
