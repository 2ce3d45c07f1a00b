//! Every streaming form agrees with the meaning: whole, in chunks, and merged from parts, on random, adversarial and
//! degenerate inputs.
#![allow(clippy::disallowed_methods)] // The library of cascades is read from files.

use einloom_algebra::stream::{Cut, evaluate};
use einloom_algebra::{Graph, derive};
use einloom_cascade::meaning::{Array, Arrays};
use einloom_cascade::numeric::round;
use einloom_cascade::{Bound, Cascade, DType, Given, TensorId, bind, meaning};

const CUTS: [Cut; 6] = [Cut::Whole, Cut::Chunks(1), Cut::Chunks(2), Cut::Chunks(3), Cut::Parts(1), Cut::Parts(3)];

/// A small generator with a fixed seed: the tests must not depend on anything else.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.next() as f64 / (1u64 << 31) as f64).sum::<f64>() - 6.0
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Normal,
    Equal,
    Large,
    SomeMinusInfinity,
    AllMinusInfinity,
}

fn input(cascade: &Cascade, bound: &Bound, t: TensorId, kind: Kind, random: &mut Random) -> Array {
    let shape = bound.shape(cascade, t);
    let n = shape.iter().product();
    let integer = cascade[t].dtype.is_some_and(|d| d.is_integer());
    // A masked element is skipped, which equals 0 · V only where V is finite: infinities go into what is exponentiated.
    let first = cascade.inputs().next() == Some(t) || shape.len() >= 3 && cascade[t].name == "bias";
    let kind = if first { kind } else { Kind::Normal };
    let values = (0..n)
        .map(|_| match kind {
            _ if integer => (random.next() % 2) as f64,
            Kind::Normal => random.normal(),
            Kind::Equal => 0.5,
            Kind::Large => random.normal() * 12.0,
            Kind::SomeMinusInfinity => {
                if random.next().is_multiple_of(4) {
                    f64::NEG_INFINITY
                } else {
                    random.normal()
                }
            }
            Kind::AllMinusInfinity => f64::NEG_INFINITY,
        })
        .collect();
    Array { shape, values }
}

/// Sizes under which the cascade binds: one per rank, tried in a fixed order.
fn bound(cascade: &Cascade, round: usize) -> Option<Bound> {
    let pools: [&[usize]; 4] = [&[2, 3, 4, 5, 6, 7], &[1], &[4, 4, 8, 8], &[7, 5, 6, 2, 3, 1]];
    let mut given = Given::default();
    for (k, rank) in cascade.ranks.iter().enumerate() {
        if rank.default.is_none() {
            let pool = pools[round % 4];
            given.sizes.insert(rank.name.clone(), pool[k % pool.len()]);
        }
    }
    given.params.extend(cascade.params.iter().filter(|p| p.default.is_none()).map(|p| (p.name.clone(), 0.5)));
    if round == 4 {
        // The reduced index of the outermost reduction is over nothing.
        let last = cascade.ranks.iter().rev().find(|r| r.default.is_none())?.name.clone();
        given.sizes.insert(last, 0);
    }
    bind(cascade, &given).ok()
}

/// Equal up to rounding: also what lies halfway between two numbers of the output's type may go to either. Where the
/// meaning is not a number the form must not invent one: it is not finite either.
fn close(dtype: DType, a: f64, b: f64) -> bool {
    let halfway = |x: f64| (round(dtype, x * (1.0 - 1e-9)), round(dtype, x * (1.0 + 1e-9)));
    a == b
        || (a.is_nan() && !b.is_finite())
        || (a - b).abs() <= 1e-9 * (1.0 + a.abs().max(b.abs()))
        || [(a, b), (b, a)].contains(&halfway((a + b) / 2.0))
}

