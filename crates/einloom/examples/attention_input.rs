//! Makes `examples/attention.safetensors`, the input of the README's first command: queries, keys and values in bf16
//! for 4 heads, 200 queries and 250 keys (sizes that no tile divides) of width 64.
//!
//! `cargo run --release -p einloom --example attention_input -- examples/attention.safetensors`
//!
//! The numbers are those that attention meets: keys share a direction, as in trained models, and every query prefers
//! the keys around its own place, so that scores reach about 20 and rows are far from uniform.

use einloom::formats::{Destination, to_stored, write_safetensors};
use einloom::{Tensor, random::Random};
use einloom_cascade::DType;
use std::path::PathBuf;

const HEADS: usize = 4;
const QUERIES: usize = 200;
const KEYS: usize = 250;
const WIDTH: usize = 64;

/// One head after the other: noise, plus `shared`, plus waves of the row's place in 0..1.
fn rows(name: &str, count: usize, shared: f64, waves: f64) -> Option<Tensor> {
    let mut random = Random::new(20, name);
    let mut values = vec![];
    for head in 0..HEADS {
        for row in 0..count {
            let place = row as f64 / count as f64;
            for column in 0..WIDTH {
                let frequency = std::f64::consts::TAU * (1 + column / 2 + head) as f64;
                let phase = if column % 2 == 0 { 0.0 } else { std::f64::consts::FRAC_PI_2 };
                let wave = if column < 16 { waves * (frequency * place + phase).sin() } else { 0.0 };
                values.push(random.normal() + shared * f64::from(column == 63) + wave);
            }
        }
    }
    Tensor::from_values(DType::Bf16, &[1, HEADS, count, WIDTH], &values)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = PathBuf::from(std::env::args().nth(1).ok_or("where to? give a path")?);
    let tensors = [("Q", QUERIES, 0.0, 3.0), ("K", KEYS, 4.0, 3.0), ("V", KEYS, 0.0, 0.0)];
    let mut stored = vec![];
    for (name, count, shared, waves) in tensors {
        let tensor = rows(name, count, shared, waves).ok_or("the shape holds the values")?;
        let (dtype, dims) = (tensor.dtype(), tensor.dims().to_vec());
        stored.push((name, to_stored(dtype, &dims, tensor.into_bytes())));
    }
    let list: Vec<_> = stored.iter().map(|(name, s)| (*name, s)).collect();
    Destination::open(&path)?.write(|out| write_safetensors(out, &list))?;
    Ok(())
}
