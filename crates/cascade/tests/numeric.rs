//! Number types: every code of the narrow ones, and rounding against an exhaustive search for the nearest value.

use einloom_cascade::{DType, numeric::*};

/// Same value, with NaN equal to NaN and 0 different from -0.
fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

/// All values of a narrow type, finite and not below zero, ascending: as many as it has codes up to its largest.
fn magnitudes(dtype: DType) -> Vec<f64> {
    let (bytes, largest) = match dtype {
        DType::E4m3 => (1, 0x7e),
        DType::E5m2 => (1, 0x7b),
        DType::F16 => (2, 0x7bff),
        DType::Bf16 => (2, 0x7f7f),
        _ => panic!("{dtype} has too many values to list"),
    };
    let codes: Vec<u8> = (0..=largest as u16).flat_map(|c| c.to_le_bytes()[..bytes].to_vec()).collect();
    let mut values = vec![];
    decode(dtype, &codes, &mut values);
    values
}

/// Halfway between neighbours the even code wins; just beside it, the nearer.
#[test]
fn rounding_is_to_nearest_even_between_all_neighbours() {
    for dtype in [DType::E4m3, DType::E5m2, DType::F16, DType::Bf16] {
        let values = magnitudes(dtype);
        assert!(values.is_sorted_by(|a, b| a < b), "{dtype}: codes ascend");
        for (code, pair) in values.windows(2).enumerate() {
            let (low, high) = (pair[0], pair[1]);
            let middle = low / 2.0 + high / 2.0;
            let even = if code % 2 == 0 { low } else { high };
            for sign in [1.0, -1.0] {
                let at = |x: f64| round(dtype, sign * x);
                assert!(same(at(low), sign * low), "{dtype} {low}");
                assert!(same(at(middle), sign * even), "{dtype} {middle}");
                // The nearest f64: rounding to f32 on the way would make it the middle.
                assert!(same(at(middle.next_down()), sign * low), "{dtype} below {middle}");
                assert!(same(at(middle.next_up()), sign * high), "{dtype} above {middle}");
            }
        }
    }
}

#[test]
fn beyond_the_largest() {
    let check = |dtype, largest: f64, first_above: f64, becomes: f64| {
        assert_eq!(round(dtype, largest), largest);
        assert_eq!(round(dtype, first_above.next_down()), largest);
        assert_eq!(round(dtype, first_above), becomes);
        assert_eq!(round(dtype, -first_above), -becomes);
        assert_eq!(round(dtype, f64::MAX), becomes);
    };
    check(DType::F32, f32::MAX.into(), 3.4028235677973366e38, f64::INFINITY);
    check(DType::F16, 65504.0, 65520.0, f64::INFINITY);
    check(DType::E5m2, 57344.0, 61440.0, f64::INFINITY);
    check(DType::E4m3, 448.0, 464.0, 448.0);
    assert!(round(DType::E4m3, f64::INFINITY).is_nan());
    assert_eq!(round(DType::E5m2, f64::NEG_INFINITY), f64::NEG_INFINITY);
    for dtype in DType::ALL.into_iter().filter(|d| d.is_float()) {
        assert!(round(dtype, f64::NAN).is_nan(), "{dtype}");
        assert!(same(round(dtype, -0.0), -0.0), "{dtype}");
        assert!(same(round(dtype, -f64::from_bits(1)), if dtype == DType::F64 { -f64::from_bits(1) } else { -0.0 }));
    }
}

#[test]
fn tf32_keeps_ten_bits_of_mantissa_and_the_exponents_of_f32() {
    let ulp = 2f64.powi(-10);
    assert_eq!(round(DType::Tf32, 1.0 + ulp / 2.0), 1.0);
    assert_eq!(round(DType::Tf32, 1.0 + 1.5 * ulp), 1.0 + 2.0 * ulp);
    assert_eq!(round(DType::Tf32, 2f64.powi(-136)), 2f64.powi(-136));
    assert_eq!(round(DType::Tf32, 2f64.powi(-137)), 0.0);
    assert_eq!(round(DType::Tf32, f32::MAX.into()), f64::INFINITY);
}

#[test]
fn integers_round_to_even_and_saturate() {
    for (dtype, x, expected) in [
        (DType::I8, 2.5, 2.0),
        (DType::I8, 3.5, 4.0),
        (DType::I8, -2.5, -2.0),
        (DType::I8, 200.0, 127.0),
        (DType::I8, f64::NEG_INFINITY, -128.0),
        (DType::I4, 7.6, 7.0),
        (DType::I4, -9.0, -8.0),
        (DType::U4, -1.0, 0.0),
        (DType::U4, 15.5, 15.0),
        (DType::U8, 256.0, 255.0),
        (DType::I16, 40000.0, 32767.0),
        (DType::I32, -3e9, -2147483648.0),
        (DType::I32, f64::NAN, 0.0),
        (DType::U8, -0.25, 0.0),
        (DType::B1, -0.25, 1.0),
        (DType::B1, -0.0, 0.0),
        (DType::B1, f64::NAN, 1.0),
    ] {
        assert!(same(round(dtype, x), expected), "{dtype} {x}: {}", round(dtype, x));
    }
}

