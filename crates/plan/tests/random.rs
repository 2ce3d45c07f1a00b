//! Random programs: whatever the language can say, the plan computes what it means.

mod support;

use einloom_algebra::{derive, flatten};
use einloom_plan::{Fusion, Options};
use std::collections::BTreeSet;
use support::{check, machine, read, sized};

/// A small generator of numbers; the same seed gives the same program.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % sides
    }

    fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        let k = self.roll(list.len());
        &list[k]
    }
}

/// Two indices for each of three ranks.
const INDICES: [&str; 6] = ["a", "b", "c", "x", "y", "z"];

/// A tensor and its indices, as numbers of ranks.
type Tensor = (String, Vec<usize>);

/// A read of a tensor under some names for its indices, which are added to `used`.
fn element(dice: &mut Dice, tensors: &[Tensor], used: &mut BTreeSet<usize>) -> String {
    let recent = tensors.len().min(4);
    let (name, ranks) =
        if dice.roll(2) == 0 { dice.pick(tensors) } else { dice.pick(&tensors[tensors.len() - recent..]) };
    let at: Vec<usize> = ranks.iter().map(|&r| if dice.roll(4) == 0 { r + 3 } else { r }).collect();
    used.extend(&at);
    let at: Vec<&str> = at.iter().map(|&i| INDICES[i]).collect();
    format!("{name}[{}]", at.join(","))
}

fn pointwise(dice: &mut Dice, tensors: &[Tensor], used: &mut BTreeSet<usize>) -> String {
    let x = element(dice, tensors, used);
    match dice.roll(9) {
        0 => format!("tanh({x})"),
        1 | 2 => format!("{x} * {}", element(dice, tensors, used)),
        3 => format!("({x} - {})", element(dice, tensors, used)),
        4 => format!("exp(-abs({x}))"),
        5 => format!("{x} / (2 + abs({}))", element(dice, tensors, used)),
        6 => format!("where({x} > 0, {}, 1)", element(dice, tensors, used)),
        7 => format!("{x} * {} * {}", element(dice, tensors, used), element(dice, tensors, used)),
        _ => format!("relu({x})"),
    }
}

fn program(seed: u64) -> (String, String) {
    let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut text =
        "rank A = 1\nrank B = 1\nrank C = 1\nindex a, x in A\nindex b, y in B\nindex c, z in C\n".to_string();
    let mut tensors: Vec<Tensor> = vec![];
    for k in 0..3 {
        let ranks: Vec<usize> = (0..3).filter(|_| dice.roll(3) > 0).collect();
        let dims: Vec<&str> = ranks.iter().map(|&r| INDICES[r]).collect();
        text += &format!("input X{k}[{}]: f32\n", dims.join(","));
        tensors.push((format!("X{k}"), ranks));
    }
    let count = 2 + dice.roll(4);
    let outputs: Vec<String> =
        (0..count).filter(|&k| k + 1 == count || dice.roll(4) == 0).map(|k| format!("Y{k}")).collect();
    text += &format!("output {}: f32\n", outputs.join(", "));
    for k in 0..count {
        let mut used = BTreeSet::new();
        let body = pointwise(&mut dice, &tensors, &mut used);
        // At most one index of each rank stays, so that the target's dimensions have different ranks.
        let mut free: Vec<usize> = vec![];
        for &i in &used {
            if dice.roll(3) > 0 && free.iter().all(|f| f % 3 != i % 3) {
                free.push(i);
            }
        }
        let over: Vec<usize> = used.iter().copied().filter(|i| !free.contains(i)).collect();
        let mut value = body;
        if !over.is_empty() {
            let names: Vec<&str> = over.iter().map(|&i| INDICES[i]).collect();
            let (first, partner) = (over[0], (over[0] + 3) % 6);
            let filter = match dice.roll(4) {
                0 if free.contains(&partner) => format!(": {} <= {}", INDICES[first], INDICES[partner]),
                1 => format!(": {} >= 1", INDICES[first]),
                _ => String::new(),
            };
            let monoid = *dice.pick(&["sum", "sum", "sum", "max", "min"]);
            value = match dice.roll(3) {
                // Every reduction but the last index by itself: reductions inside reductions.
                0 if names.len() > 1 && monoid == "sum" => {
                    format!("sum({}) (max({}) {value})", names[1..].join(","), names[0])
                }
                _ => format!("{monoid}({}{filter}) {value}", names.join(",")),
            };
            // Over nothing an extremum is infinite, and what is made of that may be no number.
            value = format!("tanh({value})");
        }
        let dims: Vec<&str> = free.iter().map(|&i| INDICES[i]).collect();
        text += &format!("Y{k}[{}] = {value}\n", dims.join(","));
        tensors.push((format!("Y{k}"), free.iter().map(|i| i % 3).collect()));
    }
    let sizes: Vec<String> =
        ["A", "B", "C"].iter().map(|r| format!("{r}={}", [0, 1, 2, 3, 4, 5][dice.roll(6)])).collect();
    (text, sizes.join(","))
}

