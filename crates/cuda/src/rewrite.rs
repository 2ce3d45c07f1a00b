//! Tile kernels rewritten before they are scheduled, where it saves instructions and what is computed stays the same to
//! within an f32 rounding.
//!
//! Each rule needs all numbers concerned to be f32 and the constant `c` to be normal, and:
//!
//! * `x / c` is `x * (1 / c)`, and `x * c * d` is `x * (c * d)`, if `x` comes out of a product or a sum, whose own roundings
//!   are larger.
//! * `where(p, x * c, k)` is `where(p, x, k) * c` for `c > 0` and `k` 0 or infinite: exact.
//! * `max(n) (x * c)` is `(max(n) x) * c` for `c > 0`, and so is `min`: exact, because rounding is monotone.
//! * `x ^ 2` is `x * x` where `x` is a tile, or a tile times a constant.
//! * A tile `s = x * c` is read as `x * c` by `exp(s - m)`, which takes the factor into its own scaling, and by
//!   `where(p, s, k)`, to which the rule above then applies.
//! * Loads whose coordinates are other tiles' elements come after the loads that follow them: they wait for memory twice.

pub(crate) mod finite;
mod masks;

use crate::schedule::facts::{each_op, each_use, leaves};
use einloom_cascade::{BinaryOp, DType, UnaryOp};
use einloom_tile::{Kernel, Op, Program, Scalar, TileMonoid, ValueDecl, ValueId};
use std::collections::BTreeSet;

/// The program with every kernel rewritten. Tensors and kernels stay in their places.
pub(crate) fn rewritten(program: &Program) -> Program {
    let mut out = program.clone();
    for (k, kernel) in program.kernels.iter().enumerate() {
        let mut rewriter = Rewriter { kernel: kernel.clone(), rounded: rounded(kernel) };
        let mut body = std::mem::take(&mut rewriter.kernel.body);
        masks::join(&mut body);
        rewriter.block(&mut body);
        rewriter.kernel.body = body;
        masks::share(&mut rewriter.kernel);
        drop_unread(&mut rewriter.kernel);
        out.kernels[k] = rewriter.kernel;
    }
    out
}

/// Tiles that come out of a product, a sum or a product of elements, by way of maps, maxima and states: they carry
/// roundings of f32.
pub(crate) fn rounded(kernel: &Kernel) -> BTreeSet<ValueId> {
    let mut out = BTreeSet::new();
    loop {
        let before = out.len();
        each_op(&kernel.body, &mut |op| match op {
            Op::Mma { dst, .. } => {
                out.insert(*dst);
            }
            Op::Reduce { dst, src, monoid, .. } if !extreme(monoid) || out.contains(src) => {
                out.insert(*dst);
            }
            Op::Map { dst, expr } => {
                let mut any = false;
                leaves(expr, &mut |v| any |= out.contains(&v));
                if any {
                    out.insert(*dst);
                }
            }
            Op::Stream { states, .. } => {
                let next = states.iter().filter(|s| out.contains(&s.next)).map(|s| s.value).collect::<Vec<_>>();
                out.extend(next);
            }
            _ => {}
        });
        if out.len() == before {
            return out;
        }
    }
}

struct Rewriter {
    kernel: Kernel,
    rounded: BTreeSet<ValueId>,
}

impl Rewriter {
    fn block(&mut self, body: &mut Vec<Op>) {
        gathers_last(body);
        let mut at = 0;
        while at < body.len() {
            match &mut body[at] {
                Op::Stream { body, .. } => self.block(body),
                Op::Map { dst, expr } if self.kernel.value(*dst).dtype == DType::F32 => {
                    let dst = *dst;
                    let mut e = expr.clone();
                    self.map(&mut e);
                    *expr = e;
                    at += self.scaled(dst, at, body);
                }
                _ => {}
            }
            at += 1;
        }
    }

    /// Whether an expression that writes an f32 tile is computed in f32 with f32 leaves, conditions aside.
    fn single(&self, expr: &Scalar) -> bool {
        match expr {
            Scalar::Tile(v) => self.kernel.value(*v).dtype == DType::F32,
            Scalar::Position(_) => false,
            Scalar::Const(_) | Scalar::Within(_) | Scalar::Argument(_) => true,
            Scalar::Round(_, x) | Scalar::Unary(_, x) => self.single(x),
            Scalar::Binary(_, x, y) | Scalar::Select(_, x, y) => self.single(x) && self.single(y),
        }
    }

