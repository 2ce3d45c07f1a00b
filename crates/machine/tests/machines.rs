//! Descriptions in, machines or errors out.

use einloom_cascade::DType;
use einloom_machine::*;

const TOY: &str = r#"name = "toy"
cores = 4
clock = "2 GHz"
[[level]]
name = "DRAM"
bandwidth = "20 GB/s"
[[level]]
name = "cache"
capacity = "1 MiB"
shared_by = 2
bandwidth = "400 GB/s"
[rates]
f32 = "256 GFLOP/s"
"#;

/// The errors of [`TOY`] with a piece replaced.
fn check(from: &str, to: &str, expected: &str) {
    assert!(TOY.contains(from), "{from}");
    let found = match parse(&TOY.replacen(from, to, 1)) {
        Ok(_) => String::new(),
        Err(errors) => errors.iter().map(MachineError::to_string).collect::<Vec<_>>().join("\n"),
    };
    assert_eq!(found, expected);
}

#[test]
fn a_machine_is_read() {
    let machine = parse(TOY).expect("a machine");
    assert_eq!((machine.name.as_str(), machine.cores, machine.clock), ("toy", 4, Hertz(2e9)));
    assert_eq!(machine.levels[0].capacity, None);
    assert_eq!(machine.levels[0].shared_by, 4);
    assert_eq!(machine.levels[1].per_core(), Some(Bytes(512 << 10)));
    assert_eq!(machine.rate(DType::Bf16), FlopsPerSecond(256e9), "computed in f32");
}

#[test]
fn what_is_not_told_of_starting_work_is_as_by_default() {
    let machine = parse(TOY).expect("a machine");
    assert_eq!((machine.power, machine.overhead), (None, Overhead::default()));
    let told = TOY.replacen("[[level]]", "power = \"300 W\"\n[overhead]\nkernel = \"2 us\"\n[[level]]", 1);
    let machine = parse(&told).expect("a machine");
    assert_eq!(machine.power, Some(Watts(300.0)));
    assert_eq!(machine.overhead, Overhead { kernel: Seconds(2e-6), ..Overhead::default() });
    let told = TOY.replacen("[[level]]", "[overhead]\nmasked = 32\n[[level]]", 1);
    assert_eq!(parse(&told).expect("a machine").overhead.masked, Some(32));
    let told = TOY.replacen("[[level]]", "[overhead]\ninner_shows = 0.5\n[[level]]", 1);
    assert_eq!(parse(&told).expect("a machine").overhead.inner_shows, 0.5);
}

#[test]
fn mistakes_point_at_their_place() {
    check("cores = 4\n", "", "1:1: cores: is missing");
    check("cores = 4", "cores = 0", "2:9: cores: is zero");
    check("cores = 4", "cores = \"4\"", "2:9: cores: is not a whole number");
    check("\"2 GHz\"", "\"0 Hz\"", "3:9: clock: is zero");
    let shows = "5:15: overhead inner_shows: is not a fraction such as 0.8";
    check("[[level]]", "[overhead]\ninner_shows = 2.0\n[[level]]", shows);
    check("[[level]]", "power = \"0 W\"\n[[level]]", "4:9: power: is zero; leave it out if it is not known");
    check(
        "[[level]]",
        "[overhead]\nkernel = \"5 MB\"\n[[level]]",
        "5:10: overhead kernel: `MB` measures bytes, not a time (write a time as `3 us`)",
    );
    check("[[level]]", "[overhead]\nmasked = 0\n[[level]]", "5:10: overhead masked: is zero");
    check("name = \"toy\"", "name = \"\"", "1:8: name: is empty");
    check("name = \"toy\"", "name = \"a\\nb\"", "1:8: name: is more than one line of text");
    check("name = \"DRAM\"", "name = \" \"", "5:8: level 1 name: is empty");
    check("20 GB/s", "-20 GB/s", "6:13: level 1 bandwidth: `-20 GB/s` is less than nothing");
    check(
        "20 GB/s",
        "20 GB",
        "6:13: level 1 bandwidth: `GB` measures bytes, not bytes per second (write bytes per second as `4.8 TB/s`)",
    );
    check("\"400 GB/s\"", "400", "11:13: level 2 bandwidth: is not a quantity with its unit, in quotes");
    check("capacity = \"1 MiB\"\n", "", "7:1: level 2 capacity: is missing");
    check("shared_by = 2", "shared_by = 3", "10:13: level 2 shared_by: 3 does not divide the 4 cores");
    check(
        "name = \"DRAM\"",
        "name = \"DRAM\"\ncapacity = \"1 MiB\"",
        "10:12: level 2 capacity: 1 MiB is not less than the 1 MiB of `DRAM`, the level outside it",
    );
    check("name = \"cache\"", "name = \"DRAM\"", "8:8: level 2 name: there is another level `DRAM`");
    check(
        "shared_by",
        "shared",
        "10:1: level 2 shared: is not a known key (known here: name, parent, kind, capacity, shared_by, count, bandwidth, energy)",
    );
    check(
        "f32 = \"256 GFLOP/s\"",
        "f31 = \"256 GFLOP/s\"",
        "12:1: rates f32: is missing\n13:1: rates f31: is not a known key (known here: f64, f32, tf32, bf16, f16, e4m3, e5m2, i32, i16, i8, i4, u8, u4, b1)",
    );
}

