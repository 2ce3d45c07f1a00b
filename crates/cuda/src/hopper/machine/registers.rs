//! The tiles that one consumer holds in registers.

use super::evaluate::Values;
use super::trace::name;
use super::{Arrays, Hazard, HazardKind};
use crate::schedule::Schedule;
use einloom_tile::{Kernel, Op, TensorId, ValueId, Window};
use std::collections::BTreeMap;

/// A tile in registers.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tile {
    /// Whose elements these are.
    value: ValueId,
    /// The windows of rows and columns they were made at.
    pub sides: [Window; 2],
    /// Row by row.
    pub elements: Vec<f64>,
}

impl Tile {
    /// Made at these windows.
    pub fn zeros(value: ValueId, sides: [Window; 2]) -> Self {
        Self { value, sides, elements: vec![0.0; sides[0].len * sides[1].len] }
    }
}

/// Registers by home: tiles that are updated in place have one home.
#[derive(Clone, Debug)]
pub(super) struct Registers<'a> {
    kernel: &'a Kernel,
    layout: &'a Schedule,
    /// The state of each next value that is made in the state's registers: the same tile once the chunk is over.
    states: BTreeMap<ValueId, ValueId>,
    homes: BTreeMap<ValueId, Tile>,
    /// How often each state has taken its next value.
    updates: BTreeMap<ValueId, usize>,
}

impl<'a> Registers<'a> {
    pub fn new(kernel: &'a Kernel, layout: &'a Schedule) -> Self {
        let streams = kernel.body.iter().filter_map(|op| match op {
            Op::Stream { states, .. } => Some(states),
            _ => None,
        });
        let in_place = streams.flatten().filter(|s| layout.in_place.get(&s.next) == Some(&s.value));
        Self {
            kernel,
            layout,
            states: in_place.map(|s| (s.next, s.value)).collect(),
            homes: BTreeMap::new(),
            updates: BTreeMap::new(),
        }
    }

    /// Where a tile lives.
    pub fn home(&self, v: ValueId) -> ValueId {
        self.layout.in_place.get(&v).copied().unwrap_or(v)
    }

    fn tag(&self, v: ValueId) -> ValueId {
        self.states.get(&v).copied().unwrap_or(v)
    }

    /// The tile, if its registers hold it and nothing else.
    pub fn get(&self, v: ValueId) -> Result<&Tile, Hazard> {
        let undefined = |text| Err(Hazard::new(HazardKind::Undefined, text));
        match self.homes.get(&self.home(v)) {
            Some(t) if t.value == self.tag(v) => Ok(t),
            Some(t) => undefined(format!(
                "{} is read, but its registers hold {}",
                name(self.kernel, v),
                name(self.kernel, t.value)
            )),
            None => undefined(format!("{} is read, and nothing has written it", name(self.kernel, v))),
        }
    }

    /// Whether a state is what an operation of this chunk means: updated by every chunk before. The next value of a state
    /// that is updated in place is the state updated by this chunk as well.
    pub fn current(&self, v: ValueId, chunk: usize) -> Result<(), Hazard> {
        let state = self.tag(v);
        let Some(&updates) = self.updates.get(&state) else { return Ok(()) };
        let meant = chunk + usize::from(state != v);
        if updates == meant {
            return Ok(());
        }
        let text = format!(
            "{} after {meant} updates is read, but its registers hold it after {updates}",
            name(self.kernel, v)
        );
        Err(Hazard::new(HazardKind::Stale, text))
    }

    /// Writes a state before the first chunk.
    pub fn start(&mut self, v: ValueId, sides: [Window; 2], elements: Vec<f64>) {
        self.put(v, sides, elements);
        self.updates.insert(v, 0);
    }

    /// A state that is not updated in place takes its next value.
    pub fn advance(&mut self, v: ValueId, next: Tile) {
        self.put(v, next.sides, next.elements);
        *self.updates.entry(v).or_default() += 1;
    }

    /// Writes a tile over whatever its registers hold.
    pub fn put(&mut self, v: ValueId, sides: [Window; 2], elements: Vec<f64>) {
        if let Some(state) = self.states.get(&v) {
            *self.updates.entry(*state).or_default() += 1;
        }
        let tile = Tile { value: self.tag(v), sides, elements };
        self.homes.insert(self.home(v), tile);
    }

    /// What lives there, whosever it is.
    pub fn at_home(&mut self, home: ValueId) -> Option<&mut Tile> {
        self.homes.get_mut(&home)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.homes.clear();
        self.updates.clear();
    }
}

/// Registers and memory as an operation sees them. Tiles have been looked at by [`Registers::get`] before.
pub(super) struct View<'a, 'b> {
    pub registers: &'b Registers<'a>,
    pub memory: &'b Arrays,
}

impl Values for View<'_, '_> {
    fn tile(&self, v: ValueId) -> &[f64] {
        self.registers.homes.get(&self.registers.home(v)).map_or(&[], |t| &t.elements)
    }

    fn element(&self, tensor: TensorId, place: usize) -> Option<f64> {
        self.memory.element(tensor, place)
    }
}
