//! Which factors, weights and conditions belong to which sum.

use super::prefix::{self, Prefix, Why};
use super::site::{Parts, Site, positions};
use super::weights::Body;
use crate::product::Sum;
use crate::{Term, show};
use einloom_cascade::{IndexId, UnaryOp};

/// What carries the reduced index, and what does not.
pub(super) struct Sides {
    pub inside: Body,
    pub outside: Body,
    pub inside_filter: Vec<Term>,
    pub outside_filter: Vec<Term>,
    /// Ties the reduced index to the query side.
    pub prefix: Option<Prefix>,
    /// What the state is multiplied with per step.
    pub rho: Vec<Term>,
}

impl Site {
    /// Sorts a body's parts by whether they carry the reduced index.
    pub(super) fn sides(&self, parts: Parts) -> Result<Sides, Why> {
        let query: Vec<IndexId> = parts.query.iter().copied().collect();
        let (carries, asks) = (|t: &Term| t.mentions(&self.over), |t: &Term| t.mentions(&query));
        let names = |list: &[IndexId]| -> String {
            list.iter().map(|&i| self.graph.cascade[i].name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let one = || Body { coefficient: 1.0, factors: vec![], weights: vec![] };
        let mut out = Sides {
            inside: one(),
            outside: one(),
            inside_filter: vec![],
            outside_filter: vec![],
            prefix: None,
            rho: vec![],
        };
        out.outside.coefficient = parts.factors.coefficient;
        let mut tying = vec![];
        for f in parts.filter.clone() {
            match (carries(&f), asks(&f)) {
                (true, true) => tying.push(f),
                (true, false) => out.inside_filter.push(f),
                _ => out.outside_filter.push(f),
            }
        }
        if !tying.is_empty() {
            out.prefix = Some(Prefix::of(&self.graph, &tying, &self.over)?);
        }
        for (t, power) in &parts.factors.factors {
            let (t, power) = (t.clone(), *power);
            if !carries(&t) {
                out.outside.factors.push((t, power));
            } else if !asks(&t) {
                out.inside.factors.push((t, power));
            } else {
                let (shown, n, m) = (show::term(&self.graph, &t), names(&self.over), names(&query));
                let reason =
                    format!("{shown} depends on {m} and {n} together, and is no product of a function of each");
                let hint = together(&t, &m, &n);
                return Err((reason, Some(hint)));
            }
        }
        for w in parts.factors.weights.clone() {
            let (inner, outer): (Sum, Sum) = w.exponent.iter().cloned().partition(|(_, t)| carries(t));
            if let Some((_, t)) = inner.iter().find(|(_, t)| asks(t)) {
                let whole = w.power(&w.exponent).map_or(String::new(), |t| show::term(&self.graph, &t));
                let (shown, n, m) = (show::term(&self.graph, t), names(&self.over), names(&query));
                let reason = format!("{whole} is no product of a function of {m} and a function of {n}");
                return Err((reason, Some(format!("in an exponent only what adds splits, and {shown} joins the two"))));
            }
            if !outer.iter().any(|(_, t)| asks(t)) {
                // As it is: nothing of it belongs to the query side.
                let side = if inner.is_empty() { &mut out.outside } else { &mut out.inside };
                side.weights.push(w);
            } else if inner.is_empty() {
                out.outside.weights.push(w);
            } else if let Some(p) = &out.prefix {
                let decay = prefix::decay(&self.graph, p, &w, [&inner, &outer], &self.spans)?;
                out.rho.extend(decay.rho);
                out.outside.factors.extend(decay.left.map(|t| (t, 1.0)));
                out.inside.factors.extend(decay.stays.map(|t| (t, 1.0)));
            } else {
                let part = w.power(&inner).map_or(String::new(), |t| show::term(&self.graph, &t));
                let reason = format!("{part} alone may overflow where the whole weight does not");
                let hint =
                    "under a condition such as n <= m it would be taken relative to the latest position".to_string();
                return Err((reason, Some(hint)));
            }
        }
        let body = [&out.inside, &out.outside].map(Body::term);
        if let Some(t) = body.iter().chain(&out.rho).find(|t| self.reads_span(t)) {
            let reason = format!(
                "{} is made of all positions between two, of which not both belong to the sums that would change places",
                show::term(&self.graph, t)
            );
            return Err((reason, None));
        }
        if let Some(p) = &out.prefix {
            for ratio in &parts.ratios {
                out.rho.push(ratio.per_step(p, &self.graph)?);
            }
        }
        Ok(out)
    }
}

/// What would help where a factor depends on m and n together.
pub(super) fn together(t: &Term, m: &str, n: &str) -> String {
    match positions(t) {
        true if is_wave(t) => {
            "written as a sum of products, cos(a - b) = cos(a)·cos(b) + sin(a)·sin(b), it would be one prefix each; where a and b are large that loses the digits that a - b has".into()
        }
        true => format!("of the distance between {m} and {n} only a power decays by the same factor at every step"),
        false => format!("factors of {n} alone and of {m} alone would let the sums change places"),
    }
}

/// Whether it is a sine or a cosine.
fn is_wave(t: &Term) -> bool {
    matches!(t, Term::Unary(UnaryOp::Sin | UnaryOp::Cos, _))
}
