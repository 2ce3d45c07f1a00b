//! Emitted sources run on the CPU: `tests/emulate/shim.hpp` stands in for the PTX functions, the host's C++ compiler for
//! NVRTC. Results must be those of the plain interpreter. Skipped, with the reason, where there is no compiler.

// Files carry data to and from the emulation; what is skipped is said.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

mod programs;

use einloom_cuda::emit::{PTX, Source};
use einloom_cuda::{Target, emit};
use einloom_tile::TensorRole;
use programs::Case;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

/// A text in an emitted source and what it is replaced by.
type Mutation = (&'static str, &'static str);

/// Runs all cases, with their mutations, as one program of the host's compiler; the worst error of each.
fn emulate(cases: &[(&Case, Option<Mutation>)], name: &str) -> Option<Vec<(String, f64)>> {
    let folder = &std::env::temp_dir().join(format!("einloom-{name}-{}", std::process::id()));
    if Command::new("g++").arg("--version").output().is_err() {
        eprintln!("not emulated: there is no g++ here");
        return None;
    }
    std::fs::create_dir_all(folder).expect("a folder for temporary files");
    let mut text = String::new();
    let mut main = String::new();
    for (c, (case, mutation)) in cases.iter().enumerate() {
        let mut source = emit(&case.program, &Target::SM_80).unwrap_or_else(|e| panic!("{}: {e}", case.name));
        if let Some((from, to)) = mutation {
            assert!(source.text.contains(from), "{}: no `{from}` in the source", case.name);
            source.text = source.text.replace(from, to);
        }
        add(&mut text, &mut main, c, case, &source, folder);
    }
    let shim = include_str!("emulate/shim.hpp");
    let program = format!("{shim}\n{text}\nint main() {{\n{main}}}\n");
    let (file, binary) = (folder.join("program.cpp"), folder.join("program"));
    std::fs::write(&file, program).expect("written");
    let built = Command::new("g++").args(["-std=c++17", "-O1", "-w", "-o"]).arg(&binary).arg(&file).output();
    let built = built.expect("started");
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let ran = Command::new(&binary).output().expect("started");
    assert!(ran.status.success(), "{:?}: {}", ran.status, String::from_utf8_lossy(&ran.stderr));
    let mut out = vec![];
    for (c, (case, _)) in cases.iter().enumerate() {
        let inputs = programs::inputs(case);
        let expected = programs::expected(case, &inputs);
        let outputs = case.program.tensors.iter().enumerate().filter(|(_, t)| t.role == TensorRole::Output);
        let errors = outputs.zip(expected).map(|((t, tensor), expected)| {
            let bytes = std::fs::read(folder.join(format!("{c}_{t}"))).expect("an output");
            programs::worst(tensor.dtype, &expected, &bytes)
        });
        out.push((case.name.clone(), errors.fold(0.0, f64::max)));
    }
    std::fs::remove_dir_all(folder).expect("removed");
    Some(out)
}

