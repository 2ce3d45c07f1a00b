//! `einloom passes`: how often each input's fibre is read, as written and as derived.

use super::args::Source;
use super::failure::Failure;
use super::render::Place;
use super::source;
use super::table::Table;
use super::ui::Ui;
use einloom::Derived;
use serde::Serialize;
use serde::ser::SerializeMap;

/// A map in the order of the program, not of the alphabet.
#[derive(Debug)]
pub(crate) struct Ordered<V>(pub Vec<(String, V)>);

impl<V: Serialize> Serialize for Ordered<V> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (key, value) in &self.0 {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

#[derive(Debug, Serialize)]
struct PassesJson {
    cascade: String,
    ranks: Ordered<RankJson>,
    refusals: Vec<RefusalJson>,
}

#[derive(Debug, Serialize)]
struct RankJson {
    written: usize,
    derived: usize,
    tensors: Ordered<TensorJson>,
}

#[derive(Debug, Serialize)]
struct TensorJson {
    written: usize,
    derived: usize,
    footprint: String,
    written_by: Vec<Vec<String>>,
    derived_by: Vec<Vec<String>>,
}

/// A rule that did not fire. `statement` is the tensor that the statement defines.
#[derive(Debug, Serialize)]
pub(crate) struct RefusalJson {
    statement: String,
    rank: String,
    rule: &'static str,
    reason: String,
    hint: Option<String>,
    span: Option<Place>,
}

pub(crate) fn command(ui: &mut Ui, args: &Source) -> Result<(), Failure> {
    let derived = source::checked(ui, args)?.derive();
    if super::dumped(ui, &derived)? {
        return Ok(());
    }
    let data = PassesJson {
        cascade: derived.cascade().name.clone(),
        ranks: Ordered(ranks(&derived)),
        refusals: refusals(ui, &derived),
    };
    ui.result(|| text(&derived), &data)
}

fn ranks(derived: &Derived) -> Vec<(String, RankJson)> {
    let tensor = |t: &einloom_algebra::TensorPasses| {
        let json = TensorJson {
            written: t.written,
            derived: t.derived,
            footprint: t.footprint.clone(),
            written_by: t.written_by.clone(),
            derived_by: t.derived_by.clone(),
        };
        (t.tensor.clone(), json)
    };
    let rank = |r: &einloom_algebra::RankPasses| {
        let tensors = Ordered(r.tensors.iter().map(tensor).collect());
        (r.rank.clone(), RankJson { written: r.written, derived: r.derived, tensors })
    };
    derived.derivation().passes.ranks.iter().map(rank).collect()
}

/// The refusals as data.
pub(crate) fn refusals(ui: &Ui, derived: &Derived) -> Vec<RefusalJson> {
    let text = ui.source.as_ref().map_or("", |s| s.text.as_str());
    let one = |r: &einloom_algebra::Refusal| RefusalJson {
        statement: super::target(derived.cascade(), r.statement),
        rank: r.ranks.join(","),
        rule: r.rule.name(),
        reason: r.reason.clone(),
        hint: r.hint.clone(),
        span: Some(Place::of(r.span, text)),
    };
    derived.derivation().refusals.iter().map(one).collect()
}

/// The table, and what was refused.
pub(crate) fn text(derived: &Derived) -> String {
    let mut table = Table::new(&["rank", "tensor", "written", "derived", "footprint"]);
    let (many, once): (Vec<_>, Vec<_>) =
        derived.derivation().passes.ranks.iter().partition(|r| r.written > 1 || r.derived > 1);
    for rank in &many {
        table.row([rank.rank.clone(), String::new(), rank.written.to_string(), rank.derived.to_string()]);
        for t in &rank.tensors {
            let cells = [t.tensor.clone(), t.written.to_string(), t.derived.to_string(), t.footprint.clone()];
            table.row(std::iter::once(String::new()).chain(cells));
        }
    }
    let mut out = format!("{}: passes over memory\n", derived.cascade().name);
    if !many.is_empty() {
        out += &table.text();
    }
    for (rank, t) in many.iter().flat_map(|r| r.tensors.iter().map(|t| (&r.rank, t))) {
        for (what, by) in [("written", &t.written_by), ("derived", &t.derived_by)] {
            if by.len() > 1 {
                let passes: Vec<String> =
                    by.iter().enumerate().map(|(k, names)| format!("{} {}", k + 1, names.join(", "))).collect();
                out += &format!("  {} over {rank} as {what}: {}\n", t.tensor, passes.join(" | "));
            }
        }
    }
    if !once.is_empty() {
        let names: Vec<&str> = once.iter().map(|r| r.rank.as_str()).collect();
        out += &format!("  one pass over {}, as written and as derived\n", names.join(", "));
    }
    for r in &derived.derivation().refusals {
        let target = super::target(derived.cascade(), r.statement);
        let mut refused =
            format!("\nrefused: {} for {target} over {}: {}\n", r.rule.name(), r.ranks.join(", "), r.reason);
        if let Some(hint) = &r.hint {
            refused += &format!("  hint: {hint}\n");
        }
        // Several reductions of one statement may be refused for the same reason.
        if !out.contains(&refused) {
            out += &refused;
        }
    }
    out
}
