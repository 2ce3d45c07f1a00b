//! Random tensors that are the same on every machine and in every version.

mod positions;

use crate::{Error, Tensor};
use einloom_cascade::{Bound, Cascade, DType, TensorId, numeric};

/// SplitMix64. Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A stream of numbers that depends on the seed and on a name, so that one tensor's values do not depend on which
    /// others there are.
    pub fn new(seed: u64, name: &str) -> Self {
        // FNV-1a.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        let mut random = Self(seed ^ hash);
        random.0 = random.bits();
        random
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.skip(1);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Leaves out the next `count` of [`Random::bits`].
    pub fn skip(&mut self, count: u64) {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15u64.wrapping_mul(count));
    }

    /// Uniform in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Uniform in `low..=high`; `low` if that is empty.
    pub fn integer(&mut self, low: i64, high: i64) -> i64 {
        if high <= low {
            return low;
        }
        let span = (high - low) as u64 + 1;
        // The high word of a product: the bias is below span / 2⁶⁴.
        low + ((u128::from(self.bits()) * u128::from(span)) >> 64) as i64
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.integer(0, from.len() as i64 - 1) as usize]
    }

    /// Standard normal (Box–Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// Random values for an input: standard normal for floating-point types, uniform for integers. Integers that are used
/// as positions are positions that exist; others are small.
pub fn random_values(cascade: &Cascade, bound: &Bound, input: TensorId, seed: u64) -> Vec<f64> {
    let tensor = &cascade[input];
    let mut random = Random::new(seed, &tensor.name);
    let count = bound.shape(cascade, input).iter().product();
    let dtype = tensor.dtype.unwrap_or(DType::F32);
    if dtype.is_float() {
        return (0..count).map(|_| random.normal()).collect();
    }
    let (low, high) = integer_range(cascade, bound, input);
    (0..count).map(|_| random.integer(low, high) as f64).collect()
}

/// Elements that one thread makes at a time.
const BLOCK: usize = 1 << 15;

