//! Statements with sizes filled in and element offsets precomputed: what the evaluator walks.

use crate::{BinaryOp, IndexId, Monoid, Span, TensorId, UnaryOp};

/// `target[at] = value` for every point of `loops`.
pub(super) struct Statement {
    pub target: TensorId,
    pub at: Access,
    pub loops: Vec<Loop>,
    /// The index that the recurrence around the statement has already set.
    pub iterated: Option<IndexId>,
    pub value: Code,
    /// Elements of each table of remembered reductions.
    pub memos: Vec<usize>,
}

/// `index` takes every value below `size`.
#[derive(Clone, Copy)]
pub(super) struct Loop {
    pub index: IndexId,
    pub size: usize,
}

pub(super) enum Code {
    Number(f64),
    Position(IndexId),
    Argument(u8),
    Read(Access),
    Unary(UnaryOp, Box<Code>),
    Binary(BinaryOp, Box<Code>, Box<Code>),
    Select(Box<[Code; 3]>),
    Reduce(Box<Reduction>),
}

pub(super) struct Reduction {
    pub fold: Fold,
    pub loops: Vec<Loop>,
    pub filter: Option<Code>,
    pub body: Code,
    pub memo: Option<Memo>,
}

/// What a reduction does with the next value.
pub(super) enum Fold {
    /// One of the language's.
    Builtin(Monoid),
    /// The user's.
    Custom { combine: Code, identity: f64 },
}

/// Where a reduction's value is remembered.
pub(super) struct Memo {
    /// Which of the statement's tables.
    pub table: usize,
    /// The row-major place in it.
    pub place: Linear,
    /// How many values are remembered.
    pub entries: usize,
}

/// One element of a tensor.
pub(super) struct Access {
    pub tensor: TensorId,
    pub place: Place,
}

pub(super) enum Place {
    /// Inside the tensor wherever the indices are.
    Proven(Linear),
    /// To be tested, dimension by dimension.
    Tested { dims: Vec<Dim>, span: Span },
}

/// `Σ coefficient · index + offset`.
#[derive(Clone, Default)]
pub(super) struct Linear {
    pub terms: Vec<(i64, IndexId)>,
    pub offset: i64,
}

pub(super) struct Dim {
    pub terms: Vec<(i64, Atom)>,
    pub offset: i64,
    pub extent: i64,
    pub stride: usize,
}

pub(super) enum Atom {
    Var(IndexId),
    Floor { terms: Vec<(i64, Atom)>, offset: i64, denominator: i64 },
    Gather(Access),
}

impl Statement {
    /// Scalar operations to evaluate it once.
    pub fn work(&self) -> f64 {
        let points = points(&self.loops);
        points + self.value.work(points)
    }
}

fn points(loops: &[Loop]) -> f64 {
    loops.iter().map(|l| l.size as f64).product()
}

impl Code {
    /// Operations to evaluate it at so many points.
    fn work(&self, times: f64) -> f64 {
        match self {
            Self::Number(_) | Self::Position(_) | Self::Argument(_) => 0.0,
            Self::Read(_) => times,
            Self::Unary(_, x) => times + x.work(times),
            Self::Binary(_, a, b) => times + a.work(times) + b.work(times),
            Self::Select(parts) => times + parts.iter().map(|p| p.work(times)).sum::<f64>(),
            Self::Reduce(r) => {
                let times = r.memo.as_ref().map_or(times, |m| times.min(m.entries as f64)) * points(&r.loops);
                let combine = if let Fold::Custom { combine, .. } = &r.fold { combine.work(times) } else { times };
                combine + r.filter.as_ref().map_or(0.0, |f| f.work(times)) + r.body.work(times)
            }
        }
    }
}
