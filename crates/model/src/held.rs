//! How many elements of tiles must be in a memory at once, if a program places them as tightly as it can.

use crate::by_rows::{ByRows, RowsByKind, TailByRows};
use crate::gpu::registers::{Loop, Moments, MomentsByKind};
use crate::gpu::uses::{fused, fused_but, reads};
use crate::kinds::Kinds;
use crate::nest::sides;
use crate::on_demand::OnDemand;
use einloom_tile::{AxisId, Kernel, Op, ValueId};

mod staying;

pub(crate) use staying::Staying;

/// The most elements of tiles that are alive at once at one point of the grid. Accumulators are updated in place, and so
/// are tiles by maps that are their last reader; a map that is read once is computed where it is read. A stream's body is
/// computed row by row where that holds less, what follows the last one as well, and factors of products pass by its rows element by element where that does: see the
/// module `by_rows`. Clipped tiles count as full ones.
///
/// ```
/// use einloom_cascade::DType::F32;
/// // 64 x 128 sums and 64 x 32 of one factor; of the other one element at a time.
/// let program = einloom_tile::by_hand::matmul([256, 256, 256], [64, 128, 32], F32).expect("well-formed");
/// assert_eq!(einloom_model::held_elements(&program.kernels[0]), 64 * 128 + 64 * 32 + 1);
/// ```
pub fn held_elements(kernel: &Kernel) -> u64 {
    Held::new(kernel).elements(kernel)
}

/// What a kernel holds, found once for all sizes of its tiles.
#[derive(Clone, Debug)]
pub struct Held {
    /// For each way to go along what is loaded where it is read: see the module `on_demand`.
    ways: Vec<Way>,
    /// The same ways where nothing stays, which is asked of every size of tiles.
    by_kind: Vec<WayByKind>,
    /// By tile.
    sides: Vec<Vec<AxisId>>,
    kinds: Kinds,
}

/// One way to go through a kernel.
#[derive(Clone, Debug)]
struct Way {
    /// Elements that are there besides.
    beside: f64,
    /// Outside the innermost streams, before the end of the last one.
    moments: Moments,
    /// After it, operation by operation and by rows.
    tail: (Moments, Vec<TailByRows>),
    /// In each innermost stream, operation by operation and by rows.
    streams: Vec<(Moments, Vec<ByRows>)>,
}

/// See [`Way`].
#[derive(Clone, Debug)]
struct WayByKind {
    beside: f64,
    moments: MomentsByKind,
    tail: (MomentsByKind, Vec<RowsByKind>),
    streams: Vec<(MomentsByKind, Vec<RowsByKind>)>,
}

impl Held {
    /// Of this kernel, and of all that differ from it in extents and tiles alone.
    pub fn new(kernel: &Kernel) -> Self {
        // Other operations still read their operands while they write.
        let replaces = |op: &Op, v: ValueId| match op {
            Op::Map { .. } => true,
            Op::Mma { acc, .. } | Op::Reduce { acc, .. } => acc.is_some_and(|a| a == v),
            other => reads(other).is_empty(),
        };
        let all = (0..kernel.values.len() as u32).map(ValueId);
        let fused = fused(kernel);
        let way = |on_demand: OnDemand| {
            let OnDemand { stays, passes, beside } = on_demand;
            let fused = fused_but(kernel, &stays);
            let (moments, loops, tail) = Moments::by_loop(kernel, &fused, &replaces);
            let mut by_rows = TailByRows::all(kernel, &tail, &fused);
            // What passes has the axis outside.
            by_rows.retain(|r| passes.iter().all(|v| sides(kernel, *v).contains(&r.axis)));
            let one = |l: Loop<'_>| {
                let rows = ByRows::all(kernel, &l, &fused, &replaces);
                (l.moments.distinct(), rows)
            };
            Way {
                beside: beside as f64,
                moments: moments.distinct(),
                tail: (tail.moments.distinct(), by_rows),
                streams: loops.into_iter().map(one).collect(),
            }
        };
        let ways: Vec<Way> = OnDemand::all(kernel, &fused).into_iter().map(way).collect();
        let sides: Vec<Vec<AxisId>> = all.map(|v| sides(kernel, v).into_iter().collect()).collect();
        let kinds = Kinds::new(&sides);
        Self { by_kind: ways.iter().map(|way| way.by_kind(&kinds)).collect(), ways, sides, kinds }
    }

    /// [`held_elements`] of a kernel with these tiles.
    pub fn elements(&self, kernel: &Kernel) -> u64 {
        let sizes = elements_of(kernel, &self.kinds.sides);
        let of = |way: &WayByKind| {
            let mut most = 0.0f64;
            way.all_places(kernel, &sizes, &mut |ways| {
                most = most.max(ways.fold(f64::INFINITY, f64::min));
                true
            });
            most
        };
        self.by_kind.iter().map(of).fold(f64::INFINITY, f64::min) as u64
    }

    /// Whether [`elements`](Self::elements) is no more than a capacity, which takes less to tell.
    pub fn fits(&self, kernel: &Kernel, capacity: u64) -> bool {
        let sizes = elements_of(kernel, &self.kinds.sides);
        self.by_kind.iter().any(|way| {
            way.all_places(kernel, &sizes, &mut |ways| {
                Iterator::any(&mut &mut *ways, |elements| elements as u64 <= capacity)
            })
        })
    }
}

/// The elements of tiles with these sides.
fn elements_of(kernel: &Kernel, sides: &[Vec<AxisId>]) -> Vec<f64> {
    sides.iter().map(|s| s.iter().map(|&a| side(kernel, a)).product()).collect()
}

impl WayByKind {
    /// Whether something is true of all places of the kernel: it is told the elements of each, for every way to go through it.
    fn all_places(
        &self,
        kernel: &Kernel,
        sizes: &[f64],
        holds: &mut dyn FnMut(&mut dyn Iterator<Item = f64>) -> bool,
    ) -> bool {
        let by_rows = |rows: &RowsByKind| rows.most(sizes, |axis| side(kernel, axis));
        let (tail, rows) = &self.tail;
        let whole = |moments: &MomentsByKind| moments.most(sizes);
        holds(&mut std::iter::once_with(|| whole(&self.moments) + self.beside))
            && holds(
                &mut std::iter::once_with(|| whole(tail))
                    .chain(rows.iter().map(by_rows))
                    .map(|most| most + self.beside),
            )
            && self.streams.iter().all(|(moments, rows)| {
                holds(&mut std::iter::once_with(|| whole(moments)).chain(rows.iter().map(by_rows)))
            })
    }
}

impl Way {
    fn by_kind(&self, kinds: &Kinds) -> WayByKind {
        let stream = |(moments, rows): &(Moments, Vec<ByRows>)| {
            (moments.by_kind(kinds), rows.iter().map(|r| r.by_kind(kinds)).collect())
        };
        WayByKind {
            beside: self.beside,
            moments: self.moments.by_kind(kinds),
            tail: (self.tail.0.by_kind(kinds), self.tail.1.iter().map(|r| r.by_kind(kinds)).collect()),
            streams: self.streams.iter().map(stream).collect(),
        }
    }
}

/// Positions of a tile along an axis.
fn side(kernel: &Kernel, a: AxisId) -> f64 {
    kernel.axis(a).tile.min(kernel.axis(a).extent) as f64
}
