//! The header of a `.npy` file: a Python dictionary literal such as
//! `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
//! Source: NumPy Enhancement Proposal 1 and `numpy.lib.format`, versions 1.0, 2.0 and 3.0.

use super::StoredType;

/// What the dictionary says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Header {
    pub dtype: StoredType,
    pub big_endian: bool,
    pub fortran_order: bool,
    pub dims: Vec<usize>,
}

/// Reads the dictionary. Errors are sentences without the file's name.
pub(crate) fn parse(text: &str) -> Result<Header, String> {
    let mut reader = Reader { rest: text };
    let (mut descr, mut fortran, mut shape) = (None, None, None);
    reader.expect('{')?;
    while !reader.eat('}') {
        let key = reader.string()?;
        reader.expect(':')?;
        match key {
            "descr" if descr.is_none() => descr = Some(reader.descr()?),
            "fortran_order" if fortran.is_none() => fortran = Some(reader.boolean()?),
            "shape" if shape.is_none() => shape = Some(reader.shape()?),
            "descr" | "fortran_order" | "shape" => return Err(format!("the header says `{key}` twice")),
            _ => return Err(format!("the header has an unknown entry `{key}`")),
        }
        if !reader.eat(',') {
            reader.expect('}')?;
            break;
        }
    }
    if !reader.rest.trim().is_empty() {
        return Err("the header goes on after its dictionary".into());
    }
    let missing = |name: &str| format!("the header has no `{name}`");
    let (dtype, big_endian) = dtype(descr.ok_or_else(|| missing("descr"))?)?;
    Ok(Header {
        dtype,
        big_endian,
        fortran_order: fortran.ok_or_else(|| missing("fortran_order"))?,
        dims: shape.ok_or_else(|| missing("shape"))?,
    })
}

/// The dictionary for a row-major little-endian array.
pub(crate) fn print(descr: &str, dims: &[usize]) -> String {
    let mut shape: String = dims.iter().map(|d| format!("{d}, ")).collect();
    if dims.len() != 1 {
        shape.truncate(shape.len().saturating_sub(2));
    } else {
        shape.pop();
    }
    format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}")
}

fn dtype(descr: &str) -> Result<(StoredType, bool), String> {
    let (order, name) = match descr.chars().next() {
        Some(c @ ('<' | '>' | '=' | '|')) => (c, &descr[1..]),
        _ => ('=', descr),
    };
    let dtype = match name {
        "f8" => StoredType::F64,
        "f4" => StoredType::F32,
        "f2" => StoredType::F16,
        "i8" => StoredType::I64,
        "i4" => StoredType::I32,
        "i2" => StoredType::I16,
        "i1" => StoredType::I8,
        "u8" => StoredType::U64,
        "u4" => StoredType::U32,
        "u2" => StoredType::U16,
        "u1" => StoredType::U8,
        "b1" => StoredType::Bool,
        // What `numpy.save` makes of the extension types of the `ml_dtypes` package, and their own names.
        "V2" => StoredType::Raw(2),
        "V1" => StoredType::Raw(1),
        "bfloat16" => StoredType::Bf16,
        "float8_e4m3fn" => StoredType::E4m3,
        "float8_e5m2" => StoredType::E5m2,
        _ => return Err(format!("elements of type `{descr}` are not supported")),
    };
    // '=' is the writer's own order, which the file does not tell; every machine we run on is little-endian.
    Ok((dtype, order == '>'))
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn eat(&mut self, c: char) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, c: char) -> Result<(), String> {
        if self.eat(c) { Ok(()) } else { Err(format!("the header is not a dictionary: `{c}` expected")) }
    }

    fn string(&mut self) -> Result<&'a str, String> {
        let quote = if self.eat('\'') {
            '\''
        } else if self.eat('"') {
            '"'
        } else {
            return Err("the header is not a dictionary: a quoted name expected".into());
        };
        let (text, rest) =
            self.rest.split_once(quote).ok_or("the header is not a dictionary: a quote is not closed")?;
        self.rest = rest;
        Ok(text)
    }

    fn descr(&mut self) -> Result<&'a str, String> {
        if self.rest.trim_start().starts_with('[') {
            return Err("arrays of records (structured dtypes) are not supported".into());
        }
        self.string()
    }

    fn boolean(&mut self) -> Result<bool, String> {
        self.rest = self.rest.trim_start();
        for (text, value) in [("True", true), ("False", false)] {
            if let Some(rest) = self.rest.strip_prefix(text) {
                self.rest = rest;
                return Ok(value);
            }
        }
        Err("`fortran_order` is neither True nor False".into())
    }

    fn shape(&mut self) -> Result<Vec<usize>, String> {
        let mut dims = vec![];
        self.expect('(')?;
        while !self.eat(')') {
            self.rest = self.rest.trim_start();
            let digits = self.rest.bytes().take_while(u8::is_ascii_digit).count();
            let (number, rest) = self.rest.split_at(digits);
            // Python 2 wrote long integers with a trailing L.
            self.rest = rest.strip_prefix('L').unwrap_or(rest);
            if number.is_empty() {
                return Err("the shape is not a tuple of sizes".into());
            }
            dims.push(number.parse().map_err(|_| format!("the shape's size {number} is absurd"))?);
            if !self.eat(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(dims)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_numpy_writes_them() {
        let header =
            |text: &str| parse(text).map(|h| format!("{} {} {} {:?}", h.dtype, h.big_endian, h.fortran_order, h.dims));
        for (text, expected) in [
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }   \n", "f32 false false [3, 4]"),
            ("{'descr': '>i8', 'fortran_order': True, 'shape': (7,), }", "i64 true true [7]"),
            ("{\"shape\": (), \"descr\": \"|b1\", \"fortran_order\": False}", "bool false false []"),
            ("{'descr': '<V2', 'fortran_order': False, 'shape': (0, 5L)}", "raw 2-byte values false false [0, 5]"),
        ] {
            assert_eq!(header(text).as_deref(), Ok(expected), "{text}");
        }
        for (text, expected) in [
            ("", "the header is not a dictionary: `{` expected"),
            ("{'descr': '<f4'", "the header is not a dictionary: `}` expected"),
            ("{'descr': '<c8', 'fortran_order': False, 'shape': ()}", "elements of type `<c8` are not supported"),
            (
                "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}",
                "arrays of records (structured dtypes) are not supported",
            ),
            ("{'descr': '<f4', 'shape': ()}", "the header has no `fortran_order`"),
            ("{'descr': '<f4', 'descr': '<f4'}", "the header says `descr` twice"),
            ("{'descr': '<f4', 'fortran_order': 1}", "`fortran_order` is neither True nor False"),
            ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "the shape is not a tuple of sizes"),
            ("{'shape': (99999999999999999999,)}", "the shape's size 99999999999999999999 is absurd"),
            ("{'descr': '<f4", "the header is not a dictionary: a quote is not closed"),
            (
                "{'descr': '<f4', 'fortran_order': False, 'shape': ()} import os",
                "the header goes on after its dictionary",
            ),
        ] {
            assert_eq!(header(text), Err(expected.to_string()), "{text}");
        }
    }

    #[test]
    fn printing_and_parsing_are_inverse() {
        for dims in [vec![], vec![5], vec![2, 3], vec![0, 1, 7]] {
            assert_eq!(parse(&print("<f8", &dims)).map(|h| h.dims), Ok(dims));
        }
        assert_eq!(print("<f4", &[3]), "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }");
    }
}
