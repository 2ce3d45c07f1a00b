//! The machine code of hot kernels, without a GPU: the instructions that the schedule promises are there, and nothing is
//! spilled to memory. Skipped, with the reason, where NVRTC or a disassembler is missing.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros)] // Programs are read from files; what is skipped is said.

use einloom::gpu::{Toolchain, source};
use einloom::{PlanOptions, Planned, Program, machines};
use einloom_cascade::Given;
use einloom_cuda::{Clusters, Target};
use expect_test::expect;
use std::collections::BTreeMap;
use std::path::Path;

/// Programs, sizes.
const KERNELS: &[(&str, &str)] = &[
    ("benches/gpu/programs/matmul_nn.ein", "M=4096,N=4096,K=4096"),
    ("benches/gpu/programs/matmul_tt.ein", "M=4096,N=4096,K=4096"),
    ("cascades/attention.ein", "B=4,H=32,M=4096,N=4096,D=64,E=64"),
    ("cascades/attention.ein", "B=4,H=16,M=4096,N=4096,D=128,E=128"),
    ("cascades/attention.ein", "B=4,H=8,M=4096,N=4096,D=256,E=256"),
    ("cascades/attention_causal.ein", "B=1,H=32,M=16384,N=16384,D=64,E=64"),
    ("cascades/attention_causal.ein", "B=4,H=16,M=4096,N=4096,D=128,E=128"),
    ("cascades/attention_causal.ein", "B=4,H=8,M=4096,N=4096,D=256,E=256"),
    ("cascades/attention_softcap.ein", "B=4,H=16,M=4096,N=4096,D=128,E=128"),
    ("cascades/attention_l2.ein", "B=4,H=16,M=4096,N=4096,D=128,E=128"),
];

/// What moves and multiplies, and what must not be there.
const OPCODES: &[&str] = &["HGMMA", "UTMALDG", "SYNCS", "HMMA", "LDGSTS", "LDSM", "LDL", "STL"];

fn planned(path: &str, sizes: &str, matrix: Option<&str>) -> Planned {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = std::fs::read_to_string(root.join(path)).expect("a program");
    let sizes =
        sizes.split(',').filter_map(|s| s.split_once('=')).map(|(k, v)| (k.to_string(), v.parse().expect("a size")));
    let given = Given { sizes: sizes.collect(), ..Given::default() };
    let machine = machines::find("h200").expect("built in");
    let options =
        PlanOptions { narrow_contractions: true, matrix: matrix.map(str::to_string), ..PlanOptions::default() };
    let derived = Program::from_text(&text).check().expect("well-formed").derive();
    derived.plan(&given, &machine, &options).expect("plans")
}