fn check(name: &str, text: &str) {
    let parsed = einloom_cascade::parse(text);
    assert!(!parsed.diagnostics.iter().any(|d| d.is_error()), "{name}: {:?}", parsed.diagnostics);
    let cascade = parsed.cascade;
    let d = derive(&cascade);
    let mut random = Random(17);
    let mut tried = 0;
    for round in 0..5 {
        let Some(bound) = bound(&cascade, round) else { continue };
        for kind in [Kind::Normal, Kind::Equal, Kind::Large, Kind::SomeMinusInfinity, Kind::AllMinusInfinity] {
            let inputs: Arrays = cascade
                .inputs()
                .map(|t| (cascade[t].name.clone(), input(&cascade, &bound, t, kind, &mut random)))
                .collect();
            let Ok(expected) = meaning::evaluate(&cascade, &bound, &inputs) else { continue };
            let expected = typed(&cascade, expected);
            let place = format!("{name}, sizes {:?}, {kind:?} inputs", bound.sizes());
            agree(&d.written, &bound, &inputs, Cut::Whole, &expected, &format!("{place}, as written"));
            for cut in CUTS {
                agree(&d.derived, &bound, &inputs, cut, &expected, &format!("{place}, derived, {cut:?}"));
                // Sums in another order meet 0·inf where the written order does not.
                let finite = !matches!(kind, Kind::SomeMinusInfinity | Kind::AllMinusInfinity);
                let enough = matches!(cut, Cut::Whole | Cut::Chunks(2) | Cut::Parts(3));
                for a in d.alternatives.iter().filter(|_| finite && enough) {
                    agree(&a.derived, &bound, &inputs, cut, &expected, &format!("{place}, {}, {cut:?}", a.name));
                }
            }
            tried += 1;
        }
    }
    assert!(tried >= 5, "{name}: no sizes fit");
}

type Expected = [(DType, String, Array)];

/// Outputs with their number types.
fn typed(cascade: &Cascade, outputs: Arrays) -> Vec<(DType, String, Array)> {
    let dtype = |name: &str| cascade.tensors.iter().find(|t| t.name == name).and_then(|t| t.dtype);
    outputs.into_iter().map(|(name, array)| (dtype(&name).unwrap_or(DType::F32), name, array)).collect()
}

fn agree(graph: &Graph, bound: &Bound, inputs: &Arrays, cut: Cut, expected: &Expected, place: &str) {
    let got = evaluate(graph, bound, inputs, cut).unwrap_or_else(|| panic!("{place}: reads outside"));
    for (dtype, name, e) in expected {
        for (k, (&a, &b)) in e.values.iter().zip(&got[name].values).enumerate() {
            assert!(close(*dtype, a, b), "{place}: {name}[{k}] should be {a}, is {b}");
        }
    }
}

#[test]
fn every_cascade_of_the_library() {
    let root = format!("{}/../../cascades", env!("CARGO_MANIFEST_DIR"));
    let mut count = 0;
    for folder in [root.clone(), format!("{root}/published")] {
        for entry in std::fs::read_dir(&folder).expect("the library is there") {
            let path = entry.expect("readable").path();
            if path.extension().is_some_and(|e| e == "ein") {
                check(&path.display().to_string(), &std::fs::read_to_string(&path).expect("readable"));
                count += 1;
            }
        }
    }
    assert!(count >= 40, "only {count} cascades found");
}

