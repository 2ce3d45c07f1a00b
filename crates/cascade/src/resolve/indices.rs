//! Index expressions: affine in indices, floor divisions and gathers, with coefficients made of sizes.

use super::Resolver;
use super::sizes::size_parts;
use crate::syntax::ast::{Expr, ExprKind, Name};
use crate::{BinaryOp, DType, Diagnostic, IndexAtom, IndexExpr, RankId, SizeExpr, Span, TensorId, UnaryOp};

impl<'p> Resolver<'p> {
    /// All of `at`, as many as could be understood only if that is all of them.
    pub(super) fn index_exprs(&mut self, at: &[Expr<'p>]) -> Option<Vec<IndexExpr>> {
        let each: Vec<_> = at.iter().map(|e| self.index_expr(e)).collect();
        each.into_iter().collect()
    }

    /// One index expression.
    pub(super) fn index_expr(&mut self, e: &Expr<'p>) -> Option<IndexExpr> {
        self.spend(1, e.span)?;
        let out = match &e.kind {
            ExprKind::Number(value) => IndexExpr::fixed(SizeExpr::constant(self.integer(*value, e.span)?)),
            ExprKind::Name(name) => self.index_name(name, e.span)?,
            ExprKind::Read { name, at } => self.gather(*name, at, e.span)?,
            ExprKind::Unary(UnaryOp::Neg, x) => self.index_expr(x)?.scale(&SizeExpr::constant(-1)),
            ExprKind::Binary(op @ (BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul | BinaryOp::Div), a, b) => {
                let (x, y) = (self.index_expr(a), self.index_expr(b));
                let (x, y) = (x?, y?);
                match op {
                    BinaryOp::Add => x.add(&y),
                    BinaryOp::Sub => x.add(&y.scale(&SizeExpr::constant(-1))),
                    BinaryOp::Mul => self.index_product(&x, &y, e.span)?,
                    _ => self.floor(x, &y, b.span)?,
                }
            }
            _ => return self.not_affine(e),
        };
        if !self.few_parts(index_parts(&out), e.span) {
            return None;
        }
        let sizes = out.terms.iter().map(|(c, _)| c).chain([&out.offset]).cloned().collect::<Vec<_>>();
        sizes.into_iter().map(|s| self.modest(s, e.span).map(drop)).collect::<Option<()>>()?;
        Some(out)
    }

    /// The product, if one side does not move.
    fn index_product(&mut self, x: &IndexExpr, y: &IndexExpr, span: Span) -> Option<IndexExpr> {
        let (moving, by) = match (x.terms.is_empty(), y.terms.is_empty()) {
            (_, true) => (x, &y.offset),
            (true, false) => (y, &x.offset),
            (false, false) => {
                self.report.add(
                    Diagnostic::error("not-affine", span, "an index expression cannot multiply two indices")
                        .hint("one factor must be made of integers and sizes, such as `m1*M0 + m0`"),
                );
                return None;
            }
        };
        Some(moving.scale(by))
    }

    /// `floor(x / y)`.
    fn floor(&mut self, x: IndexExpr, y: &IndexExpr, span: Span) -> Option<IndexExpr> {
        if !y.terms.is_empty() {
            self.report.add(
                Diagnostic::error("not-affine", span, "an index expression can be divided by a size only")
                    .hint("divide by an integer or a rank, such as `h / G`"),
            );
            return None;
        }
        if !self.positive(&y.offset, span, "divide by") {
            return None;
        }
        let constants = (x.terms.is_empty()).then(|| x.offset.as_constant()).flatten().zip(y.offset.as_constant());
        Some(match (constants, y.offset.as_constant()) {
            (Some((a, b)), _) => IndexExpr::fixed(SizeExpr::constant(a.div_euclid(b))),
            (None, Some(1)) => x,
            _ => {
                let mut out = IndexExpr::default();
                let atom = IndexAtom::Floor { numerator: Box::new(x), denominator: y.offset.clone() };
                out.push(SizeExpr::constant(1), atom);
                out
            }
        })
    }

    /// A bare name inside brackets.
    fn index_name(&mut self, name: &'p str, span: Span) -> Option<IndexExpr> {
        if let Some(frame) = self.scope.frames.last()
            && frame.arguments.contains_key(name)
        {
            self.report.add(
                Diagnostic::error(
                    "not-affine",
                    span,
                    format!("`{name}` is a value of `{}`, not a position", frame.name),
                )
                .hint("an op's argument cannot be used inside brackets: write the index itself"),
            );
            return None;
        }
        if let Some(&index) = self.names.indices.get(name) {
            if !self.scope.is_bound(index) {
                self.unbound(index, span);
                return None;
            }
            return Some(IndexExpr::var(index));
        }
        if let Some(&rank) = self.names.ranks.get(name) {
            return Some(IndexExpr::fixed(SizeExpr::rank(rank)));
        }
        if self.names.params.contains_key(name) {
            self.report.add(
                Diagnostic::error(
                    "not-affine",
                    span,
                    format!("`{name}` is a parameter, which has no place inside brackets"),
                )
                .hint(format!(
                    "positions are made of indices, integers and sizes; declare a size with `rank {}`",
                    name.to_uppercase()
                )),
            );
            return None;
        }
        if self.names.tensors.get(name).is_some_and(|t| t.dims == 0) {
            return self.gather(Name { text: name, span }, &[], span);
        }
        self.unknown_name(name, span);
        None
    }

    /// `ids[t]`.
    fn gather(&mut self, name: Name<'p>, at: &[Expr<'p>], span: Span) -> Option<IndexExpr> {
        let at = self.index_exprs(at);
        let (tensor, at) = self.tensor_read(name, at, span)?;
        match self.cascade[tensor].dtype {
            Some(dtype) if dtype.is_integer() => {}
            other => return self.not_integer(tensor, other, span),
        }
        let mut out = IndexExpr::default();
        out.push(SizeExpr::constant(1), IndexAtom::Gather { tensor, at });
        Some(out)
    }

