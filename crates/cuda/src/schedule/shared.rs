//! Tiles in shared memory: the arrangement of their elements.
//!
//! A row of the tile is cut into chunks of 16 bytes, the unit of `ldmatrix` and of the widest copies. Reading the same
//! chunk of eight consecutive rows must touch all 32 banks once. Where a row has 2, 4 or a multiple of 8 chunks, the
//! chunk's number is combined by exclusive or with bits of the row's number; otherwise rows are padded to an odd number
//! of chunks. Both directions of `ldmatrix` (plain and `.trans`) read this way.

use einloom_cascade::DType;
use einloom_tile::AxisId;

/// The arrangement of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Swizzle {
    /// Bytes from row to row, a multiple of 16.
    pub pitch: usize,
    /// The chunk is combined with `(row >> shift) & mask`.
    pub shift: usize,
    /// See `shift`; 0 for none.
    pub mask: usize,
}

impl Swizzle {
    /// For rows of `bytes` bytes.
    pub fn for_rows(bytes: usize) -> Self {
        let chunks = bytes.div_ceil(16).max(1);
        match chunks {
            2 => Self { pitch: 32, shift: 2, mask: 1 },
            4 => Self { pitch: 64, shift: 1, mask: 3 },
            n if n % 8 == 0 => Self { pitch: 16 * n, shift: 0, mask: 7 },
            n => Self { pitch: 16 * (n | 1), shift: 0, mask: 0 },
        }
    }

    /// For rows of `bytes` bytes of which lanes read whole chunks one by one, the same chunk of rows `apart` from each other:
    /// 0 where all lanes read along one row. Addresses are sums of constants then wherever rows next to each other are read.
    pub fn for_chunks(bytes: usize, apart: usize) -> Self {
        let chunks = bytes.div_ceil(16).max(1);
        match apart {
            0 => Self { pitch: 16 * chunks, shift: 0, mask: 0 },
            n if n % 2 == 1 => Self { pitch: 16 * (chunks | 1), shift: 0, mask: 0 },
            n => match Self::for_rows(bytes) {
                plain if plain.mask == 0 => plain,
                combined => Self { shift: n.trailing_zeros() as usize, ..combined },
            },
        }
    }

    /// Where byte `at` of a row begins.
    pub fn offset(self, row: usize, at: usize) -> usize {
        row * self.pitch + (((at / 16) ^ ((row >> self.shift) & self.mask)) * 16) + at % 16
    }
}

/// A tile's copy in shared memory.
#[derive(Clone, Debug, PartialEq)]
pub struct SharedTile {
    /// The number type its elements are stored as.
    pub element: DType,
    /// The axis from row to row; `None` for a tile with one axis.
    pub outer: Option<AxisId>,
    /// The axis along a row.
    pub inner: AxisId,
    /// Rows, those beyond the tile's included.
    pub rows: usize,
    /// Elements of a row, those beyond the tile's included.
    pub columns: usize,
    /// The arrangement.
    pub swizzle: Swizzle,
    /// Copies of it: chunks of a stream that are on their way together.
    pub stages: usize,
    /// Where it begins, in bytes.
    pub offset: usize,
}

impl SharedTile {
    /// Bytes of one copy, a multiple of 128.
    pub fn stage_bytes(&self) -> usize {
        (self.rows * self.swizzle.pitch).next_multiple_of(128)
    }

    /// Bytes of all copies.
    pub fn bytes(&self) -> usize {
        self.stages * self.stage_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_distinct_and_chunks_of_eight_rows_meet_every_bank_once() {
        for bytes in [16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 192, 256, 384, 512] {
            let s = Swizzle::for_rows(bytes);
            let mut seen = std::collections::BTreeSet::new();
            for row in 0..64 {
                for at in (0..bytes).step_by(2) {
                    let place = s.offset(row, at);
                    assert!(place < 64 * s.pitch);
                    assert!(seen.insert(place), "rows of {bytes} bytes: {row}, {at}");
                }
            }
            for first in (0..64).step_by(8) {
                for chunk in 0..bytes / 16 {
                    let banks: std::collections::BTreeSet<usize> =
                        (first..first + 8).map(|row| s.offset(row, chunk * 16) / 16 % 8).collect();
                    assert_eq!(banks.len(), 8, "rows of {bytes} bytes, chunk {chunk}");
                }
            }
        }
    }

    /// Eight lanes that read the same chunk of rows this far apart meet every bank once, wherever the row has a multiple of
    /// eight chunks; and one row's chunks lie in order where all lanes read along it.
    #[test]
    fn chunks_of_rows_apart_meet_every_bank_once() {
        for bytes in [128, 256, 512] {
            for apart in [1, 2, 4] {
                let s = Swizzle::for_chunks(bytes, apart);
                let mut seen = std::collections::BTreeSet::new();
                assert!((0..64).all(|row| (0..bytes).step_by(4).all(|at| seen.insert(s.offset(row, at)))));
                for (first, chunk) in (0..64).flat_map(|first| (0..bytes / 16).map(move |chunk| (first, chunk))) {
                    let place = |lane: usize| s.offset(first / apart * apart * 8 + lane * apart, chunk * 16) / 16 % 8;
                    let banks: std::collections::BTreeSet<usize> = (0..8).map(place).collect();
                    assert_eq!(banks.len(), 8, "rows of {bytes} bytes, {apart} apart, from {first}, chunk {chunk}");
                }
            }
            let along = Swizzle::for_chunks(bytes, 0);
            assert!((0..bytes).all(|at| along.offset(3, at) == 3 * bytes + at));
        }
    }
}
