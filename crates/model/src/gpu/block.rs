//! One block: how threads share its tiles, and what each takes.

use super::cycles::Clock;
use super::structure::Structure;
use super::uses::each;
use crate::nest::sides;
use einloom_machine::MatrixUnit;
use einloom_tile::{AxisId, Kernel, Op, Program, ValueId};
use std::collections::BTreeSet;

/// A kernel in one arrangement of threads.
pub(super) struct Block<'a> {
    pub program: &'a Program,
    pub kernel: &'a Kernel,
    pub clock: Clock<'a>,
    pub unit: Option<&'a MatrixUnit>,
    /// The axis that groups share, if the unit has groups.
    pub rows: Option<AxisId>,
    /// Groups down and across.
    pub groups: [usize; 2],
    /// Threads that hold tiles.
    pub threads: usize,
    /// Tiles in shared memory.
    pub shared: BTreeSet<ValueId>,
    /// What does not depend on tiles.
    pub structure: &'a Structure,
    /// Axes that no tile in registers has beside another: where nothing multiplies, all threads share a vector along
    /// them.
    pub alone: BTreeSet<AxisId>,
    /// Per tile the registers of a thread for it.
    registers: Vec<f64>,
    /// Per axis its number of positions in a tile, rounded up to what instructions compute.
    padded: Vec<usize>,
}

impl<'a> Block<'a> {
    /// A block whose groups multiply.
    pub fn with_unit(
        program: &'a Program,
        kernel: &'a Kernel,
        structure: &'a Structure,
        clock: Clock<'a>,
        unit: &'a MatrixUnit,
        (rows, groups): (AxisId, [usize; 2]),
    ) -> Self {
        let size = |axis: AxisId| kernel.axis(axis).tile.min(kernel.axis(axis).extent).max(1);
        let per_group = size(rows).div_ceil(unit.rows).div_ceil(groups[0]);
        let loaded = &structure.loaded;
        let (mut shared, mut across) = (BTreeSet::new(), BTreeSet::new());
        each(&kernel.body, &mut |op| {
            if let Op::Mma { dst, a, b, .. } = op {
                let right = if sides(kernel, *a).contains(&rows) { b } else { a };
                shared.extend([a, b].into_iter().filter(|v| loaded.contains(v) || *v == right).copied());
                across.extend(sides(kernel, *dst).into_iter().filter(|x| *x != rows));
            }
        });
        let padded = |k: usize| {
            let axis = AxisId(k as u32);
            if axis == rows {
                unit.rows * per_group * groups[0]
            } else if across.contains(&axis) {
                size(axis).next_multiple_of(unit.column_step * groups[1])
            } else {
                size(axis)
            }
        };
        let padded = (0..kernel.axes.len()).map(padded).collect();
        let threads = unit.group_threads * groups[0] * groups[1];
        let mut block = Self::bare(program, kernel, structure, clock, padded);
        (block.unit, block.rows, block.groups, block.threads) = (Some(unit), Some(rows), groups, threads);
        block.shared = shared;
        block.settle();
        block
    }

    /// A block without products.
    pub fn of_lanes(
        program: &'a Program,
        kernel: &'a Kernel,
        structure: &'a Structure,
        clock: Clock<'a>,
        threads: usize,
    ) -> Self {
        let size = |a: &einloom_tile::Axis| a.tile.min(a.extent).max(1);
        let padded = kernel.axes.iter().map(size).collect();
        let mut block = Self::bare(program, kernel, structure, clock, padded);
        block.threads = threads;
        block.settle();
        block
    }

    /// One thread, without a unit.
    fn bare(
        program: &'a Program,
        kernel: &'a Kernel,
        structure: &'a Structure,
        clock: Clock<'a>,
        padded: Vec<usize>,
    ) -> Self {
        Self {
            program,
            kernel,
            structure,
            clock,
            unit: None,
            rows: None,
            groups: [1, 1],
            threads: 1,
            shared: BTreeSet::new(),
            alone: BTreeSet::new(),
            registers: vec![],
            padded,
        }
    }

