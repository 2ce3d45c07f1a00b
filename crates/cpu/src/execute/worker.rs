//! One thread's walk over points of a kernel's grid.

use super::anchored::Made;
use super::arena::{Arena, Buffer};
use super::elementwise::Following;
use super::kept::Kept;
use super::load::Loading;
use super::place::{Place, Tiles, lengths, pitch};
use crate::RunError;
use crate::compile::{Carried, Carrier, Plan, Step};
use crate::kernels::contract::Ahead;
use crate::kernels::isa::Token;
use crate::kernels::live::Live;
use crate::kernels::memory::{self, Shared};
use crate::kernels::truths::Bits;
use crate::kernels::unit::{Engaged, UnitToken};
use einloom_cascade::numeric::round;
use einloom_tile::{
    AxisId, Extremes, Init, Program, ValueId, Window, chunks, initial_windows, set_grid_point, visited,
};

/// A kernel with its memory.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    pub program: &'a Program,
    pub plan: &'a Plan,
    /// One per tensor of the program.
    pub tensors: &'a [Shared<'a>],
    pub token: Token,
    /// Computes the contractions whose plan says so.
    pub unit: Option<UnitToken>,
}

/// What one thread needs to run points of the grid.
pub(crate) struct Worker<'a> {
    pub job: Job<'a>,
    pub windows: Vec<Window>,
    pub places: Vec<Place>,
    pub arena: Arena,
    /// Tiles that are the same at the next point.
    pub kept: Kept,
    /// Which of the points that differ along the fastest axis only are at hand.
    line: usize,
    /// Tiles of the next chunk, for contractions to copy in passing.
    pub ahead: Option<Ahead<'a>>,
    /// The innermost stream's axis and next chunk, if there is one.
    pub next: Option<(AxisId, Window)>,
    /// The windows at the point that this thread runs next; empty if that is not known.
    pub following: Vec<Window>,
    /// What that point loads outside of streams, to be asked for by maps.
    pub asked: Vec<Following>,
    /// Inside of a stream.
    pub streams: bool,
    /// Of tiles that are packed, per value, which elements are more than 0; all, if that is not told.
    pub live: Vec<Option<Live>>,
    /// Tiles of which all elements are known to be 0, per value.
    pub zeros: Vec<bool>,
    /// The processor's matrix unit, while a point uses it.
    pub engaged: Option<Engaged>,
    /// What a step has made of a later one.
    pub beforehand: Vec<Made<'a>>,
    /// Results whose exponentials became too large at this point below an anchor that was known before, each time.
    pub refused: Vec<ValueId>,
    /// Bytes loaded, per tensor.
    pub loaded: Vec<u64>,
    /// Bytes stored, per tensor.
    pub stored: Vec<u64>,
    pub skipped: u64,
}

/// What to do after a step.
#[derive(PartialEq, Eq)]
enum Flow {
    Next,
    /// Go on with the stream's next chunk.
    Skip,
}

impl<'a> Worker<'a> {
    /// One of so many threads.
    pub(crate) fn new(job: Job<'a>, mut arena: Arena, threads: usize) -> Self {
        arena.slots.resize_with(arena.slots.len().max(job.plan.slots), Buffer::default);
        Self {
            windows: initial_windows(&job.plan.kernel),
            places: vec![Place::Slot; job.plan.tiles.len()],
            arena,
            kept: Kept::new(threads),
            line: 0,
            ahead: None,
            next: None,
            following: vec![],
            asked: vec![],
            streams: false,
            live: vec![None; job.plan.tiles.len()],
            zeros: vec![false; job.plan.tiles.len()],
            engaged: None,
            beforehand: vec![],
            refused: vec![],
            loaded: vec![0; job.tensors.len()],
            stored: vec![0; job.tensors.len()],
            skipped: 0,
            job,
        }
    }

    /// Runs one point of the grid, in the plan's order; `following` is the one that this thread runs next, if that is
    /// known.
    pub(crate) fn point(&mut self, point: usize, following: Option<usize>) -> Result<(), RunError> {
        self.asked.clear();
        self.refused.clear();
        self.following.clear();
        if let Some(next) = following {
            self.following.extend_from_slice(&self.windows);
            set_grid_point(&self.job.plan.kernel, self.job.plan.point(next).1, &mut self.following);
        }
        let (line, point) = self.job.plan.point(point);
        if line != self.line {
            self.line = line;
            self.kept.clear(&mut self.arena.spare);
        }
        set_grid_point(&self.job.plan.kernel, point, &mut self.windows);
        let plan = self.job.plan;
        let done = self.steps(&plan.body).map(|_| ());
        self.engaged = None;
        memory::settle();
        done
    }

