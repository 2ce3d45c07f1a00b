//! The description of a machine.

use crate::{Bytes, BytesPerSecond, Hertz, JoulesPerByte, Lanes, MatrixUnit, Overhead, Pipe, Watts, pipe};
use crate::{FlopsPerSecond, Work};
use einloom_cascade::DType;
use std::iter::successors;

/// A machine: equal cores under a tree of memory levels.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// What it is called on the command line.
    pub name: String,
    /// What it is, for people, and which of its figures are assumed.
    pub description: String,
    /// Cores (on a GPU: streaming multiprocessors). At least 1.
    pub cores: usize,
    /// The cores' clock.
    pub clock: Hertz,
    /// An abstract machine counts elements: its memories hold each in this many bytes, whatever its number type.
    /// What moves between memories still counts the number types' bytes. Each memory holds at least one; what is left over
    /// of whole ones holds nothing.
    pub element: Option<Bytes>,
    /// What it may draw for long, where that is known: no kernel that lasts takes more energy a second.
    pub power: Option<Watts>,
    /// What starting work costs.
    pub overhead: Overhead,
    /// The tree of memory levels: each level after its parent, the root first. At least 1.
    pub levels: Vec<Level>,
    /// What computes; some pipe computes in f32.
    pub pipes: Vec<Pipe>,
    /// The threads of a core, where a core is a GPU's: then plans count registers and issue slots.
    pub lanes: Option<Lanes>,
    /// Its matrix units, best first; another may be asked for by name.
    pub matrix: Vec<MatrixUnit>,
}

/// What a level is to a plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LevelKind {
    /// Holds copies of what the level outside it holds: a cache, or memory that programs fill.
    #[default]
    Memory,
    /// Cores that read each other's memory. It holds what the level inside it holds, and nothing else.
    Exchange,
    /// What the arithmetic reads and writes. It may be larger than the level outside it, for it holds no copy of it.
    Registers,
}

impl LevelKind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Exchange, Self::Registers];

    /// Its name in descriptions.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Exchange => "exchange",
            Self::Registers => "registers",
        }
    }
}

/// One level of the memory hierarchy.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// Its name, such as `L2`.
    pub name: String,
    /// The level outside it, as a place in [`Machine::levels`]; `None` for the root alone.
    pub parent: Option<usize>,
    /// What it is to a plan.
    pub kind: LevelKind,
    /// Bytes one instance holds; `None` for an outermost level without a limit that matters.
    pub capacity: Option<Bytes>,
    /// How many cores share one instance: all of them for device memory, 1 for a private cache.
    pub shared_by: usize,
    /// Between this level and the next one in (after the last memory: the cores), all instances together. Infinite
    /// where it is never what limits: registers feed the arithmetic at its own rate.
    pub bandwidth: BytesPerSecond,
    /// Energy per byte moved between this level and the next one in, where it is known.
    pub energy: Option<JoulesPerByte>,
}

impl Machine {
    /// The memories that a plan's data pass, outermost first: from the root along levels of [`LevelKind::Memory`].
    /// Where several lie side by side it is the one listed first. A description whose trunk ends at a memory that more
    /// cores share than some memory beside it is refused: plans would never come to what is near the cores.
    pub fn trunk(&self) -> impl DoubleEndedIterator<Item = &Level> + ExactSizeIterator + Clone {
        trunk(&self.levels).into_iter().map(|k| &self.levels[k])
    }

    /// The level with this name.
    pub fn level(&self, name: &str) -> Option<&Level> {
        self.levels.iter().find(|l| l.name == name)
    }

    /// The levels directly inside a level.
    pub fn inside<'a>(&'a self, level: &'a Level) -> impl Iterator<Item = &'a Level> {
        self.levels.iter().filter(move |l| l.parent.is_some_and(|p| self.levels[p].name == level.name))
    }

    /// Registers of one core, if they hold enough to be worth planning for.
    pub fn registers(&self) -> Option<Bytes> {
        let mut files = self.levels.iter().filter(|l| l.kind == LevelKind::Registers);
        files.find_map(|l| l.per_core())
    }

    /// What all memories inside `level` and all registers hold together; `None` without a limit. Fast memory for what
    /// passes between `level` and the next one in. On an abstract machine registers count as none.
    pub fn capacity_inside(&self, level: &Level) -> Option<Bytes> {
        let mut total = 0u64;
        for (k, inner) in self.levels.iter().enumerate() {
            if inner.kind == LevelKind::Exchange || !self.is_inside(k, level) {
                continue;
            }
            let instances = (self.cores / inner.shared_by.max(1)).max(1) as u64;
            total = total.saturating_add(inner.capacity?.0.saturating_mul(instances));
        }
        Some(Bytes(total))
    }

    fn is_inside(&self, level: usize, outer: &Level) -> bool {
        let mut at = self.levels[level].parent;
        while let Some(k) = at {
            if self.levels[k].name == outer.name {
                return true;
            }
            at = self.levels[k].parent;
        }
        false
    }

    /// Bytes that a memory takes to hold one element of this number type.
    pub fn held_bytes(&self, dtype: DType) -> u64 {
        self.element.map_or(dtype.bytes() as u64, |e| e.0)
    }

    /// Products and sums of this number type, a multiply-add being two: the fastest pipe's rate. A type that no pipe
    /// computes is computed in f32.
    pub fn rate(&self, dtype: DType) -> FlopsPerSecond {
        let fastest = |d: DType| {
            let rates = self.pipes.iter().filter(|p| p.work != Work::Special).filter_map(|p| p.rates.get(&d));
            rates.copied().reduce(|a, b| if b.0 > a.0 { b } else { a })
        };
        fastest(dtype).or_else(|| fastest(DType::F32)).unwrap_or(FlopsPerSecond(0.0))
    }

