//! Products in flight: groups of `wgmma`, which read registers and stages and write registers at any time between their
//! start and the step that waits for them.

use super::contract::{Matrix, contract};
use super::evaluate::{kept, rounded, summed};
use super::registers::Registers;
use super::rings::RingState;
use super::trace::name;
use super::{Hazard, HazardKind, narrow};
use crate::hopper::{RingTile, Specialised};
use einloom_tile::{AxisId, Kernel, ValueId, Window};

/// Terms that one instruction sums: 32 bytes of 2-byte numbers. PTX ISA, wgmma.
const DEPTH: usize = 16;

/// Where a factor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// In registers.
    Registers,
    /// In a stage.
    Stage { ring: usize, tile: usize, stage: usize, filling: usize },
}

/// A factor of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Factor {
    pub value: ValueId,
    pub source: Source,
}

/// A product that has been started.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    pub dst: ValueId,
    /// The registers it adds to.
    pub home: ValueId,
    pub factors: [Factor; 2],
    sum: AxisId,
    terms: usize,
}

/// What a factor looks like to the product: the windows along the kept and the summed axis.
struct Shape {
    kept: Window,
    sum: Window,
}

/// Everything a product reads.
pub(super) struct Operands<'a, 'b> {
    pub kernel: &'a Kernel,
    pub s: &'a Specialised,
    pub rings: &'b [RingState],
    pub registers: &'b Registers<'a>,
    pub consumer: usize,
}

impl Group {
    /// The group that is started by a product of these factors, left and right, and the windows of its result.
    pub fn start(
        operands: &Operands<'_, '_>,
        dst: ValueId,
        factors: [Factor; 2],
    ) -> Result<(Self, [Window; 2]), Hazard> {
        let kernel = operands.kernel;
        let [left, right] = factors;
        let sum = summed(kernel, dst, left.value, right.value)
            .ok_or_else(|| Hazard::malformed(format!("{} has no axis to sum over", name(kernel, dst))))?;
        if sum == operands.s.rows {
            return Err(Hazard::malformed(format!("{} sums over rows that consumers share", name(kernel, dst))));
        }
        let axis = kernel.axis(sum);
        let terms = axis.tile.min(axis.extent).max(1).next_multiple_of(DEPTH);
        let home = operands.registers.home(dst);
        let group = Self { dst, home, factors, sum, terms };
        let [l, r] = [group.shape(operands, left)?, group.shape(operands, right)?];
        if l.sum != r.sum {
            let text = format!(
                "{} has {} and {} has {} of the summed axis {}",
                name(kernel, left.value),
                text(l.sum),
                name(kernel, right.value),
                text(r.sum),
                axis.name
            );
            return Err(Hazard::new(HazardKind::Stale, text));
        }
        let one = Window { base: 0, len: 1 };
        let side = |side: Option<AxisId>| match side {
            None => one,
            axis if axis == kept(kernel, left.value, sum) => l.kept,
            _ => r.kept,
        };
        let decl = kernel.value(dst);
        Ok((group, [side(decl.rows), side(decl.cols)]))
    }

    /// Whether it reads this filling.
    pub fn reads(&self, ring: usize, filling: usize) -> bool {
        let here =
            |f: &Factor| matches!(f.source, Source::Stage { ring: r, filling: x, .. } if (r, x) == (ring, filling));
        self.factors.iter().any(here)
    }

    /// Whether it takes a factor from these registers.
    pub fn takes(&self, registers: &Registers<'_>, home: ValueId) -> bool {
        self.factors.iter().any(|f| f.source == Source::Registers && registers.home(f.value) == home)
    }

    /// The elements of the result, which `onto` is added to.
    pub fn complete(&self, operands: &Operands<'_, '_>, onto: &[f64]) -> Result<Vec<f64>, Hazard> {
        let [left, right] = [self.matrix(operands, self.factors[0])?, self.matrix(operands, self.factors[1])?];
        let decl = operands.kernel.value(self.dst);
        let turned = decl.rows.is_some() && decl.rows == kept(operands.kernel, self.factors[1].value, self.sum);
        let products = if turned { contract(&right, &left) } else { contract(&left, &right) };
        Ok(rounded(decl.dtype, products.into_iter().zip(onto).map(|(x, y)| x + y)))
    }

