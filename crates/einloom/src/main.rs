//! The command line. Every command is a module of its own; what it does is in the library.

// The one program that prints and reads files.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

mod cli;

#[global_allocator]
static GLOBAL: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    cli::main()
}
