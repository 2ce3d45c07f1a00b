//! The schedule of a specialised kernel: rings of tiles in shared memory, and one list of steps per role.

use super::{Descriptor, Reason};
use crate::schedule::Schedule;
use einloom_cascade::DType;
use einloom_tile::{AxisId, Coord, Kernel, Op, TensorId, ValueId};

/// Names a [`Ring`] of its schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RingId(pub usize);

/// An operation of the kernel: `body[op]`, or operation `op` of the stream at `body[stream]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpAt {
    /// The stream's place in the kernel's body; `None` for an operation of the kernel's body itself.
    pub stream: Option<usize>,
    /// Its place in that body.
    pub op: usize,
}

/// Bytes of a row of a panel; bits 4..6 of an address are combined with bits 7..9 as far as this reaches. The bulk copy
/// and `wgmma` know the same three patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)]
pub enum SwizzleBytes {
    B32,
    B64,
    B128,
}

/// A tile in a stage of a ring. It lies as panels of `panel` columns, one after the other, each with all rows.
#[derive(Clone, Debug, PartialEq)]
pub struct RingTile {
    /// The tile.
    pub value: ValueId,
    /// Copied from.
    pub tensor: TensorId,
    /// One per dimension of the tensor: where the element at the windows' first positions is.
    pub at: Vec<Coord>,
    /// The number type, 2 bytes wide.
    pub element: DType,
    /// The axis from row to row.
    pub outer: AxisId,
    /// The axis along a row, adjacent in memory.
    pub inner: AxisId,
    /// The dimensions of the tensor that `outer` and `inner` move along.
    pub dims: [usize; 2],
    /// Rows, those beyond the tile's included: as many as instructions reach.
    pub rows: usize,
    /// Elements of a row, a multiple of the panel's.
    pub columns: usize,
    /// The pattern of a panel.
    pub swizzle: SwizzleBytes,
    /// Where it begins in a stage, in bytes; a multiple of 1024.
    pub offset: usize,
    /// How the blocks of a cluster copy it together; `None` if each copies its own.
    pub shared: Option<Share>,
}

/// A tile that all blocks of a cluster read: each copies a part of it to all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// What a part is.
    pub cut: Cut,
    /// Bit `b`: a part is brought to block `b` of the cluster.
    pub mask: u16,
}

/// Where a tile is cut into as many equal parts as a cluster has blocks; block `b` copies part `b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Between panels.
    Panels,
    /// Between rows, those of all panels alike.
    Rows,
}

/// Blocks that run at the same time and read some of the same tiles: neighbours along one axis of the grid, block `b` of
/// the cluster at the `b`th window of every `size`.
///
/// A stage of a ring with a shared tile is filled by all blocks of the cluster and read by the consumers of all: these
/// arrive on the empty barriers of every block, and each block's full barrier counts the bytes of all parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// The axis.
    pub axis: AxisId,
    /// Blocks.
    pub size: usize,
    /// Whether no block starts before all have initialised their barriers.
    pub meets_first: bool,
    /// Whether no block leaves before all are done: others arrive on its barriers until then.
    pub meets_last: bool,
}

/// Tiles that arrive together, in `stages` places that are filled and emptied in turn.
///
/// The `f`th filling takes stage `f % stages`. It completes phase `f / stages` of that stage's *full* barrier, on which
/// one thread announces the bytes of all tiles and the copies arrive; every consumer warpgroup that has read the stage
/// arrives on its *empty* barrier.
#[derive(Clone, Debug, PartialEq)]
pub struct Ring {
    /// For people: the names of its tiles.
    pub name: String,
    /// What a stage holds.
    pub tiles: Vec<RingTile>,
    /// Places.
    pub stages: usize,
    /// Where the first stage begins in shared memory, in bytes; a multiple of 1024.
    pub offset: usize,
    /// Bytes from stage to stage.
    pub stage_bytes: usize,
    /// Arrivals that complete a phase of an empty barrier: of the consumers that read the stage, in whatever block.
    pub readers: usize,
    /// Bytes that complete a phase of a full barrier: of all tiles, whichever block copies them.
    pub bytes: usize,
}

/// Who executes a list of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// One thread of the last warpgroup.
    Producer,
    /// Every one of the first warpgroups; each owns 64 rows of every tile with the row axis.
    Consumer,
}

/// What a role does, in order. A role counts for itself, per ring, how many stages it has filled, awaited and released.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Producer: waits until the stage of the next filling has been read by everyone: parity
    /// `(filled / stages + ahead) % 2` of its empty barrier. A barrier that no phase has completed counts as having
    /// completed a phase of parity 1.
    Acquire {
        /// The ring.
        ring: RingId,
        /// 1: see above.
        ahead: usize,
    },
    /// Producer: announces the ring's bytes on the full barrier of the acquired stage and starts the copies of its
    /// tiles, at the current windows; one more filled.
    Fill {
        /// The ring.
        ring: RingId,
    },
    /// Consumer: waits until the next stage is full: parity `(awaited / stages + ahead) % 2` of its full barrier; one
    /// more awaited. Products read the stage awaited last.
    Await {
        /// The ring.
        ring: RingId,
        /// 0: see above.
        ahead: usize,
    },
    /// Consumer: arrives on the empty barrier of the oldest stage it has awaited and not released; of a ring with shared
    /// tiles, on that of every block of the cluster.
    Release {
        /// The ring.
        ring: RingId,
    },
    /// Consumer: an operation on tiles in registers: a load that is no ring's, a map, a reduction, a store.
    Compute(OpAt),
    /// Consumer: reads a tile of the ring's stage awaited last into registers.
    Read {
        /// The ring.
        ring: RingId,
        /// The tile.
        value: ValueId,
    },
    /// Consumer: starts a product as one group: its chain of `wgmma` on the registers and stages as they are now.
    Multiply(OpAt),
    /// Consumer: waits until at most this many groups are under way. Groups complete in the order they were started.
    Settle {
        /// Groups.
        pending: usize,
    },
    /// Consumer: waits for its turn to start products: see [`Turns`].
    TakeTurn,
    /// Consumer: lets the next warpgroup start its products.
    PassTurn,
    /// Sets the states of the stream at this place of the body to what they are before the first chunk.
    Start {
        /// The stream's place.
        stream: usize,
    },
    /// At the end of a chunk: states that are not updated in place take their next values.
    Advance {
        /// The stream's place.
        stream: usize,
    },
    /// The chunks of a stream, in order: `first` for the first one, `rest` for each other, then `after` once. None of
    /// the three if there is no chunk. In `after` there is no current chunk.
    Chunks {
        /// The stream's place in the body.
        stream: usize,
        /// Steps of the first chunk.
        first: Vec<Step>,
        /// Steps of every other chunk.
        rest: Vec<Step>,
        /// Once at the end.
        after: Vec<Step>,
    },
}

