//! The shipped programs.

/// Names and texts, by name.
pub(crate) const PROGRAMS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/library.rs"));
