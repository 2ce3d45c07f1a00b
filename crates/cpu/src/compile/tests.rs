//! What plans promise about speed: no tile is rearranged or moved per chunk that need not be.

use super::simplify::{simplify, specialise};
use super::{Plan, Step, Unit, Viewable, compile, each_step};
use einloom_cascade::DType::{self, Bf16, F32};
use einloom_cascade::{BinaryOp, UnaryOp};
use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
use einloom_tile::{Builder, Coverage, Predicate, Program, Scalar, TileMonoid, ValueId, carry};

fn plan(program: &Program) -> Plan {
    compile(program, &program.kernels[0], None).expect("planned")
}

/// Tiles rearranged by the kernel's own body, and by the streams in it.
fn relayouts(plan: &Plan) -> [usize; 2] {
    let is = |step: &Step| usize::from(matches!(step, Step::Relayout { .. }));
    let own: usize = plan.body.iter().map(is).sum();
    let mut all = 0;
    each_step(&plan.body, &mut |step| all += is(step));
    [own, all - own]
}

/// Whether each state of the first stream is updated where it stands.
fn in_place(plan: &Plan) -> Vec<(&str, bool)> {
    let slot = |v: ValueId| plan.tiles[v.at()].slot;
    let states = plan.body.iter().find_map(|s| if let Step::Stream { states, .. } = s { Some(states) } else { None });
    let name = |v: ValueId| plan.kernel.value(v).name.as_str();
    states.into_iter().flatten().map(|s| (name(s.value), slot(s.value) == slot(s.next))).collect()
}

const SIZES: AttentionSizes = AttentionSizes { b: 1, h: 2, m: 512, n: 512, d: 64, e: 64 };

#[test]
fn attention_rearranges_its_queries_once_and_nothing_per_chunk() {
    for dtype in [F32, Bf16] {
        let plan = plan(&attention(SIZES, [64, 128], false, dtype).expect("well-formed"));
        assert_eq!(relayouts(&plan), [1, 0]);
        // The old maximum is still needed when the new one is known.
        assert_eq!(in_place(&plan), [("Mx", false), ("Z", true), ("O", true)]);
    }
}

#[test]
fn matmul_accumulates_in_place_on_tiles_as_they_lie() {
    let plan = plan(&matmul([512, 512, 512], [128, 128, 128], F32).expect("well-formed"));
    assert_eq!((relayouts(&plan), in_place(&plan)), ([0, 0], vec![("acc", true)]));
}

#[test]
fn masks_have_a_program_per_coverage_and_full_tiles_do_not_test() {
    let plan = plan(&attention(SIZES, [64, 128], true, F32).expect("well-formed"));
    let mut steps = vec![];
    each_step(&plan.body, &mut |step| {
        if let Step::Map { plan, .. } = step
            && plan.variants.len() == 3
        {
            steps.push(plan.variants.iter().map(|v| v.steps.len()).collect::<Vec<_>>());
        }
    });
    // Full: copy, multiply. Partial: select besides. Empty: fill.
    assert_eq!(steps, [[2, 3, 1]]);
}

