//! Sums along rows of both factors: a register of terms at a time, totalled at the end.

use super::{Dots, Start};
use crate::kernels::lanes::{Lanes, Plus};

/// # Safety
/// The processor has `V`'s instructions, and the job's slices hold its matrices.
#[inline(always)]
pub(super) unsafe fn dots<V: Lanes>(job: Dots<'_, V::Element>) {
    let c = job.c.as_mut_ptr();
    let acc = match job.start {
        Start::Zero => std::ptr::null(),
        Start::Kept => c.cast_const(),
        Start::From(acc, _) => acc.as_ptr(),
        Start::Sides(_) => unreachable!("only products by broadcasts add them"),
    };
    // SAFETY: every block below lies within the checked slices.
    unsafe {
        let mut j = 0;
        while j < job.n {
            let columns = if job.n - j >= 4 { 4 } else { 1 };
            let mut i = 0;
            while i < job.m {
                let rows = if job.m - i >= 2 { 2 } else { 1 };
                let a = job.a.as_ptr().add(i * job.a_i);
                let b = job.b.as_ptr().add(j * job.b_j);
                let at = i * job.c_i + j * job.c_j;
                match (rows, columns) {
                    (2, 4) => dot_block::<V, 2, 4>(&job, a, b, acc, c, at),
                    (1, 4) => dot_block::<V, 1, 4>(&job, a, b, acc, c, at),
                    (2, _) => dot_block::<V, 2, 1>(&job, a, b, acc, c, at),
                    _ => dot_block::<V, 1, 1>(&job, a, b, acc, c, at),
                }
                i += rows;
            }
            j += columns;
        }
    }
}

#[inline(always)]
unsafe fn dot_block<V: Lanes, const MR: usize, const NR: usize>(
    job: &Dots<'_, V::Element>,
    a: *const V::Element,
    b: *const V::Element,
    acc: *const V::Element,
    c: *mut V::Element,
    at: usize,
) {
    // SAFETY: the caller promises the instructions, MR rows of `a` and NR rows of `b` with `job.k` elements each, and
    // their results from `at`.
    unsafe {
        let mut sums = [[V::splat(V::Element::default()); NR]; MR];
        let mut k = 0;
        while k < job.k {
            let count = (job.k - k).min(V::LANES);
            let fetch = |from: *const V::Element| {
                if count == V::LANES { V::load(from) } else { V::load_first(from, count) }
            };
            let mut left = [V::splat(V::Element::default()); MR];
            for (i, left) in left.iter_mut().enumerate() {
                *left = fetch(a.add(i * job.a_i + k));
            }
            let right: [V; NR] = std::array::from_fn(|j| fetch(b.add(j * job.b_j + k)));
            for (sums, left) in sums.iter_mut().zip(left) {
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = sum.fused(left, right);
                }
            }
            k += count;
        }
        for (i, sums) in sums.iter().enumerate() {
            for (j, sum) in sums.iter().enumerate() {
                let at = at + i * job.c_i + j * job.c_j;
                let sum = sum.total();
                *c.add(at) = if acc.is_null() { sum } else { sum.plus(*acc.add(at)) };
            }
        }
    }
}
