//! Contractions by the processor's matrix unit whose left factor, of several parts, is made meanwhile: it is never in memory
//! as a whole, and the unit multiplies some of its rows while the next ones are computed.

use super::finish::{Factor, Finish};
use super::rescale::{by_rows, rescale};
use super::tiles::{Room, SQUARE, grown};
use super::{Contraction, Elements, Layout, PackRight, Packed, Start};
#[cfg(target_arch = "x86_64")]
use crate::kernels::exp::Lines;
use crate::kernels::exp::{ROWS, Strips};
use crate::kernels::fold::Monoid;
use crate::kernels::isa::dispatch;
use crate::kernels::memory::Line;
use crate::kernels::unit::{Engaged, SIDE, Square, TERMS, TILE, products};

impl Contraction<'_, '_, f32> {
    /// Runs it on a left factor of exponentials; `a` is not looked at. The right factor is packed or lies in rows, and the
    /// slices must hold the matrices; panics otherwise.
    pub(crate) fn run_made(self, made: &mut Strips<'_>, engaged: &Engaged, parts: [usize; 2], room: &mut Room) {
        const { assert!(ROWS == SQUARE) };
        self.check_with(usize::MAX);
        made.check();
        #[cfg(target_arch = "x86_64")]
        // SAFETY: who has engaged the unit has these instructions.
        unsafe {
            match parts[0] {
                2 => self.run_made_of::<2>(made, engaged, parts[1], room),
                _ => self.run_made_of::<3>(made, engaged, parts[1], room),
            }
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("nobody has engaged a matrix unit");
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,fma,f16c,bmi1,bmi2,lzcnt")]
    fn run_made_of<const LEFT: usize>(self, made: &mut Strips<'_>, engaged: &Engaged, right: usize, room: &mut Room) {
        let parts = [LEFT, right];
        let Self { m, n, k, b, b_layout, c, c_i, start, scale, times, ahead, .. } = self;
        assert!(made.less.len() == m && made.columns == k && n > 0, "a left factor of other lengths");
        let Room { left, right: packed_right, sums } = room;
        let (packed, b): (Packed, &[f32]) = match b_layout {
            Layout::Packed(packed) => (packed, b),
            Layout::Rows(pitch) => {
                let to = grown(packed_right, Packed::new(right as u8).lines(k, n));
                let pack =
                    PackRight { from: Elements::F32(b), pitch, terms: k, columns: n, parts: right, to: &mut *to };
                (dispatch(engaged.token(), pack), bytemuck::cast_slice(to))
            }
            Layout::Panels(_) => unreachable!("a right factor in panels"),
        };
        assert!(usize::from(packed.parts) == right, "a right factor of other parts");
        let lines = made.len(parts[0]) * size_of::<f32>() / size_of::<Line>();
        let (mut here, mut there) = grown(left, 2 * lines)[..2 * lines].split_at_mut(lines);
        let sums = grown(sums, 2 * SQUARE * SQUARE * size_of::<f32>() / size_of::<Line>()).as_mut_ptr().cast::<f32>();
        let b_bytes = k.div_ceil(TERMS) * usize::from(packed.parts) * TILE;
        // SAFETY: who has engaged the unit has a processor that rounds to bf16; `made` is borrowed until the end.
        let (mut range, mut some) = unsafe {
            let mut first = Lines::<LEFT>::begin(made, 0, bytemuck::cast_slice_mut(here), 1);
            (first.rest(), first.blocks())
        };
        let mut rows_of_b = None;
        let mut base = c.as_mut_ptr();
        let mut pending: Option<Finish> = None;
        let mut turn = 0;
        for i in (0..m).step_by(SQUARE) {
            let rows = SQUARE.min(m - i);
            let last = i + SQUARE >= m;
            let to = bytemuck::cast_slice_mut(there);
            // Terms of which these rows have none are left out.
            let [skipped, blocks] = some;
            let turns = n.div_ceil(SQUARE) * blocks * products(parts) * 4;
            let mut next = (!last).then(|| Lines::<LEFT>::begin(made, i + SQUARE, to, turns));
            let good = range.multiplies(packed.range);
            let kept = by_rows(start, scale);
            let plain = rows == SQUARE && times.is_none() && (kept || matches!(start, Start::Zero));
            if good && plain && kept {
                // SAFETY: the checks found the result to hold them.
                unsafe { rescale(base.wrapping_add(i * c_i), c_i, i..i + rows, 0..n / SQUARE * SQUARE, scale) };
            }
            let a0 = here.as_ptr().cast::<u8>();
            let a1 = if rows > SIDE { a0.wrapping_add(blocks * parts[0] * TILE) } else { a0 };
            for j in (0..if good { n } else { 0 }).step_by(SQUARE) {
                let columns = SQUARE.min(n - j);
                let b0 = b.as_ptr().cast::<u8>().wrapping_add(j / SIDE * b_bytes);
                let b0 = b0.wrapping_add(skipped * usize::from(packed.parts) * TILE);
                let b1 = if columns > SIDE { b0.wrapping_add(b_bytes) } else { b0 };
                let to = base.wrapping_add(i * c_i + j);
                let sums = sums.wrapping_add(turn * SQUARE * SQUARE);
                let straight = plain && columns == SQUARE;
                let (sums_to, pitch) = if straight { (to, c_i) } else { (sums, SQUARE) };
                let (c, c_bytes) = (sums_to.cast(), pitch * size_of::<f32>());
                let square = Square { a: [a0, a1], b: [b0, b1], blocks, c, c_bytes, kept: straight && kept };
                // SAFETY: the factors were packed for these rows, columns and terms, and the sums have room for a square, or
                // the result has, which the checks found to hold it. Of what is made as above.
                unsafe {
                    match &mut next {
                        Some(next) => square.multiply_beside::<LEFT, _>(engaged, right, next),
                        None => square.multiply(engaged, parts),
                    }
                };
                if straight {
                    continue;
                }
                let (acc, acc_i) = match start {
                    Start::Zero => (std::ptr::null(), 0),
                    Start::Kept => (to.cast_const(), c_i),
                    Start::From(acc, stride) => (acc[i * stride + j..].as_ptr(), stride),
                    Start::Sides(_) => unreachable!("only multiply-adds of f32 add them"),
                };
                let factor = Factor::at(scale, [i, j]);
                let (sums, times, fold) = (sums.cast_const(), times.unwrap_or(1.0), std::ptr::null_mut());
                let to = Some(to);
                let live = None;
                let finish =
                    Finish { sums, pitch, rows, columns, to, to_i: c_i, acc, acc_i, factor, times, fold, live };
                turn ^= 1;
                if let Some(before) = pending.replace(finish) {
                    // SAFETY: the instructions as above; the checks found the rows and columns to be there.
                    unsafe { before.finish(Monoid::Sum) };
                }
            }
            if let Some(before) = pending.take_if(|_| last || !good) {
                // SAFETY: as above.
                unsafe { before.finish(Monoid::Sum) };
            }
            if !good {
                let b = rows_of_b.get_or_insert_with(|| super::parts::unpack(packed, b, k, n));
                let rest = Contraction {
                    m: rows,
                    n,
                    k,
                    a: &made.plain(i),
                    a_i: k,
                    a_k: 1,
                    b,
                    b_layout: Layout::Rows(n),
                    c: &mut c[i * c_i..],
                    c_i,
                    start: start.below(i),
                    scale: scale.below(i),
                    times,
                    ahead: &mut *ahead,
                    packed: None,
                };
                rest.run(engaged.token());
                base = c.as_mut_ptr();
            }
            if let Some(next) = &mut next {
                // SAFETY: as above.
                (range, some) = unsafe { (next.rest(), next.blocks()) };
                std::mem::swap(&mut here, &mut there);
            }
        }
    }
}
