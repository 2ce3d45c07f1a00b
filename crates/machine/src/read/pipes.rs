//! Reads the sections `[rates]` and `[[pipe]]`, and checks figures against each other.

use super::{Reader, Section};
use crate::{FlopsPerSecond, JoulesPerOperation, LevelKind, Machine, Pipe, UnitError, Work};
use einloom_cascade::DType;
use std::collections::BTreeMap;
use std::str::FromStr;
use toml::Spanned;
use toml::de::DeValue;

/// What two figures for the same rate may differ by: vendors quote boost clocks that differ from each other.
const AGREE: f64 = 0.1;

impl<'t> Reader<'t> {
    /// The pipes. `[rates]` is one that does everything.
    pub(super) fn pipes(&mut self, top: &Section<'_, 't>) -> Vec<Pipe> {
        let mut pipes = vec![];
        if let Some(value) = top.table.get("rates") {
            let rates = self.by_type::<FlopsPerSecond>(value, "rates");
            let name = "arithmetic".to_string();
            pipes.push(Pipe { name, work: Work::Arithmetic, rates, energy: BTreeMap::new() });
        }
        if let Some(value) = top.table.get("pipe") {
            self.listed(value, &mut pipes);
        }
        if pipes.is_empty() && !top.table.contains_key("pipe") {
            self.missing::<()>(top, "rates");
        } else if !pipes.iter().any(|p| p.work != Work::Special && p.rates.contains_key(&DType::F32)) {
            let section = if top.table.contains_key("rates") { "rates" } else { "pipe" };
            let span = top.table.get(section).map_or(0..0, Spanned::span);
            self.error(span, &format!("{section} f32"), "is missing".to_string(), None);
        }
        for pipe in &pipes {
            for (dtype, rate) in &pipe.rates {
                if *rate == FlopsPerSecond(0.0) {
                    let place = top.table.get("rates").or_else(|| top.table.get("pipe")).map_or(0..0, Spanned::span);
                    let message = "is zero; leave it out if it is computed in f32".to_string();
                    self.error(place, &format!("{} {dtype}", pipe.name), message, None);
                }
            }
        }
        pipes
    }

    fn listed(&mut self, value: &Spanned<DeValue<'t>>, pipes: &mut Vec<Pipe>) {
        let Some(array) = value.get_ref().as_array() else {
            let hint = Some("start each pipe with `[[pipe]]`".to_string());
            self.error(value.span(), "pipe", "is not a list of pipes".to_string(), hint);
            return;
        };
        for (k, item) in array.iter().enumerate() {
            let name = format!("pipe {}", k + 1);
            let Some(table) = item.get_ref().as_table() else {
                self.error(item.span(), &name, "is not a table".to_string(), None);
                continue;
            };
            let at = Section { table, name, span: item.span() };
            self.keys(&at, &["name", "work", "rates", "energy"]);
            let name = self.name(&at);
            let work = self.work(&at);
            let rates = table.get("rates").or_else(|| self.missing(&at, "rates"));
            let rates = rates.map(|v| self.by_type::<FlopsPerSecond>(v, &at.field("rates")));
            let energy = table.get("energy").map(|v| self.by_type::<JoulesPerOperation>(v, &at.field("energy")));
            let (Some(name), Some(work), Some(rates)) = (name, work, rates) else { continue };
            if pipes.iter().any(|p| p.name == name) {
                self.at(&at, "name", format!("there is another pipe `{name}`"));
            }
            if table.get("rates").and_then(|v| v.get_ref().as_table()).is_some_and(|t| t.is_empty()) {
                self.at(&at, "rates", "is empty".to_string());
            }
            let shared = |p: &Pipe| p.rates.keys().find(|d| rates.contains_key(d)).map(|d| (p.name.clone(), *d));
            if let Some((other, dtype)) = pipes.iter().filter(|p| p.work == work).find_map(shared) {
                let text = format!("`{other}` does {} in {dtype} too: only the faster would count", work.name());
                self.at(&at, "work", text);
            }
            let energy = energy.unwrap_or_default();
            if let Some(stray) = energy.keys().find(|d| !rates.contains_key(d)) {
                self.at(&at, "energy", format!("{stray} has an energy but no rate"));
            }
            pipes.push(Pipe { name, work, rates, energy });
        }
    }

    fn work(&mut self, at: &Section<'_, 't>) -> Option<Work> {
        let name = self.string(at, "work").or_else(|| self.missing(at, "work"))?;
        let found = Work::ALL.into_iter().find(|w| w.name() == name);
        if found.is_none() {
            let names: Vec<&str> = Work::ALL.iter().map(|w| w.name()).collect();
            self.at(at, "work", format!("`{name}` is no work of a pipe; it is one of {}", names.join(", ")));
        }
        found
    }

    fn by_type<T: FromStr<Err = UnitError>>(&mut self, value: &Spanned<DeValue<'t>>, name: &str) -> BTreeMap<DType, T> {
        let mut out = BTreeMap::new();
        let Some(table) = value.get_ref().as_table() else {
            self.error(value.span(), name, "is not a table".to_string(), None);
            return out;
        };
        let at = Section { table, name: name.to_string(), span: value.span() };
        let names: Vec<&str> = DType::ALL.iter().map(|d| d.name()).collect();
        self.keys(&at, &names);
        for dtype in DType::ALL {
            if let Some(quantity) = self.quantity::<T>(&at, dtype.name()) {
                out.insert(dtype, quantity);
            }
        }
        out
    }

    /// Figures that are given twice, in two ways.
    pub(super) fn agreement(&mut self, top: &Section<'_, 't>, machine: &Machine) {
        let Some(lanes) = &machine.lanes else { return };
        let span = |key: &str| top.table.get(key).map_or(0..0, Spanned::span);
        let all = machine.cores as f64 * machine.clock.0;
        let special = machine.pipe(Work::Special, DType::F32).and_then(|p| p.rates.get(&DType::F32));
        if let Some(rate) = special.filter(|r| (r.0 / (lanes.special as f64 * all) - 1.0).abs() > AGREE) {
            let own = FlopsPerSecond(lanes.special as f64 * all);
            let message =
                format!("{} lanes of {} cores do {own}, not the {rate} of the pipe", lanes.special, machine.cores);
            self.error(span("lanes"), "lanes special", message, None);
        }
        if lanes.block_threads > lanes.threads {
            let message = format!("a block has more threads than a core holds, {}", lanes.threads);
            self.error(span("lanes"), "lanes block_threads", message, None);
        }
        let Some(file) = machine.levels.iter().find(|l| l.kind == LevelKind::Registers) else {
            if !machine.matrix.is_empty() && !machine.levels.is_empty() {
                let message = "no level is registers: a machine with a matrix unit has them".to_string();
                self.error(span("matrix"), "level", message, None);
            }
            return;
        };
        let held = file.per_core().map_or(u64::MAX, |b| b.0 / 4);
        if held < lanes.threads as u64 {
            let message = format!("{} threads have less than a register each of the core's {held}", lanes.threads);
            self.error(span("lanes"), "lanes threads", message, None);
        }
        if held < lanes.registers as u64 {
            let message = format!("a thread has more registers than the core's {held}");
            self.error(span("lanes"), "lanes registers", message, None);
        }
    }
}
