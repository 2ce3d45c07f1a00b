//! Which values of an integer input keep every position that is made of it inside its tensor: the range of a position is followed
//! back through sums, multiples, quotients, floors, extremes and choices, in index expressions and in the statements that compute
//! positions, to the input. Terms of one sum that inputs decide share what the others leave.

use einloom_cascade::{BinaryOp, Bound, Cascade, Expr, ExprKind, IndexAtom, IndexExpr, Monoid, TensorId, UnaryOp};

/// From and to; infinite where nothing bounds.
type Range = (f64, f64);

/// Walks all reads for the positions that an input's values may be.
pub(super) struct Positions<'a> {
    cascade: &'a Cascade,
    bound: &'a Bound,
    input: TensorId,
    /// Tensors that are being followed: a recurrence is followed once.
    inside: Vec<TensorId>,
    found: Option<Range>,
}

/// The values of an input with which all positions lie inside; `None` if none is made of it. Nothing lies between them where there
/// are none.
pub(super) fn positions(cascade: &Cascade, bound: &Bound, input: TensorId) -> Option<(f64, f64)> {
    let mut positions = Positions { cascade, bound, input, inside: vec![], found: None };
    for statement in &cascade.statements {
        positions.expr(&statement.value);
    }
    positions.found.map(|(low, high)| (low.ceil(), high.floor()))
}

