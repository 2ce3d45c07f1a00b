//! Schedules as text, and what is refused.

use einloom_cascade::DType::{self, Bf16, F32, I8};
use einloom_cuda::emit::refusals;
use einloom_cuda::schedule::{print, schedule};
use einloom_cuda::{Refusal, Target};
use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
use einloom_tile::{Builder, Program, TileMonoid};
use expect_test::{Expect, expect};

fn check(program: &Program, target: Target, expected: Expect) {
    let text: Vec<String> = (program.kernels.iter())
        .map(|k| schedule(program, k, &target).map_or_else(|e| e.to_string(), |s| print(program, k, &s)))
        .collect();
    expected.assert_eq(&text.concat());
}

fn attend(d: usize, dtype: DType) -> Program {
    let sizes = AttentionSizes { b: 2, h: 8, m: 4096, n: 4096, d, e: d };
    attention(sizes, [128, 64], true, dtype).expect("well-formed")
}

#[test]
fn products_lie_in_fragments_and_states_stay_in_place() {
    check(
        &attend(64, Bf16),
        Target::SM_90A,
        expect![[r#"
            schedule attention for sm_90a   4 warps, 81920 bytes of shared memory, about 212 registers
              frame 0: m down × e, n across, fragments of 4 × 1 warps
              q: bf16 in shared memory; 128×64 bf16 swizzled at byte 0, 1 × 16384 bytes, cp.async of 16 bytes
              Mx: f32 4 registers in frame 0
              Z: f32 4 registers in frame 0, every thread a part
              O: f32 64 registers in frame 0
              k: bf16 in shared memory; 64×64 bf16 swizzled at byte 16384, 4 × 8192 bytes, cp.async of 16 bytes
              qk: f32 64 registers in frame 0
              s: f32 64 registers in frame 0
              mx: f32 4 registers in frame 0
              p: bf16 32 registers of pairs in frame 0
              r: f32 4 registers in frame 0
              zr: f32 4 registers, those of Z
              z: f32 4 registers, those of Z
              v: bf16 in shared memory; 64×64 bf16 swizzled at byte 49152, 4 × 8192 bytes, cp.async of 16 bytes
              or: f32 64 registers, those of O
              o: f32 64 registers, those of O
              o: f32 64 registers in frame 0
              qk = mma q kept in registers · k: mma.sync.m16n8k16 bf16, sums in f32
              o = mma p from registers · v: mma.sync.m16n8k16 bf16, sums in f32
              stream: k, v in 4 stages
              order: b, h, m from the last on
        "#]],
    );
}

#[test]
fn rows_that_need_not_be_whole_are_shared_by_warps() {
    let program = matmul([4096; 3], [128, 128, 64], Bf16).expect("well-formed");
    check(
        &program,
        Target::SM_80,
        expect![[r#"
            schedule matmul for sm_80   4 warps, 65536 bytes of shared memory, about 168 registers
              frame 0: m down × n across, fragments of 2 × 2 warps
              acc: f32 128 registers in frame 0
              a: bf16 in shared memory; 128×64 bf16 swizzled at byte 0, 2 × 16384 bytes, cp.async of 16 bytes
              b: bf16 in shared memory; 64×128 bf16 swizzled at byte 32768, 2 × 16384 bytes, cp.async of 16 bytes
              sum: f32 128 registers, those of acc
              sum = mma a · b: mma.sync.m16n8k16 bf16, sums in f32
              stream: a, b in 2 stages
        "#]],
    );
}

#[test]
fn slower_ways_say_why() {
    let program = matmul([100, 200, 300], [64, 64, 32], F32).expect("well-formed");
    check(
        &program,
        Target::SM_80,
        expect![[r#"
            schedule matmul for sm_80   2 warps, 69632 bytes of shared memory, about 104 registers
              frame 0: m down × n across, 8 × 8 threads with 4 neighbours each
              acc: f32 64 registers in frame 0
              a: f32 in shared memory; 64×32 f32 padded at byte 0, 4 × 9216 bytes, cp.async of 16 bytes
              b: f32 in shared memory; 32×64 f32 in plain rows at byte 36864, 4 × 8192 bytes, cp.async of 16 bytes
              sum: f32 64 registers, those of acc
              sum = mma a · b: multiply and add in f32
              stream: a, b in 4 stages
              slower: sum = mma: no tensor-core operands hold f32 and f32 without rounding them
        "#]],
    );
    let program = matmul([101, 203, 305], [64, 64, 32], I8).expect("well-formed");
    check(
        &program,
        Target::SM_80,
        expect![[r#"
            schedule matmul for sm_80   4 warps, 4096 bytes of shared memory, about 72 registers
              frame 0: m down × n across, fragments of 2 × 2 warps
              acc: i32 32 registers in frame 0
              a: i8 in shared memory; 64×32 i8 swizzled at byte 0, 1 × 2048 bytes, copied element by element
              b: i8 in shared memory; 64×32 i8 swizzled at byte 2048, 1 × 2048 bytes, copied element by element
              sum: i32 32 registers, those of acc
              sum = mma a · b: mma.sync.m16n8k32 bytes, sums in i32
              slower: a = load: rows of A begin at multiples of 1 bytes only; cp.async needs 4
              slower: b = load: elements along k, which has to be adjacent in shared memory, are apart in memory
        "#]],
    );
}

#[test]
fn rows_alone_are_spread_over_neighbouring_threads() {
    let mut p = Builder::new("softmax");
    let x = p.input("X", &[1000, 4096], Bf16);
    let y = p.output("Y", &[1000, 4096], Bf16);
    p.kernel("softmax", |g| {
        let (m, n) = (g.grid("m", 1000, 1), g.whole("n", 4096));
        let x = g.load("x", x, [m, n]);
        let top = g.reduce("top", TileMonoid::Max, x, n);
        let e = g.map("e", (x - top).exp());
        let z = g.reduce("z", TileMonoid::Sum, e, n);
        g.store(y, [m, n], e / z);
    });
    check(
        &p.finish().expect("well-formed"),
        Target::SM_80,
        expect![[r#"
            schedule softmax for sm_80   4 warps, 128 bytes of shared memory, about 89 registers
              frame 0: nothing down × n across, 1 × 128 threads with 8 neighbours each
              x: bf16 16 registers of pairs in frame 0
              top: f32 in every thread
              e: f32 32 registers in frame 0
              z: f32 in every thread
              y: f32 computed where it is read
        "#]],
    );
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_compiled() {
    let wide = matmul([4096; 3], [256, 512, 256], Bf16).expect("well-formed");
    check(
        &wide,
        Target::SM_80,
        expect!["kernel matmul: its tiles need 393216 bytes of shared memory, sm_80 has 166912 per block"],
    );
    let kernel = &wide.kernels[0];
    assert!(matches!(schedule(&wide, kernel, &Target::SM_90A), Err(Refusal::SharedMemory { .. })));
    assert!(matches!(refusals(&wide, &Target::SM_80)[..], [Refusal::SharedMemory { needed: 393216, .. }]));
    assert_eq!(refusals(&matmul([4096; 3], [128, 128, 64], Bf16).expect("well-formed"), &Target::SM_80), []);

    let mut p = Builder::new("huge");
    let x = p.input("X", &[4096, 4096], F32);
    let y = p.output("Y", &[4096, 4096], F32);
    p.kernel("huge", |g| {
        let (m, n) = (g.grid("m", 4096, 512), g.whole("n", 4096));
        let x = g.load("x", x, [m, n]);
        g.store(y, [m, n], x * 2.0);
    });
    check(
        &p.finish().expect("well-formed"),
        Target::SM_80,
        expect!["kernel huge: its tiles need 4136 registers per thread, of which 1020 are bearable"],
    );
}