const UNIT: &str = r#"
[[level]]
name = "registers"
kind = "registers"
capacity = "256 KiB"
[lanes]
arithmetic = 128
special = 16
threads = 2048
block_threads = 1024
registers = 255
latency = "820 ns"
[[matrix]]
name = "wide"
operands = ["bf16", "f16"]
sustained = 0.8
rows = 64
columns = 256
column_step = 8
depth = "32 B"
group_threads = 128
groups = [1, 2]
row_blocks = 1
reserve = 24
"#;

/// The errors of a GPU with a piece of its description replaced.
fn check_gpu(from: &str, to: &str, expected: &str) {
    assert!(UNIT.contains(from), "{from}");
    let (levels, sections) = UNIT.split_once("[lanes]").expect("lanes");
    let toy = TOY.replacen("[rates]", &format!("{}[rates]", levels.trim_start()), 1);
    let text = format!("{toy}[lanes]{sections}").replacen(from, to, 1);
    let found = match parse(&text) {
        Ok(_) => String::new(),
        Err(errors) => errors.iter().map(MachineError::to_string).collect::<Vec<_>>().join("\n"),
    };
    assert_eq!(found, expected);
}

#[test]
fn a_gpu_has_lanes_and_matrix_units() {
    check_gpu("sustained = 0.8", "sustained = 0.8", "");
    let h200 = built_in("h200").expect("built in");
    let names: Vec<&str> = h200.matrix.iter().map(|u| u.name.as_str()).collect();
    assert_eq!(names, ["wgmma", "mma.sync"], "best first");
    assert_eq!(h200.matrix[0].depth_of(DType::Bf16), 16);
    assert_eq!(h200.matrix[0].depth_of(DType::E4m3), 32);
    assert_eq!(h200.lanes.map(|l| l.special), Some(16));
    assert_eq!(built_in("cpu-generic").and_then(|m| m.lanes), None);
}

#[test]
fn what_is_not_measured_of_a_gpu_is_as_on_an_h200() {
    let calibration = |name: &str| built_in(name).and_then(|m| m.lanes).expect("a GPU").calibration;
    for other in ["h200", "h100", "a100", "rtx-4090"] {
        assert_eq!(calibration(other), Calibration::default(), "{other}");
    }
    let text = include_str!("../../../machines/h200_sxm.toml");
    let without = text.replacen("reads_show = 0.45", "", 1);
    let told = text.replacen("reads_show = 0.45", "reads_show = 0.6", 1);
    let shown = |text: &str| parse(text).expect("a machine").lanes.expect("lanes").calibration.reads_show;
    assert_eq!((shown(&without), shown(&told)), (0.45, 0.6));
}

#[test]
fn mistakes_in_lanes_and_matrix_units_point_at_their_place() {
    check_gpu("special = 16", "special = 0", "20:11: lanes special: is zero");
    check_gpu("latency = \"820 ns\"\n", "", "18:1: lanes latency: is missing");
    check_gpu("0.8", "80", "28:13: matrix unit 1 sustained: is not a fraction such as 0.8");
    check_gpu(
        "[[matrix]]",
        "[calibration]\nreads_show = 1.5\nreads_joined = \"0.5\"\n[[matrix]]",
        "26:14: calibration reads_show: is not a fraction such as 0.8\n\
         27:16: calibration reads_joined: is not a fraction such as 0.8",
    );
    check_gpu(
        "\"f16\"",
        "\"half\"",
        "27:12: matrix unit 1 operands: `half` is no number type; they are f64, f32, tf32, bf16, f16, e4m3, e5m2, i32, i16, i8, i4, u8, u4, b1",
    );
    check_gpu("[\"bf16\", \"f16\"]", "\"f16\"", "27:12: matrix unit 1 operands: is not a list of number types");
    check_gpu("[\"bf16\", \"f16\"]", "[]", "27:12: matrix unit 1 operands: is empty");
    check_gpu(
        "columns = 256",
        "columns = 250",
        "30:11: matrix unit 1 columns: 250 is no multiple of the column_step of 8",
    );
    check_gpu(
        "group_threads = 128",
        "group_threads = 100",
        "33:17: matrix unit 1 group_threads: 100 threads are not whole warps of 32",
    );
    check_gpu("groups = [1, 2]", "groups = []", "34:10: matrix unit 1 groups: is empty");
    check_gpu("groups = [1, 2]", "groups = 2", "34:10: matrix unit 1 groups: is not a list of whole numbers");
    check_gpu(
        "[[level]]\nname = \"registers\"\nkind = \"registers\"\ncapacity = \"256 KiB\"\n",
        "",
        "21:1: level: no level is registers: a machine with a matrix unit has them",
    );
    check_gpu(
        "threads = 2048",
        "threads = 99999",
        "18:1: lanes threads: 99999 threads have less than a register each of the core's 65536",
    );
    check_gpu(
        "reserve = 24",
        "reserve = 24\nfeeder_threads = 128",
        "37:18: matrix unit 1 feeder_threads: feeder_threads and feeder_registers belong together",
    );
}

