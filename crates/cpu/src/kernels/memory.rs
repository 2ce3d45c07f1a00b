//! Tensors in memory, shared by the threads of a kernel.

use super::isa::Instructions;
use bytemuck::{Pod, Zeroable};
use std::marker::PhantomData;

/// Tensors from this size on, in bytes, do not stay in a core's share of the caches until they are read again.
pub(crate) const LARGE: usize = 16 << 20;

/// Orders what was written past the caches before everything that follows.
pub(crate) fn settle() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has it.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
}

/// Rows between one that is read and one that is asked for, where rows are far apart: the processor does not find the next one by itself. Measured
/// (67 MB in pieces of 512 bytes, 4 KiB apart, two cores of a Zen 4): 6.7 ms without, 4.2 with 8 rows, 4.6 with 4, 4.9 with 16.
pub(crate) const ROWS_AHEAD: usize = 8;

/// Asks for memory that will be read soon, into the second-level cache. Any address will do.
#[inline(always)]
pub(crate) fn soon<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has it, and it reads nothing.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// The same into the first-level cache: of what is read next.
#[inline(always)]
pub(crate) fn at_hand<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Memory that is asked for, some lines at a time.
#[derive(Clone, Copy)]
pub(crate) struct Asked {
    at: *const u8,
    /// Bytes from row to row.
    pitch: usize,
    rows: usize,
    /// Lines of a row, and which comes next.
    lines: usize,
    line: usize,
}

impl Asked {
    /// Rows of so many bytes, so far apart, from `at` on.
    pub(crate) fn new<T>(at: *const T, rows: usize, [bytes, pitch]: [usize; 2]) -> Self {
        // Rows need not begin at a line's start. Those that follow each other are one.
        let (rows, bytes) = if pitch == bytes { (rows.min(1), rows * bytes) } else { (rows, bytes) };
        Self { at: at.cast(), pitch, rows, lines: bytes / size_of::<Line>() + 1, line: 0 }
    }

    /// Lines that are still to be asked for.
    pub(crate) fn left(&self) -> usize {
        (self.rows * self.lines).saturating_sub(self.line)
    }

    /// Where so many lie that are for the caller to ask for, one after the other; null, and they are asked for, if they do not.
    #[inline]
    pub(crate) fn lines(&mut self, lines: usize) -> *const u8 {
        if self.rows > 0 && self.line + lines < self.lines {
            let at = self.at.wrapping_add(self.line * size_of::<Line>());
            self.line += lines;
            return at;
        }
        self.some(lines);
        std::ptr::null()
    }

    /// Asks for so many.
    #[inline]
    pub(crate) fn some(&mut self, lines: usize) {
        for _ in 0..lines {
            if self.rows == 0 {
                return;
            }
            soon(self.at.wrapping_add(self.line * size_of::<Line>()));
            self.line += 1;
            if self.line == self.lines {
                (self.at, self.rows, self.line) = (self.at.wrapping_add(self.pitch), self.rows - 1, 0);
            }
        }
    }
}

