//! Where libraries may be. Reading the environment is the caller's business.

// Folders are listed to find libraries, nothing is read.
#![allow(clippy::disallowed_methods)]

use std::path::{Path, PathBuf};

/// What the caller knows of places.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// Directories to look in first.
    pub directories: Vec<PathBuf>,
    /// `CUDA_PATH` or `CUDA_HOME`: an installed toolkit.
    pub cuda_path: Option<PathBuf>,
    /// `VIRTUAL_ENV` or `CONDA_PREFIX`: an environment of Python's.
    pub python_environment: Option<PathBuf>,
}

/// Names of NVRTC, newest first.
const NVRTC: [&str; 4] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"];

impl Search {
    /// Files to try as NVRTC: those that exist, then bare names for the system's own search.
    pub fn nvrtc(&self) -> Vec<PathBuf> {
        let mut directories = self.directories.clone();
        directories.extend(self.cuda_path.iter().flat_map(|p| [p.join("lib64"), p.join("lib")]));
        for root in
            self.python_environment.iter().map(PathBuf::as_path).chain([Path::new("/usr/local"), Path::new("/usr")])
        {
            for packages in python_packages(root) {
                directories.push(packages.join("nvidia/cu13/lib"));
                directories.push(packages.join("nvidia/cuda_nvrtc/lib"));
            }
        }
        directories.push(PathBuf::from("/usr/local/cuda/lib64"));
        let mut out = vec![];
        for directory in directories {
            out.extend(NVRTC.iter().map(|name| directory.join(name)).filter(|file| file.is_file()));
        }
        out.extend(NVRTC.iter().map(PathBuf::from));
        out
    }
}

/// The folders of installed Python packages under a prefix.
fn python_packages(root: &Path) -> Vec<PathBuf> {
    let mut out = vec![root.join("lib/python3/dist-packages")];
    let Ok(entries) = std::fs::read_dir(root.join("lib")) else { return out };
    let mut versions: Vec<PathBuf> = entries
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with("python3.")))
        .collect();
    versions.sort();
    for version in versions {
        out.push(version.join("site-packages"));
        out.push(version.join("dist-packages"));
    }
    out
}
