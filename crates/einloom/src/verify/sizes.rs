//! Sizes at which a program is verified: aligned and ragged tiles, one position, long ranks, and all of them mixed.

use crate::prove::is_free;
use crate::random::Random;
use einloom_cascade::{Bound, Cascade, DType, Expr, ExprKind, Given, RankId, Role, bind, meaning};
use std::collections::BTreeSet;

/// Sizes that tiles do not divide, and no power of two.
const ODD: &[usize] = &[3, 5, 7, 13, 33, 65, 100, 130];
const ODD_SMALL: &[usize] = &[1, 2, 3, 5, 9, 17];
const FEW: &[usize] = &[1, 2, 3, 5, 7];
const LONG: &[usize] = &[257, 300, 513, 1003];
/// More than one tile of a processor's, along rows and along what is streamed.
const MANY: &[usize] = &[300, 515, 700];
/// Rows that begin at multiples of 16 bytes in every number type, as bulk copies want them.
const ROW: &[usize] = &[16, 64, 128, 256];
const ROWS: [&[usize]; 4] = [ROW, &[64], &[128], &[256]];
const ROW_SMALL: &[usize] = &[16, 32];
const BATCH: &[usize] = &[1, 2, 3];
const RAGGED: &[usize] = &[65, 100, 130, 200, 257];
const RAGGED_SMALL: &[usize] = &[17, 33];
const EVEN: &[usize] = &[64, 128, 256];
const ONE: &[usize] = &[1];

/// Attempts for one set: programs whose ranks hang together refuse most.
const ATTEMPTS: usize = 96;

/// How a set chooses each rank's size: a pool, from small to large.
type Pools = Box<dyn Fn(RankId) -> &'static [usize]>;

/// Sets of sizes that fit the program and keep its meaning's work below `work`; those of the first kind are worth
/// trying in every number type. And a note for each kind of sizes of which none fits.
pub(super) fn sets(cascade: &Cascade, small: bool, work: f64, seed: u64) -> (Vec<(bool, Bound)>, Vec<String>) {
    let ranks = Ranks::of(cascade);
    let (rows, batch) = (ranks.rows.clone(), ranks.batch.clone());
    let tiles = move |row: &'static [usize], rest: &'static [usize]| -> Pools {
        let (rows, batch) = (rows.clone(), batch.clone());
        Box::new(move |r| match () {
            () if rows.contains(&r) => row,
            () if batch.contains(&r) => BATCH,
            () => rest,
        })
    };
    let all = |pool: &'static [usize]| -> Pools { Box::new(move |_| pool) };
    let but = |rank: RankId, pool: &'static [usize], others: &'static [usize]| -> Pools {
        Box::new(move |r| if r == rank { pool } else { others })
    };
    let mut wanted: Vec<(bool, String, Pools)> = vec![(true, "every rank 1".into(), all(ONE))];
    if small {
        wanted.push((true, "ragged rows of tiles".into(), tiles(ROW_SMALL, RAGGED_SMALL)));
        wanted.push((false, "odd sizes".into(), all(ODD_SMALL)));
        for &rank in &ranks.free {
            wanted.push((false, format!("{} = 1", cascade[rank].name), but(rank, ONE, ODD_SMALL)));
        }
    } else {
        for _ in 0..2 {
            wanted.push((true, "odd sizes".into(), all(ODD)));
        }
        wanted.push((true, "nothing whole".into(), all(RAGGED)));
        for row in ROWS {
            wanted.push((true, "ragged rows of tiles".into(), tiles(row, RAGGED)));
        }
        wanted.push((true, "whole tiles".into(), tiles(ROW, EVEN)));
        for row in [&[32][..], &[64]] {
            wanted.push((true, "several tiles each way".into(), tiles(row, MANY)));
        }
        for &rank in &ranks.free {
            let name = &cascade[rank].name;
            wanted.push((false, format!("{name} = 1"), but(rank, ONE, ODD)));
            wanted.push((false, format!("a long {name}"), but(rank, LONG, FEW)));
        }
    }
    let (free, named, random) = (&ranks.free, &ranks.named, Random::new(seed, "sizes"));
    let mut draw = Draw { cascade, free, named, random, work, seen: BTreeSet::new() };
    let (mut found, mut missing) = (vec![], vec![]);
    for (first, name, pools) in wanted {
        match draw.bind(&*pools) {
            Drawn::New(bound) => found.push((first, bound)),
            Drawn::Known => {}
            Drawn::Refused => missing.push(name),
        }
    }
    missing.dedup();
    (found, missing)
}

