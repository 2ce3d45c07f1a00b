//! How a run is called: arrays, threads, progress.

use einloom_cascade::DType::{self, F32};
use einloom_cpu::{Executable, Options, Report, RunError, RunOptions, View, ViewMut};
use einloom_tile::{Builder, Program};
use std::sync::Mutex;

fn double() -> Program {
    let mut p = Builder::new("double");
    let (x, y) = (p.input("X", &[64], F32), p.output("Y", &[64], F32));
    p.kernel("double", |g| {
        let i = g.grid("i", 64, 4);
        let x = g.load("x", x, [i]);
        g.store(y, [i], x * 2.0);
    });
    p.finish().expect("well-formed")
}

fn call(x: &[u8], y: &mut [u8], dims: &[usize], dtype: DType, options: &RunOptions<'_>) -> Result<Report, RunError> {
    let executable = Executable::new(&double(), &Options::default()).expect("runs here");
    executable.run(&[View { dtype, dims, bytes: x }], &mut [ViewMut { dtype: F32, dims: &[64], bytes: y }], options)
}

#[test]
fn inputs_may_be_misaligned_outputs_may_not() {
    let (mut x, mut y) = ([0u64; 33], [0u64; 33]);
    let numbers: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let x: &mut [u8] = bytemuck::cast_slice_mut(&mut x);
    x[1..257].copy_from_slice(bytemuck::cast_slice(&numbers));
    let y: &mut [u8] = bytemuck::cast_slice_mut(&mut y);
    call(&x[1..257], &mut y[..256], &[64], F32, &RunOptions::default()).expect("runs");
    let results: &[f32] = bytemuck::cast_slice(&y[..256]);
    assert!(results.iter().enumerate().all(|(i, &y)| y == 2.0 * i as f32));
    let error = call(&x[1..257], &mut y[2..258], &[64], F32, &RunOptions::default()).expect_err("misaligned");
    assert_eq!(error, RunError::Misaligned { tensor: "Y".to_string(), alignment: 4 });
}

#[test]
fn arrays_of_another_shape_or_type_are_refused() {
    let (x, mut y) = ([0u64; 32], [0u64; 32]);
    let x = bytemuck::cast_slice(&x);
    let y = bytemuck::cast_slice_mut(&mut y);
    let error = call(x, y, &[8, 8], F32, &RunOptions::default()).expect_err("shape");
    assert_eq!(error.to_string(), "`X` has shape [64], an array of shape [8, 8] was given");
    let error = call(x, y, &[64], DType::I32, &RunOptions::default()).expect_err("type");
    assert_eq!(error.to_string(), "`X` holds f32, an array of i32 was given");
}

#[test]
fn progress_ends_at_one_and_counters_are_off_unless_asked_for() {
    let (x, mut y) = ([0u64; 32], [0u64; 32]);
    let seen = Mutex::new(vec![]);
    let note = |done: f64| seen.lock().expect("not poisoned").push(done);
    let options = RunOptions { threads: Some(2), progress: Some(&note), ..RunOptions::default() };
    let report = call(bytemuck::cast_slice(&x), bytemuck::cast_slice_mut(&mut y), &[64], F32, &options).expect("runs");
    let seen = seen.into_inner().expect("not poisoned");
    assert!(seen.iter().all(|&x| 0.0 < x && x <= 1.0) && seen.contains(&1.0), "{seen:?}");
    assert_eq!(report.kernels[0].traffic, []);
}

/// A byte holds more than an `i4` or a `u4`: what is none is refused, wherever the array has it, and what is between its elements
/// is nobody's.
#[test]
fn bytes_that_are_no_value_of_the_type_are_refused() {
    for (dtype, bad, value) in [(DType::I4, 8, 8), (DType::I4, 0xf7, -9), (DType::U4, 16, 16), (DType::U4, 0xff, 255)] {
        let mut p = Builder::new("sums");
        let (x, y) = (p.input("X", &[2, 3], dtype), p.output("Y", &[2, 3], DType::I32));
        p.kernel("sums", |g| {
            let (i, j) = (g.grid("i", 2, 1), g.whole("j", 3));
            let x = g.load("x", x, [i.into(), einloom_tile::Coord::from(j)]);
            g.store(y, [i.into(), einloom_tile::Coord::from(j)], x + 1.0);
        });
        let mut program = p.finish().expect("well-formed");
        for strides in [None, Some(vec![4, 1])] {
            program.tensors[0].layout = strides.clone().map(|strides| einloom_tile::Layout { strides, alignment: 1 });
            let executable = Executable::new(&program, &Options::default()).expect("runs here");
            let run = |bytes: &[u8]| {
                let mut y = [0u64; 3];
                let out = ViewMut { dtype: DType::I32, dims: &[2, 3], bytes: bytemuck::cast_slice_mut(&mut y) };
                executable.run(&[View { dtype, dims: &[2, 3], bytes }], &mut [out], &RunOptions::default()).map(|_| y)
            };
            let row = strides.as_ref().map_or(3, |s| s[0]);
            let mut bytes = vec![7; row + 3];
            if row > 3 {
                bytes[3] = 0x80;
            }
            run(&bytes).expect("runs");
            bytes[row + 2] = bad;
            let error = run(&bytes).expect_err("no value");
            assert_eq!(error, RunError::Value { tensor: "X".to_string(), dtype, index: vec![1, 2], value });
            assert_eq!(error.to_string(), format!("`X` holds {dtype}, and its element at [1, 2] is {value}"));
        }
    }
}
