//! Blocks of the result in registers: as many rows and columns at a time as there are registers for, over all terms of a
//! part that the caches hold.

use super::ahead::{Passing, Units};
use super::sides::Sides;
use super::{Contraction, Layout, Masks, Scale, Start};
use crate::kernels::lanes::Lanes;
use crate::kernels::memory::{at_hand, soon};
use std::ops::Range;

/// Terms summed in registers before they are added to the result: keeps the part of `b` that is read again and again
/// in the caches near by, and shortens the chains in which rounding errors grow.
pub(super) const DEPTH: usize = 256;
/// Rows after which numbers of rows and columns are added to what was stored: a multiple of those of all blocks.
const NEAR: usize = 96;
/// Elements of four bytes in a line of the caches.
const UNIT: usize = 16;
/// Terms between two units that are copied in passing.
pub(super) const TURN: usize = 4;

/// Raw operands of one block.
#[derive(Clone, Copy)]
struct Block<T: Copy> {
    k: usize,
    a: *const T,
    /// Elements of `a` from row to row and from term to term.
    a_i: usize,
    a_k: usize,
    b: *const T,
    b_k: usize,
    acc: *const T,
    acc_i: usize,
    /// Factors of what is added: one per row, this far apart, or one per column if that is `None`. Null if there are
    /// none.
    scale: *const T,
    scale_i: Option<usize>,
    /// What the block is multiplied by in the end.
    times: Option<T>,
    /// What is added is no part of that: then all terms are of one part.
    apart: bool,
    c: *mut T,
    c_i: usize,
    /// Columns in the last register.
    last: usize,
    /// The panel that will be multiplied next, or something near, and how many of its lines are asked for in passing.
    next: *const T,
    lines: usize,
    /// What the next block adds, and comes from elsewhere: asked for in passing. Null if there is nothing.
    added: *const T,
    /// What is copied in passing, where something is adjacent in `a`; null if nothing is.
    units: *const Units,
}