/// The ranks whose sizes are free, and their places in tensors.
struct Ranks {
    free: Vec<RankId>,
    /// Of a size that the text names, as it is part of what the text means: a table of 16 codes, 20 levels.
    named: Vec<RankId>,
    /// Along which the elements of some input are adjacent.
    rows: BTreeSet<RankId>,
    /// Carried by every floating-point input of three dimensions or more and never reduced: many of them make more of the
    /// same.
    batch: BTreeSet<RankId>,
}

impl Ranks {
    fn of(cascade: &Cascade) -> Self {
        let free = (0..cascade.ranks.len() as u32).map(RankId).filter(|&r| is_free(cascade, r));
        let (named, free) = free.partition(|&r| cascade[r].default.is_some());
        let inputs = || cascade.tensors.iter().filter(|t| t.role == Role::Input && t.dtype.is_none_or(DType::is_float));
        let rows: BTreeSet<RankId> = inputs().filter_map(|t| t.ranks.last().copied()).collect();
        let mut reduced = BTreeSet::new();
        cascade.statements.iter().for_each(|s| reductions(cascade, &s.value, &mut reduced));
        let mut large =
            inputs().filter(|t| t.ranks.len() >= 3).map(|t| t.ranks.iter().copied().collect::<BTreeSet<_>>());
        let mut batch = large.next().unwrap_or_default();
        large.for_each(|other| batch.retain(|r| other.contains(r)));
        batch.retain(|r| !rows.contains(r) && !reduced.contains(r));
        Self { free, named, rows, batch }
    }
}

fn reductions(cascade: &Cascade, expr: &Expr, out: &mut BTreeSet<RankId>) {
    if let ExprKind::Reduce { over, .. } = &expr.kind {
        out.extend(over.iter().map(|&i| cascade[i].rank));
    }
    expr.for_each_child(&mut |child| reductions(cascade, child, out));
}

enum Drawn {
    New(Bound),
    /// The same as an earlier one.
    Known,
    Refused,
}

struct Draw<'a> {
    cascade: &'a Cascade,
    free: &'a [RankId],
    named: &'a [RankId],
    random: Random,
    work: f64,
    seen: BTreeSet<Vec<usize>>,
}