/// Consumer warpgroups start products in turn, so that one's products run under the other's arithmetic. Named barrier
/// `TURN_BARRIER + w` is warpgroup `w`'s turn, among the 256 threads of `w` and of the one that passes it on; the
/// last warpgroup passes the first turn at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turns {
    /// Warpgroups that take turns.
    pub warpgroups: usize,
}

/// The named barrier of the first warpgroup's turn.
pub const TURN_BARRIER: usize = 2;

/// Registers per thread, as `setmaxnreg` sets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Of the producer warpgroup.
    pub producer: usize,
    /// Of a consumer.
    pub consumer: usize,
}

/// How one kernel is executed by a producer and consumers.
#[derive(Clone, Debug, PartialEq)]
pub struct Specialised {
    /// Registers: frames, homes, instructions, and what is updated in place.
    pub layout: Schedule,
    /// Consumer warpgroups.
    pub consumers: usize,
    /// The axis whose positions the consumers share: warpgroup `w` has positions `64 w .. 64 (w + 1)` of its window.
    pub rows: AxisId,
    /// Registers per thread.
    pub registers: Registers,
    /// Tiles in shared memory.
    pub rings: Vec<Ring>,
    /// How products read tiles in shared memory.
    pub descriptors: Vec<Descriptor>,
    /// Whether consumers take turns.
    pub turns: Option<Turns>,
    /// Which blocks read some tiles together.
    pub cluster: Option<Cluster>,
    /// Why none do, if there is no cluster.
    pub apart: Option<Reason>,
    /// What the producer does per grid point.
    pub producer: Vec<Step>,
    /// What a consumer does per grid point.
    pub consumer: Vec<Step>,
    /// Bytes of shared memory, the barriers included.
    pub shared_bytes: usize,
}

impl SwizzleBytes {
    /// Bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::B32 => 32,
            Self::B64 => 64,
            Self::B128 => 128,
        }
    }

    /// The widest that a row of this many bytes fills.
    pub fn for_row(bytes: usize) -> Self {
        match bytes {
            0..=32 => Self::B32,
            33..=64 => Self::B64,
            _ => Self::B128,
        }
    }

    /// Where a byte of a panel lies: bits 4.. combined with bits 7.. .
    pub fn place(self, at: usize) -> usize {
        at ^ ((at % (8 * self.bytes())) >> 7 << 4)
    }
}

impl RingTile {
    /// Elements of a panel's row.
    pub fn panel(&self) -> usize {
        self.swizzle.bytes() / self.element.bytes()
    }

    /// Bytes of a panel.
    pub fn panel_bytes(&self) -> usize {
        self.rows * self.swizzle.bytes()
    }

    /// Bytes of the tile.
    pub fn bytes(&self) -> usize {
        self.columns / self.panel() * self.panel_bytes()
    }

    /// Where an element lies, in bytes from the tile's first.
    pub fn place(&self, row: usize, column: usize) -> usize {
        let panel = column / self.panel() * self.panel_bytes();
        panel + self.swizzle.place(row * self.swizzle.bytes() + column % self.panel() * self.element.bytes())
    }
}

impl Ring {
    /// Whether blocks of a cluster fill and read it together.
    pub fn is_shared(&self) -> bool {
        self.tiles.iter().any(|t| t.shared.is_some())
    }
}

impl Specialised {
    /// Blocks of a cluster; 1 without clusters.
    pub fn blocks(&self) -> usize {
        self.cluster.map_or(1, |c| c.size)
    }

    /// The ring.
    pub fn ring(&self, id: RingId) -> &Ring {
        &self.rings[id.0]
    }

    /// The operation.
    pub fn op<'a>(&self, kernel: &'a Kernel, at: OpAt) -> Option<&'a Op> {
        match at.stream {
            None => kernel.body.get(at.op),
            Some(k) => match kernel.body.get(k) {
                Some(Op::Stream { body, .. }) => body.get(at.op),
                _ => None,
            },
        }
    }

    /// Threads of a block.
    pub fn threads(&self) -> usize {
        128 * (self.consumers + 1)
    }

    /// The ring and tile of a value, if it is copied into shared memory.
    pub fn tile(&self, value: ValueId) -> Option<(RingId, &RingTile)> {
        self.rings.iter().enumerate().find_map(|(k, ring)| {
            let tile = ring.tiles.iter().find(|t| t.value == value)?;
            Some((RingId(k), tile))
        })
    }
}
