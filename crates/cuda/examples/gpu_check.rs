//! Checks this crate on a GPU: every test program against a plain f64 interpreter, then the speed of products and
//! attention. Needs the driver and NVRTC, nothing else.
//!
//! ```text
//! gpu_check [--nvrtc FOLDER] [--cache FOLDER] [--only TEXT] [--no-times] [--memcheck]
//! ```
//! `--memcheck` runs each program once and compares nothing, for compute-sanitizer. Exit status: 0 all right, 1 wrong
//! results, 3 no GPU or no compiler.

// A program of its own, with arguments and output.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

#[path = "../tests/programs/mod.rs"]
mod programs;

use einloom_cascade::DType;
use einloom_cascade::numeric::{decode, encode};
use einloom_cuda::Target;
use einloom_cuda::runtime::{Cache, Compiler, Device, Executable, RunError, Search, View, ViewMut};
use einloom_tile::TensorRole;
use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
use programs::Case;
use std::path::PathBuf;
use std::process::ExitCode;

struct Arguments {
    nvrtc: Option<PathBuf>,
    cache: Option<PathBuf>,
    only: String,
    times: bool,
    compare: bool,
}

fn arguments() -> Result<Arguments, String> {
    let mut out = Arguments { nvrtc: None, cache: None, only: String::new(), times: true, compare: true };
    let mut rest = std::env::args().skip(1);
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--nvrtc" => out.nvrtc = Some(value()?.into()),
            "--cache" => out.cache = Some(value()?.into()),
            "--only" => out.only = value()?,
            "--no-times" => out.times = false,
            "--memcheck" => (out.times, out.compare) = (false, false),
            _ => return Err(format!("{argument} is not known")),
        }
    }
    Ok(out)
}

struct Machine {
    device: Device,
    compiler: Compiler,
    cache: Option<Cache>,
}

fn open(arguments: &Arguments) -> Result<Machine, String> {
    let device = Device::open().map_err(|e| e.to_string())?;
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let search = Search {
        directories: arguments.nvrtc.iter().cloned().collect(),
        cuda_path: variable("CUDA_PATH").or(variable("CUDA_HOME")),
        python_environment: variable("VIRTUAL_ENV").or(variable("CONDA_PREFIX")),
    };
    let compiler = Compiler::open(&search).map_err(|e| e.to_string())?;
    let (major, minor) = device.capability();
    println!(
        "{}, compute capability {major}.{minor}, {} multiprocessors, driver {}, NVRTC {} at {}",
        device.name(),
        device.multiprocessors(),
        device.driver_version(),
        compiler.version(),
        compiler.path()
    );
    Ok(Machine { device, compiler, cache: arguments.cache.clone().map(Cache::new) })
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(a) => a,
        Err(e) => {
            eprintln!("gpu_check: {e}");
            return ExitCode::from(2);
        }
    };
    let machine = match open(&arguments) {
        Ok(m) => m,
        Err(e) => {
            eprintln!("gpu_check: {e}");
            return ExitCode::from(3);
        }
    };
    let mut targets = vec![machine.device.target()];
    if targets[0].arch != Target::SM_80.arch {
        targets.push(Target::SM_80);
    }
    let mut wrong = 0;
    for target in targets {
        println!(
            "\nscheduled for {}: largest error as a multiple of what the output's number type allows",
            target.arch
        );
        for case in cases().into_iter().filter(|c| c.name.contains(&arguments.only)) {
            match check(&machine, &case, &target, arguments.compare) {
                Ok(error) => {
                    let verdict = if error <= 1.0 { "ok" } else { "WRONG" };
                    wrong += usize::from(error > 1.0);
                    println!("  {verdict:5} {error:9.4}  {}", case.name);
                }
                Err(e) => {
                    wrong += 1;
                    println!("  ERROR            {}: {e}", case.name);
                }
            }
        }
    }
    match out_of_range(&machine) {
        Err(RunError::OutOfRange { coordinate: 7, .. }) => {
            println!("\n  ok    a gather outside its tensor is reported")
        }
        other => {
            wrong += 1;
            println!("\n  WRONG a gather outside its tensor gives {other:?}");
        }
    }
    if arguments.times {
        wrong += times(&machine);
    }
    println!("\n{}", if wrong == 0 { "all right".to_string() } else { format!("{wrong} wrong") });
    ExitCode::from(u8::from(wrong > 0))
}

