//! How much rounding matters: the meaning of a program whose every operation is off by a little.
//!
//! Rounding errors of a long computation cannot be told from its inputs alone. So the program is rewritten: whatever an
//! operation gives is multiplied by a number near 1, which is an input of the rewritten program. Evaluating that a few
//! times with random numbers near 1 shows how far any way to compute in this precision may be from the exact result
//! (Monte Carlo arithmetic; D. Stott Parker, UCLA CSD-970002, 1997).

use crate::Error;
use crate::compare::distance;
use crate::random::Random;
use einloom_cascade::meaning::{self, Array, Arrays};
use einloom_cascade::{
    BinaryOp, Bound, Cascade, DType, Expr, ExprKind, IndexExpr, Kind, Monoid, Role, SizeExpr, Tensor, TensorId, UnaryOp,
};

/// Evaluations; each is off in its own way.
const ROUNDS: usize = 6;

/// How far an output of the meaning moves.
#[derive(Clone, Debug, Default)]
pub struct Moved {
    /// In its rows' scale, twice the largest of a few random moves, of the elements that every move leaves finite or not as they are.
    pub most: f64,
    /// The others, by their places.
    pub undetermined: Vec<usize>,
}

/// How far an output of the meaning moves, in its rows' scale, when every operation and every floating-point input is
/// off by up to `step` relatively: twice the largest of a few random moves. Infinite where a move changes which
/// elements are finite.
///
/// # Errors
/// Those of the meaning.
pub fn sensitivity(
    cascade: &Cascade,
    bound: &Bound,
    inputs: &Arrays,
    output: TensorId,
    step: f64,
    seed: u64,
) -> Result<f64, Error> {
    let moved = moved(cascade, bound, inputs, output, step, seed)?;
    Ok(if moved.undetermined.is_empty() { moved.most } else { f64::INFINITY })
}

/// The same with the elements told apart that a move makes finite or takes it from.
///
/// # Errors
/// Those of the meaning.
pub fn moved(
    cascade: &Cascade,
    bound: &Bound,
    inputs: &Arrays,
    output: TensorId,
    step: f64,
    seed: u64,
) -> Result<Moved, Error> {
    let (noisy, noises) = with_noise(cascade);
    let name = &cascade[output].name;
    let mut random = Random::new(seed, "sensitivity");
    let mut value = |amplitude: f64| -> Result<Array, Error> {
        let mut moved = inputs.clone();
        let mut near_one = || 1.0 + amplitude * (2.0 * random.unit() - 1.0);
        for (name, array) in &mut moved {
            if cascade.tensor(name).is_some_and(|t| cascade[t].dtype.is_none_or(DType::is_float)) {
                array.values.iter_mut().for_each(|v| *v *= near_one());
            }
        }
        for &noise in &noises {
            let shape = bound.shape(&noisy, noise);
            let values = (0..shape.iter().product()).map(|_| near_one()).collect();
            moved.insert(noisy[noise].name.clone(), Array { shape, values });
        }
        Ok(meaning::evaluate(&noisy, bound, &moved)?.remove(name).unwrap_or_default())
    };
    let here = value(0.0)?;
    let row = here.shape.last().copied().unwrap_or(1);
    let mut moves = (0..ROUNDS).map(|_| value(step)).collect::<Result<Vec<_>, _>>()?;
    let as_it_is = |a: f64, b: f64| a.is_finite() && b.is_finite() || a == b || a.is_nan() && b.is_nan();
    let determined = |&at: &usize| moves.iter().all(|m| as_it_is(m.values[at], here.values[at]));
    let undetermined: Vec<usize> = (0..here.values.len()).filter(|at| !determined(at)).collect();
    let mut most = 0.0f64;
    for there in &mut moves {
        undetermined.iter().for_each(|&at| there.values[at] = here.values[at]);
        most = most.max(distance(&there.values, &here.values, row, 0.0).scaled);
    }
    Ok(Moved { most: 2.0 * most, undetermined })
}

/// The same program with a factor after every operation that rounds, and the inputs that hold the factors.
fn with_noise(cascade: &Cascade) -> (Cascade, Vec<TensorId>) {
    let mut noisy = Noisy { cascade: cascade.clone(), noises: vec![] };
    for tensor in &mut noisy.cascade.tensors {
        // Inputs that were moved must not be rounded back.
        if tensor.role == Role::Input && tensor.dtype.is_some_and(DType::is_float) {
            tensor.dtype = Some(DType::F64);
        }
    }
    for (k, statement) in cascade.statements.iter().enumerate() {
        let target = &cascade[statement.target];
        let mut value = noisy.inside(&statement.value);
        if target.dtype.is_none_or(DType::is_float) && cascade.kind(&statement.value) == Kind::Real {
            let noise = noisy.input(target.ranks.clone(), target.extents.clone());
            value = times(value, noise, statement.at.clone());
        }
        noisy.cascade.statements[k].value = value;
    }
    (noisy.cascade, noisy.noises)
}

struct Noisy {
    cascade: Cascade,
    noises: Vec<TensorId>,
}

impl Noisy {
    fn input(&mut self, ranks: Vec<einloom_cascade::RankId>, extents: Vec<SizeExpr>) -> TensorId {
        let id = TensorId(self.cascade.tensors.len() as u32);
        self.cascade.tensors.push(Tensor {
            // No name of the language.
            name: format!("noise {}", self.noises.len()),
            role: Role::Input,
            ranks,
            extents,
            dtype: Some(DType::F64),
            iterative: None,
            span: Default::default(),
        });
        self.noises.push(id);
        id
    }

