//! Emitted sources run on the CPU: `tests/emulate/shim.hpp` stands in for the PTX functions, the host's C++ compiler for
//! NVRTC. Results must be those of the plain interpreter. Skipped, with the reason, where there is no compiler.

// Files carry data to and from the emulation; what is skipped is said.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

mod programs;

use einloom_cascade::DType;
use einloom_cuda::emit::{PTX, Source};
use einloom_cuda::{Pieces, Target, Template, emit};
use einloom_tile::{Layout, TensorDecl, TensorRole};
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
        add(&mut text, &mut main, c, case, &source, &[], folder);
    }
    compare(cases.iter().map(|(case, _)| *case), &text, &main, folder)
}

/// Runs what was added, and compares.
fn compare<'a>(
    cases: impl Iterator<Item = &'a Case>,
    text: &str,
    main: &str,
    folder: &Path,
) -> Option<Vec<(String, f64)>> {
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
    for (c, case) in cases.enumerate() {
        let inputs = programs::inputs(case);
        let expected = programs::expected(case, &inputs);
        let outputs = case.program.tensors.iter().enumerate().filter(|(_, t)| t.role == TensorRole::Output);
        let errors = outputs.zip(expected).map(|((t, tensor), expected)| {
            let bytes = std::fs::read(folder.join(format!("{c}_{t}"))).expect("an output");
            programs::worst(tensor.dtype, &expected, &gathered(tensor, &bytes))
        });
        out.push((case.name.clone(), errors.fold(0.0, f64::max)));
    }
    std::fs::remove_dir_all(folder).expect("removed");
    Some(out)
}

/// Where each element of the tensor is, in elements, row-major.
fn places(tensor: &TensorDecl) -> Vec<usize> {
    let mut out = vec![0];
    for (&dim, stride) in tensor.dims.iter().zip(tensor.strides()) {
        out = out.iter().flat_map(|&at| (0..dim).map(move |k| at + k * stride)).collect();
    }
    out
}

/// The memory of a tensor whose elements, row-major, are these.
fn scattered(tensor: &TensorDecl, elements: &[u8]) -> Vec<u8> {
    let width = tensor.dtype.bytes();
    let mut out = vec![0xff; tensor.reach_bytes().expect("small")];
    for (at, element) in places(tensor).into_iter().zip(elements.chunks(width)) {
        out[at * width..][..width].copy_from_slice(element);
    }
    out
}

/// The elements, row-major, in the memory of a tensor.
fn gathered(tensor: &TensorDecl, memory: &[u8]) -> Vec<u8> {
    let width = tensor.dtype.bytes();
    places(tensor).into_iter().flat_map(|at| memory[at * width..][..width].to_vec()).collect()
}

