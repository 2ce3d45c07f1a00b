//! Rings at run time: stages that hold tiles or poison, their barriers, and copies under way.

use super::barrier::Barrier;
use super::{Arrays, Hazard, HazardKind};
use crate::hopper::{Piece, Ring, RingTile};
use einloom_tile::{Coord, CoordAtom, Program, Window};
use std::rc::Rc;

/// A tile's place in a stage of one block.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// What each block of the cluster copies of it; one part if it is not shared.
    pub parts: Vec<Part>,
    /// The windows it was copied at.
    pub windows: Rc<[Window]>,
    /// As they lie in shared memory, from the tile's first byte on.
    pub elements: Vec<f64>,
}

/// A part of a slot.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Part {
    /// The filling that it belongs to.
    pub filling: Option<usize>,
    /// Whether it has landed; it is poison before.
    pub landed: bool,
}

/// A bulk copy of one tile, or of a block's part of it, that has been started, on its way to one block.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub ring: usize,
    pub tile: usize,
    pub stage: usize,
    pub filling: usize,
    pub part: usize,
    pub windows: Rc<[Window]>,
}

/// A ring with everybody's counts.
#[derive(Clone, Debug)]
pub(super) struct RingState {
    pub name: String,
    pub stages: usize,
    pub full: Vec<Barrier>,
    pub empty: Vec<Barrier>,
    /// Per stage and tile.
    pub slots: Vec<Vec<Slot>>,
    /// Fillings that the producer may start.
    pub acquired: usize,
    /// Fillings that it has started.
    pub filled: usize,
    /// Of these, those that it has forgotten: it counts from there.
    filled_before: usize,
    /// Per stage, how often it was filled.
    fillings: Vec<usize>,
    /// Per consumer.
    pub awaited: Vec<usize>,
    /// Of these, those that it has forgotten.
    awaited_before: Vec<usize>,
    /// Per consumer.
    pub released: Vec<usize>,
}

impl RingState {
    /// Of a block of a cluster of so many.
    pub fn new(ring: &Ring, consumers: usize, blocks: usize) -> Self {
        let slot = |t: &RingTile| {
            let parts = if t.shared.is_some() { blocks } else { 1 };
            let elements = vec![0.0; t.rows * t.columns];
            Slot { parts: vec![Part::default(); parts], windows: Rc::new([]), elements }
        };
        Self {
            name: ring.name.clone(),
            stages: ring.stages,
            full: vec![Barrier::new(1); ring.stages],
            empty: vec![Barrier::new(ring.readers); ring.stages],
            slots: vec![ring.tiles.iter().map(slot).collect(); ring.stages],
            acquired: 0,
            filled: 0,
            filled_before: 0,
            fillings: vec![0; ring.stages],
            awaited: vec![0; consumers],
            awaited_before: vec![0; consumers],
            released: vec![0; consumers],
        }
    }

    /// A filling for people.
    pub fn filling(&self, filling: usize) -> String {
        format!("filling {filling} of ring {} (stage {})", self.name, filling % self.stages)
    }

    /// The producer forgets what it has counted.
    pub fn producer_restarts(&mut self) {
        self.filled_before = self.filled;
    }

    /// A consumer forgets what it has counted.
    pub fn consumer_restarts(&mut self, consumer: usize) {
        self.awaited_before[consumer] = self.awaited[consumer];
    }

    /// The stage that the producer fills next, and how often it has filled it before, as it counts.
    pub fn next_fill(&self) -> (usize, usize) {
        let count = self.filled - self.filled_before;
        (count % self.stages, count / self.stages)
    }

    /// The stage that a consumer awaits next, and how often it has awaited it before, as it counts.
    pub fn next_await(&self, consumer: usize) -> (usize, usize) {
        let count = self.awaited[consumer] - self.awaited_before[consumer];
        (count % self.stages, count / self.stages)
    }

    /// The stage of a filling that a consumer holds, as it counts.
    fn stage_of(&self, consumer: usize, filling: usize) -> usize {
        filling.saturating_sub(self.awaited_before[consumer]) % self.stages
    }

    /// Whether the next filling's stage is empty, as far as its barrier can tell.
    pub fn can_acquire(&self, ahead: usize) -> bool {
        let (stage, round) = self.next_fill();
        self.empty[stage].passes(round + ahead)
    }

