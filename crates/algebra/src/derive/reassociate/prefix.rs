//! Causal sums: a sum over all positions `n <= m + c` grows by one position when m does, so it is a recurrence over m,
//! which costs a step per position in place of a sum per position.
//!
//! What each summand is weighted with may depend on m as well, if it is a power whose exponent splits into a part of m
//! and a part g of n: `exp(c[m] - c[n])`, `gamma^(m - n)`. The state is then kept relative to the latest position p in
//! it, `Σ f(n)·b^(g(n) - g(p))`, and a step multiplies it with `rho = b^(g(p-1) - g(p))`; never with a power of the
//! distance from the start, which overflows. Nothing larger than what is written may arise: `rho <= 1` by the signs of its
//! exponent, or else rho is finite whatever the inputs are, the same at every step, and the weights of the state are the very
//! weights written, because nothing is left over but a number. An infinite rho would meet the state's first slice, which is 0; and what one
//! step makes infinite a later one would not take back.

use super::between::since;
use super::weights::{Base, Weight, canonical, moved};
use crate::product::{self, Sum};
use crate::{Def, Graph, NodeId, Term, show};
use einloom_cascade::{BinaryOp, IndexAtom, IndexExpr, IndexId, Monoid, SizeExpr};
use std::collections::BTreeSet;

/// The condition `n <= m + offset`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Prefix {
    pub of: IndexId,
    pub up_to: IndexId,
    pub offset: i64,
}

/// What helps where a position is looked up.
pub(in crate::derive) const GATHERED: &str =
    "a tensor that holds the gathered values, one for every position, would do";

/// A reason, and what would help.
pub(super) type Why = (String, Option<String>);

impl Prefix {
    /// Where the slice that the state takes in at step t stands: position `t + taken` of the reduced index.
    pub fn taken(&self) -> i64 {
        if self.offset == -1 { 0 } else { self.offset }
    }

    /// The slice of the state that holds all positions up to `m + offset`, relative to m.
    pub fn read(&self) -> i64 {
        i64::from(self.offset != -1)
    }

    /// Whether a term is a cumulative sum, read at the reduced index: what it differs by between neighbours is known without it.
    pub fn accumulates(&self, t: &Term, graph: &Graph) -> bool {
        let Term::Read(x, _) = t else { return false };
        let read = |offset: i64| {
            let mut place = IndexExpr::var(self.up_to);
            place.offset = SizeExpr::constant(offset);
            match t.substitute(&|i| (i == self.of).then(|| place.clone()))? {
                Term::Read(_, at) => Some(at),
                _ => None,
            }
        };
        let (Some(at), Some(before)) = (read(self.taken()), read(self.taken() - 1)) else { return false };
        let ranks = [self.of, self.up_to].map(|i| graph.cascade[i].rank);
        ranks[0] == ranks[1] && neighbours(graph, *x, &at, &before).is_some()
    }

    /// Reads the conditions that tie `over` to the rest as one prefix.
    pub fn of(graph: &Graph, filters: &[Term], over: &[IndexId]) -> Result<Self, Why> {
        let shown = |t: &Term| show::term(graph, t);
        let all = filters.iter().map(shown).collect::<Vec<_>>().join(" and ");
        let &[n] = over else {
            let hint = "a sum over one of them inside the sums over the others would do".to_string();
            return Err((format!("under {all} several indices would have to advance together"), Some(hint)));
        };
        let read: Vec<(bool, Option<(IndexId, i64)>)> = filters.iter().filter_map(|f| bound(f, n)).collect();
        let name = &graph.cascade[n].name;
        // Another index that the conditions are about.
        let mut beside = BTreeSet::new();
        filters.iter().for_each(|f| f.indices(&mut beside));
        let m = beside.iter().find(|&&i| i != n).map_or("m", |&m| graph.cascade[m].name.as_str());
        if let Some(other) = filters.iter().find(|f| bound(f, n).is_none()) {
            let hint = match read.is_empty() {
                true if other.any_read(&|_| true) => {
                    format!("a condition on {name} alone, or on its position, would do")
                }
                true => format!("{name} <= {m} makes a prefix"),
                false => {
                    "the other condition alone makes a prefix; blocks of positions would need an index of their own"
                        .to_string()
                }
            };
            return Err((
                format!("{all} is no prefix: {} does not bound {name} by a position", shown(other)),
                Some(hint),
            ));
        }
        match read.as_slice() {
            [(true, Some((m, offset)))] if *offset <= 0 => Ok(Self { of: n, up_to: *m, offset: *offset }),
            [(true, Some(_))] => Err((
                format!("{all} reaches ahead of its position, so the first state would be a sum of its own"),
                Some(format!("{name} <= {m}, or {name} < {m}, needs no first sum")),
            )),
            [(true, None)] => Err((
                format!("{all} reaches a distance ahead that only the sizes tell"),
                Some(format!("{name} <= {m}, or {name} < {m}, needs no first sum")),
            )),
            [(false, _)] => Err((
                format!("{all} is a suffix, and recurrences run forwards"),
                Some(format!("over one rank {name} >= m and {name} > m are taken from the end, as prefixes")),
            )),
            _ => Err((
                format!(
                    "{all} is a window: what leaves it at the one end would have to be subtracted again, which loses digits"
                ),
                Some(format!("{name} <= {m} alone is a prefix, and a decay forgets what is far")),
            )),
        }
    }
}

