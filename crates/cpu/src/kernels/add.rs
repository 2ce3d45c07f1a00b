//! Rows of sums that are multiplied by a number and to which other rows are added, which may lie in bf16.

use super::isa::Instructions;
use super::memory::{Line, soon};
use super::wide::{Wide, WideWork, with_wide};

const LANES: usize = 16;

/// What is added: as many rows, the first of which begins at an element, and the next ones so many after it each: none, if they are one.
#[derive(Clone, Copy)]
pub(crate) struct Addend<'a> {
    pub of: Of<'a>,
    pub start: usize,
    pub step: isize,
    /// It is subtracted.
    pub less: bool,
    /// What is added to each row besides, or subtracted if that is told, from the first one on.
    pub plus: Option<(&'a [f32], bool)>,
}

impl Addend<'_> {
    /// # Panics
    /// If so many rows of so many elements are not there.
    pub(crate) fn check(&self, rows: usize, width: usize) {
        let len = match self.of {
            Of::Floats(x) => x.len(),
            Of::Bf16(x) => x.len(),
        };
        let last = self.start as isize + self.step * rows.saturating_sub(1) as isize;
        assert!(last >= 0 && self.start.max(last as usize) + width <= len, "an element each");
        assert!(self.plus.is_none_or(|(plus, _)| plus.len() >= rows), "a number for each row");
    }

    /// What is added to a row besides.
    pub(crate) fn plus(&self, row: usize) -> f32 {
        self.plus.map_or(0.0, |(plus, less)| if less { -plus[row] } else { plus[row] })
    }

    /// Where a row begins, and bytes to the next one.
    pub(crate) fn row(&self, row: usize) -> (*const u8, isize) {
        let at = self.start as isize + self.step * row as isize;
        match self.of {
            Of::Floats(x) => (x.as_ptr().wrapping_offset(at).cast(), self.step * size_of::<f32>() as isize),
            Of::Bf16(x) => (x.as_ptr().wrapping_offset(at).cast(), self.step * size_of::<u16>() as isize),
        }
    }
}

/// Elements.
#[derive(Clone, Copy)]
pub(crate) enum Of<'a> {
    Floats(&'a [f32]),
    Bf16(&'a [u16]),
}

/// `x = x * times + y`, rounded once besides `y`, to which a row's number may be added, for so many elements of each row of `to`, which are `pitch` apart.
///
/// # Panics
/// If elements are missing, or the processor has no vectors for it.
#[inline(always)]
pub(crate) fn run<I: Instructions>(to: &mut [f32], [width, pitch]: [usize; 2], times: f32, with: Addend<'_>) {
    with.check(to.len() / pitch, width);
    assert!(width <= pitch, "rows that lie apart");
    assert!(with_wide::<I, _>(Rows { to, width, pitch, times, with }), "vectors");
}

struct Rows<'a> {
    to: &'a mut [f32],
    width: usize,
    pitch: usize,
    times: f32,
    with: Addend<'a>,
}

impl<V: Wide> WideWork<V> for Rows<'_> {
    #[inline(always)]
    unsafe fn run(self) -> bool {
        let Self { to, width, pitch, times, with } = self;
        let Addend { of, start, step, less, plus } = with;
        // SAFETY: the caller has the instructions; lengths were checked, and masks have a bit for each element that is there.
        unsafe {
            let times = V::splat(times);
            let sign = V::splat(if less { -0.0 } else { 0.0 });
            for (row, to) in to.chunks_exact_mut(pitch).enumerate() {
                let first = start as isize + step * row as isize;
                let to = to.as_mut_ptr();
                let own = V::splat(-with.plus(row));
                for at in (0..width).step_by(LANES) {
                    let left = (width - at).min(LANES);
                    let mask = ((1u32 << left) - 1) as u16;
                    let from = first.wrapping_add(at as isize);
                    let y = match of {
                        Of::Floats(x) if left == LANES => V::load(x.as_ptr().wrapping_offset(from)),
                        Of::Floats(x) => V::load_where(mask, x.as_ptr().wrapping_offset(from)),
                        Of::Bf16(x) => V::load_bf16(mask, x.as_ptr().wrapping_offset(from)),
                    };
                    // Rows go on to the next multiple of the lanes.
                    let x = if left == LANES { V::load(to.add(at)) } else { V::load_where(mask, to.add(at)) };
                    let y = y.signed(sign);
                    let y = if plus.is_some() { y.minus(own) } else { y };
                    let y = y.fused(x, times);
                    if left == LANES {
                        y.store(to.add(at));
                    } else {
                        y.store_where(mask, to.add(at));
                    }
                }
            }
        }
        true
    }
}

/// Asks for adjacent elements, which may be anywhere.
pub(crate) fn ask(of: Of<'_>, from: isize, width: usize) {
    let (at, size) = match of {
        Of::Floats(x) => (x.as_ptr().wrapping_offset(from).cast::<u8>(), size_of::<f32>()),
        Of::Bf16(x) => (x.as_ptr().wrapping_offset(from).cast::<u8>(), size_of::<u16>()),
    };
    (0..width * size).step_by(size_of::<Line>()).for_each(|byte| soon(at.wrapping_add(byte)));
}

#[cfg(test)]
mod tests {
    use super::{Addend, Of};
    use crate::kernels::isa::{Instructions, Isa, Token, Work, dispatch};
    use einloom_cascade::numeric::{bf16_to_f32, f32_to_bf16};

    struct Run<'a>(&'a mut [f32], [usize; 2], f32, Addend<'a>);

    impl Work for Run<'_> {
        type Output = ();

        #[inline(always)]
        fn run<I: Instructions>(self) {
            if I::FMA {
                super::run::<I>(self.0, self.1, self.2, self.3);
            }
        }
    }

    #[test]
    fn rows_are_multiplied_and_added_to_and_nothing_beyond_them() {
        let numbers: Vec<f32> = (0..4000).map(|i| ((i * 37 + i / 11) % 101) as f32 / 8.0 - 5.0).collect();
        let codes: Vec<u16> = numbers.iter().map(|&x| f32_to_bf16(x)).collect();
        for token in Isa::ALL.into_iter().filter(|isa| *isa != Isa::Portable).filter_map(Token::new) {
            for (rows, width, pitch) in [(1, 1, 1), (3, 16, 16), (5, 33, 64), (32, 96, 96), (7, 95, 96)] {
                for (start, step) in [(0, width as isize), (3, 100), (200, -1)] {
                    for (less, bf16) in [(false, false), (true, false), (false, true), (true, true)] {
                        let of = if bf16 { Of::Bf16(&codes) } else { Of::Floats(&numbers) };
                        let plus = (step == 100).then_some((&numbers[50..][..rows], bf16));
                        let with = Addend { of, start, step, less, plus };
                        let before: Vec<f32> = numbers.iter().rev().take(rows * pitch).copied().collect();
                        let mut to = before.clone();
                        dispatch(token, Run(&mut to, [width, pitch], 0.75, with));
                        for (at, (&got, &x)) in to.iter().zip(&before).enumerate() {
                            let (row, column) = (at / pitch, at % pitch);
                            let from = (start as isize + step * row as isize) as usize + column;
                            let y = if bf16 { bf16_to_f32(codes[from]) } else { numbers[from] };
                            let y = if less { -y } else { y };
                            let y = plus.map_or(y, |(plus, less)| if less { y - plus[row] } else { y + plus[row] });
                            let want = x.mul_add(0.75, y);
                            let want = if column < width { want } else { x };
                            assert_eq!(got, want, "{rows} {width} {start} {step}: {row} {column}");
                        }
                    }
                }
            }
        }
    }
}
