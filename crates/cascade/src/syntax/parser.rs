//! The parser's hands: a cursor over the tokens of one logical line.

use super::ast::Name;
use super::token::{Kind, Token};
use crate::resolve::Report;
use crate::{Diagnostic, Span};

/// A mistake that has been reported; the rest of its line is skipped.
#[derive(Debug)]
pub(super) struct Reported;

/// What parsing a part gives.
pub(super) type Parse<T> = Result<T, Reported>;

/// A cursor over one logical line.
pub(super) struct Parser<'a, 'r> {
    pub text: &'a str,
    pub tokens: &'r [Token],
    pub at: usize,
    pub report: &'r mut Report,
    /// Open calls of the expression parser.
    pub nesting: u32,
    /// Whether `identity` ends the expression.
    pub in_monoid: bool,
}

impl<'a> Parser<'a, '_> {
    /// The kind of the token that is `ahead` of the next.
    pub fn kind(&self, ahead: usize) -> Option<Kind> {
        self.tokens.get(self.at + ahead).map(|t| t.kind)
    }

    /// The text of the token that is `ahead` of the next, if it is a name.
    pub fn word(&self, ahead: usize) -> Option<&'a str> {
        let token = self.tokens.get(self.at + ahead)?;
        (token.kind == Kind::Name).then(|| &self.text[token.span.range()])
    }

    /// The next token's place; an empty place after the last token at the end of the line.
    pub fn span(&self) -> Span {
        match self.tokens.get(self.at) {
            Some(token) => token.span,
            None => self.tokens.last().map_or_else(Span::default, |t| Span { start: t.span.end, end: t.span.end }),
        }
    }

    /// The place of the token before the next.
    pub fn last_span(&self) -> Span {
        self.tokens[..self.at].last().map_or_else(Span::default, |t| t.span)
    }

    /// Steps over the next token if it is of this kind.
    pub fn eat(&mut self, kind: Kind) -> bool {
        let found = self.kind(0) == Some(kind);
        self.at += usize::from(found);
        found
    }

    /// Steps over the next token, which must be of this kind.
    pub fn expect(&mut self, kind: Kind, what: &str) -> Parse<Span> {
        if self.eat(kind) { Ok(self.last_span()) } else { Err(self.expected(what)) }
    }

    /// Steps over the bracket that closes what was opened there.
    pub fn closing(&mut self, kind: Kind, what: &str, opened: Span) -> Parse<Span> {
        if self.eat(kind) {
            return Ok(self.last_span());
        }
        let reported = self.expected(what);
        if matches!(self.kind(0), None | Some(Kind::RParen | Kind::RBracket)) {
            self.report.label_last(opened, "opened here");
            self.report.hint_last(format!("close it with {what}"));
        }
        Err(reported)
    }

    /// Steps over the next token, which must be a name that has no fixed meaning.
    pub fn name(&mut self, what: &str) -> Parse<Name<'a>> {
        let Some(text) = self.word(0) else { return Err(self.expected(what)) };
        let span = self.span();
        if super::is_reserved(text) {
            return Err(self.fail(
                Diagnostic::error(
                    "reserved-name",
                    span,
                    format!("`{text}` is a word of the language, not a name to give"),
                )
                .hint(format!("choose another name, such as `{text}_`")),
            ));
        }
        self.at += 1;
        Ok(Name { text, span })
    }

    /// Nothing may be left on the line.
    pub fn end(&mut self) -> Parse<()> {
        if self.at >= self.tokens.len() { Ok(()) } else { Err(self.more_on_the_line()) }
    }

    #[cold]
    fn more_on_the_line(&mut self) -> Reported {
        let called = self.tokens[..self.at].last().is_some_and(|t| t.kind == Kind::RParen);
        if let (Some(Kind::Name | Kind::LParen | Kind::Number), Some(name)) = (self.kind(0), self.called())
            && self.word(0) != Some("if")
        {
            return self.no_reduction(name);
        }
        let hint = match self.kind(0) {
            Some(Kind::RParen | Kind::RBracket) => Some("it closes nothing: leave it out".to_string()),
            Some(Kind::Name) if self.word(0) == Some("if") => {
                Some("write `where(condition, then, otherwise)`".to_string())
            }
            Some(Kind::Name | Kind::LParen | Kind::Number) if called => {
                let all = super::expression::REDUCTIONS.join("`, `");
                Some(format!(
                    "only reductions have a body: `max`, `min`, `{all}`, or `reduce f(n) …` with a monoid `f` of yours"
                ))
            }
            _ => None,
        };
        let reported = self.expected("the end of the line");
        hint.into_iter().for_each(|hint| self.report.hint_last(hint));
        reported
    }

    /// The name before the parentheses that were just closed.
    fn called(&self) -> Option<Name<'a>> {
        let mut depth = 0usize;
        for (k, token) in self.tokens[..self.at].iter().enumerate().rev() {
            match token.kind {
                Kind::RParen => depth += 1,
                Kind::LParen => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                let before = self.tokens[..k].last().filter(|t| token.kind == Kind::LParen && t.kind == Kind::Name)?;
                let text = &self.text[before.span.range()];
                return (!matches!(text, "and" | "or" | "not")).then_some(Name { text, span: before.span });
            }
        }
        None
    }

    /// `topk(n) X[n]`.
    #[cold]
    fn no_reduction(&mut self, name: Name<'a>) -> Reported {
        let all = super::expression::REDUCTIONS.join("`, `");
        let message = format!("`{}` is no reduction, and only reductions have a body", name.text);
        let d = Diagnostic::error("syntax", name.span, message).label(self.span(), "the body");
        let d = if name.text == "log_softmax" { d.hint("write `X[n] - logsumexp(n) X[n]`") } else { d };
        self.fail(d.hint(format!(
            "reductions are `max`, `min`, `{all}`, and `reduce f(n) …` with a monoid `f` of yours; for a product write `*`"
        )))
    }

    /// Reports that something else stands here.
    pub fn expected(&mut self, what: &str) -> Reported {
        let span = self.span();
        let found = match self.kind(0) {
            Some(Kind::Bad) => return Reported,
            Some(_) => format!("`{}`", &self.text[span.range()]),
            None => "the end of the line".to_owned(),
        };
        self.fail(Diagnostic::error("syntax", span, format!("expected {what}, found {found}")))
    }

    /// Reports.
    pub fn fail(&mut self, diagnostic: Diagnostic) -> Reported {
        self.report.add(diagnostic);
        Reported
    }
}
