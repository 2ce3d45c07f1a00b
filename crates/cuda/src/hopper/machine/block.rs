//! One block: its roles, what is under way, and who goes next.

use super::consumer::Consumer;
use super::policy::{Choices, Completion, Policy, Preference};
use super::registers::Registers;
use super::rings::{Copy, RingState, bring};
use super::trace::{Event, describe, unroll, windows};
use super::{Arrays, Hazard, HazardKind, Place, Statistics};
use crate::hopper::{RingId, Specialised, Step};
use einloom_tile::{Kernel, Program};
use std::collections::VecDeque;

/// Who executes a list of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Producer,
    Consumer(usize),
}

/// What may happen next without any role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum UnderWay {
    /// This copy lands.
    Lands(usize),
    /// This consumer's oldest product completes.
    Completes(usize),
}

/// A block.
pub(super) struct Block<'a> {
    pub program: &'a Program,
    pub kernel: &'a Kernel,
    pub s: &'a Specialised,
    pub memory: &'a mut Arrays,
    pub rings: Vec<RingState>,
    pub consumers: Vec<Consumer<'a>>,
    /// Consumers whose turn it is and who have not taken it.
    pub turns: Vec<bool>,
    pub statistics: Statistics,
    producer: Vec<Event<'a>>,
    next: usize,
    copies: Vec<Copy>,
    number: usize,
}

impl<'a> Block<'a> {
    /// Block `number`, which executes these grid points.
    pub fn new(
        program: &'a Program,
        kernel: &'a Kernel,
        s: &'a Specialised,
        memory: &'a mut Arrays,
        number: usize,
        points: impl Iterator<Item = usize> + Clone,
    ) -> Result<Self, Hazard> {
        let mut consumers = vec![];
        for _ in 0..s.consumers {
            consumers.push(Consumer {
                events: unroll(kernel, &s.consumer, points.clone())?,
                next: 0,
                registers: Registers::new(kernel, &s.layout),
                groups: VecDeque::new(),
                turn: false,
            });
        }
        // The last consumer passes the first turn.
        let turns = (0..s.consumers).map(|w| w == 0 && s.turns.is_some()).collect();
        Ok(Self {
            program,
            kernel,
            s,
            memory,
            rings: s.rings.iter().map(|r| RingState::new(r, s.consumers)).collect(),
            consumers,
            turns,
            statistics: Statistics { points: points.clone().count(), ..Statistics::default() },
            producer: unroll(kernel, &s.producer, points)?,
            next: 0,
            copies: vec![],
            number,
        })
    }

