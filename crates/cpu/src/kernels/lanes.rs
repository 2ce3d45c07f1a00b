//! Vectors of one instruction set behind one trait, so that the contraction kernels are written once.
//!
//! Every method is `unsafe` for one reason: the caller must run on a processor that has the instructions, inside a
//! function compiled for them (see [`super::isa`]). Methods that take pointers add the usual condition: the elements
//! they name exist.

use std::ops::{Add, Mul};

/// What registers hold.
pub(crate) trait Plus: Copy + Default {
    /// One.
    const ONE: Self;
    /// Minus one.
    const MINUS: Self;
    /// The sum; integers wrap.
    fn plus(self, other: Self) -> Self;
}

/// A register of elements.
pub(super) trait Lanes: Copy {
    /// The element.
    type Element: Plus;
    /// Elements per register.
    const LANES: usize;
    /// Whether there are 32 registers to hold accumulators (else 16).
    const WIDE: bool;
    /// Whether products are fast enough that counting terms one by one would take long beside them.
    const TURNS: bool = false;

    /// The same element everywhere.
    unsafe fn splat(x: Self::Element) -> Self;
    /// `LANES` elements.
    unsafe fn load(from: *const Self::Element) -> Self;
    /// The first `n <= LANES` elements, then zeros. Reads no others.
    unsafe fn load_first(from: *const Self::Element, n: usize) -> Self;
    /// Writes `LANES` elements.
    unsafe fn store(self, to: *mut Self::Element);
    /// Writes the first `n <= LANES` elements and no others.
    unsafe fn store_first(self, to: *mut Self::Element, n: usize);
    /// `self + a * b`.
    unsafe fn fused(self, a: Self, b: Self) -> Self;
    /// `self + a * b` where a lane is one element: unlike [`Lanes::fused`], for which it may be several.
    #[inline(always)]
    unsafe fn scaled(self, a: Self, b: Self) -> Self {
        // SAFETY: the caller's.
        unsafe { self.fused(a, b) }
    }
    /// Elementwise.
    unsafe fn add(self, other: Self) -> Self;
    /// Elementwise.
    unsafe fn mul(self, other: Self) -> Self;

    /// The sum of the elements.
    #[inline(always)]
    unsafe fn total(self) -> Self::Element {
        let mut parts = [Self::Element::default(); 16];
        // SAFETY: `LANES <= 16`, so that the array holds the register.
        unsafe { self.store(parts.as_mut_ptr()) };
        let mut width = Self::LANES;
        while width > 1 {
            width /= 2;
            for i in 0..width {
                parts[i] = parts[i].plus(parts[i + width]);
            }
        }
        parts[0]
    }
}

/// Registers of f32, with what reductions need besides.
pub(super) trait Floats: Lanes<Element = f32> {
    /// Elementwise; a NaN in either stays.
    unsafe fn larger(self, other: Self) -> Self;
    /// Elementwise; a NaN in either stays.
    unsafe fn smaller(self, other: Self) -> Self;

    /// The first `n <= LANES` elements, then `other`'s.
    #[inline(always)]
    unsafe fn load_first_or(from: *const f32, n: usize, other: f32) -> Self {
        let mut parts = [other; 16];
        for (i, part) in parts.iter_mut().enumerate().take(n) {
            // SAFETY: the caller promises `n` elements.
            *part = unsafe { *from.add(i) };
        }
        // SAFETY: `LANES <= 16`.
        unsafe { Self::load(parts.as_ptr()) }
    }
}

impl Floats for Portable<f32> {
    #[inline(always)]
    unsafe fn larger(self, other: Self) -> Self {
        let larger = |x: f32, y: f32| if x > y || x.is_nan() { x } else { y };
        Self(std::array::from_fn(|i| larger(self.0[i], other.0[i])))
    }
    #[inline(always)]
    unsafe fn smaller(self, other: Self) -> Self {
        let smaller = |x: f32, y: f32| if x < y || x.is_nan() { x } else { y };
        Self(std::array::from_fn(|i| smaller(self.0[i], other.0[i])))
    }
}

/// A register made of an array, for processors without a kernel of their own: the compiler vectorises it as it can.
#[derive(Clone, Copy)]
pub(super) struct Portable<T>(pub [T; 8]);