    #[cold]
    fn not_integer(&mut self, tensor: TensorId, dtype: Option<DType>, span: Span) -> Option<IndexExpr> {
        let name = &self.cascade[tensor].name;
        let held = dtype.map_or("f32".to_owned(), |d| d.to_string());
        self.report.add(
            Diagnostic::error("gather-not-integer", span, format!("`{name}` holds {held}, and positions are integers"))
                .label(self.cascade[tensor].span, "defined here")
                .hint(format!("give `{name}` an integer type, such as `: i32`")),
        );
        None
    }

    #[cold]
    fn not_affine(&mut self, e: &Expr<'p>) -> Option<IndexExpr> {
        let d = Diagnostic::error("not-affine", e.span, "this is not a position");
        let d = match &e.kind {
            ExprKind::Call { name, .. } if name.text == "floor" => {
                d.hint("`/` inside brackets rounds down already: `h / G`")
            }
            ExprKind::Reduce(_) | ExprKind::Call { .. } => {
                d.hint("compute it in a statement of its own, with an integer type, and gather: `X[at[m]]`")
            }
            _ => d.hint("positions are sums of indices times sizes, `h / G` (which rounds down), and integer tensors"),
        };
        self.report.add(d);
        None
    }

    /// The tensor of a read, if it is known and `at` has an index for every dimension.
    pub(super) fn tensor_read(
        &mut self,
        name: Name<'p>,
        at: Option<Vec<IndexExpr>>,
        span: Span,
    ) -> Option<(TensorId, Vec<IndexExpr>)> {
        let Some(tensor) = self.names.tensors.get_mut(name.text) else {
            self.unknown_tensor(name);
            return None;
        };
        tensor.read = true;
        let tensor = *tensor;
        if self.scope.frames.last().is_some_and(|f| f.monoid) {
            self.report.add(
                Diagnostic::error("tensor-in-monoid", span, "a monoid combines two values and reads no tensor")
                    .hint("use its arguments, numbers, parameters and sizes"),
            );
            return None;
        }
        let at = at?;
        if !tensor.sound {
            return None;
        }
        if at.len() != tensor.dims {
            self.wrong_count(name, at.len(), tensor.dims, tensor.span, span);
            return None;
        }
        for (dim, e) in at.iter().enumerate() {
            self.same_rank(tensor.id, dim, e, span);
        }
        Some((tensor.id, at))
    }

    /// Warns of an index that runs along another rank than the dimension it stands in, unless the text says how long the one is by
    /// the other: then they are not two by mistake.
    fn same_rank(&mut self, tensor: TensorId, dim: usize, e: &IndexExpr, span: Span) {
        let (Some(index), Some(&rank)) = (e.as_var(), self.cascade[tensor].ranks.get(dim)) else { return };
        let own = self.cascade[index].rank;
        let told = |a: RankId, b: RankId| {
            self.cascade[a].default.as_ref().is_some_and(|size| size.numerator.ranks().any(|r| r == b))
        };
        if own == rank || told(own, rank) || told(rank, own) {
            return;
        }
        let other = self.cascade.indices.iter().take(1000).find(|i| i.rank == rank).map_or("…", |i| &i.name);
        let (name, index) = (&self.cascade[tensor].name, &self.cascade[index]);
        let (along, of) = (&self.cascade[index.rank].name, &self.cascade[rank].name);
        let message = format!("`{}` runs along {along}, but dimension {} of `{name}` is {of}", index.name, dim + 1);
        let hint = format!("if {along} and {of} are the same, say so: `index {other}, {} in {of}`", index.name);
        self.report.add(
            Diagnostic::warning("rank-mismatch", span, message)
                .label(self.cascade[tensor].span, "its dimensions")
                .hint(hint),
        );
    }

    #[cold]
    pub(super) fn wrong_count(&mut self, name: Name<'p>, found: usize, dims: usize, defined: Span, span: Span) {
        let plural = if dims == 1 { "index" } else { "indices" };
        let message = format!("`{}` takes {dims} {plural}, not {found}", name.text);
        self.report.add(Diagnostic::error("wrong-number-of-indices", span, message).label(defined, "its dimensions"));
    }

    #[cold]
    fn unknown_tensor(&mut self, name: Name<'p>) {
        if self.names.unread.contains(name.text) {
            return;
        }
        let mut d = Diagnostic::error("unknown-tensor", name.span, format!("there is no tensor `{}`", name.text));
        if self.names.ops.contains_key(name.text) {
            d = d.hint(format!("`{0}` is an op: write `{0}(…)`", name.text));
        } else if let Some(near) = self.report.suggest(name.text, self.names.tensors.keys().copied()) {
            d = d.hint(format!("did you mean `{near}`?"));
        } else {
            d = d.hint(format!("declare it, `input {0}[…]: f32`, or define it, `{0}[…] = …`", name.text));
        }
        self.report.add(d);
    }
}

/// How many parts an index expression has, all levels together.
fn index_parts(e: &IndexExpr) -> usize {
    let terms = e.terms.iter().map(|(coefficient, atom)| {
        let inner = match atom {
            IndexAtom::Var(_) => 1,
            IndexAtom::Floor { numerator, denominator } => index_parts(numerator) + size_parts(denominator),
            IndexAtom::Gather { at, .. } => 1 + at.iter().map(index_parts).sum::<usize>(),
        };
        size_parts(coefficient) + inner
    });
    terms.sum::<usize>() + size_parts(&e.offset)
}
