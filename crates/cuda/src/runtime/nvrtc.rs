//! NVRTC's interface. Signatures: NVRTC documentation, `nvrtc.h`.
#![allow(unsafe_code)]
// A folder is listed to find a library.
#![allow(clippy::disallowed_methods)]

use super::library::{functions, open, preload};
use super::{CompileError, Search, Unavailable};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

type Handle = *mut c_void;

functions! {
    /// Entry points of `libnvrtc`.
    Entries {
        version = b"nvrtcVersion\0" (*mut c_int, *mut c_int) -> c_int;
        create = b"nvrtcCreateProgram\0" (
            *mut Handle, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char,
        ) -> c_int;
        destroy = b"nvrtcDestroyProgram\0" (*mut Handle) -> c_int;
        compile = b"nvrtcCompileProgram\0" (Handle, c_int, *const *const c_char) -> c_int;
        log_size = b"nvrtcGetProgramLogSize\0" (Handle, *mut usize) -> c_int;
        log = b"nvrtcGetProgramLog\0" (Handle, *mut c_char) -> c_int;
        cubin_size = b"nvrtcGetCUBINSize\0" (Handle, *mut usize) -> c_int;
        cubin = b"nvrtcGetCUBIN\0" (Handle, *mut c_char) -> c_int;
        ptx_size = b"nvrtcGetPTXSize\0" (Handle, *mut usize) -> c_int;
        ptx = b"nvrtcGetPTX\0" (Handle, *mut c_char) -> c_int;
        error_text = b"nvrtcGetErrorString\0" (c_int) -> *const c_char;
    }
}

/// What to make of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Machine code; the options name a real architecture.
    Cubin,
    /// PTX, which ends in a 0; the options name a virtual architecture.
    Ptx,
}

/// An opened compiler.
pub(super) struct Nvrtc {
    entries: Entries,
    /// Where it was found.
    pub path: String,
}

impl Nvrtc {
    /// Opens the first that works.
    pub fn open(search: &Search) -> Result<Self, Unavailable> {
        let mut tried = vec![];
        for path in search.nvrtc() {
            // NVRTC looks for its built-in functions by name alone, and finds them if they are loaded already.
            for file in path.parent().map(builtins).unwrap_or_default() {
                preload(&file);
            }
            match open(&path).and_then(Entries::load) {
                Ok(entries) => return Ok(Self { entries, path: path.display().to_string() }),
                Err(reason) => tried.push((path.display().to_string(), reason)),
            }
        }
        Err(Unavailable::NoCompiler { tried })
    }

    /// Its version, such as (13, 0).
    pub fn version(&self) -> (i32, i32) {
        let (mut major, mut minor) = (0, 0);
        // SAFETY: writes two integers.
        unsafe { (self.entries.version)(&mut major, &mut minor) };
        (major, minor)
    }

    /// What a source compiles to, and the compiler's log.
    pub fn compile(&self, text: &str, options: &[String], output: Output) -> Result<(Vec<u8>, String), CompileError> {
        let text = CString::new(text).map_err(|e| self.failure("nvrtcCreateProgram", e.to_string()))?;
        let options: Vec<CString> = options
            .iter()
            .map(|o| CString::new(o.as_str()))
            .collect::<Result<_, _>>()
            .map_err(|e| self.failure("nvrtcCompileProgram", e.to_string()))?;
        let mut program = std::ptr::null_mut();
        // SAFETY: strings end in 0; no headers are given.
        let code = unsafe {
            (self.entries.create)(
                &mut program,
                text.as_ptr(),
                c"einloom.cu".as_ptr(),
                0,
                std::ptr::null(),
                std::ptr::null(),
            )
        };
        self.check("nvrtcCreateProgram", code)?;
        let result = self.compiled(program, &options, output);
        // SAFETY: made above, not used after.
        unsafe { (self.entries.destroy)(&mut program) };
        result
    }

    fn compiled(
        &self,
        program: Handle,
        options: &[CString],
        output: Output,
    ) -> Result<(Vec<u8>, String), CompileError> {
        let pointers: Vec<*const c_char> = options.iter().map(|o| o.as_ptr()).collect();
        // SAFETY: the program exists; buffers are as long as the compiler says.
        unsafe {
            let code = (self.entries.compile)(program, pointers.len() as c_int, pointers.as_ptr());
            let mut size = 0;
            self.check("nvrtcGetProgramLogSize", (self.entries.log_size)(program, &mut size))?;
            let mut log = vec![0u8; size.max(1)];
            self.check("nvrtcGetProgramLog", (self.entries.log)(program, log.as_mut_ptr().cast()))?;
            let log = String::from_utf8_lossy(&log).trim_end_matches('\0').to_string();
            if code != 0 {
                let text = self.text(code);
                return Err(CompileError::Rejected { log: format!("{text}\n{log}") });
            }
            let e = &self.entries;
            let (get_size, get) = match output {
                Output::Cubin => (e.cubin_size, e.cubin),
                Output::Ptx => (e.ptx_size, e.ptx),
            };
            let mut size = 0;
            self.check("nvrtcGetCUBINSize or nvrtcGetPTXSize", get_size(program, &mut size))?;
            let mut code = vec![0u8; size];
            self.check("nvrtcGetCUBIN or nvrtcGetPTX", get(program, code.as_mut_ptr().cast()))?;
            Ok((code, log))
        }
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), CompileError> {
        if code == 0 { Ok(()) } else { Err(self.failure(call, self.text(code))) }
    }

    fn failure(&self, call: &'static str, reason: String) -> CompileError {
        CompileError::Compiler { call, reason }
    }

    fn text(&self, code: c_int) -> String {
        // SAFETY: a constant of the library's own.
        unsafe {
            let text = (self.entries.error_text)(code);
            if text.is_null() { String::new() } else { CStr::from_ptr(text).to_string_lossy().into_owned() }
        }
    }
}

/// The files of built-in functions beside NVRTC.
fn builtins(directory: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else { return vec![] };
    let is_one = |p: &std::path::PathBuf| {
        let name = p.file_name().and_then(|n| n.to_str());
        name.is_some_and(|n| n.starts_with("libnvrtc-builtins.so"))
    };
    entries.filter_map(|e| e.ok().map(|e| e.path())).filter(is_one).collect()
}
