//! What is said about a rewriting: steps, and what stands in the way of one.

use super::build::rename_placeholders;
use super::prefix::Why;
use super::sides::{Sides, together};
use super::site::{Parts, Site, open_maps};
use super::weights::Body;
use crate::derive::inline;
use crate::{Def, Node, Rule, Step, Term, show};
use einloom_cascade::{BinaryOp, IndexId};
use std::collections::BTreeSet;

impl Site {
    pub(super) fn steps(&self, sides: &Sides, inner: &[IndexId], state: &Node, after: String) -> Vec<Step> {
        let names = |list: &[IndexId]| -> String {
            list.iter().map(|&i| self.graph.cascade[i].name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let Def::Reduce(written) = &self.graph[self.id].def else { return vec![] };
        let ranks = |list: &[IndexId]| -> Vec<String> {
            list.iter().map(|&i| self.graph.cascade[self.graph.cascade[i].rank].name.clone()).collect()
        };
        let base = Step {
            rule: Rule::Reassociate,
            statement: self.node.statement.unwrap_or(0),
            node: self.node.name.clone(),
            ranks: ranks(&self.over),
            why: String::new(),
            before: show::reduction(&self.graph, written),
            after: after.clone(),
        };
        let mut steps = vec![];
        let shown = self.with(std::slice::from_ref(state));
        let def = rename_placeholders(&state.def, self.graph.nodes.len());
        if !inner.is_empty() {
            let outside = show::term(&self.graph, &sides.outside.term());
            let why = format!(
                "{outside} does not carry {}, and · distributes over the sums over {} and {}, which change places",
                names(&self.over),
                names(&self.over),
                names(inner)
            );
            let definition = match sides.prefix {
                None => format!(", where {} = {}", show::place(&self.graph, state), show::def(&shown, &def)),
                Some(_) => String::new(),
            };
            steps.push(Step { why, after: format!("{after}{definition}"), ..base.clone() });
        }
        if let Some(p) = &sides.prefix {
            let (n, m) = (names(&[p.of]), names(&[p.up_to]));
            let mut why = format!("the positions {n} that {m} sees are those that {m} - 1 sees and one more");
            if !sides.rho.is_empty() {
                let rho = sides.rho.iter().map(|t| show::term(&self.graph, t)).collect::<Vec<_>>().join("·");
                why += &format!(
                    "; relative to the latest position the weights of all earlier ones change by {rho} a step"
                );
            }
            let later = self.next_slice(state, &m);
            let before = if inner.is_empty() { base.before.clone() } else { after };
            let after = format!("{later} = {}", show::def(&shown, &def));
            steps.push(Step { rule: Rule::Prefix, node: state.name.clone(), why, before, after, ..base });
        }
        steps
    }

    /// The state at the next position of `m`, such as `O.state[m+1,d,e]`.
    pub(super) fn next_slice(&self, state: &Node, m: &str) -> String {
        let name = |i: &IndexId| self.graph.cascade[*i].name.clone();
        let axes = state.axes.iter().map(|i| if name(i) == m { format!("{m}+1") } else { name(i) });
        format!("{}[{}]", state.name, axes.collect::<Vec<_>>().join(","))
    }

    /// What is said of a factor that is data at the distance of both, or a sum of waves of that.
    pub(super) fn of_distance(&self, factor: &Term, asks: &[IndexId]) -> Option<Why> {
        let both = |list: &BTreeSet<IndexId>| {
            self.over.iter().any(|i| list.contains(i)) && asks.iter().any(|i| list.contains(i))
        };
        let names = |list: &[IndexId]| -> String {
            list.iter().map(|&i| self.graph.cascade[i].name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let (n, m) = (names(&self.over), names(asks));
        let mut data = None;
        factor.visit(&mut |t| {
            if let Term::Read(_, at) = t
                && at.iter().any(|e| {
                    let mut indices = BTreeSet::new();
                    e.visit_indices(&mut |i| _ = indices.insert(i));
                    both(&indices)
                })
            {
                data = Some(t.clone());
            }
        });
        if let Some(t) = data {
            let reason = format!(
                "{} is data at a distance between {m} and {n}: every {m} meets every {n} with another weight, so nothing of what an earlier {m} saw stays",
                show::term(&self.graph, &t)
            );
            let hint = format!(
                "weights that are a power or a polynomial of the distance, or sums of such products, would be carried from {m} to {m}"
            );
            return Some((reason, Some(hint)));
        }
        let Term::Read(x, at) = factor else { return None };
        let node = &self.graph[*x];
        let Def::Reduce(r) = &node.def else { return None };
        let place = |i: IndexId| node.axes.iter().position(|&a| a == i).map(|k| at[k].clone());
        let body = Body::of(&open_maps(&self.graph, &r.body, &r.over, false).substitute(&place)?, &self.graph);
        let mixes = |t: &Term| {
            let mut positions = BTreeSet::new();
            t.visit(&mut |t| {
                if let Term::Position(i) = t {
                    positions.insert(*i);
                }
            });
            both(&positions)
        };
        let (wave, _) = body.factors.iter().find(|(t, _)| mixes(t))?;
        let reason = format!(
            "{} depends on {m} and {n} together, and is no product of a function of each",
            show::term(&self.graph, wave)
        );
        Some((reason, Some(together(wave, &m, &n))))
    }

    /// What stands between this sum and another inside it and is not linear, where the sums could otherwise change
    /// places.
    pub(super) fn between(&self, parts: &Parts) -> Option<Why> {
        let carries = |t: &Term| t.mentions(&self.over);
        let exponents =
            parts.factors.weights.iter().flat_map(|w| {
                w.exponent.iter().filter_map(|(c, t)| Some((w.power(&vec![(*c, t.clone())])?, t.clone())))
            });
        // A sum of squares alone, such as a norm, is not meant to be taken apart.
        let alone = parts.filter.is_empty() && parts.factors.weights.is_empty() && parts.factors.factors.len() == 1;
        let powers = |(t, power): &(Term, f64)| {
            let whole = Term::Binary(BinaryOp::Pow, Box::new(t.clone()), Box::new(Term::Number(*power)));
            (if *power != 1.0 && !alone && matches!(t, Term::Read(..)) { whole } else { t.clone() }, t.clone())
        };
        let factors = parts.factors.factors.iter().map(powers);
        for (shown, t) in exponents.chain(factors).filter(|(_, t)| carries(t)) {
            let mut operands = vec![];
            let deep = open_maps(&self.graph, &t, &self.over, true);
            self.graph.reads(&deep, &mut operands);
            for o in operands {
                let read = Term::Read(o.node, o.at.to_vec());
                let alone = Body { coefficient: 1.0, factors: vec![(read.clone(), 1.0)], weights: vec![] };
                let alone =
                    Parts { factors: alone, filter: vec![], inner: vec![], query: BTreeSet::new(), ratios: vec![] };
                let mut site = self.clone();
                let Some(opened) = site.open(&alone, 0) else { continue };
                if matches!(&shown, Term::Read(..)) && shown == read {
                    continue;
                }
                let names = |list: &[IndexId]| -> String {
                    list.iter().map(|&i| site.graph.cascade[i].name.as_str()).collect::<Vec<_>>().join(", ")
                };
                let (n, d) = (names(&self.over), names(&opened.inner));
                if let Term::Read(x, _) = &shown
                    && let Some(dtype) = self.graph[*x].dtype.filter(|_| inline::rounds(&self.graph[*x]))
                {
                    let name = &self.graph[*x].name;
                    let reason = format!("{name} is rounded to {dtype} between the sums over {n} and {d}");
                    return Some((reason, Some(format!("{name} without a number type, or in f32, would do"))));
                }
                let reason = format!(
                    "{} stands between the sums over {n} and {d}, and is not linear in {}",
                    show::term(&self.graph, &shown),
                    self.graph[o.node].name
                );
                let hint = match &shown {
                    Term::Binary(BinaryOp::Add | BinaryOp::Sub, ..) => {
                        "as a sum for each of its addends, those that are products would let the sums change places"
                    }
                    Term::Binary(BinaryOp::Pow, _, p) if p.as_number().is_some_and(|p| p > 1.0 && p.fract() == 0.0) => {
                        "multiplied out, as one sum over as many indices of products of as many factors, it would let the sums change places, with a state for every combination of these indices"
                    }
                    _ => "products of a function of each side in its place would let the sums change places",
                };
                return Some((reason, Some(hint.to_string())));
            }
        }
        None
    }
}
