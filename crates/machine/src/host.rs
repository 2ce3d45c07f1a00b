//! The host as a machine.

use crate::{
    Bytes, BytesPerSecond, Cache, CacheKind, FlopsPerSecond, Hertz, HostFacts, Level, LevelKind, Machine, Measured,
    Overhead, Pipe, Work,
};
use einloom_cascade::DType;

/// Of main memory, all cores together: below what one channel of today's memory gives, for few cores share one.
const ASSUMED_MEMORY_PER_CORE: f64 = 8e9;
/// Of main memory, however many cores: a server's handful of channels.
const ASSUMED_MEMORY: f64 = 100e9;
/// Bytes per cycle and core from a cache, by its distance from the core (L1, L2, further out).
const ASSUMED_BYTES_PER_CYCLE: [f64; 3] = [64.0, 32.0, 8.0];
const ASSUMED_CLOCK: f64 = 2e9;
/// Side of what the CPU backend has a matrix unit multiply at a time: two by two of its tiles of 16 by 16 sums.
const UNIT_SQUARE: usize = 32;

/// Operations that a core's matrix unit does per cycle: a product of tiles, 16 by 16 sums of 32 terms, every 16 cycles
/// (Intel 64 and IA-32 Architectures Optimization Reference Manual, chapter on AMX).
const UNIT_PER_CYCLE: f64 = 1024.0;

/// Products of pairs of bf16 by vector instructions, in those of f32: as many instructions, of two products for each lane
/// (AMD, Software Optimization Guide for the Zen 5 Microarchitecture; measured there: 1.8 to 1.9).
const PAIRS: f64 = 2.0;
const ASSUMED_CACHES: [Cache; 2] = [
    Cache { level: 1, kind: CacheKind::Data, bytes: 32 << 10, shared_by: 1 },
    Cache { level: 2, kind: CacheKind::Unified, bytes: 256 << 10, shared_by: 1 },
];

