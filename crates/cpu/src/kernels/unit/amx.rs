//! The processor's matrix unit (Intel AMX): eight registers of 16 rows of 64 bytes, which an instruction multiplies as
//! matrices. A process must ask the operating system for them; what one thread is granted, all have. (Intel 64 and IA-32
//! Architectures Software Developer's Manual, volume 1, chapter 18; Linux, `Documentation/arch/x86/xstate.rst`.)

#[cfg(target_arch = "x86_64")]
use super::{Beside, SIDE, Square, TILE, products};

/// Asks for the tiles. The processor must have AVX-512, so that it tells its features and states.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
pub(super) fn granted() -> bool {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid, __cpuid_count};
    /// Bits of leaf 7's EDX.
    const BF16_AND_TILES: u32 = 1 << 22 | 1 << 24;
    /// Bits of XCR0: the configuration and the registers.
    const STATES: u32 = 0b11 << 17;
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
    const XFEATURE_XTILEDATA: i64 = 18;

    if __cpuid(0).eax < 7 || __cpuid_count(7, 0).edx & BF16_AND_TILES != BF16_AND_TILES {
        return false;
    }
    let states: u32;
    // SAFETY: reads a register that every processor with AVX has enabled.
    unsafe { asm!("xgetbv", in("ecx") 0, out("eax") states, out("edx") _, options(nomem, nostack, preserves_flags)) };
    if states & STATES != STATES {
        return false;
    }
    let answer: i64;
    // SAFETY: asks for a permission and changes no memory; the instruction overwrites the two registers named.
    unsafe {
        asm!("syscall", inlateout("rax") ARCH_PRCTL => answer, in("rdi") ARCH_REQ_XCOMP_PERM, in("rsi") XFEATURE_XTILEDATA,
            out("rcx") _, out("r11") _, options(nostack));
    }
    answer == 0
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
pub(super) fn granted() -> bool {
    false
}

/// Makes all of this thread's registers 16 rows of 64 bytes.
///
/// # Safety
/// The unit is there and granted.
pub(super) unsafe fn engage() {
    #[cfg(target_arch = "x86_64")]
    {
        #[repr(C, align(64))]
        struct Configuration {
            palette: u8,
            start_row: u8,
            reserved: [u8; 14],
            bytes: [u16; 16],
            rows: [u8; 16],
        }
        static ALL: Configuration = Configuration {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            bytes: [64, 64, 64, 64, 64, 64, 64, 64, 0, 0, 0, 0, 0, 0, 0, 0],
            rows: [16, 16, 16, 16, 16, 16, 16, 16, 0, 0, 0, 0, 0, 0, 0, 0],
        };
        // SAFETY: the caller's; the configuration is a valid one.
        unsafe { std::arch::asm!("ldtilecfg [{0}]", in(reg) &raw const ALL, options(readonly, nostack)) };
    }
}

/// Gives them back.
///
/// # Safety
/// The unit is there and granted.
pub(super) unsafe fn release() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's.
    unsafe {
        std::arch::asm!("tilerelease", options(nostack));
    }
}

/// Blocks of terms of one product after which some sums are stored, although they will be stored again: where the unit has
/// multiplied for some 2000 cycles without a store, the next one holds it up for another 700 (measured).
const BLOCKS: usize = 16;

/// Products of the parts `i` of the left factor and `j` of the right one. Only the factor that is another than before is
/// loaded: the unit multiplies about as fast as it loads.
#[cfg(target_arch = "x86_64")]
macro_rules! step {
    (both $i:literal $j:literal) => {
        concat!(
            step!(@left 4 "a0" $i), step!(@right 6 "b0" $j), "tdpbf16ps tmm0, tmm4, tmm6\n",
            step!(@right 7 "b1" $j), "tdpbf16ps tmm1, tmm4, tmm7\n",
            step!(@left 5 "a1" $i), "tdpbf16ps tmm2, tmm5, tmm6\n", "tdpbf16ps tmm3, tmm5, tmm7\n",
        )
    };
    (left $i:literal $j:literal) => {
        concat!(
            step!(@left 4 "a0" $i), "tdpbf16ps tmm0, tmm4, tmm6\n", "tdpbf16ps tmm1, tmm4, tmm7\n",
            step!(@left 5 "a1" $i), "tdpbf16ps tmm2, tmm5, tmm6\n", "tdpbf16ps tmm3, tmm5, tmm7\n",
        )
    };
    (right $i:literal $j:literal) => {
        concat!(
            step!(@right 6 "b0" $j), "tdpbf16ps tmm0, tmm4, tmm6\n", "tdpbf16ps tmm2, tmm5, tmm6\n",
            step!(@right 7 "b1" $j), "tdpbf16ps tmm1, tmm4, tmm7\n", "tdpbf16ps tmm3, tmm5, tmm7\n",
        )
    };
    (@left $to:literal $from:literal $part:literal) => {
        concat!("tileloadd tmm", $to, ", [{", $from, "} + {s} + ", $part, "*1024]\n")
    };
    (@right $to:literal $from:literal $part:literal) => {
        step!(@left $to $from $part)
    };
}

