//! Sizes: what is found from what is given, and what is said where that does not work.

use einloom_cascade::{BindError, Cascade, Given, bind, parse, undecided_reads, unproven_reads};

fn cascade(program: &str) -> Cascade {
    let parsed = parse(program);
    let errors: Vec<_> = parsed.diagnostics.iter().filter(|d| d.is_error()).collect();
    assert!(errors.is_empty(), "{program}\n{errors:#?}");
    parsed.cascade
}

/// Given lines: `N = 4` is a size, `X: 2 3` a shape, `scale := 0.5` a parameter.
fn given(lines: &str) -> Given {
    let mut given = Given::default();
    for line in lines.lines().map(str::trim).filter(|l| !l.is_empty()) {
        if let Some((name, value)) = line.split_once(" := ") {
            given.params.insert(name.to_owned(), value.parse().expect("a number"));
        } else if let Some((name, size)) = line.split_once(" = ") {
            given.sizes.insert(name.to_owned(), size.parse().expect("a size"));
        } else {
            let (name, shape) = line.split_once(':').expect("a shape");
            let shape = shape.split_whitespace().map(|s| s.parse().expect("a size")).collect();
            given.shapes.insert(name.to_owned(), shape);
        }
    }
    given
}

/// The sizes that `program` gets.
#[track_caller]
fn check(program: &str, lines: &str, expected: &str) {
    let cascade = cascade(program);
    let bound = bind(&cascade, &given(lines)).unwrap_or_else(|errors| panic!("{errors:#?}"));
    let mut sizes: Vec<_> = cascade.ranks.iter().zip(bound.sizes()).map(|(r, s)| format!("{}={s}", r.name)).collect();
    sizes.sort();
    assert_eq!(sizes.join(" "), expected);
}

/// The messages that `program` gets, each with its code, place and hint.
#[track_caller]
fn check_errors(program: &str, lines: &str, expected: &[&str]) {
    let errors = bind(&cascade(program), &given(lines)).expect_err("no sizes");
    let line = |e: &BindError| {
        let place = e.span.map_or(String::new(), |s| format!(" @ {}", &program[s.range()]));
        let hint = e.hint.as_ref().map_or(String::new(), |h| format!(" ? {h}"));
        format!("{}: {}{place}{hint}", e.code, e.message)
    };
    let errors: Vec<_> = errors.iter().map(line).collect();
    assert_eq!(errors, expected, "{program}");
}

const MATMUL: &str = "input A[m,k]: f32, B[k,n]: f32\noutput C: f32\nC[m,n] = sum(k) A[m,k] * B[k,n]\n";

#[test]
fn sizes_come_from_the_caller_from_shapes_and_from_defaults() {
    check(MATMUL, "A: 2 3\nB: 3 4", "K=3 M=2 N=4");
    check(MATMUL, "A: 2 3\nN = 5", "K=3 M=2 N=5");
    check(MATMUL, "M = 0\nK = 3\nN = 1", "K=3 M=0 N=1");
    check(&format!("rank N = 7\n{MATMUL}"), "A: 2 3", "K=3 M=2 N=7");
    check(&format!("rank N = 7\n{MATMUL}"), "A: 2 3\nN = 8", "K=3 M=2 N=8");
    // Defaults may need one another, in any order.
    check(&format!("rank M = 2*K\nrank K = N + 1\n{MATMUL}"), "N = 4", "K=5 M=10 N=4");
}

const SPLIT: &str = "rank M = M1 * M0\ninput K[m]: f32\noutput Y: f32\nY[m1] = sum(m0) K[m1*M0 + m0]\n";

#[test]
fn a_default_with_one_unknown_rank_is_read_backwards() {
    check(SPLIT, "K: 12\nM0 = 4", "M0=4 M1=3 M=12");
    check(SPLIT, "K: 12\nM1 = 4", "M0=3 M1=4 M=12");
    check(SPLIT, "M0 = 5\nM1 = 4", "M0=5 M1=4 M=20");
    check(&format!("rank M0 = 6\n{SPLIT}"), "K: 12", "M0=6 M1=2 M=12");
    check_errors(
        SPLIT,
        "K: 10\nM0 = 4",
        &["inexact-size: no whole number M1 makes M = M1*M0 hold with M = 10, M0 = 4 @ m1"],
    );
}

