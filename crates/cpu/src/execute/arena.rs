//! Memory of one thread, kept from one point of the grid to the next.

use super::disorder::SPOILT;
use crate::kernels::contract::Room;
use crate::kernels::fold::Partial;
use crate::kernels::memory::Line;
use crate::kernels::strip::STRIP;
use bytemuck::Pod;

/// Buffers for tiles and scratch for the primitives.
#[derive(Default)]
pub(crate) struct Arena {
    /// One per slot of the kernel.
    pub slots: Vec<Buffer>,
    /// Buffers of tiles that are not needed now.
    pub spare: Vec<Buffer>,
    /// Factors packed for the processor's matrix unit.
    pub packed: Room,
    /// For expressions in f32.
    pub narrow: Scratch<f32>,
    /// For expressions in f64.
    pub wide: Scratch<f64>,
    /// Memory for partial results of rows.
    pub partials: Vec<Vec<Partial>>,
    /// Largest magnitudes of rows.
    pub most: Vec<u32>,
    /// Results of rows.
    pub totals: Vec<f32>,
    /// Coordinates where the current tile begins.
    pub coordinates: Vec<i64>,
}

impl Arena {
    /// Fills everything with NaN. Nothing of it may be needed at the next point.
    pub(crate) fn spoil(&mut self) {
        self.slots.iter_mut().chain(&mut self.spare).for_each(Buffer::spoil);
        self.narrow.spoil(f32::NAN);
        self.wide.spoil(f64::NAN);
        self.coordinates.fill(i64::MIN);
    }
}

/// Memory that grows when it must.
#[derive(Default)]
pub(crate) struct Buffer(Vec<Line>);

impl Buffer {
    /// A buffer made of lines.
    pub(crate) fn of(lines: Vec<Line>) -> Self {
        Self(lines)
    }

    /// Fills it with NaN.
    fn spoil(&mut self) {
        bytemuck::cast_slice_mut(&mut self.0).fill(SPOILT);
    }

    /// The lines that it is made of.
    pub(crate) fn into_lines(self) -> Vec<Line> {
        self.0
    }

    /// The lines, so many at least.
    pub(crate) fn lines_mut(&mut self, lines: usize) -> &mut [Line] {
        if self.0.len() < lines {
            self.0.resize(lines, Line::ZERO);
        }
        &mut self.0
    }

    /// As many elements as it has room for.
    pub(crate) fn get<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(&self.0)
    }

    /// Room for `len` elements and at least as many again as it had; what they hold is what was there.
    pub(crate) fn get_mut<T: Pod>(&mut self, len: usize) -> &mut [T] {
        let lines = (len * size_of::<T>()).div_ceil(size_of::<Line>());
        if self.0.len() < lines {
            self.0.resize(lines, Line::ZERO);
        }
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// Scratch for expressions and reductions.
#[derive(Default)]
pub(crate) struct Scratch<T> {
    /// Registers of strip programs; number 0 is not used.
    pub registers: Vec<Box<[T]>>,
    /// Strips of leaves that cannot be read where they are.
    pub leaves: Vec<Box<[T]>>,
    /// Leaves that vary along one axis.
    pub vectors: Vec<Vec<T>>,
    /// A strip, or a row.
    pub row: Vec<T>,
}

impl<T: Default + Clone + Copy> Scratch<T> {
    /// Fills it with what is no number.
    fn spoil(&mut self, nan: T) {
        self.registers.iter_mut().chain(&mut self.leaves).for_each(|strip| strip.fill(nan));
        self.vectors.iter_mut().for_each(|vector| vector.fill(nan));
        self.row.fill(nan);
    }

    /// Makes sure of as many registers and leaves.
    pub(crate) fn reserve(&mut self, registers: usize, leaves: usize) {
        let strip = || vec![T::default(); STRIP].into_boxed_slice();
        while self.registers.len() < registers {
            self.registers.push(if self.registers.is_empty() { Box::default() } else { strip() });
        }
        while self.leaves.len() < leaves {
            self.leaves.push(strip());
            self.vectors.push(vec![]);
        }
        self.row.resize(self.row.len().max(STRIP), T::default());
    }
}
