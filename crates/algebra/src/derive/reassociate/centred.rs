//! Moments of a prefix: `S[m] = Σ_{n <= m} w(n)·(u(n) - c(m))^p`, products of such powers included, whatever c is.
//!
//! Multiplied out, `Σ u² - 2c·Σ u + c²·Σ 1`, it would be sums that cancel. The states are the weight of all elements so far, the mean of each u
//! and the moments about the means of the moment, `Q_p[m] = Σ w·(u - a[m])^p`. When an element joins, a mean moves by `d = a[m-1] - a[m]`
//! and `Q_p[m] = Σ_k binomial(p,k)·Q_{p-k}[m-1]·d^k + w·(u - a[m])^p`, where the zeroth is the weight and the first is 0: what is added
//! to a square is never negative. Where it is read c is as far from the mean as it is: `Σ_k binomial(p,k)·Q_{p-k}·(a - c)^k`, and nothing of that
//! is left if c is that very mean. A decay multiplies all that was there before.
//!
//! Conditions: no weight and no decay can be negative; both indices are over one rank; `u` does not carry m and `c` not n; the powers are whole and
//! four in all at most; where a condition on data stands beside the prefix nothing is weighted and nothing leaves the sum.

use super::Rewriting;
use super::build::{Join, State, rename_placeholders};
use super::insert::{insert, placeholder};
use super::prefix::{Prefix, Why};
use super::sides::Sides;
use super::site::{Parts, Site};
use crate::derive::guard;
use crate::derive::inline::rounds;
use crate::derive::rebuild::renumber;
use crate::product::{self, Sum};
use crate::{Def, Node, NodeId, Product, Recurrence, Rule, Step, Term, show, sign};
use einloom_cascade::{BinaryOp, IndexExpr, Monoid, SizeExpr};

/// The most that the powers may be in all.
const MOST: u32 = 4;
/// The most states.
const STATES: usize = 8;

fn binary(op: BinaryOp, a: Term, b: Term) -> Term {
    Term::Binary(op, Box::new(a), Box::new(b))
}

fn power(x: Term, p: u32) -> Option<Term> {
    match p {
        0 => None,
        1 => Some(x),
        _ => Some(binary(BinaryOp::Pow, x, Term::Number(f64::from(p)))),
    }
}

fn times(factors: impl IntoIterator<Item = Option<Term>>) -> Option<Term> {
    factors.into_iter().flatten().reduce(|a, b| binary(BinaryOp::Mul, a, b))
}

fn binomial(n: u32, k: u32) -> f64 {
    (0..k).fold(1.0, |b, i| b * f64::from(n - i) / f64::from(i + 1))
}

/// A factor `(u - c)^p`.
struct Difference {
    u: Term,
    c: Term,
    power: u32,
    /// Whether c is the mean of the u.
    centred: bool,
}

/// What the sum is made of.
struct Moment {
    prefix: Prefix,
    differences: Vec<Difference>,
    /// What weighs an element; nothing if that is 1.
    weight: Option<Term>,
    /// What is multiplied at every step.
    rho: Option<Term>,
    sides: Sides,
}

/// A state that is made, to be read from others.
struct Made {
    node: NodeId,
    axes: Vec<IndexExpr>,
    dim: usize,
}

impl Made {
    /// The slice `k` after the position.
    fn slice(&self, k: i64) -> Term {
        let mut at = self.axes.clone();
        at[self.dim].offset = SizeExpr::constant(k);
        Term::Read(self.node, at)
    }
}

/// Stands for the `k`-th state while another one is made, which is number 0.
fn foreign(k: usize) -> NodeId {
    placeholder(2 * STATES + k)
}

fn settled(n: NodeId, own: usize) -> NodeId {
    match (u32::MAX - n.0) as usize {
        0 => placeholder(own),
        k if (2 * STATES..3 * STATES).contains(&k) => placeholder(k - 2 * STATES),
        _ => n,
    }
}