/// The host as a machine named `host`. What the facts do not tell is assumed, and the description says so;
/// bandwidths and rates are told only where they were measured.
pub fn host(facts: &HostFacts) -> Machine {
    let none = Measured::default();
    let measured = facts.measured.as_ref().unwrap_or(&none);
    let told = |x: f64| Some(x).filter(|x| x.is_finite() && *x > 0.0);
    let (multiply_adds, memory) = (told(measured.multiply_adds), told(measured.memory));
    let mut assumed = vec![];
    if memory.is_none() {
        assumed.push("bandwidths");
    }
    if multiply_adds.is_none() {
        assumed.push("rates");
    }
    let cores = facts.cores.max(1);
    let clock = if facts.hertz > 0.0 { facts.hertz } else { ASSUMED_CLOCK };
    if facts.hertz <= 0.0 {
        assumed.push("clock");
    }
    let mut caches = usable(&facts.caches, cores);
    if caches.is_empty() {
        assumed.push("caches");
        caches = ASSUMED_CACHES.to_vec();
    }
    let memory = memory.unwrap_or((ASSUMED_MEMORY_PER_CORE * cores as f64).min(ASSUMED_MEMORY));
    let mut levels = vec![Level {
        name: "DRAM".to_string(),
        parent: None,
        kind: LevelKind::Memory,
        capacity: facts.memory_bytes.map(Bytes).filter(|m| caches.iter().all(|c| c.bytes < m.0)),
        shared_by: cores,
        bandwidth: BytesPerSecond(memory),
        energy: None,
    }];
    for cache in caches.iter().rev() {
        let distance = usize::from(cache.level).saturating_sub(1).min(2);
        let found = measured.caches.iter().find(|(level, _)| *level == cache.level).and_then(|c| told(c.1));
        levels.push(Level {
            name: format!("L{}", cache.level),
            parent: Some(levels.len() - 1),
            kind: LevelKind::Memory,
            capacity: Some(Bytes(cache.bytes)),
            shared_by: cache.shared_by,
            bandwidth: BytesPerSecond(found.unwrap_or(ASSUMED_BYTES_PER_CYCLE[distance] * clock * cores as f64)),
            energy: None,
        });
    }
    let Simd { per_cycle, name: simd, registers } = Simd::of(&facts.features);
    levels.push(Level {
        name: "registers".to_string(),
        parent: Some(levels.len() - 1),
        kind: LevelKind::Registers,
        capacity: Some(Bytes(registers)),
        shared_by: 1,
        bandwidth: BytesPerSecond(f64::INFINITY),
        energy: None,
    });
    let f32_rate = multiply_adds.unwrap_or(per_cycle * clock * cores as f64);
    // Narrow types are computed in f32.
    let rate = |d: DType| (d, FlopsPerSecond(if d == DType::F64 { f32_rate / 2.0 } else { f32_rate }));
    let rates = DType::ALL.into_iter().map(rate).collect();
    let mut pipes = vec![Pipe { name: "SIMD".to_string(), work: Work::Arithmetic, rates, energy: Default::default() }];
    let has = |name: &str| facts.features.iter().any(|f| f == name);
    // The CPU backend packs factors with the instructions named last.
    let unit = if has("amx_tile") && has("amx_bf16") {
        Some(("AMX", UNIT_PER_CYCLE))
    } else if has("avx512_bf16") && has("avx512vbmi") {
        Some(("AVX512-BF16", PAIRS * per_cycle))
    } else {
        None
    };
    if let Some((name, per_cycle)) = unit {
        let rate = told(measured.products.unwrap_or(0.0)).unwrap_or(per_cycle * clock * cores as f64);
        let rates = [(DType::Bf16, FlopsPerSecond(rate))].into();
        pipes.push(Pipe { name: name.to_string(), work: Work::Products, rates, energy: Default::default() });
    }
    let model = if facts.model_name.is_empty() { "this computer" } else { &facts.model_name };
    Machine {
        name: "host".to_string(),
        description: match assumed.as_slice() {
            [] => format!("{model}, {simd}; measured: bandwidths, rates"),
            assumed => format!("{model}, {simd}; assumed: {}", assumed.join(", ")),
        },
        cores,
        clock: Hertz(clock),
        element: None,
        power: None,
        // The CPU backend leaves out squares of its matrix unit.
        overhead: Overhead { masked: unit.map(|_| UNIT_SQUARE), ..Overhead::default() },
        levels,
        pipes,
        lanes: None,
        matrix: vec![],
    }
}

/// The caches that hold data, innermost first, larger and shared by no fewer cores the further out.
fn usable(caches: &[Cache], cores: usize) -> Vec<Cache> {
    let mut sorted: Vec<Cache> = caches.iter().copied().filter(|c| c.kind != CacheKind::Instruction).collect();
    sorted.sort_by_key(|c| (c.level, c.bytes));
    let mut out: Vec<Cache> = vec![];
    for mut cache in sorted {
        // A cache may be shared with processors that this machine does not count.
        cache.shared_by = cache.shared_by.clamp(1, cores);
        while !cores.is_multiple_of(cache.shared_by) {
            cache.shared_by += 1;
        }
        let fits = |inner: &Cache| {
            inner.level < cache.level && inner.bytes < cache.bytes && inner.shared_by <= cache.shared_by
        };
        if cache.bytes > 0 && out.last().is_none_or(fits) {
            out.push(cache);
        }
    }
    out
}

/// The widest instructions of a core.
struct Simd {
    name: &'static str,
    /// Operations a core does per cycle in f32.
    per_cycle: f64,
    /// Bytes of its registers.
    registers: u64,
}

impl Simd {
    fn of(features: &[String]) -> Self {
        let has = |name: &str| features.iter().any(|f| f == name);
        if has("avx512f") {
            // Two fused multiply-adds of 16 lanes; half as many on the narrower cores.
            Self { name: "AVX-512", per_cycle: 64.0, registers: 32 * 64 }
        } else if has("avx2") && has("fma") {
            Self { name: "AVX2", per_cycle: 32.0, registers: 16 * 32 }
        } else if has("asimd") {
            Self { name: "NEON", per_cycle: 16.0, registers: 32 * 16 }
        } else {
            // A multiplication and an addition of 4 lanes.
            Self { name: "128-bit SIMD", per_cycle: 8.0, registers: 16 * 16 }
        }
    }
}
