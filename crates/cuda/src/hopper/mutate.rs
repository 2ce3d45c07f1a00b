//! Schedules with one mistake: what a check of schedules has to find.
//!
//! Every mutation is small enough to be made by hand: a step of the synchronisation is missing, waits for the wrong phase,
//! waits for too little, or stands one place too late, a ring has a wrong count, or a block of a cluster is forgotten.

use super::{Cluster, RingTile, Role, Specialised, Step};

/// The part of a stream's chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    First,
    Rest,
    After,
}

/// Where a step stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    role: Role,
    /// The `Chunks` it is in, and the part.
    chunks: Option<(usize, Part)>,
    step: usize,
}

/// What is done to a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    /// The step is missing.
    Drop(At),
    /// The other phase is waited for.
    Flip(At),
    /// One more product may be in flight.
    Loosen(At),
    /// The step stands after the next one.
    Swap(At),
    /// The ring's stages lie in the memory of one stage less.
    Crowd(usize),
    /// Another number of arrivals completes a phase of the empty barriers.
    Readers(usize, usize),
    /// Other bytes complete a phase of the full barriers.
    Bytes(usize, usize),
    /// A shared tile is brought to other blocks.
    Mask(usize, usize, u16),
    /// Blocks do not meet at the start.
    NoStart,
    /// Blocks do not meet at the end.
    NoEnd,
}

/// One mistake in a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mutation {
    /// What is done, for people.
    pub description: String,
    change: Change,
}

/// Every mutation of a schedule, in the order of its steps.
pub fn mutations(s: &Specialised) -> Vec<Mutation> {
    let mut out = vec![];
    for (role, steps) in [(Role::Producer, &s.producer), (Role::Consumer, &s.consumer)] {
        let mut list = |chunks: Option<(usize, Part)>, steps: &[Step]| {
            for k in 0..steps.len() {
                let at = At { role, chunks, step: k };
                of_step(s, at, &steps[k], steps.get(k + 1), &mut out);
            }
        };
        list(None, steps);
        for (k, step) in steps.iter().enumerate() {
            if let Step::Chunks { first, rest, after, .. } = step {
                for (part, steps) in [(Part::First, first), (Part::Rest, rest), (Part::After, after)] {
                    list(Some((k, part)), steps);
                }
            }
        }
    }
    for (k, ring) in s.rings.iter().enumerate() {
        let mut add = |change, what: String| {
            out.push(Mutation { description: format!("ring {}: {what}", ring.name), change });
        };
        if ring.stages > 1 {
            add(Change::Crowd(k), format!("{} stages in the memory of {}", ring.stages, ring.stages - 1));
        }
        for readers in [ring.readers - 1, ring.readers + 1] {
            add(Change::Readers(k, readers), format!("{readers} readers instead of {}", ring.readers));
        }
        let less = ring.bytes.saturating_sub(16);
        add(Change::Bytes(k, less), format!("{less} bytes announced instead of {}", ring.bytes));
    }
    if let Some(c) = s.cluster {
        of_cluster(s, c, &mut out);
    }
    out
}

/// What can be forgotten of the other blocks of a cluster.
fn of_cluster(s: &Specialised, c: Cluster, out: &mut Vec<Mutation>) {
    for (k, ring) in s.rings.iter().enumerate().filter(|(_, r)| r.is_shared()) {
        let mut add = |change, what: String| {
            out.push(Mutation { description: format!("ring {}: {what}", ring.name), change });
        };
        let own = |t: &RingTile| t.bytes() / if t.shared.is_some() { c.size } else { 1 };
        let bytes = ring.tiles.iter().map(own).sum();
        add(Change::Bytes(k, bytes), "only the bytes that the block itself copies are announced".to_string());
        add(Change::Readers(k, ring.readers / c.size), "only the block's own consumers empty a stage".to_string());
        for (tile, share) in ring.tiles.iter().enumerate().filter_map(|(t, tile)| Some((t, tile.shared?))) {
            for block in 0..c.size {
                let what = format!("tile {tile} is not brought to block {block}");
                add(Change::Mask(k, tile, share.mask & !(1 << block)), what);
            }
            add(Change::Mask(k, tile, share.mask | 1 << c.size), format!("tile {tile} is brought to one block more"));
        }
    }
    for (change, when) in [(Change::NoStart, "start"), (Change::NoEnd, "end")] {
        out.push(Mutation { description: format!("blocks do not meet at the {when}"), change });
    }
}

