//! A study as data.

use einloom_spatial::{Effect, Mean, Point, Row, Study, SweepPoint, Totals};
use serde::Serialize;
use std::collections::BTreeMap;

/// Everything that a study without sizes says.
pub(super) struct Whole<'a> {
    pub study: &'a Study,
    pub accounting: &'a str,
    pub rows: &'a [Row],
    /// By accounting.
    pub averages: &'a [(String, Vec<Mean>)],
    pub effects: &'a [Effect],
    pub sweep: &'a [SweepPoint],
}

/// Seconds, bytes, joules; `utilisation_ARRAY` is the part of the time in which an array computes.
#[derive(Debug, Serialize)]
struct CostJson {
    seconds: f64,
    traffic_bytes: f64,
    energy_joules: f64,
    #[serde(flatten)]
    utilisation: BTreeMap<String, f64>,
}

#[derive(Debug, Serialize)]
struct PointJson {
    #[serde(flatten)]
    cost: CostJson,
    energy: EnergyJson,
    einsums: BTreeMap<String, EinsumJson>,
    kernels: Vec<KernelJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attention: Option<CostJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    linear: Option<CostJson>,
    notes: Vec<String>,
}

#[derive(Debug, Serialize)]
struct EnergyJson {
    compute: f64,
    dram: f64,
    buffer: f64,
    registers: f64,
}

#[derive(Debug, Serialize)]
struct EinsumJson {
    array: String,
    cycles: f64,
    utilisation: f64,
    compute_joules: f64,
}

#[derive(Debug, Serialize)]
struct KernelJson {
    name: String,
    seconds: f64,
    compute_seconds: f64,
    dram_seconds: f64,
    traffic_bytes: f64,
    blocks: usize,
    block_tiles: usize,
    held_bytes: f64,
}

/// The configurations at one set of sizes.
#[derive(Debug, Serialize)]
pub(super) struct PointsJson {
    study: String,
    accounting: String,
    sizes: BTreeMap<String, usize>,
    configurations: BTreeMap<String, PointJson>,
}

/// A whole study.
#[derive(Debug, Serialize)]
pub(super) struct WholeJson {
    study: String,
    accounting: String,
    rows: Vec<RowJson>,
    averages: BTreeMap<String, Vec<MeanJson>>,
    faults: Vec<EffectJson>,
    sweep: Vec<SweepJson>,
}

#[derive(Debug, Serialize)]
struct RowJson {
    workload: String,
    length: usize,
    configurations: BTreeMap<String, PointJson>,
}

#[derive(Debug, Serialize)]
struct MeanJson {
    ratio: String,
    arithmetic: f64,
    geometric: f64,
    published: Option<f64>,
}

#[derive(Debug, Serialize)]
struct EffectJson {
    corrected: Vec<String>,
    averages: Vec<MeanJson>,
}

#[derive(Debug, Serialize)]
struct SweepJson {
    workload: String,
    array: usize,
    #[serde(flatten)]
    cost: CostJson,
    dram_seconds: f64,
    area_square_metres: f64,
    published_area_square_metres: Option<f64>,
    on_front: bool,
}

/// The configurations at one set of sizes, as data. With layers, the costs are those of both together.
pub(super) fn points(study: &Study, sizes: &BTreeMap<String, usize>, points: &[Point], accounting: &str) -> PointsJson {
    PointsJson {
        study: study.name.clone(),
        accounting: accounting.to_owned(),
        sizes: sizes.clone(),
        configurations: by_name(points),
    }
}

impl Whole<'_> {
    /// As data.
    pub fn to_json(&self) -> WholeJson {
        let row = |r: &Row| RowJson {
            workload: r.workload.clone(),
            length: r.length,
            configurations: r.points.iter().map(|p| (p.configuration.clone(), point(p, false))).collect(),
        };
        let effect =
            |e: &Effect| EffectJson { corrected: e.corrected.clone(), averages: e.means.iter().map(mean).collect() };
        let averages = self.averages.iter().map(|(name, means)| (name.clone(), means.iter().map(mean).collect()));
        WholeJson {
            study: self.study.name.clone(),
            accounting: self.accounting.to_owned(),
            rows: self.rows.iter().map(row).collect(),
            averages: averages.collect(),
            faults: self.effects.iter().map(effect).collect(),
            sweep: self.sweep.iter().map(sweep).collect(),
        }
    }
}

fn by_name(points: &[Point]) -> BTreeMap<String, PointJson> {
    points.iter().map(|p| (p.configuration.clone(), point(p, true))).collect()
}

/// A point; with `both`, its costs are those of the cascade and of the layers together.
fn point(p: &Point, both: bool) -> PointJson {
    let e = &p.cascade;
    let kernel = |k: &einloom_spatial::KernelCost| KernelJson {
        name: k.name.clone(),
        seconds: k.seconds,
        compute_seconds: k.compute_seconds,
        dram_seconds: k.dram_seconds,
        traffic_bytes: k.traffic_bytes,
        blocks: k.blocks,
        block_tiles: k.block_tiles,
        held_bytes: k.held_bytes,
    };
    let einsum = |x: &einloom_spatial::EinsumCost| {
        let json = EinsumJson {
            array: x.array.clone(),
            cycles: x.cycles,
            utilisation: x.utilisation,
            compute_joules: x.energy.0,
        };
        (x.name.clone(), json)
    };
    PointJson {
        cost: cost(&p.totals(both)),
        energy: EnergyJson {
            compute: e.energy.compute,
            dram: e.energy.dram,
            buffer: e.energy.buffer,
            registers: e.energy.registers,
        },
        einsums: e.einsums.iter().map(einsum).collect(),
        kernels: e.kernels.iter().map(kernel).collect(),
        attention: p.layers.as_ref().filter(|_| both).map(|_| cost(&p.totals(false))),
        linear: p.layers.as_ref().map(cost),
        notes: e.notes.clone(),
    }
}

fn cost(t: &Totals) -> CostJson {
    let utilisation = t.busy_seconds.keys().map(|a| (format!("utilisation_{a}"), t.utilisation(a))).collect();
    CostJson { seconds: t.seconds, traffic_bytes: t.traffic_bytes, energy_joules: t.joules, utilisation }
}

fn mean(m: &Mean) -> MeanJson {
    MeanJson {
        ratio: m.ratio.title.clone(),
        arithmetic: m.arithmetic,
        geometric: m.geometric,
        published: m.ratio.published,
    }
}

fn sweep(p: &SweepPoint) -> SweepJson {
    SweepJson {
        workload: p.workload.clone(),
        array: p.array,
        cost: cost(&Totals::of(&p.cascade)),
        dram_seconds: p.cascade.kernels.iter().map(|k| k.dram_seconds).sum(),
        area_square_metres: p.area.0,
        published_area_square_metres: p.published_area.map(|a| a.0),
        on_front: p.on_front,
    }
}
