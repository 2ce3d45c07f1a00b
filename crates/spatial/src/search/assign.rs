//! Who computes what: Einsums to arrays so that the busiest array has the least to do.

/// More nodes than this are not looked at.
const MOST_NODES: usize = 1 << 17;

/// The best assignment: by Einsum, its array. `cycles` gives by Einsum and array what it would take there, `None` if
/// the array cannot do it. The busiest array counts first, then the sum. `None` if some Einsum can run nowhere.
pub(super) fn balance(cycles: &[Vec<Option<f64>>]) -> Option<Vec<usize>> {
    let arrays = cycles.iter().map(Vec::len).max()?;
    let least = |c: &Vec<Option<f64>>| c.iter().flatten().copied().fold(f64::INFINITY, f64::min);
    if cycles.iter().any(|c| least(c).is_infinite()) {
        return None;
    }
    // The largest first: bad beginnings are left early.
    let mut order: Vec<usize> = (0..cycles.len()).collect();
    order.sort_by(|a, b| least(&cycles[*b]).total_cmp(&least(&cycles[*a])).then(a.cmp(b)));
    let rest: Vec<f64> = (0..=order.len()).map(|k| order[k..].iter().map(|&e| least(&cycles[e])).sum()).collect();
    let mut walk = Walk {
        cycles,
        order: &order,
        rest: &rest,
        loads: vec![0.0; arrays],
        at: vec![0; cycles.len()],
        best: None,
        nodes: 0,
    };
    walk.go(0, 0.0);
    walk.best.map(|b| b.2)
}

struct Walk<'a> {
    cycles: &'a [Vec<Option<f64>>],
    order: &'a [usize],
    /// The least that Einsums from here on take.
    rest: &'a [f64],
    loads: Vec<f64>,
    at: Vec<usize>,
    best: Option<(f64, f64, Vec<usize>)>,
    nodes: usize,
}

impl Walk<'_> {
    fn go(&mut self, k: usize, sum: f64) {
        self.nodes += 1;
        let most = self.loads.iter().copied().fold(0.0, f64::max);
        if let Some((load, total, _)) = &self.best {
            let mean = (sum + self.rest[k]) / self.loads.len() as f64;
            let bound = most.max(mean);
            let worse = bound > *load || (most >= *load && sum + self.rest[k] >= *total);
            if worse || self.nodes > MOST_NODES {
                return;
            }
        }
        let Some(&e) = self.order.get(k) else {
            if self.best.as_ref().is_none_or(|b| (most, sum) < (b.0, b.1)) {
                self.best = Some((most, sum, self.at.clone()));
            }
            return;
        };
        // The array that would be the least busy afterwards first.
        let mut places: Vec<(f64, usize, f64)> =
            self.cycles[e].iter().enumerate().filter_map(|(a, c)| c.map(|c| (self.loads[a] + c, a, c))).collect();
        places.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        for (_, a, c) in places {
            self.loads[a] += c;
            self.at[e] = a;
            self.go(k + 1, sum + c);
            self.loads[a] -= c;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busiest_array_has_the_least_to_do() {
        let cycles = [vec![Some(4.0), Some(8.0)], vec![Some(3.0), Some(3.0)], vec![Some(3.0), Some(3.0)]];
        assert_eq!(balance(&cycles), Some(vec![0, 1, 1]));
    }

    #[test]
    fn what_only_one_array_can_do_stays_there() {
        let cycles = [vec![None, Some(9.0)], vec![Some(5.0), Some(1.0)], vec![Some(5.0), None]];
        assert_eq!(balance(&cycles), Some(vec![1, 1, 0]));
        assert_eq!(balance(&[vec![None, None]]), None);
    }

    #[test]
    fn every_assignment_of_small_problems_is_no_better() {
        let mut state = 7u64;
        for _ in 0..200 {
            let mut next = || {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                ((state >> 33) % 9 + 1) as f64
            };
            let cycles: Vec<Vec<Option<f64>>> = (0..5).map(|_| vec![Some(next()), Some(next())]).collect();
            let load = |at: &dyn Fn(usize) -> usize| {
                let mut loads = [0.0, 0.0];
                (0..5).for_each(|e| loads[at(e)] += cycles[e][at(e)].unwrap_or(0.0));
                loads[0].max(loads[1])
            };
            let found = balance(&cycles).unwrap_or_default();
            let best = (0..32usize).map(|m| load(&|e| m >> e & 1)).fold(f64::INFINITY, f64::min);
            assert_eq!(load(&|e| found[e]), best);
        }
    }
}
