//! Reductions in shares: split-K for products, flash-decoding for attention, one kernel of partial sums for a vector's norm.
//!
//! A kernel whose grid has few points leaves cores idle for as long as it streams, or has small tiles. Then what it
//! reduces over `n` is reduced for every share `n_share` of `n` by itself, the *partial states* go through memory, and a second
//! reduction over the shares `n_joined` joins them: partial states are moved to the joint anchors as a stream's state is when
//! its anchors move, which is what `merge` of a streaming form says. Whether it is worth that is decided by what is predicted.
//!
//! Conditions, without which a reduction stays in one piece: it is in no recurrence, and the index is no recurrence's; all
//! reductions whose running values it reads, and all that read its own, are in shares with it, over the same indices.

use crate::begun::{Depth, Maker};
use crate::build::{Built, time};
use crate::drawn::Draw;
use crate::expr::{Expr, ExprId, Exprs, Linear};
use crate::indices::{Indices, Roots, unknown};
use crate::problem::{Fold, Index, Item, ItemDef, Problem};
use crate::{Lost, Plan, PlanError, Work};
use einloom_algebra::NodeId;
use einloom_cascade::{BinaryOp, IndexId, Role};
use einloom_machine::Machine;
use einloom_tile::{AxisKind, grid_points};
use std::collections::{BTreeMap, BTreeSet};

mod partial;

use partial::Partial;

/// What shares must save of the predicted time: the model may err by as much.
const WORTH_SHARES: f64 = 0.9;
/// Points of the grid that are aimed at, in multiples of the cores. A kernel for shares may have fewer points
/// for each than the one it takes the place of.
const WAVES: [usize; 5] = [1, 2, 4, 8, 16];
/// Counts of shares that are looked at besides, powers of two up to this one: they divide most lengths into equal parts.
const HALVINGS: u32 = 5;
/// Lengths of shares, one longer than the other by no more than this part of it, of which one is looked at.
const ALIKE: usize = 5;
/// Points of the grid for each core, below which shares are looked at: so few are a few waves, and their tiles may be
/// small for no other reason than that there are not fewer.
const FEW: usize = 4;
/// What lanes take of their time in tiles that are not small for want of points: an estimate of what they may save.
const IN_LARGER_TILES: f64 = 0.5;
/// Lengths that are looked at together.
const AT_ONCE: usize = 2;
/// Lengths in turn that are slower than one before, after which shorter ones are not looked at, and longer ones: of these cores are idle for longer.
const SLOWER: [usize; 2] = [3, 2];
/// Times the best, beyond which a division is not looked at with other lengths.
const FAR: f64 = 1.25;
/// Times the best with shares of one index, beyond which shares of another are not told.
const HOPELESS: f64 = 2.0;
/// Positions of a share at least, over all indices of its reductions: a tile of a matrix unit, or a line of a cache.
const LEAST: usize = 64;
/// Parts of a share that its length is rounded to, so that tiles divide it.
const ROUND: usize = 8;
/// Times that the best length is looked at in all divisions.
const TURNS: usize = 2;
/// What another division of the best length must take of its time for other lengths to be looked at in that one.
const NEARLY_AS_GOOD: f64 = 0.97;
/// Times that a plan is divided further.
const ROUNDS: usize = 3;

/// An index that is reduced over in shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    /// The index as written, such as `n`.
    pub index: String,
    /// Positions of a share; the last may have fewer.
    pub each: usize,
    /// How many there are.
    pub count: usize,
    /// What the number of a share is called in the program, such as `n_share`, and where shares are joined, such as `n_joined`.
    pub called: [String; 2],
    /// The reductions, by their items.
    folds: BTreeSet<NodeId>,
    /// The index, as numbered.
    over: IndexId,
}

/// The condition that an index stands in a share. Where every share begins at a multiple of a loop's tile, the loop's bounds see to
/// it, and no element is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub over: IndexId,
    pub within: ExprId,
    /// Positions of a share.
    pub each: usize,
}

