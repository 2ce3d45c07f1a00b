//! `plan --explain`, `compare` and `sweep` as a user meets them: answers, files, and what bad input is told.

#![allow(clippy::disallowed_methods)] // tests make and read files

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn einloom(folder: &Path, args: &[&str]) -> Output {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cascades");
    let place = |arg: &&str| match arg.strip_suffix(".ein") {
        Some(_) => program.join(arg).display().to_string(),
        None => arg.to_string(),
    };
    let args: Vec<String> = args.iter().map(place).collect();
    Command::new(env!("CARGO_BIN_EXE_einloom")).args(args).current_dir(folder).output().expect("it starts")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("UTF-8")
}

fn json(output: &Output) -> Value {
    serde_json::from_str(&text(output)).expect("JSON")
}

/// The exit status and the first line of what is wrong.
fn refused(folder: &Path, args: &[&str]) -> (i32, String) {
    let output = einloom(folder, args);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code().unwrap_or(-1), said)
}

#[test]
fn compare_answers_for_every_machine_and_type() {
    let folder = tempfile::tempdir().expect("a folder");
    let args =
        ["compare", "matmul.ein", "--machine", "a100,h200", "--dtype", "bf16,e4m3", "--size", "M=512,N=512,K=512"];
    let rows = json(&einloom(folder.path(), &[&args[..], &["--json"]].concat()));
    let rows = rows.as_array().expect("rows");
    let names: Vec<String> = rows.iter().map(|r| format!("{} {}", r["machine"], r["dtype"]).replace('"', "")).collect();
    assert_eq!(names, ["a100 bf16", "a100 e4m3", "h200 bf16", "h200 e4m3"]);
    for row in rows {
        assert!(
            row["seconds"].as_f64().expect("a time") > 0.0 && row["ratio"].as_f64().expect("a ratio") >= 1.0,
            "{row}"
        );
        // No source tells what products of e4m3 take on a tensor core: unknown, not 0. The A100 multiplies them in f16.
        let untold = row["machine"] == "h200" && row["dtype"] == "e4m3";
        assert_eq!(row["energy_joules"].as_f64().is_some_and(|j| j > 0.0), !untold, "{row}");
    }
    let seconds = |row: usize| rows[row]["seconds"].as_f64().expect("a time");
    assert!(seconds(1) < 2.0 * seconds(0), "tensor cores multiply e4m3 in f16 on an A100: {} s", seconds(1));
    // Nobody publishes what the caches of just any processor take: all of it is unknown, and the known part is not 0.
    let on_cpu = ["compare", "matmul.ein", "--machine", "cpu-generic", "--size", "M=512,N=512,K=512"];
    let row = json(&einloom(folder.path(), &[&on_cpu[..], &["--json"]].concat()))[0].clone();
    assert!(row["energy_joules"].is_null() && row["known_joules"].as_f64().expect("a part") > 0.0, "{row}");
    assert!(text(&einloom(folder.path(), &on_cpu)).contains("unknown, over"));
    assert!(rows[1]["notes"][0].as_str().expect("a note").contains("a100 has no pipe for e4m3: products in f16"));
    let shown = text(&einloom(folder.path(), &args));
    assert!(shown.contains("bound by"), "{shown}");
}

#[test]
fn sweep_writes_a_table_and_charts() {
    let folder = tempfile::tempdir().expect("a folder");
    let args =
        ["sweep", "matmul.ein", "--over", "M=2KiB..32KiB", "--points", "5", "--size", "M=96,N=96,K=96", "--json"];
    let data = json(&einloom(folder.path(), &args));
    let points = data["points"].as_array().expect("points");
    assert_eq!(points.len(), 5);
    let bytes = |p: &Value| p["bytes"].as_u64().expect("bytes");
    assert!(points.windows(2).all(|w| bytes(&w[0]) >= bytes(&w[1])), "{points:#?}");
    assert!(points.iter().all(|p| bytes(p) >= p["bound_bytes"].as_u64().expect("a bound")));
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect(name);
    let csv = read("matmul.csv");
    assert_eq!(csv.lines().count(), 6);
    let mut columns: Vec<&str> = csv.lines().next().expect("a header").split(',').collect();
    columns.sort_unstable();
    let keys: Vec<&String> = points[0].as_object().expect("a point").keys().collect();
    assert!(columns.iter().eq(keys), "{columns:?}");
    for name in ["matmul.svg", "matmul_roofline.svg"] {
        let chart = read(name);
        assert!(chart.starts_with("<svg") && chart.contains("prefers-color-scheme: dark"), "{name}");
        assert!(chart.contains("matmul on two-level: K=96, M=96, N=96"), "{name}");
    }
}