#[test]
fn defaults_divide_exactly() {
    let grouped = "input Q[h]: f32, K[j]: f32\nrank G = H / J\noutput Y: f32\nY[h] = Q[h] + K[h / G]\n";
    check(grouped, "Q: 8\nK: 2", "G=4 H=8 J=2");
    check_errors(
        grouped,
        "Q: 8\nK: 3",
        &["inexact-size: G = H / J is 8 / 3, which is not a whole number from 0 on @ G \
           ? give `--size G=…`, or other sizes for what it depends on"],
    );
}

#[test]
fn sizes_are_at_least_zero() {
    check_errors(
        "input X[l]: f32, F[r]: f32\nrank I = L - R + 1\noutput Y: f32\nY[i] = sum(r) X[i + r] * F[r]\n",
        "X: 3\nF: 8",
        &["negative-size: I = L - R + 1 is -4, and a size is at least 0 @ I \
           ? give `--size I=…`, or other sizes for what it depends on"],
    );
}

#[test]
fn what_is_missing_unknown_or_contradictory_is_said_at_once() {
    check_errors(
        MATMUL,
        "A: 2 3\nB: 4 4\nX: 1\nP = 3\nscale := 2",
        &[
            "unknown-param: there is no parameter scale ? the cascade has no parameters",
            "unknown-rank: there is no rank P ? its ranks are M, K, N",
            "unknown-tensor: there is no input X ? its inputs are A, B",
            "contradictory-size: K is 3 by dimension 2 of A, but 4 by dimension 1 of B @ B",
        ],
    );
    check_errors(
        MATMUL,
        "A: 2 3\nM = 4",
        &[
            "contradictory-size: M is 4 by its given size, but 2 by dimension 1 of A @ A",
            "missing-size: N has no size @ n ? give `--size N=…`, or an input B",
        ],
    );
    check_errors(
        MATMUL,
        "A: 2 3 1\nB: 3 4",
        &["wrong-dimensions: A has 2 dimensions (M × K), but was given 3 (2 × 3 × 1) @ A"],
    );
    check_errors(
        "param s\ninput X[n]: f32\noutput Y: f32\nY[n] = s * X[n]\n",
        "X: 1",
        &["missing-param: the parameter s has no value @ s ? give `--param s=…`"],
    );
}

#[test]
fn tensors_fit_the_address_space() {
    check_errors(
        MATMUL,
        "M = 4294967296\nK = 4294967296\nN = 1",
        &["size-overflow: A with 4294967296 × 4294967296 elements does not fit the address space @ A"],
    );
}

#[test]
fn a_read_outside_its_tensor_is_an_error_with_its_position() {
    let convolution = "input X[l]: f32, F[r]: f32\noutput Y: f32\nY[i] = sum(r) X[i + r] * F[r]\n";
    check(convolution, "X: 10\nF: 3\nI = 8", "I=8 L=10 R=3");
    check_errors(
        convolution,
        "X: 10\nF: 3\nI = 9",
        &["out-of-range: X[i + r] reads position 10 of L, which has 10 elements, at i = 8, r = 2 @ X[i + r] \
           ? read it only where it exists: `where(i + r < L, X[i + r], 0)`, or a filter `i + r < L`"],
    );
    check_errors(
        "input X[n]: f32\noutput Y: f32\nrank G\nY[n] = X[n - G]\n",
        "X: 1\nG = 1",
        &["out-of-range: X[n - G] reads position -1 of N, which has 1 elements, at n = 0 @ X[n - G] \
           ? read it only where it exists: `where(n - G >= 0, X[n - G], 0)`, or a filter `n - G >= 0`"],
    );
    // Nothing is read over an empty rank.
    check(convolution, "X: 0\nF: 0\nI = 9", "I=9 L=0 R=0");
}

/// The reads that only evaluation can decide.
#[track_caller]
fn check_unproven(program: &str, lines: &str, expected: &[&str]) {
    let cascade = cascade(program);
    let bound = bind(&cascade, &given(lines)).unwrap_or_else(|errors| panic!("{errors:#?}"));
    let spans: Vec<_> = unproven_reads(&cascade, &bound).into_iter().map(|s| &program[s.range()]).collect();
    assert_eq!(spans, expected);
}

/// There is a read that stays open, and no gather is to blame.
#[track_caller]
fn check_undecided(program: &str, lines: &str) {
    let cascade = cascade(program);
    let bound = bind(&cascade, &given(lines)).unwrap_or_else(|errors| panic!("{errors:#?}"));
    assert_eq!(undecided_reads(&cascade, &bound).len(), 1, "{program}");
}