/// A kernel that leaves cores idle while it reduces.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Idle {
    /// All that could be in shares.
    folds: BTreeSet<NodeId>,
    /// Any of which may be in shares.
    over: Vec<Over>,
    points: usize,
    /// Seconds that shares save at most.
    pub(crate) gain: f64,
    /// Whether all its reductions are in shares then, but for those that every position has of its own.
    pub(crate) all: bool,
    /// What is stored by the kernels of the division in which it is.
    roots: Roots,
}

/// An index that could be in shares, with the reductions over it: they are in one loop, and as long as one of them is in one piece so is that.
#[derive(Clone, Debug, PartialEq)]
struct Over {
    index: IndexId,
    folds: BTreeSet<NodeId>,
    extent: usize,
    /// Positions of a share at least.
    least: usize,
}

/// Divides reductions of the plan, for as long as that is predicted to gain and there is work left to spend.
pub(crate) fn best(mut best: Plan, maker: &mut Maker<'_>) -> Plan {
    let mut shares: Vec<Shares> = vec![];
    // Reductions that gained nothing.
    let mut left: Vec<BTreeSet<NodeId>> = vec![];
    for _ in 0..ROUNDS {
        let worth = |i: &&Idle| i.gain > (1.0 - WORTH_SHARES) * best.seconds;
        let taken = |i: &Idle| shares.iter().map(|s| &s.folds).chain(&left).any(|folds| !folds.is_disjoint(&i.folds));
        let open = |i: &&Idle| worth(i) && !taken(i);
        let most = best.idle.iter().filter(open).max_by(|a, b| a.gain.total_cmp(&b.gain));
        let Some(idle) = most.cloned() else { break };
        let mut looks = idle.looked_at(&shares, &best.divided, maker);
        let fastest = |looks: &[(Plan, Shares)]| {
            (0..looks.len()).min_by(|&a, &b| looks[a].0.seconds.total_cmp(&looks[b].0.seconds))
        };
        // The best length may be divided in a better way, and others then in that way.
        for turn in 0..TURNS {
            let Some((glance, one)) = fastest(&looks).and_then(|k| looks.get_mut(k)) else { break };
            let all: Vec<Shares> = shares.iter().chain([&*one]).cloned().collect();
            let Some((indices, roots)) = glance.divided.first().cloned() else { break };
            let Some(whole) = maker.open_plan(indices, &all, Depth::From(&roots)) else { break };
            let other = whole.divided.iter().all(|d| d.1 != roots);
            let gain = other && whole.seconds < NEARLY_AS_GOOD * glance.seconds;
            let work = glance.work + whole.work;
            // Of the same division it is more exact.
            if whole.seconds <= glance.seconds || !other {
                *glance = Plan { work, ..whole };
            } else if let Some(refined) = maker.open_plan(indices, &all, Depth::Into(&roots)) {
                *glance = Plan { work: work + refined.work, ..refined };
            }
            if !gain || turn + 1 == TURNS {
                break;
            }
            let divided = glance.divided.clone();
            for again in idle.looked_at(&shares, &divided, maker) {
                match looks.iter_mut().find(|l| l.1 == again.1) {
                    Some(before) if again.0.seconds < before.0.seconds => {
                        *before = (Plan { work: before.0.work + again.0.work, ..again.0 }, again.1);
                    }
                    Some(before) => before.0.work += again.0.work,
                    None => looks.push(again),
                }
            }
        }
        let better = fastest(&looks).filter(|&k| looks[k].0.seconds < best.seconds * WORTH_SHARES);
        let better = better.map(|k| looks.remove(k));
        let mut lost: Vec<Plan> = looks.into_iter().map(|l| l.0).collect();
        if better.is_none() && lost.is_empty() {
            break;
        }
        let gained = better.is_some();
        if let Some((found, one)) = better {
            shares.push(one);
            lost.push(std::mem::replace(&mut best, found));
        }
        let what = |p: &Plan| match p.shares.last() {
            Some(last) => last.to_string(),
            None => "all reductions in one piece".to_string(),
        };
        let told: Vec<String> = lost.iter().map(|p| format!("{}: {}", what(p), time(p.seconds))).collect();
        let note = format!("{}: predicted {} in all; {}", what(&best), time(best.seconds), told.join(", "));
        best.work += lost.iter().fold(Work::default(), |work, p| work + p.work);
        let lost: Vec<Lost> = lost.iter().map(|p| p.as_lost(what(p))).collect();
        best.lose(lost);
        if let Some(kernel) = best.kernels.first_mut() {
            kernel.notes.push(note);
        }
        if !gained {
            left.push(idle.folds);
        }
    }
    best
}