    fn shape(&self, operands: &Operands<'_, '_>, factor: Factor) -> Result<Shape, Hazard> {
        let kept = kept(operands.kernel, factor.value, self.sum);
        match factor.source {
            Source::Registers => {
                let decl = operands.kernel.value(factor.value);
                let [rows, cols] = operands.registers.get(factor.value)?.sides;
                let (kept, sum) = if decl.cols == Some(self.sum) { (rows, cols) } else { (cols, rows) };
                Ok(Shape { kept, sum })
            }
            Source::Stage { ring, tile, stage, filling } => {
                let slot = operands.rings[ring].readable(tile, stage, filling)?;
                let own = narrow(operands.s, &slot.windows, operands.consumer);
                let kept_window = kept.map_or(Window { base: 0, len: 1 }, |a| own[a.at()]);
                let shape = Shape { kept: kept_window, sum: own[self.sum.at()] };
                let tile = &operands.s.rings[ring].tiles[tile];
                let reach = kept.map_or(0, |a| shape.kept.base - slot.windows[a.at()].base) + shape.kept.len;
                for (axis, needed) in [(Some(self.sum), self.terms), (kept, reach)] {
                    let has = extent(tile, axis);
                    if needed > has {
                        let text = format!(
                            "{needed} positions of a tile in ring {} are read, it has {has}",
                            operands.rings[ring].name
                        );
                        return Err(Hazard::malformed(text));
                    }
                }
                Ok(shape)
            }
        }
    }

    /// The factor's elements. Registers beyond the windows at which they were made count as 0; a stage has what was
    /// copied.
    fn matrix(&self, operands: &Operands<'_, '_>, factor: Factor) -> Result<Matrix, Hazard> {
        let Shape { kept: rows, sum } = self.shape(operands, factor)?;
        match factor.source {
            Source::Registers => {
                let tile = operands.registers.get(factor.value)?;
                let across = operands.kernel.value(factor.value).cols == Some(self.sum);
                let columns = tile.sides[1].len;
                Ok(Matrix::new(rows.len, self.terms, |r, k| match (k < sum.len, across) {
                    (false, _) => 0.0,
                    (true, true) => tile.elements[r * columns + k],
                    (true, false) => tile.elements[k * columns + r],
                }))
            }
            Source::Stage { ring, tile, stage, filling } => {
                let slot = operands.rings[ring].readable(tile, stage, filling)?;
                let ring = &operands.s.rings[ring];
                let tile = &ring.tiles[tile];
                let side = (self.dst, factor == self.factors[0]);
                let descriptor = operands.s.descriptors.iter().find(|d| (d.product, d.left) == side);
                let descriptor = descriptor.ok_or_else(|| {
                    let name = name(operands.kernel, factor.value);
                    Hazard::malformed(format!("nothing says how products read {name} in shared memory"))
                })?;
                let base = ring.offset + stage * ring.stage_bytes + tile.offset;
                let mut elements = Vec::with_capacity(rows.len * self.terms);
                for (r, k) in (0..rows.len).flat_map(|r| (0..self.terms).map(move |k| (r, k))) {
                    let address = descriptor.address(operands.consumer, stage, r, k);
                    let place = address.checked_sub(base).map(|bytes| bytes / tile.element.bytes());
                    let element = place.and_then(|place| slot.elements.get(place)).ok_or_else(|| {
                        let name = name(operands.kernel, factor.value);
                        let text = format!("byte {address} of shared memory is read for {name}, and is not its");
                        Hazard::new(HazardKind::Memory, text)
                    })?;
                    elements.push(*element);
                }
                let terms = self.terms;
                Ok(Matrix::new(rows.len, terms, |r, k| elements[r * terms + k]))
            }
        }
    }
}

/// Positions that a tile in a stage has along an axis.
fn extent(tile: &RingTile, axis: Option<AxisId>) -> usize {
    match axis {
        Some(a) if a == tile.outer => tile.rows,
        Some(a) if a == tile.inner => tile.columns,
        _ => 1,
    }
}

/// A window for people.
pub(super) fn text(w: Window) -> String {
    format!("{}..{}", w.base, w.base + w.len)
}
