//! When an operand of f32 is rounded to the narrower type of the other: only if it provably has a number there.

mod support;

use einloom_algebra::derive;
use einloom_machine::{HostFacts, Machine, built_in, host};
use einloom_plan::{Options, plan};
use support::{read, sized};

/// What the plan of a program for a GPU says of roundings, without the names of the sums.
fn roundings(text: &str, sizes: &str) -> Vec<String> {
    roundings_on(&built_in("h200").expect("a machine"), text, sizes)
}

fn roundings_on(machine: &Machine, text: &str, sizes: &str) -> Vec<String> {
    let cascade = read(text);
    let options = Options { narrow_contractions: true, ..Options::default() };
    let planned = plan(&derive(&cascade).derived, &sized(&cascade, sizes), machine, &options);
    let planned = planned.unwrap_or_else(|e| panic!("{e}"));
    let notes = planned.kernels.iter().flat_map(|k| &k.notes).filter(|n| n.contains("rounded to"));
    let mut all: Vec<String> = notes.map(|n| n.split_once(": ").map_or("", |n| n.1).to_string()).collect();
    all.sort();
    all.dedup();
    all
}

const NARROWER: &str = "the wider operand is rounded to f16, the type of the narrower one";
const BOTH: &str = "both operands are rounded to bf16, because the wider one may leave f16";

#[test]
fn what_a_maximum_bounds_is_rounded_to_f16() {
    let head = "input Q[m,d]: f16, K[n,d]: f16, V[n,e]: f16\noutput O: f32\n";
    let scores = "S[m,n] = (sum(d) Q[m,d] * K[n,d]) / sqrt(D)\n";
    for rest in [
        "A[m,n] = softmax(n) S[m,n]\nO[m,e] = sum(n) A[m,n] * V[n,e]\n",
        "A[m,n] = softmax(n) where(n <= m, min(S[m,n], 30), -inf)\nO[m,e] = sum(n) A[m,n] * V[n,e]\n",
        "P[m,n] = exp(S[m,n] - max(n: n <= m) S[m,n])\n\
         O[m,e] = sum(n: n <= m) P[m,n] / (sum(n: n <= m) P[m,n]) * V[n,e]\n",
        "O[m,e] = sum(n) sigmoid(S[m,n]) * V[n,e]\n",
    ] {
        let text = format!("{head}{scores}{rest}");
        assert_eq!(roundings(&text, "M=2048, N=2048, D=128, E=128"), [NARROWER], "{text}");
    }
}

#[test]
fn what_may_leave_f16_is_not_rounded_to_it() {
    for (factor, what) in [
        ("exp(X[m,k])", BOTH),
        ("X[m,k] * rsqrt(Z[k] + 1e-5)", BOTH),
        // A maximum over fewer elements bounds no others.
        ("max(X[m,k] - max(k: k <= m) X[m,k], 0)", BOTH),
        ("max(X[m,k] - max(k) X[m,k], -1)", NARROWER),
        // Everything of a narrow input that is no larger than it.
        ("max(X[m,k], 0)", NARROWER),
        ("tanh(X[m,k]) + 1", NARROWER),
        ("min(max(X[m,k] * X[m,k], 0), 6)", NARROWER),
        ("X[m,k] + 1", BOTH),
    ] {
        let text = format!(
            "input X[m,k]: f16, W[k,n]: f16, Z[k]: f32\noutput Y: f32\nA[m,k] = {factor}\n\
             Y[m,n] = sum(k) A[m,k] * W[k,n]\n"
        );
        assert_eq!(roundings(&text, "M=512, K=512, N=512"), [what], "{factor}");
    }
}

/// A processor with so many cores, AVX-512 and AMX.
fn processor(cores: usize) -> Machine {
    let features = ["avx512f", "amx_tile", "amx_bf16"].map(str::to_string).to_vec();
    host(&HostFacts { cores, hertz: 3e9, features, ..HostFacts::default() })
}

#[test]
fn processors_round_what_their_unit_multiplies_faster_however_many_cores_they_have() {
    let text = |dtype: &str| {
        format!(
            "input S[m,n]: f32, V[n,e]: {dtype}\noutput O: f32\nO[m,e] = sum(n) exp(S[m,n] - max(n) S[m,n]) * V[n,e]\n"
        )
    };
    let bf16 = "the wider operand is rounded to bf16, the type of the narrower one";
    for cores in [1, 2, 7, 64] {
        for sizes in ["M=40, N=40, E=24", "M=4096, N=4096, E=64"] {
            let with = |dtype| roundings_on(&processor(cores), &text(dtype), sizes);
            assert_eq!(with("bf16"), [bf16], "{cores} cores, {sizes}");
            assert_eq!(with("f16"), [""; 0], "{cores} cores, {sizes}");
        }
    }
}
