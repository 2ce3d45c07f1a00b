//! Elementwise operations: an expression over strips of the result.

use super::arena::{Buffer, Scratch};
use super::place::{Place, Rows, Tiles, pitch};
use super::worker::Worker;
use crate::compile::{Carrier, ElementKind, ExpressionPlan, Leaf, Strips, Tile};
use crate::kernels::isa::{Instructions, Work, dispatch};
use crate::kernels::real::Real;
use crate::kernels::strip::{self, Data, STRIP};
use bytemuck::Pod;
use einloom_tile::{AxisId, ValueId, coverage};

/// Where a leaf's elements come from.
enum Source<'a, T> {
    /// The memory of the result itself.
    InPlace,
    /// A tile of the same carrier as the computation.
    Rows(Rows<'a, T>),
    /// A tile in f32, to be widened.
    Floats(Rows<'a, f32>),
    /// An integer tile.
    Integers(Rows<'a, i32>),
    /// One element per row, in the scratch vector of the leaf's number.
    PerRow,
    /// One element per column, likewise.
    PerColumn,
    Same(T),
    /// 1 where all of `outer * row + inner * column + rest >= 0`, else 0.
    Holds(Vec<[i64; 3]>),
}

/// Where the result goes.
enum Sink<'a, T> {
    Same(&'a mut [T]),
    Floats(&'a mut [f32]),
    Integers(&'a mut [i32]),
}

struct Elementwise<'a, T> {
    strips: &'a Strips,
    sources: Vec<Source<'a, T>>,
    sink: Sink<'a, T>,
    rows: usize,
    columns: usize,
    pitch: usize,
    scratch: &'a mut Scratch<T>,
}

impl Worker<'_> {
    pub(super) fn map(&mut self, dst: ValueId, plan: &ExpressionPlan) {
        if plan.wide {
            let mut scratch = std::mem::take(&mut self.arena.wide);
            self.map_as::<f64>(dst, plan, &mut scratch);
            self.arena.wide = scratch;
        } else {
            let mut scratch = std::mem::take(&mut self.arena.narrow);
            self.map_as::<f32>(dst, plan, &mut scratch);
            self.arena.narrow = scratch;
        }
    }

    fn map_as<T: Real + Pod>(&mut self, dst: ValueId, plan: &ExpressionPlan, scratch: &mut Scratch<T>) {
        let tile = self.job.plan.tiles[dst.at()];
        let (rows, columns) = self.tiles().lengths(dst);
        if rows > 0 && columns > 0 {
            let strips = plan.variant(|p| coverage(p, &self.windows));
            let mut target = std::mem::take(&mut self.arena.slots[tile.slot]);
            let pitch = pitch(columns);
            let len = rows * pitch;
            scratch.reserve(strips.registers, strips.leaves.len());
            let tiles = self.tiles();
            let carrier = if plan.wide { Carrier::F64 } else { Carrier::F32 };
            let vectors = &mut scratch.vectors;
            let sources = strips
                .leaves
                .iter()
                .zip(vectors)
                .map(|(leaf, vector)| source(tiles, tile, &target, carrier, leaf, vector))
                .collect();
            let sink = match tile.carrier {
                Carrier::I32 => Sink::Integers(target.get_mut(len)),
                same if same == carrier => Sink::Same(target.get_mut(len)),
                _ => Sink::Floats(target.get_mut(len)),
            };
            dispatch(self.job.token, Elementwise { strips, sources, sink, rows, columns, pitch, scratch });
            self.arena.slots[tile.slot] = target;
        }
        self.places[dst.at()] = Place::Slot;
    }
}

fn source<'a, T: Real + Pod>(
    tiles: Tiles<'a>,
    dst: Tile,
    target: &Buffer,
    carrier: Carrier,
    leaf: &Leaf,
    vector: &mut Vec<T>,
) -> Source<'a, T> {
    let window = |axis: AxisId| tiles.windows[axis.at()];
    vector.clear();
    match leaf {
        Leaf::Tile(v, ElementKind::Full) => {
            let tile = tiles.tile(*v);
            if tiles.is_in(*v, dst.slot) {
                Source::InPlace
            } else if tile.carrier == carrier {
                Source::Rows(tiles.rows(*v))
            } else if tile.carrier == Carrier::I32 {
                Source::Integers(tiles.rows(*v))
            } else {
                Source::Floats(tiles.rows(*v))
            }
        }
        Leaf::Tile(v, kind @ (ElementKind::Outer | ElementKind::Inner)) => {
            let (_, columns) = tiles.lengths(*v);
            match tiles.tile(*v).carrier {
                Carrier::F32 => vector.extend(tiles.rows::<f32>(*v).data[..columns].iter().map(|&x| T::from_f32(x))),
                Carrier::F64 => vector.extend(tiles.rows::<f64>(*v).data[..columns].iter().map(|&x| T::from_f64(x))),
                Carrier::I32 => vector.extend(tiles.rows::<i32>(*v).data[..columns].iter().map(|&x| T::from_i32(x))),
            }
            if *kind == ElementKind::Outer { Source::PerRow } else { Source::PerColumn }
        }
        // A result of one element may take the place of an operand of one element.
        Leaf::Tile(v, ElementKind::Single) if tiles.is_in(*v, dst.slot) => Source::Same(match tiles.tile(*v).carrier {
            Carrier::F32 => T::from_f32(target.get()[0]),
            Carrier::F64 => T::from_f64(target.get()[0]),
            Carrier::I32 => T::from_i32(target.get()[0]),
        }),
        Leaf::Tile(v, ElementKind::Single) => Source::Same(tiles.element(*v, 0, 0)),
        Leaf::Position(axis, kind) => {
            let window = window(*axis);
            let positions = window.base..window.base + window.len;
            match kind {
                ElementKind::Single => return Source::Same(T::from_f64(window.base as f64)),
                ElementKind::Outer | ElementKind::Inner | ElementKind::Full => {
                    vector.extend(positions.map(|p| T::from_f64(p as f64)));
                }
            }
            if *kind == ElementKind::Outer { Source::PerRow } else { Source::PerColumn }
        }
        Leaf::Within(predicate) => {
            let conjunct = |affine: &einloom_tile::Affine| {
                let mut out = [0, 0, affine.constant];
                for &(c, axis) in &affine.terms {
                    out[2] += c * window(axis).base as i64;
                    out[0] += if dst.outer == Some(axis) { c } else { 0 };
                    out[1] += if dst.inner == Some(axis) { c } else { 0 };
                }
                out
            };
            Source::Holds(predicate.all.iter().map(conjunct).collect())
        }
    }
}

