//! Our readers and writers against the safetensors project's own, and files that appear whole or not at all.

#![allow(clippy::disallowed_methods)] // tests make and read files

use einloom::formats::{Destination, Npy, SafeTensors, Stored, StoredType, write_npy, write_safetensors};
use safetensors::tensor::{Dtype, TensorView};

fn stored(dtype: StoredType, dims: &[usize]) -> Stored {
    let count: usize = dims.iter().product::<usize>() * dtype.bytes();
    Stored { dtype, dims: dims.to_vec(), bytes: (0..count).map(|k| k as u8).collect() }
}

fn read(path: &std::path::Path) -> Result<Stored, einloom::formats::FileError> {
    Npy::open(path)?.read()
}

const TYPES: [(StoredType, Dtype); 15] = [
    (StoredType::F64, Dtype::F64),
    (StoredType::F32, Dtype::F32),
    (StoredType::F16, Dtype::F16),
    (StoredType::Bf16, Dtype::BF16),
    (StoredType::E4m3, Dtype::F8_E4M3),
    (StoredType::E5m2, Dtype::F8_E5M2),
    (StoredType::I64, Dtype::I64),
    (StoredType::I32, Dtype::I32),
    (StoredType::I16, Dtype::I16),
    (StoredType::I8, Dtype::I8),
    (StoredType::U64, Dtype::U64),
    (StoredType::U32, Dtype::U32),
    (StoredType::U16, Dtype::U16),
    (StoredType::U8, Dtype::U8),
    (StoredType::Bool, Dtype::BOOL),
];

#[test]
fn the_reference_implementation_reads_what_we_write() {
    let arrays: Vec<Stored> = TYPES.iter().enumerate().map(|(k, t)| stored(t.0, &[k % 3, 2])).collect();
    let names: Vec<String> = (0..arrays.len()).map(|k| format!("t{k}")).collect();
    let named: Vec<(&str, &Stored)> = names.iter().map(String::as_str).zip(&arrays).collect();
    let mut bytes = vec![];
    write_safetensors(&mut bytes, &named).unwrap();
    let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    for (k, (name, array)) in named.iter().enumerate() {
        let view = file.tensor(name).unwrap();
        assert_eq!((view.dtype(), view.shape(), view.data()), (TYPES[k].1, &*array.dims, &*array.bytes));
    }
}

#[test]
fn we_read_what_the_reference_implementation_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let arrays: Vec<Stored> = TYPES.iter().enumerate().map(|(k, t)| stored(t.0, &[2, k % 4])).collect();
    let views = arrays
        .iter()
        .zip(TYPES)
        .enumerate()
        .map(|(k, (a, (_, dtype)))| (format!("t{k}"), TensorView::new(dtype, a.dims.clone(), &a.bytes).unwrap()));
    safetensors::serialize_to_file(views, None, &path).unwrap();
    let mut file = SafeTensors::open(&path).unwrap();
    for (k, array) in arrays.iter().enumerate() {
        assert_eq!(file.read(&format!("t{k}")).as_ref(), Ok(array));
    }
    assert_eq!(file.names().count(), arrays.len());
}

#[test]
fn a_file_that_shrinks_after_its_header_was_checked_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let array = stored(StoredType::F32, &[64]);
    write_safetensors(&mut std::fs::File::create(&path).unwrap(), &[("x", &array)]).unwrap();
    let mut file = SafeTensors::open(&path).unwrap();
    let length = std::fs::metadata(&path).unwrap().len();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length - 1).unwrap();
    assert!(file.read("x").unwrap_err().message.contains("the file ends too early"));
}

#[test]
fn an_output_appears_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    let array = stored(StoredType::I16, &[3]);
    let entries = || std::fs::read_dir(folder.path()).unwrap().count();

    drop(Destination::open(&path).unwrap());
    assert_eq!(entries(), 0, "an abandoned output leaves nothing");

    let failing = Destination::open(&path).unwrap().write(|out| {
        out.write_all(b"half")?;
        Err(std::io::Error::other("the disk burns"))
    });
    assert!(failing.is_err());
    assert_eq!(entries(), 0, "a failed output leaves nothing");

    Destination::open(&path).unwrap().write(|out| write_npy(out, &array)).unwrap();
    assert_eq!(read(&path), Ok(array.clone()));

    let failing = Destination::open(&path).unwrap().write(|_| Err(std::io::Error::other("again")));
    assert!(failing.is_err());
    assert_eq!(read(&path), Ok(array), "what was there before still is");
    assert_eq!(entries(), 1);
}

#[cfg(unix)]
#[test]
fn links_are_followed_and_devices_are_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let (target, link) = (folder.path().join("target.npy"), folder.path().join("link.npy"));
    std::fs::write(&target, "old").unwrap();
    std::os::unix::fs::symlink(&target, &link).unwrap();
    let array = stored(StoredType::U8, &[2]);
    Destination::open(&link).unwrap().write(|out| write_npy(out, &array)).unwrap();
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(read(&target), Ok(array.clone()));

    let null = std::path::Path::new("/dev/null");
    Destination::open(null).unwrap().write(|out| write_npy(out, &array)).unwrap();
    assert!(!std::fs::metadata(null).unwrap().is_file());
}
