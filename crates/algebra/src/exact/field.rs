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

/// A finite f64 as an element: the quotient of small whole numbers that rounds to it, if there is one, since that is what the
/// text means by 0.9 and a rule by its inverse; else the dyadic rational that it is.
pub fn from_f64(v: f64, m: u64) -> u64 {
    if let Some((over, under)) = quotient(v.abs()) {
        let value = mul(over % m, invert(under % m, m).unwrap_or(0), m);
        return if v < 0.0 { negate(value, m) } else { value };
    }
    let bits = v.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i64;
    let fraction = bits & ((1 << 52) - 1);
    let (mantissa, exponent) = if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) };
    let scale = pow(2, exponent.unsigned_abs(), m);
    let scale = if exponent < 0 { invert(scale, m).unwrap_or(0) } else { scale };
    let value = mul(mantissa % m, scale, m);
    if v < 0.0 { negate(value, m) } else { value }
}

/// The first convergent of a positive number that rounds to it, while numerator times denominator stays below 2^32: about
/// one in 2^20 numbers without a meaning has one, and then has it in both forms.
fn quotient(v: f64) -> Option<(u64, u64)> {
    // Convergents h/k, the last two of each.
    let (mut h, mut k, mut rest) = ([0u64, 1], [1u64, 0], v);
    for _ in 0..32 {
        let whole = rest.floor();
        if whole >= 1e9 {
            return None;
        }
        let next = |[before, now]: [u64; 2]| Some([now, (whole as u64).checked_mul(now)?.checked_add(before)?]);
        (h, k) = (next(h)?, next(k)?);
        if h[1].checked_mul(k[1]).is_none_or(|size| size >= 1 << 32) {
            return None;
        }
        if h[1] as f64 / k[1] as f64 == v {
            return Some((h[1], k[1]));
        }
        rest = 1.0 / (rest - whole);
    }
    None
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
    fn a_quotient_of_small_numbers_is_what_rounds_to_it() {
        assert_eq!(quotient(0.9), Some((9, 10)));
        assert_eq!(quotient(1.0 / 0.9), Some((10, 9)));
        assert_eq!(quotient(0.07), Some((7, 100)));
        assert_eq!(quotient(1e-5), Some((1, 100_000)));
        assert_eq!(quotient(0.375), Some((3, 8)));
        for v in [std::f64::consts::LN_2, std::f64::consts::PI, 0.1 + 0.2, 1e-30, 1e20] {
            assert_eq!(quotient(v), None, "{v}");
        }
        for m in PRIMES {
            assert_eq!(mul(from_f64(1.0 / 0.9, m), from_f64(0.9, m), m), 1);
            assert_eq!(from_f64(-0.9, m), negate(from_f64(0.9, m), m));
        }
    }

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
