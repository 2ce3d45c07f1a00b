//! Arrays of other sizes: time against area.

use super::{Faults, Study};
use crate::{Chip, Evaluation, Problem};
use einloom_machine::SquareMetres;

/// One size of the arrays on one workload.
#[derive(Clone, Debug, PartialEq)]
pub struct SweepPoint {
    /// The workload.
    pub workload: String,
    /// The longest side of the arrays.
    pub array: usize,
    /// What the cascade costs.
    pub cascade: Evaluation,
    /// Of arrays, and of a buffer that holds what is held.
    pub area: SquareMetres,
    /// What was published for this size, if anything.
    pub published_area: Option<SquareMetres>,
    /// No other size of the sweep is faster on less area.
    pub on_front: bool,
}

impl Study {
    /// The study's sweep: nothing if it has none.
    ///
    /// # Errors
    /// Every reason why the inputs do not fit together.
    pub fn sweep(&self, faults: &Faults<'_>) -> Result<Vec<SweepPoint>, Vec<Problem>> {
        let Some(sweep) = &self.sweep else { return Ok(vec![]) };
        let Some(base) = self.configuration(&sweep.configuration) else { return Ok(vec![]) };
        let kept = faults(base)?;
        let mut points = vec![];
        for w in &self.workloads {
            let sizes = self.sizes(w, sweep.length);
            let mut own = vec![];
            for &array in &sweep.arrays {
                let mut c = base.clone();
                c.chip = base.chip.with_array(array);
                c.binding = sweep.binding.clone().unwrap_or(c.binding);
                let cascade = c.evaluate(self, &sizes, &kept)?;
                let area = area(&c.chip, &cascade);
                let published_area = sweep.published.iter().find(|p| p.workload == w.name && p.array == array);
                let published_area = published_area.map(|p| p.area);
                own.push(SweepPoint { workload: w.name.clone(), array, cascade, area, published_area, on_front: true });
            }
            let costs: Vec<(f64, f64)> = own.iter().map(|p| (p.area.0, p.cascade.seconds)).collect();
            for (point, &(area, seconds)) in own.iter_mut().zip(&costs) {
                let better = |&(a, s): &(f64, f64)| a <= area && s <= seconds && (a < area || s < seconds);
                point.on_front = !costs.iter().any(better);
            }
            points.extend(own);
        }
        Ok(points)
    }
}

/// The area of a chip's arrays and of a buffer no larger than it must be.
pub fn area(chip: &Chip, cascade: &Evaluation) -> SquareMetres {
    let arrays: f64 = chip.arrays.iter().map(|a| chip.array_area(a).0).sum();
    let held = cascade.kernels.iter().map(|k| k.held_bytes).fold(0.0, f64::max);
    SquareMetres(arrays + held * chip.buffer.area_per_byte.0)
}
