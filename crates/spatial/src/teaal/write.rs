//! A chip as its file.

use crate::Chip;
use std::fmt::Write;

impl Chip {
    /// The file that [`Chip::parse`] reads this chip from, but for registers, faults and timing, which chips of TeAAL
    /// do not have.
    pub fn to_toml(&self) -> String {
        let mut out = format!("name = {:?}\ndescription = {:?}\n", self.name, self.description);
        let _ = writeln!(out, "clock = \"{} Hz\"\nword = \"{} B\"", self.clock.0, self.word.0);
        let _ = writeln!(
            out,
            "\n[dram]\nbandwidth = \"{} B/s\"\nenergy = \"{} J/B\"",
            self.dram.bandwidth.0, self.dram.energy.0
        );
        let b = &self.buffer;
        let _ = writeln!(out, "\n[buffer]\ncapacity = \"{} B\"\nrow = \"{} B\"", b.capacity.0, b.row.0);
        let _ = writeln!(out, "read = \"{} J\"\nwrite = \"{} J\"", b.read.0, b.write.0);
        for (name, unit) in &self.units {
            let _ = writeln!(out, "\n[unit.{name}]\nenergy = \"{} J\"\narea = \"{} m2\"", unit.energy.0, unit.area.0);
        }
        for array in &self.arrays {
            let _ = writeln!(
                out,
                "\n[[array]]\nname = {:?}\nrows = {}\ncolumns = {}",
                array.name, array.rows, array.columns
            );
            let list = |uses: Vec<String>| format!("{{ {} }}", uses.join(", "));
            let units: Vec<String> = array.element.units.iter().map(|(u, n)| format!("{u} = {n}")).collect();
            let _ = writeln!(out, "units = {}\n\n[array.operation]", list(units));
            for (operation, cost) in &array.operations {
                let uses: Vec<String> = cost.uses.iter().map(|(u, n)| format!("{u} = {n}")).collect();
                let _ = writeln!(out, "{operation} = {{ cycles = {}, uses = {} }}", cost.cycles, list(uses));
            }
        }
        for (name, accounting) in &self.accountings {
            let _ = writeln!(out, "\n[accounting.{name}]\ndescription = {:?}", accounting.description);
        }
        out
    }
}
