//! Extrema of what moves with one value: `max(f(u))` is `f(max u)` where `f` rises, `f(min u)` where it falls, and the larger of
//! the two where it may do either or falls before it rises, `max |u - c| = max(max u - c, c - min u)`.
//!
//! Conditions: the body is a function of one value `u` that waits for nothing, and for a maximum its shape (see [`super::shape`])
//! is any but that of a peak, for a minimum any but that of a valley. What else the function reads does not carry the reduced
//! indices. Largest and smallest `u` are elements, so the result is what the text makes of one of its elements.
//!
//! A position of an extremum is that of the largest or smallest `u`, whichever end is more extreme, and the first of both where they are
//! alike. There the function must be strict as well, also as computed: no piece in which different elements look equal, and
//! not at the end that is looked for, as `exp` is where it underflows and `tanh` where it nears 1.

use super::inline::Cancelled;
use super::shape::{Shape, Shaped, Shapes};
use super::{Deriver, guard};
use crate::{Def, Node, NodeId, Reduction, Rule, Streaming, Term, show};
use einloom_cascade::{BinaryOp, IndexId, Monoid};

/// A body as a function of one value.
pub(super) struct Ends {
    /// The value.
    pub value: Term,
    /// The function.
    pub shaped: Shaped,
    /// At which values its extremum may be.
    pub at: At,
}

/// Where an extremum may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum At {
    Largest,
    Smallest,
    Either,
}

fn binary(op: BinaryOp, a: Term, b: Term) -> Term {
    Term::Binary(op, Box::new(a), Box::new(b))
}

impl Ends {
    /// The function of another value.
    pub(super) fn of(&self, value: &Term) -> Term {
        fn go(t: &Term, value: &Term) -> Term {
            match t {
                Term::Argument(_) => value.clone(),
                other => other.map_children(&mut |c| go(c, value)),
            }
        }
        go(&self.shaped.term, value)
    }
}

impl Deriver<'_> {
    /// The body of an extremum as a function of one value that no traversal from `floor` on is waited for, if it is extreme at the ends
    /// of that value.
    pub(super) fn ends(&self, monoid: Monoid, body: &Term, over: &[IndexId], floor: usize) -> Option<Ends> {
        let (shaped, value) = self.shape(body, over, floor)?;
        let largest = matches!(monoid, Monoid::Max | Monoid::ArgMax);
        let at = match shaped.shape {
            Shape::Rises => {
                if largest {
                    At::Largest
                } else {
                    At::Smallest
                }
            }
            Shape::Falls => {
                if largest {
                    At::Smallest
                } else {
                    At::Largest
                }
            }
            Shape::Monotone => At::Either,
            Shape::Valley if largest => At::Either,
            Shape::Peak if !largest => At::Either,
            _ => return None,
        };
        Some(Ends { value, shaped, at })
    }

    /// The shape of a body, and the value that it is a function of.
    pub(super) fn shape(&self, body: &Term, over: &[IndexId], floor: usize) -> Option<(Shaped, Term)> {
        let (carries, waits) = (|t: &Term| t.mentions(over), |t: &Term| self.waits(t, over, floor));
        let mut shapes = Shapes { graph: &self.out, carries: &carries, waits: &waits, value: None };
        let shaped = shapes.of(body)?;
        Some((shaped, shapes.value?))
    }

    /// The extremum from those of the value.
    pub(super) fn extremum_at_ends(&mut self, node: Node, r: Reduction, ends: &Ends, before: String) -> NodeId {
        self.must_have_cancelled(&r, &ends.value);
        let both = ends.at == At::Either || ends.shaped.bounded;
        let mut states = vec![];
        let mut read = |d: &mut Self, monoid: Monoid, what: &str| {
            let mut own = Reduction { monoid, body: ends.value.clone(), streaming: Streaming::default(), ..r.clone() };
            d.hoist_filter(&node, &mut own);
            let state = d.reduction_node(&node, what, own);
            states.push(state);
            ends.of(&d.out.read(state))
        };
        let high = (both || ends.at == At::Largest).then(|| read(self, Monoid::Max, "max"));
        let low = (both || ends.at == At::Smallest).then(|| read(self, Monoid::Min, "min"));
        let (op, identity) = match r.monoid {
            Monoid::Max => (BinaryOp::Max, f64::NEG_INFINITY),
            _ => (BinaryOp::Min, f64::INFINITY),
        };
        let value = match (high, low) {
            (Some(high), Some(low)) => binary(op, high, low),
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => return self.barred(node, r, None),
        };
        let seen = self.seen(&node, &r.over, &r.filter);
        let Cancelled { value, rest, .. } = self.cancel(&guard::where_some(seen, value, identity));
        let after = show::term(&self.out, &show::unguarded(&value));
        let (what, names) = (self.moves_text(ends), self.names(&states));
        let why = format!("{what}, so it is most extreme where that is: {names}");
        self.step(Rule::Ends, &node, &r.over, why, before, after);
        self.push_map(Node { def: Def::Map(value), ..node }, rest)
    }

    /// How the body moves with its value.
    pub(super) fn moves_text(&self, ends: &Ends) -> String {
        let value = show::term(&self.out, &show::unguarded(&ends.value));
        match ends.shaped.shape {
            Shape::Rises | Shape::Constant => format!("it rises with {value}"),
            Shape::Falls => format!("it falls as {value} rises"),
            Shape::Monotone => format!("it rises with {value} or falls, as a sign decides"),
            Shape::Valley => format!("as {value} rises it falls and then rises"),
            Shape::Peak => format!("as {value} rises it rises and then falls"),
        }
    }

    /// Why an extremum waits, and what would not.
    pub(super) fn why_no_end(&self, r: &Reduction, body: &Term, barriers: &[NodeId]) -> (String, String) {
        let (index, monoid) = (self.index_names(&r.over), r.monoid.name(&self.out.cascade));
        let shown = show::term(&self.out, &show::unguarded(body));
        match self.shape(body, &r.over, 0) {
            Some((shaped, value)) if matches!(shaped.shape, Shape::Valley | Shape::Peak) => {
                let value = show::term(&self.out, &show::unguarded(&value));
                let (turn, other) = match shaped.shape {
                    Shape::Valley => ("falls and then rises", "max"),
                    _ => ("rises and then falls", "min"),
                };
                let reason = format!(
                    "{shown} {turn} as {value} rises, and where it turns depends on {}: the element for which it is most extreme may be any between",
                    self.names(barriers)
                );
                (reason, format!("its {other} would be at the largest or smallest {value}"))
            }
            _ => {
                let reason = format!("{shown} mixes {index} with {}", self.names(barriers));
                let hint = format!(
                    "an addend, or a factor that cannot be negative, leaves {monoid} if it does not carry {index}; so does all that moves one way, or turns once, with a single value of {index}"
                );
                (reason, hint)
            }
        }
    }
}
