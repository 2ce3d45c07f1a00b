//! What a consumer's steps do.

use super::block::Block;
use super::cluster::{Flight, What};
use super::evaluate::{Effect, Fault, Scope, rounded};
use super::product::{Factor, Group, Operands, Source, text};
use super::registers::{Registers, Tile, View};
use super::trace::{Event, name};
use super::{Arrays, Hazard, HazardKind, narrow};
use crate::hopper::{OpAt, RingId, Step};
use crate::schedule::facts::each_use;
use einloom_tile::{AxisId, Init, Op, State, ValueId, Window};
use std::collections::VecDeque;

/// A consumer warpgroup.
pub(super) struct Consumer<'a> {
    pub events: Vec<Event<'a>>,
    pub next: usize,
    pub registers: Registers<'a>,
    /// Products in flight, the oldest first.
    pub groups: VecDeque<Group>,
    /// Whether it is its turn.
    pub turn: bool,
}

impl<'a> Consumer<'a> {
    /// The group in flight that writes, or reads, these registers.
    fn busy(&self, home: ValueId) -> Option<(&Group, &'static str)> {
        let on = |g: &Group| match g.home == home {
            true => Some("writes"),
            false => g.takes(&self.registers, home).then_some("reads"),
        };
        self.groups.iter().find_map(|g| on(g).map(|how| (g, how)))
    }
}

impl<'a> Block<'a> {
    /// Executes a consumer's step, which can go on.
    pub fn consume(&mut self, w: usize, event: &Event<'a>, memory: &mut Arrays) -> Result<(), Hazard> {
        let windows = narrow(self.s, &event.windows, w);
        match event.step {
            Step::Await { ring, .. } => self.ring(*ring)?.awaited[w] += 1,
            Step::Release { ring } => self.release(w, *ring)?,
            Step::Read { ring, value } => self.read(w, *ring, *value)?,
            Step::Compute(at) => self.compute(w, *at, &windows, event.chunk, memory)?,
            Step::Multiply(at) => self.multiply(w, *at, event.chunk)?,
            Step::Settle { .. } => {}
            Step::TakeTurn => {
                self.turns[w] = false;
                self.consumers[w].turn = true;
            }
            Step::PassTurn => self.pass(w)?,
            Step::Start { stream } => self.start(w, *stream, &windows)?,
            Step::Advance { stream } => self.advance(w, *stream)?,
            Step::Acquire { .. } | Step::Fill { .. } | Step::Chunks { .. } => {
                return Err(Hazard::malformed("a producer's step in a consumer's list"));
            }
        }
        let consumer = &self.consumers[w];
        let last = consumer.events.get(consumer.next + 1).is_none_or(|e| e.point != event.point);
        if last { self.point_done(w, event) } else { Ok(()) }
    }

    /// The oldest product in flight completes.
    pub fn complete(&mut self, w: usize) -> Result<(), Hazard> {
        let Some(group) = self.consumers[w].groups.pop_front() else { return Ok(()) };
        let onto = match self.consumers[w].registers.at_home(group.home) {
            Some(tile) => std::mem::take(&mut tile.elements),
            None => vec![],
        };
        let elements = group.complete(&self.operands(w), &onto).map_err(|h| Hazard {
            explanation: format!("product {} in flight: {}", name(self.kernel, group.dst), h.explanation),
            ..h
        })?;
        if let Some(tile) = self.consumers[w].registers.at_home(group.home) {
            tile.elements = elements;
        }
        Ok(())
    }

