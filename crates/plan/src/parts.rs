//! Kernels in parts, for a machine whose innermost memory counts elements.
//!
//! Tiles are whole in number. Where a memory just fails to hold tiles that cut both sides of a result in two, one side is cut
//! in three, and an input comes in once more, all of it. An index of the grid that is cut into a head and a tail, each with the
//! tiles that suit it, pays that for the tail alone: a product of 256 cubed where 16384 elements fit moves 126 rows by tiles of
//! 126 by 128, 130 rows by tiles of 130 by 86.
//!
//! Where that is not enough two indices are cut: along whole sides of what is left (`sections.rs`), or, where four tiles just fail to hold a result and
//! no line across it leaves few of them, round about (`round_about.rs`).
//!
//! Conditions: the index is on the grid, so that no part needs what the other computes; it has one axis, and the kernel neither
//! reads positions along it nor skips chunks by what data say; no recurrence. A plan within 5 % of its bound stays in one piece,
//! and so does one that gains less than 1 %.

use crate::Work;
use crate::build::{Built, Workshop};
use crate::frame::{Frame, Memory, even_tiles, last};
use crate::grid_order::orders;
use crate::known;
use crate::plane::{Plane, Way};
use crate::program::program_of;
use einloom_model::bounds::BoundFrom;

use einloom_tile::{Affine, AxisId, AxisKind, Coord, CoordAtom, Kernel, Op, Scalar};
use std::collections::{BTreeMap, BTreeSet};

/// Times the bound: what moves no more than this stays in one piece.
const NEAR: f64 = 1.05;
/// Of what moves: two kernels in place of one must save as much.
pub(crate) const WORTH: f64 = 0.01;
/// Groups of a head, and of what it is held beside, at most: with more of them one more weighs little.
const MOST_GROUPS: usize = 12;

/// A kernel in pieces.
#[derive(Clone, Debug)]
pub(crate) struct Cut {
    pub pieces: Vec<Piece>,
    /// What all of them move.
    pub bytes: u64,
}

/// A piece of a kernel, with its tiles.
#[derive(Clone, Debug)]
pub(crate) struct Piece {
    /// Places of indices among the free ones, each with the first position and how many.
    pub along: Vec<(usize, usize, usize)>,
    pub sizes: Vec<usize>,
    /// Which of the ways to write the kernel, the chosen one first.
    pub way: usize,
}

/// Part of what a planned kernel computes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// The index that is cut.
    pub index: String,
    /// The first position.
    pub from: usize,
    /// How many positions.
    pub len: usize,
    /// The other index that is cut, with the first position and how many, where two are.
    pub across: Option<(String, usize, usize)>,
    /// Which of the parts it is, in the order of the plan's kernels, and how many there are.
    pub place: [usize; 2],
    /// The level outside the innermost memory.
    pub level: String,
    /// Bytes that all parts together must move between that level and the innermost memory.
    pub bound_bytes: u64,
    /// What that rests on.
    pub bound_from: BoundFrom,
}

impl Part {
    /// A part's share of what bounds the traffic of a level, which by itself is `own`: the first part stands for all.
    pub fn bound_of(&self, level: &str, own: u64) -> u64 {
        match (self.level == level, self.place[0]) {
            (false, _) => own,
            (true, 0) => self.bound_bytes,
            (true, _) => 0,
        }
    }
}

