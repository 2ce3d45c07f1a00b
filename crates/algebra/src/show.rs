//! Terms and nodes as text, in the notation of the language.

use crate::{Def, Graph, Node, NodeId, Reduction, Term};
use einloom_cascade::{BinaryOp, IndexAtom, IndexExpr, UnaryOp};

/// The same term without its guards, for explanations: what is done where a reduction is over nothing or an anchor is
/// not finite is left out.
pub fn unguarded(t: &Term) -> Term {
    let t = t.map_children(&mut unguarded);
    match &t {
        Term::Select(c, a, _) if is_guard(c) => (**a).clone(),
        Term::Select(c, a, b) if is_quotient_guard(c, a, b) => (**a).clone(),
        _ => t,
    }
}

/// `where(x != 0, x / y, 0)`: the quotient, and 0 for 0 / 0.
fn is_quotient_guard(c: &Term, a: &Term, b: &Term) -> bool {
    let zero = Term::Number(0.0);
    match (c, a) {
        (Term::Binary(BinaryOp::Ne, x, none), Term::Binary(BinaryOp::Div, over, _)) => {
            **none == zero && x == over && *b == zero
        }
        _ => false,
    }
}

fn is_nonzero(c: &Term) -> bool {
    matches!(c, Term::Binary(BinaryOp::Gt | BinaryOp::Ne, _, none) if **none == Term::Number(0.0))
}

/// `0 < size`, or `abs(x) < inf`, or `x != 0 and abs(x) < inf`.
fn is_guard(c: &Term) -> bool {
    match c {
        Term::Binary(BinaryOp::Gt, a, b) => matches!(**a, Term::Size(_)) && **b == Term::Number(0.0),
        Term::Binary(BinaryOp::Lt, a, b) => {
            matches!(**a, Term::Unary(UnaryOp::Abs, _)) && **b == Term::Number(f64::INFINITY)
        }
        Term::Binary(BinaryOp::And, a, b) => is_guard(a) || is_nonzero(a) && is_guard(b),
        _ => false,
    }
}

/// `x`, if the term is `where(abs(x) < inf, x, 0)`.
fn finite_of(t: &Term) -> Option<&Term> {
    let Term::Select(c, a, b) = t else { return None };
    let Term::Binary(BinaryOp::Lt, x, _) = &**c else { return None };
    let Term::Unary(UnaryOp::Abs, x) = &**x else { return None };
    (x == a && **b == Term::Number(0.0) && is_guard(c)).then_some(&**a)
}

/// A number, without a fraction where it has none.
pub fn number(v: f64) -> String {
    if v == f64::INFINITY {
        "inf".into()
    } else if v == f64::NEG_INFINITY {
        "-inf".into()
    } else {
        format!("{v}")
    }
}

/// A term.
pub fn term(graph: &Graph, t: &Term) -> String {
    precedence(graph, t, 0)
}

/// A reduction, such as `sum(n: n <= m) P[m, n]`.
pub fn reduction(graph: &Graph, r: &Reduction) -> String {
    let over = r.over.iter().map(|&i| graph.cascade[i].name.as_str()).collect::<Vec<_>>().join(", ");
    let filter = r.filter.iter().map(|f| precedence(graph, f, 2)).collect::<Vec<_>>().join(" and ");
    let colon = if filter.is_empty() { "" } else { ": " };
    format!("{}({over}{colon}{filter}) {}", r.monoid.name(&graph.cascade), precedence(graph, &r.body, 5))
}

/// A node's right-hand side.
pub fn def(graph: &Graph, d: &Def) -> String {
    match d {
        Def::Input => "input".into(),
        Def::Map(t) => term(graph, t),
        Def::Reduce(r) => reduction(graph, r),
        Def::Iterative { step, .. } => term(graph, step),
    }
}

/// A node's left-hand side, such as `P[m, n]`.
pub fn place(graph: &Graph, node: &Node) -> String {
    let axes: Vec<&str> = node.axes.iter().map(|&i| graph.cascade[i].name.as_str()).collect();
    if axes.is_empty() { node.name.clone() } else { format!("{}[{}]", node.name, axes.join(",")) }
}

/// A whole graph, one node a line, with levels and repairs.
pub fn graph(g: &Graph) -> String {
    let mut out = String::new();
    for id in g.ids() {
        let node = &g[id];
        if node.def == Def::Input {
            continue;
        }
        let dtype = node.dtype.map_or(String::new(), |d| format!(": {d}"));
        out += &format!("{}{dtype} = {}\n", place(g, node), def(g, &node.def));
        match &node.def {
            Def::Reduce(r) => {
                if r.streaming.level > 0 {
                    out += &format!("    traversal {}\n", r.streaming.level + 1);
                }
                if let Some(repair) = &r.streaming.repair {
                    let keep = repair.keep_if.as_ref().map(|k| format!("kept while {}", term(g, k)));
                    let neutral = repair.factor.as_number() == Some(1.0) || repair.factor.as_number() == Some(0.0);
                    let moved = format!("repaired {} {}", repair.combine.symbol(), precedence(g, &repair.factor, 6));
                    let plus = repair.plus.as_ref().filter(|p| p.as_number() != Some(0.0));
                    let moved = moved + &plus.map_or(String::new(), |p| format!(" + {}", term(g, p)));
                    let told = match keep {
                        Some(keep) if neutral => keep,
                        Some(keep) => format!("{moved}, {keep}"),
                        None => moved,
                    };
                    out += &format!("    {told}\n");
                }
            }
            Def::Iterative { initial, dim, .. } => {
                let index = g.cascade[node.axes[*dim]].name.as_str();
                for (position, t) in initial {
                    let at = position.display(|r| g.cascade[r].name.as_str()).to_string();
                    out += &format!("    at {index} = {at}: {}\n", term(g, t));
                }
            }
            _ => {}
        }
    }
    out
}

