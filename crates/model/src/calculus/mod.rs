//! A calculus of transfers: formulas for what a fused computation moves and holds, with sizes as symbols.
//!
//! It makes *FlashAttention on a Napkin* (Abbott and Zardini, arXiv 2412.03317) executable. A [`Diagram`] is read off
//! a normalised cascade: **wires** are its arrays, **boxes** its maps and reductions, **axes** its indices. A
//! [`Partition`] says what the lower level sees of each axis: all of it, a *group* of so many positions (cores work on
//! groups independently) or a *stream* of so many at a time (one core works through them). Then
//!
//! - [`Diagram::transfers`] is `H`: values that enter and leave the lower level, per group and in total;
//! - [`Diagram::memory`] is `M`: values present at once, the largest column of the diagram;
//! - [`Diagram::work`] is `K`: operations;
//! - [`Diagram::optimum`] minimises `H` under `M ≤ M^max` and gives `H*(a, M) = Σ_t α_t M^-β_t`,
//!
//! all [posynomials](Poly) that print. [`Optimum`] goes on to several levels, bytes, caches and clusters.
//! Nothing here knows an operator: every formula follows from which box reads which wire along which axes.
//!
//! Conventions. Values are counted, not bytes. An array enters a body at its first column and stays until its last
//! reader; what streams enters batch by batch; a result that takes the place of what it is computed from by
//! elementwise functions counts once. Sizes are taken to be multiples of groups: [`Transfers::counted`] is exact for
//! integer sizes instead. Intermediate arrays stay at the lower level.

mod diagram;
mod hierarchy;
mod linear;
mod memory;
mod optimum;
mod partition;
mod poly;
mod product;
mod stages;
mod transfer;
mod work;

pub use diagram::{Axis, Diagram, NoFormula, Wire, WireId};
pub use hierarchy::{Exchange, Feed, PerBytes, exchange_gain, warpgroups};
pub use memory::{Column, Memory};
pub use optimum::{Optimum, OptimumTerm};
pub use partition::{Divisor, Divisors, Part, Partition};
pub use poly::{Monomial, Poly, Symbol, SymbolKind};
pub use product::Product;
pub use transfer::{Transfer, Transfers};
pub use work::{Operations, WorkItem};
