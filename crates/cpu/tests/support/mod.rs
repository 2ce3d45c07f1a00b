//! What tile programs mean, one element at a time in f64, and the means to compare an executable with it.
#![allow(dead_code)] // Each test file uses a part.

pub mod interpreter;
pub mod random;

use einloom_cascade::numeric::{decode, encode};
use einloom_cpu::{Bf16Products, Executable, Isa, Options, ProductRates, Report, RunError, RunOptions, View, ViewMut};
use einloom_tile::{Program, TensorRole};

/// The instruction sets of this machine.
pub fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().filter(|isa| isa.is_available())
}

/// The ways to compute of this machine: its instruction sets, pairs of bf16 and the matrix unit.
pub fn ways() -> impl Iterator<Item = Options> {
    let rates = ProductRates::measured();
    let pairs = rates.pairs.map(|_| Options { isa: None, bf16: Bf16Products::Pairs });
    let tiles = rates.tiles.map(|_| Options { isa: None, bf16: Bf16Products::Tiles });
    isas().map(|isa| Options { isa: Some(isa), bf16: Bf16Products::Widened }).chain(pairs).chain(tiles)
}

/// Runs on arrays of values, in the order of the program's inputs; the outputs' values.
pub fn run(
    program: &Program,
    options: &Options,
    threads: usize,
    inputs: &[Vec<f64>],
) -> Result<(Vec<Vec<f64>>, Report), RunError> {
    let executable = Executable::new(program, options).unwrap_or_else(|e| panic!("{e}"));
    run_again(&executable, threads, None, inputs)
}

/// Another run of the same executable, disturbed by a number if there is one.
pub fn run_again(
    executable: &Executable,
    threads: usize,
    disturb: Option<u64>,
    inputs: &[Vec<f64>],
) -> Result<(Vec<Vec<f64>>, Report), RunError> {
    let program = executable.program();
    let role = |role| program.tensors.iter().filter(move |t| t.role == role);
    let data: Vec<Vec<u8>> = role(TensorRole::Input).zip(inputs).map(|(t, x)| encode(t.dtype, x)).collect();
    let views: Vec<View<'_>> =
        role(TensorRole::Input).zip(&data).map(|(t, bytes)| View { dtype: t.dtype, dims: &t.dims, bytes }).collect();
    // 64-bit words, so that every number type is aligned.
    let bytes = |t: &einloom_tile::TensorDecl| t.dims.iter().product::<usize>() * t.dtype.bytes();
    let mut results: Vec<Vec<u64>> = role(TensorRole::Output).map(|t| vec![0; bytes(t).div_ceil(8)]).collect();
    let mut outputs: Vec<ViewMut<'_>> = role(TensorRole::Output)
        .zip(&mut results)
        .map(|(t, words)| ViewMut {
            dtype: t.dtype,
            dims: &t.dims,
            bytes: &mut bytemuck::cast_slice_mut(words)[..bytes(t)],
        })
        .collect();
    let options = RunOptions { threads: Some(threads), count: true, disturb, ..RunOptions::default() };
    let report = executable.run(&views, &mut outputs, &options)?;
    let values = role(TensorRole::Output)
        .zip(&outputs)
        .map(|(t, view)| {
            let mut out = vec![];
            decode(t.dtype, view.bytes, &mut out);
            out
        })
        .collect();
    Ok((values, report))
}

/// Checks a program against the interpreter with every instruction set and several numbers of threads: outputs within
/// `tolerance` (relative to `1 + |x|`; 0 asks for the same value), counters exactly, and the same bits whatever the
/// number of threads, the order of points and what memory held before.
pub fn check(program: &Program, inputs: &[Vec<f64>], tolerance: f64) {
    let expected = interpreter::run(program, inputs).expect("in range");
    for options in ways() {
        let (outputs, report) = run(program, &options, 1, inputs).expect("runs");
        for ((got, want), tensor) in
            outputs.iter().zip(&expected.outputs).zip(program.tensors.iter().filter(|t| t.role == TensorRole::Output))
        {
            for (i, (&got, &want)) in got.iter().zip(want).enumerate() {
                let near = got == want
                    || (got.is_nan() && want.is_nan())
                    || (got - want).abs() <= tolerance * (1.0 + want.abs());
                assert!(
                    near,
                    "{options:?}: {}[{i}] is {got}, should be {want}\n{}",
                    tensor.name,
                    einloom_tile::print(program)
                );
            }
        }
        for (kernel, expected) in report.kernels.iter().zip(&expected.kernels) {
            assert_eq!(kernel.traffic, expected.traffic, "{}", einloom_tile::print(program));
            assert_eq!(kernel.skipped_chunks, expected.skipped, "{}", einloom_tile::print(program));
        }
        let bits = |x: &[Vec<f64>]| x.iter().flatten().map(|x| x.to_bits()).collect::<Vec<_>>();
        let executable = Executable::new(program, &options).unwrap_or_else(|e| panic!("{e}"));
        for (threads, disturb) in [(3, None), (1, Some(0)), (3, Some(1)), (1, Some(2))] {
            let (again, _) = run_again(&executable, threads, disturb, inputs).expect("runs");
            assert_eq!(bits(&outputs), bits(&again), "{disturb:?}: {}", einloom_tile::print(program));
        }
    }
}
