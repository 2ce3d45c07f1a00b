//! Lower bounds on traffic.
//!
//! Today one: *compulsory* traffic. Whatever the order, every element of a tensor that the kernel reads must come in
//! at least once, and every element that it writes must go out once. It holds at every level. Where which elements are
//! touched depends on data (a gather), the fewest possible count. Bounds that know a level's capacity come on top.

use crate::levels::{Reuse, Traffic};
use crate::region::Lean;

/// Elements that must be read and written, per tensor.
pub(crate) fn compulsory(reuse: &Reuse<'_>) -> Traffic {
    let mut traffic = Traffic::new();
    reuse.region(&reuse.nest.body.all(), 0, Lean::Low, &mut traffic);
    traffic
}
