//! Times attention and row kernels, derived and written by hand, with several tiles each.
//!
//! ```text
//! gpu_time [--nvrtc FOLDER] [--cache FOLDER] [--only TEXT] [--target sm_80|sm_90a] [--repeats N]
//!          [--compile FOLDER [--arch sm_90a]]
//! ```
//! `--only` may be given several times: a case is wanted if its name contains every part of one of the texts; `+` separates
//! parts. `--target sm_80` times the common path on any GPU. `--compile` needs no GPU: it writes every case's source,
//! schedule and cubin for `--arch` to the folder (the cubin to the cache too) and prints registers and spills. Otherwise
//! each line is a case: its median time, rate, registers, spilled bytes, and the largest error of some elements relative to
//! their rows' largest. Exit status: 0 all right, 1 something failed or is wrong, 3 no GPU or no compiler.

// A program of its own, with arguments and output.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

mod cases;

use cases::{Case, Work};
use einloom_cascade::DType;
use einloom_cascade::numeric::{decode, encode};
use einloom_cuda::runtime::{Cache, Compiler, Device, Executable, RunError, Search};
use einloom_cuda::{Target, emit};
use einloom_tile::{TensorDecl, TensorRole};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Default)]
struct Arguments {
    nvrtc: Option<PathBuf>,
    cache: Option<PathBuf>,
    only: Vec<Vec<String>>,
    arch: String,
    target: Option<Target>,
    repeats: usize,
    compile: Option<PathBuf>,
}

fn arguments() -> Result<Arguments, String> {
    let mut out = Arguments { repeats: 10, arch: "sm_90a".into(), ..Arguments::default() };
    let mut rest = std::env::args().skip(1);
    while let Some(argument) = rest.next() {
        let mut value = || rest.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--nvrtc" => out.nvrtc = Some(value()?.into()),
            "--cache" => out.cache = Some(value()?.into()),
            "--only" => out.only.push(value()?.split('+').map(str::to_string).collect()),
            "--arch" => out.arch = value()?,
            "--repeats" => out.repeats = value()?.parse().map_err(|_| "--repeats needs a number")?,
            "--compile" => out.compile = Some(value()?.into()),
            "--target" => {
                out.target = match value()?.as_str() {
                    "sm_80" => Some(Target::SM_80),
                    "sm_90a" => Some(Target::SM_90A),
                    other => return Err(format!("{other} is no target")),
                }
            }
            _ => return Err(format!("{argument} is not known")),
        }
    }
    Ok(out)
}

fn main() -> ExitCode {
    let fail = |status, e: String| {
        eprintln!("gpu_time: {e}");
        ExitCode::from(status)
    };
    let arguments = match arguments() {
        Ok(a) => a,
        Err(e) => return fail(2, e),
    };
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let search = Search {
        directories: arguments.nvrtc.iter().cloned().collect(),
        cuda_path: variable("CUDA_PATH").or(variable("CUDA_HOME")),
        python_environment: variable("VIRTUAL_ENV").or(variable("CONDA_PREFIX")),
    };
    let compiler = match Compiler::open(&search) {
        Ok(c) => c,
        Err(e) => return fail(3, e.to_string()),
    };
    let named = |c: &Case, parts: &[String]| parts.iter().all(|part| c.name.contains(part.as_str()));
    let wanted = |c: &Case| arguments.only.is_empty() || arguments.only.iter().any(|parts| named(c, parts));
    let cache = arguments.cache.clone().map(Cache::new);
    let cases: Vec<Case> = cases::all().into_iter().filter(wanted).collect();
    let mut failed = 0;
    if let Some(folder) = &arguments.compile {
        let target = arguments.target.unwrap_or(Target::SM_80);
        for case in &cases {
            match compiled(&compiler, cache.as_ref(), case, &target, &arguments.arch, folder) {
                Ok(line) => println!("{:58} {line}", case.name),
                Err(e) => {
                    failed += 1;
                    println!("{:58} ERROR {e}", case.name);
                }
            }
        }
        return ExitCode::from(u8::from(failed > 0));
    }
    let device = match Device::open() {
        Ok(d) => d,
        Err(e) => return fail(3, e.to_string()),
    };
    let target = arguments.target.unwrap_or_else(|| device.target());
    println!("{}, scheduled for {}", device.name(), target.arch);
    println!("{:58} {:>9} {:>15} {:>5} {:>6} {:>8}", "", "ms", "", "regs", "spill", "error");
    for case in &cases {
        match timed(&device, &compiler, cache.as_ref(), case, &target, arguments.repeats) {
            Ok((line, right)) => {
                failed += usize::from(!right);
                println!("{:58} {line}{}", case.name, if right { "" } else { "  WRONG" });
            }
            Err(e) => {
                failed += 1;
                println!("{:58} ERROR {e}", case.name);
            }
        }
    }
    ExitCode::from(u8::from(failed > 0))
}