/// Programs that are in no library: normalisers, scales, filters and statistics in other combinations.
#[test]
fn programs_nobody_listed() {
    let programs = [
        // The exponent is scaled by a parameter of unknown sign.
        "param s\ninput X[m,n]: f64, V[n,e]: f64\noutput O: f64\nP[m,n] = exp(s * (X[m,n] - max(n) X[m,n]))\nO[m,e] = sum(n) P[m,n] / (sum(n) P[m,n]) * V[n,e]",
        // Normalised by the log-sum-exp in the exponent.
        "input X[m,n]: f64, V[n,e]: f64\noutput O: f64\nL[m] = logsumexp(n) X[m,n]\nO[m,e] = sum(n) exp(X[m,n] - L[m]) * V[n,e]",
        // Anchored at the mean: the running mean is no bound.
        "input X[m,n]: f64\noutput Z: f64\nmu[m] = mean(n) X[m,n]\nZ[m] = sum(n) exp(X[m,n] - mu[m])",
        // Powers of two, a product of two normalisers.
        "input X[m,n]: f64, W[n]: f64\noutput O: f64\nP[m,n] = exp2(X[m,n] - max(n) X[m,n])\nO[m] = sum(n) P[m,n] * W[n] / ((sum(n) P[m,n]) * sqrt(sum(n) W[n]^2))",
        // A filter written as where, with a strict bound and an offset.
        "input X[m,n]: f64\noutput Z: f64\nS[m,n] = where(n + 1 > m, X[m,n], -inf)\nZ[m] = sum(n) exp(S[m,n] - max(n) S[m,n])",
        // Maximum of a normalised row.
        "input X[m,n]: f64\noutput A: f64\nr[m] = rsqrt(mean(n) X[m,n]^2 + 0.001)\nA[m] = max(n) abs(X[m,n] * r[m])",
        // The extremum of what is shifted by another statistic.
        "input X[m,n]: f64\noutput A: f64\nA[m] = max(n) (X[m,n] - mean(n) X[m,n])",
        // Three dependent reductions.
        "input X[m,n]: f64, V[n]: f64\noutput O: f64\nz[m] = sum(n) exp(X[m,n] - max(n) X[m,n])\no[m] = sum(n) exp(X[m,n] - max(n) X[m,n]) / z[m] * V[n]\nO[m] = sum(n) exp(X[m,n] - max(n) X[m,n]) * (V[n] / z[m]) / o[m]",
        // Positions of extrema, ties included, under a filter.
        "input X[m,n]: f64\noutput A: i32, B: i32\nA[m] = argmax(n: n <= m) round(X[m,n])\nB[m] = argmin(n) round(X[m,n])",
        // The exponential is itself an output: nothing may be shifted.
        "input X[m,n]: f64\noutput Z: f64, L: f64\nZ[m] = sum(n) exp(X[m,n] / 8)\nL[m] = log(Z[m])",
        // A user's monoid beside a sum that waits for it.
        "monoid lse(a, b) = max(a, b) + log1p(exp(-abs(a - b))) identity -1000\ninput X[m,n]: f64\noutput O: f64\nc[m] = reduce lse(n) X[m,n]\nO[m] = sum(n) exp(X[m,n] - c[m])",
        // A product over what depends on a sum is refused, not mis-derived.
        "input X[m,n]: f64\noutput O: f64\nO[m] = prod(n) (X[m,n] / (1 + sum(n) X[m,n]^2))",
        // A number and a scalar beside what is summed.
        "input X[m,n]: f64, c: f64\noutput Z: f64\nZ[m] = sum(n) 2 * X[m,n] * c",
        // The covariance of two rows.
        "input X[m,n]: f64, Y[m,n]: f64\noutput C: f64\nC[m] = mean(n) ((X[m,n] - mean(n) X[m,n]) * (Y[m,n] - mean(n) Y[m,n]))",
        // A maximum whose target carries an index that it does not read, read at another one.
        "index c, k, z in C\ninput X[c,z]: f64, Y[c,k,z]: f64\noutput O: f64\nU[c] = 0\nV[c] = max(k) (U[k] - 1) * X[k,k]\nO[c,k] = sum(z) (Y[c,k,z] / (sum(z) Y[c,k,z]^2) + V[k])",
        // A recurrence beside a softmax.
        "input X[t,n]: f64\noutput H: f64\nH[0,n] = 0\nH[t+1,n] = 0.5 * H[t,n] + X[t,n] / (1 + sum(n) X[t,n]^2)",
    ];
    for (k, text) in programs.iter().enumerate() {
        check(&format!("program {k}"), text);
    }
}

