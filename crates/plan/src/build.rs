//! One kernel: its tiling chosen among a few, by predicted time.

use crate::choose::SURE_WITH_LANES;
use crate::cone::{Cone, ConeError};
use crate::cuts::{Roles, Style, contracts, multiplies};
use crate::drawn::Draw;
use crate::expr::Exprs;
use crate::frame::{HOPELESS, Memory};
use crate::gpu::KEPT;
use crate::known::Known;
use crate::lost::{self, Cost};
use crate::overhead;
use crate::parts::Part;
use crate::problem::Problem;
use crate::products::{OtherTypes, Products};
use crate::template::{Emitted, Template, Templates};
use crate::tiling::Tiling;
use crate::types::Types;
use crate::{Options, PlanError, Work};
use einloom_algebra::NodeId;
use einloom_cascade::{DType, IndexId};
use einloom_machine::{Level, Machine};
use einloom_model::{
    Counts, KernelTransfers, OnGpu, compute_seconds_counted, kernel_transfers_counted, of_each, resident_but_passing,
};
use einloom_tile::{AxisKind, Kernel, Op, Program, grid_points};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Halves of a core's private cache that tiles may take before they count as overflowing it, where a body also computes with them. Measured
/// (docs/model.md, "Tiles that overflow a core's cache"): attention loses 5 to 9 % from 0.9 to 1.6 halves.
const COMPUTED: f64 = 1.25;
/// The same where tiles are multiplied and nothing else is done with them: factors are gone through in parts that are packed
/// shortly before. Measured: a product loses nothing up to three times as much. More than the cache is not asked for.
const MULTIPLIED: f64 = 2.0;

/// The part of maps and reductions by lanes that adds to products whose threads stand in a way that is not known. A preference among
/// tiles: with all of it linear attention's tiles took 1.10 ms and not 0.55, without it a layer's took 19.3 and not 10.6 (H100,
/// docs/gpu-log.md, "What the lanes do beside products").
const REST_SHOWS: f64 = 0.5;

/// The part of the slowest level's time that shows beside products by lanes and what the lanes do between them: an estimate. Sums of masked
/// experts, 4096 tokens of 64 experts, took 1.53 ms in tiles of 16 by 1024, which ask L2 for four times as much as those of 64 by 128 that took 0.87
/// ms, and would be predicted to take 1.00 and 1.07 (H200).
const COPIES_SHOW: f64 = 0.25;

/// Times the limit of a kernel's time: what takes longer is only told to do so, without a figure.
const FAR: f64 = 1.25;

/// A kernel that could be part of the plan.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub roots: Vec<NodeId>,
    pub cone: Cone,
    pub kernel: Kernel,
    pub cost: Cost,
    /// The next best tilings.
    pub others: Vec<(String, Cost)>,
    /// Some reduction is computed more often than once per element.
    pub repeats: bool,
    pub notes: Vec<String>,
    /// Number types of the factors of products that have two.
    pub mixed: BTreeSet<(DType, DType)>,
    /// How these are multiplied.
    pub products: Products,
    /// The same in other number types, and what they take, for people.
    pub types: Vec<OtherTypes>,
    pub types_note: Option<String>,
    /// How it runs on a GPU's core, if the machine is one and it does.
    pub gpu: Option<OnGpu>,
    /// What it computes, if another kernel computes the rest.
    pub part: Option<Part>,
}

/// A kernel in one tiling.
#[derive(Clone, Debug)]
pub(crate) struct Tried {
    pub cost: Cost,
    pub kernel: Kernel,
    pub tiling: Tiling,
    /// Indices visited one by one, so that no tile has more than two axes.
    pub demoted: BTreeSet<IndexId>,
    /// Another index could have given way.
    pub choice: bool,
    /// An index of the grid gave way where a tile had reduced ones too.
    pub crowded: bool,
    /// Indices of the grid that could each have given way where another did, at the cost of other things that are read again.
    pub rivals: BTreeSet<IndexId>,
    pub repeats: bool,
    pub notes: Vec<String>,
    /// Number types of the factors of products that have two.
    pub mixed: BTreeSet<(DType, DType)>,
    /// How it runs on a GPU's core, if the machine is one and it does.
    pub gpu: Option<OnGpu>,
}

