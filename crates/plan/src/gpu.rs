//! Tiles for GPUs: those that the model predicts to be fastest among those that fit a core.
//!
//! The rows that a matrix unit's groups own and the ways to cut reduced indices are tried one by one; under each of
//! them the tiles across and along streams are found by coordinate descent.

use crate::build::{Tried, Workshop};
use crate::cone::Cone;
use crate::cuts::{Roles, Style, contracts};
use crate::lost::Cost;
use crate::problem::Problem;
use crate::template::{Shape, Templates, kind, shape};
use crate::tiling::Tiling;
use einloom_cascade::IndexId;
use einloom_machine::MatrixUnit;
use einloom_model::{Below, OnGpu, on_gpu_below};
use einloom_tile::AxisKind;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// The model tells no smaller differences apart: within them the fewest streams and the roundest tiles are taken.
const EQUAL: f64 = 1.03;
/// Tilings of a kernel whose times are worked out to the end, because the report tells them.
pub(crate) const KEPT: usize = 6;
/// Sweeps over both coordinates of a descent, at most.
const ROUNDS: usize = 3;
/// Rows of a tile with products, at most: with two such tiles on one axis more would leave no registers.
const MOST_ROWS: usize = 256;

/// Tile sizes to try.
struct Space {
    rows: Vec<usize>,
    cols: Vec<usize>,
    streams: Vec<usize>,
    /// Up to which extents reduced indices are taken whole, and those of them that are stored.
    whole: Vec<[usize; 2]>,
    /// Rows and columns are rounded up to multiples of these.
    steps: [usize; 2],
}

/// A tiling that fits.
struct Found {
    seconds: f64,
    shape: Shape,
    tiling: Tiling,
    gpu: OnGpu,
}

/// The cuts wished for: each index with its kind and its tile.
type Wished = (bool, Vec<(IndexId, u8, usize)>);

/// What is known of a tiling.
enum Outcome {
    Fits(Box<Found>),
    /// It fits, and takes at least this long.
    Slower(f64),
    Misfit,
}

/// What has been tried for one kernel on one unit.
struct Trials<'t> {
    cone: &'t Cone,
    roles: &'t Roles,
    name: &'t str,
    unit: Option<&'t str>,
    /// Seconds to start a kernel.
    launch: f64,
    templates: &'t mut Templates,
    /// Those of them that were asked for.
    shapes: BTreeSet<Shape>,
    /// By the cuts wished for.
    found: BTreeMap<Wished, Outcome>,
    /// What styles came to: descents meet in the same ones.
    met: FxHashMap<Style, Option<f64>>,
    /// The times of the best so many, ascending.
    leaders: Vec<f64>,
    /// Nobody needs a kernel that takes as long.
    limit: f64,
    misfit: Option<String>,
}

