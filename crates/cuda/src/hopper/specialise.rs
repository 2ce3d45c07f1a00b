//! From a tile kernel to its specialised schedule.

use super::bulk::{self, Copied};
use super::overlap::Known;
use super::sequence::{Sequencer, overlaps};
use super::{Reason, Specialised, Turns, descriptors, fit, rows, share};
use crate::schedule::facts::{Facts, each_op, written};
use crate::schedule::{
    Arch, Home, Made, Pipeline, Product, Schedule, Side, Target, frames, in_place, operands, order, packing, partial,
    product, registers,
};
use einloom_tile::{Kernel, Op, Program, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// Registers that addresses, loop counters and operands in flight take beside the tiles.
const OVERHEAD: usize = 24;

/// Schedules a kernel of a well-formed program as a producer and consumers.
///
/// # Errors
/// The first condition that it does not meet.
pub fn specialise(program: &Program, kernel: &Kernel, target: &Target) -> Result<Specialised, Reason> {
    if target.arch != Arch::Sm90a {
        return Err(Reason::new(format!("{}", target.arch), "it has no wgmma"));
    }
    let facts = Facts::new(program, kernel);
    let mut picks = None;
    each_op(&kernel.body, &mut |op| {
        if let Op::Pick { dst, .. } = op {
            picks = picks.or(Some(*dst));
        }
    });
    if let Some(dst) = picks {
        let why = "elements are picked from rows of other warpgroups, which do not wait for each other";
        return Err(Reason::new(format!("{} = pick", facts.name(dst)), why));
    }
    let mut fallbacks = vec![];
    let mut products = product::choose(&facts, &mut fallbacks);
    let mut frames = frames::choose(&facts, &products);
    operands::orient(&facts, &frames, &mut products, &mut fallbacks);
    let (axis, consumers) = rows::share(&facts, &mut frames, &products)?;
    from_memory(&facts, &mut products);
    let in_place = in_place::choose(&facts, &frames);
    let partial = partial::choose(&facts, &frames, &in_place);
    let packed = packing::choose(&facts, &frames, &products, &in_place);
    let copied = bulk::choose(&facts, &frames, &products, consumers)?;
    let known = Known { facts: &facts, products: &products, copied: &copied, in_place: &in_place };
    let overlaps = overlaps(&known);
    let mut rings = fit::rings(&facts, &copied, &products, &overlaps, consumers);
    let shared_bytes = fit::place(&mut rings, &copied, target.shared_bytes, &kernel.name, kernel.stages)?;
    let split = fit::registers(consumers);
    let turns = consumers > 1 && overlaps.values().any(|o| !o.deferred.is_empty());
    let needed = need(&known, &frames, &packed, &overlaps) + OVERHEAD;
    if needed > split.consumer {
        return Err(Reason::new(
            format!("kernel {}", kernel.name),
            format!("about {needed} registers per thread of a consumer, of {}", split.consumer),
        ));
    }
    for (dst, p) in &products {
        let across =
            facts.axes(*dst).into_iter().find(|a| frames.frames[p.frame.0].sides.get(a) == Some(&Side::Across));
        let columns = across.map_or(0, |a| frames.frames[p.frame.0].span(Side::Across, facts.size(a)).cover);
        let (takes, has) = (fit::of_instruction(columns), fit::at_start(consumers));
        if takes > has {
            return Err(Reason::new(
                kernel.value(*dst).name.clone(),
                format!(
                    "a wgmma of {columns} columns takes {takes} registers, of {has} that {consumers} warpgroups start with"
                ),
            ));
        }
    }
    let order = order::choose(&facts);
    let given = share::Given { known: &known, frames: &frames, order: &order, consumers };
    let (cluster, apart) = match share::choose(&given, &mut rings, target) {
        Ok(cluster) => (Some(cluster), None),
        Err(reason) => (None, Some(reason)),
    };
    let order = cluster.map_or(order.clone(), |c| order.in_clusters(c.axis, c.size));
    let sequencer = Sequencer { known: &known, rings: &rings, overlaps: &overlaps, turns };
    let (producer, consumer) = (sequencer.producer(), sequencer.consumer());
    let homes = homes(&facts, &frames, &copied);
    let streams = kernel.body.iter().filter(|op| matches!(op, Op::Stream { .. })).count();
    let layout = Schedule {
        kernel: kernel.name.clone(),
        target: *target,
        warps: 4 * consumers,
        frames: frames.frames,
        homes,
        products,
        copies: BTreeMap::new(),
        in_place,
        packed,
        inlined: BTreeSet::new(),
        partial,
        fused: BTreeMap::new(),
        held: BTreeSet::new(),
        order,
        pipelines: vec![Pipeline { stages: 1, loads: vec![] }; streams],
        scratch_bytes: 0,
        shared_bytes,
        registers: needed,
        fallbacks,
    };
    Ok(Specialised {
        descriptors: descriptors(&layout.products, &rings, consumers),
        layout,
        consumers,
        rows: axis,
        registers: split,
        rings,
        turns: turns.then_some(Turns { warpgroups: consumers }),
        cluster,
        apart,
        producer,
        consumer,
        shared_bytes,
    })
}

/// A left factor that is loaded is multiplied from shared memory, where the copy engine brings it, although it may be
/// needed in registers as well.
fn from_memory(facts: &Facts<'_>, products: &mut BTreeMap<ValueId, Product>) {
    let mut loaded = BTreeSet::new();
    each_op(&facts.kernel.body, &mut |op| {
        if let Op::Load { dst, .. } = op {
            loaded.insert(*dst);
        }
    });
    products.values_mut().filter(|p| loaded.contains(&p.left)).for_each(|p| p.left_in_registers = false);
}

/// Registers of the tiles of one thread at the worst point. Where products are deferred that is where their operands are
/// alive together with the results of the next chunk's early products; the compiler fuses the maps between.
fn need(
    known: &Known<'_, '_>,
    frames: &frames::Frames,
    packed: &BTreeSet<ValueId>,
    overlaps: &BTreeMap<usize, super::overlap::Overlap>,
) -> usize {
    let facts = known.facts;
    let of = |v: ValueId| registers::of_tile(facts, frames, v) / if packed.contains(&v) { 2 } else { 1 };
    let home = |v: ValueId| known.in_place.get(&v).copied().unwrap_or(v);
    let together = overlaps.iter().filter(|(_, o)| !o.deferred.is_empty()).map(|(&k, o)| {
        let Some(Op::Stream { body, states, .. }) = facts.kernel.body.get(k) else { return 0 };
        let mut alive: BTreeSet<ValueId> = states.iter().map(|s| s.value).collect();
        alive.extend(o.early.iter().filter_map(|at| written(&body[at.op])).map(home));
        let deferred = o.deferred.iter().filter_map(|at| written(&body[at.op]));
        alive.extend(deferred.filter_map(|dst| known.products.get(&dst)).map(|p| p.left));
        alive.into_iter().map(of).sum()
    });
    together.max().unwrap_or_else(|| registers::pressure(facts, frames, packed))
}

fn homes(facts: &Facts<'_>, frames: &frames::Frames, copied: &BTreeMap<ValueId, Copied>) -> Vec<Home> {
    let values = (0..facts.kernel.values.len() as u32).map(ValueId);
    let home = |v: ValueId| {
        let (made, read_back) = match (copied.get(&v), frames.of.get(&v)) {
            (Some(c), _) => (Made::Shared, c.read.into_iter().collect()),
            (None, Some(&f)) => (Made::Registers(f), vec![]),
            (None, None) => (Made::Everywhere, vec![]),
        };
        Home { made, shared: None, read_back }
    };
    values.map(home).collect()
}