impl Positions<'_> {
    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Read { tensor, at } => self.read(*tensor, at),
            // `index == ids[t]` is a gather written the other way round.
            ExprKind::Binary(BinaryOp::Eq, a, b) => {
                for (position, value) in [(a, b), (b, a)] {
                    if let ExprKind::Position(i) = &position.kind {
                        let extent = self.bound.size(self.cascade[*i].rank) as f64;
                        self.value_within(value, (0.0, extent - 1.0));
                    }
                }
            }
            _ => {}
        }
        expr.for_each_child(&mut |child| self.expr(child));
    }

    fn read(&mut self, tensor: TensorId, at: &[IndexExpr]) {
        for (index, extent) in at.iter().zip(&self.cascade[tensor].extents) {
            self.within(index, (0.0, self.bound.extent(extent) as f64 - 1.0));
        }
    }

    /// `index` must lie in a range.
    fn within(&mut self, index: &IndexExpr, range: Range) {
        let term = |(c, atom)| Some(scaled(self.atom_reach(atom)?, self.bound.extent(c) as f64));
        let terms: Vec<Option<Range>> = index.terms.iter().map(|(c, atom)| term((c, atom))).collect();
        let offset = self.bound.extent(&index.offset) as f64;
        let share = shared(range, &terms, (offset, offset));
        for ((c, atom), known) in index.terms.iter().zip(&terms) {
            // What is known says nothing of inputs, but may itself be read by them.
            let of = if known.is_some() { (f64::NEG_INFINITY, f64::INFINITY) } else { share };
            let c = self.bound.extent(c) as f64;
            if c != 0.0 {
                self.atom_within(atom, scaled(of, 1.0 / c));
            }
        }
    }

    fn atom_within(&mut self, atom: &IndexAtom, range: Range) {
        match atom {
            IndexAtom::Var(_) => {}
            IndexAtom::Floor { numerator, denominator } => {
                let d = self.bound.extent(denominator).max(1) as f64;
                self.within(numerator, (range.0.ceil() * d, range.1.floor() * d + d - 1.0));
            }
            IndexAtom::Gather { tensor, at } => {
                self.tensor_within(*tensor, range);
                self.read(*tensor, at);
            }
        }
    }

    /// All elements of a tensor must lie in a range.
    fn tensor_within(&mut self, tensor: TensorId, range: Range) {
        if tensor == self.input && range.0.max(-range.1) > f64::NEG_INFINITY {
            let (low, high) = self.found.unwrap_or((f64::NEG_INFINITY, f64::INFINITY));
            self.found = Some((low.max(range.0), high.min(range.1)));
        }
        if self.inside.contains(&tensor) {
            return;
        }
        self.inside.push(tensor);
        let cascade = self.cascade;
        for statement in cascade.statements.iter().filter(|s| s.target == tensor) {
            self.value_within(&statement.value, range);
        }
        self.inside.pop();
    }

    /// A value must lie in a range.
    fn value_within(&mut self, value: &Expr, (low, high): Range) {
        match &value.kind {
            ExprKind::Read { tensor, .. } => self.tensor_within(*tensor, (low, high)),
            ExprKind::Unary(UnaryOp::Neg, x) => self.value_within(x, (-high, -low)),
            ExprKind::Unary(UnaryOp::Abs, x) => self.value_within(x, (-high, high)),
            ExprKind::Unary(UnaryOp::Relu, x) => {
                self.value_within(x, (if low > 0.0 { low } else { f64::NEG_INFINITY }, high));
            }
            ExprKind::Unary(UnaryOp::Round, x) => self.value_within(x, (low, high)),
            ExprKind::Unary(UnaryOp::Floor, x) => self.value_within(x, (low, (high.floor() + 1.0).next_down())),
            ExprKind::Binary(BinaryOp::Add | BinaryOp::Sub, ..) => {
                let mut terms = vec![];
                addends(value, 1.0, &mut terms);
                let known: Vec<Option<Range>> =
                    terms.iter().map(|(sign, x)| Some(scaled(self.reach(x)?, *sign))).collect();
                let share = shared((low, high), &known, (0.0, 0.0));
                for ((sign, x), _) in terms.into_iter().zip(known).filter(|(_, known)| known.is_none()) {
                    self.value_within(x, scaled(share, sign));
                }
            }
            ExprKind::Binary(BinaryOp::Mul, a, b) => {
                for (x, by) in [(a, b), (b, a)] {
                    if let Some(by) = self.reach(by) {
                        self.value_within(x, divided((low, high), by));
                    }
                }
            }
            ExprKind::Binary(BinaryOp::Div, x, by) => match self.reach(by) {
                Some((c, d)) if c == d && c != 0.0 => self.value_within(x, scaled((low, high), c)),
                _ => {}
            },
            ExprKind::Binary(op @ (BinaryOp::Min | BinaryOp::Max), a, b) => {
                for (x, other) in [(a, b), (b, a)] {
                    // Where the other one keeps a side by itself.
                    let range = match (op, self.reach(other)) {
                        (BinaryOp::Max, Some((from, _))) if from >= low => (f64::NEG_INFINITY, high),
                        (BinaryOp::Min, Some((_, to))) if to <= high => (low, f64::INFINITY),
                        _ => (low, high),
                    };
                    self.value_within(x, range);
                }
            }
            ExprKind::Select(_, a, b) => [a, b].into_iter().for_each(|x| self.value_within(x, (low, high))),
            ExprKind::Reduce { monoid: Monoid::Max | Monoid::Min, body, .. } => self.value_within(body, (low, high)),
            ExprKind::Reduce { monoid: Monoid::Sum, over, body, .. } => {
                let count: f64 = over.iter().map(|&i| self.bound.size(self.cascade[i].rank) as f64).product();
                self.value_within(body, scaled((low, high), 1.0 / count.max(1.0)));
            }
            _ => {}
        }
    }

    /// Smallest and largest value of a term of an index expression, as far as sizes tell; `None` if data decide.
    fn atom_reach(&self, atom: &IndexAtom) -> Option<Range> {
        match atom {
            IndexAtom::Var(i) => Some(self.index_reach(self.cascade[*i].rank)),
            IndexAtom::Floor { numerator, denominator } => {
                let offset = self.bound.extent(&numerator.offset) as f64;
                let d = self.bound.extent(denominator).max(1) as f64;
                let sum = numerator.terms.iter().try_fold((offset, offset), |sum, (c, atom)| {
                    Some(plus(sum, scaled(self.atom_reach(atom)?, self.bound.extent(c) as f64)))
                })?;
                Some(((sum.0 / d).floor(), (sum.1 / d).floor()))
            }
            IndexAtom::Gather { tensor, .. } => self.tensor_reach(*tensor, self.cascade.statements.len()),
        }
    }

    fn index_reach(&self, rank: einloom_cascade::RankId) -> Range {
        (0.0, (self.bound.size(rank) as f64 - 1.0).max(0.0))
    }

    fn reach(&self, value: &Expr) -> Option<Range> {
        self.reach_of(value, self.cascade.statements.len())
    }

    /// `depth` bounds how many statements lie between.
    fn tensor_reach(&self, tensor: TensorId, depth: usize) -> Option<Range> {
        let depth = depth.checked_sub(1)?;
        let own = self.cascade.statements.iter().filter(|s| s.target == tensor);
        own.map(|s| self.reach_of(&s.value, depth)).reduce(|a, b| Some(hull(a?, b?)))?
    }

    /// Smallest and largest value of an expression, as far as sizes tell; `None` if data decide.
    fn reach_of(&self, value: &Expr, depth: usize) -> Option<Range> {
        let of = |x: &Expr| self.reach_of(x, depth);
        Some(match &value.kind {
            ExprKind::Number(v) => (*v, *v),
            ExprKind::Param(p) => (self.bound.param(*p), self.bound.param(*p)),
            ExprKind::Size(s) => (self.bound.extent(s) as f64, self.bound.extent(s) as f64),
            ExprKind::Position(i) => self.index_reach(self.cascade[*i].rank),
            ExprKind::Read { tensor, .. } => self.tensor_reach(*tensor, depth)?,
            ExprKind::Unary(UnaryOp::Neg, x) => scaled(of(x)?, -1.0),
            ExprKind::Unary(op @ (UnaryOp::Floor | UnaryOp::Round | UnaryOp::Relu), x) => {
                let (low, high) = of(x)?;
                (op.apply(low), op.apply(high))
            }
            ExprKind::Binary(BinaryOp::Add, a, b) => plus(of(a)?, of(b)?),
            ExprKind::Binary(BinaryOp::Sub, a, b) => plus(of(a)?, scaled(of(b)?, -1.0)),
            ExprKind::Binary(BinaryOp::Mul, a, b) => {
                let (a, (c, d)) = (of(a)?, of(b)?);
                hull(scaled(a, c), scaled(a, d))
            }
            ExprKind::Binary(BinaryOp::Div, a, b) => {
                let (a, (c, d)) = (of(a)?, of(b)?);
                if c <= 0.0 && d >= 0.0 {
                    return None;
                }
                hull(scaled(a, 1.0 / c), scaled(a, 1.0 / d))
            }
            ExprKind::Binary(op @ (BinaryOp::Min | BinaryOp::Max), a, b) => {
                let ((a, b), (c, d)) = (of(a)?, of(b)?);
                (op.apply(a, c), op.apply(b, d))
            }
            ExprKind::Select(_, a, b) => hull(of(a)?, of(b)?),
            ExprKind::Reduce { monoid: Monoid::Max | Monoid::Min, filter: None, body, .. } => of(body)?,
            ExprKind::Reduce { monoid: Monoid::ArgMax | Monoid::ArgMin, over, .. } => {
                let count: f64 = over.iter().map(|&i| self.bound.size(self.cascade[i].rank) as f64).product();
                (0.0, (count - 1.0).max(0.0))
            }
            _ => return None,
        })
    }
}

