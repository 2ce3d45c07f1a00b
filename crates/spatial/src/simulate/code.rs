//! Scalar terms, evaluated for a row of positions at a time.

use super::part::Part;
use crate::Program;
use einloom_algebra::{Def, NodeId, Term};
use einloom_cascade::{BinaryOp, Bound, IndexAtom, IndexExpr, IndexId, UnaryOp};

/// A term whose reads are numbered.
#[derive(Clone, Debug)]
pub(super) enum Code {
    Number(f64),
    /// The position of one of the Einsum's indices.
    Position(usize),
    Access(usize),
    Unary(UnaryOp, Box<Code>),
    Binary(BinaryOp, Box<Code>, Box<Code>),
    Select(Box<Code>, Box<Code>, Box<Code>),
}

/// A read: of which tensor, and at which sums of positions.
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// Of the Einsum's reads.
    pub read: usize,
    /// What is read in the end: the read's tensor, or what that renames.
    pub node: NodeId,
    /// By dimension: coefficients by index of the Einsum, and what is added.
    pub at: Vec<(Vec<i64>, i64)>,
}

pub(super) struct Compiler<'a> {
    pub program: &'a Program,
    pub bound: &'a Bound,
    pub part: &'a Part<'a>,
    pub indices: &'a [IndexId],
    pub accesses: Vec<Access>,
}

impl Compiler<'_> {
    /// # Errors
    /// What is not executed.
    pub fn term(&mut self, term: &Term) -> Result<Code, String> {
        let code = match term {
            Term::Number(x) => Code::Number(*x),
            Term::Param(p) => Code::Number(self.bound.param(*p)),
            Term::Size(s) => Code::Number(self.bound.extent(s) as f64),
            Term::Position(i) => Code::Position(self.index(*i)?),
            Term::Read(node, at) => self.read(*node, at)?,
            Term::Old(..) | Term::Argument(_) => return Err("is a form of its own".to_owned()),
            Term::Unary(op, x) => Code::Unary(*op, Box::new(self.term(x)?)),
            Term::Binary(op, a, b) => Code::Binary(*op, Box::new(self.term(a)?), Box::new(self.term(b)?)),
            Term::Select(c, a, b) => {
                Code::Select(Box::new(self.term(c)?), Box::new(self.term(a)?), Box::new(self.term(b)?))
            }
        };
        Ok(match &code {
            Code::Unary(op, x) if let Code::Number(x) = **x => Code::Number(op.apply(x)),
            Code::Binary(op, a, b) if let (Code::Number(a), Code::Number(b)) = (&**a, &**b) => {
                Code::Number(op.apply(*a, *b))
            }
            _ => code,
        })
    }

    fn index(&self, i: IndexId) -> Result<usize, String> {
        self.indices.iter().position(|x| *x == i).ok_or_else(|| "uses an index of another statement".to_owned())
    }

    fn read(&mut self, node: NodeId, at: &[IndexExpr]) -> Result<Code, String> {
        let name = &self.program.graph[node].name;
        let read = self.part.reads.iter().position(|r| r.node == node && r.text.iter().any(|t| t == at));
        let read = read.ok_or_else(|| format!("reads {name} in a way that is not followed"))?;
        let (mut node, mut at) = (node, at.to_vec());
        // What is only renamed is read where it comes from.
        while let Def::Map(Term::Read(source, inner)) = &self.program.graph[node].def {
            let axes = &self.program.graph[node].axes;
            at = inner.iter().map(|e| substitute(e, axes, &at)).collect::<Option<_>>().ok_or("is read by a gather")?;
            node = *source;
        }
        let mut dims = vec![];
        for e in &at {
            let mut coefficients = vec![0; self.indices.len()];
            for (c, atom) in &e.terms {
                let IndexAtom::Var(i) = atom else {
                    return Err(format!("reads {name} at a position that is divided or gathered"));
                };
                coefficients[self.index(*i)?] += self.bound.extent(c);
            }
            dims.push((coefficients, self.bound.extent(&e.offset)));
        }
        self.accesses.push(Access { read, node, at: dims });
        Ok(Code::Access(self.accesses.len() - 1))
    }
}

fn substitute(e: &IndexExpr, axes: &[IndexId], at: &[IndexExpr]) -> Option<IndexExpr> {
    let mut out = IndexExpr::fixed(e.offset.clone());
    for (c, atom) in &e.terms {
        let IndexAtom::Var(i) = atom else { return None };
        let k = axes.iter().position(|a| a == i)?;
        out = out.add(&at[k].scale(c));
    }
    Some(out)
}

/// Where an access reads: a tensor's elements, the first one, and how far each index moves.
pub(super) struct Source<'d> {
    pub data: &'d [f64],
    pub base: i64,
    pub strides: Vec<i64>,
}

/// The value of a code along a row.
pub(super) enum Value {
    Same(f64),
    Row(Vec<f64>),
}