    fn operands<'b>(&'b self, w: usize) -> Operands<'a, 'b> {
        let registers = &self.consumers[w].registers;
        Operands { kernel: self.kernel, s: self.s, rings: &self.rings, registers, consumer: w }
    }

    /// Everything that a grid point needs is done, and nothing of it is left.
    fn point_done(&mut self, w: usize, event: &Event<'_>) -> Result<(), Hazard> {
        let leftover = |text| Err(Hazard::new(HazardKind::Leftover, text));
        if let Some(g) = self.consumers[w].groups.front() {
            return leftover(format!("product {} is in flight at the end", name(self.kernel, g.dst)));
        }
        if let Some(r) = self.rings.iter().find(|r| r.awaited[w] != r.released[w]) {
            return leftover(format!("{} is held at the end", r.filling(r.released[w])));
        }
        if self.consumers[w].turn {
            return leftover("the turn is not passed on at the end".to_string());
        }
        self.consumers[w].registers.clear();
        let point = self.kernel.grid.iter().map(|a| event.windows[a.at()].base).collect();
        self.done.push((point, w));
        Ok(())
    }

    fn release(&mut self, w: usize, ring: RingId) -> Result<(), Hazard> {
        let filling = self.ring(ring)?.oldest(w)?;
        if let Some(g) = self.consumers[w].groups.iter().find(|g| g.reads(ring.0, filling)) {
            let dst = name(self.kernel, g.dst);
            let text =
                format!("{} is released while product {dst} in flight reads it", self.rings[ring.0].filling(filling));
            return Err(Hazard::new(HazardKind::Overwrite, text));
        }
        let (stage, filling) = self.rings[ring.0].release(w)?;
        // Arrivals on other blocks' barriers take their time.
        let others = (0..self.s.blocks()).filter(|b| *b != self.rank && self.s.rings[ring.0].is_shared());
        let what = What::Arrival { ring: ring.0, stage, filling };
        self.sent.extend(others.map(|to| Flight { to, what: what.clone() }));
        self.rings[ring.0].arrive(stage, filling)
    }

    fn read(&mut self, w: usize, ring: RingId, value: ValueId) -> Result<(), Hazard> {
        let found = self.s.rings.get(ring.0).and_then(|r| r.tiles.iter().position(|t| t.value == value));
        let tile =
            found.ok_or_else(|| Hazard::malformed(format!("{} is in no such ring", name(self.kernel, value))))?;
        self.free(w, value)?;
        let (stage, filling) = self.rings[ring.0].held(w)?;
        let slot = self.rings[ring.0].readable(tile, stage, filling)?;
        let tile = &self.s.rings[ring.0].tiles[tile];
        let own = narrow(self.s, &slot.windows, w);
        let decl = self.kernel.value(value);
        let sides = [decl.rows, decl.cols].map(|a| a.map_or(Window { base: 0, len: 1 }, |a| own[a.at()]));
        // Steps along the tile's axes, from its first row and column.
        let from = |axis: AxisId, at: [usize; 2]| {
            let step = if decl.rows == Some(axis) { at[0] } else { at[1] };
            own[axis.at()].base - slot.windows[axis.at()].base + step
        };
        let mut elements = vec![];
        for r in 0..sides[0].len {
            for c in 0..sides[1].len {
                let place = tile.place(from(tile.outer, [r, c]), from(tile.inner, [r, c])) / tile.element.bytes();
                let x = slot.elements.get(place).copied();
                elements.push(x.ok_or_else(|| Hazard::malformed("a tile is read beyond what its stage holds"))?);
            }
        }
        self.consumers[w].registers.put(value, sides, elements);
        Ok(())
    }

    /// Whether the tile's registers can be used: no product in flight works on them.
    fn free(&self, w: usize, v: ValueId) -> Result<(), Hazard> {
        let consumer = &self.consumers[w];
        // PTX ISA, wgmma.wait_group: accumulators and factors in registers are not to be accessed before it.
        match consumer.busy(consumer.registers.home(v)) {
            None => Ok(()),
            Some((g, how)) => {
                let text = format!(
                    "the registers of {} are touched while product {} in flight {how} them",
                    name(self.kernel, v),
                    name(self.kernel, g.dst)
                );
                Err(Hazard::new(HazardKind::Registers, text))
            }
        }
    }

    fn compute(
        &mut self,
        w: usize,
        at: OpAt,
        windows: &[Window],
        chunk: Option<usize>,
        memory: &mut Arrays,
    ) -> Result<(), Hazard> {
        let op = self.op(at)?;
        if let Op::Mma { .. } | Op::Stream { .. } | Op::SkipUnless { .. } = op {
            return Err(Hazard::malformed("neither a product nor a stream nor a skip can be computed in registers"));
        }
        if let Op::Reduce { axis, dst, .. } = op
            && *axis == self.s.rows
            && self.s.consumers > 1
        {
            return Err(Hazard::malformed(format!(
                "{} is reduced over rows that consumers share",
                name(self.kernel, *dst)
            )));
        }
        let scope = Scope { program: self.program, kernel: self.kernel, windows };
        let mut used = vec![];
        each_use(op, &mut |v, _| used.push(v));
        for v in used {
            self.free(w, v)?;
            let sides = self.consumers[w].registers.get(v)?.sides;
            self.current(w, at, v, chunk)?;
            let now = scope.sides(v);
            if sides != now {
                let [a, b, c, d] = [sides[0], sides[1], now[0], now[1]].map(text);
                let text = format!("{} is of {a} × {b}, and is used at {c} × {d}", name(self.kernel, v));
                return Err(Hazard::new(HazardKind::Stale, text));
            }
        }
        let view = View { registers: &self.consumers[w].registers, memory };
        match scope.evaluate(&view, op).map_err(|f| self.fault(f))? {
            Effect::Tile(dst, elements) => {
                self.free(w, dst)?;
                let sides = scope.sides(dst);
                self.consumers[w].registers.put(dst, sides, elements);
            }
            Effect::Stored(tensor, elements) => {
                elements.into_iter().for_each(|(place, x)| memory.put(tensor, place, x));
            }
            Effect::Tested(_) => {}
        }
        Ok(())
    }

    fn fault(&self, fault: Fault) -> Hazard {
        match fault {
            Fault::Unwritten { tensor, place } => {
                let tensor = &self.program.tensor(tensor).name;
                Hazard::new(
                    HazardKind::Undefined,
                    format!("element {place} of {tensor} is read, and nothing has written it"),
                )
            }
            Fault::NotSingle => Hazard::malformed("not a single operation"),
        }
    }

    fn multiply(&mut self, w: usize, at: OpAt, chunk: Option<usize>) -> Result<(), Hazard> {
        let Op::Mma { dst, acc, .. } = *self.op(at)? else {
            return Err(Hazard::malformed("only products are multiplied"));
        };
        let named = name(self.kernel, dst);
        let product = self.s.layout.products.get(&dst);
        let product = product.ok_or_else(|| Hazard::malformed(format!("no instruction for product {named}")))?;
        let left = self.factor(w, product.left, product.left_in_registers)?;
        let right = self.factor(w, product.right, false)?;
        if right.source == Source::Registers {
            return Err(Hazard::malformed(format!("the right factor of {named} is in registers")));
        }
        if left.source == Source::Registers {
            self.readable_by_product(w, product.left)?;
            self.current(w, at, product.left, chunk)?;
        }
        let (group, sides) = Group::start(&self.operands(w), dst, [left, right])?;
        let registers = &self.consumers[w].registers;
        if left.source == Source::Registers && registers.home(product.left) == group.home {
            return Err(Hazard::malformed(format!("{named} overwrites its own left factor")));
        }
        let onto = match acc {
            // Products that add to the same registers one after the other need not be waited for in between.
            Some(acc) if registers.home(acc) == group.home => {
                if let Some((other, "reads")) = self.consumers[w].busy(group.home) {
                    let text = format!(
                        "{named} writes registers that product {} in flight reads",
                        name(self.kernel, other.dst)
                    );
                    return Err(Hazard::new(HazardKind::Registers, text));
                }
                registers.get(acc)?.clone()
            }
            Some(acc) => {
                self.free(w, acc)?;
                self.free(w, dst)?;
                registers.get(acc)?.clone()
            }
            None => {
                self.free(w, dst)?;
                Tile::zeros(dst, sides)
            }
        };
        if onto.sides != sides {
            let [a, b, c, d] = [onto.sides[0], onto.sides[1], sides[0], sides[1]].map(text);
            return Err(Hazard::new(HazardKind::Stale, format!("{named} of {c} × {d} is added to {a} × {b}")));
        }
        let consumer = &mut self.consumers[w];
        consumer.registers.put(dst, sides, onto.elements);
        consumer.groups.push_back(group);
        self.statistics.products += 1;
        self.statistics.most_products = self.statistics.most_products.max(self.consumers[w].groups.len());
        Ok(())
    }

    /// A product may take a factor that other products in flight take, but not one that is being written.
    fn readable_by_product(&self, w: usize, v: ValueId) -> Result<(), Hazard> {
        match self.consumers[w].busy(self.consumers[w].registers.home(v)) {
            Some((_, "writes")) => self.free(w, v),
            _ => Ok(()),
        }
    }

    fn factor(&self, w: usize, value: ValueId, in_registers: bool) -> Result<Factor, Hazard> {
        if !in_registers && let Some((ring, tile)) = self.s.tile(value) {
            let place = self.s.rings[ring.0].tiles.iter().position(|t| t == tile).unwrap_or(0);
            let (stage, filling) = self.rings[ring.0].held(w)?;
            return Ok(Factor { value, source: Source::Stage { ring: ring.0, tile: place, stage, filling } });
        }
        Ok(Factor { value, source: Source::Registers })
    }

    fn pass(&mut self, w: usize) -> Result<(), Hazard> {
        if !self.consumers[w].turn {
            return Err(Hazard::new(HazardKind::NotHeld, "a turn is passed on that was not taken"));
        }
        self.consumers[w].turn = false;
        let next = (w + 1) % self.consumers.len();
        if std::mem::replace(&mut self.turns[next], true) {
            let text = format!("consumer {next} gets a turn before it has taken the one before");
            return Err(Hazard::new(HazardKind::Arrivals, text));
        }
        Ok(())
    }

    fn start(&mut self, w: usize, stream: usize, windows: &[Window]) -> Result<(), Hazard> {
        let scope = Scope { program: self.program, kernel: self.kernel, windows };
        for s in self.states(stream)? {
            self.free(w, s.value)?;
            let sides = scope.sides(s.value);
            let elements = match s.init {
                Init::Const(x) => vec![x; sides.iter().map(|s| s.len).product()],
                Init::Value(v) => {
                    self.free(w, v)?;
                    self.consumers[w].registers.get(v)?.elements.clone()
                }
            };
            let elements = rounded(self.kernel.value(s.value).dtype, elements);
            self.consumers[w].registers.start(s.value, sides, elements);
        }
        Ok(())
    }

    fn advance(&mut self, w: usize, stream: usize) -> Result<(), Hazard> {
        let registers = &self.consumers[w].registers;
        let moved: Vec<_> =
            self.states(stream)?.iter().filter(|s| registers.home(s.next) != registers.home(s.value)).collect();
        let mut next = vec![];
        for s in &moved {
            self.free(w, s.next)?;
            next.push(self.consumers[w].registers.get(s.next)?.clone());
        }
        for (s, tile) in moved.iter().zip(next) {
            self.free(w, s.value)?;
            self.consumers[w].registers.advance(s.value, tile);
        }
        Ok(())
    }

    /// Whether a state of the operation's stream has been updated as often as the operation means.
    fn current(&self, w: usize, at: OpAt, v: ValueId, chunk: Option<usize>) -> Result<(), Hazard> {
        // Of other streams' states the number of the chunk says nothing.
        let states = at.stream.map_or(Ok(&[][..]), |k| self.states(k))?;
        match chunk.filter(|_| states.iter().any(|s| s.value == v || s.next == v)) {
            Some(chunk) => self.consumers[w].registers.current(v, chunk),
            None => Ok(()),
        }
    }

    fn states(&self, stream: usize) -> Result<&'a [State], Hazard> {
        match self.kernel.body.get(stream) {
            Some(Op::Stream { states, .. }) => Ok(states),
            _ => Err(Hazard::malformed(format!("operation {stream} of the kernel is no stream"))),
        }
    }

    fn op(&self, at: OpAt) -> Result<&'a Op, Hazard> {
        self.s.op(self.kernel, at).ok_or_else(|| Hazard::malformed("a step names an operation that there is not"))
    }
}