/// # Safety
/// The processor has `V`'s instructions, and the job's slices hold its matrices.
#[inline(always)]
pub(super) unsafe fn contract<V: Lanes, const SIDED: bool>(
    (job, masks): (Contraction<'_, '_, V::Element>, Masks<'_>),
    add_sides: unsafe fn(Sides<V::Element>),
) {
    let apart = matches!(job.scale, Scale::Apart);
    let c = job.c.as_mut_ptr();
    let (mut acc, mut acc_i) = match job.start {
        Start::Zero => (std::ptr::null(), 0),
        Start::Kept => (c.cast_const(), job.c_i),
        Start::From(acc, stride) => (acc.as_ptr(), stride),
        Start::Sides(_) => {
            assert!(SIDED, "only products of f32 have sides");
            (std::ptr::null(), 0)
        }
    };
    let wide = V::LANES * if V::WIDE { 4 } else { 2 };
    let mut passing = Passing::new(job.ahead, job.m.div_ceil(6) * job.n.div_ceil(wide) * job.k.div_ceil(DEPTH));
    let b_k = match job.b_layout {
        Layout::Rows(pitch) => pitch,
        Layout::Panels(panel) => panel,
        Layout::Packed(_) => unreachable!("only the matrix unit multiplies what is packed for it"),
    };
    let same;
    let (mut scale, mut scale_i) = match job.scale {
        Scale::One | Scale::Apart => (std::ptr::null(), None),
        Scale::Same(x) => {
            same = x;
            (std::ptr::from_ref(&same), Some(0))
        }
        Scale::Rows(rows) => (rows.as_ptr(), Some(1)),
        Scale::Columns(columns) => (columns.as_ptr(), None),
    };
    let mut k0 = 0;
    loop {
        let k = (job.k - k0).min(DEPTH);
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
                // No register's columns lie in two panels.
                b: job.b.as_ptr().wrapping_add(job.b_layout.at(job.k, k0, j)),
                b_k,
                acc: if acc.is_null() { acc } else { acc.wrapping_add(j) },
                acc_i,
                scale: if scale.is_null() || scale_i.is_some() { scale } else { scale.wrapping_add(j) },
                scale_i,
                times: job.times.filter(|_| k0 + k == job.k),
                apart,
                c: c.wrapping_add(j),
                c_i: job.c_i,
                last: columns - (registers - 1) * V::LANES,
                next: std::ptr::null(),
                lines: 0,
                added: std::ptr::null(),
                units: std::ptr::null(),
            };
            block.next = block.b;
            if let Layout::Panels(panel) = job.b_layout {
                let next = if j + columns < job.n {
                    Some(job.b.as_ptr().wrapping_add(job.b_layout.at(job.k, k0, j + panel)))
                } else {
                    passing.panels().map(std::ptr::without_provenance)
                };
                if let Some(next) = next {
                    (block.next, block.lines) = (next, k * (panel / UNIT));
                }
            }
            let elsewhere = matches!(job.start, Start::From(..)) && k0 == 0;
            let beside = if elsewhere { acc.wrapping_add((j + columns) % job.n) } else { std::ptr::null() };
            let at = Place { row: 0, m: job.m, columns: j..j + columns, terms: k0..k0 + k, masks, beside };
            // SAFETY: rows 0..m of `columns` columns from `j` and terms `k0..k0 + k` lie in the checked slices.
            unsafe {
                if !SIDED {
                    columns_of::<V>((registers, at), block, &mut passing);
                } else {
                    for row in (0..job.m).step_by(NEAR) {
                        let m = NEAR.min(job.m - row);
                        let at = Place { row, m, columns: j..j + columns, terms: k0..k0 + k, ..at };
                        columns_of::<V>((registers, at), block, &mut passing);
                        if let Start::Sides(sides) = &job.start
                            && k0 + k == job.k
                        {
                            add_sides(Sides::new(sides, [row, j], (block.c, job.c_i), [m, columns]));
                        }
                        (block.next, block.lines) = (block.b, 0);
                        block.a = block.a.wrapping_add(m * job.a_i);
                        block.c = block.c.wrapping_add(m * job.c_i);
                        if !block.acc.is_null() {
                            block.acc = block.acc.wrapping_add(m * block.acc_i);
                        }
                    }
                }
            }
            j += columns;
        }
        k0 += k;
        if k0 >= job.k {
            return;
        }
        (acc, acc_i) = (c.cast_const(), job.c_i);
        (scale, scale_i) = (std::ptr::null(), None);
    }
}

/// Which rows, columns and terms blocks are of, and what of these is left out.
struct Place<'a, T> {
    row: usize,
    m: usize,
    columns: Range<usize>,
    terms: Range<usize>,
    masks: Masks<'a>,
    /// What the first block of the columns beside these adds, if it comes from elsewhere; null otherwise.
    beside: *const T,
}

