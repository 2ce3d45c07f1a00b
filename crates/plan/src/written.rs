//! A kernel written down, with as many tiled axes as values allow.
//!
//! Where a tile would have too many axes an index gives way and the kernel is written again. Several wishes come to the same
//! tilings on the way, for one index after another gives way in each: what is written in a tiling follows from it alone, and is
//! tried once. Whether an index is streamed or whole makes no difference to most reductions, which are lowered once for both.

use crate::PlanError;
use crate::build::{Tried, Workshop};
use crate::cone::Cone;
use crate::cuts::{Roles, Style};
use crate::emit::{Fail, emit};
use crate::expr::{Expr, Exprs};
use crate::lost::Cost;
use crate::lower::{LoweredCone, lower};
use crate::template::{Shape, kind, shape};
use crate::tiling::{Cut, Tiling};
use einloom_cascade::{DType, IndexId};
use einloom_tile::Kernel;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// What reductions ask of a tiling: of each index whether tiles have a side along it, and how it is cut if conditions mention it.
type Asked = Vec<(IndexId, bool, Option<u8>)>;

/// What is known of the kernels of one cone.
#[derive(Clone, Default)]
pub(crate) struct Attempts {
    /// By how tilings cut indices: whether a kernel was written in such a one, or why it could not be.
    written: BTreeMap<Shape, Result<(), Fail>>,
    /// Reductions by what they ask of tilings.
    lowered: BTreeMap<Asked, Arc<LoweredCone>>,
    /// The indices that conditions mention.
    conditions: Option<BTreeSet<IndexId>>,
}

impl Attempts {
    /// What is known of reductions, for kernels that are written once more.
    pub(crate) fn again(&self) -> Self {
        Self { written: BTreeMap::new(), ..self.clone() }
    }

    /// Whether no reduction was lowered yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.lowered.is_empty()
    }
}

impl fmt::Debug for Attempts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempts").field("written", &self.written).finish_non_exhaustive()
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
        self.emit_knowing(cone, roles, (style, tiles), name, &mut Attempts::default())
    }

    /// The same with what is known of the cone.
    pub(crate) fn emit_knowing(
        &mut self,
        cone: &Cone,
        roles: &Roles,
        wish: (&Style, &BTreeMap<String, usize>),
        name: &str,
        attempts: &mut Attempts,
    ) -> Result<Tried, PlanError> {
        self.emit_once(cone, roles, wish, name, attempts, false).map(|found| found.0)
    }

    /// The same, and whether it is new: a kernel that was written already may be left out.
    pub(crate) fn emit_once(
        &mut self,
        cone: &Cone,
        roles: &Roles,
        (style, tiles): (&Style, &BTreeMap<String, usize>),
        name: &str,
        attempts: &mut Attempts,
        once: bool,
    ) -> Result<(Tried, bool), PlanError> {
        let (mut demoted, mut rivals) = (BTreeSet::new(), BTreeSet::new());
        let (mut choice, mut crowded) = (false, false);
        let mut notes = vec![];
        loop {
            let tiling = roles.tiling(self.p, style, &demoted, tiles);
            let key = shape(false, &tiling);
            let known = attempts.written.get(&key).cloned().filter(|known| once || known.is_err());
            let is_new = known.is_none();
            let written = match known {
                Some(known) => known.map(|()| Text::default()),
                None => {
                    let written = self.written_in(cone, &tiling, name, attempts);
                    attempts.written.insert(key, written.as_ref().map(|_| ()).map_err(Fail::clone));
                    written
                }
            };
            match written {
                Ok((kernel, repeats, more, mixed)) => {
                    notes.extend(more);
                    let cost = Cost::default();
                    let gpu = None;
                    let tried =
                        Tried { cost, kernel, tiling, demoted, choice, crowded, rivals, repeats, notes, mixed, gpu };
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
                    rivals.extend(roles.rivals(self.p, i, &indices, &leaves));
                    crowded |= !roles.inner.contains(&i) && indices.iter().any(|i| roles.inner.contains(i));
                    notes.push(format!("{} by 1: a tile would have the axes {names}", self.p[i].name));
                }
            }
        }
    }

    fn written_in(&mut self, cone: &Cone, tiling: &Tiling, name: &str, attempts: &mut Attempts) -> Result<Text, Fail> {
        let conditions = attempts.conditions.get_or_insert_with(|| self.in_conditions(cone));
        let one = |(&i, cut): (&IndexId, &Cut)| (i, tiling.tiled(i), conditions.contains(&i).then(|| kind(cut.kind)));
        let key = tiling.cuts.iter().map(one).collect();
        let products = self.multiplied();
        let lower = || Arc::new(lower(self.p, self.x, self.types, cone, tiling, products));
        let lowered = LoweredCone::clone(attempts.lowered.entry(key).or_insert_with(lower));
        let (mut notes, mixed) = (lowered.notes.clone(), lowered.mixed.clone());
        // Where threads can agree to leave a multiplication out.
        let lag = self.machine.lanes.is_some();
        let (kernel, repeats, refused) = emit(self.p, self.x, self.types, cone, lowered, tiling, name, lag)?;
        notes.extend(refused);
        Ok((kernel, repeats, notes, mixed))
    }

    /// The indices that conditions of a cone mention, and those whose loops see to conditions.
    fn in_conditions(&self, cone: &Cone) -> BTreeSet<IndexId> {
        let mut out: BTreeSet<IndexId> = self.p.spans.iter().map(|s| s.over).collect();
        let (mut todo, mut seen) = (cone.tops(), BTreeSet::new());
        while let Some(e) = todo.pop() {
            if !seen.insert(e) {
                continue;
            }
            match self.x.get(e) {
                Expr::Within(all) => out.extend(all.iter().flat_map(|form| form.terms.keys())),
                Expr::Read(_, at) => at.iter().for_each(|c| Exprs::coordinate_values(c, &mut |v| todo.push(v))),
                _ => todo.extend(self.x.children(e)),
            }
        }
        out
    }
}
