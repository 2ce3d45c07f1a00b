//! Items: declarations and statements, one per logical line.

use super::ast::*;
use super::lines::{DECLARATIONS, logical_lines};
use super::parser::{Parse, Parser};
use super::token::Kind;
use crate::Diagnostic;
use crate::resolve::Report;

/// Reads the whole text; what could not be read is in the report.
pub(crate) fn parse_program<'a>(text: &'a str, report: &mut Report) -> Program<'a> {
    let tokens = super::lexer::tokens(text, report);
    let mut program = Program::default();
    for line in logical_lines(text, &tokens) {
        let mut parser = Parser { text, tokens: &tokens[line], at: 0, report, nesting: 0, in_monoid: false };
        // A reported mistake ends its line; what was read before it is in the program.
        let _ = parser.item(&mut program);
    }
    program
}

impl<'a> Parser<'a, '_> {
    fn item(&mut self, program: &mut Program<'a>) -> Parse<()> {
        // `rank = 3` defines a tensor of that name; `rank M` declares.
        let declares = self.kind(1) == Some(Kind::Name);
        match self.word(0).filter(|w| declares && DECLARATIONS.contains(w)) {
            Some("cascade") => {
                self.at += 1;
                let name = Name { text: self.word(0).unwrap_or_default(), span: self.span() };
                self.at += 1;
                program.headers.push(name);
                self.end()
            }
            Some("input") => self.declared(&mut program.inputs),
            Some("output") => self.declared(&mut program.outputs),
            Some("rank") => self.rank(program),
            Some("param") => self.param(program),
            Some("index") => self.index(program),
            Some("op") => self.op(program),
            Some("monoid") => self.monoid(program),
            _ => self.statement(program),
        }
    }

    /// `X[m,n]: bf16, Y, Z: f32`: a name without a type has that of the next one with a type.
    fn declared(&mut self, list: &mut Vec<Declared<'a>>) -> Parse<()> {
        self.at += 1;
        let start = list.len();
        loop {
            let name = self.name("the name of a tensor")?;
            list.push(Declared { name, at: None, dtype: None });
            let this = list.len() - 1;
            if self.kind(0) == Some(Kind::LBracket) {
                list[this].at = Some(self.list(Kind::LBracket, Kind::RBracket, "`]`")?.0);
            }
            if self.eat(Kind::Colon) {
                let Some(text) = self.word(0) else { return Err(self.expected("a number type, such as `bf16`")) };
                let dtype = Name { text, span: self.span() };
                self.at += 1;
                for earlier in list[start..].iter_mut().rev().take_while(|d| d.dtype.is_none()) {
                    earlier.dtype = Some(dtype);
                }
            }
            if !self.eat(Kind::Comma) {
                return self.end();
            }
        }
    }

    /// `M, I = L - R + 1`.
    fn rank(&mut self, program: &mut Program<'a>) -> Parse<()> {
        self.at += 1;
        loop {
            let name = self.name("the name of a rank")?;
            program.ranks.push(RankItem { name, size: None });
            if self.eat(Kind::Assign) {
                let size = self.expression()?;
                if let Some(item) = program.ranks.last_mut() {
                    item.size = Some(size);
                }
            }
            if !self.eat(Kind::Comma) {
                return self.end();
            }
        }
    }

    /// `scale, eps = 1e-5`.
    fn param(&mut self, program: &mut Program<'a>) -> Parse<()> {
        self.at += 1;
        loop {
            let name = self.name("the name of a parameter")?;
            program.params.push(ParamItem { name, value: None });
            if self.eat(Kind::Assign) {
                let value = self.signed_number()?;
                if let Some(item) = program.params.last_mut() {
                    item.value = Some(value);
                }
            }
            if self.kind(0) == Some(Kind::Colon) {
                let reported = self.expected("a value, a comma or the end of the line");
                self.report.hint_last("a parameter is a number without a type: `param eps = 1e-5`");
                return Err(reported);
            }
            if !self.eat(Kind::Comma) {
                return self.end();
            }
        }
    }

    fn index(&mut self, program: &mut Program<'a>) -> Parse<()> {
        self.at += 1;
        let mut names = vec![self.name("the name of an index")?];
        while self.eat(Kind::Comma) {
            names.push(self.name("the name of an index")?);
        }
        if self.word(0) != Some("in") {
            return Err(self.expected("`in` and the rank they range over"));
        }
        self.at += 1;
        let rank = self.name("the name of a rank")?;
        program.indices.push(IndexItem { names, rank });
        self.end()
    }

    fn op(&mut self, program: &mut Program<'a>) -> Parse<()> {
        self.at += 1;
        let name = self.name("the name of the op")?;
        let arguments = self.arguments()?;
        program.ops.push(OpItem { name, arguments, body: None });
        self.expect(Kind::Assign, "`=`")?;
        let body = self.expression()?;
        if let Some(item) = program.ops.last_mut() {
            item.body = Some(body);
        }
        self.end()
    }

    fn monoid(&mut self, program: &mut Program<'a>) -> Parse<()> {
        self.at += 1;
        let name = self.name("the name of the monoid")?;
        let arguments = self.arguments()?;
        program.monoids.push(MonoidItem { name, arguments, combine: None });
        self.expect(Kind::Assign, "`=`")?;
        self.in_monoid = true;
        let combine = self.expression()?;
        if self.word(0) != Some("identity") {
            let span = self.span();
            return Err(self.fail(
                Diagnostic::error("syntax", span, "a monoid needs its identity, the value over nothing")
                    .hint("end the line with, for example, `identity 0`"),
            ));
        }
        self.at += 1;
        let identity = self.signed_number()?;
        if let Some(item) = program.monoids.last_mut() {
            item.combine = Some((combine, identity));
        }
        self.end()
    }

    /// `(x, y)`.
    fn arguments(&mut self) -> Parse<Vec<Name<'a>>> {
        self.expect(Kind::LParen, "`(` and the arguments' names")?;
        let mut out = vec![];
        if self.kind(0) != Some(Kind::RParen) {
            out.push(self.name("an argument's name")?);
            while self.eat(Kind::Comma) {
                out.push(self.name("an argument's name")?);
            }
        }
        self.expect(Kind::RParen, "`)`")?;
        Ok(out)
    }

    /// `1.5`, `-1`, `inf`, `-inf`, `pi`.
    fn signed_number(&mut self) -> Parse<f64> {
        let sign = if self.eat(Kind::Minus) { -1.0 } else { 1.0 };
        let constant = match self.word(0) {
            Some("inf") => f64::INFINITY,
            Some("pi") => std::f64::consts::PI,
            _ if self.kind(0) == Some(Kind::Number) => return Ok(sign * self.number()?),
            _ => return Err(self.expected("a number")),
        };
        self.at += 1;
        Ok(sign * constant)
    }

    fn statement(&mut self, program: &mut Program<'a>) -> Parse<()> {
        let start = self.span();
        if self.kind(0) != Some(Kind::Name) {
            let continued = !matches!(self.kind(0), Some(Kind::Number | Kind::Bad));
            let reported = self.expected("a declaration or a statement at the start of the line");
            if continued {
                self.report
                    .hint_last("a line goes on if the line before ends in an operator, a comma or an open bracket");
            }
            return Err(reported);
        }
        let name = self.name("the name of a tensor")?;
        program.unread.push(name);
        let at = match self.kind(0) {
            Some(Kind::LBracket) => self.list(Kind::LBracket, Kind::RBracket, "`]`")?.0,
            _ => vec![],
        };
        let mut dtype = None;
        if self.eat(Kind::Colon) {
            let Some(text) = self.word(0) else { return Err(self.expected("a number type, such as `bf16`")) };
            dtype = Some(Name { text, span: self.span() });
            self.at += 1;
        }
        if !self.eat(Kind::Assign) {
            return Err(self.not_a_statement(name));
        }
        program.unread.pop();
        let this = program.statements.len();
        program.statements.push(StatementItem { name, at, dtype, value: None, span: start.to(self.last_span()) });
        let value = self.expression()?;
        program.statements[this].span = start.to(value.span);
        if self.at >= self.tokens.len() {
            program.statements[this].value = Some(value);
        }
        self.end()
    }

    /// `name …` without `=`.
    fn not_a_statement(&mut self, name: Name<'a>) -> super::parser::Reported {
        let adds = matches!(self.kind(0), Some(Kind::Plus | Kind::Star)) && self.kind(1) == Some(Kind::Assign);
        let reported = self.expected("`=`");
        if adds {
            self.report
                .hint_last("a statement says at once what a tensor is; what adds up over an index is `sum(n) …`");
        }
        if self.kind(0) == Some(Kind::Name)
            && let Some(word) = crate::resolve::nearest(name.text, DECLARATIONS.into_iter())
        {
            self.report.hint_last(format!("did you mean the declaration `{word}`?"));
        }
        reported
    }
}
