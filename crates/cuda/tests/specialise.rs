//! Schedules of roles as text, and what is refused.

use einloom_cascade::DType::{self, Bf16, F32};
use einloom_cuda::Target;
use einloom_cuda::hopper::{print, specialise};
use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
use einloom_tile::{Builder, Predicate, Program, carry};
use expect_test::{Expect, expect};

fn check(program: &Program, expected: Expect) {
    let text: Vec<String> = (program.kernels.iter())
        .map(|k| specialise(program, k, &Target::SM_90A).map_or_else(|e| e.to_string(), |s| print(program, k, &s)))
        .collect();
    expected.assert_eq(&text.concat());
}

/// A product whose left factor begins `by` elements behind the start of its rows.
fn shifted(by: i64) -> Program {
    let mut p = Builder::new("shifted");
    let (a, b) = (p.input("A", &[4096, 4112], Bf16), p.input("B", &[4096, 4096], Bf16));
    let c = p.output("C", &[4096, 4096], F32);
    p.kernel("shifted", |g| {
        let (m, n) = (g.grid("m", 4096, 128), g.grid("n", 4096, 128));
        let k = g.stream_axis("k", 4096, 64);
        let [acc] = g.stream(k, Predicate::always(), [carry("acc", [m, n], 0.0).typed(F32)], |g, [acc]| {
            let a = g.load("a", a, [m.into(), k + by]);
            let b = g.load("b", b, [k, n]);
            [g.mma_onto("sum", acc, a, b)]
        });
        g.store(c, [m, n], acc);
    });
    p.finish().expect("well-formed")
}

fn attend(d: usize, tile: [usize; 2], causal: bool, dtype: DType) -> Program {
    let sizes = AttentionSizes { b: 2, h: 8, m: 4096, n: 4096, d, e: d };
    attention(sizes, tile, causal, dtype).expect("well-formed")
}

#[test]
fn products_that_add_to_a_state_run_under_the_next_chunk() {
    check(
        &attend(128, [128, 128], true, Bf16),
        expect![[r#"
            schedule of attention for sm_90a: 1 producer of 24 registers, 2 consumers of 240 with 64 of m each, 230400 bytes of shared memory
              about 188 registers of a consumer hold tiles and addresses
              ring q: 1 stage of 32768 bytes at byte 1024
                q: 128×128 bf16 from Q, rows of d, panels of 64 columns swizzled over 128 bytes
              ring k: 3 stages of 32768 bytes at byte 33792
                k: 128×128 bf16 from K, rows of d, panels of 64 columns swizzled over 128 bytes
              ring v: 3 stages of 32768 bytes at byte 132096
                v: 128×128 bf16 from V, rows of e, panels of 64 columns swizzled over 128 bytes
              qk = q in ring q, the summed axis adjacent · k in ring k, the summed axis adjacent: 8 × wgmma m64n128k16 bf16, sums in f32
              o = p in registers · v in ring v, the kept axis adjacent: 8 × wgmma m64n128k16 bf16, sums in f32
              points in the order of b (2), h (8), m (32, last first)
              132 blocks stay and take 512 points: each goes to the block with the least to do so far
              2 consumers start their products in turn
              producer
                acquire q
                fill q
                each chunk of n
                  acquire k
                  fill k
                  acquire v
                  fill v
              consumer
                await q
                start states
                first chunk of n
                  take turn
                  await k
                  multiply qk
                  pass turn
                  settle, 0 under way
                  release k
                  compute s
                  compute mx
                  compute r
                  compute zr
                  compute p
                  compute z
                  compute or
                  advance states
                each other chunk of n
                  take turn
                  await k
                  multiply qk
                  await v
                  multiply o
                  pass turn
                  settle, 1 under way
                  release k
                  compute s
                  compute mx
                  compute r
                  compute zr
                  settle, 0 under way
                  release v
                  compute p
                  compute z
                  compute or
                  advance states
                after of n
                  await v
                  multiply o
                  settle, 0 under way
                  release v
                release q
                compute o
                compute store O, 16 bytes per lane after an exchange within quads
        "#]],
    );
}

#[test]
fn a_matmul_is_one_chain() {
    check(
        &matmul([4096; 3], [128, 256, 64], Bf16).expect("well-formed"),
        expect![[r#"
            schedule of matmul for sm_90a: 1 producer of 24 registers, 2 consumers of 240 with 64 of m each, 197632 bytes of shared memory
              about 152 registers of a consumer hold tiles and addresses
              ring a_b: 4 stages of 49152 bytes at byte 1024
                a: 128×64 bf16 from A, rows of k, panels of 64 columns swizzled over 128 bytes
                b: 64×256 bf16 from B, rows of n, panels of 64 columns swizzled over 128 bytes
              sum = a in ring a_b, the summed axis adjacent · b in ring a_b, the kept axis adjacent: 4 × wgmma m64n256k16 bf16, sums in f32
              points in the order of m (32), n (16)
              132 blocks stay and take 512 points: in turn
              producer
                each chunk of k
                  acquire a_b
                  fill a_b
              consumer
                start states
                first chunk of k
                  await a_b
                  multiply sum
                  advance states
                each other chunk of k
                  await a_b
                  multiply sum
                  settle, 1 under way
                  release a_b
                  advance states
                after of k
                  settle, 0 under way
                  release a_b
                compute store C, 16 bytes per lane after an exchange within quads
        "#]],
    );
}

#[test]
fn refusals_name_the_condition() {
    check(
        &matmul([4096; 3], [128, 256, 64], F32).expect("well-formed"),
        expect!["sum = mma: only products of bf16 or f16 have a wgmma here"],
    );
    check(
        &matmul([4096; 3], [256, 128, 64], Bf16).expect("well-formed"),
        expect!["axis m: 256 rows are more than 3 warpgroups of 64 hold"],
    );
    check(
        &matmul([4096; 3], [192, 256, 64], Bf16).expect("well-formed"),
        expect!["sum: a wgmma of 256 columns takes 154 registers, of 128 that 3 warpgroups start with"],
    );
    check(
        &matmul([4096, 4096, 4100], [128, 128, 64], Bf16).expect("well-formed"),
        expect!["a = load: neighbours in dimension 0 of A are 8200 bytes apart; the copy engine needs multiples of 16"],
    );
    check(
        &matmul([4096; 3], [128, 128, 22], Bf16).expect("well-formed"),
        expect![
            "a = load: tiles of A begin at positions of dimension 1 that are no multiples of 16 bytes; the copy engine needs them"
        ],
    );
    check(
        &shifted(1),
        expect![
            "a = load: tiles of A begin at positions of dimension 1 that are no multiples of 16 bytes; the copy engine needs them"
        ],
    );
    assert!(specialise(&shifted(8), &shifted(8).kernels[0], &Target::SM_90A).is_ok());
}
