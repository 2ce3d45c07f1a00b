//! A spatial chip: arrays of processing elements around one buffer, under one DRAM.

mod read;

use crate::Operation;
use einloom_machine::{Bytes, BytesPerSecond, Hertz, Joules, JoulesPerByte, SquareMetres};
use std::collections::BTreeMap;

/// A chip as its description gives it.
#[derive(Clone, Debug, PartialEq)]
pub struct Chip {
    /// Its name.
    pub name: String,
    /// What it is, for people.
    pub description: String,
    /// The clock of the arrays.
    pub clock: Hertz,
    /// One element of a tensor.
    pub word: Bytes,
    /// Main memory.
    pub dram: Dram,
    /// The memory that all arrays share.
    pub buffer: Buffer,
    /// What operations are made of, by name.
    pub units: BTreeMap<String, Unit>,
    /// The arrays.
    pub arrays: Vec<Array>,
    /// Ways to count energy and cycles, by name: which faults are kept.
    pub accountings: BTreeMap<String, Accounting>,
    /// Known faults of published counts that concern the chip, by name.
    pub faults: BTreeMap<String, ChipFault>,
    /// Latencies and depths, for simulations.
    pub timing: crate::simulate::Timing,
}

/// Main memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dram {
    /// Both directions together.
    pub bandwidth: BytesPerSecond,
    /// Of a byte moved.
    pub energy: JoulesPerByte,
}

/// The memory that all arrays share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Buffer {
    /// What it holds.
    pub capacity: Bytes,
    /// What one access moves.
    pub row: Bytes,
    /// Of reading a row.
    pub read: Joules,
    /// Of writing a row.
    pub write: Joules,
    /// Of a byte of its capacity.
    pub area_per_byte: SquareMetres,
}

/// A functional unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Unit {
    /// Of one operation.
    pub energy: Joules,
    /// Of one unit.
    pub area: SquareMetres,
}

/// An array of equal processing elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Array {
    /// Its name, such as `2d`.
    pub name: String,
    /// Elements in one direction; 1 for a one-dimensional array.
    pub rows: usize,
    /// Elements in the other direction.
    pub columns: usize,
    /// What each element is.
    pub element: Element,
    /// What each element can do, and what that costs.
    pub operations: BTreeMap<Operation, Cost>,
}

/// One processing element.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Element {
    /// How many of each unit it has.
    pub units: BTreeMap<String, usize>,
    /// Its registers.
    pub registers: Option<Registers>,
}

/// The register file of an element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Registers {
    /// Words.
    pub entries: usize,
    /// Of reading a word.
    pub read: Joules,
    /// Of writing a word.
    pub write: Joules,
    /// Words read in a busy cycle.
    pub reads_per_cycle: f64,
    /// Words written in a busy cycle.
    pub writes_per_cycle: f64,
    /// Of the register file.
    pub area: SquareMetres,
}

/// What an operation costs on an element.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cost {
    /// Until the next operation may start on the same element.
    pub cycles: f64,
    /// How often it uses each unit.
    pub uses: BTreeMap<String, f64>,
}

/// A way to count: which known faults are kept.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Accounting {
    /// What it is for.
    pub description: String,
    /// Names of faults, of the chip or of a binding.
    pub faults: Vec<String>,
}

/// A fault of published counts that concerns a chip.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChipFault {
    /// What goes wrong, for people.
    pub description: String,
    /// Accesses to registers are charged for one element of each array.
    pub registers_of_one_element: bool,
    /// How many reads of a result find nothing in the buffer yet is computed in 64 bits, which wrap.
    pub first_reads_wrap: bool,
}

impl Chip {
    /// The array with this name.
    pub fn array(&self, name: &str) -> Option<&Array> {
        self.arrays.iter().find(|a| a.name == name)
    }

    /// The same chip with arrays of another size: the longest sides become `size`, shorter ones change in proportion,
    /// and what is one element wide stays so.
    pub fn with_array(&self, size: usize) -> Self {
        let longest = self.arrays.iter().map(|a| a.rows.max(a.columns)).max().unwrap_or(0);
        let mut chip = self.clone();
        for array in &mut chip.arrays {
            for side in [&mut array.rows, &mut array.columns] {
                if *side > 1 {
                    *side = ((*side as u128 * size as u128) / longest as u128).max(1) as usize;
                }
            }
        }
        chip
    }

    /// The area of one array.
    pub fn array_area(&self, array: &Array) -> SquareMetres {
        let unit = |(name, n): (&String, &usize)| self.units.get(name).map_or(0.0, |u| u.area.0) * *n as f64;
        let units: f64 = array.element.units.iter().map(unit).sum();
        let registers = array.element.registers.map_or(0.0, |r| r.area.0);
        SquareMetres((units + registers) * array.elements() as f64)
    }

    /// The energy that an operation's units take.
    pub fn energy(&self, cost: &Cost) -> Joules {
        Joules(cost.uses.iter().map(|(u, n)| self.units.get(u).map_or(0.0, |u| u.energy.0) * n).sum())
    }
}

impl Array {
    /// How many elements it has.
    pub fn elements(&self) -> usize {
        self.rows.saturating_mul(self.columns)
    }

    /// What an operation costs here: as the description says, or as the parts it can be done in. `None` if the elements
    /// cannot do it. With `split`, operations that can be done in parts are.
    pub fn cost(&self, operation: &Operation, split: bool) -> Option<Cost> {
        use Operation::{Add, Exponential, Multiply, MultiplyAdd, Subtract, SubtractExponential};
        let parts: &[Operation] = match operation {
            SubtractExponential => &[Subtract, Exponential],
            MultiplyAdd => &[Multiply, Add],
            _ => &[],
        };
        if let Some(cost) = self.operations.get(operation)
            && (!split || parts.is_empty())
        {
            return Some(cost.clone());
        }
        if parts.is_empty() {
            return None;
        }
        let mut sum = Cost::default();
        for part in parts {
            let cost = self.operations.get(part)?;
            sum.cycles += cost.cycles;
            for (unit, n) in &cost.uses {
                *sum.uses.entry(unit.clone()).or_default() += n;
            }
        }
        Some(sum)
    }
}
