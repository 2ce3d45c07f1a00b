//! The order of execution: components of mutually recursive statements, and an order within each.

use super::Resolver;
use super::dependencies::{Definitions, Use, components, cycle, members, reads_first, topological, uses};
use crate::{Diagnostic, IndexId, RankId, Span, Step};
use std::collections::BTreeMap;

/// A statement's position index within its recurrence.
type Positions = BTreeMap<usize, IndexId>;

impl Resolver<'_> {
    /// Fills [`crate::Cascade::order`].
    pub(super) fn order(&mut self) {
        let definitions = Definitions::new(&self.cascade);
        let needs: Vec<Vec<usize>> = (self.cascade.statements.iter())
            .map(|s| uses(s).iter().flat_map(|u| definitions.needed(&self.cascade, u)).collect())
            .collect();
        let mut steps = vec![];
        for component in components(&needs) {
            match self.step(component, &needs, &definitions) {
                Some(step) => steps.push(step),
                None => return,
            }
        }
        // Steps by their first statement in the source, moved later only where they need something.
        steps.sort_by_key(|s| members(s).iter().min().copied());
        let mut step_of = vec![0; needs.len()];
        for (k, step) in steps.iter().enumerate() {
            members(step).iter().for_each(|&s| step_of[s] = k);
        }
        let step_needs: Vec<Vec<usize>> = (steps.iter().enumerate())
            .map(|(k, step)| {
                let needed = members(step).iter().flat_map(|&s| &needs[s]);
                needed.map(|&n| step_of[n]).filter(|&n| n != k).collect()
            })
            .collect();
        self.cascade.order = topological(&step_needs).into_iter().map(|k| steps[k].clone()).collect();
    }

    /// One component: a statement by itself or a recurrence.
    fn step(&mut self, component: Vec<usize>, needs: &[Vec<usize>], definitions: &Definitions) -> Option<Step> {
        let alone = component.len() == 1 && !needs[component[0]].contains(&component[0]);
        let steppers: Vec<_> = component.iter().copied().filter(|&s| self.stepped(s).is_some()).collect();
        let Some(&first) = steppers.first() else {
            if alone {
                return Some(Step::Once(component[0]));
            }
            self.cyclic(&cycle(component[0], &component, needs), "");
            return None;
        };
        let rank = self.cascade[self.stepped(first)?].rank;
        let mut positions = Positions::new();
        for &s in &component {
            positions.insert(s, self.position(s, rank, &component, needs)?);
        }
        // What a member needs at its own position, members numbered within the component.
        let member: BTreeMap<usize, usize> = component.iter().enumerate().map(|(k, &s)| (s, k)).collect();
        let mut same = vec![];
        for &s in &component {
            let needed = self.at_same_position(s, &positions, definitions)?;
            same.push(needed.into_iter().map(|n| member[&n]).collect::<Vec<_>>());
        }
        let circle = components(&same).into_iter().find(|c| c.len() > 1 || same[c[0]].contains(&c[0]));
        if let Some(circle) = circle {
            let path: Vec<_> = cycle(circle[0], &circle, &same).into_iter().map(|k| component[k]).collect();
            self.cyclic(&path, " at the same position");
            return None;
        }
        let statements = topological(&same).into_iter().map(|k| component[k]).collect();
        Some(Step::Iterate { rank, statements })
    }

    /// The index of the dimension that the statement writes at `t + 1`.
    fn stepped(&self, statement: usize) -> Option<IndexId> {
        let statement = &self.cascade.statements[statement];
        let dim = self.cascade[statement.target].iterative?;
        statement.at[dim].as_shifted_var().map(|(index, _)| index)
    }

    /// The index that says at which position of `rank` a member of a recurrence is computed.
    fn position(&mut self, s: usize, rank: RankId, component: &[usize], needs: &[Vec<usize>]) -> Option<IndexId> {
        if let Some(index) = self.stepped(s) {
            if self.cascade[index].rank == rank {
                return Some(index);
            }
            let (a, b) = (&self.cascade[rank].name, &self.cascade[self.cascade[index].rank].name);
            let message = format!("one recurrence over {a} and over {b}");
            let span = self.cascade.statements[s].span;
            let d = Diagnostic::error("unbounded-recurrence", span, message);
            self.report.add(d.hint("mutually recursive tensors must step along the same rank"));
            return None;
        }
        let statement = &self.cascade.statements[s];
        let along = |i: &IndexId| self.cascade[*i].rank == rank;
        let indices: Vec<IndexId> = statement.at.iter().filter_map(|e| e.as_var()).filter(along).collect();
        match indices[..] {
            [index] => Some(index),
            [] => {
                self.cyclic(&cycle(s, component, needs), "");
                None
            }
            _ => {
                let (name, rank) = (&self.cascade[statement.target].name, &self.cascade[rank].name);
                let message =
                    format!("`{name}` takes part in a recurrence over {rank} and has two dimensions along it");
                let d = Diagnostic::error("ambiguous-recurrence", statement.span, message);
                self.report.add(d.hint(format!("give one of them a rank of its own, with the size of {rank}")));
                None
            }
        }
    }

    /// The members that `s` needs at its own position; `None` if it needs one at a later position.
    fn at_same_position(&mut self, s: usize, positions: &Positions, definitions: &Definitions) -> Option<Vec<usize>> {
        let mut out = vec![];
        let mut wrong: Option<(Span, String)> = None;
        for used in uses(&self.cascade.statements[s]) {
            let Some(main) = definitions.main[used.tensor.0 as usize].filter(|m| positions.contains_key(m)) else {
                continue;
            };
            match self.distance(&used, main, positions[&s], positions[&main]) {
                Distance::Earlier => {}
                Distance::Same => out.push(main),
                Distance::Unknown => {
                    wrong.get_or_insert_with(|| (used.span, self.cascade[used.tensor].name.clone()));
                }
            }
        }
        if let Some((span, name)) = wrong {
            let t = &self.cascade[positions[&s]].name;
            let iterative = self.cascade.tensor(&name).is_some_and(|id| self.cascade[id].iterative.is_some());
            let known =
                if iterative { format!("`{t}` or earlier, or at `{t}+1`") } else { format!("`{t}` or earlier") };
            let message = format!("at position `{t}`, `{name}` is known at {known}, and this may read a later one");
            self.report.add(
                Diagnostic::error("unbounded-recurrence", span, message)
                    .label(self.cascade.statements[s].span, "this statement takes part in the recurrence")
                    .hint(format!(
                        "read `{name}` at `{t}`, or at `{t} - 1` under a condition; to go from the end, read the inputs at `{} - 1 - {t}`",
                        self.cascade[self.cascade[positions[&s]].rank].name
                    )),
            );
            return None;
        }
        Some(out)
    }

    /// Where a use lies, seen from position `t`.
    fn distance(&self, used: &Use<'_>, main: usize, t: IndexId, their: IndexId) -> Distance {
        let tensor = &self.cascade[used.tensor];
        // The dimension along which the tensor is computed, and how far ahead of the position that writes it.
        let (dim, ahead) = match tensor.iterative {
            Some(dim) => (dim, 1),
            None => {
                let at = &self.cascade.statements[main].at;
                match at.iter().position(|e| e.as_var() == Some(their)) {
                    Some(dim) => (dim, 0),
                    None => return Distance::Unknown,
                }
            }
        };
        if ahead == 1 && reads_first(&used.at[dim]) {
            return Distance::Earlier;
        }
        match used.at[dim].as_shifted_var() {
            Some((index, shift)) if index == t && shift == ahead => Distance::Same,
            Some((index, shift)) if index == t && shift < ahead => Distance::Earlier,
            _ => Distance::Unknown,
        }
    }

    /// Spells a cycle out.
    fn cyclic(&mut self, path: &[usize], how: &str) {
        let target = |s: usize| &self.cascade[self.cascade.statements[s].target];
        let shown = path.iter().take(9).chain(&path[..1]).map(|&s| format!("`{}`", target(s).name));
        let shown = shown.collect::<Vec<_>>().join(" needs ");
        let message = if path.len() == 1 {
            format!("`{}` is defined by itself{how}", target(path[0]).name)
        } else {
            format!("these definitions go round in a circle{how}: {shown}")
        };
        let mut d = Diagnostic::error("cyclic-definition", self.cascade.statements[path[0]].span, message);
        for &s in path.iter().skip(1).take(8) {
            d = d.label(self.cascade.statements[s].span, "part of the circle");
        }
        let name = &target(path[0]).name;
        d = d.hint(format!("a recurrence steps along a rank: `{name}[0] = …` and `{name}[t+1] = … {name}[t] …`"));
        self.report.add(d);
    }
}

/// Where an element lies, seen from the position that is being computed.
enum Distance {
    Earlier,
    Same,
    /// Later, or somewhere that cannot be told.
    Unknown,
}
