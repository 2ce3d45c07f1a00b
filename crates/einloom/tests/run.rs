//! Commands whose output holds times: run, bench, plan and the rest, by their documented JSON keys.

#![allow(clippy::disallowed_methods)] // tests make and read files

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn program(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cascades").join(name);
    path.to_str().expect("UTF-8").to_owned()
}

fn einloom(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_einloom")).args(args).current_dir(folder).output().expect("it starts")
}

fn json(folder: &Path, args: &[&str]) -> Value {
    let output = einloom(folder, args);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{args:?}: {errors}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{args:?}: {e}"))
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().map(|o| o.keys().map(String::as_str).collect()).unwrap_or_default()
}

fn has(value: &Value, expected: &[&str]) {
    for key in expected {
        assert!(keys(value).contains(key), "{key} is missing in {value}");
    }
}

const SIZES: &str = "B=1,H=2,M=40,N=70,D=16,E=24";

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().to_owned();
    (folder, path)
}

#[test]
fn run_verifies_and_times() {
    let (_keep, folder) = folder();
    let v = json(&folder, &["run", &program("attention.ein"), "--size", SIZES, "--verify", "--json"]);
    has(&v, &["backend", "seconds", "kernels", "outputs"]);
    assert_eq!(v["backend"], "cpu");
    assert!(v["seconds"].as_f64().is_some_and(|s| s > 0.0));
    has(&v["kernels"][0], &["name", "seconds"]);
    let o = &v["outputs"]["O"];
    assert_eq!(o["shape"], serde_json::json!([1, 2, 40, 24]));
    assert_eq!(o["dtype"], "bf16");
    assert!(o["max_abs_error"].as_f64().is_some_and(|e| e < 0.02), "{o}");
    assert!(o["rel_l2_error"].as_f64().is_some_and(|e| e < 0.01), "{o}");
    // Without --verify there are no errors to show.
    let v = json(&folder, &["run", &program("attention.ein"), "--size", SIZES, "--json"]);
    assert!(!keys(&v["outputs"]["O"]).contains(&"max_abs_error"));
}

#[test]
fn functions_of_integers_are_as_exact_as_the_program() {
    let (_keep, folder) = folder();
    let text =
        "input X[a]: f64, U[a]: u4\noutput Y: f64, Z: f64\nY[a] = exp(U[a] / 3) * X[a]\nZ[a] = log1p(U[a] * 0.1)\n";
    std::fs::write(folder.join("wide.ein"), text).expect("written");
    let v = json(&folder, &["run", "wide.ein", "--size", "A=64", "--verify", "--json"]);
    for output in ["Y", "Z"] {
        let error = v["outputs"][output]["rel_l2_error"].as_f64().expect("verified");
        assert!(error < 1e-14, "{output} is off by {error:e}");
    }
}

#[test]
fn outputs_are_inputs_again() {
    let (_keep, folder) = folder();
    let softmax = program("softmax.ein");
    let once = ["run", &softmax, "--size", "M=5,N=7", "--seed", "3", "--json"];
    json(&folder, &[&once[..], &["--output", "Y=y.npy", "--output", "all.safetensors"]].concat());
    // Its rows sum to 1, so that a logsumexp of their logarithms is 0.
    std::fs::write(folder.join("sum.ein"), "input Y[m,n]: f32\noutput Z: f32\nZ[m] = sum(n) Y[m,n]\n").expect("write");
    for input in ["Y=y.npy", "all.safetensors", "Y=all.safetensors", "Y=all.safetensors:Y"] {
        let v = json(&folder, &["run", "sum.ein", "--input", input, "--output", "Z=z.npy", "--verify", "--json"]);
        assert_eq!(v["outputs"]["Z"]["shape"], serde_json::json!([5]), "{input}");
        let z = einloom::formats::Npy::open(&folder.join("z.npy")).and_then(|f| f.read()).expect("z.npy");
        for b in z.bytes.as_chunks::<4>().0 {
            assert!((f32::from_le_bytes(*b) - 1.0).abs() < 1e-5, "{input}");
        }
    }
}