/// Statistics and what is near them, in no library either.
#[test]
fn statistics_nobody_listed() {
    let programs = [
        // The fourth moment over the square of the second.
        "input X[m,n]: f64\noutput G: f64\nmu[m] = mean(n) X[m,n]\nG[m] = (mean(n) (X[m,n] - mu[m])^4) / (mean(n) (X[m,n] - mu[m])^2 + 0.1)^2",
        // Differences from the maximum: the mean is the anchor all the same.
        "input X[m,n]: f64\noutput G: f64\nG[m] = sum(n) (X[m,n] - max(n) X[m,n])^2",
        // Under a filter the running count is not the size.
        "input X[m,n]: f64\noutput G: f64\nmu[m] = mean(n: n <= m) X[m,n]\nG[m] = sum(n: n <= m) (X[m,n] - mu[m])^2",
        // The mean of all, the differences of some.
        "input X[m,n]: f64\noutput G: f64\nmu[m] = mean(n) X[m,n]\nG[m] = sum(n: n <= m) (X[m,n] - mu[m])^2",
        // Min-max scaling.
        "input X[m,n]: f64, w[n]: f64\noutput G: f64\nlo[m] = min(n) X[m,n]\nhi[m] = max(n) X[m,n]\nG[m] = sum(n) w[n] * (X[m,n] - lo[m]) / (hi[m] - lo[m] + 1)",
        // Weights that cannot be negative.
        "input X[m,n]: f64, w[n]: f64\noutput G: f64\nmu[m] = (sum(n) w[n]^2 * X[m,n]) / (sum(n) w[n]^2)\nG[m] = (sum(n) w[n]^2 * (X[m,n] - mu[m])^2) / (sum(n) w[n]^2)",
        // Weights of any sign: the mean counts every position once.
        "input X[m,n]: f64, w[n]: f64\noutput G: f64\nmu[m] = mean(n) X[m,n]\nG[m] = sum(n) w[n] * (X[m,n] - mu[m])^3",
        // An exponential of a scaled difference.
        "param a = 0.5\ninput X[m,n]: f64\noutput G: f64\nG[m] = sum(n) exp(a * (X[m,n] - mean(n) X[m,n]))",
        // An exponential and a power of the same difference.
        "input X[m,n]: f64\noutput G: f64\nmu[m] = mean(n) X[m,n]\nG[m] = sum(n) exp(X[m,n] - mu[m]) * (X[m,n] - mu[m])^2",
        // Differences of two normalised rows: no mean in the text.
        "input X[m,n]: f64, Y[m,n]: f64\noutput G: f64\nr[m] = rsqrt(mean(n) X[m,n]^2 + 0.1)\ns[m] = rsqrt(mean(n) Y[m,n]^2 + 0.1)\nG[m] = sum(n) (X[m,n] * r[m] - Y[m,n] * s[m])^2",
        // Three and four levels: moments of standardised values about their own third moment.
        "input X[m,n]: f64\noutput G: f64\nmu[m] = mean(n) X[m,n]\nsd[m] = sqrt(mean(n) (X[m,n] - mu[m])^2 + 0.01)\nZ[m,n] = (X[m,n] - mu[m]) / sd[m]\nq[m] = mean(n) Z[m,n]^3\nG[m] = mean(n) (Z[m,n] - q[m])^2",
        // A piecewise statistic is refused; the variance of its result still takes one traversal.
        "input X[m,n]: f64\noutput G: f64\nY[m,n] = relu(X[m,n] - mean(n) X[m,n])\nG[m] = mean(n) (Y[m,n] - mean(n) Y[m,n])^2",
        // A softmax of what had to wait.
        "input X[m,n]: f64, V[n,e]: f64\noutput O: f64\nY[m,n] = relu(X[m,n] - mean(n) X[m,n])\nP[m,n] = exp(Y[m,n] - max(n) Y[m,n])\nO[m,e] = sum(n) P[m,n] / (sum(n) P[m,n]) * V[n,e]",
        // A sum of two squares.
        "input X[m,n]: f64, Y[m,n]: f64\noutput G: f64\nG[m] = sum(n) ((X[m,n] - mean(n) X[m,n])^2 + (Y[m,n] - mean(n) Y[m,n])^2)",
        // The sum itself is wanted.
        "input X[m,n]: f64\noutput s: f64, V: f64\ns[m] = sum(n) X[m,n]\nV[m] = sum(n) (X[m,n] - s[m] / N)^2",
        // Integers.
        "input X[m,n]: i8\noutput V: f64\nV[m] = mean(n) (X[m,n] - mean(n) X[m,n])^2",
        // Deviations from the mean sum to nothing.
        "input X[m,n]: f64\noutput V: f64\nV[m] = sum(n) (X[m,n] - mean(n) X[m,n])",
        // Another name for the same rank.
        "index n, k in N\ninput X[m,n]: f64\noutput V: f64\nmu[m] = mean(k) X[m,k]\nV[m] = sum(n) (X[m,n] - mu[m])^2",
        // Conditions written as where, about a value that is no mean.
        "input X[m,n]: f64\noutput V: f64\nmu[m] = sum(n) where(n <= m, X[m,n], 0)\nV[m] = sum(n) where(n <= m, (X[m,n] - mu[m])^2, 0)",
        // A sum whose addends separate differently, a maximum beside a mean.
        "input X[m,n]: f64\noutput G: f64\nG[m] = sum(n) (1 + exp(X[m,n] - max(n) X[m,n]) - X[m,n] * mean(n) X[m,n])",
        // One reduction in two wordings.
        "input X[m,n]: f64\noutput R: f64, Q: f64\nZ[m] = sum(n) X[m,n]^2\nR[m] = sum(n) X[m,n] / sqrt(Z[m] + 1)\nQ[m] = sum(n) X[m,n] * X[m,n]",
        // A sum of differences from no mean: infinite where an element is.
        "input X[m,n]: f64, w[n]: f64\noutput G: f64\nG[m] = sum(n: n <= m) (X[m,n] - max(n) w[n])",
        // Refused: a reciprocal.
        "input X[m,n]: f64\noutput G: f64\nG[m] = sum(n) 1 / (1 + X[m,n]^2 + (mean(n) X[m,n])^2)",
        // Refused: a broken power.
        "input X[m,n]: f64\noutput V: f64\nV[m] = sum(n) (X[m,n] - min(n) X[m,n])^1.5",
        // Refused: a rounded difference.
        "input X[m,n]: f64\noutput V: f64\nD[m,n]: bf16 = X[m,n] - mean(n) X[m,n]\nV[m] = sum(n) D[m,n]^2",
        // Refused: the exponent multiplies.
        "input X[m,n]: f64\noutput G: f64\nG[m] = sum(n) exp(-(X[m,n] - mean(n) X[m,n])^2)",
        // Refused: a logarithm of a sum.
        "input X[m,n]: f64\noutput G: f64\nG[m] = sum(n) log(1 + exp(X[m,n] - mean(n) X[m,n]))",
        // Refused: pieces.
        "input X[m,n]: f64\noutput G: f64\nG[m] = mean(n) abs(X[m,n] - mean(n) X[m,n])",
    ];
    for (k, text) in programs.iter().enumerate() {
        check(&format!("statistic {k}"), text);
    }
}