    /// The pipe that does this work on this number type, the fastest if several do; in f32 if none does.
    pub fn pipe(&self, work: Work, dtype: DType) -> Option<&Pipe> {
        pipe::fastest(&self.pipes, work, dtype).or_else(|| pipe::fastest(&self.pipes, work, DType::F32))
    }

    /// The type of 16 bits in which matrix units multiply floats of 8 bits, each of which is a number of that type too;
    /// `None` if some unit takes these as they are, or none takes such a type.
    pub fn eights(&self) -> Option<DType> {
        let takes = |d: &DType| self.matrix.iter().any(|m| m.operands.contains(d));
        let as_they_are = [DType::E4m3, DType::E5m2].iter().any(takes);
        [DType::F16, DType::Bf16].into_iter().find(takes).filter(|_| !as_they_are)
    }

    /// The same abstract machine with room for this many elements in each instance of its innermost memory.
    ///
    /// # Errors
    /// What is wrong, for people: the machine counts bytes, there is no room at all, or more than can be counted.
    pub fn with_capacity(mut self, elements: u64) -> Result<Self, String> {
        let Some(element) = self.element else {
            return Err(format!("{} is no abstract machine: its capacities are those of its memories", self.name));
        };
        if elements == 0 {
            return Err("a memory without elements holds nothing; it takes at least 1".to_string());
        }
        let room = elements.checked_mul(element.0).filter(|&b| b <= i64::MAX as u64);
        let Some(bytes) = room else {
            return Err(format!("{elements} elements of {element} are more than can be counted"));
        };
        let innermost = self.trunk().next_back().map(|l| l.name.clone());
        for level in self.levels.iter_mut().filter(|l| Some(&l.name) == innermost.as_ref()) {
            level.capacity = Some(Bytes(bytes));
        }
        self.consistent()
    }

    /// The same machine with another capacity of one instance of a memory.
    ///
    /// # Errors
    /// Which capacities contradict each other, for people: a description with them would be refused too.
    pub fn with_level_capacity(mut self, level: usize, capacity: Bytes) -> Result<Self, String> {
        self.levels[level].capacity = Some(capacity);
        self.consistent()
    }

    /// The machine after one of its capacities was set.
    fn consistent(mut self) -> Result<Self, String> {
        self.fill_exchanges();
        let mut contradictions = (0..self.levels.len()).filter_map(|k| {
            let text = not_less(&self.levels, k).or_else(|| holds_none(&self.levels[k], self.element))?;
            Some(format!("{} has a capacity that contradicts another: {text}", self.levels[k].name))
        });
        match contradictions.next() {
            Some(text) => Err(text),
            None => Ok(self),
        }
    }

    /// Cores that exchange hold together what each of them holds.
    pub(crate) fn fill_exchanges(&mut self) {
        for k in 0..self.levels.len() {
            if self.levels[k].kind == LevelKind::Exchange {
                self.levels[k].capacity = self.exchanged(k);
            }
        }
    }

    /// What the cores of one instance of an exchange level hold together in the memory inside it.
    pub(crate) fn exchanged(&self, level: usize) -> Option<Bytes> {
        let memory = |l: &&Level| l.kind == LevelKind::Memory && l.parent == Some(level);
        let inner = self.levels.iter().find(memory)?;
        let instances = (self.levels[level].shared_by / inner.shared_by.max(1)).max(1) as u64;
        Some(Bytes(inner.capacity?.0.saturating_mul(instances)))
    }
}

/// The places of a [`Machine::trunk`].
pub(crate) fn trunk(levels: &[Level]) -> Vec<usize> {
    let memory = |k: &usize| levels[*k].kind == LevelKind::Memory;
    // The nearest memory around a level.
    let outside = |k: usize| successors(levels[k].parent, |&p| levels[p].parent).find(memory);
    let inside = |outer: Option<usize>| (0..levels.len()).filter(memory).find(|&k| outside(k) == outer);
    successors(inside(None), |&k| inside(Some(k))).collect()
}

/// Why a memory of a machine that counts elements holds none, for people.
pub(crate) fn holds_none(level: &Level, element: Option<Bytes>) -> Option<String> {
    let capacity = level.capacity.filter(|_| level.kind == LevelKind::Memory)?;
    element.filter(|e| capacity < *e).map(|e| format!("{capacity} hold no element of {e}"))
}

/// Why a memory's capacity and that of the memory around it cannot both be, for people: memories shrink inwards.
pub(crate) fn not_less(levels: &[Level], level: usize) -> Option<String> {
    // Cores that exchange hold no copy of their own, and registers hold what is in no memory.
    let mut around = levels[level].parent.map(|p| &levels[p]);
    while let Some(o) = around.filter(|o| o.kind == LevelKind::Exchange) {
        around = o.parent.map(|p| &levels[p]);
    }
    let outer = around.filter(|_| levels[level].kind == LevelKind::Memory)?;
    let (inner, outside) = (levels[level].capacity?, outer.capacity?);
    (inner >= outside)
        .then(|| format!("{inner} is not less than the {outside} of `{}`, the level outside it", outer.name))
}

impl Level {
    /// The part of one instance's capacity that each core has if all of them work; `None` without a limit.
    pub fn per_core(&self) -> Option<Bytes> {
        self.capacity.map(|c| Bytes(c.0 / self.shared_by.max(1) as u64))
    }
}