#[test]
fn the_seed_and_not_the_threads_decide() {
    let (_keep, folder) = folder();
    let attention = program("attention.ein");
    let run = |file: &str, seed: &str, threads: &str| {
        let output = format!("O={file}");
        let args = ["run", &attention, "--size", SIZES, "--seed", seed, "--threads", threads, "--output", &output];
        // Which way of multiplying bf16 is fastest every run measures anew.
        let mut command = Command::new(env!("CARGO_BIN_EXE_einloom"));
        let run = command.args(args).env("EINLOOM_BF16", "widened").current_dir(&folder).output().expect("it starts");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        std::fs::read(folder.join(file)).expect("the output")
    };
    let one = run("1.npy", "0", "1");
    assert_eq!(one, run("2.npy", "0", "2"));
    assert_ne!(one, run("3.npy", "1", "1"));
}

#[test]
fn files_of_another_type_are_cast_on_request() {
    let (_keep, folder) = folder();
    std::fs::write(folder.join("wide.ein"), "input X[m]: f32\noutput W: f64\nW[m] = X[m] + 1\n").expect("write");
    std::fs::write(folder.join("half.ein"), "input W[m]: bf16\noutput H: f32\nH[m] = 2 * W[m]\n").expect("write");
    json(&folder, &["run", "wide.ein", "--size", "M=9", "--output", "W=w.npy", "--json"]);
    let refused = einloom(&folder, &["run", "half.ein", "--input", "W=w.npy"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--cast"));
    json(&folder, &["run", "half.ein", "--input", "W=w.npy", "--cast", "--verify", "--json"]);
}

#[test]
fn chosen_integers_are_exact() {
    let (_keep, folder) = folder();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("written");
    write("large.ein", "input Z[m,n]: f32\noutput A: i32\nA[m,n] = 1073741824 + 3 * m + 7 * n\n");
    write(
        "chosen.ein",
        "input A[m,n]: i32\noutput H: i32, P: i32, Q: i32\nH[m] = max(n: n < N - 2) A[m,n]\n\
         P[m] = max(n) where(n > 0, A[m,n], -2147483648)\nQ[m] = min(n: n > 1) A[m,n]\n",
    );
    json(&folder, &["run", "large.ein", "--size", "M=3,N=5", "--output", "A=a.npy", "--json"]);
    json(&folder, &["run", "chosen.ein", "--input", "A=a.npy", "--verify", "--json"]);
}

/// In f32, whose exponentials end at 88.
#[test]
fn logarithms_of_exponentials_stay_in_range() {
    let (_keep, folder) = folder();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("written");
    write("steps.ein", "input A[m]: f32\noutput X: f32\nX[m] = 0 * A[m] + 25 * (m - 9)\n");
    json(&folder, &["run", "steps.ein", "--size", "M=20", "--output", "X=x.npy", "--json"]);
    for body in ["log(sigmoid(X[m]))", "log(1 + exp(X[m]))", "log(exp(-X[m]) + 1)", "log1p(exp(X[m]))"] {
        write("log.ein", &format!("input X[m]: f32\noutput Y: f32\nY[m] = {body}\n"));
        json(&folder, &["run", "log.ein", "--input", "X=x.npy", "--verify", "--json"]);
    }
}

/// An output of a recurrence by chunks has its first slice and the others, whatever the length.
#[test]
fn states_that_are_wanted_are_all_there() {
    let (_keep, folder) = folder();
    let text = "input X[b,t]: f32, h[b]: f32\noutput y: f32, z: f32\ny[b,0] = h[b]\nz[b,0] = 1\n\
                y[b,t+1] = 0.9 * y[b,t] + X[b,t]\nz[b,t+1] = z[b,t] + sigmoid(y[b,t+1])\n";
    std::fs::write(folder.join("wanted.ein"), text).expect("written");
    for size in ["B=1,T=1", "B=3,T=700", "B=70,T=64", "B=2,T=4097"] {
        let (told, run) = (
            ["plan", "wanted.ein", "--size", size, "--json"],
            ["run", "wanted.ein", "--size", size, "--verify", "--json"],
        );
        json(&folder, &run);
        let plan = json(&folder, &told).to_string();
        assert!(size != "B=3,T=700" || plan.contains("by chunks of"), "{plan}");
    }
}

#[test]
fn rows_of_zeros_are_divided_by_what_is_added_against_it() {
    let (_keep, folder) = folder();
    let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).expect("written");
    write("zeros.ein", "input A[m,n]: f32\noutput X: f32\nX[m,n] = 0 * A[m,n]\n");
    json(&folder, &["run", "zeros.ein", "--size", "M=3,N=5", "--output", "X=x.npy", "--json"]);
    let largest = "input X[m,n]: f32\noutput Y: f32\ns[m] = max(n) abs(X[m,n])\n";
    for body in [
        "Y[m] = sum(n) (abs(X[m,n]) / (s[m] + 1e-20))^3",
        "Y[m] = s[m] * sqrt(sum(n) (X[m,n] / (s[m] + 1e-30))^2)",
        "mu[m] = mean(n) X[m,n]\nd[m] = sqrt(mean(n) (X[m,n] - mu[m])^2) + 1e-12\nY[m] = s[m] + mean(n) ((X[m,n] - mu[m]) / d[m])^4",
    ] {
        write("norm.ein", &format!("{largest}{body}\n"));
        json(&folder, &["run", "norm.ein", "--input", "X=x.npy", "--verify", "--json"]);
    }
}

#[test]
fn labels_outside_their_tensor_are_told() {
    let (_keep, folder) = folder();
    std::fs::write(folder.join("pick.ein"), "input X[v]: f32, i[t]: i32\noutput Y: f32\nY[t] = X[i[t]]\n")
        .expect("write");
    std::fs::write(folder.join("far.ein"), "input A[t]: f32\noutput i: i32\ni[t] = 1000 + 0 * t\n").expect("write");
    json(&folder, &["run", "pick.ein", "--size", "V=10,T=100", "--verify", "--json"]);
    json(&folder, &["run", "far.ein", "--size", "T=4", "--output", "i=i.npy", "--json"]);
    let output = einloom(&folder, &["run", "pick.ein", "--size", "V=10", "--input", "i=i.npy", "--output", "Y=y.npy"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("1000"), "{output:?}");
    assert!(!folder.join("y.npy").exists(), "nothing half-written");
}

#[test]
fn too_little_memory_is_the_machines_fault() {
    let (_keep, folder) = folder();
    let args = ["run", &program("matmul.ein"), "--size", "M=2Mi,K=2Mi,N=2Mi", "--output", "C=c.npy", "--json"];
    let output = einloom(&folder, &args);
    assert_eq!(output.status.code(), Some(3));
    let v: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(v["errors"][0]["code"], "memory");
    assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), 0, "nothing half-written");
}