impl Workshop<'_> {
    /// The kernel in parts, where that moves less.
    pub(crate) fn in_parts(&mut self, built: &Built) -> Option<Vec<Built>> {
        let memory = Memory::of(self.machine)?;
        if built.cone.recurrence.is_some() || !self.options.tiles.is_empty() {
            return None;
        }
        let program = program_of(self.p, self.x, self.types, vec![built.kernel.clone()]);
        let found = self.known.shared.bounds.transfers(&program, self.machine)?;
        // What passes into the innermost memory is told of the level outside it.
        let level = found.levels.iter().rev().nth(1)?;
        let (whole, any_order) = (level.bytes, level.any_order_bytes);
        // Parts may be in orders that the bound is not for.
        let of_some =
            matches!(level.bound_from, BoundFrom::Side | BoundFrom::Results | BoundFrom::Factor | BoundFrom::Tiles);
        let near = if of_some { any_order } else { level.bound_bytes };
        let level = level.level.clone();
        if whole as f64 <= NEAR * near as f64 {
            return None;
        }
        let mut frame = Frame::new(program, free(&built.kernel));
        let sizes: Vec<usize> = frame.free.iter().map(|f| built.kernel.axis(f[0]).tile).collect();
        let grid: Vec<usize> = (0..frame.free.len()).filter(|&k| on_grid(&frame, k)).collect();
        let key = format!("{} {:?}", known::unnamed(&mut frame.program, &[]), frame.free);
        let mut ways = vec![];
        let best = self.known_cut(key, |work| in_two((&mut frame, &sizes), &grid, memory, whole, near, work));
        let limit = best.as_ref().map_or(whole, |b| b.bytes).min(whole);
        let best = match limit as f64 > NEAR * near as f64 {
            true => {
                ways = self.ways(built, &frame, &grid);
                let of = |w: &mut Way| {
                    format!(
                        "{} {:?}",
                        known::unnamed(&mut w.frame.program, &[]),
                        (w.places, w.reordered, &w.frame.free)
                    )
                };
                let key = ways.iter_mut().map(of).collect();
                let limit = (1.0 - WORTH) * limit as f64;
                self.known_cut(key, |work| across(&mut ways, memory, near, limit, work)).or(best)
            }
            false => best,
        }?;
        if best.bytes as f64 > (1.0 - WORTH) * whole as f64 {
            return None;
        }
        frame.put(&sizes);
        let (bound, from) = self.known.shared.bounds.if_moved(&frame.program, self.machine, &level, best.bytes)?;
        let all = if best.pieces.len() == 2 { "both parts" } else { "all parts" };
        let make = |(place, piece): (usize, &Piece)| {
            let (frame, kernel) = match ways.get(piece.way) {
                Some(way) => (&way.frame, &way.kernel),
                None => (&frame, &built.kernel),
            };
            let mut part = frame.piece(&piece.along)?;
            part.put(&piece.sizes);
            let named = |&(index, first, len): &(usize, usize, usize)| {
                let axis = frame.kernel().axis(frame.free[index][0]);
                (axis.name.clone(), first, len, axis.extent)
            };
            let along: Vec<_> = piece.along.iter().map(named).collect();
            let text = |(name, first, len, extent): &(String, usize, usize, usize)| {
                format!("{name} {first}..{} of {extent}", first + len)
            };
            let note = format!(
                "{} with tiles of its own: {all} move {} bytes, one piece would move {}, of which {} have to",
                along.iter().map(text).collect::<Vec<_>>().join(" and "),
                best.bytes,
                whole,
                bound,
            );
            let mut kernel = sliced(kernel, &frame.axes(&piece.along))?;
            kernel.axes.clone_from(&part.kernel().axes);
            let (index, first, len, _) = along.first()?.clone();
            Some(Built {
                kernel,
                cost: part.outside(self.machine),
                notes: [note].into_iter().chain(built.notes.iter().skip(1).cloned()).collect(),
                part: Some(Part {
                    index,
                    from: first,
                    len,
                    across: along.get(1).map(|(name, first, len, _)| (name.clone(), *first, *len)),
                    place: [place, best.pieces.len()],
                    level: level.clone(),
                    bound_bytes: bound,
                    bound_from: from,
                }),
                ..built.clone()
            })
        };
        best.pieces.iter().enumerate().map(make).collect()
    }
}

/// The best parts across both indices, where they move less than `limit` bytes: along whole sides, else round about.
fn across(ways: &mut [Way], memory: Memory<'_>, near: u64, limit: f64, work: &mut Work) -> Option<Cut> {
    let plane = Plane::new(ways, memory, work)?;
    let sections = plane.sections(limit).and_then(|p| plane.pieces(ways, p.into_iter(), limit, memory, work));
    let limit = sections.as_ref().map_or(limit, |c| (1.0 - WORTH) * c.bytes as f64);
    if limit <= NEAR * near as f64 {
        return sections;
    }
    let about = plane.round_about(limit).and_then(|p| plane.pieces(ways, p.into_iter(), limit, memory, work));
    about.or(sections)
}

