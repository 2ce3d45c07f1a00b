//! Text to syntax tree. One logical line is one item, so a mistake in a line never spoils another.

pub(crate) mod ast;
mod expression;
mod items;
mod lexer;
mod lines;
mod parser;
mod token;

pub(crate) use expression::{binding, level};
pub(crate) use items::parse_program;

/// Whether a name has a fixed meaning and cannot be given.
pub(crate) fn is_reserved(name: &str) -> bool {
    token::RESERVED.contains(&name) || crate::UnaryOp::NAMED.iter().any(|op| op.name() == name)
}
