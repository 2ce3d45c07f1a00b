//! A tower of prime fields: each prime divides the next one less one, so that a generator of the subgroup of that order
//! turns sums of one field into products of the next. An exponential in an exponent climbs two of its steps.
//!
//! Operations name the field by its number. Their operands are elements of it, less than its prime.

/// How many fields there are; between them are as many levels of exponentials as a program may nest, less one.
pub const COUNT: usize = 6;
/// The fields' primes, `PRIMES[k + 1] = c·PRIMES[k] + 1`. Values are compared in the last.
pub const PRIMES: [u64; COUNT] = [
    36_028_797_151_187_129,
    72_057_594_302_374_259,
    144_115_188_604_748_519,
    288_230_377_209_497_039,
    576_460_754_418_994_079,
    4_611_686_035_351_952_633,
];
/// Of order `PRIMES[k]` in the field after it: `2^((PRIMES[k + 1] - 1) / PRIMES[k])`.
pub const GENERATORS: [u64; COUNT - 1] = [4, 4, 4, 4, 256];

/// Bits of each prime `p`, and `floor(4^bits / p)`: what a division by it is made of.
const BITS: [u32; COUNT] = [56, 57, 58, 59, 60, 63];
const INVERSES: [u64; COUNT] = {
    let mut out = [0; COUNT];
    let mut k = 0;
    while k < COUNT {
        out[k] = ((1u128 << (2 * BITS[k])) / PRIMES[k] as u128) as u64;
        k += 1;
    }
    out
};

/// `a + b`.
pub const fn add(a: u64, b: u64, k: usize) -> u64 {
    let sum = a + b;
    if sum >= PRIMES[k] { sum - PRIMES[k] } else { sum }
}

/// `-a`.
pub const fn negate(a: u64, k: usize) -> u64 {
    if a == 0 { 0 } else { PRIMES[k] - a }
}

/// `a·b`. Barrett's reduction: the quotient is guessed from the leading bits, at most 2 too small (A. Menezes, P. van
/// Oorschot, S. Vanstone, "Handbook of Applied Cryptography", algorithm 14.42 in base 2).
pub const fn mul(a: u64, b: u64, k: usize) -> u64 {
    let product = a as u128 * b as u128;
    let leading = (product >> (BITS[k] - 1)) as u64;
    let quotient = ((leading as u128 * INVERSES[k] as u128) >> (BITS[k] + 1)) as u64;
    // Less than three primes, which an u64 holds.
    let mut rest = (product as u64).wrapping_sub(quotient.wrapping_mul(PRIMES[k]));
    if rest >= PRIMES[k] {
        rest -= PRIMES[k];
    }
    if rest >= PRIMES[k] {
        rest -= PRIMES[k];
    }
    rest
}

/// `a^n`.
pub const fn pow(mut a: u64, mut n: u64, k: usize) -> u64 {
    let mut out = 1;
    while n > 0 {
        if n & 1 == 1 {
            out = mul(out, a, k);
        }
        a = mul(a, a, k);
        n >>= 1;
    }
    out
}

/// Bits of an exponent that one step of [`pow_of_generator`] takes.
const DIGIT: usize = 4;
const DIGITS: usize = 60 / DIGIT;
/// `GENERATORS[k]^(d · 16^j)` at `[k][j][d]`.
const POWERS: [[[u64; 1 << DIGIT]; DIGITS]; COUNT - 1] = {
    let mut out = [[[1; 1 << DIGIT]; DIGITS]; COUNT - 1];
    let mut k = 0;
    while k < COUNT - 1 {
        let (mut base, mut j) = (GENERATORS[k], 0);
        while j < DIGITS {
            let mut d = 1;
            while d < 1 << DIGIT {
                out[k][j][d] = mul(out[k][j][d - 1], base, k + 1);
                d += 1;
            }
            base = mul(out[k][j][(1 << DIGIT) - 1], base, k + 1);
            j += 1;
        }
        k += 1;
    }
    out
};
static POWERS_OF_GENERATORS: [[[u64; 1 << DIGIT]; DIGITS]; COUNT - 1] = POWERS;

/// `GENERATORS[k]^n` in the field after `k`, for an element `n` of field `k`.
pub fn pow_of_generator(n: u64, k: usize) -> u64 {
    let digits = POWERS_OF_GENERATORS[k].iter().enumerate();
    digits.fold(1, |out, (j, powers)| match (n >> (j * DIGIT)) as usize % (1 << DIGIT) {
        0 => out,
        d => mul(out, powers[d], k + 1),
    })
}

/// `1/a`; `None` for 0. Euclid's algorithm: half the time of Fermat's power.
pub fn invert(a: u64, k: usize) -> Option<u64> {
    // Each rest is `a` times its factor, but for a multiple of the prime; no factor is larger than the prime.
    let (mut rest, mut factor) = ([PRIMES[k], a], [0, 1]);
    while rest[1] != 0 {
        let quotient = rest[0] / rest[1];
        rest = [rest[1], rest[0] - quotient * rest[1]];
        factor = [factor[1], factor[0] - quotient as i64 * factor[1]];
    }
    (a != 0).then(|| factor[0].rem_euclid(PRIMES[k] as i64) as u64)
}

