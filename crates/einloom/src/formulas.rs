//! The formulas of a plan: what each of its kernels moves and holds, with sizes and tile sizes as symbols.

use crate::{Derived, Planned};
use einloom_model::calculus::{Diagram, Memory, NoFormula, Optimum, Partition, Symbol, SymbolKind, Transfers};
use einloom_plan::{Form, PlannedKernel};
use einloom_tile::{Kernel, Op};
use std::collections::BTreeMap;

/// The formulas of one kernel. What is planned by 1 along an index counts as such, other tiles are symbols: `g_m` for the
/// positions of `m` that a core works on, `s_n` for those of `n` that stream past at a time.
#[derive(Clone, Debug)]
pub struct KernelFormulas {
    /// Values between the memory in which the arrays are and the tiles: `H`.
    pub transfers: Transfers,
    /// Values that the tiles hold at once: `M`.
    pub memory: Memory,
    /// The least transfers for a capacity, all groups being free: `H*`.
    pub optimum: Result<Optimum, NoFormula>,
    /// `H` for the plan's sizes and tiles, the last ones of which may be ragged. What a condition leaves out counts. `None`
    /// beyond what can be counted.
    pub values: Option<u128>,
}

impl Derived {
    /// The formulas of a kernel of a plan that was made of this derivation.
    ///
    /// # Errors
    /// What stands against a formula: a recurrence, or a node that only the planner knows.
    pub fn formulas(&self, planned: &Planned, kernel: usize) -> Result<KernelFormulas, NoFormula> {
        let forms = Form::all(self.derivation());
        let missing = |what: &str| NoFormula { reason: format!("the plan has no such {what}") };
        let form = forms.get(planned.form()).ok_or_else(|| missing("form"))?;
        let plan = planned.kernels().get(kernel).ok_or_else(|| missing("kernel"))?;
        let tiles = planned.program().kernels.get(kernel).ok_or_else(|| missing("kernel"))?;
        if let Some(shares) =
            planned.shares().iter().find(|s| s.called.iter().any(|c| tiles.axes.iter().any(|a| a.name == *c)))
        {
            return Err(NoFormula { reason: format!("its states are partial: {shares}") });
        }
        // What only the plan stores, such as another kernel's partial states, is none of the form's.
        let known = |name: &&str| form.graph.nodes.iter().any(|n| n.name == *name);
        let stored = planned.kernels().iter().flat_map(|k| &k.materialised).map(String::as_str);
        let stored: Vec<&str> = stored.filter(known).collect();
        let roots: Vec<&str> = plan.materialised.iter().map(String::as_str).collect();
        let diagram = Diagram::of_kernel(form.graph, &roots, &stored)?;
        let mut groups = groups(planned, plan)?;
        // A group of all positions is none: the index is whole, and what it adds to the memory counts with its size.
        let whole = |(name, tile): &(String, usize)| {
            let axes = || tiles.axes.iter().filter(|a| a.name == *name);
            plan.part.is_none() && axes().any(|a| a.extent > 1 && a.extent == *tile)
        };
        groups.retain(|group| !whole(group));
        let partition = partition(&groups, tiles);
        let transfers = diagram.transfers(&partition)?;
        let memory = diagram.memory(&partition)?;
        let optimum = diagram.optimum(&partition);
        let values = transfers.counted(numbers(planned, plan, &groups));
        Ok(KernelFormulas { transfers, memory, optimum, values })
    }
}

/// A kernel's groups along the indices as written: those of an index that is two in the program are of all that share a
/// quotient, or of one position, and those of indices that are one are whole rows of the second, or parts of one.
fn groups(planned: &Planned, plan: &PlannedKernel) -> Result<Vec<(String, usize)>, NoFormula> {
    let mut groups = plan.group.clone();
    for merge in planned.merges().iter().rev() {
        let refused = |what: &str| Err(NoFormula { reason: format!("{} is {what}", merge.of.join(" and ")) });
        if plan.stream.iter().any(|s| s.0 == merge.index) {
            return refused("streamed as one");
        }
        let Some(at) = groups.iter().position(|g| g.0 == merge.index) else { continue };
        let tile = groups[at].1;
        let [first, second] = merge.of.clone();
        groups[at] = (first, (tile / merge.by).max(1));
        match tile {
            // All positions of the second are no groups.
            tile if tile.is_multiple_of(merge.by) => {}
            tile if merge.by.is_multiple_of(tile) => groups.insert(at + 1, (second, tile)),
            tile => return refused(&format!("in groups of {tile}, which end within rows of {}", merge.by)),
        }
    }
    for split in planned.splits().iter().rev() {
        let place = |name: &str| groups.iter().position(|g| g.0 == *name);
        let (outer, inner) = (place(&split.outer), place(&split.inner));
        let Some(outer) = outer else { continue };
        // What is no group is whole.
        let (o, i) = (groups[outer].1, inner.map_or(split.by, |k| groups[k].1));
        if i != split.by && (o, i) != (1, 1) {
            let reason = format!("its groups are {i} of the {} positions of {} that share", split.by, split.index);
            return Err(NoFormula { reason });
        }
        groups[outer] = (split.index.clone(), o * i);
        inner.map(|k| groups.remove(k));
    }
    Ok(groups)
}

/// How a kernel divides its axes.
fn partition(groups: &[(String, usize)], kernel: &Kernel) -> Partition {
    let named = |one: bool| -> Vec<&str> {
        groups.iter().filter(|(_, tile)| (*tile == 1) == one).map(|(name, _)| name.as_str()).collect()
    };
    let mut streams = vec![];
    streamed(kernel, &kernel.body, &mut streams);
    let groups = Partition::whole().group(&named(false)).single(&named(true));
    streams.into_iter().fold(groups, Partition::stream)
}

/// The streams of a body, outer ones before those inside them, each once.
fn streamed<'a>(kernel: &'a Kernel, ops: &[Op], out: &mut Vec<&'a str>) {
    for op in ops {
        if let Op::Stream { axis, body, .. } = op {
            let name = kernel.axis(*axis).name.as_str();
            if !out.contains(&name) {
                out.push(name);
            }
            streamed(kernel, body, out);
        }
    }
}

/// What a symbol is in a plan.
fn numbers<'a>(
    planned: &'a Planned,
    plan: &'a PlannedKernel,
    groups: &'a [(String, usize)],
) -> impl Fn(&Symbol) -> Option<u64> + 'a {
    let ranks = planned.cascade().ranks.iter().map(|r| r.name.as_str()).zip(planned.bound().sizes().iter().copied());
    let sizes: BTreeMap<&str, usize> = ranks.collect();
    let tile = |tiles: &[(String, usize)], name: &str| tiles.iter().find(|t| t.0 == name).map(|t| t.1);
    move |s| {
        // A part of a kernel has fewer positions along one index than its rank says.
        if plan.part.is_some() {
            return None;
        }
        let found = match s.kind {
            SymbolKind::Size => sizes.get(s.name.as_str()).copied(),
            SymbolKind::Group => tile(groups, &s.name),
            SymbolKind::Stream => tile(&plan.stream, &s.name),
        };
        found.map(|n| n as u64)
    }
}
