//! Guards against every element: what intervals tell of a chunk is true of each position in it.

use einloom_cascade::{BinaryOp, DType, UnaryOp};
use einloom_tile::*;

/// A grid axis `m` of 40 by 8, a stream axis `n` of 50 by 6; integers `x[n]`, with the extremes of each 6.
const M: AxisId = AxisId(0);
const N: AxisId = AxisId(1);
const TILE: usize = 6;

fn kernel() -> Kernel {
    let axis = |name: &str, extent, tile, kind| Axis { name: name.into(), extent, tile, kind };
    let axes = vec![axis("m", 40, 8, AxisKind::Grid), axis("n", 50, TILE, AxisKind::Stream)];
    Kernel { axes, grid: vec![M], ..Kernel::default() }
}

fn x_of(n: usize) -> f64 {
    ((n / 5) as f64 - 3.0) * if n > 30 { -2.0 } else { 1.0 }
}

fn element() -> Guard {
    let (at, tile) = (Coord::axis(N), TILE as i64);
    let place = Coord { terms: vec![(1, CoordAtom::Floor(Box::new(at.clone()), tile))], offset: 0 };
    Guard::Element(Extremes { of: TensorId(0), at: vec![at], low: TensorId(1), high: TensorId(2), places: vec![place] })
}

fn extremes(e: &Extremes, windows: &[Window]) -> Interval {
    let block = first_position(&e.places[0], windows).expect("no gather") as usize;
    let all: Vec<f64> = (block * TILE..(block * TILE + TILE).min(50)).map(x_of).collect();
    Interval { low: all.iter().copied().fold(f64::MAX, f64::min), high: all.iter().copied().fold(f64::MIN, f64::max) }
}

/// Numbers from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) as usize % sides
    }

    fn number(&mut self, depth: usize) -> Guard {
        const CONSTANTS: [f64; 9] = [0.0, 1.0, -2.0, 6.0, 13.0, 0.125, 3.0, 0.1, 0.3333333];
        let leaf = depth == 0;
        match self.roll(if leaf { 4 } else { 12 }) {
            0 => Guard::Const(CONSTANTS[self.roll(CONSTANTS.len())]),
            1 => Guard::Position(M),
            2 => Guard::Position(N),
            3 => element(),
            4 | 5 => {
                let ops = [UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Floor, UnaryOp::Floor, UnaryOp::Round, UnaryOp::Sign];
                let op = ops[self.roll(ops.len())];
                Guard::Unary(op, Box::new(self.number(depth - 1)))
            }
            6 => {
                let by = [3.0, 4.0, 7.0, -10.0][self.roll(4)];
                Guard::Binary(BinaryOp::Div, Box::new(self.number(depth - 1)), Box::new(Guard::Const(by)))
            }
            7 => {
                let (c, x, y) = (self.condition(depth - 1), self.number(depth - 1), self.number(depth - 1));
                Guard::Select(Box::new(c), Box::new(x), Box::new(y))
            }
            _ => {
                let ops = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Min, BinaryOp::Max];
                let (op, x, y) = (ops[self.roll(5)], self.number(depth - 1), self.number(depth - 1));
                Guard::Binary(op, Box::new(x), Box::new(y))
            }
        }
    }

    fn condition(&mut self, depth: usize) -> Guard {
        match self.roll(if depth == 0 { 4 } else { 7 }) {
            0 => {
                let terms = vec![(1, M), (-1, N)];
                Guard::Within(Predicate { all: vec![Affine { terms, constant: self.roll(20) as i64 - 10 }] })
            }
            4 => Guard::Unary(UnaryOp::Not, Box::new(self.condition(depth - 1))),
            5 | 6 => {
                let op = [BinaryOp::And, BinaryOp::Or][self.roll(2)];
                let (x, y) = (self.condition(depth - 1), self.condition(depth - 1));
                Guard::Binary(op, Box::new(x), Box::new(y))
            }
            _ => {
                use BinaryOp::{Eq, Ge, Gt, Le, Lt, Ne};
                let op = [Lt, Le, Gt, Ge, Eq, Ne][self.roll(6)];
                let (x, y) = (self.number(depth), self.number(depth));
                Guard::Binary(op, Box::new(x), Box::new(y))
            }
        }
    }
}

/// The value at an element as a backend may compute it: in f32 or f64, quotients perhaps by the inverse.
fn value(g: &Guard, (m, n): (usize, usize), (wide, inverse): (bool, bool)) -> f64 {
    let of = |g: &Guard| value(g, (m, n), (wide, inverse));
    let fl = |x: f64| if wide { x } else { f64::from(x as f32) };
    match g {
        Guard::Const(x) => fl(*x),
        Guard::Position(a) => [m, n][a.at()] as f64,
        Guard::Within(p) => {
            let at = |a: &Affine| a.constant + a.terms.iter().map(|t| t.0 * [m, n][t.1.at()] as i64).sum::<i64>();
            f64::from(u8::from(p.all.iter().all(|a| at(a) >= 0)))
        }
        Guard::Element(_) => x_of(n),
        Guard::Around(x) => of(x),
        Guard::Unary(op, x) => fl(op.apply(of(x))),
        Guard::Binary(BinaryOp::Div, x, y) if inverse => fl(of(x) * fl(1.0 / of(y))),
        Guard::Binary(op, x, y) => fl(op.apply(of(x), of(y))),
        Guard::Select(c, x, y) => of(if of(c) != 0.0 { x } else { y }),
    }
}

