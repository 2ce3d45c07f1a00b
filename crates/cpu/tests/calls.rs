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
