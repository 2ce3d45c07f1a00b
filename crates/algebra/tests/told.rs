//! Reductions over the elements that attain an extremum and over all others: however a row is made of ties, infinities
//! and NaNs, and however it is cut, they are what the text says; and what would forget an element, or keep one, is seen.

use einloom_algebra::exact::{Certificate, certify};
use einloom_algebra::stream::{Cut, evaluate};
use einloom_algebra::{Def, Derivation, Repair, Term, derive};
use einloom_cascade::meaning::{self, Array, Arrays};
use einloom_cascade::{Bound, Cascade, Given, UnaryOp, bind, parse};

const CUTS: [Cut; 5] = [Cut::Whole, Cut::Chunks(1), Cut::Chunks(2), Cut::Parts(1), Cut::Parts(2)];
const SIZE: usize = 4;

fn derivation(text: &str) -> (Cascade, Derivation, Bound) {
    let parsed = parse(text);
    assert!(!parsed.diagnostics.iter().any(|d| d.is_error()), "{:?}", parsed.diagnostics);
    let (d, bound) = (derive(&parsed.cascade), sized(&parsed.cascade, SIZE));
    (parsed.cascade, d, bound)
}

fn sized(cascade: &Cascade, size: usize) -> Bound {
    let mut given = Given::default();
    given.sizes.insert("N".into(), size);
    bind(cascade, &given).expect("binds")
}

/// Every row of these numbers.
fn rows(numbers: &[f64]) -> impl Iterator<Item = Vec<f64>> + '_ {
    let count = numbers.len();
    (0..count.pow(SIZE as u32)).map(move |k| (0..SIZE).map(|n| numbers[k / count.pow(n as u32) % count]).collect())
}

fn arrays(row: &[f64]) -> Arrays {
    let array = |values: Vec<f64>| Array { shape: vec![values.len()], values };
    let beside = vec![3.0, -5.0, 7.0, 0.5];
    [("X".into(), array(row.to_vec())), ("V".into(), array(beside))].into()
}

/// The first row and cut for which a form is not what the text says.
fn differs(cascade: &Cascade, d: &Derivation, bound: &Bound, numbers: &[f64]) -> Option<String> {
    rows(numbers).find_map(|row| {
        let inputs = arrays(&row);
        let expected = meaning::evaluate(cascade, bound, &inputs).expect("a meaning");
        CUTS.into_iter().find_map(|cut| {
            let found = evaluate(&d.derived, bound, &inputs, cut)?;
            expected.iter().find_map(|(name, e)| {
                let (a, b) = (e.values[0], found[name].values[0]);
                let same = a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-12 * a.abs();
                (!same).then(|| format!("{name} of {row:?}, {cut:?}: should be {a}, is {b}"))
            })
        })
    })
}

const PROGRAMS: [(&str, &str); 13] = [
    ("the next of some, if any is left", "a = argmax(n) X[n]\nO = argmax(n: n < 2 and n != a) X[n]"),
    ("the position of the next largest", "a = argmax(n) X[n]\nO = argmax(n: n != a) X[n]"),
    ("the position of the next smallest", "a = argmin(n) X[n]\nO = argmin(n: n != a) X[n]"),
    ("the smallest beside the largest", "a = argmax(n) X[n]\nO = argmin(n: n != a) X[n] * V[n]"),
    ("the next largest by position", "a = argmax(n) X[n]\nO = max(n: n != a) X[n]"),
    ("the next smallest by position", "a = argmin(n) X[n]\nO = min(n: n != a) X[n]"),
    ("the next largest by value", "O = max(n: X[n] < (max(n) X[n])) X[n]"),
    ("what stands beside all others", "a = argmax(n) X[n]\nO = sum(n: a != n) V[n]"),
    ("what stands beside the best", "a = argmin(n) X[n]\nO = sum(n: n == a) V[n]"),
    ("all that do not attain", "O = sum(n) where(X[n] == (max(n) X[n]), 0, V[n])"),
    ("all that are not as small", "O = prod(n: X[n] > (min(n) X[n])) V[n]"),
    ("the most beside what does not attain", "O = max(n: X[n] != (min(n) X[n])) V[n]"),
    ("before a position, of some", "a = argmax(n: n < 3) X[n]\nO = sum(n: n > 0 and n != a) V[n]"),
];

fn program(statements: &str) -> String {
    format!("input X[n]: f64, V[n]: f64\noutput O: f64\n{statements}\n")
}

#[test]
fn rows_of_ties_infinities_and_nans() {
    for (name, statements) in PROGRAMS {
        let (cascade, d, bound) = derivation(&program(statements));
        let passes = d.passes.ranks.iter().flat_map(|r| r.tensors.iter().map(|t| t.derived)).max();
        assert_eq!(passes, Some(1), "{name}");
        let numbers = [f64::NEG_INFINITY, -1.0, 2.0, f64::INFINITY, f64::NAN];
        assert_eq!(differs(&cascade, &d, &bound, &numbers), None, "{name}");
    }
}