#[cfg(target_arch = "x86_64")]
macro_rules! square {
    ($square:ident, $left:literal, $right:literal: $($change:ident $i:literal $j:literal),+) => {{
        let Square { a, b, blocks, c, c_bytes, kept } = $square;
        const BETWEEN: usize = BLOCKS.div_ceil(products([$left, $right])).next_power_of_two();
        std::arch::asm!(
            "test {k}, {k}",
            "jz 3f",
            "tileloadd tmm0, [{c0} + {p}]",
            "tileloadd tmm1, [{c0} + {p} + 64]",
            "tileloadd tmm2, [{c1} + {p}]",
            "tileloadd tmm3, [{c1} + {p} + 64]",
            "jmp 2f",
            "3:",
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "2:",
            $(step!($change $i $j),)+
            concat!("add {a0}, ", $left, "*1024"),
            concat!("add {a1}, ", $left, "*1024"),
            concat!("add {b0}, ", $right, "*1024"),
            concat!("add {b1}, ", $right, "*1024"),
            "dec {n}",
            "jz 4f",
            "test {n}, {often}",
            "jnz 2b",
            "tilestored [{c0} + {p}], tmm0",
            "jmp 2b",
            "4:",
            "tilestored [{c0} + {p}], tmm0",
            "tilestored [{c0} + {p} + 64], tmm1",
            "tilestored [{c1} + {p}], tmm2",
            "tilestored [{c1} + {p} + 64], tmm3",
            a0 = inout(reg) a[0] => _, a1 = inout(reg) a[1] => _,
            b0 = inout(reg) b[0] => _, b1 = inout(reg) b[1] => _,
            n = inout(reg) blocks => _,
            s = in(reg) 64usize, k = in(reg) usize::from(kept), often = const BETWEEN - 1,
            c0 = in(reg) c, c1 = in(reg) c.wrapping_add(SIDE * c_bytes), p = in(reg) c_bytes,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }};
}

/// The same, with something else to do after every product.
#[cfg(target_arch = "x86_64")]
macro_rules! square_beside {
    ($square:ident, $beside:ident, $left:literal, $right:literal: $($change:ident $i:literal $j:literal),+) => {{
        let Square { a: [mut a0, mut a1], b: [mut b0, mut b1], blocks, c, c_bytes, kept } = $square;
        let c1 = c.wrapping_add(SIDE * c_bytes);
        if kept {
            square_beside!(@sums [c c1 c_bytes]
                "tileloadd tmm0, [{c0} + {p}]", "tileloadd tmm1, [{c0} + {p} + 64]",
                "tileloadd tmm2, [{c1} + {p}]", "tileloadd tmm3, [{c1} + {p} + 64]");
        } else {
            square_beside!(@sums [c c1 c_bytes]
                "tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", "/* {c0} {c1} {p} */");
        }
        for _ in 0..blocks {
            $(square_beside!(@$change [a0 a1 b0 b1 $beside] $i $j);)+
            [a0, a1] = [a0, a1].map(|a| a.wrapping_add($left * TILE));
            [b0, b1] = [b0, b1].map(|b| b.wrapping_add($right * TILE));
        }
        square_beside!(@sums [c c1 c_bytes]
            "tilestored [{c0} + {p}], tmm0", "tilestored [{c0} + {p} + 64], tmm1",
            "tilestored [{c1} + {p}], tmm2", "tilestored [{c1} + {p} + 64], tmm3");
    }};
    (@sums [$c:ident $c1:ident $p:ident] $($line:literal),+) => {
        std::arch::asm!(
            $($line,)+
            c0 = in(reg) $c, c1 = in(reg) $c1, p = in(reg) $p,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            options(nostack),
        )
    };
    (@both $at:tt $i:literal $j:literal) => {
        square_beside!(@one $at step!(@left 4 "a0" $i), step!(@right 6 "b0" $j), "tdpbf16ps tmm0, tmm4, tmm6");
        square_beside!(@one $at step!(@right 7 "b1" $j), "tdpbf16ps tmm1, tmm4, tmm7");
        square_beside!(@one $at step!(@left 5 "a1" $i), "tdpbf16ps tmm2, tmm5, tmm6");
        square_beside!(@one $at "tdpbf16ps tmm3, tmm5, tmm7");
    };
    (@left $at:tt $i:literal $j:literal) => {
        square_beside!(@one $at step!(@left 4 "a0" $i), "tdpbf16ps tmm0, tmm4, tmm6");
        square_beside!(@one $at "tdpbf16ps tmm1, tmm4, tmm7");
        square_beside!(@one $at step!(@left 5 "a1" $i), "tdpbf16ps tmm2, tmm5, tmm6");
        square_beside!(@one $at "tdpbf16ps tmm3, tmm5, tmm7");
    };
    (@right $at:tt $i:literal $j:literal) => {
        square_beside!(@one $at step!(@right 6 "b0" $j), "tdpbf16ps tmm0, tmm4, tmm6");
        square_beside!(@one $at "tdpbf16ps tmm2, tmm5, tmm6");
        square_beside!(@one $at step!(@right 7 "b1" $j), "tdpbf16ps tmm1, tmm4, tmm7");
        square_beside!(@one $at "tdpbf16ps tmm3, tmm5, tmm7");
    };
    (@one [$a0:ident $a1:ident $b0:ident $b1:ident $beside:ident] $($line:expr),+) => {
        std::arch::asm!(
            $($line,)+
            // Not every product loads all of them.
            "/* {a0} {a1} {b0} {b1} {s} */",
            a0 = in(reg) $a0, a1 = in(reg) $a1, b0 = in(reg) $b0, b1 = in(reg) $b1, s = in(reg) 64usize,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
        $beside.some();
    };
}

/// See [`Square::multiply`].
///
/// # Safety
/// Likewise; the tiles are engaged.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(super) unsafe fn multiply(square: Square, parts: [usize; 2]) {
    // SAFETY: the caller's.
    unsafe {
        match parts {
            [1, 1] => square!(square, 1, 1: both 0 0),
            [1, 2] => square!(square, 1, 2: both 0 1, right 0 0),
            [1, _] => square!(square, 1, 3: both 0 2, right 0 1, right 0 0),
            [2, 1] => square!(square, 2, 1: both 1 0, left 0 0),
            [2, 2] => square!(square, 2, 2: both 1 1, left 0 1, right 0 0, left 1 0),
            [2, _] => square!(square, 2, 3: both 0 2, right 0 1, left 1 1, right 1 0, left 0 0),
            [_, 1] => square!(square, 3, 1: both 2 0, left 1 0, left 0 0),
            [_, 2] => square!(square, 3, 2: both 2 0, left 1 0, right 1 1, left 0 1, right 0 0),
            [_, _] => square!(square, 3, 3: both 2 0, left 1 0, right 1 1, left 0 1, right 0 2, right 0 0),
        }
    }
}

/// See [`Square::multiply_beside`].
///
/// # Safety
/// Likewise; the tiles are engaged.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
pub(super) unsafe fn multiply_beside<const LEFT: usize, B: Beside>(square: Square, right: usize, beside: &mut B) {
    // SAFETY: the caller's.
    unsafe {
        match (LEFT, right) {
            (2, 1) => square_beside!(square, beside, 2, 1: both 1 0, left 0 0),
            (2, 2) => square_beside!(square, beside, 2, 2: both 1 1, left 0 1, right 0 0, left 1 0),
            (2, _) => {
                square_beside!(square, beside, 2, 3: both 0 2, right 0 1, left 1 1, right 1 0, left 0 0);
            }
            (_, 1) => square_beside!(square, beside, 3, 1: both 2 0, left 1 0, left 0 0),
            (_, 2) => {
                square_beside!(square, beside, 3, 2: both 2 0, left 1 0, right 1 1, left 0 1, right 0 0);
            }
            (_, _) => {
                square_beside!(square, beside, 3, 3: both 2 0, left 1 0, right 1 1, left 0 1, right 0 2, right 0 0);
            }
        }
    }
}

/// See [`super::sum_lanes`].
///
/// # Safety
/// Likewise; the tiles are engaged.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn sum_lanes(a: [*const u8; 2], blocks: usize, sums: *mut f32) {
    /// In the `i`th row, of pairs of terms, ones in the `i`th column.
    #[repr(C, align(64))]
    struct Ones([[u16; 2 * SIDE]; SIDE]);
    static ONES: Ones = {
        let mut ones = [[0; 2 * SIDE]; SIDE];
        let mut i = 0;
        while i < SIDE {
            (ones[i][2 * i], ones[i][2 * i + 1]) = (0x3f80, 0x3f80);
            i += 1;
        }
        Ones(ones)
    };
    // SAFETY: the caller's.
    unsafe {
        std::arch::asm!(
            "tileloadd tmm6, [{ones} + {s}]",
            "tileloadd tmm0, [{c} + {s}]",
            "tileloadd tmm1, [{c} + {s} + 1024]",
            "2:",
            "tileloadd tmm4, [{a0} + {s}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{a1} + {s}]",
            "tdpbf16ps tmm1, tmm5, tmm6",
            "add {a0}, 1024",
            "add {a1}, 1024",
            "dec {n}",
            "jnz 2b",
            "tilestored [{c} + {s}], tmm0",
            "tilestored [{c} + {s} + 1024], tmm1",
            a0 = inout(reg) a[0] => _, a1 = inout(reg) a[1] => _, n = inout(reg) blocks => _,
            s = in(reg) 64usize, c = in(reg) sums, ones = in(reg) &raw const ONES,
            out("tmm0") _, out("tmm1") _, out("tmm4") _, out("tmm5") _, out("tmm6") _,
            options(nostack),
        );
    }
}
