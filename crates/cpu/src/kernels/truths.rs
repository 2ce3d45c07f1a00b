//! Truth values as bits, 32 to a word, the first the lowest; a row ends with its word.

use super::isa::Instructions;
use super::real::Real;
use super::wide::{Wide, WideWork, with_wide};
use einloom_cascade::BinaryOp;

const LANES: usize = 16;
/// Elements of a word.
pub(crate) const WORD: usize = 32;

/// Words of a row of so many elements.
pub(crate) fn words(columns: usize) -> usize {
    columns.div_ceil(WORD)
}

/// The bits of so many elements from one on, as many as a vector has.
#[inline(always)]
pub(super) fn of_vector(bits: &[u32], at: usize) -> u16 {
    debug_assert!(at.is_multiple_of(LANES), "a vector's own");
    (bits[at / WORD] >> (at % WORD)) as u16
}

/// Writes 1 or 0 for each of the elements that begin with a word.
#[inline(always)]
pub(crate) fn numbers<T: Real>(bits: &[u32], to: &mut [T]) {
    for (to, word) in to.chunks_mut(WORD).zip(bits) {
        for (bit, x) in to.iter_mut().enumerate() {
            *x = if word >> bit & 1 != 0 { T::ONE } else { T::default() };
        }
    }
}

/// Sets a bit for each byte that is not 0; the other bits become 0.
#[inline(always)]
pub(crate) fn of_bytes<I: Instructions>(from: &[u8], to: &mut [u32]) {
    let whole = from.len() / WORD;
    let (some, last) = (&from[..whole * WORD], &from[whole * WORD..]);
    if !with_wide::<I, _>(Bytes { from: some, to: &mut to[..whole] }) {
        some.chunks_exact(WORD).zip(&mut *to).for_each(|(from, to)| *to = of_few(from));
    }
    if !last.is_empty() {
        to[whole] = of_few(last);
    }
}

/// Whole words.
struct Bytes<'a> {
    from: &'a [u8],
    to: &'a mut [u32],
}

impl<V: Wide> WideWork<V> for Bytes<'_> {
    #[inline(always)]
    unsafe fn run(self) -> bool {
        for (from, to) in self.from.chunks_exact(WORD).zip(self.to) {
            // SAFETY: the caller has the instructions; there are 32.
            *to = unsafe { V::some_bytes(from.as_ptr()) };
        }
        true
    }
}

fn of_few(from: &[u8]) -> u32 {
    let (eights, rest) = from.as_chunks::<8>();
    let mut word = 0;
    for (number, eight) in eights.iter().enumerate() {
        word |= of_eight(*eight) << (8 * number);
    }
    if !rest.is_empty() {
        let mut eight = [0; 8];
        eight[..rest.len()].copy_from_slice(rest);
        word |= of_eight(eight) << (8 * eights.len());
    }
    word
}

#[inline(always)]
fn of_eight(bytes: [u8; 8]) -> u32 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let x = u64::from_le_bytes(bytes);
    // The upper bit of each byte that is not 0, as its lowest, and all of them moved to the upper byte.
    let some = ((((x & (0x7f * EACH)) + 0x7f * EACH) | x) >> 7) & EACH;
    (some.wrapping_mul(0x0102_0408_1020_4080) >> 56) as u32
}

/// Sets a bit for each number that is not 0.
pub(crate) fn of_numbers(from: &[f32]) -> Vec<u32> {
    let bit = |(at, x): (usize, &f32)| u32::from(*x != 0.0) << at;
    from.chunks(WORD).map(|from| from.iter().enumerate().map(bit).sum()).collect()
}

/// Integers of a tile: that of a row and a column is so many elements from the first for each row, and one or none for each column.
#[derive(Clone, Copy)]
pub(crate) struct Integers<'a> {
    pub data: &'a [i32],
    pub of_row: usize,
    pub of_column: bool,
}

