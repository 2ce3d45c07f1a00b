//! Floating-point formats narrower than f32: rounding to them, and their bits.
//!
//! Formats: IEEE 754 binary16; bfloat16 and tf32, which shorten the mantissa of binary32; and the 8-bit formats of the
//! Open Compute Project's "OCP 8-bit Floating Point Specification (OFP8)", revision 1.0.

/// A binary format: sign, `exponent` bits, `mantissa` bits without the implicit one.
#[derive(Clone, Copy)]
pub(super) struct Format {
    exponent: u32,
    mantissa: u32,
    /// The exponent of the largest finite value.
    largest: i32,
}

pub(super) const TF32: Format = Format { exponent: 8, mantissa: 10, largest: 127 };
pub(super) const BF16: Format = Format { exponent: 8, mantissa: 7, largest: 127 };
pub(super) const F16: Format = Format { exponent: 5, mantissa: 10, largest: 15 };
pub(super) const E5M2: Format = Format { exponent: 5, mantissa: 2, largest: 15 };
/// Its largest exponent field holds numbers too: only `S.1111.111` is a NaN, and there is no infinity.
pub(super) const E4M3: Format = Format { exponent: 4, mantissa: 3, largest: 8 };
/// The largest finite e4m3.
pub(super) const E4M3_MAX: f64 = 448.0;

impl Format {
    const fn bias(self) -> i32 {
        (1 << (self.exponent - 1)) - 1
    }

    /// The power of two that the smallest subnormal is.
    const fn smallest(self) -> i32 {
        1 - self.bias() - self.mantissa as i32
    }
}

/// `x` to the nearest value of the format, ties to even, as if its largest exponent had every mantissa (which is so but
/// for [`E4M3`], where 480 does not exist); what rounds beyond that is infinite.
pub(super) fn round(format: Format, x: f64) -> f64 {
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    // The value is a whole number of quanta. Scaling by a power of two is exact: the quantum of a subnormal f64 is
    // far above it, so that the scaled value loses nothing that could decide the rounding.
    let exponent = ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    let quantum = (exponent - format.mantissa as i32).max(format.smallest());
    let rounded = (x * power_of_two(-quantum)).round_ties_even() * power_of_two(quantum);
    if rounded.abs() >= power_of_two(format.largest + 1) { f64::INFINITY.copysign(x) } else { rounded }
}

/// `2^exponent` for the exponents of normal f64.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// The bits of a finite `x` in the format, without the sign; to nearest even. What is too large overflows into the
/// codes after the largest, which callers check.
#[inline]
fn pack(format: Format, x: f32) -> u32 {
    let bits = x.to_bits() & 0x7fff_ffff;
    let first_normal = ((128 - format.bias()) as u32) << 23;
    if bits < first_normal {
        // Adding a number whose last bit is one smallest subnormal makes the addition round there.
        let anchor = f32::from_bits(((format.smallest() + 23 + 127) as u32) << 23);
        (f32::from_bits(bits) + anchor).to_bits() - anchor.to_bits()
    } else {
        let shift = 23 - format.mantissa;
        let rebiased = bits - (((127 - format.bias()) as u32) << 23);
        (rebiased + (1 << (shift - 1)) - 1 + ((rebiased >> shift) & 1)) >> shift
    }
}

/// The value of the code, as if the largest exponent were an ordinary one.
#[inline]
fn unpack(format: Format, code: u32) -> f32 {
    if code >> format.mantissa == 0 {
        code as f32 * f32::from_bits(((format.smallest() + 127) as u32) << 23)
    } else {
        f32::from_bits((code << (23 - format.mantissa)) + (((127 - format.bias()) as u32) << 23))
    }
}

#[inline]
fn with_sign(magnitude: f32, negative: bool) -> f32 {
    if negative { -magnitude } else { magnitude }
}

/// The value of a bfloat16. Exact.
#[inline]
pub fn bf16_to_f32(code: u16) -> f32 {
    f32::from_bits(u32::from(code) << 16)
}

/// The nearest bfloat16, ties to even; a NaN stays a NaN and becomes quiet.
#[inline]
pub fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

/// The value of a half. Exact.
#[inline]
pub fn f16_to_f32(code: u16) -> f32 {
    let magnitude = match u32::from(code & 0x7fff) {
        0x7c00 => f32::INFINITY,
        0x7c01.. => f32::NAN,
        finite => unpack(F16, finite),
    };
    with_sign(magnitude, code & 0x8000 != 0)
}

/// The nearest half, ties to even, infinite from 65520 on; a NaN becomes the quiet NaN with its sign.
#[inline]
pub fn f32_to_f16(x: f32) -> u16 {
    let sign = ((x.to_bits() >> 16) & 0x8000) as u16;
    if x.is_nan() {
        return sign | 0x7e00;
    }
    // From 2^16 on the exponent would leave its field.
    sign | if x.abs() >= 65536.0 { 0x7c00 } else { pack(F16, x) as u16 }
}

/// The value of an OCP E5M2 code. Exact.
#[inline]
pub fn e5m2_to_f32(code: u8) -> f32 {
    f16_to_f32(u16::from(code) << 8)
}

/// The nearest OCP E5M2 code, ties to even, infinite from 61440 on; a NaN becomes the quiet NaN with its sign.
#[inline]
pub fn f32_to_e5m2(x: f32) -> u8 {
    let sign = ((x.to_bits() >> 24) & 0x80) as u8;
    if x.is_nan() {
        return sign | 0x7e;
    }
    sign | if x.abs() >= 65536.0 { 0x7c } else { pack(E5M2, x) as u8 }
}

/// The value of an OCP E4M3 code. Exact.
#[inline]
pub fn e4m3_to_f32(code: u8) -> f32 {
    let magnitude = match u32::from(code & 0x7f) {
        0x7f => f32::NAN,
        finite => unpack(E4M3, finite),
    };
    with_sign(magnitude, code & 0x80 != 0)
}

/// The nearest OCP E4M3 code, ties to even; finite values beyond ±448 become ±448, infinities and NaN become the NaN.
#[inline]
pub fn f32_to_e4m3(x: f32) -> u8 {
    let sign = ((x.to_bits() >> 24) & 0x80) as u8;
    if !x.is_finite() {
        return sign | 0x7f;
    }
    sign | if x.abs() >= E4M3_MAX as f32 { 0x7e } else { pack(E4M3, x) as u8 }
}
