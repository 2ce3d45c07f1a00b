//! Expressions, by precedence: `or` < `and` < `not` < comparisons < `+ -` < `* /` < `-x` < `^`.

use super::ast::{Expr, ExprKind, Name, Reduce};
use super::parser::{Parse, Parser};
use super::token::Kind;
use crate::{BinaryOp, Diagnostic, Span, UnaryOp};

/// How tightly an operator binds.
pub(crate) mod level {
    pub const OR: u8 = 1;
    pub const AND: u8 = 2;
    pub const NOT: u8 = 3;
    pub const COMPARE: u8 = 4;
    pub const ADD: u8 = 5;
    pub const MUL: u8 = 6;
    pub const NEG: u8 = 7;
    pub const POW: u8 = 8;
    pub const ATOM: u8 = 9;
}

/// How tightly `op` binds, where it is an operator.
pub(crate) fn binding(op: BinaryOp) -> u8 {
    match op {
        BinaryOp::Or => level::OR,
        BinaryOp::And => level::AND,
        BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge | BinaryOp::Eq | BinaryOp::Ne => level::COMPARE,
        BinaryOp::Add | BinaryOp::Sub => level::ADD,
        BinaryOp::Mul | BinaryOp::Div => level::MUL,
        BinaryOp::Pow => level::POW,
        BinaryOp::Min | BinaryOp::Max => level::ATOM,
    }
}

/// Bounds of the parser's own recursion (each bracket and each operator's right side counts) and of the tree it
/// makes. Both leave room for the printed form of every expression that resolving accepts.
const MAX_NESTING: u32 = 600;
const MAX_HEIGHT: u32 = 400;

/// What is always followed by indices in parentheses and a body.
pub(crate) const REDUCTIONS: [&str; 8] = ["sum", "prod", "argmax", "argmin", "softmax", "logsumexp", "mean", "var"];

