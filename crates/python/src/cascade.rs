//! The object that `einloom.compile` gives: a program that can be called.

use crate::arguments::{Arguments, Refused};
use crate::dlpack::{Arrays, described};
use crate::failure::Failure;
use crate::frameworks::Framework;
use crate::kept::Kept;
use crate::kernel::{Kernel, Recipe};
use crate::outputs;
use crate::prepare::{Choices, Extra};
use crate::signature::{Place, Signature};
use crate::text::Text;
use einloom::Derived;
use einloom_cascade::{Cascade as Checked, TensorId};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// A checked and derived program. Calling it makes and keeps a kernel for what the arrays are.
#[pyclass(subclass, frozen, module = "einloom._native", name = "Cascade")]
#[derive(Debug)]
pub(crate) struct Cascade {
    pub(crate) text: Text,
    pub(crate) derived: Derived,
    pub(crate) inputs: Vec<TensorId>,
    pub(crate) choices: Choices,
    kept: Mutex<Kept>,
}

impl Cascade {
    pub(crate) fn checked(&self) -> &Checked {
        self.derived.cascade()
    }

    /// The exception for a failure, with places in this program's text.
    pub(crate) fn raise(&self, py: Python<'_>, failure: &Failure) -> PyErr {
        failure.raise(py, &self.text)
    }

    fn refuse(&self, py: Python<'_>, refused: Refused) -> PyErr {
        match refused {
            Refused::Failure(failure) => self.raise(py, &failure),
            Refused::Python(error) => error,
        }
    }

    /// The kernel for a call: kept, or made now.
    fn kernel(&self, py: Python<'_>, arrays: &Arrays, inputs: usize, extra: &Extra) -> Result<Arc<Kernel>, Failure> {
        if let Some(kernel) = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(&arrays.words) {
            return Ok(kernel);
        }
        let words = arrays.words.as_slice();
        let kernel = Arc::new(py.detach(|| self.make(words, inputs, extra))?);
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).put(&arrays.words, kernel.clone());
        Ok(kernel)
    }

    fn make(&self, words: &[u64], inputs: usize, extra: &Extra) -> Result<Kernel, Failure> {
        // What follows the arrays are the call's own sizes and parameters, which are in `extra` as well.
        let (words, _) = words.split_at(words.len() - extra_words(extra).len());
        let found = described(words);
        let (given, wanted) = found.split_at(inputs.min(found.len()));
        let checked = self.checked();
        let signature = Signature::of(checked, &self.inputs, given, self.choices.follow)?;
        let layouts = if wanted.is_empty() { None } else { Some(outputs::layouts(checked, &signature, wanted)?) };
        let recipe = Recipe {
            cascade: checked,
            inputs: &self.inputs,
            signature: &signature,
            choices: &self.choices,
            extra,
            outputs: layouts,
            wanted,
        };
        Kernel::new(&recipe)
    }
}

/// The call's own sizes and parameters as words, so that calls that differ in them get different kernels.
fn extra_words(extra: &Extra) -> Vec<u64> {
    let text =
        |name: &str| name.bytes().fold(1469598103934665603u64, |h, b| (h ^ u64::from(b)).wrapping_mul(1099511628211));
    let sizes = extra.sizes.iter().flat_map(|(name, &n)| [text(name), n as u64]);
    let params = extra.params.iter().flat_map(|(name, x)| [text(name), x.to_bits()]);
    sizes.chain(params).collect()
}