/// Why a kernel cannot be built.
#[derive(Clone, Debug)]
pub(crate) enum BuildError {
    Cone(ConeError),
    /// Every kernel takes at least so many seconds.
    Slower(f64),
    Plan(PlanError),
}

/// What building needs to know.
pub(crate) struct Workshop<'a> {
    pub p: &'a Problem,
    pub x: &'a mut Exprs,
    pub types: &'a mut Types,
    pub machine: &'a Machine,
    pub options: &'a Options,
    /// How products of two number types are multiplied.
    pub products: Products,
    /// Whether a kernel that is chosen is looked at once more, for tiles and orders that take longer to find.
    pub thorough: bool,
    /// Kernels of this plan without tiles.
    pub emitted: Emitted,
    /// What was found for other plans.
    pub known: &'a mut Known,
    /// What has been done so far.
    pub work: Work,
}

impl<'a> Workshop<'a> {
    /// One that has done nothing yet.
    pub(crate) fn new(
        p: &'a Problem,
        x: &'a mut Exprs,
        types: &'a mut Types,
        machine: &'a Machine,
        options: &'a Options,
        known: &'a mut Known,
    ) -> Self {
        let (emitted, work) = (Emitted::default(), Work::default());
        Self { p, x, types, machine, options, products: Products::default(), thorough: false, emitted, known, work }
    }
}