impl<'a> Parser<'a, '_> {
    /// Any expression.
    pub fn expression(&mut self) -> Parse<Expr<'a>> {
        self.operand(level::OR)
    }

    /// An expression whose outermost operator binds at least as tightly as `min`.
    fn operand(&mut self, min: u8) -> Parse<Expr<'a>> {
        if self.nesting >= MAX_NESTING {
            return Err(self.too_deep());
        }
        self.nesting += 1;
        let out = self.operators(min);
        self.nesting -= 1;
        out
    }

    fn operators(&mut self, min: u8) -> Parse<Expr<'a>> {
        let mut left = self.prefix(min)?;
        while let Some(op) = self.operator() {
            let level = binding(op);
            if level < min {
                break;
            }
            self.at += 1;
            // `^` groups to the right, all others to the left.
            let right = self.operand(if level == level::POW { level } else { level + 1 })?;
            if op.is_comparison() && self.operator().is_some_and(BinaryOp::is_comparison) {
                return Err(self.chained(&left, op, &right));
            }
            let span = left.span.to(right.span);
            left = self.node(ExprKind::Binary(op, Box::new(left), Box::new(right)), span)?;
        }
        Ok(left)
    }

    fn operator(&self) -> Option<BinaryOp> {
        Some(match self.kind(0)? {
            Kind::Plus => BinaryOp::Add,
            Kind::Minus => BinaryOp::Sub,
            Kind::Star => BinaryOp::Mul,
            Kind::Slash => BinaryOp::Div,
            Kind::Caret => BinaryOp::Pow,
            Kind::Lt => BinaryOp::Lt,
            Kind::Le => BinaryOp::Le,
            Kind::Gt => BinaryOp::Gt,
            Kind::Ge => BinaryOp::Ge,
            Kind::EqEq => BinaryOp::Eq,
            Kind::Ne => BinaryOp::Ne,
            Kind::Name => match self.word(0)? {
                "and" => BinaryOp::And,
                "or" => BinaryOp::Or,
                _ => return None,
            },
            _ => return None,
        })
    }

    fn prefix(&mut self, min: u8) -> Parse<Expr<'a>> {
        let start = self.span();
        match self.kind(0) {
            Some(Kind::Minus) => {
                self.at += 1;
                let x = self.operand(level::NEG)?;
                let span = start.to(x.span);
                self.node(ExprKind::Unary(UnaryOp::Neg, Box::new(x)), span)
            }
            Some(Kind::Number) => {
                let value = self.number()?;
                self.node(ExprKind::Number(value), start)
            }
            Some(Kind::LParen) => {
                self.at += 1;
                let inner = self.operand(level::OR)?;
                let end = self.closing(Kind::RParen, "`)`", start)?;
                Ok(Expr { span: start.to(end), ..inner })
            }
            Some(Kind::Name) => self.named(min),
            _ => Err(self.expected_expression()),
        }
    }

    /// What starts with a name.
    fn named(&mut self, min: u8) -> Parse<Expr<'a>> {
        let name = Name { text: self.word(0).unwrap_or_default(), span: self.span() };
        match name.text {
            "and" | "or" => return Err(self.expected_expression()),
            "not" => {
                if min > level::NOT {
                    return Err(self.bare_not(name));
                }
                self.at += 1;
                let x = self.operand(level::NOT)?;
                let span = name.span.to(x.span);
                return self.node(ExprKind::Unary(UnaryOp::Not, Box::new(x)), span);
            }
            "reduce" => {
                self.at += 1;
                let word = self.word(0).unwrap_or_default();
                let built_in = REDUCTIONS.contains(&word) || matches!(word, "max" | "min");
                let monoid = self.name("the name of a monoid");
                if self.kind(0) == Some(Kind::LParen) && monoid.is_err() {
                    self.report.hint_last("its name stands before what it is over: `reduce f(n) X[n]`".to_string());
                }
                if built_in {
                    self.report.hint_last(format!("`reduce` is for your own monoids: write `{word}(…)` alone"));
                }
                let monoid = monoid?;
                return self.reduction(monoid, true, name.span);
            }
            text if REDUCTIONS.contains(&text) => {
                self.at += 1;
                return self.reduction(name, false, name.span);
            }
            "max" | "min" if self.reduces() => {
                self.at += 1;
                return self.reduction(name, false, name.span);
            }
            "where" if self.kind(1) != Some(Kind::LParen) => return Err(self.bare_where(name)),
            _ => self.at += 1,
        }
        match self.kind(0) {
            Some(Kind::LParen) => {
                let (arguments, end) = self.list(Kind::LParen, Kind::RParen, "`)`")?;
                if matches!(name.text, "max" | "min") && arguments.len() == 1 {
                    return Err(self.extremum_of_one(name, &arguments[0], end));
                }
                self.node(ExprKind::Call { name, arguments }, name.span.to(end))
            }
            Some(Kind::LBracket) => {
                let (at, end) = self.list(Kind::LBracket, Kind::RBracket, "`]`")?;
                self.node(ExprKind::Read { name, at }, name.span.to(end))
            }
            _ => self.node(ExprKind::Name(name.text), name.span),
        }
    }

    /// Whether the `max` or `min` that comes next is a reduction: indices in parentheses, then a filter or a body.
    fn reduces(&self) -> bool {
        if self.kind(1) != Some(Kind::LParen) {
            return false;
        }
        let mut ahead = 2;
        while self.kind(ahead) == Some(Kind::Name) {
            match self.kind(ahead + 1) {
                Some(Kind::Comma) => ahead += 2,
                Some(Kind::Colon) => return true,
                Some(Kind::RParen) => {
                    return match self.kind(ahead + 2) {
                        Some(Kind::Number | Kind::LParen) => true,
                        Some(Kind::Name) => match self.word(ahead + 2) {
                            Some("and" | "or") => false,
                            Some("identity") => !self.in_monoid,
                            _ => true,
                        },
                        _ => false,
                    };
                }
                _ => return false,
            }
        }
        false
    }

    /// `(i, j: filter) body`.
    fn reduction(&mut self, name: Name<'a>, custom: bool, start: Span) -> Parse<Expr<'a>> {
        if self.kind(0) != Some(Kind::LParen) {
            let text = name.text;
            let span = self.span();
            return Err(self.fail(
                Diagnostic::error("syntax", span, format!("`{text}` needs the indices it reduces, in parentheses"))
                    .hint(format!("write `{text}(n) X[n]`")),
            ));
        }
        self.at += 1;
        if self.kind(0) == Some(Kind::RParen) {
            let reported = self.expected("an index");
            self.report.hint_last(format!("name what it goes over: `{}(n) X[n]`", name.text));
            return Err(reported);
        }
        let mut over = vec![self.name("an index")?];
        while self.eat(Kind::Comma) {
            over.push(self.name("an index")?);
        }
        let filter = if self.eat(Kind::Colon) { Some(self.operand(level::OR)?) } else { None };
        if self.kind(0) != Some(Kind::RParen) {
            return Err(self.not_indices(name, &over));
        }
        self.at += 1;
        if self.at >= self.tokens.len() {
            let text = name.text;
            let span = self.span();
            return Err(self.fail(
                Diagnostic::error("syntax", span, format!("`{text}(…)` needs what it reduces after it"))
                    .hint(format!("write `{text}({}) X[{}]`, on one line", over[0].text, over[0].text)),
            ));
        }
        let body = self.operand(level::MUL)?;
        let span = start.to(body.span);
        self.node(ExprKind::Reduce(Box::new(Reduce { name, custom, over, filter, body })), span)
    }

    /// `(a, b, …)` or `[a, b, …]`, and the place of its end.
    pub fn list(&mut self, open: Kind, close: Kind, what: &str) -> Parse<(Vec<Expr<'a>>, Span)> {
        let opened = self.expect(open, "an open bracket")?;
        let mut out = vec![];
        if self.kind(0) != Some(close) {
            out.push(self.operand(level::OR)?);
            while self.eat(Kind::Comma) {
                out.push(self.operand(level::OR)?);
            }
        }
        let end = self.closing(close, what, opened)?;
        Ok((out, end))
    }

    /// A number without sign.
    pub fn number(&mut self) -> Parse<f64> {
        let span = self.span();
        self.expect(Kind::Number, "a number")?;
        match self.text[span.range()].parse::<f64>() {
            Ok(value) if value.is_finite() => Ok(value),
            _ => Err(self.fail(
                Diagnostic::error("number-too-large", span, "this number does not fit in f64")
                    .hint("infinity is `inf`"),
            )),
        }
    }

    fn node(&mut self, kind: ExprKind<'a>, span: Span) -> Parse<Expr<'a>> {
        let out = Expr::new(kind, span);
        if out.height > MAX_HEIGHT { Err(self.too_deep()) } else { Ok(out) }
    }

    #[cold]
    fn too_deep(&mut self) -> super::parser::Reported {
        let span = self.span();
        self.fail(
            Diagnostic::error("too-deep", span, "this expression is nested too deeply")
                .hint("name a part of it in a statement of its own"),
        )
    }

    #[cold]
    fn chained(&mut self, a: &Expr<'a>, op: BinaryOp, b: &Expr<'a>) -> super::parser::Reported {
        let (left, right) = (&self.text[a.span.range()], &self.text[b.span.range()]);
        let next = self.operator().map_or("<", BinaryOp::symbol);
        let hint = format!("write `{left} {} {right} and {right} {next} …`", op.symbol());
        let span = self.span();
        self.fail(Diagnostic::error("chained-comparison", span, "comparisons do not chain").hint(hint))
    }

    /// What stands in the parentheses of a reduction is no list of indices.
    #[cold]
    fn not_indices(&mut self, name: Name<'a>, over: &[Name<'a>]) -> super::parser::Reported {
        let (name, first) = (name.text, over[0].text);
        let compares = self.operator().filter(|op| op.is_comparison());
        let reads = self.kind(0) == Some(Kind::LBracket);
        let reported = self.expected("`)`, or `,` and another index, or `:` and a filter");
        if let Some(op) = compares {
            self.report.hint_last(format!(
                "a condition stands after the index and a colon: `{name}({first}: {first} {} …)`",
                op.symbol()
            ));
        } else if reads {
            self.report.hint_last(format!(
                "the index stands in parentheses, what is reduced after them: `{name}(n) {first}[…]`"
            ));
        }
        reported
    }

    #[cold]
    fn bare_not(&mut self, name: Name<'a>) -> super::parser::Reported {
        self.fail(
            Diagnostic::error("syntax", name.span, "`not` binds less tightly than the operator before it")
                .hint("put it in parentheses: `(not …)`"),
        )
    }

    #[cold]
    fn bare_where(&mut self, name: Name<'a>) -> super::parser::Reported {
        self.fail(
            Diagnostic::error("syntax", name.span, "`where` takes a condition and two values, in parentheses")
                .hint("write `where(condition, then, otherwise)`")
                .hint("what a reduction leaves out is said by a filter: `sum(n: X[n] > 0) …`"),
        )
    }

    #[cold]
    fn extremum_of_one(&mut self, name: Name<'a>, argument: &Expr<'a>, end: Span) -> super::parser::Reported {
        let f = name.text;
        let inner = &self.text[argument.span.range()];
        let diagnostic = Diagnostic::error(
            "syntax",
            name.span.to(end),
            format!("`{f}({inner})` is neither a function nor a reduction"),
        );
        let diagnostic = match argument.kind {
            ExprKind::Name(n) => diagnostic.hint(format!(
                "to reduce over `{n}`, say of what: `{f}({n}) X[{n}]`; a body that starts with `-` needs parentheses"
            )),
            _ => diagnostic.hint(format!("to reduce, name the index first: `{f}(n) {inner}`")),
        };
        self.fail(diagnostic.hint(format!("the function takes two or more values: `{f}(a, b)`")))
    }

    #[cold]
    fn expected_expression(&mut self) -> super::parser::Reported {
        if self.kind(0).is_none() {
            let span = self.span();
            return self.fail(Diagnostic::error("syntax", span, "the line ends where a value is expected"));
        }
        let power = self.kind(0) == Some(Kind::Star) && self.at > 0 && self.tokens[self.at - 1].kind == Kind::Star;
        let reported = self.expected("a value");
        if power {
            self.report.hint_last("a power is written `^`");
        }
        reported
    }
}