/// Far from zero `E[x²] - E[x]²` has lost every digit that matters; moments about a running mean have not.
#[test]
fn statistics_far_from_zero() {
    let programs = [
        "input X[m,n]: f64\noutput V: f64\nV[m] = var(n) X[m,n]",
        "input X[m,n]: f64, Y[m,n]: f64\noutput C: f64\nC[m] = mean(n) (X[m,n] - mean(n) X[m,n]) * (Y[m,n] - mean(n) Y[m,n])",
        "input X[m,n]: f64, w[n]: f64\noutput V: f64\nz = sum(n) w[n]^2\nmu[m] = sum(n) w[n]^2 * X[m,n] / z\nV[m] = sum(n) w[n]^2 * (X[m,n] - mu[m])^2 / z",
        "input X[m,n]: f64\noutput G: f64\nmu[m] = mean(n) X[m,n]\nG[m] = mean(n) (X[m,n] - mu[m])^4",
        "input X[m,n]: f64\noutput V: f64\nV[m] = mean(n) (X[m,n] - max(n) X[m,n])^2",
    ];
    for text in programs {
        let cascade = einloom_cascade::parse(text).cascade;
        let d = derive(&cascade);
        let given = Given { sizes: [("M".into(), 3), ("N".into(), 40)].into(), ..Given::default() };
        let bound = bind(&cascade, &given).expect("binds");
        let mut random = Random(5);
        let inputs: Arrays = cascade
            .inputs()
            .map(|t| {
                let mut array = input(&cascade, &bound, t, Kind::Normal, &mut random);
                if cascade[t].name != "w" {
                    array.values.iter_mut().for_each(|v| *v += 1e6);
                }
                (cascade[t].name.clone(), array)
            })
            .collect();
        let expected = typed(&cascade, meaning::evaluate(&cascade, &bound, &inputs).expect("a meaning"));
        for cut in CUTS {
            let got = evaluate(&d.derived, &bound, &inputs, cut).expect("reads inside");
            for (_, name, e) in &expected {
                for (&a, &b) in e.values.iter().zip(&got[name].values) {
                    assert!((a - b).abs() <= 1e-8 * (a.abs() + 0.01), "{text}, {cut:?}: {name} should be {a}, is {b}");
                }
            }
        }
    }
}