/// Attention of one row of tiles, of weights below a row's greatest score; that is stored besides if `told`.
fn weights(told: bool, dtype: DType) -> Program {
    let mut p = Builder::new("weights");
    let (q, k) = (p.input("Q", &[512, 64], dtype), p.input("K", &[512, 64], dtype));
    let (y, top) = (p.output("Y", &[512, 64], F32), p.output("Top", &[512], F32));
    p.kernel("weights", |g| {
        let (m, d, n) = (g.grid("m", 512, 64), g.whole("d", 64), g.stream_axis("n", 512, 128));
        let q = g.load("q", q, [m, d]);
        let states = [carry("anchor", [m], f64::NEG_INFINITY), carry("sum", [m], 0.0), carry("acc", [m, d], 0.0)];
        let [anchor, sum, acc] = g.stream(n, Predicate::always(), states, |g, [anchor, sum, acc]| {
            let k = g.load("k", k, [n, d]);
            let scores = g.mma("scores", q, k);
            let next = g.reduce_onto("next", TileMonoid::Max, anchor, scores, n);
            let by = g.map("by", (anchor - next).exp());
            let weights = g.map("weights", (scores - next).exp());
            let kept = g.map("sum.kept", sum * by);
            let sum = g.reduce_onto("sum.next", TileMonoid::Sum, kept, weights, n);
            let narrow = if dtype == Bf16 { g.map("narrow", weights.round_to(Bf16)) } else { weights };
            let kept = g.map("acc.kept", acc * by);
            [next, sum, g.mma_onto("acc.next", kept, narrow, k)]
        });
        g.store(y, [m, d], acc / sum);
        g.store(top, [m], if told { anchor.into() } else { anchor + Scalar::from(sum).log() });
    });
    p.finish().expect("well-formed")
}

#[test]
fn scores_of_which_only_weights_are_wanted_are_exponentiated_at_once() {
    for (told, dtype) in [(false, Bf16), (true, Bf16), (false, F32), (true, F32)] {
        let program = weights(told, dtype);
        let plan = compile(&program, &program.kernels[0], Some(Unit { rates: None })).expect("planned");
        let mut found = vec![];
        each_step(&plan.body, &mut |step| {
            if let Step::Contract(c) = step {
                found.push(c.anchored.is_some());
            }
        });
        assert_eq!(found, [!told, false]);
    }
}

/// What is added to a product, loaded in `dtype`; the product is multiplied by a constant first, and read again if `twice`.
fn with_bias(dtype: DType, twice: bool) -> Program {
    let mut p = Builder::new("with_bias");
    let (q, k) = (p.input("Q", &[512, 64], F32), p.input("K", &[512, 64], F32));
    let (bias, y) = (p.input("Bias", &[512, 512], dtype), p.output("Y", &[512, 512], F32));
    let again = twice.then(|| p.output("S", &[512, 512], F32));
    p.kernel("with_bias", |g| {
        let (m, d, n) = (g.grid("m", 512, 64), g.whole("d", 64), g.grid("n", 512, 128));
        let (q, k) = (g.load("q", q, [m, d]), g.load("k", k, [n, d]));
        let scores = g.mma("scores", q, k);
        let bias = g.load("bias", bias, [m, n]);
        g.store(y, [m, n], Scalar::from(bias) + Scalar::from(scores) * 0.3);
        if let Some(again) = again {
            g.store(again, [m, n], scores);
        }
    });
    p.finish().expect("well-formed")
}

#[test]
fn contractions_add_what_maps_would_add_to_them() {
    for (dtype, twice, added) in [(F32, false, true), (F32, true, false), (Bf16, false, false)] {
        let plan = plan(&with_bias(dtype, twice));
        let mut found = vec![];
        each_step(&plan.body, &mut |step| match step {
            Step::Contract(c) => found.push((c.start.is_some(), c.apart)),
            Step::Load { view: Viewable::Added, .. } => found.push((true, true)),
            Step::Map { .. } => found.push((false, false)),
            _ => {}
        });
        assert_eq!(found == [(true, true), (true, true)], added, "{found:?}");
    }
}

