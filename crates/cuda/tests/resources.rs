//! What ptxas says of the kernels that matter: registers and spills, recorded for NVRTC 13.0. Skipped, with the reason,
//! where another or none is present.

#![allow(clippy::disallowed_macros)] // what is skipped is said

mod programs;

use einloom_cascade::DType::{Bf16, F32};
use einloom_cuda::{Target, emit};
use einloom_tile::TileMonoid::Sum;
use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
use einloom_tile::{Builder, Program};
use expect_test::expect;

fn kernels() -> Vec<(String, Program)> {
    let mut out = vec![];
    let attend = |m, d, causal| {
        let sizes = AttentionSizes { b: 2, h: 8, m, n: m, d, e: d };
        attention(sizes, [128, 64], causal, Bf16).expect("well-formed")
    };
    for d in [64, 128, 256] {
        out.push((format!("attention d {d} full"), attend(4096, d, false)));
        out.push((format!("attention d {d} causal"), attend(4096, d, true)));
        out.push((format!("attention d {d} ragged"), attend(1000, d, false)));
    }
    out.push(("matmul".into(), matmul([4096; 3], [128, 128, 64], Bf16).expect("well-formed")));
    out.push(("matmul ragged".into(), matmul([1000, 500, 300], [128, 128, 64], Bf16).expect("well-formed")));
    out.push(("rows of three tiles".into(), rows_of_three_tiles()));
    out
}

/// Rows of which three tiles are held at once: compilers keep them in registers if they are not asked for more blocks than that leaves room for.
fn rows_of_three_tiles() -> Program {
    let mut p = Builder::new("rows");
    let [x, y, z] = ["X", "Y", "Z"].map(|name| p.input(name, &[4096, 1024], F32));
    let out = p.output("O", &[4096, 1024], F32);
    p.kernel("rows", |g| {
        let (m, n) = (g.grid("m", 4096, 4), g.whole("n", 1024));
        let [x, y, z] = [("x", x), ("y", y), ("z", z)].map(|(name, t)| g.load(name, t, [m, n]));
        let xy = g.map("xy", x * y);
        let xy = g.reduce("xy.sum", Sum, xy, n);
        let yz = g.map("yz", y * z * xy);
        let yz = g.reduce("yz.sum", Sum, yz, n);
        g.store(out, [m, n], x * yz + y * xy + z);
    });
    p.finish().expect("well-formed")
}

#[test]
fn registers_and_spills_of_products_and_attention() {
    let Some(compiler) = programs::compiler() else { return };
    if compiler.version() != "13.0" {
        return eprintln!("not compared: NVRTC is {}, the record is of 13.0", compiler.version());
    }
    let mut table = String::new();
    for (name, program) in kernels() {
        for target in [Target::SM_80, Target::SM_90A] {
            let source = emit(&program, &target).expect("fits");
            let binary = compiler.compile(&source.text, &target.arch.to_string(), None).expect("compiles");
            let number = |before: &str, after: &str| {
                let end = binary.log.find(after)?;
                let start = binary.log[..end].rfind(before)? + before.len();
                binary.log[start..end].trim().parse::<usize>().ok()
            };
            let registers = number("Used", " registers").expect("ptxas says so");
            let spilled = number(",", " bytes spill stores").expect("ptxas says so");
            table.push_str(&format!(
                "{name:24} {:7} {registers:3} registers, {spilled:3} bytes spilled\n",
                target.arch.to_string()
            ));
        }
    }
    expect![[r#"
        attention d 64 full      sm_80   206 registers,   0 bytes spilled
        attention d 64 full      sm_90a  168 registers,   0 bytes spilled
        attention d 64 causal    sm_80   254 registers,   0 bytes spilled
        attention d 64 causal    sm_90a  168 registers,   0 bytes spilled
        attention d 64 ragged    sm_80   249 registers,   0 bytes spilled
        attention d 64 ragged    sm_90a  168 registers,   0 bytes spilled
        attention d 128 full     sm_80   255 registers,   0 bytes spilled
        attention d 128 full     sm_90a  168 registers,   0 bytes spilled
        attention d 128 causal   sm_80   255 registers,   0 bytes spilled
        attention d 128 causal   sm_90a  168 registers,   0 bytes spilled
        attention d 128 ragged   sm_80   255 registers,  56 bytes spilled
        attention d 128 ragged   sm_90a  168 registers,   0 bytes spilled
        attention d 256 full     sm_80   254 registers,   0 bytes spilled
        attention d 256 full     sm_90a  168 registers,   0 bytes spilled
        attention d 256 causal   sm_80   254 registers,   0 bytes spilled
        attention d 256 causal   sm_90a  168 registers,   0 bytes spilled
        attention d 256 ragged   sm_80   251 registers,   0 bytes spilled
        attention d 256 ragged   sm_90a  168 registers,   0 bytes spilled
        matmul                   sm_80   168 registers,   0 bytes spilled
        matmul                   sm_90a  168 registers,   0 bytes spilled
        matmul ragged            sm_80   166 registers,   0 bytes spilled
        matmul ragged            sm_90a  166 registers,   0 bytes spilled
        rows of three tiles      sm_80   128 registers,   0 bytes spilled
        rows of three tiles      sm_90a  123 registers,   0 bytes spilled
    "#]]
    .assert_eq(&table);
}