/// What shares save at most of the plan with these kernels that leave cores idle: of all that are of one division.
pub(crate) fn gains(idle: &[Idle]) -> f64 {
    let of = |one: &Idle| idle.iter().filter(|i| i.roots == one.roots).map(|i| i.gain.max(0.0)).sum::<f64>();
    idle.iter().map(of).fold(0.0, f64::max)
}

impl Shares {
    fn new(folds: BTreeSet<NodeId>, over: IndexId, extent: usize, each: usize) -> Self {
        let called = [String::new(), String::new()];
        Self { index: String::new(), each, count: extent.div_ceil(each), called, folds, over }
    }
}

impl std::fmt::Display for Shares {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} in {} shares of {}", self.index, self.count, self.each)
    }
}

impl Idle {
    /// What a kernel could be divided by, if it leaves cores idle: the longest index that it reduces over, and each of several that gives all
    /// cores something to do.
    pub(crate) fn of(p: &Problem, x: &Exprs, built: &Built, machine: &Machine) -> Option<Self> {
        let points = grid_points(&built.kernel);
        if points >= FEW * machine.cores || points == 0 || machine.element.is_some() {
            return None;
        }
        // What passes the outermost memory stays, pipes have all cores to work on, and there is a second kernel. Inner memories move less
        // with larger tiles, and nothing need wait.
        let (outermost, inner) = (machine.trunk().take(1), machine.trunk().skip(1));
        let outermost: Vec<&str> = outermost.map(|l| l.name.as_str()).collect();
        let eased: Vec<&str> = inner.map(|l| l.name.as_str()).chain(["latency", "launch"]).collect();
        // Blocks of shares may hold whole rows, which nobody reads again.
        let once = 1.0 - built.gpu.as_ref().map_or(0.0, |g| g.again);
        let used = (points as f64 / machine.cores as f64).min(1.0);
        let stays = |(name, seconds): &(String, f64)| match name.as_str() {
            name if eased.contains(&name) => 0.0,
            name if outermost.contains(&name) => seconds * once,
            "compute" | "issue" if machine.lanes.is_some() => seconds * used * IN_LARGER_TILES,
            _ => seconds * used,
        };
        let least = built.cost.parts.iter().map(stays).fold(0.0, f64::max) + 2.0 * machine.overhead.kernel.0;
        let inside = |i: IndexId| {
            let own = |a: &&einloom_tile::Axis| a.name == p[i].name;
            built.kernel.axes.iter().find(own).is_some_and(|a| a.kind != AxisKind::Grid)
        };
        // What is in shares already takes more of them in one step.
        let folds = built.cone.folds.keys().filter(|&&n| !p[n].stored).filter_map(|&n| Some((n, p.fold(n)?)));
        let candidates = folds.flat_map(|(n, f)| f.over.iter().map(move |&i| (n, i))).filter(|&(_, i)| inside(i));
        let mut sets: BTreeMap<IndexId, BTreeSet<NodeId>> = BTreeMap::new();
        for (n, i) in candidates {
            if let Ok(folds) = p.in_shares_with(n, i, x) {
                sets.entry(i).or_default().extend(folds);
            }
        }
        let (&longest, most) = sets.iter().max_by_key(|(i, _)| p[**i].extent)?;
        let (gain, roots) = (built.cost.seconds - least, vec![]);
        let all = built.cone.folds.keys().all(|n| most.contains(n) || p[*n].axes.contains(&longest));
        let over = sets.into_iter().filter_map(|(index, folds)| {
            let extent = p[index].extent;
            // Of all indices of the reduction over the fewest.
            let positions =
                |n: &NodeId| Some(p.fold(*n)?.over.iter().map(|&i| p[i].extent).fold(1, usize::saturating_mul));
            let together = folds.iter().filter_map(positions).min()?;
            let least = LEAST.div_ceil((together / extent.max(1)).max(1));
            let wanted = index == longest || extent * points >= machine.cores;
            (wanted && extent >= 2 * least).then_some(Over { index, folds, extent, least })
        });
        let over: Vec<Over> = over.collect();
        let folds = over.iter().flat_map(|o| o.folds.iter().copied()).collect();
        (!over.is_empty()).then_some(Self { folds, over, points, gain, all, roots })
    }

