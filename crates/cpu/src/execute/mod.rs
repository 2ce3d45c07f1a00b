//! Runs planned kernels.

mod alike;
mod anchored;
mod arena;
mod between;
mod chained;
mod chosen;
mod compare;
mod contract;
mod convert;
mod diagonals;
mod disorder;
mod elementwise;
mod guards;
mod kept;
mod load;
mod make;
mod map;
mod partly;
mod pick;
mod piecewise;
mod place;
mod reduce;
mod relayout;
mod scaled;
mod source;
mod store;
mod whole;
mod worker;

pub(crate) use arena::Arena;
pub(crate) use disorder::{Disorder, SPOILT};
pub(crate) use place::Rows;
pub(crate) use worker::{Job, Worker};
