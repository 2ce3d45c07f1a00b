//! Rings at run time: stages that hold tiles or poison, their barriers, and copies under way.

use super::barrier::Barrier;
use super::{Arrays, Hazard, HazardKind};
use crate::hopper::{Ring, RingTile};
use einloom_tile::{Coord, CoordAtom, Program, Window};
use std::rc::Rc;

/// A tile's place in a stage.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    /// The filling that has landed; `None` is poison.
    pub landed: Option<usize>,
    /// The windows it was copied at.
    pub windows: Rc<[Window]>,
    /// Row by row, those beyond the tile included.
    pub elements: Vec<f64>,
}

/// A bulk copy of one tile that has been started.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    pub ring: usize,
    pub tile: usize,
    pub filling: usize,
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
    /// Per consumer.
    pub awaited: Vec<usize>,
    /// Per consumer.
    pub released: Vec<usize>,
}

impl RingState {
    pub fn new(ring: &Ring, consumers: usize) -> Self {
        let poison = Slot { landed: None, windows: Rc::new([]), elements: vec![] };
        Self {
            name: ring.name.clone(),
            stages: ring.stages,
            full: vec![Barrier::new(1); ring.stages],
            empty: vec![Barrier::new(ring.readers); ring.stages],
            slots: vec![vec![poison; ring.tiles.len()]; ring.stages],
            acquired: 0,
            filled: 0,
            awaited: vec![0; consumers],
            released: vec![0; consumers],
        }
    }

    /// A filling for people.
    pub fn filling(&self, filling: usize) -> String {
        format!("filling {filling} of ring {} (stage {})", self.name, filling % self.stages)
    }

    /// Whether the next filling's stage is empty, as far as its barrier can tell.
    pub fn can_acquire(&self, ahead: usize) -> bool {
        self.empty[self.filled % self.stages].passes(self.filled / self.stages + ahead)
    }

    /// Whether the next filling has arrived, as far as its barrier can tell.
    pub fn can_await(&self, consumer: usize, ahead: usize) -> bool {
        let awaited = self.awaited[consumer];
        self.full[awaited % self.stages].passes(awaited / self.stages + ahead)
    }

    /// Poisons the next filling's stage and announces its bytes.
    pub fn fill(&mut self, ring: &Ring) -> Result<(), Hazard> {
        let (filling, stage) = (self.filled, self.filled % self.stages);
        if let Some(last) = filling.checked_sub(self.stages)
            && let Some(w) = self.released.iter().position(|&r| r <= last)
        {
            let text = format!(
                "{} is copied over {}, which consumer {w} has not released",
                self.filling(filling),
                self.filling(last)
            );
            return Err(Hazard::new(HazardKind::Overwrite, text));
        }
        if self.acquired <= filling {
            let text = format!("{} starts without having been acquired", self.filling(filling));
            return Err(Hazard::new(HazardKind::Unacquired, text));
        }
        self.slots[stage].iter_mut().for_each(|s| s.landed = None);
        let bytes = ring.tiles.iter().map(RingTile::bytes).sum();
        let full = self.full[stage].arrive(bytes);
        full.map_err(|_| {
            let text = format!("{} is announced in a phase that has already been announced", self.filling(filling));
            Hazard::new(HazardKind::Arrivals, text)
        })?;
        self.filled += 1;
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
            Some(last) => Ok((last % self.stages, last)),
        }
    }

    /// A tile of a filling, if it is there.
    pub fn readable(&self, tile: usize, filling: usize) -> Result<&Slot, Hazard> {
        let slot = &self.slots[filling % self.stages][tile];
        if slot.landed == Some(filling) {
            return Ok(slot);
        }
        let text = match slot.landed {
            Some(other) => format!("{} is read, but its stage holds filling {other}", self.filling(filling)),
            None => format!("{} is read before it has landed", self.filling(filling)),
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

    /// Gives the oldest filling's stage back.
    pub fn release(&mut self, consumer: usize) -> Result<(), Hazard> {
        let filling = self.oldest(consumer)?;
        let empty = self.empty[filling % self.stages].arrive(0);
        empty.map_err(|_| {
            let text = format!("{} is released more often than its empty barrier counts", self.filling(filling));
            Hazard::new(HazardKind::Arrivals, text)
        })?;
        self.released[consumer] += 1;
        Ok(())
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
            let fillings = (self.filled + self.stages - 1 - stage) / self.stages;
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

/// What a bulk copy brings: the box of the tile's rows and columns, zeros outside the tensor.
pub(super) fn bring(
    program: &Program,
    tile: &RingTile,
    windows: &[Window],
    memory: &Arrays,
) -> Result<Vec<f64>, Hazard> {
    let decl = program.tensor(tile.tensor);
    let first: Option<Vec<i64>> = tile.at.iter().map(|c| first(c, windows)).collect();
    let first = first.ok_or_else(|| Hazard::malformed(format!("the rows of {} are gathered", decl.name)))?;
    let mut out = vec![0.0; tile.rows * tile.columns];
    for (k, x) in out.iter_mut().enumerate() {
        let steps = [k / tile.columns, k % tile.columns];
        let mut place = Some(0);
        for (d, (&start, &dim)) in first.iter().zip(&decl.dims).enumerate() {
            let step: usize = tile.dims.iter().zip(steps).filter(|(axis, _)| **axis == d).map(|(_, s)| s).sum();
            let at = usize::try_from(start + step as i64).ok().filter(|x| *x < dim);
            place = place.zip(at).map(|(p, at)| p * dim + at);
        }
        if let Some(place) = place {
            *x = memory.element(tile.tensor, place).ok_or_else(|| {
                let text = format!("element {place} of {} is copied, and nothing has written it", decl.name);
                Hazard::new(HazardKind::Undefined, text)
            })?;
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