impl Draw<'_> {
    fn bind(&mut self, pools: &dyn Fn(RankId) -> &'static [usize]) -> Drawn {
        let mut known = false;
        for attempt in 0..ATTEMPTS {
            let mut given = Given::default();
            for param in self.cascade.params.iter().filter(|p| p.default.is_none()) {
                given.params.insert(param.name.clone(), 0.5);
            }
            // What is too much work, or fits no relation, is tried with ever smaller ones; in the end with few of each, and in
            // place of sizes that the text itself names.
            let last = attempt >= ATTEMPTS - ATTEMPTS / 4;
            let named = if last && !known { self.named } else { &[] };
            for &rank in self.free.iter().chain(named) {
                let pool = match pools(rank) {
                    pool if pool.len() > 1 && last => FEW,
                    pool => &pool[..pool.len() - pool.len() * attempt / ATTEMPTS],
                };
                given.sizes.insert(self.cascade[rank].name.clone(), self.random.pick(pool));
            }
            if attempt % 2 == 1 {
                self.turn_around(&mut given, pools);
            }
            let Ok(bound) = bind(self.cascade, &given) else { continue };
            if meaning::work(self.cascade, &bound) > self.work {
                continue;
            }
            if self.seen.insert(bound.sizes().to_vec()) {
                return Drawn::New(bound);
            }
            known = true;
        }
        if known { Drawn::Known } else { Drawn::Refused }
    }

    /// Where a rank's default is a quotient, such as `G = H / J`, dividing seldom leaves a whole number: chooses the
    /// quotient, and leaves the dividend to follow from it.
    fn turn_around(&mut self, given: &mut Given, pools: &dyn Fn(RankId) -> &'static [usize]) {
        for rank in &self.cascade.ranks {
            let dividend = rank.default.as_ref().and_then(|d| d.numerator.as_rank());
            if let Some(dividend) = dividend
                && pools(dividend).len() > 1
            {
                given.sizes.remove(&self.cascade[dividend].name);
                given.sizes.insert(rank.name.clone(), self.random.pick(BATCH));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str, small: bool) -> (Vec<Vec<usize>>, Vec<String>) {
        let parsed = einloom_cascade::parse(text);
        assert_eq!(parsed.diagnostics, []);
        let (sets, missing) = sets(&parsed.cascade, small, 3e7, 0);
        (sets.iter().map(|(_, b)| b.sizes().to_vec()).collect(), missing)
    }

    #[test]
    fn ones_long_ranks_and_ragged_tiles_of_a_product() {
        let (sizes, missing) =
            found("input A[m,k]: f32, B[k,n]: f32\noutput C: f32\nC[m,n] = sum(k) A[m,k] * B[k,n]", false);
        assert_eq!(missing, Vec::<String>::new());
        for rank in 0..3 {
            assert!(sizes.iter().any(|s| s[rank] == 1 && s.iter().any(|&n| n > 1)), "{sizes:?}");
            assert!(sizes.iter().any(|s| s[rank] >= 257), "{sizes:?}");
            assert!(sizes.iter().any(|s| s[rank] > 30 && s[rank] % 8 != 0), "{sizes:?}");
        }
        // m is no row of anything: ragged where k and n are whole.
        assert!(sizes.iter().any(|s| s[0] % 8 != 0 && s[1] % 16 == 0 && s[2] % 16 == 0), "{sizes:?}");
        assert!(sizes.iter().any(|s| s.iter().all(|n| n % 16 == 0)), "{sizes:?}");
    }

    #[test]
    fn quotients_are_whole_and_work_is_bounded() {
        let text = "rank G = H / J\ninput Q[b,h,m,d]: bf16, K[b,j,n,d]: bf16\noutput S: f32\n\
                    S[b,h,m,n] = sum(d) Q[b,h,m,d] * K[b,h / G,n,d]";
        let cascade = einloom_cascade::parse(text).cascade;
        let (all, missing) = sets(&cascade, false, 1e6, 0);
        assert_eq!(missing, Vec::<String>::new());
        assert!(all.len() > 10, "{}", all.len());
        assert!(all.iter().all(|(_, b)| meaning::work(&cascade, b) <= 1e6));
    }

    #[test]
    fn sizes_that_the_text_names_stay_unless_they_are_too_much_work() {
        let text = |l: usize| format!("rank L = {l}\ninput X[m,l]: f32\noutput Y: f32\nY[m] = sum(l) X[m,l]\n");
        let (sizes, missing) = found(&text(20), false);
        assert!(
            missing.is_empty() && sizes.len() > 5 && sizes.iter().all(|s| s.contains(&20)),
            "{sizes:?} {missing:?}"
        );
        let (sizes, missing) = found(&text(1 << 28), false);
        assert!(missing.is_empty() && sizes.len() > 5, "{sizes:?} {missing:?}");
    }

    #[test]
    fn small_sets_are_small() {
        let (sizes, _) = found("input X[m,n]: f32\noutput Y: f32\nY[m] = sum(n) X[m,n]", true);
        assert!(sizes.len() >= 4 && sizes.iter().flatten().all(|&n| n <= 33), "{sizes:?}");
    }
}