    /// Whether the next filling has arrived, as far as its barrier can tell.
    pub fn can_await(&self, consumer: usize, ahead: usize) -> bool {
        let (stage, round) = self.next_await(consumer);
        self.full[stage].passes(round + ahead)
    }

    /// Announces the bytes of the producer's next filling, which is then counted as started.
    pub fn fill(&mut self, ring: &Ring) -> Result<(), Hazard> {
        let (filling, (stage, _)) = (self.filled, self.next_fill());
        if self.acquired <= filling {
            let text = format!("{} starts without having been acquired", self.filling(filling));
            return Err(Hazard::new(HazardKind::Unacquired, text));
        }
        let full = self.full[stage].arrive(ring.bytes);
        full.map_err(|_| {
            let text = format!("{} is announced in a phase that has already been announced", self.filling(filling));
            Hazard::new(HazardKind::Arrivals, text)
        })?;
        self.fillings[stage] += 1;
        self.filled += 1;
        Ok(())
    }

    /// Poisons a part of a tile, which a copy of this filling is going to write. `block` names this block if it is another
    /// than the one that copies.
    pub fn poison(
        &mut self,
        stage: usize,
        tile: usize,
        part: usize,
        filling: usize,
        block: Option<usize>,
    ) -> Result<(), Hazard> {
        let slot = self.slots[stage].get_mut(tile).and_then(|s| s.parts.get_mut(part));
        let slot = slot.ok_or_else(|| Hazard::malformed("a copy goes to a part of a tile that there is not"))?;
        let last = slot.filling.replace(filling);
        slot.landed = false;
        if let Some(last) = last
            && let Some(w) = self.released.iter().position(|&r| r <= last)
        {
            let whose = block.map_or(String::new(), |b| format!(" of block {b}"));
            let text = format!(
                "{} is copied over {}, which consumer {w}{whose} has not released",
                self.filling(filling),
                self.filling(last)
            );
            return Err(Hazard::new(HazardKind::Overwrite, text));
        }
        Ok(())
    }

    /// The stage and filling that a consumer's products read.
    pub fn held(&self, consumer: usize) -> Result<(usize, usize), Hazard> {
        let (awaited, released) = (self.awaited[consumer], self.released[consumer]);
        match awaited.checked_sub(1) {
            None => {
                let text = format!("no filling of ring {} has been awaited yet", self.name);
                Err(Hazard::new(HazardKind::EarlyRead, text))
            }
            Some(last) if released > last => {
                let text = format!("{} was awaited last, and has been released", self.filling(last));
                Err(Hazard::new(HazardKind::NotHeld, text))
            }
            Some(last) => Ok((self.stage_of(consumer, last), last)),
        }
    }

    /// A tile of a filling, if all of it is there.
    pub fn readable(&self, tile: usize, stage: usize, filling: usize) -> Result<&Slot, Hazard> {
        let slot = &self.slots[stage][tile];
        let missing = slot.parts.iter().position(|p| !p.landed || p.filling != Some(filling));
        let Some(part) = missing else { return Ok(slot) };
        let which = if slot.parts.len() > 1 { format!("the part of block {part} of ") } else { String::new() };
        let text = match slot.parts[part] {
            Part { filling: Some(other), landed: true } => {
                format!("{which}{} is read, but its stage holds filling {other}", self.filling(filling))
            }
            _ => format!("{which}{} is read before it has landed", self.filling(filling)),
        };
        Err(Hazard::new(HazardKind::EarlyRead, text))
    }

    /// The filling that a consumer would release next.
    pub fn oldest(&self, consumer: usize) -> Result<usize, Hazard> {
        let released = self.released[consumer];
        if released < self.awaited[consumer] {
            return Ok(released);
        }
        let text = format!("a stage of ring {} is released, and none is held", self.name);
        Err(Hazard::new(HazardKind::NotHeld, text))
    }

    /// A consumer gives the oldest filling's stage back: the stage on whose empty barriers it arrives, and the filling.
    pub fn release(&mut self, consumer: usize) -> Result<(usize, usize), Hazard> {
        let filling = self.oldest(consumer)?;
        let stage = self.stage_of(consumer, filling);
        self.released[consumer] += 1;
        Ok((stage, filling))
    }

