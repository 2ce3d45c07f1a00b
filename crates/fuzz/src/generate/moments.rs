//! Moments: sums of powers of differences, weighted or not, about the mean or about something else.

use super::Writer;
use super::scope::{self, Ix, Known, RANKS};

impl Writer {
    pub(super) fn moments(&mut self) {
        let rows = self.free();
        let n = self.bind_index(&rows);
        let all = scope::with(&rows, n);
        let filter = if self.chance(0.3) { self.filter(&all, n) } else { String::new() };
        let over = format!("{}{filter}", n.name());
        let weight = match self.roll(6) {
            0 => format!("exp({}) * ", self.element(&all, Some(n))),
            1 => format!("abs({}) * ", self.element(&all, None)),
            2 => format!("{} * ", self.element(&all, Some(n))),
            _ => String::new(),
        };
        let total = match (weight.is_empty(), filter.is_empty(), self.roll(4)) {
            (true, true, 0..=2) => RANKS[n.rank].name.to_owned(),
            _ => format!("(sum({over}) {weight}1)"),
        };
        let x = if self.chance(0.7) { self.element(&all, Some(n)) } else { format!("({})", self.real(&all, 1)) };
        let center = self.center(&rows, &all, n, &over, &weight, &total, &x);
        let power = self.random.pick(&["", "^2", "^2", "^2", "^3", "^4"]);
        let y = self.element(&all, Some(n));
        let spread = match self.roll(8) {
            0 => {
                let other = self.center(&rows, &all, n, &over, &weight, &total, &y);
                format!("(sum({over}) {weight}({x} - {center}) * ({y} - {other})) / {total}")
            }
            1 => format!("(sum({over}) {weight}({x} - {center}){power} * {y}) / {total}"),
            2 => format!("sum({over}) {weight}({x} - {center}){power}"),
            3 => format!("max({over}) ({x} - {center})"),
            _ => format!("(sum({over}) {weight}({x} - {center}){power}) / {total}"),
        };
        let spread = self.define(&rows, &spread, Known::Real) + &scope::brackets(&rows);
        match self.roll(5) {
            0 => {
                let free = all.clone();
                self.define(&free, &format!("({x} - {center}) / sqrt(abs({spread}) + 0.01)"), Known::Real);
            }
            1 => {
                let z = format!("(({x} - {center}) / sqrt(abs({spread}) + 0.01))");
                self.define(&rows, &format!("sum({over}) {z}{power} * {y}"), Known::Real);
            }
            2 => {
                self.define(
                    &rows,
                    &format!("sum({over}) exp(-(({x} - {center})^2) / (1 + abs({spread})))"),
                    Known::Real,
                );
            }
            _ => {}
        }
    }

    /// What is subtracted.
    #[allow(clippy::too_many_arguments)] // The parts of one formula.
    fn center(&mut self, rows: &[Ix], all: &[Ix], n: Ix, over: &str, weight: &str, total: &str, x: &str) -> String {
        let value = match self.roll(8) {
            0 => return self.element(rows, None),
            1 => format!("max({over}) {x}"),
            2 => format!("(sum({over}) {})", self.element(all, Some(n))),
            3 => format!("mean({}) {x}", n.name()),
            _ => format!("(sum({over}) {weight}{x}) / {total}"),
        };
        if self.chance(0.8) {
            return self.define(rows, &value, Known::Real) + &scope::brackets(rows);
        }
        format!("({value})")
    }
}