/// A product times a constant, with numbers of rows added and, unless only one is, numbers of columns taken away; stored besides if `twice`.
fn with_sides(both: bool, twice: bool) -> Program {
    let mut p = Builder::new("with_sides");
    let (q, k) = (p.input("Q", &[512, 64], F32), p.input("K", &[512, 64], F32));
    let (row, column) = (p.input("Row", &[512], F32), p.input("Column", &[512], F32));
    let y = p.output("Y", &[512, 512], F32);
    let again = twice.then(|| p.output("S", &[512, 512], F32));
    p.kernel("with_sides", |g| {
        let (m, d, n) = (g.grid("m", 512, 64), g.whole("d", 64), g.grid("n", 512, 128));
        let (q, k) = (g.load("q", q, [m, d]), g.load("k", k, [n, d]));
        let scores = g.mma("scores", q, k);
        let row = g.load("row", row, [m]);
        let sum = Scalar::from(scores) * 0.3 + row;
        let sum = if both { sum - g.load("column", column, [n]) } else { sum };
        g.store(y, [m, n], sum);
        if let Some(again) = again {
            g.store(again, [m, n], scores);
        }
    });
    p.finish().expect("well-formed")
}

#[test]
fn contractions_add_numbers_of_rows_and_columns_unless_the_unit_computes_them() {
    let fast = Unit { rates: None };
    for (both, twice, unit, sides) in
        [(true, false, None, 2), (false, false, None, 1), (true, true, None, 0), (true, false, Some(fast), 0)]
    {
        let program = with_sides(both, twice);
        let plan = compile(&program, &program.kernels[0], unit).expect("planned");
        let (mut found, mut maps) = (0, 0);
        each_step(&plan.body, &mut |step| match step {
            Step::Contract(c) => found += c.sides().count(),
            Step::Map { .. } => maps += 1,
            _ => {}
        });
        assert_eq!((found, maps), (sides, usize::from(sides == 0)));
    }
}

/// Loads that stay where they are, steps that are reductions or stores, and what is joined to maps.
fn joined(plan: &Plan) -> (Vec<Viewable>, usize, Vec<(usize, bool, bool)>) {
    let (mut loads, mut apart, mut ends) = (vec![], 0, vec![]);
    each_step(&plan.body, &mut |step| match step {
        Step::Load { view, .. } => loads.push(*view),
        Step::Reduce { .. } | Step::Store { .. } => apart += 1,
        Step::Map { ends: e, .. } if !e.is_empty() => ends.push((e.folds.len(), e.store.is_some(), e.dropped)),
        _ => {}
    });
    (loads, apart, ends)
}

/// `exp(x) / sum(n) exp(x)` by rows, below each row's maximum; `twice` computes the exponentials again for the result.
fn normalised(dtype: DType, twice: bool) -> Program {
    let mut p = Builder::new("normalised");
    let (x, y) = (p.input("X", &[64, 1000], dtype), p.output("Y", &[64, 1000], dtype));
    p.kernel("normalised", |g| {
        let (m, n) = (g.grid("m", 64, 16), g.whole("n", 1000));
        let tile = g.load("x", x, [m, n]);
        let high = g.reduce("high", TileMonoid::Max, tile, n);
        let exp = g.map("exp", (Scalar::from(tile) - high).exp());
        let sum = g.reduce("sum", TileMonoid::Sum, exp, n);
        let again = if twice { (Scalar::from(tile) - high).exp() } else { Scalar::from(exp) };
        g.store(y, [m, n], again / sum);
    });
    p.finish().expect("well-formed")
}

#[test]
fn rows_are_reduced_and_stored_without_tiles() {
    use Viewable::{Encoded, Rows};
    // The sum, and the result with its store; neither is in memory as a tile.
    let both = [(1, false, true), (0, true, true)];
    assert_eq!(joined(&plan(&normalised(F32, true))), (vec![Rows], 1, both.to_vec()));
    // In bf16 the maximum too is that of strips as they are converted.
    let all = [&[(1, false, true)], &both[..]].concat();
    assert_eq!(joined(&plan(&normalised(Bf16, true))), (vec![Encoded], 0, all));
    // What is needed again is kept.
    assert_eq!(joined(&plan(&normalised(F32, false))), (vec![Rows], 1, vec![(1, false, false), (0, true, true)]));
}

fn tile() -> Scalar {
    Scalar::Tile(ValueId(0))
}