/// Sets `out[c]` to whether all conjuncts hold in row `row` at column `first + c`.
#[inline(always)]
fn holds<T: Real>(conjuncts: &[[i64; 3]], row: usize, first: usize, out: &mut [T]) {
    let (mut low, mut high) = (0, out.len() as i64);
    for &[outer, inner, rest] in conjuncts {
        let rest = rest + outer * row as i64 + inner * first as i64;
        match inner {
            0 if rest < 0 => high = 0,
            0 => {}
            c if c > 0 => low = low.max((-rest).div_euclid(c) + i64::from((-rest).rem_euclid(c) != 0)),
            c => high = high.min(rest.div_euclid(-c) + 1),
        }
    }
    let low = low.clamp(0, out.len() as i64) as usize;
    let high = high.clamp(low as i64, out.len() as i64) as usize;
    out[..low].fill(T::default());
    out[low..high].fill(T::ONE);
    out[high..].fill(T::default());
}

impl<T: Real + Pod> Work for Elementwise<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<I: Instructions>(self) {
        let Self { strips, sources, mut sink, rows, columns, pitch, scratch } = self;
        let Scratch { registers, leaves, vectors, row: spare } = scratch;
        // Short rows are taken several at a time.
        let together = if pitch == columns && columns < STRIP / 2 { (STRIP / columns).min(rows) } else { 1 };
        if together > 1 {
            for (source, vector) in sources.iter().zip(vectors.iter_mut()) {
                if matches!(source, Source::PerColumn) {
                    let once = vector.len();
                    (1..together).for_each(|_| vector.extend_from_within(..once));
                }
            }
        }
        // A leaf that is only read first is where it must be already.
        let skip = usize::from(strips.first.is_some_and(|leaf| matches!(sources[usize::from(leaf)], Source::InPlace)));
        for r0 in (0..rows).step_by(together) {
            let height = together.min(rows - r0);
            for c0 in (0..columns).step_by(if together > 1 { columns } else { STRIP }) {
                let width = if together > 1 { columns } else { STRIP.min(columns - c0) };
                let (at, n) = (r0 * pitch + c0, height * width);
                for (number, (source, leaf)) in sources.iter().zip(leaves.iter_mut()).enumerate() {
                    let leaf = &mut leaf[..n];
                    match source {
                        Source::InPlace if skip == 1 && strips.first == Some(number as u16) => {}
                        Source::InPlace => {
                            if let Sink::Same(target) = &sink {
                                leaf.copy_from_slice(&target[at..][..n]);
                            }
                        }
                        Source::Rows(from) if height > 1 && from.pitch != columns => {
                            for r in 0..height {
                                leaf[r * width..][..width]
                                    .copy_from_slice(&from.data[(r0 + r) * from.pitch..][..width]);
                            }
                        }
                        Source::Floats(from) => {
                            for r in 0..height {
                                let from = &from.data[(r0 + r) * from.pitch + c0..][..width];
                                for (x, &y) in leaf[r * width..][..width].iter_mut().zip(from) {
                                    *x = T::from_f32(y);
                                }
                            }
                        }
                        Source::Integers(from) => {
                            for r in 0..height {
                                let from = &from.data[(r0 + r) * from.pitch + c0..][..width];
                                for (x, &y) in leaf[r * width..][..width].iter_mut().zip(from) {
                                    *x = T::from_i32(y);
                                }
                            }
                        }
                        Source::PerRow if height > 1 => {
                            for r in 0..height {
                                leaf[r * width..][..width].fill(vectors[number][r0 + r]);
                            }
                        }
                        Source::Holds(conjuncts) => {
                            for r in 0..height {
                                holds(conjuncts, r0 + r, c0, &mut leaf[r * width..][..width]);
                            }
                        }
                        Source::Rows(_) | Source::PerRow | Source::PerColumn | Source::Same(_) => {}
                    }
                }
                let leaf = |number: u16| {
                    let number = usize::from(number);
                    match &sources[number] {
                        Source::Rows(from) if height == 1 || from.pitch == columns => {
                            Data::Each(&from.data[r0 * from.pitch + c0..][..n])
                        }
                        Source::PerRow if height == 1 => Data::Same(vectors[number][r0]),
                        Source::PerColumn if height == 1 => Data::Each(&vectors[number][c0..][..n]),
                        Source::PerColumn => Data::Each(&vectors[number][..n]),
                        Source::Same(x) => Data::Same(*x),
                        _ => Data::Each(&leaves[number][..n]),
                    }
                };
                let result = match &mut sink {
                    Sink::Same(target) => &mut target[at..][..n],
                    Sink::Floats(_) | Sink::Integers(_) => &mut spare[..n],
                };
                strip::run::<T, I>(&strips.steps[skip..], result, registers, leaf);
                match &mut sink {
                    Sink::Same(_) => {}
                    Sink::Floats(target) => {
                        for (x, &y) in target[at..][..n].iter_mut().zip(&spare[..n]) {
                            *x = y.to_f32();
                        }
                    }
                    Sink::Integers(target) => {
                        let (low, high) = (T::from_f64(f64::from(i32::MIN)), T::from_f64(f64::from(i32::MAX)));
                        for (x, &y) in target[at..][..n].iter_mut().zip(&spare[..n]) {
                            *x = y.to_i32(low, high);
                        }
                    }
                }
            }
        }
    }
}
