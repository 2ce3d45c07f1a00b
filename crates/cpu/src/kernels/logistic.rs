//! The logistic function by vectors: an exponential of what is at most 0 and a quotient whose divisor is between 1 and 2, so that
//! nothing overflows and no argument is special.

use super::isa::Instructions;
use super::strip::LEAST_NORMAL;
use super::wide::{Wide, WideWork, with_wide};

/// Vectors side by side, because each is a chain of operations.
const SIDE: usize = 4;
const LANES: usize = 16;

/// `d[i] = 1 / (1 + exp(-(d[i] * times + plus)))` within 3.5 ulp, the argument rounded once; 0 where that is less than the least
/// normal number. False if the instructions are not there: nothing is done then.
#[inline(always)]
pub(crate) fn run<I: Instructions>(d: &mut [f32], times: f32, plus: f32) -> bool {
    with_wide::<I, _>(Strip::<false> { d, times, plus })
}

/// The same within a relative error of `2^-11`: of what is rounded to eight bits next.
#[inline(always)]
pub(crate) fn roughly<I: Instructions>(d: &mut [f32], times: f32, plus: f32) -> bool {
    with_wide::<I, _>(Strip::<true> { d, times, plus })
}

struct Strip<'a, const ROUGH: bool> {
    d: &'a mut [f32],
    times: f32,
    plus: f32,
}

impl<V: Wide, const ROUGH: bool> WideWork<V> for Strip<'_, ROUGH> {
    #[inline(always)]
    unsafe fn run(self) -> bool {
        let Self { d, times, plus } = self;
        if !V::ends_at(LEAST_NORMAL) {
            return false;
        }
        let (n, to) = (d.len(), d.as_mut_ptr());
        // SAFETY: the caller has the instructions, and the elements are there.
        unsafe {
            let sign = if ROUGH { -1.0 } else { 1.0 };
            let numbers = [sign * times, -sign * plus, LEAST_NORMAL, 1.0, 0.0].map(|x| V::splat(x));
            let table = V::table();
            let mut at = 0;
            while at + SIDE * LANES <= n {
                let mut x = [numbers[0]; SIDE];
                for (i, x) in x.iter_mut().enumerate() {
                    *x = V::load(to.add(at + LANES * i));
                }
                for (i, y) in logistic::<V, ROUGH, SIDE>(x, numbers, table).into_iter().enumerate() {
                    y.store(to.add(at + LANES * i));
                }
                at += SIDE * LANES;
            }
            while at < n {
                let left = (n - at).min(LANES);
                let [y] = logistic::<V, ROUGH, 1>([V::load_first(to.add(at), left)], numbers, table);
                y.store_first(to.add(at), left);
                at += LANES;
            }
        }
        true
    }
}

/// Of `x * times - less`; if a rough one will do, of its negative.
///
/// # Safety
/// The processor has the vectors.
#[inline(always)]
unsafe fn logistic<V: Wide, const ROUGH: bool, const N: usize>(x: [V; N], numbers: [V; 5], table: V::Table) -> [V; N] {
    let [times, less, least, one, zero] = numbers;
    // SAFETY: the caller's.
    unsafe {
        let x = each!(i => x[i].times_less(times, less));
        if ROUGH {
            let e = V::exps(x, least, table);
            let above = each!(i => e[i].add(one));
            return each!(i => above[i].inverse_roughly());
        }
        let e = V::exps(each!(i => zero.minus(x[i].magnitude())), least, table);
        let above = each!(i => e[i].add(one));
        each!(i => e[i].where_minus(x[i], one).over(above[i]))
    }
}

#[cfg(test)]
mod tests {
    use crate::kernels::isa::{Instructions, Isa, Token, Work, dispatch};

    struct Run<'a>(&'a mut [f32], bool);

    impl Work for Run<'_> {
        type Output = bool;
        #[inline(always)]
        fn run<I: Instructions>(self) -> bool {
            let Self(d, roughly) = self;
            if roughly { super::roughly::<I>(d, 0.5, -1.0) } else { super::run::<I>(d, 0.5, -1.0) }
        }
    }

    #[test]
    fn it_is_as_exact_as_documented_and_its_ends_are_exact() {
        let ends = [f32::NEG_INFINITY, f32::INFINITY, f32::NAN, -1e30, 1e30];
        let x: Vec<f32> = (-8000..8000).map(|i| i as f32 / 50.0).chain(ends).collect();
        for token in Isa::ALL.into_iter().filter(|isa| *isa != Isa::Portable).filter_map(Token::new) {
            for (roughly, most) in [(false, 3e-7), (true, 2f64.powi(-11))] {
                let mut d = x.clone();
                assert!(dispatch(token, Run(&mut d, roughly)));
                for (x, y) in x.iter().zip(&d) {
                    let argument = x.mul_add(0.5, -1.0);
                    let want = 1.0 / (1.0 + (-f64::from(argument)).exp());
                    let off = (f64::from(*y) - want).abs();
                    assert!(x.is_nan() && y.is_nan() || off <= most * want + 2e-38, "{y} for {want}, of {x}");
                }
                assert_eq!([d[16_000], d[16_003]], [0.0; 2]);
                assert!(roughly || [d[16_001], d[16_004]] == [1.0; 2]);
            }
        }
    }
}
