//! Elements picked from tiles: along either axis, by data, and from the states of a stream.

use super::{Case, case};
use einloom_cascade::DType::{self, Bf16, F32, F64, I32};
use einloom_tile::{Builder, Coord, Defect, Op, Predicate, Program, Scalar, TileMonoid, carry, carry_from, select};

/// Sizes that divide nothing, rows of one element, and one that a warp has as a whole.
pub fn picks() -> Vec<Case> {
    let mut out = vec![];
    for (rows, cols) in [(5, 70), (64, 32), (1, 300), (37, 1)] {
        for dtype in [F32, F64, Bf16, I32] {
            out.push(case(format!("picks {rows}x{cols} {dtype}"), along_both(rows, cols, dtype)));
        }
        out.push(case(format!("picks from states {rows}x{cols}"), states(rows, cols)));
    }
    out.push(case("picks multiplied", multiplied()));
    out
}

fn along_both(rows: usize, cols: usize, dtype: DType) -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("picks");
    let (x, ids) = (p.input("X", &[rows, cols], dtype), p.input("I", &[rows], I32));
    let outs: Vec<_> = (0..7).map(|k| p.output(format!("Y{k}"), &[rows, cols], dtype)).collect();
    let z = p.output("Z", &[cols], dtype);
    p.kernel("picks", |g| {
        let (i, j) = (g.whole("i", rows), g.whole("j", cols));
        let tile = g.value("x", &[i, j], dtype);
        g.push(Op::Load { dst: tile, tensor: x, at: vec![i.into(), j.into()], fill: None });
        let ids = g.load("ids", ids, [i]);
        let last = cols as i64 - 1;
        let least = if dtype.is_float() { f64::NEG_INFINITY } else { f64::from(i32::MIN) };
        let picked = [
            g.pick("left", &[i, j], tile, j, j - 1, 9.0),
            g.pick("right", &[j, i], tile, j, j + 3, -1.0),
            g.pick("turned", &[i, j], tile, j, j * -1 + last, 0.0),
            g.pick("up", &[i, j], tile, i, i - 1, least),
            g.pick("skewed", &[i, j], tile, i, i + j - 2, 0.0),
            g.pick("half", &[i, j], tile, j, Coord::from(j).div_floor(2), 0.0),
            g.pick("chosen", &[i, j], tile, j, Coord::gather(ids) + Coord::from(j - 1), 2.0),
        ];
        picked.into_iter().zip(&outs).for_each(|(tile, &y)| g.store(y, [i, j], tile));
        let first = g.pick("first", &[j], tile, i, 0, 0.0);
        g.store(z, [j], first);
    });
    p.finish()
}

/// Neighbours of a state, and the maximum of what they make.
fn states(rows: usize, cols: usize) -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("states");
    let (x, y) = (p.input("X", &[rows, cols], F32), p.output("Y", &[rows, cols], F32));
    let z = p.output("Z", &[rows], F32);
    p.kernel("states", |g| {
        let (i, j, t) = (g.grid("i", rows, 8), g.whole("j", cols), g.stream_axis("t", 5, 1));
        let start = g.load("x", x, [i, j]);
        let states = [carry_from("H", start), carry("M", [i], 0.0)];
        let [h, m] = g.stream(t, Predicate::always(), states, |g, [h, m]| {
            let (left, right) = (g.pick("left", &[i, j], h, j, j - 1, 0.0), g.pick("right", &[i, j], h, j, j + 1, 0.0));
            let inside = select(Scalar::from(j).with(einloom_cascade::BinaryOp::Ge, 1.0), left, 0.5);
            let next = g.map("next", (inside + right) * 0.25 + h * 0.5);
            [next, g.reduce_onto("most", TileMonoid::Max, m, next, j)]
        });
        g.store(y, [i, j], h);
        g.store(z, [i], m);
    });
    p.finish()
}

/// A state under another name is a factor: `H = A · H + X`.
fn multiplied() -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("multiplied");
    let (a, x) = (p.input("A", &[40, 40], F32), p.input("X", &[6, 40], F32));
    let y = p.output("Y", &[6, 40], F32);
    p.kernel("multiplied", |g| {
        let (i, j, t) = (g.whole("i", 40), g.whole("j", 40), g.stream_axis("t", 6, 1));
        let a = g.load("a", a, [i, j]);
        g.stream(t, Predicate::always(), [carry("H", [i], 0.0)], |g, [h]| {
            let named = g.pick("named", &[j], h, i, j, f64::NEG_INFINITY);
            let sum = g.mma("sum", a, named);
            let x = g.load("x", x, [t, i]);
            let next = g.map("next", sum * 0.1 + x);
            g.store(y, [t, i], next);
            [next]
        });
    });
    p.finish()
}
