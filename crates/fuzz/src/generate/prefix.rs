//! Sums, moments, extrema and their positions over all positions up to one, weighted by the distance or not, and outer products carried
//! along.

use super::Writer;
use super::scope::{Known, TIME, Tensor};

impl Writer {
    /// A tensor of the caller's over time, and perhaps over rank B.
    pub(super) fn moving(&mut self, with_row: bool) -> String {
        let ranks = if with_row { vec![TIME, 1] } else { vec![TIME] };
        if let Some(t) = self.tensors.iter().find(|t| t.is_input && t.ranks == ranks && t.known == Known::Real)
            && self.random.unit() < 0.5
        {
            return t.name.clone();
        }
        let name = format!("X{}", self.tensors.len());
        self.tensors.push(Tensor { name: name.clone(), ranks, known: Known::Real, is_input: true, dtype: Some("f32") });
        name
    }

    pub(super) fn prefix(&mut self) {
        let (x, y) = (self.moving(false), self.moving(false));
        let condition = self.random.pick(&["s <= t", "s < t", "s <= t", "t - s < 2", "s >= t", "s + 1 <= t"]);
        let c = self.element(&[], None);
        let weight = match self.roll(14) {
            0 => format!("exp(-abs({c}) * (t - s))"),
            1 => "0.5^(t - s)".to_owned(),
            2 => format!("exp({y}[t] - {y}[s])"),
            3 => format!("exp({y}[s])"),
            4 => "exp(-(t - s)^2)".to_owned(),
            5 => "1 / (1 + abs(t - s))".to_owned(),
            6 => format!("abs({y}[t] - {y}[s])"),
            7 => format!("exp(-abs({c}) * (t - s) + {y}[s])"),
            8 => format!("{y}[t] * {y}[s]"),
            9 => {
                // Neighbouring values of a cumulative sum differ by a summand.
                let total = self.define_at("[t]", &[TIME], &format!("sum(s: s <= t) abs({y}[s])"));
                format!("exp({total}[s] - {total}[t])")
            }
            10 => format!("(1 + {y}[s])"),
            // Of any sign, and relative to the largest.
            11 | 12 => {
                let step = self.random.pick(&["", "log(sigmoid", "-abs"]);
                let step = format!("{step}({y}[s]){}", if step.starts_with("log") { ")" } else { "" });
                let total = self.define_at("[t]", &[TIME], &format!("sum(s: s <= t) {step}"));
                let beside = ["".to_owned(), format!(" + {x}[s]"), format!(" + 0.5 * {x}[s]")];
                let exponent = format!("{total}[t] - {total}[s]{}", beside[self.roll(3)]);
                match self.chance(0.5) {
                    true => {
                        let most = self.define_at("[t]", &[TIME], &format!("max(s: {condition}) ({exponent})"));
                        format!("exp({exponent} - {most}[t])")
                    }
                    false => format!("exp({exponent})"),
                }
            }
            _ => "1".to_owned(),
        };
        let value = match self.roll(11) {
            9 | 10 => {
                let (q, k) = (self.moving(true), self.moving(true));
                format!("sum(s: {condition}) (sum(b) {q}[t,b] * {k}[s,b]) * {weight} * {x}[s]")
            }
            4 | 5 => {
                let over = if self.chance(0.6) { "1".to_owned() } else { weight.clone() };
                let count = format!("(sum(s: {condition}) {over})");
                let mean = match self.roll(3) {
                    0 => format!("{y}[t]"),
                    1 => format!("(sum(s: {condition}) {over} * {x}[s]) / {count}"),
                    _ => format!("(sum(s: {condition}) {x}[s]) / (1 + {count})"),
                };
                let centre = self.define_at("[t]", &[TIME], &mean);
                let power = self.random.pick(&["2", "2", "3", "4"]);
                match self.chance(0.3) {
                    true => format!("sum(s: {condition}) {over} * ({x}[s] - {centre}[t]) * ({y}[s] - {centre}[t])"),
                    false => format!("(sum(s: {condition}) {over} * ({x}[s] - {centre}[t])^{power}) / {count}"),
                }
            }
            6 => {
                let kept = if self.chance(0.3) { format!(" and {y}[s] > 0") } else { String::new() };
                let monoid = self.random.pick(&["argmax", "argmin"]);
                format!("{monoid}(s: {condition}{kept}) ({x}[s])")
            }
            7 => format!("min(s: {condition}) ({x}[s] * abs({y}[t]) + {y}[t])"),
            0 => format!("(sum(s: {condition}) {weight} * {x}[s]) / (1 + sum(s: {condition}) abs({x}[s]))"),
            1 => format!("max(s: {condition}) {weight} * {x}[s]"),
            _ => format!("sum(s: {condition}) {weight} * {x}[s]"),
        };
        self.define_at("[t]", &[TIME], &value);
    }

    /// A state that is an outer product, read through a contraction, under decays of every kind.
    pub(super) fn outer(&mut self) {
        let (q, k, v, g) = (self.moving(true), self.moving(true), self.moving(false), self.moving(false));
        let wide = self.moving(true);
        let decay = match self.roll(9) {
            0 => "0.5 * ".to_owned(),
            1 => format!("exp(-abs({g}[t])) * "),
            2 => format!("sigmoid({g}[t]) * "),
            3 => format!("exp(-abs({wide}[t,b])) * "),
            4 => format!("sigmoid({wide}[t,b]) * "),
            5 => format!("tanh({g}[t]) * "),
            6 => format!("exp({g}[t]) * "),
            7 => format!("exp2(-abs({wide}[t,b])) * sigmoid({g}[t]) * "),
            _ => String::new(),
        };
        let name = format!("H{}", self.tensors.len());
        let start = if self.chance(0.7) { "0".to_owned() } else { self.constant() };
        let near = match self.roll(8) {
            // Nearly affine: these must be refused.
            0 => format!(" + 0.1 * max({name}[t,b], 0)"),
            1 => format!(" + 0.1 * {name}[t,b] * {name}[t,b]"),
            _ => String::new(),
        };
        self.statements.push(format!("{name}[0,b] = {start}"));
        self.statements.push(format!("{name}[t+1,b] = {decay}{name}[t,b] + {k}[t,b] * {v}[t]{near}"));
        let slice = self.random.pick(&["t+1", "t+1", "t"]);
        self.define_at("[t]", &[TIME], &format!("sum(b) {q}[t,b] * {name}[{slice},b]"));
    }
}
