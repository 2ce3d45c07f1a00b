//! What this computer says about itself.

use einloom_cpu::{Bf16Products, BuildError};
use einloom_machine::{CacheKind, CacheTexts, HostFacts, Machine, Measured};
use std::fs::read_to_string;

/// Cores, caches, instruction sets and memory, as far as the operating system tells. What it does not tell is left
/// out; [`einloom_machine::host`] says what it assumes instead.
pub fn facts() -> HostFacts {
    let text = |path: &str| read_to_string(path).unwrap_or_default();
    let caches: Vec<[String; 4]> = (0..16)
        .map(|k| format!("/sys/devices/system/cpu/cpu0/cache/index{k}"))
        .take_while(|folder| std::path::Path::new(folder).is_dir())
        .map(|folder| ["level", "type", "size", "shared_cpu_list"].map(|file| text(&format!("{folder}/{file}"))))
        .collect();
    let caches: Vec<CacheTexts> = caches
        .iter()
        .map(|[level, kind, size, shared]| CacheTexts { level, kind, size, shared_cpu_list: shared })
        .collect();
    let mut facts = HostFacts::from_texts(&text("/proc/cpuinfo"), &caches, &text("/proc/meminfo"));
    // What this process may use, not what is soldered in: containers and affinity count.
    if let Ok(cores) = std::thread::available_parallelism() {
        facts.cores = cores.get();
    }
    facts
}

/// How products of bf16 are to be computed on the processor: what the variable `EINLOOM_BF16` says (`fastest`, `widened`,
/// `pairs` or `tiles`), the fastest way if it says nothing.
///
/// # Errors
/// If it says something else.
pub fn bf16_products() -> Result<Bf16Products, BuildError> {
    let given = std::env::var_os("EINLOOM_BF16").filter(|v| !v.is_empty());
    given.map_or(Ok(Bf16Products::Fastest), |v| v.to_string_lossy().parse())
}

/// This computer as a machine.
pub fn machine() -> Machine {
    einloom_machine::host(&facts())
}

/// The same with bandwidths and rates as measured now, which takes a fraction of a second and wants nothing else to run meanwhile.
pub fn measured_machine() -> Machine {
    /// Of what is copied to measure main memory, in sizes of the largest cache; and at least so many bytes.
    const TIMES: usize = 8;
    const LEAST: usize = 64 << 20;
    let mut facts = facts();
    let threads = facts.cores.max(1);
    let caches: Vec<_> = facts.caches.iter().filter(|c| c.kind != CacheKind::Instruction).copied().collect();
    let share = |bytes: u64, by: usize| usize::try_from(bytes).unwrap_or(usize::MAX) / by.clamp(1, threads);
    let copied = caches.iter().map(|c| {
        // Half of it: what else is in it is not counted.
        (c.level, einloom_cpu::copied_per_second(share(c.bytes, c.shared_by) / 2, threads))
    });
    let largest = caches.iter().map(|c| share(c.bytes, c.shared_by)).max().unwrap_or(0);
    let most = available_memory().map_or(usize::MAX, |m| share(m, 1)) / (4 * threads);
    let memory = einloom_cpu::copied_per_second((TIMES * largest).max(LEAST).min(most.max(1)), threads);
    let (multiply_adds, products) = einloom_cpu::multiplied_per_second(threads);
    facts.measured = Some(Measured { multiply_adds, products, caches: copied.collect(), memory });
    einloom_machine::host(&facts)
}

/// Memory that could be allocated without swapping, in bytes, if the operating system tells.
pub fn available_memory() -> Option<u64> {
    let meminfo = read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