/// A row of positions: all indices but one stand still.
pub(super) struct Row<'r, 'd> {
    pub sources: &'r [Source<'d>],
    /// Positions of all indices, that of the moving one at the start.
    pub at: &'r [i64],
    /// Which index moves.
    pub moving: Option<usize>,
    pub length: usize,
    /// Rows to use again.
    pub spare: &'r mut Vec<Vec<f64>>,
}

impl Row<'_, '_> {
    fn fresh(&mut self) -> Vec<f64> {
        let mut row = self.spare.pop().unwrap_or_default();
        row.clear();
        row
    }

    pub fn put_back(&mut self, value: Value) {
        if let Value::Row(row) = value {
            self.spare.push(row);
        }
    }

    pub fn eval(&mut self, code: &Code) -> Value {
        match code {
            Code::Number(x) => Value::Same(*x),
            Code::Position(i) if Some(*i) == self.moving => {
                let mut row = self.fresh();
                row.extend((0..self.length).map(|k| (self.at[*i] + k as i64) as f64));
                Value::Row(row)
            }
            Code::Position(i) => Value::Same(self.at[*i] as f64),
            Code::Access(a) => {
                let source = &self.sources[*a];
                let at = source.base + source.strides.iter().zip(self.at).map(|(s, x)| s * x).sum::<i64>();
                let stride = self.moving.map_or(0, |m| source.strides[m]);
                // A read that a condition keeps inside may point anywhere where the condition fails.
                let get = |k: i64| source.data.get(k as usize).copied().unwrap_or(f64::NAN);
                if stride == 0 {
                    return Value::Same(get(at));
                }
                let mut row = self.fresh();
                let source = &self.sources[*a];
                match source.data.get(at.max(0) as usize..at.max(0) as usize + self.length) {
                    Some(all) if stride == 1 && at >= 0 => row.extend_from_slice(all),
                    _ => row.extend((0..self.length as i64).map(|k| get(at + k * stride))),
                }
                Value::Row(row)
            }
            Code::Unary(op, x) => match self.eval(x) {
                Value::Same(x) => Value::Same(op.apply(x)),
                Value::Row(mut row) => {
                    match op {
                        UnaryOp::Exp => row.iter_mut().for_each(|x| *x = x.exp()),
                        op => row.iter_mut().for_each(|x| *x = op.apply(*x)),
                    }
                    Value::Row(row)
                }
            },
            Code::Binary(op, a, b) => {
                let a = self.eval(a);
                let b = self.eval(b);
                self.binary(*op, a, b)
            }
            Code::Select(c, a, b) => {
                let (c, a, b) = (self.eval(c), self.eval(a), self.eval(b));
                if let Value::Same(c) = c {
                    let (taken, left) = if c != 0.0 { (a, b) } else { (b, a) };
                    self.put_back(left);
                    return taken;
                }
                let mut row = self.fresh();
                row.extend((0..self.length).map(|k| if c.get(k) != 0.0 { a.get(k) } else { b.get(k) }));
                [c, a, b].into_iter().for_each(|v| self.put_back(v));
                Value::Row(row)
            }
        }
    }

    fn binary(&mut self, op: BinaryOp, a: Value, b: Value) -> Value {
        match (a, b) {
            (Value::Same(a), Value::Same(b)) => Value::Same(op.apply(a, b)),
            (Value::Row(mut a), Value::Same(b)) => {
                match op {
                    BinaryOp::Add => a.iter_mut().for_each(|x| *x += b),
                    BinaryOp::Sub => a.iter_mut().for_each(|x| *x -= b),
                    BinaryOp::Mul => a.iter_mut().for_each(|x| *x *= b),
                    BinaryOp::Div => a.iter_mut().for_each(|x| *x /= b),
                    op => a.iter_mut().for_each(|x| *x = op.apply(*x, b)),
                }
                Value::Row(a)
            }
            (Value::Same(a), Value::Row(mut b)) => {
                match op {
                    BinaryOp::Add => b.iter_mut().for_each(|x| *x += a),
                    BinaryOp::Mul => b.iter_mut().for_each(|x| *x *= a),
                    op => b.iter_mut().for_each(|x| *x = op.apply(a, *x)),
                }
                Value::Row(b)
            }
            (Value::Row(mut a), Value::Row(b)) => {
                let both = a.iter_mut().zip(&b);
                match op {
                    BinaryOp::Add => both.for_each(|(x, y)| *x += y),
                    BinaryOp::Sub => both.for_each(|(x, y)| *x -= y),
                    BinaryOp::Mul => both.for_each(|(x, y)| *x *= y),
                    BinaryOp::Div => both.for_each(|(x, y)| *x /= y),
                    op => both.for_each(|(x, y)| *x = op.apply(*x, *y)),
                }
                self.spare.push(b);
                Value::Row(a)
            }
        }
    }
}

impl Value {
    pub fn get(&self, k: usize) -> f64 {
        match self {
            Self::Same(x) => *x,
            Self::Row(row) => row[k],
        }
    }
}
