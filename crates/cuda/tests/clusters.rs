//! Clusters of blocks as text: what neighbours share, and why some cannot.

mod programs;

use einloom_cascade::DType::Bf16;
use einloom_cuda::hopper::{print, specialise};
use einloom_cuda::{Clusters, LaunchInfo, Target, emit};
use einloom_tile::Program;
use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
use expect_test::{Expect, expect};

fn in_clusters(blocks: usize) -> Target {
    Target { clusters: Clusters::Of(blocks), ..Target::SM_90A }
}

/// What the schedule says of who copies and computes what.
fn check(program: &Program, blocks: usize, expected: Expect) {
    let kernel = &program.kernels[0];
    let s = specialise(program, kernel, &in_clusters(blocks)).expect("conditions are met");
    let text = print(program, kernel, &s);
    let steps = text.find("  producer\n").expect("the steps");
    let lines = text[..steps].lines().skip(2).filter(|l| !l.contains("wgmma"));
    expected.assert_eq(&lines.map(|l| format!("{}\n", l.strip_prefix("  ").unwrap_or(l))).collect::<String>());
}

fn attend(m: usize, causal: bool) -> Program {
    let sizes = AttentionSizes { b: 2, h: 8, m, n: m, d: 128, e: 128 };
    attention(sizes, [128, 128], causal, Bf16).expect("well-formed")
}

fn multiply(size: [usize; 3]) -> Program {
    matmul(size, [128, 256, 64], Bf16).expect("well-formed")
}

