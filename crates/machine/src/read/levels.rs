//! Reads the sections `[[level]]`: a tree.

use super::{Reader, Section};
use crate::machine::{holds_none, not_less, trunk};
use crate::{Bytes, BytesPerSecond, JoulesPerByte, Level, LevelKind};
use einloom_cascade::DType;
use std::iter::successors;
use std::ops::Range;
use toml::Spanned;

/// A level as it stands in the text.
struct Written<'a, 't> {
    section: Section<'a, 't>,
    level: Level,
    /// The name of the level outside it; `None` for the root.
    outer: Option<String>,
}

impl<'t> Reader<'t> {
    /// The tree, parents first. If it is none, or a level cannot be read, mistakes are reported.
    pub(super) fn levels(&mut self, top: &Section<'_, 't>, cores: Option<usize>, element: Option<Bytes>) -> Vec<Level> {
        let Some(value) = top.table.get("level") else {
            self.missing::<()>(top, "level");
            return vec![];
        };
        let Some(array) = value.get_ref().as_array().filter(|a| !a.is_empty()) else {
            let hint = Some("start each level with `[[level]]`".to_string());
            self.error(value.span(), "level", "is not a list of levels".to_string(), hint);
            return vec![];
        };
        let mut written: Vec<Written<'_, 't>> = vec![];
        for (k, item) in array.iter().enumerate() {
            let name = format!("level {}", k + 1);
            let Some(table) = item.get_ref().as_table() else {
                self.error(item.span(), &name, "is not a table".to_string(), None);
                continue;
            };
            let section = Section { table, name, span: item.span() };
            let Some(level) = self.level(&section, cores, k == 0) else { continue };
            if written.iter().any(|w| w.level.name == level.name) {
                self.at(&section, "name", format!("there is another level `{}`", level.name));
            }
            // A level that could not be read is reported already: nothing follows from what stands after it.
            let before = written.last().filter(|_| written.len() == k).map(|w| w.level.name.clone());
            let outer = self.string(&section, "parent").or(before);
            written.push(Written { section, level, outer });
        }
        let Some(levels) = self.tree(&written, value.span()) else { return vec![] };
        let complete = written.len() == array.len();
        self.sizes(&written, &levels, cores, complete);
        self.elements(top, &written, &levels, element);
        if complete && cores.is_some() {
            self.reach(&written, &levels);
        }
        levels
    }

    fn level(&mut self, at: &Section<'_, 't>, cores: Option<usize>, first: bool) -> Option<Level> {
        self.keys(at, &["name", "parent", "kind", "capacity", "shared_by", "count", "bandwidth", "energy"]);
        let name = self.name(at);
        let kind = self.kind(at);
        let misspelt = kind.is_none() && at.table.contains_key("kind");
        let kind = kind.unwrap_or_default();
        let capacity = self.quantity::<Bytes>(at, "capacity");
        if capacity == Some(Bytes(0)) {
            self.at(at, "capacity", "is zero".to_string());
        }
        let needed = !first && !misspelt && kind != LevelKind::Exchange;
        if capacity.is_none() && needed && !at.table.contains_key("capacity") {
            self.missing::<()>(at, "capacity");
        }
        let shared_by = self.shared_by(at, cores, first);
        let feeds = kind == LevelKind::Registers && !at.table.contains_key("bandwidth");
        let bandwidth = if feeds { Some(BytesPerSecond(f64::INFINITY)) } else { self.quantity(at, "bandwidth") };
        let bandwidth = bandwidth.or_else(|| self.missing(at, "bandwidth"));
        if bandwidth == Some(BytesPerSecond(0.0)) {
            self.at(at, "bandwidth", "is zero".to_string());
        }
        let energy = self.quantity::<JoulesPerByte>(at, "energy");
        Some(Level { name: name?, parent: None, kind, capacity, shared_by, bandwidth: bandwidth?, energy })
    }

    fn kind(&mut self, at: &Section<'_, 't>) -> Option<LevelKind> {
        let name = self.string(at, "kind")?;
        let found = LevelKind::ALL.into_iter().find(|k| k.name() == name);
        if found.is_none() {
            let names: Vec<&str> = LevelKind::ALL.iter().map(|k| k.name()).collect();
            self.at(at, "kind", format!("`{name}` is no kind of level; it is one of {}", names.join(", ")));
        }
        found
    }