#[test]
fn plan_explains_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let args = ["plan", "softmax.ein", "--machine", "h200", "--size", "M=4096,N=1024", "--explain"];
    let shown = text(&einloom(folder.path(), &args));
    for part in ["lost to this plan", "twice of each resource", "device memory bandwidth", "energy", "unknown"] {
        assert!(shown.contains(part), "{part} is missing from\n{shown}");
    }
    let data = json(&einloom(folder.path(), &[&args[..], &["--json"]].concat()));
    let kernel = &data["kernels"][0];
    assert!(kernel["flops"].as_f64().expect("flops") > 0.0 && kernel["bound_by"].is_string());
    let level = &kernel["levels"][0];
    assert_eq!(level["capacity_bytes"].as_u64(), Some(141_000_000_000));
    // X in bf16 or f32, and Y: all that the kernel touches.
    assert!(level["resident_bytes"].as_u64().expect("bytes") >= 2 * 4096 * 1024 * 2);
    assert_eq!(data["lost"].as_array().expect("plans").len(), 5);
    assert!(data["doubled"].as_array().expect("resources").len() >= 8);
}

/// The kernel of a plan for a memory of so many elements.
fn two_level(folder: &Path, file: &str, capacity: &str, sizes: &str) -> Value {
    let args = ["plan", file, "--machine", "two-level", "--capacity", capacity, "--size", sizes, "--json"];
    json(&einloom(folder, &args))["kernels"][0].clone()
}

#[test]
fn every_memory_has_tiles_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let sizes = "B=1,H=1,M=4096,N=4096,D=64,E=64";
    let args = ["plan", "attention.ein", "--machine", "three-level", "--size", sizes, "--json"];
    let kernel = json(&einloom(folder.path(), &args))["kernels"][0].clone();
    let [memory, cache] = [0, 1].map(|k| &kernel["levels"][k]);
    let number = |v: &Value| v.as_f64().expect("a number");
    // By tiles of the buffer alone it is 18.9 times the bound.
    assert!(number(&memory["ratio"]) < 1.5 && number(&cache["ratio"]) < 1.1, "{kernel}");
    let block = &kernel["blocks"][0];
    assert_eq!(block["memory"], "cache");
    let [queries, keys] = ["m", "n"].map(|a| number(&block["sides"][a]));
    // Sums and the two other states of each query leave and come back between parts of the keys, in f32.
    let parts = (4096.0 / keys).ceil();
    assert!(queries < 4096.0 && parts > 1.0, "{block}");
    assert_eq!(number(&cache["carried_bytes"]), 4.0 * 2.0 * (parts - 1.0) * 4096.0 * 66.0);
    assert!(number(&cache["resident_bytes"]) <= number(&cache["capacity_bytes"]));
}

#[test]
fn closed_forms_can_be_checked_from_outside() {
    let folder = tempfile::tempdir().expect("a folder");
    let number = |v: &Value| v.as_f64().expect("a number");
    let compare = |kernel: &Value, element: f64, published: f64, most: f64| {
        let level = &kernel["levels"][0];
        let (bound, ratio) = (number(&level["bound_any_order_bytes"]), number(&level["ratio"]));
        assert!(number(&level["bound_bytes"]) >= bound);
        assert!((bound / element / published - 1.0).abs() < 5e-3, "{bound}, published {published}");
        assert!((1.0..most).contains(&ratio), "{ratio} times the bound");
        // What the symbols say at the plan's tiles is what the plan moves, less what stays beside the tiles.
        assert_eq!(
            number(&kernel["formula"]["values"]) * element,
            number(&level["bytes"]) + number(&level["kept_bytes"])
        );
    };
    // 2abc M^(-1/2) + ac, in f32.
    for (capacity, m) in [("4096", 4096f64), ("16384", 16384.0)] {
        let kernel = two_level(folder.path(), "matmul.ein", capacity, "M=2048,N=1536,K=1024");
        let (a, c, b) = (2048.0, 1536.0, 1024.0);
        compare(&kernel, 4.0, 2.0 * a * b * c / m.sqrt() + a * c, 1.05);
        let formula = kernel["formula"]["h_star"].as_str().expect("a closed form");
        assert!(formula.starts_with("H* = 2·K·M·N·C^(-1/2) + M·N"), "{formula}");
    }
    // 2qd + 4xqd²/M, in bf16.
    let (q, d) = (8192.0, 64.0);
    let kernel = two_level(folder.path(), "attention.ein", "65536", "B=1,H=1,M=8192,N=8192,D=64,E=64");
    compare(&kernel, 2.0, 2.0 * q * d + 4.0 * q * q * d * d / 65536.0, 1.03);
}