#[pymethods]
impl Cascade {
    #[new]
    #[pyo3(signature = (text, name, *, exact, follow, threads, sizes, params, machine))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        text: String,
        name: String,
        exact: bool,
        follow: bool,
        threads: Option<usize>,
        sizes: BTreeMap<String, usize>,
        params: BTreeMap<String, f64>,
        machine: Option<String>,
    ) -> PyResult<Self> {
        let text = Text { name, text };
        let derived = py.detach(|| einloom::Program::from_text(&text.text).check().map(|checked| checked.derive()));
        let derived = derived.map_err(|e| Failure::from(e).raise(py, &text))?;
        let inputs = derived.cascade().inputs().collect();
        let choices = Choices { exact, follow, threads, sizes, params, machine };
        Ok(Self { text, derived, inputs, choices, kept: Mutex::default() })
    }

    /// Runs the program on arrays.
    #[pyo3(signature = (*args, **kwargs))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        args: &Bound<'py, PyTuple>,
        kwargs: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (py, this) = (slf.py(), slf.get());
        let arguments = Arguments::sort(this.checked(), &this.inputs, args, kwargs).map_err(|r| this.refuse(py, r))?;
        let first = arguments.arrays.first().or(arguments.out.as_ref().and_then(|o| o.first())).cloned();
        let Some(first) = first else {
            let failure = Failure::new("MissingInput", "no-arrays", "a program without inputs needs `out=`");
            return Err(this.raise(py, &failure));
        };
        let framework = Framework::of(&first)?;
        let mut arrays = Arrays::default();
        let mut gradient = false;
        for (object, &tensor) in arguments.arrays.iter().zip(&this.inputs) {
            let own = Framework::of(object)?;
            own.read(object, &mut arrays).map_err(|e| this.unreadable(py, tensor, &e))?;
            gradient |= own.wants_gradient(object)?;
        }
        if gradient && let Some(result) = crate::gradient::instead(slf, &arguments)? {
            return Ok(result);
        }
        let inputs = arrays.addresses.len();
        for (object, &tensor) in arguments.out.iter().flatten().zip(&this.checked().outputs) {
            Framework::of(object)?.read(object, &mut arrays).map_err(|e| this.unreadable(py, tensor, &e))?;
        }
        arrays.words.extend(extra_words(&arguments.extra));
        let kernel = this.kernel(py, &arrays, inputs, &arguments.extra).map_err(|f| this.raise(py, &f))?;
        let results = match arguments.out {
            Some(out) => {
                outputs::apart(this.checked(), &this.inputs, &arrays, inputs).map_err(|f| this.raise(py, &f))?;
                out
            }
            None => {
                let one =
                    |o: &crate::kernel::Output| framework.empty(&first, kernel.place, o.dtype, &o.shape, &mut arrays);
                kernel.outputs.iter().map(one).collect::<PyResult<_>>()?
            }
        };
        this.start(py, &kernel, &mut arrays, framework, &first).map_err(|r| this.refuse(py, r))?;
        match <[_; 1]>::try_from(results) {
            Ok([one]) => Ok(one),
            Err(several) => Ok(PyTuple::new(py, several)?.into_any()),
        }
    }

    /// The program's name.
    #[getter]
    fn name(&self) -> &str {
        &self.checked().name
    }

    /// The program's text.
    #[getter]
    fn text(&self) -> &str {
        &self.text.text
    }

    /// Where the text came from.
    #[getter]
    fn origin(&self) -> &str {
        &self.text.name
    }

    /// The names of the inputs, in the order in which a call takes them.
    #[getter]
    fn inputs(&self) -> Vec<&str> {
        self.inputs.iter().map(|&t| self.checked()[t].name.as_str()).collect()
    }

    /// The names of the outputs, in the order in which a call returns them.
    #[getter]
    fn outputs(&self) -> Vec<&str> {
        self.checked().outputs.iter().map(|&t| self.checked()[t].name.as_str()).collect()
    }

    /// How many kernels are kept.
    #[getter]
    fn kernel_count(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The plan of the kernel that ran last as JSON, if there is one.
    fn last_plan_json(&self, py: Python<'_>) -> Option<String> {
        let kernel = self.kept.lock().unwrap_or_else(PoisonError::into_inner).last()?;
        Some(py.detach(|| crate::report::plan(&kernel.planned, &kernel.notes())))
    }

    /// Lets all kernels go.
    fn clear_kernels(&self) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// The derivation as JSON.
    fn derivation_json(&self) -> String {
        crate::report::derivation(&self.derived, &self.text)
    }

    /// The derivation as text.
    fn explanation(&self) -> String {
        einloom_algebra::explain(self.derived.derivation())
    }

    /// A plan as JSON.
    #[pyo3(signature = (machine, sizes, params, dtypes))]
    fn plan_json(
        &self,
        py: Python<'_>,
        machine: Option<String>,
        sizes: BTreeMap<String, usize>,
        params: BTreeMap<String, f64>,
        dtypes: BTreeMap<String, String>,
    ) -> PyResult<String> {
        let plan = || Ok(crate::report::plan(&self.planned(machine, sizes, params, &dtypes)?, &[]));
        py.detach(plan).map_err(|f: Failure| self.raise(py, &f))
    }

    /// The source of the kernels: `pseudo` or `cuda`.
    #[pyo3(signature = (target, machine, sizes, params, dtypes))]
    fn source_text(
        &self,
        py: Python<'_>,
        target: &str,
        machine: Option<String>,
        sizes: BTreeMap<String, usize>,
        params: BTreeMap<String, f64>,
        dtypes: BTreeMap<String, String>,
    ) -> PyResult<String> {
        let source = || crate::report::source(&self.planned(machine, sizes, params, &dtypes)?, target);
        py.detach(source).map_err(|f| self.raise(py, &f))
    }
}

