//! One call, to be measured with other tiles.

use super::{Entry, key, remember};
use crate::cascade::Cascade;
use crate::dlpack::Arrays;
use crate::failure::Failure;
use crate::frameworks::Framework;
use crate::kernel::Kernel;
use crate::prepare::{self, Extra};
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A call whose kernel is being chosen. It is over when the call goes on: then nothing can be measured any more.
#[pyclass(frozen, module = "einloom._native")]
#[derive(Debug)]
pub(crate) struct Trial {
    cascade: Py<Cascade>,
    call: Mutex<Option<Call>>,
    /// The planner's kernel.
    first: Arc<Kernel>,
    best: Mutex<Option<Arc<Kernel>>>,
}

/// What a call has to be made again.
#[derive(Debug)]
pub(crate) struct Call {
    pub words: Vec<u64>,
    pub inputs: usize,
    pub extra: Extra,
    pub addresses: Vec<u64>,
    pub framework: Framework,
    pub like: Py<PyAny>,
}

/// How long one measurement may take beyond its first run, in seconds, and how many runs it has.
const SECONDS: f64 = 0.1;
const RUNS: usize = 20;

impl Trial {
    pub fn new(cascade: Py<Cascade>, call: Call, first: Arc<Kernel>) -> Self {
        Self { cascade, call: Mutex::new(Some(call)), first, best: Mutex::default() }
    }

    /// Ends it; the kernel that was chosen.
    pub fn end(&self) -> Arc<Kernel> {
        self.call.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.best.lock().unwrap_or_else(PoisonError::into_inner).take().unwrap_or_else(|| self.first.clone())
    }

    fn kernel(&self, py: Python<'_>, tiles: &BTreeMap<String, usize>) -> Result<Arc<Kernel>, Failure> {
        let call = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(call) = &*call else {
            return Err(Failure::new("UsageError", "trial-over", "the call that was measured is over"));
        };
        if tiles.is_empty() {
            return Ok(self.first.clone());
        }
        let (cascade, words) = (self.cascade.get(), call.words.as_slice());
        py.detach(|| cascade.make(words, call.inputs, &call.extra, Some(tiles))).map(Arc::new)
    }
}

#[pymethods]
impl Trial {
    /// The planner's tiles by index; the extents of indices that it leaves whole.
    #[getter]
    fn tiles(&self) -> BTreeMap<String, usize> {
        let mut out = self.extents();
        out.extend(prepare::tiles(&self.first.planned));
        out
    }

    /// Positions by index.
    #[getter]
    fn extents(&self) -> BTreeMap<String, usize> {
        let planned = &self.first.planned;
        let cascade = planned.cascade();
        cascade.indices.iter().map(|i| (i.name.clone(), planned.bound().size(i.rank))).collect()
    }

    /// Sizes by rank.
    #[getter]
    fn sizes(&self) -> Vec<(String, usize)> {
        let planned = &self.first.planned;
        planned.cascade().ranks.iter().map(|r| r.name.clone()).zip(planned.bound().sizes().iter().copied()).collect()
    }

    /// What it runs on.
    #[getter]
    fn device(&self) -> String {
        super::device(self.first.place, &self.cascade.get().choices)
    }

    /// The time of a run with these tiles, in seconds; `None` where there is no such kernel.
    #[allow(unsafe_code)]
    fn measure(&self, py: Python<'_>, tiles: BTreeMap<String, usize>) -> PyResult<Option<f64>> {
        let Ok(kernel) = self.kernel(py, &tiles) else { return Ok(None) };
        let call = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(call) = &*call else { return Ok(None) };
        let mut arrays = Arrays { addresses: call.addresses.clone(), ..Arrays::default() };
        let like = call.like.bind(py);
        let _scratch = kernel.scratch(call.framework, like, &mut arrays)?;
        let (stream, _) = kernel.stream(py, call.framework)?;
        let addresses = arrays.addresses.as_slice();
        // SAFETY: the call that this is part of holds its arrays until it has ended this.
        let measured = py.detach(|| unsafe { kernel.measure(addresses, stream, RUNS, SECONDS) });
        measured.map(Some).map_err(|f| self.cascade.get().raise(py, &f))
    }

    /// Takes these tiles for the call, and remembers them.
    fn adopt(
        &self,
        py: Python<'_>,
        tiles: BTreeMap<String, usize>,
        seconds: f64,
        planned_seconds: f64,
    ) -> PyResult<()> {
        let cascade = self.cascade.get();
        let kernel = self.kernel(py, &tiles).map_err(|f| cascade.raise(py, &f))?;
        *self.best.lock().unwrap_or_else(PoisonError::into_inner) = Some(kernel);
        let call = self.call.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(call) = &*call else { return Ok(()) };
        let program = cascade.checked().name.clone();
        let entry = Entry {
            program,
            device: self.device(),
            sizes: self.sizes().into_iter().collect(),
            tiles,
            seconds,
            planned_seconds,
        };
        let signature = cascade.signature(&call.words, call.inputs, &call.extra);
        let kept = signature.and_then(|s| remember(&key(cascade.checked(), &s, &cascade.choices, &call.extra), entry));
        kept.map_err(|f| cascade.raise(py, &f))
    }
}
