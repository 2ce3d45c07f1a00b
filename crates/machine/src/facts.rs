//! What the host says about itself, as the texts that Linux shows.

/// What is known of the host. Fields that are unknown are empty or 0; [`crate::host`] fills the gaps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostFacts {
    /// Such as `Intel(R) Xeon(R) Processor`.
    pub model_name: String,
    /// Logical processors that may be used.
    pub cores: usize,
    /// The first processor's caches.
    pub caches: Vec<Cache>,
    /// Instruction-set flags, such as `avx512f`.
    pub features: Vec<String>,
    /// The present clock, in Hz.
    pub hertz: f64,
    /// Main memory.
    pub memory_bytes: Option<u64>,
    /// What was measured, if anything was.
    pub measured: Option<Measured>,
}

/// What was measured of a host, by all of its processors together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// Operations per second of multiply-adds in f32.
    pub multiply_adds: f64,
    /// Of products of bf16, where there is a faster way for them.
    pub products: Option<f64>,
    /// Bytes per second, in and out, of the caches of each level.
    pub caches: Vec<(u8, f64)>,
    /// Of main memory; 0 if it was not.
    pub memory: f64,
}

/// One cache of the first processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// 1 is the innermost.
    pub level: u8,
    /// What it holds.
    pub kind: CacheKind,
    /// Its size.
    pub bytes: u64,
    /// How many logical processors share it.
    pub shared_by: usize,
}

/// What a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheKind {
    /// Data alone.
    Data,
    /// Instructions alone.
    Instruction,
    /// Both.
    Unified,
}

/// The texts of one folder `/sys/devices/system/cpu/cpu0/cache/index*/`, by file name.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheTexts<'a> {
    /// `level`.
    pub level: &'a str,
    /// `type`.
    pub kind: &'a str,
    /// `size`, such as `2048K`.
    pub size: &'a str,
    /// `shared_cpu_list`, such as `0-3,8`.
    pub shared_cpu_list: &'a str,
}

impl HostFacts {
    /// From `/proc/cpuinfo`, the caches' texts and `/proc/meminfo`. What cannot be read is left unknown: an empty
    /// text is fine.
    pub fn from_texts(cpuinfo: &str, caches: &[CacheTexts<'_>], meminfo: &str) -> Self {
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|l| l.split(':').next().is_some_and(|k| k.trim() == name))?;
            Some(line.split_once(':')?.1.trim().to_string())
        };
        let cores = cpuinfo.lines().filter(|l| l.split(':').next().is_some_and(|k| k.trim() == "processor")).count();
        let mhz: Option<f64> = field(cpuinfo, "cpu MHz").and_then(|t| t.parse().ok());
        // x86 says `flags`, ARM `Features`.
        let features = field(cpuinfo, "flags").or_else(|| field(cpuinfo, "Features")).unwrap_or_default();
        let kib = field(meminfo, "MemTotal").and_then(|t| t.strip_suffix("kB")?.trim().parse::<u64>().ok());
        Self {
            model_name: field(cpuinfo, "model name").unwrap_or_default(),
            cores,
            caches: caches.iter().filter_map(Cache::from_texts).collect(),
            features: features.split_whitespace().map(str::to_string).collect(),
            hertz: mhz.filter(|m| m.is_finite() && *m > 0.0).unwrap_or(0.0) * 1e6,
            memory_bytes: kib.and_then(|k| k.checked_mul(1024)),
            measured: None,
        }
    }
}

impl Cache {
    /// A cache from its texts; `None` if one of them cannot be understood.
    pub fn from_texts(texts: &CacheTexts<'_>) -> Option<Self> {
        let kind = match texts.kind.trim() {
            "Data" => CacheKind::Data,
            "Instruction" => CacheKind::Instruction,
            "Unified" => CacheKind::Unified,
            _ => return None,
        };
        let size = texts.size.trim();
        let (digits, unit) = match size.as_bytes().last()? {
            b'K' => (&size[..size.len() - 1], 1024),
            b'M' => (&size[..size.len() - 1], 1024 * 1024),
            b'0'..=b'9' => (size, 1),
            _ => return None,
        };
        Some(Self {
            level: texts.level.trim().parse().ok()?,
            kind,
            bytes: digits.parse::<u64>().ok()?.checked_mul(unit)?,
            shared_by: count(texts.shared_cpu_list)?,
        })
    }
}

/// How many processors a list such as `0-3,8` names.
fn count(list: &str) -> Option<usize> {
    let part = |part: &str| match part.trim().split_once('-') {
        None => part.trim().parse::<usize>().ok().map(|_| 1),
        Some((first, last)) => {
            let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
            last.checked_sub(first)?.checked_add(1)
        }
    };
    list.split(',').map(part).sum()
}
