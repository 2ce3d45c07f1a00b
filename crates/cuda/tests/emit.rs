//! Emitted sources as text, after the prelude. `UPDATE_EXPECT=1 cargo test` rewrites the files.

use einloom_cascade::DType::Bf16;
use einloom_cuda::emit::PRELUDE;
use einloom_cuda::{Target, emit};
use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
use einloom_tile::{Block, Program};
use expect_test::{ExpectFile, expect_file};

fn check(program: &Program, expected: ExpectFile) {
    let source = emit(program, &Target::SM_80).expect("fits");
    let (_, kernels) = source.text.split_once(PRELUDE).expect("every source has the prelude");
    expected.assert_eq(kernels.trim_start());
    // The same input gives the same text.
    assert_eq!(emit(program, &Target::SM_80), Ok(source));
}

#[test]
fn matmul_by_hand() {
    check(&matmul([1000, 500, 300], [128, 128, 64], Bf16).expect("well-formed"), expect_file!["emit/matmul.cu"]);
}

/// Blocks of the cache: seven rows of tiles are left for the last one.
#[test]
fn matmul_by_blocks() {
    let mut program = matmul([1000, 500, 300], [64, 128, 64], Bf16).expect("well-formed");
    let kernel = &mut program.kernels[0];
    let sides = vec![(kernel.grid[0], 9 * 64), (kernel.grid[1], 500)];
    kernel.blocks = vec![Block { memory: "L2".to_string(), sides }];
    kernel.grid.reverse();
    check(&program, expect_file!["emit/matmul_by_blocks.cu"]);
}

#[test]
fn attention_by_hand() {
    let sizes = AttentionSizes { b: 2, h: 8, m: 1000, n: 1000, d: 64, e: 64 };
    check(&attention(sizes, [128, 64], true, Bf16).expect("well-formed"), expect_file!["emit/attention.cu"]);
}
