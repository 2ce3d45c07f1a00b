//! What can be wrong with a file.

use std::fmt;
use std::path::{Path, PathBuf};

/// A file that cannot be read or written, or that does not hold what it says.
#[derive(Clone, Debug, PartialEq)]
pub struct FileError {
    /// Which file.
    pub path: PathBuf,
    /// What is wrong, in the user's terms.
    pub message: String,
    /// What to do instead, if anything is known to help.
    pub hint: Option<String>,
}

impl FileError {
    /// An error about `path`.
    pub fn new(path: &Path, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), message: message.into(), hint: None }
    }

    /// The operating system's refusal, without its error number.
    pub fn io(path: &Path, what: &str, error: &std::io::Error) -> Self {
        use std::io::ErrorKind as K;
        let why = match error.kind() {
            K::NotFound => "no such file or directory".to_string(),
            K::PermissionDenied => "permission denied".to_string(),
            K::IsADirectory => "it is a directory".to_string(),
            K::NotADirectory => "a part of the path is not a directory".to_string(),
            K::StorageFull => "no space left on the device".to_string(),
            K::ReadOnlyFilesystem => "the file system is read-only".to_string(),
            K::UnexpectedEof => "the file ends too early".to_string(),
            _ => error.to_string(),
        };
        Self::new(path, format!("{what}: {why}"))
    }

    /// Adds what to do instead.
    pub fn hint(mut self, text: impl Into<String>) -> Self {
        self.hint = Some(text.into());
        self
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.message)
    }
}

impl std::error::Error for FileError {}
