//! What cascades mean: text in, numbers out.

mod arrays;

use arrays::{array, cascade, given, noise, text};
use einloom_cascade::meaning::{self, Array, Arrays, MeaningError};
use einloom_cascade::{Cascade, bind};

fn run(cascade: &Cascade, lines: &str) -> Result<Arrays, MeaningError> {
    let (given, inputs) = given(cascade, lines);
    let bound = bind(cascade, &given).unwrap_or_else(|errors| panic!("{errors:#?}"));
    meaning::evaluate(cascade, &bound, &inputs)
}

/// The outputs of `program` on `inputs` are `expected`, in the order of their names.
#[track_caller]
fn check(program: &str, inputs: &str, expected: &str) {
    let outputs = run(&cascade(program), inputs).unwrap_or_else(|e| panic!("{e}"));
    let outputs: Vec<_> = outputs.iter().map(|(name, a)| format!("{name} = {}", text(a))).collect();
    let expected: Vec<_> = expected.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    assert_eq!(outputs, expected, "{program}");
}

/// `program` has no value on `inputs`, because of `message` at `place`.
#[track_caller]
fn check_error(program: &str, inputs: &str, message: &str, place: &str) {
    let error = run(&cascade(program), inputs).expect_err("no value");
    assert_eq!(error.to_string(), message);
    assert_eq!(error.span().map_or("", |s| &program[s.range()]), place);
}

/// `Y[n] = expression` for every n.
#[track_caller]
fn check_map(expression: &str, inputs: &str, expected: &str) {
    check(&format!("input X[n]: f64\noutput Y: f64\nY[n] = {expression}\n"), inputs, &format!("Y = {expected}"));
}

#[test]
fn operators() {
    let x = "X = [-2, -0.5, 0, 1, 3]";
    check_map("X[n] + 2*X[n] - 1", x, "[-7, -2.5, -1, 2, 8]");
    check_map("6 / X[n]", "X = [4, -0.5, 0]", "[1.5, -12, inf]");
    check_map("-X[n] ^ 2", x, "[-4, -0.25, -0, -1, -9]");
    check_map("min(X[n], 1) + max(X[n], 0)", x, "[-2, -0.5, 0, 2, 4]");
    check_map("where(X[n] < 0, 10, where(X[n] == 0, 20, 30))", x, "[10, 10, 20, 30, 30]");
    check_map("where(X[n] >= -0.5 and not (X[n] > 1) or X[n] == 3, 1, 0)", x, "[0, 1, 1, 1, 1]");
    check_map("n * N + X[n]", x, "[-2, 4.5, 10, 16, 23]");
}

#[test]
fn functions() {
    let x = "X = [-1.5, 0, 0.5, 2.5]";
    for (function, expected) in [
        ("abs", "[1.5, 0, 0.5, 2.5]"),
        ("exp", "[0.22313, 1, 1.648721, 12.182494]"),
        ("exp2", "[0.353553, 1, 1.414214, 5.656854]"),
        ("log1p", "[NaN, 0, 0.405465, 1.252763]"),
        ("sqrt", "[NaN, 0, 0.707107, 1.581139]"),
        ("rsqrt", "[NaN, inf, 1.414214, 0.632456]"),
        ("tanh", "[-0.905148, 0, 0.462117, 0.986614]"),
        ("sigmoid", "[0.182426, 0.5, 0.622459, 0.924142]"),
        ("erf", "[-0.966105, 0, 0.5205, 0.999593]"),
        ("sin", "[-0.997495, 0, 0.479426, 0.598472]"),
        ("cos", "[0.070737, 1, 0.877583, -0.801144]"),
        ("floor", "[-2, 0, 0, 2]"),
        ("round", "[-2, 0, 0, 2]"),
        ("sign", "[-1, 0, 1, 1]"),
        ("relu", "[0, 0, 0.5, 2.5]"),
        ("silu", "[-0.273638, 0, 0.31123, 2.310355]"),
        ("gelu", "[-0.100211, 0, 0.345731, 2.484476]"),
    ] {
        check_map(&format!("{function}(X[n])"), x, expected);
    }
    check_map("log(X[n]) + log2(X[n])", "X = [1, 8]", "[0, 5.079442]");
}

