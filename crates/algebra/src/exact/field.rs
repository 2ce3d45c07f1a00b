//! A tower of prime fields: each prime divides the next one less one, so that a generator of the subgroup of that order
//! turns sums of one field into products of the next. An exponential in an exponent climbs two of its steps.

/// How many fields there are; between them are as many levels of exponentials as a program may nest, less one.
pub const COUNT: usize = 4;
/// The fields' primes, `PRIMES[k + 1] = c·PRIMES[k] + 1`. Values are compared in the last.
pub const PRIMES: [u64; COUNT] =
    [36_028_797_018_962_381, 72_057_594_037_924_763, 432_345_564_227_548_579, 1_729_382_256_910_194_317];
/// Of order `PRIMES[k]` in the field after it: `2^((PRIMES[k + 1] - 1) / PRIMES[k])`.
pub const GENERATORS: [u64; COUNT - 1] = [4, 64, 16];

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
        for k in 0..COUNT - 1 {
            let (p, q, generator) = (PRIMES[k], PRIMES[k + 1], GENERATORS[k]);
            assert_eq!((q - 1) % p, 0);
            assert_ne!(generator, 1);
            assert_eq!(pow(generator, p, q), 1);
            assert_eq!(pow(2, (q - 1) / p, q), generator);
        }
        // Fermat, to several bases: all are prime beyond reasonable doubt.
        for p in PRIMES {
            for base in [2, 3, 5, 7, 11, 13, 17, 19, 23] {
                assert_eq!(pow(base, p - 1, p), 1);
            }
        }
    }

    #[test]
    fn dyadic_rationals_are_exact() {
        for m in PRIMES {
            assert_eq!(mul(from_f64(0.125, m), 8, m), 1);
            assert_eq!(add(from_f64(-2.5, m), from_f64(2.5, m), m), 0);
            assert_eq!(from_f64(12345.0, m), 12345);
        }
    }
}