/// The values of [`random_values`] in a number type, made on all cores.
///
/// # Errors
/// [`Error::Memory`] if this machine cannot hold them.
pub fn random_tensor(
    cascade: &Cascade,
    bound: &Bound,
    input: TensorId,
    dtype: DType,
    seed: u64,
) -> Result<Tensor, Error> {
    let mut tensor = Tensor::zeros(dtype, &bound.shape(cascade, input))?;
    let bytes = tensor.view_mut().bytes;
    if bytes.is_empty() {
        return Ok(tensor);
    }
    let float = cascade[input].dtype.unwrap_or(DType::F32).is_float();
    let (low, high) = if float { (0, 0) } else { integer_range(cascade, bound, input) };
    // Bits that one value takes: two numbers for a normal one, none for an integer without a choice.
    let draws = if float { 2 } else { u64::from(high > low) };
    let random = Random::new(seed, &cascade[input].name);
    let fill = |first: usize, part: &mut [u8]| {
        let mut random = random.clone();
        random.skip(first as u64 * draws);
        for block in part.chunks_mut(BLOCK * dtype.bytes()) {
            let count = block.len() / dtype.bytes();
            let value = |_| if float { random.normal() } else { random.integer(low, high) as f64 };
            let values: Vec<f64> = (0..count).map(value).collect();
            block.copy_from_slice(&numeric::encode(dtype, &values));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let each = (bytes.len() / dtype.bytes()).div_ceil(threads).next_multiple_of(BLOCK);
    std::thread::scope(|scope| {
        let mut parts = bytes.chunks_mut(each * dtype.bytes()).enumerate();
        let first = parts.next();
        for (k, part) in parts {
            let fill = &fill;
            scope.spawn(move || fill(k * each, part));
        }
        if let Some((_, part)) = first {
            fill(0, part);
        }
    });
    Ok(tensor)
}

/// Values of an integer input with which every position that is made of it stays inside its tensor, as far as that can be told;
/// small ones if no position is.
pub fn integer_range(cascade: &Cascade, bound: &Bound, input: TensorId) -> (i64, i64) {
    let dtype = cascade[input].dtype.unwrap_or(DType::I32);
    let (least, greatest) = dtype.integer_range().unwrap_or((0, 1));
    let small = (least.max(-8), greatest.min(if least < 0 { 7 } else { 15 }));
    let (low, high) = match positions::positions(cascade, bound, input) {
        // A side that nothing bounds: not far.
        Some((low, high)) if low.is_infinite() => ((high as i64).min(small.1).saturating_add(small.0), high as i64),
        Some((low, high)) if high.is_infinite() => (low as i64, (low as i64).max(small.0).saturating_add(small.1)),
        Some((low, high)) => (low as i64, high as i64),
        None => return small,
    };
    (low.max(least), high.min(greatest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_same_everywhere() {
        let mut random = Random::new(0, "Q");
        let first: Vec<u64> = (0..2).map(|_| random.bits()).collect();
        let mut again = Random::new(0, "Q");
        assert_eq!(first, [again.bits(), again.bits()]);
        assert_ne!(first[0], Random::new(0, "K").bits());
        assert_ne!(first[0], Random::new(1, "Q").bits());
    }

    #[test]
    fn normals_have_mean_zero_and_variance_one() {
        let mut random = Random::new(7, "x");
        let values: Vec<f64> = (0..20_000).map(|_| random.normal()).collect();
        let mean = values.iter().sum::<f64>() / 20_000.0;
        let variance = values.iter().map(|v| v * v).sum::<f64>() / 20_000.0;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
    }

    #[test]
    fn tensors_made_on_all_cores_hold_the_same_values() {
        let text = "input X[m,n]: bf16, i[m]: i32\noutput Y: f32\nY[m] = sum(n) X[m,n] * i[m]";
        let cascade = einloom_cascade::parse(text).cascade;
        for n in [0, 3, 2 * BLOCK + 17] {
            let sizes = [("M".to_string(), 5), ("N".to_string(), n)].into();
            let given = einloom_cascade::Given { sizes, ..Default::default() };
            let bound = einloom_cascade::bind(&cascade, &given).expect("sizes");
            for id in cascade.inputs() {
                let dtype = cascade[id].dtype.expect("declared");
                let expected =
                    Tensor::from_values(dtype, &bound.shape(&cascade, id), &random_values(&cascade, &bound, id, 3));
                assert_eq!(random_tensor(&cascade, &bound, id, dtype, 3).ok(), expected);
            }
        }
    }

    #[test]
    fn integers_keep_positions_inside() {
        // What an input is used for, and its values where N is 20 and C is 3.
        for (uses, low, high) in [
            ("O[c] = X[i[c]]", 0, 19),
            ("O[c] = X[2 * i[c] + 1]", 0, 9),
            ("O[c] = X[i[c] / 4 + c]", 0, 71),
            ("at[c]: i32 = 2 * i[c] + 1\nO[c] = X[at[c]]", 0, 9),
            ("at[c]: i32 = 2 * i[c] + 1\nO[c] = X[at[c] - 3]", 1, 10),
            ("at[c]: i32 = 5 - i[c]\nO[c] = X[at[c]]", -14, 5),
            ("at[c]: i32 = floor(i[c] / 4) + 6 * c\nO[c] = X[at[c]]", 0, 31),
            ("at[c]: i32 = i[c] + j[c]\nO[c] = X[at[c]]", 0, 9),
            ("at[c]: i32 = max(i[c], 0)\nO[c] = X[at[c]]", -1, 19),
            ("at[c]: i32 = where(c < 1, i[c], i[c] + 3)\nO[c] = X[at[c]]", 0, 16),
            ("a[c]: i32 = i[c] - 1\nb[c]: i32 = 2 * a[c]\nO[c] = X[b[c]]", 1, 10),
            ("at: i32 = sum(c) i[c]\nO[c] = X[at] + i[c]", 0, 6),
            ("at: i32 = argmax(c) X[c]\nO[c] = X[i[c] + at]", 0, 17),
            ("at[c]: i32 = 2 * i[c]\nO[c] = sum(n: n == at[c]) X[n]", 0, 9),
            ("O[c] = X[c] * i[c]", -8, 7),
        ] {
            let text = format!("input X[n]: f32, i[c]: i32, j[c]: i32\noutput O: f32\n{uses} + 0 * j[c]\n");
            let parsed = einloom_cascade::parse(&text);
            assert!(!parsed.diagnostics.iter().any(|d| d.is_error()), "{:?}", parsed.diagnostics);
            let sizes = [("N".to_string(), 20), ("C".to_string(), 3)].into();
            let given = einloom_cascade::Given { sizes, ..Default::default() };
            let bound = einloom_cascade::bind(&parsed.cascade, &given).expect("sizes");
            let input = parsed.cascade.tensor("i").expect("declared");
            assert_eq!(integer_range(&parsed.cascade, &bound, input), (low, high), "{uses}");
        }
    }

    #[test]
    fn integers_cover_their_range() {
        let mut random = Random::new(7, "i");
        let values: Vec<i64> = (0..200).map(|_| random.integer(-1, 2)).collect();
        assert_eq!(values.iter().min(), Some(&-1));
        assert_eq!(values.iter().max(), Some(&2));
        assert_eq!(random.integer(3, 2), 3);
    }
}