impl Workshop<'_> {
    /// The best kernels that fit and take less than `limit`, best first, `None` if none
    /// fits; and why it does not run on each unit that was tried before.
    pub(crate) fn tried_on_gpu(
        &mut self,
        cone: &Cone,
        roles: &Roles,
        name: &str,
        limit: f64,
    ) -> (Option<Vec<Tried>>, Vec<String>) {
        self.with_templates(cone, |shop, templates| shop.tried_with(templates, cone, roles, name, limit))
    }

    fn tried_with(
        &mut self,
        templates: &mut Templates,
        cone: &Cone,
        roles: &Roles,
        name: &str,
        limit: f64,
    ) -> (Option<Vec<Tried>>, Vec<String>) {
        let mut misfits = vec![];
        let wanted = |u: &&MatrixUnit| self.options.matrix.as_ref().is_none_or(|name| *name == u.name);
        let units: Vec<&MatrixUnit> = match contracts(self.p, self.x, cone) {
            true => self.machine.matrix.iter().filter(wanted).collect(),
            false => vec![],
        };
        let spaces = units.iter().map(|u| (Some(u.name.as_str()), Space::of_unit(u)));
        let spaces: Vec<_> = if units.is_empty() { vec![(None, Space::of_lanes())] } else { spaces.collect() };
        for (unit, space) in spaces {
            let templates = &mut *templates;
            let (shapes, found, met) = (BTreeSet::new(), BTreeMap::new(), FxHashMap::default());
            let launch = self.machine.overhead.kernel.0;
            let (leaders, misfit) = (vec![], None);
            let mut trials =
                Trials { cone, roles, name, unit, launch, templates, shapes, found, met, leaders, limit, misfit };
            self.search_space(&space, &mut trials);
            if unit.is_some() && trials.multiplies_nothing() {
                self.search_space(&Space::of_lanes(), &mut trials);
            }
            if trials.found.values().any(|o| !matches!(o, Outcome::Misfit)) {
                return (Some(trials.best(self.p, KEPT)), misfits);
            }
            misfits.extend(trials.misfit);
        }
        (None, misfits)
    }

    fn search_space(&mut self, space: &Space, trials: &mut Trials<'_>) {
        self.descend(space, trials, false);
        // Which index gives way where a tile would have too many axes is a choice too.
        let asked = trials.templates.kernels.iter().filter(|(shape, _)| trials.shapes.contains(*shape));
        if asked.flat_map(|(_, t)| t).any(|t| t.tried.choice) {
            self.descend(space, trials, true);
        }
    }

    fn descend(&mut self, space: &Space, trials: &mut Trials<'_>, parallel_first: bool) {
        let (cols, stream, steps) = (space.cols[0], space.streams[0], space.steps);
        let (rows, [whole, whole_stored]) = (space.rows[0], space.whole[0]);
        let first = Style { rows, cols, stream, whole, whole_stored, steps, even: true, parallel_first, open: false };
        // Rows, columns and chunks cut indices of their own: sizes that cut them alike are one.
        let cuts = |style: &Style| sizes(&trials.roles.tiling(self.p, style, &BTreeSet::new(), &self.options.tiles));
        let rows = distinct(&space.rows, |&rows| cuts(&Style { rows, ..first }));
        let cols = distinct(&space.cols, |&cols| cuts(&Style { cols, ..first }));
        let of = |&[whole, whole_stored]: &[usize; 2], stream: usize| Style { whole, whole_stored, stream, ..first };
        let chunks = |whole: &[usize; 2]| space.streams.iter().map(|&s| cuts(&of(whole, s))).collect::<Vec<_>>();
        let wholes: Vec<([usize; 2], Vec<usize>)> = distinct(&space.whole, chunks)
            .into_iter()
            .map(|whole| (whole, distinct(&space.streams, |&s| cuts(&of(&whole, s)))))
            .collect();
        for &rows in &rows {
            for &([whole, whole_stored], ref streams) in &wholes {
                let first = Style { rows, whole, whole_stored, ..first };
                // From where it starts the descent may leave by either: a chunk that is too long for registers with all
                // columns of the result has fewer columns for its only neighbours.
                for turn in 0..2 {
                    let (mut style, mut best) = (first, f64::INFINITY);
                    for _ in 0..ROUNDS {
                        let before = style;
                        for way in [turn, 1 - turn] {
                            let start = style;
                            let next: Vec<Style> = match way {
                                0 => cols.iter().map(|&cols| Style { cols, ..start }).collect(),
                                _ => streams.iter().map(|&stream| Style { stream, ..start }).collect(),
                            };
                            for next in next {
                                self.improve(trials, next, &mut style, &mut best);
                            }
                        }
                        if style == before {
                            break;
                        }
                    }
                }
            }
        }
    }

    fn improve(&mut self, trials: &mut Trials<'_>, next: Style, style: &mut Style, best: &mut f64) {
        if let Some(time) = self.trial(trials, &next)
            && time < *best
        {
            (*style, *best) = (next, time);
        }
    }

    /// The predicted time in this style, if it fits. Of one that is not among the best a bound from below: a descent
    /// finds its way by it as well.
    fn trial(&mut self, trials: &mut Trials<'_>, style: &Style) -> Option<f64> {
        if let Some(known) = trials.met.get(style) {
            return *known;
        }
        // Where there is no choice it makes no difference which index would give way.
        let other = Style { parallel_first: false, ..*style };
        if style.parallel_first && self.is_only(trials, &other) {
            return self.trial(trials, &other);
        }
        let time = self.first_trial(trials, style);
        trials.met.insert(*style, time);
        time
    }

    /// Whether the kernel in this style was emitted, and no other index could have given way in it.
    fn is_only(&self, trials: &Trials<'_>, style: &Style) -> bool {
        let wished = trials.roles.tiling(self.p, style, &BTreeSet::new(), &self.options.tiles);
        let template = trials.templates.kernels.get(&shape(style.parallel_first, &wished));
        template.is_some_and(|t| t.as_ref().is_ok_and(|t| !t.tried.choice))
    }

    fn first_trial(&mut self, trials: &mut Trials<'_>, style: &Style) -> Option<f64> {
        let wished = trials.roles.tiling(self.p, style, &BTreeSet::new(), &self.options.tiles);
        let key = (style.parallel_first, sizes(&wished));
        if !trials.found.contains_key(&key) {
            let limit = trials.leaders.get(KEPT - 1).copied().unwrap_or(f64::INFINITY).min(trials.limit);
            let outcome = self.fitting(trials, style, &wished, limit);
            self.work.tilings += 1;
            match &outcome {
                Outcome::Fits(f) => {
                    let place = trials.leaders.partition_point(|&t| t <= f.seconds);
                    trials.leaders.insert(place, f.seconds);
                    trials.leaders.truncate(KEPT);
                }
                Outcome::Slower(_) => self.work.pruned += 1,
                Outcome::Misfit => {}
            }
            trials.found.insert(key.clone(), outcome);
        }
        match trials.found.get(&key) {
            Some(Outcome::Fits(f)) => Some(f.seconds),
            Some(Outcome::Slower(least)) => Some(*least),
            Some(Outcome::Misfit) | None => None,
        }
    }

    fn fitting(&mut self, trials: &mut Trials<'_>, style: &Style, wished: &Tiling, limit: f64) -> Outcome {
        let shape = shape(style.parallel_first, wished);
        // What was emitted before counts as work again.
        if trials.shapes.insert(shape.clone()) {
            self.work.emitted += 1;
        }
        let tiles = &self.options.tiles;
        let wished = (style, tiles, wished.clone());
        let (tiling, template) = self.template_of(trials.templates, trials.cone, trials.roles, wished, trials.name);
        let template = match template {
            Ok(template) => template,
            Err(e) => {
                trials.misfit.get_or_insert(e.to_string());
                return Outcome::Misfit;
            }
        };
        let shared = self.known.shared.clone();
        let number = template.number(&shared, trials.unit);
        template.put(self.p, &tiling);
        let kernel = template.kernel();
        if let Some(refused) = self.options.too_large.iter().find(|t| t.covers(&template.program, kernel)) {
            trials.misfit = Some(refused.to_string());
            return Outcome::Misfit;
        }
        let launch = trials.launch;
        let tiles = kernel.axes.iter().map(|a| a.tile).collect();
        let structure = shared.structure(number, kernel);
        let (machine, unit) = (self.machine, trials.unit);
        let found = shared.on_core(number, tiles, limit - launch, || {
            on_gpu_below(&template.program, kernel, machine, unit, &structure, limit - launch)
        });
        match found {
            Ok(Below::Found(gpu)) => {
                Outcome::Fits(Box::new(Found { seconds: gpu.seconds + launch, shape, tiling, gpu }))
            }
            Ok(Below::Slower(least)) => Outcome::Slower(least + launch),
            Err(misfits) => {
                trials.misfit = misfits.first().map(ToString::to_string).or(trials.misfit.take());
                Outcome::Misfit
            }
        }
    }
}