#[test]
fn matrix_units_that_can_never_run_are_refused() {
    check_gpu("depth = \"32 B\"", "depth = \"0 B\"", "32:9: matrix unit 1 depth: 0 B hold no element of bf16");
    check_gpu("depth = \"32 B\"", "depth = \"2 B\"", "");
    check_gpu(
        "block_threads = 1024",
        "block_threads = 96",
        "33:17: matrix unit 1 group_threads: 128 threads are more than a block has, 96",
    );
    check_gpu(
        "groups = [1, 2]",
        "groups = [1, 8, 9]",
        "34:10: matrix unit 1 groups: 9 groups have 1152 threads, more than a block has, 1024",
    );
    check_gpu(
        "groups = [1, 2]",
        "groups = [1, 8]\nfeeder_threads = 128\nfeeder_registers = 24",
        "34:10: matrix unit 1 groups: 8 groups with the feeder have 1152 threads, more than a block has, 1024",
    );
    check_gpu("reserve = 24", "reserve = 254", "");
    check_gpu(
        "reserve = 24",
        "reserve = 255",
        "36:11: matrix unit 1 reserve: 255 registers leave none for tiles of the 255 that a thread may have",
    );
    // A core's 65536 among the threads of the fewest groups.
    check_gpu(
        "groups = [1, 2]\nrow_blocks = 1\nreserve = 24",
        "groups = [8, 4]\nrow_blocks = 1\nreserve = 128",
        "36:11: matrix unit 1 reserve: 128 registers leave none for tiles of the 128 that a thread may have",
    );
    check_gpu(
        "groups = [1, 2]\nrow_blocks = 1\nreserve = 24",
        "groups = [4]\nrow_blocks = 1\nreserve = 122\nfeeder_threads = 128\nfeeder_registers = 24",
        "36:11: matrix unit 1 reserve: 122 registers leave none for tiles of the 122 that a thread may have",
    );
}

#[test]
fn wrong_syntax_is_an_error_with_its_place() {
    let errors = parse("name = \n").expect_err("no value");
    assert_eq!(errors[0].line, 1);
    assert!(!errors[0].message.is_empty());
    assert!(parse("").is_err());
    assert!(parse("level = 3").is_err());
    assert!(parse("level = [3]").is_err());
}

#[test]
fn every_built_in_description_is_a_machine_of_its_name() {
    for (name, text) in BUILT_IN {
        let machine = parse(text).unwrap_or_else(|e| panic!("{name}: {}", e[0]));
        assert_eq!(machine.name, name);
        assert_eq!(built_in(name), Some(machine));
    }
    assert_eq!(built_in("abacus"), None);
}

#[test]
fn the_h200_has_its_datasheet_figures() {
    let h200 = built_in("h200").expect("built in");
    let level = |name: &str| h200.level(name).expect("a level");
    assert_eq!(level("device memory").bandwidth.to_string(), "4.8 TB/s");
    assert_eq!(level("shared memory").capacity, Some(Bytes(227 * 1024)));
    assert_eq!(h200.rate(DType::Bf16).to_string(), "989.5 TFLOP/s");
    assert_eq!(h200.rate(DType::E4m3), FlopsPerSecond(1979e12));
}

const CPUINFO: &str = "processor\t: 0\nmodel name\t: Test CPU @ 2.30GHz\ncpu MHz\t\t: 2300.000\nflags\t\t: fpu avx2 fma avx512f\n\nprocessor\t: 1\nmodel name\t: Test CPU @ 2.30GHz\ncpu MHz\t\t: 2300.000\n";

fn caches() -> Vec<CacheTexts<'static>> {
    let cache = |level, kind, size, shared_cpu_list| CacheTexts { level, kind, size, shared_cpu_list };
    vec![
        cache("1\n", "Data\n", "48K\n", "0\n"),
        cache("1\n", "Instruction\n", "32K\n", "0\n"),
        cache("2\n", "Unified\n", "2048K\n", "0\n"),
        cache("3\n", "Unified\n", "260M\n", "0-1\n"),
    ]
}