/// The addends of a sum, with their signs.
fn addends<'e>(value: &'e Expr, sign: f64, out: &mut Vec<(f64, &'e Expr)>) {
    match &value.kind {
        ExprKind::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), a, b) => {
            addends(a, sign, out);
            addends(b, if *op == BinaryOp::Sub { -sign } else { sign }, out);
        }
        _ => out.push((sign, value)),
    }
}

/// What each of the terms that data decide may be: a part, as large for each, of what the others leave.
fn shared(range: Range, terms: &[Option<Range>], offset: Range) -> Range {
    let known = terms.iter().flatten().fold(offset, |sum, &term| plus(sum, term));
    let unknown = terms.iter().filter(|t| t.is_none()).count().max(1) as f64;
    ((range.0 - known.0) / unknown, (range.1 - known.1) / unknown)
}

/// What keeps its product with any number of another range in a range, where that holds 0; else with the largest of them.
fn divided(range: Range, (c, d): Range) -> Range {
    if c == d {
        return if c == 0.0 { (f64::NEG_INFINITY, f64::INFINITY) } else { scaled(range, 1.0 / c) };
    }
    let most = c.abs().max(d.abs());
    match c >= 0.0 {
        true => (range.0 / most, range.1 / most),
        false => {
            let near = range.1.min(-range.0) / most;
            (-near, near)
        }
    }
}

fn scaled((low, high): Range, by: f64) -> Range {
    // Nothing times what has no bound is nothing.
    let times = |v: f64| if by == 0.0 { 0.0 } else { v * by };
    if by < 0.0 { (times(high), times(low)) } else { (times(low), times(high)) }
}

fn plus(a: Range, b: Range) -> Range {
    (a.0 + b.0, a.1 + b.1)
}

fn hull(a: Range, b: Range) -> Range {
    (a.0.min(b.0), a.1.max(b.1))
}