#[test]
fn plan_shows_bytes_next_to_bounds() {
    let (_keep, folder) = folder();
    let v = json(&folder, &["plan", &program("attention.ein"), "--size", SIZES, "--json"]);
    let k = &v["kernels"][0];
    has(k, &["name", "statements", "group", "stream", "levels", "seconds"]);
    has(&k["levels"][0], &["level", "bytes", "bound_bytes", "ratio"]);
    assert!(k["levels"].as_array().expect("levels").iter().all(|l| l["ratio"].as_f64() >= Some(1.0)));
}

#[test]
fn bench_tells_every_time() {
    let (_keep, folder) = folder();
    let args = ["bench", &program("matmul.ein"), "--size", "M=32,N=32,K=32", "--repeat", "5", "--json"];
    let v = json(&folder, &args);
    has(&v, &["median_seconds", "seconds"]);
    assert_eq!(v["seconds"].as_array().map(Vec::len), Some(5));
}

#[test]
fn derive_proves_and_passes_count() {
    let (_keep, folder) = folder();
    let v = json(&folder, &["derive", &program("softmax.ein"), "--prove", "--json"]);
    has(&v, &["steps", "proofs", "refusals", "streams"]);
    has(&v["steps"][0], &["rule", "statement", "rank", "why"]);
    assert_eq!(v["proofs"]["numeric"]["proved"], true);
    assert!(v["proofs"]["numeric"]["inputs"].as_u64() >= Some(100), "{}", v["proofs"]);
    let v = json(&folder, &["passes", &program("attention.ein"), "--json"]);
    assert_eq!(keys(&v), ["cascade", "ranks", "refusals"]);
    let n = &v["ranks"]["N"];
    assert_eq!((n["written"].as_u64(), n["derived"].as_u64()), (Some(3), Some(1)));
    has(&n["tensors"]["K"], &["written", "derived", "footprint"]);
}