#[test]
fn reductions() {
    let one = |reduction: &str, x: &str, expected: &str| {
        check(&format!("input X[n]: f64\noutput Y: f64\nY = {reduction} X[n]\n"), &format!("X = {x}"), expected);
    };
    one("sum(n)", "[1, 2, 4]", "Y = 7");
    one("prod(n)", "[2, 3, -4]", "Y = -24");
    one("max(n)", "[2, 5, -4]", "Y = 5");
    one("min(n)", "[2, 5, -4]", "Y = -4");
    one("argmax(n)", "[2, 5, 1, 5]", "Y = 1");
    one("argmin(n)", "[2, 1, 5, 1]", "Y = 1");
    // Over nothing.
    one("sum(n)", "[]", "Y = 0");
    one("prod(n)", "[]", "Y = 1");
    one("max(n)", "[]", "Y = -inf");
    one("min(n)", "[]", "Y = inf");
    one("argmax(n)", "[]", "Y = -1");
    one("argmin(n)", "[]", "Y = -1");
    // Infinite and undefined values.
    one("argmax(n)", "[-inf, -inf]", "Y = 0");
    one("argmin(n)", "[inf, inf]", "Y = 0");
    one("max(n)", "[1, NaN, 2]", "Y = NaN");
    one("min(n)", "[1, NaN, 0]", "Y = NaN");
    one("argmax(n)", "[1, NaN, 2, NaN]", "Y = 1");
    one("argmin(n)", "[1, NaN, 0]", "Y = 1");
}

#[test]
fn reductions_over_several_indices_are_row_major() {
    let program = "input X[m,n]: f64\noutput S, A: f64\nS[m] = sum(n) X[m,n]\nA = argmax(m, n) X[m,n]\n";
    check(program, "X = [[1, 2, 3], [9, 5, 9]]", "A = 3\nS = [6, 23]");
}

#[test]
fn the_body_of_a_reduction_is_a_term() {
    check_map("sum(n) X[n] * 2 + 1", "X = [1, 2]", "[7, 7]");
}

#[test]
fn filters_skip_elements() {
    let program = "input X[n]: f64\nindex m in N\noutput P, A: f64
P[m] = sum(n: n <= m) X[n]
A[m] = argmax(n: n > m) X[n]\n";
    check(program, "X = [1, 2, 3]", "A = [2, 2, -1]\nP = [1, 3, 6]");
    // The body is not evaluated where the filter does not hold: log of what is not positive never happens.
    check("input X[n]: f64\noutput Y: f64\nY = sum(n: X[n] > 0) log2(X[n])\n", "X = [4, -1, 0, 2]", "Y = 3");
}

#[test]
fn the_users_operators_and_monoids() {
    let program = "op square(x) = x * x
monoid lse(a, b) = max(a, b) + log(exp(a - max(a, b)) + exp(b - max(a, b))) identity -1000
monoid far(a, b) = where(abs(a) >= abs(b), a, b) identity 0
input X[n]: f64
output L, Q, Z: f64
Q = sum(n) square(X[n])
Z = reduce lse(n) X[n]
L = reduce far(n) X[n]\n";
    check(program, "X = [1, 3, 0]", "L = 3\nQ = 10\nZ = 3.169846");
}

#[test]
fn params_and_defaults() {
    let program = "param scale = 0.5\nparam shift\ninput X[n]: f64\noutput Y: f64\nY[n] = scale * X[n] + shift\n";
    check(program, "X = [2, 4]\nshift = 1", "Y = [2, 3]");
    check(program, "X = [2, 4]\nshift = 1\nscale = 2", "Y = [5, 9]");
}

#[test]
fn affine_indices() {
    let convolution = "input X[l]: f64, F[r]: f64\nrank I = L - R + 1\noutput Y: f64\nY[i] = sum(r) X[i + r] * F[r]\n";
    check(convolution, "X = [1, 2, 3, 4, 5]\nF = [1, 10]", "Y = [21, 32, 43, 54]");
    let grouped = "input Q[h]: f64, K[j]: f64\nrank G = H / J\noutput Y: f64\nY[h] = Q[h] + K[h / G]\n";
    check(grouped, "Q = [1, 2, 3, 4]\nK = [10, 20]", "Y = [11, 12, 23, 24]");
    let split = "input K[m]: f64\nrank M = M1 * M0\noutput Y: f64\nY[m1] = sum(m0) K[m1*M0 + m0]\n";
    check(split, "K = [1, 2, 3, 4, 5, 6]\nM0 = 2", "Y = [3, 7, 11]");
    let reverse = "input X[n]: f64\noutput Y: f64\nY[n] = X[N - 1 - n]\n";
    check(reverse, "X = [1, 2, 3]", "Y = [3, 2, 1]");
}

#[test]
fn gathered_indices() {
    let program = "input E[v,d]: f64, ids[t]: i32\noutput Y: f64\nY[t,d] = E[ids[t], d]\n";
    check(program, "E = [[1, 2], [3, 4], [5, 6]]\nids = [2, 0]", "Y = [[5, 6], [1, 2]]");
    check_error(
        program,
        "E = [[1, 2], [3, 4]]\nids = [1, -1]",
        "position -1 of E is read along V (dimension 1), which has 2 elements",
        "E[ids[t], d]",
    );
}

