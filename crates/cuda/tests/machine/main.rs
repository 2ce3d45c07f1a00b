//! Specialised schedules on the abstract machine: in every order that the hardware may choose they compute what the tile
//! program means, and every mistake in them is found.

mod addresses;
mod by_hand;
mod clusters;
mod order;
#[path = "../programs/mod.rs"]
mod programs;
mod walks;

use einloom_cascade::DType;
use einloom_cuda::Target;
use einloom_cuda::emit::prepared;
use einloom_cuda::hopper::machine::{Arrays, Completion, Hazard, Policy, Preference, Statistics, execute, interpret};
use einloom_cuda::hopper::mutate::mutations;
use einloom_cuda::hopper::{OpAt, RingId, Specialised, Step, specialise};
use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
use einloom_tile::{Kernel, Op, Program, TensorId};
use expect_test::{Expect, expect, expect_file};
use programs::Case;
use std::fmt::Write as _;

const LATE: Policy = Policy { roles: Preference::Producer, completions: Completion::Late, seed: 0 };

/// A kernel with its schedule, its inputs and what it means for them.
struct Subject {
    name: String,
    program: Program,
    kernel: usize,
    schedule: Specialised,
    before: Arrays,
    meant: Arrays,
}

impl Subject {
    fn kernel(&self) -> &Kernel {
        &self.program.kernels[self.kernel]
    }

    /// Runs a schedule of the kernel. `Ok(None)` if results are not those of the interpreter.
    fn run(&self, s: &Specialised, blocks: usize, policy: Policy) -> Result<Option<Statistics>, Hazard> {
        let mut memory = self.before.clone();
        let statistics = execute(&self.program, self.kernel(), s, &mut memory, blocks, policy)?;
        Ok(self.is_meant(&memory).then_some(statistics))
    }

    /// Bit by bit, and in what has been written at all.
    fn is_meant(&self, memory: &Arrays) -> bool {
        let tensors = (0..self.program.tensors.len() as u32).map(TensorId);
        let bits = |m: &Arrays, t: TensorId| {
            let size: usize = self.program.tensor(t).dims.iter().product();
            (0..size).map(|place| m.element(t, place).map(f64::to_bits)).collect::<Vec<_>>()
        };
        tensors.into_iter().all(|t| bits(memory, t) == bits(&self.meant, t))
    }
}

/// Every kernel of a case that is specialised, as it is emitted; the others are interpreted on the way.
fn subjects(case: &Case) -> Vec<Subject> {
    subjects_for(case, &Target::SM_90A)
}

fn subjects_for(case: &Case, target: &Target) -> Vec<Subject> {
    let case = &Case { name: case.name.clone(), program: prepared(&case.program), scale: case.scale };
    let mut memory = Arrays::new(&case.program, &programs::numbers(case, &programs::inputs(case)));
    let mut out = vec![];
    for (k, kernel) in case.program.kernels.iter().enumerate() {
        let before = memory.clone();
        interpret(&case.program, kernel, &mut memory).unwrap_or_else(|e| panic!("{}: {e:?}", case.name));
        if let Ok(schedule) = specialise(&case.program, kernel, target) {
            let (name, program) = (case.name.clone(), case.program.clone());
            out.push(Subject { name, program, kernel: k, schedule, before, meant: memory.clone() });
        }
    }
    out
}

fn by_hand(name: &str, (program, schedule): (Program, Specialised)) -> Subject {
    let case = Case { name: name.to_string(), program, scale: 1.0 };
    let before = Arrays::new(&case.program, &programs::numbers(&case, &programs::inputs(&case)));
    let mut meant = before.clone();
    interpret(&case.program, &case.program.kernels[0], &mut meant).expect("everything is written");
    Subject { name: case.name, program: case.program, kernel: 0, schedule, before, meant }
}

fn worked() -> Vec<Subject> {
    vec![
        by_hand("matmul", by_hand::matmul()),
        by_hand("attention", by_hand::attention(false)),
        by_hand("causal attention", by_hand::attention(true)),
    ]
}

