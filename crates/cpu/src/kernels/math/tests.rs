//! The functions' errors, over the whole range of their arguments, against f64.

use crate::kernels::isa::{Instructions, Isa, Token, Work, dispatch};
use crate::kernels::strip;
use einloom_cascade::UnaryOp;

struct Apply<'a>(UnaryOp, &'a mut [f32]);

impl Work for Apply<'_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Instructions>(self) {
        strip::unary::<f32, I>(self.0, self.1);
    }
}

/// Distance in units of the last place of `want`, those of subnormals being the least.
fn ulps(got: f32, want: f64) -> f64 {
    if want.is_nan() || (want as f32).is_infinite() {
        let same = (got.is_nan() && want.is_nan()) || f64::from(got) == f64::from(want as f32);
        // Rounding to the largest finite number instead of infinity, or the other way, is one unit.
        return if same {
            0.0
        } else if got.abs() >= f32::MAX {
            1.0
        } else {
            f64::INFINITY
        };
    }
    let magnitude = (want as f32).abs().max(f32::MIN_POSITIVE);
    let unit = f64::from(magnitude.next_up()) - f64::from(magnitude);
    (f64::from(got) - want).abs() / unit
}

/// The worst error over every 4001st f32 between the bounds, in ulp.
fn worst(op: UnaryOp, within: impl Fn(f32) -> bool) -> f64 {
    let arguments: Vec<f32> = (0..=u32::MAX).step_by(4001).map(f32::from_bits).filter(|&x| within(x)).collect();
    let mut worst = 0f64;
    for token in Isa::ALL.into_iter().filter_map(Token::new) {
        let mut results = arguments.clone();
        dispatch(token, Apply(op, &mut results));
        for (&x, &y) in arguments.iter().zip(&results) {
            let error = ulps(y, op.apply(f64::from(x)));
            assert!(error.is_finite(), "{}({x:e}) is {y:e} with {}", op.name(), token.isa().name());
            worst = worst.max(error);
        }
    }
    worst
}

#[test]
fn errors_are_as_documented_over_all_arguments() {
    let all = |_: f32| true;
    // exp(-x) overflows below -88: what is left is 0.
    let above = |x: f32| x >= -87.0 || x.is_nan();
    let bounds = [
        (UnaryOp::Exp, 1.07, &all as &dyn Fn(f32) -> bool),
        (UnaryOp::Exp2, 1.5, &all),
        (UnaryOp::Log, 1.0, &all),
        (UnaryOp::Log2, 1.5, &all),
        (UnaryOp::Log1p, 2.5, &all),
        (UnaryOp::Tanh, 5.5, &all),
        (UnaryOp::Erf, 1.5, &all),
        (UnaryOp::Sigmoid, 3.5, &above),
        (UnaryOp::Silu, 3.0, &above),
        (UnaryOp::Sin, 0.501, &all),
        (UnaryOp::Cos, 0.501, &all),
        (UnaryOp::Sqrt, 0.5, &all),
        (UnaryOp::Rsqrt, 1.5, &all),
    ];
    let measured: Vec<_> = bounds.iter().map(|(op, bound, within)| (op.name(), worst(*op, within), *bound)).collect();
    assert!(measured.iter().all(|(_, worst, bound)| worst <= bound), "{measured:#?}");
}

#[test]
fn gelu_is_as_accurate_as_its_argument() {
    for token in Isa::ALL.into_iter().filter_map(Token::new) {
        let arguments: Vec<f32> = (-100_000..=100_000).map(|i| i as f32 / 10_000.0).collect();
        let mut results = arguments.clone();
        dispatch(token, Apply(UnaryOp::Gelu, &mut results));
        for (&x, &y) in arguments.iter().zip(&results) {
            let error = (f64::from(y) - UnaryOp::Gelu.apply(f64::from(x))).abs();
            assert!(error <= 4.0 * f64::from(f32::EPSILON) * f64::from(x.abs()), "gelu({x}) is off by {error:e}");
        }
    }
}

#[test]
fn the_ends_of_exp_are_exact() {
    for token in Isa::ALL.into_iter().filter_map(Token::new) {
        // 17 elements: one whole group and a rest.
        let mut x = [f32::NEG_INFINITY; 17];
        (x[1], x[2], x[16]) = (f32::INFINITY, f32::NAN, f32::INFINITY);
        (x[3], x[4], x[5]) = (-104.1, 88.8, 0.0);
        dispatch(token, Apply(UnaryOp::Exp, &mut x));
        assert_eq!([x[0], x[1], x[3], x[4], x[5], x[16]], [0.0, f32::INFINITY, 0.0, f32::INFINITY, 1.0, f32::INFINITY]);
        assert!(x[2].is_nan());
    }
}

#[test]
fn every_half_is_decoded() {
    for code in 0..=u16::MAX {
        let (got, want) = (super::f16_to_f32(code), einloom_cascade::numeric::f16_to_f32(code));
        assert!(got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan()), "{code:x}: {got} for {want}");
    }
}

struct Divide<'a>(&'a mut [f32], f32);

impl Work for Divide<'_> {
    type Output = bool;
    #[inline(always)]
    fn run<I: Instructions>(self) -> bool {
        super::quotients::<I>(self.0, None, self.1)
    }
}

#[test]
fn quotients_are_those_of_division() {
    // Mantissas at the ends and scattered between; exponents that keep every quotient normal.
    let mut state = 1u32;
    let mut next = |k: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let mantissa = match k % 4 {
            0 => 0x7f_ffff - (state >> 28),
            1 => state >> 28,
            _ => state >> 9,
        };
        f32::from_bits((state & 1) << 31 | (97 + (state >> 4) % 60) << 23 | mantissa)
    };
    for token in Isa::ALL.into_iter().filter_map(Token::new) {
        for round in 0..2000 {
            let by = next(round);
            let mut d: Vec<f32> = (0..50).map(&mut next).collect();
            d.extend([0.0, -0.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1.0, by]);
            let want: Vec<f32> = d.iter().map(|x| x / by).collect();
            if dispatch(token, Divide(&mut d, by)) {
                let same = |(x, y): (&f32, &f32)| x.to_bits() == y.to_bits() || (x.is_nan() && y.is_nan());
                assert!(d.iter().zip(&want).all(same), "by {by:e}: {d:?} for {want:?}");
            } else {
                assert_eq!(token.isa(), Isa::Portable, "by {by:e}");
            }
        }
        // A quotient that overflows is an infinity.
        let mut large = [1e30, -1e30, f32::MAX];
        assert!(
            !dispatch(token, Divide(&mut large, 1e-20)) || large == [f32::INFINITY, f32::NEG_INFINITY, f32::INFINITY]
        );
        // Where the inverse is not normal there is nothing faster.
        for by in [0.0, 1e-39, 3e38, f32::INFINITY, f32::NAN] {
            assert!(!dispatch(token, Divide(&mut [1.0], by)));
        }
    }
}
