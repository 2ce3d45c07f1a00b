//! Tiles for the memories between the outermost and the innermost of a machine that counts elements.
//!
//! Tiles are chosen for the innermost memory. Points that share what they load then ask the memories outside it for the same
//! again and again; by *blocks* ([`Block`]) each of these has tiles of its own, sums of those inside it. Where a block has a part
//! of the kernel's stream, states wait between parts, which costs the memories further in: so blocks are compared by the time of
//! the slowest level and a part of the time of all.
//!
//! Conditions: one core, so that programs decide what memories hold; no recurrence, whose points depend on each other; a stream is
//! cut into parts where it is the only one that is in no other. Tiles have two axes, so that only those have blocks.

use crate::Work;
use crate::build::{Built, Workshop};
use crate::frame::{even_tiles, last, pairs};
use crate::grid_order::orders;
use crate::lost::Cost;
use crate::program::program_of;
use einloom_machine::Machine;
use einloom_model::{Counts, Held, LevelTransfers, block_elements, level_transfers};
use einloom_tile::{AxisId, Block, Program};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Sides of one axis that are tried, at most.
const MOST_SIDES: usize = 24;
/// Passes over all pairs of axes for one part of the stream.
const ROUNDS: usize = 2;
/// Of the time of all levels together what counts beside the slowest: levels work at the same time, but what moves less is
/// better wherever it moves.
const BESIDE: f64 = 0.5;

impl Workshop<'_> {
    /// The kernel by blocks, where that takes less time or moves less.
    pub(crate) fn in_blocks(&mut self, built: &Built) -> Option<Built> {
        let memories = between(self.machine)?;
        if built.cone.recurrence.is_some() {
            return None;
        }
        let program = program_of(self.p, self.x, self.types, vec![built.kernel.clone()]);
        let mut search = Search::new(program, self.machine);
        let plain = search.of(vec![]);
        let mut best: Option<(Vec<AxisId>, Found)> = None;
        for order in orders(&built.kernel) {
            search.program.kernels[0].grid.clone_from(&order);
            // Counts are of one order of the loops.
            search.counts = Arc::default();
            if let Some(found) = search.all(&memories)
                && best.as_ref().is_none_or(|b| found.seconds() < b.1.seconds())
            {
                best = Some((order, found));
            }
        }
        self.work += search.work;
        let (order, best) = best?;
        if best.seconds() >= plain.seconds() {
            return None;
        }
        let mut out = built.clone();
        (out.kernel.grid, out.kernel.blocks) = (order, best.blocks.clone());
        out.cost = Cost { seconds: best.longest, bound_by: best.bound_by, parts: best.parts };
        let side = |&(a, side): &(AxisId, usize)| format!("{}:{side}", built.kernel.axis(a).name);
        let text = |b: &Block| {
            let sides: Vec<String> = b.sides.iter().map(side).collect();
            format!("{} in {}", sides.join(" "), b.memory)
        };
        let blocks: Vec<String> = best.blocks.iter().map(text).collect();
        out.notes.push(format!(
            "by blocks of {}: {} bytes pass {}, {} without",
            blocks.join(", "),
            best.outermost,
            self.machine.trunk().next().map_or("", |l| &l.name),
            plain.outermost,
        ));
        Some(out)
    }
}

/// What a kernel that goes by blocks is compared by, of what it costs: the slowest level's time, and a part of the time of all.
pub(crate) fn price(cost: &Cost) -> f64 {
    cost.seconds + BESIDE * cost.parts.iter().map(|p| p.1).sum::<f64>()
}

/// The memories that may keep blocks, outermost first, each with the elements that it holds.
fn between(machine: &Machine) -> Option<Vec<(String, u64)>> {
    let element = machine.element.filter(|_| machine.cores <= 1)?.0.max(1);
    let trunk: Vec<_> = machine.trunk().collect();
    let inner = trunk.get(1..trunk.len().saturating_sub(1))?;
    let all: Vec<(String, u64)> =
        inner.iter().filter_map(|l| Some((l.name.clone(), l.capacity?.0 / element))).collect();
    // What is between memories that keep blocks keeps some as well.
    (!all.is_empty() && all.len() == inner.len()).then_some(all)
}

/// What a kernel moves by blocks.
#[derive(Clone, Debug)]
struct Found {
    blocks: Vec<Block>,
    /// Seconds of the slowest level but the innermost, of all together, and bytes of the outermost.
    longest: f64,
    sum: f64,
    outermost: u64,
    bound_by: String,
    parts: Vec<(String, f64)>,
}

impl Found {
    /// What blocks are compared by.
    fn seconds(&self) -> f64 {
        self.longest + BESIDE * self.sum
    }
}

struct Search<'a> {
    program: Program,
    machine: &'a Machine,
    held: Held,
    counts: Arc<Counts>,
    /// Axes of the grid that can have sides, and the stream that can be cut.
    grid: Vec<AxisId>,
    stream: Option<AxisId>,
    work: Work,
}

impl<'a> Search<'a> {
    fn new(program: Program, machine: &'a Machine) -> Self {
        let kernel = &program.kernels[0];
        let sides: BTreeSet<AxisId> = kernel.values.iter().flat_map(|v| [v.rows, v.cols]).flatten().collect();
        let open = |a: &AxisId| sides.contains(a) && kernel.axis(*a).extent > kernel.axis(*a).tile;
        let grid = kernel.grid.iter().copied().filter(open).collect();
        let stream = kernel.outer_stream().filter(open);
        let held = Held::new(kernel);
        Self { machine, held, counts: Arc::default(), grid, stream, work: Work::default(), program }
    }

