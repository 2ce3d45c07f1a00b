//! Evaluates a study: every configuration on every workload at every length.

use super::{Configuration, Quantity, Ratio, Study};
use crate::{Evaluation, Problem, Setting, evaluate};
use std::collections::{BTreeMap, BTreeSet};

/// The cost of the cascade, of the layers around it, or of both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Time.
    pub seconds: f64,
    /// Between DRAM and the chip.
    pub traffic_bytes: f64,
    /// Energy.
    pub joules: f64,
    /// By array: time in which it computes.
    pub busy_seconds: BTreeMap<String, f64>,
}

/// One configuration on one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The configuration.
    pub configuration: String,
    /// The cascade.
    pub cascade: Evaluation,
    /// The layers around it, all of them; `None` if sizes for them are missing.
    pub layers: Option<Totals>,
}

/// All configurations on one workload at one length.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The workload.
    pub workload: String,
    /// The length.
    pub length: usize,
    /// In the study's order.
    pub points: Vec<Point>,
}

/// A mean of ratios.
#[derive(Clone, Debug, PartialEq)]
pub struct Mean {
    /// What it is of.
    pub ratio: Ratio,
    /// Arithmetic mean over all rows.
    pub arithmetic: f64,
    /// Geometric mean over all rows.
    pub geometric: f64,
}

/// Which faults are kept in a configuration, given its name.
pub type Faults<'a> = dyn Fn(&Configuration) -> Result<BTreeSet<String>, Vec<Problem>> + 'a;

impl Totals {
    /// The totals of an evaluation.
    pub fn of(e: &Evaluation) -> Self {
        let busy_seconds = e.utilisation.iter().map(|(a, u)| (a.clone(), u * e.seconds)).collect();
        Self { seconds: e.seconds, traffic_bytes: e.traffic_bytes, joules: e.energy.total(), busy_seconds }
    }

    /// Adds the same costs `times` times.
    pub fn add(&mut self, other: &Self, times: f64) {
        self.seconds += other.seconds * times;
        self.traffic_bytes += other.traffic_bytes * times;
        self.joules += other.joules * times;
        for (array, seconds) in &other.busy_seconds {
            *self.busy_seconds.entry(array.clone()).or_default() += seconds * times;
        }
    }

    /// The part of the time in which an array computes.
    pub fn utilisation(&self, array: &str) -> f64 {
        let busy = self.busy_seconds.get(array).copied().unwrap_or(0.0);
        if self.seconds > 0.0 { busy / self.seconds } else { 0.0 }
    }
}

impl Point {
    /// The cascade alone, or with the layers around it.
    pub fn totals(&self, end_to_end: bool) -> Totals {
        let mut totals = Totals::of(&self.cascade);
        if let Some(layers) = self.layers.as_ref().filter(|_| end_to_end) {
            totals.add(layers, 1.0);
        }
        totals
    }
}

impl Configuration {
    /// The cost of the cascade at these sizes.
    ///
    /// # Errors
    /// Every reason why the inputs do not fit together.
    pub fn evaluate(
        &self,
        study: &Study,
        sizes: &BTreeMap<String, usize>,
        faults: &BTreeSet<String>,
    ) -> Result<Evaluation, Vec<Problem>> {
        let instances = study.instances(sizes)?;
        let (program, chip, binding) = (&self.program, &self.chip, &self.binding);
        evaluate(&Setting { program, chip, binding, sizes, instances, faults })
    }

    /// The cost of the layers around the cascade at these sizes.
    ///
    /// # Errors
    /// Missing sizes, and every reason why the inputs do not fit together.
    pub fn layers(
        &self,
        study: &Study,
        sizes: &BTreeMap<String, usize>,
        faults: &BTreeSet<String>,
    ) -> Result<Totals, Vec<Problem>> {
        let mut sum = Totals::default();
        let Some(linear) = &study.linear else { return Ok(sum) };
        for layer in &study.layers {
            let sizes = layer.sizes(sizes)?;
            let (program, chip, binding) = (&linear.program, &self.chip, &linear.binding);
            let one = evaluate(&Setting { program, chip, binding, sizes: &sizes, instances: 1.0, faults })?;
            sum.add(&Totals::of(&one), layer.count as f64);
        }
        Ok(sum)
    }
}

impl Study {
    /// Every configuration at these sizes, with the layers around the cascade if `layers`.
    ///
    /// # Errors
    /// Every reason why the inputs do not fit together.
    pub fn points(
        &self,
        sizes: &BTreeMap<String, usize>,
        layers: bool,
        faults: &Faults<'_>,
    ) -> Result<Vec<Point>, Vec<Problem>> {
        let mut points = vec![];
        for c in &self.configurations {
            let kept = faults(c)?;
            let in_configuration =
                |problems: Vec<Problem>| problems.into_iter().map(|p| p.within(&c.name)).collect::<Vec<_>>();
            let cascade = c.evaluate(self, sizes, &kept).map_err(in_configuration)?;
            let layers = if layers { Some(c.layers(self, sizes, &kept).map_err(in_configuration)?) } else { None };
            points.push(Point { configuration: c.name.clone(), cascade, layers });
        }
        Ok(points)
    }

    /// Every workload at every length.
    ///
    /// # Errors
    /// Every reason why the inputs do not fit together.
    pub fn rows(&self, faults: &Faults<'_>) -> Result<Vec<Row>, Vec<Problem>> {
        let mut rows = vec![];
        for w in &self.workloads {
            for &length in &self.lengths {
                let points = self.points(&self.sizes(w, length), self.linear.is_some(), faults)?;
                rows.push(Row { workload: w.name.clone(), length, points });
            }
        }
        Ok(rows)
    }

    /// The study's ratios, averaged over rows.
    pub fn means(&self, rows: &[Row]) -> Vec<Mean> {
        let mean = |ratio: &Ratio| {
            let values: Vec<f64> = rows.iter().filter_map(|row| ratio.value(row)).collect();
            let n = values.len().max(1) as f64;
            let arithmetic = values.iter().sum::<f64>() / n;
            let geometric = (values.iter().map(|v| v.ln()).sum::<f64>() / n).exp();
            Mean { ratio: ratio.clone(), arithmetic, geometric }
        };
        self.ratios.iter().map(mean).collect()
    }
}

impl Ratio {
    /// Its value on one workload at one length.
    pub fn value(&self, row: &Row) -> Option<f64> {
        let quantity = |name: &str| {
            let totals = row.points.iter().find(|p| p.configuration == name)?.totals(self.end_to_end);
            Some(match self.of {
                Quantity::Seconds => totals.seconds,
                Quantity::Joules => totals.joules,
            })
        };
        Some(quantity(&self.numerator)? / quantity(&self.denominator)?)
    }
}
