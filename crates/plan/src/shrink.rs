//! Kernels whose products no matrix unit takes, on a GPU: the common tilings, cut smaller until they fit a core.
//!
//! Where a tiling does not fit, the axes whose tiles take most of the core are cut in half, each in a tiling of its
//! own, those that were nearest to fit first, until so many have been tried. The fastest of those that fit is the best.

use crate::PlanError;
use crate::build::{Tried, Workshop, worst_kept};
use crate::cone::Cone;
use crate::cuts::{Roles, Style};
use crate::lost::Cost;
use crate::template::{Template, Templates};
use crate::tiling::Tiling;
use crate::too_large::Room;
use einloom_cascade::IndexId;
use einloom_model::{ByLanes, Counts, by_lanes_of};
use einloom_tile::{AxisKind, Kernel, Program};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Tilings that are emitted for one kernel, at most, beside those that it begins with.
const TRIES: usize = 48;
/// So many times as many where none of them fits.
const FURTHER: usize = 4;
/// Axes of a tiling that are cut in half, each for itself.
const BRANCHES: usize = 3;

/// A tiling to try.
struct Wish {
    style: Style,
    /// Tiles that are not the style's.
    tiles: BTreeMap<String, usize>,
    /// How many times slower, or larger than shared memory, the tiling was that this one was made from.
    excess: f64,
    /// How many times too large.
    times: f64,
}

/// Why a kernel does not fit.
struct Excess {
    reason: String,
    /// How many times slower it is, or larger than shared memory; and how many times too large.
    excess: [f64; 2],
    /// Bytes of shared memory that it needs, if that is what it lacks.
    needed: Option<u64>,
}

/// What the model says of a kernel.
struct Measured {
    cost: Cost,
    misfit: Option<Excess>,
    /// The axes to cut in half, best first, with their new tiles.
    halves: Vec<(String, usize)>,
    /// It streams what lanes multiply, and only one chunk of it fits.
    alone: bool,
}

