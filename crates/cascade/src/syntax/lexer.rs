//! Text to tokens. What cannot be read becomes a `Bad` token and one diagnostic per run of such characters.

use super::token::{Kind, Token};
use crate::resolve::Report;
use crate::{Diagnostic, Span};

/// All tokens of the text, in order.
pub(crate) fn tokens(text: &str, report: &mut Report) -> Vec<Token> {
    let bytes = text.as_bytes();
    let mut out: Vec<Token> = vec![];
    let mut at = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let mut starts_line = true;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (kind, length) = match rest[0] {
            b'\n' => {
                starts_line = true;
                at += 1;
                continue;
            }
            b' ' | b'\t' | b'\r' => {
                at += 1;
                continue;
            }
            b'#' => {
                at += rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
                continue;
            }
            b'a'..=b'z' | b'A'..=b'Z' | b'_' => (Kind::Name, name_length(rest)),
            b'0'..=b'9' => number(rest, at, report),
            b'<' if rest.get(1) == Some(&b'=') => (Kind::Le, 2),
            b'>' if rest.get(1) == Some(&b'=') => (Kind::Ge, 2),
            b'=' if rest.get(1) == Some(&b'=') => (Kind::EqEq, 2),
            b'!' if rest.get(1) == Some(&b'=') => (Kind::Ne, 2),
            b'<' => (Kind::Lt, 1),
            b'>' => (Kind::Gt, 1),
            b'=' => (Kind::Assign, 1),
            b'+' => (Kind::Plus, 1),
            b'-' => (Kind::Minus, 1),
            b'*' => (Kind::Star, 1),
            b'/' => (Kind::Slash, 1),
            b'^' => (Kind::Caret, 1),
            b'(' => (Kind::LParen, 1),
            b')' => (Kind::RParen, 1),
            b'[' => (Kind::LBracket, 1),
            b']' => (Kind::RBracket, 1),
            b',' => (Kind::Comma, 1),
            b':' => (Kind::Colon, 1),
            _ => (Kind::Bad, bad_run(&text[at..], at, report)),
        };
        out.push(Token { kind, span: Span::new(at, at + length), starts_line });
        starts_line = false;
        at += length;
    }
    out
}

fn name_length(rest: &[u8]) -> usize {
    rest.iter().position(|b| !b.is_ascii_alphanumeric() && *b != b'_').unwrap_or(rest.len())
}

/// `12`, `1.5`, `1e-5`, `1.5e+3`.
fn number(rest: &[u8], at: usize, report: &mut Report) -> (Kind, usize) {
    let digits = |from: usize| rest[from..].iter().take_while(|b| b.is_ascii_digit()).count();
    let mut end = digits(0);
    if rest.get(end) == Some(&b'.') {
        end += 1 + digits(end + 1);
    }
    if matches!(rest.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(rest.get(end + 1), Some(b'+' | b'-')));
        let exponent = digits(end + 1 + sign);
        if exponent > 0 {
            end += 1 + sign + exponent;
        }
    }
    let tail = name_length(&rest[end..]);
    if tail == 0 {
        return (Kind::Number, end);
    }
    let all = String::from_utf8_lossy(&rest[..end + tail]).into_owned();
    let (number, name) = all.split_at(end);
    report.add(
        Diagnostic::error("malformed-number", Span::new(at, at + end + tail), format!("`{all}` is not a number"))
            .hint(format!("a product needs its sign: `{number}*{name}`")),
    );
    (Kind::Bad, end + tail)
}

/// The length of a run of characters that the language does not use.
fn bad_run(rest: &str, at: usize, report: &mut Report) -> usize {
    let run: String =
        rest.chars().take_while(|c| !c.is_ascii() || "!\"$%&'.;?@\\`{|}~".contains(*c) || is_control(*c)).collect();
    // The caller saw a byte that starts no token, so the run holds at least that character.
    let run = if run.is_empty() { rest.chars().take(1).collect() } else { run };
    let run = quoted(rest).map_or(run, str::to_owned);
    // Quotes and backslashes as they are, and visible what is not.
    let show = |c: char| if c.is_ascii_graphic() { c.to_string() } else { c.escape_debug().to_string() };
    let shown: String = run.chars().take(12).map(show).collect();
    let mut diagnostic = Diagnostic::error(
        "unexpected-character",
        Span::new(at, at + run.len()),
        format!("`{shown}` means nothing here"),
    );
    if let Some(hint) = instead_of(&run) {
        diagnostic = diagnostic.hint(hint);
    }
    report.add(diagnostic);
    run.len()
}

/// A text in quotes, which the language does not have either.
fn quoted(rest: &str) -> Option<&str> {
    // Not the whole line, which may be the whole text.
    let end = rest.strip_prefix('"')?.find(['"', '\n'])? + 1;
    rest[end..].starts_with('"').then(|| &rest[..end + 1])
}

fn is_control(c: char) -> bool {
    c.is_ascii_control() && !matches!(c, '\n' | '\r' | '\t')
}

fn instead_of(run: &str) -> Option<String> {
    if run.starts_with('"') {
        return Some("there are numbers and truth values, and no texts".to_owned());
    }
    let (known, write) = [
        ("&", "and"),
        ("|", "or"),
        ("!", "not"),
        ("%", "a - b * floor(a / b)"),
        ("≤", "<="),
        ("≥", ">="),
        ("≠", "!="),
        ("−", "-"),
        ("·", "*"),
        ("×", "*"),
        ("∞", "inf"),
        ("π", "pi"),
        ("∑", "sum"),
        ("Σ", "sum"),
        ("√", "sqrt"),
        (";", "a new line"),
        (".", "0.5, with its zero"),
    ]
    .into_iter()
    .find(|(known, _)| run.starts_with(known))
    .or_else(|| run.starts_with(char::is_alphabetic).then_some(("", "")))?;
    Some(match known {
        "" => "names are made of the letters a to z and A to Z, digits and `_`".to_owned(),
        ";" | "." => format!("write {write}"),
        _ => format!("write `{write}`"),
    })
}
