//! Softmax and its relatives: exponentials with some anchor, some normaliser, and something done with them.

use super::Writer;
use super::scope::{self, Ix, Known};

impl Writer {
    pub(super) fn anchored(&mut self) {
        let rows = self.free();
        let n = self.bind_index(&rows);
        let all = scope::with(&rows, n);
        let filter = self.filter(&all, n);
        let over = format!("{}{filter}", n.name());
        let at = scope::brackets(&all);

        let mut score = self.score(&all, n);
        if self.chance(0.1) {
            score = format!("where({}, {score}, -inf)", self.condition(&all, Some(n)));
        }
        let s = if self.chance(0.6) { self.define(&all, &score, Known::Real) + &at } else { format!("({score})") };
        let anchor = self.anchor(&rows, &all, n, &over, &s);
        let exponent = match self.roll(8) {
            0 => format!("({s}{anchor}) * 0.5"),
            1 => format!("({s}{anchor}) / sqrt({})", super::scope::RANKS[n.rank].name),
            2 => format!("{s}{anchor} + {}", self.element(&all, None)),
            _ => format!("{s}{anchor}"),
        };
        let base = if self.chance(0.15) { "exp2" } else { "exp" };
        let mut power = format!("{base}({exponent})");
        match self.roll(10) {
            0 => power = format!("{power} * {}", self.element(&all, None)),
            1 => power = format!("where({}, {power}, 0)", self.condition(&all, Some(n))),
            2 => power = format!("({power} + {})", self.constant()),
            _ => {}
        }
        let p = if self.chance(0.7) { self.define(&all, &power, Known::Real) + &at } else { power };
        let z = match self.roll(8) {
            0 => format!("(sum({}) {p})", n.name()),
            1 => format!("(1 + sum({over}) {p})"),
            2 => format!("(max({over}) {p})"),
            3 => format!("sqrt(sum({over}) ({p})^2)"),
            _ => format!("(sum({over}) {p})"),
        };
        let z = if self.chance(0.4) { self.define(&rows, &z, Known::Real) + &scope::brackets(&rows) } else { z };
        self.use_powers(&rows, &all, n, &over, &p, &z, &s);
    }

    fn score(&mut self, all: &[Ix], n: Ix) -> String {
        let x = self.element(all, Some(n));
        match self.roll(8) {
            0 | 1 => {
                let d = self.bind_index(all);
                let inside = scope::with(all, d);
                let (a, b) = (self.element(&inside, Some(d)), self.element(&inside, Some(n)));
                format!("(sum({}) {a} * {b})", d.name())
            }
            2 => format!("{x} * {}", self.element(all, None)),
            3 => format!("{x} + {}", self.element(all, None)),
            4 => format!("tanh({x}) * 2"),
            5 => format!("{x} - abs({} - {}) * 0.5", n.name(), self.element(all, None)),
            6 => self.real(all, 2),
            _ => x,
        }
    }

    /// `- anchor`, or nothing.
    fn anchor(&mut self, rows: &[Ix], all: &[Ix], n: Ix, over: &str, s: &str) -> String {
        let name = n.name();
        let anchor = match self.roll(14) {
            0..=4 => format!("max({over}) {s}"),
            5 | 6 => return String::new(),
            7 => format!("(sum({over}) {s})"),
            8 => self.element(rows, None),
            9 => format!("min({over}) {s}"),
            10 => format!("max({name}) {s}"),
            11 => format!("max({over}) {}", self.element(all, Some(n))),
            12 => format!("logsumexp({name}) {s}"),
            _ => format!("(0.5 * (max({over}) {s}) + {})", self.element(rows, None)),
        };
        if self.chance(0.5) {
            let name = self.define(rows, &anchor, Known::Real);
            return format!(" - {name}{}", scope::brackets(rows));
        }
        format!(" - {anchor}")
    }

    #[allow(clippy::too_many_arguments)] // The parts of one formula.
    fn use_powers(&mut self, rows: &[Ix], all: &[Ix], n: Ix, over: &str, p: &str, z: &str, s: &str) {
        let v = self.element(all, Some(n));
        match self.roll(18) {
            0 => self.define(all, &format!("{p} / {z}"), Known::Real),
            1 | 2 => self.define(rows, &format!("sum({over}) {p} / {z} * {v}"), Known::Real),
            3 => self.define(rows, &format!("(sum({over}) {p} * {v}) / {z}"), Known::Real),
            4 => self.define(rows, &format!("sum({over}) ({p} / {z})^2"), Known::Real),
            5 => self.define(rows, &format!("sum({over}) {p} / {z} * log({p} / {z} + 0.1)"), Known::Real),
            6 => self.define(rows, &format!("max({over}) {p} / {z} * {v}"), Known::Real),
            7 => {
                let other = self.element(rows, None);
                self.define(rows, &format!("log({z}) + {other}"), Known::Real)
            }
            8 => self.define(rows, &format!("argmax({over}) {p} / {z}"), Known::Positions(n.rank)),
            9 => self.define(rows, &format!("sum({over}) {p} * {v}"), Known::Real),
            10 => {
                let mean = self.define(rows, &format!("(sum({over}) {p} * {v}) / {z}"), Known::Real);
                let mean = mean + &scope::brackets(rows);
                self.define(rows, &format!("(sum({over}) {p} * ({v} - {mean})^2) / {z}"), Known::Real)
            }
            11 => self.define(rows, &format!("sum({over}) {p} * {s} / {z}"), Known::Real),
            12 => {
                let e = self.bind_index(all);
                let inside = scope::with(all, e);
                let kept = scope::with(rows, e);
                let v = self.element(&inside, Some(n));
                let v2 = self.element(&inside, Some(e));
                self.define(&kept, &format!("sum({over}) {p} / {z} * {v} * {v2}"), Known::Real)
            }
            13 => self.define(rows, &format!("prod({over}) (1 + {p} / {z})"), Known::Real),
            14 => self.define(rows, &format!("sum({over}) ({p} / {z} + abs({v}))^2"), Known::Real),
            15 => self.define(rows, &format!("sum({over}) sqrt({p} / {z} * abs({v}))"), Known::Real),
            _ => self.spread(rows, all, n, over, p, z),
        };
    }

    /// The powers themselves about a statistic.
    fn spread(&mut self, rows: &[Ix], all: &[Ix], n: Ix, over: &str, p: &str, z: &str) -> String {
        let weight = match self.roll(4) {
            0 => format!("{p} * "),
            1 => format!("{} * ", self.element(all, Some(n))),
            _ => String::new(),
        };
        let about = match self.roll(4) {
            0 => self.element(rows, None),
            1 => format!("(mean({}) {})", n.name(), self.element(all, Some(n))),
            _ => format!("((sum({over}) {p} / {z}) / {})", scope::RANKS[n.rank].name),
        };
        let at = scope::brackets(rows);
        let about = if self.chance(0.7) { self.define(rows, &about, Known::Real) + &at } else { about };
        let v = self.element(all, Some(n));
        let power = self.random.pick(&["^2", "^2", "^3"]);
        match self.roll(4) {
            0 => {
                self.define(rows, &format!("sum({over}) {weight}({p} / {z} - {about}) * ({v} - {about})"), Known::Real)
            }
            _ => self.define(rows, &format!("sum({over}) {weight}({p} / {z} - {about}){power}"), Known::Real),
        }
    }
}
