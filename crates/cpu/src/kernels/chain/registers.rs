//! Chains whose operands and results stay in registers: as many vectors side by side as there are registers for.

use super::{Block, Do, Elements, LANES, MORE, With, chosen, gather, of};
use crate::kernels::codes;
use crate::kernels::fold::{Monoid, Partial};
use crate::kernels::wide::Wide;
use std::ops::Range;

/// Elements of a row, reduced besides if a monoid tells how.
///
/// # Safety
/// The processor has the vectors; lengths were checked.
#[inline(always)]
pub(super) unsafe fn run<V: Wide, const SIDE: usize>(
    block: &Block<'_>,
    elements: Range<usize>,
    monoid: Option<Monoid>,
    partial: &mut Partial,
) {
    let super::Results { floats, codes } = block.to;
    let identity = monoid.map_or(0.0, Monoid::identity);
    // SAFETY: the caller's; masks have a bit for each element that is there.
    unsafe {
        let none = V::splat(identity);
        let mut all = [none; SIDE];
        let mut more = [[none; SIDE]; MORE];
        let mut at = elements.start;
        while at < elements.end {
            let left = elements.end - at;
            let full = left >= SIDE * LANES;
            let mut x = if full {
                block.all::<V, SIDE, true>(at, left, &mut more)
            } else {
                block.all::<V, SIDE, false>(at, left, &mut more)
            };
            if full {
                for i in 0..SIDE {
                    if !floats.is_null() {
                        x[i].store(floats.add(at + LANES * i));
                    } else if !codes.is_null() && i % 2 == 0 {
                        V::store_bf16([x[i], x[i + 1]], [u16::MAX; 2], codes.add(at + LANES * i));
                    }
                }
            } else {
                for i in 0..SIDE {
                    let (mask, to) = (there(left, i), at + LANES * i);
                    if !floats.is_null() {
                        x[i].store_where(mask, floats.wrapping_add(to));
                    } else if !codes.is_null() && i % 2 == 0 {
                        V::store_bf16([x[i], x[i + 1]], [mask, there(left, i + 1)], codes.wrapping_add(to));
                    }
                }
                for (i, x) in x.iter_mut().enumerate() {
                    *x = x.or_elsewhere(there(left, i), none);
                }
            }
            if let Some(monoid) = monoid {
                for i in 0..SIDE {
                    all[i] = of(monoid, all[i], x[i]);
                }
            }
            at += SIDE * LANES;
        }
        if let Some(monoid) = monoid {
            gather(monoid, all, partial);
        }
    }
}

/// A bit for each lane of a vector of which there is an element, if so many are left.
#[inline(always)]
fn there(left: usize, vector: usize) -> u16 {
    ((1u32 << left.saturating_sub(LANES * vector).min(LANES)) - 1) as u16
}

impl Block<'_> {
    /// The results of some vectors, from an element on, all of them there if `FULL`; `more` is room for the other registers, each of which
    /// is written before it is read.
    ///
    /// # Safety
    /// As of [`run`].
    #[inline(always)]
    unsafe fn all<V: Wide, const SIDE: usize, const FULL: bool>(
        &self,
        at: usize,
        left: usize,
        more: &mut [[V; SIDE]; MORE],
    ) -> [V; SIDE] {
        // SAFETY: the caller's.
        unsafe {
            let mut x = [V::splat(0.0); SIDE];
            let mut next = 0;
            while let Some(link) = self.next(&mut next) {
                let mut w = [V::splat(0.0); SIDE];
                let mut same = None;
                match link.with {
                    With::Leaf(number) => same = self.load::<V, SIDE, FULL>(&mut w, number, at, left),
                    With::Register(number) => w = more[number],
                    With::Const(y) => same = Some(y),
                }
                if let Some(number) = same {
                    w = [V::splat(number); SIDE];
                }
                let mut y = if link.d == 0 { x } else { more[link.d - 1] };
                self.act(link.of, &mut y, w, same, at);
                if link.d == 0 {
                    x = y;
                } else {
                    more[link.d - 1] = y;
                }
            }
            x
        }
    }

    /// One operation on some vectors; `same` tells what all elements of the other operand are, if that is known.
    ///
    /// # Safety
    /// As of [`run`].
    #[inline(always)]
    unsafe fn act<V: Wide, const SIDE: usize>(
        &self,
        of: Do,
        y: &mut [V; SIDE],
        w: [V; SIDE],
        same: Option<f32>,
        at: usize,
    ) {
        macro_rules! each {
            ($y:ident, $w:ident => $of:expr) => {
                for i in 0..SIDE {
                    let ($y, $w) = (y[i], w[i]);
                    y[i] = $of;
                }
            };
        }
        macro_rules! pairs {
            ($y:ident, $w:ident => $of:expr) => {
                for i in 0..SIDE / 2 {
                    let ($y, $w) = ([y[2 * i], y[2 * i + 1]], [w[2 * i], w[2 * i + 1]]);
                    [y[2 * i], y[2 * i + 1]] = $of;
                }
            };
        }
        // SAFETY: the caller's.
        unsafe {
            match of {
                Do::Copy | Do::Shortcut { .. } => *y = w,
                Do::Select { mask, flipped } => {
                    let Elements::Bits(bits) = self.leaves[mask] else { return };
                    for (i, y) in y.iter_mut().enumerate() {
                        *y = y.or_elsewhere(chosen(bits, at + LANES * i, flipped), w[i]);
                    }
                }
                _ => operate!(of, same, each, pairs),
            }
        }
    }

    /// Elements of a leaf; if all are the same number, only that.
    ///
    /// # Safety
    /// As of [`run`].
    #[inline(always)]
    unsafe fn load<V: Wide, const SIDE: usize, const FULL: bool>(
        &self,
        w: &mut [V; SIDE],
        leaf: usize,
        at: usize,
        left: usize,
    ) -> Option<f32> {
        let mask = |i: usize| if FULL { u16::MAX } else { there(left, i) };
        // SAFETY: the caller's.
        unsafe {
            match self.leaves[leaf] {
                Elements::Own => load::<V, SIDE, FULL>(w, self.to.floats.wrapping_add(at), left),
                Elements::Floats(from) => load::<V, SIDE, FULL>(w, from.as_ptr().wrapping_add(at), left),
                Elements::Bf16(from) => {
                    for (i, w) in w.iter_mut().enumerate() {
                        *w = V::load_bf16(mask(i), from.as_ptr().wrapping_add(at + LANES * i));
                    }
                }
                Elements::F16(from) => {
                    for (i, w) in w.iter_mut().enumerate() {
                        *w = V::load_f16(mask(i), from.as_ptr().wrapping_add(at + LANES * i));
                    }
                }
                Elements::Same(number) => return Some(number),
                // No operand.
                Elements::Bits(_) => {}
            }
        }
        None
    }
}

/// # Safety
/// As of [`run`].
#[inline(always)]
unsafe fn load<V: Wide, const SIDE: usize, const FULL: bool>(x: &mut [V; SIDE], from: *const f32, left: usize) {
    for (i, x) in x.iter_mut().enumerate() {
        let from = from.wrapping_add(LANES * i);
        // SAFETY: the caller's.
        *x = unsafe { if FULL { V::load(from) } else { V::load_where(there(left, i), from) } };
    }
}