/// Relative to a maximum: the others may be far below it, where its exponential is 0 beside theirs.
#[test]
fn exponentials_of_the_others_are_relative_to_the_largest_of_these() {
    for what in [
        "log(sum(n: n != a) exp(X[n]))",
        "log(sum(n: n != a) exp(X[n] - c)) + c",
        "sum(n: n == a) exp(X[n] - c) * V[n]",
    ] {
        let (cascade, d, bound) = derivation(&program(&format!("a = argmax(n) X[n]\nc = max(n) X[n]\nO = {what}")));
        assert_eq!(differs(&cascade, &d, &bound, &[-600.0, -0.5, 0.0, 80.0]), None, "{what}");
    }
}

/// Changes the repair of every state whose name ends so.
fn sabotage(d: &mut Derivation, end: &str, wrong: impl Fn(&mut Repair)) {
    let mut found = false;
    for node in d.derived.nodes.iter_mut().filter(|n| n.name.ends_with(end)) {
        if let Def::Reduce(r) = &mut node.def
            && let Some(repair) = &mut r.streaming.repair
        {
            wrong(repair);
            found = true;
        }
    }
    assert!(found, "nothing of {end} is repaired");
}

#[test]
fn sees_what_is_forgotten_and_what_is_kept() {
    let others = "a = argmax(n) X[n]\nO = sum(n: n != a) V[n]";
    let next = "a = argmax(n) X[n]\nO = max(n: n != a) X[n]";
    let position = "a = argmax(n) X[n]\nO = argmax(n: n != a) X[n]";
    let nothing = |r: &mut Repair| (r.factor, r.plus) = (Term::Number(1.0), None);
    let never = |r: &mut Repair| (r.combine, r.factor) = (einloom_cascade::BinaryOp::Add, Term::Number(0.0));
    let always = |r: &mut Repair| {
        let Some(Term::Select(_, _, joins)) = r.plus.take() else { panic!("what joins is chosen") };
        r.plus = Some(*joins);
    };
    let kept = |r: &mut Repair| r.keep_if = None;
    let turned = |r: &mut Repair| {
        r.keep_if = r.keep_if.take().map(|k| Term::Unary(UnaryOp::Not, Box::new(k)));
    };
    type Wrong<'a> = &'a dyn Fn(&mut Repair);
    let alone = |r: &mut Repair| r.plus = Some(Term::Number(-0.0));
    let planted: [(&str, &str, Wrong<'_>); 9] = [
        (others, "others", &nothing),
        (others, "others", &always),
        (others, "attained", &kept),
        (others, "attained", &turned),
        (others, "first", &kept),
        (next, "others", &never),
        (position, "O.first", &alone),
        (position, "O.first", &kept),
        (position, "O.first", &never),
    ];
    for (k, (statements, end, wrong)) in planted.into_iter().enumerate() {
        let (cascade, mut d, bound) = derivation(&program(statements));
        // More than two chunks of two: an extremum may move twice.
        let longer = sized(&cascade, 9);
        assert!(certify(&d, &longer, 2).is_certified(), "{k} is right");
        sabotage(&mut d, end, wrong);
        assert!(differs(&cascade, &d, &bound, &[-1.0, 0.0, 2.0]).is_some(), "{k} is not seen in numbers");
        assert!(matches!(certify(&d, &longer, 8), Certificate::NotCertified { .. }), "{k} is certified");
    }
}

/// What looks alike and must wait: another set of elements, or a position that is rounded.
#[test]
fn other_conditions_wait() {
    for statements in [
        "a = argmax(n) X[n]\nO = sum(n: n < a) V[n]",
        "a = argmax(n) X[n]\nO = sum(n: n != a + 1) V[n]",
        "a: f16 = argmax(n) X[n]\nO = sum(n: n != a) V[n]",
        "c: f16 = max(n) X[n]\nO = sum(n: X[n] < c) V[n]",
        "c = max(n: n > 0) X[n]\nO = sum(n: X[n] < c) V[n]",
        "c = max(n) X[n]\nO = sum(n: X[n] < c - 1) V[n]",
        "c = max(n) X[n]\nO = sum(n: X[n] > c) V[n]",
        "a = argmax(n) X[n]\nO = sum(n: n != a) V[n] * tanh(X[n] - (max(n) X[n]))",
    ] {
        let (cascade, d, bound) = derivation(&program(statements));
        assert!(d.refusals.iter().any(|r| r.hint.is_some()), "{statements} is not refused");
        assert_eq!(differs(&cascade, &d, &bound, &[-1.0, 0.0, f64::INFINITY]), None, "{statements}");
    }
}
