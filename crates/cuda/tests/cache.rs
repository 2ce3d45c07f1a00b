//! The cache of compiled kernels under writers in other processes.

#![allow(clippy::disallowed_methods)] // A test of files, that starts itself again.

use einloom_cuda::runtime::Cache;
use std::process::Command;

/// Names the folder, in the processes that this test starts.
const FOLDER: &str = "EINLOOM_TEST_CACHE";
const KEYS: usize = 5;

/// What is kept under a key: as long as a cubin, and all of it told by its first byte.
fn content(key: usize, writer: usize) -> Vec<u8> {
    vec![(16 * key + writer) as u8; 100_000 + key]
}

fn key(k: usize) -> String {
    Cache::key(&["source", &k.to_string()])
}

#[test]
fn writers_in_many_processes_leave_whole_files() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return write_and_read(&Cache::new(folder));
    }
    let folder = std::env::temp_dir().join(format!("einloom-cache-processes-{}", std::process::id()));
    let this = std::env::current_exe().expect("this test");
    let start = |_| {
        let mut command = Command::new(&this);
        command.args(["--exact", "writers_in_many_processes_leave_whole_files"]).env(FOLDER, &folder);
        command.spawn().expect("a process")
    };
    let processes: Vec<_> = (0..4).map(start).collect();
    for mut process in processes {
        assert!(process.wait().expect("its end").success());
    }
    let cache = Cache::new(&folder);
    for k in 0..KEYS {
        assert_whole(k, &cache.get(&key(k)).expect("written by all"));
    }
    assert_eq!(std::fs::read_dir(&folder).expect("the folder").count(), KEYS, "nothing else is left behind");
    std::fs::remove_dir_all(folder).expect("removed");
}

/// What each process does: several threads write the same keys with contents of their own, and read them.
fn write_and_read(cache: &Cache) {
    std::thread::scope(|scope| {
        for writer in 0..3 {
            scope.spawn(move || {
                for round in 0..60 {
                    let k = (round + writer) % KEYS;
                    cache.put(&key(k), &content(k, writer));
                    assert_whole(k, &cache.get(&key(k)).expect("just written"));
                }
            });
        }
    });
}

fn assert_whole(k: usize, found: &[u8]) {
    let writer = usize::from(found[0]) % 16;
    assert!(writer < 3 && found == content(k, writer), "key {k}: {} bytes of {:?}", found.len(), found.first());
}
