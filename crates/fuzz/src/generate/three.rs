//! Three reductions over one index, each of which needs the one before, as statisticians write them.

use super::Writer;
use super::scope::{self, Ix, Known};

impl Writer {
    pub(super) fn three(&mut self) {
        let rows = self.free();
        let n = self.bind_index(&rows);
        let all = scope::with(&rows, n);
        let at = scope::brackets(&rows);
        let over = format!("{}{}", n.name(), self.filter(&all, n));
        let (x, v) = (self.element(&all, Some(n)), self.element(&all, Some(n)));
        let define = |w: &mut Self, value: String| w.define(&rows, &value, Known::Real) + &at;
        match self.roll(14) {
            0 => {
                let m = define(self, format!("max({over}) {x}"));
                let z = define(self, format!("sum({over}) exp({x} - {m})"));
                let mu = define(self, format!("(sum({over}) exp({x} - {m}) * {v}) / {z}"));
                define(self, format!("(sum({over}) exp({x} - {m}) * ({v} - {mu})^2) / {z}"));
            }
            1 => {
                let mu = define(self, format!("mean({}) {x}", n.name()));
                let sd = define(self, format!("sqrt((mean({}) ({x} - {mu})^2) + 0.01)", n.name()));
                let power = self.random.pick(&["3", "4"]);
                define(self, format!("sum({over}) (({x} - {mu}) / {sd})^{power}"));
            }
            2 => {
                let mu = define(self, format!("mean({}) {x}", n.name()));
                let sd = define(self, format!("sqrt((mean({}) ({x} - {mu})^2) + 0.01)", n.name()));
                let m = define(self, format!("max({over}) ({x} - {mu}) / {sd}"));
                define(self, format!("sum({over}) exp(({x} - {mu}) / {sd} - {m}) * {v}"));
            }
            3 => {
                let m = define(self, format!("max({over}) {x}"));
                let z = define(self, format!("sum({over}) exp({x} - {m})"));
                define(self, format!("0 - sum({over}) exp({x} - {m}) / {z} * ({x} - {m} - log({z} + 0.001))"));
            }
            4 => {
                let norm = define(self, format!("sqrt((sum({over}) {x}^2) + 0.1)"));
                let most = define(self, format!("max({over}) {x} / {norm}"));
                define(self, format!("sum({over}) exp({x} / {norm} - {most}) * {v}"));
            }
            5 => {
                let lo = define(self, format!("min({over}) {x}"));
                let hi = define(self, format!("max({over}) {x}"));
                let mean = define(self, format!("(sum({over}) ({x} - {lo})) / ({hi} - {lo} + 1)"));
                define(self, format!("sum({over}) (({x} - {lo}) / ({hi} - {lo} + 1) - {mean})^2"));
            }
            6 => {
                let mu = define(self, format!("mean({}) {x}", n.name()));
                let nu = define(self, format!("mean({}) {v}", n.name()));
                let c = define(self, format!("sum({over}) ({x} - {mu}) * ({v} - {nu})"));
                let s = define(self, format!("(sum({over}) ({x} - {mu})^2) + 0.1"));
                define(self, format!("sum({over}) ({v} - {nu} - {c} / {s} * ({x} - {mu}))^2"));
            }
            7 => {
                // Log-sum-exp as the anchor of another weighted sum.
                let l = define(self, format!("logsumexp({}) {x}", n.name()));
                let mu = define(self, format!("sum({over}) exp({x} - {l}) * {v}"));
                define(self, format!("sum({over}) exp({x} - {l}) * ({v} - {mu})^3"));
            }
            8 => {
                // Entropy and its like: logarithms of what is normalised.
                let (p, _) = self.normalised(&rows, &over, &x);
                let log = self.random.pick(&["log", "log2"]);
                define(self, format!("0 - sum({over}) {p} * {log}({p})"));
            }
            9 => {
                let ((p, _), (q, _)) = (self.normalised(&rows, &over, &x), self.normalised(&rows, &over, &v));
                let apart = self.one_of(vec![format!("log({p} / {q})"), format!("(log({p}) - log({q}))")]);
                define(self, format!("sum({over}) {p} * {apart}"));
            }
            10 => {
                let (p, z) = self.normalised(&rows, &over, &x);
                let inner = self.one_of(vec![p, format!("exp({x}) * abs({v}) / {z}"), format!("abs({v}) / {z}^2")]);
                define(self, format!("sum({over}) {v} * log({inner})"));
            }
            11 => {
                // Two anchors in one sum.
                let ((p, _), (q, _)) = (self.normalised(&rows, &over, &x), self.normalised(&rows, &over, &v));
                let u = self.element(&all, Some(n));
                let sum = self.one_of(vec![format!("({p} - 0.5 * {q})"), format!("({p} + {q} * {v})")]);
                let by = self.one_of(vec![format!("{u} * "), String::new()]);
                define(self, format!("sum({over}) {by}{sum} * {u}"));
            }
            12 => {
                // Norms relative to the largest magnitude.
                let a = define(self, format!("max({over}) abs({x})"));
                let power = self.random.pick(&["1", "2", "3", "0.5"]);
                let by = self.one_of(vec![format!(" * {v}"), String::new(), format!(" * abs({x})")]);
                define(self, format!("sum({over}) (abs({x}) / {a})^{power}{by}"));
                define(self, format!("{a} * sqrt(sum({over}) ({x} / {a})^2)"));
            }
            _ => {
                // Not separable: each needs its elements again.
                let s = define(self, format!("sum({over}) abs({x})"));
                let t = define(self, format!("sum({over}) max({x} - {s}, 0)"));
                define(self, format!("sum({over}) tanh({x} + {t}) * {v}"));
            }
        };
    }
    fn one_of(&mut self, mut all: Vec<String>) -> String {
        let k = self.roll(all.len());
        all.swap_remove(k)
    }

    /// A softmax of `x` written out, and its normaliser.
    fn normalised(&mut self, rows: &[Ix], over: &str, x: &str) -> (String, String) {
        let at = scope::brackets(rows);
        let m = self.define(rows, &format!("max({over}) {x}"), Known::Real) + &at;
        let z = self.define(rows, &format!("sum({over}) exp({x} - {m})"), Known::Real) + &at;
        (format!("(exp({x} - {m}) / {z})"), z)
    }
}