fn binary(op: BinaryOp, x: Scalar, y: Scalar) -> Scalar {
    Scalar::Binary(op, Box::new(x), Box::new(y))
}

#[test]
fn only_what_is_as_exact_is_folded() {
    use BinaryOp::{Add, Div, Mul, Pow};
    let constant = Scalar::Const;
    for (from, to) in [
        (binary(Add, constant(2.0), constant(3.0)), constant(5.0)),
        (binary(Div, tile(), constant(8.0)), binary(Mul, tile(), constant(0.125))),
        (binary(Div, tile(), constant(3.0)), binary(Div, tile(), constant(3.0))),
        (binary(Mul, constant(1.0), tile()), tile()),
        // 0 times infinity is not 0, and -0 + 0 is not -0.
        (binary(Mul, tile(), constant(0.0)), binary(Mul, tile(), constant(0.0))),
        (binary(Add, tile(), constant(0.0)), binary(Add, tile(), constant(0.0))),
        (binary(Pow, tile(), constant(2.0)), binary(Mul, tile(), tile())),
        (binary(Pow, tile(), constant(3.0)), binary(Mul, binary(Mul, tile(), tile()), tile())),
        (binary(Pow, tile(), constant(4.0)), binary(Mul, binary(Mul, tile(), tile()), binary(Mul, tile(), tile()))),
        (binary(Pow, tile(), constant(5.0)), binary(Pow, tile(), constant(5.0))),
        (Scalar::Round(F32, Box::new(tile())), tile()),
        (Scalar::Round(Bf16, Box::new(tile())), Scalar::Round(Bf16, Box::new(tile()))),
        (Scalar::Unary(UnaryOp::Sqrt, Box::new(constant(9.0))), constant(3.0)),
    ] {
        assert_eq!(simplify(&from, false), to, "{from:?}");
    }
}

#[test]
fn numbers_are_as_wide_as_they_are_whatever_decides_about_them() {
    let mut p = Builder::new("masked");
    let (x, l) = (p.input("X", &[64], F32), p.input("L", &[64], DType::F64));
    let y = p.output("Y", &[64], F32);
    p.kernel("masked", |k| {
        let i = k.grid("i", 64, 16);
        let (x, l) = (k.load("x", x, [i]), k.load("l", l, [i]));
        let negative = binary(BinaryOp::Lt, Scalar::Tile(l), Scalar::Const(0.0));
        let square = binary(BinaryOp::Mul, Scalar::Tile(x), Scalar::Tile(x));
        let tile = k.value("y", &[i], F32);
        let expr = Scalar::Select(Box::new(negative), Box::new(square), Box::new(Scalar::Const(0.0)));
        k.push(einloom_tile::Op::Map { dst: tile, expr });
        k.store(y, [i], tile);
    });
    let mut wide = vec![];
    each_step(&plan(&p.finish().expect("well-formed")).body, &mut |step| {
        if let Step::Map { plan, .. } = step {
            wide.push(plan.wide);
        }
    });
    assert_eq!(wide, [true, false], "the comparison, then the product");
}

#[test]
fn coverage_leaves_one_branch() {
    let within = Predicate { all: vec![Default::default()] };
    let masked = Scalar::Select(Box::new(Scalar::Within(within)), Box::new(tile()), Box::new(Scalar::Const(0.0)));
    for (coverage, left) in
        [(Coverage::Full, tile()), (Coverage::Empty, Scalar::Const(0.0)), (Coverage::Partial, masked.clone())]
    {
        assert_eq!(specialise(&masked, false, &|_| Some(coverage)), left);
    }
}

