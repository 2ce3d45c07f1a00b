//! How the work grows with the length of a text: a pattern repeated once, twice, four times…

use einloom_cascade::parse;
use std::time::Instant;

/// A text of any length: `head`, then `piece` again and again, then `tail`. In `piece`, `$` stands for the number of the
/// repetition and `%` for that of the one before.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// Its name.
    pub name: &'static str,
    /// Once.
    pub head: &'static str,
    /// Repeated.
    pub piece: &'static str,
    /// Once.
    pub tail: &'static str,
}

const HEAD: &str = "input X[n]: f32\noutput Y: f32\n";

/// Patterns that a quadratic step anywhere would show in.
pub const PATTERNS: [Pattern; 20] = [
    Pattern {
        name: "statements in a chain",
        head: "input X[n]: f32\noutput Y: f32\nT0[n] = X[n]\n",
        piece: "T$[n] = T%[n] + 1\n",
        tail: "Y[n] = T0[n]\n",
    },
    Pattern { name: "independent statements", head: HEAD, piece: "T$[n] = X[n] * 2\n", tail: "Y[n] = X[n]\n" },
    Pattern { name: "inputs", head: HEAD, piece: "input A$[n]: f32\n", tail: "Y[n] = X[n]\n" },
    Pattern { name: "outputs", head: "input X[n]: f32\n", piece: "output Y$: f32\nY$[n] = X[n]\n", tail: "" },
    Pattern { name: "ranks", head: HEAD, piece: "rank R$\n", tail: "Y[n] = X[n]\n" },
    Pattern { name: "indices", head: HEAD, piece: "index i$ in N\n", tail: "Y[n] = X[n]\n" },
    Pattern {
        name: "ops that use the one before",
        head: "input X[n]: f32\noutput Y: f32\nop f0(x) = x\n",
        piece: "op f$(x) = f%(x)\n",
        tail: "Y[n] = X[n]\n",
    },
    Pattern { name: "monoids", head: HEAD, piece: "monoid g$(a, b) = a + b identity 0\n", tail: "Y[n] = X[n]\n" },
    Pattern { name: "parameters", head: HEAD, piece: "param p$ = 1\n", tail: "Y[n] = X[n]\n" },
    Pattern {
        name: "reductions in statements",
        head: HEAD,
        piece: "T$[n] = X[n] - max(n) X[n]\n",
        tail: "Y[n] = X[n]\n",
    },
    Pattern {
        name: "recurrences",
        head: "input X[t]: f32\noutput Y: f32\n",
        piece: "H$[0] = 0\nH$[t+1] = H$[t] + X[t]\n",
        tail: "Y[t] = X[t]\n",
    },
    Pattern {
        name: "one recurrence of many statements",
        head: "input X[t]: f32\noutput Y: f32\nH[0] = 0\nA0[t] = H[t]\n",
        piece: "A$[t] = A%[t] + X[t]\n",
        tail: "H[t+1] = A0[t]\nY[t] = H[t+1]\n",
    },
    Pattern {
        name: "a line of additions",
        head: "input X[n]: f32\noutput Y: f32\nY[n] = X[n]",
        piece: " + X[n]",
        tail: "\n",
    },
    Pattern {
        name: "arguments",
        head: "input X[n]: f32\noutput Y: f32\nY[n] = max(X[n]",
        piece: ", X[n]",
        tail: ")\n",
    },
    Pattern { name: "open brackets", head: HEAD, piece: "(", tail: "" },
    Pattern { name: "comments", head: HEAD, piece: "# a comment\n", tail: "Y[n] = X[n]\n" },
    Pattern { name: "blanks", head: HEAD, piece: "          ", tail: "Y[n] = X[n]\n" },
    Pattern { name: "unknown names", head: HEAD, piece: "Z$[n] = Q$[n]\n", tail: "Y[n] = X[n]\n" },
    Pattern { name: "bad characters", head: HEAD, piece: "@ é ", tail: "Y[n] = X[n]\n" },
    Pattern { name: "one tensor again and again", head: HEAD, piece: "Y[n] = X[n]\n", tail: "" },
];

impl Pattern {
    /// About this many bytes of it.
    pub fn text(&self, bytes: usize) -> String {
        let mut out = self.head.to_owned();
        let mut k = 1;
        while out.len() < bytes {
            out += &self.piece.replace('$', &k.to_string()).replace('%', &(k - 1).to_string());
            k += 1;
        }
        out + self.tail
    }
}

/// Seconds that parsing takes at each of these lengths, and the exponent that the time grows with from the first length
/// to the last: 1 is linear.
pub fn growth(pattern: &Pattern, lengths: &[usize]) -> (Vec<f64>, f64) {
    let time = |bytes: usize| {
        let text = pattern.text(bytes);
        // As often as makes all lengths the same work, so that whatever else runs takes its share of each; and the fastest
        // of three, for it only adds.
        let times = lengths.iter().max().map_or(1, |&most| (most / bytes.max(1)).max(1));
        let once = || {
            let start = Instant::now();
            (0..times).for_each(|_| drop(std::hint::black_box(parse(&text))));
            start.elapsed().as_secs_f64() / times as f64
        };
        (0..3).map(|_| once()).fold(f64::INFINITY, f64::min)
    };
    let seconds: Vec<f64> = lengths.iter().map(|&l| time(l)).collect();
    let exponent = match (seconds.first(), seconds.last(), lengths.first(), lengths.last()) {
        (Some(a), Some(b), Some(&x), Some(&y)) if y > x => (b / a).ln() / (y as f64 / x as f64).ln(),
        _ => f64::NAN,
    };
    (seconds, exponent)
}
