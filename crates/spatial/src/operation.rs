//! Classes of scalar operations: what a processing element is asked to do for one point of an Einsum.

use einloom_algebra::Term;
use einloom_cascade::{BinaryOp, Monoid, UnaryOp};
use std::fmt;
use std::str::FromStr;

/// A class of operations that costs the same on a processing element.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// `acc + a·b`.
    MultiplyAdd,
    /// `a·b`.
    Multiply,
    /// `a + b`.
    Add,
    /// `a - b`.
    Subtract,
    /// The larger or smaller of two values, or a comparison.
    Maximum,
    /// `exp(x)`.
    Exponential,
    /// `exp(a - b)` as one operation, where an element has it.
    SubtractExponential,
    /// `a / b`.
    Divide,
    /// `where(c, a, b)`, `and`, `or`, `not`.
    Select,
    /// A function, by its name in the language.
    Function(&'static str),
    /// A user's reduction.
    Combine,
}

impl Operation {
    const NAMED: [(Self, &'static str); 10] = [
        (Self::MultiplyAdd, "multiply-add"),
        (Self::Multiply, "multiply"),
        (Self::Add, "add"),
        (Self::Subtract, "subtract"),
        (Self::Maximum, "maximum"),
        (Self::Exponential, "exponential"),
        (Self::SubtractExponential, "subtract-exponential"),
        (Self::Divide, "divide"),
        (Self::Select, "select"),
        (Self::Combine, "combine"),
    ];

    /// Its name in a chip's description.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Function(name) => name,
            other => Self::NAMED.iter().find(|(o, _)| o == other).map_or("", |n| n.1),
        }
    }

    /// All names that a chip's description may use.
    pub fn names() -> impl Iterator<Item = &'static str> {
        Self::NAMED.iter().map(|n| n.1).chain(functions())
    }
}

fn functions() -> impl Iterator<Item = &'static str> {
    UnaryOp::NAMED.iter().filter(|&&op| !matches!(op, UnaryOp::Exp)).map(|op| op.name()).chain(["^"])
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Operation {
    type Err = ();
    fn from_str(name: &str) -> Result<Self, ()> {
        if let Some((operation, _)) = Self::NAMED.iter().find(|n| n.1 == name) {
            return Ok(operation.clone());
        }
        functions().find(|f| *f == name).map(Self::Function).ok_or(())
    }
}

/// The operations for one point of a pointwise term. What is the same everywhere (`1/sqrt(E)`) is computed once, and
/// where it scales a product or quotient it is folded into an operand: neither costs anything here.
pub(crate) fn operations(term: &Term, out: &mut Vec<Operation>) {
    if is_uniform(term) {
        return;
    }
    match term {
        Term::Unary(UnaryOp::Exp, x) => match &**x {
            Term::Binary(BinaryOp::Sub, a, b) => {
                operations(a, out);
                operations(b, out);
                out.push(Operation::SubtractExponential);
            }
            x => {
                operations(x, out);
                out.push(Operation::Exponential);
            }
        },
        Term::Unary(op, x) => {
            operations(x, out);
            match op {
                // A sign is part of whoever uses the value.
                UnaryOp::Neg => {}
                UnaryOp::Not => out.push(Operation::Select),
                UnaryOp::Abs | UnaryOp::Relu | UnaryOp::Sign => out.push(Operation::Maximum),
                op => out.push(Operation::Function(op.name())),
            }
        }
        Term::Binary(op @ (BinaryOp::Mul | BinaryOp::Div), a, b) => {
            operations(a, out);
            operations(b, out);
            let scales = is_uniform(b) || (*op == BinaryOp::Mul && is_uniform(a));
            if !scales {
                out.push(if *op == BinaryOp::Mul { Operation::Multiply } else { Operation::Divide });
            }
        }
        Term::Binary(op, a, b) => {
            operations(a, out);
            operations(b, out);
            out.push(match op {
                BinaryOp::Add => Operation::Add,
                BinaryOp::Sub => Operation::Subtract,
                BinaryOp::And | BinaryOp::Or => Operation::Select,
                BinaryOp::Pow => Operation::Function("^"),
                _ => Operation::Maximum,
            });
        }
        Term::Select(c, a, b) => {
            for x in [c, a, b] {
                operations(x, out);
            }
            out.push(Operation::Select);
        }
        _ => {}
    }
}

/// The operations for one point of a reduction: those of its body, and one to combine. A product that is summed is one
/// multiply-add.
pub(crate) fn reduction(monoid: Monoid, body: &Term, out: &mut Vec<Operation>) {
    operations(body, out);
    match monoid {
        Monoid::Sum if out.last() == Some(&Operation::Multiply) => {
            out.pop();
            out.push(Operation::MultiplyAdd);
        }
        Monoid::Sum => out.push(Operation::Add),
        Monoid::Prod => out.push(Operation::Multiply),
        Monoid::Max | Monoid::Min | Monoid::ArgMax | Monoid::ArgMin => out.push(Operation::Maximum),
        Monoid::Custom(_) => out.push(Operation::Combine),
    }
}

/// Whether a term has the same value at every point.
fn is_uniform(term: &Term) -> bool {
    let mut uniform = true;
    term.visit(&mut |t| {
        if matches!(t, Term::Read(..) | Term::Old(..) | Term::Position(_) | Term::Argument(_)) {
            uniform = false;
        }
    });
    uniform
}