#[test]
fn only_the_chosen_branch_is_read() {
    check_map("where(n > 0, X[n - 1], 0)", "X = [5, 6, 7]", "[0, 5, 6]");
    // A reduction that is remembered is evaluated where it is needed, not before.
    let program = "input X[n,d]: f64\nindex m in N\noutput Y: f64\nY[n,m] = where(n > 0, m * sum(d) X[n - 1,d], 0)\n";
    check(program, "X = [[5, 6], [7, 8]]", "Y = [[0, 0], [0, 11]]");
    // A condition on data, which nothing but evaluation can decide.
    let program = "input X[n]: f64\noutput Y: f64\nY[n] = where(X[n] > 0, X[n + 1], 0)\n";
    check(program, "X = [5, 6, -7]", "Y = [6, -7, 0]");
    check_error(
        program,
        "X = [5, 6, 7]",
        "position 3 of X is read along N (dimension 1), which has 3 elements",
        "X[n + 1]",
    );
}

#[test]
fn recurrences() {
    let sums = "input X[t]: f64\noutput H: f64\nH[0] = 0\nH[t+1] = H[t] + X[t]\n";
    check(sums, "X = [1, 2, 3]", "H = [0, 1, 3, 6]");
    check(sums, "X = []", "H = [0]");
    let attention = "input a[t]: f64, Q[t,d]: f64, K[t,d]: f64, V[t,e]: f64
output O, Z: f64
H[0,d,e] = 0
H[t+1,d,e] = a[t]*H[t,d,e] + K[t,d]*V[t,e]
O[t,e] = sum(d) Q[t,d] * H[t+1,d,e]
Z = sum(d, e) H[T,d,e]\n";
    check(
        attention,
        "a = [1, 0.5]\nQ = [[1, 1], [1, 0]]\nK = [[1, 2], [0, 1]]\nV = [[1], [10]]",
        "O = [[3], [0.5]]\nZ = 11.5",
    );
    // Two tensors that need each other; the nested sum is evaluated anew at every position.
    let both = "input X[t]: f64, W[n]: f64
output A, B: f64
A[0,n] = W[n]
B[t] = X[t] + sum(n) A[t,n]
A[t+1,n] = A[t,n] / sum(n) A[t,n] + B[t]\n";
    check(both, "X = [0, 1]\nW = [1, 3]", "A = [[1, 3], [4.25, 4.75], [10.472222, 10.527778]]\nB = [4, 10]");
}

#[test]
fn values_round_where_a_number_type_is_declared() {
    // 1 + 2^-9 is no bf16: X is 1. T is 67, and 2048 + 67 is no f16.
    let program = "input X[n]: bf16\noutput S: f16\nT[n]: i8 = X[n] * 66.7\nS[n] = T[n] + 2048\n";
    check(program, "X = [1.001953125]", "S = [2116]");
    check("input X[n]: i8\noutput Y: u4\nY[n] = X[n] * 2\n", "X = [1.5, 300, -3]", "Y = [4, 15, 0]");
    check("input X[n]: e4m3\noutput Y: e5m2\nY[n] = X[n]\n", "X = [500, 3.1, 26]", "Y = [448, 3, 24]");
    check("input X[n]: b1\noutput Y: f32\nY[n] = where(X[n], 7, 8)\n", "X = [0, 2, 1]", "Y = [8, 7, 7]");
    // Without a number type an intermediate keeps its f64: rounding to f32 would lose the 1.
    let program = "input X[n]: f64\noutput Y: f64\nT[n] = X[n] + 1\nY[n] = T[n] - X[n]\n";
    check(program, "X = [1073741824]", "Y = [1]");
}

#[test]
fn evaluate_all_returns_intermediates_and_rounded_inputs() {
    let cascade = cascade("input X[n]: i8\noutput Y: f32\nT[n] = X[n] + 1\nY = sum(n) T[n]\n");
    let (given, inputs) = given(&cascade, "X = [1.2, 2]");
    let all = meaning::evaluate_all(&cascade, &bind(&cascade, &given).unwrap(), &inputs).unwrap();
    let all: Vec<_> = all.iter().map(|(name, a)| format!("{name} = {}", text(a))).collect();
    assert_eq!(all, ["T = [2, 3]", "X = [1, 2]", "Y = 5"]);
}

#[test]
fn inputs_must_be_there_and_fit() {
    let cascade = cascade("input X[n]: f32\noutput Y: f32\nY = sum(n) X[n]\n");
    let (given, mut inputs) = given(&cascade, "X = [1, 2, 3]");
    let bound = bind(&cascade, &given).unwrap();
    let mut error = |array: Option<(&str, Array)>| {
        inputs.clear();
        inputs.extend(array.map(|(name, a)| (name.to_owned(), a)));
        meaning::evaluate(&cascade, &bound, &inputs).unwrap_err().to_string()
    };
    assert_eq!(error(None), "the input X is missing");
    assert_eq!(error(Some(("Z", array("1")))), "there is no input Z");
    assert_eq!(error(Some(("X", array("[1, 2]")))), "X has the shape 2, but its sizes ask for 3");
    let short = Array { shape: vec![3], values: vec![1.0] };
    assert_eq!(error(Some(("X", short))), "X has the shape 3 but 1 values");
}

