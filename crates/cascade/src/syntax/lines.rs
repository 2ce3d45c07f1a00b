//! Tokens to logical lines. A line goes on after an operator, a comma, or inside brackets.

use super::token::{Kind, Token};

/// Words that start a declaration when a name follows.
pub(super) const DECLARATIONS: [&str; 8] = ["cascade", "input", "output", "rank", "param", "index", "op", "monoid"];

/// The token ranges of the logical lines, in order; none is empty. A line that plainly starts an item ends the one
/// before it even if a bracket is still open there, so that one forgotten bracket spoils one line only.
pub(super) fn logical_lines(text: &str, tokens: &[Token]) -> Vec<std::ops::Range<usize>> {
    let mut out = vec![];
    let mut start = 0;
    let mut depth = 0usize;
    for (k, token) in tokens.iter().enumerate() {
        if k > start && token.starts_line {
            let goes_on = depth > 0 || continues(text, &tokens[k - 1]);
            if !goes_on || starts_item(text, &tokens[k..]) {
                out.push(start..k);
                start = k;
                depth = 0;
            }
        }
        match token.kind {
            Kind::LParen | Kind::LBracket => depth += 1,
            Kind::RParen | Kind::RBracket => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    if start < tokens.len() {
        out.push(start..tokens.len());
    }
    out
}

fn continues(text: &str, last: &Token) -> bool {
    match last.kind {
        Kind::Name => matches!(&text[last.span.range()], "and" | "or" | "not"),
        Kind::Number | Kind::RParen | Kind::RBracket | Kind::Bad => false,
        _ => true,
    }
}

/// Whether the physical line reads `X = `, `X[…] = `, `X[…]: dtype = ` or `input X`.
fn starts_item(text: &str, tokens: &[Token]) -> bool {
    let line = tokens[1..].iter().position(|t| t.starts_line).map_or(tokens, |k| &tokens[..=k]);
    let kind = |k: usize| line.get(k).map(|t| t.kind);
    if kind(0) != Some(Kind::Name) {
        return false;
    }
    if kind(1) == Some(Kind::Name) {
        return DECLARATIONS.contains(&&text[line[0].span.range()]);
    }
    let mut next = 1;
    if kind(1) == Some(Kind::LBracket) {
        let mut depth = 0usize;
        for (k, token) in line.iter().enumerate().skip(1) {
            match token.kind {
                Kind::LParen | Kind::LBracket => depth += 1,
                Kind::RParen | Kind::RBracket => depth = depth.saturating_sub(1),
                _ => {}
            }
            if depth == 0 {
                next = k + 1;
                break;
            }
        }
    }
    kind(next) == Some(Kind::Assign)
        || (kind(next) == Some(Kind::Colon)
            && kind(next + 1) == Some(Kind::Name)
            && kind(next + 2) == Some(Kind::Assign))
}
