//! How known faults of published counts move a study's averages, one by one and together.

use super::{Configuration, Mean, Study};
use crate::Problem;
use std::collections::BTreeSet;

/// The averages with some faults corrected.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// The faults that are corrected; all others of the accounting are kept.
    pub corrected: Vec<String>,
    /// The study's ratios then.
    pub means: Vec<Mean>,
}

impl Study {
    /// The averages as an accounting gives them, then with each of its faults corrected alone, then with all of them.
    ///
    /// # Errors
    /// An accounting that a chip does not have, and every reason why the inputs do not fit together.
    pub fn effects(&self, accounting: &str) -> Result<Vec<Effect>, Vec<Problem>> {
        let faults = self.faults(accounting)?;
        let mut corrections: Vec<Vec<String>> = vec![vec![]];
        corrections.extend(faults.iter().map(|f| vec![f.clone()]));
        if faults.len() > 1 {
            corrections.push(faults);
        }
        let effect = |corrected: Vec<String>| {
            let kept = |c: &Configuration| {
                let mut kept: BTreeSet<String> = c.faults(accounting)?;
                kept.retain(|f| !corrected.contains(f));
                Ok(kept)
            };
            let means = self.means(&self.rows(&kept)?);
            Ok(Effect { corrected, means })
        };
        corrections.into_iter().map(effect).collect()
    }

    /// Every fault that an accounting keeps in some configuration, in the order of the chips.
    ///
    /// # Errors
    /// An accounting that a chip does not have.
    pub fn faults(&self, accounting: &str) -> Result<Vec<String>, Vec<Problem>> {
        let mut all = vec![];
        for c in &self.configurations {
            c.faults(accounting)?;
            for fault in c.chip.accountings.get(accounting).iter().flat_map(|a| &a.faults) {
                if !all.contains(fault) {
                    all.push(fault.clone());
                }
            }
        }
        Ok(all)
    }

    /// What a fault is, for people.
    pub fn describe_fault(&self, name: &str) -> &str {
        let chips = self.configurations.iter().filter_map(|c| c.chip.faults.get(name)).map(|f| f.description.as_str());
        let bindings = self.configurations.iter().filter_map(|c| c.binding.faults.get(name));
        chips.chain(bindings.map(|f| f.description.as_str())).next().unwrap_or("")
    }

    /// The accountings that all chips know.
    pub fn accountings(&self) -> Vec<String> {
        let Some(first) = self.configurations.first() else { return vec![] };
        let everywhere = |name: &&String| self.configurations.iter().all(|c| c.chip.accountings.contains_key(*name));
        first.chip.accountings.keys().filter(everywhere).cloned().collect()
    }

    /// Every rank that a size may be given for.
    pub fn ranks(&self) -> BTreeSet<String> {
        let mut all: BTreeSet<String> = self.outer.iter().chain(&self.length_ranks).cloned().collect();
        for c in &self.configurations {
            all.extend(c.program.graph.cascade.ranks.iter().map(|r| r.name.clone()));
        }
        all.extend(self.layer_ranks());
        all
    }

    /// Every rank that the sizes of the layers are made of.
    pub fn layer_ranks(&self) -> BTreeSet<String> {
        self.layers.iter().flat_map(|l| l.sizes.values().flatten()).cloned().collect()
    }
}
