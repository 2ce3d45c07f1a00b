//! What rectangles of two indices of a grid take, for kernels in parts.
//!
//! A rectangle that comes in once takes `c + a r + b s + d r s` for `r` by `s` positions, which four of them say. Which do is looked for in
//! every way to write the kernel, with every order of its grid: tiles that fit; some rows that stay as one tile while the columns pass one by one; and the
//! same of columns. Each part may be written in another way.

use crate::Work;
use crate::frame::{Frame, Memory, last};
use crate::parts::{Cut, Piece};
use einloom_tile::Kernel;
use rustc_hash::FxHashMap;
use std::cell::{OnceCell, RefCell};

/// Tiles of a part along one index, at most; along the other as many as it takes.
pub(crate) const MOST: usize = 12;
/// Times what comes in once: as much more may come in beside.
const ONCE: f64 = 1.001;

/// One way to write a kernel.
pub(crate) struct Way {
    pub kernel: Kernel,
    /// The same as a program of its own.
    pub frame: Frame,
    /// Places of the two indices among its free ones.
    pub places: [usize; 2],
    /// Whether it differs from the one before in the order of its grid alone.
    pub reordered: bool,
}

/// Numbers of groups, each with the most of the other index that a group comes in once with.
type Groups = Box<[(usize, usize)]>;

/// What rectangles of two indices take.
pub(crate) struct Plane {
    pub extents: [usize; 2],
    /// By a rectangle's positions of one index the most of the other with which it comes in once, none where none does.
    pub most: [Vec<usize>; 2],
    /// `c`, `a`, `b` and `d`.
    takes: [f64; 4],
    /// The least that a position takes.
    price: f64,
    /// What even rectangles take: by the index that they are of one length along, by that length, and by the other. What is asked for together is together.
    known: RefCell<[FxHashMap<usize, FxHashMap<usize, f64>>; 2]>,
    /// By index and positions: see [`Plane::groups`].
    grouped: [Vec<OnceCell<Groups>>; 2],
}

/// Where a rectangle lies: along each index its first position, and how many it has.
pub(crate) type Place = [(usize, usize); 2];

impl Way {
    /// A rectangle by itself.
    fn of(&self, place: Place) -> Option<Frame> {
        self.frame.piece(&self.along(place))
    }

    /// The same as a piece has it.
    fn along(&self, place: Place) -> Vec<(usize, usize, usize)> {
        self.places.iter().zip(place).map(|(&index, (first, len))| (index, first, len)).collect()
    }

    /// Sizes of all free indices for a tile of the two.
    fn sizes(&self, tile: [usize; 2]) -> Vec<usize> {
        let mut sizes = vec![1; self.frame.free.len()];
        self.places.iter().zip(tile).for_each(|(&i, n)| sizes[i] = n);
        sizes
    }
}

impl Plane {
    pub fn new(ways: &mut [Way], memory: Memory<'_>, work: &mut Work) -> Option<Self> {
        let way = ways.first()?;
        let all = way.frame.extents();
        let extents = way.places.map(|i| all[i]);
        let [q, n] = extents;
        let least = |r: usize, s: usize| Some(way.of([(0, r), (0, s)])?.least(memory) as f64);
        if q < 2 || n < 2 {
            return None;
        }
        let [r, s] = [q.div_ceil(2), n.div_ceil(2)];
        let [few, tall, wide, full] = [least(r, s)?, least(q, s)?, least(r, n)?, least(q, n)?];
        let [dr, ds] = [(q - r) as f64, (n - s) as f64];
        let both = (full - tall - wide + few) / (dr * ds);
        let by_row = (tall - few) / dr - both * s as f64;
        let by_column = (wide - few) / ds - both * r as f64;
        let once = few - by_row * r as f64 - by_column * s as f64 - both * (r * s) as f64;
        let most = [vec![0; q + 1], vec![0; n + 1]];
        let mut plane = Self {
            extents,
            most,
            takes: [once, by_row, by_column, both],
            price: f64::INFINITY,
            known: RefCell::default(),
            grouped: extents.map(|n| vec![OnceCell::new(); n + 1]),
        };
        for way in ways {
            if !way.reordered {
                plane.add_tiles(way, memory);
            }
            plane.add_passing(way, memory, work);
        }
        let [rows, columns] = &mut plane.most;
        for r in (1..q).rev() {
            rows[r] = rows[r].max(rows[r + 1]);
        }
        let mut r = q;
        for (s, most) in columns.iter_mut().enumerate().skip(1) {
            while r > 0 && rows[r] < s {
                r -= 1;
            }
            *most = r;
        }
        let rows = &plane.most[0];
        let price = |r: usize| plane.takes(r, rows[r]) / (r * rows[r]) as f64;
        plane.price = (1..=q).filter(|&r| rows[r] > 0).map(price).fold(f64::INFINITY, f64::min);
        Some(plane).filter(|p| p.price.is_finite())
    }

    /// Tiles that fit.
    fn add_tiles(&mut self, way: &mut Way, memory: Memory<'_>) {
        let mut s = self.extents[1];
        for r in 1..=self.extents[0] {
            while s > 0 && !way.frame.fits(&way.sizes([r, s]), memory) {
                s -= 1;
            }
            self.most[0][r] = self.most[0][r].max(s);
        }
    }

