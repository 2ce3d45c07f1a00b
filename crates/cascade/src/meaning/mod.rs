//! The reference meaning: what a cascade computes, in plain f64. Every other way to run a cascade agrees with this one
//! or is wrong.
//!
//! For every step of [`Cascade::order`], for every element of the statement's target, the right-hand side is evaluated
//! as it is written. What the language leaves to be said:
//!
//! - Every value is an f64. Inputs are rounded to their declared number type first; outputs and annotated intermediates
//!   are rounded when they are stored; an intermediate without annotation keeps its f64.
//! - A reduction runs over its indices in row-major order, starts from its identity and combines from left to right.
//!   Over nothing it is its identity: 0, 1, -inf, +inf, and -1 for `argmax` and `argmin`.
//! - `max` and `min` give NaN if they meet one. `argmax` and `argmin` give the first position of what `max` and `min`
//!   give, which is that of the first NaN if there is one. Positions count all elements, also those that a filter drops.
//! - Only the chosen branch of a `where` is evaluated, and only those bodies for which a reduction's filter holds.
//!   Everything else is strict, `and` and `or` too.
//! - A truth value is 1 or 0; as a condition, everything but 0 is true (a NaN is).
//!
//! One thing is not as naive as it could be: a reduction that does not mention every index around it, such as
//! the denominator in `sum(n) P[m,n] / (sum(n) P[m,n]) * V[n,e]`, has the same value at many places. It is evaluated where
//! it is needed first, as written, and remembered by the positions of the indices it does mention.
//!
//! ```
//! use einloom_cascade::meaning::{Array, Arrays, evaluate};
//! use einloom_cascade::{Given, bind, parse};
//!
//! let cascade = parse("input X[m,n]: f32\noutput Y: f32\nY[m] = max(n) X[m,n]\n").cascade;
//! let x = Array { shape: vec![2, 3], values: vec![1.0, 4.0, 2.0, -1.0, -3.0, -2.0] };
//! let given = Given { shapes: [("X".to_owned(), x.shape.clone())].into(), ..Given::default() };
//! let bound = bind(&cascade, &given).expect("sizes that fit");
//! let outputs = evaluate(&cascade, &bound, &Arrays::from([("X".to_owned(), x)])).expect("a value");
//! assert_eq!(outputs["Y"], Array { shape: vec![2], values: vec![4.0, -1.0] });
//! ```

mod code;
mod compile;
mod error;
mod eval;

pub use error::MeaningError;

use crate::bind::Bound;
use crate::{Cascade, Role, Step, TensorId, numeric};
use code::Statement;
use error::Fault;
use eval::{Frame, for_each_point};
use std::collections::BTreeMap;

/// A tensor's values.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Array {
    /// Elements per dimension.
    pub shape: Vec<usize>,
    /// The elements, row-major.
    pub values: Vec<f64>,
}

/// Tensors by name.
pub type Arrays = BTreeMap<String, Array>;

/// The outputs of a cascade for these inputs.
///
/// # Errors
/// An input that is missing, unknown or of the wrong shape; a read outside its tensor; memory.
pub fn evaluate(cascade: &Cascade, bound: &Bound, inputs: &Arrays) -> Result<Arrays, MeaningError> {
    evaluate_with_progress(cascade, bound, inputs, &mut |_| {})
}

/// [`evaluate`], telling `progress` now and then how much of the work is done, from 0 to 1.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_with_progress(
    cascade: &Cascade,
    bound: &Bound,
    inputs: &Arrays,
    progress: &mut dyn FnMut(f64),
) -> Result<Arrays, MeaningError> {
    let mut all = run(cascade, bound, inputs, progress)?;
    all.retain(|name, _| cascade.tensor(name).is_some_and(|t| cascade[t].role == Role::Output));
    Ok(all)
}

/// Every tensor of a cascade for these inputs: the inputs as rounded, the intermediates, the outputs.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_all(cascade: &Cascade, bound: &Bound, inputs: &Arrays) -> Result<Arrays, MeaningError> {
    run(cascade, bound, inputs, &mut |_| {})
}

/// About how many scalar operations [`evaluate`] takes: every operator, read, comparison and combination counts one,
/// filters drop nothing.
pub fn work(cascade: &Cascade, bound: &Bound) -> f64 {
    steps(cascade)
        .map(|(statements, rank)| statements.iter().map(|&s| statement_work(cascade, bound, s, rank)).sum::<f64>())
        .sum()
}