    pub(crate) fn tiles(&self) -> Tiles<'_> {
        Tiles {
            program: self.job.program,
            plan: self.job.plan,
            windows: &self.windows,
            places: &self.places,
            slots: &self.arena.slots,
            kept: self.kept.tiles(),
            tensors: self.job.tensors,
        }
    }

    fn steps(&mut self, steps: &'a [Step]) -> Result<Flow, RunError> {
        let mut at = 0;
        while let Some((step, next)) = steps.get(at..).and_then(<[Step]>::split_first) {
            at += 1;
            if let Step::Map { dst, .. } = step {
                self.zeros[dst.at()] = false;
            }
            match step {
                Step::Load { dst, tensor, access, fill, view, ahead, kept, again } => {
                    self.load(
                        *dst,
                        *tensor,
                        access,
                        *fill,
                        Loading { view: *view, ahead: *ahead, kept: *kept, again: *again },
                    )?;
                }
                Step::Store { tensor, access, src } => self.store(*tensor, access, *src),
                Step::Map { dst, ends, .. } if self.was_made(*dst, &ends.folds) => {}
                Step::Map { dst, plan, ends } => match next.first() {
                    Some(Step::Contract(c)) if c.made && self.made(*dst, (plan, ends), c) => at += 1,
                    _ => self.map(*dst, plan, ends),
                },
                Step::Contract(contract) if self.unwanted(contract) => {}
                Step::Relayout { dst, src } => self.relayout(*dst, *src),
                Step::Contract(contract) => {
                    if !self.piecewise(contract, next) && !self.anchored(contract, &steps[at - 1..]) {
                        self.contract(contract);
                    }
                }
                Step::Reduce { dst, src, axis, monoid, start } => self.reduce(*dst, *src, *axis, monoid, *start),
                Step::Pick { dst, src, picked } => self.pick(*dst, *src, picked),
                Step::SkipUnless { any } => {
                    if !self.any(*any) {
                        self.skipped += 1;
                        return Ok(Flow::Skip);
                    }
                }
                Step::Stream { axis, within, guards, states, body } => {
                    states.iter().for_each(|s| self.begin(s));
                    let outside = self.next;
                    let within_another = std::mem::replace(&mut self.streams, true);
                    let (job, kernel) = (self.job, &self.job.plan.kernel);
                    if !guards.is_empty() {
                        self.skipped += chunks(kernel, *axis, within, &self.windows).count() as u64;
                    }
                    let element = |e: &Extremes, windows: &[Window]| job.extremes(e, windows);
                    let mut chunks = visited(kernel, (*axis, within, guards), &self.windows, &element).peekable();
                    while let Some(chunk) = chunks.next() {
                        self.skipped -= u64::from(!guards.is_empty());
                        self.windows[axis.at()] = chunk;
                        self.next = chunks.peek().map(|next| (*axis, *next));
                        if self.steps(body)? == Flow::Next {
                            states.iter().for_each(|s| self.advance(s, states));
                        }
                    }
                    drop(chunks);
                    self.next = outside;
                    self.streams = within_another;
                    if let Some(ahead) = &mut self.ahead {
                        ahead.clear();
                    }
                }
            }
        }
        Ok(Flow::Next)
    }

    /// Gives a state its value before the first chunk.
    fn begin(&mut self, state: &Carried) {
        let tile = self.job.plan.tiles[state.value.at()];
        let (rows, columns) = lengths(tile, &self.windows);
        match &state.init {
            Init::Const(x) => {
                let x = round(tile.dtype, *x);
                let len = rows * pitch(columns);
                let slot = &mut self.arena.slots[tile.slot];
                match tile.carrier {
                    Carrier::F32 => slot.get_mut::<f32>(len)[..len].fill(x as f32),
                    Carrier::F64 => slot.get_mut::<f64>(len)[..len].fill(x),
                    Carrier::I32 => slot.get_mut::<i32>(len)[..len].fill(x as i32),
                }
                self.places[state.value.at()] = Place::Slot;
            }
            Init::Value(v) => self.copy(state.value, *v),
        }
    }

    /// Gives a state the chunk's next value, by exchanging buffers unless it is there already.
    fn advance(&mut self, state: &Carried, all: &[Carried]) {
        let tiles = &self.job.plan.tiles;
        let (value, next) = (tiles[state.value.at()].slot, tiles[state.next.at()].slot);
        if all.iter().filter(|s| s.next == state.next).count() > 1 {
            self.copy(state.value, state.next);
        } else if value != next {
            self.arena.slots.swap(value, next);
        }
    }

    /// Whether some element of a b1 tile holds.
    fn any(&self, v: ValueId) -> bool {
        let tiles = self.tiles();
        let (rows, columns) = tiles.lengths(v);
        if let Some(Bits { words, pitch }) = tiles.bits(v) {
            return words[..rows * pitch].iter().any(|&word| word != 0);
        }
        let source = tiles.rows::<f32>(v);
        (0..rows).any(|r| source.data[r * source.pitch..][..columns].iter().any(|&x| x != 0.0))
    }
}
