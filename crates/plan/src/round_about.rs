//! Kernels in five parts that lie round about a small one, for a machine whose innermost memory counts elements.
//!
//! ```text
//! 1 1 1 2 2
//! 1 1 1 2 2
//! 1 1 1 5 3
//! 4 4 4 4 3
//! ```
//!
//! Four tiles that just fail to hold a result leave a rest in its middle that is as small as what they lack; a line across the result would leave
//! more tiles along a whole side. So do even tiles of each part. Found are the places by what one tile moves, `c + a r + b s + d r s` for `r` by `s` positions, which
//! four tiles say; what the parts move is then counted as ever.

use crate::Work;
use crate::frame::{Frame, Memory, last};
use crate::parts::{Cut, Piece};

/// Tiles of a part along each index, at most.
const MOST: usize = 4;
/// Places along the second index that are looked at first.
const PLACES: usize = 64;

/// What rectangles of two indices take, as the model counts one tile.
struct Plane {
    extents: [usize; 2],
    /// By a tile's positions of one index the most of the other that fit, none where none does.
    most: [Vec<usize>; 2],
    /// `c`, `a`, `b` and `d`.
    takes: [f64; 4],
}

/// Where the parts end: rows and columns of the first, rows of the second, columns of the third.
type Places = [usize; 4];

/// The kernel in five parts, where these move less than `limit` bytes.
pub(crate) fn round_about(
    frame: &mut Frame,
    grid: &[usize],
    memory: Memory<'_>,
    limit: f64,
    work: &mut Work,
) -> Option<Cut> {
    let [one, other] = grid[..] else { return None };
    let plane = Plane::new(frame, [one, other], memory, work)?;
    let places = plane.best().filter(|b| b.0 < limit)?.1;
    let mut cut = Cut { pieces: vec![], bytes: 0 };
    for [(first, rows), (from, columns)] in plane.parts(places) {
        let along = vec![(one, first, rows), (other, from, columns)];
        let mut part = frame.piece(&along)?;
        let found = part.descend(memory, f64::INFINITY, false, work).ok()?;
        cut.bytes += found.bytes;
        cut.pieces.push(Piece { along, sizes: found.sizes });
    }
    Some(cut).filter(|c| (c.bytes as f64) < limit)
}

impl Plane {
    fn new(frame: &mut Frame, indices: [usize; 2], memory: Memory<'_>, work: &mut Work) -> Option<Self> {
        let all = frame.extents();
        let extents = indices.map(|i| all[i]);
        let sizes = |tile: [usize; 2]| {
            let mut sizes = vec![1; all.len()];
            indices.iter().zip(tile).for_each(|(&i, n)| sizes[i] = n);
            sizes
        };
        let beside = |frame: &mut Frame, k: usize, n: usize| {
            let tile = |other: usize| if k == 0 { sizes([n, other]) } else { sizes([other, n]) };
            match frame.fits(&tile(1), memory) {
                true => 1 + last(extents[1 - k], |m| frame.fits(&tile(m + 1), memory)),
                false => 0,
            }
        };
        let most =
            [0, 1].map(|k| [&[0][..], &(1..=extents[k]).map(|n| beside(frame, k, n)).collect::<Vec<_>>()].concat());
        // A square, or what is nearest to it.
        let rows = last(extents[0] + 1, |n| n == 0 || most[0][n] >= n.min(extents[1]));
        let [rows, columns] = [rows, most[0][rows]];
        let mut of = |tile: [usize; 2]| {
            let along = vec![(indices[0], 0, tile[0]), (indices[1], 0, tile[1])];
            Some(frame.piece(&along)?.moved(&sizes(tile), memory, work) as f64)
        };
        if rows < 2 || columns < 2 {
            return None;
        }
        let [r, s] = [rows / 2, columns / 2];
        let [few, tall, wide, full] = [of([r, s])?, of([rows, s])?, of([r, columns])?, of([rows, columns])?];
        let [dr, ds] = [(rows - r) as f64, (columns - s) as f64];
        let both = (full - tall - wide + few) / (dr * ds);
        let by_row = (tall - few) / dr - both * s as f64;
        let by_column = (wide - few) / ds - both * r as f64;
        let once = few - by_row * r as f64 - by_column * s as f64 - both * (r * s) as f64;
        Some(Self { extents, most, takes: [once, by_row, by_column, both] })
    }

    /// What so many rows and columns move in the best even tiles.
    fn even(&self, rows: usize, columns: usize) -> f64 {
        if rows == 0 || columns == 0 {
            return 0.0;
        }
        let [once, by_row, by_column, both] = self.takes;
        let one = |along: usize| {
            let most = self.most[0][rows.div_ceil(along)];
            let across = if most == 0 { f64::INFINITY } else { columns.div_ceil(most) as f64 };
            let [along, r, s] = [along, rows, columns].map(|n| n as f64);
            once * along * across + by_row * r * across + by_column * s * along + both * r * s
        };
        (1..=MOST.min(rows)).map(one).fold(f64::INFINITY, f64::min)
    }

    /// What the parts move and where they end, at best.
    fn best(&self) -> Option<(f64, Places)> {
        let columns = self.extents[1];
        let step = columns.div_ceil(PLACES);
        let at = |column: usize| self.at(column);
        let least = |a: &(f64, Places), b: &(f64, Places)| a.0.total_cmp(&b.0);
        let near = (1..columns).step_by(step).filter_map(at).min_by(least)?.1[1];
        (near.saturating_sub(step).max(1)..(near + step + 1).min(columns)).filter_map(at).min_by(least)
    }

    /// The best where the first part has so many columns. The others end where their tiles do.
    fn at(&self, column: usize) -> Option<(f64, Places)> {
        let [q, n] = self.extents;
        // Rows that whole tiles take, so many tiles along them.
        let ends = |k: usize, beside: usize| {
            let all = (1..=MOST.min(beside)).map(move |parts| self.most[1 - k][beside.div_ceil(parts)]);
            let ends = all.flat_map(|tile| (1..=MOST).map(move |times| times * tile));
            let mut ends: Vec<usize> = ends.filter(|&end| end > 0 && end < self.extents[k]).collect();
            ends.sort_unstable();
            ends.dedup();
            ends
        };
        let mut best: Option<(f64, Places)> = None;
        let (firsts, seconds) = (ends(0, column), ends(0, n - column));
        for &second in &seconds {
            for third in ends(1, q - second) {
                let third = third.min(n - column);
                for &first in firsts.iter().filter(|&&f| f >= second) {
                    let places = [first, column, second, third];
                    let takes = self.parts(places).map(|[rows, columns]| self.even(rows.1, columns.1)).sum();
                    if best.as_ref().is_none_or(|b| takes < b.0) {
                        best = Some((takes, places));
                    }
                }
            }
        }
        best
    }

    /// The parts, by the first position and how many along both indices.
    fn parts(&self, [first, column, second, third]: Places) -> impl Iterator<Item = [(usize, usize); 2]> {
        let [q, n] = self.extents;
        let parts = [
            [(0, first), (0, column)],
            [(0, second), (column, n - column)],
            [(second, q - second), (n - third, third)],
            [(first, q - first), (0, n - third)],
            [(second, first - second), (column, n - third - column)],
        ];
        parts.into_iter().filter(|[rows, columns]| rows.1 > 0 && columns.1 > 0)
    }
}