    /// Cores per instance, from `shared_by` or from the number of instances.
    fn shared_by(&mut self, at: &Section<'_, 't>, cores: Option<usize>, first: bool) -> usize {
        let (shared_by, count) = (self.count(at, "shared_by"), self.count(at, "count"));
        // Without the number of cores, nothing can be said about who shares what.
        let Some(cores) = cores else { return shared_by.unwrap_or(1) };
        if let Some(count) = count {
            if !cores.is_multiple_of(count) {
                self.at(at, "count", format!("{cores} cores cannot be divided among {count}"));
            } else if let Some(shared_by) = shared_by.filter(|s| s.checked_mul(count) != Some(cores)) {
                self.at(
                    at,
                    "count",
                    format!(
                        "{count} shared by {shared_by} each make {}, not the {cores} cores",
                        count.saturating_mul(shared_by)
                    ),
                );
            }
            return shared_by.unwrap_or((cores / count).max(1));
        }
        let shared_by = shared_by.unwrap_or(if first { cores } else { 1 });
        if shared_by > cores || !cores.is_multiple_of(shared_by) {
            self.at(at, "shared_by", format!("{shared_by} does not divide the {cores} cores"));
        }
        shared_by
    }

    /// The levels with their parents' places, parents first, otherwise in the order in which they are written.
    fn tree(&mut self, written: &[Written<'_, 't>], span: Range<usize>) -> Option<Vec<Level>> {
        let place = |name: &String| written.iter().position(|w| w.level.name == *name);
        for w in written {
            if let Some(outer) = w.outer.as_ref().filter(|o| place(o).is_none()) {
                let names: Vec<&str> = written.iter().map(|w| w.level.name.as_str()).collect();
                let message = format!("there is no level `{outer}`; there are {}", names.join(", "));
                self.at(&w.section, "parent", message);
                return None;
            }
        }
        let mut order: Vec<usize> = vec![];
        loop {
            let ready = |k: &usize| {
                let outer = written[*k].outer.as_ref().and_then(place);
                !order.contains(k) && outer.is_none_or(|o| order.contains(&o))
            };
            let Some(next) = (0..written.len()).find(ready) else { break };
            order.push(next);
        }
        if let Some(k) = (0..written.len()).find(|k| !order.contains(k)) {
            let mut chain = vec![k];
            while let Some(outer) = written[chain[chain.len() - 1]].outer.as_ref().and_then(place) {
                chain.push(outer);
                if chain[..chain.len() - 1].contains(&outer) {
                    break;
                }
            }
            let names: Vec<String> = chain.iter().map(|&k| format!("`{}`", written[k].level.name)).collect();
            let message = format!("levels are inside each other: {}", names.join(" is inside "));
            self.at(&written[k].section, "parent", message);
            return None;
        }
        if written.is_empty() {
            return None;
        }
        if written[order[0]].level.kind != LevelKind::Memory {
            self.error(span, "level", "the outermost level is no memory".to_string(), None);
            return None;
        }
        let level = |&k: &usize| {
            let outer = written[k].outer.as_ref().and_then(place);
            let parent = outer.and_then(|o| order.iter().position(|&n| n == o));
            Level { parent, ..written[k].level.clone() }
        };
        Some(order.iter().map(level).collect())
    }

