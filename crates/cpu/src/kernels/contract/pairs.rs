//! Products of bf16 by instructions that multiply pairs and add to f32 (AVX512-BF16). Both factors are packed first: the
//! two terms of a pair beside each other in 32 bits, which travel as an f32 that nobody reads as a number.
//!
//! The instructions take subnormal operands and results for 0, and round a pair's sum as they please: results differ from
//! those of widened factors by that much (Intel 64 and IA-32 Architectures Software Developer's Manual, `VDPBF16PS`).

use super::Contraction;
use crate::kernels::isa::{Instructions, Isa, Token, Work, dispatch};

/// The proof that the processor has the instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PairToken(Token);

impl PairToken {
    /// `None` if the processor lacks them, or the token is for fewer instructions.
    pub(crate) fn new(token: Token) -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        let has = std::arch::is_x86_feature_detected!("avx512bf16");
        #[cfg(not(target_arch = "x86_64"))]
        let has = false;
        (has && token.isa() == Isa::Avx512).then_some(Self(token))
    }
}

impl Contraction<'_, '_, f32> {
    /// Runs it on packed factors: `k` counts pairs. The slices must hold the matrices; panics otherwise.
    pub(crate) fn run_pairs(self, token: PairToken) {
        self.check();
        let _ = token;
        #[cfg(target_arch = "x86_64")]
        {
            use super::blocks::contract;
            use crate::kernels::lanes::x86::Pairs;
            #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx512bf16,avx2,fma")]
            unsafe fn pairs(job: Contraction<'_, '_, f32>) {
                // SAFETY: the features above and the caller's checks.
                unsafe { contract::<Pairs>(job) }
            }
            if self.m > 0 && self.n > 0 {
                // SAFETY: the token proves the instructions; the slices were checked.
                unsafe { pairs(self) };
            }
        }
    }
}

/// Which way the terms of a factor lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Terms {
    /// A row's elements are terms.
    Adjacent,
    /// Each row is a term.
    Rows,
}

/// A factor of bf16 in f32, to be packed.
pub(crate) struct Pack<'a> {
    pub from: &'a [f32],
    pub rows: usize,
    pub columns: usize,
    /// Elements from row to row.
    pub pitch: usize,
    pub terms: Terms,
    /// Where the pairs go: as many rows and columns, but half as many of that which are terms, rounded up.
    pub to: &'a mut [f32],
    /// Elements from row to row of `to`.
    pub to_pitch: usize,
}

impl Pack<'_> {
    pub(crate) fn run(self, token: Token) {
        dispatch(token, self);
    }
}

/// Two bf16 as the halves of 32 bits, the first one low.
#[inline(always)]
fn pair(first: f32, second: f32) -> f32 {
    f32::from_bits(first.to_bits() >> 16 | second.to_bits() & 0xffff_0000)
}

impl Work for Pack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<I: Instructions>(self) {
        let Self { from, rows, columns, pitch, terms, to, to_pitch } = self;
        match terms {
            Terms::Adjacent => {
                for r in 0..rows {
                    let (from, to) = (&from[r * pitch..][..columns], &mut to[r * to_pitch..][..columns.div_ceil(2)]);
                    let (pairs, rest) = from.as_chunks::<2>();
                    to.iter_mut().zip(pairs).for_each(|(to, &[x, y])| *to = pair(x, y));
                    if let [last] = *rest {
                        to[pairs.len()] = pair(last, 0.0);
                    }
                }
            }
            Terms::Rows => {
                for r in (0..rows).step_by(2) {
                    let to = &mut to[r / 2 * to_pitch..][..columns];
                    let first = &from[r * pitch..][..columns];
                    if r + 1 < rows {
                        let second = &from[(r + 1) * pitch..][..columns];
                        to.iter_mut().zip(first).zip(second).for_each(|((to, &x), &y)| *to = pair(x, y));
                    } else {
                        to.iter_mut().zip(first).for_each(|(to, &x)| *to = pair(x, 0.0));
                    }
                }
            }
        }
    }
}
