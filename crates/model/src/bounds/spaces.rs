//! The loop nests in a tile kernel, found by what computes and reads its values.

use super::apart::Apart;
use super::between::between;
use super::flow::Flow;
use super::needed::under;
use super::{Beside, BoundFrom, Incoming, NestArray, ProjectiveNest};
use crate::count::elements;
use crate::nest::{Loop, Nest, grid_loops, side_set, sides};
use einloom_machine::Machine;
use einloom_tile::{
    Affine, AxisId, Coord, CoordAtom, Kernel, Op, Predicate, Program, Scalar, State, TensorId, TileMonoid, ValueId,
    Window, initial_windows, stream_range,
};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// Axes that steer others are counted position by position up to this many.
const COUNTED: usize = 1 << 20;
/// Parts of the longest sum, of which longer sums are looked at alone: a piece may be of many short ones that are complete.
const LONGER: [f64; 6] = [1.0 / 32.0, 1.0 / 16.0, 1.0 / 8.0, 1.0 / 4.0, 1.0 / 2.0, 3.0 / 4.0];
/// Values are followed back through this many operations.
const DEPTH: usize = 64;

/// The nests of a kernel.
pub(crate) struct Spaces {
    /// Contractions of what is loaded.
    single: Vec<ProjectiveNest>,
    /// Contractions one after the other.
    chains: Vec<Chain>,
    /// Whether programs decide what memories hold, so that rows are held whole: on abstract machines.
    placed: bool,
}

impl Spaces {
    pub fn new(program: &Program, kernel: &Kernel, nest: &Nest, machine: &Machine) -> Self {
        let (defs, summed) = definitions(kernel);
        let flow = Flow::new(kernel, &nest.depends);
        let finder = Finder { program, kernel, nest, machine, defs, summed, flow, counted: RefCell::default() };
        let mut out = Self { single: vec![], chains: vec![], placed: machine.element.is_some() };
        // Of what guards leave the projections are not known.
        if nest.data_dependent(kernel) || !nest.guarded.is_empty() {
            return out;
        }
        for def in finder.defs.values() {
            let Some(sum) = finder.contraction(def) else { continue };
            match finder.chain(&sum) {
                Some(chain) => out.chains.push(chain),
                None => out.single.extend(finder.single(&sum)),
            }
        }
        out
    }

    /// Bytes that must be read with this much fast memory per core or group of cores.
    pub fn incoming(&self, capacity: f64) -> Needed {
        let (mut most, mut once) = (Needed::default(), (0.0, BoundFrom::Once));
        let mut any = |b: f64, from: BoundFrom| {
            if b > most.any.0 {
                most.any = (b, from);
            }
        };
        self.single.iter().for_each(|n| any(n.bytes(|n| n.incoming(capacity)), BoundFrom::Contraction));
        let factor = |n: &ProjectiveNest| {
            if self.placed { n.bytes_where_all_meet(|n| n.incoming_beside_a_factor_or_sums(capacity)) } else { 0.0 }
        };
        let a_factor = self.single.iter().map(factor).fold(0.0, f64::max);
        let [mut a_side, mut with_sums, mut in_groups] = [0.0f64; 3];
        for Chain { rows, again, apart, beside } in &self.chains {
            let apart = apart.bytes(capacity);
            let least = |found: f64, from| if found <= apart { (found, from) } else { (apart, BoundFrom::Apart) };
            let again = again.as_ref().map_or(0.0, |n| n.bytes(|n| n.incoming_beside_all_that_rests(capacity)));
            let (found, from) = least(again, BoundFrom::Parts);
            any(found, from);
            let (found, from) = least(rows.bytes(|n| n.incoming(capacity)), BoundFrom::Rows);
            if found > once.0 {
                once = (found, from);
            }
            if !self.placed {
                continue;
            }
            let some =
                |found: &dyn Fn(&ProjectiveNest) -> Option<Incoming>| rows.bytes_where_all_meet(found).min(apart);
            with_sums = with_sums.max(some(&|n| n.incoming_with_sums(capacity, beside)));
            let groups = some(&|n| n.incoming_in_groups(capacity, beside));
            match some(&|n| n.incoming_beside_a_side(capacity, beside)) {
                // Of two kinds of orders that of which the bound is less holds for both.
                side if side > 0.0 && (groups == 0.0 || side < groups) => a_side = a_side.max(side),
                _ => in_groups = in_groups.max(groups),
            }
        }
        most.some = vec![
            once,
            (with_sums, BoundFrom::Sums),
            (a_side, BoundFrom::Side),
            (in_groups, BoundFrom::Groups),
            (a_factor, BoundFrom::Factor),
        ];
        most
    }

