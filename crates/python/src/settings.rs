//! What the environment says.

// The one place of this crate that looks at it.
#![allow(clippy::disallowed_methods)]

use crate::failure::Failure;
use crate::tuning::Effort;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Where Python keeps packages: libraries of CUDA may be among them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    /// Folders of libraries.
    pub libraries: Vec<PathBuf>,
    /// `sys.prefix`.
    pub prefix: Option<PathBuf>,
}

static PLACES: Mutex<Option<Places>> = Mutex::new(None);

/// Tells where Python keeps packages: `packages` are the entries of `sys.path`.
pub(crate) fn set_places(prefix: PathBuf, packages: &[PathBuf]) {
    let libraries = packages.iter().flat_map(|p| ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"].map(|l| p.join(l)));
    let places = Places { libraries: libraries.collect(), prefix: Some(prefix) };
    *PLACES.lock().unwrap_or_else(PoisonError::into_inner) = Some(places);
}

/// Where Python keeps packages.
pub(crate) fn places() -> Places {
    PLACES.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
}

/// A folder that a variable names.
pub(crate) fn folder(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|v| !v.is_empty()).map(PathBuf::from)
}

/// How much to measure: `EINLOOM_TUNE`.
pub(crate) fn effort() -> Result<Effort, Failure> {
    let value = std::env::var("EINLOOM_TUNE").unwrap_or_default();
    Effort::from_name(&value).ok_or_else(|| {
        let message = format!("EINLOOM_TUNE is {value}");
        Failure::new("UsageError", "unknown-effort", message).hint("it is off, quick or full")
    })
}

/// Where compiled kernels and tuning results are kept: `EINLOOM_CACHE_DIR`, or else the user's cache folder.
pub(crate) fn cache_folder() -> Option<PathBuf> {
    folder("EINLOOM_CACHE_DIR").or_else(|| {
        let caches = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
        Some(caches?.join("einloom"))
    })
}