macro_rules! portable {
    ($element:ty, $fused:expr, $add:expr, $mul:expr) => {
        impl Plus for $element {
            const ONE: Self = 1 as $element;
            const MINUS: Self = -1 as $element;

            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                $add(self, other)
            }
        }

        impl Lanes for Portable<$element> {
            type Element = $element;
            const LANES: usize = 8;
            const WIDE: bool = false;

            #[inline(always)]
            unsafe fn splat(x: $element) -> Self {
                Self([x; 8])
            }
            #[inline(always)]
            unsafe fn load(from: *const $element) -> Self {
                // SAFETY: the caller promises 8 elements; the read needs no alignment beyond the element's.
                Self(unsafe { from.cast::<[$element; 8]>().read() })
            }
            #[inline(always)]
            unsafe fn load_first(from: *const $element, n: usize) -> Self {
                let mut x = [<$element>::default(); 8];
                for i in 0..n.min(8) {
                    // SAFETY: the caller promises `n` elements.
                    x[i] = unsafe { *from.add(i) };
                }
                Self(x)
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $element) {
                // SAFETY: as for `load`.
                unsafe { to.cast::<[$element; 8]>().write(self.0) }
            }
            #[inline(always)]
            unsafe fn store_first(self, to: *mut $element, n: usize) {
                for i in 0..n.min(8) {
                    // SAFETY: the caller promises `n` elements.
                    unsafe { *to.add(i) = self.0[i] };
                }
            }
            #[inline(always)]
            unsafe fn fused(self, a: Self, b: Self) -> Self {
                Self(std::array::from_fn(|i| $fused(self.0[i], a.0[i], b.0[i])))
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                Self(std::array::from_fn(|i| $add(self.0[i], other.0[i])))
            }
            #[inline(always)]
            unsafe fn mul(self, other: Self) -> Self {
                Self(std::array::from_fn(|i| $mul(self.0[i], other.0[i])))
            }
        }
    };
}

portable!(f32, |c: f32, a: f32, b: f32| c + a * b, f32::add, f32::mul);
portable!(f64, |c: f64, a: f64, b: f64| c + a * b, f64::add, f64::mul);
portable!(i32, |c: i32, a: i32, b: i32| c.wrapping_add(a.wrapping_mul(b)), i32::wrapping_add, i32::wrapping_mul);

#[cfg(target_arch = "x86_64")]
pub(super) mod x86 {
    use super::Lanes;
    use std::arch::x86_64::*;

    // The masked 256-bit moves take their mask from the sign bits of a vector: a window into this table.
    static MASK: [i32; 16] = [-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0];

    macro_rules! register {
        ($name:ident($vector:ty) of $element:ty; $lanes:literal, $wide:literal, $turns:literal;
         splat $splat:ident; load $load:ident; store $store:ident; add $add:ident; mul $mul:ident;
         fused |$c:ident, $a:ident, $b:ident| $fused:expr;
         first |$p:ident, $n:ident| $load_first:expr;
         store_first |$x:ident, $q:ident, $k:ident| $store_first:expr) => {
            /// A register.
            #[derive(Clone, Copy)]
            pub(in crate::kernels) struct $name(pub(in crate::kernels) $vector);

            // SAFETY of every body: the trait's contract, that the instructions exist and the pointers are good.
            #[allow(clippy::missing_transmute_annotations)]
            impl Lanes for $name {
                type Element = $element;
                const LANES: usize = $lanes;
                const WIDE: bool = $wide;
                const TURNS: bool = $turns;

                #[inline(always)]
                unsafe fn splat(x: $element) -> Self {
                    Self(unsafe { $splat(x) })
                }
                #[inline(always)]
                unsafe fn load(from: *const $element) -> Self {
                    Self(unsafe { $load(from.cast()) })
                }
                #[inline(always)]
                unsafe fn load_first($p: *const $element, $n: usize) -> Self {
                    Self(unsafe { $load_first })
                }
                #[inline(always)]
                unsafe fn store(self, to: *mut $element) {
                    unsafe { $store(to.cast(), self.0) }
                }
                #[inline(always)]
                unsafe fn store_first(self, $q: *mut $element, $k: usize) {
                    let $x = self.0;
                    unsafe { $store_first }
                }
                #[inline(always)]
                unsafe fn fused(self, a: Self, b: Self) -> Self {
                    let ($c, $a, $b) = (self.0, a.0, b.0);
                    Self(unsafe { $fused })
                }
                #[inline(always)]
                unsafe fn add(self, other: Self) -> Self {
                    Self(unsafe { $add(self.0, other.0) })
                }
                #[inline(always)]
                unsafe fn mul(self, other: Self) -> Self {
                    Self(unsafe { $mul(self.0, other.0) })
                }
            }
        };
    }

