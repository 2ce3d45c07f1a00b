//! Chains on processors with few registers: each operation goes through a piece of a row, from the first-level cache to it. What is a leaf, or
//! another register, is read where it is: no operation only copies, unless what it copies is not f32 yet.

use super::{Block, Do, Elements, LANES, MORE, With, chosen, gather, of};
use crate::kernels::codes;
use crate::kernels::fold::{Monoid, Partial};
use crate::kernels::wide::Wide;
use std::mem::MaybeUninit;

/// Elements of a piece. Layer norms of 4096 squared in f32 and bf16 and an RMS norm took 22.7, 26.5 and 14.2 ms with 256 of them, 21.0, 24.4 and 12.8 with 512
/// (least of 30 runs, one thread of a Zen 3).
const PIECE: usize = 512;
/// Elements that a turn of a loop is of.
const TURN: usize = 2 * LANES;
/// Vectors that a reduction goes on in.
const SIDE: usize = 4;
/// Places for pieces: while one is written, all registers and an operand that is not f32 may be read.
const PLACES: usize = MORE + 3;

/// What the other operand is over a piece.
#[derive(Clone, Copy)]
enum Other {
    Each(*const f32),
    Same(f32),
}

/// As many elements from a row's first on as whole turns take: so many are done. Reduced besides if a monoid tells how.
///
/// # Safety
/// The processor has the vectors; lengths were checked.
#[inline(always)]
pub(super) unsafe fn run<V: Wide>(
    block: &Block<'_>,
    count: usize,
    monoid: Option<Monoid>,
    partial: &mut Partial,
) -> usize {
    let super::Results { floats, codes } = block.to;
    let whole = count / TURN * TURN;
    let mut places = [const { MaybeUninit::<[V; PIECE / LANES]>::uninit() }; PLACES];
    let places = places.as_mut_ptr().cast::<f32>();
    // SAFETY: the caller's; pieces are in the row.
    unsafe {
        let mut all = [V::splat(monoid.map_or(0.0, Monoid::identity)); SIDE];
        let mut at = 0;
        while at < whole {
            let len = PIECE.min(whole - at);
            let x = block.piece::<V>(places, at, len);
            if !floats.is_null() {
                let to = floats.add(at);
                if !std::ptr::eq(to, x) {
                    for i in (0..len).step_by(LANES) {
                        V::load(x.add(i)).store(to.add(i));
                    }
                }
            } else if !codes.is_null() {
                for i in (0..len).step_by(TURN) {
                    let pair = [V::load(x.add(i)), V::load(x.add(i + LANES))];
                    V::store_bf16(pair, [u16::MAX; 2], codes.add(at + i));
                }
            }
            if let Some(monoid) = monoid {
                reduce(monoid, &mut all, x, len);
            }
            at += len;
        }
        if let Some(monoid) = monoid {
            gather(monoid, all, partial);
        }
    }
    whole
}

/// # Safety
/// The processor has the vectors; so many elements, whole turns.
#[inline(always)]
unsafe fn reduce<V: Wide>(monoid: Monoid, all: &mut [V; SIDE], x: *const f32, len: usize) {
    let mut some = *all;
    let mut i = 0;
    // SAFETY: the caller's.
    unsafe {
        while i + SIDE * LANES <= len {
            for (side, all) in some.iter_mut().enumerate() {
                *all = of(monoid, *all, V::load(x.add(i + side * LANES)));
            }
            i += SIDE * LANES;
        }
        while i < len {
            some[0] = of(monoid, some[0], V::load(x.add(i)));
            i += LANES;
        }
    }
    *all = some;
}

/// A place that no register is at but this one, which takes the result: that is at most at the place that it is made of.
#[inline(always)]
fn free(places: *mut f32, now: &[*const f32; 1 + MORE], d: usize) -> *mut f32 {
    let mut to = places;
    let mut number = 0;
    // More places than registers.
    while number <= MORE {
        if number != d && std::ptr::eq(now[number], to) {
            to = to.wrapping_add(PIECE);
            number = 0;
        } else {
            number += 1;
        }
    }
    to
}

