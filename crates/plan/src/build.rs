//! One kernel: its tiling chosen among a few, by predicted time.

use crate::cone::{Cone, ConeError};
use crate::cuts::{Roles, Style, contracts};
use crate::emit::{Fail, emit};
use crate::expr::Exprs;
use crate::lower::lower;
use crate::overhead;
use crate::problem::Problem;
use crate::program::program_of;
use crate::tiling::Tiling;
use crate::types::Types;
use crate::{Options, PlanError};
use einloom_algebra::NodeId;
use einloom_cascade::IndexId;
use einloom_machine::Machine;
use einloom_model::{OnGpu, kernel_transfers};
use einloom_tile::{AxisKind, Kernel, grid_points};
use std::collections::{BTreeMap, BTreeSet};

/// A kernel that could be part of the plan.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    pub roots: Vec<NodeId>,
    pub cone: Cone,
    pub kernel: Kernel,
    pub seconds: f64,
    /// Some reduction is computed more often than once per element.
    pub repeats: bool,
    pub notes: Vec<String>,
    /// How it runs on a GPU's core, if the machine is one and it does.
    pub gpu: Option<OnGpu>,
}

/// A kernel in one tiling.
#[derive(Clone, Debug)]
pub(crate) struct Tried {
    pub seconds: f64,
    pub kernel: Kernel,
    pub tiling: Tiling,
    /// Indices visited one by one, so that no tile has more than two axes.
    pub demoted: BTreeSet<IndexId>,
    pub repeats: bool,
    pub notes: Vec<String>,
    /// How it runs on a GPU's core, if the machine is one and it does.
    pub gpu: Option<OnGpu>,
}

/// Why a kernel cannot be built.
#[derive(Clone, Debug)]
pub(crate) enum BuildError {
    Cone(ConeError),
    Plan(PlanError),
}

/// What building needs to know.
pub(crate) struct Workshop<'a> {
    pub p: &'a Problem,
    pub x: &'a mut Exprs,
    pub types: &'a mut Types,
    pub machine: &'a Machine,
    pub options: &'a Options,
}

