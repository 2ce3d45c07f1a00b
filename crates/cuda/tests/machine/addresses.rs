//! Addresses in a stage: where the copy engine puts elements and where descriptors send products for them.

use crate::programs::{Case, features};
use crate::{LATE, Subject, subjects, worked};
use einloom_cascade::DType::Bf16;
use einloom_cuda::hopper::{Descriptor, SwizzleBytes};
use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
use einloom_tile::{Op, Program};

/// `A` or `B` lies the other way round in memory.
fn turned(mut program: Program, name: &str) -> Program {
    let place = program.tensors.iter().position(|t| t.name == name).expect("there");
    program.tensors[place].dims.reverse();
    for op in &mut program.kernels[0].body {
        let Op::Stream { body, .. } = op else { continue };
        for op in body {
            if let Op::Load { tensor, at, .. } = op
                && tensor.at() == place
            {
                at.reverse();
            }
        }
    }
    program
}

/// Both ways round on both sides; panels of 64, 32 and 16 columns; one panel and several; one consumer and two.
fn products() -> Vec<Subject> {
    let mut out = vec![];
    for (size, tile) in
        [([128, 128, 128], [128, 128, 64]), ([64, 96, 96], [64, 32, 32]), ([64, 48, 256], [64, 48, 128])]
    {
        let plain = matmul(size, tile, Bf16).expect("well-formed");
        for (name, program) in [
            ("nn", plain.clone()),
            ("tn", turned(plain.clone(), "A")),
            ("nt", turned(plain.clone(), "B")),
            ("tt", turned(turned(plain, "A"), "B")),
        ] {
            let case = Case { name: format!("{name} {size:?} by {tile:?}"), program, scale: 1.0 };
            out.extend(subjects(&case));
        }
    }
    let sizes = AttentionSizes { b: 1, h: 1, m: 128, n: 96, d: 128, e: 64 };
    let program = attention(sizes, [128, 32], false, Bf16).expect("well-formed");
    out.extend(subjects(&Case { name: "attention".into(), program, scale: 1.0 }));
    assert_eq!(out.len(), 13);
    out
}

#[test]
fn no_address_is_two_elements() {
    let all = products().into_iter().chain(worked()).chain(features().into_iter().flat_map(|c| subjects(&c)));
    for Subject { name, schedule: s, .. } in all {
        for tile in s.rings.iter().flat_map(|r| &r.tiles) {
            let places = (0..tile.rows).flat_map(|r| (0..tile.columns).map(move |c| (r, c)));
            let mut places: Vec<usize> = places.map(|(r, c)| tile.place(r, c)).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq((0..tile.bytes()).step_by(2)), "{name}");
        }
    }
}

/// What a person could get wrong in a descriptor, and whether it matters to this one.
type Mistake = (&'static str, fn(&mut Descriptor), fn(&Descriptor, &Subject) -> bool);

/// Positions of the product's result along the factor's kept axis that one consumer reads.
fn kept(d: &Descriptor, subject: &Subject) -> usize {
    let kernel = subject.kernel();
    let p = &subject.schedule.layout.products[&d.product];
    let decl = kernel.value(d.value);
    let axis = [decl.rows, decl.cols].into_iter().flatten().find(|a| *a != p.sum).expect("a kept axis");
    let size = kernel.axis(axis).tile.min(kernel.axis(axis).extent);
    if d.left { size.min(64) } else { size }
}

fn terms(d: &Descriptor, subject: &Subject) -> usize {
    let axis = subject.kernel().axis(subject.schedule.layout.products[&d.product].sum);
    axis.tile.min(axis.extent)
}

const MISTAKES: [Mistake; 8] = [
    ("another pattern", |d| d.swizzle = other(d.swizzle), |_, _| true),
    ("the other way round", |d| d.transposed = !d.transposed, |_, _| true),
    ("eight rows are nearer", |d| d.stride /= 2, |_, _| true),
    ("panels are nearer", |d| d.leading /= 2, |d, s| d.transposed && kept(d, s) > d.swizzle.bytes() / 2),
    ("steps are nearer", |d| d.step /= 2, |d, _| d.steps > 1),
    ("groups of steps are nearer", |d| d.next /= 2, |d, s| terms(d, s) > 16 * d.steps),
    ("consumers have the same rows", |d| d.each = 0, |d, _| d.each > 0),
    (
        "stages are nearer",
        |d| d.stage -= 1024,
        |d, s| s.schedule.rings.iter().any(|r| r.stages > 1 && r.tiles.iter().any(|t| t.value == d.value)),
    ),
];

fn other(swizzle: SwizzleBytes) -> SwizzleBytes {
    match swizzle {
        SwizzleBytes::B128 => SwizzleBytes::B64,
        SwizzleBytes::B64 | SwizzleBytes::B32 => SwizzleBytes::B128,
    }
}

#[test]
fn a_wrong_descriptor_is_caught() {
    let mut caught = [0; MISTAKES.len()];
    for subject in products() {
        assert!(matches!(subject.run(&subject.schedule, 1, LATE), Ok(Some(_))), "{}", subject.name);
        for k in 0..subject.schedule.descriptors.len() {
            for (count, (what, make, matters)) in caught.iter_mut().zip(MISTAKES) {
                let mut s = subject.schedule.clone();
                make(&mut s.descriptors[k]);
                let is_right = matches!(subject.run(&s, 1, LATE), Ok(Some(_)));
                let d = &subject.schedule.descriptors[k];
                assert_eq!(is_right, !matters(d, &subject), "{}, descriptor {k}: {what}", subject.name);
                *count += usize::from(!is_right);
            }
        }
    }
    assert!(caught.iter().all(|&n| n > 1), "{caught:?}");
}
