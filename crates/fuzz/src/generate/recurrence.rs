//! Recurrences: linear ones, semirings, and some that compose in no closed form.

use super::Writer;
use super::scope::{self, Ix, Known, TIME, Tensor};

impl Writer {
    pub(super) fn recurrence(&mut self) {
        let t = Ix { rank: TIME, which: 0 };
        let rows: Vec<Ix> = self.free().into_iter().take(2).collect();
        let all = scope::with(&rows, t);
        // Something that moves with time.
        if !self.tensors.iter().any(|x| x.ranks.contains(&TIME)) {
            let mut ranks = vec![TIME];
            ranks.extend(rows.iter().filter(|_| self.random.unit() < 0.5).map(|i| i.rank));
            let name = format!("X{}", self.tensors.len());
            self.tensors.push(Tensor { name, ranks, known: Known::Real, is_input: true, dtype: Some("f32") });
        }
        let name = format!("H{}", self.tensors.len());
        let at = |position: &str| {
            let mut names = vec![position];
            names.extend(rows.iter().map(|i| i.name()));
            format!("{name}[{}]", names.join(","))
        };
        let start = if self.chance(0.6) { self.constant() } else { self.element(&rows, None) };
        let (x, y) = (self.element(&all, Some(t)), self.element(&all, None));
        let h = at("t");
        let step = match self.roll(12) {
            0 | 1 => format!("exp(-abs({x})) * {h} + {y}"),
            2 => format!("{h} + {x}"),
            3 => format!("max({h}, {x})"),
            4 => format!("max({h} + {x}, {y})"),
            5 => format!("sigmoid({x}) * {h} + (1 - sigmoid({x})) * {y}"),
            6 => format!("tanh({h} + {x})"),
            7 => format!("where({x} > 0, {h}, {y})"),
            8 => format!("0.5 * {h} + {x} * {y}"),
            9 | 10 if !rows.is_empty() => self.gathered_step(&name, &rows, &x, &y),
            _ => match rows.iter().find(|i| i.which == 0) {
                Some(&row) => {
                    // A state that mixes: a product with a matrix at every step.
                    let over = Ix { rank: row.rank, which: 2 };
                    let names: Vec<&str> = std::iter::once("t")
                        .chain(rows.iter().map(|i| if *i == row { over.name() } else { i.name() }))
                        .collect();
                    let inside = scope::with(&all, over);
                    let m = self.element(&inside, Some(over));
                    format!("tanh(sum({}) {name}[{}] * {m} + {x})", over.name(), names.join(","))
                }
                None => format!("{h} * {x}"),
            },
        };
        self.statements.push(format!("{} = {start}", at("0")));
        self.statements.push(format!("{} = {step}", at("t+1")));
        match self.roll(3) {
            0 => self.define(&rows, &at("T"), Known::Real),
            1 => self.define(&all, &format!("{} * {x}", at("t+1")), Known::Real),
            _ => self.define(&all, &at("t"), Known::Real),
        };
    }

    /// A step that reads the slice before where a tensor of positions says, which may carry the slice's own indices.
    fn gathered_step(&mut self, name: &str, rows: &[Ix], x: &str, y: &str) -> String {
        let at = rows[self.roll(rows.len())];
        let mut told: Vec<Ix> = rows.iter().copied().filter(|_| self.random.unit() < 0.7).collect();
        if self.chance(0.3) {
            told.push(Ix { rank: TIME, which: 0 });
        }
        let positions = format!("X{}", self.tensors.len());
        let known = Known::Positions(at.rank);
        let place = format!("{positions}{}", scope::brackets(&told));
        let ranks = told.iter().map(|i| i.rank).collect();
        self.tensors.push(Tensor { name: positions, ranks, known, is_input: true, dtype: Some("i32") });
        let read = |with: &str| {
            let others = rows.iter().map(|i| if *i == at { with } else { i.name() });
            format!("{name}[{}]", std::iter::once("t").chain(others).collect::<Vec<_>>().join(","))
        };
        let (own, there) = (read(at.name()), read(&place));
        match self.roll(4) {
            0 => format!("{there} / 2 + {x}"),
            1 => format!("max({there}, {own}) * 0.5 + {y}"),
            2 => format!("where({x} > 0, {there}, {own})"),
            _ => format!("tanh({there} * {x} + {own})"),
        }
    }
}