/// A program with inputs that are made from random ones, M=3 and N=40: what is derived is as precise as what is written.
fn as_precise(text: &str, make: &dyn Fn(&str, usize, f64, &Arrays) -> f64) {
    let parsed = einloom_cascade::parse(text);
    assert!(!parsed.diagnostics.iter().any(|d| d.is_error()), "{text}: {:?}", parsed.diagnostics);
    let cascade = parsed.cascade;
    let d = derive(&cascade);
    let given = Given { sizes: [("M".into(), 3), ("N".into(), 40)].into(), ..Given::default() };
    let bound = bind(&cascade, &given).expect("binds");
    let mut random = Random(5);
    let mut inputs = Arrays::new();
    for t in cascade.inputs() {
        let mut array = input(&cascade, &bound, t, Kind::Normal, &mut random);
        let name = cascade[t].name.clone();
        array.values = array.values.iter().enumerate().map(|(k, &v)| make(&name, k, v, &inputs)).collect();
        inputs.insert(name, array);
    }
    let expected = typed(&cascade, meaning::evaluate(&cascade, &bound, &inputs).expect("a meaning"));
    for cut in CUTS {
        let got = evaluate(&d.derived, &bound, &inputs, cut).expect("reads inside");
        for (_, name, e) in &expected {
            for (&a, &b) in e.values.iter().zip(&got[name].values) {
                assert!(
                    a.is_finite() && (a - b).abs() <= 1e-7 * a.abs(),
                    "{text}, {cut:?}: {name} should be {a}, is {b}"
                );
            }
        }
    }
}

/// What is small because it cancels in every element cancels in what is derived too: `Y` is nearly a multiple of `X`.
#[test]
fn what_cancels_still_does() {
    let programs = [
        // The distance of two unit vectors.
        "input X[m,n]: f64, Y[m,n]: f64\noutput R: f64\nx[m] = sqrt(sum(n) X[m,n]^2)\ny[m] = sqrt(sum(n) Y[m,n]^2)\nR[m] = sqrt(sum(n) (X[m,n] / x[m] - Y[m,n] / y[m])^2)",
        // The residual of a regression.
        "input X[m,n]: f64, Y[m,n]: f64\noutput R: f64\nmx[m] = mean(n) X[m,n]\nmy[m] = mean(n) Y[m,n]\nB[m] = (sum(n) (X[m,n] - mx[m]) * (Y[m,n] - my[m])) / sum(n) (X[m,n] - mx[m])^2\nR[m] = sqrt(sum(n) (Y[m,n] - my[m] - B[m] * (X[m,n] - mx[m]))^2)",
        // The error of a projection.
        "input X[m,n]: f64, Y[m,n]: f64\noutput O: f64\na[m] = (sum(n) X[m,n] * Y[m,n]) / sum(n) X[m,n]^2\nO[m] = sum(n) (Y[m,n] - a[m] * X[m,n])^2",
        // Differences of standardised values, and their product with another such difference.
        "input X[m,n]: f64, Y[m,n]: f64\noutput O: f64\nmx[m] = mean(n) X[m,n]\nmy[m] = mean(n) Y[m,n]\nsx[m] = sqrt(mean(n) (X[m,n] - mx[m])^2)\nsy[m] = sqrt(mean(n) (Y[m,n] - my[m])^2)\nO[m] = mean(n) ((X[m,n] - mx[m]) / sx[m] - (Y[m,n] - my[m]) / sy[m])^2",
        // Squared distances from the variance, where all are nearly alike.
        "input X[m,n]: f64, S[m,n]: f64\noutput G: f64\nZ[m,n] = where(n < N / 2, 1, -1) * (1 + S[m,n])\nmu[m] = mean(n) Z[m,n]\nv[m] = mean(n) (Z[m,n] - mu[m])^2\nG[m] = sqrt(mean(n) ((Z[m,n] - mu[m])^2 - v[m])^2)",
    ];
    for text in programs {
        as_precise(text, &|name, k, v, made| match name {
            "Y" => 3.0 * made["X"].values[k] + 1e-6 * v,
            "S" => 1e-6 * v,
            _ => v,
        });
    }
}

/// Logarithms of weights far from 0, summed with their weights: of all rows at once as of each row.
#[test]
fn entropies_of_distant_scores() {
    let weights = "input X[m,n]: f64, W[m,n]: f64\noutput H: f64\nS[m,n] = -1e11 * (X[m,n] + 5)^2\n\
        l[m,n] = S[m,n] - logsumexp(n) S[m,n]\n";
    for sum in ["H[m] = sum(n) exp(l[m,n]) * (l[m,n] + W[m,n])", "H = sum(m,n) exp(l[m,n]) * (l[m,n] + W[m,n])"] {
        as_precise(&format!("{weights}{sum}\n"), &|_, _, v, _| v);
    }
}