/// The test programs, and products and attention of a few blocks.
fn cases() -> Vec<Case> {
    let mut out: Vec<Case> = programs::features().into_iter().chain(programs::worked_examples()).collect();
    let mut add = |name: String, program| {
        if let Ok(program) = program {
            out.push(Case { name, program, scale: 1.0 });
        }
    };
    for size in [[520, 264, 200], [129, 257, 65], [256, 128, 1]] {
        add(format!("matmul bf16 {size:?} tiles 128"), matmul(size, [128, 128, 64], DType::Bf16));
    }
    for (d, m, n) in [(64, 300, 333), (128, 130, 257), (256, 70, 130), (40, 129, 191)] {
        for causal in [false, true] {
            let sizes = AttentionSizes { b: 1, h: 2, m, n, d, e: d };
            let name = format!("attention bf16 m {m} n {n} d {d} causal {causal} tiles 128");
            add(name, attention(sizes, [128, 64], causal, DType::Bf16));
        }
    }
    out
}

fn run(machine: &Machine, case: &Case, target: &Target, inputs: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, RunError> {
    let (device, compiler) = (&machine.device, &machine.compiler);
    let executable = Executable::with_target(&case.program, device, compiler, machine.cache.as_ref(), target)?;
    let role = |role| case.program.tensors.iter().filter(move |t| t.role == role);
    let views: Vec<View<'_>> =
        role(TensorRole::Input).zip(inputs).map(|(t, bytes)| View { dtype: t.dtype, dims: &t.dims, bytes }).collect();
    let size = |t: &einloom_tile::TensorDecl| t.dims.iter().product::<usize>() * t.dtype.bytes();
    let mut results: Vec<Vec<u8>> = role(TensorRole::Output).map(|t| vec![0xff; size(t)]).collect();
    let mut outputs: Vec<ViewMut<'_>> = role(TensorRole::Output)
        .zip(&mut results)
        .map(|(t, bytes)| ViewMut { dtype: t.dtype, dims: &t.dims, bytes })
        .collect();
    executable.run(&views, &mut outputs)?;
    Ok(results)
}

fn check(machine: &Machine, case: &Case, target: &Target, compare: bool) -> Result<f64, RunError> {
    let inputs = programs::inputs(case);
    let results = run(machine, case, target, &inputs)?;
    if !compare {
        return Ok(0.0);
    }
    let outputs = case.program.tensors.iter().filter(|t| t.role == TensorRole::Output);
    let errors = outputs.zip(programs::expected(case, &inputs)).zip(&results);
    Ok(errors.map(|((t, expected), bytes)| programs::worst(t.dtype, &expected, bytes)).fold(0.0, f64::max))
}

/// A gather whose indices name an element that does not exist.
fn out_of_range(machine: &Machine) -> Result<(), RunError> {
    let Some(case) = programs::features().into_iter().find(|c| c.name == "gather") else { return Ok(()) };
    let mut inputs = programs::inputs(&case);
    inputs[0] = encode(DType::I32, &[0.0, 7.0].repeat(20));
    run(machine, &case, &machine.device.target(), &inputs).map(|_| ())
}

/// Speeds, with a few elements of each result checked; the number of wrong results.
fn times(machine: &Machine) -> usize {
    println!("\n{:44} {:>9} {:>9} {:>5} {:>6} {:>7}", "bf16", "ms", "TFLOP/s", "regs", "spill", "error");
    let mut wrong = 0;
    for (size, tile) in [
        ([4096; 3], [128, 128, 64]),
        ([4096; 3], [128, 128, 32]),
        ([4096; 3], [128, 256, 32]),
        ([8192; 3], [128, 128, 64]),
        ([4000, 4001, 3999], [128, 128, 64]),
    ] {
        let Ok(program) = matmul(size, tile, DType::Bf16) else { continue };
        let flops = 2.0 * size.iter().map(|&n| n as f64).product::<f64>();
        let case = Case { name: format!("matmul {size:?} tiles {tile:?}"), program, scale: 1.0 };
        wrong += timed(machine, &case, flops, &|inputs, at| product_element(inputs, size, at));
    }
    for d in [64, 128, 256] {
        for s in [1024, 4096, 16384] {
            for causal in [false, true] {
                let sizes = AttentionSizes { b: 16384 / s, h: 2048 / d, m: s, n: s, d, e: d };
                let Ok(program) = attention(sizes, [128, 64], causal, DType::Bf16) else { continue };
                let full = 4.0 * (sizes.b * sizes.h) as f64 * (s * s * d) as f64;
                let flops = if causal { full / 2.0 } else { full };
                let name = format!("attention d {d} S {s} {}", if causal { "causal" } else { "full" });
                let case = Case { name, program, scale: 1.0 };
                wrong += timed(machine, &case, flops, &|inputs, at| attention_element(inputs, sizes, causal, at));
            }
        }
    }
    wrong
}

fn timed(machine: &Machine, case: &Case, flops: f64, element: &dyn Fn(&[Vec<f32>], usize) -> f64) -> usize {
    let result = (|| {
        let cache = machine.cache.as_ref();
        let executable = Executable::new(&case.program, &machine.device, &machine.compiler, cache)?;
        let mut memory = executable.allocate()?;
        let inputs = programs::inputs(case);
        for (buffer, bytes) in memory.iter_mut().zip(&inputs) {
            buffer.upload(bytes)?;
        }
        let last = inputs.len();
        memory[last].fill(0xff)?;
        let report = executable.time(&memory, 10)?;
        executable.status(&memory)?;
        let mut bytes = vec![0; memory[last].len()];
        memory[last].download(&mut bytes)?;
        Ok::<_, RunError>((report, inputs, bytes))
    })();
    let (report, inputs, bytes) = match result {
        Ok(r) => r,
        Err(e) => {
            println!("{:44} ERROR {e}", case.name);
            return 1;
        }
    };
    let wide = |bytes: &[u8]| {
        let mut out = vec![];
        decode(DType::Bf16, bytes, &mut out);
        out
    };
    let inputs: Vec<Vec<f32>> = inputs.iter().map(|b| wide(b).into_iter().map(|x| x as f32).collect()).collect();
    let given = wide(&bytes);
    // A step that is no divisor of anything here.
    let error = (0..given.len()).step_by(given.len() / 37 + 1013).map(|at| {
        let expected = element(&inputs, at);
        let error = (expected - given[at]).abs() / expected.abs().max(0.02);
        if error.is_nan() { f64::INFINITY } else { error }
    });
    let error = error.fold(0.0, f64::max);
    let kernel = &report.kernels[0];
    println!(
        "{:44} {:9.3} {:9.1} {:5} {:6} {:7.4}",
        case.name,
        report.seconds * 1e3,
        flops / report.seconds / 1e12,
        kernel.registers,
        kernel.local_bytes,
        error
    );
    usize::from(error > 0.05)
}

fn product_element(inputs: &[Vec<f32>], [_, n, k]: [usize; 3], at: usize) -> f64 {
    let (row, column) = (at / n, at % n);
    (0..k).map(|x| f64::from(inputs[0][row * k + x]) * f64::from(inputs[1][x * n + column])).sum()
}

fn attention_element(inputs: &[Vec<f32>], s: AttentionSizes, causal: bool, at: usize) -> f64 {
    let (head, row, column) = (at / s.e / s.m, at / s.e % s.m, at % s.e);
    let q = &inputs[0][(head * s.m + row) * s.d..][..s.d];
    let seen = if causal { s.n.min(row + 1) } else { s.n };
    let score = |n: usize| {
        let k = &inputs[1][(head * s.n + n) * s.d..][..s.d];
        q.iter().zip(k).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>() / (s.d as f64).sqrt()
    };
    let scores: Vec<f64> = (0..seen).map(score).collect();
    let top = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|x| (x - top).exp()).collect();
    let value = |n: usize| f64::from(inputs[2][(head * s.n + n) * s.e + column]);
    let sum: f64 = weights.iter().enumerate().map(|(n, w)| w * value(n)).sum();
    sum / weights.iter().sum::<f64>()
}