#[test]
fn random_programs() {
    for seed in 0..300 {
        let (text, sizes) = program(seed);
        let cascade = read(&text);
        let bound = sized(&cascade, &sizes);
        let tile = [None, Some(1), Some(2), Some(3)][seed as usize % 4];
        let fuse = if seed % 5 == 4 { Fusion::None } else { Fusion::Auto };
        let tiles = cascade.indices.iter().filter_map(|i| Some((i.name.clone(), tile?))).collect();
        let label = format!("seed {seed}, {sizes}\n{text}");
        check(&label, &cascade, &bound, &Options { tiles, fuse, ..Options::default() }, seed);
    }
}

/// With reductions in shares wherever that can be.
#[test]
fn random_programs_in_shares() {
    let mut some = 0;
    for seed in 0..400 {
        let (text, sizes) = program(seed);
        let cascade = read(&text);
        let bound = sized(&cascade, &sizes);
        let tile = [None, Some(1), Some(2)][seed as usize % 3];
        for index in &cascade.indices {
            let shares = Some([(index.name.clone(), 2 + seed as usize % 3)].into());
            let tiles = cascade.indices.iter().filter_map(|i| Some((i.name.clone(), tile?))).collect();
            let options = Options { tiles, shares, ..Options::default() };
            let plans =
                |graph| einloom_plan::plan(&graph, &bound, &machine(), &options).is_ok_and(|p| !p.shares.is_empty());
            if plans(flatten(&cascade)) && plans(derive(&cascade).derived) {
                let label = format!("seed {seed}, {sizes}, shares of {}\n{text}", index.name);
                check(&label, &cascade, &bound, &options, seed);
                some += 1;
            }
        }
    }
    assert!(some > 200, "{some}");
}

/// In plans that are drawn: with anything in memory, kernels joined or not, and tiles of any sizes.
#[test]
fn random_programs_in_plans_that_are_drawn() {
    let (mut refused, mut uneven, mut in_shares) = (0, 0, 0);
    for seed in 0..400 {
        let (text, sizes) = program(seed);
        let cascade = read(&text);
        let bound = sized(&cascade, &sizes);
        let options = Options { drawn: Some(seed), ..Options::default() };
        let plan = |graph| einloom_plan::plan(&graph, &bound, &machine(), &options);
        let plans = [plan(flatten(&cascade)), plan(derive(&cascade).derived)];
        assert_eq!(plans[1], plan(derive(&cascade).derived), "seed {seed} draws two plans\n{text}");
        let [Ok(written), Ok(derived)] = plans else {
            refused += 1;
            continue;
        };
        for plan in [written, derived] {
            let axes = plan.program.kernels.iter().flat_map(|k| &k.axes);
            uneven += axes.filter(|a| a.tile > 1 && a.tile < a.extent && !a.extent.is_multiple_of(a.tile)).count();
            in_shares += usize::from(!plan.shares.is_empty());
        }
        check(&format!("seed {seed}, {sizes}\n{text}"), &cascade, &bound, &options, seed);
    }
    assert!(refused < 4 && uneven > 100 && in_shares > 50, "{refused} {uneven} {in_shares}");
}

#[test]
fn plans_are_drawn_for_processors_alone() {
    let cascade = read("input X[m,n]: f32\noutput Y: f32\nY[m] = sum(n) X[m,n]\n");
    let bound = sized(&cascade, "M=4,N=5");
    let options = Options { drawn: Some(1), ..Options::default() };
    for name in ["two-level", "h200"] {
        let machine = einloom_machine::built_in(name).expect("built in");
        let refused = einloom_plan::plan(&flatten(&cascade), &bound, &machine, &options).expect_err("tiles must fit");
        assert!(refused.reason.contains("processors alone"), "{refused}");
    }
}