fn index(graph: &Graph, e: &IndexExpr) -> String {
    let size = |s: &einloom_cascade::SizeExpr| s.display(|r| graph.cascade[r].name.as_str()).to_string();
    let mut parts = vec![];
    for (c, atom) in &e.terms {
        let atom = match atom {
            IndexAtom::Var(i) => graph.cascade[*i].name.clone(),
            IndexAtom::Floor { numerator, denominator } => {
                format!("{} / {}", index(graph, numerator), size(denominator))
            }
            IndexAtom::Gather { tensor, at } => format!("{}[{}]", graph.cascade[*tensor].name, indices(graph, at)),
        };
        parts.push(match c.as_constant() {
            Some(1) => atom,
            Some(-1) => format!("-{atom}"),
            _ => format!("{}*{atom}", size(c)),
        });
    }
    if e.offset.as_constant() != Some(0) || parts.is_empty() {
        parts.push(size(&e.offset));
    }
    // `T - 1 - t` rather than `-t + T - 1`.
    parts.sort_by_key(|p| p.starts_with('-'));
    parts.join(" + ").replace("+ -", "- ")
}

fn indices(graph: &Graph, at: &[IndexExpr]) -> String {
    at.iter().map(|e| index(graph, e)).collect::<Vec<_>>().join(",")
}

fn read(graph: &Graph, n: NodeId, at: &[IndexExpr]) -> String {
    let name = &graph[n].name;
    if at.is_empty() { name.clone() } else { format!("{name}[{}]", indices(graph, at)) }
}

/// Binding strengths: or 1, and 2, comparison 3, sum 4, product 5, unary 6, power 7, atom 8.
fn strength(op: BinaryOp) -> u8 {
    match op {
        BinaryOp::Or => 1,
        BinaryOp::And => 2,
        BinaryOp::Add | BinaryOp::Sub => 4,
        BinaryOp::Mul | BinaryOp::Div => 5,
        BinaryOp::Pow => 7,
        BinaryOp::Min | BinaryOp::Max => 8,
        _ => 3,
    }
}

fn precedence(graph: &Graph, t: &Term, outer: u8) -> String {
    let (text, own) = match t {
        Term::Number(v) => (number(*v), if *v < 0.0 { 6 } else { 8 }),
        Term::Param(p) => (graph.cascade[*p].name.clone(), 8),
        Term::Size(s) => {
            let text = s.display(|r| graph.cascade[r].name.as_str()).to_string();
            let own = if s.terms().len() > 1 {
                4
            } else if text.contains('*') {
                5
            } else {
                8
            };
            (text, own)
        }
        Term::Position(i) => (graph.cascade[*i].name.clone(), 8),
        Term::Read(n, at) => (read(graph, *n, at), 8),
        Term::Old(n, at) => (format!("old {}", read(graph, *n, at)), 8),
        Term::Argument(k) => (format!("argument{k}"), 8),
        Term::Unary(UnaryOp::Neg, x) => (format!("-{}", precedence(graph, x, 6)), 6),
        Term::Unary(UnaryOp::Not, x) => (format!("not {}", precedence(graph, x, 3)), 2),
        Term::Unary(op, x) => (format!("{}({})", op.name(), term(graph, x)), 8),
        Term::Binary(op @ (BinaryOp::Min | BinaryOp::Max), a, b) => {
            (format!("{}({}, {})", op.symbol(), term(graph, a), term(graph, b)), 8)
        }
        Term::Binary(op, a, b) => {
            let s = strength(*op);
            // Comparisons do not chain, powers group to the right, all else to the left.
            let (left, right) = match op {
                BinaryOp::Pow => (s + 1, s),
                op if op.is_comparison() => (s + 1, s + 1),
                _ => (s, s + 1),
            };
            (format!("{} {} {}", precedence(graph, a, left), op.symbol(), precedence(graph, b, right)), s)
        }
        Term::Select(_, a, _) if finite_of(t).is_some() => (format!("finite({})", term(graph, a)), 8),
        Term::Select(c, a, b) => (format!("where({}, {}, {})", term(graph, c), term(graph, a), term(graph, b)), 8),
    };
    if own < outer { format!("({text})") } else { text }
}