impl Cascade {
    /// A plan for sizes that the caller names, on a machine that need not be this one.
    fn planned(
        &self,
        machine: Option<String>,
        sizes: BTreeMap<String, usize>,
        params: BTreeMap<String, f64>,
        dtypes: &BTreeMap<String, String>,
    ) -> Result<einloom::Planned, Failure> {
        let choices = Choices { machine: machine.or_else(|| self.choices.machine.clone()), ..self.choices.clone() };
        let follows = crate::report::follows(self.checked(), dtypes)?;
        let derived = crate::prepare::derived(self.checked(), &follows);
        let given = crate::prepare::given(&choices, &Extra { sizes, params }, BTreeMap::new());
        let machine = crate::prepare::machine(&choices, Place::Cpu)?;
        crate::prepare::planned(&derived, &given, &choices, &machine, einloom::PlanOptions::default())
    }

    /// An array that cannot be read, in the program's terms.
    fn unreadable(&self, py: Python<'_>, tensor: TensorId, error: &PyErr) -> PyErr {
        let t = &self.checked()[tensor];
        let class =
            if error.is_instance_of::<pyo3::exceptions::PyTypeError>(py) { "DtypeError" } else { "LayoutError" };
        let failure = Failure::new(class, "unreadable", format!("{}: {}", t.name, error.value(py))).at(Some(t.span));
        let raised = self.raise(py, &failure);
        raised.set_cause(py, Some(error.clone_ref(py)));
        raised
    }

    /// Runs a kernel, or starts it on the framework's stream, without holding Python up.
    #[allow(unsafe_code)]
    fn start(
        &self,
        py: Python<'_>,
        kernel: &Kernel,
        arrays: &mut Arrays,
        framework: Framework,
        like: &Bound<'_, PyAny>,
    ) -> Result<(), Refused> {
        let Place::Cuda(number) = kernel.place else {
            // SAFETY: the addresses are those of the call's arrays, which its arguments and results keep; their layouts
            // are part of what the kernel was made for. That nobody else writes to them is the caller's promise, as it
            // is towards every framework's operators.
            let addresses = arrays.addresses.as_slice();
            return Ok(py.detach(|| unsafe { kernel.run(addresses, 0) })?);
        };
        let (stream, told) = framework.stream(py, kernel.place.device())?;
        let scratch = kernel.scratch_bytes();
        // Freed when this returns: the framework hands it out again only to later work on the same stream.
        let _scratch = match scratch {
            0 => None,
            n => {
                let bytes = crate::numbers::to_dlpack(einloom_cascade::DType::U8);
                Some(framework.empty(like, kernel.place, bytes, &[n as i64], arrays)?)
            }
        };
        // SAFETY: as above, until the stream has come so far; frameworks order what they do afterwards behind it, and
        // those that cannot know of it wait here.
        let addresses = arrays.addresses.as_slice();
        py.detach(|| unsafe { kernel.run(addresses, stream) })?;
        if !told {
            py.detach(|| crate::gpu::wait(number, stream))?;
        }
        Ok(())
    }
}
