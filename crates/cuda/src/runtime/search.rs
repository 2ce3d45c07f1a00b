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
    /// Files that exist and may be the program called `name`, such as a disassembler: in the directories of `path` (the
    /// variable `PATH`), then where tool kits and Python's `nvidia` packages put programs.
    pub fn programs(&self, name: &str, path: &[PathBuf]) -> Vec<PathBuf> {
        let mut directories = [self.directories.as_slice(), path].concat();
        directories.extend(self.cuda_path.iter().map(|p| p.join("bin")));
        for packages in self.package_folders() {
            directories.extend(subfolders(&packages.join("nvidia")).into_iter().map(|p| p.join("bin")));
        }
        directories.push(PathBuf::from("/usr/local/cuda/bin"));
        directories.into_iter().map(|d| d.join(name)).filter(|file| file.is_file()).collect()
    }

    /// Files to try as NVRTC: those that exist, then bare names for the system's own search.
    pub fn nvrtc(&self) -> Vec<PathBuf> {
        let mut directories = self.directories.clone();
        directories.extend(self.cuda_path.iter().flat_map(|p| [p.join("lib64"), p.join("lib")]));
        for packages in self.package_folders() {
            directories.push(packages.join("nvidia/cu13/lib"));
            directories.push(packages.join("nvidia/cuda_nvrtc/lib"));
        }
        directories.push(PathBuf::from("/usr/local/cuda/lib64"));
        let mut out = vec![];
        for directory in directories {
            out.extend(NVRTC.iter().map(|name| directory.join(name)).filter(|file| file.is_file()));
        }
        out.extend(NVRTC.iter().map(PathBuf::from));
        out
    }

    /// The folders of installed Python packages: of the environment, then of the system.
    fn package_folders(&self) -> Vec<PathBuf> {
        let system = [Path::new("/usr/local"), Path::new("/usr")];
        self.python_environment.iter().map(PathBuf::as_path).chain(system).flat_map(python_packages).collect()
    }
}

/// The folders of installed Python packages under a prefix.
fn python_packages(root: &Path) -> Vec<PathBuf> {
    let mut out = vec![root.join("lib/python3/dist-packages")];
    for version in subfolders(&root.join("lib")) {
        if version.file_name().and_then(|n| n.to_str()).is_some_and(|n| n.starts_with("python3.")) {
            out.push(version.join("site-packages"));
            out.push(version.join("dist-packages"));
        }
    }
    out
}

/// What a folder holds, sorted; nothing if it cannot be read.
fn subfolders(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return vec![] };
    let mut out: Vec<PathBuf> = entries.filter_map(|e| e.ok().map(|e| e.path())).collect();
    out.sort();
    out
}
