//! Traffic per memory level: reuse by loop depth.
//!
//! Let a *region* be one iteration of a kernel's first so many loops. If everything that a region touches, with the
//! tiles that are live meanwhile, fits in a memory, each element is brought in once per region, however often the
//! region's inner loops use it. For each memory the outermost regions that fit are found; the traffic of the level
//! outside it is what these regions touch, summed over all of them.
//!
//! Points of the grid run on cores in parallel. A memory that several cores share is shared by the regions that are
//! under way at the same time: a region with at least as many grid points as active cores has the memory to itself,
//! a smaller one its part.

use crate::held::{Held, Staying};
use crate::nest::{Body, Nest};
use crate::region::Lean;
use einloom_machine::Level;
use einloom_tile::{AxisId, CoordAtom, Kernel, Program, TensorId, ValueId, grid_points, grid_steps};
use std::collections::{BTreeMap, BTreeSet};

/// Elements read and written of each of a few tensors, in order of their ids.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic(Vec<(TensorId, (u64, u64))>);

impl Traffic {
    pub fn new() -> Self {
        Self::default()
    }

    /// What is read and written of a tensor, to add to.
    pub fn of(&mut self, tensor: TensorId) -> &mut (u64, u64) {
        let at = self.0.binary_search_by_key(&tensor, |t| t.0).unwrap_or_else(|at| {
            self.0.insert(at, (tensor, (0, 0)));
            at
        });
        &mut self.0[at].1
    }

    pub fn get(&self, tensor: TensorId) -> Option<(u64, u64)> {
        self.0.binary_search_by_key(&tensor, |t| t.0).ok().map(|at| self.0[at].1)
    }

    pub fn iter(&self) -> impl Iterator<Item = (TensorId, (u64, u64))> + '_ {
        self.0.iter().copied()
    }

    /// Both together.
    pub fn with(mut self, other: &Self) -> Self {
        for (tensor, more) in other.iter() {
            let sum = self.of(tensor);
            *sum = (sum.0.saturating_add(more.0), sum.1.saturating_add(more.1));
        }
        self
    }

    /// Of each of its tensors the less of both.
    pub fn smaller(mut self, other: &Self) -> Self {
        for (tensor, (read, written)) in &mut self.0 {
            let other = other.get(*tensor).unwrap_or((0, 0));
            (*read, *written) = ((*read).min(other.0), (*written).min(other.1));
        }
        self
    }
}

/// What passes into a memory.
pub(crate) struct Into {
    pub traffic: Traffic,
    /// The same if what tiles leave free kept nothing.
    pub without: Traffic,
    /// Bytes that it holds at once.
    pub resident_bytes: u64,
}

impl Into {
    /// All that is asked for.
    pub(crate) fn as_asked(traffic: Traffic, resident_bytes: u64) -> Self {
        Self { without: traffic.clone(), traffic, resident_bytes }
    }
}

/// What a kernel moves whose regions do not fit as a whole.
struct Apart {
    /// Bytes of memory for it.
    share: u64,
    /// Those that its tiles take.
    tiles: u64,
    /// The most that it holds.
    held: u64,
    traffic: Traffic,
    /// At which depth each access is counted.
    counted: Vec<(usize, usize)>,
}

/// How many elements tiles take where these stay.
pub(crate) type KeptElements<'a> = dyn Fn(&BTreeSet<ValueId>) -> u64 + 'a;

/// A kernel with what the analysis needs of it.
pub(crate) struct Reuse<'a> {
    pub program: &'a Program,
    pub kernel: &'a Kernel,
    pub nest: &'a Nest,
    pub resident_bytes: u64,
    /// Bytes in which a memory holds an element, whatever its type, if programs decide what it holds: see [`crate::kept`].
    /// `None` for caches.
    pub element: Option<u64>,
    /// Elements that it holds where some tiles stay, if that is known already.
    pub held: Option<&'a KeptElements<'a>>,
    /// Whether a tile that is loaded or stored is where its tensor is, and no second copy: of processors, where nothing multiplies it, which
    /// would put it in order.
    pub in_place: bool,
}