/// A condition on `n`: whether it bounds it from above, and by which index plus what constant (none where the distance
/// is no constant). Nothing if it is no bound by one position.
pub(crate) fn bound(filter: &Term, n: IndexId) -> Option<(bool, Option<(IndexId, i64)>)> {
    let Term::Binary(op, a, b) = filter else { return None };
    let mut difference = product::sum(a);
    product::append(&mut difference, product::sum(b), -1.0);
    let at = difference.iter().position(|(_, t)| *t == Term::Position(n))?;
    let (own, _) = difference.remove(at);
    // own·n + rest OP 0
    let strict = matches!(op, BinaryOp::Lt | BinaryOp::Gt);
    let upper = match op {
        BinaryOp::Le | BinaryOp::Lt => own == 1.0,
        BinaryOp::Ge | BinaryOp::Gt => own == -1.0,
        _ => return None,
    };
    if own.abs() != 1.0 {
        return None;
    }
    let (mut index, mut offset, mut known) = (None, 0.0, true);
    for (c, t) in difference {
        match t {
            Term::Position(m) if index.is_none() && c == -own => index = Some(m),
            Term::Number(v) => offset -= own * c * v,
            Term::Size(_) => known = false,
            _ => return None,
        }
    }
    let offset = match (upper, strict) {
        (true, true) => offset.ceil() - 1.0,
        (true, false) => offset.floor(),
        (false, true) => offset.floor() + 1.0,
        (false, false) => offset.ceil(),
    };
    Some((upper, known.then_some((index?, offset as i64))))
}

/// A weight that decays from step to step.
pub(super) struct Decay {
    /// What the state is multiplied with at step t; nothing if that is 1.
    pub rho: Option<Term>,
    /// What it is multiplied with where it is read.
    pub left: Option<Term>,
    /// What stays with the summand.
    pub stays: Option<Term>,
}

