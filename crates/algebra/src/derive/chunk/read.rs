//! What a reader of the state computes inside a chunk.

use super::step::{Affine, indices};
use super::{Rewriter, Why, extrema, times};
use crate::derive::guard;
use crate::{Def, Node, NodeId, Product, Reduction, Term, show};
use einloom_cascade::{BinaryOp, IndexExpr, IndexId, Monoid, SizeExpr};
use std::collections::BTreeSet;

impl Rewriter<'_> {
    /// Rewrites a node that reads the state at moving positions.
    pub(super) fn read(&mut self, a: &Affine, reader: NodeId) -> Result<(), Why> {
        let node = self.graph[reader].clone();
        let before = show::def(&self.graph, &node.def);
        let def = match &node.def {
            Def::Reduce(r) => self.reduction(a, &node, r)?,
            Def::Map(t) => {
                let mut failed = None;
                let t = t.replace_reads(&mut |n, at| {
                    (n == a.state && !self.fixed(n, at)).then(|| match self.slice(a, &node, at) {
                        Ok(t) => t,
                        Err(why) => {
                            failed = Some(why);
                            Term::Number(f64::NAN)
                        }
                    })
                });
                if let Some(why) = failed {
                    return Err(why);
                }
                Def::Map(t)
            }
            _ => {
                let name = &self.graph[a.state].name;
                let reason = format!("{} is another recurrence that reads {name}", node.name);
                let hint =
                    format!("the slices that it reads as a tensor of their own, such as C[t] = {name}[t], would do");
                return Err((reason, Some(hint)));
            }
        };
        let after = show::def(&self.graph, &def);
        self.graph.nodes[reader.0 as usize].def = def;
        if !self.members.contains(&reader) {
            self.members.push(reader);
        }
        let why = match a.over {
            Monoid::Sum => format!(
                "a slice inside a chunk is the one at its start, decayed, and what the chunk has added since, decayed by {} a step",
                a.shown(&self.graph)
            ),
            over => format!(
                "a slice inside a chunk is the {} of the one at its start and of what has come since{}",
                if over == Monoid::Min { "minimum" } else { "maximum" },
                match a.is_bare() {
                    true => String::new(),
                    false => format!(", with {} added to both at each step", a.shown(&self.graph)),
                }
            ),
        };
        self.tell(&node, why, before, after);
        Ok(())
    }

    fn fixed(&self, n: NodeId, at: &[IndexExpr]) -> bool {
        matches!(&self.graph[n].def, Def::Iterative { dim, .. } if at[*dim].terms.is_empty())
    }

    /// Whether the slice is that after the step at t, and not that before; an error if it is neither, or is read at
    /// other places than its own.
    fn reads_later(&self, a: &Affine, at: &[IndexExpr]) -> Result<bool, Why> {
        let node = &self.graph[a.state];
        let Def::Iterative { dim, .. } = &node.def else { return Ok(false) };
        let own = |d: usize| d == *dim || at[d].as_var() == Some(node.axes[d]);
        match at[*dim].as_shifted_var() {
            Some((i, k @ 0..=1)) if i == self.t && (0..at.len()).all(own) => Ok(k == 1),
            _ => {
                let read = show::term(&self.graph, &Term::Read(a.state, at.to_vec()));
                let reason = format!("{read} is read inside a chunk at a place that is not its own");
                Err((reason, Some("slices at t and t + 1, each element at its own place, can be read".into())))
            }
        }
    }

    /// A sum over indices of the state: `Σ_d q·h` as `Σ_d q·h[start]`, decayed, and `Σ_n (Σ_d q·u_n)`, decayed.
    fn reduction(&mut self, a: &Affine, node: &Node, r: &Reduction) -> Result<Def, Why> {
        let name = self.graph[a.state].name.clone();
        let hint = Some("a sum of products with one slice of the state would do".to_string());
        let other = (format!("{} reads {name} other than as a factor of a sum", node.name), hint);
        if r.over.contains(&self.t) {
            let reason = format!(
                "{} reads {name} at every position that it reduces, and at other places than its own",
                node.name
            );
            let hint = "slices at t and t + 1, each element at its own place, can be read".to_string();
            return Err((reason, Some(hint)));
        }
        if r.monoid != Monoid::Sum {
            return Err(other);
        }
        // Summed once its anchors are complete, a state is what it was repaired to be; but what is repaired by it needs it as
        // it runs.
        let me = self.graph.ids().find(|&n| self.graph[n] == *node);
        let runs = |n: NodeId| matches!(&self.graph[n].def, Def::Reduce(o) if me.is_some_and(|me| o.streaming.anchors.contains(&me)));
        if let Some(n) = self.graph.ids().find(|&n| runs(n)) {
            let reason =
                format!("{} is repaired by the running value of {}, which reads {name}", self.graph[n].name, node.name);
            return Err((reason, Some("sums that need only what is complete would do".into())));
        }
        let mut query = Product::of(&r.body, &self.graph);
        let is_state = |t: &Term| matches!(t, Term::Read(n, _) if *n == a.state);
        let Some(k) = query.factors.iter().position(|(t, power)| is_state(t) && *power == 1.0) else {
            return Err(other);
        };
        let (Term::Read(_, at), _) = query.factors.remove(k) else { return Err(other) };
        if query.term().any_read(&|n| n == a.state) || r.filter.iter().any(|f| f.any_read(&|n| n == a.state)) {
            return Err(other);
        }
        let later = self.reads_later(a, &at)?;
        // A decay that carries what is summed over stays inside that sum, from position to position.
        let along = r.over.iter().copied().find(|&i| a.decay_carries(i));
        if let (Some(i), Some(factor)) = (along, &a.factor) {
            let d = self.graph.cascade[i].name.clone();
            let factor = show::term(&self.graph, factor);
            return Err((
                format!(
                    "the decay of {name} varies along {d}, which {} sums over, and {factor} is no power of e: from one position to another it is a product over all positions between, and relative to the start of a chunk its inverse may overflow",
                    node.name
                ),
                Some(format!(
                    "as a power of e, such as sigmoid(x) = exp(-log1p(exp(-x))), it is the exponential of a difference; one that is the same for all {d} would even leave the sum"
                )),
            ));
        }
        let inside = along.is_some();
        let old = Term::Old(a.state, self.graph[a.state].axes.iter().map(|&i| IndexExpr::var(i)).collect());
        let mut value = if inside {
            let decay = self.stretch_inside(a, None, (self.t, later));
            let body = times(Some(times(Some(query.term()), decay.unwrap_or(Term::Number(1.0)))), old);
            self.local_sum(node, "carried", &r.over, r.filter.clone(), body)
        } else {
            let mut start = query.clone();
            start.factors.push((old, 1.0));
            let carried = self.local_sum(node, "carried", &r.over, r.filter.clone(), start.term());
            times(self.stretch(a, None, Some((self.t, later))), carried)
        };
        for u in &a.summands {
            let (left, right) = u.split(self.t, self.n, &r.over)?;
            // What is summed over first must not carry what is kept, unless every factor does.
            let batch: BTreeSet<IndexId> = indices(&query);
            let kept: Vec<IndexId> = (self.graph[a.state].axes.iter().copied())
                .filter(|i| *i != self.t && !r.over.contains(i) && !batch.contains(i))
                .collect();
            if left.term().mentions(&kept) {
                let reason = format!(
                    "{} does not split between what {} sums over and what it keeps",
                    show::term(&self.graph, &u.body.term()),
                    node.name
                );
                return Err((reason, Some("a product of a function of each would do".into())));
            }
            // Where nothing is added there may be nothing to read either.
            let mut filter: Vec<Term> = r.filter.iter().cloned().chain(u.at(self.t, self.n)?.1).collect();
            // As two factors: exponentials of both sides in one would be no product of matrices.
            let mut body = times((query != Product::one()).then(|| query.term()), left.term());
            if inside {
                // The other way in time a decay is a growth.
                filter.insert(0, self.earlier(later));
                body = times(self.stretch_inside(a, Some(self.n), (self.t, later)), body);
            }
            let scores = self.local_sum(node, "scores", &r.over, filter, body);
            let decay = if inside { None } else { self.stretch(a, Some(self.n), Some((self.t, later))) };
            value = self.since(node, value, (u, &r.over), later, weighted(Some(scores), decay), &right)?;
        }
        // A sum over nothing is 0, whatever the chunk adds.
        let size = r.over.iter().map(|&i| SizeExpr::rank(self.graph.cascade[i].rank));
        let size = Term::Size(size.fold(SizeExpr::constant(1), |a, b| a.mul(&b)));
        let some = Term::Binary(BinaryOp::Gt, Box::new(size), Box::new(Term::Number(0.0)));
        Ok(Def::Map(guard::where_some(some, value, 0.0)))
    }

    /// A slice as it is inside a chunk.
    fn slice(&mut self, a: &Affine, node: &Node, at: &[IndexExpr]) -> Result<Term, Why> {
        let later = self.reads_later(a, at)?;
        let decay = self.stretch(a, None, Some((self.t, later)));
        let axes = self.graph[a.state].axes.iter().map(|&i| IndexExpr::var(i)).collect();
        let mut value = a.decayed(decay, Term::Old(a.state, axes));
        for u in &a.summands {
            let (_, whole) = u.split(self.t, self.n, &[])?;
            let decay = self.stretch(a, Some(self.n), Some((self.t, later)));
            value = match a.over {
                Monoid::Sum => self.since(node, value, (u, &[]), later, decay, &whole)?,
                over => {
                    let (body, mut filter) = u.at(self.t, self.n)?;
                    filter.insert(0, self.earlier(later));
                    let since = self.local(over, node, "since", &[self.n], filter, a.decayed(decay, body));
                    extrema::joined(over, value, since)
                }
            };
        }
        Ok(value)
    }

    /// `n <= t`, or `n < t`.
    fn earlier(&self, later: bool) -> Term {
        let op = if later { BinaryOp::Le } else { BinaryOp::Lt };
        Term::Binary(op, Box::new(Term::Position(self.n)), Box::new(Term::Position(self.t)))
    }

    /// `value + Σ(n: n <= t) weights · right`, where the weights have been summed over some indices.
    fn since(
        &mut self,
        node: &Node,
        value: Term,
        (u, summed): (&super::step::Summand, &[IndexId]),
        later: bool,
        weights: Option<Term>,
        right: &Product,
    ) -> Result<Term, Why> {
        let (_, mut filter) = u.at(self.t, self.n)?;
        // Conditions on what was summed over before were met there.
        filter.retain(|f| !f.mentions(summed));
        filter.insert(0, self.earlier(later));
        let sum = self.local_sum(node, "since", &[self.n], filter, times(weights, right.term()));
        Ok(Term::Binary(BinaryOp::Add, Box::new(value), Box::new(sum)))
    }
}

/// The product of what there is.
fn weighted(scores: Option<Term>, decay: Option<Term>) -> Option<Term> {
    match (scores, decay) {
        (Some(s), Some(d)) => Some(Term::Binary(BinaryOp::Mul, Box::new(s), Box::new(d))),
        (s, d) => s.or(d),
    }
}
