//! The object that `einloom.compile` gives: a program that can be called.

use crate::arguments::{Arguments, Refused};
use crate::dlpack::{Arrays, Found, described};
use crate::failure::Failure;
use crate::frameworks::Framework;
use crate::kept::Kept;
use crate::kernel::{Kernel, Recipe};
use crate::numbers::of_framework;
use crate::outputs;
use crate::prepare::{Choices, Extra};
use crate::signature::{Place, Signature};
use crate::sized::Sized;
use crate::text::Text;
use crate::tuning::{Call, Effort, Trial};
use crate::wide;
use einloom::Derived;
use einloom_cascade::{Cascade as Checked, DType, TensorId};
use pyo3::exceptions::PyTypeError;
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
    /// By place and number types, what kernels of all sizes share.
    sized: Mutex<BTreeMap<Kind, Arc<Sized>>>,
}

/// A place, and the declared number types that are replaced.
type Kind = (Place, Vec<(DType, DType)>);

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

    /// The kernel for a call, and whether it was made now.
    fn kernel(
        &self,
        py: Python<'_>,
        arrays: &Arrays,
        inputs: usize,
        extra: &Extra,
    ) -> Result<(Arc<Kernel>, bool), Failure> {
        if let Some(kernel) = self.kept.lock().unwrap_or_else(PoisonError::into_inner).get(&arrays.words) {
            return Ok((kernel, false));
        }
        let words = arrays.words.as_slice();
        let kernel = Arc::new(py.detach(|| self.make(words, inputs, extra, None))?);
        self.keep(words, &kernel);
        Ok((kernel, true))
    }

    fn keep(&self, words: &[u64], kernel: &Arc<Kernel>) {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).put(words, kernel.clone());
    }

    /// What the arrays of a call ask for.
    pub(crate) fn signature(&self, words: &[u64], inputs: usize, extra: &Extra) -> Result<Signature, Failure> {
        let found = found(words, extra);
        let given = &found[..inputs.min(found.len())];
        Signature::of(self.checked(), &self.inputs, given, self.choices.follow)
    }

    /// Makes a kernel for a call; with `tiles` in place of chosen, remembered and planned ones.
    pub(crate) fn make(
        &self,
        words: &[u64],
        inputs: usize,
        extra: &Extra,
        tiles: Option<&BTreeMap<String, usize>>,
    ) -> Result<Kernel, Failure> {
        let checked = self.checked();
        let signature = self.signature(words, inputs, extra)?;
        let found = found(words, extra);
        let wanted = &found[inputs.min(found.len())..];
        let layouts = if wanted.is_empty() { None } else { Some(outputs::layouts(checked, &signature, wanted)?) };
        let types = signature.follows.iter().map(|(d, g)| (*d, *g)).collect();
        let sized = {
            let mut all = self.sized.lock().unwrap_or_else(PoisonError::into_inner);
            all.entry((signature.place, types)).or_default().clone()
        };
        let recipe = Recipe {
            cascade: checked,
            inputs: &self.inputs,
            signature: &signature,
            choices: &self.choices,
            extra,
            outputs: layouts,
            wanted,
            tiles,
            sized: &sized,
        };
        Kernel::new(&recipe)
    }

    /// Measures other tiles for a call, if that is asked for; the kernel that is best.
    fn tuned(
        slf: &Bound<'_, Self>,
        kernel: Arc<Kernel>,
        arrays: &Arrays,
        inputs: usize,
        extra: Extra,
        framework: Framework,
        like: &Bound<'_, PyAny>,
    ) -> PyResult<Arc<Kernel>> {
        let (py, this) = (slf.py(), slf.get());
        let effort = crate::settings::effort().map_err(|f| this.raise(py, &f))?;
        if effort == Effort::Off || kernel.decided {
            return Ok(kernel);
        }
        let call = Call {
            words: arrays.words.clone(),
            inputs,
            extra,
            addresses: arrays.addresses.clone(),
            framework,
            like: like.clone().unbind(),
        };
        let trial = Bound::new(py, Trial::new(slf.clone().unbind(), call, kernel))?;
        let searched = py.import("einloom.tuning")?.call_method1("_search", (slf, &trial, effort.name()));
        // The arrays are this call's: nothing may be measured with them after it, whatever happened.
        let best = trial.get().end();
        searched?;
        this.keep(&arrays.words, &best);
        Ok(best)
    }
}

