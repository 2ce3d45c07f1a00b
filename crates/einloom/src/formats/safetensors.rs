//! `.safetensors`: many named arrays in one file. Eight bytes give the length of a JSON header, the header gives
//! each tensor's type, shape and place in the rest. Source: the format description of the safetensors project.
//!
//! Only the header is read when a file is opened; a tensor's bytes are read when it is asked for.

use super::safetensors_header::{self as header, Entry};
use super::{FileError, Stored, StoredType};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// The limit of the reference implementation.
const LONGEST_HEADER: u64 = 100_000_000;

/// An opened `.safetensors` file whose header has been checked against its length.
#[derive(Debug)]
pub struct SafeTensors {
    path: PathBuf,
    file: File,
    /// Where the tensors' bytes begin.
    data_at: u64,
    entries: Vec<Entry>,
}

impl SafeTensors {
    /// Opens a file and checks its header: known fields, tensors side by side without holes or overlaps, as many
    /// bytes each as shape and type say, and the file as long as all that.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let said = |message: String| FileError::new(path, message);
        let io = |e: std::io::Error| FileError::io(path, "cannot read it", &e);
        let mut file = super::open(path)?;
        let length = file.metadata().map_err(io)?.len();
        let mut start = [0; 8];
        if length < 8 {
            return Err(said("it is not a .safetensors file: too short".into()));
        }
        file.read_exact(&mut start).map_err(io)?;
        let header_length = u64::from_le_bytes(start);
        if header_length > LONGEST_HEADER {
            return Err(said(format!("its header claims to be {header_length} bytes long, more than any real one")));
        }
        if header_length > length - 8 {
            return Err(said(format!(
                "it is truncated: its header takes {header_length} bytes, the file holds {}",
                length - 8
            )));
        }
        let mut text = vec![0; header_length as usize];
        file.read_exact(&mut text).map_err(io)?;
        let entries = header::parse(&text, length - 8 - header_length).map_err(said)?;
        Ok(Self { path: path.to_owned(), file, data_at: 8 + header_length, entries })
    }

    /// The names of its tensors.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.iter().map(|e| e.name.as_str())
    }

    /// The shape of a tensor, if the file has it.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        self.entries.iter().find(|e| e.name == name).map(|e| e.shape.as_slice())
    }

    /// Reads one tensor.
    pub fn read(&mut self, name: &str) -> Result<Stored, FileError> {
        let Some(entry) = self.entries.iter().find(|e| e.name == name) else {
            return Err(self.missing(name));
        };
        let dtype = entry.dtype.as_ref().map_err(|name| {
            FileError::new(&self.path, format!("tensor `{}`: elements of type {name} are not supported", entry.name))
        })?;
        let io = |e: std::io::Error| FileError::io(&self.path, "cannot read it", &e);
        let mut bytes = vec![0; (entry.end - entry.begin) as usize];
        self.file.seek(SeekFrom::Start(self.data_at + entry.begin)).map_err(io)?;
        self.file.read_exact(&mut bytes).map_err(io)?;
        Ok(Stored { dtype: *dtype, dims: entry.shape.clone(), bytes })
    }

    /// What to tell about a tensor that it has not.
    pub fn missing(&self, name: &str) -> FileError {
        FileError::new(&self.path, format!("it has no tensor `{name}`")).hint(self.contents())
    }

    /// What it holds, for a message.
    pub fn contents(&self) -> String {
        let names: Vec<&str> = self.names().take(12).collect();
        match self.entries.len() - names.len() {
            _ if names.is_empty() => "it holds no tensors".into(),
            0 => format!("it holds {}", names.join(", ")),
            more => format!("it holds {} and {more} more", names.join(", ")),
        }
    }
}

/// Writes named arrays, the widest types first so that every tensor is aligned, and by name among equals.
pub fn write_safetensors(out: &mut dyn Write, tensors: &[(&str, &Stored)]) -> std::io::Result<()> {
    let mut ordered: Vec<_> = tensors.to_vec();
    ordered.sort_by_key(|(name, array)| (std::cmp::Reverse(array.dtype.bytes()), *name));
    let mut text = header::print(&ordered);
    text.extend(std::iter::repeat_n(' ', text.len().next_multiple_of(8) - text.len()));
    out.write_all(&(text.len() as u64).to_le_bytes())?;
    out.write_all(text.as_bytes())?;
    ordered.iter().try_for_each(|(_, array)| out.write_all(&array.bytes))
}

/// The format's spellings of number types.
pub(super) const DTYPES: [(&str, StoredType); 15] = [
    ("F64", StoredType::F64),
    ("F32", StoredType::F32),
    ("F16", StoredType::F16),
    ("BF16", StoredType::Bf16),
    ("F8_E4M3", StoredType::E4m3),
    ("F8_E5M2", StoredType::E5m2),
    ("I64", StoredType::I64),
    ("I32", StoredType::I32),
    ("I16", StoredType::I16),
    ("I8", StoredType::I8),
    ("U64", StoredType::U64),
    ("U32", StoredType::U32),
    ("U16", StoredType::U16),
    ("U8", StoredType::U8),
    ("BOOL", StoredType::Bool),
];