impl Site {
    /// The moment as recurrences. Nothing if it is none.
    pub(super) fn centred(&self, parts: &Parts) -> Option<Result<Rewriting, Why>> {
        let moment = match self.moment(parts)? {
            Ok(moment) => moment,
            Err(why) => return Some(Err(why)),
        };
        self.in_states(&moment)
    }

    /// Reads the sum as a moment.
    fn moment(&self, parts: &Parts) -> Option<Result<Moment, Why>> {
        let query: Vec<_> = parts.query.iter().copied().collect();
        let both = |t: &Term| t.mentions(&self.over) && t.mentions(&query);
        let (mixed, rest): (Vec<_>, Vec<_>) = parts.factors.factors.iter().cloned().partition(|(t, _)| both(t));
        let mut differences = vec![];
        for (t, p) in mixed {
            let whole = p.fract() == 0.0 && p >= 1.0 && p <= f64::from(MOST);
            let (u, c): (Sum, Sum) = product::sum(&t).into_iter().partition(|(_, t)| t.mentions(&self.over));
            if !whole || u.is_empty() || c.is_empty() || u.iter().any(|(_, t)| t.mentions(&query)) {
                return None;
            }
            let c: Sum = c.into_iter().map(|(k, t)| (-k, t)).collect();
            let [u, c] = [u, c].map(|s| product::sum_term(&s));
            differences.push(Difference { u, c, power: p as u32, centred: false });
        }
        let total: u32 = differences.iter().map(|d| d.power).sum();
        if !(2..=MOST).contains(&total) {
            return None;
        }
        let mut others = parts.clone();
        others.factors.factors = rest;
        let sides = self.sides(others).ok()?;
        let prefix = sides.prefix?;
        let ranks = [prefix.of, prefix.up_to].map(|i| self.graph.cascade[i].rank);
        if ranks[0] != ranks[1] || !sides.outside_filter.is_empty() {
            return None;
        }
        let weight = Some(sides.inside.term()).filter(|w| *w != Term::Number(1.0));
        let rho = times(sides.rho.iter().rev().cloned().map(Some));
        let negative = |t: &&Term| !sign::nonnegative(t, &self.graph);
        if let Some(w) = weight.iter().chain(&rho).find(negative) {
            let [w, u] = [w, &differences[0].u].map(|t| show::term(&self.graph, t));
            let reason = format!("{w} may be negative, so that the mean of {u} so far may be far from all of them");
            let hint = "weights that cannot be negative, such as exp(w) or abs(w), would have moments about their mean";
            return Some(Err((reason, Some(hint.to_string()))));
        }
        let leaves = !sides.outside.factors.is_empty() || !sides.outside.weights.is_empty();
        if !sides.inside_filter.is_empty() && (weight.is_some() || rho.is_some() || leaves) {
            let reason = "a condition on data stands beside weights, or beside what leaves the sum".to_string();
            let hint = "without the condition, or the sum of the powers alone and what it is multiplied with after it, it would";
            return Some(Err((reason, Some(hint.to_string()))));
        }
        for d in &mut differences {
            d.centred = weight.is_none() && self.is_mean(d, parts);
        }
        Some(Ok(Moment { prefix, differences, weight, rho, sides }))
    }

    /// Whether c is the sum of the u under the same conditions and decay, divided by how many there are.
    fn is_mean(&self, d: &Difference, parts: &Parts) -> bool {
        let mut c = d.c.clone();
        while let Term::Read(n, at) = &c
            && let Def::Map(t) = &self.graph[*n].def
            && self.graph.is_plain(*n, at)
            && !rounds(&self.graph[*n])
        {
            c = t.clone();
        }
        let p = Product::of(&c, &self.graph);
        let [(Term::Read(sum, at), 1.0), (count, -1.0)] = p.factors.as_slice() else { return false };
        let own = |n: NodeId, at: &[IndexExpr], factor: &Term| {
            let Def::Reduce(r) = &self.graph[n].def else { return false };
            let mut body = Product::of(&r.body, &self.graph);
            let mut own = Product::of(factor, &self.graph);
            // What decays.
            for w in &parts.factors.weights {
                own = own.times(&Product::of(&w.power(&w.exponent).unwrap_or(Term::Number(1.0)), &self.graph));
            }
            body.exponent = super::weights::canonical(body.exponent, &self.graph);
            own.exponent = super::weights::canonical(own.exponent, &self.graph);
            r.monoid == Monoid::Sum
                && r.over == self.over
                && r.filter == parts.filter
                && body.same_as(&own)
                && self.graph.is_plain(n, at)
                && !rounds(&self.graph[n])
        };
        let whole = p.coefficient == 1.0 && p.exponent.is_empty() && p.exponent2.is_empty();
        let counted = match count {
            Term::Read(n, at) => own(*n, at, &Term::Number(1.0)),
            t => parts.factors.weights.is_empty() && parts.filter.len() == 1 && self.counts(t, &parts.filter[0]),
        };
        whole && own(*sum, at, &d.u) && counted
    }