/// Sizes that divide nothing, one chunk, many chunks, one consumer and three.
fn sizes() -> Vec<Case> {
    let mut out = vec![];
    let mut add = |name: String, program: Result<Program, _>| {
        out.push(Case { name, program: program.expect("well-formed"), scale: 1.0 });
    };
    for (size, tile) in [
        ([64, 64, 16], [64, 64, 16]),
        ([1, 8, 8], [64, 64, 64]),
        ([65, 24, 200], [64, 16, 16]),
        ([130, 40, 72], [192, 32, 32]),
        ([200, 128, 88], [128, 128, 64]),
    ] {
        add(format!("matmul {size:?} by {tile:?}"), matmul(size, tile, DType::Bf16));
    }
    for (m, n, d, tile) in [(1, 1, 16, [64, 16]), (129, 77, 16, [192, 16]), (64, 200, 40, [64, 64])] {
        for causal in [false, true] {
            let sizes = AttentionSizes { b: 1, h: 1, m, n, d, e: d };
            add(format!("attention {m} {n} {d} causal {causal}"), attention(sizes, tile, causal, DType::F16));
        }
    }
    out
}

/// The same schedule with fewer stages, so that rings go round more often.
fn with_stages(s: &Specialised, stages: usize) -> Specialised {
    let mut out = s.clone();
    out.rings.iter_mut().for_each(|r| r.stages = r.stages.min(stages));
    out
}

#[test]
fn every_order_gives_what_the_program_means() {
    let cases = programs::features().into_iter().chain(programs::worked_examples()).chain(sizes());
    let all: Vec<Subject> = cases.flat_map(|c| subjects(&c)).chain(worked()).collect();
    assert!(all.len() >= 20, "only {} kernels are specialised", all.len());
    for subject in &all {
        for policy in Policy::all(subject.schedule.consumers, 2) {
            let run = subject.run(&subject.schedule, 2, policy);
            match run {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{}, {policy:?}: other numbers", subject.name),
                Err(hazard) => panic!("{}, {policy:?}: {hazard}", subject.name),
            }
        }
    }
}

/// What goes wrong with a schedule under the first policy under which something does.
fn caught(subject: &Subject, s: &Specialised) -> Option<String> {
    let policies = Policy::of_clusters(s.blocks(), s.consumers, 4);
    policies.into_iter().find_map(|policy| match subject.run(s, s.blocks(), policy) {
        Ok(Some(_)) => None,
        Ok(None) => Some("other numbers".to_string()),
        Err(hazard) => Some(hazard.to_string()),
    })
}

#[test]
fn a_mistake_is_caught_unless_the_schedule_stays_in_order() {
    let generated = sizes().into_iter().flat_map(|c| subjects(&c)).map(|mut subject| {
        subject.schedule = with_stages(&subject.schedule, 2);
        subject
    });
    let counts = mistakes_are_caught(worked().into_iter().chain(generated));
    assert!(counts[0] > 300 && counts[1] > 10, "{counts:?} mistakes and harmless changes");
}

/// Makes every mutation of every subject's schedule: how many are mistakes, and how many are harmless.
fn mistakes_are_caught(subjects: impl IntoIterator<Item = Subject>) -> [usize; 2] {
    let mut counts = [0; 2];
    for subject in subjects {
        assert!(order::in_order(subject.kernel(), &subject.schedule), "{}", subject.name);
        for mutation in mutations(&subject.schedule) {
            let s = mutation.apply(&subject.schedule);
            let harmless = order::in_order(subject.kernel(), &s);
            let caught = caught(&subject, &s);
            let name = format!("{}, {}", subject.name, mutation.description);
            match (harmless, caught) {
                (true, Some(hazard)) => panic!("{name}: in order, but: {hazard}"),
                (false, None) => panic!("{name}: not in order, and not caught"),
                (harmless, _) => counts[usize::from(harmless)] += 1,
            }
        }
    }
    counts
}

