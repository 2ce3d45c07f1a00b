//! Plans that a GPU has room for. The model finds room for some tiles that the emitter then refuses; what is planned in their
//! place stands in `room.txt`, after programs and sizes: `EINLOOM_BLESS=1 cargo test -p einloom --test room` rewrites it.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros)] // Programs and expectations are files; a long test tells how far it is.

mod common;

use einloom::gpu::{Gpu, source};
use einloom::random::Random;
use einloom::{Checked, Error, PlanOptions, Planned, Program, machines};
use einloom_cascade::{DType, Given, bind, undecided_reads};
use std::collections::BTreeMap;
use std::path::Path;

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn checked(text: &str) -> Checked {
    Program::from_text(text).check().expect("a program")
}

fn given(program: &Checked, sizes: BTreeMap<String, usize>) -> Given {
    let params = program.cascade().params.iter().filter(|p| p.default.is_none()).map(|p| (p.name.clone(), 0.5));
    Given { sizes, params: params.collect(), ..Given::default() }
}

/// The program as the command line plans it for a machine.
fn planned(program: &Checked, given: &Given, machine: &str) -> Result<Planned, Error> {
    let machine = machines::find(machine)?;
    let narrow_contractions = machines::rounds_wider_factors(&machine);
    program.derive().plan(given, &machine, &PlanOptions { narrow_contractions, ..PlanOptions::default() })
}

/// Why the emitter refuses a plan, if it does.
fn refused(planned: &Planned) -> Option<String> {
    let target = Gpu::target_of(planned.machine(), Gpu::arch_of(planned.machine()));
    source(planned, &target).err().map(|e| e.to_string())
}

fn sizes(text: &str) -> BTreeMap<String, usize> {
    let one = |s: &str| s.split_once('=').and_then(|(rank, size)| Some((rank.trim().to_string(), size.parse().ok()?)));
    text.split(',').filter_map(one).collect()
}

/// The tiles of every kernel, and what its notes say of room.
fn told(planned: &Planned) -> String {
    let mut out = String::new();
    for kernel in planned.kernels() {
        let tiles = kernel.notes.iter().find(|n| n.starts_with("tiles")).and_then(|n| n.split_once(": predicted"));
        let tiles = tiles.map_or("no tiles", |n| n.0);
        out += &format!("  {}: {tiles}\n", kernel.name);
        let room = kernel.notes.iter().filter(|n| n.starts_with("no room"));
        room.for_each(|note| out += &format!("    {note}\n"));
    }
    out
}

/// Sections of `room.txt`: a program, either a file of `cascades/` or its text, then lines `MACHINE SIZES` with what is told.
#[test]
fn tiles_that_have_no_room_are_not_planned() {
    let file = folder().join("tests/room.txt");
    let expected = std::fs::read_to_string(&file).expect("a table");
    let mut found = String::new();
    for section in expected.split_inclusive("----\n") {
        let (mut text, mut at) = (String::new(), vec![]);
        for line in section.lines().filter(|l| *l != "----") {
            if let Some((machine, sizes)) = line.strip_prefix("on ").and_then(|l| l.split_once(": ")) {
                at.push((machine, sizes));
            } else if at.is_empty() {
                text += &format!("{line}\n");
            }
        }
        let program = match text.trim().strip_suffix(".ein") {
            Some(name) => checked(&read(&folder().join(format!("../../cascades/{name}.ein")))),
            None => checked(&text),
        };
        found += &text;
        for (machine, all) in at {
            let planned = planned(&program, &given(&program, sizes(all)), machine).expect("a plan");
            assert_eq!(refused(&planned), None, "{text}on {machine}: {all}");
            found += &format!("on {machine}: {all}\n{}", told(&planned));
        }
        if section.ends_with("----\n") {
            found += "----\n";
        }
    }
    let mut failures = String::new();
    common::check(&file, &expected, &found, &mut failures);
    assert!(failures.is_empty(), "{failures}");
}

fn read(file: &Path) -> String {
    std::fs::read_to_string(file).expect("a text")
}

/// Every shipped program, and those of which only the passes are told.
fn programs() -> Vec<(String, String)> {
    let files =
        std::fs::read_dir(folder().join("../../cascades")).expect("a folder").map(|e| e.expect("an entry").path());
    let mut files: Vec<_> = files.filter(|p| p.extension().is_some_and(|e| e == "ein")).collect();
    files.sort();
    let name = |p: &Path| p.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
    let mut out: Vec<(String, String)> = files.iter().map(|p| (name(p), read(p))).collect();
    let unlisted = read(&folder().join("../algebra/tests/unlisted.txt"));
    let texts = unlisted.split("====\n").filter_map(|s| s.split_once("----\n"));
    out.extend(texts.enumerate().map(|(k, (text, _))| (format!("unlisted {k}"), text.to_string())));
    out
}

/// Sizes of which most are no multiples of anything, and how many sets of them each program is planned at.
const SIZES: [usize; 8] = [1, 2, 3, 17, 65, 128, 257, 1003];
const SETS: usize = 3;
/// Draws for one set: ranks that hang together refuse most.
const DRAWS: usize = 64;

/// Sizes that the program takes; the later the draw, the smaller, so that quotients are whole.
fn drawn(program: &Checked, random: &mut Random) -> Option<Given> {
    let cascade = program.cascade();
    (0..DRAWS).find_map(|draw| {
        let pool = &SIZES[..SIZES.len() - draw * SIZES.len() / DRAWS];
        let free = cascade.ranks.iter().filter(|r| r.default.is_none());
        let given = given(program, free.map(|r| (r.name.clone(), random.pick(pool))).collect());
        let bound = bind(cascade, &given).ok()?;
        undecided_reads(cascade, &bound).is_empty().then_some(given)
    })
}

/// Lists what is refused of all programs, on all GPUs, in three number types.
#[test]
#[ignore = "plans ten thousand times, which takes an hour"]
fn every_program_has_room_at_many_sizes() {
    let (mut plans, mut again, mut failures) = (0, 0, vec![]);
    for (name, text) in programs() {
        let written = checked(&text);
        let types = [None, Some(DType::Bf16), Some(DType::F64)];
        for dtype in types {
            let program = dtype.map_or_else(|| written.clone(), |t| written.in_type(t));
            let mut random = Random::new(0, &name);
            for given in (0..SETS).filter_map(|_| drawn(&program, &mut random)).collect::<Vec<_>>() {
                for machine in ["h200", "a100", "rtx-4090"] {
                    plans += 1;
                    let why = match planned(&program, &given, machine) {
                        Ok(planned) => {
                            again += usize::from(told(&planned).contains("no room"));
                            refused(&planned)
                        }
                        Err(e) => Some(e.to_string()),
                    };
                    failures.extend(why.map(|why| format!("{name} {dtype:?} on {machine}, {:?}: {why}", given.sizes)));
                }
            }
        }
    }
    println!("{plans} plans, {again} of them made again, {} refused", failures.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
