//! Indices that arrays are read by a quotient of, such as the heads `h` of `K[b, h/G, n, d]`: grouped queries.
//!
//! Along `h` such an array is read again and again. As two indices, `h = h_outer·G + h_inner`, it carries the first alone:
//! positions of the second are rows that share it, and form a tile. Which way is faster is decided by what is predicted of both
//! ([`crate::indices`]).
//!
//! Conditions, without which an index stays in one piece: the quotient's divisor divides the index's size; what else it is
//! divided by are multiples of that; every array that carries the index is read at its own position and has all of them; and
//! no reduction is over it, and no recurrence along it.

use crate::Options;
use crate::expr::{Atom, Coordinate, Expr, ExprId, Exprs};
use crate::problem::{Index, Item, ItemDef, Problem};
use einloom_algebra::NodeId;
use einloom_cascade::IndexId;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// An index that is two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// The index as written, such as `h`.
    pub index: String,
    /// What its quotient is called, such as `h_outer`.
    pub outer: String,
    /// What its remainder is called, such as `h_inner`.
    pub inner: String,
    /// Positions of the remainder: the divisor.
    pub by: usize,
}

impl Options {
    /// The same for a program in which these indices are two: a tile of such an index is one of as many positions of both.
    pub(crate) fn in_parts(&self, splits: &[Split]) -> Self {
        let mut out = self.clone();
        for split in splits {
            let Some(tile) = out.tiles.remove(&split.index) else { continue };
            out.tiles.entry(split.inner.clone()).or_insert(tile.min(split.by));
            out.tiles.entry(split.outer.clone()).or_insert(tile.div_ceil(split.by));
        }
        out
    }
}

/// Indices by array and dimension.
pub(crate) type Carried = BTreeMap<(NodeId, usize), IndexId>;

/// What reads tell of indices.
#[derive(Default)]
struct Uses {
    /// By what each is divided.
    divisors: BTreeMap<IndexId, BTreeSet<i64>>,
    /// Those that stay in one piece.
    whole: BTreeSet<IndexId>,
}

impl Problem {
    /// Makes two of every index for which the conditions hold; says which.
    pub(crate) fn split_quotients(&mut self, x: &mut Exprs) -> Vec<Split> {
        let mut splits = vec![];
        // What is left of an index may be divided again.
        while let Some((index, by)) = self.divided(x) {
            splits.push(self.split(index, by, x));
        }
        if !splits.is_empty() {
            self.order = self.topological(x);
        }
        splits
    }

    fn divided(&self, x: &Exprs) -> Option<(IndexId, usize)> {
        let carried = self.carried(x);
        let mut uses = Uses::default();
        for (k, item) in self.items.iter().enumerate() {
            for (d, &extent) in item.extents.iter().enumerate() {
                if let Some(&i) = carried.get(&(NodeId(k as u32), d))
                    && extent != self[i].extent
                {
                    uses.whole.insert(i);
                }
            }
            if let ItemDef::Fold(fold) = &item.def {
                uses.whole.extend(&fold.over);
            }
            uses.whole.extend(item.axes.iter().filter(|_| item.at.is_some()));
        }
        for l in &self.loops {
            uses.whole.extend(l.within.iter().chain([&l.index]));
        }
        self.each_read(x, &mut |n, at| {
            for (d, c) in at.iter().enumerate() {
                let own = carried.get(&(n, d)).copied();
                if own.is_none() || c.as_index() != own {
                    uses.whole.extend(own);
                    uses.elsewhere(c);
                }
            }
        });
        let fits = |(&i, all): (&IndexId, &BTreeSet<i64>)| {
            let (least, extent) = (*all.first()?, self[i].extent);
            let by = usize::try_from(least).ok().filter(|&by| by > 1 && extent > 0 && extent.is_multiple_of(by))?;
            let fits = !uses.whole.contains(&i) && all.iter().all(|d| d % least == 0);
            fits.then_some((i, by))
        };
        uses.divisors.iter().find_map(fits)
    }

    /// The index of each dimension of an array: its own axis, or the one that an input is read by.
    pub(crate) fn carried(&self, x: &Exprs) -> Carried {
        let mut carried = Carried::new();
        self.each_read(x, &mut |n, at| {
            if matches!(self[n].def, ItemDef::Input) {
                let own = |(d, c): (usize, &Coordinate)| Some(((n, d), c.as_index()?));
                at.iter().enumerate().filter_map(own).for_each(|(place, i)| _ = carried.entry(place).or_insert(i));
            }
        });
        for (k, item) in self.items.iter().enumerate() {
            carried.extend(item.axes.iter().enumerate().map(|(d, &i)| ((NodeId(k as u32), d), i)));
        }
        carried
    }

