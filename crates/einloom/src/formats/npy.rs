//! `.npy`: one array a file.

use super::npy_header::{self, Header};
use super::stored::size_in_bytes;
use super::{FileError, Stored, StoredType};
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Longest header we believe: NumPy's own are about a hundred bytes; its reader stops at 10,000.
const LONGEST_HEADER: usize = 64 * 1024;

/// An opened `.npy` file whose header has been checked against its length: versions 1 to 3, either byte order, either
/// storage order.
#[derive(Debug)]
pub struct Npy {
    path: PathBuf,
    /// Stands at the first element.
    file: BufReader<File>,
    header: Header,
}

impl Npy {
    /// Opens a file and checks its header.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let file = super::open(path)?;
        let length = file.metadata().map_err(|e| FileError::io(path, "cannot read it", &e))?.len();
        let mut file = BufReader::new(file);
        match checked_header(&mut file, length) {
            Ok(header) => Ok(Self { path: path.to_owned(), file, header }),
            Err(Trouble::Said(message)) => Err(FileError::new(path, message)),
            Err(Trouble::Io(error)) => Err(FileError::io(path, "cannot read it", &error)),
        }
    }

    /// The array's shape.
    pub fn shape(&self) -> &[usize] {
        &self.header.dims
    }

    /// Reads the array.
    pub fn read(mut self) -> Result<Stored, FileError> {
        elements(&mut self.file, self.header).map_err(|e| FileError::io(&self.path, "cannot read it", &e))
    }
}

/// Writes an array, version 1.0.
pub fn write_npy(out: &mut dyn Write, array: &Stored) -> std::io::Result<()> {
    let mut header = npy_header::print(descr(array.dtype), &array.dims);
    // The elements start at a multiple of 64 bytes.
    let unpadded = MAGIC.len() + 4 + header.len() + 1;
    header.extend(std::iter::repeat_n(' ', unpadded.next_multiple_of(64) - unpadded));
    header.push('\n');
    out.write_all(MAGIC)?;
    if let Ok(length) = u16::try_from(header.len()) {
        out.write_all(&[1, 0])?;
        out.write_all(&length.to_le_bytes())?;
    } else {
        return Err(std::io::Error::other("too many dimensions for the .npy format"));
    }
    out.write_all(header.as_bytes())?;
    out.write_all(&array.bytes)
}

/// NumPy has no bfloat16 or fp8: like `ml_dtypes` arrays saved by `numpy.save`, they are opaque bytes that
/// `numpy.load(…).view(ml_dtypes.bfloat16)` reads back.
fn descr(dtype: StoredType) -> &'static str {
    match dtype {
        StoredType::F64 => "<f8",
        StoredType::F32 => "<f4",
        StoredType::F16 => "<f2",
        StoredType::Bf16 | StoredType::Raw(2..) => "<V2",
        StoredType::E4m3 | StoredType::E5m2 | StoredType::Raw(_) => "|V1",
        StoredType::I64 => "<i8",
        StoredType::I32 => "<i4",
        StoredType::I16 => "<i2",
        StoredType::I8 => "|i1",
        StoredType::U64 => "<u8",
        StoredType::U32 => "<u4",
        StoredType::U16 => "<u2",
        StoredType::U8 => "|u1",
        StoredType::Bool => "|b1",
    }
}

enum Trouble {
    Said(String),
    Io(std::io::Error),
}

impl From<String> for Trouble {
    fn from(message: String) -> Self {
        Self::Said(message)
    }
}

impl From<std::io::Error> for Trouble {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => Self::Said("the file ends inside its header".into()),
            _ => Self::Io(error),
        }
    }
}

fn header(input: &mut impl Read) -> Result<(Header, u64), Trouble> {
    let mut start = [0; 8];
    input.read_exact(&mut start).map_err(|_| "it is not a .npy file: too short".to_string())?;
    if &start[..6] != MAGIC {
        return Err("it is not a .npy file: it does not start with \\x93NUMPY".to_string().into());
    }
    let (length, prefix) = match start[6] {
        1 => {
            let mut b = [0; 2];
            input.read_exact(&mut b)?;
            (u16::from_le_bytes(b) as usize, 10)
        }
        2 | 3 => {
            let mut b = [0; 4];
            input.read_exact(&mut b)?;
            (u32::from_le_bytes(b) as usize, 12)
        }
        v => return Err(format!("version {v}.{} of the .npy format is unknown", start[7]).into()),
    };
    if length > LONGEST_HEADER {
        return Err(format!("its header claims to be {length} bytes long, more than any real one").into());
    }
    let mut text = vec![0; length];
    input.read_exact(&mut text)?;
    let text = String::from_utf8(text).map_err(|_| "its header is not text".to_string())?;
    Ok((npy_header::parse(&text)?, prefix + length as u64))
}

