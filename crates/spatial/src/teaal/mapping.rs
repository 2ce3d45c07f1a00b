//! `mapping` and `binding`: which ranks are cut, which run in space, and what the buffer holds.

use super::architecture::Machine;
use super::einsum::Einsums;
use super::reader::Reader;
use super::yaml::Node;
use crate::{Binding, Block, Dataflow, Extent, Kernel, Phase, Space};
use std::collections::BTreeMap;

pub(super) fn read(r: &mut Reader<'_>, root: &Node, einsums: &Einsums, machine: Option<&Machine>) -> Option<Binding> {
    let none = Node { value: super::yaml::Value::Map(vec![]), line: root.line, column: root.column };
    let at = root.get("mapping").unwrap_or(&none);
    r.keys(at, "mapping", &["rank-order", "partitioning", "loop-order", "spacetime"]);
    rank_order(r, at, einsums);
    let held = held(r, root, einsums, machine);
    let mut binding = Binding {
        name: "teaal".to_owned(),
        description: "the mapping of a TeAAL specification".to_owned(),
        ..Binding::default()
    };
    let machine = machine?;
    let array = machine.chip.arrays.first()?;
    let ranks = all_ranks(einsums);
    for name in &einsums.defined {
        let tiles = at.get("partitioning").and_then(|p| p.get(name));
        let tile = tiles.map(|t| partitioning(r, t, name, &ranks)).unwrap_or_default();
        let order = at.get("loop-order").and_then(|l| l.get(name));
        let outermost = order.and_then(|o| loop_order(r, o, name, &ranks, &tile));
        let spacetime = at.get("spacetime").and_then(|s| s.get(name));
        let space = spacetime.map(|s| spacetime_of(r, s, &ranks, &tile)).unwrap_or_default();
        let sides = match (space.as_slice(), array.rows) {
            ([], _) => Space::default(),
            ([one], 1) => Space { rows: None, columns: Some(one.clone()) },
            ([one], _) => Space { rows: Some(one.clone()), columns: None },
            ([one, two], n) if n > 1 => Space { rows: Some(one.clone()), columns: Some(two.clone()) },
            _ => {
                let message = format!("{name} has {} ranks in space, more than the array has sides", space.len());
                r.problem(spacetime.unwrap_or(at), "spacetime", &message, "");
                Space::default()
            }
        };
        match binding.space.get(&array.name) {
            Some(before) if *before != sides => {
                let message = format!("{name} has other ranks in space than the Einsums before it");
                r.problem(spacetime.unwrap_or(at), "spacetime", &message, "all Einsums of an array have the same here");
            }
            _ => drop(binding.space.insert(array.name.clone(), sides)),
        }
        let block = outermost.and_then(|rank| tile.get(&rank).map(|n| Block::Fixed { rank, size: *n }));
        let phase = Phase { runs: BTreeMap::from([(array.name.clone(), vec![name.clone()])]), ..Phase::default() };
        binding.kernels.push(Kernel {
            name: name.clone(),
            tile: tile.into_iter().map(|(rank, n)| (rank, Extent::Size(n))).collect(),
            phases: vec![phase],
            dataflows: vec![Dataflow {
                block,
                holds: held.get(name).cloned().unwrap_or_default(),
                ..Dataflow::default()
            }],
            ..Kernel::default()
        });
    }
    (!binding.kernels.is_empty()).then_some(binding)
}

/// All ranks of declared tensors.
fn all_ranks(einsums: &Einsums) -> Vec<String> {
    let mut all: Vec<String> = einsums.declared.values().flatten().cloned().collect();
    all.sort();
    all.dedup();
    all
}

fn rank_order(r: &mut Reader<'_>, at: &Node, einsums: &Einsums) {
    let Some(orders) = at.get("rank-order") else { return };
    for (tensor, order) in r.entries(orders, "rank-order") {
        let name = tensor.scalar().unwrap_or_default();
        let mut given: Vec<&str> = r.texts(order, "rank-order").into_iter().map(|t| t.1).collect();
        let Some(declared) = einsums.declared.get(name) else {
            r.problem(tensor, "rank-order", &format!("{name} is not declared"), "");
            continue;
        };
        let mut own: Vec<&str> = declared.iter().map(String::as_str).collect();
        if given != own {
            r.notes.push(format!("rank-order of {name}: dense tensors are read in any order"));
        }
        given.sort_unstable();
        own.sort_unstable();
        if given != own {
            r.problem(
                order,
                "rank-order",
                &format!("does not have the ranks of {name}"),
                &format!("they are {}", own.join(", ")),
            );
        }
    }
}