impl Integers<'_> {
    fn get(self, row: usize, column: usize) -> i32 {
        self.data[row * self.of_row + if self.of_column { column } else { 0 }]
    }

    /// Whether those of so many rows and columns are there.
    fn has(self, rows: usize, columns: usize) -> bool {
        let last = (rows - 1) * self.of_row + if self.of_column { columns - 1 } else { 0 };
        last < self.data.len()
    }

    /// As many as a vector has. Nothing is computed with them as numbers of f32.
    ///
    /// # Safety
    /// The processor has the vectors; the elements are there.
    #[inline(always)]
    unsafe fn vector<V: Wide>(self, row: usize, column: usize) -> V {
        // SAFETY: the caller's.
        unsafe {
            let row = self.data.as_ptr().add(row * self.of_row);
            if self.of_column { V::load(row.add(column).cast()) } else { V::splat(f32::from_bits(*row as u32)) }
        }
    }

    /// # Safety
    /// As of [`Self::vector`], of those elements for which the mask has a bit.
    #[inline(always)]
    unsafe fn some<V: Wide>(self, row: usize, column: usize, mask: u16) -> V {
        // SAFETY: the caller's.
        unsafe {
            if self.of_column {
                V::load_where(mask, self.data.as_ptr().add(row * self.of_row).wrapping_add(column).cast())
            } else {
                self.vector(row, column)
            }
        }
    }
}

/// Sets a bit for each element for which the comparison holds, in rows of as few words as hold them; the other bits become 0.
///
/// # Panics
/// If it is no comparison, or if integers or words are missing.
#[inline(always)]
pub(crate) fn compare<I: Instructions>(
    op: BinaryOp,
    x: Integers<'_>,
    y: Integers<'_>,
    [rows, columns]: [usize; 2],
    to: &mut [u32],
) {
    if rows == 0 || columns == 0 {
        return;
    }
    let to = &mut to[..rows * words(columns)];
    assert!(op.is_comparison() && x.has(rows, columns) && y.has(rows, columns), "integers to compare");
    let [x, y] = if matches!(op, BinaryOp::Lt | BinaryOp::Ge) { [y, x] } else { [x, y] };
    let unless = if matches!(op, BinaryOp::Ne | BinaryOp::Le | BinaryOp::Ge) { u32::MAX } else { 0 };
    let equal = matches!(op, BinaryOp::Eq | BinaryOp::Ne);
    let done = if equal {
        with_wide::<I, _>(Compare::<true> { x, y, unless, to: &mut *to, columns })
    } else {
        with_wide::<I, _>(Compare::<false> { x, y, unless, to: &mut *to, columns })
    };
    let beyond = if columns.is_multiple_of(WORD) { 0 } else { u32::MAX << (columns % WORD) };
    for (row, to) in to.chunks_exact_mut(words(columns)).enumerate() {
        for (number, word) in to.iter_mut().enumerate().filter(|_| !done) {
            *word = unless;
            for bit in 0..WORD.min(columns - number * WORD) {
                let (x, y) = (x.get(row, number * WORD + bit), y.get(row, number * WORD + bit));
                *word ^= u32::from(if equal { x == y } else { x > y }) << bit;
            }
        }
        if let Some(last) = to.last_mut() {
            *last &= !beyond;
        }
    }
}

/// `x == y` or else `x > y`, with the bits of `unless` turned.
struct Compare<'a, const EQUAL: bool> {
    x: Integers<'a>,
    y: Integers<'a>,
    unless: u32,
    to: &'a mut [u32],
    columns: usize,
}

impl<V: Wide, const EQUAL: bool> WideWork<V> for Compare<'_, EQUAL> {
    #[inline(always)]
    unsafe fn run(self) -> bool {
        let Self { x, y, unless, to, columns } = self;
        let whole = columns / WORD;
        for (row, to) in to.chunks_exact_mut(words(columns)).enumerate() {
            for (number, word) in to.iter_mut().enumerate() {
                let mut bits = 0;
                for half in 0..WORD / LANES {
                    let at = number * WORD + half * LANES;
                    // SAFETY: the caller has the instructions; lengths were checked, and masks have a bit for each element that is
                    // there.
                    unsafe {
                        let [x, y] = if number < whole {
                            [x.vector::<V>(row, at), y.vector::<V>(row, at)]
                        } else {
                            let there = ((1u32 << columns.saturating_sub(at).min(LANES)) - 1) as u16;
                            [x.some::<V>(row, at, there), y.some::<V>(row, at, there)]
                        };
                        let holds = if EQUAL { x.equals(y) } else { x.exceeds(y) };
                        bits |= u32::from(holds) << (half * LANES);
                    }
                }
                *word = bits ^ unless;
            }
        }
        true
    }
}

/// Rows of bits, of which a number of words are from row to row: none, if all rows are the same.
#[derive(Clone, Copy)]
pub(crate) struct Bits<'a> {
    pub words: &'a [u32],
    pub pitch: usize,
}