#[test]
fn device_memory_is_told_apart_from_l2() {
    let folder = tempfile::tempdir().expect("a folder");
    let sizes = "B=2,H=16,M=4096,N=4096,D=128,E=128";
    let args = ["plan", "attention.ein", "--machine", "h200", "--size", sizes, "--json"];
    let kernel = json(&einloom(folder.path(), &args))["kernels"][0].clone();
    let once = 2 * 16 * 4096 * 128 * 2;
    let moved = |level: usize, tensor: &str| kernel["levels"][level]["tensors"][tensor]["loaded_bytes"].as_u64();
    // Keys come from device memory once; every block of queries asks L2 for them.
    assert_eq!(moved(0, "K"), Some(once));
    let blocks = 4096 / kernel["group"]["m"].as_u64().expect("a tile");
    assert_eq!(moved(1, "K"), Some(once * blocks));
    assert_eq!(kernel["levels"][0]["ratio"].as_f64(), Some(1.0));
    assert_eq!(kernel["levels"][0]["tensors"]["O"]["stored_bytes"].as_u64(), Some(once));
}

#[test]
fn axes_of_charts_have_labels() {
    let folder = tempfile::tempdir().expect("a folder");
    // A narrow range, and plans that all run at one rate.
    let args = ["sweep", "softmax.ein", "--over", "M=16KiB..64KiB", "--points", "2", "--size", "M=1024,N=4096"];
    text(&einloom(folder.path(), &args));
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect(name);
    let (chart, roof) = (read("softmax.svg"), read("softmax_roofline.svg"));
    for label in ["16 KiB", "32 KiB", "64 KiB", "32 MiB", "64 MiB"] {
        assert!(chart.contains(&format!("\n{label}\n")), "{label} is missing from\n{chart}");
    }
    for label in ["0.1", "1 G", "10 G", "memory and f32"] {
        assert!(roof.contains(&format!("\n{label}\n")), "{label} is missing from\n{roof}");
    }
}

#[test]
fn tiles_can_be_given() {
    let folder = tempfile::tempdir().expect("a folder");
    let of = |tiles| {
        let start =
            ["plan", "matmul.ein", "--machine", "cpu-generic", "--size", "M=256,N=256,K=256", "--json", "--tile"];
        let kernel = json(&einloom(folder.path(), &[&start[..], &[tiles]].concat()))["kernels"][0].clone();
        let side = |name: &str| kernel["group"][name].as_u64().expect("a tile");
        (side("m"), side("n"), kernel["notes"].to_string())
    };
    let (m, n, notes) = of("m=32,n=48");
    assert!((m, n) == (32, 48) && !notes.contains("not by"), "{notes}");
    // Six tiles of 43 to 48 rows, and whole vectors.
    let (m, _, notes) = of("m=50,n=48");
    assert!(m == 48 && notes.contains("m by 48, not by 50"), "{m}: {notes}");
}

/// A capacity that no description may have has no plan.
#[test]
fn sweeps_leave_out_what_a_machine_cannot_have() {
    let folder = tempfile::tempdir().expect("a folder");
    for (over, at, told) in [
        (
            "L2=10KiB..1MiB",
            0,
            "shared memory has a capacity that contradicts another: 227 KiB is not less than the 10 KiB of `L2`",
        ),
        (
            "M=100KiB..95MiB",
            1,
            "shared memory has a capacity that contradicts another: 95 MiB is not less than the 50 MB of `L2`",
        ),
    ] {
        let args = [
            "sweep",
            "matmul.ein",
            "--machine",
            "h200",
            "--over",
            over,
            "--points",
            "2",
            "--size",
            "M=64,N=64,K=64",
            "--json",
        ];
        let points = json(&einloom(folder.path(), &args))["points"].clone();
        let error = points[at]["error"].as_str().expect("an error");
        assert!(error.starts_with(told) && points[at]["bytes"].is_null(), "{error}");
        assert!(points[1 - at]["error"].is_null() && points[1 - at]["bytes"].as_u64() > Some(0), "{points}");
    }
}

