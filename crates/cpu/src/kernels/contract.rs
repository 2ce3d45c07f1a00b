//! Contractions of tiles: `c[i, j] = acc[i, j] + Σ_k a[i, k] · b[k, j]`, with the columns of `b` and `c` adjacent in
//! memory and every other stride free. Blocks of `c` are held in registers; `b` is read a register at a time and `a`
//! is broadcast an element at a time, so that neither needs to be packed while it fits in the second-level cache.

use super::isa::{Isa, Token};
use super::lanes::{Lanes, Plus, Portable};

/// Elements that a contraction can be over.
pub(crate) trait Element: Plus + Send + Sync + 'static {
    /// Runs a checked contraction with the token's instructions.
    fn contract(token: Token, job: Contraction<'_, Self>);
    /// Runs a checked row-by-row contraction with the token's instructions.
    fn dots(token: Token, job: Dots<'_, Self>);
}

/// Where the result's initial value comes from.
#[derive(Clone, Copy)]
pub(crate) enum Start<'a, T> {
    /// Zero.
    Zero,
    /// What the result holds.
    Kept,
    /// Another matrix with this row stride.
    From(&'a [T], usize),
}

/// The operands of a contraction.
pub(crate) struct Contraction<'a, T> {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
    /// `a[i, k]` is at `i * a_i + k * a_k`.
    pub a: &'a [T],
    /// Stride.
    pub a_i: usize,
    /// Stride.
    pub a_k: usize,
    /// `b[k, j]` is at `k * b_k + j`.
    pub b: &'a [T],
    /// Stride.
    pub b_k: usize,
    /// `c[i, j]` is at `i * c_i + j`.
    pub c: &'a mut [T],
    /// Stride.
    pub c_i: usize,
    /// What is added.
    pub start: Start<'a, T>,
}

/// The operands of `c[i, j] = acc[i, j] + Σ_k a[i, k] · b[j, k]` with `k` adjacent in both factors: for results with
/// few rows, where transposing `b` would cost more than the sums.
pub(crate) struct Dots<'a, T> {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// Terms of each sum.
    pub k: usize,
    /// `a[i, k]` is at `i * a_i + k`.
    pub a: &'a [T],
    /// Stride.
    pub a_i: usize,
    /// `b[j, k]` is at `j * b_j + k`.
    pub b: &'a [T],
    /// Stride.
    pub b_j: usize,
    /// `c[i, j]` is at `i * c_i + j * c_j`.
    pub c: &'a mut [T],
    /// Stride.
    pub c_i: usize,
    /// Stride.
    pub c_j: usize,
    /// What is added; its strides are those of `c`.
    pub start: Start<'a, T>,
}

/// Length that a matrix with these lengths and strides needs.
fn extent(lengths: [usize; 2], strides: [usize; 2]) -> usize {
    match lengths {
        [0, _] | [_, 0] => 0,
        [m, n] => (m - 1) * strides[0] + (n - 1) * strides[1] + 1,
    }
}

impl<T: Element> Contraction<'_, T> {
    /// Runs it. The slices must hold the matrices, as tiles do; panics otherwise.
    pub(crate) fn run(self, token: Token) {
        assert!(self.a.len() >= extent([self.m, self.k], [self.a_i, self.a_k]), "a is too short");
        assert!(self.b.len() >= extent([self.k, self.n], [self.b_k, 1]), "b is too short");
        assert!(self.c.len() >= extent([self.m, self.n], [self.c_i, 1]), "c is too short");
        if let Start::From(acc, stride) = self.start {
            assert!(acc.len() >= extent([self.m, self.n], [stride, 1]), "acc is too short");
        }
        if self.m > 0 && self.n > 0 {
            T::contract(token, self);
        }
    }
}

impl<T: Element> Dots<'_, T> {
    /// Runs it. The slices must hold the matrices, as tiles do; panics otherwise.
    pub(crate) fn run(self, token: Token) {
        assert!(self.a.len() >= extent([self.m, self.k], [self.a_i, 1]), "a is too short");
        assert!(self.b.len() >= extent([self.n, self.k], [self.b_j, 1]), "b is too short");
        assert!(self.c.len() >= extent([self.m, self.n], [self.c_i, self.c_j]), "c is too short");
        if let Start::From(acc, _) = self.start {
            assert!(acc.len() >= extent([self.m, self.n], [self.c_i, self.c_j]), "acc is too short");
        }
        if self.m > 0 && self.n > 0 {
            T::dots(token, self);
        }
    }
}