/// Adds a case: its kernels in a namespace of their own, and a block of the main function that runs them.
fn add(text: &mut String, main: &mut String, number: usize, case: &Case, source: &Source, folder: &Path) {
    let (_, rest) = source.text.split_once(PTX).expect("every source begins with the PTX functions");
    let rest = rest.replace("extern \"C\" __global__", "__global__");
    let rest = rest.replace("extern __shared__ __align__(1024) u8 shared[];", "");
    // Each source brings the same prelude.
    let _ = writeln!(text, "namespace case{number} {{\n{rest}\nstatic void* p[{}];", case.program.tensors.len() + 1);
    for (k, info) in source.kernels.iter().enumerate() {
        let parameters: Vec<String> = info
            .tensors
            .iter()
            .map(|t| t.at())
            .chain([case.program.tensors.len()])
            .map(|t| format!("Any{{p[{t}]}}"))
            .collect();
        let _ = writeln!(text, "static void run{k}() {{ {}({}); }}", info.function, parameters.join(", "));
    }
    let _ = writeln!(text, "}}");
    let inputs = programs::inputs(case);
    let mut given = inputs.iter();
    for (t, tensor) in case.program.tensors.iter().enumerate() {
        let bytes = tensor.dims.iter().product::<usize>() * tensor.dtype.bytes();
        let file = folder.join(format!("{number}_{t}"));
        if tensor.role == TensorRole::Input {
            std::fs::write(&file, given.next().expect("one per input")).expect("written");
            let _ = writeln!(main, "case{number}::p[{t}] = read_file({:?});", file.display().to_string());
        } else {
            // Poisoned: what is not written is no number.
            let size = (bytes + 511) / 256 * 256;
            let _ = writeln!(main, "memset(case{number}::p[{t}] = aligned_alloc(256, {size}), 0xff, {size});");
        }
    }
    let status = case.program.tensors.len();
    let _ = writeln!(main, "case{number}::p[{status}] = calloc(4, 8);");
    for (k, info) in source.kernels.iter().enumerate() {
        let _ = writeln!(main, "launch({}, {}, case{number}::run{k});", info.grid, info.block);
    }
    for (t, tensor) in case.program.tensors.iter().enumerate().filter(|(_, t)| t.role == TensorRole::Output) {
        let bytes = tensor.dims.iter().product::<usize>() * tensor.dtype.bytes();
        let file = folder.join(format!("{number}_{t}"));
        let _ = writeln!(main, "write_file({:?}, case{number}::p[{t}], {bytes});", file.display().to_string());
    }
}

#[test]
fn emitted_sources_compute_what_the_interpreter_does() {
    let all: Vec<Case> = programs::features().into_iter().chain(programs::worked_examples()).collect();
    let cases: Vec<_> = all.iter().map(|c| (c, None)).collect();
    let Some(errors) = emulate(&cases, "emulate") else { return };
    errors.iter().for_each(|(name, e)| println!("{e:8.4} {name}"));
    let wrong: Vec<_> = errors.iter().filter(|(_, e)| *e > 1.0).collect();
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{wrong:#?}", wrong.len(), errors.len());
}

/// What the emulation is worth: it sees a dropped wait, a dropped barrier, a wrong stage, a missing mask, and layouts
/// that do not fit together.
#[test]
fn mutations_are_caught() {
    let all = programs::worked_examples();
    let find = |name: &str| all.iter().find(|c| c.name == name).unwrap_or_else(|| panic!("no {name}"));
    let full = find("attention bf16 m 70 n 45 d 16 e 24 causal false");
    let long = find("matmul bf16 two warps across");
    let mutations: [(&Case, Mutation); 9] = [
        (full, ("copies_wait<", "copies_wait<99 + ")),
        (full, ("__syncthreads();  // this chunk is there", "// this chunk is there")),
        (full, ("n_full = decltype(full)::value", "n_full = true")),
        (full, ("__shfl_xor_sync(0xffffffffu, x, 2)", "__shfl_xor_sync(0xffffffffu, x, 1)")),
        (full, ("keep_halves(p[2 * x + e % 2]", "keep_halves(p[2 * x + e / 2]")),
        (full, ("into = to + place<32, 2, 1>", "into = to + place<32, 2, 0>")),
        (full, ("load_matrices_transposed(right", "load_matrices(right")),
        (long, ("+ k_1_stage * ", "+ 0 * ")),
        (long, ("own / 16 * 8) * 2", "own / 16 * 8) * 0")),
    ];
    let cases: Vec<_> = mutations.iter().map(|(c, m)| (*c, Some(*m))).collect();
    let Some(errors) = emulate(&cases, "mutate") else { return };
    for ((_, error), (_, (from, to))) in errors.iter().zip(&mutations) {
        assert!(*error > 1.0, "`{from}` replaced by `{to}` goes unseen: error {error}");
    }
}
