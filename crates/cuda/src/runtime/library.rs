//! Shared libraries, and tables of their functions.
#![allow(unsafe_code)]

use std::path::Path;

/// Opens a library. Its initialisers run; the libraries named here are NVIDIA's driver and compiler, which have none
/// that depend on ours.
pub(super) fn open(path: &Path) -> Result<libloading::Library, String> {
    // SAFETY: see above; the library stays open as long as the table of its functions.
    unsafe { libloading::Library::new(path) }.map_err(|e| e.to_string())
}

/// Opens a library so that later searches by its own name find it, for good.
pub(super) fn preload(path: &Path) {
    // SAFETY: as for `open`.
    if let Ok(library) = unsafe { libloading::Library::new(path) } {
        std::mem::forget(library);
    }
}

/// Declares a table of C functions, with `load(library)` to fill it.
macro_rules! functions {
    ($(#[$doc:meta])* $table:ident { $($name:ident = $symbol:literal ($($arg:ty),* $(,)?) -> $ret:ty;)* }) => {
        $(#[$doc])*
        pub(super) struct $table {
            $(pub $name: unsafe extern "C" fn($($arg),*) -> $ret,)*
            /// Keeps the functions' code in memory.
            _library: libloading::Library,
        }
        impl $table {
            /// Looks every function up.
            pub fn load(library: libloading::Library) -> Result<Self, String> {
                $(
                    // SAFETY: the signature is the one of the library's documented interface.
                    let $name = unsafe { library.get::<unsafe extern "C" fn($($arg),*) -> $ret>($symbol) }
                        .map(|f| *f)
                        .map_err(|e| e.to_string())?;
                )*
                Ok(Self { $($name,)* _library: library })
            }
        }
    };
}
pub(super) use functions;