fn of_step(s: &Specialised, at: At, step: &Step, next: Option<&Step>, out: &mut Vec<Mutation>) {
    let Some(name) = synchronises(s, step) else { return };
    let place = match (at.role, at.chunks) {
        (Role::Producer, None) => "producer".to_string(),
        (Role::Consumer, None) => "consumer".to_string(),
        (role, Some((_, part))) => {
            let role = if role == Role::Producer { "producer" } else { "consumer" };
            let part = match part {
                Part::First => "first chunk",
                Part::Rest => "other chunks",
                Part::After => "after the chunks",
            };
            format!("{role}, {part}")
        }
    };
    let mut add = |change, what: String| out.push(Mutation { description: format!("{place}: {what}"), change });
    if !matches!(step, Step::Fill { .. }) {
        add(Change::Drop(at), format!("no {name}"));
    }
    match step {
        Step::Acquire { .. } | Step::Await { .. } => {
            add(Change::Flip(at), format!("{name} waits for the other phase"));
        }
        Step::Settle { pending } => add(Change::Loosen(at), format!("settle {} instead of {pending}", pending + 1)),
        _ => {}
    }
    if let Some(next) = next.filter(|n| *n != step)
        && let Some(other) = synchronises(s, next)
    {
        add(Change::Swap(at), format!("{other} before {name}"));
    }
}

/// The step's name, if it is one of those that keep roles and products apart.
fn synchronises(s: &Specialised, step: &Step) -> Option<String> {
    let ring = |r: &super::RingId| s.rings.get(r.0).map_or("?", |r| r.name.as_str());
    Some(match step {
        Step::Acquire { ring: r, .. } => format!("acquire {}", ring(r)),
        Step::Fill { ring: r } => format!("fill {}", ring(r)),
        Step::Await { ring: r, .. } => format!("await {}", ring(r)),
        Step::Release { ring: r } => format!("release {}", ring(r)),
        Step::Settle { pending } => format!("settle {pending}"),
        Step::TakeTurn => "take turn".to_string(),
        Step::PassTurn => "pass turn".to_string(),
        _ => return None,
    })
}

impl Mutation {
    /// The schedule with this mistake. It is to be one that the mutation was made for.
    pub fn apply(&self, s: &Specialised) -> Specialised {
        let mut out = s.clone();
        match self.change {
            Change::Drop(at) => {
                if let Some(list) = list(&mut out, at).filter(|l| at.step < l.len()) {
                    list.remove(at.step);
                }
            }
            Change::Swap(at) => {
                if let Some(list) = list(&mut out, at).filter(|l| at.step + 1 < l.len()) {
                    list.swap(at.step, at.step + 1);
                }
            }
            Change::Flip(at) => {
                let step = list(&mut out, at).and_then(|l| l.get_mut(at.step));
                if let Some(Step::Acquire { ahead, .. } | Step::Await { ahead, .. }) = step {
                    *ahead = 1 - *ahead % 2;
                }
            }
            Change::Loosen(at) => {
                if let Some(Step::Settle { pending }) = list(&mut out, at).and_then(|l| l.get_mut(at.step)) {
                    *pending += 1;
                }
            }
            Change::Crowd(ring) => {
                if let Some(ring) = out.rings.get_mut(ring) {
                    // Whole kilobytes, as swizzled panels need.
                    ring.stage_bytes = ring.stage_bytes * (ring.stages - 1) / ring.stages / 1024 * 1024;
                }
            }
            Change::Readers(ring, readers) => {
                if let Some(ring) = out.rings.get_mut(ring) {
                    ring.readers = readers;
                }
            }
            Change::Bytes(ring, bytes) => {
                if let Some(ring) = out.rings.get_mut(ring) {
                    ring.bytes = bytes;
                }
            }
            Change::Mask(ring, tile, mask) => {
                let tile = out.rings.get_mut(ring).and_then(|r| r.tiles.get_mut(tile));
                if let Some(share) = tile.and_then(|t| t.shared.as_mut()) {
                    share.mask = mask;
                }
            }
            Change::NoStart => out.cluster.iter_mut().for_each(|c| c.meets_first = false),
            Change::NoEnd => out.cluster.iter_mut().for_each(|c| c.meets_last = false),
        }
        out
    }
}

/// The list in which a step stands.
fn list(s: &mut Specialised, at: At) -> Option<&mut Vec<Step>> {
    let steps = match at.role {
        Role::Producer => &mut s.producer,
        Role::Consumer => &mut s.consumer,
    };
    let Some((k, part)) = at.chunks else { return Some(steps) };
    match (steps.get_mut(k)?, part) {
        (Step::Chunks { first, .. }, Part::First) => Some(first),
        (Step::Chunks { rest, .. }, Part::Rest) => Some(rest),
        (Step::Chunks { after, .. }, Part::After) => Some(after),
        _ => None,
    }
}