macro_rules! element {
    ($element:ty, $avx512:ident, $avx2:ident) => {
        impl Element for $element {
            fn contract(token: Token, job: Contraction<'_, Self>) {
                #[cfg(target_arch = "x86_64")]
                {
                    use super::lanes::x86::{$avx2, $avx512};
                    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma")]
                    unsafe fn avx512(job: Contraction<'_, $element>) {
                        // SAFETY: the features above and the caller's checks.
                        unsafe { contract::<$avx512>(job) }
                    }
                    #[target_feature(enable = "avx2,fma")]
                    unsafe fn avx2(job: Contraction<'_, $element>) {
                        // SAFETY: as above.
                        unsafe { contract::<$avx2>(job) }
                    }
                    match token.isa() {
                        // SAFETY: the token proves the instructions; `Contraction::run` checked the slices.
                        Isa::Avx512 => return unsafe { avx512(job) },
                        // SAFETY: as above.
                        Isa::Avx2 => return unsafe { avx2(job) },
                        Isa::Portable => {}
                    }
                }
                let _ = token;
                // SAFETY: arrays need no special instructions; `Contraction::run` checked the slices.
                unsafe { contract::<Portable<$element>>(job) }
            }

            fn dots(token: Token, job: Dots<'_, Self>) {
                #[cfg(target_arch = "x86_64")]
                {
                    use super::lanes::x86::{$avx2, $avx512};
                    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma")]
                    unsafe fn avx512(job: Dots<'_, $element>) {
                        // SAFETY: the features above and the caller's checks.
                        unsafe { dots::<$avx512>(job) }
                    }
                    #[target_feature(enable = "avx2,fma")]
                    unsafe fn avx2(job: Dots<'_, $element>) {
                        // SAFETY: as above.
                        unsafe { dots::<$avx2>(job) }
                    }
                    match token.isa() {
                        // SAFETY: the token proves the instructions; `Dots::run` checked the slices.
                        Isa::Avx512 => return unsafe { avx512(job) },
                        // SAFETY: as above.
                        Isa::Avx2 => return unsafe { avx2(job) },
                        Isa::Portable => {}
                    }
                }
                let _ = token;
                // SAFETY: arrays need no special instructions; `Dots::run` checked the slices.
                unsafe { dots::<Portable<$element>>(job) }
            }
        }
    };
}

element!(f32, F32x16, F32x8);
element!(f64, F64x8, F64x4);
element!(i32, I32x16, I32x8);

/// Terms summed in registers before they are added to the result: keeps the part of `b` that is read again and again
/// in the first-level cache, and shortens the chains in which rounding errors grow.
const TERMS: usize = 128;

/// Raw operands of one block.
#[derive(Clone, Copy)]
struct Block<T> {
    k: usize,
    a: *const T,
    a_i: usize,
    a_k: usize,
    b: *const T,
    b_k: usize,
    acc: *const T,
    acc_i: usize,
    c: *mut T,
    c_i: usize,
    /// Columns in the last register.
    last: usize,
}

#[inline(always)]
unsafe fn contract<V: Lanes>(job: Contraction<'_, V::Element>) {
    let c = job.c.as_mut_ptr();
    let (mut acc, mut acc_i) = match job.start {
        Start::Zero => (std::ptr::null(), 0),
        Start::Kept => (c.cast_const(), job.c_i),
        Start::From(acc, stride) => (acc.as_ptr(), stride),
    };
    let mut k0 = 0;
    loop {
        let k = (job.k - k0).min(TERMS);
        let mut j = 0;
        while j < job.n {
            let registers = (job.n - j).div_ceil(V::LANES);
            let registers = if V::WIDE && registers >= 4 { 4 } else { registers.min(2) };
            let columns = (registers * V::LANES).min(job.n - j);
            let mut block = Block {
                k,
                a: job.a.as_ptr().wrapping_add(k0 * job.a_k),
                a_i: job.a_i,
                a_k: job.a_k,
                b: job.b.as_ptr().wrapping_add(k0 * job.b_k + j),
                b_k: job.b_k,
                acc: acc.wrapping_add(j),
                acc_i,
                c: c.wrapping_add(j),
                c_i: job.c_i,
                last: columns - (registers - 1) * V::LANES,
            };
            if acc.is_null() {
                block.acc = acc;
            }
            // SAFETY: rows 0..m of `columns` columns from `j` and terms `k0..k0 + k` lie in the checked slices.
            unsafe {
                match (registers, block.last == V::LANES) {
                    (4, true) => column::<V, 4, false>(job.m, block),
                    (4, false) => column::<V, 4, true>(job.m, block),
                    (2, true) => column::<V, 2, false>(job.m, block),
                    (2, false) => column::<V, 2, true>(job.m, block),
                    (_, true) => column::<V, 1, false>(job.m, block),
                    (_, false) => column::<V, 1, true>(job.m, block),
                }
            }
            j += columns;
        }
        k0 += k;
        if k0 >= job.k {
            return;
        }
        (acc, acc_i) = (c.cast_const(), job.c_i);
    }
}

