//! Energy of a kernel: what moving its bytes and doing its arithmetic takes, as far as the machine's description tells.

use crate::transfers::LevelTransfers;
use crate::work::Work;
use einloom_cascade::DType;
use einloom_machine::{Bytes, Level, Machine, Work as Kind};
use std::collections::BTreeMap;

/// Energy by level and pipe.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Energy {
    /// Joules by the names of levels and pipes, for those whose figures are known.
    pub known: Vec<(String, f64)>,
    /// Levels, and pipes with the number type, that are used and for which the machine has no figure.
    pub unknown: Vec<String>,
}

impl Energy {
    pub(crate) fn new(machine: &Machine, trunk: &[&Level], levels: &[LevelTransfers], work: &Work) -> Self {
        let mut out = Self::default();
        for (level, moved) in trunk.iter().zip(levels).filter(|(_, moved)| moved.bytes > 0) {
            match level.energy {
                Some(each) => out.known.push((level.name.clone(), (Bytes(moved.bytes) * each).0)),
                None => out.unknown.push(level.name.clone()),
            }
        }
        let mut pipes: BTreeMap<String, f64> = BTreeMap::new();
        for (kind, dtype, operations) in work.by_pipe() {
            // Products that no unit takes are multiplied and added one by one.
            let lone = || machine.pipe(Kind::Arithmetic, dtype).filter(|_| kind == Kind::Products);
            let Some(pipe) = machine.pipe(kind, dtype).or_else(lone) else {
                out.unknown.push(format!("{} in {dtype}", kind.name()));
                continue;
            };
            // What no pipe computes as it is, is computed in f32.
            let dtype = if pipe.rates.contains_key(&dtype) { dtype } else { DType::F32 };
            match pipe.energy.get(&dtype) {
                Some(each) => *pipes.entry(pipe.name.clone()).or_default() += operations * each.0,
                None => out.unknown.push(format!("{} in {dtype}", pipe.name)),
            }
        }
        out.known.extend(pipes);
        out.unknown.sort();
        out.unknown.dedup();
        out
    }

    /// All of it; `None` where some part is unknown.
    pub fn joules(&self) -> Option<f64> {
        self.unknown.is_empty().then(|| self.known_joules())
    }

    /// What is known of it: a lower bound.
    pub fn known_joules(&self) -> f64 {
        // A sum of nothing is not less than nothing.
        self.known.iter().map(|k| k.1).fold(0.0, |a, b| a + b)
    }
}