/// Splits a weight of which `inner` carries the reduced index and `outer` carries m.
pub(super) fn decay(
    graph: &Graph,
    p: &Prefix,
    w: &Weight,
    [inner, outer]: [&Sum; 2],
    spans: &[NodeId],
) -> Result<Decay, Why> {
    let m = p.up_to;
    let at = |k: i64| {
        let mut e = IndexExpr::var(m);
        e.offset = SizeExpr::constant(k);
        e
    };
    let gather = || ("its exponent gathers by a position".to_string(), Some(GATHERED.to_string()));
    // The part of the exponent that moves with the position is what decays; data beside it weighs the summands. Where
    // there is no such part, data itself may be what is taken relative to the present.
    let positional = |t: &Term| mentions_position(t, p.of) || t.any_read(&|n| spans.contains(&n));
    let (moving, data): (Sum, Sum) = inner.iter().cloned().partition(|(_, t)| positional(t));
    let (g, rest) = if moving.is_empty() { (inner.clone(), vec![]) } else { (moving, data) };
    // A position goes on beyond the end of the reduced index, a tensor does not.
    let ranks = [m, p.of].map(|i| graph.cascade[i].rank);
    if ranks[0] != ranks[1] && g.iter().any(|(_, t)| reads_at(t, p.of)) {
        let [longer, shorter] = [m, p.of].map(|i| &graph.cascade[i].name);
        return Err((
            format!("{} would be read at {longer}, which may be beyond the last {shorter}", shown_sum(w, &g, graph)),
            Some(format!("{longer} and {shorter} in one rank would do")),
        ));
    }
    let latest = moved(&g, p.of, &at(p.offset), graph).ok_or_else(gather)?;
    let mut left = outer.clone();
    product::append(&mut left, latest, 1.0);
    let mut left = telescoped(canonical(left, graph), graph);
    let mut rho = moved(&g, p.of, &at(p.taken() - 1), graph).ok_or_else(gather)?;
    product::append(&mut rho, moved(&g, p.of, &at(p.taken()), graph).ok_or_else(gather)?, -1.0);
    let rho = telescoped(canonical(rho, graph), graph);
    let as_written = !left.iter().any(|(_, t)| t.mentions(&[m]));
    let shown = |s: &Sum| shown_sum(w, s, graph);
    let falls = w.at_most_one(&rho, graph);
    let [to, from] = [m, p.of].map(|i| &graph.cascade[i].name);
    let falling = format!(
        "an exponent that only falls with the distance would do, such as -abs(a)·({to} - {from}), or c[{to}] - c[{from}] with c a sum of -abs(a[i]), of log(sigmoid(a[i])) or of -log(1 + exp(a[i]))"
    );
    let falling = falling.as_str();
    let unknown = |why: &str, hint: &str| {
        let (weight, rho) = (shown(&w.exponent), shown(&rho));
        let reason = format!("the weight {weight} decays by {rho} a step, whose size is not known: {why}");
        Err((reason, Some(hint.to_string())))
    };
    if !falls && !as_written {
        return unknown("relative to the latest position it may overflow", falling);
    }
    if !rest.is_empty() && !w.at_most_one(&rest, graph) {
        return Err((
            format!("the weight {} stands with a decay, and alone it may overflow where their product does not", shown(&rest)),
            Some("an exponent that cannot be positive, such as -abs(k), would do; else the sum stays anchored at its maximum".into()),
        ));
    }
    // What stands between two positions begins after the first.
    let early = rho.iter().any(|(_, t)| reads_before_start(graph, t, m));
    let between = g.iter().any(|(_, t)| t.any_read(&|n| spans.contains(&n)));
    if early && !between {
        return Err((
            format!("{} would be read before its first position", shown(&rho)),
            Some(format!("a cumulative sum c[{to}] = sum(i: i <= {to}) a[i] changes by a[{to}] a step")),
        ));
    }
    let steady = !rho.iter().any(|(_, t)| t.mentions(&[m])) && w.stays_finite(&rho, graph);
    if !falls && !steady {
        let why = "where it is infinite, a state of 0 times it is no number, and what it makes infinite no later step takes back";
        return unknown(why, falling);
    }
    if !falls && !w.is_harmless(&left) {
        let why = "a state that overflows would not become finite again by what it is multiplied with where it is read";
        return unknown(
            why,
            &format!("a power of the distance alone, such as b^({to} - {from}), leaves nothing to multiply with"),
        );
    }
    // A base that may be negative has no fractional power to leave.
    if matches!(w.base, Base::Of(_)) && !as_written {
        let hint = format!("a power of the distance alone, such as b^({to} - {from}), leaves none");
        return Err((format!("{} leaves a power of its base that carries the position", shown(&left)), Some(hint)));
    }
    left.retain(|(c, _)| *c != 0.0);
    let rho = w.power(&rho).map(|rho| since(if early { -1 } else { 0 }, m, rho, 1.0));
    Ok(Decay { rho, left: w.power(&left), stays: w.power(&rest) })
}

fn shown_sum(w: &Weight, s: &Sum, graph: &Graph) -> String {
    w.power(s).map_or("1".into(), |t| show::term(graph, &t))
}

/// Whether something is read at the index.
pub(super) fn reads_at(t: &Term, n: IndexId) -> bool {
    let mut found = false;
    t.visit(&mut |t| found |= matches!(t, Term::Read(..)) && t.mentions(&[n]));
    found
}