/// What people read. `UPDATE_EXPECT=1` renews the file.
#[test]
fn hazards_say_who_does_what_where() {
    let mut out = String::new();
    for subject in [by_hand("matmul", by_hand::matmul()), by_hand("attention", by_hand::attention(true))] {
        let _ = writeln!(out, "{}\n", subject.name);
        for mutation in mutations(&subject.schedule) {
            let hazard = caught(&subject, &mutation.apply(&subject.schedule));
            let hazard = hazard.unwrap_or_else(|| "harmless: the schedule stays in order".to_string());
            let _ = writeln!(out, "{}\n    {hazard}", mutation.description);
        }
        let _ = writeln!(out);
    }
    expect_file!["./hazards.txt"].assert_eq(&out);
}

/// An edit of the attention schedule: the steps of its other chunks, with the operations they name.
type Edit = fn(&mut Specialised, &dyn Fn(&str) -> OpAt);

fn rest(s: &mut Specialised) -> &mut Vec<Step> {
    let found = s.consumer.iter_mut().find_map(|step| match step {
        Step::Chunks { rest, .. } => Some(rest),
        _ => None,
    });
    found.expect("a stream")
}

/// Moves the step to just before the one at `to` after it was taken out.
fn shift(steps: &mut Vec<Step>, step: &Step, before: &Step) {
    steps.retain(|s| s != step);
    let to = steps.iter().position(|s| s == before).expect("there");
    steps.insert(to, step.clone());
}

