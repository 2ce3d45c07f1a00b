//! Values of options that are more than a word. A value that cannot be read is a usage error (status 2); one that
//! contradicts the program is not known here.

use std::path::PathBuf;
use std::str::FromStr;

/// `N=4096`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Assignment {
    pub rank: String,
    pub size: usize,
}

impl FromStr for Assignment {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (rank, size) = text.split_once('=').ok_or("write RANK=SIZE, such as N=4096")?;
        Ok(Self { rank: name(rank)?, size: count(size)? })
    }
}

/// `2d=16`: words of every element of an array. Names of arrays may begin with a digit.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Words {
    pub array: String,
    pub words: usize,
}

impl FromStr for Words {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let shape = "write ARRAY=WORDS, such as 2d=16";
        let (array, words) = text.split_once('=').ok_or(shape)?;
        if array.trim().is_empty() {
            return Err(shape.to_owned());
        }
        Ok(Self { array: array.trim().to_owned(), words: count(words)? })
    }
}

/// A whole number: `4096`, `4Ki`, `1Mi`.
fn count(size: &str) -> Result<usize, String> {
    let (digits, unit) = match size.trim() {
        s if s.ends_with("Ki") => (&s[..s.len() - 2], 1 << 10),
        s if s.ends_with("Mi") => (&s[..s.len() - 2], 1 << 20),
        s if s.ends_with(['k', 'K']) => {
            let n = &s[..s.len() - 1];
            return Err(format!("`{s}` could mean {n}000 or {n}·1024: write {n}000 or {n}Ki"));
        }
        s => (s, 1),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit() || b == b'_') {
        return Err(format!("`{size}` is not a size: write a whole number such as 4096, or 4Ki"));
    }
    let size = digits.replace('_', "").parse::<usize>().ok().and_then(|n| n.checked_mul(unit));
    size.ok_or_else(|| "the size does not fit 64 bits".to_string())
}

/// A number of elements: `4096`, `4Ki`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Count(pub u64);

impl FromStr for Count {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Ok(Self(count(text)? as u64))
    }
}

/// `M=32KiB..4MiB`: capacities of a memory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Range {
    pub level: String,
    pub from: u64,
    pub to: u64,
}

impl FromStr for Range {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let shape = "write LEVEL=FROM..TO, such as M=32KiB..4MiB";
        let (level, range) = text.split_once('=').ok_or(shape)?;
        let (from, to) = range.split_once("..").ok_or(shape)?;
        let bytes = |text: &str| match text.parse::<einloom_machine::Bytes>() {
            Ok(bytes) => Ok(bytes.0),
            Err(e) => Err(format!("{}{}", e.message, e.hint.map_or(String::new(), |h| format!("; {h}")))),
        };
        let (level, from, to) = (level.trim().to_string(), bytes(from)?, bytes(to)?);
        if level.is_empty() {
            return Err(shape.to_string());
        }
        if from == 0 || from >= to {
            return Err(format!("`{range}` is no range: it goes from a capacity of at least 1 B to a larger one"));
        }
        Ok(Self { level, from, to })
    }
}

/// `scale=0.125`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ParamValue {
    pub name: String,
    pub value: f64,
}

impl FromStr for ParamValue {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (param, value) = text.split_once('=').ok_or("write NAME=VALUE, such as scale=0.125")?;
        let value = value.trim().parse().map_err(|_| format!("`{value}` is not a number"))?;
        Ok(Self { name: name(param)?, value })
    }
}

/// Where inputs come from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum InputSource {
    /// `Q=q.npy`, `Q=file.safetensors` (the tensor of the same name) or `Q=file.safetensors:name`.
    One { tensor: String, file: PathBuf, entry: Option<String> },
    /// `file.safetensors`: every tensor that has an input's name.
    ByName { file: PathBuf },
}

impl FromStr for InputSource {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let Some((tensor, place)) = named(text) else {
            if text.is_empty() {
                return Err("write TENSOR=FILE".into());
            }
            return Ok(Self::ByName { file: text.into() });
        };
        const MARK: &str = ".safetensors:";
        let (file, entry) = match place.find(MARK) {
            Some(at) => (&place[..at + MARK.len() - 1], Some(place[at + MARK.len()..].to_owned())),
            None => (place, None),
        };
        if file.is_empty() || entry.as_deref() == Some("") {
            return Err("write TENSOR=FILE, or TENSOR=FILE.safetensors:NAME".into());
        }
        Ok(Self::One { tensor: tensor.to_owned(), file: file.into(), entry })
    }
}

/// Where outputs go.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum OutputTarget {
    /// `O=o.npy`, `O=o.safetensors`.
    One { tensor: String, file: PathBuf },
    /// `out.safetensors`: all of them.
    All { file: PathBuf },
}

impl FromStr for OutputTarget {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match named(text) {
            Some((_, "")) => Err("write TENSOR=FILE".into()),
            Some((tensor, file)) => Ok(Self::One { tensor: tensor.to_owned(), file: file.into() }),
            None if text.is_empty() => Err("write FILE or TENSOR=FILE".into()),
            None => Ok(Self::All { file: text.into() }),
        }
    }
}

/// `name=rest`, if what stands before the first `=` is a name and not the beginning of a path.
fn named(text: &str) -> Option<(&str, &str)> {
    let (left, right) = text.split_once('=')?;
    name(left).ok().map(|_| (left.trim(), right))
}

fn name(text: &str) -> Result<String, String> {
    let text = text.trim();
    let starts = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if starts && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        Ok(text.to_owned())
    } else {
        Err(format!("`{text}` is not a name"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let size = |t: &str| t.parse::<Assignment>().map(|a| a.size);
        assert_eq!(size("N=4096"), Ok(4096));
        assert_eq!(size("N=4Ki"), Ok(4096));
        assert_eq!(size("N=1_000"), Ok(1000));
        assert_eq!(size("N=0"), Ok(0));
        for bad in ["N", "N=", "N=-1", "N=4k", "N=1e3", "N=99999999999999999999", "N=99999999999999Mi", "=4", "a b=4"] {
            assert!(size(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn words_of_arrays() {
        assert_eq!("2d=16".parse(), Ok(Words { array: "2d".into(), words: 16 }));
        for bad in ["2d", "=3", "2d=", "2d=x"] {
            assert!(bad.parse::<Words>().is_err(), "{bad}");
        }
    }

    #[test]
    fn inputs_and_outputs() {
        let one = |tensor: &str, file: &str, entry: Option<&str>| {
            Ok(InputSource::One { tensor: tensor.into(), file: file.into(), entry: entry.map(String::from) })
        };
        assert_eq!("Q=q.npy".parse(), one("Q", "q.npy", None));
        assert_eq!("Q=a/b.safetensors:model.q".parse(), one("Q", "a/b.safetensors", Some("model.q")));
        assert_eq!("Q=C:/q.npy".parse(), one("Q", "C:/q.npy", None));
        assert_eq!("./a=b.safetensors".parse(), Ok(InputSource::ByName { file: "./a=b.safetensors".into() }));
        assert!("Q=".parse::<InputSource>().is_err());
        assert!("Q=x.safetensors:".parse::<InputSource>().is_err());
        assert_eq!("all.safetensors".parse(), Ok(OutputTarget::All { file: "all.safetensors".into() }));
        assert_eq!("O=o.npy".parse(), Ok(OutputTarget::One { tensor: "O".into(), file: "o.npy".into() }));
    }
}