/// Nested reductions are remembered, not evaluated at every element around them: work grows with M·N, not M·N².
#[test]
fn a_nested_reduction_is_evaluated_once_per_position_of_its_indices() {
    let cascade =
        cascade("input X[m,n]: f64, V[n,e]: f64\noutput O: f64\nO[m,e] = sum(n) X[m,n] / (sum(n) X[m,n]) * V[n,e]\n");
    let work = |n: usize| {
        let mut given = einloom_cascade::Given::default();
        given.sizes.extend([("M", 2), ("N", n), ("E", 4)].map(|(r, s)| (r.to_owned(), s)));
        meaning::work(&cascade, &bind(&cascade, &given).unwrap())
    };
    // Per (m, e, n): two reads, a division, a product, a sum; per (m, n) of the nested sum: a read, a sum; per
    // element one.
    assert_eq!(work(100), (2 * 4 * 100 * 5 + 2 * 100 * 2 + 2 * 4) as f64);
    assert_eq!(work(200) - work(100), work(300) - work(200));
    let (given, inputs) = given(&cascade, "X = [[1, 3], [2, 2]]\nV = [[1, 10], [5, 50]]");
    let bound = bind(&cascade, &given).unwrap();
    let outputs = meaning::evaluate(&cascade, &bound, &inputs).unwrap();
    assert_eq!(text(&outputs["O"]), "[[4, 40], [3, 30]]");
}

#[test]
fn progress_ascends_to_one() {
    let cascade = cascade("input X[n]: f64\noutput Y: f64\nT[n] = X[n] + 1\nY[n] = T[n] * 2\n");
    let (given, inputs) = given(&cascade, "X = [1, 2, 3]");
    let mut seen = vec![];
    let bound = bind(&cascade, &given).unwrap();
    meaning::evaluate_with_progress(&cascade, &bound, &inputs, &mut |p| seen.push(p)).unwrap();
    assert!(seen.is_sorted() && seen.len() > 4 && seen.last() == Some(&1.0), "{seen:?}");
}

#[test]
fn attention_is_what_its_loops_compute() {
    let cascade = cascade(
        "input Q[b,h,m,d]: f64, K[b,h,n,d]: f64, V[b,h,n,e]: f64
output O: f64
S[b,h,m,n] = sum(d) Q[b,h,m,d] * K[b,h,n,d] / sqrt(D)
P[b,h,m,n] = exp(S[b,h,m,n] - max(n) S[b,h,m,n])
O[b,h,m,e] = sum(n) P[b,h,m,n] / (sum(n) P[b,h,m,n]) * V[b,h,n,e]\n",
    );
    let [b, h, m, n, d, e] = [2, 3, 5, 7, 4, 6];
    let array = |seed, shape: [usize; 4]| Array { shape: shape.to_vec(), values: noise(seed, shape.iter().product()) };
    let (q, k, v) = (array(1, [b, h, m, d]), array(2, [b, h, n, d]), array(3, [b, h, n, e]));
    let mut expected = vec![];
    for bh in 0..b * h {
        for row in q.values[bh * m * d..][..m * d].chunks(d) {
            let dot = |key: &[f64]| row.iter().zip(key).map(|(a, b)| a * b).sum::<f64>() / (d as f64).sqrt();
            let scores: Vec<f64> = k.values[bh * n * d..][..n * d].chunks(d).map(dot).collect();
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - largest).exp()).collect();
            let total: f64 = weights.iter().sum();
            for column in 0..e {
                let value = |j: usize| v.values[(bh * n + j) * e + column];
                expected.push((0..n).map(|j| weights[j] / total * value(j)).sum::<f64>());
            }
        }
    }
    let mut given = einloom_cascade::Given::default();
    let inputs: Arrays = [("Q", q), ("K", k), ("V", v)].map(|(name, a)| (name.to_owned(), a)).into();
    given.shapes.extend(inputs.iter().map(|(name, a)| (name.clone(), a.shape.clone())));
    let bound = bind(&cascade, &given).unwrap();
    let outputs = meaning::evaluate(&cascade, &bound, &inputs).unwrap();
    for (ours, theirs) in outputs["O"].values.iter().zip(&expected) {
        assert!((ours - theirs).abs() < 1e-14, "{ours} {theirs}");
    }
    assert_eq!(outputs["O"].shape, [b, h, m, e]);
}