#[test]
fn what_cannot_be_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let sized = |more: &[&'static str]| [&["matmul.ein", "--size", "M=64,N=64,K=64"], more].concat();
    let cases: Vec<(Vec<&str>, i32, &str)> = vec![
        (
            [&["plan"], &sized(&["--machine", "two-level", "--capacity", "2"])[..]].concat(),
            1,
            "a capacity of 3 would do",
        ),
        ([&["plan"], &sized(&["--machine", "two-level", "--capacity", "0"])[..]].concat(), 2, "takes at least 1"),
        (
            [&["plan"], &sized(&["--machine", "h200", "--capacity", "64"])[..]].concat(),
            2,
            "h200 is no abstract machine",
        ),
        ([&["plan"], &sized(&["--machine", "h200", "--size", "M=0"])[..]].concat(), 1, "M is 64 by one --size, but 0"),
        (vec!["plan", "matmul.ein", "--size", "M=0,N=4,K=4"], 1, "M is 0"),
        (vec!["plan", "conv1d.ein", "--size", "B=1,C=1,O=1,L=1,R=2"], 1, "I is 0, by the sizes that it depends on"),
        ([&["plan"], &sized(&["--machine", "two-level", "--capacity", "-1"])[..]].concat(), 2, "invalid value '-1'"),
        ([&["plan"], &sized(&["--tile", "m=8,m=16"])[..]].concat(), 1, "two sizes are given for tiles of m"),
        ([&["plan"], &sized(&["--tile", "q=8"])[..]].concat(), 1, "the program has no such index"),
        ([&["plan"], &sized(&["--tile", "q=8"])[..]].concat(), 1, "help: its indices are"),
        ([&["plan"], &sized(&["--tile", "m=0"])[..]].concat(), 1, "help: give a size of 1 or more"),
        (
            [&["compare"], &sized(&["--machine", "h200", "--dtype", "i8"])[..]].concat(),
            2,
            "no floating-point number type",
        ),
        ([&["compare"], &sized(&["--machine", "h300"])[..]].concat(), 1, "there is no machine `h300`"),
        ([&["sweep"], &sized(&["--over", "L9=1KiB..2KiB"])[..]].concat(), 2, "two-level has no memory `L9`"),
        (
            vec!["plan", "matmul.ein", "--machine", "h200", "--size", "M=1Mi,N=1Mi,K=1Mi"],
            1,
            "holds 131 GiB: tensors 93.6 times smaller would fit",
        ),
        (vec!["plan", "matmul.ein", "--size", "M=18446744073709551615,N=4,K=4"], 1, "is too large"),
        (
            vec!["formula", "matmul.ein", "--group", "m", "--stream", "m"],
            2,
            "`m` is divided by --group and by --stream",
        ),
        (vec!["formula", "matmul.ein", "--group", "z"], 1, "the diagram has no axis `z`"),
        (vec!["formula", "lstm.ein"], 1, "a recurrence over T"),
        (vec!["machines", "--detect", "h200"], 2, "cannot be used with"),
        (
            [&["plan"], &sized(&["--machine", "two-level", "--capacity", "18446744073709551615"])[..]].concat(),
            2,
            "more than can be counted",
        ),
        ([&["sweep"], &sized(&["--over", "M=2KiB..1KiB"])[..]].concat(), 2, "is no range"),
        ([&["sweep"], &sized(&["--over", "M=4..8 elephants"])[..]].concat(), 2, "--over"),
        // The first kernel needs 3 elements; another one 4.
        (
            vec![
                "plan",
                "attention.ein",
                "--size",
                "B=1,H=1,M=64,N=64,D=8,E=8",
                "--machine",
                "two-level",
                "--capacity",
                "1",
            ],
            1,
            "hold 3 elements at once, more than the 1 that fit; a capacity of 4 would do",
        ),
    ];
    for (args, status, expected) in cases {
        let (found, said) = refused(folder.path(), &args);
        assert!(found == status && said.contains(expected), "{args:?}: status {found}\n{said}");
    }
}

