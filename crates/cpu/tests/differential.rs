//! Random programs agree with the interpreter, on every instruction set.

mod support;

use support::random::{Random, Style, data, program};

fn compare(style: Style, seeds: std::ops::Range<u64>, tolerance: f64) {
    for seed in seeds {
        let mut r = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let program = program(&mut r, style);
        let inputs = data(&program, &mut r);
        support::check(&program, &inputs, tolerance);
    }
}

#[test]
fn exact_operations_in_all_number_types_agree_bit_by_bit() {
    compare(Style::Exact, 0..400, 0.0);
}

#[test]
fn functions_agree_within_a_tolerance() {
    compare(Style::Smooth, 1000..1300, 2e-5);
}