/// A step visits the elements of its slice and no others: with all of them at every step this would take hours.
#[test]
fn long_recurrences() {
    let text = "input X[t,e]: f64\noutput Y: f64\nS[0,e] = 0\nS[t+1,e] = S[t,e] / 2 + X[t,e]\nY[t,e] = S[t+1,e]\n";
    let cascade = einloom_cascade::parse(text).cascade;
    let given = Given { sizes: [("T".into(), 200_000), ("E".into(), 2)].into(), ..Given::default() };
    let bound = bind(&cascade, &given).expect("binds");
    let x = Array { shape: vec![200_000, 2], values: vec![1.0; 400_000] };
    let inputs: Arrays = [("X".to_string(), x)].into();
    let got = evaluate(&derive(&cascade).derived, &bound, &inputs, Cut::Whole).expect("reads inside");
    assert_eq!(got["Y"].values[399_998..], [2.0, 2.0]);
}

/// A power of a quotient is a number where the quotient of powers is none: in f64 a fourth power of 1e90 is not.
#[test]
fn powers_of_quotients_stay_in_range() {
    let programs = [
        // Skewness and kurtosis.
        "input X[m,n]: f64\noutput G, H: f64\nmu[m] = mean(n) X[m,n]\ns[m] = sqrt(mean(n) (X[m,n] - mu[m])^2)\nZ[m,n] = (X[m,n] - mu[m]) / s[m]\nG[m] = mean(n) Z[m,n]^3\nH[m] = mean(n) Z[m,n]^4 - 3",
        "input X[m,n]: f64\noutput H: f64\nmu[m] = mean(n) X[m,n]\nr[m] = rsqrt(mean(n) (X[m,n] - mu[m])^2)\nH[m] = mean(n) ((X[m,n] - mu[m]) * r[m])^6",
        // About something else than the mean.
        "input X[m,n]: f64\noutput H: f64\nc[m] = max(n) X[m,n]\na[m] = sum(n) abs(X[m,n])\nH[m] = mean(n) ((X[m,n] - c[m]) / a[m])^4",
        // Comoments of two rows.
        "input X[m,n]: f64, U[m,n]: f64\noutput H: f64\nmx[m] = mean(n) X[m,n]\nmu[m] = mean(n) U[m,n]\nsx[m] = sqrt(mean(n) (X[m,n] - mx[m])^2)\nsu[m] = sqrt(mean(n) (U[m,n] - mu[m])^2)\nH[m] = mean(n) ((X[m,n] - mx[m]) / sx[m])^2 * ((U[m,n] - mu[m]) / su[m])^2",
        // Shares of a total.
        "input X[m,n]: f64\noutput L: f64\na[m] = sum(n) abs(X[m,n])\nL[m] = sum(n) (X[m,n] / a[m])^4",
        "input X[m,n]: f64\noutput L: f64\nparam p = 3.5\na[m] = sum(n) abs(X[m,n])\nL[m] = sum(n) (abs(X[m,n]) / a[m])^p",
        "input X[m,n]: f64, w[n]: f64\noutput L: f64\na[m] = sqrt(sum(n) X[m,n]^2)\nL[m] = sum(n) abs(w[n]) * (abs(X[m,n]) / a[m])^3",
        // Divided by what is given.
        "input X[m,n]: f64, U[m,n]: f64\noutput L: f64\na[m] = max(n) abs(U[m,n])\nL[m] = sum(n) (X[m,n] / a[m])^4",
        "input X[m,n]: f64, s[m]: f64\noutput L: f64\nL[m] = sum(n) (X[m,n] / s[m])^4",
    ];
    for text in programs {
        for scale in [1.0, 1e90, 1e-100] {
            let places = |k: usize| if k % 40 < 3 { 0.0 } else { 1.0 };
            as_precise(text, &|name, _, v, _| if name == "w" { v } else { v * scale });
            // Nothing but zeros at first.
            as_precise(text, &|name, k, v, _| match name {
                "w" => v,
                "s" => v * scale,
                _ => v * scale * places(k),
            });
            // Far from zero.
            as_precise(text, &|name, _, v, _| if name == "w" { v } else { (v + 10.0) * scale });
        }
    }
}

