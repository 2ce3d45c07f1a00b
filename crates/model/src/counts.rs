//! Counts that are worked out once for all sizes of a kernel's tiles.
//!
//! What an access touches, and how often loops run, follows from the kernel's loops and from tiles. The search for tiles asks
//! the same of many tilings: the loops are taken apart once, and each connected part of them is summed once for the tiles
//! that it depends on.

use crate::count::Group;
use einloom_tile::Kernel;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::Hash;
use std::rc::Rc;

/// What was counted of a kernel, for all sizes of its tiles.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// The parts of a count.
    counted: Known<What, Rc<[Rc<Group>]>>,
    /// Parts by all that they are made of.
    groups: Known<Vec<u64>, Rc<Group>>,
    /// Which elements an access touches, as text, by its number and depth.
    places: Known<(usize, usize), Rc<str>>,
}

type Known<K, V> = RefCell<HashMap<K, V>>;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum What {
    /// Elements that the access of this number moves.
    Moved(usize),
    /// Elements that it touches, each once per iteration of so many loops; whether to lean high.
    Touched(usize, usize, bool),
    /// Iterations of so many of its loops.
    Iterations(usize, usize),
    /// Iterations of so many loops of the grid.
    Points(usize),
}

impl Counts {
    /// A count for these tiles.
    pub(crate) fn of(&self, kernel: &Kernel, what: What, parts: impl FnOnce() -> Vec<Rc<Group>>) -> u64 {
        let parts = get(&self.counted, what, || parts().into());
        parts.iter().fold(1, |product, part| product.saturating_mul(part.total(kernel)))
    }

    /// A part that is made of this.
    pub(crate) fn group(&self, key: Vec<u64>, make: impl FnOnce() -> Group) -> Rc<Group> {
        get(&self.groups, key, || Rc::new(make()))
    }

    pub(crate) fn place(&self, access: usize, depth: usize, text: impl FnOnce() -> String) -> Rc<str> {
        get(&self.places, (access, depth), || text().into())
    }
}

fn get<K: Eq + Hash, V: Clone>(known: &Known<K, V>, key: K, make: impl FnOnce() -> V) -> V {
    if let Some(found) = known.borrow().get(&key) {
        return found.clone();
    }
    let made = make();
    known.borrow_mut().insert(key, made.clone());
    made
}