#[test]
fn a_matrix_unit_is_given_its_left_factors_as_they_are_computed() {
    let sizes = AttentionSizes { b: 1, h: 2, m: 256, n: 512, d: 64, e: 64 };
    let found = |dtype: DType| {
        let program = attention(sizes, [64, 128], false, dtype).expect("well-formed");
        let plan = compile(&program, &program.kernels[0], Some(Unit { rates: None })).expect("planned");
        let (mut maps, mut left, mut folds, mut unscaled) = (vec![], vec![], 0, true);
        each_step(&plan.body, &mut |step| match step {
            Step::Map { ends, .. } => maps.extend(ends.packed),
            Step::Load { view: Viewable::Left(parts), .. } => left.push(*parts),
            Step::Contract(c) => {
                folds += usize::from(c.fold.is_some());
                unscaled &= c.times == 1.0;
            }
            _ => {}
        });
        (relayouts(&plan)[1], maps, left, folds, unscaled)
    };
    // Queries, packed once; scores, whose maxima are found on their way and which are scaled when their exponentials are
    // taken; and weights, which are packed. Nothing is rearranged in the stream.
    assert_eq!(found(Bf16), (0, vec![1], vec![1], 1, true));
    // Factors of several parts likewise.
    assert_eq!(found(F32), (0, vec![3], vec![3], 1, true));
}

/// What a bias adds to scores, or a cap makes of them, is there when their exponentials are taken: they are never in memory as a whole.
#[test]
fn scores_that_are_changed_become_exponentials_at_once() {
    let changed = |capped: bool| {
        let mut p = Builder::new("changed");
        let [q, k, v] = ["Q", "K", "V"].map(|name| p.input(name, &[256, 64], Bf16));
        let (bias, y) = (p.input("bias", &[256, 256], Bf16), p.output("Y", &[256, 64], F32));
        p.kernel("changed", |g| {
            let (i, d, j) = (g.grid("m", 256, 64), g.whole("d", 64), g.stream_axis("n", 256, 128));
            let q = g.load("q", q, [i, d]);
            let states = [carry("top", [i], f64::NEG_INFINITY), carry("sum", [i], 0.0), carry("acc", [i, d], 0.0)];
            let [_, sum, acc] = g.stream(j, Predicate::default(), states, |g, [top, sum, acc]| {
                let k = g.load("k", k, [j, d]);
                let scores = Scalar::from(g.mma("scores", q, k)) * 0.125;
                let expr = match capped {
                    true => (scores / 5.0).apply(UnaryOp::Tanh) * 5.0,
                    false => scores + g.load("bias", bias, [i, j]),
                };
                let scores = g.map("changed", expr);
                let next = g.reduce_onto("top.next", TileMonoid::Max, top, scores, j);
                let by = g.map("by", (top - next).exp());
                let weights = g.map("weights", (scores - next).exp());
                let kept = g.map("sum.kept", sum * by);
                let sum = g.reduce_onto("sum.next", TileMonoid::Sum, kept, weights, j);
                let narrow = g.map("narrow", weights.round_to(Bf16));
                let v = g.load("v", v, [j, d]);
                let kept = g.map("acc.kept", acc * by);
                [next, sum, g.mma_onto("acc.next", kept, narrow, v)]
            });
            g.store(y, [i, d], acc / sum);
        });
        let program = p.finish().expect("well-formed");
        let plan = compile(&program, &program.kernels[0], Some(Unit { rates: None })).expect("planned");
        let mut found = vec![];
        each_step(&plan.body, &mut |step| {
            if let Step::Contract(c) = step {
                found.push(c.anchored.as_ref().is_some_and(|a| a.between.is_some()));
            }
        });
        found
    };
    assert_eq!([changed(false), changed(true)], [[true, false], [true, false]]);
}