/// Adds a case: its kernels in a namespace of their own, and a block of the main function that runs them. `sizes` are the
/// values of parameters that the source has for sizes.
fn add(
    text: &mut String,
    main: &mut String,
    number: usize,
    case: &Case,
    source: &Source,
    sizes: &[u32],
    folder: &Path,
) {
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
            .chain((!sizes.is_empty()).then(|| {
                let words: Vec<String> = sizes.iter().map(|w| w.cast_signed().to_string()).collect();
                format!("Sizes{{{{{}}}}}", words.join(", "))
            }))
            .collect();
        let _ = writeln!(text, "static void run{k}() {{ {}({}); }}", info.function, parameters.join(", "));
    }
    let _ = writeln!(text, "}}");
    let inputs = programs::inputs(case);
    let mut given = inputs.iter();
    for (t, tensor) in case.program.tensors.iter().enumerate() {
        let bytes = tensor.reach_bytes().expect("small");
        let file = folder.join(format!("{number}_{t}"));
        if tensor.role == TensorRole::Input {
            std::fs::write(&file, scattered(tensor, given.next().expect("one per input"))).expect("written");
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
        let bytes = tensor.reach_bytes().expect("small");
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

/// Layouts that callers bring: one per tensor of two dimensions.
type Views = fn(&TensorDecl) -> Layout;

#[test]
fn views_are_read_and_written_where_they_are() {
    let views: [(&str, Views); 3] = [
        ("transposed", |t| Layout { strides: vec![1, t.dims[0] + 3], alignment: 2 }),
        ("rows apart", |t| Layout { strides: vec![t.dims[1] * 2 + 8, 1], alignment: 16 }),
        ("every third", |t| Layout { strides: vec![t.dims[1] * 3, 3], alignment: 16 }),
    ];
    let mut cases = vec![];
    for (name, view) in views {
        for case in programs::worked_examples().into_iter().filter(|c| c.name.starts_with("matmul")).step_by(4) {
            let layouts: Vec<Option<Layout>> = case.program.tensors.iter().map(|t| Some(usable(t, view(t)))).collect();
            let name = format!("{name}: {}", case.name);
            cases.push(Case { name, program: case.program.clone().with_layouts(layouts), ..case });
        }
    }
    let all: Vec<_> = cases.iter().map(|c| (c, None)).collect();
    let Some(errors) = emulate(&all, "views") else { return };
    let wrong: Vec<_> = errors.iter().filter(|(_, e)| *e > 1.0).collect();
    assert!(wrong.is_empty(), "{} of {} are wrong:\n{wrong:#?}", wrong.len(), errors.len());
}

/// An element is never less aligned than itself.
fn usable(tensor: &TensorDecl, layout: Layout) -> Layout {
    Layout { alignment: layout.alignment.max(tensor.dtype.bytes()), ..layout }
}

#[test]
fn a_template_computes_what_each_size_of_its_class_does() {
    let matmul = |m: usize, n: usize, k: usize| {
        let program = einloom_tile::by_hand::matmul([m, n, k], [32, 32, 32], DType::Bf16).expect("well-formed");
        programs::case(format!("matmul {m} {n} {k}"), Ok(program))
    };
    let cases = [matmul(64, 64, 64), matmul(128, 96, 96), matmul(96, 160, 192)];
    let sources: Vec<Source> = cases.iter().map(|c| emit(&c.program, &Target::SM_80).expect("a source")).collect();
    let pieces: Vec<Pieces> = sources.iter().map(|s| Pieces::of(&s.text)).collect();
    let template = Template::of(&pieces[0], &pieces[1]).expect("one class");
    if Command::new("g++").arg("--version").output().is_err() {
        eprintln!("not emulated: there is no g++ here");
        return;
    }
    let folder = &std::env::temp_dir().join(format!("einloom-template-{}", std::process::id()));
    std::fs::create_dir_all(folder).expect("a folder for temporary files");
    let (mut text, mut main) = (String::new(), String::new());
    for (c, case) in cases.iter().enumerate() {
        let sizes = template.values(&pieces[c]).expect("of the class");
        // Comments, which a template has none of, say where the PTX functions are.
        let common = Source { text: with_ptx(&template.text()), ..sources[c].clone() };
        add(&mut text, &mut main, c, case, &common, &sizes, folder);
    }
    let errors = compare(cases.iter(), &text, &main, folder).expect("ran");
    assert!(errors.iter().all(|(_, e)| *e <= 1.0), "{errors:?}");
}

/// The text with the PTX functions as they are in every source, in place of the same without comments.
fn with_ptx(template: &str) -> String {
    let bare = Pieces::of(PTX).text();
    let (before, after) = template.split_once(&bare).expect("every source has the PTX functions");
    format!("{before}{PTX}{after}")
}

/// Each chunk reads a state that is a factor where the stream's end puts its last value: a barrier stands between them. (Here threads run
/// one after the other, and no result would tell.)
#[test]
fn what_chunks_read_in_shared_memory_is_put_there_anew_behind_a_barrier() {
    let all = programs::features();
    let barrier = "__syncthreads();  // the last chunk has been read";
    let has = |case: &&Case| emit(&case.program, &Target::SM_80).is_ok_and(|s| s.text.contains(barrier));
    let names: Vec<&str> = all.iter().filter(has).map(|c| c.name.as_str()).collect();
    assert!(!names.is_empty(), "no stream ends with a state in shared memory");
}
