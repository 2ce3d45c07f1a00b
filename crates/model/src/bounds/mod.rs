//! Lower bounds on traffic.
//!
//! *Compulsory*: whatever the order, every element of a tensor that the kernel reads must come in at least once, and
//! every element that it writes must go out once. It holds at every level. Where which elements are touched depends on
//! data (a gather), the fewest possible count.
//!
//! *By capacity*: a sum of products reads more than that if its factors do not fit. [`ProjectiveNest`] bounds it from
//! the linear program of its loop nest; `spaces` finds the nests in a kernel: the points of each contraction, and those
//! of chains of two, where what one contraction gives is what another sums, by elementwise functions and statistics
//! of rows in between. In such a chain each value of the first needs whole rows of its factors, which gives the
//! published bound of attention, `4 q x d² / M` with all dimensions `d`, where `M ≥ d²` (Saha and Ye, "I/O Complexity of
//! Attention", arXiv 2402.07443); for less memory it is never better to hold whole rows, and the bound is that of the
//! two contractions by themselves, of order `q x d / √M`. The smaller of the two changes over at `M = d²` of itself.
//!
//! On machines that count elements rows of such chains are held whole, so that groups of them are whole in number:
//! [`ProjectiveNest::incoming_in_groups`] says under which condition, and proves it.
//!
//! The largest of all is taken, for one kernel: what it reads and writes is given, not what else could be fused.

mod beside;
mod between;
mod nest;
mod simplex;
mod spaces;

pub use beside::Beside;
pub use nest::{Exponents, Incoming, NestArray, ProjectiveNest};
pub(crate) use spaces::Spaces;

use crate::levels::{Reuse, Traffic};
use crate::region::Lean;

/// Elements that must be read and written, per tensor.
pub(crate) fn compulsory(reuse: &Reuse<'_>) -> Traffic {
    let mut traffic = Traffic::new();
    reuse.region(&reuse.nest.body.all(), 0, Lean::Low, &mut traffic);
    traffic
}
