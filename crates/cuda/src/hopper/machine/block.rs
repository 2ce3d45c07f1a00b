//! One block: its roles and what it has of rings and turns.

use super::cluster::Flight;
use super::consumer::Consumer;
use super::registers::Registers;
use super::rings::RingState;
use super::trace::{Event, describe, unroll, windows};
use super::{Hazard, HazardKind, Place, Point, Statistics};
use crate::hopper::{RingId, Specialised, Step};
use einloom_tile::{Kernel, Program};
use std::collections::VecDeque;

/// Who executes a list of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Producer,
    Consumer(usize),
}

/// A block.
pub(super) struct Block<'a> {
    pub program: &'a Program,
    pub kernel: &'a Kernel,
    pub s: &'a Specialised,
    pub rings: Vec<RingState>,
    pub consumers: Vec<Consumer<'a>>,
    /// Consumers whose turn it is and who have not taken it.
    pub turns: Vec<bool>,
    pub statistics: Statistics,
    /// Whether its barriers are initialised.
    pub begun: bool,
    /// Its number in its cluster.
    pub rank: usize,
    /// What the last step has sent to other blocks.
    pub sent: Vec<Flight>,
    /// The points that its consumers have done.
    pub done: Vec<(Point, usize)>,
    producer: Vec<Event<'a>>,
    next: usize,
    number: usize,
    run_on: bool,
}

impl<'a> Block<'a> {
    /// Block `rank` of a cluster whose first block is number `first`, and which takes these places of the order.
    pub fn new(
        program: &'a Program,
        kernel: &'a Kernel,
        s: &'a Specialised,
        (first, rank): (usize, usize),
        places: &[usize],
        run_on: bool,
    ) -> Result<Self, Hazard> {
        let order = &s.layout.order;
        let mut consumers = vec![];
        for _ in 0..s.consumers {
            consumers.push(Consumer {
                events: unroll(kernel, &s.consumer, order, places, rank)?,
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
            rings: s.rings.iter().map(|r| RingState::new(r, s.consumers, s.blocks())).collect(),
            consumers,
            turns,
            statistics: Statistics { points: places.len(), ..Statistics::default() },
            begun: s.cluster.is_none_or(|c| c.meets_first),
            rank,
            sent: vec![],
            done: vec![],
            producer: unroll(kernel, &s.producer, order, places, rank)?,
            next: 0,
            number: first + rank,
            run_on,
        })
    }

    /// The ring.
    pub fn ring(&mut self, id: RingId) -> Result<&mut RingState, Hazard> {
        self.rings.get_mut(id.0).ok_or_else(|| Hazard::malformed("a step names a ring that there is not"))
    }

    /// All roles.
    pub fn everyone(&self) -> impl Iterator<Item = Who> + use<> {
        std::iter::once(Who::Producer).chain((0..self.consumers.len()).map(Who::Consumer))
    }

    /// The role's next step.
    pub fn event(&self, who: Who) -> Option<&Event<'a>> {
        match who {
            Who::Producer => self.producer.get(self.next),
            Who::Consumer(w) => self.consumers[w].events.get(self.consumers[w].next),
        }
    }

    /// Where a role is.
    pub fn place(&self, who: Who, event: &Event<'_>) -> Place {
        Place {
            block: self.number,
            role: who.to_string(),
            at: windows(self.kernel, event),
            step: describe(self.program, self.kernel, self.s, event.step),
        }
    }

    /// Whether the role can execute its next step.
    pub fn ready(&self, who: Who, event: &Event<'_>) -> Result<bool, Hazard> {
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

    /// The role has executed its step; after a point's last one it forgets its counts, unless roles run on.
    pub fn advance_role(&mut self, who: Who, event: &Event<'_>) {
        match who {
            Who::Producer => self.next += 1,
            Who::Consumer(w) => self.consumers[w].next += 1,
        }
        if self.run_on || self.event(who).is_none_or(|e| e.point == event.point) {
            return;
        }
        for ring in &mut self.rings {
            match who {
                Who::Producer => ring.producer_restarts(),
                Who::Consumer(w) => ring.consumer_restarts(w),
            }
        }
    }

    /// The oldest product in flight of a consumer completes; a hazard is said to be at the consumer's next step.
    pub fn complete_at_its_place(&mut self, w: usize) -> Result<(), Hazard> {
        let place = self.event(Who::Consumer(w)).map(|e| self.place(Who::Consumer(w), e));
        self.complete(w).map_err(|h| Hazard { place, ..h })
    }

    /// Whether all roles have come to their ends.
    pub fn is_done(&self) -> bool {
        self.everyone().all(|who| self.event(who).is_none())
    }

    /// What its roles wait for, for people; with the block's number if there are several.
    pub fn waiting(&self, several: bool) -> Vec<String> {
        let block = if several { format!("block {}, ", self.number) } else { String::new() };
        let one = |who| self.event(who).map(|e| format!("{block}{}", self.waits(who, e)));
        self.everyone().filter_map(one).collect()
    }

    /// Whether nothing is left when everybody is done.
    pub fn leftover(&self) -> Result<(), Hazard> {
        let left = |what: String| {
            let text = format!("at the end of block {}, {what}", self.number);
            Err(Hazard::new(HazardKind::Leftover, text))
        };
        if let Some(text) = self.rings.iter().find_map(RingState::leftover) {
            return left(text);
        }
        if self.s.turns.is_some() && self.turns.iter().enumerate().any(|(w, turn)| *turn != (w == 0)) {
            return left("it is not the first consumer's turn".to_string());
        }
        Ok(())
    }

    /// What a role waits for, for people.
    fn waits(&self, who: Who, event: &Event<'_>) -> String {
        let place = self.place(who, event);
        let what = match (event.step, who) {
            (Step::Acquire { ring, .. }, _) => {
                let ring = &self.rings[ring.0];
                let (stage, _) = ring.next_fill();
                let readers = ring.released.iter().map(|r| r.to_string()).collect::<Vec<_>>().join(", ");
                format!(
                    "until {} can start (completed phases of the empty barrier of stage {stage}: {}; fillings released by consumers: {readers})",
                    ring.filling(ring.filled),
                    ring.empty[stage].completed()
                )
            }
            (Step::Await { ring, .. }, Who::Consumer(w)) => {
                let ring = &self.rings[ring.0];
                let (stage, _) = ring.next_await(w);
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
