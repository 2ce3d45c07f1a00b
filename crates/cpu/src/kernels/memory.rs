//! Tensors in memory, shared by the threads of a kernel.

use bytemuck::{Pod, Zeroable};
use std::marker::PhantomData;

/// 64 aligned bytes: the unit in which buffers are allocated.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line([u8; 64]);

// SAFETY: 64 bytes without padding, of which every pattern is a value.
unsafe impl Zeroable for Line {}
// SAFETY: as above; `Line` is `Copy`, `repr(C)` and borrows nothing.
unsafe impl Pod for Line {}

impl Line {
    /// Zeros.
    pub(crate) const ZERO: Self = Self([0; 64]);
}

/// One tensor's memory during one kernel: either only read, by any thread, or only written, no element by two threads.
///
/// Which of the two is fixed when it is made, and checked by every access. That no element is written by two threads
/// at once is the rule of [`einloom_tile::verify`] that coordinates of stores determine every axis of the grid;
/// programs that break it are not made executable, and kernels in which two operations store to one tensor, which the
/// rule does not cover, run on one thread.
pub(crate) struct Shared<'a> {
    start: *mut u8,
    bytes: usize,
    written: bool,
    lifetime: PhantomData<&'a mut [u8]>,
}

// SAFETY: a shared reference gives reads of memory that nobody writes, or writes of elements that no other thread
// touches (see the type's description).
unsafe impl Sync for Shared<'_> {}
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl Send for Shared<'_> {}

impl<'a> Shared<'a> {
    /// Memory to read.
    pub(crate) fn read_only(bytes: &'a [u8]) -> Self {
        Self { start: bytes.as_ptr().cast_mut(), bytes: bytes.len(), written: false, lifetime: PhantomData }
    }

    /// Memory to write.
    pub(crate) fn write_only(bytes: &'a mut [u8]) -> Self {
        Self { start: bytes.as_mut_ptr(), bytes: bytes.len(), written: true, lifetime: PhantomData }
    }

    /// The elements. Empty if the tensor is one that the kernel writes, or if the memory is not aligned for `T`.
    pub(crate) fn elements<T: Pod>(&self) -> &[T] {
        if self.written {
            return &[];
        }
        // SAFETY: made from a slice of this length, which nobody writes while `self` lives.
        let bytes = unsafe { std::slice::from_raw_parts(self.start, self.bytes) };
        bytemuck::try_cast_slice(bytes).unwrap_or(&[])
    }

    /// Writes `f(values[i])` to element `start + i * step`, for as many as there are. Panics outside the tensor, or if
    /// the kernel does not write it: the verifier has excluded both.
    #[inline(always)]
    pub(crate) fn store<S: Copy, T: Pod>(&self, start: i64, step: i64, values: &[S], f: impl Fn(S) -> T) {
        let Some(last) = values.len().checked_sub(1) else { return };
        let count = (self.bytes / size_of::<T>()) as i128;
        let end = i128::from(start) + last as i128 * i128::from(step);
        let inside = start >= 0 && i128::from(start) < count && (0..count).contains(&end);
        let to = self.start.cast::<T>();
        assert!(self.written && inside && to.is_aligned(), "a store outside its tensor");
        // SAFETY: `start` is the number of an element.
        let to = unsafe { to.add(start as usize) };
        if step == 1 {
            for (i, &x) in values.iter().enumerate() {
                // SAFETY: between `start` and `end`, both elements; no other thread touches this one.
                unsafe { to.add(i).write(f(x)) };
            }
        } else {
            for (i, &x) in values.iter().enumerate() {
                // SAFETY: as above.
                unsafe { to.offset(i as isize * step as isize).write(f(x)) };
            }
        }
    }
}