/// What tiles load beside what a condition leaves is the plan's: whatever the tiles, the bound for every order is no more than what any plan moves.
#[test]
fn bounds_do_not_depend_on_tiles() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut coarse = 0;
    for (file, sizes, tiles) in [
        ("attention_causal.ein", "B=1,H=1,M=16,N=1024,D=8,E=8", ["n=1024", "n=16"]),
        ("linear_attention.ein", "B=1,H=2,M=5,N=128,D=8,E=8", ["n=128", "n=1"]),
        ("retention.ein", "B=1,H=2,M=1,N=17,D=16,E=16", ["n=16", "n=1"]),
    ] {
        let plans = tiles.map(|t| {
            let args = ["plan", file, "--machine", "h200", "--size", sizes, "--tile", t, "--json"];
            json(&einloom(folder.path(), &args))
        });
        let least = plans.each_ref().map(|p| p["least_bytes"].as_u64().expect("bytes"));
        assert_eq!(least[0], least[1], "{file}: {tiles:?}");
        let moved = plans.each_ref().map(|p| p["bytes"].as_u64().expect("bytes"));
        assert!(moved.iter().all(|&m| m >= least[0]), "{file}: {moved:?} of {least:?}");
        coarse += usize::from(moved[0] > moved[1]);
    }
    assert!(coarse > 0, "some plan loads what it does not need");
}

/// A product of two factors that both stay needs a place: three elements of one, one of the other and the product.
#[test]
fn outer_products_have_a_place() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("outer");
    std::fs::write(&file, "input A[m]: f32, B[n]: f32\noutput C: f32\nC[m,n] = A[m] * B[n]\n").expect("a file");
    let bytes = |capacity: usize| {
        let plan = two_level(folder.path(), &file.display().to_string(), &capacity.to_string(), "M=3,N=3");
        plan["levels"][0]["bytes"].as_u64().expect("bytes") / 4
    };
    // As few as 19, 17 and 15 may move, which all orders of this size have been tried for.
    assert_eq!([3, 4, 5].map(bytes), [21, 18, 15]);
}

#[test]
fn a_program_of_several_kernels_is_held_against_its_inputs_and_outputs() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "cascade two\ninput X[m,d]: f32, W[d,f]: f32, V[f,e]: f32\noutput Y: f32\n\
        A[m,f] = sum(d) X[m,d] * W[d,f]\nY[m,e] = sum(f) relu(A[m,f]) * V[f,e]\n";
    let file = folder.path().join("two.ein");
    std::fs::write(&file, text).expect("a program");
    let file = file.to_str().expect("a path");
    let sizes = "M=4096,D=4096,F=4096,E=4096";
    let data = json(&einloom(folder.path(), &["plan", file, "--machine", "h200", "--size", sizes, "--json"]));
    let number = |v: &Value| v.as_u64().expect("a number");
    let kernels = data["kernels"].as_array().expect("kernels");
    assert!(kernels.len() > 1, "{} kernel", kernels.len());
    // Three inputs and an output; what passes from kernel to kernel could stay inside.
    assert_eq!(number(&data["least_bytes"]), 4 * 4096 * 4096 * 4);
    let moved: u64 = kernels.iter().map(|k| number(&k["levels"][0]["bytes"])).sum();
    assert_eq!(number(&data["bytes"]), moved);
    assert!(moved >= 6 * 4096 * 4096 * 4);
}

/// Parts of a kernel are one: what they read together bounds the program, and a comparison takes their joint bound.
#[test]
fn parts_of_a_kernel_count_as_one() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = "cascade product\ninput A[m,k]: f32, B[k,n]: f32\noutput C: f32\nC[m,n] = sum(k) A[m,k] * B[k,n]\n";
    let file = folder.path().join("product.ein");
    std::fs::write(&file, text).expect("a program");
    let file = file.to_str().expect("a path");
    let sizes = ["--size", "M=512,N=512,K=512", "--json"];
    let run = |args: &[&str]| json(&einloom(folder.path(), &[args, &sizes].concat()));
    let plan = run(&["plan", file, "--machine", "two-level", "--capacity", "4096"]);
    let number = |v: &Value| v.as_u64().expect("a number");
    let kernels = plan["kernels"].as_array().expect("kernels");
    assert!(kernels.len() > 1 && kernels.iter().all(|k| k["part"].is_object()), "{kernels:?}");
    assert_eq!(number(&plan["least_bytes"]), 3 * 512 * 512 * 4);
    let compared = run(&["compare", file, "--machine", "two-level"]);
    let row = &compared[0];
    assert_eq!(number(&row["bytes"]), number(&plan["bytes"]));
    assert_eq!(row["bound_bytes"], kernels[0]["part"]["bound_bytes"], "{row}");
    assert!(row["ratio"].as_f64().expect("a ratio") < 1.05, "{row}");
}