/// The best place to cut some index in two at.
fn in_two(
    (frame, own): (&mut Frame, &[usize]),
    grid: &[usize],
    memory: Memory<'_>,
    whole: u64,
    bound: u64,
    work: &mut Work,
) -> Option<Cut> {
    let extents = frame.extents();
    let mut best: Option<(u64, usize, usize, [Vec<usize>; 2])> = None;
    for &index in grid {
        let axis = frame.free[index][0];
        // Its own tiles suit some of it, where a few elements of what stays come in again.
        let mut shapes = shapes(frame, grid, index, memory);
        shapes.push(own.to_vec());
        let mut tails: BTreeMap<usize, Option<(u64, Vec<usize>)>> = BTreeMap::new();
        for (at, head) in heads(&shapes, index, extents[index]) {
            let Some(mut part) = frame.of(axis, 0, at) else { break };
            let bytes = part.moved(&head, memory, work);
            // The tail moves no less than its part of the bound, or hardly.
            let left = extents[index] - at;
            let limit = best.as_ref().map_or(whole, |b| b.0);
            if bytes as f64 + bound as f64 * left as f64 / extents[index] as f64 >= limit as f64 {
                continue;
            }
            let tail = tails.entry(at).or_insert_with(|| {
                let mut part = frame.of(axis, at, left)?;
                let fill = |shape: &Vec<usize>| {
                    let mut sizes = shape.clone();
                    sizes[index] = left.div_ceil(left.div_ceil(shape[index]));
                    (part.moved(&sizes, memory, work), sizes)
                };
                shapes.iter().map(fill).min()
            });
            if let Some((more, tail)) = tail
                && bytes + *more < limit
            {
                best = Some((bytes + *more, index, at, [head, tail.clone()]));
            }
        }
    }
    // What is searched for the tail alone may be better still.
    let (mut bytes, index, at, [head, mut tail]) = best?;
    let left = extents[index] - at;
    let mut part = frame.of(frame.free[index][0], at, left)?;
    let before = part.moved(&tail, memory, work);
    if let Ok(found) = part.descend(memory, false, work)
        && found.bytes < before
    {
        (bytes, tail) = (bytes - before + found.bytes, found.sizes);
    }
    let piece = |first: usize, len: usize, sizes: Vec<usize>| Piece { along: vec![(index, first, len)], sizes, way: 0 };
    Some(Cut { pieces: vec![piece(0, at, head), piece(at, left, tail)], bytes })
}

impl Workshop<'_> {
    /// What was found for a key, or is now.
    fn known_cut(&mut self, key: String, find: impl FnOnce(&mut Work) -> Option<Cut>) -> Option<Cut> {
        let cuts = &self.known.shared.cuts;
        let known = cuts.lock().ok().and_then(|cuts| cuts.get(&key).cloned());
        let (best, work) = known.unwrap_or_else(|| {
            let mut work = Work::default();
            let best = find(&mut work);
            if let Ok(mut cuts) = cuts.lock() {
                cuts.insert(key, (best.clone(), work));
            }
            (best, work)
        });
        self.work += work;
        best
    }

    /// The ways to write a kernel whose grid has two indices that can be cut, with every order of its grid; the chosen one first.
    fn ways(&mut self, built: &Built, frame: &Frame, grid: &[usize]) -> Vec<Way> {
        let [one, other] = grid[..] else { return vec![] };
        let names = [one, other].map(|k| frame.kernel().axis(frame.free[k][0]).name.clone());
        let kernel = built.kernel.clone();
        let mut ways = vec![Way { kernel, frame: frame.clone(), places: [one, other], reordered: false }];
        for kernel in self.in_its_types(built, |shop| shop.written(&built.roots, &built.cone)) {
            for (k, grid) in orders(&kernel).into_iter().enumerate() {
                let kernel = Kernel { grid, ..kernel.clone() };
                let program = program_of(self.p, self.x, self.types, vec![kernel.clone()]);
                let free = free(&program.kernels[0]);
                let frame = Frame::new(program, free);
                let named = |name: &String| {
                    let is_it = |k: &usize| on_grid(&frame, *k) && frame.kernel().axis(frame.free[*k][0]).name == *name;
                    (0..frame.free.len()).find(is_it)
                };
                if let [Some(one), Some(other)] = [0, 1].map(|k| named(&names[k])) {
                    ways.push(Way { kernel, frame, places: [one, other], reordered: k > 0 });
                }
            }
        }
        ways
    }
}

impl Frame {
    /// The same for a part of an axis.
    fn of(&self, axis: AxisId, from: usize, len: usize) -> Option<Self> {
        Some(self.like(slice(self.kernel(), axis, from, len)?))
    }

    /// The same for a piece.
    pub(crate) fn piece(&self, along: &[(usize, usize, usize)]) -> Option<Self> {
        Some(self.like(sliced(self.kernel(), &self.axes(along))?))
    }

    /// The axes of what is cut.
    fn axes(&self, along: &[(usize, usize, usize)]) -> Vec<(AxisId, usize, usize)> {
        along.iter().map(|&(index, first, len)| (self.free[index][0], first, len)).collect()
    }
}

/// The kernel for some positions of some axes.
fn sliced(kernel: &Kernel, along: &[(AxisId, usize, usize)]) -> Option<Kernel> {
    along.iter().try_fold(kernel.clone(), |kernel, &(axis, first, len)| slice(&kernel, axis, first, len))
}