    /// The same in a division whose kernels store `roots` and that takes so many seconds longer than the best.
    pub(crate) fn in_division(self, longer: f64, roots: Roots) -> Self {
        Self { gain: self.gain - longer, roots, ..self }
    }

    /// Plans with shares of several lengths beside those that there are, divided as a plan without them is, or as that in which cores are idle.
    fn looked_at(&self, shares: &[Shares], divided: &[(Indices, Roots)], maker: &mut Maker<'_>) -> Vec<(Plan, Shares)> {
        let own = divided.first().map(|d| (d.0, self.roots.clone()));
        let own = own.filter(|own| !divided.contains(own));
        let mut divided: Vec<(Indices, Roots)> = divided.iter().cloned().chain(own).collect();
        let (mut looks, mut fastest): (Vec<(Plan, Shares)>, _) = (vec![], f64::INFINITY);
        for over in &self.over {
            let limit = HOPELESS * fastest;
            let lengths = self.lengths(over, maker.machine.cores);
            // From where all cores have something to do, to shorter ones and to longer ones for as long as that is no slower.
            let wanted = (over.extent * self.points).div_ceil(maker.machine.cores);
            let begin = lengths.partition_point(|&each| each > wanted).min(lengths.len().saturating_sub(1));
            let (longer, shorter) = lengths.split_at(begin);
            for (lengths, most) in [shorter.to_vec(), longer.iter().rev().copied().collect()].into_iter().zip(SLOWER) {
                let mut slower = 0;
                for lengths in lengths.chunks(AT_ONCE) {
                    if slower >= most || maker.known.is_spent() {
                        break;
                    }
                    for (found, one) in self.glances((over, lengths), shares, &mut divided, limit, maker) {
                        let time = found.as_ref().map_or(f64::INFINITY, |p| p.seconds);
                        slower = if time < fastest { 0 } else { slower + 1 };
                        fastest = fastest.min(time);
                        looks.extend(found.map(|found| (found, one)));
                    }
                }
            }
        }
        looks
    }

    /// The best plan for each of these lengths, if there is one whose kernels take less than `limit`. Divisions that are far from the best of all of them are
    /// left out of `divided`: of those after the first no more is looked at than tells that they are.
    fn glances(
        &self,
        (over, lengths): (&Over, &[usize]),
        shares: &[Shares],
        divided: &mut Vec<(Indices, Roots)>,
        limit: f64,
        maker: &mut Maker<'_>,
    ) -> Vec<(Option<Plan>, Shares)> {
        let one = |&each: &usize| Shares::new(over.folds.clone(), over.index, over.extent, each);
        let ones: Vec<Shares> = lengths.iter().map(one).collect();
        let mut of = |divided: &[(Indices, Roots)], limit: f64| -> Vec<Option<Plan>> {
            let pairs: Vec<(&Shares, &(Indices, Roots))> =
                divided.iter().flat_map(|d| ones.iter().map(move |one| (one, d))).collect();
            maker.each(&pairs, |maker, (one, (indices, roots))| {
                let all: Vec<Shares> = shares.iter().chain([*one]).cloned().collect();
                // With what is refused the others go on.
                maker.plan(*indices, &all, Depth::Glance(roots, limit)).ok().flatten()
            })
        };
        let least = |found: &[Option<Plan>]| found.iter().flatten().map(|p| p.seconds).fold(f64::INFINITY, f64::min);
        let (first, others) = divided.split_at(1.min(divided.len()));
        let mut found = of(first, limit);
        found.extend(of(others, limit.min(FAR * least(&found))));
        // By division, each with all lengths.
        let best = least(&found);
        let mut of_each = found.chunks(ones.len().max(1)).map(|found| least(found) <= FAR * best);
        divided.retain(|_| of_each.next().unwrap_or(false));
        let mut out: Vec<(Option<Plan>, Shares)> = ones.iter().map(|one| (None, one.clone())).collect();
        for (k, plan) in found.into_iter().enumerate().filter_map(|(k, plan)| Some((k, plan?))) {
            let place = &mut out[k % ones.len()].0;
            if place.as_ref().is_none_or(|before| plan.seconds < before.seconds) {
                *place = Some(plan);
            }
        }
        out
    }