    /// Whether an expression that writes an f32 tile is computed in f32.
    fn single_or_narrow(&self, expr: &Scalar) -> bool {
        let mut ok = true;
        leaves(expr, &mut |v| ok &= !matches!(self.kernel.value(v).dtype, DType::F64 | DType::I32));
        ok
    }

    /// Whether the expression is an f32 tile that carries roundings.
    fn is_rounded(&self, expr: &Scalar) -> bool {
        matches!(expr, Scalar::Tile(v) if self.rounded.contains(v) && self.single(expr))
    }

    /// Divisions by constants; factors out of selections.
    fn map(&self, expr: &mut Scalar) {
        match expr {
            Scalar::Unary(_, x) => self.map(x),
            Scalar::Binary(_, x, y) => {
                self.map(x);
                self.map(y);
            }
            Scalar::Select(_, x, y) => {
                self.map(x);
                self.map(y);
            }
            _ => {}
        }
        if let Scalar::Binary(BinaryOp::Div, x, c) = expr
            && let Scalar::Const(c) = **c
            && normal(c)
            && normal(1.0 / c)
            && self.is_rounded(scaling(x).map_or(&**x, |s| s.0))
        {
            *expr = times((**x).clone(), 1.0 / c);
        }
        if let Some((x, d)) = scaling(expr)
            && let Some((x, c)) = scaling(x)
            && normal(c * d)
            && self.is_rounded(x)
        {
            *expr = times(x.clone(), c * d);
        }
        if let Scalar::Binary(BinaryOp::Pow, x, two) = expr
            && **two == Scalar::Const(2.0)
            && matches!(scaling(x).map_or(&**x, |s| s.0), Scalar::Tile(_))
            && self.single_or_narrow(x)
        {
            *expr = Scalar::Binary(BinaryOp::Mul, x.clone(), x.clone());
        }
        if let Scalar::Select(p, x, k) = expr
            && let Some((inner, c)) = scaling(x)
            && c > 0.0
            && matches!(**k, Scalar::Const(k) if k == 0.0 || k.is_infinite())
            && self.single(inner)
        {
            *expr = times(Scalar::Select(p.clone(), Box::new(inner.clone()), k.clone()), c);
        }
    }

    /// If the map at `at` scales something, lets its readers in the same body scale instead; how many operations came in
    /// before it.
    fn scaled(&mut self, dst: ValueId, at: usize, body: &mut Vec<Op>) -> usize {
        let Op::Map { expr, .. } = &body[at] else { return 0 };
        let Some((inner, c)) = scaling(expr).map(|(x, c)| (x.clone(), c)) else { return 0 };
        if !self.single(&inner) {
            return 0;
        }
        let whole = matches!(inner, Scalar::Tile(_) | Scalar::Select(..) | Scalar::Unary(..));
        let reads = |op: &Op| {
            let mut found = false;
            each_use(op, &mut |v, _| found |= v == dst);
            found
        };
        let takes = body[at + 1..].iter().any(|op| match op {
            Op::Map { expr, .. } => mentions_exponent(expr, dst) || selects(expr, dst),
            Op::Reduce { src, monoid, dst: top, .. } => {
                *src == dst && c > 0.0 && extreme(monoid) && self.kernel.value(*top).dtype == DType::F32
            }
            _ => false,
        });
        if !whole || !takes || !body[at + 1..].iter().any(reads) {
            return 0;
        }
        let mut came = 0;
        let raw = match inner {
            Scalar::Tile(v) if self.same_axes(v, dst) => v,
            // A vector that is spread out stays as it is: scaling it is cheap.
            Scalar::Tile(_) => return 0,
            _ => {
                let raw = self.value_like(dst, "raw");
                body.insert(at, Op::Map { dst: raw, expr: inner });
                body[at + 1] = Op::Map { dst, expr: times(Scalar::Tile(raw), c) };
                came = 1;
                raw
            }
        };
        if self.rounded.contains(&dst) {
            self.rounded.insert(raw);
        }
        let mut k = at + came + 1;
        while k < body.len() {
            match &mut body[k] {
                Op::Map { expr, .. } => substitute(expr, dst, raw, c),
                Op::Reduce { dst: top, src, axis, monoid, acc }
                    if *src == dst && c > 0.0 && extreme(monoid) && self.kernel.value(*top).dtype == DType::F32 =>
                {
                    let (top, acc, axis, monoid) = (*top, *acc, *axis, monoid.clone());
                    let most = self.value_like(top, "raw");
                    let scaled = times(Scalar::Tile(most), c);
                    let op = if monoid == TileMonoid::Max { BinaryOp::Max } else { BinaryOp::Min };
                    let expr = match acc {
                        Some(a) => Scalar::Binary(op, Box::new(Scalar::Tile(a)), Box::new(scaled)),
                        None => scaled,
                    };
                    body[k] = Op::Reduce { dst: most, src: raw, axis, monoid, acc: None };
                    body.insert(k + 1, Op::Map { dst: top, expr });
                    k += 1;
                }
                _ => {}
            }
            k += 1;
        }
        came
    }

