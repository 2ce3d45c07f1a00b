//! Evaluation of [`Code`].

use super::code::{Access, Atom, Code, Dim, Fold, Linear, Loop, Memo, Place, Reduction, Statement};
use super::error::Fault;
use crate::{BinaryOp, IndexId, Monoid, Span, TensorId, UnaryOp};

/// Where evaluation stands within one statement.
pub(super) struct Frame {
    /// The position of every index of the cascade; only those of the loops around mean anything.
    positions: Vec<i64>,
    /// The arguments of the user's monoid that is being combined.
    arguments: [f64; 2],
    /// Remembered reductions.
    memos: Vec<Vec<Option<f64>>>,
}

type Value = Result<f64, Box<Fault>>;

impl Frame {
    pub fn new(statement: &Statement, indices: usize, round: usize) -> Self {
        let mut positions = vec![0; indices];
        if let Some(index) = statement.iterated {
            positions[index.0 as usize] = round as i64;
        }
        let memos = statement.memos.iter().map(|&entries| vec![None; entries]).collect();
        Self { positions, arguments: [0.0; 2], memos }
    }

    fn linear(&self, linear: &Linear) -> usize {
        let position = |i: IndexId| self.positions[i.0 as usize];
        linear.terms.iter().fold(linear.offset, |sum, &(c, i)| sum.wrapping_add(c.wrapping_mul(position(i)))) as usize
    }
}

/// Visits every point of the loops, the last fastest.
pub(super) fn for_each_point<E>(
    loops: &[Loop],
    frame: &mut Frame,
    visit: &mut dyn FnMut(&mut Frame) -> Result<(), E>,
) -> Result<(), E> {
    let Some((outer, inner)) = loops.split_first() else { return visit(frame) };
    for position in 0..outer.size {
        frame.positions[outer.index.0 as usize] = position as i64;
        for_each_point(inner, frame, visit)?;
    }
    Ok(())
}

pub(super) fn eval(code: &Code, frame: &mut Frame, tensors: &[Vec<f64>]) -> Value {
    match code {
        Code::Number(value) => Ok(*value),
        Code::Position(index) => Ok(frame.positions[index.0 as usize] as f64),
        Code::Argument(number) => Ok(frame.arguments[usize::from(*number)]),
        Code::Read(access) => Ok(tensors[access.tensor.0 as usize][place(access, frame, tensors)?]),
        Code::Unary(op, x) => eval(x, frame, tensors).map(|x| unary(*op, x)),
        Code::Binary(op, a, b) => {
            let a = eval(a, frame, tensors)?;
            let b = eval(b, frame, tensors)?;
            Ok(op.apply(a, b))
        }
        Code::Select(parts) => {
            let [condition, then, otherwise] = &**parts;
            let chosen = if eval(condition, frame, tensors)? != 0.0 { then } else { otherwise };
            eval(chosen, frame, tensors)
        }
        Code::Reduce(reduction) => match &reduction.memo {
            Some(memo) => remembered(reduction, memo, frame, tensors),
            None => reduce(reduction, frame, tensors),
        },
    }
}

/// Out of line: inlined, the functions' registers would be saved at every step of the evaluation.
#[inline(never)]
fn unary(op: UnaryOp, x: f64) -> f64 {
    op.apply(x)
}

fn remembered(reduction: &Reduction, memo: &Memo, frame: &mut Frame, tensors: &[Vec<f64>]) -> Value {
    let place = frame.linear(&memo.place);
    if let Some(value) = frame.memos[memo.table][place] {
        return Ok(value);
    }
    let value = reduce(reduction, frame, tensors)?;
    frame.memos[memo.table][place] = Some(value);
    Ok(value)
}

fn reduce(reduction: &Reduction, frame: &mut Frame, tensors: &[Vec<f64>]) -> Value {
    // The reduction's indices may hide those of the same name around it.
    let position = |frame: &Frame, l: &Loop| frame.positions[l.index.0 as usize];
    let hidden: Vec<i64> = reduction.loops.iter().map(|l| position(frame, l)).collect();
    let mut total = Accumulator::new(&reduction.fold);
    let mut point = -1.0;
    for_each_point(&reduction.loops, frame, &mut |frame| {
        point += 1.0;
        if let Some(filter) = &reduction.filter
            && eval(filter, frame, tensors)? == 0.0
        {
            return Ok(());
        }
        let value = eval(&reduction.body, frame, tensors)?;
        total.add(&reduction.fold, value, point, frame, tensors)
    })?;
    for (l, position) in reduction.loops.iter().zip(hidden) {
        frame.positions[l.index.0 as usize] = position;
    }
    Ok(total.result)
}

