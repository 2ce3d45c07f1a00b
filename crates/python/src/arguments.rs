//! Which array is which input: by position, by name, and what else a call says.

use crate::failure::Failure;
use crate::prepare::Extra;
use einloom_cascade::{Cascade, TensorId};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// What a call brings.
pub(crate) struct Arguments<'py> {
    /// One per input.
    pub arrays: Vec<Bound<'py, PyAny>>,
    /// One per output, if the caller has them.
    pub out: Option<Vec<Bound<'py, PyAny>>>,
    pub extra: Extra,
}

/// Why they are not what the program takes: its own words, or what Python says.
pub(crate) enum Refused {
    Failure(Failure),
    Python(PyErr),
}

impl From<PyErr> for Refused {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self::Failure(failure)
    }
}

impl<'py> Arguments<'py> {
    /// Sorts arguments.
    ///
    /// # Errors
    /// Too many, too few, the same one twice, or one that the program does not have.
    pub fn sort(
        cascade: &Cascade,
        inputs: &[TensorId],
        positional: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> Result<Self, Refused> {
        if positional.len() > inputs.len() {
            let (takes, given) = (inputs.len(), positional.len());
            let failure = Failure::new(
                "UnknownInput",
                "too-many-inputs",
                format!("{} takes {}, {given} were given", cascade.name, several(takes, "array")),
            );
            return Err(failure.hint(format!("its inputs are {}", names(cascade, inputs))).into());
        }
        let mut out = Self { arrays: vec![], out: None, extra: Extra::default() };
        let Some(named) = named.filter(|n| !n.is_empty()) else {
            if positional.len() < inputs.len() {
                return Err(missing(cascade, inputs, inputs[positional.len()]).into());
            }
            out.arrays.extend(positional.iter());
            return Ok(out);
        };
        let mut arrays: Vec<Option<Bound<'py, PyAny>>> = positional.iter().map(Some).collect();
        arrays.resize(inputs.len(), None);
        for (name, value) in named.iter() {
            let name: String = name.extract()?;
            if let Some(k) = inputs.iter().position(|&t| cascade[t].name == name) {
                if arrays[k].replace(value).is_some() {
                    let message = format!("{name} is given by position and by name");
                    return Err(Failure::new("UnknownInput", "given-twice", message)
                        .at(Some(cascade[inputs[k]].span))
                        .into());
                }
            } else if name == "out" {
                out.out = outputs(cascade, value)?;
            } else if let Some(param) = cascade.params.iter().find(|p| p.name == name) {
                let number = value.extract().map_err(|_| no_number(&name, &value, "a number").at(Some(param.span)))?;
                out.extra.params.insert(name, number);
            } else if cascade.rank(&name).is_some() {
                let size = value.extract().map_err(|_| no_number(&name, &value, "a number of elements"))?;
                out.extra.sizes.insert(name, size);
            } else {
                let message = format!("{} has no input, parameter or rank called {name}", cascade.name);
                return Err(Failure::new("UnknownInput", "unknown-input", message)
                    .hint(format!("its inputs are {}", names(cascade, inputs)))
                    .into());
            }
        }
        for (array, &tensor) in arrays.into_iter().zip(inputs) {
            out.arrays.push(array.ok_or_else(|| missing(cascade, inputs, tensor))?);
        }
        Ok(out)
    }
}

/// A parameter or size that cannot be one.
fn no_number(name: &str, value: &Bound<'_, PyAny>, wanted: &str) -> Failure {
    let shown = value.repr().map_or_else(|_| "something".to_string(), |r| r.to_string());
    Failure::new("DtypeError", "no-number", format!("{name} is {shown}, which is not {wanted}"))
}

fn several(number: usize, of: &str) -> String {
    if number == 1 { format!("1 {of}") } else { format!("{number} {of}s") }
}

fn missing(cascade: &Cascade, inputs: &[TensorId], tensor: TensorId) -> Failure {
    let t = &cascade[tensor];
    Failure::new("MissingInput", "missing-input", format!("the input {} is missing", t.name))
        .at(Some(t.span))
        .hint(format!("the inputs of {} are {}", cascade.name, names(cascade, inputs)))
}

fn names(cascade: &Cascade, tensors: &[TensorId]) -> String {
    tensors.iter().map(|&t| cascade[t].name.as_str()).collect::<Vec<_>>().join(", ")
}

/// The arrays of `out=`: one, a sequence, or a mapping by name. `None` asks for new ones.
fn outputs<'py>(cascade: &Cascade, value: Bound<'py, PyAny>) -> Result<Option<Vec<Bound<'py, PyAny>>>, Refused> {
    let wanted = || names(cascade, &cascade.outputs);
    if value.is_none() {
        return Ok(None);
    }
    let arrays: Vec<Bound<'py, PyAny>> = if let Ok(mapping) = value.cast::<PyDict>() {
        let one = |&t: &TensorId| match mapping.get_item(&cascade[t].name)? {
            Some(array) => Ok(array),
            None => Err(Refused::from(
                Failure::new("MissingInput", "missing-output", format!("`out` has no {}", cascade[t].name))
                    .hint(format!("the outputs are {}", wanted())),
            )),
        };
        cascade.outputs.iter().map(one).collect::<Result<_, _>>()?
    } else if value.is_instance_of::<PyTuple>() || value.is_instance_of::<pyo3::types::PyList>() {
        value.try_iter()?.collect::<PyResult<_>>()?
    } else {
        vec![value]
    };
    if arrays.len() != cascade.outputs.len() {
        let (takes, given) = (cascade.outputs.len(), arrays.len());
        let failure = Failure::new(
            "UnknownInput",
            "wrong-outputs",
            format!("`out` has {}, the program has {}", several(given, "array"), several(takes, "output")),
        );
        return Err(failure.hint(format!("the outputs are {}", wanted())).into());
    }
    Ok(Some(arrays))
}
