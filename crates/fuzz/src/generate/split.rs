//! Ranks that are split into parts, `p*Q + q`, and reads that are shifted, `a + c`.

use super::Writer;
use super::scope::{INNER, Known, LONG, OUTER, Tensor, WHOLE};

impl Writer {
    /// An input over the rank, made if there is none.
    fn over(&mut self, rank: usize) -> String {
        if let Some(t) = self.tensors.iter().find(|t| t.is_input && t.ranks == [rank]) {
            return t.name.clone();
        }
        let name = format!("X{}", self.tensors.len());
        self.tensors.push(Tensor {
            name: name.clone(),
            ranks: vec![rank],
            known: Known::Real,
            is_input: true,
            dtype: Some("f32"),
        });
        name
    }

    /// Reductions over the parts of a rank one after the other, or beside one over the whole.
    pub(super) fn split(&mut self) {
        self.declare_rank(WHOLE, "W = P * Q");
        self.declare_rank(OUTER, "");
        self.declare_rank(INNER, "");
        let (x, y) = (self.over(WHOLE), self.over(WHOLE));
        let (part, other) = (format!("{x}[p*Q + q]"), format!("{y}[p*Q + q]"));
        let c = self.element(&[], None);
        let filter = self.random.pick(&["", "", ": q <= p", ": q > 0", ": p*Q + q < 3"]);
        let inner = format!("q{filter}");
        match self.roll(7) {
            0 => {
                // A softmax in two levels: a maximum and a sum of each part, then those of all.
                let most = self.define_at("[p]", &[OUTER], &format!("max({inner}) {part}"));
                let sum = self.define_at("[p]", &[OUTER], &format!("sum({inner}) exp({part} - {most}[p])"));
                let top = self.define_at("", &[], &format!("max(p) {most}[p]"));
                self.define_at("", &[], &format!("sum(p) {sum}[p] * exp({most}[p] - {top})"));
            }
            1 => {
                let mean = self.define_at("[p]", &[OUTER], &format!("(sum({inner}) {part}) / Q"));
                self.define_at("[p]", &[OUTER], &format!("sum({inner}) ({part} - {mean}[p])^2 * {other}"));
            }
            2 => {
                let all = self.define_at("", &[], &format!("sum(w) {x}[w] * {c}"));
                self.define_at("[p]", &[OUTER], &format!("sum({inner}) exp({part} - {all})"));
            }
            3 => {
                let most = self.define_at("", &[], &format!("max(p, q) {part}"));
                self.define_at("", &[], &format!("sum(w) exp({x}[w] - {most}) * {y}[w]"));
            }
            4 => {
                let sum = self.define_at("[q]", &[INNER], &format!("sum(p) {part} * {other}"));
                self.define_at("", &[], &format!("sum(w) {x}[w] * sum(q) {sum}[q]"));
            }
            5 => {
                // The whole read back by part.
                let z = self.define_at("[w]", &[WHOLE], &format!("exp({x}[w]) * {c}"));
                let sum = self.define_at("", &[], &format!("sum(w) {z}[w]"));
                self.define_at("[p]", &[OUTER], &format!("sum({inner}) {z}[p*Q + q] / (1 + {sum})"));
            }
            _ => {
                // By division: which part a position lies in.
                let sum = self.define_at("[p]", &[OUTER], &format!("sum({inner}) {part}"));
                self.define_at("[w]", &[WHOLE], &format!("{x}[w] - {sum}[w / Q]"));
            }
        }
    }

    /// Windows: a sum over what lies a little further, or before.
    pub(super) fn shifted(&mut self) {
        match self.roll(5) {
            0 | 1 => {
                self.declare_rank(LONG, "L = A + C");
                let x = self.over(LONG);
                let w = self.over(2);
                let value = match self.roll(4) {
                    0 => format!("sum(c) {x}[a + c] * {w}[c]"),
                    1 => format!("max(c) ({x}[a + c] + {w}[c])"),
                    2 => format!("sum(c) exp({x}[a + c] - max(c) {x}[a + c]) * {w}[c]"),
                    _ => format!("sum(c: c > 0) ({x}[a + c] - {x}[a + c - 1])^2"),
                };
                self.define_at("[a]", &[0], &value);
            }
            2 => {
                let x = self.over(0);
                let before = self.define_at("[a]", &[0], &format!("where(a > 0, {x}[a - 1], 0) - {x}[a]"));
                self.define_at("", &[], &format!("sum(a) {before}[a]^2"));
            }
            3 => {
                let x = self.over(1);
                self.define_at("", &[], &format!("sum(b: b > 0) ({x}[b] - {x}[b - 1]) * {x}[b - 1]"));
            }
            _ => {
                let (x, y) = (self.over(0), self.over(0));
                self.define_at("[a]", &[0], &format!("sum(i: i <= a) {x}[a - i] * {y}[i]"));
            }
        }
    }

    /// Elements at positions that another input holds.
    pub(super) fn gathers(&mut self) {
        let rank = self.roll(3);
        let from = super::scope::RANKS[rank].indices[0];
        let to = (rank + 1) % 3;
        let into = super::scope::RANKS[to].indices[0];
        let (x, y) = (self.over(rank), self.over(to));
        let ids = format!("X{}", self.tensors.len());
        self.tensors.push(Tensor {
            name: ids.clone(),
            ranks: vec![to],
            known: Known::Positions(rank),
            is_input: true,
            dtype: Some("i32"),
        });
        let taken = format!("{x}[{ids}[{into}]]");
        match self.roll(4) {
            0 => drop(self.define_at("", &[], &format!("sum({into}) {taken} * {y}[{into}]"))),
            1 => {
                let most = self.define_at("", &[], &format!("max({into}) {taken}"));
                self.define_at("", &[], &format!("sum({into}) exp({taken} - {most}) * {y}[{into}]"));
            }
            2 => {
                // A statistic of all, read where the positions say.
                let mean = self.define_at("", &[], &format!("mean({from}) {x}[{from}]"));
                self.define_at(&format!("[{into}]"), &[to], &format!("({taken} - {mean})^2"));
            }
            _ => {
                let z = self.define_at(&format!("[{from}]"), &[rank], &format!("exp({x}[{from}]) * 0.5"));
                self.define_at("", &[], &format!("sum({into}: {into} > 0) {z}[{ids}[{into}]] * {y}[{into}]"));
            }
        }
    }

    /// Defines a tensor over the first indices of some ranks and returns its name alone.
    pub(super) fn define_at(&mut self, at: &str, ranks: &[usize], value: &str) -> String {
        let name = format!("Y{}", self.tensors.len());
        self.statements.push(format!("{name}{at} = {value}"));
        let ranks = ranks.to_vec();
        self.tensors.push(Tensor { name: name.clone(), ranks, known: Known::Real, is_input: false, dtype: None });
        name
    }
}
