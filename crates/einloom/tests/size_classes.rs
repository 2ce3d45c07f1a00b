//! Sizes of one class share code: sources of the same tiles differ in literals that can be parameters of the kernels, and
//! the common text compiles with NVRTC, where that is installed, without a spill more than the sources have.

#![allow(clippy::disallowed_methods, clippy::disallowed_macros)] // Programs are read from files; what is skipped is said.

use einloom::gpu::{Gpu, Toolchain, source};
use einloom::{PlanOptions, Planned, Program};
use einloom_cascade::Given;
use einloom_cuda::{Arch, Pieces, Source, Target, Template};
use std::collections::BTreeMap;
use std::path::Path;

/// Programs, and sizes of which the first three are one class and the last is another.
const CASES: [(&str, [&str; 4]); 6] = [
    (
        "attention",
        [
            "B=2,H=4,M=2048,N=2048,D=64,E=64",
            "B=3,H=8,M=4096,N=4096,D=64,E=64",
            "B=4,H=16,M=8192,N=8192,D=64,E=64",
            "B=3,H=8,M=4096,N=4096,D=128,E=128",
        ],
    ),
    (
        "attention_causal",
        [
            "B=2,H=16,M=4096,N=4096,D=128,E=128",
            "B=2,H=16,M=8192,N=8192,D=128,E=128",
            "B=2,H=16,M=16384,N=16384,D=128,E=128",
            "B=2,H=16,M=4096,N=4096,D=64,E=64",
        ],
    ),
    // Sums whose shares take the same tiles.
    ("matmul", ["M=512,N=512,K=512", "M=1024,N=768,K=1024", "M=256,N=2048,K=4096", "M=500,N=512,K=512"]),
    ("layernorm", ["M=512,D=1024", "M=640,D=1024", "M=1024,D=1024", "M=77,D=1024"]),
    ("softmax", ["M=512,N=1024", "M=640,N=1024", "M=80,N=1024", "M=77,N=1024"]),
    ("logsumexp", ["M=512,N=100000", "M=640,N=200000", "M=1024,N=300000", "M=512,N=10"]),
];

/// Tiles by index, and numbers of shares; none for the planner's choice.
type Class = (BTreeMap<String, usize>, Option<BTreeMap<String, usize>>);

fn planned(name: &str, sizes: &str, (tiles, shares): &Class) -> Planned {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../cascades/{name}.ein"));
    let text = std::fs::read_to_string(path).expect("text");
    let derived = Program::from_text(&text).check().expect("a program").derive();
    let size = |s: &str| s.split_once('=').map(|(n, x)| (n.to_string(), x.parse().expect("a number"))).expect("a size");
    let given = Given { sizes: sizes.split(',').map(size).collect(), ..Given::default() };
    let machine = einloom::machines::find("h200").expect("built in");
    let options = PlanOptions {
        narrow_contractions: true,
        tiles: tiles.clone(),
        shares: shares.clone(),
        ..PlanOptions::default()
    };
    derived.plan(&given, &machine, &options).unwrap_or_else(|e| panic!("{name} {sizes}: {e}"))
}

/// The tiles that all kernels agree on, and the shares.
fn class(planned: &Planned) -> Class {
    let mut out = BTreeMap::new();
    for (index, tile) in planned.kernels().iter().flat_map(|k| k.group.iter().chain(&k.stream)) {
        out.entry(index.clone()).or_insert(*tile);
    }
    planned.shares().iter().flat_map(|s| &s.called).for_each(|own| _ = out.remove(own));
    (out, Some(planned.shares().iter().map(|s| (s.index.clone(), s.count)).collect()))
}

#[test]
fn sizes_of_a_class_share_code() {
    let toolchain = Toolchain::open().inspect_err(|e| eprintln!("compared, but not compiled: {e}")).ok();
    let machine = einloom::machines::find("h200").expect("built in");
    let target: Target = Gpu::target_of(&machine, Arch::Sm90a);
    std::thread::scope(|s| {
        for (name, sizes) in CASES {
            let (toolchain, target) = (&toolchain, &target);
            s.spawn(move || {
                let first = planned(name, sizes[0], &Class::default());
                let class = class(&first);
                let sources: Vec<Source> =
                    sizes.iter().map(|z| source(&planned(name, z, &class), target).expect("a source")).collect();
                let pieces: Vec<Pieces> = sources.iter().map(|s| Pieces::of(&s.text)).collect();
                let template = Template::of(&pieces[0], &pieces[1]);
                let template = template.unwrap_or_else(|| panic!("{name}: {} is another class", sizes[1]));
                let third = Template::of(&pieces[0], &pieces[2]).and_then(|t| t.joined(Some(&template)));
                let template = third.unwrap_or_else(|| panic!("{name}: {} is another class", sizes[2]));
                for k in 0..3 {
                    let values = template.values(&pieces[k]).unwrap_or_else(|| panic!("{name}: {}", sizes[k]));
                    assert_eq!(values.len(), template.parameters());
                }
                assert_eq!(template.values(&pieces[3]), None, "{name}: {}", sizes[3]);
                if let Some(toolchain) = toolchain {
                    let common = Source { text: template.text(), ..sources[0].clone() };
                    toolchain.ptx(&common).unwrap_or_else(|e| panic!("{name}: {e}"));
                }
            });
        }
    });
}
