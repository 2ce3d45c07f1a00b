//! Sources that differ in sizes only.
//!
//! A source is made for concrete sizes: extents, strides and counts are literals in it. Two sources that agree in all
//! but the value of some literals belong to one **size class**, and a [`Template`] is their common text with those
//! literals as parameters of the kernels. Putting the values of a member of the class in place gives that member's
//! source again, token for token, so that one compiled template runs them all. What agrees is found by comparing texts;
//! nothing has to say where a size went.

use std::fmt::Write;

/// A source as text between its numbers; comments are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// One more than `numbers`: what stands before, between and after them.
    texts: Vec<String>,
    numbers: Vec<String>,
}

/// The common text of a size class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Pieces,
    /// Which numbers are parameters, in ascending order.
    holes: Vec<(usize, Kind)>,
}

/// The type of a literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Int,
    Unsigned,
    Float,
}

/// Most parameters that a class may have: all parameters of a kernel have 4 KiB (CUDA C++ Programming Guide, "Function
/// Parameters").
const MOST_HOLES: usize = 512;

impl Kind {
    /// Of a literal as it is written; `None` for doubles, hexadecimal numbers and what does not fit 32 bits.
    fn of(number: &str) -> Option<Self> {
        if number.parse::<i32>().is_ok() {
            Some(Self::Int)
        } else if let Some(digits) = number.strip_suffix('u') {
            digits.parse::<u32>().ok().map(|_| Self::Unsigned)
        } else {
            number.strip_suffix('f')?.parse::<f32>().ok().map(|_| Self::Float)
        }
    }

    /// The literal's value as a word.
    fn word(self, number: &str) -> Option<u32> {
        if Self::of(number) != Some(self) {
            return None;
        }
        match self {
            Self::Int => number.parse::<i32>().ok().map(i32::cast_unsigned),
            Self::Unsigned => number.strip_suffix('u')?.parse().ok(),
            Self::Float => number.strip_suffix('f')?.parse::<f32>().ok().map(f32::to_bits),
        }
    }

    /// The `k`th parameter as an expression of this type.
    fn read(self, k: usize) -> String {
        match self {
            Self::Int => format!("sizes.words[{k}]"),
            Self::Unsigned => format!("static_cast<u32>(sizes.words[{k}])"),
            Self::Float => format!("__int_as_float(sizes.words[{k}])"),
        }
    }
}

impl Pieces {
    /// Takes a source apart.
    pub fn of(source: &str) -> Self {
        let bytes = source.as_bytes();
        let mut out = Self { texts: vec![], numbers: vec![] };
        let (mut text, mut at) = (String::new(), 0);
        while at < bytes.len() {
            let rest = &source[at..];
            let taken = if rest.starts_with("//") {
                at += rest.find('\n').unwrap_or(rest.len());
                continue;
            } else if bytes[at] == b'"' {
                string(rest)
            } else if bytes[at].is_ascii_digit() {
                let number = number(rest);
                out.texts.push(std::mem::take(&mut text));
                out.numbers.push(rest[..number].to_string());
                at += number;
                continue;
            } else if is_word(bytes[at]) {
                rest.bytes().take_while(|&b| is_word(b)).count()
            } else {
                rest.chars().next().map_or(1, char::len_utf8)
            };
            text.push_str(&rest[..taken]);
            at += taken;
        }
        out.texts.push(text);
        out
    }
}

impl Pieces {
    /// The source without comments.
    pub fn text(&self) -> String {
        let numbers = self.numbers.iter().map(String::as_str).chain([""]);
        self.texts.iter().map(String::as_str).zip(numbers).flat_map(|(t, n)| [t, n]).collect()
    }
}

/// Bytes of the string literal that `rest` begins with.
fn string(rest: &str) -> usize {
    let mut escaped = false;
    let end = rest.bytes().skip(1).position(|b| {
        let ends = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        ends
    });
    end.map_or(rest.len(), |k| k + 2)
}

/// Bytes of the number that `rest` begins with: a preprocessing number of C++.
fn number(rest: &str) -> usize {
    let bytes = rest.as_bytes();
    let mut at = 1;
    while at < bytes.len() {
        let exponent =
            matches!(bytes[at - 1], b'e' | b'E') && matches!(bytes[at], b'+' | b'-') && !rest.starts_with("0x");
        if !(is_word(bytes[at]) || bytes[at] == b'.' || exponent) {
            break;
        }
        at += 1;
    }
    at
}