/// Tile extents by rank.
fn partitioning(r: &mut Reader<'_>, at: &Node, name: &str, ranks: &[String]) -> BTreeMap<String, usize> {
    let mut out = BTreeMap::new();
    for (rank, how) in r.entries(at, "partitioning") {
        let Some(rank_name) = rank.scalar() else { continue };
        let field = format!("partitioning {name} {rank_name}");
        if rank_name.starts_with('(') {
            r.problem(rank, &field, "several ranks at once (flatten) are not supported", "");
            continue;
        }
        if !ranks.iter().any(|x| x == rank_name) {
            r.problem(
                rank,
                &field,
                &format!("there is no rank {rank_name}"),
                &format!("ranks are {}", ranks.join(", ")),
            );
        }
        let all = r.texts(how, &field);
        if all.len() > 1 {
            r.problem(how, &field, "more than one level of parts is not supported", "give one uniform_shape");
        }
        for (node, text) in all.into_iter().take(1) {
            let inside = text.trim().strip_prefix("uniform_shape(").and_then(|t| t.strip_suffix(')'));
            match inside.map(|n| n.trim().parse::<usize>()) {
                Some(Ok(n)) if n > 0 => drop(out.insert(rank_name.to_owned(), n)),
                Some(_) => {
                    r.problem(node, &field, &format!("`{text}` has no number of positions"), "uniform_shape(256)")
                }
                None => {
                    let kind = text.split('(').next().unwrap_or(text);
                    r.problem(node, &field, &format!("`{kind}` is not supported"), "uniform_shape(N) is");
                }
            }
        }
    }
    out
}

/// The rank that a name of `loop-order` or `spacetime` means: `K1` and `K0` are parts of `K` if that is cut.
fn base<'n>(name: &'n str, ranks: &[String], tile: &BTreeMap<String, usize>) -> Option<(&'n str, bool)> {
    if ranks.iter().any(|r| r == name) {
        return (!tile.contains_key(name)).then_some((name, false));
    }
    let stem = name.strip_suffix('0').or_else(|| name.strip_suffix('1'))?;
    tile.contains_key(stem).then_some((stem, name.ends_with('1')))
}

/// The outermost rank, if it is the parts of a rank that is cut.
fn loop_order(
    r: &mut Reader<'_>,
    at: &Node,
    name: &str,
    ranks: &[String],
    tile: &BTreeMap<String, usize>,
) -> Option<String> {
    let all = r.texts(at, "loop-order");
    let mut outermost = None;
    for (k, (node, text)) in all.iter().enumerate() {
        match base(text, ranks, tile) {
            None => r.problem(
                node,
                "loop-order",
                &format!("there is no rank {text} in {name}"),
                "parts of a rank K are K1 and K0",
            ),
            Some((rank, true)) if k == 0 => outermost = Some(rank.to_owned()),
            Some(_) => {}
        }
    }
    if all.len() > 1 {
        r.notes.push(format!("loop-order of {name}: only the outermost loop matters; the others may run in any order"));
    }
    outermost
}

fn spacetime_of(r: &mut Reader<'_>, at: &Node, ranks: &[String], tile: &BTreeMap<String, usize>) -> Vec<String> {
    r.keys(at, "spacetime", &["space", "time"]);
    let mut out = vec![];
    for (key, rank) in [("time", false), ("space", true)].into_iter().filter_map(|(k, s)| Some((at.get(k)?, s))) {
        for (node, text) in r.texts(key, "spacetime") {
            let (name, stamp) = text.split_once('.').unwrap_or((text, "pos"));
            if stamp != "pos" {
                r.problem(
                    node,
                    "spacetime",
                    &format!("`.{stamp}` is not supported"),
                    "dense tensors have positions: .pos",
                );
            }
            match base(name, ranks, tile) {
                None => {
                    r.problem(node, "spacetime", &format!("there is no rank {name}"), "parts of a rank K are K1 and K0")
                }
                Some((_, true)) if rank => {
                    let hint = "parts run one after the other here; positions within a part (K0) may run in space";
                    r.problem(node, "spacetime", &format!("{name} in space is not supported"), hint);
                }
                Some((base, _)) if rank => out.push(base.to_owned()),
                Some(_) => {}
            }
        }
    }
    out
}

