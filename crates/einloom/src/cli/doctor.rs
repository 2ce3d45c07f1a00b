//! `einloom doctor`: what this machine offers, and what is missing.

use super::failure::Failure;
use super::ui::Ui;
use super::units;
use einloom::gpu::Gpu;
use einloom_cpu::{Isa, ProductRates};
use serde::Serialize;

#[derive(Debug, Serialize)]
struct DoctorJson {
    version: &'static str,
    processor: String,
    cores: usize,
    isa: &'static str,
    isas: Vec<&'static str>,
    /// Operations per second of one thread's products of bf16 in the caches: widened to f32.
    bf16_widened: f64,
    /// By pairs, where the processor can.
    bf16_pairs: Option<f64>,
    /// By the processor's matrix unit, if it has one.
    bf16_tiles: Option<f64>,
    caches: Vec<CacheJson>,
    memory_bytes: Option<u64>,
    available_memory_bytes: Option<u64>,
    backends: Vec<&'static str>,
    gpu: Option<String>,
    missing: Vec<String>,
}

#[derive(Debug, Serialize)]
struct CacheJson {
    level: u8,
    kind: String,
    bytes: u64,
    shared_by: usize,
}

pub(crate) fn command(ui: &Ui) -> Result<(), Failure> {
    let facts = einloom::host::facts();
    let best = Isa::best();
    let caches = facts.caches.iter().map(|c| CacheJson {
        level: c.level,
        kind: format!("{:?}", c.kind).to_lowercase(),
        bytes: c.bytes,
        shared_by: c.shared_by,
    });
    let gpu = Gpu::open();
    let products = ProductRates::measured();
    let data = DoctorJson {
        version: env!("CARGO_PKG_VERSION"),
        processor: facts.model_name.clone(),
        cores: facts.cores,
        isa: best.name(),
        isas: Isa::ALL.iter().filter(|i| i.is_available()).map(|i| i.name()).collect(),
        bf16_widened: products.widened,
        bf16_pairs: products.pairs.map(|t| 1.0 / t.single),
        bf16_tiles: products.tiles.map(|t| 1.0 / t.single),
        caches: caches.collect(),
        memory_bytes: facts.memory_bytes,
        available_memory_bytes: einloom::host::available_memory(),
        backends: if gpu.is_ok() { vec!["cpu", "cuda"] } else { vec!["cpu"] },
        gpu: gpu.as_ref().ok().map(Gpu::description),
        missing: missing(&facts, best, gpu.err().map(|e| e.to_string())),
    };
    ui.result(|| text(&data), &data)
}

fn missing(facts: &einloom_machine::HostFacts, best: Isa, gpu: Option<String>) -> Vec<String> {
    let mut missing = vec![];
    if best == Isa::Portable {
        missing.push("no AVX2 or AVX-512: portable kernels run several times slower".to_string());
    }
    if facts.caches.is_empty() {
        missing.push("the operating system does not tell cache sizes: plans assume small ones".to_string());
    }
    if facts.hertz <= 0.0 {
        missing.push("the operating system does not tell the clock: predicted times are rough".to_string());
    }
    missing.extend(gpu.map(|reason| format!("no GPU to run on: {reason}")));
    missing
}

fn text(data: &DoctorJson) -> String {
    let unknown = |text: &str| if text.is_empty() { "unknown".to_string() } else { text.to_string() };
    let memory = |b: Option<u64>| b.map_or("unknown".to_string(), |b| units::bytes(b as f64));
    let mut out = format!("einloom {}\n", data.version);
    out += &format!("  processor     {}\n", unknown(&data.processor));
    out += &format!("  threads       {}\n", data.cores);
    out += &format!("  instructions  {} (of {})\n", data.isa, data.isas.join(", "));
    let rate = |x: f64| units::rate(x, "FLOP/s");
    let pairs = data.bf16_pairs.map_or("no instructions for pairs".to_string(), |x| format!("{} by pairs", rate(x)));
    let tiles = data.bf16_tiles.map_or(String::new(), |x| format!(", {} by the matrix unit", rate(x)));
    out += &format!("  bf16 products {} widened to f32, {pairs}{tiles} (one thread)\n", rate(data.bf16_widened));
    let cache = |c: &CacheJson| format!("L{} {} {}", c.level, c.kind, einloom_machine::Bytes(c.bytes));
    out += &format!("  caches        {}\n", unknown(&data.caches.iter().map(cache).collect::<Vec<_>>().join(", ")));
    out += &format!("  memory        {}, {} free\n", memory(data.memory_bytes), memory(data.available_memory_bytes));
    out += &format!("  backends      {}\n", data.backends.join(", "));
    if let Some(gpu) = &data.gpu {
        out += &format!("  GPU           {gpu}\n");
    }
    for line in &data.missing {
        out += &format!("  missing       {line}\n");
    }
    out
}
