//! Levels form a tree, and what contradicts that, or itself, is an error with its place.

use einloom_cascade::DType;
use einloom_machine::*;

const CLUSTERED: &str = r#"name = "clustered"
cores = 8
clock = "1 GHz"
[[level]]
name = "registers"
kind = "registers"
parent = "shared"
capacity = "64 KiB"
[[level]]
name = "shared"
parent = "cluster"
capacity = "32 KiB"
bandwidth = "800 GB/s"
[[level]]
name = "texture"
parent = "L2"
capacity = "8 KiB"
bandwidth = "100 GB/s"
[[level]]
name = "cluster"
kind = "exchange"
parent = "L2"
count = 4
bandwidth = "200 GB/s"
[[level]]
name = "L2"
parent = "memory"
capacity = "1 MiB"
shared_by = 8
bandwidth = "100 GB/s"
[[level]]
name = "memory"
parent = "memory"
bandwidth = "10 GB/s"
[[pipe]]
name = "matrix"
work = "products"
[pipe.rates]
bf16 = "800 GFLOP/s"
[pipe.energy]
bf16 = "0.3 pJ/FLOP"
[[pipe]]
name = "vector"
work = "arithmetic"
[pipe.rates]
f32 = "100 GFLOP/s"
"#;

/// The same with the root first, which has no parent to name.
fn text() -> String {
    let (levels, memory) = CLUSTERED.split_once("[[level]]\nname = \"memory\"\n").expect("memory");
    let (memory, pipes) = memory.split_once("[[pipe]]").expect("pipes");
    let memory = memory.replace("parent = \"memory\"\n", "");
    let (top, levels) = levels.split_once("[[level]]").expect("levels");
    format!("{top}[[level]]\nname = \"memory\"\n{memory}[[level]]{levels}[[pipe]]{pipes}")
}

fn errors(text: &str) -> String {
    match parse(text) {
        Ok(_) => String::new(),
        Err(errors) => errors.iter().map(MachineError::to_string).collect::<Vec<_>>().join("\n"),
    }
}

/// The errors with a piece replaced.
fn check(from: &str, to: &str, expected: &str) {
    let text = text();
    assert!(text.contains(from), "{from}");
    assert_eq!(errors(&text.replacen(from, to, 1)), expected);
}

#[test]
fn levels_may_stand_in_any_order() {
    let machine = parse(&text()).expect("a machine");
    let names: Vec<&str> = machine.levels.iter().map(|l| l.name.as_str()).collect();
    assert_eq!(names, ["memory", "L2", "texture", "cluster", "shared", "registers"], "parents first");
    let trunk: Vec<&str> = machine.trunk().map(|l| l.name.as_str()).collect();
    assert_eq!(trunk, ["memory", "L2", "texture"], "of memories side by side, the first");
    assert_eq!(machine.registers(), Some(Bytes(64 << 10)));
    let level = |name: &str| machine.level(name).expect("a level");
    assert_eq!(level("cluster").capacity, Some(Bytes(64 << 10)), "two cores' shared memories");
    let inside: Vec<&str> = machine.inside(level("L2")).map(|l| l.name.as_str()).collect();
    assert_eq!(inside, ["texture", "cluster"]);
    // Eight cores, each with 32 KiB shared, 8 KiB of texture memory and 64 KiB of registers.
    assert_eq!(machine.capacity_inside(level("L2")), Some(Bytes((8 * 104) << 10)));
}

#[test]
fn pipes_work_by_number_type() {
    let machine = parse(&text()).expect("a machine");
    assert_eq!(machine.rate(DType::Bf16), FlopsPerSecond(800e9));
    assert_eq!(machine.rate(DType::F16), FlopsPerSecond(100e9), "computed in f32");
    assert_eq!(machine.pipe(Work::Products, DType::Bf16).map(|p| p.energy[&DType::Bf16].0), Some(0.3e-12));
    assert_eq!(machine.pipe(Work::Special, DType::F32), None);
}

#[test]
fn what_is_no_tree_is_refused() {
    assert_eq!(
        errors(CLUSTERED),
        "7:10: level 1 parent: levels are inside each other: `registers` is inside `shared` is inside `cluster` is inside `L2` is inside `memory` is inside `memory`\n31:1: level 6 capacity: is missing"
    );
    check(
        "parent = \"cluster\"",
        "parent = \"clusters\"",
        "14:10: level 3 parent: there is no level `clusters`; there are memory, registers, shared, texture, cluster, L2",
    );
    check(
        "parent = \"memory\"",
        "parent = \"shared\"",
        "10:10: level 2 parent: levels are inside each other: `registers` is inside `shared` is inside `cluster` is inside `L2` is inside `shared`",
    );
    check(
        "parent = \"L2\"\ncapacity",
        "parent = \"registers\"\ncapacity",
        "19:10: level 4 parent: `registers` are registers: no level is inside them",
    );
    check(
        "kind = \"exchange\"",
        "kind = \"switch\"",
        "24:8: level 5 kind: `switch` is no kind of level; it is one of memory, exchange, registers",
    );
}

