//! A program in which every read is off by itself.

use einloom_cascade::meaning::{Array, Arrays};
use einloom_cascade::{BinaryOp, Cascade, DType, Expr, ExprKind, Role, Span, Tensor, TensorId};

/// The program with a factor beside every read of a floating-point tensor, and the values of the factors: 1. Moving an
/// input now moves each place that reads it by itself.
pub fn in_reads(cascade: &Cascade) -> (Cascade, Arrays) {
    let mut out = cascade.clone();
    let mut factors = Arrays::new();
    for k in 0..out.statements.len() {
        let mut value = out.statements[k].value.clone();
        wobble(&mut value, &mut out, &mut factors);
        out.statements[k].value = value;
    }
    (out, factors)
}

fn wobble(expr: &mut Expr, cascade: &mut Cascade, factors: &mut Arrays) {
    match &mut expr.kind {
        ExprKind::Read { tensor, .. } if cascade[*tensor].dtype.is_none_or(DType::is_float) => {
            let read = expr.clone();
            let factor = Expr::new(ExprKind::Read { tensor: factor(cascade, factors), at: vec![] }, expr.span);
            expr.kind = ExprKind::Binary(BinaryOp::Mul, Box::new(read), Box::new(factor));
        }
        ExprKind::Unary(_, x) => wobble(x, cascade, factors),
        ExprKind::Binary(_, a, b) => [a, b].into_iter().for_each(|e| wobble(e, cascade, factors)),
        ExprKind::Select(c, a, b) => [c, a, b].into_iter().for_each(|e| wobble(e, cascade, factors)),
        ExprKind::Reduce { filter, body, .. } => {
            filter.iter_mut().for_each(|e| wobble(e, cascade, factors));
            wobble(body, cascade, factors);
        }
        _ => {}
    }
}

fn factor(cascade: &mut Cascade, factors: &mut Arrays) -> TensorId {
    // No name of the language.
    let name = format!("wobble {}", factors.len());
    factors.insert(name.clone(), Array { shape: vec![], values: vec![1.0] });
    cascade.tensors.push(Tensor {
        name,
        role: Role::Input,
        ranks: vec![],
        extents: vec![],
        dtype: Some(DType::F64),
        iterative: None,
        span: Span::default(),
    });
    TensorId(cascade.tensors.len() as u32 - 1)
}
