//! Rosters and orders: every point of the grid is computed once, by blocks whose rings run on from point to point.

use crate::programs::Case;
use crate::{LATE, Subject, sizes, subjects, worked};
use einloom_cascade::DType::Bf16;
use einloom_cuda::hopper::machine::{Arrays, Hazard, HazardKind, Policy, execute_walk};
use einloom_cuda::hopper::{Walk, walk};
use einloom_tile::by_hand::{AttentionSizes, attention};

fn run(subject: &Subject, walk: &Walk, policy: Policy) -> Result<bool, Hazard> {
    let mut memory: Arrays = subject.before.clone();
    execute_walk(&subject.program, subject.kernel(), &subject.schedule, &mut memory, walk, policy)?;
    Ok(subject.is_meant(&memory))
}

/// Causal rows over several heads, which a roster gives to blocks.
fn uneven() -> Subject {
    let sizes = AttentionSizes { b: 1, h: 3, m: 260, n: 260, d: 16, e: 16 };
    let mut program = attention(sizes, [64, 16], true, Bf16).expect("well-formed");
    // The longest of all heads first.
    program.kernels[0].grid.rotate_right(1);
    let case = Case { name: "causal attention".into(), program, scale: 1.0 };
    subjects(&case).pop().expect("specialised")
}

#[test]
fn long_points_come_first_and_go_to_the_block_with_the_least_to_do() {
    let subject = uneven();
    let Walk { clusters, .. } = walk(subject.kernel(), &subject.schedule, 4);
    // Three heads by five windows of rows, the last of which is the longest: places 0, 1 and 2 of the order.
    assert_eq!(clusters, [vec![0, 5, 11, 14], vec![1, 6, 8], vec![2, 7, 9, 12], vec![3, 4, 10, 13]]);
}

#[test]
fn every_point_is_computed_once_for_any_number_of_blocks() {
    let all = sizes().iter().flat_map(subjects).chain(worked()).chain([uneven()]).collect::<Vec<_>>();
    for subject in all {
        for blocks in [1, 2, 3, 5] {
            let walk = walk(subject.kernel(), &subject.schedule, blocks);
            let mut places = walk.clusters.concat();
            places.sort_unstable();
            assert!(places.iter().copied().eq(0..subject.schedule.layout.order.points()), "{}", subject.name);
            assert_eq!(run(&subject, &walk, LATE), Ok(true), "{}", subject.name);
        }
    }
}

#[test]
fn a_point_twice_or_never_and_counts_that_begin_anew_are_caught() {
    let (mut twice, mut never, mut anew, mut harmless) = (0, 0, 0, 0);
    for subject in sizes().iter().flat_map(subjects).chain(worked()).chain([uneven()]) {
        let right = walk(subject.kernel(), &subject.schedule, 2);
        for cluster in 0..right.clusters.len() {
            for k in 0..right.clusters[cluster].len() {
                let (mut more, mut less) = (right.clone(), right.clone());
                let place = more.clusters[cluster][k];
                more.clusters[cluster].push(place);
                less.clusters[cluster].remove(k);
                for (wrong, count) in [(more, &mut twice), (less, &mut never)] {
                    let hazard = run(&subject, &wrong, LATE).expect_err(&subject.name);
                    assert_eq!(hazard.kind, HazardKind::Points, "{}: {hazard}", subject.name);
                    *count += 1;
                }
            }
        }
        let wrong = Walk { counts_run_on: false, ..walk(subject.kernel(), &subject.schedule, 1) };
        let policies = Policy::all(subject.schedule.consumers, 2);
        let caught = policies.into_iter().any(|policy| run(&subject, &wrong, policy) != Ok(true));
        *if caught { &mut anew } else { &mut harmless } += 1;
        assert_eq!(caught, !comes_round(&subject, &wrong), "{}", subject.name);
    }
    assert!(twice > 20 && never > 20 && anew > 5 && harmless > 2, "{twice} {never} {anew} {harmless}");
}

/// Whether every point but the last of each block fills every ring an even number of times all through: only then does
/// counting anew make no difference.
fn comes_round(subject: &Subject, walk: &Walk) -> bool {
    use einloom_cuda::hopper::{RingId, Step};
    use einloom_tile::{Op, Window, chunks, initial_windows};
    let (kernel, s) = (subject.kernel(), &subject.schedule);
    let fillings = |place: usize, ring: usize| -> usize {
        let mut windows = initial_windows(kernel);
        for (axis, step) in s.layout.order.windows(place) {
            let decl = kernel.axis(axis);
            let base = step * decl.tile;
            windows[axis.at()] = Window { base, len: decl.tile.min(decl.extent - base) };
        }
        let fills = |steps: &[Step]| steps.iter().filter(|s| **s == Step::Fill { ring: RingId(ring) }).count();
        let inside = s.producer.iter().map(|step| match step {
            Step::Chunks { stream, first, rest, .. } => {
                let Op::Stream { axis, within, .. } = &kernel.body[*stream] else { panic!("no stream") };
                match chunks(kernel, *axis, within, &windows).count() {
                    0 => 0,
                    n => fills(first) + (n - 1) * fills(rest),
                }
            }
            step => fills(std::slice::from_ref(step)),
        });
        inside.sum()
    };
    walk.clusters.iter().all(|places| {
        let earlier = &places[..places.len().saturating_sub(1)];
        let even = |r: usize| earlier.iter().all(|&p| fillings(p, r).is_multiple_of(2 * s.rings[r].stages));
        (0..s.rings.len()).all(even)
    })
}
