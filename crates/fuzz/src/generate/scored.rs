//! Two contractions with something between them: scores of every form, under masks of every kind, normalised in every way.

use super::Writer;
use super::scope::{self, Ix, Known};

/// Rows, columns and what is contracted, in place: `A` scores `A`, over `B`, and takes sums over `C`.
const ROW: Ix = Ix { rank: 0, which: 0 };
const COLUMN: Ix = Ix { rank: 0, which: 1 };
const INNER: Ix = Ix { rank: 1, which: 0 };
const WIDE: Ix = Ix { rank: 2, which: 0 };

impl Writer {
    pub(super) fn scored(&mut self) {
        let (q, k) = (self.input_over(&[0, 1]), self.input_over(&[0, 1]));
        let v = self.input_over(&[0, 2]);
        let (a, i) = (ROW.name(), COLUMN.name());
        let dot = match self.roll(5) {
            0 => format!("0 - sum(b) ({q}[{a},b] - {k}[{i},b])^2"),
            1 => {
                format!("(sum(b) {q}[{a},b] * {k}[{i},b]) / sqrt((sum(b) {q}[{a},b]^2) * (sum(b) {k}[{i},b]^2) + 0.01)")
            }
            _ => format!("sum(b) {q}[{a},b] * {k}[{i},b] / sqrt({})", scope::RANKS[INNER.rank].name),
        };
        let dot = match self.roll(6) {
            0 => format!("3 * tanh(({dot}) / 3)"),
            1 => format!("({dot}) - 0.5 * abs({a} - {i})"),
            2 => format!("max({dot}, 0)"),
            _ => dot,
        };
        let square = [ROW, COLUMN];
        let s = self.define(&square, &dot, Known::Real) + &scope::brackets(&square);
        let mask = match self.roll(9) {
            0 | 1 => format!(": {i} <= {a}"),
            2 => format!(": {i} <= {a} and {a} - {i} < 3"),
            3 => format!(": {i} <= {a} and floor(({a} - {i}) / 2) * 2 == {a} - {i}"),
            4 => format!(": ({i} <= {a} or {i} < 2)"),
            5 => format!(": {i} != {a}"),
            6 => format!(": {s} > 0"),
            _ => String::new(),
        };
        let row = [ROW];
        let at = scope::brackets(&row);
        let over = format!("{i}{mask}");
        let (weight, normaliser) = match self.roll(9) {
            0 => (format!("log(1 + exp({s}))"), None),
            1 => (format!("max({s}, 0)^2"), Some("+ 0.01")),
            2 => (format!("sigmoid({s})"), None),
            3 => (format!("{s}^2"), Some("+ 0.01")),
            4 => (format!("where({s} > 0, {s} + 1, exp({s}))"), None),
            5 => (format!("exp({s})"), None),
            _ => {
                let m = self.define(&row, &format!("max({over}) {s}"), Known::Real) + &at;
                (format!("exp({s} - {m})"), None)
            }
        };
        let z = match self.roll(4) {
            0 => format!("sqrt(sum({over}) ({weight})^2 + 0.01)"),
            1 => format!("max(sum({over}) {weight}, 1)"),
            _ => format!("(sum({over}) {weight}) {}", normaliser.unwrap_or("")),
        };
        let out = [ROW, WIDE];
        let o = match self.roll(3) {
            0 => {
                let z = self.define(&row, &z, Known::Real) + &at;
                self.define(&out, &format!("sum({over}) {weight} / {z} * {v}[{i},c]"), Known::Real)
            }
            1 => self.define(&out, &format!("(sum({over}) {weight} * {v}[{i},c]) / ({z})"), Known::Real),
            _ => self.define(&out, &format!("sum({over}) {weight} * {v}[{i},c]"), Known::Real),
        };
        // And what comes behind it in a layer.
        if self.chance(0.4) {
            let o = o + &scope::brackets(&out);
            let mu = self.define(&row, &format!("mean(c) {o}"), Known::Real) + &at;
            let sd = self.define(&row, &format!("sqrt((mean(c) ({o} - {mu})^2) + 0.01)"), Known::Real) + &at;
            self.define(&row, &format!("sum(c) ({o} - {mu}) / {sd} * {v}[{a},c]"), Known::Real);
        }
    }

    /// Products over other pairs of operations than + and ·, and what normalises their rows.
    pub(super) fn semiring(&mut self) {
        let (x, y) = (self.input_over(&[0, 1]), self.input_over(&[1, 2]));
        let (x, y) = (format!("{x}[a,b]"), format!("{y}[b,c]"));
        let filter = self.random.pick(&["", "", ": b <= a", ": b != c"]);
        let product = match self.roll(8) {
            0 => format!("max(b{filter}) min({x}, {y})"),
            1 => format!("min(b{filter}) max({x}, {y})"),
            2 => format!("min(b{filter}) ({x} + {y})"),
            3 => format!("max(b{filter}) abs({x}) * abs({y})"),
            4 => format!("max(b{filter}) ({x} + 2 * {y} - {x})"),
            5 => format!("prod(b{filter}) (1 - sigmoid({x}) * sigmoid({y}))"),
            6 => format!("log(sum(b{filter}) exp({x} + {y}))"),
            _ => format!("max(b{filter}) {x} * {y}"),
        };
        let p = self.define(&[ROW, WIDE], &product, Known::Real) + "[a,c]";
        let row = match self.roll(6) {
            0 => format!("sum(c) {p} - (min(c) {p})"),
            1 => format!("max(c) ({p} - (min(c) {p}))"),
            2 => format!("(sum(c) exp({p} - max(c) {p})) * (max(c) abs({p}))"),
            3 => format!("log(sum(c) exp({p})) - (max(c) {p})"),
            4 => format!("sum(c) abs({p} - (mean(c) {p}))"),
            _ => format!("max(c) min({p}, (mean(c) {p}))"),
        };
        self.define(&[ROW], &row, Known::Real);
    }

    /// The name of an input over these ranks: one that is there, or a new one.
    fn input_over(&mut self, ranks: &[usize]) -> String {
        let fits = |t: &&scope::Tensor| t.is_input && t.known == Known::Real && t.ranks == ranks;
        if let Some(known) = self.tensors.iter().find(fits).map(|t| t.name.clone())
            && self.chance(0.3)
        {
            return known;
        }
        let name = format!("X{}", self.tensors.len());
        let dtype = Some(self.random.pick(&["f32", "f32", "bf16"]));
        let tensor =
            scope::Tensor { name: name.clone(), ranks: ranks.to_vec(), known: Known::Real, is_input: true, dtype };
        self.tensors.push(tensor);
        name
    }
}
