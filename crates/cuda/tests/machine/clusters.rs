//! Clusters: blocks that fill and read rings together, in every order in which they may run.

use crate::programs::{Case, features, worked_examples};
use crate::{Subject, caught, mistakes_are_caught, subjects_for, with_stages};
use einloom_cascade::DType::{Bf16, F16};
use einloom_cuda::hopper::machine::Policy;
use einloom_cuda::hopper::mutate::mutations;
use einloom_cuda::{Clusters, Target};
use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
use einloom_tile::{Coord, CoordAtom, Op, Program};
use expect_test::expect;

/// Keys and values that two heads share: neighbours along the heads read the same tiles, also where the work is causal.
fn grouped(mut program: Program) -> Program {
    let heads = program.kernels[0].grid[1];
    for name in ["K", "V"] {
        let tensor = program.tensors.iter_mut().find(|t| t.name == name).expect("there");
        tensor.dims[1] /= 2;
    }
    let is_shared =
        |program: &Program, t: einloom_tile::TensorId| ["K", "V"].contains(&program.tensor(t).name.as_str());
    let original = program.clone();
    let Some(Op::Stream { body, .. }) = program.kernels[0].body.iter_mut().find(|op| matches!(op, Op::Stream { .. }))
    else {
        panic!("a stream")
    };
    for op in body {
        if let Op::Load { tensor, at, .. } = op
            && is_shared(&original, *tensor)
        {
            let half = CoordAtom::Floor(Box::new(Coord::axis(heads)), 2);
            at[1] = Coord { terms: vec![(1, half)], ..Coord::axis(heads) };
        }
    }
    program
}

/// Pairs and fours along rows, along columns and along heads; parts that are rows and parts that are panels; full, ragged
/// and causal.
fn cases() -> Vec<(usize, Case)> {
    let mut out = vec![];
    let mut add = |blocks, name: String, program: Program| {
        out.push((blocks, Case { name: format!("{name} in {blocks}"), program, scale: 1.0 }));
    };
    for (blocks, size, tile) in [
        (2, [256, 24, 40], [64, 16, 16]),
        (2, [100, 16, 72], [64, 16, 32]),
        (4, [200, 32, 72], [64, 32, 32]),
        (2, [64, 136, 88], [64, 128, 64]),
        (2, [40, 96, 72], [64, 48, 16]),
    ] {
        add(blocks, format!("matmul {size:?} by {tile:?}"), matmul(size, tile, Bf16).expect("well-formed"));
    }
    let attend = |h, m, n, tile, causal| {
        let sizes = AttentionSizes { b: 1, h, m, n, d: 16, e: 24 };
        attention(sizes, tile, causal, F16).expect("well-formed")
    };
    add(2, "attention".into(), attend(1, 200, 72, [64, 16], false));
    add(4, "attention".into(), attend(2, 200, 56, [64, 32], false));
    add(2, "attention with two consumers".into(), attend(1, 136, 40, [72, 16], false));
    add(2, "grouped heads".into(), grouped(attend(4, 100, 40, [64, 16], false)));
    add(2, "causal grouped heads".into(), grouped(attend(2, 136, 100, [64, 16], true)));
    out
}

fn clustered() -> Vec<Subject> {
    let all = cases().into_iter().flat_map(|(blocks, case)| {
        let target = Target { clusters: Clusters::Of(blocks), ..Target::SM_90A };
        subjects_for(&case, &target)
    });
    all.collect()
}

#[test]
fn blocks_of_a_cluster_compute_what_the_program_means() {
    let pairs = Target { clusters: Clusters::Of(2), ..Target::SM_90A };
    let shipped = features().into_iter().chain(worked_examples()).flat_map(|c| subjects_for(&c, &pairs));
    let shipped: Vec<Subject> = shipped.filter(|s| s.schedule.cluster.is_some()).collect();
    assert!(shipped.len() >= 3, "only {} of the other tests' kernels form clusters", shipped.len());
    let own = clustered();
    for subject in own.iter().chain(&shipped) {
        let s = &subject.schedule;
        assert!(s.cluster.is_some(), "{}: {:?}", subject.name, s.apart);
        // One cluster whose rings go round often, and two (one block is left over) with all stages.
        for (stages, blocks) in [(2, s.blocks()), (8, 2 * s.blocks() + 1)] {
            let s = with_stages(s, stages);
            for policy in Policy::of_clusters(s.blocks(), s.consumers, 2) {
                match subject.run(&s, blocks, policy) {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("{}, {policy:?}: other numbers", subject.name),
                    Err(hazard) => panic!("{}, {policy:?}: {hazard}", subject.name),
                }
            }
        }
    }
}