impl Trials<'_> {
    /// Whether no kernel that fits has products for a matrix unit.
    fn multiplies_nothing(&self) -> bool {
        let mut fitting = self.found.values().filter_map(|o| if let Outcome::Fits(f) = o { Some(f) } else { None });
        fitting.all(|f| f.gpu.unit.is_none())
    }

    /// The best so many, best first. Of those that are as good as the best the roundest is first.
    fn best(&mut self, p: &Problem, count: usize) -> Vec<Tried> {
        let found = std::mem::take(&mut self.found);
        let fits = |o| match o {
            Outcome::Fits(found) => Some(*found),
            Outcome::Slower(_) | Outcome::Misfit => None,
        };
        let mut found: Vec<Found> = found.into_values().filter_map(fits).collect();
        found.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        let fastest = found.first().map(|f| sizes(&f.tiling));
        let limit = found.first().map_or(0.0, |f| f.seconds * EQUAL);
        let equal = found.iter().take_while(|f| f.seconds <= limit).count();
        if let Some(equal) = found.get_mut(..equal) {
            let streams =
                |f: &Found| f.tiling.cuts.values().filter(|c| c.kind == AxisKind::Stream && c.tile > 1).count();
            let roughness = |f: &Found| f.tiling.cuts.values().map(|c| roughness(c.tile)).sum::<usize>();
            equal.sort_by_key(|f| (streams(f), roughness(f)));
        }
        // The same tiles may have been reached by two ways of giving way.
        let mut seen = BTreeSet::new();
        found.retain(|f| seen.insert(sizes(&f.tiling)));
        // The fastest is told, however many are as good and rounder.
        if let Some(place) = found.iter().position(|f| Some(sizes(&f.tiling)) == fastest).filter(|p| *p >= count) {
            found.swap(place, count - 1);
        }
        found.truncate(count);
        found.into_iter().filter_map(|f| self.tried(p, f)).collect()
    }

    fn tried(&self, p: &Problem, found: Found) -> Option<Tried> {
        let mut tried = self.templates.kernels.get(&found.shape)?.as_ref().ok()?.with(p, found.tiling);
        tried.kernel.stages = Some(found.gpu.stages).filter(|s| *s > 0);
        let cost = cost_on_core(&found.gpu, self.launch);
        Some(Tried { cost, gpu: Some(found.gpu), ..tried })
    }
}