/// By Einsum: tensors that are bound to a buffer outside the elements.
fn held(
    r: &mut Reader<'_>,
    root: &Node,
    einsums: &Einsums,
    machine: Option<&Machine>,
) -> BTreeMap<String, Vec<String>> {
    let mut out: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let Some(all) = root.get("binding").or_else(|| root.get("bindings")) else { return out };
    let ranks = all_ranks(einsums);
    for (einsum, list) in r.entries(all, "binding") {
        let name = einsum.scalar().unwrap_or_default();
        if !einsums.defined.iter().any(|d| d == name) {
            r.problem(
                einsum,
                "binding",
                &format!("there is no Einsum {name}"),
                &format!("they are {}", einsums.defined.join(", ")),
            );
            continue;
        }
        for item in list.list().unwrap_or_default() {
            if let Some(config) = item.get("config") {
                if let Some(m) = machine.filter(|m| config.scalar() != Some(m.config.as_str())) {
                    r.problem(config, "binding", "there is no such architecture", &format!("it is {}", m.config));
                }
                r.keys(item, "binding", &["config", "prefix"]);
                continue;
            }
            r.keys(item, "binding", &["component", "bindings"]);
            let Some(component) = r.text(item, "component", "binding") else { continue };
            let is = |names: &[String]| names.iter().any(|n| n == component);
            let Some(m) = machine else { continue };
            if !is(&m.buffers) && !is(&m.compute) && !is(&m.others) {
                let all: Vec<&str> = m.buffers.iter().chain(&m.compute).chain(&m.others).map(String::as_str).collect();
                let hint = format!("they are {}", all.join(", "));
                r.problem(item, "binding", &format!("there is no component {component}"), &hint);
            }
            for bound in item.get("bindings").and_then(Node::list).unwrap_or_default() {
                r.keys(bound, component, &["tensor", "rank", "type", "format", "style", "evict-on", "op"]);
                values(r, bound, component, &ranks);
                if let Some(tensor) = bound.get("tensor") {
                    let tensor_name = tensor.scalar().unwrap_or_default().to_owned();
                    if !einsums.declared.contains_key(&tensor_name) {
                        r.problem(tensor, component, &format!("{tensor_name} is not declared"), "");
                    }
                    let own = out.entry(name.to_owned()).or_default();
                    if is(&m.buffers) && !own.contains(&tensor_name) {
                        own.push(tensor_name);
                    }
                }
            }
        }
    }
    out
}

/// Refuses values of a bound tensor or operation that mean nothing in TeAAL. None of them changes a cost here.
fn values(r: &mut Reader<'_>, bound: &Node, component: &str, ranks: &[String]) {
    let known: [(&str, &[&str]); 3] =
        [("type", &["payload", "coord", "elem"]), ("style", &["lazy", "eager"]), ("op", &["mul", "add", "div"])];
    for (key, values) in known {
        if let Some(node) = bound.get(key)
            && !node.scalar().is_some_and(|v| values.contains(&v))
        {
            let message = format!("the {key} {} is not supported", node.scalar().unwrap_or("of this form"));
            r.problem(node, component, &message, &format!("known: {}", values.join(", ")));
        }
    }
    for key in ["rank", "evict-on"] {
        let Some(node) = bound.get(key) else { continue };
        let text = node.scalar().unwrap_or_default();
        let stem = text.trim_end_matches(|c: char| c.is_ascii_digit());
        if text != "root" && !ranks.iter().any(|r| r == text || r == stem) {
            r.problem(node, component, &format!("there is no rank {text}"), &format!("ranks are {}", ranks.join(", ")));
        }
    }
}