fn is_word(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b == b'_'
}

impl Template {
    /// What two sources have in common; `None` if they differ in more than the values of literals, or where a parameter
    /// cannot stand.
    pub fn of(a: &Pieces, b: &Pieces) -> Option<Self> {
        if a.texts != b.texts {
            return None;
        }
        let mut holes = vec![];
        for (k, (x, y)) in a.numbers.iter().zip(&b.numbers).enumerate() {
            if x != y {
                let kind = Kind::of(x)?;
                kind.word(y)?;
                holes.push((k, kind));
            }
        }
        let template = Self { pieces: a.clone(), holes };
        (template.holes.len() <= MOST_HOLES && template.holes_are_in_kernels()).then_some(template)
    }

    /// The template with the parameters of another one of the same class as well.
    #[must_use]
    pub fn joined(mut self, other: Option<&Self>) -> Option<Self> {
        let Some(other) = other else { return Some(self) };
        if self.pieces != other.pieces {
            return None;
        }
        self.holes.extend(&other.holes);
        self.holes.sort_by_key(|h| h.0);
        self.holes.dedup();
        let kinds_agree = self.holes.windows(2).all(|w| w[0].0 != w[1].0);
        (kinds_agree && self.holes.len() <= MOST_HOLES).then_some(self)
    }

    /// Whether nothing differs but comments.
    pub fn is_constant(&self) -> bool {
        self.holes.is_empty()
    }

    /// How many literals are parameters.
    pub fn parameters(&self) -> usize {
        self.holes.len()
    }

    /// The values of the parameters that make this source; `None` if it does not belong to the class.
    pub fn values(&self, source: &Pieces) -> Option<Vec<u32>> {
        if self.pieces.texts != source.texts {
            return None;
        }
        let mut holes = self.holes.iter().peekable();
        let mut out = vec![];
        for (k, (own, number)) in self.pieces.numbers.iter().zip(&source.numbers).enumerate() {
            match holes.next_if(|h| h.0 == k) {
                Some((_, kind)) => out.push(kind.word(number)?),
                None if own == number => {}
                None => return None,
            }
        }
        Some(out)
    }

    /// The source with parameters: a structure of words after each kernel's own parameters.
    pub fn text(&self) -> String {
        let mut holes = self.holes.iter().enumerate().peekable();
        let mut out = String::new();
        // Where the line at hand began, and whether a parameter stands in it.
        for (k, text) in self.pieces.texts.iter().enumerate() {
            out.push_str(text);
            let Some(number) = self.pieces.numbers.get(k) else { break };
            match holes.next_if(|(_, h)| h.0 == k) {
                None => out.push_str(number),
                Some((n, (_, kind))) => {
                    // What depends on a parameter is no constant expression any more.
                    let line = out.rfind('\n').map_or(0, |at| at + 1);
                    if let Some(at) = out[line..].find("constexpr ") {
                        out.replace_range(line + at..line + at + "constexpr".len(), "const");
                    }
                    let _ = write!(out, "{}", kind.read(n));
                }
            }
        }
        with_parameter(&out, self.holes.len())
    }

    /// Whether every parameter stands in the body of a kernel, in what is computed: elsewhere there is none.
    fn holes_are_in_kernels(&self) -> bool {
        let (mut inside, mut signature, mut pragma) = (false, false, false);
        let mut holes = self.holes.iter().peekable();
        for (k, text) in self.pieces.texts.iter().enumerate() {
            for line in text.split_inclusive('\n') {
                if line.contains(KERNEL) {
                    (inside, signature) = (true, true);
                }
                pragma |= line.trim_start().starts_with("#pragma");
                if line.ends_with('\n') {
                    (signature, pragma) = (false, false);
                    // A function ends where a line begins with a closing brace.
                    inside &= !line.starts_with('}');
                }
            }
            if holes.next_if(|h| h.0 == k).is_some() && (!inside || signature || pragma) {
                return false;
            }
        }
        true
    }
}

/// How every kernel begins.
const KERNEL: &str = "extern \"C\" __global__ ";