    /// Lengths of shares, the longest first: those that give all cores something to do, and those of equal shares.
    fn lengths(&self, over: &Over, cores: usize) -> Vec<usize> {
        let &Over { extent, least, .. } = over;
        let busy = WAVES.into_iter().map(|waves| (extent * self.points).div_ceil(cores * waves));
        let equal = (1..=HALVINGS).map(|k| extent.div_ceil(1 << k));
        // Of lengths that are about the same the equal ones come first.
        let mut out: Vec<usize> = vec![];
        for each in equal.chain(busy).map(|wanted| rounded(wanted.max(least), least)) {
            let alike = |&other: &usize| other.abs_diff(each) * ALIKE <= other.max(each);
            if each < extent && !out.iter().any(alike) {
                out.push(each);
            }
        }
        out.sort_by(|a, b| b.cmp(a));
        out
    }
}

/// As many positions, or a few more, that tiles divide.
fn rounded(each: usize, least: usize) -> usize {
    each.next_multiple_of((each / ROUND).next_power_of_two().max(least))
}

impl Problem {
    fn fold(&self, n: NodeId) -> Option<&Fold> {
        match &self[n].def {
            ItemDef::Fold(f) if self[n].recurrence.is_none() => Some(f),
            _ => None,
        }
    }

    /// The shares that are asked for: of each index so many.
    pub(crate) fn asked(&self, shares: &BTreeMap<String, usize>, x: &Exprs) -> Result<Vec<Shares>, PlanError> {
        let mut out: Vec<Shares> = vec![];
        for (name, &count) in shares {
            let refused = |reason: &str| Err(PlanError::unsupported(name, reason));
            let Some(over) = self.indices.iter().position(|i| i.name == *name) else {
                return Err(unknown(self, name));
            };
            if count == 0 {
                let error = PlanError::unsupported(name, "there is at least one share");
                return Err(error.hint("give 1 for none, or no number for the planner's choice"));
            }
            let (extent, before, mut why) = (self.indices[over].extent, out.len(), "no reduction is over it");
            let over = IndexId(over as u32);
            for n in (0..self.items.len() as u32).map(NodeId) {
                let reduces = matches!(&self[n].def, ItemDef::Fold(f) if f.over.contains(&over));
                if !reduces {
                    continue;
                }
                if out.iter().any(|s| s.folds.contains(&n)) {
                    why = "its reductions are in shares of another index";
                    continue;
                }
                match self.in_shares_with(n, over, x) {
                    Ok(folds) => {
                        let each = extent.div_ceil(count).max(1);
                        // Long ones begin where tiles do, whatever is asked for.
                        let each = if each < ROUND * LEAST { each } else { rounded(each, LEAST) };
                        out.push(Shares::new(folds, over, extent, each));
                    }
                    Err(reason) => why = reason,
                }
            }
            if out.len() == before {
                return refused(why);
            }
        }
        // One share is no share.
        out.retain(|s| s.count > 1);
        Ok(out)
    }