    fn same_axes(&self, a: ValueId, b: ValueId) -> bool {
        let axes = |v| (self.kernel.value(v).rows, self.kernel.value(v).cols);
        axes(a) == axes(b)
    }

    /// A new f32 tile with the axes of another.
    fn value_like(&mut self, v: ValueId, ending: &str) -> ValueId {
        let decl = self.kernel.value(v).clone();
        self.kernel.values.push(ValueDecl { name: format!("{}.{ending}", decl.name), dtype: DType::F32, ..decl });
        ValueId(self.kernel.values.len() as u32 - 1)
    }
}

fn normal(c: f64) -> bool {
    (c as f32).is_normal()
}

fn times(x: Scalar, c: f64) -> Scalar {
    Scalar::Binary(BinaryOp::Mul, Box::new(x), Box::new(Scalar::Const(c)))
}

fn extreme(monoid: &TileMonoid) -> bool {
    matches!(monoid, TileMonoid::Max | TileMonoid::Min)
}

/// `x` and `c` of `x * c` or `c * x`.
fn scaling(expr: &Scalar) -> Option<(&Scalar, f64)> {
    let Scalar::Binary(BinaryOp::Mul, x, y) = expr else { return None };
    match (&**x, &**y) {
        (x, Scalar::Const(c)) | (Scalar::Const(c), x) if normal(*c) => Some((x, *c)),
        _ => None,
    }
}

/// Whether the expression contains `exp(s - …)`.
fn mentions_exponent(expr: &Scalar, s: ValueId) -> bool {
    match expr {
        Scalar::Unary(UnaryOp::Exp, x) if is_difference(x, s) => true,
        Scalar::Round(_, x) | Scalar::Unary(_, x) => mentions_exponent(x, s),
        Scalar::Binary(_, x, y) => mentions_exponent(x, s) || mentions_exponent(y, s),
        Scalar::Select(c, x, y) => [c, x, y].into_iter().any(|e| mentions_exponent(e, s)),
        _ => false,
    }
}

fn is_difference(expr: &Scalar, s: ValueId) -> bool {
    matches!(expr, Scalar::Binary(BinaryOp::Sub, x, _) if **x == Scalar::Tile(s))
}

/// Whether the expression is `where(p, s, …)`.
fn selects(expr: &Scalar, s: ValueId) -> bool {
    matches!(expr, Scalar::Select(_, x, _) if **x == Scalar::Tile(s))
}

/// Replaces `s` by `raw * c` where that helps.
fn substitute(expr: &mut Scalar, s: ValueId, raw: ValueId, c: f64) {
    if selects(expr, s)
        && let Scalar::Select(_, x, _) = expr
    {
        **x = times(Scalar::Tile(raw), c);
    }
    match expr {
        Scalar::Unary(UnaryOp::Exp, x) if is_difference(x, s) => {
            if let Scalar::Binary(_, x, _) = &mut **x {
                **x = times(Scalar::Tile(raw), c);
            }
        }
        Scalar::Round(_, x) | Scalar::Unary(_, x) => substitute(x, s, raw, c),
        Scalar::Binary(_, x, y) => {
            substitute(x, s, raw, c);
            substitute(y, s, raw, c);
        }
        Scalar::Select(p, x, y) => [p, x, y].into_iter().for_each(|e| substitute(e, s, raw, c)),
        _ => {}
    }
}