    /// The same for fewer orders, where more of what whole numbers of pieces cost is counted.
    pub fn incoming_finer(&self, capacity: f64) -> Vec<(f64, BoundFrom)> {
        if !self.placed {
            return vec![];
        }
        let tiles = |n: &ProjectiveNest| n.bytes_where_all_meet(|n| n.incoming_in_tiles(capacity));
        let in_tiles = self.single.iter().map(tiles).fold(0.0, f64::max);
        let results = |c: &Chain| c.rows.bytes_where_all_meet(|n| n.incoming_in_results(capacity, &c.beside));
        let in_results = self.chains.iter().map(results).fold(0.0, f64::max);
        vec![(in_results, BoundFrom::Results), (in_tiles, BoundFrom::Tiles)]
    }
}

/// What must be read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Needed {
    /// In any order, and what says so.
    pub any: (f64, BoundFrom),
    /// In some orders, 0 where nothing more is known of these.
    pub some: Vec<(f64, BoundFrom)>,
}

/// A contraction of what others made.
struct Chain {
    /// Whole rows.
    rows: ProjectiveNest,
    /// Points of the last contraction, for each of which there are whole rows of what its weight is made of.
    again: Option<ProjectiveNest>,
    /// The contractions by themselves.
    apart: Apart,
    /// What the last stream holds of each row beside its sums.
    beside: Beside,
}

/// Where a value comes from.
struct Def<'a> {
    op: &'a Op,
    loops: Vec<Loop>,
}

/// Where values come from, and the states that a stream only adds products to, with the product that is added last.
fn definitions(kernel: &Kernel) -> (BTreeMap<ValueId, Def<'_>>, BTreeMap<ValueId, ValueId>) {
    fn go<'a>(
        ops: &'a [Op],
        loops: &mut Vec<Loop>,
        out: &mut BTreeMap<ValueId, Def<'a>>,
        sums: &mut BTreeMap<ValueId, ValueId>,
    ) {
        for op in ops {
            match op {
                Op::Load { dst, .. }
                | Op::Map { dst, .. }
                | Op::Mma { dst, .. }
                | Op::Reduce { dst, .. }
                | Op::Pick { dst, .. } => {
                    out.insert(*dst, Def { op, loops: loops.clone() });
                }
                Op::Stream { axis, within, guards, states, body } => {
                    let adds = |op: &Op, s: &State| matches!(op, Op::Mma { dst, acc, .. } if *dst == s.next && *acc == Some(s.value));
                    let summed = states.iter().filter(|s| body.iter().any(|op| adds(op, s)));
                    sums.extend(summed.map(|s| (s.value, s.next)));
                    loops.push(Loop::stream(*axis, within, guards));
                    go(body, loops, out, sums);
                    loops.pop();
                }
                Op::Store { .. } | Op::SkipUnless { .. } => {}
            }
        }
    }
    let (mut out, mut sums) = (BTreeMap::new(), BTreeMap::new());
    go(&kernel.body, &mut grid_loops(kernel), &mut out, &mut sums);
    (out, sums)
}

/// A sum of products, or of whatever else.
struct Contraction<'a> {
    factors: Vec<ValueId>,
    /// What is summed into.
    result: ValueId,
    /// The axes of its points.
    points: BTreeSet<AxisId>,
    loops: &'a [Loop],
}

/// An index of a nest: an axis, or what is left of it by a division, or what the division drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Index {
    Whole(AxisId),
    Quotient(AxisId),
    Remainder(AxisId),
}

/// What a value is made of: loaded arrays, each with the indices of the points that move it, and the others' positions.
#[derive(Clone)]
struct Leaf {
    tensor: TensorId,
    over: BTreeSet<Index>,
    others: f64,
}