/// With `launch` seconds to start the kernel.
pub(crate) fn cost_on_core(gpu: &OnGpu, launch: f64) -> Cost {
    let mut parts = gpu.parts.clone();
    parts.push(("launch".to_string(), launch));
    Cost { seconds: gpu.seconds + launch, bound_by: gpu.bound_by.clone(), parts }
}

fn sizes(tiling: &Tiling) -> Vec<(IndexId, u8, usize)> {
    tiling.cuts.iter().map(|(&i, c)| (i, kind(c.kind), c.tile)).collect()
}

/// The first of those that come to the same, in their order.
fn distinct<T: Copy, K: PartialEq>(all: &[T], of: impl Fn(&T) -> K) -> Vec<T> {
    let mut seen: Vec<K> = vec![];
    let new = |one: &&T| {
        let own = of(one);
        let is_new = !seen.contains(&own);
        seen.extend(Some(own).filter(|_| is_new));
        is_new
    };
    all.iter().filter(new).copied().collect()
}

/// 0 for a power of two, more for what has more odd parts.
fn roughness(tile: usize) -> usize {
    (tile >> tile.trailing_zeros()).count_ones() as usize - 1
}

impl Space {
    /// For products on a matrix unit: as many rows as some of its groups own, columns and chunks in its steps.
    fn of_unit(unit: &MatrixUnit) -> Self {
        let blocks: BTreeSet<usize> = unit
            .groups
            .iter()
            .flat_map(|&g| (1..=g).filter(move |down| g % down == 0))
            .flat_map(|down| (1..=unit.row_blocks).map(move |k| down * k))
            .collect();
        let rows = blocks.into_iter().map(|b| b * unit.rows).filter(|r| *r <= MOST_ROWS).collect();
        // Two instructions' columns: what a 128-byte swizzle and pairs of fragments like.
        let step = unit.column_step.next_multiple_of(16);
        let steps: Vec<usize> = (1..=unit.columns / step).map(|k| k * step).collect();
        let with = |first: usize| [first].into_iter().chain(steps.iter().copied().filter(move |s| *s != first));
        Self {
            rows,
            cols: with(128).collect(),
            // A chunk of one instruction's depth would be all barriers.
            streams: with(64).filter(|s| *s >= 2 * step).collect(),
            // Nothing but what fits a chunk, what one instruction's columns hold, and heads of latent attention.
            whole: vec![[256, 256], [1, 256], [1024, 256]],
            steps: [unit.rows, step],
        }
    }

    /// Without products: whole rows where they fit in registers, else streams.
    fn of_lanes() -> Self {
        let powers = |from: u32, to: u32| (from..=to).map(|e| 1usize << e);
        Self {
            rows: powers(0, 7).collect(),
            cols: [1024].into_iter().chain(powers(0, 15).filter(|s| *s != 1024)).collect(),
            streams: [1024].into_iter().chain(powers(5, 15).filter(|s| *s != 1024)).collect(),
            whole: vec![[1 << 16, 1 << 16], [256, 256]],
            steps: [1, 1],
        }
    }
}
