//! Other sides of the arrays on the same area.

use super::{Found, Search, Wanted, lag, seek};
use crate::{Chip, Problem};
use einloom_machine::SquareMetres;

/// A chip with other sides, and the best binding for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Split {
    /// The chip.
    pub chip: Chip,
    /// Of its arrays.
    pub area: SquareMetres,
    /// The best binding.
    pub best: Found,
}

/// The chip with each number of rows that is a power of two, and as many columns as its arrays' area allows; the lanes
/// of one-dimensional arrays are as many as the columns, twice as many, or half. The best first; sides that no binding
/// fits are left out.
///
/// # Errors
/// If there is no binding for the chip itself.
pub fn splits(wanted: &Wanted<'_>) -> Result<Vec<Split>, Vec<Problem>> {
    let area = |chip: &Chip| chip.arrays.iter().map(|a| chip.array_area(a).0).sum::<f64>();
    let budget = area(wanted.chip);
    let own = seek(wanted)?;
    let mut out: Vec<Split> =
        first(wanted.chip.clone(), own).map(|(chip, best)| split(chip, best)).into_iter().collect();
    let elements: usize = wanted.chip.arrays.iter().map(|a| a.elements()).sum();
    let mut rows = 8;
    while rows <= elements {
        for (times, over) in [(1, 1), (2, 1), (1, 2)] {
            let Some(chip) = widest(wanted.chip, rows, (times, over), budget, &area) else { continue };
            if let Ok(found) = seek(&Wanted { chip: &chip, ..*wanted }) {
                out.extend(first(chip, found).map(|(chip, best)| split(chip, best)));
            }
        }
        rows *= 2;
    }
    out.sort_by(|a, b| a.best.evaluation.seconds.total_cmp(&b.best.evaluation.seconds));
    // Lags change no closed form: only the best one needs them.
    if let Some(split) = out.first_mut() {
        lag(&Wanted { chip: &split.chip, ..*wanted }, &mut split.best);
    }
    Ok(out)
}

fn first(chip: Chip, search: Search) -> Option<(Chip, Found)> {
    search.found.into_iter().next().map(|found| (chip, found))
}

fn split(chip: Chip, best: Found) -> Split {
    let area = SquareMetres(chip.arrays.iter().map(|a| chip.array_area(a).0).sum());
    Split { chip, area, best }
}

/// The chip with so many rows and the most columns that the area allows.
fn widest(chip: &Chip, rows: usize, lanes: (usize, usize), budget: f64, area: &dyn Fn(&Chip) -> f64) -> Option<Chip> {
    let with = |columns: usize| {
        let mut out = chip.clone();
        for array in &mut out.arrays {
            if array.rows > 1 {
                (array.rows, array.columns) = (rows, columns);
            } else {
                array.columns = (columns * lanes.0 / lanes.1).max(1);
            }
        }
        out
    };
    let one = area(&with(1)).max(f64::MIN_POSITIVE);
    let (mut low, mut high) = (0, (budget / one) as usize + 2);
    while low + 1 < high {
        let middle = usize::midpoint(low, high);
        if area(&with(middle)) <= budget { low = middle } else { high = middle }
    }
    (low > 0).then(|| with(low))
}