/// Exponentials of long rows that go to memory are not kept meanwhile; of short ones, or where the result is small, they are.
#[test]
fn exponentials_of_long_rows_are_made_again() {
    let part = |x: Scalar| Box::new(x);
    let dropped = |[rows, columns]: [usize; 2]| {
        let mut p = Builder::new("softmax");
        let (x, y) = (p.input("X", &[rows, columns], F32), p.output("Y", &[rows, columns], F32));
        p.kernel("softmax", |g| {
            let (m, n) = (g.grid("m", rows, 1), g.whole("n", columns));
            let tile = g.load("x", x, [m, n]);
            let high = g.reduce("high", TileMonoid::Max, tile, n);
            let finite = g.map(
                "finite",
                Scalar::Binary(BinaryOp::Lt, part(Scalar::from(high).apply(UnaryOp::Abs)), part(f64::INFINITY.into())),
            );
            let anchor = g.map("anchor", Scalar::Select(part(finite.into()), part(high.into()), part(0.0.into())));
            let power = g.map("power", (Scalar::from(tile) - anchor).exp());
            let sum = g.reduce("sum", TileMonoid::Sum, power, n);
            g.store(y, [m, n], (Scalar::from(tile) - high).exp() / sum);
        });
        let program = p.finish().expect("well-formed");
        let mut maps = vec![];
        each_step(&plan(&program).body, &mut |step| {
            if let Step::Map { ends, .. } = step
                && !ends.is_empty()
            {
                maps.push((ends.dropped, ends.waits));
            }
        });
        maps
    };
    assert_eq!(dropped([1024, 8192]), [(true, true), (true, false)]);
    assert_eq!(dropped([65536, 128]), [(false, false), (true, false)]);
    assert_eq!(dropped([100, 8192]), [(false, false), (true, false)]);
}

/// What becomes of a product before it is the left factor of another is computed while it is near, unless somebody else wants it.
#[test]
fn products_that_a_map_packs_are_computed_piece_by_piece() {
    let piecewise = |stored: bool| {
        let mut p = Builder::new("products");
        let [a, b, c] = ["A", "B", "C"].map(|name| p.input(name, &[256, 64], Bf16));
        let (y, all) = (p.output("Y", &[256, 64], F32), stored.then(|| p.output("P", &[256, 256], F32)));
        p.kernel("products", |g| {
            let (i, d, j) = (g.grid("m", 256, 64), g.whole("d", 64), g.stream_axis("n", 256, 128));
            let a = g.load("a", a, [i, d]);
            let [sum] = g.stream(j, Predicate::default(), [carry("sum", [i, d], 0.0)], |g, [sum]| {
                let b = g.load("b", b, [j, d]);
                let product = g.mma("product", a, b);
                if let Some(all) = all {
                    g.store(all, [i, j], product);
                }
                let narrow = g.map("narrow", (product * 0.125).apply(UnaryOp::Sigmoid).round_to(Bf16));
                let c = g.load("c", c, [j, d]);
                [g.mma_onto("sum.next", sum, narrow, c)]
            });
            g.store(y, [i, d], sum);
        });
        let program = p.finish().expect("well-formed");
        let plan = compile(&program, &program.kernels[0], Some(Unit { rates: None })).expect("planned");
        let mut found = vec![];
        each_step(&plan.body, &mut |step| {
            if let Step::Contract(c) = step {
                found.push(c.piecewise);
            }
        });
        found
    };
    assert_eq!(piecewise(false), [true, false]);
    assert_eq!(piecewise(true), [false, false]);
}