#[test]
fn every_box_can_be_dumped() {
    let (_keep, folder) = folder();
    let attention = program("attention.ein");
    for (stage, shows) in [
        ("cascade", "O[b,h,m,e] = sum(n)"),
        ("derivation", "separate"),
        ("plan", "predicted"),
        ("tile", "grid b, h"),
        ("kernel", "mma"),
    ] {
        let output = einloom(&folder, &["run", &attention, "--size", SIZES, &format!("--dump={stage}")]);
        assert_eq!(output.status.code(), Some(0), "{stage}");
        assert!(String::from_utf8_lossy(&output.stdout).contains(shows), "{stage}: {output:?}");
    }
}

#[test]
fn the_machine_is_described() {
    let (_keep, folder) = folder();
    let v = json(&folder, &["machines", "--json"]);
    let names: Vec<&str> = v.as_array().expect("a list").iter().filter_map(|m| m["name"].as_str()).collect();
    assert!(names.contains(&"host") && names.contains(&"h200") && names.contains(&"cpu-generic"), "{names:?}");
    let toml = einloom(&folder, &["machines", "--detect"]).stdout;
    std::fs::write(folder.join("mine.toml"), toml).expect("write");
    json(&folder, &["plan", &program("matmul.ein"), "--size", "M=8,N=8,K=8", "--machine", "mine.toml", "--json"]);
    has(&json(&folder, &["doctor", "--json"]), &["version", "cores", "isa", "caches", "backends", "missing"]);
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let output = einloom(&folder, &["completions", shell]);
        assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("einloom"), "{shell}");
    }
}

#[cfg(unix)]
#[test]
fn a_closed_pipe_is_no_error() {
    let binary = env!("CARGO_BIN_EXE_einloom");
    let script = format!("{binary} completions bash | head -c 10 >/dev/null; echo ${{PIPESTATUS[0]}}");
    let output = Command::new("bash").args(["-c", &script]).output().expect("bash");
    assert_eq!((&*output.stdout, &*output.stderr), (&b"0\n"[..], &b""[..]));
}

#[cfg(unix)]
#[test]
fn a_full_disk_is_told() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_einloom"))
        .args(["machines"])
        .stdout(std::fs::File::create(full).expect("/dev/full"))
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot write the output"));
}

/// Without a GPU the command says what is missing and has status 3; with one it does its job.
#[test]
fn a_gpu_is_used_or_missed() {
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/../../cascades/attention.ein");
    let size = "B=1,H=2,M=20,N=33,D=16,E=8";
    let run = |args: &[&str]| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_einloom"))
            .args(args)
            .args([program, "--size", size])
            .output()
            .expect("the command runs");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
        )
    };
    let (status, text) = run(&["run", "--backend", "cuda", "--verify"]);
    match status {
        Some(0) => assert!(text.contains("agrees"), "{text}"),
        Some(3) => assert!(text.contains("error[no-gpu]"), "{text}"),
        _ => panic!("status {status:?}: {text}"),
    }
    // The source needs no GPU.
    for arch in ["sm_80", "sm_90a"] {
        let (status, text) = run(&["emit", "--target", "cuda", "--arch", arch]);
        assert_eq!(status, Some(0), "{text}");
        assert!(text.contains("__global__") && text.contains("mma.sync"), "{arch}: {text}");
    }
}
