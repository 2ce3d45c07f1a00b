//! A memory of so many elements, simulated.

use std::collections::BTreeMap;

/// How a step uses an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// It is read, and outside at first.
    Input,
    /// It is read or added to, and made inside.
    Made,
    /// The same of a result, which goes out at last.
    Result,
}

/// An element: of which array, and where.
pub type Element = (usize, Vec<usize>);

/// Elements that come in and go out if each step needs all of its elements at once, and what is needed last goes first.
pub fn moved(steps: &[Vec<(Element, Use)>], capacity: usize) -> usize {
    let mut numbers: BTreeMap<&Element, usize> = BTreeMap::new();
    let mut kinds = vec![];
    let mut numbered = vec![];
    for step in steps {
        let mut own = vec![];
        for (e, kind) in step {
            let next = numbers.len();
            let n = *numbers.entry(e).or_insert(next);
            if n == kinds.len() {
                kinds.push(*kind);
            }
            own.push(n);
        }
        numbered.push(own);
    }
    const NEVER: usize = usize::MAX;
    // By step, of each element, the next step that needs it.
    let mut later = vec![NEVER; kinds.len()];
    let mut next: Vec<Vec<usize>> = vec![];
    for (at, own) in numbered.iter().enumerate().rev() {
        next.push(own.iter().map(|&n| later[n]).collect());
        own.iter().for_each(|&n| later[n] = at);
    }
    next.reverse();
    // What is there, with when it is needed next, and whether it was changed since it came.
    let mut there: BTreeMap<usize, (usize, bool)> = BTreeMap::new();
    let (mut outside, mut moves) = (vec![false; kinds.len()], 0);
    for (own, next) in numbered.iter().zip(&next) {
        for (&n, &needed) in own.iter().zip(next) {
            let made = kinds[n] != Use::Input;
            if !there.contains_key(&n) && (!made || outside[n]) {
                moves += 1;
            }
            there.insert(n, (needed, made));
        }
        assert!(own.len() <= capacity, "a step needs more than fits");
        while let Some((&n, &(needed, changed))) = there.iter().max_by_key(|(n, v)| (v.0, !own.contains(n))) {
            let over = there.len() > capacity;
            if needed != NEVER && !over {
                break;
            }
            if changed && (needed != NEVER || kinds[n] == Use::Result) {
                moves += 1;
                outside[n] = true;
            }
            there.remove(&n);
        }
    }
    moves
}

/// All positions of some indices in the order of a nest of loops: tiles of each, then what is in them, each in an order of its own.
pub fn nest(sizes: &[usize], tiles: &[usize], outer: &[usize], inner: &[usize]) -> Vec<Vec<usize>> {
    fn go(
        ranges: &[(usize, usize)],
        order: &[usize],
        at: &mut Vec<usize>,
        step: &[usize],
        f: &mut dyn FnMut(&[usize]),
    ) {
        let Some((&i, rest)) = order.split_first() else { return f(at) };
        for x in (ranges[i].0..ranges[i].1).step_by(step[i].max(1)) {
            at[i] = x;
            go(ranges, rest, at, step, f);
        }
    }
    let whole: Vec<(usize, usize)> = sizes.iter().map(|&n| (0, n)).collect();
    let mut out = vec![];
    go(&whole, outer, &mut vec![0; sizes.len()], tiles, &mut |base| {
        let tile: Vec<(usize, usize)> =
            base.iter().zip(tiles).zip(sizes).map(|((&b, &t), &n)| (b, n.min(b + t.max(1)))).collect();
        go(&tile, inner, &mut vec![0; sizes.len()], &vec![1; sizes.len()], &mut |at| out.push(at.to_vec()));
    });
    out
}