    /// Rows that stay while all columns pass, and columns that stay.
    fn add_passing(&mut self, way: &mut Way, memory: Memory<'_>, work: &mut Work) {
        let [q, n] = self.extents;
        let mut comes_once = |tile: [usize; 2], of: [usize; 2]| {
            let sizes = way.sizes(tile);
            let Some(mut part) = way.of(of.map(|len| (0, len))) else { return false };
            part.fits(&sizes, memory) && part.moved(&sizes, memory, work) as f64 <= ONCE * self.takes(of[0], of[1])
        };
        let rows = last(q + 1, |r| r == 0 || comes_once([r, 1], [r, n]));
        let columns = last(n + 1, |s| s == 0 || comes_once([1, s], [q, s]));
        for r in 1..=q {
            let most = if r <= rows { n } else { columns };
            self.most[0][r] = self.most[0][r].max(most);
        }
    }

    /// What so many positions take that come in once.
    fn takes(&self, r: usize, s: usize) -> f64 {
        let [once, by_row, by_column, both] = self.takes;
        let [r, s] = [r as f64, s as f64];
        once + by_row * r + by_column * s + both * r * s
    }

    /// What so many rows and columns take at least, in whatever parts.
    pub fn at_least(&self, rows: usize, columns: usize) -> f64 {
        self.price * (rows * columns) as f64
    }

    /// What rectangles of some lengths along an index take, of one length along the other, in the best even rectangles, at most [`MOST`] along one of the indices.
    pub fn evenly(&self, index: usize, lengths: &[usize], other: usize) -> Vec<f64> {
        let mut known = self.known.borrow_mut();
        let known = known[1 - index].entry(other).or_default();
        let takes = |&len: &usize| {
            let [rows, columns] = if index == 0 { [len, other] } else { [other, len] };
            *known.entry(len).or_insert_with(|| self.even(rows, columns, MOST))
        };
        lengths.iter().map(takes).collect()
    }

    /// What so many rows and columns take in even rectangles, at most so many along one of the indices.
    pub fn even(&self, rows: usize, columns: usize, most: usize) -> f64 {
        if rows == 0 || columns == 0 {
            return 0.0;
        }
        self.best_even(rows, columns, most).0
    }

    /// The same with how many there are along each.
    fn best_even(&self, rows: usize, columns: usize, most: usize) -> (f64, [usize; 2]) {
        let [once, by_row, by_column, both] = self.takes;
        let takes = |[along, across]: [usize; 2]| {
            let [a, b, r, s] = [along, across, rows, columns].map(|n| n as f64);
            once * a * b + by_row * r * b + by_column * s * a + both * r * s
        };
        let [by_rows, by_columns] = [self.groups(0, rows), self.groups(1, columns)];
        let across = by_rows.iter().map(|&(along, wide)| [along, columns.div_ceil(wide)]);
        let along = by_columns.iter().map(|&(across, tall)| [rows.div_ceil(tall), across]);
        let all = across.take_while(|t| t[0] <= most).chain(along.take_while(|t| t[1] <= most));
        let all = all.map(|tiles| (takes(tiles), tiles));
        all.fold((f64::INFINITY, [1, 1]), |a, b| if b.0 < a.0 { b } else { a })
    }

    /// In how many groups, at most [`MOST`], so many positions of an index may be, with the most of the other that a group comes in once with. Where more groups
    /// do not have more of it, the fewest.
    fn groups(&self, index: usize, len: usize) -> &[(usize, usize)] {
        let find = || {
            let mut out: Vec<(usize, usize)> = vec![];
            for groups in 1..=MOST.min(len) {
                let most = self.most[index][len.div_ceil(groups)];
                if out.last().map_or(0, |o| o.1) < most {
                    out.push((groups, most));
                }
            }
            out.into()
        };
        self.grouped[index][len].get_or_init(find)
    }

    /// A rectangle in the way that moves least, and what it moves.
    pub fn piece(&self, ways: &[Way], place: Place, memory: Memory<'_>, work: &mut Work) -> Option<(u64, Piece)> {
        let [rows, columns] = place.map(|p| p.1);
        let [along, across] = self.best_even(rows, columns, MOST).1;
        let [r, s] = [rows.div_ceil(along), columns.div_ceil(across)];
        let mut best: Option<(u64, usize, Vec<usize>)> = None;
        for (k, way) in ways.iter().enumerate() {
            let Some(mut part) = way.of(place) else { continue };
            for tile in [[r, s], [r, 1], [1, s]] {
                let sizes = way.sizes(tile);
                if part.fits(&sizes, memory) {
                    let bytes = part.moved(&sizes, memory, work);
                    if best.as_ref().is_none_or(|b| bytes < b.0) {
                        best = Some((bytes, k, sizes));
                    }
                }
            }
        }
        let (mut bytes, k, mut sizes) = best?;
        let along = ways[k].along(place);
        // What is searched for it alone may be better still.
        if let Ok(found) = ways[k].of(place)?.descend(memory, false, work)
            && found.bytes < bytes
        {
            (bytes, sizes) = (found.bytes, found.sizes);
        }
        Some((bytes, Piece { along, sizes, way: k }))
    }

    /// All of these rectangles, if they move less than `limit` bytes.
    pub fn pieces(
        &self,
        ways: &[Way],
        places: impl Iterator<Item = Place>,
        limit: f64,
        memory: Memory<'_>,
        work: &mut Work,
    ) -> Option<Cut> {
        let mut cut = Cut { pieces: vec![], bytes: 0 };
        for place in places {
            let (bytes, piece) = self.piece(ways, place, memory, work)?;
            cut.bytes += bytes;
            if cut.bytes as f64 >= limit {
                return None;
            }
            cut.pieces.push(piece);
        }
        // An index that no cut divides is none of what is cut.
        let several = cut.pieces.len() > 1;
        for index in [1, 0] {
            let whole = |piece: &Piece| piece.along[index].2 == self.extents[index];
            if several && cut.pieces.iter().all(whole) {
                cut.pieces.iter_mut().for_each(|piece| _ = piece.along.remove(index));
            }
        }
        Some(cut)
    }
}
