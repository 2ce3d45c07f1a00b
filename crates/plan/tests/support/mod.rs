//! Text in, planned program out, and the comparison with the meaning.
#![allow(dead_code)]

pub mod interpret;
pub mod memory;

use einloom_algebra::{derive, flatten};
use einloom_cascade::meaning::{Array, Arrays, evaluate};
use einloom_cascade::{Bound, Cascade, DType, Given, bind, parse};
use einloom_machine::{Machine, built_in};
use einloom_plan::{Options, Plan, plan};

/// Causal attention without a softmax, with a decay per head.
pub const RETENTION: &str = "input Q[h,m,d]: f32, K[h,n,d]: f32, V[h,n,e]: f32, decay[h]: f32\noutput O: f32\n\
    S[h,m,n] = sum(d) Q[h,m,d] * K[h,n,d] / sqrt(D)\n\
    O[h,m,e] = sum(n: n <= m) S[h,m,n] * exp(-abs(decay[h]) * (m - n)) * V[h,n,e]";

/// A recurrence with a decay per step.
pub const STATE_SPACE: &str = "input X[h,t,p]: f32, a[h,t]: f32, B[t,n]: f32, C[t,n]: f32\noutput Y: f32\n\
    H[h,0,p,n] = 0\nH[h,t+1,p,n] = exp(-abs(a[h,t])) * H[h,t,p,n] + B[t,n] * X[h,t,p]\n\
    Y[h,t,p] = sum(n) C[t,n] * H[h,t+1,p,n]";

/// A machine to plan for.
pub fn machine() -> Machine {
    built_in("cpu-generic").expect("built in")
}

/// Parses a text that must be free of errors.
pub fn read(text: &str) -> Cascade {
    let parsed = parse(text);
    let errors: Vec<_> = parsed.diagnostics.iter().filter(|d| d.is_error()).map(|d| &d.message).collect();
    assert!(errors.is_empty(), "{errors:?}\n{text}");
    parsed.cascade
}

/// Binds sizes such as `M=4, N=5`.
pub fn sized(cascade: &Cascade, sizes: &str) -> Bound {
    let pairs = sizes.split(',').map(str::trim).filter(|s| !s.is_empty());
    let mut given = Given::default();
    for pair in pairs {
        let (name, size) = pair.split_once('=').expect("NAME=SIZE");
        match name.chars().next().is_some_and(char::is_lowercase) {
            true => given.params.insert(name.to_string(), size.parse().expect("a number")).map(|_| ()),
            false => given.sizes.insert(name.to_string(), size.parse().expect("a size")).map(|_| ()),
        };
    }
    bind(cascade, &given).unwrap_or_else(|e| panic!("{sizes}: {e:?}"))
}

/// Small pseudo-random inputs; integers stay small enough to be positions of the smallest rank.
pub fn inputs(cascade: &Cascade, bound: &Bound, seed: u64) -> Arrays {
    let smallest = bound.sizes().iter().copied().filter(|&s| s > 0).min().unwrap_or(1) as u64;
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 11
    };
    let mut out = Arrays::new();
    for t in cascade.inputs() {
        let shape = bound.shape(cascade, t);
        let count: usize = shape.iter().product();
        let dtype = cascade[t].dtype.unwrap_or(DType::F32);
        let values = (0..count).map(|_| {
            let v = next();
            match dtype {
                DType::B1 => (v % 2) as f64,
                d if d.is_integer() => (v % smallest) as f64,
                // A coarse grid keeps narrow types exact and makes equal maxima.
                _ => (v % 33) as f64 / 8.0 - 2.0,
            }
        });
        out.insert(cascade[t].name.clone(), Array { shape, values: values.collect() });
    }
    out
}

/// The plan of the program as derived or as written.
pub fn planned(cascade: &Cascade, bound: &Bound, derived: bool, options: &Options) -> Plan {
    planned_on(&machine(), cascade, bound, derived, options)
}

/// The same for a machine.
pub fn planned_on(machine: &Machine, cascade: &Cascade, bound: &Bound, derived: bool, options: &Options) -> Plan {
    let graph = if derived { derive(cascade).derived } else { flatten(cascade) };
    let plan = plan(&graph, bound, machine, options).unwrap_or_else(|e| panic!("{e}"));
    let defects = einloom_tile::verify(&plan.program);
    assert!(defects.is_empty(), "{defects:#?}\n{}", einloom_tile::print(&plan.program));
    plan
}

/// Whether the planned program computes what the cascade means.
pub fn check(label: &str, cascade: &Cascade, bound: &Bound, options: &Options, seed: u64) {
    check_on(&machine(), label, cascade, bound, options, seed);
}

/// The same for a machine.
pub fn check_on(machine: &Machine, label: &str, cascade: &Cascade, bound: &Bound, options: &Options, seed: u64) {
    let inputs = inputs(cascade, bound, seed);
    let expected = evaluate(cascade, bound, &inputs).unwrap_or_else(|e| panic!("{label}: {e:?}"));
    for derived in [false, true] {
        let plan = planned_on(machine, cascade, bound, derived, options);
        let text = || einloom_tile::print(&plan.program);
        let found = interpret::interpret(&plan.program, &inputs).unwrap_or_else(|e| panic!("{label}: {e}\n{}", text()));
        for (name, want) in &expected {
            let got = &found[name];
            assert_eq!(got.shape, want.shape, "{name}");
            let dtype = cascade.tensor(name).and_then(|t| cascade[t].dtype).unwrap_or(DType::F32);
            let relative = match dtype {
                DType::F64 | DType::F32 => 1e-6,
                DType::Tf32 | DType::F16 => 2e-3,
                d if d.is_integer() => 0.0,
                _ => 2e-2,
            };
            for (k, (&w, &g)) in want.values.iter().zip(&got.values).enumerate() {
                let same = w == g || w.is_nan() && g.is_nan() || (w - g).abs() <= relative * (1.0 + w.abs());
                let form = if derived { "derived" } else { "written" };
                assert!(same, "{label}: {name}[{k}] is {g}, not {w} ({form}, {:?})\n{}", bound.sizes(), text());
            }
        }
    }
}