/// The errors of a built-in description with a piece replaced, whose line is `LINE`.
fn check_built_in(name: &str, from: &str, to: &str, expected: &str) {
    let text = BUILT_IN.iter().find(|m| m.0 == name).expect("built in").1;
    let before = text.split_once(from).expect(from).0;
    let line = (before.matches('\n').count() + 1).to_string();
    assert_eq!(errors(&text.replacen(from, to, 1)), expected.replace("LINE", &line));
}

#[test]
fn plans_come_as_near_to_the_cores_as_any_memory_is() {
    let far = "plans end at `L2`, shared by 132, and never come to `shared memory`, shared by 1 \
        (write `parent = \"L2\"`; of memories side by side plans pass the one listed first)";
    // What is blamed is the branch, not all that is on it.
    check_built_in("h200", "parent = \"L2\"", "parent = \"device memory\"", &format!("LINE:10: level 3 parent: {far}"));
    // Beside the trunk there may be memories as near, and further ones.
    check("name = \"texture\"", "name = \"texture\"\nshared_by = 1", "");
    check(
        "name = \"texture\"",
        "name = \"texture\"\nshared_by = 2",
        "26:10: level 5 parent: plans end at `texture`, shared by 2, and never come to `shared`, shared by 1 \
         (of memories side by side plans pass the one listed first)",
    );
    // What more cores share than the trunk's last memory does not belong inside that one, nor what holds more.
    let wide = r#"name = "wide"
cores = 8
clock = "1 GHz"
rates = { f32 = "1 GFLOP/s" }
level = [
    { name = "memory", bandwidth = "1 GB/s" },
    { name = "pairs", capacity = "1 MiB", shared_by = 2, bandwidth = "1 GB/s" },
    { name = "all", parent = "memory", capacity = "512 KiB", shared_by = 8, bandwidth = "1 GB/s" },
    { name = "own", capacity = "1 KiB", bandwidth = "1 GB/s" },
    { name = "close", capacity = "512 B", bandwidth = "1 GB/s" },
]
"#;
    assert_eq!(
        errors(wide),
        "8:30: level 3 parent: plans end at `pairs`, shared by 2, and never come to `own`, shared by 1 \
         (of memories side by side plans pass the one listed first)"
    );
}

#[test]
fn a_memory_that_counts_elements_holds_one() {
    let buffer = "capacity = \"16 KiB\"       # 4096 elements";
    check_built_in("two-level", buffer, "capacity = \"3 B\"", "LINE:12: level 2 capacity: 3 B hold no element of 4 B");
    check_built_in("two-level", buffer, "capacity = \"0 B\"", "LINE:12: level 2 capacity: is zero");
    // What is left over of whole elements holds nothing, and does no harm.
    check_built_in("two-level", buffer, "capacity = \"7 B\"", "");
    // No number is that long: not the memory is too small, but the element too large.
    check_built_in(
        "three-level",
        "element = \"4 B\"",
        "element = \"4 GB\"",
        "LINE:11: element: 4 GB are more than the 16 KiB of `buffer`",
    );
    let machine = built_in("two-level").expect("built in");
    let less = machine.with_level_capacity(1, Bytes(3)).expect_err("no room");
    assert_eq!(less, "buffer has a capacity that contradicts another: 3 B hold no element of 4 B");
}

#[test]
fn pipes_that_would_never_count_are_refused() {
    let vector = "work = \"arithmetic\"\n[pipe.rates]\nf32 = \"100 GFLOP/s\"\n";
    let beside =
        |dtype: &str| format!("{vector}[[pipe]]\nname = \"other\"\nwork = \"arithmetic\"\n[pipe.rates]\n{dtype}");
    check(
        vector,
        &beside("f32 = \"50 GFLOP/s\"\n"),
        "48:8: pipe 3 work: `vector` does arithmetic in f32 too: only the faster would count",
    );
    // Another number type may have a pipe of its own.
    check(vector, &beside("f64 = \"50 GFLOP/s\"\n"), "");
    check(vector, &beside(""), "49:1: pipe 3 rates: is empty");
    check(
        "[[pipe]]",
        "[rates]\nbf16 = \"1 GFLOP/s\"\nf32 = \"1 GFLOP/s\"\n[[pipe]]",
        "46:8: pipe 2 work: `arithmetic` does arithmetic in f32 too: only the faster would count",
    );
}

