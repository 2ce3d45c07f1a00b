//! Text without a program behind it.

use einloom::random::Random;

/// Everything that a token can be, and some that are none.
const TOKENS: [&str; 96] = [
    "cascade",
    "input",
    "output",
    "rank",
    "param",
    "index",
    "op",
    "monoid",
    "identity",
    "reduce",
    "in",
    "and",
    "or",
    "not",
    "where",
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
    "exp",
    "log",
    "sqrt",
    "abs",
    "floor",
    "inf",
    "pi",
    "f32",
    "f64",
    "bf16",
    "i32",
    "b1",
    "e4m3",
    "X",
    "Y",
    "Z",
    "H",
    "M",
    "N",
    "T",
    "m",
    "n",
    "k",
    "t",
    "ids",
    "a1",
    "_",
    "(",
    ")",
    "[",
    "]",
    ",",
    ":",
    "+",
    "-",
    "*",
    "/",
    "^",
    "<",
    "<=",
    ">",
    ">=",
    "==",
    "!=",
    "=",
    "0",
    "1",
    "2",
    "3.5",
    "1e400",
    "99999999999999999999",
    "1e-400",
    "0x10",
    ".5",
    "1.",
    "\n",
    "\n",
    "\n",
    " ",
    "  ",
    "\t",
    "\r\n",
    "#",
    "# a comment\n",
    "é",
    "\u{1F600}",
    "\0",
    "\"",
    "'",
    "@",
    "\u{feff}",
];

/// Random bytes, as far as they are text.
pub(super) fn bytes(random: &mut Random) -> String {
    let count = random.integer(0, 300);
    let ascii = random.unit() < 0.5;
    let byte = |random: &mut Random| random.bits() as u8 & if ascii { 0x7f } else { 0xff };
    let bytes: Vec<u8> = (0..count).map(|_| byte(random)).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Tokens in any order.
pub(super) fn tokens(random: &mut Random) -> String {
    let count = random.integer(0, 120);
    let mut out = String::new();
    for _ in 0..count {
        out += random.pick(&TOKENS);
        if random.unit() < 0.6 {
            out.push(' ');
        }
    }
    out
}

/// Lines that start as declarations and statements do.
pub(super) fn statements(random: &mut Random) -> String {
    let mut out = String::from("input X[m,n]: f32, V[n]: f32\noutput Y: f32\n");
    for _ in 0..random.integer(1, 8) {
        out += random.pick(&[
            "Y[m] = ",
            "Y = ",
            "H[t+1] = ",
            "H[0] = ",
            "index k, j in M ",
            "rank M = ",
            "op f(x) = ",
            "Z[m,n]: bf16 = ",
            "monoid g(a, b) = ",
            "input A[",
            "param p = ",
            "output ",
        ]);
        for _ in 0..random.integer(1, 24) {
            out += random.pick(&[
                "X[m,n]",
                "V[n]",
                "sum(n) ",
                "max(n: n <= m) ",
                "(",
                ")",
                " + ",
                " * ",
                " - ",
                " / ",
                "^2",
                "exp(",
                "m",
                "N",
                "1",
                "0.5",
                "Z[m,n]",
                "H[t]",
                "where(m < n, ",
                ", ",
                "softmax(n) ",
                "reduce g(n) ",
                "f(",
                "V[m + n]",
                "-",
                "V[M/2]",
                "X[m,V[n]]",
                " and ",
                " == ",
            ]);
        }
        out.push('\n');
    }
    out
}
