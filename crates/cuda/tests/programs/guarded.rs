//! Products under conditions that leave chunks out: by positions, and by elements of a tensor.

use super::{Case, case};
use einloom_cascade::{BinaryOp, DType, UnaryOp};
use einloom_tile::{
    Builder, Coord, Defect, Extremes, Guard, Op, Predicate, Program, Scalar, TensorId, ValueId, carry, select,
};

/// The sizes and the tiles of `Y[m, e] = Σ_n where(condition, A[m, n], 0) · B[n, e]`.
#[derive(Clone, Copy)]
struct Sizes {
    m: usize,
    n: usize,
    e: usize,
    tiles: [usize; 2],
}

/// The 16th part, rounded down.
fn part(x: Scalar) -> Scalar {
    Scalar::Unary(UnaryOp::Floor, Box::new(x * 0.0625))
}

/// A condition of the positions along `m` and `n` and of the element `x`.
type Condition = dyn Fn(Scalar, Scalar, Scalar) -> Scalar;

/// The cases: conditions that hold in a band, in two places, as data says, and nowhere.
pub fn guarded() -> Vec<Case> {
    let mut out = vec![];
    let sizes = [
        Sizes { m: 64, n: 256, e: 32, tiles: [32, 16] },
        Sizes { m: 70, n: 205, e: 24, tiles: [64, 32] },
        Sizes { m: 128, n: 320, e: 64, tiles: [64, 64] },
    ];
    for s in sizes {
        let conditions: [(&str, &Condition); 4] = [
            ("band", &|m, n, _| (part(m) - part(n)).apply(UnaryOp::Abs).with(BinaryOp::Le, 1.0)),
            ("two places", &|m, n, _| {
                n.clone().with(BinaryOp::Lt, 20.0).with(BinaryOp::Or, n.with(BinaryOp::Ge, m + 100.0))
            }),
            ("data", &|_, n, x| n.with(BinaryOp::Lt, x * 90.0 + 3.0)),
            ("nowhere", &|m, n, _| n.with(BinaryOp::Gt, m + 1000.0)),
        ];
        for (name, condition) in conditions {
            let name = format!("guarded {name} m {} n {} e {}", s.m, s.n, s.e);
            out.push(case(name, product(s, condition)));
        }
    }
    out
}

fn product(s: Sizes, condition: &Condition) -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("guarded");
    let a = p.input("A", &[3, s.m, s.n], DType::Bf16);
    let b = p.input("B", &[3, s.n, s.e], DType::Bf16);
    let x = p.input("x", &[3], DType::I32);
    let y = p.output("Y", &[3, s.m, s.e], DType::F32);
    let mut test = None;
    p.kernel("guarded", |g| {
        let (h, m) = (g.grid("h", 3, 1), g.grid("m", s.m, s.tiles[0]));
        let (n, e) = (g.stream_axis("n", s.n, s.tiles[1]), g.whole("e", s.e));
        let x = g.load("x", x, [h]);
        let holds = condition(Scalar::Position(m), Scalar::Position(n), Scalar::Tile(x));
        test = Some((holds.clone(), x, Coord::axis(h)));
        let [acc] = g.stream(n, Predicate::always(), [carry("acc", [m, e], 0.0)], |g, [acc]| {
            let a = g.load("a", a, [h, m, n]);
            let kept = g.map("kept", select(holds, a, 0.0).round_to(DType::Bf16));
            let b = g.load("b", b, [h, n, e]);
            [g.mma_onto("sum", acc, kept, b)]
        });
        g.store(y, [h, m, e], acc);
    });
    let mut program = p.finish()?;
    let Some((holds, tile, at)) = test else { return Ok(program) };
    let element =
        Extremes { of: TensorId(2), at: vec![at.clone()], low: TensorId(2), high: TensorId(2), places: vec![at] };
    let kernel = program.kernels[0].clone();
    let guard = guard(&holds, tile, &element).rounded(|_| DType::I32, &kernel).expect("followed over intervals");
    for op in &mut program.kernels[0].body {
        if let Op::Stream { guards, .. } = op {
            guards.push(guard.clone());
        }
    }
    match einloom_tile::verify(&program) {
        defects if defects.is_empty() => Ok(program),
        defects => Err(defects),
    }
}

/// A condition as a guard, `tile` being the one element.
fn guard(x: &Scalar, tile: ValueId, element: &Extremes) -> Guard {
    let of = |x: &Scalar| Box::new(guard(x, tile, element));
    match x {
        Scalar::Const(c) => Guard::Const(*c),
        Scalar::Position(a) => Guard::Position(*a),
        Scalar::Tile(v) if *v == tile => Guard::Element(element.clone()),
        Scalar::Unary(op, x) => Guard::Unary(*op, of(x)),
        Scalar::Binary(op, x, y) => Guard::Binary(*op, of(x), of(y)),
        other => panic!("{other:?} is in none of the conditions"),
    }
}