impl<'a> Bits<'a> {
    /// Those of a row, from an element on that begins a word.
    #[inline(always)]
    pub(crate) fn row(self, row: usize, from: usize) -> &'a [u32] {
        &self.words[row * self.pitch + from / WORD..]
    }

    /// The same rows from one on, and from an element on that begins a word.
    #[inline(always)]
    pub(crate) fn from(self, row: usize, from: usize) -> Self {
        Self { words: self.row(row, from), pitch: self.pitch }
    }
}

/// Whether there are bits that are set, and such as are not, of so many.
#[inline(always)]
pub(crate) fn some(bits: &[u32], columns: usize) -> [bool; 2] {
    let (mut set, mut all) = (0, u32::MAX);
    let (whole, rest) = (columns / WORD, columns % WORD);
    for word in &bits[..whole] {
        (set, all) = (set | word, all & word);
    }
    if rest > 0 {
        let beyond = u32::MAX << rest;
        (set, all) = (set | bits[whole] & !beyond, all & (bits[whole] | beyond));
    }
    [set != 0, all != u32::MAX]
}

/// The same of each column of rows that are not none.
pub(crate) fn some_of_columns<'a>(
    rows: impl Iterator<Item = &'a [u32]>,
    columns: usize,
) -> impl Iterator<Item = [bool; 2]> {
    let (mut set, mut all) = (vec![0; words(columns)], vec![u32::MAX; words(columns)]);
    for row in rows {
        for ((set, all), word) in set.iter_mut().zip(&mut all).zip(row) {
            (*set, *all) = (*set | word, *all & word);
        }
    }
    (0..columns).map(move |at| {
        let bit = |bits: &[u32]| bits[at / WORD] >> (at % WORD) & 1 != 0;
        [bit(&set), !bit(&all)]
    })
}

