//! Conditions under which the reduced value is neutral become filters, from which the planner makes loop bounds.

use super::{Deriver, inline};
use crate::{Def, Graph, Node, Reduction, Rule, Term, show, sign};
use einloom_cascade::{BinaryOp, IndexId, Monoid, UnaryOp};

/// A reduction before conditions became filters.
pub(super) struct Before {
    /// Its filters: over those alone a reduction over nothing has its identity by definition.
    pub filter: Vec<Term>,
    /// Its body with the conditions in place, if any became a filter: what stands outside all of them is met by every
    /// element, what stands under one only by those that it lets through.
    pub body: Option<Term>,
}

impl Deriver<'_> {
    /// Moves conditions out of `where` into the reduction's filter. Returns what was there before.
    ///
    /// Condition: where the filter does not hold, the body equals the monoid's identity (for a product with a
    /// neutral factor: the other factors being finite).
    pub(super) fn hoist_filter(&mut self, node: &Node, r: &mut Reduction) -> Before {
        let mut own = Before { filter: r.filter.clone(), body: None };
        let identity = match r.monoid {
            Monoid::Sum => 0.0,
            Monoid::Prod => 1.0,
            Monoid::Max => f64::NEG_INFINITY,
            Monoid::Min => f64::INFINITY,
            _ => return own,
        };
        let mut conditions = vec![];
        let (body, opened) = Strip { graph: &self.out, over: &r.over }.strip(&r.body, identity, &mut conditions);
        // A condition that itself waits for a reduction over the index would make the traversal wait.
        let ready = |c: &Term| !self.waits(c, &r.over, 0);
        if conditions.is_empty() || !conditions.iter().all(ready) {
            return own;
        }
        let before = show::reduction(&self.out, r);
        let held: Vec<String> = conditions.iter().map(|c| show::term(&self.out, c)).collect();
        conditions.retain(|c| !r.filter.contains(c));
        r.filter.extend(conditions);
        r.body = body;
        own.body = Some(opened);
        let after = show::reduction(&self.out, r);
        let why = format!(
            "where {} fails the body is {}, which is neutral for {}",
            held.join(" and "),
            show::number(identity),
            r.monoid.name(&self.out.cascade)
        );
        let over = r.over.clone();
        self.step(Rule::Filter, node, &over, why, before, after);
        own
    }
}

/// A reduction's body without the conditions outside which it is neutral (0 of a sum), and these with the reduction's own. Conditions
/// that wait for a reduction over the same indices stay where they are.
pub(super) fn stripped(graph: &Graph, r: &Reduction, neutral: f64) -> (Term, Vec<Term>) {
    let mut conditions = vec![];
    let (body, _) = Strip { graph, over: &r.over }.strip(&r.body, neutral, &mut conditions);
    let over = |n| matches!(&graph[n].def, Def::Reduce(other) if other.over.iter().any(|i| r.over.contains(i)));
    if conditions.iter().any(|c| inline::completed(graph, c).into_iter().any(over)) {
        return (r.body.clone(), r.filter.clone());
    }
    let mut filter = r.filter.clone();
    conditions.retain(|c| !filter.contains(c));
    filter.extend(conditions);
    (body, filter)
}

/// A reduction's body without the conditions outside which it is neutral, and these with its own, whatever they wait for.
pub(super) fn with_all_conditions(graph: &Graph, r: &Reduction, neutral: f64) -> (Term, Vec<Term>) {
    let mut filter = vec![];
    r.filter.iter().for_each(|f| split(f, &mut filter));
    let (body, _) = Strip { graph, over: &r.over }.strip(&r.body, neutral, &mut filter);
    (body, filter)
}

/// Looks for conditions on the reduced indices.
struct Strip<'a> {
    graph: &'a Graph,
    over: &'a [IndexId],
}

