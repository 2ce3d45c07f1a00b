//! Plans against bounds on the machine of pebble games: one memory without end, one that holds `M` elements.

use einloom_cascade::DType;
use einloom_machine::{Machine, built_in};
use einloom_model::{KernelTransfers, held_elements, transfers};
use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
use einloom_tile::{Builder, Defect, Predicate, Program, TileMonoid, carry};

fn machine(elements: u64) -> Machine {
    built_in("two-level").and_then(|m| m.with_capacity(elements).ok()).expect("an abstract machine")
}

fn on(program: Result<Program, Vec<Defect>>, elements: u64) -> KernelTransfers {
    transfers(&program.expect("well-formed"), &machine(elements)).remove(0)
}

/// Elements held.
fn held(k: &KernelTransfers) -> u64 {
    k.resident_bytes / 4
}

fn ratio(k: &KernelTransfers) -> f64 {
    k.levels[0].bytes as f64 / k.levels[0].bound_bytes as f64
}

#[test]
fn a_matmul_is_bounded_as_published() {
    // 2abc/√M + ac (Kwasniewski et al. 2019).
    let n = 1024;
    for elements in [256u64, 1024, 4096, 16384] {
        let k = on(matmul([n, n, n], [8, 8, 2], DType::F32), elements);
        let n = n as f64;
        let published = 4.0 * (2.0 * n * n * n / (elements as f64).sqrt() + n * n);
        let bound = k.levels[0].any_order_bytes as f64;
        assert!((bound / published - 1.0).abs() < 1e-3, "{bound}, published {published}");
        // Tiles that are whole in number, with a vector beside them, take more.
        let whole = k.levels[0].bound_bytes as f64 / published;
        assert!((1.0..1.0 + 2.0 / (elements as f64).sqrt()).contains(&whole), "{elements}: {whole}");
    }
    // A reduction so short that sums are complete at once: rows stay, ab²c/M + ac.
    let k = on(matmul([1 << 14, 1 << 14, 8], [16, 16, 2], DType::F32), 4096);
    let published = 4.0 * (2f64.powi(28) * 64.0 / 4096.0 + 2f64.powi(28));
    assert!((k.levels[0].bound_bytes as f64 / published - 1.0).abs() < 1e-3, "{}", k.levels[0].bound_bytes);
    // What fits moves once.
    let k = on(matmul([16, 16, 16], [16, 16, 2], DType::F32), 4096);
    assert_eq!(k.levels[0].bound_bytes, 3 * 256 * 4);
}

#[test]
fn attention_is_bounded_as_published() {
    // 4qxd²/M + 2qd while M ≥ d² (Abbott and Zardini; Saha and Ye); below, contractions at 2qxd/√M each.
    let (q, d) = (4096usize, 64usize);
    let sizes = AttentionSizes { b: 1, h: 1, m: q, n: q, d, e: d };
    for elements in [4096u64, 16384, 65536] {
        let k = on(attention(sizes, [16, 16], false, DType::F32), elements);
        let (n, d, m) = (q as f64, d as f64, elements as f64);
        let published = 4.0 * (4.0 * n * n * d * d / m + 2.0 * n * d);
        let bound = k.levels[0].bound_bytes as f64;
        // Groups are whole in number: one more pass over keys and values at most.
        let whole = published + 4.0 * 2.0 * n * d;
        assert!((0.995 * published..whole).contains(&bound), "{elements}: {bound}, published {published}");
    }
    let k = on(attention(sizes, [4, 2], false, DType::F32), 1024);
    let (n, d) = (q as f64, d as f64);
    let published = 4.0 * 4.0 * n * n * d / 1024f64.sqrt();
    assert!((k.levels[0].bound_bytes as f64 / published - 1.0).abs() < 1e-2, "{}", k.levels[0].bound_bytes);
}