    /// Whether a term is how many positions a prefix has.
    fn counts(&self, t: &Term, condition: &Term) -> bool {
        let Ok(p) = Prefix::of(&self.graph, std::slice::from_ref(condition), &self.over) else { return false };
        let mut left = product::sum(t);
        let count = vec![(1.0, Term::Position(p.up_to)), ((p.offset + 1) as f64, Term::Number(1.0))];
        product::append(&mut left, count, -1.0);
        left.iter().all(|(c, _)| *c == 0.0)
    }

    /// The states, and what is made of them. Nothing where they would be too many.
    fn in_states(&self, moment: &Moment) -> Option<Result<Rewriting, Why>> {
        let Moment { prefix: p, differences, weight, rho, sides } = moment;
        let first = self.graph.recurrences.len();
        let filters = &sides.inside_filter;
        let here = |t: &Term| {
            let mut e = IndexExpr::var(p.up_to);
            e.offset = SizeExpr::constant(p.taken());
            t.substitute(&|i| (i == p.of).then(|| e.clone()))
        };
        let decayed = |t: Term| match rho {
            Some(rho) => binary(BinaryOp::Mul, rho.clone(), t),
            None => t,
        };
        let mut new: Vec<Node> = vec![];
        let mut made: Vec<Made> = vec![];
        let mut state = |what: &str, state: State<'_>, made: &mut Vec<Made>| -> Option<usize> {
            let k = made.len();
            let (mut node, read) = self.state_node(p, state, &[], first + k).ok()?;
            node.name = crate::flatten::fresh_name(&self.graph.nodes, &format!("{}.{what}", self.node.name));
            let (Term::Read(_, mut axes), Def::Iterative { dim, .. }) = (read, &node.def) else { return None };
            axes[*dim] = IndexExpr::var(p.up_to);
            made.push(Made { node: foreign(k), axes, dim: *dim });
            renumber(&mut node.def, &|n| settled(n, k));
            new.push(node);
            (k < STATES).then_some(k)
        };
        // How much there is after k more steps.
        let plain = weight.is_none() && rho.is_none() && filters.is_empty();
        let total = if plain {
            None
        } else {
            let one = Term::Number(1.0);
            let inside = weight.as_ref().unwrap_or(&one);
            let uses: Vec<&Term> = rho.iter().collect();
            let join = Join::Op(BinaryOp::Add);
            let count = State { inside, filters, kept: &decayed, uses: &uses, join, identity: 0.0 };
            Some(state(if weight.is_some() { "weight" } else { "count" }, count, &mut made)?)
        };
        let after = |made: &[Made], k: i64| match total {
            Some(total) => made[total].slice(k),
            None => {
                let number = (k + p.taken()) as f64;
                let position = vec![(1.0, Term::Position(p.up_to)), (number, Term::Number(1.0))];
                product::sum_term(&position.into_iter().filter(|a| a.0 != 0.0).collect())
            }
        };
        let weight_here = match weight {
            Some(w) => Some(here(w)?),
            None => None,
        };
        let kept = |old: Term| old;
        let mut means = vec![];
        for d in differences {
            let now = after(&made, 1);
            let uses: Vec<&Term> = [&now].into_iter().chain(&weight_here).collect();
            let join = |old: Term, u: Term| {
                let by = binary(BinaryOp::Sub, u.clone(), old.clone());
                match &weight_here {
                    // Where nothing has a weight any number will do: from its own a difference is no infinity.
                    Some(w) => {
                        let some = binary(BinaryOp::Ne, now.clone(), Term::Number(0.0));
                        let share = binary(BinaryOp::Div, w.clone(), now.clone());
                        let moved = binary(BinaryOp::Add, old.clone(), binary(BinaryOp::Mul, share, by));
                        Term::Select(Box::new(some), Box::new(moved), Box::new(u))
                    }
                    None => binary(BinaryOp::Add, old, binary(BinaryOp::Div, by, now.clone())),
                }
            };
            let one = State { inside: &d.u, filters, kept: &kept, uses: &uses, join: Join::By(&join), identity: 0.0 };
            means.push(state("mean", one, &mut made)?);
        }
        // Before there was anything no mean moved.
        let some = if plain { BinaryOp::Gt } else { BinaryOp::Ne };
        let moved: Vec<Term> = means
            .iter()
            .map(|&k| {
                let by = binary(BinaryOp::Sub, made[k].slice(0), made[k].slice(1));
                guard::where_some(binary(some, after(&made, 0), Term::Number(0.0)), by, 0.0)
            })
            .collect();
        let mut moments: Vec<(Vec<u32>, usize)> = vec![];
        for powers in up_to(&differences.iter().map(|d| d.power).collect::<Vec<_>>()) {
            let about = differences
                .iter()
                .zip(&means)
                .zip(&powers)
                .map(|((d, &k), &p)| power(binary(BinaryOp::Sub, d.u.clone(), made[k].slice(1)), p));
            let inside = times(std::iter::once(weight.clone()).chain(about))?;
            let of = |rest: &[u32]| moments.iter().find(|m| m.0 == rest).map(|m| made[m.1].slice(0));
            let lower = shifted(&powers, &moved.iter().map(Some).collect::<Vec<_>>(), &of, &after(&made, 0))?;
            let join = |old: Term, joins: Term| {
                let all = lower.iter().cloned().map(&decayed);
                all.chain([joins]).fold(old, |a, b| binary(BinaryOp::Add, a, b))
            };
            let uses: Vec<&Term> = lower.iter().chain(rho).collect();
            let one =
                State { inside: &inside, filters, kept: &decayed, uses: &uses, join: Join::By(&join), identity: 0.0 };
            let k = state("moment", one, &mut made)?;
            moments.push((powers, k));
        }
        let read = p.read();
        let from_mean = |(d, &k): (&Difference, &usize)| {
            (!d.centred).then(|| binary(BinaryOp::Sub, made[k].slice(read), d.c.clone()))
        };
        let offsets: Vec<Option<Term>> = differences.iter().zip(&means).map(from_mean).collect();
        let offsets: Vec<Option<&Term>> = offsets.iter().map(Option::as_ref).collect();
        let powers: Vec<u32> = differences.iter().map(|d| d.power).collect();
        let of = |rest: &[u32]| moments.iter().find(|m| m.0 == rest).map(|m| made[m.1].slice(read));
        let mut addends: Vec<Term> = of(&powers).into_iter().collect();
        addends.extend(shifted(&powers, &offsets, &of, &after(&made, read))?);
        let sum = addends.into_iter().reduce(|a, b| binary(BinaryOp::Add, a, b))?;
        let mut whole = sides.outside.clone();
        whole.factors.push((sum, 1.0));
        let mut value = whole.term().rename_nodes(&|n| settled(n, 0));
        if !filters.is_empty() {
            let some = binary(BinaryOp::Gt, after(&made, read), Term::Number(0.0));
            value = guard::where_some(some.rename_nodes(&|n| settled(n, 0)), value, 0.0);
        }
        if p.offset < 0 {
            let seen = binary(BinaryOp::Ge, Term::Position(p.up_to), Term::Number(-p.offset as f64));
            value = guard::where_some(seen, value, 0.0);
        }
        let step = self.tell_centred(moment, &new);
        let mut g = (*self.graph).clone();
        let rank = g.cascade[p.up_to].rank;
        let nodes = insert(&mut g, self.id, new, Node { def: Def::Map(value), ..self.node.clone() });
        let alone = |n| Recurrence { rank, index: p.up_to, members: vec![n], within: vec![] };
        g.recurrences.extend(nodes.into_iter().map(alone));
        Some(Ok(Rewriting { exchanged: vec![], graph: g, steps: vec![step] }))
    }

    fn tell_centred(&self, moment: &Moment, new: &[Node]) -> Step {
        let p = &moment.prefix;
        let shown = self.with(new);
        let [n, m] = [p.of, p.up_to].map(|i| self.graph.cascade[i].name.clone());
        let before = match &self.graph[self.id].def {
            Def::Reduce(written) => show::reduction(&self.graph, written),
            _ => String::new(),
        };
        let slices = new.iter().map(|node| {
            let def = rename_placeholders(&node.def, self.graph.nodes.len());
            let step = match def {
                Def::Iterative { step, .. } => show::term(&shown, &show::unguarded(&step)),
                def => show::def(&shown, &def),
            };
            format!("{} = {step}", self.next_slice(node, &m))
        });
        let us: Vec<String> = moment.differences.iter().map(|d| show::term(&self.graph, &d.u)).collect();
        let from = moment.differences.iter().filter(|d| !d.centred).map(|d| show::term(&self.graph, &d.c));
        let from: Vec<String> = from.collect();
        let read = match from.is_empty() {
            true => "which is what the text subtracts".to_string(),
            false => format!("and {} is as far from it as it is", from.join(", ")),
        };
        Step {
            rule: Rule::Prefix,
            statement: self.node.statement.unwrap_or(0),
            node: new.last().map_or_else(String::new, |n| n.name.clone()),
            ranks: vec![self.graph.cascade[self.graph.cascade[p.up_to].rank].name.clone()],
            why: format!(
                "the positions {n} that {m} sees are those that {m} - 1 sees and one more; the powers are about the mean of {} so far, {read}",
                us.join(" and of ")
            ),
            before,
            after: slices.collect::<Vec<_>>().join(", "),
        }
    }
}