#[test]
fn what_a_tile_of_truths_leaves_is_masked_once_and_by_bits() {
    // With what is wanted of the mask besides.
    let compiled = |wanted: bool| {
        let mut p = Builder::new("chosen");
        let [q, k, v] = ["Q", "K", "V"].map(|name| p.input(name, &[256, 64], Bf16));
        let [rows, columns] = ["I", "J"].map(|name| p.input(name, &[256], DType::I32));
        let (y, all) = (p.output("Y", &[256, 64], F32), wanted.then(|| p.output("P", &[256, 256], F32)));
        p.kernel("chosen", |g| {
            let (i, d, j) = (g.grid("m", 256, 64), g.whole("d", 64), g.stream_axis("n", 256, 128));
            let (q, rows) = (g.load("q", q, [i, d]), g.load("rows", rows, [i]));
            let states = [carry("most", [i], f64::NEG_INFINITY), carry("total", [i], 0.0), carry("sum", [i, d], 0.0)];
            let [_, total, sum] = g.stream(j, Predicate::default(), states, |g, [anchor, total, sum]| {
                let columns = g.load("columns", columns, [j]);
                let mask = g.map("mask", rows.with(BinaryOp::Eq, columns));
                g.skip_unless(mask);
                if let Some(all) = all {
                    g.store(all, [i, j], mask);
                }
                let k = g.load("k", k, [j, d]);
                let scores = g.mma("scores", q, k);
                let left = g.map("left", einloom_tile::select(mask, scores, f64::NEG_INFINITY));
                let most = g.reduce_onto("most.next", TileMonoid::Max, anchor, left, j);
                let finite = g.map("finite", most.apply(UnaryOp::Abs).with(BinaryOp::Lt, f64::INFINITY));
                let safe = g.map("safe", einloom_tile::select(finite, most, 0.0));
                let by = g.map("by", (anchor - safe).exp());
                let weights = g.map("weights", einloom_tile::select(mask, (scores - safe).exp(), 0.0));
                let kept = g.map("total.kept", total * by);
                let total = g.reduce_onto("total.next", TileMonoid::Sum, kept, weights, j);
                let narrow = g.map("narrow", weights.round_to(Bf16));
                let v = g.load("v", v, [j, d]);
                let kept = g.map("kept", sum * by);
                [most, total, g.mma_onto("sum.next", kept, narrow, v)]
            });
            let result = g.map("result", sum / total);
            g.store(y, [i, d], result);
        });
        let program = p.finish().expect("well-formed");
        let plan = compile(&program, &program.kernels[0], Some(Unit { rates: None })).expect("planned");
        let (mut bits, mut anchored) = (0, 0);
        each_step(&plan.body, &mut |step| match step {
            Step::Map { ends, .. } => bits += usize::from(ends.bits),
            Step::Contract(c) => anchored += usize::from(c.anchored.is_some()),
            _ => {}
        });
        (bits, anchored)
    };
    assert_eq!(compiled(false), (1, 1));
    assert_eq!(compiled(true), (0, 1));
}

#[test]
fn what_a_contraction_and_a_map_read_of_a_stream_is_two_tiles() {
    let loads = |dtype: DType| {
        let mut p = Builder::new("squares");
        let [q, k] = ["Q", "K"].map(|name| p.input(name, &[256, 64], dtype));
        let y = p.output("Y", &[256], F32);
        p.kernel("squares", |g| {
            let (i, d, j) = (g.grid("m", 256, 64), g.whole("d", 64), g.stream_axis("n", 256, 128));
            let q = g.load("q", q, [i, d]);
            let states = [carry("most", [i], f64::NEG_INFINITY)];
            let [most] = g.stream(j, Predicate::default(), states, |g, [most]| {
                let k = g.load("k", k, [j, d]);
                let scores = g.mma("scores", q, k);
                let squares = g.map("squares", k * k);
                let sums = g.reduce("sums", TileMonoid::Sum, squares, d);
                let scaled = g.map("scaled", scores / sums);
                [g.reduce_onto("most.next", TileMonoid::Max, most, scaled, j)]
            });
            g.store(y, [i], most);
        });
        let program = p.finish().expect("well-formed");
        let plan = compile(&program, &program.kernels[0], Some(Unit { rates: None })).expect("planned");
        let mut found = vec![];
        each_step(&plan.body, &mut |s| {
            if let Step::Load { again, .. } = s {
                found.push(*again);
            }
        });
        found
    };
    assert_eq!(loads(Bf16), [false, false, true]);
    // Maps do not read these where they are.
    assert_eq!(loads(DType::E4m3), [false, false]);
}