#[test]
fn what_intervals_tell_is_true_of_every_element() {
    let kernel = kernel();
    let (mut told, mut dice) = ([0; 3], Dice(7));
    for round in 0..4000 {
        let depth = dice.roll(4);
        // The number type of an element's tensor decides whether all is computed in f64.
        let dtype = [DType::I8, DType::I32][round % 2];
        let Ok(guard) = dice.condition(depth).rounded(|_| dtype, &kernel) else { continue };
        let mut wide = false;
        guard.visit(&mut |g| wide |= matches!(g, Guard::Element(_)) && dtype == DType::I32);
        for point in 0..grid_points(&kernel) {
            let mut windows = initial_windows(&kernel);
            set_grid_point(&kernel, point, &mut windows);
            for chunk in chunks(&kernel, N, &Predicate::always(), &windows.clone()) {
                windows[N.at()] = chunk;
                let found = verdict(std::slice::from_ref(&guard), &windows, &|e| extremes(e, &windows));
                told[found as usize] += 1;
                let (w, v) = (windows[0], windows[1]);
                for m in w.base..w.base + w.len {
                    for n in v.base..v.base + v.len {
                        for inverse in [false, true] {
                            let holds = value(&guard, (m, n), (wide, inverse)) != 0.0;
                            let right = match found {
                                Coverage::Full => holds,
                                Coverage::Partial => true,
                                Coverage::Empty => !holds,
                            };
                            assert!(right, "{found:?} at {m}, {n}: {guard:?}");
                        }
                    }
                }
            }
        }
    }
    assert!(told.iter().all(|&n| n > 10_000), "all three answers are met: {told:?}");
}

/// What a guard is once roundings are allowed for, or why there is none.
fn rounded(guard: Guard, dtype: DType) -> String {
    let mut program = Program::default();
    for name in ["x", "low", "high"] {
        let role = TensorRole::Input;
        program.tensors.push(TensorDecl { name: name.into(), dims: vec![50], shape: None, dtype, role, layout: None });
    }
    match guard.rounded(|_| dtype, &kernel()) {
        Ok(guard) => print_guard(&program, &kernel(), &guard),
        Err(why) => format!("none: {why}"),
    }
}

#[test]
fn roundings_are_allowed_for_where_they_can_be() {
    let c = |x| Box::new(Guard::Const(x));
    let n = || Box::new(Guard::Position(N));
    let binary = |op, x, y| Guard::Binary(op, x, y);
    let below = |x: Guard| binary(BinaryOp::Lt, Box::new(x), c(3.0));
    let floor = |x: Guard| below(Guard::Unary(UnaryOp::Floor, Box::new(x)));
    let said = [
        rounded(floor(binary(BinaryOp::Div, n(), c(4.0))), DType::I32),
        rounded(floor(binary(BinaryOp::Mul, n(), c(0.25))), DType::I32),
        rounded(floor(binary(BinaryOp::Div, n(), c(3.0))), DType::I32),
        rounded(below(binary(BinaryOp::Mul, n(), c(0.1))), DType::I32),
        rounded(below(binary(BinaryOp::Add, Box::new(element()), n())), DType::I8),
        rounded(below(binary(BinaryOp::Mul, Box::new(element()), Box::new(element()))), DType::I32),
        rounded(below(element()), DType::F32),
        rounded(below(binary(BinaryOp::Div, n(), n())), DType::I32),
        rounded(below(Guard::Unary(UnaryOp::Exp, n())), DType::I32),
        rounded(below(binary(BinaryOp::Pow, n(), c(2.0))), DType::I32),
        rounded(below(binary(BinaryOp::Mul, n(), c(1e-30))), DType::I32),
    ];
    let expected = "\
floor(n / 4) < 3
floor(n * 0.25) < 3
floor(about(n / 3)) < 3
about(n * 0.1) < 3
x[n:6] + n < 3
about(x[n:6] * x[n:6]) < 3
none: elements of f32 are no integers of whole bytes
none: a divisor varies
none: exp is not followed over intervals
none: powers are not followed over intervals
none: 0.000000000000000000000000000001 is no number to count with";
    assert_eq!(said.join("\n"), expected);
}

#[test]
fn guards_leave_chunks_out_of_a_stream() {
    let kernel = kernel();
    let mut windows = initial_windows(&kernel);
    set_grid_point(&kernel, 2, &mut windows);
    // Queries 16 to 23 by the 8th part, keys by the 8th part, no more than one apart.
    let part = |a| {
        Guard::Unary(
            UnaryOp::Floor,
            Box::new(Guard::Binary(BinaryOp::Div, Box::new(Guard::Position(a)), Box::new(Guard::Const(8.0)))),
        )
    };
    let apart = Guard::Binary(BinaryOp::Sub, Box::new(part(M)), Box::new(part(N)));
    let near =
        Guard::Binary(BinaryOp::Le, Box::new(Guard::Unary(UnaryOp::Abs, Box::new(apart))), Box::new(Guard::Const(1.0)));
    let list = |guards: &[Guard]| {
        let list = visited(&kernel, (N, &Predicate::always(), guards), &windows, &unknown);
        list.map(|w| w.base).collect::<Vec<_>>()
    };
    assert_eq!(list(&[]), [0, 6, 12, 18, 24, 30, 36, 42, 48]);
    assert_eq!(list(std::slice::from_ref(&near)), [6, 12, 18, 24, 30]);
    let seen = Guard::Binary(BinaryOp::Gt, Box::new(element()), Box::new(Guard::Const(100.0)));
    assert_eq!(list(&[seen]).len(), 9, "what is not known leaves nothing out");
}