#[test]
fn blocks_share_the_larger_factor_of_a_product() {
    check(
        &multiply([4096; 3]),
        2,
        expect![[r#"
            ring a_b: 4 stages of 49152 bytes at byte 1024
              a: 128×64 bf16 from A, rows of k, panels of 64 columns swizzled over 128 bytes
              b: 64×256 bf16 from B, rows of n, panels of 64 columns swizzled over 128 bytes
                each block of the cluster copies 2 of its panels to blocks 0, 1
            clusters of 2 blocks, neighbours along m: fill ring a_b together and meet before the first copy and before they leave
              ring a_b: 49152 bytes fill a stage, 4 consumers empty it
            points in the order of m (16 × 2), n (16)
            66 clusters stay and take 256 points for each of its blocks: in turn
        "#]],
    );
    // Along m, 31 windows are no pairs; the other factor is shared instead.
    check(
        &multiply([3968, 4096, 4096]),
        2,
        expect![[r#"
            ring a_b: 4 stages of 49152 bytes at byte 1024
              a: 128×64 bf16 from A, rows of k, panels of 64 columns swizzled over 128 bytes
                each block of the cluster copies 64 of its rows to blocks 0, 1
              b: 64×256 bf16 from B, rows of n, panels of 64 columns swizzled over 128 bytes
            clusters of 2 blocks, neighbours along n: fill ring a_b together and meet before the first copy and before they leave
              ring a_b: 49152 bytes fill a stage, 4 consumers empty it
            points in the order of m (31), n (8 × 2)
            66 clusters stay and take 248 points for each of its blocks: in turn
        "#]],
    );
    check(
        &multiply([4096; 3]),
        4,
        expect![[r#"
            ring a_b: 4 stages of 49152 bytes at byte 1024
              a: 128×64 bf16 from A, rows of k, panels of 64 columns swizzled over 128 bytes
              b: 64×256 bf16 from B, rows of n, panels of 64 columns swizzled over 128 bytes
                each block of the cluster copies 1 of its panels to blocks 0, 1, 2, 3
            clusters of 4 blocks, neighbours along m: fill ring a_b together and meet before the first copy and before they leave
              ring a_b: 49152 bytes fill a stage, 8 consumers empty it
            points in the order of m (8 × 4), n (16)
            33 clusters stay and take 128 points for each of its blocks: in turn
        "#]],
    );
}

#[test]
fn queries_of_one_head_share_its_keys_and_values() {
    check(
        &attend(4096, false),
        2,
        expect![[r#"
            ring q: 1 stage of 32768 bytes at byte 1024
              q: 128×128 bf16 from Q, rows of d, panels of 64 columns swizzled over 128 bytes
            ring k: 3 stages of 32768 bytes at byte 33792
              k: 128×128 bf16 from K, rows of d, panels of 64 columns swizzled over 128 bytes
                each block of the cluster copies 1 of its panels to blocks 0, 1
            ring v: 3 stages of 32768 bytes at byte 132096
              v: 128×128 bf16 from V, rows of e, panels of 64 columns swizzled over 128 bytes
                each block of the cluster copies 1 of its panels to blocks 0, 1
            clusters of 2 blocks, neighbours along m: fill ring k and ring v together and meet before the first copy and before they leave
              ring k: 32768 bytes fill a stage, 4 consumers empty it
              ring v: 32768 bytes fill a stage, 4 consumers empty it
            points in the order of b (2), h (8), m (16 × 2)
            66 clusters stay and take 256 points for each of its blocks: in turn
            2 consumers start their products in turn
        "#]],
    );
}

/// Why a kernel has no clusters.
fn apart(program: &Program, target: &Target) -> String {
    let s = specialise(program, &program.kernels[0], target).expect("conditions are met");
    s.apart.map_or("it has clusters".to_string(), |reason| reason.to_string())
}

#[test]
fn refusals_name_the_condition() {
    for (program, blocks, expected) in [
        (multiply([3968, 3840, 64]), 2, expect!["axis m: its 31 windows are no whole clusters of 2"]),
        (
            attend(4096, true),
            2,
            expect!["k = load: it is copied in chunks whose number depends on m, and not equally often by neighbours"],
        ),
        (multiply([4096; 3]), 3, expect!["kernel matmul: clusters of 3: there are pairs and fours"]),
        (multiply([4096; 3]), 1, expect!["kernel matmul: clusters of 1: there are pairs and fours"]),
    ] {
        expected.assert_eq(&apart(&program, &in_clusters(blocks)));
    }
}

#[test]
fn clusters_are_formed_where_copies_take_the_time() {
    for (program, expected) in [
        (
            multiply([4096; 3]),
            expect!["axis m: about 67476 cycles a point, 99297 in pairs: what they share is not what takes the time"],
        ),
        (
            attend(4096, false),
            expect!["axis m: about 65536 cycles a point, 99297 in pairs: what they share is not what takes the time"],
        ),
        (multiply([1024; 3]), expect!["axis m: 32 points are one for each of 132 multiprocessors"]),
        // Tiles of results so narrow that 8 KiB of the left factor are copied for 32 cycles of products.
        (matmul([4096; 3], [64, 16, 64], Bf16).expect("well-formed"), expect!["it has clusters"]),
        // The same, but nearly every byte comes from memory.
        (
            matmul([65536, 32, 4096], [64, 16, 64], Bf16).expect("well-formed"),
            expect!["axis n: about 14837 cycles a point, 22480 in pairs: what they share is not what takes the time"],
        ),
    ] {
        expected.assert_eq(&apart(&program, &Target::SM_90A));
    }
}

#[test]
fn what_is_asked_for_and_refused_is_a_slower_way() {
    let source = emit(&attend(4096, true), &in_clusters(2)).expect("fits");
    let all: Vec<String> = source.fallbacks.iter().map(|(_, f)| f.to_string()).collect();
    expect![
        "k = load: no clusters: it is copied in chunks whose number depends on m, and not equally often by neighbours"
    ]
    .assert_eq(&all.join("\n"));
    assert!(emit(&attend(4096, true), &Target::SM_90A).expect("fits").fallbacks.is_empty());
}

#[test]
fn launches_are_whole_clusters_and_compile_without_spills() {
    let compiler = programs::compiler();
    let programs = [multiply([4096; 3]), multiply([4000, 4064, 4008]), attend(4096, false), attend(4000, false)];
    for (program, blocks) in programs.iter().flat_map(|p| [(p, 2), (p, 4)]) {
        let source = emit(program, &in_clusters(blocks)).expect("fits");
        let LaunchInfo { cluster, grid, .. } = source.kernels[0];
        assert!(cluster == blocks && grid.is_multiple_of(cluster), "{grid} in {cluster}");
        if let Some(compiler) = &compiler {
            let done = compiler.compile(&source.text, "sm_90a", None).unwrap_or_else(|e| panic!("{e}"));
            assert!(done.log.contains(" 0 bytes spill stores"), "{}", done.log);
        }
    }
}
