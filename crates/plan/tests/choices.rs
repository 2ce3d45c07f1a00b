//! Choices that the program leaves open beside its tiles: how deep pipelines are, and in which number types is multiplied.

mod support;

use einloom_algebra::derive;
use einloom_cascade::{DType, Given, bind};
use einloom_machine::built_in;
use einloom_plan::{Form, Options, Plan, choose};
use einloom_tile::{Kernel, Op};
use support::{read, sized};

fn planned(text: &str, sizes: &str, options: &Options) -> Plan {
    let (cascade, h200) = (read(text), built_in("h200").expect("built in"));
    let derivation = derive(&cascade);
    choose(&Form::all(&derivation), &sized(&cascade, sizes), &h200, options).unwrap_or_else(|e| panic!("{e}")).1
}

fn narrow() -> Options {
    Options { narrow_contractions: true, ..Options::default() }
}

/// Number types of the factors of all products.
fn factors(kernel: &Kernel) -> Vec<[DType; 2]> {
    fn go(kernel: &Kernel, ops: &[Op], out: &mut Vec<[DType; 2]>) {
        for op in ops {
            match op {
                Op::Mma { a, b, .. } => out.push([*a, *b].map(|v| kernel.value(v).dtype)),
                Op::Stream { body, .. } => go(kernel, body, out),
                _ => {}
            }
        }
    }
    let mut out = vec![];
    go(kernel, &kernel.body, &mut out);
    out
}

fn product(a: &str, b: &str) -> String {
    format!("input A[m,k]: {a}, B[k,n]: {b}\noutput C: f32\nC[m,n] = sum(k) A[m,k] * B[k,n]\n")
}

#[test]
fn the_depth_that_was_planned_is_in_the_program() {
    let plan = planned(&product("bf16", "bf16"), "M=4096, N=4096, K=4096", &narrow());
    let gpu = plan.kernels[0].gpu.as_ref().expect("a core");
    assert_eq!(plan.program.kernels[0].stages, Some(gpu.stages));
    assert!(gpu.stages >= 2 && !gpu.depths.is_empty(), "{gpu:?}");
    // Fewer stages are never faster, and some wait.
    assert!(gpu.depths.iter().all(|d| d.seconds >= gpu.seconds && d.stages < gpu.stages), "{:?}", gpu.depths);
    let told = plan.kernels[0].notes.iter().any(|n| n.starts_with(&format!("depth {} stages", gpu.stages)));
    assert!(told, "{:?}", plan.kernels[0].notes);
}

#[test]
fn where_blocks_share_a_core_fewer_stages_may_be_faster() {
    let options = Options { matrix: Some("mma.sync".to_string()), ..narrow() };
    let plan = planned(&product("bf16", "bf16"), "M=4096, N=4096, K=4096", &options);
    let gpu = plan.kernels[0].gpu.as_ref().expect("a core");
    let deeper = gpu.depths.iter().find(|d| d.stages > gpu.stages).expect("deeper pipelines that fit");
    assert!(deeper.blocks < gpu.blocks && deeper.seconds > gpu.seconds, "{gpu:?}");
}

#[test]
fn an_eight_bit_factor_is_widened_to_the_other_ones_type() {
    for options in [narrow(), Options { exact: true, ..narrow() }] {
        let plan = planned(&product("bf16", "e4m3"), "M=1024, N=1024, K=1024", &options);
        assert_eq!(factors(&plan.program.kernels[0]), [[DType::Bf16; 2]], "{options:?}");
        assert!(plan.kernels[0].gpu.as_ref().is_some_and(|g| g.unit.is_some()), "{:?}", plan.kernels[0].notes);
    }
}

#[test]
fn a_wider_factor_is_rounded_as_little_as_pays() {
    let text = product("f32", "e4m3");
    let of = |options: &Options, sizes: &str| {
        let plan = planned(&text, sizes, options);
        let types = factors(&plan.program.kernels[0]);
        (types, plan)
    };
    // Without the liberty nothing is rounded.
    let exact = Options { exact: true, ..narrow() };
    assert_eq!(of(&exact, "M=2048, N=2048, K=2048").0, [[DType::F32, DType::E4m3]]);
    // With it three ways were looked at, and what the others take is told.
    let (types, plan) = of(&narrow(), "M=2048, N=2048, K=2048");
    assert!(types == [[DType::E4m3; 2]] || types == [[DType::Bf16; 2]], "{types:?}");
    let note = plan.kernels[0].notes.iter().find(|n| n.starts_with("products in")).expect("a note");
    assert!(["e4m3", "bf16", "f32"].iter().all(|t| note.contains(t)), "{note}");
}