/// `to = from * times` for the elements of rows whose bit is set, or is not if `flipped`, and `other` for the others; rows are so far apart,
/// and `from` is `to` itself if none is told. Each of `most`, if that is told, becomes the larger of itself and its column's results; a NaN
/// stays. False, and nothing done, if the instructions are not there.
///
/// # Panics
/// If elements or bits are missing.
#[inline(always)]
pub(crate) fn keep<I: Instructions>(
    from: Option<(&[f32], usize)>,
    to: (&mut [f32], usize),
    [rows, columns]: [usize; 2],
    (times, other): (f32, f32),
    (bits, flipped): (Bits<'_>, bool),
    most: Option<&mut [f32]>,
) -> bool {
    if rows == 0 || columns == 0 {
        return true;
    }
    let lasts = |pitch: usize| (rows - 1) * pitch;
    let there = from.is_none_or(|(from, pitch)| from.len() >= lasts(pitch) + columns);
    assert!(there && to.0.len() >= lasts(to.1) + columns, "an element each");
    assert!(bits.words.len() >= lasts(bits.pitch) + words(columns), "a bit each");
    assert!(most.as_ref().is_none_or(|most| most.len() >= columns), "a result for each column");
    with_wide::<I, _>(Keep { from, to, lengths: [rows, columns], numbers: [times, other], bits, flipped, most })
}

struct Keep<'a> {
    from: Option<(&'a [f32], usize)>,
    to: (&'a mut [f32], usize),
    lengths: [usize; 2],
    numbers: [f32; 2],
    bits: Bits<'a>,
    flipped: bool,
    most: Option<&'a mut [f32]>,
}

impl<V: Wide> WideWork<V> for Keep<'_> {
    #[inline(always)]
    unsafe fn run(self) -> bool {
        let Self { from, to: (to, pitch), lengths: [rows, columns], numbers, bits, flipped, most } = self;
        let flip = if flipped { u32::MAX } else { 0 };
        let most = most.map(<[f32]>::as_mut_ptr);
        let to = to.as_mut_ptr();
        let (from, from_pitch) = from.map_or((to.cast_const(), pitch), |(from, pitch)| (from.as_ptr(), pitch));
        // SAFETY: the caller has the instructions; lengths were checked, and masks have a bit for each element that is there.
        unsafe {
            let [times, other] = numbers.map(|x| V::splat(x));
            for row in 0..rows {
                let (from, to) = (from.add(row * from_pitch), to.add(row * pitch));
                let bits = bits.words.as_ptr().add(row * bits.pitch);
                for number in 0..columns / WORD {
                    let word = *bits.add(number) ^ flip;
                    for half in 0..WORD / LANES {
                        let at = number * WORD + half * LANES;
                        let mask = (word >> (half * LANES)) as u16;
                        let x = V::load(from.add(at)).mul(times).or_elsewhere(mask, other);
                        x.store(to.add(at));
                        if let Some(most) = most {
                            let most = most.add(at);
                            V::load(most).larger(x).store(most);
                        }
                    }
                }
                for at in (columns / WORD * WORD..columns).step_by(LANES) {
                    let mask = ((*bits.add(at / WORD) ^ flip) >> (at % WORD)) as u16;
                    let there = ((1u32 << (columns - at).min(LANES)) - 1) as u16;
                    let x = V::load_where(there, from.add(at)).mul(times).or_elsewhere(mask, other);
                    x.store_where(there, to.add(at));
                    if let Some(most) = most {
                        let most = most.add(at);
                        V::load_where(there, most).larger(x).store_where(there, most);
                    }
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::{Bits, Integers, WORD, compare, keep, numbers, of_bytes, of_numbers, some, some_of_columns, words};
    use crate::kernels::fold::Monoid;
    use crate::kernels::isa::{Instructions, Isa, Token, Work, dispatch};
    use einloom_cascade::BinaryOp;

    struct Run<F: FnOnce(Kernels)>(F);

    type Compares = fn(BinaryOp, Integers<'_>, Integers<'_>, [usize; 2], &mut [u32]);
    type Keeps = fn(
        Option<(&[f32], usize)>,
        (&mut [f32], usize),
        [usize; 2],
        (f32, f32),
        (Bits<'_>, bool),
        Option<&mut [f32]>,
    ) -> bool;

    /// The kernels with some instructions.
    struct Kernels {
        compare: Compares,
        keep: Keeps,
        of_bytes: fn(&[u8], &mut [u32]),
    }

    impl<F: FnOnce(Kernels)> Work for Run<F> {
        type Output = ();

        fn run<I: Instructions>(self) {
            (self.0)(Kernels { compare: compare::<I>, keep: keep::<I>, of_bytes: of_bytes::<I> });
        }
    }

    fn tokens() -> impl Iterator<Item = Token> {
        Isa::ALL.into_iter().filter_map(Token::new)
    }

    #[test]
    fn bits_tell_which_comparisons_hold_and_nothing_beyond() {
        let x: Vec<i32> = (0..400).map(|i| [i32::MIN, -1, 0, 7, i32::MAX][i * 7 % 5]).collect();
        let y: Vec<i32> = (0..400).map(|i| [0, 7, i32::MAX, -1, i32::MIN, 7, 0][i * 3 % 7]).collect();
        for (token, op) in tokens().flat_map(|token| {
            use BinaryOp::{Eq, Ge, Gt, Le, Lt, Ne};
            [Eq, Ne, Lt, Le, Gt, Ge].map(|op| (token, op))
        }) {
            for (rows, columns) in [(1, 1), (3, 15), (2, 16), (3, 17), (2, 32), (4, 33), (3, 100), (1, 160)] {
                for (of_row, of_column) in [(columns, true), (0, true), (1, false), (0, false), (columns + 3, true)] {
                    let all = Integers { data: &x[..rows * columns], of_row: columns, of_column: true };
                    let some = Integers { data: &y, of_row, of_column };
                    for (x, y) in [(all, some), (some, all)] {
                        let mut to = vec![u32::MAX; rows * words(columns) + 1];
                        dispatch(token, Run(|k| (k.compare)(op, x, y, [rows, columns], &mut to)));
                        assert_eq!(to.pop(), Some(u32::MAX), "{op:?} {columns}");
                        for (row, words) in to.chunks(words(columns)).enumerate() {
                            let mut found = vec![0f32; words.len() * WORD];
                            numbers(words, &mut found);
                            for (at, found) in found.into_iter().enumerate() {
                                let holds = |x: i32, y: i32| op.apply(f64::from(x), f64::from(y)) != 0.0;
                                let want = at < columns && holds(x.get(row, at), y.get(row, at));
                                assert_eq!(found, f32::from(u8::from(want)), "{op:?} {columns}: {row} {at}");
                            }
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn bytes_and_numbers_that_are_not_0_are_bits() {
        let bytes: Vec<u8> =
            (0..100usize).map(|i| [0, 1, 0x80, 0, 255, 2, 0, 0x7f][(i * 5 % 8) ^ (i / 8 % 8)]).collect();
        let floats: Vec<f32> = bytes.iter().map(|&x| f32::from(x) / 8.0).collect();
        for (token, count) in tokens().flat_map(|token| [1, 7, 8, 31, 32, 33, 100].map(|count| (token, count))) {
            let mut to = vec![u32::MAX; words(count)];
            dispatch(token, Run(|k| (k.of_bytes)(&bytes[..count], &mut to)));
            assert_eq!(to, of_numbers(&floats[..count]));
            for at in 0..words(count) * WORD {
                let want = at < count && bytes[at] != 0;
                assert_eq!(to[at / WORD] >> (at % WORD) & 1 != 0, want, "{count}: {at}");
            }
        }
    }

    #[test]
    fn elements_whose_bit_is_set_are_kept() {
        // Three rows of up to four words, of which each lies five words and 150 elements from the one before.
        let bits: Vec<u32> = (1..16u32).map(|i| i.wrapping_mul(0x9e37_79b9) ^ (i << 7)).collect();
        let mut set = vec![0f32; 15 * WORD];
        numbers(&bits, &mut set);
        let (rows, pitch) = (3, 150);
        let before: Vec<f32> =
            (0..rows * pitch).map(|i| if i % 11 == 0 { f32::NAN } else { (i % 97) as f32 }).collect();
        let least = |at: usize| if at.is_multiple_of(7) { f32::NAN } else { 20.0 };
        let same = |x: f32, y: f32| x == y || x.is_nan() && y.is_nan();
        for (token, width) in tokens().flat_map(|token| [1, 16, 31, 32, 50, 96, 128].map(|width| (token, width))) {
            for [flipped, own, folds, all] in (0..16).map(|i| [1, 2, 4, 8].map(|bit| i & bit != 0)) {
                let (mut after, mut done) = (if own { before.clone() } else { vec![7.0; rows * pitch] }, false);
                let mut most: Vec<f32> = (0..width + 1).map(least).collect();
                let (from, to) = ((!own).then_some((&*before, pitch)), (&mut after[..], pitch));
                let bits = Bits { words: &bits, pitch: if all { 0 } else { 5 } };
                let fold = folds.then_some(&mut most[..]);
                dispatch(token, Run(|k| done = (k.keep)(from, to, [rows, width], (0.5, -1.5), (bits, flipped), fold)));
                assert_eq!(done, cfg!(target_arch = "x86_64") && token.isa() != Isa::Portable);
                let mut results: Vec<f32> = (0..width + 1).map(least).collect();
                for (i, &after) in after.iter().enumerate() {
                    let (row, at) = (i / pitch, i % pitch);
                    let kept = at < width && (set[row * bits.pitch * WORD + at] != 0.0) != flipped;
                    let want = match () {
                        () if at >= width || !done => {
                            if own {
                                before[i]
                            } else {
                                7.0
                            }
                        }
                        () if kept => before[i] * 0.5,
                        () => -1.5,
                    };
                    assert!(same(after, want), "{width} {row} {at}: {after} for {want}");
                    if folds && done && at < width {
                        results[at] = Monoid::Max.combine(results[at], want);
                    }
                }
                assert!(most.iter().zip(&results).all(|(x, y)| same(*x, *y)), "{width}: {most:?} for {results:?}");
            }
        }
    }

    #[test]
    fn what_there_is_of_a_row_is_told() {
        assert_eq!(some(&[0, 0], 40), [false, true]);
        assert_eq!(some(&[u32::MAX, 0xff], 40), [true, false]);
        assert_eq!(some(&[u32::MAX, 0x7f], 40), [true, true]);
        assert_eq!(some(&[0, 0x100], 40), [false, true]);
        assert_eq!(some(&[1, 0], 32), [true, true]);
        assert_eq!(some(&[u32::MAX], 32), [true, false]);
        let rows: [&[u32]; 2] = [&[0b0110, 1], &[0b0101, 1]];
        let columns: Vec<[bool; 2]> = some_of_columns(rows.into_iter(), 33).collect();
        assert_eq!(columns[..4], [[true, true], [true, true], [true, false], [false, true]]);
        assert_eq!((columns.len(), columns[32]), (33, [true, false]));
    }
}