/// The arrays that a call's words describe. What follows them are the call's own sizes and parameters.
fn found(words: &[u64], extra: &Extra) -> Vec<Found> {
    described(&words[..words.len().saturating_sub(extra_words(extra).len())])
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
    #[pyo3(signature = (text, name, *, exact, follow, threads, sizes, params, machine, tiles))]
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
        tiles: BTreeMap<String, usize>,
    ) -> PyResult<Self> {
        let text = Text { name, text };
        let derived = py.detach(|| einloom::Program::from_text(&text.text).check().map(|checked| checked.derive()));
        let derived = derived.map_err(|e| Failure::from(e).raise(py, &text))?;
        let inputs = derived.cascade().inputs().collect();
        // A plan may have made others of them, such as `h_inner`: it will tell.
        let is_of = |t: &str, i: &str| t.strip_prefix(i).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'));
        if let Some(unknown) = tiles.keys().find(|t| !derived.cascade().indices.iter().any(|i| is_of(t, &i.name))) {
            let all: Vec<&str> = derived.cascade().indices.iter().map(|i| i.name.as_str()).collect();
            let failure = Failure::new("UsageError", "unknown-index", format!("there is no index {unknown} to tile"));
            return Err(failure.hint(format!("the indices are {}", all.join(", "))).raise(py, &text));
        }
        let choices = Choices { exact, follow, threads, sizes, params, machine, tiles };
        Ok(Self { text, derived, inputs, choices, kept: Mutex::default(), sized: Mutex::default() })
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
        let (mut gradient, mut dispatched) =
            (false, framework.is_torch() && crate::gradient::has_tangents(py, &arguments.arrays)?);
        for (object, &tensor) in arguments.arrays.iter().zip(&this.inputs) {
            let own = Framework::of(object)?;
            match own.read(object, &mut arrays) {
                Ok(()) => {}
                Err(_) if own.is_torch() && crate::gradient::is_dispatched(object)? => dispatched = true,
                Err(e) => return Err(this.unreadable(py, tensor, &e)),
            }
            gradient |= own.wants_gradient(object)?;
        }
        if dispatched || gradient && crate::gradient::is_recorded(py)? {
            return crate::gradient::instead(slf, &arguments);
        }
        let inputs = arrays.addresses.len();
        for (object, &tensor) in arguments.out.iter().flatten().zip(&this.checked().outputs) {
            let own = Framework::of(object)?;
            if own.is_immutable() {
                return Err(this.raise(py, &outputs::read_only(this.checked(), tensor)));
            }
            own.read(object, &mut arrays).map_err(|e| this.unreadable(py, tensor, &e))?;
            if own.wants_gradient(object)? && crate::gradient::is_recorded(py)? {
                return Err(this.raise(py, &outputs::wants_gradient(this.checked(), tensor)));
            }
        }
        arrays.words.extend(extra_words(&arguments.extra));
        let made = this.kernel(py, &arrays, inputs, &arguments.extra);
        let (mut kernel, is_new) = made.map_err(|f| this.raise(py, &f))?;
        if !kernel.wide.is_empty() {
            let (wide, addresses) = (&kernel.wide, &arrays.addresses[..inputs]);
            // SAFETY: the kernel was made for arrays that were found like these; as of `start`.
            #[allow(unsafe_code)]
            let checked = unsafe {
                wide::check(py, this.checked(), &this.inputs, kernel.place, wide, addresses, &arguments.arrays)
            };
            checked.map_err(|r| this.refuse(py, r))?;
        }
        let brought = arguments.out.is_some();
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
        if is_new {
            kernel = Self::tuned(slf, kernel, &arrays, inputs, arguments.extra, framework, &first)?;
        }
        this.start(py, &kernel, &mut arrays, framework, &first).map_err(|r| this.refuse(py, r))?;
        if brought {
            crate::gradient::written(&results)?;
        }
        match <[_; 1]>::try_from(results) {
            Ok([one]) => Ok(one),
            Err(several) => Ok(PyTuple::new(py, several)?.into_any()),
        }
    }

    /// Makes the kernel for inputs that will be like these, and keeps it: `(number type, shape, strides, byte offset from
    /// the beginning of what a framework allocates)`. `cuda` is the number of the GPU that they are on, if they are.
    /// Where tuning is asked for, nothing is made: it needs arrays, and takes place for kernels that a call made.
    fn prepare(
        &self,
        py: Python<'_>,
        inputs: Vec<(String, Vec<i64>, Vec<i64>, u64)>,
        cuda: Option<usize>,
    ) -> PyResult<()> {
        if crate::settings::effort().map_err(|f| self.raise(py, &f))? != Effort::Off {
            return Ok(());
        }
        let place = cuda.map_or(Place::Cpu, Place::Cuda);
        let mut arrays = Arrays::default();
        for (name, shape, strides, offset) in &inputs {
            let dtype = of_framework(name).filter(|_| shape.len() == strides.len());
            let Some(dtype) = dtype else {
                return Err(pyo3::exceptions::PyValueError::new_err(format!("{name} of {shape:?} is no array")));
            };
            arrays.expect(dtype, place.device(), shape, strides, offset.trailing_zeros());
        }
        self.kernel(py, &arrays, inputs.len(), &Extra::default()).map(drop).map_err(|f| self.raise(py, &f))
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

    /// The checked program as text: sugar expanded, everything declared.
    #[getter]
    fn canonical(&self) -> String {
        einloom_cascade::print(self.checked())
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

    /// The parameters and their values where a call gives none.
    #[getter]
    fn parameters(&self) -> Vec<(&str, Option<f64>)> {
        self.checked().params.iter().map(|p| (p.name.as_str(), p.default)).collect()
    }

    /// The names of the outputs, in the order in which a call returns them.
    #[getter]
    fn outputs(&self) -> Vec<&str> {
        self.checked().outputs.iter().map(|&t| self.checked()[t].name.as_str()).collect()
    }

    /// What `__new__` was given besides the text and its name.
    #[getter]
    fn options<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (all, c) = (PyDict::new(py), &self.choices);
        all.set_item("exact", c.exact)?;
        all.set_item("follow", c.follow)?;
        all.set_item("threads", c.threads)?;
        all.set_item("sizes", c.sizes.clone())?;
        all.set_item("params", c.params.clone())?;
        all.set_item("machine", c.machine.clone())?;
        all.set_item("tiles", c.tiles.clone())?;
        Ok(all)
    }

    /// How many kernels are kept.
    #[getter]
    fn kernel_count(&self) -> usize {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The plan of the kernel that ran last as JSON, if there is one.
    fn last_plan_json(&self, py: Python<'_>) -> Option<String> {
        let kernel = self.kept.lock().unwrap_or_else(PoisonError::into_inner).last()?;
        Some(py.detach(|| crate::report::plan(&kernel.planned, Some((&kernel.code(), &kernel.notes())))))
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
        let plan = || Ok(crate::report::plan(&self.planned(machine, sizes, params, &dtypes)?, None));
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
        let options = einloom::PlanOptions { tiles: choices.tiles.clone(), ..Default::default() };
        crate::prepare::planned(&derived, &given, &choices, &machine, options)
    }

    /// An array that cannot be read, in the program's terms.
    fn unreadable(&self, py: Python<'_>, tensor: TensorId, error: &PyErr) -> PyErr {
        let t = &self.checked()[tensor];
        let class = match error {
            e if crate::frameworks::is_traced(py, e) => "DeviceError",
            e if e.is_instance_of::<PyTypeError>(py) => "DtypeError",
            _ => "LayoutError",
        };
        // Some frameworks append a trace of their own.
        let said = error.value(py).to_string();
        let said = said.lines().next().unwrap_or_default();
        let mut failure = Failure::new(class, "unreadable", format!("{}: {said}", t.name)).at(Some(t.span));
        if class == "DtypeError" && t.ranks.is_empty() {
            failure =
                failure.hint("a number of Python has no number type: give numpy.float32(…), or declare a `param`");
        }
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
        let (stream, told) = kernel.stream(py, framework)?;
        let _scratch = kernel.scratch(framework, like, arrays)?;
        let addresses = arrays.addresses.as_slice();
        // SAFETY: the addresses are those of the call's arrays, which its arguments and results keep; their layouts are
        // part of what the kernel was made for. That nobody else writes to them until the stream has come so far is the
        // caller's promise, as it is towards every framework's operators; frameworks order what they do afterwards behind
        // it, and those that cannot know of it wait here.
        py.detach(|| unsafe { kernel.run(addresses, stream) })?;
        if let (Place::Cuda(number), false) = (kernel.place, told) {
            py.detach(|| crate::gpu::wait(number, stream))?;
        }
        Ok(())
    }
}