/// Moves every gather behind the loads that directly follow it.
fn gathers_last(body: &mut [Op]) {
    let gathers = |op: &Op| {
        let Op::Load { at, .. } = op else { return None };
        Some(at.iter().any(crate::schedule::gathers))
    };
    let mut start = 0;
    while start < body.len() {
        let run = body[start..].iter().take_while(|op| gathers(op).is_some()).count();
        // Stable: gathers stay behind the loads of their own coordinates, which are not gathers or come before.
        body[start..start + run].sort_by_key(|op| gathers(op) == Some(true));
        start += run.max(1);
    }
}

/// Drops maps that nothing reads any more.
fn drop_unread(kernel: &mut Kernel) {
    loop {
        let mut read = vec![false; kernel.values.len()];
        each_op(&kernel.body, &mut |op| each_use(op, &mut |v, _| read[v.at()] = true));
        let mut dropped = false;
        retain(&mut kernel.body, &mut |op| match op {
            Op::Map { dst, .. } if !read[dst.at()] => {
                dropped = true;
                false
            }
            _ => true,
        });
        if !dropped {
            return;
        }
    }
}

fn retain(body: &mut Vec<Op>, keep: &mut dyn FnMut(&Op) -> bool) {
    body.retain(|op| keep(op));
    for op in body {
        if let Op::Stream { body, .. } = op {
            retain(body, keep);
        }
    }
}

#[cfg(test)]
mod tests {
    use einloom_cascade::{BinaryOp, DType, UnaryOp};
    use einloom_tile::{Builder, TileMonoid, carry, print_kernel, select};
    use expect_test::expect;

    #[test]
    fn scales_move_into_exponents_and_out_of_maxima() {
        let mut p = Builder::new("scores");
        let (a, b) = (p.input("A", &[64, 32], DType::Bf16), p.input("B", &[64, 32], DType::Bf16));
        let y = p.output("Y", &[64], DType::F32);
        p.kernel("scores", |g| {
            let (m, n, d) = (g.grid("m", 64, 32), g.stream_axis("n", 64, 16), g.whole("d", 32));
            let seen = n.at_most(m);
            let a = g.load("a", a, [m, d]);
            let states = [carry("top", [m], f64::NEG_INFINITY), carry("sum", [m], 0.0)];
            let [_, sum] = g.stream(n, seen.clone(), states, |g, [top, sum]| {
                let b = g.load("b", b, [n, d]);
                let raw = g.mma("raw", a, b);
                let s = g.map("s", raw / 4.0);
                let masked = g.map("masked", select(seen.clone(), s, f64::NEG_INFINITY));
                let more = g.reduce_onto("more", TileMonoid::Max, top, masked, n);
                let w = g.map("w", select(seen, (s - more).exp(), 0.0));
                [more, g.reduce_onto("longer", TileMonoid::Sum, sum, w, n)]
            });
            g.store(y, [m], sum);
        });
        let program = super::rewritten(&p.finish().expect("well-formed"));
        assert!(einloom_tile::verify(&program).is_empty());
        expect![[r#"
            kernel scores(A, B → Y)   grid m by 32
              a = load A[m:32, :]
              top, sum = -inf, 0
              stream n by 16 while n <= m
                b = load B[n:16, :]
                raw = mma a · bᵀ
                masked.raw = where(n <= m, raw, -inf)
                more.raw = max(n) masked.raw
                more = max(top, more.raw * 0.25)
                w = where(n <= m, exp(raw * 0.25 - more), 0)
                longer = sum + sum(n) w
                top, sum = more, longer
              store Y[m:32] = sum
        "#]]
        .assert_eq(&print_kernel(&program, &program.kernels[0]));
    }

    #[test]
    fn numbers_that_are_exact_are_divided_exactly() {
        let mut p = Builder::new("quotients");
        let x = p.input("X", &[64], DType::F32);
        let y = p.output("Y", &[64], DType::F32);
        p.kernel("quotients", |g| {
            let n = g.grid("n", 64, 32);
            let x = g.load("x", x, [n]);
            g.store(y, [n], (x / 49.0).apply(UnaryOp::Floor) + x.with(BinaryOp::Pow, 2.0) + x.with(BinaryOp::Pow, 3.0));
        });
        let program = super::rewritten(&p.finish().expect("well-formed"));
        expect![[r#"
            kernel quotients(X → Y)   grid n by 32
              x = load X[n:32]
              y = floor(x / 49) + x * x + x ^ 3
              store Y[n:32] = y
        "#]]
        .assert_eq(&print_kernel(&program, &program.kernels[0]));
    }
}