impl Strip<'_> {
    /// The term without the conditions outside which it equals `neutral`, which are appended to `out`; and the same
    /// term with them, definitions that hide them put in place.
    fn strip(&self, term: &Term, neutral: f64, out: &mut Vec<Term>) -> (Term, Term) {
        let both = |t: &Term| (t.clone(), t.clone());
        let unary = |op: UnaryOp, (x, y): (Term, Term)| (Term::Unary(op, Box::new(x)), Term::Unary(op, Box::new(y)));
        let binary = |op: BinaryOp, (a, x): (Term, Term), (b, y): (Term, Term)| {
            (Term::Binary(op, Box::new(a), Box::new(b)), Term::Binary(op, Box::new(x), Box::new(y)))
        };
        match term {
            Term::Select(c, a, b) if c.mentions(self.over) && b.as_number() == Some(neutral) => {
                split(c, out);
                (self.strip(a, neutral, out).0, term.clone())
            }
            Term::Select(c, a, b) if c.mentions(self.over) && a.as_number() == Some(neutral) => {
                split(&negate(c), out);
                (self.strip(b, neutral, out).0, term.clone())
            }
            // Neutral for all elements, or as its branch.
            Term::Select(c, a, b) if b.as_number() == Some(neutral) => {
                let (bare, whole) = self.strip(a, neutral, out);
                let choice = |a: Term| Term::Select(c.clone(), Box::new(a), b.clone());
                (choice(bare), choice(whole))
            }
            Term::Read(n, at) => match &self.graph[*n].def {
                Def::Map(def) if self.graph.is_plain(*n, at) && !inline::rounds(&self.graph[*n]) => {
                    let inner = self.strip(def, neutral, out);
                    if inner.0 != *def { inner } else { both(term) }
                }
                _ => both(term),
            },
            Term::Unary(UnaryOp::Neg, x) => unary(UnaryOp::Neg, self.strip(x, -neutral, out)),
            Term::Unary(op @ (UnaryOp::Exp | UnaryOp::Exp2), x) if neutral == 0.0 => {
                unary(*op, self.strip(x, f64::NEG_INFINITY, out))
            }
            // No such power of 0 is anything but 0, and what passes through the origin makes 0 of it.
            Term::Binary(op @ BinaryOp::Pow, a, b) if neutral == 0.0 && whole(b) => {
                binary(*op, self.strip(a, neutral, out), both(b))
            }
            Term::Unary(op, x) if neutral == 0.0 && through_origin(*op) => unary(*op, self.strip(x, neutral, out)),
            Term::Binary(op @ BinaryOp::Mul, a, b) if neutral == 0.0 => {
                binary(*op, self.strip(a, neutral, out), self.strip(b, neutral, out))
            }
            Term::Binary(op @ BinaryOp::Div, a, b) if neutral == 0.0 => {
                binary(*op, self.strip(a, neutral, out), both(b))
            }
            Term::Binary(op @ (BinaryOp::Mul | BinaryOp::Div), a, b)
                if neutral.is_infinite() && sign::positive_constant(b) =>
            {
                binary(*op, self.strip(a, neutral, out), both(b))
            }
            Term::Binary(op @ BinaryOp::Add, a, b) if neutral.is_infinite() => {
                binary(*op, self.strip(a, neutral, out), self.strip(b, neutral, out))
            }
            Term::Binary(op @ BinaryOp::Sub, a, b) if neutral.is_infinite() => {
                binary(*op, self.strip(a, neutral, out), both(b))
            }
            other => both(other),
        }
    }
}

/// Whether it is a whole number that is more than 0.
fn whole(t: &Term) -> bool {
    t.as_number().is_some_and(|p| p > 0.0 && p.fract() == 0.0)
}

/// Whether a function of 0 is 0, and asks for no sign of its argument that the condition may have told.
fn through_origin(op: UnaryOp) -> bool {
    match op {
        UnaryOp::Abs
        | UnaryOp::Erf
        | UnaryOp::Floor
        | UnaryOp::Gelu
        | UnaryOp::Relu
        | UnaryOp::Round
        | UnaryOp::Sign
        | UnaryOp::Silu
        | UnaryOp::Sin
        | UnaryOp::Tanh => true,
        UnaryOp::Cos
        | UnaryOp::Exp
        | UnaryOp::Exp2
        | UnaryOp::Log
        | UnaryOp::Log2
        | UnaryOp::Log1p
        | UnaryOp::Neg
        | UnaryOp::Not
        | UnaryOp::Rsqrt
        | UnaryOp::Sigmoid
        | UnaryOp::Sqrt => false,
    }
}

/// Appends the conditions that `and` joins, without those that are there.
pub(super) fn split(c: &Term, out: &mut Vec<Term>) {
    match c {
        Term::Binary(BinaryOp::And, a, b) => {
            split(a, out);
            split(b, out);
        }
        _ if out.contains(c) => {}
        _ => out.push(c.clone()),
    }
}

/// The opposite condition. Comparisons turn round only where both sides are integers (a NaN satisfies neither).
pub(super) fn negate(c: &Term) -> Term {
    let integer = |t: &Term| {
        let mut ok = true;
        t.visit(&mut |t| {
            ok &= matches!(
                t,
                Term::Position(_) | Term::Size(_) | Term::Binary(BinaryOp::Add | BinaryOp::Sub | BinaryOp::Mul, ..)
            ) || matches!(t, Term::Number(v) if v.is_finite());
        });
        ok
    };
    if let Term::Binary(op, a, b) = c
        && integer(a)
        && integer(b)
    {
        let turned = match op {
            BinaryOp::Lt => Some(BinaryOp::Ge),
            BinaryOp::Le => Some(BinaryOp::Gt),
            BinaryOp::Gt => Some(BinaryOp::Le),
            BinaryOp::Ge => Some(BinaryOp::Lt),
            BinaryOp::Eq => Some(BinaryOp::Ne),
            BinaryOp::Ne => Some(BinaryOp::Eq),
            _ => None,
        };
        if let Some(op) = turned {
            return Term::Binary(op, a.clone(), b.clone());
        }
    }
    match c {
        Term::Unary(UnaryOp::Not, x) => (**x).clone(),
        _ => Term::Unary(UnaryOp::Not, Box::new(c.clone())),
    }
}
