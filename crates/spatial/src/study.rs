//! A study: configurations of cascade, chip and binding, and the workloads to try them on.

mod effects;
mod read;
mod run;
mod sweep;

pub use effects::Effect;
pub use run::{Faults, Mean, Point, Row, Totals};
pub use sweep::{SweepPoint, area};

use crate::{Accounting, Binding, Chip, Problem, Program};
use einloom_machine::SquareMetres;
use std::collections::{BTreeMap, BTreeSet};

/// Gives a file's text, or says why not. Names are as the study writes them: relative to the study.
pub type Files<'a> = dyn FnMut(&str) -> Result<String, String> + 'a;

/// What is compared, and on what.
#[derive(Clone, Debug, PartialEq)]
pub struct Study {
    /// Its name.
    pub name: String,
    /// What it asks, for people.
    pub description: String,
    /// Ranks that the cascades do not have: instances of the cascade are their product.
    pub outer: Vec<String>,
    /// The accounting when none is asked for.
    pub accounting: String,
    /// What is compared.
    pub configurations: Vec<Configuration>,
    /// What it is tried on.
    pub workloads: Vec<Workload>,
    /// Ranks that all take each of `lengths`.
    pub length_ranks: Vec<String>,
    /// The lengths.
    pub lengths: Vec<usize>,
    /// The layers around the cascade, if the study has any.
    pub layers: Vec<Layer>,
    /// How they run, on every configuration's chip.
    pub linear: Option<Linear>,
    /// Ratios between configurations, averaged over all workloads and lengths.
    pub ratios: Vec<Ratio>,
    /// Sizes of arrays to try.
    pub sweep: Option<Sweep>,
}

/// One cascade on one chip under one binding.
#[derive(Clone, Debug, PartialEq)]
pub struct Configuration {
    /// Its name.
    pub name: String,
    /// What it is, for people.
    pub title: String,
    /// What is computed.
    pub program: Program,
    /// On what.
    pub chip: Chip,
    /// How.
    pub binding: Binding,
}

/// How the layers around the cascade run.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// The cascade of one layer.
    pub program: Program,
    /// How it runs.
    pub binding: Binding,
}

/// A model: sizes that do not depend on the length.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Sizes by rank.
    pub sizes: BTreeMap<String, usize>,
}

/// Equal layers around the cascade.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    /// Its name.
    pub name: String,
    /// How many of them.
    pub count: usize,
    /// By rank of the layer's cascade: ranks of the workload whose product is its size.
    pub sizes: BTreeMap<String, Vec<String>>,
}

/// A ratio of two configurations, averaged.
#[derive(Clone, Debug, PartialEq)]
pub struct Ratio {
    /// What it is, for people.
    pub title: String,
    /// What is compared.
    pub of: Quantity,
    /// Above the line: a configuration.
    pub numerator: String,
    /// Below the line: a configuration.
    pub denominator: String,
    /// With the layers around the cascade.
    pub end_to_end: bool,
    /// What was published, if anything.
    pub published: Option<f64>,
}

/// What a [`Ratio`] is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Time.
    Seconds,
    /// Energy.
    Joules,
}

/// Sizes of arrays to try on one configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// Which configuration.
    pub configuration: String,
    /// A binding in place of the configuration's.
    pub binding: Option<Binding>,
    /// What the ranks of the length are.
    pub length: usize,
    /// Sides of the arrays.
    pub arrays: Vec<usize>,
    /// Areas that were published.
    pub published: Vec<PublishedArea>,
}

/// The published area of a chip.
#[derive(Clone, Debug, PartialEq)]
pub struct PublishedArea {
    /// For this workload.
    pub workload: String,
    /// With arrays of this side.
    pub array: usize,
    /// Of the whole chip.
    pub area: SquareMetres,
}

impl Study {
    /// The configuration with this name.
    pub fn configuration(&self, name: &str) -> Option<&Configuration> {
        self.configurations.iter().find(|c| c.name == name)
    }

    /// The workload's sizes at a length.
    pub fn sizes(&self, workload: &Workload, length: usize) -> BTreeMap<String, usize> {
        let mut sizes = workload.sizes.clone();
        sizes.extend(self.length_ranks.iter().map(|r| (r.clone(), length)));
        sizes
    }

    /// How many instances of the cascade there are at these sizes.
    ///
    /// # Errors
    /// If the size of an outer rank is missing.
    pub fn instances(&self, sizes: &BTreeMap<String, usize>) -> Result<f64, Vec<Problem>> {
        let mut product = 1.0;
        for rank in &self.outer {
            let missing =
                || vec![Problem::new(rank, format!("the rank {rank} has no size")).hint(format!("give {rank}=…"))];
            product *= *sizes.get(rank).ok_or_else(missing)? as f64;
        }
        Ok(product)
    }
}

impl Configuration {
    /// The faults that an accounting keeps.
    ///
    /// # Errors
    /// If the chip knows no accounting of that name.
    pub fn faults(&self, accounting: &str) -> Result<BTreeSet<String>, Vec<Problem>> {
        if let Some(Accounting { faults, .. }) = self.chip.accountings.get(accounting) {
            return Ok(faults.iter().cloned().collect());
        }
        let all: Vec<&str> = self.chip.accountings.keys().map(String::as_str).collect();
        let message = format!("the chip {} has no accounting `{accounting}`", self.chip.name);
        Err(vec![Problem::new("accounting", message).hint(format!("it has {}", all.join(", ")))])
    }
}

impl Layer {
    /// The sizes of the layer's cascade.
    ///
    /// # Errors
    /// If the size of a rank is missing.
    pub fn sizes(&self, sizes: &BTreeMap<String, usize>) -> Result<BTreeMap<String, usize>, Vec<Problem>> {
        let mut out = BTreeMap::new();
        for (rank, factors) in &self.sizes {
            let mut product = 1usize;
            for factor in factors {
                let missing = || {
                    let message = format!("the rank {factor} of the layers has no size");
                    vec![Problem::new(factor, message).hint(format!("give {factor}=…"))]
                };
                let size = *sizes.get(factor).ok_or_else(missing)?;
                product = product
                    .checked_mul(size)
                    .ok_or_else(|| vec![Problem::new(&self.name, format!("{rank} is too large to count"))])?;
            }
            out.insert(rank.clone(), product);
        }
        Ok(out)
    }
}
