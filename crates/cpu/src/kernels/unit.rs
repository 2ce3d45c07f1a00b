//! What multiplies packed squares of bf16: the processor's matrix unit (Intel AMX), or, where there is none, instructions
//! that multiply pairs and add to f32 (AVX512-BF16). Factors are packed the same way for both.
//!
//! Both take subnormal operands and results for 0, and round the sum of a pair's products as they please: results differ
//! from those of widened factors by that much (Intel 64 and IA-32 Architectures Software Developer's Manual, `TDPBF16PS`,
//! `VDPBF16PS`).

mod amx;
#[cfg(target_arch = "x86_64")]
mod dots;

use super::isa::{Isa, Token};
use std::marker::PhantomData;
use std::sync::OnceLock;

/// How squares are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// By the matrix unit.
    Tiles,
    /// By instructions that multiply pairs.
    Pairs,
}

/// The proof that the processor multiplies bf16 this way, rounds to it and looks up bytes (AVX512-BF16, AVX512-VBMI), and that
/// this process may use the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UnitToken {
    token: Token,
    way: Way,
}

impl UnitToken {
    /// `None` if the processor lacks the instructions, the operating system does not grant the unit, or the token is for
    /// fewer instructions.
    pub(crate) fn new(token: Token, way: Way) -> Option<Self> {
        static GRANTED: OnceLock<bool> = OnceLock::new();
        let there = token.isa() == Isa::Avx512
            && rounds()
            && match way {
                Way::Tiles => *GRANTED.get_or_init(amx::granted),
                Way::Pairs => true,
            };
        there.then_some(Self { token, way })
    }

    /// Every way that there is.
    pub(crate) fn all(token: Token) -> impl Iterator<Item = Self> {
        [Way::Tiles, Way::Pairs].into_iter().filter_map(move |way| Self::new(token, way))
    }

    /// The instructions besides.
    #[cfg(test)]
    pub(crate) fn token(self) -> Token {
        self.token
    }

    pub(crate) fn way(self) -> Way {
        self.way
    }
}

/// What tests run with.
#[cfg(test)]
pub(crate) fn units() -> impl Iterator<Item = UnitToken> {
    Token::new(Isa::Avx512).into_iter().flat_map(UnitToken::all)
}

/// What multiplies bf16 also rounds to it and looks up bytes in tables; operands are packed by that.
fn rounds() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx512bf16") && std::arch::is_x86_feature_detected!("avx512vbmi");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// This thread's registers of the unit while they are in use. Given back when dropped, so that the operating system need not
/// save them.
pub(crate) struct Engaged(UnitToken, PhantomData<*const ()>);

impl Engaged {
    pub(crate) fn new(token: UnitToken) -> Self {
        if token.way == Way::Tiles {
            // SAFETY: the token proves that the unit is there.
            unsafe { amx::engage() };
        }
        Self(token, PhantomData)
    }

    /// The instructions besides.
    pub(crate) fn token(&self) -> Token {
        self.0.token
    }
}

impl Drop for Engaged {
    fn drop(&mut self) {
        if self.0.way == Way::Tiles {
            // SAFETY: made with a token, so that the unit is there; nothing is in the registers that is still needed.
            unsafe { amx::release() };
        }
    }
}

/// Terms of a tile's rows: pairs of bf16 in the right factor's columns, elements of the left factor's rows.
pub(crate) const TERMS: usize = 32;
/// Rows of a tile, and columns of the right factor and of the result.
pub(crate) const SIDE: usize = 16;
/// Bytes of a tile.
pub(crate) const TILE: usize = 1024;

/// Two tiles below each other times two beside each other.
#[derive(Clone, Copy)]
pub(crate) struct Square {
    /// The left factor's two rows of tiles: so many parts of one block of terms after the other. The same twice, if nobody
    /// reads the sums of the second one's.
    pub a: [*const u8; 2],
    /// The right factor's two columns of tiles, likewise.
    pub b: [*const u8; 2],
    /// Blocks of terms, at least one.
    pub blocks: usize,
    /// Where 32 rows of 32 sums go, so many bytes apart.
    pub c: *mut u8,
    pub c_bytes: usize,
    /// Whether the sums go on from what is there.
    pub kept: bool,
}

/// What is done between products.
pub(crate) trait Beside {
    /// Does some of it, without the matrix unit.
    ///
    /// # Safety
    /// The processor has AVX-512.
    unsafe fn some(&mut self);
}

impl Square {
    /// Multiplies factors of so many parts: all parts by all, but those whose product is less than the rounding of the
    /// product of the first two.
    ///
    /// # Safety
    /// `a` and `b` hold the tiles, and `c` is writable; `parts` are 1 to 3.
    #[inline(always)]
    pub(crate) unsafe fn multiply(self, engaged: &Engaged, parts: [usize; 2]) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the unit is engaged, so that its instructions are there; the caller promises the memory.
        unsafe {
            match engaged.0.way {
                Way::Tiles => amx::multiply(self, parts),
                Way::Pairs => dots::multiply(self, parts),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (engaged, parts);
    }

    /// The same, of a left factor of 2 or 3 parts, and does something else after every product, if the unit multiplies
    /// meanwhile. Its registers keep what they hold: nothing but these functions names them.
    ///
    /// # Safety
    /// As of [`Square::multiply`]; the processor has AVX-512.
    #[cfg(target_arch = "x86_64")]
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    pub(crate) unsafe fn multiply_beside<const LEFT: usize, B: Beside>(
        self,
        engaged: &Engaged,
        right: usize,
        beside: &mut B,
    ) {
        // SAFETY: as above.
        unsafe {
            match engaged.0.way {
                Way::Tiles => amx::multiply_beside::<LEFT, B>(self, right, beside),
                Way::Pairs => dots::multiply(self, [LEFT, right]),
            }
        }
    }
}

/// Adds so many blocks of terms of two rows of tiles, of one part, to 32 rows of 16 sums: terms `2 i` and `2 i + 1` of each
/// block to the `i`th.
///
/// # Safety
/// The tiles and the sums are there.
pub(crate) unsafe fn sum_lanes(engaged: &Engaged, a: [*const u8; 2], blocks: usize, sums: *mut f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the unit is engaged, so that its instructions are there; the caller promises the memory.
    unsafe {
        match engaged.0.way {
            Way::Tiles => amx::sum_lanes(a, blocks, sums),
            Way::Pairs => dots::sum_lanes(a, blocks, sums),
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (engaged, a, blocks, sums);
}

/// How many products of parts a product takes: those that matter.
pub(crate) const fn products([left, right]: [usize; 2]) -> usize {
    let (mut all, mut i) = (0, 0);
    while i < left {
        all += if right < 3 - i { right } else { 3 - i };
        i += 1;
    }
    all
}
