//! A kernel written down, with as many tiled axes as values allow.
//!
//! Where a tile would have too many axes an index gives way and the kernel is written again. Several wishes come to the same
//! tilings on the way, for one index after another gives way in each: what is written in a tiling follows from it alone, and is
//! tried once.

use crate::PlanError;
use crate::build::{Tried, Workshop};
use crate::cone::Cone;
use crate::cuts::{Roles, Style};
use crate::emit::{Fail, emit};
use crate::lost::Cost;
use crate::lower::lower;
use crate::template::kind;
use crate::tiling::Tiling;
use einloom_cascade::{DType, IndexId};
use einloom_tile::Kernel;
use std::collections::{BTreeMap, BTreeSet};

/// The tilings that a kernel of one cone was written in, and why it could not be in others.
#[derive(Debug, Default)]
pub(crate) struct Attempts(BTreeMap<Vec<(IndexId, u8, usize)>, Result<(), Fail>>);

impl Attempts {
    fn key(tiling: &Tiling) -> Vec<(IndexId, u8, usize)> {
        tiling.cuts.iter().map(|(&i, cut)| (i, kind(cut.kind), cut.tile)).collect()
    }
}

/// A kernel, whether it computes some reduction more often than once per element, and notes with number types of mixed factors.
type Text = (Kernel, bool, Vec<String>, BTreeSet<(DType, DType)>);

impl Workshop<'_> {
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
        self.emit_new(cone, roles, (style, tiles), name, &mut Attempts::default()).map(|found| found.0)
    }

    /// The same, and whether it is new: a kernel that was written already is left out.
    pub(crate) fn emit_new(
        &mut self,
        cone: &Cone,
        roles: &Roles,
        (style, tiles): (&Style, &BTreeMap<String, usize>),
        name: &str,
        attempts: &mut Attempts,
    ) -> Result<(Tried, bool), PlanError> {
        let mut demoted = BTreeSet::new();
        let (mut choice, mut crowded) = (false, false);
        let mut notes = vec![];
        loop {
            let tiling = roles.tiling(self.p, style, &demoted, tiles);
            let key = Attempts::key(&tiling);
            let known = attempts.0.get(&key).cloned();
            let is_new = known.is_none();
            let written = match known {
                Some(known) => known.map(|()| Text::default()),
                None => {
                    let written = self.written_in(cone, &tiling, name);
                    attempts.0.insert(key, written.as_ref().map(|_| ()).map_err(Fail::clone));
                    written
                }
            };
            match written {
                Ok((kernel, repeats, more, mixed)) => {
                    notes.extend(more);
                    let cost = Cost::default();
                    let gpu = None;
                    let tried = Tried { cost, kernel, tiling, demoted, choice, crowded, repeats, notes, mixed, gpu };
                    return Ok((tried, is_new));
                }
                Err(Fail::Unsupported(e)) => return Err(e),
                Err(Fail::TooManyAxes { indices, leaves }) => {
                    let names = self.names(&indices);
                    let [one, other] = [false, true].map(|first| roles.demote(self.p, &indices, &leaves, first));
                    choice |= one != other;
                    let Some(i) = (if style.parallel_first { other } else { one }).filter(|i| demoted.insert(*i))
                    else {
                        let reason = format!(
                            "a recurrence's state would be a tile with the axes {names}, and a tile has two; \
                             only indices that no step mixes can be visited one by one"
                        );
                        return Err(PlanError::unsupported(name, reason));
                    };
                    crowded |= !roles.inner.contains(&i) && indices.iter().any(|i| roles.inner.contains(i));
                    notes.push(format!("{} by 1: a tile would have the axes {names}", self.p[i].name));
                }
            }
        }
    }

    fn written_in(&mut self, cone: &Cone, tiling: &Tiling, name: &str) -> Result<Text, Fail> {
        let multiplied = self.multiplied();
        let lowered = lower(self.p, self.x, self.types, cone, tiling, multiplied);
        let (mut notes, mixed) = (lowered.notes.clone(), lowered.mixed.clone());
        // Where threads can agree to leave a multiplication out.
        let lag = self.machine.lanes.is_some();
        let (kernel, repeats, refused) = emit(self.p, self.x, self.types, cone, lowered, tiling, name, lag)?;
        notes.extend(refused);
        Ok((kernel, repeats, notes, mixed))
    }
}