/// Whether the position of the index is part of the value, other than as a place to read at.
pub(super) fn mentions_position(t: &Term, n: IndexId) -> bool {
    let mut found = false;
    t.visit(&mut |t| found |= *t == Term::Position(n));
    found
}

/// Whether something is read at `m - 1` or before, where the first step has nothing; counted from the end, beyond the last position.
pub(super) fn reads_before_start(graph: &Graph, t: &Term, m: IndexId) -> bool {
    let mut found = false;
    t.visit(&mut |t| {
        let Term::Read(n, at) = t else { return };
        for (e, extent) in at.iter().zip(&graph[*n].extents) {
            found |= match e.terms.as_slice() {
                [(c, IndexAtom::Var(i))] if *i == m => match c.as_constant() {
                    Some(1) => e.offset.as_constant().is_some_and(|k| k < 0),
                    // Below its extent by a number that is known.
                    Some(-1) => e.offset.add(&extent.scale(-1)).as_constant().is_none_or(|k| k >= 0),
                    _ => false,
                },
                _ => false,
            };
        }
    });
    found
}

/// Differences of neighbouring values of a cumulative sum are its summands: `c[m] - c[m-1] = a[m]`.
pub(super) fn telescoped(mut sum: Sum, graph: &Graph) -> Sum {
    'again: loop {
        for (k, (c, t)) in sum.iter().enumerate() {
            let Term::Read(n, at) = t else { continue };
            for (j, (d, other)) in sum.iter().enumerate() {
                let Term::Read(o, before) = other else { continue };
                if n != o || *d != -*c {
                    continue;
                }
                if let Some(difference) = neighbours(graph, *n, at, before) {
                    let scale = *c;
                    let (first, last) = (k.min(j), k.max(j));
                    sum.remove(last);
                    sum.remove(first);
                    product::append(&mut sum, product::sum(&difference), scale);
                    sum = canonical(sum, graph);
                    continue 'again;
                }
            }
        }
        return sum;
    }
}

/// `x[at] - x[before]` if x is a cumulative sum and `before` is one position earlier.
fn neighbours(graph: &Graph, x: NodeId, at: &[IndexExpr], before: &[IndexExpr]) -> Option<Term> {
    let differ: Vec<usize> = (0..at.len()).filter(|&d| at[d] != before[d]).collect();
    let &[dim] = differ.as_slice() else { return None };
    let ((i, k), (j, l)) = (at[dim].as_shifted_var()?, before[dim].as_shifted_var()?);
    if i != j || k != l + 1 {
        return None;
    }
    let node = &graph[x];
    let substitute = |t: &Term, dim_to: IndexExpr, extra: Option<(IndexId, IndexExpr)>| {
        t.substitute(&|index| match &extra {
            Some((n, e)) if *n == index => Some(e.clone()),
            _ => {
                let d = node.axes.iter().position(|&a| a == index)?;
                Some(if d == dim { dim_to.clone() } else { at[d].clone() })
            }
        })
    };
    match &node.def {
        Def::Reduce(r) if r.monoid == Monoid::Sum && r.streaming.anchors.is_empty() => {
            let p = Prefix::of(graph, &r.filter, &r.over).ok()?;
            let own = node.axes[dim];
            if p.up_to != own || r.body.mentions(&[own]) || super::super::inline::rounds(node) {
                return None;
            }
            let mut latest = at[dim].clone();
            latest.offset = latest.offset.add(&SizeExpr::constant(p.offset));
            substitute(&r.body, at[dim].clone(), Some((p.of, latest)))
        }
        // x[t+1] = x[t] + a[t]
        Def::Iterative { dim: own, step, .. } if *own == dim && !super::super::inline::rounds(node) => {
            let mut addends = product::sum(step);
            let itself = graph.read(x);
            let place = addends.iter().position(|(c, t)| *c == 1.0 && *t == itself)?;
            addends.remove(place);
            let rest = product::sum_term(&addends);
            if rest.any_read(&|n| n == x) {
                return None;
            }
            substitute(&rest, before[dim].clone(), None)
        }
        _ => None,
    }
}
