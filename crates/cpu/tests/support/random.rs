//! Random well-formed programs and data.

use einloom_cascade::{BinaryOp, DType, UnaryOp};
use einloom_tile::{
    Affine, AxisId, Block, Builder, Coord, Kernel, KernelBuilder, Op, Predicate, Program, Scalar, TensorId, TensorRole,
    TileMonoid, ValueId, carry,
};

/// A generator of numbers (xorshift64*; S. Vigna, 2016).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    /// Less than `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    pub fn coin(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// Small multiples of 1/4, so that sums and products of them are exact in every number type that computes.
pub fn data(program: &Program, r: &mut Random) -> Vec<Vec<f64>> {
    let inputs = program.tensors.iter().filter(|t| t.role == TensorRole::Input);
    inputs
        .map(|t| {
            let count = t.dims.iter().product();
            (0..count)
                .map(|_| if t.dtype.is_float() { r.below(17) as f64 / 4.0 - 2.0 } else { r.below(7) as f64 - 3.0 })
                .collect()
        })
        .collect()
}

/// How expressions are drawn.
#[derive(Clone, Copy, PartialEq)]
pub enum Style {
    /// Operations that are exact on small dyadic numbers: results are compared bit by bit, whatever the types.
    Exact,
    /// Everything, in f32: results are compared with a tolerance.
    Smooth,
}

/// A program with one kernel: a product of two loaded tiles, summed over a stream, through random elementwise
/// operations and a reduction to the outputs, over random sizes, tiles, orders of sides and number types.
pub fn program(r: &mut Random, style: Style) -> Program {
    let sizes = [0, 1, 2, 3, 5, 8, 16, 17, 20, 33, 40];
    let size = [r.pick(&sizes), r.pick(&sizes), r.pick(&sizes)];
    let mut p = Builder::new("random");
    let a = Matrix::new(&mut p, "A", [size[0], size[2]], style, r);
    let b = Matrix::new(&mut p, "B", [size[2], size[1]], style, r);
    let c = Matrix::new(&mut p, "C", [size[0], size[1]], style, r);
    let v = p.input("V", &[size[1]], number(style, r));
    let (o, t) = (p.output("O", &size[..2], number(style, r)), p.output("T", &[size[1], size[0]], number(style, r)));
    // A reduction along `n` is a result only if its window is all of it.
    let whole = r.coin().then(|| p.output("R", &size[..1], number(style, r)));
    p.kernel("random", |g| {
        let tile = |r: &mut Random| r.pick(&[1, 2, 4, 7, 16, 32, 64]);
        let m = g.grid("m", size[0], tile(r));
        let n = if whole.is_some() { g.whole("n", size[1]) } else { g.grid("n", size[1], tile(r)) };
        let k = g.stream_axis("k", size[2], tile(r));
        let bias = c.load(g, [m, n], number(style, r), r);
        let vector = g.load("v", v, [n]);
        let acc = product(g, [&a, &b], [m, n, k], style, r);
        let row = g.value("row", &[m], number(style, r));
        let monoids = [TileMonoid::Sum, TileMonoid::Max, TileMonoid::Min];
        g.push(Op::Reduce { dst: row, src: acc, axis: n, monoid: monoids[r.below(3)].clone(), acc: None });
        let mut leaves = vec![bias, vector, acc];
        // An empty maximum is infinite, and infinities less infinities are nothing to compare.
        if size[1] > 0 {
            leaves.push(row);
        }
        for _ in 0..1 + r.below(2) {
            let next = g.value("f", &either([m, n], r), number(style, r));
            let expr = expression(r, style, &leaves, [m, n], 3);
            g.push(Op::Map { dst: next, expr });
            leaves.push(next);
        }
        if let Some(result) = whole {
            g.store(result, [m], row);
        }
        g.store(o, [m, n], leaves[leaves.len() - 1]);
        g.store(t, [n, m], acc);
    });
    let mut program = p.finish().unwrap_or_else(|d| panic!("{d:?}"));
    visit_otherwise(&mut program.kernels[0], r);
    program
}

/// The points of the grid in a random order, by random blocks.
fn visit_otherwise(kernel: &mut Kernel, r: &mut Random) {
    if r.coin() {
        kernel.grid.reverse();
    }
    if r.coin() {
        let side = |&a: &AxisId| (a, (r.pick(&[1, 2, 3, 5]) * kernel.axis(a).tile).min(kernel.axis(a).extent).max(1));
        let sides = kernel.grid.iter().map(side).collect();
        kernel.blocks = vec![Block { memory: "L3".to_string(), sides }];
    }
}

/// `Σ_k A·B`, streamed, with an accumulator that starts at 1/2, changes now and then on the way, and may leave out the
/// chunks beyond a diagonal.
fn product(
    g: &mut KernelBuilder<'_>,
    factors: [&Matrix; 2],
    axes: [AxisId; 3],
    style: Style,
    r: &mut Random,
) -> ValueId {
    let [m, n, k] = axes;
    let integers = style == Style::Exact && r.below(3) == 0;
    let dtype = match style {
        Style::Exact if integers => DType::I32,
        Style::Exact => r.pick(&[DType::F32, DType::F64]),
        Style::Smooth => DType::F32,
    };
    let sides = either([m, n], r);
    let causal = Predicate { all: vec![Affine { terms: vec![(1, m), (-1, k)], constant: 2 }] };
    let within = if r.coin() { causal } else { Predicate::always() };
    let state = carry("acc", sides, 0.5).typed(dtype);
    let [acc] = g.stream(k, within, [state], |g, [acc]| {
        let factor =
            |r: &mut Random| if integers { r.pick(&[DType::I32, DType::I8, DType::I16]) } else { number(style, r) };
        let (a, b) = (factor(r), factor(r));
        let (a, b) = (factors[0].load(g, [m, k], a, r), factors[1].load(g, [k, n], b, r));
        let start = if r.coin() {
            acc
        } else {
            let start = g.value("start", &sides, dtype);
            g.push(Op::Map { dst: start, expr: Scalar::from(acc) + 1.0 });
            start
        };
        let next = g.value("next", &sides, dtype);
        let (a, b) = if r.coin() { (a, b) } else { (b, a) };
        g.push(Op::Mma { dst: next, a, b, acc: Some(start) });
        [next]
    });
    acc
}