impl Reuse<'_> {
    /// Elements that enter and leave `memory`, and what it holds.
    pub fn traffic_into(&self, memory: &Level) -> Into {
        let mut traffic = Traffic::new();
        let Some(capacity) = memory.capacity else {
            let all = &self.nest.body.all;
            self.region(all, 0, Lean::High, &mut traffic);
            let resident_bytes = self.bytes(&traffic).saturating_add(self.resident_bytes);
            return Into { without: traffic.clone(), traffic, resident_bytes };
        };
        let all = &self.nest.body.all;
        let grid = self.kernel.grid.len();
        let active = (memory.shared_by as u64).min(grid_points(self.kernel) as u64).max(1);
        for depth in 0..=grid {
            let steps = self.kernel.grid[depth..].iter().map(|&a| grid_steps(self.kernel.axis(a)) as u64);
            let points = steps.fold(1, u64::saturating_mul).clamp(1, active);
            let share = (u128::from(capacity.0) * u128::from(points) / u128::from(active)) as u64;
            if let Some(held) = self.fits(all, depth, share, self.resident_bytes.saturating_mul(points)) {
                // What does not move from one region to the next is used again before it is pushed out.
                let mut by_depth: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
                let (mut kept, once) = (BTreeSet::new(), held);
                let mut held = once;
                for &k in all {
                    let from = self.stays_from(k, depth);
                    let from = match self.keeps_tile(k, [from, depth], once, share, &mut kept) {
                        Some(more) => {
                            held = held.max(more);
                            from
                        }
                        None => depth,
                    };
                    by_depth.entry(from).or_default().push(k);
                }
                by_depth.iter().for_each(|(&d, some)| self.region(some, d, Lean::High, &mut traffic));
                let counted =
                    by_depth.into_iter().flat_map(|(d, some)| some.into_iter().map(move |k| (k, d))).collect();
                let without = traffic.clone();
                let held = held.saturating_add(self.keep(
                    counted,
                    Some(depth),
                    share.saturating_sub(held),
                    active,
                    &mut traffic,
                ));
                // As many regions as share the memory run at once.
                let resident_bytes = held.saturating_mul(active.div_ceil(points));
                return Into { traffic, without, resident_bytes };
            }
        }
        let (stay, tiles) = match active {
            1 => self.stay(grid, capacity.0),
            _ => (BTreeMap::new(), self.resident_bytes),
        };
        let mut apart = Apart { share: capacity.0 / active, tiles, held: tiles, traffic, counted: vec![] };
        for (&k, &depth) in &stay {
            self.region(&[k], depth, Lean::High, &mut apart.traffic);
            apart.counted.push((k, depth));
        }
        self.descend(&self.nest.body, grid, &stay, &mut apart);
        let Apart { mut held, mut traffic, counted, .. } = apart;
        let without = traffic.clone();
        held = held.saturating_add(self.keep(counted, None, capacity.0.saturating_sub(held), active, &mut traffic));
        Into { traffic, without, resident_bytes: held.saturating_mul(active) }
    }

    /// The bytes that a region of the second of two depths holds, if what an access touches in it stays through one of the first: where
    /// programs decide what is held, a tile that is all that it touches there must not lose its place. `None` if that does not fit.
    fn keeps_tile(
        &self,
        k: usize,
        [from, depth]: [usize; 2],
        held: u64,
        share: u64,
        kept: &mut BTreeSet<ValueId>,
    ) -> Option<u64> {
        let [outer, regions] = [from, depth].map(|d| self.nest.iterations(self.kernel, k, d));
        let Some(element) = self.element.filter(|_| outer < regions && self.is_tile(k, depth, regions)) else {
            return Some(held);
        };
        let tile = self.nest.accesses[k].tile;
        let new = kept.insert(tile);
        let more = self.held(kept).saturating_mul(element).saturating_sub(self.resident_bytes);
        // What the region touches beside its tiles is there as well.
        let all = held.saturating_add(more);
        if all > share && new {
            kept.remove(&tile);
        }
        (all <= share).then_some(all)
    }

    /// The depth of the outermost region that a load touches the same elements in as in the region of this depth, because
    /// it does not move with the loops in between.
    fn stays_from(&self, k: usize, depth: usize) -> usize {
        let access = &self.nest.accesses[k];
        let outer = access.moves[..depth.min(access.loops.len())].iter().rev();
        if access.store || access.gathers { depth } else { depth - outer.take_while(|moves| !**moves).count() }
    }

    /// Tiles that are loaded outside streams, are all that their access touches in an outer loop of the grid, and may stay where they
    /// are through all of it: each access with that depth, and the bytes of all tiles then. Where programs decide what is held.
    fn stay(&self, grid: usize, capacity: u64) -> (BTreeMap<usize, usize>, u64) {
        let (mut stay, mut tiles) = (BTreeMap::new(), self.resident_bytes);
        let Some(element) = self.element else { return (stay, tiles) };
        let mut kept = BTreeSet::new();
        for &k in &self.nest.body.accesses {
            let access = &self.nest.accesses[k];
            let depth = self.stays_from(k, grid);
            let [regions, all] = [depth, grid].map(|d| self.nest.iterations(self.kernel, k, d));
            if access.store || regions == 0 || regions == all || !self.is_tile(k, depth, regions) {
                continue;
            }
            kept.insert(access.tile);
            let held = self.held(&kept).saturating_mul(element);
            if held <= capacity {
                stay.insert(k, depth);
                tiles = tiles.max(held);
            } else {
                kept.remove(&access.tile);
            }
        }
        (stay, tiles)
    }

    /// The traffic of a body that does not fit as a whole: of its accesses one by one, but for those that `stay`, and of the
    /// streams in it.
    fn descend(&self, body: &Body, depth: usize, stay: &BTreeMap<usize, usize>, apart: &mut Apart) {
        for &k in body.accesses.iter().filter(|k| !stay.contains_key(k)) {
            self.region(&[k], depth, Lean::High, &mut apart.traffic);
            apart.counted.push((k, depth));
        }
        for stream in &body.streams {
            let all = &stream.all;
            let fits = |d: usize| Some((d, self.fits(all, d, apart.share, apart.tiles)?));
            if let Some((fitting, bytes)) = [depth, depth + 1].into_iter().find_map(fits) {
                self.region(all, fitting, Lean::High, &mut apart.traffic);
                apart.counted.extend(all.iter().map(|&k| (k, fitting)));
                apart.held = apart.held.max(bytes);
            } else {
                self.descend(stream, depth + 1, stay, apart);
            }
        }
    }

    /// What these accesses touch in one region, on average, with the tiles, if that fits.
    pub(crate) fn fits(&self, accesses: &[usize], depth: usize, share: u64, tiles: u64) -> Option<u64> {
        let Some(first) = accesses.first() else { return Some(tiles) };
        let regions = self.nest.iterations(self.kernel, *first, depth);
        if regions == 0 {
            return Some(tiles);
        }
        // What one of them touches may be too much by itself.
        let alone = |k: usize| {
            let tensor = self.program.tensor(self.nest.accesses[k].tensor);
            let most = tensor.dims.iter().fold(regions, |n, &d| n.saturating_mul(d as u64));
            let touched = self.nest.touched(self.program, self.kernel, k, depth, Lean::High).min(most);
            let each = self.element.unwrap_or(tensor.dtype.bytes() as u64);
            touched.saturating_mul(each).div_ceil(regions).saturating_add(tiles)
        };
        let is_tile = |k: usize| match self.element {
            Some(_) => self.is_tile(k, depth, regions),
            None => self.in_place && self.is_tile(k, depth, regions),
        };
        if accesses.iter().any(|&k| alone(k) > share && !is_tile(k)) {
            return None;
        }
        // Where a program decides what is held, or a tile is where its tensor is, one that is all that its access touches in the region is
        // no second copy: it only has to stay.
        let whole: Vec<usize> = match self.element.is_some() || self.in_place {
            true => accesses.iter().copied().filter(|&k| is_tile(k)).collect(),
            false => vec![],
        };
        let parts: Vec<usize>;
        let parts = match whole.is_empty() {
            true => accesses,
            false => {
                parts = accesses.iter().copied().filter(|k| !whole.contains(k)).collect();
                &parts
            }
        };
        let mut traffic = Traffic::new();
        self.region(parts, depth, Lean::High, &mut traffic);
        let mean = self.bytes(&traffic).div_ceil(regions);
        if mean.saturating_add(tiles) > share {
            return None;
        }
        // A cache may hold less of one region than of the others. Where a program decides, the largest must fit.
        let parts = if self.element.is_some() { self.largest(parts, depth) } else { mean };
        let mut held = parts.saturating_add(tiles);
        if let Some(element) = self.element.filter(|_| held <= share && !whole.is_empty()) {
            // What the region asks for once need not stay in it.
            let again = |k: &&usize| {
                let access = &self.nest.accesses[**k];
                let same = |o: &&usize| {
                    self.nest.accesses[**o].tensor == access.tensor && self.place(**o, depth) == self.place(**k, depth)
                };
                depth < access.loops.len() || accesses.iter().filter(same).count() > 1
            };
            let kept = whole.iter().filter(again).map(|&k| self.nest.accesses[k].tile).collect();
            held = held.max(parts.saturating_add(self.held(&kept).saturating_mul(element)));
        }
        (held <= share).then_some(held)
    }

    /// Bytes that the largest of the regions touches, at most.
    fn largest(&self, accesses: &[usize], depth: usize) -> u64 {
        let mut traffic = Traffic::new();
        let mut places = BTreeSet::new();
        for &k in accesses {
            let access = &self.nest.accesses[k];
            if places.insert((access.tensor, access.store, self.place(k, depth))) {
                let (read, written) = traffic.of(access.tensor);
                let sum = if access.store { written } else { read };
                *sum = sum.saturating_add(self.nest.largest(self.program, self.kernel, k, depth));
            }
        }
        let most = |t: TensorId| self.program.tensor(t).dims.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64));
        let each = |(t, (read, written)): (TensorId, (u64, u64))| {
            let bytes = self.element.unwrap_or(self.program.tensor(t).dtype.bytes() as u64);
            read.min(most(t)).saturating_add(written.min(most(t))).saturating_mul(bytes)
        };
        traffic.iter().map(each).fold(0, u64::saturating_add)
    }

    /// Elements of tiles where some stay.
    fn held(&self, kept: &BTreeSet<ValueId>) -> u64 {
        match self.held {
            Some(held) => held(kept),
            None => Staying::new(&Held::new(self.kernel), self.kernel).elements(kept),
        }
    }

    /// Whether the tile of an access holds all that it touches in a region of this depth, of which there are so many.
    pub(crate) fn is_tile(&self, k: usize, depth: usize, regions: u64) -> bool {
        let access = &self.nest.accesses[k];
        if access.gathers {
            return false;
        }
        // Where a program decides what is held, of every region; of a cache on average.
        let (touched, regions) = match self.element {
            Some(_) => (self.nest.largest(self.program, self.kernel, k, depth), 1),
            None => (self.nest.touched(self.program, self.kernel, k, depth, Lean::High), regions),
        };
        let side = |a: Option<AxisId>| a.map_or(1, |a| self.kernel.axis(a).tile.min(self.kernel.axis(a).extent) as u64);
        let value = self.kernel.value(access.tile);
        let tile = side(value.rows).saturating_mul(side(value.cols.filter(|c| Some(*c) != value.rows)));
        touched <= tile.saturating_mul(regions)
    }

    fn bytes(&self, traffic: &Traffic) -> u64 {
        let bytes = traffic.iter().map(|(t, (read, written))| {
            let each = self.element.unwrap_or(self.program.tensor(t).dtype.bytes() as u64);
            read.saturating_add(written).saturating_mul(each)
        });
        bytes.fold(0, u64::saturating_add)
    }

    /// Adds what these accesses touch per region of this depth, summed over the regions. Accesses to the same
    /// elements count once. Leaning low, accesses to other elements of a tensor that is read may be to the same.
    pub fn region(&self, accesses: &[usize], depth: usize, lean: Lean, traffic: &mut Traffic) {
        if let &[k] = accesses {
            let access = &self.nest.accesses[k];
            let size = self.nest.touched(self.program, self.kernel, k, depth, lean);
            let dims = &self.program.tensor(access.tensor).dims;
            let regions = self.nest.iterations(self.kernel, k, depth);
            let size = size.min(dims.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64)).saturating_mul(regions));
            let (read, written) = traffic.of(access.tensor);
            let sum = if access.store { written } else { read };
            *sum = sum.saturating_add(size);
            return;
        }
        let mut places: Vec<((TensorId, bool, usize), u64)> = Vec::with_capacity(accesses.len());
        for &k in accesses {
            let access = &self.nest.accesses[k];
            let size = self.nest.touched(self.program, self.kernel, k, depth, lean);
            let place = (access.tensor, access.store, self.place(k, depth));
            match places.iter_mut().find(|p| p.0 == place) {
                Some((_, largest)) => *largest = (*largest).max(size),
                None => places.push((place, size)),
            }
        }
        let mut sums = Traffic::new();
        for ((tensor, store, _), size) in places {
            let (read, written) = sums.of(tensor);
            match (store, lean) {
                (true, _) => *written = written.saturating_add(size),
                (false, Lean::High) => *read = read.saturating_add(size),
                (false, Lean::Low) => *read = (*read).max(size),
            }
        }
        // No region touches more than the whole tensor.
        let regions = match accesses.first() {
            Some(&k) => self.nest.iterations(self.kernel, k, depth),
            None => self.nest.points(self.kernel, depth),
        };
        for (tensor, (read, written)) in sums.iter() {
            let size = self.program.tensor(tensor).dims.iter().fold(1u64, |n, &d| n.saturating_mul(d as u64));
            let most = size.saturating_mul(regions);
            let entry = traffic.of(tensor);
            entry.0 = entry.0.saturating_add(read.min(most));
            entry.1 = entry.1.saturating_add(written.min(most));
        }
    }

    /// Which elements an access touches, as a number: two accesses with the same one touch the same. A loop that runs
    /// inside the region is known by its range, one outside by its axis.
    pub(crate) fn place(&self, access: usize, depth: usize) -> usize {
        let text = || {
            let access = &self.nest.accesses[access];
            let outside: Vec<_> = access.loops[..depth.min(access.loops.len())].iter().map(|l| l.axis).collect();
            let coord = |c: &einloom_tile::Coord| self.coord_text(c, &outside);
            access.at.iter().map(coord).collect::<Vec<_>>().join(",")
        };
        self.nest.place(access, depth, text)
    }

    fn coord_text(&self, coord: &einloom_tile::Coord, outside: &[einloom_tile::AxisId]) -> String {
        let mut terms: Vec<String> = vec![coord.offset.to_string()];
        for (c, atom) in &coord.terms {
            terms.push(match atom {
                CoordAtom::Axis(a) if outside.contains(a) => format!("{c}*a{}", a.0),
                CoordAtom::Axis(a) => format!("{c}*{}", self.kernel.axis(*a).extent),
                CoordAtom::Floor(n, d) => format!("{c}*({})/{d}", self.coord_text(n, outside)),
                CoordAtom::Tile(v) => format!("{c}*v{}", v.0),
            });
        }
        terms.join("+")
    }
}
