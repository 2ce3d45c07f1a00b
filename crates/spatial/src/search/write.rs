//! A binding as its file.

use crate::{Binding, Block, Dataflow, Extent, Kernel};
use std::fmt::Write;

impl Binding {
    /// The file that [`Binding::parse`] reads this binding from, but for what reproduces published counts, and faults,
    /// which bindings of one's own do not have.
    pub fn to_toml(&self) -> String {
        let mut out = format!("name = {:?}\ndescription = {:?}\n", self.name, self.description);
        extents(&mut out, "sizes", &self.sizes);
        out.push_str("\n[space]\n");
        for (array, space) in &self.space {
            let side = |key: &str, rank: &Option<String>| rank.as_ref().map(|r| format!("{key} = {r:?}"));
            let sides: Vec<String> =
                [side("rows", &space.rows), side("columns", &space.columns)].into_iter().flatten().collect();
            let _ = writeln!(out, "{} = {{ {} }}", key(array), sides.join(", "));
        }
        self.kernels.iter().for_each(|k| kernel(&mut out, k));
        out
    }
}

fn key(name: &str) -> String {
    let bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_');
    if bare { name.to_owned() } else { format!("{name:?}") }
}

fn extents(out: &mut String, name: &str, all: &std::collections::BTreeMap<String, Extent>) {
    if all.is_empty() {
        return;
    }
    let one = |(rank, extent): (&String, &Extent)| match extent {
        Extent::Size(n) => format!("{} = {n}", key(rank)),
        Extent::Rows(array) => format!("{} = \"{array}.rows\"", key(rank)),
        Extent::Columns(array) => format!("{} = \"{array}.columns\"", key(rank)),
    };
    let _ = writeln!(out, "{name} = {{ {} }}", all.iter().map(one).collect::<Vec<_>>().join(", "));
}

fn list(out: &mut String, name: &str, all: &[String]) {
    if !all.is_empty() {
        let _ = writeln!(out, "{} = {all:?}", key(name));
    }
}

fn kernel(out: &mut String, kernel: &Kernel) {
    let _ = writeln!(out, "\n[[kernel]]\nname = {:?}", kernel.name);
    extents(out, "tile", &kernel.tile);
    list(out, "through", &kernel.through);
    for phase in &kernel.phases {
        out.push_str("\n[[kernel.phase]]\n");
        if phase.in_turn {
            out.push_str("in_turn = true\n");
        }
        if let Some(array) = &phase.drains {
            let _ = writeln!(out, "drains = {array:?}");
        }
        phase.runs.iter().for_each(|(array, einsums)| list(out, array, einsums));
    }
    if !kernel.lags.is_empty() {
        out.push_str("\n[kernel.lag]\n");
        for (einsum, lag) in &kernel.lags {
            let _ = writeln!(out, "{} = {lag}", key(einsum));
        }
    }
    kernel.dataflows.iter().for_each(|d| dataflow(out, d));
}

fn dataflow(out: &mut String, flow: &Dataflow) {
    out.push_str("\n[[kernel.dataflow]]\n");
    if let Some(block) = &flow.block {
        let _ = writeln!(out, "block = {:?}", block.rank());
        match block {
            Block::Fixed { size, .. } => drop(writeln!(out, "block_size = {size}")),
            Block::Balanced { least, .. } => drop(writeln!(out, "least_tiles = {least}")),
            Block::Largest { most: Some(most), .. } => drop(writeln!(out, "block_most = {most}")),
            Block::Largest { .. } => {}
        }
    }
    list(out, "holds", &flow.holds);
    list(out, "whole", &flow.whole);
    list(out, "uncut", &flow.uncut);
    list(out, "spills", &flow.spills);
}