#[test]
fn groups_of_rows_are_whole_in_number() {
    // Rows of queries, sums, a maximum and a sum of weights: 1024 rows of 16 elements, of which 32 + 2 are held, and beside them a
    // key, a value, a score and the maximum before.
    let (n, d) = (1024.0, 16.0);
    let sizes = AttentionSizes { b: 1, h: 1, m: 1024, n: 1024, d: 16, e: 16 };
    let bound = |elements: u64| on(attention(sizes, [8, 2], false, DType::F32), elements).levels[0].bound_bytes as f64;
    for (room, groups) in [(512.0f64, 2.0f64), (500.0, 3.0), (342.0, 3.0), (341.0, 4.0), (256.0, 4.0), (255.0, 5.0)] {
        let elements = 34.0 * room + 32.0 + 2.0;
        // All keys and values come in so often, but for those that stay from group to group beside rows in equal groups.
        let stays = (groups - 1.0) * (elements - 34.0 * n / groups);
        let expected = 4.0 * (groups * n * 2.0 * d - stays + 2.0 * n * d);
        let found = bound(elements as u64);
        assert!((found / expected - 1.0).abs() < 1e-3, "{room} rows: {found}, expected {expected}");
        // An element less, and a row less fits, of which there may be a group more then.
        let more = bound(elements as u64 - 1) / found;
        assert_eq!(more > 1.1, (room - 1.0) * groups < n, "{room} rows: {more}");
    }
}

#[test]
fn few_rows_hold_a_number_each_and_no_key() {
    // Queries, sums, maxima and sums of weights stay. Beside them are two keys, two values and four numbers where rows follow one
    // another; or two numbers of each row, two more of that at hand, while keys and values pass element by element.
    let sizes = AttentionSizes { b: 1, h: 1, m: 256, n: 64, d: 16, e: 16 };
    for rows in [2, 16, 31, 32, 33, 34, 64, 128] {
        let program = attention(sizes, [rows, 2], false, DType::F32).expect("well-formed");
        let rows = rows as u64;
        assert_eq!(held_elements(&program.kernels[0]), 34 * rows + (64 + 4).min(2 * rows + 2), "{rows} rows");
    }
}

#[test]
fn what_is_loaded_where_it_is_read_is_held_if_it_is_asked_for_again() {
    // T[m] = sum(n) exp(A[m] B[n]): as B passes, all of the tile of A stays with its sums, an element of B and a term; or B stays.
    let held = |rows: usize, columns: usize| {
        let mut p = Builder::new("rows");
        let (a, b) = (p.input("A", &[1024], DType::F32), p.input("B", &[columns], DType::F32));
        let out = p.output("T", &[1024], DType::F32);
        p.kernel("rows", |k| {
            let (m, n) = (k.grid("m", 1024, rows), k.whole("n", columns));
            let (a, b) = (k.load("a", a, [m]), k.load("b", b, [n]));
            let term = k.map("term", (a * b).exp());
            let sum = k.reduce("sum", TileMonoid::Sum, term, n);
            k.store(out, [m], sum);
        });
        held_elements(&p.finish().expect("well-formed").kernels[0])
    };
    for (rows, columns) in [(64, 4096), (64, 16), (31, 1000)] {
        assert_eq!(held(rows, columns), (rows.min(columns) + rows + 2) as u64, "{rows} rows, {columns} columns");
    }
}

#[test]
fn what_tiles_leave_free_keeps_a_part_of_what_comes_again() {
    // Two rows of tiles; the right factor comes in for each. Every element more that fits is spared once in the second.
    let sizes = [64, 32, 64];
    let moved = |elements: u64| on(matmul(sizes, [32, 32, 2], DType::F32), elements).levels[0].bytes / 4;
    let held = held(&on(matmul(sizes, [32, 32, 2], DType::F32), 4096));
    assert_eq!(moved(held), 64 * 64 + 2 * 64 * 32 + 64 * 32);
    assert_eq!(moved(held + 100), moved(held) - 100);
    // Not on a machine whose memories are caches.
    let mut caches = machine(held + 100);
    caches.element = None;
    let program = matmul(sizes, [32, 32, 2], DType::F32).expect("well-formed");
    assert_eq!(transfers(&program, &caches)[0].levels[0].bytes / 4, moved(held));
}

#[test]
fn the_structure_decides_and_not_the_sizes() {
    // Under a mask half of the points remain; heads in a batch multiply.
    let bound = |b, h, causal| {
        let sizes = AttentionSizes { b, h, m: 2048, n: 2048, d: 64, e: 64 };
        on(attention(sizes, [16, 16], causal, DType::F32), 16384).levels[0].bound_bytes as f64
    };
    let (one, six, half) = (bound(1, 1, false), bound(2, 3, false), bound(1, 1, true));
    assert!((six / one - 6.0).abs() < 1e-3, "{six} {one}");
    let once = 4.0 * 2.0 * 2048.0 * 64.0;
    // Half of them do not fill whole rows, for which alone groups are known to be whole; and short rows, which a piece may complete, count for nothing.
    assert!((0.4..0.502).contains(&((half - once) / (one - once))), "{half} {one}");
}

