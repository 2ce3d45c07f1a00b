//! Random programs and random text, and the search for those on which two parts of Einloom disagree.
//!
//! [`generate`] makes well-typed cascades, [`examine`] compares what one means with what is derived and run, [`shrink`]
//! makes a counter-example small, [`cases`] keeps it, [`campaign`] does all that for many seeds; [`text`] throws
//! anything at the language. Everything follows from a seed.

// This crate reads and writes its cases, and measures, like the command line.
#![allow(clippy::disallowed_methods)]

pub mod campaign;
pub mod cases;
pub mod examine;
pub mod generate;
pub mod shrink;
pub mod text;