/// What leaves a function with pieces changes no element's piece.
#[test]
fn pieces_that_stay() {
    let programs = [
        "input X[m,n]: f64, w[n]: f64\noutput O: f64\ns[m] = sqrt((mean(n) X[m,n]^2) + 1e-6)\nO[m] = sum(n) relu(X[m,n] / s[m]) * w[n]",
        "input X[m,n]: f64, w[n]: f64\noutput O: f64\nr[m] = rsqrt((mean(n) X[m,n]^2) + 1e-6)\nO[m] = sum(n) relu(X[m,n] * r[m])^2 * w[n]",
        "input X[m,n]: f64, w[n]: f64\noutput O: f64\nr[m] = rsqrt((mean(n) X[m,n]^2) + 1e-6)\nO[m] = sum(n) sign(X[m,n] * r[m]) * w[n]",
        "input X[m,n]: f64, w[n]: f64\noutput O: f64\nr[m] = rsqrt((mean(n) X[m,n]^2) + 1e-6)\nO[m] = sum(n) where(X[m,n] * r[m] > 0, X[m,n] * r[m], 0.1 * X[m,n] * r[m]) * w[n]",
        "input X[m,n]: f64, w[n]: f64\noutput O: f64\nr[m] = sum(n) abs(X[m,n])\nO[m] = sum(n) min(X[m,n] * r[m], 0) * w[n]",
        "input X[m,n]: f64\noutput G: f64\nG[m] = sum(n) abs(X[m,n] - max(n) X[m,n])",
        "input X[m,n]: f64, w[n]: f64\noutput G: f64\nG[m] = sum(n) (relu(2 * (min(n) X[m,n]) - 2 * X[m,n]) + w[n] * relu(X[m,n] - min(n) X[m,n]))",
        "input X[m,n]: f64, Y[m,n]: f64\noutput O: f64\na[m] = mean(n) X[m,n]\nO[m] = sum(n) max(X[m,n] - a[m], Y[m,n] - a[m])",
        "input X[m,n]: f64, Y[m,n]: f64\noutput O: f64\na[m] = mean(n) X[m,n]^2\nO[m] = max(n) min(X[m,n] * a[m], Y[m,n] * a[m])",
        "input X[m,n]: f64\noutput L: f64\na[m] = max(n) abs(X[m,n])\nL[m] = sum(n) (abs(X[m,n]) / a[m])^2.5",
        "param p = 3\ninput X[m,n]: f64\noutput L: f64\na[m] = max(n) abs(X[m,n])\nL[m] = sum(n) (abs(X[m,n]) / (a[m] + 1))^p",
        // The sign is not known, the maximum is of others: nothing may leave.
        "input X[m,n]: f64\noutput O: f64\nmu[m] = mean(n) X[m,n]\nO[m] = sum(n) relu(X[m,n] * mu[m])",
        "input X[m,n]: f64\noutput O: f64\nlo[m] = min(n: n <= m) X[m,n]\nO[m] = sum(n) abs(X[m,n] - lo[m])",
        "index n, k in N\ninput X[m,n]: f64\noutput O: f64\nO[m] = sum(n) abs(X[m,n] - (max(k) X[m,k]) / 2)",
    ];
    for text in programs {
        as_precise(text, &|_, _, v, _| v);
        as_precise(text, &|_, _, v, _| v * 1e-3 - 5.0);
    }
}

/// A NaN is as extreme as can be, and the first one stands, wherever the cuts are.
#[test]
fn positions_of_extrema_among_nans() {
    let text = "input X[n]: f64\noutput A: i32, B: i32, C: i32\n\
        A = argmax(n) X[n]\nB = argmin(n) X[n]\nC = argmax(n: n > 1) X[n]";
    let cascade = einloom_cascade::parse(text).cascade;
    let d = derive(&cascade);
    let nan = f64::NAN;
    for values in [vec![1.0, nan, 3.0, nan, 2.0], vec![nan; 5], vec![5.0, 1.0, nan, 0.0, 7.0], vec![f64::INFINITY, nan]]
    {
        let given = Given { sizes: [("N".to_string(), values.len())].into(), ..Given::default() };
        let bound = bind(&cascade, &given).expect("sizes fit");
        let inputs: Arrays = [("X".to_string(), Array { shape: vec![values.len()], values: values.clone() })].into();
        let expected = typed(&cascade, meaning::evaluate(&cascade, &bound, &inputs).expect("a meaning"));
        for cut in CUTS {
            agree(&d.derived, &bound, &inputs, cut, &expected, &format!("{values:?}, {cut:?}"));
        }
    }
}
