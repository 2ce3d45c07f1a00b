//! Numbers: scalar expressions and reductions over them.

use super::Writer;
use super::scope::{self, Ix, RANKS};

impl Writer {
    pub(super) fn constant(&mut self) -> String {
        self.random.pick(&["0.5", "1", "2", "0.25", "3", "(-1)", "0", "1.5"]).to_owned()
    }

    fn leaf(&mut self, scope: &[Ix]) -> String {
        match self.roll(20) {
            0 | 1 => self.constant(),
            2 if !scope.is_empty() => scope[self.roll(scope.len())].name().to_owned(),
            3 => RANKS[self.roll(3)].name.to_owned(),
            4 if self.head.contains("alpha") => "alpha".to_owned(),
            5 | 6 => self.gathered(scope).unwrap_or_else(|| self.element(scope, None)),
            _ => self.element(scope, None),
        }
    }

    /// Any number over the indices in scope.
    pub(super) fn real(&mut self, scope: &[Ix], depth: usize) -> String {
        if depth == 0 {
            return self.leaf(scope);
        }
        match self.roll(16) {
            0..=3 => {
                let op = self.random.pick(&["+", "-", "*", "*"]);
                format!("({} {op} {})", self.real(scope, depth - 1), self.real(scope, depth - 1))
            }
            4 => self.quotient(scope, depth),
            5 | 6 => self.function(scope, depth),
            7 => format!(
                "where({}, {}, {})",
                self.condition(scope, None),
                self.real(scope, depth - 1),
                self.real(scope, depth - 1)
            ),
            8 => {
                let f = self.random.pick(&["min", "max"]);
                format!("{f}({}, {})", self.real(scope, depth - 1), self.real(scope, depth - 1))
            }
            9 => format!("({})^{}", self.real(scope, depth - 1), self.random.pick(&["2", "2", "3", "4"])),
            10 if self.head.contains("mix") => {
                format!("mix({}, {})", self.real(scope, depth - 1), self.real(scope, depth - 1))
            }
            _ => self.reduction(scope, depth - 1),
        }
    }

    fn quotient(&mut self, scope: &[Ix], depth: usize) -> String {
        let (a, b) = (self.real(scope, depth - 1), self.real(scope, depth - 1));
        if self.wild { format!("({a} / ({b}))") } else { format!("({a} / (1 + abs({b})))") }
    }

    fn function(&mut self, scope: &[Ix], depth: usize) -> String {
        let x = self.real(scope, depth - 1);
        if self.wild {
            let f = self.random.pick(&["exp", "exp2", "log", "log2", "sqrt", "rsqrt", "floor", "round", "log1p"]);
            return format!("{f}({x})");
        }
        match self.roll(14) {
            0 | 1 => format!("exp({x})"),
            2 => format!("exp(-abs({x}))"),
            3 => format!("log(1 + abs({x}))"),
            4 => format!("sqrt(1 + abs({x}))"),
            5 => format!("rsqrt(1 + ({x})^2)"),
            6 => format!("log1p(abs({x}))"),
            7 => format!("exp2({x})"),
            _ => {
                let f = self
                    .random
                    .pick(&["tanh", "sigmoid", "relu", "abs", "sin", "cos", "silu", "gelu", "erf", "sign", "-"]);
                format!("{f}({x})")
            }
        }
    }

    /// A reduction over one or two indices that are not in scope.
    pub(super) fn reduction(&mut self, outer: &[Ix], depth: usize) -> String {
        let over = self.bind_index(outer);
        let mut scope = scope::with(outer, over);
        let mut names = over.name().to_owned();
        if self.chance(0.15) {
            let second = self.bind_index(&scope);
            scope.push(second);
            names = format!("{names},{}", second.name());
        }
        if self.chance(0.06) {
            let sugar = self.random.pick(&["mean", "var", "logsumexp"]);
            let x = self.element(&scope, Some(over));
            return format!("({sugar}({}) {x})", over.name());
        }
        let filter = self.filter(&scope, over);
        let monoid = self.monoid();
        let body = self.body(&scope, over, depth);
        format!("({monoid}({names}{filter}) {body})")
    }

    pub(super) fn monoid(&mut self) -> &'static str {
        if self.head.contains("monoid") && self.chance(0.15) {
            return self.random.pick(&["reduce join", "reduce both", "reduce lse", "reduce length"]);
        }
        self.random.pick(&["sum", "sum", "sum", "sum", "sum", "max", "max", "min", "prod", "argmax", "argmin"])
    }

    /// What a reduction over `over` is taken of: a product, most of the time.
    fn body(&mut self, scope: &[Ix], over: Ix, depth: usize) -> String {
        let count = 1 + self.roll(3);
        let mut factors = vec![self.element(scope, Some(over))];
        for _ in 1..count {
            factors.push(match self.roll(6) {
                0 => format!("exp({} - {})", self.element(scope, Some(over)), self.element(scope, None)),
                1 => format!("({} - {})", self.element(scope, Some(over)), self.element(scope, None)),
                2 if depth > 0 => format!("({})", self.real(scope, depth - 1)),
                3 => format!("where({}, {}, 0)", self.condition(scope, Some(over)), self.element(scope, None)),
                _ => self.element(scope, None),
            });
        }
        let first = self.roll(factors.len());
        factors.swap(0, first);
        // In brackets where a sign would otherwise follow an operator.
        factors.join(" * ")
    }
}