/// A finite f64 as an element: the quotient of small whole numbers that rounds to it, if there is one, since that is what the
/// text means by 0.9 and a rule by its inverse; else the dyadic rational that it is.
pub fn from_f64(v: f64, k: usize) -> u64 {
    let m = PRIMES[k];
    if let Some((over, under)) = quotient(v.abs()) {
        let value = mul(over % m, invert(under % m, k).unwrap_or(0), k);
        return if v < 0.0 { negate(value, k) } else { value };
    }
    let bits = v.to_bits();
    let exponent = ((bits >> 52) & 0x7ff) as i64;
    let fraction = bits & ((1 << 52) - 1);
    let (mantissa, exponent) = if exponent == 0 { (fraction, -1074) } else { (fraction | 1 << 52, exponent - 1075) };
    let scale = pow(2, exponent.unsigned_abs(), k);
    let scale = if exponent < 0 { invert(scale, k).unwrap_or(0) } else { scale };
    let value = mul(mantissa % m, scale, k);
    if v < 0.0 { negate(value, k) } else { value }
}

/// The first convergent of a positive number that is as near to it as the product of two rounded numbers is to that of what they
/// stand for, `0.1·0.1` to 1/100, while numerator times denominator stays below 2^40: few numbers without a meaning have one, and then
/// have it in both forms.
pub fn quotient(v: f64) -> Option<(u64, u64)> {
    // Convergents h/k, the last two of each.
    let (mut h, mut k, mut rest) = ([0u64, 1], [1u64, 0], v);
    for _ in 0..32 {
        let whole = rest.floor();
        if whole >= 2f64.powi(40) {
            return None;
        }
        let next = |[before, now]: [u64; 2]| Some([now, (whole as u64).checked_mul(now)?.checked_add(before)?]);
        (h, k) = (next(h)?, next(k)?);
        if h[1].checked_mul(k[1]).is_none_or(|size| size >= 1 << 40) {
            return None;
        }
        if (h[1] as f64 / k[1] as f64 - v).abs() <= v * 2f64.powi(-51) {
            return Some((h[1], k[1]));
        }
        rest = 1.0 / (rest - whole);
    }
    None
}

/// A hash of a few words: a random function, the same for equal arguments.
pub fn hash(words: &[u64]) -> u64 {
    hash_of(words.iter().copied())
}

/// [`hash`] of words that come one by one.
pub fn hash_of(words: impl Iterator<Item = u64>) -> u64 {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    for w in words {
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
        assert_eq!(quotient(0.1 + 0.2), Some((3, 10)));
        assert_eq!(quotient(1e-6 * 1e-6), Some((1, 1_000_000_000_000)));
        for v in [std::f64::consts::LN_2, std::f64::consts::PI, 1e-30, 1e20] {
            assert_eq!(quotient(v), None, "{v}");
        }
        for k in 0..COUNT {
            assert_eq!(mul(from_f64(1.0 / 0.9, k), from_f64(0.9, k), k), 1);
            assert_eq!(from_f64(-0.9, k), negate(from_f64(0.9, k), k));
        }
    }

    #[test]
    fn the_fields_fit_each_other() {
        for k in 0..COUNT - 1 {
            let (p, q, generator) = (PRIMES[k], PRIMES[k + 1], GENERATORS[k]);
            assert_eq!((q - 1) % p, 0);
            assert_ne!(generator, 1);
            assert_eq!(pow(generator, p, k + 1), 1);
            assert_eq!(pow(2, (q - 1) / p, k + 1), generator);
            for n in [0, 1, 15, 16, 12_345_678_987_654_321, p - 1] {
                assert_eq!(pow_of_generator(n, k), pow(generator, n, k + 1));
            }
        }
        // Fermat, to several bases: all are prime beyond reasonable doubt.
        for (k, p) in PRIMES.into_iter().enumerate() {
            for base in [2, 3, 5, 7, 11, 13, 17, 19, 23] {
                assert_eq!(pow(base, p - 1, k), 1);
            }
        }
    }

    #[test]
    fn sums_and_products_are_those_of_integers() {
        for (k, p) in PRIMES.into_iter().enumerate() {
            assert_eq!(64 - p.leading_zeros(), BITS[k]);
            let mut values = vec![0, 1, 2, p / 2, p / 2 + 1, p - 2, p - 1];
            values.extend((0..200).map(|n| hash(&[n]) % p));
            for &a in &values {
                for &b in &values {
                    let (wide, m) = ((u128::from(a), u128::from(b)), u128::from(p));
                    assert_eq!(u128::from(add(a, b, k)), (wide.0 + wide.1) % m);
                    assert_eq!(u128::from(mul(a, b, k)), wide.0 * wide.1 % m);
                }
                assert_eq!(add(a, negate(a, k), k), 0);
                assert_eq!(invert(a, k).map(|i| mul(a, i, k)), (a != 0).then_some(1));
            }
        }
    }

    #[test]
    fn dyadic_rationals_are_exact() {
        for k in 0..COUNT {
            assert_eq!(mul(from_f64(0.125, k), 8, k), 1);
            assert_eq!(add(from_f64(-2.5, k), from_f64(2.5, k), k), 0);
            assert_eq!(from_f64(12345.0, k), 12345);
        }
    }
}