struct Finder<'a> {
    program: &'a Program,
    kernel: &'a Kernel,
    nest: &'a Nest,
    machine: &'a Machine,
    defs: BTreeMap<ValueId, Def<'a>>,
    /// Sums over a stream, by their states.
    summed: BTreeMap<ValueId, ValueId>,
    /// Where sums go.
    flow: Flow<'a>,
    /// Positions of axes under conditions, once counted.
    counted: RefCell<BTreeMap<BTreeSet<AxisId>, f64>>,
}

impl<'a> Finder<'a> {
    fn depends(&self, v: ValueId) -> &BTreeSet<AxisId> {
        &self.nest.depends[v.at()]
    }

    /// What computes a value; of a sum over a stream the last product.
    fn def(&self, v: ValueId) -> Option<&Def<'a>> {
        self.defs.get(self.summed.get(&v).unwrap_or(&v))
    }

    fn contraction<'d>(&'d self, def: &'d Def<'a>) -> Option<Contraction<'d>> {
        let (factors, result) = match def.op {
            Op::Mma { dst, a, b, .. } => (vec![*a, *b], *dst),
            Op::Reduce { dst, src, monoid: TileMonoid::Sum, .. } => (vec![*src], *dst),
            _ => return None,
        };
        let mut points: BTreeSet<AxisId> = side_set(self.kernel, result);
        factors.iter().for_each(|f| points.extend(self.depends(*f)));
        Some(Contraction { factors, result, points, loops: &def.loops })
    }

    /// The nest of a contraction whose factors are loaded, as they are or changed element by element.
    fn single(&self, c: &Contraction<'_>) -> Option<ProjectiveNest> {
        let mut leaves = vec![];
        for &f in &c.factors {
            leaves.extend(self.leaves(f, &c.points, 0).0);
        }
        // A sum that is handed on within the kernel is held all the same while it is incomplete.
        self.nest_of(c, &c.points, leaves, &[(c.result, 1.0)], &[])
    }

    /// The chain of which this contraction is the last, with the contractions of which it consists.
    fn chain(&self, c: &Contraction<'_>) -> Option<Chain> {
        let made = c.factors.iter().copied().find(|&f| self.made_by_sums(f, 0))?;
        let points = self.depends(made).clone();
        let (mut leaves, sums) = self.leaves(made, &points, 0);
        let first: BTreeSet<TensorId> = leaves.iter().map(|l| l.tensor).collect();
        let weights = leaves.clone();
        // What sums make of the other factor may be kept and used again: nothing is known of it.
        let others: Vec<ValueId> =
            c.factors.iter().copied().filter(|&f| f != made && !self.made_by_sums(f, 0)).collect();
        for &f in &others {
            leaves.extend(self.leaves(f, &points, 0).0);
        }
        let last = leaves.iter().map(|l| l.tensor).filter(|t| !first.contains(t));
        let last: BTreeSet<String> = last.map(|t| self.program.tensor(t).name.clone()).collect();
        // Axes of the result that the points lack are whole.
        let own = self.flow.apart(c.result);
        let rest: f64 = own.difference(&points).map(|&a| self.extent(a)).product();
        let rows = self.nest_of(c, &points, leaves, &[(c.result, rest)], &[])?;
        let mut leaves = weights;
        for &f in &others {
            leaves.extend(self.leaves(f, &c.points, 0).0);
        }
        let again = self.nest_of(c, &c.points, leaves, &[(c.result, 1.0)], &[]);
        let mut apart = Apart { weights: self.kernel.value(made).name.clone(), ..Apart::default() };
        for &sum in &sums {
            let inner = self.contraction(self.defs.get(&sum)?)?;
            apart.first.extend(self.single(&inner));
        }
        if c.factors.len() > 1 {
            let mut leaves = vec![];
            for &f in &others {
                leaves.extend(self.leaves(f, &c.points, 0).0);
            }
            apart.last = self.nest_of(c, &c.points, leaves, &[(c.result, 1.0)], &[made]);
        }
        apart.stored = self.stored(made, &sums);
        let beside = self.beside(c.result, &own, &points, &sums, last).unwrap_or_default();
        Some(Chain { rows, again, apart, beside })
    }

    /// Bytes that weights are held in, and that move if each goes out once, as narrow as what they are made of. Nothing where the kernel stores as much already.
    fn stored(&self, made: ValueId, sums: &[ValueId]) -> [f64; 2] {
        let stores = self.nest.accesses.iter().any(|a| a.store && (a.tile == made || sums.contains(&a.tile)));
        if stores {
            return [0.0; 2];
        }
        let positions = |v: &ValueId| -> f64 { self.depends(*v).iter().map(|&a| self.extent(a)).product() };
        let all = sums.iter().chain([&made]).map(positions).fold(f64::INFINITY, f64::min);
        let values = || sums.iter().chain([&made]).map(|&v| self.kernel.value(v).dtype);
        let held = values().map(|d| self.machine.held_bytes(d) as f64).fold(f64::INFINITY, f64::min);
        let moved = values().map(|d| d.bytes() as f64).fold(f64::INFINITY, f64::min);
        [all * held, all * moved]
    }

    /// What the stream that computes `result` carries beside it, states over axes of the results, but not over all that the
    /// result's own sides are; and what it holds between `sums` and `result`, where it computes these too.
    fn beside(
        &self,
        result: ValueId,
        own: &BTreeSet<AxisId>,
        points: &BTreeSet<AxisId>,
        sums: &[ValueId],
        last: BTreeSet<String>,
    ) -> Option<Beside> {
        let (states, body) = stream_of(&self.kernel.body, result)?;
        let beside = states.iter().map(|s| s.value).filter(|&v| {
            let over = sides(self.kernel, v);
            over.iter().all(|a| own.contains(a)) && over.len() < sides(self.kernel, result).len()
        });
        let carried = beside.map(|v| self.machine.held_bytes(self.kernel.value(v).dtype) as f64).sum();
        let rows: BTreeSet<AxisId> = own.intersection(points).copied().collect();
        let columns: BTreeSet<AxisId> = points.difference(own).copied().collect();
        let numbers = between(self.kernel, (states, body), sums, result, [&rows, &columns]).unwrap_or(0);
        let number = self.machine.element.map_or(1.0, |e| e.0 as f64);
        Some(Beside { carried, numbers, number, last })
    }

    /// Whether a value depends on contractions at every one of its points.
    fn made_by_sums(&self, v: ValueId, depth: usize) -> bool {
        let Some(def) = self.def(v).filter(|_| depth < DEPTH) else { return false };
        match def.op {
            Op::Mma { .. } => true,
            Op::Map { dst, expr } => {
                let own = self.depends(*dst);
                let all = |x: &ValueId| self.depends(*x).is_superset(own);
                tiles_of(expr).into_iter().filter(all).any(|x| self.made_by_sums(x, depth + 1))
            }
            _ => false,
        }
    }

    /// The arrays that a value is made of. Values that lack one of its points' axes may be kept and used again; they
    /// are left out, which only lowers the bound. Also the contractions on the way.
    fn leaves(&self, v: ValueId, points: &BTreeSet<AxisId>, depth: usize) -> (Vec<Leaf>, Vec<ValueId>) {
        let Some(def) = self.def(v).filter(|_| depth < DEPTH) else { return (vec![], vec![]) };
        let (mut leaves, mut sums) = (vec![], vec![]);
        let mut descend = |x: ValueId| {
            let (l, s) = self.leaves(x, points, depth + 1);
            leaves.extend(l);
            sums.extend(s);
        };
        match def.op {
            Op::Load { tensor, at, .. } => {
                if let Some(leaf) = self.leaf(*tensor, at, points) {
                    leaves.push(leaf);
                }
            }
            Op::Map { dst, expr } => {
                let own = self.depends(*dst);
                // Factors of one product may each lack axes: they are loaded, or lead to nothing.
                for x in tiles_of(expr) {
                    let loaded = matches!(self.defs.get(&x).map(|d| d.op), Some(Op::Load { .. }));
                    if loaded || self.depends(x).is_superset(own) {
                        descend(x);
                    }
                }
            }
            Op::Mma { a, b, .. } => {
                // What others' sums make in turn may be kept, or be outside: nothing is known of it.
                [*a, *b].into_iter().filter(|&x| !self.made_by_sums(x, 0)).for_each(&mut descend);
                sums.push(self.summed.get(&v).copied().unwrap_or(v));
            }
            _ => {}
        }
        (leaves, sums)
    }

    /// An array read at these coordinates; `None` if they are no projection, or an axis is longer than what it reads, so that nothing is known
    /// of it.
    fn leaf(&self, tensor: TensorId, at: &[Coord], points: &BTreeSet<AxisId>) -> Option<Leaf> {
        let mut leaf = Leaf { tensor, over: BTreeSet::new(), others: 1.0 };
        for (coord, &extent) in at.iter().zip(&self.program.tensor(tensor).dims) {
            let (axis, divisor) = match coord.terms.as_slice() {
                [] => continue,
                [(_, CoordAtom::Axis(a))] => (*a, None),
                [(_, CoordAtom::Floor(inner, d))] => match inner.terms.as_slice() {
                    [(1, CoordAtom::Axis(a))] if inner.offset == 0 => (*a, Some(*d)),
                    _ => return None,
                },
                _ => return None,
            };
            // Conditions keep some of its positions from being read.
            if (self.extent(axis) / divisor.unwrap_or(1) as f64).ceil() > extent as f64 {
                return None;
            }
            match (points.contains(&axis), divisor) {
                (false, None) => leaf.others *= self.extent(axis),
                (false, Some(d)) => leaf.others *= (self.extent(axis) / d as f64).ceil(),
                (true, None) => drop(leaf.over.insert(Index::Whole(axis))),
                (true, Some(_)) => drop(leaf.over.insert(Index::Quotient(axis))),
            }
        }
        Some(leaf)
    }

    fn extent(&self, axis: AxisId) -> f64 {
        self.kernel.axis(axis).extent as f64
    }

    /// The divisor of each axis that is divided: all reads must agree on it.
    fn divisors(&self) -> Option<BTreeMap<AxisId, u64>> {
        let mut out = BTreeMap::new();
        for access in &self.nest.accesses {
            for (_, atom) in access.at.iter().flat_map(|c| &c.terms) {
                if let CoordAtom::Floor(inner, d) = atom
                    && let [(_, CoordAtom::Axis(a))] = inner.terms.as_slice()
                {
                    let d = u64::try_from(*d).ok()?;
                    if *out.entry(*a).or_insert(d) != d {
                        return None;
                    }
                }
            }
        }
        Some(out)
    }

    fn nest_of(
        &self,
        c: &Contraction<'_>,
        points: &BTreeSet<AxisId>,
        leaves: Vec<Leaf>,
        sums: &[(ValueId, f64)],
        made: &[ValueId],
    ) -> Option<ProjectiveNest> {
        let divisors = self.divisors()?;
        let mut extents: Vec<u64> = vec![];
        let mut places: BTreeMap<Index, usize> = BTreeMap::new();
        for &axis in points {
            let extent = self.kernel.axis(axis).extent as u64;
            let parts = match divisors.get(&axis) {
                Some(&d) if d > 0 => {
                    vec![(Index::Quotient(axis), extent.div_ceil(d)), (Index::Remainder(axis), d.min(extent))]
                }
                _ => vec![(Index::Whole(axis), extent)],
            };
            for (index, size) in parts {
                places.insert(index, extents.len());
                extents.push(size);
            }
        }
        let place = |index: &Index| -> Vec<usize> {
            match (index, places.get(index)) {
                (_, Some(&k)) => vec![k],
                (Index::Whole(a), None) => {
                    [Index::Quotient(*a), Index::Remainder(*a)].iter().filter_map(|i| places.get(i).copied()).collect()
                }
                _ => vec![],
            }
        };
        let mut arrays: Vec<NestArray> = vec![];
        for leaf in leaves {
            let tensor = self.program.tensor(leaf.tensor);
            let over: BTreeSet<usize> = leaf.over.iter().flat_map(place).collect();
            // The same array read twice at the same place is held once.
            if arrays.iter().any(|a| a.name == tensor.name && a.over == over) {
                continue;
            }
            let [bytes, read_bytes] =
                [self.machine.held_bytes(tensor.dtype), tensor.dtype.bytes() as u64].map(|b| b as f64 * leaf.others);
            let again_bytes = read_bytes;
            arrays.push(NestArray { name: tensor.name.clone(), over, bytes, read_bytes, again_bytes, sum: false });
        }
        // Places of one tensor may overlap: together they hold at least the mean of what they hold each.
        for k in 0..arrays.len() {
            let places = arrays.iter().filter(|a| a.name == arrays[k].name).count() as f64;
            arrays[k].bytes /= places;
            arrays[k].read_bytes /= places;
            arrays[k].again_bytes /= places;
        }
        let of_axes = |axes: &BTreeSet<AxisId>| -> BTreeSet<usize> {
            axes.iter().filter(|a| points.contains(a)).flat_map(|a| place(&Index::Whole(*a))).collect()
        };
        for &v in made {
            let value = self.kernel.value(v);
            let bytes = self.machine.held_bytes(value.dtype) as f64;
            let over = of_axes(self.depends(v));
            // It went out once, however often it comes in.
            let again_bytes = value.dtype.bytes() as f64;
            arrays.push(NestArray { name: value.name.clone(), over, bytes, read_bytes: 0.0, again_bytes, sum: false });
        }
        let stores = self.nest.accesses.iter().filter(|a| a.store).map(|a| self.program.tensor(a.tensor).dtype);
        let narrowest = stores.min_by_key(|d| d.bytes());
        for &(v, rest) in sums {
            let value = self.kernel.value(v);
            let own = self.flow.apart(v);
            // It may be held, and go out and come in, as narrow as what is stored.
            let stored = narrowest.unwrap_or(value.dtype);
            let bytes = self.machine.held_bytes(stored) as f64 * rest;
            let (over, again_bytes) = (of_axes(&own), 2.0 * stored.bytes() as f64 * rest);
            arrays.push(NestArray { name: value.name.clone(), over, bytes, read_bytes: 0.0, again_bytes, sum: true });
        }
        let own: Vec<BTreeSet<AxisId>> = sums.iter().map(|s| self.flow.apart(s.0)).collect();
        let summed = points.iter().copied().filter(|a| own.iter().all(|o| !o.contains(a))).collect();
        let Points { count: points, runs } = self.points(c, points, &summed)?;
        let (mut shortest, mut longer) = (BTreeMap::new(), vec![]);
        for (axis, run) in runs {
            match (run, place(&Index::Whole(axis)).as_slice()) {
                (Some(run), &[k]) => {
                    extents[k] = run.most;
                    shortest.insert(k, run.fewest);
                    longer.extend(run.longer.into_iter().map(|(points, fewest)| (points, [(k, fewest)].into())));
                }
                (_, of) => shortest.extend(of.iter().map(|&k| (k, 1))),
            }
        }
        Some(ProjectiveNest { extents, points, shortest, longer, arrays })
    }

    /// Number of points. Conditions of streams, and those under which sums need their terms, count exactly, as if tiles were single positions.
    fn points(&self, c: &Contraction<'_>, points: &BTreeSet<AxisId>, summed: &BTreeSet<AxisId>) -> Option<Points> {
        let loops = c.loops.iter().filter(|l| points.contains(&l.axis)).cloned().collect();
        let loops = under(loops, &self.nest.needed.terms(&c.factors, c.result));
        let mut steering: BTreeSet<AxisId> = BTreeSet::new();
        let mut conditional = BTreeSet::new();
        for l in &loops {
            let terms = l.conditions().iter().flat_map(|e| &e.terms);
            for &(_, a) in terms {
                conditional.extend([a, l.axis]);
                if a != l.axis {
                    steering.insert(a);
                }
            }
        }
        if !steering.is_subset(points) {
            return None;
        }
        let size = steering.iter().map(|a| self.kernel.axis(*a).extent).try_fold(1usize, usize::checked_mul);
        size.filter(|&n| n <= COUNTED)?;
        let free: f64 = points.difference(&conditional).map(|a| self.extent(*a)).product();
        if conditional.is_empty() {
            return Some(Points { count: free, runs: BTreeMap::new() });
        }
        let runs: Vec<AxisId> = conditional.intersection(summed).copied().collect();
        if let &[run] = runs.as_slice()
            && let Some((count, found)) = self.runs(&loops, run, &conditional, free)
        {
            return Some(Points { count, runs: [(run, Some(found))].into() });
        }
        let runs = runs.into_iter().map(|a| (a, None)).collect();
        if let Some(counted) = self.counted.borrow().get(&conditional) {
            return Some(Points { count: free * counted, runs });
        }
        let mut single = self.kernel.clone();
        for a in &conditional {
            single.axes[a.at()].tile = 1;
        }
        let bound: Vec<Loop> = loops.into_iter().filter(|l| conditional.contains(&l.axis)).collect();
        let counted = elements(&single, &bound, &conditional) as f64;
        self.counted.borrow_mut().insert(conditional, counted);
        Some(Points { count: free * counted, runs })
    }

    /// What conditions leave of an axis that is summed over, and the number of points, if there are so many for each position of what is under no
    /// condition. `None` where conditions leave others of its sums out.
    fn runs(&self, loops: &[Loop], run: AxisId, conditional: &BTreeSet<AxisId>, free: f64) -> Option<(f64, Runs)> {
        let all: Vec<Affine> = loops.iter().flat_map(Loop::conditions).cloned().collect();
        let others: Vec<AxisId> = conditional.iter().copied().filter(|&a| a != run).collect();
        if all.iter().any(|f| f.terms.iter().all(|t| t.1 != run)) {
            return None;
        }
        let within = Predicate { all };
        let extent = |a: AxisId| self.kernel.axis(a).extent;
        let mut windows = initial_windows(self.kernel);
        let mut lengths: BTreeMap<u64, u64> = BTreeMap::new();
        for place in 0..others.iter().map(|&a| extent(a)).product() {
            let mut rest: usize = place;
            for &axis in &others {
                windows[axis.at()] = Window { base: rest % extent(axis), len: 1 };
                rest /= extent(axis);
            }
            let (low, high) = stream_range(extent(run), run, &within, &windows);
            *lengths.entry((high - low) as u64).or_default() += 1;
        }
        lengths.remove(&0);
        let (fewest, most) = (*lengths.first_key_value()?.0, *lengths.last_key_value()?.0);
        let points =
            |from: u64| free * lengths.range(from..).map(|(&length, &times)| length as f64 * times as f64).sum::<f64>();
        let mut longer: Vec<(f64, u64)> = LONGER
            .iter()
            .filter_map(|part| lengths.range((part * most as f64).ceil() as u64..).next())
            .filter(|(length, _)| **length > fewest)
            .map(|(&length, _)| (points(length), length))
            .collect();
        longer.dedup();
        Some((points(fewest), Runs { fewest, most, longer }))
    }
}