impl Workshop<'_> {
    /// The kernels that fit, best first; else the reason of the last one that failed.
    pub(crate) fn tried_by_lanes(
        &mut self,
        cone: &Cone,
        roles: &Roles,
        name: &str,
        styles: Vec<Style>,
        limit: f64,
    ) -> (Vec<Tried>, Option<PlanError>) {
        self.with_templates(cone, |shop, templates| shop.shrunk(templates, cone, roles, name, styles, limit))
    }

    fn shrunk(
        &mut self,
        templates: &mut Templates,
        cone: &Cone,
        roles: &Roles,
        name: &str,
        styles: Vec<Style>,
        limit: f64,
    ) -> (Vec<Tried>, Option<PlanError>) {
        let given = self.options.tiles.clone();
        let first = |style| Wish { style, tiles: given.clone(), excess: 0.0, times: 0.0 };
        let mut open: Vec<Wish> = styles.into_iter().map(first).collect();
        let tries = open.len() + TRIES;
        let mut seen: BTreeSet<Vec<(IndexId, bool, usize)>> = BTreeSet::new();
        let (mut tried, mut failed): (Vec<Tried>, _) = (vec![], None);
        let mut nearest_misfit = f64::INFINITY;
        for n in 0..FURTHER * tries {
            if n >= tries && !tried.is_empty() {
                break;
            }
            // Slowdowns by registers tell little of how far a tiling is from fitting; they are in the order that finds fast tilings soonest.
            let far = |k: usize| if n < tries { open[k].excess } else { open[k].times };
            let nearest = (0..open.len()).min_by(|&a, &b| far(a).total_cmp(&far(b)));
            let Some(wish) = nearest.map(|k| open.remove(k)) else { break };
            let (tiling, template) = self.template(templates, cone, roles, &wish.style, &wish.tiles, name);
            let template = match template {
                Ok(template) => template,
                Err(e) => {
                    failed = Some(e.clone());
                    continue;
                }
            };
            let cuts = tiling.cuts.iter().map(|(&i, c)| (i, c.kind == AxisKind::Stream, c.tile));
            if !seen.insert(cuts.collect()) {
                continue;
            }
            template.put(self.p, &tiling);
            let limit = worst_kept(&tried).min(limit);
            let Some(Measured { cost, misfit, halves, alone }) = self.measured(roles, template, &tiling, limit) else {
                continue;
            };
            let fits = misfit.is_none();
            let cuts = tiling.cuts.iter();
            let one_cuts: Vec<(String, bool)> =
                cuts.map(|(&i, c)| (self.p[i].name.clone(), c.kind == AxisKind::Stream)).collect();
            let [excess, times] = match misfit {
                None => {
                    tried.push(Tried { cost, ..template.with(self.p, tiling) });
                    // Smaller ones may leave room to copy ahead.
                    if alone { [1.0; 2] } else { continue }
                }
                Some(Excess { reason, excess, needed }) => {
                    // The smallest tells what would fit.
                    if excess[0] < nearest_misfit {
                        nearest_misfit = excess[0];
                        let reason = format!("its tiles do not fit a core: {reason}");
                        failed = Some(PlanError { needed, ..PlanError::unsupported(name, reason) });
                    }
                    excess
                }
            };
            // A chunk becomes smaller by what streams.
            let streams = |name: &str| one_cuts.iter().any(|c| c.0 == name && c.1);
            open.extend(halves.into_iter().filter(|h| !fits || streams(&h.0)).map(|(axis, tile)| {
                let mut tiles = wish.tiles.clone();
                tiles.insert(axis, tile);
                Wish { style: wish.style, tiles, excess, times }
            }));
        }
        tried.sort_by(|a, b| a.cost.seconds.total_cmp(&b.cost.seconds));
        let failed = failed.filter(|_| tried.is_empty());
        (tried, failed)
    }

    /// `None` on a machine that is no GPU.
    fn measured(&mut self, roles: &Roles, one: &mut Template, tiling: &Tiling, limit: f64) -> Option<Measured> {
        let shared = self.known.shared.clone();
        let number = one.number(&shared, None);
        let kernel = one.kernel();
        let structure = shared.structure(number, kernel);
        let tiles = kernel.axes.iter().map(|a| a.tile).collect();
        let fit = || by_lanes_of(&one.program, kernel, self.machine, &structure);
        let fit = shared.by_lanes(number, tiles, fit)?;
        let refused = self.options.too_large.iter().find(|t| t.covers(&one.program, kernel));
        let shared = fit.shared_needed() > fit.shared_limit
            || fit.misfit().is_none() && !refused.is_some_and(|t| t.lacks(Room::Registers));
        // The model may see nothing of what is in the way: then whatever is large becomes smaller.
        let blind = refused.is_some() && fit.by_axis.iter().all(|w| w[usize::from(!shared)] == 0);
        let weights = fit.by_axis.iter().map(|w| if blind { w[0] + w[1] } else { w[usize::from(!shared)] });
        let halves = self.halves(kernel, weights, roles, (tiling, &one.tried.demoted));
        let excess = match shared {
            true => fit.shared_needed() as f64 / fit.shared_limit.max(1) as f64,
            false => fit.slowdown(),
        };
        let excess = [excess, fit.excess()];
        let needed = Some(fit.shared_needed()).filter(|&n| n > fit.shared_limit);
        let misfit = fit.misfit().map(|reason| Excess { reason, excess, needed });
        let refused =
            || refused.map(|t| Excess { reason: t.to_string(), excess: excess.map(|e| e.max(1.0)), needed: None });
        let misfit = misfit.or_else(refused);
        // The time of what does not fit is of no interest.
        let cost = match misfit {
            Some(_) => Cost::default(),
            None => self.cost_by_lanes(&one.program, structure.counts(), &fit, limit),
        };
        let alone = fit.beside_products.is_some() && fit.stages == 1;
        Some(Measured { cost, misfit, halves, alone })
    }

    /// What the program's only kernel takes where lanes multiply, if that is less than `limit` seconds.
    pub(crate) fn cost_by_lanes(&mut self, program: &Program, counts: &Arc<Counts>, fit: &ByLanes, limit: f64) -> Cost {
        let slower = fit.slowdown();
        let cost = self.cost_beside(program, counts, limit / slower, (fit.beside_products, fit.rest, fit.uneven));
        Cost { seconds: cost.seconds * slower, ..cost }
    }

    /// The axes that weigh most, among those that can be cut, with half their tiles.
    fn halves(
        &self,
        kernel: &Kernel,
        weights: impl Iterator<Item = u64>,
        roles: &Roles,
        (tiling, demoted): (&Tiling, &BTreeSet<IndexId>),
    ) -> Vec<(String, usize)> {
        // One index may have several axes: one for each of its loops.
        let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
        for (axis, weight) in kernel.axes.iter().zip(weights) {
            let known = by_name.entry(&axis.name).or_default();
            *known = (*known).max(weight);
        }
        let mut out: Vec<(u64, String, usize)> = vec![];
        for (index, cut) in &tiling.cuts {
            let name = &self.p[*index].name;
            let weight = by_name.get(name.as_str()).copied().unwrap_or(0);
            let tile = cut.tile.min(cut.extent);
            let fixed = roles.state.contains(index) || demoted.contains(index) || self.options.tiles.contains_key(name);
            if weight > 0 && tile > 1 && !fixed {
                out.push((weight, name.clone(), (tile / 2).next_power_of_two().min(tile - 1)));
            }
        }
        out.sort_by_key(|o| std::cmp::Reverse(o.0));
        out.truncate(BRANCHES);
        out.into_iter().map(|(_, name, tile)| (name, tile)).collect()
    }
}