    /// A consumer's arrival on the empty barrier of a stage.
    pub fn arrive(&mut self, stage: usize, filling: usize) -> Result<(), Hazard> {
        self.empty[stage].arrive(0).map_err(|_| {
            let text = format!("{} is released more often than its empty barrier counts", self.filling(filling));
            Hazard::new(HazardKind::Arrivals, text)
        })
    }

    /// A copy has arrived: elements at their places, and the bytes that its barrier counts.
    pub fn land(&mut self, copy: &Copy, brought: &[(usize, f64)], bytes: usize) {
        let slot = &mut self.slots[copy.stage][copy.tile];
        for &(place, x) in brought {
            if let Some(element) = slot.elements.get_mut(place) {
                *element = x;
            }
        }
        slot.windows = copy.windows.clone();
        // A later filling may have been started meanwhile, of which this is not a part.
        let part = &mut slot.parts[copy.part];
        part.landed |= part.filling == Some(copy.filling);
        self.full[copy.stage].land(bytes);
    }

    /// What is left over when everybody is done.
    pub fn leftover(&self) -> Option<String> {
        for (w, (&awaited, &released)) in self.awaited.iter().zip(&self.released).enumerate() {
            if awaited != self.filled || released != self.filled {
                return Some(format!(
                    "ring {} was filled {} times, awaited {awaited} times and released {released} times by consumer {w}",
                    self.name, self.filled
                ));
            }
        }
        for stage in 0..self.stages {
            let fillings = self.fillings[stage];
            for (what, barrier) in [("full", &self.full[stage]), ("empty", &self.empty[stage])] {
                if !barrier.idle() || barrier.completed() != fillings {
                    return Some(format!(
                        "the {what} barrier of stage {stage} of ring {} has completed {} phases for {fillings} fillings{}",
                        self.name,
                        barrier.completed(),
                        if barrier.idle() { "" } else { " and is in the middle of another" }
                    ));
                }
            }
        }
        None
    }
}

/// What a bulk copy brings of a tile that begins at this byte of shared memory: the elements of some pieces with their
/// places in the tile, zeros outside the tensor. The copy engine swizzles by the address.
pub(super) fn bring(
    program: &Program,
    tile: &RingTile,
    (base, pieces): (usize, &[Piece]),
    windows: &[Window],
    memory: &Arrays,
) -> Result<Vec<(usize, f64)>, Hazard> {
    let decl = program.tensor(tile.tensor);
    let first: Option<Vec<i64>> = tile.at.iter().map(|c| first(c, windows)).collect();
    let first = first.ok_or_else(|| Hazard::malformed(format!("the rows of {} are gathered", decl.name)))?;
    let element = |row: usize, column: usize| {
        let mut place = Some(0);
        for (d, (&start, &dim)) in first.iter().zip(&decl.dims).enumerate() {
            let step: usize = tile.dims.iter().zip([row, column]).filter(|(axis, _)| **axis == d).map(|(_, s)| s).sum();
            let at = usize::try_from(start + step as i64).ok().filter(|x| *x < dim);
            place = place.zip(at).map(|(p, at)| p * dim + at);
        }
        let Some(place) = place else { return Ok(0.0) };
        memory.element(tile.tensor, place).ok_or_else(|| {
            let text = format!("element {place} of {} is copied, and nothing has written it", decl.name);
            Hazard::new(HazardKind::Undefined, text)
        })
    };
    let (bytes, columns) = (tile.element.bytes(), tile.panel());
    let mut out = vec![];
    for piece in pieces {
        for k in 0..piece.rows * columns {
            let (row, column) = (k / columns, k % columns);
            let address = base + piece.place + row * tile.swizzle.bytes() + column * bytes;
            let place = tile.swizzle.place(address).wrapping_sub(base) / bytes;
            out.push((place, element(piece.row + row, piece.column + column)?));
        }
    }
    Ok(out)
}

/// A coordinate at the windows' first positions.
fn first(coord: &Coord, windows: &[Window]) -> Option<i64> {
    let mut x = coord.offset;
    for (c, atom) in &coord.terms {
        x += c * match atom {
            CoordAtom::Axis(a) => windows[a.at()].base as i64,
            CoordAtom::Floor(inner, d) => first(inner, windows)?.div_euclid(*d),
            CoordAtom::Tile(_) => return None,
        };
    }
    Some(x)
}