/// Each tile of each other index, the smallest and those in few groups, with the largest of this index that fits beside it.
fn shapes(frame: &mut Frame, grid: &[usize], index: usize, memory: Memory<'_>) -> Vec<Vec<usize>> {
    let extents = frame.extents();
    let mut out = vec![];
    for &other in grid.iter().filter(|&&k| k != index) {
        for beside in even_tiles(extents[other]) {
            let mut sizes = vec![1; extents.len()];
            sizes[other] = beside;
            let few = beside == 1 || extents[other].div_ceil(beside) <= MOST_GROUPS;
            if !few || !frame.fits(&sizes, memory) {
                continue;
            }
            let tile = 1 + last(extents[index], |k| {
                sizes[index] = k + 1;
                frame.fits(&sizes, memory)
            });
            sizes[index] = tile;
            out.push(sizes);
        }
    }
    out
}

/// Heads to try: full groups of each shape, with where they end.
fn heads(shapes: &[Vec<usize>], index: usize, extent: usize) -> BTreeSet<(usize, Vec<usize>)> {
    let ends = |shape: &Vec<usize>| {
        let shape = shape.clone();
        let ends = (1..=MOST_GROUPS).map(move |groups| (groups * shape[index], shape.clone()));
        ends.take_while(move |(end, _)| *end < extent)
    };
    shapes.iter().flat_map(ends).collect()
}

/// Whether a free index is one axis of the grid.
fn on_grid(frame: &Frame, free: usize) -> bool {
    let [axis] = frame.free[free][..] else { return false };
    frame.kernel().grid.contains(&axis)
}

/// The indices whose tiles are free: those along which tiles have a side and that are not whole.
fn free(kernel: &Kernel) -> Vec<Vec<AxisId>> {
    let sides: BTreeSet<AxisId> = kernel.values.iter().flat_map(|v| [v.rows, v.cols]).flatten().collect();
    let mut by_name: BTreeMap<&str, Vec<AxisId>> = BTreeMap::new();
    for (k, axis) in kernel.axes.iter().enumerate() {
        by_name.entry(&axis.name).or_default().push(AxisId(k as u32));
    }
    let open = |a: &AxisId| {
        let axis = kernel.axis(*a);
        axis.extent > 1 && axis.kind != AxisKind::Whole && sides.contains(a)
    };
    by_name.into_values().filter(|axes| axes.iter().all(open)).collect()
}

/// The kernel for `len` positions of an axis, from position `from` on; `None` where it cannot be moved.
fn slice(kernel: &Kernel, axis: AxisId, from: usize, len: usize) -> Option<Kernel> {
    let mut kernel = kernel.clone();
    kernel.axes[axis.at()].extent = len;
    let by = i64::try_from(from).ok()?;
    moved(&mut kernel.body, axis, by).then_some(kernel)
}

/// Operations that find at position `p` of an axis what they found at `p + by`.
fn moved(ops: &mut [Op], axis: AxisId, by: i64) -> bool {
    ops.iter_mut().all(|op| match op {
        Op::Load { at, .. } | Op::Store { at, .. } => {
            at.iter_mut().for_each(|c| coordinate(c, axis, by));
            true
        }
        Op::Map { expr, .. } => scalar(expr, axis, by),
        Op::Stream { within, guards, body, .. } => {
            within.all.iter_mut().for_each(|a| affine(a, axis, by));
            guards.is_empty() && moved(body, axis, by)
        }
        Op::Pick { axis: along, at, .. } => {
            coordinate(at, axis, by);
            *along != axis
        }
        Op::SkipUnless { .. } => false,
        Op::Mma { .. } | Op::Reduce { .. } => true,
    })
}

fn coordinate(c: &mut Coord, axis: AxisId, by: i64) {
    for (factor, atom) in &mut c.terms {
        match atom {
            CoordAtom::Axis(a) if *a == axis => c.offset += *factor * by,
            CoordAtom::Floor(inside, _) => coordinate(inside, axis, by),
            CoordAtom::Axis(_) | CoordAtom::Tile(_) => {}
        }
    }
}

fn affine(a: &mut Affine, axis: AxisId, by: i64) {
    a.constant += a.terms.iter().filter(|t| t.1 == axis).map(|t| t.0 * by).sum::<i64>();
}

fn scalar(expr: &mut Scalar, axis: AxisId, by: i64) -> bool {
    match expr {
        Scalar::Position(a) => *a != axis,
        Scalar::Within(p) => {
            p.all.iter_mut().for_each(|a| affine(a, axis, by));
            true
        }
        Scalar::Const(_) | Scalar::Tile(_) | Scalar::Argument(_) => true,
        Scalar::Round(_, x) | Scalar::Unary(_, x) => scalar(x, axis, by),
        Scalar::Binary(_, x, y) => scalar(x, axis, by) && scalar(y, axis, by),
        Scalar::Select(c, x, y) => [c, x, y].into_iter().all(|e| scalar(e, axis, by)),
    }
}
