//! SIMD primitives, compiled once per instruction set and chosen when the program runs, and the memory that threads
//! share: the only unsafe code of the crate.
//!
//! What makes it sound: [`isa::Token`] proves that the processor has the instructions that a function was compiled
//! for, [`unit::UnitToken`] that its matrix unit may be used; [`contract`] checks every length against every stride before it hands out pointers; [`memory::Shared`] lets
//! threads write to one tensor, none of them the same element.
#![allow(unsafe_code)]

/// An array of what is said of each number below `N`, one after the other: a closure would be a function of its own, without the
/// instructions.
macro_rules! each {
    ($i:ident => $of:expr) => {{
        let first = {
            let $i = 0;
            $of
        };
        let mut all = [first; N];
        let mut at = 1;
        while at < N {
            all[at] = {
                let $i = at;
                $of
            };
            at += 1;
        }
        all
    }};
}

pub(crate) mod add;
pub(crate) mod chain;
pub(crate) mod codes;
pub(crate) mod contract;
pub(crate) mod exp;
pub(crate) mod factors;
pub(crate) mod fold;
pub(crate) mod isa;
mod lanes;
pub(crate) mod live;
pub(crate) mod logistic;
pub(crate) mod math;
pub(crate) mod memory;
pub(crate) mod passes;
pub(crate) mod real;
pub(crate) mod strip;
pub(crate) mod tanh;
pub(crate) mod transpose;
pub(crate) mod truths;
pub(crate) mod unit;
mod wide;
