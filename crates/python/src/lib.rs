//! The extension module `einloom._native`: calls from Python to the road and back, on arrays where they are.
//!
//! A call goes: `arguments` sorts what is given, `frameworks` and `dlpack` find where the arrays are, `kept` knows the
//! kernel for them, or `signature`, `prepare` and `kernel` make one; `cpu` or `gpu` runs it. What people read (reports,
//! exceptions, notebooks) is Python's part of the package, in `python/einloom`.

mod arguments;
mod cascade;
mod cpu;
mod dlpack;
mod failure;
mod frameworks;
mod gpu;
mod gradient;
mod kept;
mod kernel;
mod library;
mod numbers;
mod outputs;
mod pool;
mod prepare;
mod report;
mod settings;
mod signature;
mod sized;
mod text;
mod tuning;
mod wide;

use pyo3::prelude::*;

/// What `einloom._native` holds.
#[pymodule(name = "_native", gil_used = true)]
mod native {
    use super::{failure::Failure, library, settings, text::Text};
    use pyo3::prelude::*;
    use std::path::PathBuf;

    #[pymodule_export]
    use super::cascade::Cascade;

    #[pymodule_export]
    use super::tuning::Trial;

    /// The shipped programs: names and texts.
    #[pyfunction]
    fn programs() -> Vec<(&'static str, &'static str)> {
        library::PROGRAMS.to_vec()
    }

    /// Tells where packages are that may hold libraries.
    #[pyfunction]
    fn set_places(prefix: PathBuf, packages: Vec<PathBuf>) {
        settings::set_places(prefix, &packages);
    }

    /// The description of a machine: `host`, a built-in one, or a file that ends in `.toml`.
    #[pyfunction]
    fn machine_toml(py: Python<'_>, name: &str) -> PyResult<String> {
        let none = Text { name: String::new(), text: String::new() };
        let machine = einloom::machines::find(name).map_err(|e| Failure::from(e).raise(py, &none))?;
        Ok(einloom::machines::to_toml(&machine))
    }

    /// The folder of compiled kernels and tuning results.
    #[pyfunction]
    fn cache_folder() -> Option<PathBuf> {
        settings::cache_folder()
    }

    #[pymodule_init]
    fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
        m.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
