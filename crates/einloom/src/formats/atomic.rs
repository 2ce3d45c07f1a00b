//! Outputs appear whole or not at all.

use super::FileError;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// A place that will be written when everything is ready. Opening it before long work finds an unwritable path
/// early; dropping it without [`Destination::write`] leaves what was there before.
#[derive(Debug)]
pub struct Destination {
    /// As the user spelled it, for messages.
    path: PathBuf,
    place: Place,
}

#[derive(Debug)]
enum Place {
    /// A temporary file beside the target that is renamed over it.
    Beside { temporary: NamedTempFile, target: PathBuf },
    /// A device or pipe, which a rename would destroy.
    Direct(std::fs::File),
}

impl Destination {
    /// Makes sure that `path` can be written, without changing what is there.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let io = |e: std::io::Error| FileError::io(path, "cannot write it", &e);
        let place = match std::fs::metadata(path) {
            Ok(facts) if facts.is_dir() => {
                return Err(FileError::new(path, "cannot write it: it is a directory").hint("name a file in it"));
            }
            Ok(facts) if !facts.is_file() => Place::Direct(OpenOptions::new().write(true).open(path).map_err(io)?),
            Ok(facts) if facts.permissions().readonly() => {
                return Err(FileError::new(path, "cannot write it: it is read-only"));
            }
            // Follows a symbolic link, so that the rename replaces the file and not the link.
            Ok(_) => beside(path.canonicalize().map_err(io)?).map_err(io)?,
            Err(_) => beside(path.to_owned()).map_err(io)?,
        };
        Ok(Self { path: path.to_owned(), place })
    }

    /// Writes the content and makes it appear under the path, replacing what was there.
    pub fn write(self, content: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<(), FileError> {
        let io = |e: std::io::Error| FileError::io(&self.path, "cannot write it", &e);
        match self.place {
            Place::Direct(mut file) => content(&mut file).map_err(io),
            Place::Beside { mut temporary, target } => {
                let mut out = std::io::BufWriter::new(temporary.as_file_mut());
                content(&mut out).and_then(|()| out.flush()).map_err(io)?;
                drop(out);
                temporary.persist(target).map_err(|e| io(e.error))?;
                Ok(())
            }
        }
    }
}

fn beside(target: PathBuf) -> std::io::Result<Place> {
    let folder = match target.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".einloom-");
    #[cfg(unix)]
    {
        // As an ordinary new file: the default of this crate is to hide it from everybody else.
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    Ok(Place::Beside { temporary: builder.tempfile_in(folder)?, target })
}