/// Points of a nest.
struct Points {
    count: f64,
    /// Axes that are summed over and that conditions cut; nothing where no more is known of how.
    runs: BTreeMap<AxisId, Option<Runs>>,
}

/// How many positions sums have of an axis.
struct Runs {
    fewest: u64,
    most: u64,
    /// The points of those sums that have at least so many.
    longer: Vec<(f64, u64)>,
}

/// The stream that computes a contraction in its body.
fn stream_of(ops: &[Op], result: ValueId) -> Option<(&[State], &[Op])> {
    ops.iter().find_map(|op| match op {
        Op::Stream { states, body, .. } => {
            match body.iter().any(|o| matches!(o, Op::Mma { dst, .. } if *dst == result)) {
                true => Some((&states[..], &body[..])),
                false => stream_of(body, result),
            }
        }
        _ => None,
    })
}

/// The tiles that an expression reads.
fn tiles_of(expr: &Scalar) -> Vec<ValueId> {
    match expr {
        Scalar::Tile(v) => vec![*v],
        Scalar::Const(_) | Scalar::Argument(_) | Scalar::Position(_) | Scalar::Within(_) => vec![],
        Scalar::Round(_, x) | Scalar::Unary(_, x) => tiles_of(x),
        Scalar::Binary(_, x, y) => [x, y].into_iter().flat_map(|e| tiles_of(e)).collect(),
        Scalar::Select(c, x, y) => [c, x, y].into_iter().flat_map(|e| tiles_of(e)).collect(),
    }
}
