//! Squares beside each other whose sums lie in the result itself: nothing is decided between them.

use super::finish::{LEAST, MOST, NOTHING, reduce};
use crate::kernels::fold::{Monoid, Partial};
use crate::kernels::memory::Asked;
use crate::kernels::unit::{Engaged, Square};

/// Whole squares of the same rows.
pub(super) struct Squares<'a> {
    /// The first one.
    pub first: Square,
    pub count: usize,
    /// Bytes from one's right factor to the next one's, and from its sums to the next one's.
    pub steps: [usize; 2],
    /// Into which the sums of all but the last one are reduced; null if they are not.
    pub fold: *mut Partial,
    /// What is asked for meanwhile, and how many lines beside each.
    pub asked: (&'a mut Asked, usize),
}

impl Squares<'_> {
    /// Multiplies factors of so many parts. The sums of the last square are not reduced: they cannot be read before they
    /// are in the cache, while something else can be done.
    ///
    /// # Safety
    /// As of [`Square::multiply`], for each of them; there are partial results of the rows.
    pub(super) unsafe fn multiply(self, engaged: &Engaged, parts: [usize; 2], monoid: Monoid) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the caller's; who has engaged the unit has the instructions.
        unsafe {
            match (monoid, parts) {
                _ if self.fold.is_null() => self.run::<NOTHING>(engaged, parts),
                (Monoid::Min, _) => self.run::<LEAST>(engaged, parts),
                _ => self.run::<MOST>(engaged, parts),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (engaged, parts, monoid);
    }

    /// # Safety
    /// As of [`Squares::multiply`].
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    unsafe fn run<const FOLD: u8>(self, engaged: &Engaged, parts: [usize; 2]) {
        let Self { first: mut square, count, steps: [right, sums], fold, asked: (asked, lines) } = self;
        let mut before = std::ptr::null::<f32>();
        for _ in 0..count {
            asked.some(lines);
            // SAFETY: the caller's.
            unsafe {
                square.multiply(engaged, parts);
                if FOLD != NOTHING && !before.is_null() {
                    reduce::<FOLD>(before, square.c_bytes / size_of::<f32>(), fold);
                }
            }
            before = square.c.cast();
            square.b = square.b.map(|b| b.wrapping_add(right));
            square.c = square.c.wrapping_add(sums);
        }
    }
}
