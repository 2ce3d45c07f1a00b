//! Reductions over one index, each of which may need the ones before.

use super::Writer;
use super::scope::{self, Known};

impl Writer {
    pub(super) fn chain(&mut self) {
        let rows = self.free();
        let n = self.bind_index(&rows);
        let all = scope::with(&rows, n);
        let at = scope::brackets(&rows);
        let over = format!("{}{}", n.name(), self.filter(&all, n));
        let x = self.element(&all, Some(n));
        let mut earlier: Vec<String> = vec![];
        for _ in 0..2 + self.roll(3) {
            let y = if self.chance(0.6) { x.clone() } else { self.element(&all, Some(n)) };
            let c = match earlier.as_slice() {
                [] => self.element(&rows, None),
                some => some[some.len() - 1 - self.roll(some.len().min(2))].clone(),
            };
            let over = if self.chance(0.85) { over.clone() } else { n.name().to_owned() };
            let value = match self.roll(18) {
                0 => format!("sum({over}) {y} * {c}"),
                1 => format!("sum({over}) exp({y} - {c})"),
                2 => format!("sum({over}) {x} * exp({y} - {c})"),
                3 => format!("sum({over}) ({y} - {c})^2"),
                4 => format!("sum({over}) ({y} - {c}) * {x}"),
                5 => format!("max({over}) ({y} + {c})"),
                6 => format!("max({over}) {y} * abs({c})"),
                7 => format!("min({over}) ({y} - {c})"),
                8 => format!("sum({over}) max({y}, {c})"),
                9 => format!("sum({over}) where({y} < {c}, {x}, 0)"),
                10 => format!("sum({over}) {y} / (1 + abs({c}))"),
                11 => format!("log(1 + sum({over}) exp({y} - {c}))"),
                12 => format!("max({over}) {y}"),
                13 => format!("sum({over}) {y}"),
                14 => format!("prod({over}) (1 + 0.5 * {y} * {c})"),
                15 => format!("max({over}) exp({y} - {c})"),
                16 => format!("sum({over}: {y} >= {c}) {x}").replacen(": ", ": (", 1).replacen(") ", ")) ", 1),
                _ => format!("sum({over}) exp({y} - {c}) * ({x} - {c})"),
            };
            let value = if value.matches(':').count() > 1 { format!("sum({}) {y} * {c}", n.name()) } else { value };
            earlier.push(self.define(&rows, &value, Known::Real) + &at);
        }
    }
}