/// Copies lines past the caches; false if there are no instructions for it: nothing is done then.
///
/// # Safety
/// Both have as many lines; `to` is aligned to one.
#[inline(always)]
unsafe fn lines_past<I: Instructions>(to: *mut u8, from: *const u8, lines: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        if I::AVX512 {
            // SAFETY: the type that says AVX512 is only named by code that runs where the instructions are.
            unsafe { lines_past_512(to, from, lines) };
            return true;
        }
        if I::FMA {
            // SAFETY: likewise for AVX2 and FMA on this architecture.
            unsafe { lines_past_256(to, from, lines) };
            return true;
        }
    }
    let _ = (to, from, lines);
    false
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx2,fma")]
unsafe fn lines_past_512(to: *mut u8, from: *const u8, lines: usize) {
    use std::arch::x86_64::*;
    for i in 0..lines {
        // SAFETY: the caller's.
        unsafe { _mm512_stream_si512(to.add(64 * i).cast(), _mm512_loadu_si512(from.add(64 * i).cast())) };
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2,fma")]
unsafe fn lines_past_256(to: *mut u8, from: *const u8, lines: usize) {
    use std::arch::x86_64::*;
    for i in 0..2 * lines {
        // SAFETY: the caller's.
        unsafe { _mm256_stream_si256(to.add(32 * i).cast(), _mm256_loadu_si256(from.add(32 * i).cast())) };
    }
}

/// Room for elements of a tensor that one thread writes.
pub(crate) struct Room<'a, T> {
    start: *mut T,
    len: usize,
    lifetime: PhantomData<&'a mut [T]>,
}

impl<T> Room<'_, T> {
    /// Where so many elements may be written, and nothing read.
    pub(crate) fn start(&self) -> *mut T {
        self.start
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

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
/// programs that break it are not made executable. Two operations that store to one tensor are not covered by the rule: kernels in
/// which these may meet at different points (`stores_meet`) run on one thread.
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

    /// Whether stores to it had better go past the caches: what is written would only push out what is still needed,
    /// and would be read from memory before it is overwritten.
    pub(crate) fn is_large(&self) -> bool {
        self.bytes >= LARGE
    }

    /// Room for so many elements from `start` on. Panics as [`Shared::store`] does.
    #[inline(always)]
    pub(crate) fn room<T: Pod>(&self, start: i64, len: usize) -> Room<'_, T> {
        let count = self.bytes / size_of::<T>();
        let inside = usize::try_from(start).is_ok_and(|s| s <= count && len <= count - s);
        let to = self.start.cast::<T>();
        assert!(self.written && inside && to.is_aligned(), "a store outside its tensor");
        // SAFETY: `start` is the number of an element, or the end.
        Room { start: unsafe { to.add(start as usize) }, len, lifetime: PhantomData }
    }

    /// Writes `values` to the elements from `start` on; past the caches if `past`, then [`settle`] must follow. Panics
    /// as [`Shared::store`] does.
    #[inline(always)]
    pub(crate) fn write<I: Instructions, T: Pod>(&self, start: i64, values: &[T], past: bool) {
        let to = self.room::<T>(start, values.len()).start().cast::<u8>();
        let (from, bytes) = (values.as_ptr().cast::<u8>(), size_of_val(values));
        let mut done = 0;
        if past {
            // Whole lines only: a part of one would have to be read to be written.
            let head = to.align_offset(size_of::<Line>()).min(bytes);
            let lines = (bytes - head) / size_of::<Line>();
            // SAFETY: the bytes lie within `values`, and within the tensor's elements that were checked above.
            unsafe { std::ptr::copy_nonoverlapping(from, to, head) };
            // SAFETY: likewise; the first line is aligned.
            if unsafe { lines_past::<I>(to.add(head), from.add(head), lines) } {
                done = head + lines * size_of::<Line>();
            }
        }
        // SAFETY: as above; no other thread touches these elements, and `values` is not part of a tensor that is
        // written.
        unsafe { std::ptr::copy_nonoverlapping(from.add(done), to.add(done), bytes - done) };
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

#[cfg(test)]
mod tests {
    use super::{Shared, settle};
    use crate::kernels::isa::{Instructions, Isa, Token, Work, dispatch};

    struct Write<'a>(&'a Shared<'a>, i64, &'a [u16], bool);

    impl Work for Write<'_> {
        type Output = ();
        #[inline(always)]
        fn run<I: Instructions>(self) {
            self.0.write::<I, u16>(self.1, self.2, self.3);
        }
    }

    #[test]
    fn rows_of_every_length_and_alignment_are_written_and_nothing_else() {
        let values: Vec<u16> = (1..=200).collect();
        for token in Isa::ALL.into_iter().filter_map(Token::new) {
            for start in 0..70 {
                for length in [0, 1, 31, 32, 33, 64, 100, 200] {
                    let mut bytes = vec![0u16; 300];
                    let shared = Shared::write_only(bytemuck::cast_slice_mut(&mut bytes));
                    dispatch(token, Write(&shared, start, &values[..length], true));
                    settle();
                    let start = start as usize;
                    assert_eq!(bytes[start..start + length], values[..length]);
                    assert!(bytes[..start].iter().chain(&bytes[start + length..]).all(|&x| x == 0));
                }
            }
        }
    }

    #[test]
    fn a_row_that_would_leave_its_tensor_is_not_written() {
        for (start, length) in [(-1, 4), (298, 4), (301, 0), (i64::MAX, 1)] {
            let attempt = std::panic::catch_unwind(|| {
                let mut bytes = vec![0u16; 300];
                let shared = Shared::write_only(bytemuck::cast_slice_mut(&mut bytes));
                let token = Token::new(Isa::best()).expect("available");
                dispatch(token, Write(&shared, start, &[7; 4][..length], true));
            });
            assert!(attempt.is_err(), "{length} elements at {start}");
        }
    }
}