    /// The expression with factors after its operations.
    fn inside(&mut self, expr: &Expr) -> Expr {
        let again = |kind| Expr::new(kind, expr.span);
        if let ExprKind::Unary(UnaryOp::Gelu, x) = &expr.kind {
            return self.inside(&written_out(x));
        }
        let (out, rounds) = match &expr.kind {
            ExprKind::Unary(op, x) => {
                let exact = matches!(
                    op,
                    UnaryOp::Neg
                        | UnaryOp::Not
                        | UnaryOp::Abs
                        | UnaryOp::Sign
                        | UnaryOp::Relu
                        | UnaryOp::Floor
                        | UnaryOp::Round
                );
                (again(ExprKind::Unary(*op, Box::new(self.inside(x)))), !exact)
            }
            ExprKind::Binary(op, a, b) => {
                let exact = op.is_predicate() || matches!(op, BinaryOp::Min | BinaryOp::Max);
                (again(ExprKind::Binary(*op, Box::new(self.inside(a)), Box::new(self.inside(b)))), !exact)
            }
            ExprKind::Select(c, a, b) => {
                let (a, b) = (Box::new(self.inside(a)), Box::new(self.inside(b)));
                (again(ExprKind::Select(c.clone(), a, b)), false)
            }
            ExprKind::Reduce { monoid, over, filter, body } => {
                let exact = matches!(monoid, Monoid::Max | Monoid::Min | Monoid::ArgMax | Monoid::ArgMin);
                let body = Box::new(self.inside(body));
                (again(ExprKind::Reduce { monoid: *monoid, over: over.clone(), filter: filter.clone(), body }), !exact)
            }
            _ => (expr.clone(), false),
        };
        if rounds && self.cascade.kind(expr) == Kind::Real {
            let noise = self.input(vec![], vec![]);
            times(out, noise, vec![])
        } else {
            out
        }
    }
}

/// `gelu(x)` in the operations of which it is made: far below 0 they cancel, and its error is one of `x` there.
fn written_out(x: &Expr) -> Expr {
    let new = |kind| Expr::new(kind, x.span);
    let number = |v| new(ExprKind::Number(v));
    let binary = |op, a, b| new(ExprKind::Binary(op, Box::new(a), Box::new(b)));
    let inner = binary(BinaryOp::Mul, x.clone(), number(std::f64::consts::FRAC_1_SQRT_2));
    let erf = new(ExprKind::Unary(UnaryOp::Erf, Box::new(inner)));
    let half = binary(BinaryOp::Mul, number(0.5), x.clone());
    binary(BinaryOp::Mul, half, binary(BinaryOp::Add, number(1.0), erf))
}

fn times(value: Expr, noise: TensorId, at: Vec<IndexExpr>) -> Expr {
    let span = value.span;
    let factor = Expr::new(ExprKind::Read { tensor: noise, at }, span);
    Expr::new(ExprKind::Binary(BinaryOp::Mul, Box::new(value), Box::new(factor)), span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use einloom_cascade::{Given, bind};

    fn moves(text: &str, values: &[f64]) -> f64 {
        let cascade = einloom_cascade::parse(text).cascade;
        let given = Given { shapes: [("X".to_string(), vec![values.len()])].into(), ..Given::default() };
        let bound = bind(&cascade, &given).unwrap();
        let inputs = [("X".to_string(), Array { shape: vec![values.len()], values: values.to_vec() })].into();
        sensitivity(&cascade, &bound, &inputs, cascade.outputs[0], 1e-6, 0).unwrap()
    }

    #[test]
    fn a_product_moves_as_its_factors_do() {
        let moved = moves("input X[m]: f32\noutput Y: f32\nY[m] = X[m] * X[m]", &[1.0, 2.0]);
        assert!(moved > 1e-7 && moved < 2e-5, "{moved}");
    }

    #[test]
    fn a_difference_that_cancels_moves_a_lot() {
        let moved = moves("input X[m]: f32\noutput Y: f32\nY[m] = log(1 + X[m])", &[1e-6]);
        assert!(moved > 0.1, "{moved}");
    }

    #[test]
    fn a_gelu_far_below_0_moves_as_its_argument_does() {
        let moved = |x| moves("input X[m]: f32\noutput Y: f32\nY[m] = gelu(X[m])", &[x]);
        assert!(moved(-6.0) > 0.1 && moved(2.0) < 2e-5, "{} {}", moved(-6.0), moved(2.0));
    }

    #[test]
    fn what_is_exact_does_not_move() {
        assert_eq!(moves("input X[m]: f32\noutput Y: i32\nY = argmax(m) X[m]", &[1.0, 2.0]), 0.0);
    }

    #[test]
    fn only_what_is_finite_by_rounding_is_excused() {
        // exp(709.7827) is near the largest f64; the others are not moved beyond it or from it.
        let text = "input X[n]: f64\noutput Y: f64\nY[n] = exp(X[n])\n";
        let cascade = einloom_cascade::parse(text).cascade;
        let values = vec![1.0, 709.782_712, 2000.0, 3.0];
        let inputs: Arrays = [("X".to_string(), Array { shape: vec![4], values })].into();
        let given = einloom_cascade::Given { sizes: [("N".to_string(), 4)].into(), ..Default::default() };
        let bound = einloom_cascade::bind(&cascade, &given).unwrap();
        let moved = super::moved(&cascade, &bound, &inputs, cascade.outputs[0], 1e-6, 0).unwrap();
        assert_eq!(moved.undetermined, [1]);
        assert!(moved.most > 0.0 && moved.most < 1e-4, "{}", moved.most);
        assert_eq!(sensitivity(&cascade, &bound, &inputs, cascade.outputs[0], 1e-6, 0).unwrap(), f64::INFINITY);
    }
}