    pub(crate) fn each_read(&self, x: &Exprs, f: &mut dyn FnMut(NodeId, &[Coordinate])) {
        let mut seen = BTreeSet::new();
        for k in 0..self.items.len() as u32 {
            self.parts(NodeId(k)).into_iter().for_each(|e| x.reads(e, &mut seen, f));
        }
    }

    fn split(&mut self, index: IndexId, by: usize, x: &mut Exprs) -> Split {
        let written = self[index].clone();
        let name = |end: &str| self.fresh_name(&format!("{}_{end}", written.name));
        let split = Split { index: written.name.clone(), outer: name("outer"), inner: name("inner"), by };
        let inner = IndexId(self.indices.len() as u32);
        self.indices.push(Index { name: split.inner.clone(), extent: by });
        self.indices[index.0 as usize] = Index { name: split.outer.clone(), extent: written.extent / by };
        let mut carried = self.carried(x);
        carried.retain(|_, i| *i == index);
        let mut apart = Apart { index, inner, by: by as i64, carried: &carried, x, memo: FxHashMap::default() };
        self.map(&mut |e| apart.expr(e));
        // The last dimensions first: those before them stay where they are.
        for &(n, d) in carried.keys().rev() {
            self.items[n.0 as usize].split(d, inner, by);
        }
        split
    }
}

impl Item {
    fn split(&mut self, d: usize, inner: IndexId, by: usize) {
        self.shape.get_or_insert_with(|| self.extents.clone());
        self.extents[d] /= by;
        self.extents.insert(d + 1, by);
        if !self.axes.is_empty() {
            self.axes.insert(d + 1, inner);
        }
        if let ItemDef::Iterative(i) = &mut self.def
            && i.dim > d
        {
            i.dim += 1;
        }
    }
}

impl Uses {
    /// A coordinate that is not an array's own index.
    fn elsewhere(&mut self, c: &Coordinate) {
        for atom in c.terms.keys() {
            match atom {
                Atom::Index(i) => _ = self.whole.insert(*i),
                Atom::Floor(numerator, by) => match numerator.as_index() {
                    Some(i) => _ = self.divisors.entry(i).or_default().insert(*by),
                    None => self.elsewhere(numerator),
                },
                // Its reads are looked at by themselves.
                Atom::Value(_) => {}
            }
        }
    }
}

/// Expressions in which an index becomes its quotient, `index`, and its remainder.
struct Apart<'a> {
    index: IndexId,
    inner: IndexId,
    by: i64,
    /// The dimensions that have it.
    carried: &'a Carried,
    x: &'a mut Exprs,
    memo: FxHashMap<ExprId, ExprId>,
}

impl Apart<'_> {
    fn expr(&mut self, e: ExprId) -> ExprId {
        if let Some(&done) = self.memo.get(&e) {
            return done;
        }
        let out = match self.x.get(e).clone() {
            Expr::Position(_) | Expr::Within(_) => {
                let mut position = Coordinate::default();
                position.push(self.by, Atom::Index(self.index));
                position.push(1, Atom::Index(self.inner));
                self.x.substitute(e, &BTreeMap::from([(self.index, position)]))
            }
            Expr::Read(n, at) => {
                let mut all = Vec::with_capacity(at.len() + 1);
                for (d, c) in at.iter().enumerate() {
                    all.push(self.coordinate(c));
                    if self.carried.contains_key(&(n, d)) {
                        all.push(Coordinate::index(self.inner));
                    }
                }
                self.x.intern(Expr::Read(n, all))
            }
            _ => {
                let done: BTreeMap<ExprId, ExprId> =
                    self.x.children(e).into_iter().map(|c| (c, self.expr(c))).collect();
                self.x.rebuild(e, &mut |_, c| done[&c])
            }
        };
        self.memo.insert(e, out);
        out
    }

    /// The index itself stands only where an array has it: there it is the quotient.
    fn coordinate(&mut self, c: &Coordinate) -> Coordinate {
        let mut out = Coordinate::fixed(c.offset);
        for (atom, &factor) in &c.terms {
            let atom = match atom {
                Atom::Index(i) => Atom::Index(*i),
                Atom::Floor(n, by) if n.as_index() == Some(self.index) => match by / self.by {
                    1 => Atom::Index(self.index),
                    by => Atom::Floor(n.clone(), by),
                },
                Atom::Floor(n, by) => Atom::Floor(Box::new(self.coordinate(n)), *by),
                Atom::Value(e) => Atom::Value(self.expr(*e)),
            };
            out.push(factor, atom);
        }
        out
    }
}