#[test]
fn promised_instructions_are_there_and_nothing_is_spilled() {
    let toolchain = match Toolchain::open() {
        Ok(t) => t,
        Err(e) => return eprintln!("not checked: {e}"),
    };
    let mut table = format!("{:44} {:6}", "", "");
    OPCODES.iter().for_each(|o| table.push_str(&format!(" {o:>8}")));
    table.push('\n');
    for (path, sizes) in KERNELS {
        for (target, matrix) in [(Target::SM_90A, None), (Target::SM_80, Some("mma.sync"))] {
            let planned = planned(path, sizes, matrix);
            let source = source(&planned, &target).expect("emits");
            let sass = match toolchain.sass(&source) {
                Ok(text) => text,
                Err(e) if e.to_string().contains("disassembler") => return eprintln!("not checked: {e}"),
                Err(e) => panic!("{path} {sizes}: {e}"),
            };
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for word in sass.split(|c: char| !c.is_ascii_alphanumeric()) {
                if let Some(o) = OPCODES.iter().find(|o| **o == word) {
                    *counts.entry(o).or_default() += 1;
                }
            }
            let name = path.rsplit('/').next().unwrap_or_default().trim_end_matches(".ein");
            let d = sizes.split(',').find_map(|s| s.strip_prefix("D=")).map_or(String::new(), |d| format!(" d {d}"));
            table.push_str(&format!("{:44} {:6}", format!("{name}{d}"), target.arch.to_string()));
            OPCODES.iter().for_each(|o| table.push_str(&format!(" {:>8}", mark(counts.get(o).copied()))));
            table.push('\n');
        }
    }
    expect![[r#"
                                                               HGMMA  UTMALDG    SYNCS     HMMA   LDGSTS     LDSM      LDL      STL
        matmul_nn                                    sm_90a      yes      yes      yes        -        -        -        -        -
        matmul_nn                                    sm_80         -        -        -      yes      yes      yes        -        -
        matmul_tt                                    sm_90a      yes      yes      yes        -        -        -        -        -
        matmul_tt                                    sm_80         -        -        -      yes      yes      yes        -        -
        attention d 64                               sm_90a      yes      yes      yes        -        -        -        -        -
        attention d 64                               sm_80         -        -        -      yes      yes      yes        -        -
        attention d 128                              sm_90a      yes      yes      yes        -        -        -        -        -
        attention d 128                              sm_80         -        -        -      yes      yes      yes        -        -
        attention d 256                              sm_90a      yes      yes      yes        -        -        -        -        -
        attention d 256                              sm_80         -        -        -      yes      yes      yes        -        -
        attention_causal d 64                        sm_90a      yes      yes      yes        -        -        -        -        -
        attention_causal d 64                        sm_80         -        -        -      yes      yes      yes        -        -
        attention_causal d 128                       sm_90a      yes      yes      yes        -        -        -        -        -
        attention_causal d 128                       sm_80         -        -        -      yes      yes      yes        -        -
        attention_causal d 256                       sm_90a      yes      yes      yes        -        -        -        -        -
        attention_causal d 256                       sm_80         -        -        -      yes      yes      yes        -        -
        attention_softcap d 128                      sm_90a      yes      yes      yes        -        -        -        -        -
        attention_softcap d 128                      sm_80         -        -        -      yes      yes      yes        -        -
        attention_l2 d 128                           sm_90a      yes      yes      yes        -        -        -        -        -
        attention_l2 d 128                           sm_80         -        -        -      yes      yes      yes        -        -
    "#]].assert_eq(&table);
}

/// A pair of blocks copies for both where its schedule says so, and nowhere else.
#[test]
fn pairs_of_blocks_multicast() {
    let toolchain = match Toolchain::open() {
        Ok(t) => t,
        Err(e) => return eprintln!("not checked: {e}"),
    };
    let target = Target { clusters: Clusters::Of(2), ..Target::SM_90A };
    let mut pairs = 0;
    for (path, sizes) in KERNELS {
        let source = source(&planned(path, sizes, None), &target).expect("emits");
        let promised = source.kernels.iter().any(|k| k.cluster == 2);
        let sass = match toolchain.sass(&source) {
            Ok(text) => text,
            Err(e) if e.to_string().contains("disassembler") => return eprintln!("not checked: {e}"),
            Err(e) => panic!("{path} {sizes}: {e}"),
        };
        for instruction in [".MULTICAST", "UCGABAR_ARV", "UCGABAR_WAIT"] {
            assert_eq!(sass.contains(instruction), promised, "{path} {sizes}: {instruction}");
        }
        assert!(!sass.contains("LDL") && !sass.contains("STL"), "{path} {sizes}: spilled");
        pairs += usize::from(promised);
    }
    assert!(pairs >= 4, "only {pairs} kernels form pairs");
}

/// Rows may lie along the columns of a fragment: what a warp leaves out is asked of columns then.
#[test]
fn what_warps_leave_out_compiles_for_rows_that_lie_across() {
    let toolchain = match Toolchain::open() {
        Ok(t) => t,
        Err(e) => return eprintln!("not checked: {e}"),
    };
    let planned = planned("cascades/attention_qk_rmsnorm.ein", "B=2,D=256,E=16,H=1,M=64,N=256", None);
    let source = source(&planned, &Target::SM_90A).expect("emits");
    assert!(source.text.contains("_far_own |= p_max_far[j]"), "rows lie down");
    toolchain.ptx(&source).unwrap_or_else(|e| panic!("{e}"));
}

/// Numbers differ from one compiler to the next; whether there are any does not.
fn mark(count: Option<usize>) -> &'static str {
    if count.unwrap_or(0) > 0 { "yes" } else { "-" }
}

/// Where lanes multiply in f32, what a thread reads is at constant distances: hardly an instruction of the loop over terms
/// works out an address. NVRTC 13.0 makes 11 others beside 512 multiply-adds and 32 reads.
#[test]
fn products_of_lanes_are_little_else_than_multiply_adds() {
    let toolchain = match Toolchain::open() {
        Ok(t) => t,
        Err(e) => return eprintln!("not checked: {e}"),
    };
    let planned = planned("cascades/matmul.ein", "M=4096,N=4096,K=4096", None);
    for target in [Target::SM_90A, Target::SM_80] {
        let sass = match toolchain.sass(&source(&planned, &target).expect("emits")) {
            Ok(text) => text,
            Err(e) if e.to_string().contains("disassembler") => return eprintln!("not checked: {e}"),
            Err(e) => panic!("{e}"),
        };
        let (multiplied, read, all) = innermost(&sass).expect("a loop that multiplies");
        assert!(multiplied >= 256, "{target:?}: {multiplied}");
        assert!(16 * read <= multiplied, "{target:?}: {read} reads for {multiplied} multiply-adds");
        assert!(25 * (all - multiplied - read) <= multiplied, "{target:?}: {all} beside {multiplied} and {read}");
    }
}

/// Multiply-adds, reads of shared memory and all instructions of the shortest loop that multiplies most of the time.
fn innermost(sass: &str) -> Option<(usize, usize, usize)> {
    let mut labels: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut opcodes, mut best): (Vec<&str>, Option<(usize, usize, usize)>) = (vec![], None);
    for line in sass.lines().map(str::trim) {
        if let Some(label) = line.strip_suffix(':') {
            labels.insert(label, opcodes.len());
        }
        let Some((_, instruction)) = line.strip_prefix("/*").and_then(|l| l.split_once("*/")) else { continue };
        let mut words = instruction.split_whitespace().filter(|w| !w.starts_with('@'));
        let Some(opcode) = words.next().and_then(|w| w.split(['.', ';']).next()) else { continue };
        opcodes.push(opcode);
        let back = instruction.split(['`', '(', ')', ' ', ';']).find_map(|w| labels.get(w));
        if let (Some(&first), "BRA") = (back, opcode) {
            let count = |name: &str| opcodes[first..].iter().filter(|o| **o == name).count();
            let found = (count("FFMA"), count("LDS"), opcodes.len() - first);
            if 2 * found.0 > found.2 && best.is_none_or(|b| found.2 < b.2) {
                best = Some(found);
            }
        }
    }
    best
}