/// The kernel's tiles, as its note names them, on a processor with 512 KiB a core and 2 MiB of what all share.
fn tiles_of_rows(text: &str, sizes: &str) -> String {
    let (cascade, machine) = (read(text), built_in("cpu-generic").expect("built in"));
    let derivation = derive(&cascade);
    let plan =
        choose(&Form::all(&derivation), &sized(&cascade, sizes), &machine, &Options::default()).expect("planned");
    plan.1.kernels[0].notes.iter().find_map(|n| n.strip_prefix("tiles ")).expect("tiles").to_string()
}

#[test]
fn rows_that_no_core_holds_are_taken_whole_as_long_as_the_shared_cache_holds_them() {
    let softmax =
        "input X[m,n]: f32\noutput Y: f32\nP[m,n] = exp(X[m,n] - max(n) X[m,n])\nY[m,n] = P[m,n] / (sum(n) P[m,n])\n";
    let total = "input X[m,n]: f32\noutput L: f32\nL[m] = log(sum(n) exp(X[m,n] - max(n) X[m,n]))\n";
    for (text, columns, whole) in [
        (softmax, 16 << 10, true),
        // 1 MiB of tiles: twice what a core has of its own, half of its part of the shared one.
        (softmax, 128 << 10, true),
        (softmax, 1 << 20, false),
        (total, 128 << 10, true),
    ] {
        let tiles = tiles_of_rows(text, &format!("M=1024, N={columns}"));
        assert_eq!(tiles.contains("n:whole: predicted"), whole, "{columns} columns: {tiles}");
    }
}

/// The form that is chosen for this parameter of a recurrence, by its name.
fn form_for(a: f64) -> String {
    let text = "input Q[t,d]: f32, K[t,d]: f32, V[t,e]: f32\noutput O: f32\nparam a = 0.5\nS[0,d,e] = 0\n\
        S[t+1,d,e] = a * S[t,d,e] + K[t,d] * V[t,e]\nO[t,e] = sum(d) Q[t,d] * S[t+1,d,e]\n";
    let (cascade, machine) = (read(text), built_in("cpu-generic").expect("built in"));
    let sizes = [("T", 4096), ("D", 64), ("E", 64)].map(|(rank, size)| (rank.to_string(), size));
    let given = Given { sizes: sizes.into(), params: [("a".to_string(), a)].into(), ..Given::default() };
    let bound = bind(&cascade, &given).expect("sizes");
    let derivation = derive(&cascade);
    let forms = Form::all(&derivation);
    forms[choose(&forms, &bound, &machine, &Options::default()).expect("planned").0].name.to_string()
}

#[test]
fn a_decay_that_grows_goes_position_by_position() {
    assert!([0.5, -1.0, 1.0].into_iter().all(|a| form_for(a).ends_with("by chunks")));
    assert!([1.5, -30.0, f64::INFINITY].into_iter().all(|a| !form_for(a).ends_with("by chunks")));
}

const NORMALISED: &str = "input X[m,d]: bf16, g[d]: f32, b[d]: f32, W[d,n]: bf16\noutput Y: bf16\nmu[m] = mean(d) X[m,d]\n\
    V[m] = mean(d) (X[m,d] - mu[m])^2\nZ[m,d] = (X[m,d] - mu[m]) / sqrt(V[m] + 1e-5) * g[d] + b[d]\n\
    Y[m,n] = sum(d) Z[m,d] * W[d,n]\n";

#[test]
fn what_waits_is_multiplied_as_written_where_that_is_sure_to_be_faster() {
    let derivation = derive(&read(NORMALISED));
    let forms = Form::all(&derivation);
    let (bound, h200) = (sized(&read(NORMALISED), "M=4096, D=4096, N=4096"), built_in("h200").expect("built in"));
    let (k, plan) = choose(&forms, &bound, &h200, &narrow()).expect("planned");
    assert_eq!(forms[k].name, "sums that wait as written", "{:?}", plan.kernels[0].notes);
    // Rows are normalised once, in the type in which they are multiplied.
    assert!(plan.kernels.iter().any(|k| k.materialised == ["Z.bf16"]), "{:?}", plan.program.kernels);
    let products: Vec<_> = plan.program.kernels.iter().flat_map(factors).collect();
    assert_eq!(products, [[DType::Bf16; 2]]);
    let main = einloom_plan::plan(forms[0].graph, &bound, &h200, &narrow()).expect("planned");
    assert!(main.seconds > 1.5 * plan.seconds, "{} {}", main.seconds, plan.seconds);
    // Nothing is rounded without the liberty.
    let exact = choose(&forms, &bound, &h200, &Options { exact: true, ..narrow() }).expect("planned").1;
    assert!(exact.kernels.iter().all(|k| !k.materialised.contains(&"Z.bf16".to_string())));
}