    /// Those that are drawn, of all that could be.
    pub(crate) fn drawn_shares(&self, draw: Draw, x: &Exprs) -> Vec<Shares> {
        let mut out: Vec<Shares> = vec![];
        for n in (0..self.items.len() as u32).map(NodeId) {
            let over = self.fold(n).map_or(&[][..], |f| &f.over);
            for &over in over {
                let (name, extent) = (&self[over].name, self[over].extent);
                let Some(count) = draw.shares(name).filter(|&count| count <= extent) else { continue };
                if out.iter().any(|s| s.folds.contains(&n)) {
                    continue;
                }
                if let Ok(folds) = self.in_shares_with(n, over, x) {
                    out.push(Shares::new(folds, over, extent, extent.div_ceil(count)));
                }
            }
        }
        out.retain(|s| s.count > 1);
        out
    }

    /// All reductions that read each other's running values, this one among them, if all can be in shares of an index.
    fn in_shares_with(&self, n: NodeId, over: IndexId, x: &Exprs) -> Result<BTreeSet<NodeId>, &'static str> {
        if self.loops.iter().any(|l| l.index == over || l.within.contains(&over)) {
            return Err("a recurrence goes along it");
        }
        let indices = |f: &Fold| f.over.iter().copied().collect::<BTreeSet<_>>();
        let Some(own) = self.fold(n).map(indices) else { return Err("its reduction is part of a recurrence") };
        let mut out = BTreeSet::from([n]);
        loop {
            let before = out.len();
            for k in (0..self.items.len() as u32).map(NodeId) {
                let Some(f) = self.fold(k) else { continue };
                // An anchor over other indices is complete.
                let joined: Vec<NodeId> =
                    f.anchors.iter().copied().filter(|&a| self.fold(a).is_some_and(|f| indices(f) == own)).collect();
                if out.contains(&k) {
                    out.extend(joined);
                } else if indices(f) == own && joined.iter().any(|a| out.contains(a)) {
                    out.insert(k);
                }
            }
            if out.len() == before {
                break;
            }
        }
        let all = out.iter().all(|&k| {
            let Some(f) = self.fold(k) else { return false };
            let old = |e: ExprId| {
                x.olds(e).into_iter().all(|o| out.contains(&o) || self.fold(o).is_none_or(|f| indices(f) != own))
            };
            indices(f) == own && f.parts().into_iter().all(old)
        });
        if all { Ok(out) } else { Err("its states move with states over other indices") }
    }

    /// Whether the index of these shares is one here: what is divided in another way has others.
    pub(crate) fn has(&self, shares: &Shares) -> bool {
        let index = self.indices.get(shares.over.0 as usize);
        index.is_some_and(|i| i.extent.div_ceil(shares.each) == shares.count)
            && shares.folds.iter().all(|&n| self.fold(n).is_some_and(|f| f.over.contains(&shares.over)))
    }

    /// The largest tile of at most so many positions of which every share of the index has a whole number.
    pub(crate) fn dividing(&self, index: IndexId, tile: usize) -> usize {
        let shares: Vec<usize> = self.spans.iter().filter(|s| s.over == index).map(|s| s.each).collect();
        if shares.is_empty() {
            return tile.max(1);
        }
        let fits = |tile: &usize| shares.iter().all(|each| each.is_multiple_of(*tile));
        (1..=tile).rev().find(fits).unwrap_or(1)
    }

    /// The index is gone through in shares.
    pub(crate) fn is_shared(&self, index: IndexId) -> bool {
        self.spans.iter().any(|s| s.over == index)
    }

    /// The condition is one that a loop's bounds see to, if it is a loop's: the index that is in a share.
    pub(crate) fn span(&self, condition: ExprId) -> Option<IndexId> {
        self.spans.iter().find(|s| s.within == condition).map(|s| s.over)
    }

    /// Puts reductions into shares: says how the index is called.
    pub(crate) fn share(&mut self, shares: &Shares, x: &mut Exprs) -> Shares {
        let (over, count) = (shares.over, shares.count);
        let name = self[over].name.clone();
        let [share, joined] = ["share", "joined"].map(|end| self.new_index(&format!("{name}_{end}"), count));
        let mut partial: BTreeMap<NodeId, NodeId> = BTreeMap::new();
        for (k, &n) in shares.folds.iter().enumerate() {
            partial.insert(n, NodeId((self.items.len() + k) as u32));
        }
        let within = self.share_of(over, share, shares.each, x);
        for &n in &shares.folds {
            let Some(fold) = self.fold(n).cloned() else { continue };
            let item = self[n].clone();
            let mut own = Partial { p: self, x, partial: &partial, running: &fold.anchors, share };
            let mut part = fold.clone();
            part.body = own.expr(part.body);
            part.filter.iter_mut().for_each(|e| *e = own.expr(*e));
            part.filter.push(within);
            part.anchors.iter_mut().for_each(|a| *a = *partial.get(a).unwrap_or(a));
            if let Some(r) = &mut part.repair {
                r.factor = own.expr(r.factor);
                r.plus = r.plus.map(|e| own.expr(e));
                r.keep_if = r.keep_if.map(|e| own.expr(e));
            }
            let body = self.moved(n, &fold, &partial, joined, x);
            let mut part = Item {
                name: format!("{}.{name}_share", item.name),
                def: ItemDef::Fold(part),
                dtype: None,
                role: Role::Intermediate,
                shape: None,
                stored: true,
                ..item
            };
            // In front, so that what was contiguous is.
            part.axes.insert(0, share);
            part.extents.insert(0, count);
            self.items.push(part);
            let join = Fold { over: vec![joined], filter: vec![], body, ..fold };
            self.items[n.0 as usize].def = ItemDef::Fold(join);
        }
        self.spans.push(Span { over, within, each: shares.each });
        self.partial_of.extend(partial.iter().map(|(&n, &part)| (part, n)));
        self.together.push(partial.into_values().collect());
        self.order = self.topological(x);
        let called = [share, joined].map(|i| self[i].name.clone());
        Shares { index: name, called, ..shares.clone() }
    }

    fn new_index(&mut self, wanted: &str, extent: usize) -> IndexId {
        let name = self.fresh_name(wanted);
        self.indices.push(Index { name, extent });
        IndexId(self.indices.len() as u32 - 1)
    }

    /// `share·each ≤ over < (share + 1)·each`.
    fn share_of(&self, over: IndexId, share: IndexId, each: usize, x: &mut Exprs) -> ExprId {
        let each = each as i64;
        let from = Linear { terms: [(over, 1), (share, -each)].into(), constant: 0 };
        let below = Linear { terms: [(over, -1), (share, each)].into(), constant: each - 1 };
        x.intern(Expr::Within(vec![from, below]))
    }

    /// A partial state, moved from its own anchors to the joint ones.
    fn moved(
        &self,
        n: NodeId,
        fold: &Fold,
        partial: &BTreeMap<NodeId, NodeId>,
        joined: IndexId,
        x: &mut Exprs,
    ) -> ExprId {
        let read = |n: NodeId, x: &mut Exprs| match partial.get(&n) {
            Some(&part) => {
                let axes: Vec<IndexId> = [joined].into_iter().chain(self[n].axes.iter().copied()).collect();
                x.plain(part, &axes)
            }
            None => x.plain(n, &self[n].axes),
        };
        let state = read(n, x);
        let Some(r) = &fold.repair else { return state };
        let mut before = |e: ExprId| {
            let olds: BTreeMap<NodeId, ExprId> = x.olds(e).into_iter().map(|n| (n, read(n, x))).collect();
            x.replace_olds(e, &olds)
        };
        let (factor, plus, keep) = (before(r.factor), r.plus.map(&mut before), r.keep_if.map(&mut before));
        let mut out = x.binary(r.combine, state, factor);
        if let Some(plus) = plus {
            out = x.binary(BinaryOp::Add, out, plus);
        }
        match keep {
            Some(keep) => {
                let nothing = x.constant(self.identity(fold.monoid));
                x.select(keep, out, nothing)
            }
            None => out,
        }
    }
}