    register! { F32x16(__m512) of f32; 16, true, true;
        splat _mm512_set1_ps; load _mm512_loadu_ps; store _mm512_storeu_ps; add _mm512_add_ps; mul _mm512_mul_ps;
        fused |c, a, b| _mm512_fmadd_ps(a, b, c);
        first |p, n| _mm512_maskz_loadu_ps(first16(n), p);
        store_first |x, p, n| _mm512_mask_storeu_ps(p, first16(n), x)
    }
    register! { F64x8(__m512d) of f64; 8, true, false;
        splat _mm512_set1_pd; load _mm512_loadu_pd; store _mm512_storeu_pd; add _mm512_add_pd; mul _mm512_mul_pd;
        fused |c, a, b| _mm512_fmadd_pd(a, b, c);
        first |p, n| _mm512_maskz_loadu_pd(first16(n) as u8, p);
        store_first |x, p, n| _mm512_mask_storeu_pd(p, first16(n) as u8, x)
    }
    register! { I32x16(__m512i) of i32; 16, true, false;
        splat _mm512_set1_epi32; load _mm512_loadu_epi32; store store_i32x16; add _mm512_add_epi32; mul _mm512_mullo_epi32;
        fused |c, a, b| _mm512_add_epi32(c, _mm512_mullo_epi32(a, b));
        first |p, n| _mm512_maskz_loadu_epi32(first16(n), p);
        store_first |x, p, n| _mm512_mask_storeu_epi32(p, first16(n), x)
    }
    register! { F32x8(__m256) of f32; 8, false, true;
        splat _mm256_set1_ps; load _mm256_loadu_ps; store _mm256_storeu_ps; add _mm256_add_ps; mul _mm256_mul_ps;
        fused |c, a, b| _mm256_fmadd_ps(a, b, c);
        first |p, n| _mm256_maskload_ps(p, mask(n));
        store_first |x, p, n| _mm256_maskstore_ps(p, mask(n), x)
    }
    register! { F64x4(__m256d) of f64; 4, false, false;
        splat _mm256_set1_pd; load _mm256_loadu_pd; store _mm256_storeu_pd; add _mm256_add_pd; mul _mm256_mul_pd;
        fused |c, a, b| _mm256_fmadd_pd(a, b, c);
        first |p, n| _mm256_maskload_pd(p, wide_mask(n));
        store_first |x, p, n| _mm256_maskstore_pd(p, wide_mask(n), x)
    }
    register! { I32x8(__m256i) of i32; 8, false, false;
        splat _mm256_set1_epi32; load _mm256_loadu_si256; store _mm256_storeu_si256; add _mm256_add_epi32; mul _mm256_mullo_epi32;
        fused |c, a, b| _mm256_add_epi32(c, _mm256_mullo_epi32(a, b));
        first |p, n| _mm256_maskload_epi32(p, mask(n));
        store_first |x, p, n| _mm256_maskstore_epi32(p, mask(n), x)
    }

    // The instructions give their second operand if either is a NaN: what is left is a NaN in the first.
    // SAFETY of every body: the trait's contract.
    impl super::Floats for F32x16 {
        #[inline(always)]
        unsafe fn larger(self, other: Self) -> Self {
            unsafe {
                let number = _mm512_cmp_ps_mask::<_CMP_ORD_Q>(self.0, self.0);
                Self(_mm512_mask_max_ps(self.0, number, self.0, other.0))
            }
        }
        #[inline(always)]
        unsafe fn smaller(self, other: Self) -> Self {
            unsafe {
                let number = _mm512_cmp_ps_mask::<_CMP_ORD_Q>(self.0, self.0);
                Self(_mm512_mask_min_ps(self.0, number, self.0, other.0))
            }
        }
        #[inline(always)]
        unsafe fn load_first_or(from: *const f32, n: usize, other: f32) -> Self {
            Self(unsafe { _mm512_mask_loadu_ps(_mm512_set1_ps(other), first16(n), from) })
        }
    }

    impl super::Floats for F32x8 {
        #[inline(always)]
        unsafe fn larger(self, other: Self) -> Self {
            unsafe {
                let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, self.0);
                Self(_mm256_blendv_ps(_mm256_max_ps(self.0, other.0), self.0, nan))
            }
        }
        #[inline(always)]
        unsafe fn smaller(self, other: Self) -> Self {
            unsafe {
                let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, self.0);
                Self(_mm256_blendv_ps(_mm256_min_ps(self.0, other.0), self.0, nan))
            }
        }
    }

    fn first16(n: usize) -> u16 {
        (((1u32) << n.min(16)) - 1) as u16
    }

    #[inline(always)]
    unsafe fn store_i32x16(to: *mut i32, x: __m512i) {
        // SAFETY: the caller's.
        unsafe { _mm512_storeu_epi32(to, x) }
    }

    #[inline(always)]
    unsafe fn mask(n: usize) -> __m256i {
        // SAFETY: with `n <= 8` the eight entries from `8 - n` lie in the table.
        unsafe { _mm256_loadu_si256(MASK.as_ptr().add(8 - n.min(8)).cast()) }
    }

    #[inline(always)]
    unsafe fn wide_mask(n: usize) -> __m256i {
        // SAFETY: with `n <= 4` the four entries from `8 - n` lie in the table.
        unsafe { _mm256_cvtepi32_epi64(_mm_loadu_si128(MASK.as_ptr().add(8 - n.min(4)).cast())) }
    }
}