    /// Runs to the end.
    pub fn run(mut self, policy: Policy) -> Result<Statistics, Hazard> {
        let mut choices = Choices::new(policy.seed ^ (self.number as u64) << 32);
        loop {
            let mut roles = vec![];
            for who in self.everyone() {
                if let Some(event) = self.event(who)
                    && self.ready(who, event).map_err(|h| h.at(|| self.place(who, event)))?
                {
                    roles.push(who);
                }
            }
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
                let preferred = roles.iter().position(|who| match policy.roles {
                    Preference::Random => false,
                    Preference::Producer => *who == Who::Producer,
                    Preference::Consumer(w) => *who == Who::Consumer(w),
                });
                let chosen = preferred.unwrap_or_else(|| choices.of(roles.len()));
                self.step(roles[chosen])?;
            } else {
                match under_way[choices.of(under_way.len())] {
                    UnderWay::Lands(copy) => self.land(copy)?,
                    UnderWay::Completes(w) => {
                        let place = self.event(Who::Consumer(w)).map(|e| self.place(Who::Consumer(w), e));
                        self.complete(w).map_err(|h| Hazard { place, ..h })?;
                    }
                }
            }
        }
        self.end()
    }

    /// The ring.
    pub fn ring(&mut self, id: RingId) -> Result<&mut RingState, Hazard> {
        self.rings.get_mut(id.0).ok_or_else(|| Hazard::malformed("a step names a ring that there is not"))
    }

    fn everyone(&self) -> impl Iterator<Item = Who> + use<> {
        std::iter::once(Who::Producer).chain((0..self.consumers.len()).map(Who::Consumer))
    }

    /// The role's next step.
    fn event(&self, who: Who) -> Option<&Event<'a>> {
        match who {
            Who::Producer => self.producer.get(self.next),
            Who::Consumer(w) => self.consumers[w].events.get(self.consumers[w].next),
        }
    }

    fn place(&self, who: Who, event: &Event<'_>) -> Place {
        Place {
            block: self.number,
            role: who.to_string(),
            at: windows(self.kernel, event),
            step: describe(self.program, self.kernel, self.s, event.step),
        }
    }

    /// Whether the role can execute its next step.
    fn ready(&self, who: Who, event: &Event<'_>) -> Result<bool, Hazard> {
        let ring =
            |id: RingId| self.rings.get(id.0).ok_or_else(|| Hazard::malformed("a step names a ring that there is not"));
        Ok(match (event.step, who) {
            (Step::Acquire { ring: r, ahead }, Who::Producer) => ring(*r)?.can_acquire(*ahead),
            (Step::Await { ring: r, ahead }, Who::Consumer(w)) => ring(*r)?.can_await(w, *ahead),
            (Step::Settle { pending }, Who::Consumer(w)) => self.consumers[w].groups.len() <= *pending,
            (Step::TakeTurn, Who::Consumer(w)) => {
                if self.s.turns.is_none_or(|t| t.warpgroups != self.consumers.len()) {
                    return Err(Hazard::malformed("turns are taken, but not among all consumers"));
                }
                self.turns[w]
            }
            _ => true,
        })
    }

    fn step(&mut self, who: Who) -> Result<(), Hazard> {
        let Some(event) = self.event(who).cloned() else { return Ok(()) };
        self.statistics.steps += 1;
        let done = match who {
            Who::Producer => self.produce(&event),
            Who::Consumer(w) => self.consume(w, &event),
        };
        done.map_err(|h| h.at(|| self.place(who, &event)))?;
        match who {
            Who::Producer => self.next += 1,
            Who::Consumer(w) => self.consumers[w].next += 1,
        }
        Ok(())
    }

    fn produce(&mut self, event: &Event<'a>) -> Result<(), Hazard> {
        match event.step {
            Step::Acquire { ring, .. } => {
                let ring = self.ring(*ring)?;
                ring.acquired = ring.filled + 1;
            }
            Step::Fill { ring } => {
                let decl = self.s.rings.get(ring.0);
                let decl = decl.ok_or_else(|| Hazard::malformed("a step names a ring that there is not"))?;
                let state = self.ring(*ring)?;
                let filling = state.filled;
                state.fill(decl)?;
                let waiting = state.filled - state.released.iter().copied().min().unwrap_or(0);
                self.statistics.fillings += 1;
                self.statistics.most_stages = self.statistics.most_stages.max(waiting);
                let copy = |tile| Copy { ring: ring.0, tile, filling, windows: event.windows.clone() };
                self.copies.extend((0..decl.tiles.len()).map(copy));
            }
            _ => return Err(Hazard::malformed("a consumer's step in the producer's list")),
        }
        Ok(())
    }

    fn under_way(&self) -> Vec<UnderWay> {
        let copies = (0..self.copies.len()).map(UnderWay::Lands);
        let products = (0..self.consumers.len()).filter(|&w| !self.consumers[w].groups.is_empty());
        copies.chain(products.map(UnderWay::Completes)).collect()
    }

    fn land(&mut self, copy: usize) -> Result<(), Hazard> {
        let copy = self.copies.remove(copy);
        let tile = &self.s.rings[copy.ring].tiles[copy.tile];
        let elements = bring(self.program, tile, &copy.windows, self.memory)?;
        let ring = &mut self.rings[copy.ring];
        let stage = copy.filling % ring.stages;
        let slot = &mut ring.slots[stage][copy.tile];
        slot.landed = Some(copy.filling);
        slot.windows = copy.windows;
        slot.elements = elements;
        ring.full[stage].land(tile.bytes());
        Ok(())
    }

    /// Nobody can go on: because everybody is done, or because of a deadlock.
    fn end(self) -> Result<Statistics, Hazard> {
        let waiting: Vec<String> =
            self.everyone().filter_map(|who| self.event(who).map(|e| self.waits(who, e))).collect();
        if !waiting.is_empty() {
            return Err(Hazard::new(HazardKind::Deadlock, format!("nobody can go on: {}", waiting.join("; "))));
        }
        if let Some(text) = self.rings.iter().find_map(RingState::leftover) {
            return Err(Hazard::new(HazardKind::Leftover, format!("at the end of block {}, {text}", self.number)));
        }
        if self.s.turns.is_some() && self.turns.iter().enumerate().any(|(w, turn)| *turn != (w == 0)) {
            let text = format!("at the end of block {}, it is not the first consumer's turn", self.number);
            return Err(Hazard::new(HazardKind::Leftover, text));
        }
        Ok(self.statistics)
    }

    /// What a role waits for, for people.
    fn waits(&self, who: Who, event: &Event<'_>) -> String {
        let place = self.place(who, event);
        let what = match (event.step, who) {
            (Step::Acquire { ring, .. }, _) => {
                let ring = &self.rings[ring.0];
                let stage = ring.filled % ring.stages;
                let readers = ring.released.iter().map(|r| r.to_string()).collect::<Vec<_>>().join(", ");
                format!(
                    "until {} can start (completed phases of the empty barrier of stage {stage}: {}; fillings released by consumers: {readers})",
                    ring.filling(ring.filled),
                    ring.empty[stage].completed()
                )
            }
            (Step::Await { ring, .. }, Who::Consumer(w)) => {
                let ring = &self.rings[ring.0];
                let stage = ring.awaited[w] % ring.stages;
                format!(
                    "for {} (completed phases of the full barrier of stage {stage}: {}; fillings started: {})",
                    ring.filling(ring.awaited[w]),
                    ring.full[stage].completed(),
                    ring.filled
                )
            }
            (Step::TakeTurn, _) => "for its turn".to_string(),
            _ => "for nothing".to_string(),
        };
        format!("{who} ({}, `{}`) waits {what}", place.at, place.step)
    }
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Producer => f.write_str("producer"),
            Self::Consumer(w) => write!(f, "consumer {w}"),
        }
    }
}