impl Workshop<'_> {
    /// What `look` finds for each of these, in their order, on all cores: none needs what is found for another.
    pub(crate) fn side_by_side<I: Sync, T: Send>(
        &mut self,
        items: &[I],
        look: impl Fn(&mut Workshop<'_>, &I) -> T + Sync,
    ) -> Vec<T> {
        let (p, x, types) = (self.p, &*self.x, &*self.types);
        let (machine, options, products, thorough) = (self.machine, self.options, self.products, self.thorough);
        let shared = &self.known.shared;
        let found = of_each(items, |item| {
            let (mut x, mut types) = (x.clone(), types.clone());
            let mut known = Known::sharing(shared);
            let (x, types, known) = (&mut x, &mut types, &mut known);
            let (emitted, work) = (Emitted::default(), Work::default());
            let mut shop = Workshop { p, x, types, machine, options, products, thorough, emitted, known, work };
            (look(&mut shop, item), shop.work)
        });
        let of_one = |(found, work)| {
            self.work += work;
            found
        };
        found.into_iter().map(of_one).collect()
    }

    /// What a kernel that computes `roots` from `memory` consists of.
    pub(crate) fn cone(&mut self, roots: &[NodeId], memory: &BTreeSet<NodeId>) -> Result<Cone, ConeError> {
        Cone::new(self.p, self.x, self.types, roots, memory)
    }

    /// The best kernel for a cone; on a GPU only if it takes less than `limit` seconds, on a machine that counts elements if it
    /// does not take far more. There, if it is to be `like` some, only in the ways in which they are written.
    pub(crate) fn build(
        &mut self,
        roots: &[NodeId],
        cone: Cone,
        limit: f64,
        like: &[&Kernel],
    ) -> Result<Built, BuildError> {
        self.work.kernels += 1;
        let roles = Roles::new(self.p, self.x, &cone);
        let name = self.kernel_name(roots);
        let (fitting, misfits) = match self.machine.lanes {
            Some(_) => self.tried_on_gpu(&cone, &roles, &name, limit),
            None => (None, vec![]),
        };
        let (tried, failed) = match (fitting, self.machine.lanes) {
            // Where an index gave way that products need, arithmetic lanes may multiply faster.
            (Some(tried), _) if self.lost_products(&cone, &tried) => {
                let styles = self.styles(&cone, contracts(self.p, self.x, &cone));
                let (mut others, _) = self.tried_by_lanes(&cone, &roles, &name, styles, limit);
                // Products of what is made of positions are counted without what that takes: 7.6 µs and not 9.5 took 28.7 and 8.0.
                let best = tried.first().map_or(f64::INFINITY, |t| t.cost.seconds);
                let sure = contracts(self.p, self.x, &cone);
                others.retain(|o| sure || o.cost.seconds * SURE_WITH_LANES < best);
                others.extend(tried);
                others.sort_by(|a, b| a.cost.seconds.total_cmp(&b.cost.seconds));
                others.truncate(KEPT);
                (others, None)
            }
            (Some(tried), _) => (tried, None),
            (None, Some(_)) => {
                let styles = self.styles(&cone, contracts(self.p, self.x, &cone));
                self.tried_by_lanes(&cone, &roles, &name, styles, limit)
            }
            (None, None) => match (Draw::of(self.options), Memory::of(self.machine)) {
                (Some(draw), _) => self.tried_as_drawn(&cone, &roles, &name, draw),
                (None, Some(memory)) => self.tried_in_capacity(&cone, &roles, &name, (memory, like), limit),
                (None, None) => self.tried_in_styles(&cone, &roles, &name, FAR * limit),
            },
        };
        // A few styles are tried to the end, and the caller tells how much slower they are.
        if self.machine.lanes.is_some() && failed.is_none() && tried.first().is_none_or(|t| t.cost.seconds >= limit) {
            return Err(BuildError::Slower(limit));
        }
        let far = |t: &Tried| t.cost.seconds > HOPELESS * limit;
        if Memory::of(self.machine).is_some() && tried.first().is_some_and(far) {
            return Err(BuildError::Slower(limit));
        }
        // Of some tilings nothing was counted but their arithmetic, which takes as long.
        let styled = self.machine.lanes.is_none() && Memory::of(self.machine).is_none();
        if styled
            && tried.first().is_some_and(|t| t.cost.seconds >= FAR * limit)
            && tried.iter().any(|t| t.cost.is_uncounted())
        {
            return Err(BuildError::Slower(FAR * limit));
        }
        let others: Vec<(String, Cost)> = tried
            .iter()
            .skip(1)
            .filter(|t| t.cost.seconds.is_finite())
            .map(|t| (self.describe(&t.tiling), t.cost.clone()))
            .collect();
        let lost: Vec<String> =
            others.iter().take(2).map(|(tiles, c)| format!("{tiles}: {}", time(c.seconds))).collect();
        let Some(best) = tried.into_iter().next() else {
            let reason = failed.unwrap_or_else(|| PlanError::unsupported(&name, "no tiling was tried"));
            return Err(BuildError::Plan(reason));
        };
        let Tried { cost, kernel, tiling, repeats, mut notes, mixed, gpu, .. } = best;
        let tiles = self.describe(&tiling);
        let why = match Draw::of(self.options) {
            Some(_) => "drawn".to_string(),
            None => format!("predicted {}", time(cost.seconds)),
        };
        let mut chosen = if tiles.is_empty() { why } else { format!("tiles {tiles}: {why}") };
        if !lost.is_empty() {
            // On a GPU rounder tiles go before others that are as good.
            let what = if gpu.is_some() { "others" } else { "next best" };
            chosen += &format!("; {what} {}", lost.join(", "));
        }
        let core = gpu.iter().flat_map(|g| [Some(g.to_string()), lost::depths_note(g)]).flatten();
        notes.splice(0..0, [chosen].into_iter().chain(core).chain(misfits));
        notes.extend(self.otherwise(&tiling));
        let points = grid_points(&kernel);
        if points < self.machine.cores {
            let many = if points == 1 { "" } else { "s" };
            notes.push(format!("the grid has {points} point{many} for {} cores", self.machine.cores));
        }
        let types = vec![];
        let (roots, products) = (roots.to_vec(), self.products);
        let types_note = None;
        Ok(Built {
            roots,
            cone,
            kernel,
            cost,
            others,
            repeats,
            notes,
            mixed,
            products,
            types,
            types_note,
            gpu,
            part: None,
        })
    }

    /// Whether a kernel has contractions, and the best way found to compute it on a GPU multiplies no tiles.
    fn lost_products(&self, cone: &Cone, tried: &[Tried]) -> bool {
        let unit = tried.first().and_then(|t| t.gpu.as_ref()).is_none_or(|g| g.unit.is_some());
        !unit && (contracts(self.p, self.x, cone) || multiplies(self.p, self.x, cone))
    }

    /// The kernels of a few common tilings, best first, and why the last of those failed that did. What its arithmetic alone
    /// makes take `limit` seconds is not looked at further.
    fn tried_in_styles(
        &mut self,
        cone: &Cone,
        roles: &Roles,
        name: &str,
        limit: f64,
    ) -> (Vec<Tried>, Option<PlanError>) {
        let mut tried: Vec<Tried> = vec![];
        let (mut templates, mut failed) = (Templates::default(), None);
        let contracts = contracts(self.p, self.x, cone);
        let styles = self.styles(cone, contracts);
        // Of small extents most styles wish the same, and it comes to the same.
        let mut wishes: Vec<(Tiling, Option<PlanError>)> = vec![];
        for style in &styles {
            let tiles = &self.options.tiles;
            let wish = roles.tiling(self.p, style, &Default::default(), tiles);
            if let Some((_, why)) = wishes.iter().find(|w| w.0 == wish) {
                failed = why.clone().or(failed);
                continue;
            }
            match self.template(&mut templates, cone, roles, style, tiles, name) {
                (tiling, Ok(template)) if tried.iter().all(|other| other.tiling != tiling) => {
                    template.put(self.p, &tiling);
                    let cost = match contracts {
                        true => self.cost(template, worst_kept(&tried).min(limit)),
                        false => self.cost_of_sweeps(&template.program, &template.counts),
                    };
                    tried.push(Tried { cost, ..template.with(self.p, tiling) });
                }
                (_, Ok(_)) => {}
                (_, Err(e)) => {
                    failed = Some(e.clone());
                    wishes.push((wish, failed.clone()));
                    continue;
                }
            }
            wishes.push((wish, None));
        }
        // A kernel that may be taken is told with what lost to it.
        if limit.is_finite() && tried.iter().any(|t| t.cost.seconds < limit) {
            for style in &styles {
                let worst = worst_kept(&tried);
                let (tiling, Ok(template)) =
                    self.template(&mut templates, cone, roles, style, &self.options.tiles, name)
                else {
                    continue;
                };
                if let Some(t) = tried.iter_mut().find(|t| t.tiling == tiling && t.cost.is_uncounted()) {
                    template.put(self.p, &tiling);
                    t.cost = self.cost(template, worst);
                }
            }
        }
        tried.sort_by(|a, b| a.cost.seconds.total_cmp(&b.cost.seconds));
        let failed = failed.filter(|_| tried.is_empty());
        (tried, failed)
    }

    pub(crate) fn kernel_name(&self, roots: &[NodeId]) -> String {
        let names: Vec<&str> = roots.iter().map(|&r| self.p[r].name.as_str()).collect();
        names.join("_").replace('.', "_").to_lowercase()
    }

    /// Tiles that are not as large as was asked for, of indices that have more than one position in them.
    fn otherwise(&self, tiling: &Tiling) -> impl Iterator<Item = String> {
        tiling.cuts.iter().filter_map(|(&i, cut)| {
            let (name, asked) = (&self.p[i].name, *self.options.tiles.get(&self.p[i].name)?);
            let other = cut.tile > 1 && cut.tile != asked.min(cut.extent);
            other.then(|| {
                format!("{name} by {}, not by {asked}: tiles are of about one size, in whole vectors", cut.tile)
            })
        })
    }

    pub(crate) fn names(&self, indices: &BTreeSet<IndexId>) -> String {
        let names: Vec<&str> = indices.iter().map(|&i| self.p[i].name.as_str()).collect();
        names.join(", ")
    }

    pub(crate) fn describe(&self, tiling: &Tiling) -> String {
        let cuts = tiling.cuts.iter().filter(|(_, c)| c.extent > 1);
        let parts: Vec<String> = cuts
            .map(|(&i, c)| match c.kind {
                AxisKind::Whole => format!("{}:whole", self.p[i].name),
                _ => format!("{}:{}", self.p[i].name, c.tile),
            })
            .collect();
        parts.join(" ")
    }

    /// Predicted time, with the tiles that were put: the model's, and what issuing each tile operation costs. Infinite where
    /// that is `limit` or more even without any traffic, which then is not counted.
    pub(crate) fn cost(&mut self, template: &Template, limit: f64) -> Cost {
        self.cost_beside(&template.program, &template.counts, limit, (None, 0.0, 1.0))
    }

    /// The same with products that take so many seconds beside their multiply-adds, if that is known: then tiles are known
    /// to be in registers and in shared memory too, where no operation moves them again, and what else the lanes do adds to it. If it is
    /// not known, what else they do, which takes so many seconds, shows in part. All that
    /// takes so many times longer where points differ in length.
    pub(crate) fn cost_beside(
        &mut self,
        program: &Program,
        counts: &Arc<Counts>,
        limit: f64,
        (products, rest, uneven): (Option<f64>, f64, f64),
    ) -> Cost {
        self.work.tilings += 1;
        let k = &program.kernels[0];
        // That time has what every tile costs beside its products.
        let overhead = match products {
            Some(_) => self.machine.overhead.kernel.0,
            None if self.machine.lanes.is_none() && only_products(&k.body) => {
                overhead::seconds(k, self.machine) + overhead::seconds_of_sums(k, self.machine)
            }
            None => overhead::seconds(k, self.machine),
        };
        let more = products.map_or(REST_SHOWS * rest, |products| products + rest);
        if overhead >= limit || overhead + compute_seconds_counted(k, self.machine, counts) + more >= limit {
            self.work.pruned += 1;
            return Cost { seconds: f64::INFINITY, ..Cost::default() };
        }
        let t = kernel_transfers_counted(program, k, self.machine, counts);
        // Tiles that overflow the private caches are moved again by every operation.
        let near = match self.machine.lanes {
            Some(_) => 1.0,
            None if only_products(&k.body) => MULTIPLIED,
            None => COMPUTED,
        };
        let budget = self.budget() as f64 * near;
        let held = if self.machine.lanes.is_some() { t.resident_bytes } else { resident_but_passing(k) };
        let spill = if products.is_some() { 1.0 } else { (held as f64 / budget).max(1.0).sqrt() };
        let waiting = self.copies(&t, k);
        let levels = t.levels.iter().map(|l| (l.level.clone(), l.seconds * spill));
        // Between products, where lanes do something else, no copy is begun.
        let copied = match products {
            Some(_) if rest > 0.0 => COPIES_SHOW * t.levels.iter().map(|l| l.seconds).fold(0.0, f64::max),
            _ => 0.0,
        };
        let computing = ((t.compute_seconds * spill + more) * uneven + copied).max(rest);
        let compute = ("compute".to_string(), computing);
        let mut parts: Vec<(String, f64)> = levels.chain([compute, ("issue".to_string(), overhead)]).collect();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        let seconds = (t.seconds * spill).max(computing);
        let bound_by = if computing >= t.seconds * spill { "compute".to_string() } else { t.bound_by };
        Cost { seconds: seconds + waiting + overhead, bound_by, parts }
    }

    /// The same for a kernel that goes through its tiles element by element: what is not close comes in order, and
    /// costs no more than its way. Nothing is computed meanwhile but what the bytes that have arrived allow, so part of
    /// the time at the inner levels adds to that of the slowest (`[overhead]`). Tiles that a core's own memories do not hold
    /// pass through the ones behind them, each time that an operation goes through them; or all takes as much longer as the root
    /// of how much they overflow, if that is less: where much is computed of each element. What passes once takes half of a
    /// memory meanwhile (docs/model.md).
    pub(crate) fn cost_of_sweeps(&mut self, program: &Program, counts: &Arc<Counts>) -> Cost {
        self.work.tilings += 1;
        let k = &program.kernels[0];
        let t = kernel_transfers_counted(program, k, self.machine, counts);
        let mut levels: Vec<(String, f64)> = t.levels.iter().map(|l| (l.level.clone(), l.seconds)).collect();
        let (close, mut again) = (self.budget(), None);
        let memories: Vec<&Level> = self.machine.trunk().collect();
        for pair in memories.windows(2) {
            let [outer, inner] = [pair[0], pair[1]];
            let held = inner.per_core().map_or(u64::MAX, |c| c.0 / 2).max(close);
            if t.resident_bytes > held {
                let bytes = *again.get_or_insert_with(|| overhead::bytes_passed_again(k, self.machine));
                let part = 1.0 - held as f64 / t.resident_bytes as f64;
                for (_, seconds) in levels.iter_mut().filter(|(name, _)| *name == outer.name) {
                    *seconds += part * bytes / outer.bandwidth.0;
                }
            }
        }
        let shows = self.machine.overhead.inner_shows;
        let of = |levels: &[(String, f64)]| {
            let (all, most) = levels.iter().fold((0.0, 0.0), |(all, most), l| (all + l.1, l.1.max(most)));
            (most.max(t.compute_seconds), shows * (all - most))
        };
        let plain: Vec<(String, f64)> = t.levels.iter().map(|l| (l.level.clone(), l.seconds)).collect();
        let spill = (t.resident_bytes as f64 / (2 * close) as f64).max(1.0).sqrt();
        let [(by_root, beside), (counted, more)] = [of(&plain), of(&levels)];
        let computes = plain.iter().all(|l| l.1 <= t.compute_seconds);
        let seconds = if computes && by_root * spill + beside < counted + more {
            levels = plain;
            by_root * spill + beside
        } else {
            counted + more
        };
        let slowest = levels.iter().max_by(|a, b| a.1.total_cmp(&b.1)).filter(|l| l.1 > t.compute_seconds);
        let bound_by = slowest.map_or("compute".to_string(), |l| l.0.clone());
        let issue = overhead::seconds(k, self.machine)
            + overhead::seconds_of_runs(k, self.machine)
            + overhead::seconds_of_masks(k, self.machine);
        let compute = ("compute".to_string(), t.compute_seconds);
        let mut parts: Vec<(String, f64)> = levels.into_iter().chain([compute, ("issue".to_string(), issue)]).collect();
        parts.sort_by(|a, b| b.1.total_cmp(&a.1));
        Cost { seconds: seconds + issue, bound_by, parts }
    }

    /// Seconds to bring the factors of products into the order in which they are multiplied, which takes its place
    /// beside the products and not behind them: a cache's bandwidth, where no pipe of its own does it.
    fn copies(&self, transfers: &KernelTransfers, kernel: &Kernel) -> f64 {
        if self.machine.lanes.is_some() || !overhead::multiplies(&kernel.body) {
            return 0.0;
        }
        let private = self.machine.trunk().find(|l| l.shared_by <= 1);
        let level = private.and_then(|private| transfers.levels.iter().find(|l| l.level == private.name));
        level.map_or(0.0, |level| level.seconds)
    }

    /// Bytes of tiles that a core holds close: half of its largest private cache.
    fn budget(&self) -> u64 {
        let private = self.machine.trunk().filter(|l| l.shared_by <= 1).filter_map(|l| l.capacity).map(|c| c.0);
        let any = self.machine.trunk().filter_map(|l| l.per_core()).map(|c| c.0);
        private.max().or_else(|| any.min()).unwrap_or(512 << 10).max(32 << 10) / 2
    }

    /// The styles in which a kernel that contracts or does not is tried.
    pub(crate) fn styles(&self, cone: &Cone, contracts: bool) -> Vec<Style> {
        let budget = self.budget() as usize;
        // A stored row taken whole: a few f32 tiles of it at once.
        let row = |rows: usize| budget / (rows * 4 * 4);
        let all = usize::MAX >> 1;
        let style = |rows: usize, cols: usize, stream: usize, whole: usize, whole_stored: usize| Style {
            rows,
            cols,
            stream,
            whole,
            whole_stored,
            steps: Style::VECTORS,
            even: true,
            parallel_first: false,
            open: false,
        };
        if contracts {
            let sizes = [
                (64, 128, 128),
                (64, 128, 256),
                (128, 128, 256),
                (128, 256, 128),
                (64, 256, 256),
                (128, 256, 256),
                (128, 512, 256),
                (256, 512, 256),
                (32, 128, 256),
                (32, 64, 128),
                (64, all, 128),
                (128, all, 128),
                (256, all, 256),
                (512, all, 256),
                (32, all, 256),
                (16, all, 128),
            ];
            // What goes over tiles element by element goes over rows that are set apart one by one: the largest tiles pay
            // where there are only products. Few rows do then: the backend keeps what all rows are multiplied by.
            let most = if cone.folds.len() == 1 { 512 } else { 256 };
            // Lanes hold their rows in registers.
            let rows = if self.machine.lanes.is_some() { 256 } else { 512 };
            let sizes = sizes.iter().filter(|(r, cols, _)| *r <= rows && (*cols <= most || *cols == all));
            sizes.map(|&(r, c, s)| style(r, c, s, 256, row(r).max(256))).collect()
        } else {
            let sizes = [(16, 1024, 1024), (64, 256, 512), (4, 4096, 4096), (8, 2048, 2048), (256, 64, 256)];
            let whole = |r: usize, s: usize| style(r, s, s, 2 * s, row(r));
            let mut out: Vec<Style> = sizes.iter().map(|&(r, _, s)| whole(r, s)).collect();
            out.extend(sizes.iter().take(3).map(|&(r, c, s)| style(r, c, s, 256, 256)));
            out.push(style(64, all, 256, 512, row(64)));
            // Few long rows, whole: two f32 tiles of them stay in what a core has of the caches, its own or the shared one.
            let shared = self.machine.trunk().skip(1).filter_map(|l| l.per_core()).map(|c| c.0 as usize).max();
            let caches = shared.unwrap_or(0).max(budget);
            let long = |rows: usize| caches / (rows * 4 * 2);
            for rows in [4, 2, 1] {
                // Also where what is stored has one element per row.
                out.extend([all, rows].map(|cols| style(rows, cols, 1024, long(rows), long(rows))));
            }
            out
        }
    }
}

/// The time of the last of the kernels that the report tells: what takes longer need not be known.
pub(crate) fn worst_kept(tried: &[Tried]) -> f64 {
    let mut seconds: Vec<f64> = tried.iter().map(|t| t.cost.seconds).collect();
    seconds.sort_by(f64::total_cmp);
    seconds.get(KEPT - 1).copied().unwrap_or(f64::INFINITY)
}

/// A time for people.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.3} s"),
        s if s >= 1e-3 => format!("{:.3} ms", s * 1e3),
        s => format!("{:.1} µs", s * 1e6),
    }
}
/// Whether tiles are loaded, multiplied and stored, and no more.
fn only_products(ops: &[Op]) -> bool {
    ops.iter().all(|op| match op {
        Op::Load { .. } | Op::Store { .. } | Op::Mma { .. } => true,
        Op::Stream { body, .. } => only_products(body),
        _ => false,
    })
}