    /// The best blocks of all these memories, from the innermost outwards.
    fn all(&mut self, memories: &[(String, u64)]) -> Option<Found> {
        if self.grid.is_empty() {
            return None;
        }
        let mut best: Option<Found> = None;
        for (name, capacity) in memories.iter().rev() {
            let inside = best.take().map_or(vec![], |b| b.blocks);
            best = Some(self.one(name, *capacity, &inside)?);
        }
        best
    }

    /// The best block of one memory outside these.
    fn one(&mut self, memory: &str, capacity: u64, inside: &[Block]) -> Option<Found> {
        let mut axes = self.grid.clone();
        axes.extend(self.stream);
        let sides: Vec<Vec<usize>> = axes.iter().map(|&a| self.sides(a, inside)).collect();
        let (grid, stream) = (self.grid.len(), self.stream);
        let mut seen: BTreeMap<Vec<usize>, Found> = BTreeMap::new();
        // With nothing of the stream cut first: no state waits then.
        let parts: Vec<usize> = match self.stream {
            Some(_) => sides[grid].iter().rev().copied().collect(),
            None => vec![0],
        };
        for part in parts {
            let with = |at: &[usize]| -> Vec<usize> {
                let own = at.iter().enumerate().map(|(k, &i)| sides[k][i]);
                own.chain(stream.map(|_| part)).collect()
            };
            let block = |sizes: &[usize]| Block {
                memory: memory.to_string(),
                sides: axes.iter().copied().zip(sizes.iter().copied()).collect(),
            };
            let fits = |search: &Self, at: &[usize]| {
                let kernel = &search.program.kernels[0];
                block_elements(&search.program, kernel, &block(&with(at))) <= capacity
            };
            let mut way = vec![0; grid];
            if !fits(self, &way) {
                continue;
            }
            let mut look = |search: &mut Self, at: &[usize]| -> f64 {
                let sizes = with(at);
                let found = seen.entry(sizes).or_insert_with_key(|sizes| {
                    search.of([block(sizes)].into_iter().chain(inside.iter().cloned()).collect())
                });
                found.seconds()
            };
            let mut least = look(self, &way);
            for _ in 0..ROUNDS {
                let before = way.clone();
                for (one, other) in pairs(grid) {
                    for k in 0..sides[one].len() {
                        let mut next = way.clone();
                        next[one] = k;
                        if one != other {
                            next[other] = 0;
                        }
                        if !fits(self, &next) {
                            break;
                        }
                        let alone = look(self, &next);
                        if alone < least {
                            (least, way) = (alone, next.clone());
                        }
                        if one != other {
                            next[other] = last(sides[other].len(), |k| {
                                let mut more = next.clone();
                                more[other] = k;
                                fits(self, &more)
                            });
                            let both = look(self, &next);
                            if both < least {
                                (least, way) = (both, next);
                            }
                        }
                    }
                }
                if way == before {
                    break;
                }
            }
        }
        seen.into_values().min_by(|a, b| a.seconds().total_cmp(&b.seconds()))
    }

    /// Sides of an axis: whole numbers of what blocks inside have, in as few parts with as little left over as can be.
    fn sides(&self, axis: AxisId, inside: &[Block]) -> Vec<usize> {
        let own = self.program.kernels[0].axis(axis);
        let within = inside.first().and_then(|b| b.sides.iter().find(|s| s.0 == axis)).map_or(own.tile, |s| s.1);
        let within = within.max(1);
        if within >= own.extent {
            return vec![own.extent];
        }
        let groups = even_tiles(own.extent.div_ceil(within));
        let mut sides: Vec<usize> = groups.into_iter().map(|g| (g * within).min(own.extent)).collect();
        // Small ones lie close together: as many as can be looked at, in steps that grow.
        while sides.len() > MOST_SIDES {
            let keep = |k: usize| k.is_multiple_of(2) || k + MOST_SIDES / 2 >= sides.len();
            let kept: Vec<usize> = (0..sides.len()).filter(|&k| keep(k)).map(|k| sides[k]).collect();
            sides = kept;
        }
        sides
    }

    /// What the kernel moves by these blocks.
    fn of(&mut self, blocks: Vec<Block>) -> Found {
        self.work.tilings += 1;
        self.program.kernels[0].blocks = blocks;
        let kernel = &self.program.kernels[0];
        let levels = level_transfers(&self.program, kernel, self.machine, &self.held, &self.counts);
        let blocks = std::mem::take(&mut self.program.kernels[0].blocks);
        let outside: Vec<&LevelTransfers> = levels.iter().take(levels.len().saturating_sub(1)).collect();
        let longest = outside.iter().copied().reduce(|a, b| if b.seconds > a.seconds { b } else { a });
        Found {
            blocks,
            longest: longest.map_or(0.0, |l| l.seconds),
            sum: outside.iter().map(|l| l.seconds).sum(),
            outermost: levels.first().map_or(0, |l| l.bytes),
            bound_by: longest.map_or(String::new(), |l| l.level.clone()),
            parts: outside.iter().map(|l| (l.level.clone(), l.seconds)).collect(),
        }
    }
}
