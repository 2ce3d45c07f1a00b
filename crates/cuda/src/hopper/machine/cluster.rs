//! The blocks of a cluster, or one block: what is under way between and inside of them, and who goes next.

use super::block::{Block, Who};
use super::policy::{Choices, Completion, Policy, Preference};
use super::rings::{Copy, bring};
use super::trace::Event;
use super::{Arrays, Hazard, HazardKind, Point, Statistics};
use crate::hopper::{RingId, Specialised, Step, pieces};
use einloom_tile::{Kernel, Program};

/// On its way to shared memory of one block.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    /// The block's number in its cluster.
    pub to: usize,
    pub what: What,
}

/// What is on its way.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// A tile, or a part of one.
    Copy(Copy),
    /// A consumer's arrival on an empty barrier.
    Arrival { ring: usize, stage: usize, filling: usize },
}

/// What may happen next without any role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnderWay {
    /// This flight lands.
    Lands(usize),
    /// The oldest product of this block's consumer completes.
    Completes(usize, usize),
    /// This block begins.
    Begins(usize),
}

/// Blocks that run at the same time.
pub(super) struct Cluster<'a> {
    program: &'a Program,
    s: &'a Specialised,
    memory: &'a mut Arrays,
    blocks: Vec<Block<'a>>,
    flights: Vec<Flight>,
    number: usize,
}

impl<'a> Cluster<'a> {
    /// Cluster `number`, which takes these places of the schedule's order. Whether roles `run_on`: see
    /// [`Walk`](crate::hopper::Walk).
    pub fn new(
        program: &'a Program,
        kernel: &'a Kernel,
        s: &'a Specialised,
        memory: &'a mut Arrays,
        (number, places, run_on): (usize, &[usize], bool),
    ) -> Result<Self, Hazard> {
        let mut blocks = vec![];
        for rank in 0..s.blocks() {
            blocks.push(Block::new(program, kernel, s, (number * s.blocks(), rank), places, run_on)?);
        }
        Ok(Self { program, s, memory, blocks, flights: vec![], number })
    }

    /// Runs to the end: what happened, and the points that every consumer has done.
    pub fn run(mut self, policy: Policy) -> Result<(Statistics, Vec<(Point, usize)>), Hazard> {
        let mut choices = Choices::new(policy.seed ^ (self.number as u64) << 32);
        loop {
            let roles = self.roles()?;
            let under_way = self.under_way();
            let rest = roles.len() + under_way.len();
            if rest == 0 {
                break;
            }
            let role = match policy.completions {
                Completion::Late => !roles.is_empty(),
                Completion::Early => under_way.is_empty(),
                Completion::Random => choices.of(rest) < roles.len(),
            };
            if role {
                let preferred = roles.iter().position(|(b, who)| match policy.roles {
                    Preference::Random => false,
                    Preference::Producer => *who == Who::Producer,
                    Preference::Consumer(w) => *who == Who::Consumer(w),
                    Preference::Block(block) => *b == block,
                });
                let (b, who) = roles[preferred.unwrap_or_else(|| choices.of(roles.len()))];
                self.step(b, who)?;
            } else {
                match under_way[choices.of(under_way.len())] {
                    UnderWay::Lands(flight) => self.land(flight)?,
                    UnderWay::Completes(b, w) => self.blocks[b].complete_at_its_place(w)?,
                    UnderWay::Begins(b) => self.blocks[b].begun = true,
                }
            }
        }
        self.end()
    }

    /// The roles that can execute their next step.
    fn roles(&self) -> Result<Vec<(usize, Who)>, Hazard> {
        let mut out = vec![];
        for (b, block) in self.blocks.iter().enumerate().filter(|(_, block)| block.begun) {
            for who in block.everyone() {
                if let Some(event) = block.event(who)
                    && block.ready(who, event).map_err(|h| h.at(|| block.place(who, event)))?
                {
                    out.push((b, who));
                }
            }
        }
        Ok(out)
    }

    fn under_way(&self) -> Vec<UnderWay> {
        let mut out: Vec<UnderWay> = (0..self.flights.len()).map(UnderWay::Lands).collect();
        for (b, block) in self.blocks.iter().enumerate() {
            let busy = (0..block.consumers.len()).filter(|&w| !block.consumers[w].groups.is_empty());
            out.extend(busy.map(|w| UnderWay::Completes(b, w)));
        }
        out.extend((0..self.blocks.len()).filter(|&b| !self.blocks[b].begun).map(UnderWay::Begins));
        out
    }