/// All combinations of powers up to these of which a moment is a state, lower ones first.
fn up_to(most: &[u32]) -> Vec<Vec<u32>> {
    let mut all = vec![vec![]];
    for &p in most {
        all = all.into_iter().flat_map(|v: Vec<u32>| (0..=p).map(move |k| [v.clone(), vec![k]].concat())).collect();
    }
    all.retain(|v| v.iter().sum::<u32>() >= 2);
    all.sort_by_key(|v| v.iter().sum::<u32>());
    all
}

/// What a moment about other centres has beside itself, where `u - a` becomes `u - a + by`; nothing is added by what is not given.
fn shifted(
    powers: &[u32],
    by: &[Option<&Term>],
    of: &dyn Fn(&[u32]) -> Option<Term>,
    total: &Term,
) -> Option<Vec<Term>> {
    let mut taken = vec![vec![]];
    for &p in powers {
        taken = taken.into_iter().flat_map(|v: Vec<u32>| (0..=p).map(move |k| [v.clone(), vec![k]].concat())).collect();
    }
    let mut out = vec![];
    for ks in taken {
        let stays = ks.iter().zip(by).any(|(k, by)| *k > 0 && by.is_none());
        let rest: Vec<u32> = powers.iter().zip(&ks).map(|(p, k)| p - k).collect();
        let base = match rest.iter().sum::<u32>() {
            // Itself, or about the mean itself 0.
            _ if stays || rest == powers => continue,
            1 => continue,
            0 => total.clone(),
            _ => of(&rest)?,
        };
        let ways: f64 = powers.iter().zip(&ks).map(|(&p, &k)| binomial(p, k)).product();
        let number = (ways != 1.0).then_some(Term::Number(ways));
        let moved = by.iter().zip(&ks).map(|(by, &k)| by.and_then(|by| power(by.clone(), k)));
        out.extend(times([number, Some(base)].into_iter().chain(moved)));
    }
    Some(out)
}
