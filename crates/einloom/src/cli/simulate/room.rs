//! A simulation with the registers that the binding needs, where the chip has too few for it to run at all.

use einloom_cascade::meaning::Arrays;
use einloom_spatial::{Options, Problem, Setting, Simulated};

/// More registers than any binding needs.
const PLENTY: usize = 1 << 24;

/// Simulates; where a binding waits for itself for ever, with as many registers as it uses, which the notes say.
/// `options` are those of the run that ended.
///
/// # Errors
/// As [`einloom_spatial::simulate`].
pub(in crate::cli) fn simulate(
    setting: &Setting<'_>,
    options: &mut Options,
    inputs: Option<&[Arrays]>,
    progress: &mut dyn FnMut(f64),
) -> Result<(Simulated, Vec<String>), Vec<Problem>> {
    let first = einloom_spatial::simulate(setting, options, inputs, progress);
    let Err(problems) = first else { return first.map(|run| (run, vec![])) };
    let chip = setting.chip;
    let mut more = options.clone();
    more.registers.extend(chip.arrays.iter().map(|a| (a.name.clone(), PLENTY)));
    let Ok(run) = einloom_spatial::simulate(setting, &more, inputs, progress) else { return Err(problems) };
    let mut notes = vec![];
    for array in run.kernels.iter().flat_map(|k| &k.arrays) {
        let entries = chip.array(&array.name).and_then(|a| a.element.registers).map(|r| r.entries);
        let entries = options.registers.get(&array.name).copied().or(entries);
        if let Some(entries) = entries.filter(|&n| n < array.registers as usize) {
            notes.push(format!(
                "with {entries} registers in an element of {} the binding waits for itself for ever; here it has the {} \
                 that it uses",
                array.name, array.registers
            ));
        }
    }
    *options = more;
    Ok((run, notes))
}