impl Block<'_> {
    /// Where the results of so many elements are, from one on; they are where all results go, or at one of the places, or a leaf.
    ///
    /// # Safety
    /// As of [`run`]; there are [`PLACES`].
    #[inline(always)]
    unsafe fn piece<V: Wide>(&self, places: *mut f32, at: usize, len: usize) -> *const f32 {
        let widened = places.wrapping_add((PLACES - 1) * PIECE);
        // Where each register is now: it was written before it is read.
        let mut now = [std::ptr::null::<f32>(); 1 + MORE];
        let mut next = 0;
        while let Some(link) = self.next(&mut next) {
            let mut to = free(places, &now, link.d);
            // SAFETY: the caller's; what is written is no leaf but the row itself, in the end.
            unsafe {
                let copies = matches!(link.of, Do::Copy | Do::Shortcut { .. });
                let with = match link.with {
                    With::Leaf(number) => self.operand::<V>(number, at, len, if copies { to } else { widened }),
                    With::Register(number) => Other::Each(now[number + 1]),
                    With::Const(number) => Other::Same(number),
                };
                match with {
                    Other::Each(from) if copies => {
                        now[link.d] = from;
                        continue;
                    }
                    Other::Same(number) if copies => {
                        for i in (0..len).step_by(LANES) {
                            V::splat(number).store(to.add(i));
                        }
                    }
                    _ => {
                        if next >= self.links.len() && link.d == 0 && !self.to.floats.is_null() {
                            to = self.to.floats.wrapping_add(at);
                        }
                        self.pass::<V>(link.of, (to, now[link.d]), with, at, len);
                    }
                }
            }
            now[link.d] = to;
        }
        now[0]
    }

    /// Elements of a leaf, widened where told if they are not f32.
    ///
    /// # Safety
    /// As of [`run`].
    #[inline(always)]
    unsafe fn operand<V: Wide>(&self, leaf: usize, at: usize, len: usize, widened: *mut f32) -> Other {
        let (codes, half) = match self.leaves[leaf] {
            Elements::Own => return Other::Each(self.to.floats.wrapping_add(at)),
            Elements::Floats(from) => return Other::Each(from.as_ptr().wrapping_add(at)),
            Elements::Same(number) => return Other::Same(number),
            // No operand.
            Elements::Bits(_) => return Other::Same(0.0),
            Elements::Bf16(from) => (from.as_ptr(), false),
            Elements::F16(from) => (from.as_ptr(), true),
        };
        for i in (0..len).step_by(LANES) {
            let from = codes.wrapping_add(at + i);
            // SAFETY: the caller's.
            unsafe {
                let x = if half { V::load_f16(u16::MAX, from) } else { V::load_bf16(u16::MAX, from) };
                x.store(widened.add(i));
            }
        }
        Other::Each(widened)
    }

    /// One operation on a piece, from one place to another or the same.
    ///
    /// # Safety
    /// As of [`run`].
    #[inline(always)]
    unsafe fn pass<V: Wide>(&self, of: Do, (to, from): (*mut f32, *const f32), with: Other, at: usize, len: usize) {
        let (same, other) = match with {
            Other::Each(other) => (None, other),
            Other::Same(number) => (Some(number), std::ptr::null()),
        };
        // The loop over pairs of vectors, once for each kind of operand.
        macro_rules! pairs {
            ($y:ident, $w:ident => $of:expr) => {
                if let Some(number) = same {
                    let $w = [V::splat(number); 2];
                    for i in (0..len).step_by(TURN) {
                        let $y = [V::load(from.add(i)), V::load(from.add(i + LANES))];
                        let [first, second] = $of;
                        first.store(to.add(i));
                        second.store(to.add(i + LANES));
                    }
                } else {
                    for i in (0..len).step_by(TURN) {
                        let $y = [V::load(from.add(i)), V::load(from.add(i + LANES))];
                        let $w = [V::load(other.add(i)), V::load(other.add(i + LANES))];
                        let [first, second] = $of;
                        first.store(to.add(i));
                        second.store(to.add(i + LANES));
                    }
                }
            };
        }
        macro_rules! each {
            ($y:ident, $w:ident => $of:expr) => {
                pairs!(two, others => [
                    { let ($y, $w) = (two[0], others[0]); $of },
                    { let ($y, $w) = (two[1], others[1]); $of },
                ])
            };
        }
        // SAFETY: the caller's.
        unsafe {
            let Do::Select { mask, flipped } = of else { return operate!(of, same, each, pairs) };
            let Elements::Bits(bits) = self.leaves[mask] else { return };
            for i in (0..len).step_by(LANES) {
                let w = if let Some(number) = same { V::splat(number) } else { V::load(other.add(i)) };
                V::load(from.add(i)).or_elsewhere(chosen(bits, at + i, flipped), w).store(to.add(i));
            }
        }
    }
}