#[test]
fn two_places_of_one_tensor_may_be_the_same_elements() {
    // C = X Xᵀ: whoever holds g rows has g² products of them, so half of what two tensors would need is certain.
    let gram = |second: bool| {
        let mut p = Builder::new("gram");
        let x = p.input("X", &[1024, 512], DType::F32);
        let y = if second { p.input("Y", &[1024, 512], DType::F32) } else { x };
        let out = p.output("C", &[1024, 1024], DType::F32);
        p.kernel("gram", |k| {
            let (m, n, d) = (k.grid("m", 1024, 16), k.grid("n", 1024, 16), k.stream_axis("d", 512, 2));
            let [sum] = k.stream(d, Predicate::always(), [carry("sum", [m, n], 0.0)], |k, [sum]| {
                let (a, b) = (k.load("a", x, [m, d]), k.load("b", y, [n, d]));
                [k.mma_onto("next", sum, a, b)]
            });
            k.store(out, [m, n], sum);
        });
        on(p.finish(), 1024).levels[0].bound_bytes as f64 - 4.0 * 1024.0 * 1024.0
    };
    let (one, two) = (gram(false), gram(true));
    assert!(one < 0.75 * two && one > 0.49 * two, "{one} {two}");
}

#[test]
fn no_plan_is_below_its_bound() {
    for elements in [64u64, 300, 1000, 4096, 65536] {
        for tile in [[4, 4, 2], [8, 16, 4], [30, 30, 2], [60, 60, 2]] {
            for size in [[100, 70, 50], [16, 300, 4], [300, 3, 300], [64, 64, 64]] {
                let k = on(matmul(size, tile, DType::Bf16), elements);
                if held(&k) <= elements {
                    assert!(k.levels[0].bytes >= k.levels[0].bound_bytes, "{size:?} {tile:?} {elements}: {k:?}");
                }
            }
        }
        for tile in [[4, 2], [16, 4], [100, 2]] {
            for (m, n, d) in [(100, 70, 8), (3, 500, 16), (300, 20, 8), (20, 300, 32)] {
                let sizes = AttentionSizes { b: 2, h: 1, m, n, d, e: d };
                let k = on(attention(sizes, tile, false, DType::F32), elements);
                if held(&k) <= elements {
                    assert!(k.levels[0].bytes >= k.levels[0].bound_bytes, "{sizes:?} {tile:?} {elements}: {k:?}");
                }
            }
        }
    }
}

#[test]
fn good_tiles_come_within_five_percent_of_the_bound() {
    for (elements, limit) in [(1024usize, 1.08), (4096, 1.05), (16384, 1.05), (65536, 1.05)] {
        // Of the rectangles that fit the best: squares may leave ragged groups.
        let side = (elements as f64).sqrt() as usize;
        let rectangle = |g: usize| {
            let other = (elements - 2 * g) / (g + 2);
            on(matmul([4096, 4096, 4096], [g, other, 2], DType::F32), elements as u64)
        };
        let fitting = (side * 7 / 8..side * 9 / 8).map(rectangle).filter(|k| held(k) <= elements as u64);
        let best = fitting.map(|k| ratio(&k)).fold(f64::INFINITY, f64::min);
        assert!((1.0..limit).contains(&best), "matmul at {elements}: {best}");
    }
    // Rows of queries and results fill the memory but for two keys (then values), scores and statistics.
    for (elements, d) in [(262144, 128), (1 << 20, 256)] {
        let sizes = AttentionSizes { b: 1, h: 1, m: 1 << 16, n: 1 << 16, d, e: d };
        let rows = |rows: usize| on(attention(sizes, [rows, 2], false, DType::F32), elements as u64);
        let most = (elements - 2 * d) / (2 * d + 4);
        let k = (1..=most).rev().step_by(4).map(rows).find(|k| held(k) <= elements as u64).expect("rows that fit");
        assert!((1.0..1.05).contains(&ratio(&k)), "attention at {elements}: {}", ratio(&k));
    }
}