#[test]
fn a_mistake_in_a_cluster_is_caught() {
    let subjects = clustered().into_iter().map(|mut subject| {
        subject.schedule = with_stages(&subject.schedule, 2);
        subject
    });
    let counts = mistakes_are_caught(subjects);
    assert!(counts[0] > 300, "{counts:?} mistakes and harmless changes");
}

/// What people read.
#[test]
fn hazards_name_the_block() {
    let mut out = String::new();
    let subject = clustered().swap_remove(0);
    let schedule = with_stages(&subject.schedule, 2);
    let forgotten = ["only", "not brought", "one block more", "meet"];
    for mutation in mutations(&schedule) {
        if forgotten.iter().any(|word| mutation.description.contains(word)) {
            let hazard = caught(&subject, &mutation.apply(&schedule)).unwrap_or("not caught".to_string());
            out.push_str(&format!("{}\n    {hazard}\n", mutation.description));
        }
    }
    expect![[r#"
        ring a_b: only the bytes that the block itself copies are announced
            block 0, consumer 0, m=0 n=0 chunk k=0, `multiply sum`: the part of block 0 of filling 0 of ring a_b (stage 0) is read before it has landed
        ring a_b: only the block's own consumers empty a stage
            block 0, producer, m=0 n=0 chunk k=32, `fill a_b`: filling 2 of ring a_b (stage 0) is copied over filling 0 of ring a_b (stage 0), which consumer 0 of block 1 has not released
        ring a_b: tile 0 is not brought to block 0
            nobody can go on: block 0, producer (m=0 n=0 chunk k=32, `acquire a_b`) waits until filling 2 of ring a_b (stage 0) can start (completed phases of the empty barrier of stage 0: 0; fillings released by consumers: 0); block 0, consumer 0 (m=0 n=0 chunk k=0, `await a_b`) waits for filling 0 of ring a_b (stage 0) (completed phases of the full barrier of stage 0: 0; fillings started: 2); block 1, producer (m=0 n=16 chunk k=32, `acquire a_b`) waits until filling 2 of ring a_b (stage 0) can start (completed phases of the empty barrier of stage 0: 0; fillings released by consumers: 1); block 1, consumer 0 (m=0 n=16 chunk k=32, `await a_b`) waits for filling 2 of ring a_b (stage 0) (completed phases of the full barrier of stage 0: 1; fillings started: 2)
        ring a_b: tile 0 is not brought to block 1
            nobody can go on: block 0, producer (m=0 n=0 chunk k=32, `acquire a_b`) waits until filling 2 of ring a_b (stage 0) can start (completed phases of the empty barrier of stage 0: 0; fillings released by consumers: 1); block 0, consumer 0 (m=0 n=0 chunk k=32, `await a_b`) waits for filling 2 of ring a_b (stage 0) (completed phases of the full barrier of stage 0: 1; fillings started: 2); block 1, producer (m=0 n=16 chunk k=32, `acquire a_b`) waits until filling 2 of ring a_b (stage 0) can start (completed phases of the empty barrier of stage 0: 0; fillings released by consumers: 0); block 1, consumer 0 (m=0 n=16 chunk k=0, `await a_b`) waits for filling 0 of ring a_b (stage 0) (completed phases of the full barrier of stage 0: 0; fillings started: 2)
        ring a_b: tile 0 is brought to one block more
            block 0, producer, m=0 n=0 chunk k=0, `fill a_b`: a copy goes to block 2 of 2
        blocks do not meet at the start
            a part of filling 1 of ring a_b (stage 1) reaches block 1 of its cluster, which has not initialised its barriers
        blocks do not meet at the end
            the release of filling 10 of ring a_b (stage 0) reaches block 1 of its cluster, which has left
    "#]].assert_eq(&out);
}