#[test]
fn halves_agree_with_another_implementation() {
    for code in 0..=u16::MAX {
        let (f16, bf16) = (half::f16::from_bits(code), half::bf16::from_bits(code));
        assert!(same(f16_to_f32(code).into(), f16.to_f64()), "f16 {code:#x}");
        assert!(same(bf16_to_f32(code).into(), bf16.to_f64()), "bf16 {code:#x}");
        if !f16.is_nan() {
            assert_eq!(f32_to_f16(f16.to_f32()), code);
        }
        if !bf16.is_nan() {
            assert_eq!(f32_to_bf16(bf16.to_f32()), code);
        }
    }
    // Every exponent, with mantissas around every tie.
    for high in 0..=u16::MAX {
        for low in [0x0000, 0x0001, 0x0fff, 0x1000, 0x1001, 0x7fff, 0x8000, 0x8001, 0xffff] {
            let x = f32::from_bits((u32::from(high) << 16) | low);
            let (f16, bf16) = (half::f16::from_f32(x), half::bf16::from_f32(x));
            if x.is_nan() {
                assert!(f16_to_f32(f32_to_f16(x)).is_nan() && bf16_to_f32(f32_to_bf16(x)).is_nan());
            } else {
                assert_eq!(f32_to_f16(x), f16.to_bits(), "{x:e}");
                assert_eq!(f32_to_bf16(x), bf16.to_bits(), "{x:e}");
            }
        }
    }
}

#[test]
fn conversions_from_f32_agree_with_rounding() {
    for high in 0..=u16::MAX {
        for low in [0x0000, 0x0001, 0x7fff, 0x8000, 0xffff] {
            let x = f32::from_bits((u32::from(high) << 16) | low);
            let check = |dtype, ours: f32| {
                assert!(same(ours.into(), round(dtype, x.into())), "{dtype} {x:e}: {ours}");
            };
            check(DType::E4m3, e4m3_to_f32(f32_to_e4m3(x)));
            check(DType::E5m2, e5m2_to_f32(f32_to_e5m2(x)));
            check(DType::F16, f16_to_f32(f32_to_f16(x)));
            check(DType::Bf16, bf16_to_f32(f32_to_bf16(x)));
        }
    }
}

/// Values from the tables of the OCP specification.
#[test]
fn eight_bit_floats_are_those_of_the_specification() {
    for (code, value) in [(0x00, 0.0), (0x01, 2f32.powi(-9)), (0x07, 0.875 * 2f32.powi(-6)), (0x08, 2f32.powi(-6))] {
        assert_eq!(e4m3_to_f32(code), value);
    }
    assert_eq!((e4m3_to_f32(0x7e), e4m3_to_f32(0xfe), e4m3_to_f32(0x38)), (448.0, -448.0, 1.0));
    assert!(e4m3_to_f32(0x7f).is_nan() && e4m3_to_f32(0xff).is_nan());
    for (code, value) in [(0x01, 2f32.powi(-16)), (0x03, 0.75 * 2f32.powi(-14)), (0x04, 2f32.powi(-14)), (0x3c, 1.0)] {
        assert_eq!(e5m2_to_f32(code), value);
    }
    assert_eq!((e5m2_to_f32(0x7b), e5m2_to_f32(0x7c), e5m2_to_f32(0xfc)), (57344.0, f32::INFINITY, f32::NEG_INFINITY));
    assert!((0x7d..=0x7f).all(|c| e5m2_to_f32(c).is_nan()));
}

#[test]
fn encoding_inverts_decoding() {
    for dtype in DType::ALL {
        let mut values = vec![];
        let bytes: Vec<u8> = (0..=255u8).flat_map(|a| [a.wrapping_mul(37), a, a.rotate_left(3), !a]).collect();
        decode(dtype, &bytes, &mut values);
        assert_eq!(values.len() * dtype.bytes(), bytes.len(), "{dtype}");
        assert!(values.iter().all(|&v| same(round(dtype, v), v)), "{dtype} decodes to values of the type");
        let mut again = vec![];
        decode(dtype, &encode(dtype, &values), &mut again);
        assert!(values.iter().zip(&again).all(|(&a, &b)| same(a, b)), "{dtype}");
    }
    assert_eq!(encode(DType::I4, &[-8.0, 7.0, -1.4]), [0xf8, 0x07, 0xff]);
    assert_eq!(encode(DType::I16, &[-2.0]), [0xfe, 0xff]);
    assert_eq!(encode(DType::Bf16, &[1.0, -0.0]), [0x80, 0x3f, 0x00, 0x80]);
    assert_eq!(encode(DType::B1, &[3.0, 0.0]), [1, 0]);
}

#[test]
fn trailing_bytes_make_no_element() {
    let mut values = vec![5.0];
    decode(DType::I16, &[1, 0, 2], &mut values);
    assert_eq!(values, [5.0, 1.0]);
}