/// The header, if the file is as long as it says.
fn checked_header(input: &mut impl Read, file_length: u64) -> Result<Header, Trouble> {
    let (header, data_at) = header(input)?;
    let expected = size_in_bytes(&header.dims, header.dtype.bytes())
        .ok_or_else(|| format!("its shape {:?} is more than any computer holds", header.dims))?;
    let held = file_length.saturating_sub(data_at);
    if held != expected as u64 {
        let how = if held < expected as u64 { "truncated" } else { "longer than it says" };
        return Err(format!(
            "it is {how}: shape {:?} of {} takes {expected} bytes, the file holds {held}",
            header.dims, header.dtype
        )
        .into());
    }
    Ok(header)
}

/// The array after a checked header, row-major and little-endian.
fn elements(input: &mut impl Read, header: Header) -> std::io::Result<Stored> {
    let element = header.dtype.bytes();
    // The file was seen to be that long.
    let mut bytes = vec![0; size_in_bytes(&header.dims, element).unwrap_or(0)];
    input.read_exact(&mut bytes)?;
    if header.big_endian {
        bytes.chunks_exact_mut(element).for_each(<[u8]>::reverse);
    }
    if header.fortran_order {
        bytes = row_major(&bytes, &header.dims, element);
    }
    Ok(Stored { dtype: header.dtype, dims: header.dims, bytes })
}

/// Column-major to row-major.
fn row_major(bytes: &[u8], dims: &[usize], element: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = vec![0; dims.len()];
    for _ in 0..bytes.len() / element {
        let place = at.iter().zip(dims).rev().fold(0, |n, (&i, &d)| n * d + i) * element;
        out.extend_from_slice(&bytes[place..place + element]);
        for k in (0..dims.len()).rev() {
            at[k] += 1;
            if at[k] < dims[k] {
                break;
            }
            at[k] = 0;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.extend(data);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Stored, String> {
        let mut input = bytes;
        let header = checked_header(&mut input, bytes.len() as u64).map_err(|e| match e {
            Trouble::Said(message) => message,
            Trouble::Io(error) => error.to_string(),
        })?;
        elements(&mut input, header).map_err(|e| e.to_string())
    }

    #[test]
    fn either_order_of_bytes_and_of_dimensions() {
        let big =
            file("{'descr': '>i2', 'fortran_order': True, 'shape': (2, 3)}", &[0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6]);
        let array = read(&big).unwrap();
        assert_eq!(array.dims, [2, 3]);
        assert_eq!(array.bytes, [1, 0, 3, 0, 5, 0, 2, 0, 4, 0, 6, 0]);
    }

    #[test]
    fn what_is_written_is_read_back() {
        for dims in [vec![], vec![0], vec![4], vec![2, 3]] {
            let count: usize = dims.iter().product();
            let array = Stored { dtype: StoredType::I32, dims, bytes: (0..4 * count as u8).collect() };
            let mut bytes = vec![];
            write_npy(&mut bytes, &array).unwrap();
            assert_eq!(read(&bytes), Ok(array));
        }
    }

    #[test]
    fn later_versions_have_a_longer_length() {
        let header = "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}";
        let mut bytes = b"\x93NUMPY\x02\x00".to_vec();
        bytes.extend((header.len() as u32).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes.push(9);
        assert_eq!(read(&bytes).map(|a| a.bytes), Ok(vec![9]));
    }

    #[test]
    fn lies_are_told() {
        let f4 = |shape: &str| format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}");
        for (bytes, expected) in [
            (vec![], "it is not a .npy file: too short"),
            (b"PK\x03\x04aaaaaaaa".to_vec(), "it is not a .npy file: it does not start with \\x93NUMPY"),
            (b"\x93NUMPY\x09\x00aa".to_vec(), "version 9.0 of the .npy format is unknown"),
            (b"\x93NUMPY\x01\x00\x70\x00{'descr'".to_vec(), "the file ends inside its header"),
            (
                b"\x93NUMPY\x02\x00\xff\xff\xff\xff".to_vec(),
                "its header claims to be 4294967295 bytes long, more than any real one",
            ),
            (file(&f4("(3,)"), &[0; 8]), "it is truncated: shape [3] of f32 takes 12 bytes, the file holds 8"),
            (file(&f4("(1,)"), &[0; 8]), "it is longer than it says: shape [1] of f32 takes 4 bytes, the file holds 8"),
            (
                file(&f4("(4294967296, 4294967296)"), &[]),
                "its shape [4294967296, 4294967296] is more than any computer holds",
            ),
            (
                file(&f4("(0, 9223372036854775807)"), &[]),
                "its shape [0, 9223372036854775807] is more than any computer holds",
            ),
        ] {
            assert_eq!(read(&bytes), Err(expected.to_string()));
        }
    }
}
