//! Programs, damaged.

use einloom::random::Random;

/// The longest text that is made.
const LONGEST: usize = 20_000;

/// The text after a few random changes.
pub(super) fn damaged(text: &str, corpus: &[String], random: &mut Random) -> String {
    let mut text = text.to_owned();
    if random.unit() < 0.95 {
        // Comments are most of the corpus's bytes and its least interesting ones.
        text = text.lines().filter(|l| !l.starts_with('#')).map(|l| format!("{l}\n")).collect();
    }
    for _ in 0..random.integer(1, 5) {
        text = change(&text, corpus, random);
        if text.len() > LONGEST {
            break;
        }
    }
    text
}

fn below(random: &mut Random, end: usize) -> usize {
    random.integer(0, end.saturating_sub(1) as i64) as usize
}

/// A stretch of the text between two characters.
fn stretch(text: &str, longest: usize, random: &mut Random) -> std::ops::Range<usize> {
    let start = text.floor_char_boundary(below(random, text.len() + 1));
    let end = text.ceil_char_boundary((start + below(random, longest + 1)).min(text.len()));
    start..end
}

fn change(text: &str, corpus: &[String], random: &mut Random) -> String {
    let mut out = text.to_owned();
    let short = stretch(text, 8, random);
    let piece = stretch(text, 60, random);
    match random.integer(0, 15) {
        0 => out.replace_range(short, ""),
        1 => {
            let insert = random
                .pick(&["(", ")", "[", "]", ",", ":", "=", "+", "-", "*", "/", "^", "\n", " ", "0", "1", "#", "é"]);
            out.replace_range(short.start..short.start, insert);
        }
        2 => {
            let copied = text[piece].to_owned();
            out.insert_str(short.start, &copied);
        }
        3 => out.replace_range(piece, ""),
        4 => {
            let lines: Vec<&str> = text.lines().collect();
            if lines.is_empty() {
                return out;
            }
            let (a, b) = (below(random, lines.len()), below(random, lines.len()));
            let mut lines = lines;
            match random.integer(0, 2) {
                0 => lines.swap(a, b),
                1 => _ = lines.remove(a),
                _ => lines.insert(b, lines[a]),
            }
            out = lines.join("\n") + "\n";
        }
        5 if !corpus.is_empty() => {
            // The head of this, the tail of another.
            let other = &corpus[below(random, corpus.len())];
            let tail = other.floor_char_boundary(below(random, other.len() + 1));
            out = text[..short.start].to_owned() + &other[tail..];
        }
        6 => {
            // Deep nesting around a stretch.
            let depth = random.pick(&[2usize, 10, 90, 200, 399, 601, 2000]);
            let (open, close) =
                random.pick(&[("(", ")"), ("exp(", ")"), ("-", ""), ("[", "]"), ("(1 + ", ")"), ("2 ^ ", "")]);
            let inside = text[piece.clone()].to_owned();
            out.replace_range(piece, &(open.repeat(depth) + &inside + &close.repeat(depth)));
        }
        7 => {
            let name = random.pick(&["x", "X", "_", "longer_"]).repeat(random.pick(&[1usize, 40, 500, 5000]));
            swap_word(&mut out, &name, random);
        }
        8 => {
            let number = random.pick(&[
                "0",
                "-1",
                "1e308",
                "1e309",
                "1e-320",
                "9223372036854775807",
                "9223372036854775808",
                "340282366920938463463",
                "0.1e+",
                "00012",
                "4294967296",
                "3.14159265358979323846264338327950288",
            ]);
            swap_word(&mut out, number, random);
        }
        9 => {
            // One long line.
            out = text.replace('\n', random.pick(&[" ", ", ", " + ", ""]));
        }
        10 => {
            let count = random.pick(&[2usize, 8, 60]);
            let line = text.lines().nth(below(random, text.lines().count())).unwrap_or_default().to_owned();
            out += &format!("{line}\n").repeat(count);
        }
        // A word in place of another of the same text: names, kinds and indices change their roles.
        11..=14 => {
            let words: Vec<&str> = words(text).map(|r| &text[r]).collect();
            if !words.is_empty() {
                let word = words[below(random, words.len())].to_owned();
                swap_word(&mut out, &word, random);
            }
        }
        _ => out.replace_range(
            short,
            random.pick(&["sum(n) ", "max(n) ", "where(", "[0]", "[t+1]", "T", " / 0", "* 0", ": n < m"]),
        ),
    }
    out
}

/// The places of names and numbers.
fn words(text: &str) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
    let is_word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = (at..bytes.len()).find(|&k| is_word(bytes[k]))?;
        let end = (start..bytes.len()).find(|&k| !is_word(bytes[k])).unwrap_or(bytes.len());
        at = end;
        Some(start..end)
    })
}

fn swap_word(text: &mut String, by: &str, random: &mut Random) {
    let places: Vec<_> = words(text).collect();
    if let Some(place) = places.get(below(random, places.len())) {
        text.replace_range(place.clone(), by);
    }
}