impl Workshop<'_> {
    /// What a kernel that computes `roots` from `memory` consists of.
    pub(crate) fn cone(&mut self, roots: &[NodeId], memory: &BTreeSet<NodeId>) -> Result<Cone, ConeError> {
        Cone::new(self.p, self.x, self.types, roots, memory)
    }

    /// The best kernel for a cone.
    pub(crate) fn build(&mut self, roots: &[NodeId], cone: Cone) -> Result<Built, BuildError> {
        let roles = Roles::new(self.p, self.x, &cone);
        let name = self.kernel_name(roots);
        let (mut tried, misfits) = match self.machine.lanes {
            Some(_) => self.tried_on_gpu(&cone, &roles, &name),
            None => (vec![], vec![]),
        };
        let mut failed = None;
        if tried.is_empty() {
            (tried, failed) = match self.machine.lanes {
                Some(_) => {
                    let styles = self.styles(&cone);
                    self.tried_by_lanes(&cone, &roles, &name, styles)
                }
                None => self.tried_in_styles(&cone, &roles, &name),
            };
        }
        let lost: Vec<String> = tried
            .iter()
            .skip(1)
            .take(2)
            .map(|t| format!("{}: {}", self.describe(&t.tiling), time(t.seconds)))
            .collect();
        let Some(best) = tried.into_iter().next() else {
            let reason = failed.unwrap_or_else(|| PlanError::unsupported(&name, "no tiling was tried"));
            return Err(BuildError::Plan(reason));
        };
        let Tried { seconds, kernel, tiling, repeats, mut notes, gpu, .. } = best;
        let tiles = self.describe(&tiling);
        let mut chosen = match tiles.is_empty() {
            true => format!("predicted {}", time(seconds)),
            false => format!("tiles {tiles}: predicted {}", time(seconds)),
        };
        if !lost.is_empty() {
            // On a GPU rounder tiles go before others that are as good.
            let what = if gpu.is_some() { "others" } else { "next best" };
            chosen += &format!("; {what} {}", lost.join(", "));
        }
        notes.splice(0..0, [chosen].into_iter().chain(gpu.iter().map(ToString::to_string)).chain(misfits));
        let points = grid_points(&kernel);
        if points < self.machine.cores {
            notes.push(format!("the grid has {points} points for {} cores", self.machine.cores));
        }
        Ok(Built { roots: roots.to_vec(), cone, kernel, seconds, repeats, notes, gpu })
    }

    /// The kernels of a few common tilings, best first, and why the last of those failed that did.
    fn tried_in_styles(&mut self, cone: &Cone, roles: &Roles, name: &str) -> (Vec<Tried>, Option<PlanError>) {
        let mut tried: Vec<Tried> = vec![];
        let mut failed = None;
        for style in self.styles(cone) {
            match self.emit(cone, roles, &style, name) {
                Ok(mut t) if tried.iter().all(|other| other.tiling != t.tiling) => {
                    t.seconds = match contracts(self.p, self.x, cone) {
                        true => self.seconds(&t.kernel),
                        false => self.seconds_of_sweeps(&t.kernel),
                    };
                    tried.push(t);
                }
                Ok(_) => {}
                Err(e) => failed = Some(e),
            }
        }
        tried.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        (tried, failed)
    }

    fn kernel_name(&self, roots: &[NodeId]) -> String {
        let names: Vec<&str> = roots.iter().map(|&r| self.p[r].name.as_str()).collect();
        names.join("_").replace('.', "_").to_lowercase()
    }

    /// Emits with as many tiled axes as values allow.
    pub(crate) fn emit(&mut self, cone: &Cone, roles: &Roles, style: &Style, name: &str) -> Result<Tried, PlanError> {
        self.emit_with(cone, roles, style, &self.options.tiles, name)
    }

    /// The same with some tiles given, by the names of their indices.
    pub(crate) fn emit_with(
        &mut self,
        cone: &Cone,
        roles: &Roles,
        style: &Style,
        tiles: &BTreeMap<String, usize>,
        name: &str,
    ) -> Result<Tried, PlanError> {
        let mut demoted = BTreeSet::new();
        let mut notes = vec![];
        loop {
            let tiling = roles.tiling(self.p, style, &demoted, tiles);
            let narrow = self.options.narrow_contractions && !self.options.exact;
            let lowered = lower(self.p, self.x, self.types, cone, &tiling, narrow);
            let printed = lowered.notes.clone();
            // Where threads can agree to leave a multiplication out.
            let lag = self.machine.lanes.is_some();
            match emit(self.p, self.x, self.types, cone, lowered, &tiling, name, lag) {
                Ok((kernel, repeats)) => {
                    notes.extend(printed);
                    return Ok(Tried { seconds: 0.0, kernel, tiling, demoted, repeats, notes, gpu: None });
                }
                Err(Fail::Unsupported(e)) => return Err(e),
                Err(Fail::TooManyAxes { indices, leaves }) => {
                    let names = self.names(&indices);
                    let Some(i) = roles.demote(&indices, &leaves).filter(|i| demoted.insert(*i)) else {
                        let reason = format!(
                            "a recurrence's state would be a tile with the axes {names}, and a tile has two; \
                             only indices that no step mixes can be visited one by one"
                        );
                        return Err(PlanError::unsupported(name, reason));
                    };
                    notes.push(format!("{} by 1: a tile would have the axes {names}", self.p[i].name));
                }
            }
        }
    }

    fn names(&self, indices: &BTreeSet<IndexId>) -> String {
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

    /// Predicted time: the model's, and what issuing each tile operation costs.
    pub(crate) fn seconds(&mut self, kernel: &Kernel) -> f64 {
        let program = program_of(self.p, self.x, self.types, vec![kernel.clone()]);
        let k = &program.kernels[0];
        let t = kernel_transfers(&program, k, self.machine);
        // Tiles that overflow the private caches are moved again by every operation.
        let budget = self.budget() as f64;
        let spill = (t.resident_bytes as f64 / budget).max(1.0);
        t.seconds * spill.sqrt() + overhead::seconds(k, self.machine)
    }

    /// The same for a kernel that goes through its tiles element by element: what is not close comes in order, and
    /// costs no more than its way. Nothing is computed meanwhile but what the bytes that have arrived allow, so part of
    /// the time at the inner levels adds to that of the slowest.
    fn seconds_of_sweeps(&mut self, kernel: &Kernel) -> f64 {
        const NOT_HIDDEN: f64 = 0.25;
        let program = program_of(self.p, self.x, self.types, vec![kernel.clone()]);
        let k = &program.kernels[0];
        let t = kernel_transfers(&program, k, self.machine);
        let spill = (t.resident_bytes as f64 / (2 * self.budget()) as f64).max(1.0);
        let slowest = t.levels.iter().map(|l| l.seconds).fold(0.0, f64::max);
        let others: f64 = t.levels.iter().map(|l| l.seconds).sum::<f64>() - slowest;
        t.seconds * spill.sqrt()
            + NOT_HIDDEN * others
            + overhead::seconds(k, self.machine)
            + overhead::seconds_of_runs(k, self.machine)
    }

    /// Bytes of tiles that a core holds close: half of its largest private cache.
    fn budget(&self) -> u64 {
        let private = self.machine.trunk().filter(|l| l.shared_by <= 1).filter_map(|l| l.capacity).map(|c| c.0);
        let any = self.machine.trunk().filter_map(|l| l.per_core()).map(|c| c.0);
        private.max().or_else(|| any.min()).unwrap_or(512 << 10).max(32 << 10) / 2
    }

    fn styles(&self, cone: &Cone) -> Vec<Style> {
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
        };
        if contracts(self.p, self.x, cone) {
            let sizes = [
                (64, 128, 128),
                (64, 128, 256),
                (128, 128, 256),
                (128, 256, 128),
                (32, 128, 256),
                (32, 64, 128),
                (64, all, 128),
                (128, all, 128),
                (32, all, 256),
                (16, all, 128),
            ];
            sizes.iter().map(|&(r, c, s)| style(r, c, s, 256, row(r).max(256))).collect()
        } else {
            let sizes = [(16, 1024, 1024), (64, 256, 512), (4, 4096, 4096), (8, 2048, 2048), (256, 64, 256)];
            let whole = |r: usize, s: usize| style(r, s, s, 2 * s, row(r));
            let mut out: Vec<Style> = sizes.iter().map(|&(r, _, s)| whole(r, s)).collect();
            out.extend(sizes.iter().take(3).map(|&(r, c, s)| style(r, c, s, 256, 256)));
            out.push(style(64, all, 256, 512, row(64)));
            // Few long rows, whole: two f32 tiles of them stay near.
            let long = |rows: usize| budget / (rows * 4 * 2);
            out.extend([4, 1].map(|rows| style(rows, all, 1024, long(rows), long(rows))));
            out
        }
    }
}

/// A time for people.
pub(crate) fn time(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.3} s"),
        s if s >= 1e-3 => format!("{:.3} ms", s * 1e3),
        s => format!("{:.1} µs", s * 1e6),
    }
}
