//! Counts that are worked out once for all sizes of a kernel's tiles.
//!
//! What an access touches, and how often loops run, follows from the kernel's loops and from tiles. The search for tiles asks
//! the same of many tilings: the loops are taken apart once, and each connected part of them is summed once for the tiles
//! that it depends on.

use crate::count::{Factor, Group};
use crate::nest::Parts;
use crate::region::Lean;
use crate::work::Task;
use einloom_tile::Kernel;
use rustc_hash::FxHashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What was counted of a kernel, for all sizes of its tiles.
#[derive(Debug, Default)]
pub struct Counts {
    /// The parts of a count.
    counted: Known<What, Arc<[Arc<Group>]>>,
    /// Parts by all that they are made of.
    groups: Known<Vec<u64>, Arc<Group>>,
    /// What an access touches, by its number.
    factors: Known<(usize, Lean), Arc<[Arc<Factor>]>>,
    /// What is read of an access with any tiles, by its number.
    least: Known<usize, u64>,
    /// The number of the elements that an access touches, by the number of it and a depth, and those numbers by what they are, as text.
    places: Mutex<Vec<Option<usize>>>,
    texts: Mutex<FxHashMap<String, usize>>,
    /// The kernel taken apart.
    parts: Mutex<Option<Arc<Parts>>>,
    /// What operations do.
    tasks: Mutex<Option<Arc<[Task]>>>,
}

type Known<K, V> = Mutex<FxHashMap<K, V>>;

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum What {
    /// Elements that the access of this number moves.
    Moved(usize),
    /// Elements that it touches, each once per iteration of so many loops; whether to lean high.
    Touched(usize, usize, bool),
    /// Elements of it that are needed.
    Needed(usize),
    /// Elements that it touches in that iteration of so many loops in which it touches most.
    Largest(usize, usize),
    /// Iterations of so many of its loops.
    Iterations(usize, usize),
    /// Iterations of so many loops of the grid.
    Points(usize),
}

impl Counts {
    /// A count for these tiles.
    pub(crate) fn of(&self, kernel: &Kernel, what: What, parts: impl FnOnce() -> Vec<Arc<Group>>) -> u64 {
        let parts = get(&self.counted, what, || parts().into());
        parts.iter().fold(1, |product, part| product.saturating_mul(part.total(kernel)))
    }

    /// A part that is made of this.
    pub(crate) fn group(&self, key: Vec<u64>, make: impl FnOnce() -> Group) -> Arc<Group> {
        get(&self.groups, key, || Arc::new(make()))
    }

    pub(crate) fn factors(
        &self,
        access: usize,
        lean: Lean,
        make: impl FnOnce() -> Vec<Arc<Factor>>,
    ) -> Arc<[Arc<Factor>]> {
        get(&self.factors, (access, lean), || make().into())
    }

    pub(crate) fn parts(&self, make: impl FnOnce() -> Parts) -> Arc<Parts> {
        lock(&self.parts).get_or_insert_with(|| Arc::new(make())).clone()
    }

    pub(crate) fn tasks(&self, make: impl FnOnce() -> Vec<Task>) -> Arc<[Task]> {
        lock(&self.tasks).get_or_insert_with(|| make().into()).clone()
    }

    pub(crate) fn least(&self, access: usize, make: impl FnOnce() -> u64) -> u64 {
        get(&self.least, access, make)
    }

    /// A number that is the same for what is the same text; `at` numbers what was asked.
    pub(crate) fn place(&self, at: usize, text: impl FnOnce() -> String) -> usize {
        if let Some(Some(known)) = lock(&self.places).get(at) {
            return *known;
        }
        let mut texts = lock(&self.texts);
        let next = texts.len();
        let place = *texts.entry(text()).or_insert(next);
        let mut places = lock(&self.places);
        if places.len() <= at {
            places.resize(at + 1, None);
        }
        places[at] = Some(place);
        place
    }
}

fn get<K: Eq + Hash, V: Clone>(known: &Known<K, V>, key: K, make: impl FnOnce() -> V) -> V {
    if let Some(found) = lock(known).get(&key) {
        return found.clone();
    }
    // What is made may ask for others.
    let made = make();
    lock(known).insert(key, made.clone());
    made
}

/// A thread that panicked takes all others down with it: nobody goes by what it left.
pub(crate) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