/// A reduction under way.
struct Accumulator {
    /// Its value so far; for `argmax` and `argmin` the position.
    result: f64,
    /// The extremum that `result` is the position of.
    extremum: f64,
}

impl Accumulator {
    fn new(fold: &Fold) -> Self {
        let result = match fold {
            Fold::Custom { identity, .. } => *identity,
            Fold::Builtin(monoid) => match monoid {
                Monoid::Prod => 1.0,
                Monoid::Max => f64::NEG_INFINITY,
                Monoid::Min => f64::INFINITY,
                Monoid::ArgMax | Monoid::ArgMin => -1.0,
                Monoid::Sum | Monoid::Custom(_) => 0.0,
            },
        };
        Self { result, extremum: 0.0 }
    }

    fn add(
        &mut self,
        fold: &Fold,
        value: f64,
        point: f64,
        frame: &mut Frame,
        tensors: &[Vec<f64>],
    ) -> Result<(), Box<Fault>> {
        let monoid = match fold {
            Fold::Builtin(monoid) => monoid,
            Fold::Custom { combine, .. } => {
                frame.arguments = [self.result, value];
                self.result = eval(combine, frame, tensors)?;
                return Ok(());
            }
        };
        match monoid {
            Monoid::Prod => self.result *= value,
            Monoid::Max => self.result = BinaryOp::Max.apply(self.result, value),
            Monoid::Min => self.result = BinaryOp::Min.apply(self.result, value),
            Monoid::ArgMax | Monoid::ArgMin => {
                let better = match monoid {
                    Monoid::ArgMax => value > self.extremum,
                    _ => value < self.extremum,
                };
                let first_nan = value.is_nan() && !self.extremum.is_nan();
                if self.result < 0.0 || better || first_nan {
                    *self = Self { result: point, extremum: value };
                }
            }
            Monoid::Sum | Monoid::Custom(_) => self.result += value,
        }
        Ok(())
    }
}

/// The offset of the element in its tensor.
#[inline]
pub(super) fn place(access: &Access, frame: &Frame, tensors: &[Vec<f64>]) -> Result<usize, Box<Fault>> {
    match &access.place {
        Place::Proven(linear) => Ok(frame.linear(linear)),
        Place::Tested { dims, span } => tested(access.tensor, dims, *span, frame, tensors),
    }
}

fn tested(
    tensor: TensorId,
    dims: &[Dim],
    span: Span,
    frame: &Frame,
    tensors: &[Vec<f64>],
) -> Result<usize, Box<Fault>> {
    let mut at = 0;
    for (dim, d) in dims.iter().enumerate() {
        let position = affine(&d.terms, d.offset, frame, tensors)?;
        if position < 0 || position >= d.extent.into() {
            return Err(Box::new(Fault { tensor, dim, position, extent: d.extent, span }));
        }
        at += position as usize * d.stride;
    }
    Ok(at)
}

/// A position; in i128, because gathered numbers can be anything.
fn affine(terms: &[(i64, Atom)], offset: i64, frame: &Frame, tensors: &[Vec<f64>]) -> Result<i128, Box<Fault>> {
    let mut sum = i128::from(offset);
    for (c, atom) in terms {
        let value = match atom {
            Atom::Var(index) => frame.positions[index.0 as usize].into(),
            Atom::Floor { terms, offset, denominator } => {
                affine(terms, *offset, frame, tensors)?.div_euclid((*denominator).into())
            }
            Atom::Gather(access) => {
                i128::from(tensors[access.tensor.0 as usize][place(access, frame, tensors)?] as i64)
            }
        };
        sum = sum.saturating_add(value.saturating_mul((*c).into()));
    }
    Ok(sum)
}
