//! What only matters where a condition holds for some row: a warp in whose rows it does not hold leaves it out.
//!
//! The planner writes anchors that lag behind so: a condition per row, states that are replaced `where(condition, …, old)`,
//! and a factor `where(condition, …, 1)` by which other states are multiplied. Where the condition holds nowhere, all of
//! that changes nothing, so that leaving it out is exact; what is computed for it alone is left out too. Nothing here
//! asks what the condition means.
//!
//! Conditions: all tiles lie in registers of one frame of fragments, whose warps own whole rows; and some state that is
//! multiplied has more axes than the condition, else there is nothing to save.

use super::element::Emitter;
use crate::schedule::facts::{Facts, Use, written};
use crate::schedule::{Made, Schedule};
use einloom_cascade::{BinaryOp, DType};
use einloom_tile::{Op, Scalar, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// For every tile that is made only where a condition holds somewhere: the condition.
pub(super) fn find(facts: &Facts<'_>, schedule: &Schedule) -> BTreeMap<ValueId, ValueId> {
    let mut out = BTreeMap::new();
    bodies(facts, schedule, &facts.kernel.body, &mut out);
    out
}

fn bodies(facts: &Facts<'_>, schedule: &Schedule, body: &[Op], out: &mut BTreeMap<ValueId, ValueId>) {
    for op in body {
        match op {
            Op::Stream { body, .. } => bodies(facts, schedule, body, out),
            Op::Map { dst, .. } if facts.dtype(*dst) == DType::B1 => {
                let found = Region { facts, schedule, body, condition: *dst }.members();
                out.extend(found.into_iter().map(|v| (v, *dst)));
            }
            _ => {}
        }
    }
}

/// The operations of one body that depend on one condition.
struct Region<'a> {
    facts: &'a Facts<'a>,
    schedule: &'a Schedule,
    body: &'a [Op],
    condition: ValueId,
}

impl Region<'_> {
    fn members(&self) -> BTreeSet<ValueId> {
        let mut found: BTreeSet<ValueId> = BTreeSet::new();
        let mut larger = false;
        for (dst, expr) in self.maps() {
            let Scalar::Select(c, _, otherwise) = expr else { continue };
            if **c != Scalar::Tile(self.condition) {
                continue;
            }
            match &**otherwise {
                Scalar::Tile(state) if self.replaces(dst, *state) => {
                    found.insert(dst);
                }
                Scalar::Const(1.0) => {
                    let Some(scaled) = self.scaled_by(dst) else { continue };
                    larger |= scaled.iter().any(|v| self.facts.axes(*v).len() > self.facts.axes(dst).len());
                    found.insert(dst);
                    found.extend(scaled);
                }
                _ => {}
            }
        }
        if !larger {
            return BTreeSet::new();
        }
        // What nobody else reads.
        loop {
            let before = found.len();
            for (dst, _) in self.maps() {
                if dst != self.condition && self.readers(dst).is_some_and(|r| r.iter().all(|v| found.contains(v))) {
                    found.insert(dst);
                }
            }
            if found.len() == before {
                break;
            }
        }
        let frame = self.schedule.home(self.condition).made;
        let here = |v: &ValueId| self.schedule.home(*v).made == frame && !self.schedule.packed.contains(v);
        let Made::Registers(f) = frame else { return BTreeSet::new() };
        let whole = self.schedule.frame(f).is_fragment() && !self.schedule.inlined.contains(&self.condition);
        if whole && found.iter().all(here) { found } else { BTreeSet::new() }
    }

    fn maps(&self) -> impl Iterator<Item = (ValueId, &Scalar)> {
        self.body.iter().filter_map(|op| match op {
            Op::Map { dst, expr } => Some((*dst, expr)),
            _ => None,
        })
    }

    /// Whether a tile lives in a state's registers.
    fn replaces(&self, dst: ValueId, state: ValueId) -> bool {
        self.place(dst) == self.place(state) && dst != state
    }

    fn place(&self, v: ValueId) -> ValueId {
        self.schedule.in_place.get(&v).copied().unwrap_or(v)
    }

    /// The tiles that are states times the factor, if nothing else is made of it.
    fn scaled_by(&self, factor: ValueId) -> Option<Vec<ValueId>> {
        let readers = self.readers(factor)?;
        let scales = |v: &ValueId| {
            self.maps().any(|(dst, expr)| match expr {
                Scalar::Binary(BinaryOp::Mul, a, b) if dst == *v => match (&**a, &**b) {
                    (Scalar::Tile(state), Scalar::Tile(f)) => *f == factor && self.replaces(dst, *state),
                    _ => false,
                },
                _ => false,
            })
        };
        readers.iter().all(scales).then_some(readers)
    }

    /// The maps of this body that read a tile, if nothing else does; `None` too if nobody does.
    fn readers(&self, v: ValueId) -> Option<Vec<ValueId>> {
        let inside = |d: &ValueId| self.body.iter().any(|op| written(op) == Some(*d));
        let map = |u: &Use| match u {
            Use::Leaf(d) if inside(d) => Some(*d),
            _ => None,
        };
        let all: Option<Vec<ValueId>> = self.facts.uses[v.at()].iter().map(map).collect();
        all.filter(|r| !r.is_empty())
    }
}

impl Emitter<'_> {
    /// After a condition: whether it holds anywhere in the warp, and registers for what depends on it.
    pub fn ask_warp(&mut self, condition: ValueId) {
        let members: Vec<ValueId> = self.rare.iter().filter(|r| *r.1 == condition).map(|r| *r.0).collect();
        let Some(f) = self.frame_of(condition).filter(|_| !members.is_empty()) else { return };
        for v in members {
            self.rare_declared.remove(&v);
            if !self.schedule.inlined.contains(&v) {
                self.declare(v, self.frame_of(v));
                self.rare_declared.insert(v);
            }
        }
        let name = self.names.value(condition).to_string();
        self.w.line(format!("bool {name}_own = false;"));
        let loops = self.each_element(condition, Some(f));
        let element = self.element(condition, Some(f));
        self.w.line(format!("{name}_own |= {element} != 0.0f;"));
        self.close(loops);
        self.w.line(format!("const bool {name}_any = warp_any({name}_own);"));
    }

    /// Before an operation (or the end of some): begins and ends what only warps do in which the condition holds.
    pub fn rarely(&mut self, op: Option<&Op>, open: &mut Option<ValueId>) {
        let wanted = op.and_then(written).and_then(|v| self.rare.get(&v).copied());
        if *open == wanted {
            return;
        }
        if open.take().is_some() {
            self.w.close("");
        }
        if let Some(condition) = wanted {
            self.w.open(format!("if ({}_any)", self.names.value(condition)));
        }
        *open = wanted;
    }
}