#[test]
fn mistakes_in_computing_are_caught() {
    let edits: [(&str, Edit, Expect); 12] = [
        (
            "a factor is rewritten under its product",
            |s, op| shift(rest(s), &Step::Compute(op("p")), &Step::Settle { pending: 0 }),
            expect![
                "a factor is rewritten under its product: block 0, consumer 1, b=0 h=0 m=0 chunk n=32, `compute p`: the registers of p are touched while product o in flight reads them"
            ],
        ),
        (
            "an accumulator is scaled under its product",
            |s, op| shift(rest(s), &Step::Compute(op("or")), &Step::Settle { pending: 0 }),
            expect![
                "an accumulator is scaled under its product: block 0, consumer 1, b=0 h=0 m=0 chunk n=32, `compute or`: the registers of O are touched while product o in flight writes them"
            ],
        ),
        (
            "a result is read before it is waited for",
            |s, op| shift(rest(s), &Step::Compute(op("s")), &Step::Settle { pending: 1 }),
            expect![
                "a result is read before it is waited for: block 0, consumer 0, b=0 h=0 m=0 chunk n=32, `compute s`: the registers of qk are touched while product qk in flight writes them"
            ],
        ),
        (
            "the deferred product meets the next chunk's factor",
            |s, op| {
                let (p, product) = (Step::Compute(op("p")), Step::Multiply(op("o")));
                let late = [Step::Settle { pending: 0 }, Step::Release { ring: RingId(2) }];
                rest(s).retain(|s| *s != product && !late.contains(s));
                let at = rest(s).iter().position(|s| *s == p).expect("there");
                let [settle, release] = late;
                rest(s).splice(at + 1..at + 1, [product, settle.clone(), release]);
                let at = rest(s).iter().position(|s| *s == Step::Settle { pending: 1 }).expect("there");
                rest(s)[at] = settle;
            },
            expect![
                "the deferred product meets the next chunk's factor: block 0, consumer 0, b=0 h=0 m=0 chunk n=32, `multiply o`: p has 32..64 and v has 0..32 of the summed axis n"
            ],
        ),
        (
            "an accumulator is scaled twice",
            |s, op| {
                let or = Step::Compute(op("or"));
                rest(s).push(or);
            },
            expect![
                "an accumulator is scaled twice: block 0, consumer 0, b=0 h=0 m=0 chunk n=32, `compute or`: O is read, but its registers hold or"
            ],
        ),
        (
            "an operation is forgotten",
            |s, op| {
                let (s1, s2) = (Step::Compute(op("s")), Step::Compute(op("mx")));
                rest(s).retain(|s| *s != s1 && *s != s2);
            },
            expect![
                "an operation is forgotten: block 0, consumer 1, b=0 h=0 m=0 chunk n=32, `compute p`: s is of 64..100 × 0..32, and is used at 64..100 × 32..64"
            ],
        ),
        (
            "states do not move on",
            |s, _| rest(s).retain(|s| !matches!(s, Step::Advance { .. })),
            expect![
                "states do not move on: block 0, consumer 0, b=0 h=0 m=0 chunk n=64, `compute mx`: Mx after 2 updates is read, but its registers hold it after 1"
            ],
        ),
        (
            "a product is added before the sum so far is scaled",
            |s, op| {
                let or = Step::Compute(op("or"));
                let first = |s: &&mut Step| matches!(s, Step::Chunks { .. });
                if let Some(Step::Chunks { first, .. }) = s.consumer.iter_mut().find(first) {
                    first.retain(|s| *s != or);
                }
            },
            expect![
                "a product is added before the sum so far is scaled: block 0, consumer 0, b=0 h=0 m=0 chunk n=32, `multiply o`: or is read, but its registers hold O"
            ],
        ),
        ("nothing is stored", |s, _| drop(s.consumer.pop()), expect!["nothing is stored: other numbers"]),
        (
            "shared memory is too small",
            |s, _| s.shared_bytes -= 1,
            expect!["shared memory is too small: stage 1 of ring v ends at byte 11264 of 11263"],
        ),
        (
            "two rings lie over each other",
            |s, _| s.rings[2].offset = s.rings[1].offset,
            expect!["two rings lie over each other: stage 0 of ring k and stage 0 of ring v overlap at byte 5120"],
        ),
        (
            "a copied tile is taken for one in registers",
            |s, op| {
                let at = op("qk");
                rest(s).insert(0, Step::Compute(at));
            },
            expect![
                "a copied tile is taken for one in registers: block 0, consumer 0, b=0 h=0 m=0 chunk n=32, `compute qk`: neither a product nor a stream nor a skip can be computed in registers"
            ],
        ),
    ];
    let subject = by_hand("attention", by_hand::attention(false));
    let op = |name: &str| {
        let Op::Stream { body, .. } = &subject.kernel().body[1] else { panic!("a stream") };
        let named = |op: &Op| match op {
            Op::Load { dst, .. } | Op::Map { dst, .. } | Op::Mma { dst, .. } | Op::Reduce { dst, .. } => {
                subject.kernel().value(*dst).name == name
            }
            _ => false,
        };
        OpAt { stream: Some(1), op: body.iter().position(named).expect("there") }
    };
    for (name, edit, expected) in edits {
        let mut s = subject.schedule.clone();
        edit(&mut s, &op);
        let hazard = caught(&subject, &s);
        expected.assert_eq(&format!("{name}: {}", hazard.unwrap_or_else(|| "not caught".to_string())));
    }
}

#[test]
fn copies_and_products_run_ahead() {
    let subject = by_hand("matmul", by_hand::matmul());
    let statistics = subject.run(&subject.schedule, 1, LATE);
    expect![[r#"
        Ok(
            Some(
                Statistics {
                    points: 2,
                    steps: 128,
                    fillings: 10,
                    products: 20,
                    most_stages: 3,
                    most_products: 2,
                },
            ),
        )
    "#]]
    .assert_debug_eq(&statistics);
    let subject = by_hand("attention", by_hand::attention(false));
    let statistics = subject.run(&subject.schedule, 1, LATE);
    expect![[r#"
        Ok(
            Some(
                Statistics {
                    points: 2,
                    steps: 264,
                    fillings: 14,
                    products: 24,
                    most_stages: 2,
                    most_products: 2,
                },
            ),
        )
    "#]]
    .assert_debug_eq(&statistics);
}

#[test]
fn blocks_take_grid_points_in_turn() {
    for case in sizes() {
        for subject in subjects(&case) {
            for blocks in [1, 3, 100] {
                let run = subject.run(&with_stages(&subject.schedule, 2), blocks, LATE);
                assert!(matches!(run, Ok(Some(_))), "{} on {blocks} blocks: {run:?}", subject.name);
            }
        }
    }
}
