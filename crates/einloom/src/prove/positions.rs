//! Positions of extrema of what is no number. Where an element is infinite or a NaN as written, by an infinity in the inputs or because
//! it overflows, the text finds the first such element; a derived form that compares what the element is made of finds the
//! extremum of that.

use einloom_algebra::stream::{Cut, Reals, evaluate_in};
use einloom_algebra::{Def, Graph, NodeId, Reduction, Term};
use einloom_cascade::meaning::Arrays;
use einloom_cascade::{BinaryOp, Bound, Monoid, UnaryOp};

/// For each element of an output that is the position of an extremum whether it is one among elements that are computed and
/// not all finite; `None` for any other output.
pub(super) fn among_no_numbers(graph: &Graph, bound: &Bound, inputs: &Arrays, output: NodeId) -> Option<Vec<bool>> {
    let mut graph = graph.clone();
    let Def::Reduce(r) = &graph[output].def else { return None };
    let computed = !matches!(&r.body, Term::Read(n, _) if graph[*n].def == Def::Input);
    if !matches!(r.monoid, Monoid::ArgMax | Monoid::ArgMin) || !computed {
        return None;
    }
    let magnitude = Term::Unary(UnaryOp::Abs, Box::new(r.body.clone()));
    let finite = Term::Binary(BinaryOp::Lt, Box::new(magnitude), Box::new(Term::Number(f64::INFINITY)));
    let some = Term::Select(Box::new(finite), Box::new(Term::Number(0.0)), Box::new(Term::Number(1.0)));
    let def = Def::Reduce(Reduction { monoid: Monoid::Max, body: some, ..r.clone() });
    let probe = &mut graph.nodes[output.0 as usize];
    (probe.def, probe.dtype) = (def, None);
    graph.outputs = vec![output];
    let reals = Reals { graph: &graph, bound, inputs };
    let (_, values) = evaluate_in(&reals, &graph, bound, Cut::Whole)?.pop()?;
    Some(values.into_iter().map(|v| v > 0.0).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use einloom_cascade::meaning::Array;
    use einloom_cascade::{Given, bind, parse};

    #[test]
    fn rows_with_an_infinity_that_spreads_are_told() {
        for (body, expected) in [
            ("X[m,n] - mean(n) X[m,n]", Some(vec![false, true])),
            // What the caller gives is what it is.
            ("X[m,n]", None),
            ("exp(X[m,n])", Some(vec![false, false])),
        ] {
            let text = format!("input X[m,n]: f64\noutput A: i32\nA[m] = argmax(n) ({body})\n");
            let cascade = parse(&text).cascade;
            let mut given = Given::default();
            given.sizes.extend([("M".to_string(), 2), ("N".to_string(), 2)]);
            let bound = bind(&cascade, &given).expect("binds");
            let x = Array { shape: vec![2, 2], values: vec![1.0, 2.0, f64::NEG_INFINITY, 0.0] };
            let graph = einloom_algebra::flatten(&cascade);
            let found = among_no_numbers(&graph, &bound, &[("X".to_string(), x)].into(), graph.outputs[0]);
            assert_eq!(found, expected, "{body}");
        }
    }
}