    /// Counts registers. To be called after any change to the other fields.
    pub fn settle(&mut self) {
        self.registers = (0..self.kernel.values.len() as u32).map(|v| self.count_registers(ValueId(v))).collect();
    }

    /// Whether a tile is loaded outside all streams.
    pub fn stays(&self, v: ValueId) -> bool {
        self.structure.resident.contains(&v)
    }

    /// Positions of an axis in a tile, those that are computed in vain included.
    pub fn size(&self, axis: AxisId) -> usize {
        self.padded[axis.at()]
    }

    /// Elements of a tile, those that are computed in vain included.
    pub fn elements(&self, v: ValueId) -> f64 {
        sides(self.kernel, v).into_iter().map(|a| self.size(a) as f64).product()
    }

    /// Threads that share a row of a tile.
    pub fn threads_of_row(&self, rows: usize) -> usize {
        match self.unit {
            Some(_) => 4 * self.groups[1],
            // Rows within a warp reduce by shuffles alone, if there are rows enough for all warps.
            None if rows >= self.threads.div_ceil(32) => 32.min(self.threads),
            None => (self.threads / rows.next_power_of_two()).max(1),
        }
    }

    /// Registers of a thread for a tile.
    pub fn registers(&self, v: ValueId) -> f64 {
        self.registers.get(v.at()).copied().unwrap_or_default()
    }

    fn count_registers(&self, v: ValueId) -> f64 {
        if self.shared.contains(&v) {
            return 0.0;
        }
        let value = self.kernel.value(v);
        // Factors, and what is loaded beside them or once, are kept packed as they come, everything else in whole
        // registers: without products compilers unpack a stream's chunk at once.
        let once = self.unit.is_some() || self.structure.resident.contains(&v);
        let packed = self.structure.factors.contains(&v) || once && self.structure.loaded.contains(&v);
        let words = value.dtype.bytes() as f64 / 4.0;
        let words = if packed { words } else { words.max(1.0) };
        let sides = [value.rows, value.cols];
        let of_row = |rows: usize| self.threads_of_row(rows) as f64;
        words
            * match (sides, self.rows) {
                ([None, None], _) => 1.0,
                ([Some(_), Some(_)], _) => (self.elements(v) / self.threads as f64).ceil(),
                // Accumulators: a thread has its rows' and its columns' elements of every tile.
                ([Some(axis), None] | [None, Some(axis)], Some(rows)) if axis == rows => {
                    let threads = (self.threads / self.threads_of_row(0)).max(1);
                    (self.size(axis) as f64 / threads as f64).ceil()
                }
                ([Some(axis), None] | [None, Some(axis)], Some(_)) => (self.size(axis) as f64 / of_row(0)).ceil(),
                ([Some(axis), None] | [None, Some(axis)], None) if self.alone.contains(&axis) => {
                    (self.size(axis) as f64 / self.threads as f64).ceil()
                }
                ([Some(axis), None], None) => {
                    let size = self.size(axis);
                    (size as f64 * of_row(size) / self.threads as f64).ceil()
                }
                ([None, Some(axis)], None) => {
                    let rows = self.kernel.values.iter().find(|o| o.cols == Some(axis) && o.rows.is_some());
                    let rows = rows.and_then(|o| o.rows).map_or(1, |r| self.size(r));
                    (self.size(axis) as f64 / of_row(rows)).ceil()
                }
            }
    }

    /// Bytes of a tile in shared memory: rows of as many bytes as the swizzle's pattern has, 32, 64 or a multiple of
    /// 128, that many that it repeats.
    pub fn shared_bytes(&self, v: ValueId) -> u64 {
        let value = self.kernel.value(v);
        let [outer, inner] = [value.rows, value.cols].map(|axis| axis.map_or(1, |a| self.size(a)));
        let row = inner * value.dtype.bytes();
        let row = if row <= 64 { row.next_power_of_two().max(32) } else { row.next_multiple_of(128) };
        (outer.next_multiple_of(16) * row).next_multiple_of(1024) as u64
    }
}