#[test]
fn capacities_and_counts_that_contradict_each_other_are_refused() {
    check("count = 4", "count = 3", "26:9: level 5 count: 8 cores cannot be divided among 3");
    check("count = 4", "count = 4\nshared_by = 4", "26:9: level 5 count: 4 shared by 4 each make 16, not the 8 cores");
    check(
        "count = 4",
        "count = 4\ncapacity = \"96 KiB\"",
        "27:12: level 5 capacity: 96 KiB is not the 64 KiB that its cores have in `shared`",
    );
    check("count = 4", "count = 8", "22:1: level 5 shared_by: 1 cores make no group of those that share `shared`");
    check(
        "capacity = \"32 KiB\"",
        "capacity = \"2 MiB\"",
        "15:12: level 3 capacity: 2 MiB is not less than the 1 MiB of `L2`, the level outside it",
    );
    check("capacity = \"8 KiB\"", "capacity = \"0 B\"", "20:12: level 4 capacity: is zero");
    check(
        "capacity = \"8 KiB\"",
        "capacity = \"8 GB/s\"",
        "20:12: level 4 capacity: `GB/s` measures bytes per second, not bytes (write bytes as `228 KiB`)",
    );
    check(
        "bf16 = \"0.3 pJ/FLOP\"",
        "f16 = \"0.3 pJ/B\"",
        "40:7: pipe 1 energy f16: `pJ/B` measures energy per byte, not energy per operation (write energy per operation as `0.3 pJ/FLOP`)",
    );
    check("bf16 = \"0.3 pJ/FLOP\"", "f16 = \"0.3 pJ/FLOP\"", "39:1: pipe 1 energy: f16 has an energy but no rate");
    check(
        "work = \"products\"",
        "work = \"magic\"",
        "36:8: pipe 1 work: `magic` is no work of a pipe; it is one of products, arithmetic, special, integer",
    );
}

#[test]
fn an_abstract_machine_takes_its_capacity_in_elements() {
    let machine = built_in("two-level").expect("built in");
    assert_eq!(machine.held_bytes(DType::Bf16), 4, "whatever the number type");
    let buffer = |m: &Machine| m.level("buffer").and_then(|l| l.capacity);
    assert_eq!(buffer(&machine.clone().with_capacity(65536).expect("room")), Some(Bytes(4 * 65536)));
    let wrong = |n| machine.clone().with_capacity(n).expect_err("no room");
    assert_eq!(wrong(0), "a memory without elements holds nothing; it takes at least 1");
    assert_eq!(wrong(u64::MAX), "18446744073709551615 elements of 4 B are more than can be counted");
    let place = |m: &Machine, name: &str| m.levels.iter().position(|l| l.name == name).expect("a level");
    let changed = |m: &str, level: &str, bytes: u64| {
        let machine = built_in(m).expect("built in");
        let level = place(&machine, level);
        machine.with_level_capacity(level, Bytes(bytes))
    };
    assert_eq!(
        changed("h200", "L2", 10 << 10),
        Err("shared memory has a capacity that contradicts another: 227 KiB is not less than the 10 KiB of `L2`, the level outside it".to_string())
    );
    assert_eq!(
        changed("h200", "shared memory", 95 << 20),
        Err("shared memory has a capacity that contradicts another: 95 MiB is not less than the 50 MB of `L2`, the level outside it".to_string())
    );
    assert!(changed("h200", "L2", 100 << 20).is_ok() && changed("h200", "shared memory", 64).is_ok());
    let h200 = built_in("h200").expect("built in").with_capacity(1).expect_err("no abstract machine");
    assert_eq!(h200, "h200 is no abstract machine: its capacities are those of its memories");
    let cluster = built_in("two-level-cluster").expect("built in").with_capacity(100).expect("room");
    assert_eq!(cluster.level("cluster").and_then(|l| l.capacity), Some(Bytes(1600)), "four buffers");
}

#[test]
fn figures_given_twice_agree() {
    let h200 = BUILT_IN.iter().find(|m| m.0 == "h200").expect("built in").1;
    let found = errors(&h200.replacen("special = 16 ", "special = 8 ", 1));
    assert!(
        found.ends_with("lanes special: 8 lanes of 132 cores do 1.932 TFLOP/s, not the 3.865 TFLOP/s of the pipe"),
        "{found}"
    );
}
