//! A tile program in f64, kernel by kernel.

use einloom_cascade::DType;
use einloom_cuda::hopper::machine::{Arrays, interpret as one};
use einloom_tile::{Program, TensorId, TensorRole};

/// Every output of the program for these inputs; what no kernel writes is NaN.
pub fn interpret(program: &Program, inputs: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut memory = Arrays::new(program, inputs);
    for kernel in &program.kernels {
        one(program, kernel, &mut memory).unwrap_or_else(|e| panic!("{}: {e:?}", kernel.name));
    }
    let outputs =
        (0..program.tensors.len() as u32).map(TensorId).filter(|t| program.tensor(*t).role == TensorRole::Output);
    let values = |t: TensorId| {
        let size = program.tensor(t).dims.iter().product();
        (0..size).map(|place| memory.element(t, place).unwrap_or(f64::NAN)).collect()
    };
    outputs.map(values).collect()
}

/// How far results may be apart, beyond a rounding to the output's own number type: by what is summed on the way.
pub fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-9,
        DType::F32 => 2e-4,
        DType::Tf32 => 1e-3,
        DType::F16 => 4e-3,
        DType::Bf16 => 3e-2,
        DType::E4m3 => 0.15,
        DType::E5m2 => 0.3,
        _ => 1.01,
    }
}
