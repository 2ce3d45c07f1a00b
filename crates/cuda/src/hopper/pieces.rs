//! The bulk copies that bring a tile: one per panel, of all its rows or of a block's part of them.

use super::{Cut, RingTile};

/// One bulk copy of a tile: some rows of a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Where it goes, in bytes from the tile's first; row after row from there, swizzled.
    pub place: usize,
    /// Its first row and column in the tile.
    pub row: usize,
    /// See above.
    pub column: usize,
    /// Rows; it has the columns of a panel.
    pub rows: usize,
}

/// What block `block` of a cluster of `blocks` copies of a tile: everything, unless the tile is shared.
pub fn pieces(tile: &RingTile, blocks: usize, block: usize) -> Vec<Piece> {
    let all = tile.columns / tile.panel();
    let (panels, rows) = match tile.shared.map(|share| share.cut) {
        None => (0..all, 0..tile.rows),
        Some(Cut::Panels) => (all / blocks * block..all / blocks * (block + 1), 0..tile.rows),
        Some(Cut::Rows) => (0..all, tile.rows / blocks * block..tile.rows / blocks * (block + 1)),
    };
    let piece = |panel: usize| Piece {
        place: panel * tile.panel_bytes() + rows.start * tile.swizzle.bytes(),
        row: rows.start,
        column: panel * tile.panel(),
        rows: rows.len(),
    };
    panels.map(piece).collect()
}