    /// Who shares what, and what fits where. Of levels that could not be read nothing is known: `complete` without any.
    fn sizes(&mut self, written: &[Written<'_, 't>], levels: &[Level], cores: Option<usize>, complete: bool) {
        for (k, level) in levels.iter().enumerate() {
            let Some(w) = written.iter().find(|w| w.level.name == level.name) else { continue };
            let at = &w.section;
            let Some(outer) = level.parent.map(|p| &levels[p]) else { continue };
            if outer.kind == LevelKind::Registers {
                self.at(at, "parent", format!("`{}` are registers: no level is inside them", outer.name));
            }
            if cores.is_some() && level.shared_by > outer.shared_by {
                let (inner, outside) = (level.shared_by, outer.shared_by);
                let text = format!("more cores share it ({inner}) than the level outside it ({outside})");
                self.at(at, "shared_by", text);
            }
            if let Some(text) = not_less(levels, k) {
                self.at(at, "capacity", text);
            }
        }
        for (k, level) in levels.iter().enumerate().filter(|(_, l)| l.kind == LevelKind::Exchange) {
            let Some(w) = written.iter().find(|w| w.level.name == level.name) else { continue };
            let inner = levels.iter().find(|l| l.kind == LevelKind::Memory && l.parent == Some(k));
            let Some(inner) = inner else {
                if complete {
                    self.at(&w.section, "kind", "there is no memory inside it to exchange".to_string());
                }
                continue;
            };
            if !level.shared_by.is_multiple_of(inner.shared_by) || level.shared_by <= inner.shared_by {
                let text = format!("{} cores make no group of those that share `{}`", level.shared_by, inner.name);
                self.at(&w.section, "shared_by", text);
            } else if let (Some(own), Some(one)) = (level.capacity, inner.capacity) {
                let together = Bytes(one.0.saturating_mul((level.shared_by / inner.shared_by) as u64));
                if own != together {
                    let text = format!("{own} is not the {together} that its cores have in `{}`", inner.name);
                    self.at(&w.section, "capacity", text);
                }
            }
        }
    }

    /// Each memory holds an element at least.
    fn elements(
        &mut self,
        top: &Section<'_, 't>,
        written: &[Written<'_, 't>],
        levels: &[Level],
        element: Option<Bytes>,
    ) {
        // A capacity of nothing is refused as such.
        let empty = |l: &&Level| l.capacity != Some(Bytes(0)) && holds_none(l, element).is_some();
        let longest = DType::ALL.into_iter().map(DType::bytes).max().unwrap_or(0);
        // An element longer than any number is itself what is wrong.
        if let Some(element) = element.filter(|e| e.0 > longest as u64) {
            let least = levels.iter().filter(empty).filter_map(|l| Some((l.capacity?, &l.name))).min();
            if let Some((capacity, name)) = least {
                self.at(top, "element", format!("{element} are more than the {capacity} of `{name}`"));
            }
            return;
        }
        for level in levels.iter().filter(empty) {
            let Some(w) = written.iter().find(|w| w.level.name == level.name) else { continue };
            if let Some(text) = holds_none(level, element) {
                self.at(&w.section, "capacity", text);
            }
        }
    }

    /// Plans come as near to the cores as any memory is: fewer cores share none beside their trunk than its last.
    fn reach(&mut self, written: &[Written<'_, 't>], levels: &[Level]) {
        let trunk = trunk(levels);
        let Some(&last) = trunk.last() else { return };
        let outwards = |k: usize| successors(Some(k), |&k| levels[k].parent);
        let way: Vec<usize> = outwards(last).collect();
        let nearer = |l: &Level| l.kind == LevelKind::Memory && l.shared_by < levels[last].shared_by;
        let mut told = vec![];
        for (k, level) in levels.iter().enumerate().filter(|(_, l)| nearer(l)) {
            // The mistake is where the branch leaves the way, and one for all that is on the branch.
            let Some(branch) = outwards(k).take_while(|k| !way.contains(k)).last() else { continue };
            if told.contains(&branch) {
                continue;
            }
            told.push(branch);
            let Some(w) = written.iter().find(|w| w.level.name == levels[branch].name) else { continue };
            let (end, most) = (&levels[last].name, levels[last].shared_by);
            let message = format!(
                "plans end at `{end}`, shared by {most}, and never come to `{}`, shared by {}",
                level.name, level.shared_by
            );
            let held = levels[branch].capacity.max(level.capacity);
            let roomy =
                |o: &Level| o.shared_by >= levels[branch].shared_by && o.capacity.is_none_or(|c| held < Some(c));
            let instead = trunk.iter().rfind(|&&t| roomy(&levels[t])).filter(|&&t| levels[branch].parent != Some(t));
            let instead = instead.map_or(String::new(), |&t| format!("write `parent = \"{}\"`; ", levels[t].name));
            let hint = format!("{instead}of memories side by side plans pass the one listed first");
            let span = w.section.table.get("parent").map_or(w.section.span.clone(), Spanned::span);
            self.error(span, &w.section.field("parent"), message, Some(hint));
        }
    }
}
