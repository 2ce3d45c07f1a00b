//! File formats: `.npy` and `.safetensors`, in and out, and what a declared number type accepts from them.
//!
//! A header is believed only as far as the file's length bears it out: nothing is allocated on its word.

mod atomic;
mod convert;
mod error;
mod npy;
mod npy_header;
mod safetensors;
mod safetensors_header;
mod stored;

pub use atomic::Destination;
pub use convert::{Mismatch, from_stored, to_stored};
pub use error::FileError;
pub use npy::{Npy, write_npy};
pub use safetensors::{SafeTensors, write_safetensors};
pub use stored::{Stored, StoredType};

use std::fs::File;
use std::path::Path;

/// The formats that a file's name may announce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One array.
    Npy,
    /// Named arrays.
    SafeTensors,
}

impl Format {
    /// The format that the name's ending announces.
    pub fn of(path: &Path) -> Result<Self, FileError> {
        match path.extension().and_then(|e| e.to_str()) {
            Some("npy") => Ok(Self::Npy),
            Some("safetensors") => Ok(Self::SafeTensors),
            _ => {
                Err(FileError::new(path, "its name tells no format")
                    .hint("use a name that ends in .npy or .safetensors"))
            }
        }
    }
}

fn open(path: &Path) -> Result<File, FileError> {
    let io = |e: std::io::Error| FileError::io(path, "cannot read it", &e);
    let file = File::open(path).map_err(io)?;
    if file.metadata().map_err(io)?.is_dir() {
        return Err(FileError::new(path, "cannot read it: it is a directory"));
    }
    Ok(file)
}
