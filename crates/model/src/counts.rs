//! Counts that are worked out once for all sizes of a kernel's tiles.
//!
//! What an access touches, and how often loops run, follows from the kernel's loops and from tiles. The search for tiles asks
//! the same of many tilings: the loops are taken apart once, and each connected part of them is summed once for the tiles
//! that it depends on.

use crate::count::Group;
use crate::nest::Parts;
use crate::work::Task;
use einloom_tile::Kernel;
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::hash::Hash;
use std::rc::Rc;

/// What was counted of a kernel, for all sizes of its tiles.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// The parts of a count.
    counted: Known<What, Rc<[Rc<Group>]>>,
    /// Parts by all that they are made of.
    groups: Known<Vec<u64>, Rc<Group>>,
    /// The number of the elements that an access touches, by the number of it and a depth, and those numbers by what they are, as text.
    places: RefCell<Vec<Option<usize>>>,
    texts: RefCell<FxHashMap<String, usize>>,
    /// The kernel taken apart.
    parts: RefCell<Option<Rc<Parts>>>,
    /// What operations do.
    tasks: RefCell<Option<Rc<[Task]>>>,
}

pub(crate) type Known<K, V> = RefCell<FxHashMap<K, V>>;

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

    pub(crate) fn parts(&self, make: impl FnOnce() -> Parts) -> Rc<Parts> {
        self.parts.borrow_mut().get_or_insert_with(|| Rc::new(make())).clone()
    }

    pub(crate) fn tasks(&self, make: impl FnOnce() -> Vec<Task>) -> Rc<[Task]> {
        self.tasks.borrow_mut().get_or_insert_with(|| make().into()).clone()
    }

    /// A number that is the same for what is the same text; `at` numbers what was asked.
    pub(crate) fn place(&self, at: usize, text: impl FnOnce() -> String) -> usize {
        if let Some(Some(known)) = self.places.borrow().get(at) {
            return *known;
        }
        let mut texts = self.texts.borrow_mut();
        let next = texts.len();
        let place = *texts.entry(text()).or_insert(next);
        let mut places = self.places.borrow_mut();
        if places.len() <= at {
            places.resize(at + 1, None);
        }
        places[at] = Some(place);
        place
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