/// All rows of `NR` registers of columns.
#[inline(always)]
unsafe fn column<V: Lanes, const NR: usize, const RAGGED: bool>(m: usize, mut block: Block<V::Element>) {
    let mut rows = m;
    // One block with MR rows, as often as it fits.
    macro_rules! rows_of {
        ($mr:literal) => {
            while rows >= $mr {
                // SAFETY: the caller's; `rows` rows are left.
                unsafe { registers::<V, $mr, NR, RAGGED>(block) };
                block.a = block.a.wrapping_add($mr * block.a_i);
                block.c = block.c.wrapping_add($mr * block.c_i);
                if !block.acc.is_null() {
                    block.acc = block.acc.wrapping_add($mr * block.acc_i);
                }
                rows -= $mr;
            }
        };
    }
    // 24 accumulators of 32 registers, or 12 of 16, leave room for `b` and the broadcast of `a`.
    match (V::WIDE, NR) {
        (true, 4) | (false, 2) => {
            rows_of!(6);
        }
        (true, _) => {
            rows_of!(12);
            rows_of!(8);
        }
        (false, _) => {
            rows_of!(8);
        }
    }
    rows_of!(4);
    rows_of!(2);
    rows_of!(1);
}

/// `MR` rows by `NR` registers, held in registers over all terms.
#[inline(always)]
unsafe fn registers<V: Lanes, const MR: usize, const NR: usize, const RAGGED: bool>(x: Block<V::Element>) {
    // SAFETY: the caller promises the instructions and that MR rows, the NR registers' columns (`last` in the last
    // one if RAGGED) and `k` terms exist.
    unsafe {
        let mut sums = [[V::splat(V::Element::default()); NR]; MR];
        let (mut a, mut b) = (x.a, x.b);
        for _ in 0..x.k {
            let mut right = [V::splat(V::Element::default()); NR];
            for (r, register) in right.iter_mut().enumerate() {
                let from = b.add(r * V::LANES);
                *register = if RAGGED && r == NR - 1 { V::load_first(from, x.last) } else { V::load(from) };
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let left = V::splat(*a.add(i * x.a_i));
                for r in 0..NR {
                    sums[r] = sums[r].fused(left, right[r]);
                }
            }
            a = a.wrapping_add(x.a_k);
            b = b.wrapping_add(x.b_k);
        }
        for (i, sums) in sums.iter().enumerate() {
            for (r, &sum) in sums.iter().enumerate() {
                let ragged = RAGGED && r == NR - 1;
                let mut sum = sum;
                if !x.acc.is_null() {
                    let from = x.acc.add(i * x.acc_i + r * V::LANES);
                    sum = sum.add(if ragged { V::load_first(from, x.last) } else { V::load(from) });
                }
                let to = x.c.add(i * x.c_i + r * V::LANES);
                if ragged {
                    sum.store_first(to, x.last);
                } else {
                    sum.store(to);
                }
            }
        }
    }
}

#[inline(always)]
unsafe fn dots<V: Lanes>(job: Dots<'_, V::Element>) {
    let c = job.c.as_mut_ptr();
    let acc = match job.start {
        Start::Zero => std::ptr::null(),
        Start::Kept => c.cast_const(),
        Start::From(acc, _) => acc.as_ptr(),
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