    fn step(&mut self, b: usize, who: Who) -> Result<(), Hazard> {
        let Some(event) = self.blocks[b].event(who).cloned() else { return Ok(()) };
        self.blocks[b].statistics.steps += 1;
        let done = match who {
            Who::Producer => self.produce(b, &event),
            Who::Consumer(w) => self.blocks[b].consume(w, &event, self.memory),
        };
        done.map_err(|h| h.at(|| self.blocks[b].place(who, &event)))?;
        self.flights.append(&mut self.blocks[b].sent);
        self.blocks[b].advance_role(who, &event);
        Ok(())
    }

    fn produce(&mut self, b: usize, event: &Event<'a>) -> Result<(), Hazard> {
        match event.step {
            Step::Acquire { ring, .. } => {
                let ring = self.blocks[b].ring(*ring)?;
                ring.acquired = ring.filled + 1;
                Ok(())
            }
            Step::Fill { ring } => self.fill(b, *ring, event),
            _ => Err(Hazard::malformed("a consumer's step in the producer's list")),
        }
    }

    /// Announces the next filling and starts its copies: a shared tile's part goes to all blocks of its mask.
    fn fill(&mut self, b: usize, id: RingId, event: &Event<'a>) -> Result<(), Hazard> {
        let decl = self.s.rings.get(id.0);
        let decl = decl.ok_or_else(|| Hazard::malformed("a step names a ring that there is not"))?;
        let block = &mut self.blocks[b];
        let state = block.ring(id)?;
        let (filling, (stage, _)) = (state.filled, state.next_fill());
        state.fill(decl)?;
        let waiting = state.filled - state.released.iter().copied().min().unwrap_or(0);
        block.statistics.fillings += 1;
        block.statistics.most_stages = block.statistics.most_stages.max(waiting);
        for (tile, t) in decl.tiles.iter().enumerate() {
            let part = if t.shared.is_some() { b } else { 0 };
            let reached = |to: &usize| t.shared.map_or(*to == b, |share| share.mask >> to & 1 == 1);
            for to in (0..u16::BITS as usize).filter(reached) {
                let Some(block) = self.blocks.get_mut(to) else {
                    return Err(Hazard::malformed(format!("a copy goes to block {to} of {}", self.blocks.len())));
                };
                block.rings[id.0].poison(stage, tile, part, filling, (to != b).then_some(to))?;
                let copy = Copy { ring: id.0, tile, stage, filling, part, windows: event.windows.clone() };
                self.flights.push(Flight { to, what: What::Copy(copy) });
            }
        }
        Ok(())
    }

    /// A flight arrives, if somebody is there.
    fn land(&mut self, flight: usize) -> Result<(), Hazard> {
        let Flight { to, what } = self.flights.remove(flight);
        let block = &mut self.blocks[to];
        let thing = match &what {
            What::Copy(c) => format!("a part of {}", block.rings[c.ring].filling(c.filling)),
            What::Arrival { ring, filling, .. } => format!("the release of {}", block.rings[*ring].filling(*filling)),
        };
        let left = self.s.cluster.is_some_and(|c| !c.meets_last) && block.is_done();
        if !block.begun || left {
            let how = if left { "has left" } else { "has not initialised its barriers" };
            return Err(Hazard::new(
                HazardKind::Absent,
                format!("{thing} reaches block {to} of its cluster, which {how}"),
            ));
        }
        match what {
            What::Copy(copy) => {
                let tile = &self.s.rings[copy.ring].tiles[copy.tile];
                let ring = &self.s.rings[copy.ring];
                let base = ring.offset + copy.stage * ring.stage_bytes + tile.offset;
                let pieces = pieces(tile, self.s.blocks(), copy.part);
                let brought = bring(self.program, tile, (base, &pieces), &copy.windows, self.memory)?;
                block.rings[copy.ring].land(&copy, &brought, brought.len() * tile.element.bytes());
                Ok(())
            }
            What::Arrival { ring, stage, filling } => block.rings[ring].arrive(stage, filling),
        }
    }

    /// Nobody can go on: because everybody is done, or because of a deadlock.
    fn end(self) -> Result<(Statistics, Vec<(Point, usize)>), Hazard> {
        let waiting: Vec<String> = self.blocks.iter().flat_map(|b| b.waiting(self.blocks.len() > 1)).collect();
        if !waiting.is_empty() {
            return Err(Hazard::new(HazardKind::Deadlock, format!("nobody can go on: {}", waiting.join("; "))));
        }
        let (mut total, mut done) = (Statistics::default(), vec![]);
        for block in self.blocks {
            block.leftover()?;
            total.add(&block.statistics);
            done.extend(block.done);
        }
        Ok((total, done))
    }
}