/// Writes the case's source, schedule and cubin; what ptxas says.
fn compiled(
    compiler: &Compiler,
    cache: Option<&Cache>,
    case: &Case,
    target: &Target,
    arch: &str,
    folder: &Path,
) -> Result<String, String> {
    let source = emit(&case.program, target).map_err(|e| e.to_string())?;
    std::fs::create_dir_all(folder).map_err(|e| e.to_string())?;
    let file = case.name.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
    let put = |ending: &str, bytes: &[u8]| {
        std::fs::write(folder.join(format!("{file}.{ending}")), bytes).map_err(|e| e.to_string())
    };
    put("cu", source.text.as_bytes())?;
    put("schedule", source.schedule.as_bytes())?;
    let binary = compiler.compile(&source.text, arch, cache).map_err(|e| e.to_string())?;
    put("cubin", &binary.cubin)?;
    let said = binary.log.lines().filter(|l| l.contains("registers") || l.contains("spill"));
    Ok(said.map(|l| l.trim().trim_start_matches("ptxas info    : ")).collect::<Vec<_>>().join("; "))
}

/// Random numbers within 2 of 0 (or positions below `limit`, for integers): a block of them, repeated; and the block.
fn input(decl: &TensorDecl, limit: usize, seed: &mut u64) -> (Vec<u8>, Vec<f64>) {
    let count = decl.dims.iter().product::<usize>();
    let mut next = || {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*seed >> 40) as f64 / (1u64 << 24) as f64
    };
    let number = |u: f64| if decl.dtype.is_integer() { (u * limit as f64).floor() } else { 4.0 * u - 2.0 };
    // A length that is no divisor of anything here.
    let block: Vec<f64> = (0..count.min(1_000_003)).map(|_| number(next())).collect();
    let bytes = encode(decl.dtype, &block);
    let mut block = vec![];
    decode(decl.dtype, &bytes, &mut block);
    let mut all = Vec::with_capacity(count * decl.dtype.bytes());
    while all.len() < all.capacity() {
        let rest = all.capacity() - all.len();
        all.extend_from_slice(&bytes[..bytes.len().min(rest)]);
    }
    (all, block)
}

fn timed(
    device: &Device,
    compiler: &Compiler,
    cache: Option<&Cache>,
    case: &Case,
    target: &Target,
    repeats: usize,
) -> Result<(String, bool), RunError> {
    let executable = Executable::with_target(&case.program, device, compiler, cache, target)?;
    let mut memory = executable.allocate()?;
    let mut seed = 1;
    let mut inputs = vec![];
    for (decl, buffer) in case.program.tensors.iter().zip(&mut memory) {
        if decl.role == TensorRole::Input {
            let (bytes, block) = input(decl, case.positions, &mut seed);
            buffer.upload(&bytes)?;
            inputs.push(block);
        } else {
            buffer.fill(0xff)?;
        }
    }
    let report = executable.time(&memory, repeats)?;
    executable.status(&memory)?;
    let Some((at, decl)) = case.program.tensors.iter().enumerate().find(|t| t.1.role == TensorRole::Output) else {
        return Ok(("no output".into(), false));
    };
    let mut bytes = vec![0; memory[at].len()];
    memory[at].download(&mut bytes)?;
    let element = |dtype: DType, bytes: &[u8], at: usize| {
        let mut out = vec![];
        decode(dtype, &bytes[at * dtype.bytes()..(at + 1) * dtype.bytes()], &mut out);
        out[0]
    };
    let read = |input: usize, at: usize| inputs[input][at % inputs[input].len()];
    let count = decl.dims.iter().product::<usize>();
    // A step that is no divisor of anything here.
    let errors = (0..count).step_by(count / 7 + 1013).map(|at| {
        let (expected, scale) = (case.expected)(&read, at);
        let error = (expected - element(decl.dtype, &bytes, at)).abs() / scale;
        if error.is_nan() { f64::INFINITY } else { error }
    });
    let error = errors.fold(0.0, f64::max);
    let rate = match case.work {
        Work::Flops(n) => format!("{:8.1} TFLOP/s", n / report.seconds / 1e12),
        Work::Bytes(n) => format!("{:8.3} TB/s   ", n / report.seconds / 1e12),
    };
    let registers = report.kernels.iter().map(|k| k.registers).max().unwrap_or(0);
    let spilled = report.kernels.iter().map(|k| k.local_bytes).max().unwrap_or(0);
    let line = format!("{:9.4} {rate} {registers:5} {spilled:6} {error:8.5}", report.seconds * 1e3);
    Ok((line, error < 0.02))
}