/// All rows of columns that so many registers hold.
#[inline(always)]
unsafe fn columns_of<V: Lanes>(
    (registers, place): (usize, Place<'_, V::Element>),
    block: Block<V::Element>,
    passing: &mut Passing<'_, '_>,
) {
    // SAFETY: the caller's.
    unsafe {
        match (registers, block.last == V::LANES) {
            (4, true) => column::<V, 4, false>(place, block, passing),
            (4, false) => column::<V, 4, true>(place, block, passing),
            (2, true) => column::<V, 2, false>(place, block, passing),
            (2, false) => column::<V, 2, true>(place, block, passing),
            (_, true) => column::<V, 1, false>(place, block, passing),
            (_, false) => column::<V, 1, true>(place, block, passing),
        }
    }
}

/// All rows of `NR` registers of columns.
#[inline(always)]
unsafe fn column<V: Lanes, const NR: usize, const RAGGED: bool>(
    place: Place<'_, V::Element>,
    mut block: Block<V::Element>,
    passing: &mut Passing<'_, '_>,
) {
    let Place { row, m, columns, terms, masks, beside } = place;
    let masked = masks.left.is_some() || masks.result.is_some();
    let mut rows = m;
    // Lines of the next panel that no block has asked for; each asks for one a turn.
    let mut lines = block.lines;
    // One block with MR rows, as often as it fits.
    macro_rules! rows_of {
        ($mr:literal) => {
            while rows >= $mr {
                // The shapes in which nearly all work is done have loops of their own; for every shape they would be a
                // lot of code.
                let often = V::TURNS
                    && !RAGGED
                    && match (V::WIDE, NR) {
                        (true, 4) | (false, 2) => $mr == 6 || $mr == 4,
                        (true, 2) => $mr == 12 || $mr == 8,
                        _ => false,
                    };
                let first = m - rows;
                let some = if masked {
                    masks.of(row + first..row + first + $mr, columns.clone(), terms.clone())
                } else {
                    Some(terms.clone())
                };
                if let Some(some) = some {
                    let from = some.start - terms.start;
                    let mut here = block;
                    here.k = some.len();
                    here.a = block.a.wrapping_add(from * block.a_k);
                    here.b = block.b.wrapping_add(from * block.b_k);
                    // Whether there is something to do in passing, or it does not matter.
                    let mut busy = V::WIDE || lines > 0;
                    if often {
                        if !beside.is_null() {
                            let below = block.acc.wrapping_add($mr * block.acc_i);
                            here.added = if rows > $mr { below } else { beside };
                        }
                        here.units = passing.block(here.k);
                        if lines == 0 {
                            let asks = passing.asks(here.k / TURN);
                            busy |= asks.is_some();
                            here.next = asks.map_or(block.b, std::ptr::without_provenance);
                        }
                        busy |= !here.added.is_null() || !here.units.is_null();
                    }
                    // SAFETY: the caller's; `rows` rows are left.
                    unsafe {
                        match (often && block.a_i == 1, often && block.a_k == 1, busy) {
                            (true, _, true) => registers::<V, $mr, NR, RAGGED, ROWS, true>(here),
                            (true, _, false) => registers::<V, $mr, NR, RAGGED, ROWS, false>(here),
                            (_, true, true) => registers::<V, $mr, NR, RAGGED, TERMS, true>(here),
                            (_, true, false) => registers::<V, $mr, NR, RAGGED, TERMS, false>(here),
                            _ => registers::<V, $mr, NR, RAGGED, NEITHER, false>(here),
                        }
                    }
                    let asked = (here.k / TURN).min(lines);
                    lines -= asked;
                    block.next = if lines > 0 { block.next.wrapping_add(asked * UNIT) } else { block.b };
                }
                block.a = block.a.wrapping_add($mr * block.a_i);
                block.c = block.c.wrapping_add($mr * block.c_i);
                if !block.acc.is_null() {
                    block.acc = block.acc.wrapping_add($mr * block.acc_i);
                }
                if let Some(step) = block.scale_i {
                    block.scale = block.scale.wrapping_add($mr * step);
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

/// What is known to be adjacent in `a`.
const NEITHER: u8 = 0;
const ROWS: u8 = 1;
const TERMS: u8 = 2;

/// `MR` rows by `NR` registers, held in registers over all terms; `BUSY` if something may be copied or asked for in passing. A loop that need not
/// look for that each turn is some twentieth faster (least of 27 runs on a Zen 3: 512³ 3.64 and 3.51 ms, 1024³ 29.8 and 28.3), with AVX-512 no more than
/// runs differ.
#[inline(always)]
unsafe fn registers<
    V: Lanes,
    const MR: usize,
    const NR: usize,
    const RAGGED: bool,
    const ADJACENT: u8,
    const BUSY: bool,
>(
    x: Block<V::Element>,
) {
    // SAFETY: the caller promises the instructions and that MR rows, the NR registers' columns (`last` in the last
    // one if RAGGED) and `k` terms exist.
    unsafe {
        let mut sums = [[V::splat(V::Element::default()); NR]; MR];
        // Few pointers change from term to term: what adds to them competes with the multiplications for ports.
        let mut starts = [x.a; MR];
        for (i, start) in starts.iter_mut().enumerate() {
            *start = x.a.wrapping_add(i * x.a_i);
            if ADJACENT == TERMS {
                *start = independent(*start);
            }
        }
        let (mut a, mut b) = (x.a, x.b);
        let mut at = 0;
        macro_rules! term {
            ($turn:expr) => {
                let mut left = starts;
                for i in 0..MR {
                    left[i] = match ADJACENT {
                        ROWS => a.wrapping_add($turn * x.a_k + i),
                        TERMS => left[i].wrapping_add(at + $turn),
                        _ => a.wrapping_add(i * x.a_i),
                    };
                }
                term::<V, MR, NR, RAGGED>(&mut sums, left, b.wrapping_add($turn * x.b_k), x.last);
            };
        }
        // Four terms a turn: the loop's own counting then costs little, and short sums end where the processor
        // expects it.
        while ADJACENT != NEITHER && at + TURN <= x.k {
            if BUSY {
                if !x.units.is_null() {
                    Units::pass(x.units, at / TURN);
                }
                soon(x.next.wrapping_add(at / TURN * UNIT));
                // A core waits for few lines at a time, for those of its factors too: half a row a turn.
                let ask = if V::WIDE && NR == 4 { 2 } else { 1 };
                if !x.added.is_null() && at / TURN < ask * MR {
                    let (row, first) = (at / TURN / ask, at / TURN % ask * (NR / ask));
                    (first..first + NR / ask).for_each(|r| at_hand(x.added.wrapping_add(row * x.acc_i + r * V::LANES)));
                }
            }
            term!(0);
            term!(1);
            term!(2);
            term!(3);
            at += TURN;
            a = a.wrapping_add(4 * x.a_k);
            b = b.wrapping_add(4 * x.b_k);
        }
        while at < x.k {
            term!(0);
            at += 1;
            a = a.wrapping_add(x.a_k);
            b = b.wrapping_add(x.b_k);
        }
        // One small loop after the other: each is unrolled, so that the sums stay in registers.
        macro_rules! begin {
            ($i:ident, $r:ident, $sum:ident, $start:ident => $begun:expr) => {
                for ($i, sums) in sums.iter_mut().enumerate() {
                    for ($r, $sum) in sums.iter_mut().enumerate() {
                        let $start = columns!($r, x.acc.wrapping_add($i * x.acc_i + $r * V::LANES));
                        *$sum = $begun;
                    }
                }
            };
        }
        macro_rules! columns {
            ($r:ident, $from:expr) => {
                if RAGGED && $r == NR - 1 { V::load_first($from, x.last) } else { V::load($from) }
            };
        }
        let first = !x.acc.is_null() && !x.apart;
        match (first, x.scale.is_null(), x.scale_i) {
            (false, ..) => {}
            (true, true, _) => begin!(i, r, sum, start => sum.add(start)),
            (_, _, Some(step)) => begin!(i, r, sum, start => sum.scaled(start, V::splat(*x.scale.add(i * step)))),
            (_, _, None) => begin!(i, r, sum, start => {
                sum.scaled(start, columns!(r, x.scale.wrapping_add(r * V::LANES)))
            }),
        }
        if let Some(times) = x.times {
            let times = V::splat(times);
            for sums in &mut sums {
                for sum in sums {
                    *sum = sum.mul(times);
                }
            }
        }
        if x.apart && !x.acc.is_null() {
            begin!(i, r, sum, start => sum.add(start));
        }
        for (i, sums) in sums.iter().enumerate() {
            for (r, &sum) in sums.iter().enumerate() {
                let to = x.c.wrapping_add(i * x.c_i + r * V::LANES);
                if RAGGED && r == NR - 1 {
                    sum.store_first(to, x.last);
                } else {
                    sum.store(to);
                }
            }
        }
    }
}

/// Adds one term to every sum.
#[inline(always)]
unsafe fn term<V: Lanes, const MR: usize, const NR: usize, const RAGGED: bool>(
    sums: &mut [[V; NR]; MR],
    left: [*const V::Element; MR],
    right: *const V::Element,
    last: usize,
) {
    // SAFETY: the caller promises the instructions, an element in each row of `left`, and NR registers from `right`
    // on (`last` elements in the last one if RAGGED).
    unsafe {
        let mut registers = [V::splat(V::Element::default()); NR];
        for (r, register) in registers.iter_mut().enumerate() {
            let from = right.add(r * V::LANES);
            *register = if RAGGED && r == NR - 1 { V::load_first(from, last) } else { V::load(from) };
        }
        for (sums, left) in sums.iter_mut().zip(left) {
            let left = V::splat(*left);
            for (sum, register) in sums.iter_mut().zip(registers) {
                *sum = sum.fused(left, register);
            }
        }
    }
}

/// The same pointer. The compiler no longer knows how it was computed, and keeps it in a register of its own.
#[inline(always)]
fn independent<T>(p: *const T) -> *const T {
    #[cfg(target_arch = "x86_64")]
    {
        let mut p = p;
        // SAFETY: no instruction at all.
        unsafe { std::arch::asm!("/* {0} */", inout(reg) p, options(pure, readonly, nostack, preserves_flags)) };
        p
    }
    #[cfg(not(target_arch = "x86_64"))]
    p
}

#[cfg(test)]
pub(super) mod tests {
    use super::DEPTH;
    use crate::kernels::contract::{Ahead, Contraction, Layout, Scale, Start};
    use crate::kernels::isa::{Isa, Token};

    /// Numbers of no order, between -2 and 2.
    pub(in super::super) fn numbers(count: usize, step: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * step + i / 7) % 61) as f32 / 16.0 - 2.0).collect()
    }

    /// A quarter of a product of `m` by `k` and `k` by `n` elements, and of what it starts from unless that is told to be apart.
    pub(in super::super) fn quarter(
        token: Token,
        [m, n, k]: [usize; 3],
        [a, b]: [&[f32]; 2],
        (start, scale): (Start<'_, f32>, Scale<'_, f32>),
    ) -> Vec<f32> {
        let (mut c, mut ahead) = (vec![f32::NAN; m * n], Ahead::default());
        let job = Contraction {
            m,
            n,
            k,
            a,
            a_i: k,
            a_k: 1,
            b,
            b_layout: Layout::Rows(n),
            c: &mut c,
            c_i: n,
            start,
            scale,
            times: Some(0.25),
            ahead: &mut ahead,
            packed: None,
        };
        job.run(token);
        c
    }

    /// Sums go on from what was stored, which is not scaled again.
    #[test]
    fn what_is_added_is_scaled_once_however_many_terms_there_are() {
        let (m, n) = (15, 70);
        let (rows, columns) = (numbers(m, 5), numbers(n, 11));
        for k in [3, DEPTH, 2 * DEPTH + 41] {
            let (a, b, acc) = (numbers(m * k, 37), numbers(k * n, 23), numbers(m * n, 17));
            for token in Isa::ALL.into_iter().filter_map(Token::new) {
                for (which, scale) in
                    [Scale::One, Scale::Apart, Scale::Same(0.5), Scale::Rows(&rows), Scale::Columns(&columns)]
                        .into_iter()
                        .enumerate()
                {
                    let c = quarter(token, [m, n, k], [&a, &b], (Start::From(&acc, n), scale));
                    for (at, &got) in c.iter().enumerate() {
                        let (i, j) = (at / n, at % n);
                        let sum: f64 = (0..k).map(|t| f64::from(a[i * k + t]) * f64::from(b[t * n + j])).sum();
                        let by = [1.0, 4.0, 0.5, f64::from(rows[i]), f64::from(columns[j])][which];
                        let want = (sum + by * f64::from(acc[at])) * 0.25;
                        assert!((f64::from(got) - want).abs() < 1e-3, "{k} terms, scale {which}: {got} for {want}");
                    }
                }
            }
        }
    }
}
