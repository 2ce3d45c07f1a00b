//! Folds constants and what the coverage of predicates decides. Only identities that hold for every value, NaN and
//! infinities included, are used.

use einloom_cascade::numeric::round;
use einloom_cascade::{BinaryOp, DType, UnaryOp};
use einloom_tile::{Coverage, Predicate, Scalar};

/// `expr` with constant parts folded; `wide`: it is computed in f64.
pub(super) fn simplify(expr: &Scalar, wide: bool) -> Scalar {
    fold(expr, wide, &|_| None)
}

/// `expr` where the predicates that `known` knows hold everywhere or nowhere.
pub(super) fn specialise(expr: &Scalar, wide: bool, known: &dyn Fn(&Predicate) -> Option<Coverage>) -> Scalar {
    fold(expr, wide, known)
}

fn fold(expr: &Scalar, wide: bool, known: &dyn Fn(&Predicate) -> Option<Coverage>) -> Scalar {
    let again = |e: &Scalar| fold(e, wide, known);
    let constant = |x: f64| Scalar::Const(if wide { x } else { round(DType::F32, x) });
    match expr {
        Scalar::Const(x) => constant(*x),
        Scalar::Within(p) if p.all.is_empty() => constant(1.0),
        Scalar::Within(p) => match known(p) {
            Some(Coverage::Full) => constant(1.0),
            Some(Coverage::Empty) => constant(0.0),
            Some(Coverage::Partial) | None => expr.clone(),
        },
        Scalar::Tile(_) | Scalar::Position(_) | Scalar::Argument(_) => expr.clone(),
        Scalar::Round(d, x) => match again(x) {
            Scalar::Const(x) => constant(round(*d, x)),
            x if *d == DType::B1 && is_truth(&x) => x,
            // Nothing wider is left to round.
            x if *d == DType::F64 || (*d == DType::F32 && !wide) => x,
            x => Scalar::Round(*d, Box::new(x)),
        },
        Scalar::Unary(op, x) => match again(x) {
            Scalar::Const(x) => constant(op.apply(x)),
            x => Scalar::Unary(*op, Box::new(x)),
        },
        Scalar::Binary(op, x, y) => binary(*op, again(x), again(y), wide),
        Scalar::Select(c, x, y) => match again(c) {
            Scalar::Const(c) => again(if c != 0.0 { x } else { y }),
            Scalar::Unary(UnaryOp::Not, c) => Scalar::Select(c, Box::new(again(y)), Box::new(again(x))),
            c => Scalar::Select(Box::new(c), Box::new(again(x)), Box::new(again(y))),
        },
    }
}

fn binary(op: BinaryOp, x: Scalar, y: Scalar, wide: bool) -> Scalar {
    let constant = |x: f64| Scalar::Const(if wide { x } else { round(DType::F32, x) });
    match (op, &x, &y) {
        (_, Scalar::Const(a), Scalar::Const(b)) => return constant(op.apply(*a, *b)),
        (BinaryOp::Mul, Scalar::Const(1.0), _) => return y,
        (BinaryOp::Mul | BinaryOp::Div | BinaryOp::Pow, _, Scalar::Const(1.0)) => return x,
        (BinaryOp::Sub, _, Scalar::Const(0.0)) => return x,
        (BinaryOp::Div, _, Scalar::Const(c)) if is_power_of_two(*c) => {
            return Scalar::Binary(BinaryOp::Mul, Box::new(x), Box::new(constant(1.0 / c)));
        }
        // A square is exact but for its rounding, as a power is; of a third and a fourth one the square is rounded besides.
        (BinaryOp::Pow, _, Scalar::Const(n @ (2.0 | 3.0 | 4.0))) => {
            let times =
                |x: &Scalar, y: &Scalar| Scalar::Binary(BinaryOp::Mul, Box::new(x.clone()), Box::new(y.clone()));
            let square = times(&x, &x);
            return match n {
                2.0 => square,
                3.0 => times(&square, &x),
                _ => times(&square, &square),
            };
        }
        (BinaryOp::And, Scalar::Const(c), truth) | (BinaryOp::And, truth, Scalar::Const(c)) if is_truth(truth) => {
            return if *c != 0.0 { truth.clone() } else { constant(0.0) };
        }
        (BinaryOp::Or, Scalar::Const(c), truth) | (BinaryOp::Or, truth, Scalar::Const(c)) if is_truth(truth) => {
            return if *c == 0.0 { truth.clone() } else { constant(1.0) };
        }
        _ => {}
    }
    Scalar::Binary(op, Box::new(x), Box::new(y))
}

/// Dividing by it is multiplying by its inverse, exactly, in f32 and in f64.
fn is_power_of_two(c: f64) -> bool {
    c.to_bits() & ((1 << 52) - 1) == 0 && (1e-30..1e30).contains(&c.abs())
}

/// Whether the value is 0 or 1.
fn is_truth(expr: &Scalar) -> bool {
    match expr {
        Scalar::Within(_) => true,
        Scalar::Binary(op, ..) => op.is_predicate(),
        Scalar::Unary(op, _) => *op == UnaryOp::Not,
        _ => false,
    }
}