#[test]
fn the_host_is_what_its_texts_say() {
    let facts = HostFacts::from_texts(CPUINFO, &caches(), "MemTotal:       16000000 kB\nMemFree: 1 kB\n");
    assert_eq!((facts.cores, facts.hertz, facts.memory_bytes), (2, 2.3e9, Some(16_384_000_000)));
    let machine = host(&facts);
    let levels: Vec<String> = machine
        .levels
        .iter()
        .map(|l| format!("{} {:?} {}", l.name, l.capacity.map(|c| c.to_string()), l.shared_by))
        .collect();
    assert_eq!(
        levels,
        [
            "DRAM Some(\"16.38 GB\") 2",
            "L3 Some(\"260 MiB\") 2",
            "L2 Some(\"2 MiB\") 1",
            "L1 Some(\"48 KiB\") 1",
            "registers Some(\"2 KiB\") 1"
        ]
    );
    assert_eq!(machine.description, "Test CPU @ 2.30GHz, AVX-512; assumed: bandwidths, rates");
    assert_eq!(machine.rate(DType::F32), FlopsPerSecond(64.0 * 2.3e9 * 2.0));
}

#[test]
fn what_was_measured_of_a_host_is_not_assumed() {
    let mut facts = HostFacts::from_texts(CPUINFO, &caches(), "MemTotal:       16000000 kB\nMemFree: 1 kB\n");
    facts.features.extend(["avx512_bf16", "avx512vbmi"].map(str::to_string));
    let caches = vec![(1, 9e11), (3, 2e11)];
    facts.measured = Some(Measured { multiply_adds: 5e11, products: Some(9e11), caches, memory: 4e10 });
    let machine = host(&facts);
    assert_eq!(machine.description, "Test CPU @ 2.30GHz, AVX-512; measured: bandwidths, rates");
    let bandwidths: Vec<f64> = machine.levels.iter().map(|l| l.bandwidth.0).collect();
    // Of the second level nothing was measured.
    assert_eq!(bandwidths, [4e10, 2e11, 32.0 * 2.3e9 * 2.0, 9e11, f64::INFINITY]);
    assert_eq!(machine.rate(DType::F32), FlopsPerSecond(5e11));
    let products: Vec<f64> = machine.pipes.iter().filter_map(|p| Some(p.rates.get(&DType::Bf16)?.0)).collect();
    assert_eq!(products, [5e11, 9e11]);
    // What is no number was not measured.
    facts.measured = Some(Measured { multiply_adds: f64::NAN, memory: 0.0, ..Measured::default() });
    assert!(host(&facts).description.ends_with("assumed: bandwidths, rates"));
}

#[test]
fn a_host_that_says_nothing_is_still_a_machine() {
    for facts in [HostFacts::default(), HostFacts::from_texts("", &[CacheTexts::default()], "")] {
        let machine = host(&facts);
        assert_eq!(machine.description, "this computer, 128-bit SIMD; assumed: bandwidths, rates, clock, caches");
        assert_eq!(machine.levels.len(), 4);
    }
}

#[test]
fn texts_that_lie_do_no_harm() {
    let odd =
        |size, shared_cpu_list| Cache::from_texts(&CacheTexts { level: "2", kind: "Unified", size, shared_cpu_list });
    assert_eq!(odd("", "0"), None);
    assert_eq!(odd("K", "0"), None);
    assert_eq!(odd("12G", "0"), None);
    assert_eq!(odd("99999999999999999999K", "0"), None);
    assert_eq!(odd("8K", "7-3"), None);
    assert_eq!(odd("8K", ""), None);
    assert_eq!(odd("8K", "0-3,8").map(|c| c.shared_by), Some(5));
    // Five of six: the next count that divides the cores.
    let facts = HostFacts { cores: 6, caches: odd("8K", "0-3,8").into_iter().collect(), ..HostFacts::default() };
    assert_eq!(host(&facts).levels[1].shared_by, 6);
}

#[test]
fn one_mistake_in_a_level_is_one_error() {
    let file = include_str!("../../../machines/h200_sxm.toml");
    // The levels inside it are not blamed for what could not be read.
    for (right, wrong) in
        [("\"4.8 TB/s\"", "\"4.8 TB\""), ("\"30.9 TB/s\"", "\"30.9 TB\""), ("\"50 MB\"", "\"50 GHz\"")]
    {
        assert!(file.contains(right));
        let errors = parse(&file.replacen(right, wrong, 1)).expect_err(wrong);
        assert_eq!(errors.len(), 1, "{errors:?}");
    }
}