#[test]
fn filters_and_conditions_narrow_what_is_read() {
    let map = |expression: &str| format!("input X[n]: f32\nindex m in N\noutput Y: f32\nY[n] = {expression}\n");
    for proven in [
        "where(n > 0, X[n - 1], 0)",
        "where(n == 0, 0, X[n - 1])",
        "where(n < 1 or n > 5, 0, X[n - 1])",
        "where(n != N - 1, X[n + 1], 0)",
        "where(not (n + 1 >= N), X[n + 1], 0)",
        "sum(m: m < n) X[n - 1 - m]",
        "sum(m: m + n < N) X[m + n]",
        "sum(m: m <= n and n < N - 2) X[m + 2]",
        "where(N > 100, X[n + 1], 0)",
        // Remainders: positions that wrap around, and those inside a part.
        "X[n + 3 - (n + 3) / N * N]",
        "X[n - n / 2 * 2 + 6]",
        "X[2*n - 2*(n / 4) * 4 + 1]",
        "X[(N - 4)*n - n / 2 * 8]",
    ] {
        check_unproven(&map(proven), "X: 8", &[]);
    }
    check_unproven(&map("where(X[n] > 0, X[n + 1], 0)"), "X: 8", &["X[n + 1]"]);
    check_unproven(&map("sum(m: m <= n) X[m + n]"), "X: 8", &["X[m + n]"]);
    check_unproven("input E[v]: f32, ids[t]: i32\noutput Y: f32\nY[t] = E[ids[t]]\n", "E: 8\nids: 4", &["E[ids[t]]"]);
    // No remainders: another divisor, another part.
    check_undecided(&map("X[n + 3 - (n + 3) / 8 * 7]"), "X: 8");
    check_undecided(&map("X[n + 3 - (n + 4) / 8 * 8]"), "X: 8");
    // A condition that leaves a box decides.
    check_errors(
        &map("where(n < 6, X[n + 4], 0)"),
        "X: 8",
        &["out-of-range: X[n + 4] reads position 9 of N, which has 8 elements, at n = 5 @ X[n + 4] \
           ? read it only where it exists: `where(n + 4 < N, X[n + 4], 0)`, or a filter `n + 4 < N`"],
    );
}

#[test]
fn divisors_are_positive() {
    check_errors(
        "rank G\ninput Q[h]: f32\noutput Y: f32\nY[h] = Q[h / G]\n",
        "Q: 8\nG = 0",
        &["bad-divisor: h / G divides by 0 @ Q[h / G]"],
    );
}

#[test]
fn shapes_of_iterative_tensors_have_one_more_slice() {
    let cascade = cascade("input X[t]: f32\noutput H: f32\nH[0] = 0\nH[t+1] = H[t] + X[t]\n");
    let bound = bind(&cascade, &given("X: 3")).unwrap();
    let h = cascade.tensor("H").unwrap();
    assert_eq!(bound.shape(&cascade, h), [4]);
}

/// Whatever the sizes, there is an answer; arithmetic that leaves 64 bits is an error, not a panic.
#[test]
fn hostile_sizes_are_answered() {
    let programs = [
        MATMUL,
        SPLIT,
        "input X[l]: f32, F[r]: f32\nrank I = L - R + 1\noutput Y: f32\nY[i] = sum(r) X[i + r] * F[r]\n",
        "input X[n]: f32\nrank G\noutput Y: f32\nY[n] = where(n * G * G < N * G - 1, X[n / G + n * G], G * G * G)\n",
        "input X[t]: f32\noutput H: f32\nH[0] = 0\nH[t+1] = H[t] + X[T - 1 - t]\n",
    ];
    let sizes = [0, 1, 3, 1 << 21, 1 << 32, i64::MAX as usize - 1, i64::MAX as usize, usize::MAX];
    let mut answers = [0, 0];
    for program in programs {
        let cascade = cascade(program);
        for a in sizes {
            for b in sizes {
                let mut given = Given::default();
                // The first two ranks without a default; a third one gets 2.
                let free = cascade.ranks.iter().filter(|r| r.default.is_none());
                given.sizes.extend(free.zip([a, b, 2]).map(|(r, size)| (r.name.clone(), size)));
                let result = bind(&cascade, &given);
                answers[usize::from(result.is_ok())] += 1;
                if a == usize::MAX {
                    assert!(result.is_err(), "{program}");
                }
            }
        }
    }
    assert!(answers.iter().all(|&n| n > 50), "{answers:?}");
}