/// The text with one more parameter in each kernel's signature.
fn with_parameter(text: &str, words: usize) -> String {
    if words == 0 {
        return text.to_string();
    }
    let mut out = String::new();
    let mut declared = false;
    for line in text.split_inclusive('\n') {
        if line.starts_with(KERNEL) {
            if !declared {
                let _ = writeln!(out, "struct Sizes {{\n  int words[{words}];\n}};\n");
                declared = true;
            }
            // A signature is one line.
            match line.rfind(") {") {
                Some(at) => {
                    let _ = write!(out, "{}, const __grid_constant__ Sizes sizes{}", &line[..at], &line[at..]);
                }
                None => out.push_str(line),
            }
        } else {
            out.push_str(line);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;

    fn kernel(n: usize, scale: &str) -> String {
        format!(
            "DEVICE int twice(int x) {{\n  return 2 * x;\n}}\n// for {n}\n{KERNEL}void __launch_bounds__(128) k(float* x1) {{\n  \
             constexpr int n_end = {n};\n  for (u32 i = 0; i < {}u; ++i) x1[i * {}] = {scale}f; // {n}\n}}\n",
            n / 8,
            n * 4
        )
    }

    #[test]
    fn literals_that_differ_become_parameters() {
        let [a, b] = [kernel(64, "0.5"), kernel(128, "2.5e-8")].map(|s| Pieces::of(&s));
        let template = Template::of(&a, &b).unwrap();
        expect![[r#"
            DEVICE int twice(int x) {
              return 2 * x;
            }

            struct Sizes {
              int words[4];
            };

            extern "C" __global__ void __launch_bounds__(128) k(float* x1, const __grid_constant__ Sizes sizes) {
              const int n_end = sizes.words[0];
              for (u32 i = 0; i < static_cast<u32>(sizes.words[1]); ++i) x1[i * sizes.words[2]] = __int_as_float(sizes.words[3]); 
            }
        "#]]
        .assert_eq(&template.text());
        assert_eq!(template.values(&a), Some(vec![64, 8, 256, 0.5f32.to_bits()]));
        let third = Pieces::of(&kernel(1000, "1.0"));
        assert_eq!(template.values(&third), Some(vec![1000, 125, 4000, 1f32.to_bits()]));
    }

    #[test]
    fn the_same_source_needs_no_parameters() {
        let [a, b] = ["int x = 1; // of 5\n", "int x = 1; // of 6\n"].map(Pieces::of);
        let template = Template::of(&a, &b).unwrap();
        assert!(template.is_constant());
        assert_eq!(template.text(), "int x = 1; \n");
    }

    #[test]
    fn what_differs_otherwise_is_another_class() {
        let in_kernel = |body: &str| Pieces::of(&format!("{KERNEL}void k(float* x) {{\n  {body}\n}}\n"));
        for (a, b) in [
            ("f(1);", "g(1);"),
            ("f(1);", "f(1, 2);"),
            ("f(1);", "f(1u);"),
            ("f(1);", "f(4294967296);"),
            ("f(0.5);", "f(0.25);"),
            ("f(0x10);", "f(0x20);"),
            ("asm(\"mov 1;\");", "asm(\"mov 2;\");"),
            ("multiply_n64(x);", "multiply_n128(x);"),
        ] {
            assert_eq!(Template::of(&in_kernel(a), &in_kernel(b)), None, "{a} {b}");
        }
        let template = Template::of(&in_kernel("f(1, 7);"), &in_kernel("f(2, 7);")).unwrap();
        assert_eq!(template.values(&in_kernel("f(3, 8);")), None);
        assert_eq!(template.values(&in_kernel("f(3, 7);")), Some(vec![3]));
    }

    #[test]
    fn there_are_parameters_in_the_bodies_of_kernels_only() {
        let bounds =
            |n: usize| Pieces::of(&format!("{KERNEL}void __launch_bounds__({n}) k(float* x) {{\n  f();\n}}\n"));
        assert_eq!(Template::of(&bounds(64), &bounds(128)), None);
        let helper =
            |n: usize| Pieces::of(&format!("DEVICE int f() {{\n  return {n};\n}}\n{KERNEL}void k(float* x) {{\n}}\n"));
        assert_eq!(Template::of(&helper(1), &helper(2)), None);
        let unrolled = |n: usize| {
            Pieces::of(&format!(
                "{KERNEL}void k(float* x) {{\n  #pragma unroll {n}\n  for (;;) f(x);\n  f(x + 1);\n}}\n"
            ))
        };
        assert_eq!(Template::of(&unrolled(4), &unrolled(8)), None);
        let after =
            |n: usize| Pieces::of(&format!("{KERNEL}void k(float* x) {{\n}}\nDEVICE int f() {{\n  return {n};\n}}\n"));
        assert_eq!(Template::of(&after(1), &after(2)), None);
    }
}
