//! Cubins on disk. Any number of processes may share a folder: files are written under a name of their own and then
//! renamed, so that a reader sees all of a file or none, and the name tells the content.

// Files here are this crate's own; the folder is the caller's choice.
#![allow(clippy::disallowed_methods)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A folder of cubins.
#[derive(Clone, Debug)]
pub struct Cache {
    directory: PathBuf,
}

/// Told apart from files that another version of this crate would write.
const MAGIC: &[u8; 8] = b"einloom1";

impl Cache {
    /// The folder is made when the first file is written.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }

    /// A name for everything that a cubin depends on: 128 bits, of which accidental collisions need some 2^64 entries.
    pub fn key(parts: &[&str]) -> String {
        // FNV-1a, 128 bit (Fowler, Noll, Vo; draft-eastlake-fnv).
        let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
        for part in parts {
            for &byte in (part.len() as u64).to_le_bytes().iter().chain(part.as_bytes()) {
                hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
            }
        }
        format!("{hash:032x}")
    }

    /// The cubin with this key. A file that is damaged counts as absent.
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        let bytes = std::fs::read(self.file(key)).ok()?;
        let rest = bytes.strip_prefix(MAGIC.as_slice())?;
        let (length, cubin) = rest.split_first_chunk::<8>()?;
        (u64::from_le_bytes(*length) == cubin.len() as u64).then(|| cubin.to_vec())
    }

    /// Keeps a cubin. A folder that cannot be written to is no error: the cubin is compiled again next time.
    pub fn put(&self, key: &str, cubin: &[u8]) {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary = self.directory.join(format!("{key}.{}.{number}.new", std::process::id()));
        let mut bytes = MAGIC.to_vec();
        bytes.extend((cubin.len() as u64).to_le_bytes());
        bytes.extend(cubin);
        let written = std::fs::create_dir_all(&self.directory).and_then(|()| std::fs::write(&temporary, bytes));
        if written.and_then(|()| std::fs::rename(&temporary, self.file(key))).is_err() {
            // Nothing is left behind where that is possible.
            let _ = std::fs::remove_file(&temporary);
        }
    }

    /// The folder.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    fn file(&self, key: &str) -> PathBuf {
        self.directory.join(format!("{key}.cubin"))
    }
}

#[cfg(test)]
mod tests {
    use super::Cache;

    #[test]
    fn what_is_put_is_found_and_damage_is_absence() {
        let directory = std::env::temp_dir().join(format!("einloom-cache-{}", std::process::id()));
        let cache = Cache::new(&directory);
        let key = Cache::key(&["text", "sm_80"]);
        assert_ne!(key, Cache::key(&["tex", "tsm_80"]));
        assert_eq!(cache.get(&key), None);
        // Many writers of one key at a time.
        std::thread::scope(|s| {
            for _ in 0..8 {
                s.spawn(|| (0..50).for_each(|_| cache.put(&key, &[7; 1000])));
            }
            for _ in 0..200 {
                assert!(cache.get(&key).is_none_or(|c| c == [7; 1000]));
            }
        });
        assert_eq!(cache.get(&key), Some(vec![7; 1000]));
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        let file = directory.join(format!("{key}.cubin"));
        let whole = std::fs::read(&file).unwrap();
        std::fs::write(&file, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(cache.get(&key), None);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
