//! The JSON header of a `.safetensors` file, read with suspicion.

use super::safetensors::DTYPES;
use super::stored::size_in_bytes;
use super::{Stored, StoredType};
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// One tensor of the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub name: String,
    /// The spelling, for a type that we do not know; that is an error only when the tensor is read.
    pub dtype: Result<StoredType, String>,
    pub shape: Vec<usize>,
    /// First byte after the header's end.
    pub begin: u64,
    /// One past the last.
    pub end: u64,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

/// The header's members in the file's order: a map would silently drop a name given twice.
struct Members(Vec<(String, Raw)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members;
            fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                f.write_str("an object that maps names to tensors")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = vec![];
                let mut names = BTreeSet::new();
                while let Some(name) = map.next_key::<String>()? {
                    if !names.insert(name.clone()) {
                        return Err(A::Error::custom(format!("`{name}` is given twice")));
                    }
                    if name == "__metadata__" {
                        map.next_value::<BTreeMap<String, String>>()?;
                    } else {
                        members.push((name, map.next_value()?));
                    }
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// Reads the header of a file with `held` bytes after it. Errors are sentences without the file's name.
pub(super) fn parse(text: &[u8], held: u64) -> Result<Vec<Entry>, String> {
    let Members(members) =
        serde_json::from_slice(text).map_err(|e| format!("its header is not that of a .safetensors file: {e}"))?;
    let mut entries: Vec<Entry> = members.into_iter().map(|(name, raw)| entry(name, raw)).collect::<Result<_, _>>()?;
    entries.sort_by_key(|e| (e.begin, e.end));
    let mut at = 0;
    for e in &entries {
        if e.begin < at {
            return Err(format!(
                "tensor `{}` overlaps another one: it starts at byte {}, the one before ends at {at}",
                e.name, e.begin
            ));
        }
        if e.begin > at {
            return Err(format!(
                "there is a hole before tensor `{}`: bytes {at} to {} belong to none",
                e.name, e.begin
            ));
        }
        if e.end > held {
            return Err(format!("it is truncated: tensor `{}` ends at byte {}, the file holds {held}", e.name, e.end));
        }
        at = e.end;
    }
    if at != held {
        return Err(format!("it is longer than it says: its tensors take {at} bytes, the file holds {held}"));
    }
    Ok(entries)
}

fn entry(name: String, raw: Raw) -> Result<Entry, String> {
    let (begin, end) = raw.data_offsets;
    if begin > end {
        return Err(format!("tensor `{name}` ends before it starts: bytes {begin} to {end}"));
    }
    let dtype = DTYPES.iter().find(|(spelling, _)| *spelling == raw.dtype).map(|d| d.1).ok_or(raw.dtype);
    if let Ok(dtype) = dtype {
        let expected = size_in_bytes(&raw.shape, dtype.bytes())
            .ok_or_else(|| format!("tensor `{name}`: its shape {:?} is more than any computer holds", raw.shape))?;
        if expected as u64 != end - begin {
            return Err(format!(
                "tensor `{name}`: shape {:?} of {dtype} takes {expected} bytes, the header gives it {}",
                raw.shape,
                end - begin
            ));
        }
    }
    Ok(Entry { name, dtype, shape: raw.shape, begin, end })
}

/// The header of tensors stored in this order.
pub(super) fn print(tensors: &[(&str, &Stored)]) -> String {
    let mut at = 0;
    let members = tensors.iter().map(|(name, array)| {
        let begin = at;
        at += array.bytes.len() as u64;
        let dtype = DTYPES.iter().find(|d| d.1 == array.dtype).map_or("U8", |d| d.0);
        let raw = Raw { dtype: dtype.into(), shape: array.dims.clone(), data_offsets: (begin, at) };
        (name.to_string(), serde_json::json!(raw))
    });
    serde_json::Value::Object(members.collect()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lies_are_told() {
        let two = |a: &str, b: &str| {
            format!(
                r#"{{"a":{{"dtype":"F32","shape":[2],"data_offsets":{a}}},"b":{{"dtype":"U8","shape":[4],"data_offsets":{b}}}}}"#
            )
        };
        let one = |dtype: &str, shape: &str, offsets: &str| {
            format!(r#"{{"x":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#)
        };
        for (text, held, expected) in [
            (two("[0,8]", "[8,12]"), 12, Ok(2)),
            (r#"{"__metadata__":{"format":"pt"}}  "#.to_string(), 0, Ok(0)),
            (one("F4", "[3]", "[0,2]"), 2, Ok(1)),
            (two("[0,8]", "[8,12]"), 11, Err("it is truncated: tensor `b` ends at byte 12, the file holds 11")),
            (
                two("[0,8]", "[8,12]"),
                13,
                Err("it is longer than it says: its tensors take 12 bytes, the file holds 13"),
            ),
            (
                two("[0,8]", "[4,8]"),
                8,
                Err("tensor `b` overlaps another one: it starts at byte 4, the one before ends at 8"),
            ),
            (two("[0,8]", "[9,13]"), 13, Err("there is a hole before tensor `b`: bytes 8 to 9 belong to none")),
            (one("F32", "[2]", "[0,4]"), 4, Err("tensor `x`: shape [2] of f32 takes 8 bytes, the header gives it 4")),
            (one("F32", "[1]", "[4,0]"), 4, Err("tensor `x` ends before it starts: bytes 4 to 0")),
            (
                one("F64", "[4294967296,4294967296]", "[0,0]"),
                0,
                Err("tensor `x`: its shape [4294967296, 4294967296] is more than any computer holds"),
            ),
        ] {
            assert_eq!(parse(text.as_bytes(), held).map(|e| e.len()), expected.map_err(String::from), "{text}");
        }
    }

    #[test]
    fn what_is_not_a_header_is_told() {
        let twice = r#"{"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}"#;
        for (text, expected) in [
            ("[1]", "invalid type: sequence, expected an object that maps names to tensors"),
            (twice, "`x` is given twice"),
            (r#"{"x":{"dtype":"U8","shape":[-1],"data_offsets":[0,0]}}"#, "invalid value: integer `-1`"),
            (r#"{"x":{"dtype":"U8","shape":[0]}}"#, "missing field `data_offsets`"),
            ("{\"x", "EOF while parsing a string"),
        ] {
            let error = parse(text.as_bytes(), 0).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
