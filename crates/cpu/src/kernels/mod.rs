//! SIMD primitives, compiled once per instruction set and chosen when the program runs, and the memory that threads
//! share: the only unsafe code of the crate.
//!
//! What makes it sound: [`isa::Token`] proves that the processor has the instructions that a function was compiled
//! for, [`unit::UnitToken`] that its matrix unit may be used; [`contract`] checks every length against every stride before it hands out pointers; [`memory::Shared`] lets
//! threads write to one tensor, none of them the same element.
#![allow(unsafe_code)]

pub(crate) mod codes;
pub(crate) mod contract;
pub(crate) mod exp;
pub(crate) mod fold;
pub(crate) mod isa;
mod lanes;
pub(crate) mod live;
pub(crate) mod math;
pub(crate) mod memory;
pub(crate) mod real;
pub(crate) mod strip;
mod tanh;
pub(crate) mod transpose;
pub(crate) mod unit;
