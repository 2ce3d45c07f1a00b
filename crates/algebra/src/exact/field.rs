//! Two prime fields: values live in F_q, exponents in F_p with p | q - 1, and a generator of the subgroup of order p
//! turns one into the other.

/// The field of exponents: a prime.
pub const P: u64 = 1_152_921_504_606_846_803;
/// The field of values: the prime `6·P + 1`.
pub const Q: u64 = 6_917_529_027_641_080_819;
/// Of order P in F_q: `2^((Q-1)/P)`.
pub const GENERATOR: u64 = 64;

/// `a + b`.
pub fn add(a: u64, b: u64, m: u64) -> u64 {
    ((u128::from(a) + u128::from(b)) % u128::from(m)) as u64
}

/// `-a`.
pub fn negate(a: u64, m: u64) -> u64 {
    if a == 0 { 0 } else { m - a }
}

/// `a·b`.
pub fn mul(a: u64, b: u64, m: u64) -> u64 {
    (u128::from(a) * u128::from(b) % u128::from(m)) as u64
}

/// `a^n`.
pub fn pow(mut a: u64, mut n: u64, m: u64) -> u64 {
    let mut out = 1;
    while n > 0 {
        if n & 1 == 1 {
            out = mul(out, a, m);
        }
        a = mul(a, a, m);
        n >>= 1;
    }
    out
}

/// `1/a`; `None` for 0.
pub fn invert(a: u64, m: u64) -> Option<u64> {
    (a != 0).then(|| pow(a, m - 2, m))
}

/// A finite f64, which is a dyadic rational, as an element.
pub fn from_f64(v: f64, m: u64) -> u64 {
    let bits = v.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i64;
    let fraction = bits & ((1 << 52) - 1);
    let (mantissa, exponent) = if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) };
    let scale = pow(2, exponent.unsigned_abs(), m);
    let scale = if exponent < 0 { invert(scale, m).unwrap_or(0) } else { scale };
    let value = mul(mantissa % m, scale, m);
    if v < 0.0 { negate(value, m) } else { value }
}

/// A hash of a few words: a random function, the same for equal arguments.
pub fn hash(words: &[u64]) -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for &w in words {
        state = (state ^ w).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 29)).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 32;
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_fit_each_other() {
        assert_eq!((Q - 1) % P, 0);
        assert_ne!(GENERATOR, 1);
        assert_eq!(pow(GENERATOR, P, Q), 1);
        assert_eq!(pow(2, (Q - 1) / P, Q), GENERATOR);
        // Fermat, to several bases: both are prime beyond reasonable doubt.
        for base in [2, 3, 5, 7, 11, 13, 17, 19, 23] {
            assert_eq!(pow(base, P - 1, P), 1);
            assert_eq!(pow(base, Q - 1, Q), 1);
        }
    }

    #[test]
    fn dyadic_rationals_are_exact() {
        for m in [P, Q] {
            assert_eq!(mul(from_f64(0.125, m), 8, m), 1);
            assert_eq!(add(from_f64(-2.5, m), from_f64(2.5, m), m), 0);
            assert_eq!(from_f64(12345.0, m), 12345);
        }
    }
}
