//! Mistakes in chips, bindings and studies are told with their places, all at once.

mod support;

use einloom_spatial::{Binding, Chip, Problem, Study};
use expect_test::{Expect, expect};
use std::collections::BTreeMap;
use support::{file, fusemax};

fn told(problems: Vec<Problem>) -> String {
    problems.iter().map(|p| format!("{p}\n")).collect()
}

fn chip(text: &str, expected: Expect) {
    expected.assert_eq(&Chip::parse("chip.toml", text).map_or_else(told, |_| "a chip\n".into()));
}

fn binding(text: &str, expected: Expect) {
    expected.assert_eq(&Binding::parse("binding.toml", text).map_or_else(told, |_| "a binding\n".into()));
}

fn study(text: &str, expected: Expect) {
    expected.assert_eq(&Study::parse("study.toml", text, &mut file).map_or_else(told, |_| "a study\n".into()));
}

#[test]
fn chips() {
    chip(
        "",
        expect![[r#"
        chip.toml:1:1: name: is missing
        chip.toml:1:1: clock: is missing
        chip.toml:1:1: word: is missing
        chip.toml:1:1: dram: is missing
        chip.toml:1:1: buffer: is missing
        chip.toml:1:1: array: is missing
    "#]],
    );
    chip(
        "name = 'a'\nclock = '1 GB'\nword = '0 B'\ncolour = 1",
        expect![[r#"
            chip.toml:1:1: dram: is missing
            chip.toml:1:1: buffer: is missing
            chip.toml:1:1: array: is missing
            chip.toml:2:9: clock: `GB` measures bytes, not a frequency (write a frequency as `1.98 GHz`)
            chip.toml:3:8: word: is zero
            chip.toml:4:1: colour: is not a known key (known here: name, description, clock, word, dram, buffer, unit, array, accounting, fault, timing)
        "#]],
    );
    chip(
        "name = 'a'\nclock = '1 GHz'\nword = '2 B'\n\
         [dram]\nbandwidth = '0 B/s'\n[buffer]\ncapacity = '1 MiB'\nread = '3 pJ/B'\n\
         [unit.mac]\nenergy = '1 pJ'\n\
         [[array]]\nname = '2d'\nrows = 0\nunits = { mca = 1 }\n\
         [array.operation]\nmultiplyadd = {}\nadd = { cycles = -1, uses = { mac = 1, adder = 2 } }\n\
         [[array]]\nname = '2d'\noperation = {}",
        expect![[r#"
            chip.toml:5:13: dram bandwidth: is zero
            chip.toml:8:8: buffer read: `pJ/B` measures energy per byte, not an energy (write an energy as `5 nJ`)
            chip.toml:13:8: array 1 rows: is zero
            chip.toml:14:17: array 1 units mca: there is no unit `mca` (the chip's units are mac)
            chip.toml:16:15: array 1 operation multiplyadd: is not an operation (operations are multiply-add, multiply, add, subtract, maximum, exponential, subtract-exponential, divide, select, combine, abs, exp2, log, log2, log1p, sqrt, rsqrt, tanh, sigmoid, erf, sin, cos, floor, round, sign, relu, silu, gelu, ^)
            chip.toml:17:18: array 1 operation add cycles: is not a finite number of at least 0
            chip.toml:17:48: array 1 operation add uses adder: there is no unit `adder` (the chip's units are mac)
            chip.toml:19:8: array 2 name: there is another array `2d`
        "#]],
    );
    chip(
        "name = ",
        expect![[r#"
        chip.toml:1:8: string values must be quoted, expected literal string
    "#]],
    );
}

#[test]
fn bindings() {
    binding(
        "",
        expect![[r#"
        binding.toml:1:1: name: is missing
        binding.toml:1:1: kernel: is missing
    "#]],
    );
    binding(
        "name = 'b'\nsizes = { M0 = '2d.depth', M1 = 0 }\n\
         [[kernel]]\nname = 'k'\ntile = 5\n[[kernel.phase]]\n2d = 'QK'\n\
         [[kernel.dataflow]]\nblock_size = 3\nleast_tiles = 2\nholds = ['Q']\nfit = true\n\
         beside = { Q = 'half' }\n[kernel.dataflow.within]\nrows = 3\n\
         [fault.f]\nsplit = ['exponentiate']",
        expect![[r#"
            binding.toml:2:16: sizes M0: `2d.depth` is not a number of positions (write a whole number, or the side of an array such as "2d.rows")
            binding.toml:2:33: sizes M1: is zero
            binding.toml:5:8: kernel 1 tile: is not a table
            binding.toml:7:6: kernel 1 phase 1 2d: is not a list of texts in quotes
            binding.toml:8:1: kernel 1 dataflow 1 block: has more than one of `block_size`, `block_most`, `blocks_as_at` and `least_tiles`
            binding.toml:8:1: kernel 1 dataflow 1 block: is missing
            binding.toml:12:1: kernel 1 dataflow 1 fit: is not a known key (known here: block, block_size, block_most, blocks_as_at, least_tiles, holds, uncut, whole, spills, past, beside, within, capacity)
            binding.toml:13:16: kernel 1 dataflow 1 beside Q: `half` is not `tile`, `block` or `whole`
            binding.toml:14:1: kernel 1 dataflow 1 within array: is missing
            binding.toml:15:1: kernel 1 dataflow 1 within rows: is not a known key (known here: array, multiples)
            binding.toml:17:9: fault f split: `exponentiate` is not an operation (operations are multiply-add, multiply, add, subtract, maximum, exponential, subtract-exponential, divide, select, combine, abs, exp2, log, log2, log1p, sqrt, rsqrt, tanh, sigmoid, erf, sin, cos, floor, round, sign, relu, silu, gelu, ^)
        "#]],
    );
}

#[test]
fn studies() {
    study(
        "name = 's'",
        expect![[r#"
        study.toml:1:1: accounting: is missing
        study.toml:1:1: configuration: is missing
    "#]],
    );
    study(
        "name = 's'\naccounting = 'artifact'\n\
         [[configuration]]\nname = 'a'\ncascade = 'nowhere.ein'\nchip = 'chips/flat.toml'\nbinding = 'fusemax.toml'\n\
         [[workload]]\nname = 'w'\nsizes = { B = 1.5 }\n[[workload]]\nname = 'w'\n\
         [[ratio]]\ntitle = 'r'\nof = 'watts'\nnumerator = 'a'\ndenominator = 'b'\n\
         [sweep]\nconfiguration = 'a'\narrays = [16, 0]",
        expect![[r#"
            study.toml:5:11: configuration 1 cascade: cannot read `nowhere.ein`: No such file or directory (os error 2)
            study.toml:10:15: workload 1 sizes B: is not a whole number
            study.toml:12:8: workload 2 name: there is another workload `w`
            study.toml:15:6: ratio 1 of: `watts` is not `seconds` or `joules`
            study.toml:17:15: ratio 1 denominator: there is no configuration `b` (there are a)
            study.toml:18:1: sweep length: is missing
            study.toml:20:10: sweep arrays: is not a list of whole numbers above 0
            fusemax.toml:1:1: kernel: is missing
            fusemax.toml:5:1: outer: is not a known key (known here: name, description, sizes, space, kernel, fault)
            fusemax.toml:6:1: accounting: is not a known key (known here: name, description, sizes, space, kernel, fault)
            fusemax.toml:8:3: configuration: is not a known key (known here: name, description, sizes, space, kernel, fault)
            fusemax.toml:42:3: workload: is not a known key (known here: name, description, sizes, space, kernel, fault)
            fusemax.toml:58:2: lengths: is not a known key (known here: name, description, sizes, space, kernel, fault)
            fusemax.toml:62:2: linear: is not a known key (known here: name, description, sizes, space, kernel, fault)
            fusemax.toml:83:3: ratio: is not a known key (known here: name, description, sizes, space, kernel, fault)
            fusemax.toml:167:2: sweep: is not a known key (known here: name, description, sizes, space, kernel, fault)
        "#]],
    );
}

#[test]
fn a_study_whose_files_do_not_fit() {
    let text = "name = 's'\naccounting = 'artifact'\n[[configuration]]\nname = 'a'\n\
                cascade = '../cascades/published/c5.ein'\nchip = 'chips/flat.toml'\n\
                binding = 'bindings/interleaved.toml'";
    study(
        text,
        expect![[r#"
            bindings/interleaved.toml:16:15: kernel attention: LM needs `maximum`, which elements of the array 2d do not have (run it elsewhere, or add [array.operation.maximum] to the chip flat)
            bindings/interleaved.toml:23:8: kernel attention: SLN needs `subtract-exponential`, which elements of the array 2d do not have (run it elsewhere, or add [array.operation.subtract-exponential] to the chip flat)
            bindings/interleaved.toml:23:15: kernel attention: SLD needs `add`, which elements of the array 2d do not have (run it elsewhere, or add [array.operation.add] to the chip flat)
        "#]],
    );
    study(
        &text.replace("bindings/interleaved.toml", "bindings/flat.toml"),
        expect![[r#"
        bindings/flat.toml:16:8: kernel attention: the cascade c5 has no Einsum `GM` (its Einsums are BQK, LM, RM, SLN, SLD, SLNV, PRM, RD, SPD, RNV, SPNV, AV)
        bindings/flat.toml:12:19: kernel attention: the cascade c5 has no Einsum `SN` (its Einsums are BQK, LM, RM, SLN, SLD, SLNV, PRM, RD, SPD, RNV, SPNV, AV)
        bindings/flat.toml:16:20: kernel attention: the cascade c5 has no Einsum `SD` (its Einsums are BQK, LM, RM, SLN, SLD, SLNV, PRM, RD, SPD, RNV, SPNV, AV)
        bindings/flat.toml:12:25: kernel attention: the cascade c5 has no Einsum `A` (its Einsums are BQK, LM, RM, SLN, SLD, SLNV, PRM, RD, SPD, RNV, SPNV, AV)
        bindings/flat.toml:12:13: kernel attention: the cascade c5 has no Einsum `QK` (its Einsums are BQK, LM, RM, SLN, SLD, SLNV, PRM, RD, SPD, RNV, SPNV, AV)
        bindings/flat.toml:15:14: kernel attention: AV needs `divide`, which elements of the array 2d do not have (run it elsewhere, or add [array.operation.divide] to the chip flat)
        bindings/flat.toml:12:13: kernel attention: the cascade c5 has no tensor `QK`
        bindings/flat.toml:12:25: kernel attention: the cascade c5 has no tensor `A`
        bindings/flat.toml:12:19: kernel attention: the cascade c5 has no tensor `SN`
        bindings/flat.toml: kernel: BQK runs nowhere (name it in a phase of one kernel)
        bindings/flat.toml: kernel: LM runs nowhere (name it in a phase of one kernel)
        bindings/flat.toml: kernel: RM runs nowhere (name it in a phase of one kernel)
        bindings/flat.toml: kernel: SLN runs nowhere (name it in a phase of one kernel)
        bindings/flat.toml: kernel: SLD runs nowhere (name it in a phase of one kernel)
        bindings/flat.toml: kernel: SLNV runs nowhere (name it in a phase of one kernel)
        bindings/flat.toml: kernel: PRM runs nowhere (name it in a phase of one kernel)
        bindings/flat.toml: kernel: RD runs nowhere (name it in a phase of one kernel)
        bindings/flat.toml: kernel: SPD runs nowhere (name it in a phase of one kernel)
        bindings/flat.toml: kernel: RNV runs nowhere (name it in a phase of one kernel)
        bindings/flat.toml: kernel: SPNV runs nowhere (name it in a phase of one kernel)
    "#]],
    );
    study(
        &text.replace("published/c5.ein", "matmul.ein"),
        expect![[r#"
            bindings/interleaved.toml:7:16: sizes: the cascade matmul has no rank `M0` (its ranks are M, K, N)
            bindings/interleaved.toml:7:32: space: the cascade matmul has no rank `P` (its ranks are M, K, N)
            bindings/interleaved.toml:7:16: space: the cascade matmul has no rank `M0` (its ranks are M, K, N)
            bindings/interleaved.toml:7:16: kernel attention: the cascade matmul has no rank `M0` (its ranks are M, K, N)
            bindings/interleaved.toml:12:10: kernel attention: the cascade matmul has no rank `M1` (its ranks are M, K, N)
            bindings/interleaved.toml:7:32: kernel attention: the cascade matmul has no rank `P` (its ranks are M, K, N)
            bindings/interleaved.toml:17:8: kernel attention: the cascade matmul has no Einsum `SPNV` (its Einsums are C)
            bindings/interleaved.toml:17:16: kernel attention: the cascade matmul has no Einsum `RNV` (its Einsums are C)
            bindings/interleaved.toml:17:23: kernel attention: the cascade matmul has no Einsum `RD` (its Einsums are C)
            bindings/interleaved.toml:17:29: kernel attention: the cascade matmul has no Einsum `AV` (its Einsums are C)
            bindings/interleaved.toml:16:8: kernel attention: the cascade matmul has no Einsum `BQK` (its Einsums are C)
            bindings/interleaved.toml:16:15: kernel attention: the cascade matmul has no Einsum `LM` (its Einsums are C)
            bindings/interleaved.toml:16:21: kernel attention: the cascade matmul has no Einsum `SLNV` (its Einsums are C)
            bindings/interleaved.toml:20:8: kernel attention: the cascade matmul has no Einsum `RM` (its Einsums are C)
            bindings/interleaved.toml:24:8: kernel attention: the cascade matmul has no Einsum `PRM` (its Einsums are C)
            bindings/interleaved.toml:24:15: kernel attention: the cascade matmul has no Einsum `SPD` (its Einsums are C)
            bindings/interleaved.toml:23:8: kernel attention: the cascade matmul has no Einsum `SLN` (its Einsums are C)
            bindings/interleaved.toml:23:15: kernel attention: the cascade matmul has no Einsum `SLD` (its Einsums are C)
            bindings/interleaved.toml:40:11: kernel attention: the cascade matmul has no tensor `Q`
            bindings/interleaved.toml:40:16: kernel attention: the cascade matmul has no tensor `BK`
            bindings/interleaved.toml:40:22: kernel attention: the cascade matmul has no tensor `BV`
            bindings/interleaved.toml:20:8: kernel attention: the cascade matmul has no tensor `RM`
            bindings/interleaved.toml:17:23: kernel attention: the cascade matmul has no tensor `RD`
            bindings/interleaved.toml:17:16: kernel attention: the cascade matmul has no tensor `RNV`
            bindings/interleaved.toml:17:29: kernel attention: the cascade matmul has no tensor `AV`
            bindings/interleaved.toml:24:8: kernel attention: the cascade matmul has no tensor `PRM`
            bindings/interleaved.toml:23:15: kernel attention: the cascade matmul has no tensor `SLD`
            bindings/interleaved.toml:23:8: kernel attention: the cascade matmul has no tensor `SLN`
            bindings/interleaved.toml:16:21: kernel attention: the cascade matmul has no tensor `SLNV`
            bindings/interleaved.toml:24:15: kernel attention: the cascade matmul has no tensor `SPD`
            bindings/interleaved.toml:17:8: kernel attention: the cascade matmul has no tensor `SPNV`
            bindings/interleaved.toml: kernel: C runs nowhere (name it in a phase of one kernel)
        "#]],
    );
}

/// A configuration of the study of FuseMax with another binding, at the sizes of one head at 4K.
fn unfitting(configuration: &str, change: impl Fn(&str) -> String, sizes: &[(&str, usize)], expected: Expect) {
    let study = fusemax();
    let mut c = study.configuration(configuration).unwrap().clone();
    let text = file(&format!("bindings/{}.toml", c.binding.name)).unwrap();
    let changed = change(&text);
    assert_ne!(text, changed);
    c.binding = Binding::parse("b", &changed).unwrap();
    let base = [("B", 1), ("H", 1), ("M", 4096), ("P", 4096), ("E", 64), ("F", 64)];
    let sizes: BTreeMap<String, usize> = base.iter().chain(sizes).map(|(n, s)| (n.to_string(), *s)).collect();
    let found = c.evaluate(&study, &sizes, &Default::default());
    expected.assert_eq(&found.map_or_else(told, |_| "an evaluation\n".into()));
}

#[test]
fn what_does_not_fit_together() {
    let replace = |a: &'static str, b: &'static str| move |text: &str| text.replace(a, b);
    unfitting(
        "flat",
        replace("\"GM\", ", ""),
        &[],
        expect![[r#"
        flat: kernel: GM runs nowhere (name it in a phase of one kernel)
    "#]],
    );
    unfitting(
        "flat",
        replace("\"GM\"", "\"GM\", \"GN\", \"Q\", \"SN\""),
        &[],
        expect![[r#"
        flat: kernel attention: the cascade c4_stable has no Einsum `GN` (its Einsums are QK, GM, SN, SD, A, AV)
        flat: kernel attention: `Q` is given or only renames elements: it runs nowhere (its Einsums are QK, GM, SN, SD, A, AV)
        flat: kernel attention: SN runs twice
    "#]],
    );
    unfitting(
        "flat",
        replace("1d = [", "1e = ["),
        &[],
        expect![[r#"
        flat: kernel attention: the chip flat has no array `1e` (its arrays are 2d, 1d)
    "#]],
    );
    unfitting(
        "flat",
        replace("2d = [\"QK\", \"AV\"]", "2d = [\"QK\", \"AV\", \"GM\"]"),
        &[],
        expect![[r#"
        flat: kernel attention: GM runs twice
        flat: kernel attention: GM needs `maximum`, which elements of the array 2d do not have (run it elsewhere, or add [array.operation.maximum] to the chip flat)
    "#]],
    );
    unfitting(
        "flat",
        replace("rows = \"M\"", "rows = \"N\""),
        &[],
        expect![[r#"
        flat: space: the cascade c4_stable has no rank `N` (its ranks are E, P, M, F)
    "#]],
    );
    unfitting(
        "flat",
        replace("block = \"P\"", "block = \"E\""),
        &[],
        expect![[r#"
            flat: kernel attention: blocks of E are made of tiles, and tiles do not cut it (give `tile` an extent of E)
        "#]],
    );
    unfitting(
        "binding",
        replace("\"BK\",", "\"KB\","),
        &[],
        expect![[r#"
            interleaved: kernel attention: the cascade c5 has no tensor `KB`
        "#]],
    );
    // Widths that no tile fits.
    unfitting(
        "binding",
        replace("= 3\nAV", "= 4\nAV"),
        &[("E", 1 << 20)],
        expect![[r#"
        interleaved: kernel attention: nothing that its dataflows hold fits the buffer of 16 MiB (add a dataflow that holds less, or smaller tiles)
    "#]],
    );
}

#[test]
fn missing_sizes_and_accountings() {
    let study = fusemax();
    let c = study.configuration("binding").unwrap();
    let sizes: BTreeMap<String, usize> = [("B", 1), ("M", 4096)].map(|(n, s)| (n.to_string(), s)).into();
    let no_heads = told(c.evaluate(&study, &sizes, &Default::default()).unwrap_err());
    expect![[r#"
        H: the rank H has no size (give H=…)
    "#]]
    .assert_eq(&no_heads);
    let sizes: BTreeMap<String, usize> = [("B", 1), ("H", 1), ("M", 4096)].map(|(n, s)| (n.to_string(), s)).into();
    let no_widths = told(c.evaluate(&study, &sizes, &Default::default()).unwrap_err());
    expect![[r#"
        E: E has no size (give `--size E=…`, or an input Q)
        P: P has no size (give `--size P=…`, or an input Q)
        F: F has no size (give `--size F=…`, or an input V)
    "#]]
    .assert_eq(&no_widths);
    expect![[r#"
        accounting: the chip fusemax has no accounting `exact` (it has artifact, corrected, sequential)
    "#]]
    .assert_eq(&told(c.faults("exact").unwrap_err()));
}
