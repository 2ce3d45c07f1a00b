//! Exponentials that are divided and leave for memory: made a second time from registers to memory, what a row of them would
//! take of the second-level cache is left to what is read next.

use super::super::isa::Instructions;
use super::super::memory::{Line, Room, soon};
use super::super::wide::{Wide, WideWork, with_wide};

/// Vectors side by side, because each is a chain of operations.
const SIDE: usize = 4;
const LANES: usize = 16;

/// `to[i] = exp(x[i] * by - less) / over`.
pub(crate) struct Quotients<'a> {
    /// `x`.
    pub from: &'a [f32],
    pub by: f32,
    pub less: f32,
    /// Below which argument the exponential is 0.
    pub least: f32,
    pub over: f32,
    /// As many elements as `from`.
    pub to: Room<'a, f32>,
    /// From where on as many bytes as are read are asked for; nothing is, if it is null.
    pub next: *const u8,
}

impl Quotients<'_> {
    /// Runs it: exponentials as of [`super::run`], quotients as of [`crate::kernels::math::quotients`]. False, and nothing done,
    /// if the instructions are not there or the inverse does not tell quotients.
    #[inline(always)]
    pub(crate) fn run<I: Instructions>(self) -> bool {
        assert!(self.to.len() >= self.from.len(), "room for each");
        crate::kernels::codes::divides(self.over) && with_wide::<I, _>(self)
    }
}

impl<V: Wide> WideWork<V> for Quotients<'_> {
    #[inline(always)]
    unsafe fn run(self) -> bool {
        if !V::ends_at(self.least) {
            return false;
        }
        const { assert!(size_of::<Line>() == LANES * size_of::<f32>()) };
        let (count, to) = (self.from.len(), self.to.start());
        // SAFETY: the caller has the instructions; so many elements and so much room are there.
        unsafe {
            let numbers = [self.by, self.less, self.least, 1.0 / self.over, self.over].map(|x| V::splat(x));
            let ([by, less, least, inverse, over], table) = (numbers, V::table());
            // To the first whole line.
            let mut at = to.align_offset(size_of::<Line>()).min(count);
            if at > 0 {
                self.some::<V>(numbers, table, [0, at]);
            }
            while at + SIDE * LANES <= count {
                let mut side = [less; SIDE];
                for (i, side) in side.iter_mut().enumerate() {
                    *side = V::load(self.from.as_ptr().add(at + i * LANES)).times_less(by, less);
                }
                for (i, e) in V::exps(side, least, table).into_iter().enumerate() {
                    self.ask(at + i * LANES);
                    e.quotient(over, inverse).store_past(to.add(at + i * LANES));
                }
                at += SIDE * LANES;
            }
            while at < count {
                self.some::<V>(numbers, table, [at, (count - at).min(LANES)]);
                at += LANES;
            }
        }
        true
    }
}

// Methods, not closures, which would be functions without the instructions.
impl Quotients<'_> {
    #[inline(always)]
    fn ask(&self, at: usize) {
        if !self.next.is_null() {
            soon(self.next.wrapping_add(at * size_of::<f32>()));
        }
    }

    /// Those `n` from `at` on, of one vector.
    ///
    /// # Safety
    /// As of the whole.
    #[inline(always)]
    unsafe fn some<V: Wide>(&self, numbers: [V; 5], table: V::Table, [at, n]: [usize; 2]) {
        let [by, less, least, inverse, over] = numbers;
        self.ask(at);
        let mask = u16::MAX >> (LANES - n);
        // SAFETY: the caller's.
        unsafe {
            let x = V::load_where(mask, self.from.as_ptr().add(at)).times_less(by, less);
            let [e] = V::exps([x], least, table);
            e.quotient(over, inverse).store_where(mask, self.to.start().add(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Quotients;
    use crate::kernels::isa::{Instructions, Isa, Token, Work, dispatch};
    use crate::kernels::memory::Shared;
    use crate::kernels::strip::LEAST_NORMAL;

    struct Run<'a>(Quotients<'a>);

    impl Work for Run<'_> {
        type Output = bool;
        #[inline(always)]
        fn run<I: Instructions>(self) -> bool {
            self.0.run::<I>()
        }
    }

    /// From every element of a line on, of every length about whole vectors.
    #[test]
    fn quotients_are_what_the_definition_says_and_nothing_else_is_written() {
        const ROOM: usize = 320;
        for token in Isa::ALL.into_iter().filter(|isa| *isa != Isa::Portable).filter_map(Token::new) {
            for start in 0..17 {
                for count in [1, 3, 15, 16, 17, 63, 64, 65, 100, 128, 150, 257] {
                    let mut from: Vec<f32> = (0..count).map(|i| ((i * 37) % 67) as f32 / -5.0).collect();
                    from[count / 2] = f32::NEG_INFINITY;
                    let mut result = vec![[7.0f32; 16]; ROOM / 16];
                    {
                        let memory = Shared::write_only(bytemuck::cast_slice_mut(&mut result));
                        let (to, next) = (memory.room(start as i64, count), from.as_ptr().cast());
                        let (by, less, least, over) = (0.5, 1.25, LEAST_NORMAL, 3.0);
                        assert!(dispatch(token, Run(Quotients { from: &from, by, less, least, over, to, next })));
                    }
                    let result = result.as_flattened();
                    for (i, x) in result.iter().enumerate() {
                        let want = match i.checked_sub(start).and_then(|i| from.get(i)) {
                            Some(x) => (f64::from(*x) * 0.5 - 1.25).exp() / 3.0,
                            None => 7.0,
                        };
                        assert!((f64::from(*x) - want).abs() <= 1e-6 * want, "{x} for {want}: {count} from {start}");
                    }
                }
            }
        }
    }

    #[test]
    fn what_the_inverse_does_not_tell_is_left_to_others() {
        for token in Isa::ALL.into_iter().filter_map(Token::new) {
            for over in [0.0, 1e-42, f32::MAX, f32::INFINITY, f32::NAN] {
                let mut result = [7.0f32; 4];
                let memory = Shared::write_only(bytemuck::cast_slice_mut(&mut result));
                let (to, next) = (memory.room(0, 4), std::ptr::null());
                let from = &[0.0; 4];
                let job = Quotients { from, by: 1.0, less: 0.0, least: LEAST_NORMAL, over, to, next };
                assert!(!dispatch(token, Run(job)));
                assert_eq!(result, [7.0; 4]);
            }
        }
    }
}
