//! The programs, and short ways to ask.

use einloom_algebra::{derive, flatten};
use einloom_cascade::parse;
use einloom_model::calculus::{Diagram, Partition, Symbol, SymbolKind};

pub const MATMUL: &str = "cascade matmul
input  X[a,b]: f16, Y[b,c]: f16
output Z: f16
Z[a,c] = sum(b) X[a,b] * Y[b,c]
";

pub const ATTENTION: &str = "cascade attention
input  Q[q,d]: f16, K[x,d]: f16, V[x,d]: f16
output O: f16
S[q,x] = sum(d) Q[q,d] * K[x,d]
P[q,x] = exp(S[q,x] - max(x) S[q,x])
O[q,d] = sum(x) P[q,x] / (sum(x) P[q,x]) * V[x,d]
";

/// The diagram of a text as derived.
pub fn derived(text: &str) -> Diagram {
    let parsed = parse(text);
    assert!(parsed.diagnostics.iter().all(|d| !d.is_error()), "{:?}", parsed.diagnostics);
    Diagram::new(&derive(&parsed.cascade).derived, &[]).expect("a diagram")
}

/// The diagram of a text as written, these arrays cut.
pub fn written(text: &str, cut: &[&str]) -> Diagram {
    let parsed = parse(text);
    assert!(parsed.diagnostics.iter().all(|d| !d.is_error()), "{:?}", parsed.diagnostics);
    Diagram::new(&flatten(&parsed.cascade), cut).expect("a diagram")
}

/// Values of sizes, groups (`g_q`) and streams (`s_x`) by their printed names.
pub fn with<'a>(values: &'a [(&'a str, f64)]) -> impl Fn(&Symbol) -> f64 + 'a {
    move |s| {
        let name = s.to_string();
        values.iter().find(|v| v.0 == name).unwrap_or_else(|| panic!("no value for {name}")).1
    }
}

/// The same for whole numbers.
pub fn whole<'a>(values: &'a [(&'a str, u64)]) -> impl Fn(&Symbol) -> Option<u64> + 'a {
    move |s| values.iter().find(|v| v.0 == s.to_string()).map(|v| v.1)
}

/// Queries in groups, keys streamed.
pub fn flash() -> Partition {
    Partition::whole().group(&["q"]).stream("x")
}

pub fn tiled() -> Partition {
    Partition::whole().group(&["a", "c"]).stream("b")
}

/// Equal to five digits.
#[track_caller]
pub fn near(found: f64, expected: f64) {
    assert!((found / expected - 1.0).abs() < 1e-5, "{found} is not {expected}");
}

pub fn size(name: &str) -> Symbol {
    Symbol { kind: SymbolKind::Size, name: name.to_string() }
}
