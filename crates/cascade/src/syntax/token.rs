//! Tokens.

use crate::Span;

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Name,
    Number,
    Plus,
    Minus,
    Star,
    Slash,
    Caret,
    Lt,
    Le,
    Gt,
    Ge,
    EqEq,
    Ne,
    Assign,
    LParen,
    RParen,
    LBracket,
    RBracket,
    Comma,
    Colon,
    /// Something the lexer has reported: a parser that meets it gives up without another report.
    Bad,
}

/// A piece of the text that means something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    pub kind: Kind,
    pub span: Span,
    /// Whether a line break stands before it.
    pub starts_line: bool,
}

/// Names with a fixed meaning inside expressions; the functions of `UnaryOp::NAMED` are reserved as well.
pub(crate) const RESERVED: [&str; 17] = [
    "and",
    "or",
    "not",
    "where",
    "reduce",
    "sum",
    "prod",
    "max",
    "min",
    "argmax",
    "argmin",
    "softmax",
    "logsumexp",
    "mean",
    "var",
    "inf",
    "pi",
];