fn statement_work(cascade: &Cascade, bound: &Bound, statement: usize, iterated: Option<crate::RankId>) -> f64 {
    let rounds = iterated.map_or(1.0, |r| bound.size(r) as f64);
    rounds * compile::statement(cascade, bound, statement, iterated).work()
}

/// The steps as statement numbers and the rank that iterates them, if one does.
fn steps(cascade: &Cascade) -> impl Iterator<Item = (&[usize], Option<crate::RankId>)> {
    cascade.order.iter().map(|step| match step {
        Step::Once(statement) => (std::slice::from_ref(statement), None),
        Step::Iterate { rank, statements } => (statements.as_slice(), Some(*rank)),
    })
}

fn run(
    cascade: &Cascade,
    bound: &Bound,
    inputs: &Arrays,
    progress: &mut dyn FnMut(f64),
) -> Result<Arrays, MeaningError> {
    let mut tensors = allocate(cascade, bound, inputs)?;
    let total = work(cascade, bound).max(1.0);
    let mut done = 0.0;
    for (statements, iterated) in steps(cascade) {
        let compiled: Vec<_> = statements.iter().map(|&s| compile::statement(cascade, bound, s, iterated)).collect();
        for round in 0..iterated.map_or(1, |r| bound.size(r)) {
            for statement in &compiled {
                let share = statement.work() / total;
                define(cascade, statement, round, &mut tensors, &mut |part| progress(done + part * share))?;
                done += share;
            }
        }
    }
    progress(1.0);
    let named = |(tensor, values): (&crate::Tensor, Vec<f64>)| {
        let shape = tensor.extents.iter().map(|e| bound.extent(e).max(0) as usize).collect();
        (tensor.name.clone(), Array { shape, values })
    };
    Ok(cascade.tensors.iter().zip(tensors).map(named).collect())
}

/// Evaluates one statement; for a member of a recurrence, at the position `round` of its iterated index.
fn define(
    cascade: &Cascade,
    statement: &Statement,
    round: usize,
    tensors: &mut [Vec<f64>],
    progress: &mut dyn FnMut(f64),
) -> Result<(), MeaningError> {
    let target = statement.target.0 as usize;
    let dtype = cascade[statement.target].dtype;
    let elements: f64 = statement.loops.iter().map(|l| l.size as f64).product();
    let report_every = (elements / 64.0).max(1.0) as u64;
    let mut element = 0u64;
    let mut frame = Frame::new(statement, cascade.indices.len(), round);
    for_each_point(&statement.loops, &mut frame, &mut |frame| {
        let value = eval::eval(&statement.value, frame, tensors)?;
        let rounded = dtype.map_or(value, |d| numeric::round(d, value));
        let at = eval::place(&statement.at, frame, tensors)?;
        tensors[target][at] = rounded;
        element += 1;
        if element.is_multiple_of(report_every) {
            progress(element as f64 / elements);
        }
        Ok(())
    })
    .map_err(|fault: Box<Fault>| fault.explain(cascade))
}

/// The inputs, rounded, and zeros for everything else.
fn allocate(cascade: &Cascade, bound: &Bound, inputs: &Arrays) -> Result<Vec<Vec<f64>>, MeaningError> {
    if let Some(name) = inputs.keys().find(|name| !cascade.inputs().any(|t| cascade[t].name == **name)) {
        return Err(MeaningError::UnknownInput { tensor: name.clone() });
    }
    let one = |id: TensorId| {
        let tensor = &cascade[id];
        let shape = bound.shape(cascade, id);
        let count = shape.iter().product();
        let mut values = vec![];
        if values.try_reserve_exact(count).is_err() {
            return Err(MeaningError::OutOfMemory { tensor: tensor.name.clone(), elements: count });
        }
        if tensor.role != Role::Input {
            values.resize(count, 0.0);
            return Ok(values);
        }
        let Some(given) = inputs.get(&tensor.name) else {
            return Err(MeaningError::MissingInput { tensor: tensor.name.clone() });
        };
        if given.shape != shape || given.values.len() != count {
            return Err(MeaningError::WrongShape {
                tensor: tensor.name.clone(),
                expected: shape,
                given: given.shape.clone(),
                values: given.values.len(),
            });
        }
        values.extend(given.values.iter().map(|&v| tensor.dtype.map_or(v, |d| numeric::round(d, v))));
        Ok(values)
    };
    (0..cascade.tensors.len() as u32).map(TensorId).map(one).collect()
}