fn number(style: Style, r: &mut Random) -> DType {
    use DType::{Bf16, E5m2, F16, F32, F64, I8, I32, Tf32};
    match style {
        Style::Exact => r.pick(&[F32, F32, F64, Bf16, F16, Tf32, E5m2, I32, I8]),
        Style::Smooth => F32,
    }
}

fn either(axes: [AxisId; 2], r: &mut Random) -> [AxisId; 2] {
    if r.coin() { axes } else { [axes[1], axes[0]] }
}

/// A tensor with two dimensions, in one order or the other.
struct Matrix {
    tensor: TensorId,
    swapped: bool,
}

impl Matrix {
    fn new(p: &mut Builder, name: &str, dims: [usize; 2], style: Style, r: &mut Random) -> Self {
        let swapped = r.coin();
        let dims = if swapped { [dims[1], dims[0]] } else { dims };
        Self { tensor: p.input(name, &dims, number(style, r)), swapped }
    }

    fn load(&self, g: &mut KernelBuilder<'_>, axes: [AxisId; 2], dtype: DType, r: &mut Random) -> ValueId {
        let dst = g.value("tile", &either(axes, r), dtype);
        let at = if self.swapped { [axes[1], axes[0]] } else { axes };
        g.push(Op::Load { dst, tensor: self.tensor, at: at.map(Coord::axis).to_vec(), fill: None });
        dst
    }
}

fn expression(r: &mut Random, style: Style, leaves: &[ValueId], axes: [AxisId; 2], depth: usize) -> Scalar {
    let leaf = |r: &mut Random| match r.below(8) {
        0 => Scalar::Const(r.pick(&[0.5, -1.0, 2.0, 0.0])),
        1 => Scalar::Position(r.pick(&axes)),
        _ => Scalar::Tile(r.pick(leaves)),
    };
    if depth == 0 {
        return leaf(r);
    }
    let within = |r: &mut Random| {
        let (c, d, e) = (r.pick(&[1, -1, 2]), r.pick(&[1, -1]), r.below(20) as i64 - 8);
        Scalar::Within(Predicate { all: vec![Affine { terms: vec![(c, axes[0]), (d, axes[1])], constant: e }] })
    };
    let again = |r: &mut Random| Box::new(expression(r, style, leaves, axes, depth - 1));
    match r.below(8) {
        0 => Scalar::Select(Box::new(within(r)), again(r), again(r)),
        1 => {
            // Compared exactly: leaves only.
            let op = r.pick(&[BinaryOp::Lt, BinaryOp::Le, BinaryOp::Gt, BinaryOp::Ge, BinaryOp::Eq, BinaryOp::Ne]);
            let test = Scalar::Binary(op, Box::new(leaf(r)), Box::new(leaf(r)));
            let both = r.pick(&[BinaryOp::And, BinaryOp::Or]);
            let test = Scalar::Binary(both, Box::new(test), Box::new(within(r)));
            Scalar::Select(Box::new(test), again(r), again(r))
        }
        2 if style == Style::Smooth => {
            let op = r.pick(&[
                UnaryOp::Exp,
                UnaryOp::Exp2,
                UnaryOp::Tanh,
                UnaryOp::Sigmoid,
                UnaryOp::Silu,
                UnaryOp::Erf,
                UnaryOp::Gelu,
                UnaryOp::Sin,
                UnaryOp::Cos,
            ]);
            // Bounded, so that exponentials of exponentials stay finite.
            Scalar::Unary(op, Box::new(Scalar::Unary(UnaryOp::Tanh, again(r))))
        }
        3 if style == Style::Smooth => {
            let positive = Scalar::Binary(
                BinaryOp::Add,
                Box::new(Scalar::Unary(UnaryOp::Abs, again(r))),
                Box::new(Scalar::Const(0.5)),
            );
            let op = r.pick(&[UnaryOp::Log, UnaryOp::Log2, UnaryOp::Log1p, UnaryOp::Sqrt, UnaryOp::Rsqrt]);
            Scalar::Unary(op, Box::new(positive))
        }
        4 => Scalar::Unary(r.pick(&[UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Relu]), again(r)),
        5 => Scalar::Binary(r.pick(&[BinaryOp::Min, BinaryOp::Max]), again(r), again(r)),
        6 => {
            let by = Scalar::Const(r.pick(&[0.5, 2.0, -1.0, 1.0]));
            Scalar::Binary(r.pick(&[BinaryOp::Mul, BinaryOp::Div]), again(r), Box::new(by))
        }
        _ => Scalar::Binary(r.pick(&[BinaryOp::Add, BinaryOp::Sub]), again(r), again(r)),
    }
}
