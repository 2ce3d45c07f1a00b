//! Tiles that a thread keeps from one point of the grid to the next, because they are the same there.

use super::arena::Buffer;
use super::convert::Block;
use crate::kernels::contract::Layout;
use std::collections::BTreeMap;

/// Bytes that all threads keep together at most. Beside it stand the tiles of each point; both are less than the
/// 64 MiB that a run may take beyond its inputs and outputs.
const ALL: usize = 40 << 20;
/// Bytes that one thread keeps at most.
const EACH: usize = 12 << 20;

/// Bytes of a tile below which finding it again is no faster than loading it.
pub(super) const LEAST: usize = 4 << 10;

/// Which tile: its value and where its elements are in the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    value: usize,
    start: i64,
    steps: [i64; 2],
    lengths: [usize; 2],
}

impl Key {
    /// Of a tile of which every element exists.
    pub(super) fn new(value: usize, block: Block) -> Self {
        let Block { start, outer, inner, rows, columns, .. } = block;
        Self { value, start, steps: [outer, inner], lengths: [rows, columns] }
    }
}

/// A tile that is kept.
pub(crate) struct KeptTile {
    pub buffer: Buffer,
    pub layout: Layout,
}

/// The tiles that are kept.
pub(crate) struct Kept {
    numbers: BTreeMap<Key, usize>,
    tiles: Vec<KeptTile>,
    /// Bytes that may still be kept.
    room: usize,
    limit: usize,
}

impl Kept {
    /// Nothing, for one of so many threads.
    pub(crate) fn new(threads: usize) -> Self {
        let limit = (ALL / threads.max(1)).min(EACH);
        Self { numbers: BTreeMap::new(), tiles: vec![], room: limit, limit }
    }

    /// The number of the tile, if it is kept.
    pub(crate) fn find(&self, key: &Key) -> Option<usize> {
        self.numbers.get(key).copied()
    }

    /// Whether a tile of so many bytes can be kept besides.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        bytes <= self.room
    }

    /// Keeps a tile; its number.
    pub(crate) fn keep(&mut self, key: Key, tile: KeptTile, bytes: usize) -> usize {
        self.room = self.room.saturating_sub(bytes);
        self.tiles.push(tile);
        self.numbers.insert(key, self.tiles.len() - 1);
        self.tiles.len() - 1
    }

    /// All tiles, by number.
    pub(crate) fn tiles(&self) -> &[KeptTile] {
        &self.tiles
    }

    /// Keeps nothing any more, and gives the buffers back.
    pub(crate) fn clear(&mut self, spare: &mut Vec<Buffer>) {
        self.numbers.clear();
        self.room = self.limit;
        spare.extend(self.tiles.drain(..).map(|tile| tile.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::{ALL, Block, Buffer, EACH, Kept, KeptTile, Key, Layout};

    fn key(start: i64) -> Key {
        Key::new(1, Block { start, outer: 8, inner: 1, rows: 4, columns: 8, to: 0, pitch: 8 })
    }

    fn tile() -> KeptTile {
        KeptTile { buffer: Buffer::default(), layout: Layout::Rows(8) }
    }

    #[test]
    fn tiles_are_kept_while_there_is_room_and_found_until_all_are_given_up() {
        let mut kept = Kept::new(1);
        assert_eq!(kept.keep(key(0), tile(), EACH - 100), 0);
        assert!(kept.has_room(100) && !kept.has_room(101));
        assert_eq!(kept.keep(key(64), tile(), 100), 1);
        assert_eq!((kept.find(&key(0)), kept.find(&key(64)), kept.find(&key(32))), (Some(0), Some(1), None));
        let mut spare = vec![];
        kept.clear(&mut spare);
        assert_eq!((spare.len(), kept.find(&key(0))), (2, None));
        assert!(kept.has_room(EACH));
    }

    #[test]
    fn many_threads_together_keep_no_more_than_few() {
        assert!(Kept::new(64).has_room(ALL / 64) && !Kept::new(64).has_room(ALL / 64 + 1));
        assert!(!Kept::new(1).has_room(EACH + 1));
    }
}
