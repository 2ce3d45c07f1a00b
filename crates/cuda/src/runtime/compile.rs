//! From source to cubin.

use super::cache::Cache;
use super::nvrtc::{Nvrtc, Output};
use super::{CompileError, Search, Unavailable};

/// NVRTC.
pub struct Compiler {
    nvrtc: Nvrtc,
}

/// Machine code for one kind of GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Binary {
    /// An ELF file.
    pub cubin: Vec<u8>,
    /// What the compiler said; empty if the binary came from the cache.
    pub log: String,
    /// Whether it came from the cache.
    pub cached: bool,
}

impl Compiler {
    /// Opens NVRTC where `search` leads.
    ///
    /// # Errors
    /// [`Unavailable::NoCompiler`], with everything that was tried.
    pub fn open(search: &Search) -> Result<Self, Unavailable> {
        Ok(Self { nvrtc: Nvrtc::open(search)? })
    }

    /// Its version, such as `13.0`.
    pub fn version(&self) -> String {
        let (major, minor) = self.nvrtc.version();
        format!("{major}.{minor}")
    }

    /// Where it was found.
    pub fn path(&self) -> &str {
        &self.nvrtc.path
    }

    /// Compiles a source for `arch`, such as `sm_90a`; from the cache if it was before.
    ///
    /// # Errors
    /// If the source is refused, or compiles to less than it asks for: see [`CompileError`].
    pub fn compile(&self, text: &str, arch: &str, cache: Option<&Cache>) -> Result<Binary, CompileError> {
        let options = options(arch);
        let version = self.version();
        let key = Cache::key(&[text, arch, &version, &options.join(" ")]);
        if let Some(cubin) = cache.and_then(|c| c.get(&key)) {
            return Ok(Binary { cubin, log: String::new(), cached: true });
        }
        let (cubin, log) = self.nvrtc.compile(text, &options, Output::Cubin)?;
        let messages = degraded(&log);
        if !messages.is_empty() {
            return Err(CompileError::Degraded { messages });
        }
        if let Some(cache) = cache {
            cache.put(&key, &cubin);
        }
        Ok(Binary { cubin, log, cached: false })
    }

    /// The PTX of a source for `arch`, such as `sm_90a`.
    ///
    /// # Errors
    /// If the source is refused.
    pub fn ptx(&self, text: &str, arch: &str) -> Result<String, CompileError> {
        // Only a virtual architecture stops there.
        let (code, _) = self.nvrtc.compile(text, &options(&arch.replace("sm_", "compute_")), Output::Ptx)?;
        Ok(String::from_utf8_lossy(&code).trim_end_matches('\0').to_string())
    }
}

fn options(arch: &str) -> [String; 4] {
    [
        format!("--gpu-architecture={arch}"),
        "--std=c++17".to_string(),
        // Chunks are lambdas, which cannot be marked as device functions otherwise.
        "--device-as-default-execution-space".to_string(),
        // Says how many registers a kernel takes and whether it spills.
        "--ptxas-options=-v".to_string(),
    ]
}

/// Lines of a successful compile that mean serialised wgmma, ignored register requests and the like: ptxas codes C7507
/// to C7519 and C7602, reproduced with ptxas 13.0.88.
fn degraded(log: &str) -> Vec<String> {
    log.lines().filter(|l| l.contains("(C75") || l.contains("(C76")).map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn messages_of_degraded_kernels_are_found() {
        let log = "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized\n\
                   ptxas info    : Used 40 registers";
        assert_eq!(super::degraded(log).len(), 1);
        assert!(super::degraded("ptxas info    : Used 40 registers").is_empty());
    }
}
