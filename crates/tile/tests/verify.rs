//! Well-formed programs pass; every rule has one program that breaks it, with the message a person gets.

use einloom_cascade::{BinaryOp, DType};
use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
use einloom_tile::*;

const SIZES: AttentionSizes = AttentionSizes { b: 2, h: 3, m: 100, n: 90, d: 16, e: 8 };

/// `kernel attention(Q, K, V → O)   grid b, h, m by 32` with axes b h m d e n = 0..6; the stream is op 1.
fn good() -> Program {
    attention(SIZES, [32, 16], true, DType::Bf16).expect("well-formed")
}

/// The defects of [`good`] after a change, one per line.
fn check(change: impl FnOnce(&mut Program), expected: &str) {
    let mut program = good();
    change(&mut program);
    let defects: Vec<String> = verify(&program).iter().map(Defect::to_string).collect();
    assert_eq!(defects.join("\n"), expected, "\n{}", print(&program));
}

fn value(p: &Program, name: &str) -> ValueId {
    let at = p.kernels[0].values.iter().position(|v| v.name == name);
    ValueId(at.expect("a tile of this name") as u32)
}

fn stream(p: &mut Program) -> (&mut Vec<State>, &mut Vec<Op>) {
    match &mut p.kernels[0].body[1] {
        Op::Stream { states, body, .. } => (states, body),
        other => panic!("not a stream: {other:?}"),
    }
}

fn axis(k: u32) -> Coord {
    Coord::axis(AxisId(k))
}

/// The coordinates of the first operation, `q = load Q[b, h, m:32, :]`.
fn query_at(p: &mut Program) -> &mut Vec<Coord> {
    match &mut p.kernels[0].body[0] {
        Op::Load { at, .. } => at,
        other => panic!("not a load: {other:?}"),
    }
}

/// The coordinates of the last operation, `store O[b, h, m:32, :] = o.2`.
fn output_at(p: &mut Program) -> &mut Vec<Coord> {
    match p.kernels[0].body.last_mut() {
        Some(Op::Store { at, .. }) => at,
        other => panic!("not a store: {other:?}"),
    }
}

#[test]
fn good_programs_have_no_defects() {
    check(|_| {}, "");
    for size in [0, 1, 31, 32, 33] {
        let sizes = AttentionSizes { m: size, n: size, d: size.max(1), ..SIZES };
        for dtype in [DType::F64, DType::F32, DType::F16] {
            assert!(attention(sizes, [32, 16], true, dtype).is_ok());
        }
        for dtype in [DType::F64, DType::F16, DType::I8] {
            assert!(matmul([size, 5, size], [16, 16, 16], dtype).is_ok());
        }
    }
}

#[test]
fn axes_and_the_grid() {
    check(|p| p.kernels[0].axes[2].tile = 0, "kernel attention: axis `m` has tile 0; a tile is at least 1");
    check(
        |p| p.kernels[0].axes[3].tile = 15,
        "kernel attention: whole axis `d` has tile 15 but extent 16; its tile is at least its extent",
    );
    check(
        |p| p.kernels[0].grid[0] = AxisId(9),
        "kernel attention: the grid names axis 9, which is not declared
kernel attention: grid axis `b` is missing from the grid",
    );
    check(|p| p.kernels[0].grid.push(AxisId(5)), "kernel attention: the grid lists `n`, which is no grid axis");
    check(|p| p.kernels[0].grid.push(AxisId(1)), "kernel attention: the grid lists axis `h` twice");
}

#[test]
fn blocks() {
    let by = |sides: &[(u32, usize)], inside: &[(u32, usize)]| {
        let block = |memory: &str, sides: &[(u32, usize)]| Block {
            memory: memory.to_string(),
            sides: sides.iter().map(|s| (AxisId(s.0), s.1)).collect(),
        };
        let blocks = vec![block("cache", sides), block("buffer", inside)];
        move |p: &mut Program| p.kernels[0].blocks = blocks
    };
    // Axes b h m d e n; m by 32 of 100, n by 16 of 90.
    check(by(&[(2, 64), (5, 90)], &[(2, 64), (5, 48)]), "");
    check(by(&[(2, 100)], &[(2, 100)]), "");
    check(by(&[(9, 8)], &[]), "kernel attention: the block in `cache` names axis 9, which is not declared");
    check(
        by(&[(3, 16)], &[]),
        "kernel attention: the block in `cache` has a side along `d`, which is neither of the grid nor of the kernel's only stream",
    );
    check(
        by(&[(2, 48)], &[]),
        "kernel attention: the block in `cache` has 48 of `m`; it has whole tiles of 32, or all 100",
    );
    check(
        by(&[], &[(2, 0)]),
        "kernel attention: the block in `buffer` has 0 of `m`; it has whole tiles of 32, or all 100",
    );
    check(
        by(&[(5, 48)], &[(5, 32)]),
        "kernel attention: the block in `buffer` has 32 of `n`, which do not fill the 48 of the block outside it",
    );
    check(
        by(&[(2, 64)], &[(2, 100)]),
        "kernel attention: the block in `buffer` has all of `m`, the block outside it 64",
    );
    check(by(&[(2, 64), (2, 32)], &[]), "kernel attention: the block in `cache` names `m` twice");
}

#[test]
fn tiles() {
    check(
        |p| p.kernels[0].values[0].rows = Some(AxisId(7)),
        "kernel attention: tile `q` has axis 7, which is not declared",
    );
    check(
        |p| p.kernels[0].values[0].rows = Some(AxisId(3)),
        "kernel attention: tile `q` has the same axis on both sides",
    );
}

#[test]
fn a_value_is_written_once_and_before_it_is_read() {
    check(
        |p| {
            let load = p.kernels[0].body[0].clone();
            p.kernels[0].body.insert(1, load);
        },
        "kernel attention, op 1: tile `q` is written by more than one operation",
    );
    check(
        |p| p.kernels[0].body.push(Op::Map { dst: ValueId(99), expr: Scalar::Const(0.0) }),
        "kernel attention, op 4: tile 99 is not declared",
    );
    check(
        |p| {
            let s = value(p, "s");
            stream(p).1.insert(0, Op::Reduce { dst: s, src: s, axis: AxisId(5), monoid: TileMonoid::Max, acc: None });
            stream(p).1.truncate(1);
            stream(p).0.clear();
        },
        "kernel attention, op 1.0: tile `s` is read before it is written
kernel attention, op 2: tile `O` is read before it is written
kernel attention, op 2: tile `Z` is read before it is written",
    );
}

#[test]
fn what_a_body_writes_stays_inside() {
    check(
        |p| {
            let r = value(p, "r");
            let decl = p.kernels[0].values[r.at()].clone();
            p.kernels[0].values.push(decl);
            let dst = ValueId(p.kernels[0].values.len() as u32 - 1);
            p.kernels[0].body.push(Op::Map { dst, expr: Scalar::Tile(r) });
        },
        "kernel attention, op 4: tile `r` is read outside the stream that writes it",
    );
    check(
        |p| {
            let load = stream(p).1.remove(0);
            p.kernels[0].body.insert(0, load);
        },
        "kernel attention, op 0: stream axis `n` has no window outside a stream over it
kernel attention, op 0: stream axis `n` has no window outside a stream over it",
    );
}

#[test]
fn states() {
    check(
        |p| {
            let z = value(p, "z");
            p.kernels[0].values[z.at()].dtype = DType::F64;
        },
        "kernel attention, op 1: state `Z` and its next value `z` must have the same axes and number type",
    );
    check(
        |p| stream(p).0[1].next = stream(p).0[1].value,
        "kernel attention, op 1: the next value `Z` of state `Z` is not written by the stream's body",
    );
    check(
        |p| stream(p).0[2].init = Init::Value(ValueId(0)),
        "kernel attention, op 1: state `O` and its start `q` must have the same axes",
    );
    check(
        |p| stream(p).0[1].init = Init::Value(stream(p).0[0].value),
        "kernel attention, op 1: state `Mx` starts from a state of the same stream",
    );
}

#[test]
fn streams() {
    check(
        |p| {
            let inner = Op::Stream {
                axis: AxisId(5),
                within: Predicate::always(),
                guards: vec![],
                states: vec![],
                body: vec![],
            };
            stream(p).1.push(inner);
        },
        "kernel attention, op 1.11: streams over `n` inside a stream over it",
    );
    check(
        |p| {
            p.kernels[0].body.push(Op::Stream {
                axis: AxisId(2),
                within: Predicate::always(),
                guards: vec![],
                states: vec![],
                body: vec![],
            })
        },
        "kernel attention, op 4: streams over `m`, which is no stream axis",
    );
    check(
        |p| {
            let within = Predicate { all: vec![Affine { terms: vec![(0, AxisId(2)), (1, AxisId(2))], constant: 0 }] };
            p.kernels[0].body =
                vec![Op::Stream { axis: AxisId(5), within, guards: vec![], states: vec![], body: vec![] }];
        },
        "kernel attention, op 0: a predicate has a coefficient 0
kernel attention, op 0: a predicate names axis 2 twice
output `O` is never stored",
    );
    check(
        |p| p.kernels[0].body.push(Op::SkipUnless { any: ValueId(0) }),
        "kernel attention, op 4: a skip outside a stream
kernel attention, op 4: the skip tests `q`, which is not b1",
    );
}

#[test]
fn coordinates() {
    check(|p| query_at(p).truncate(3), "kernel attention, op 0: `Q` has 4 dimensions, not 3");
    check(
        |p| query_at(p)[3] = axis(4),
        "kernel attention, op 0: the position along `e` is not one number: `q` lacks the axis",
    );
    check(
        |p| query_at(p)[1] = axis(1).div_floor(0),
        "kernel attention, op 0: a coordinate is divided by 0, which is not positive",
    );
    check(
        |p| {
            let z = value(p, "Z");
            output_at(p)[0] = Coord::gather(z);
        },
        "kernel attention, op 3: a store's coordinates depend on data",
    );
    check(
        |p| {
            let z = value(p, "Z");
            if let Op::Load { at, .. } = &mut stream(p).1[0] {
                at[2] = Coord::gather(z);
            }
        },
        "kernel attention, op 1.0: `Z` does not broadcast to `k`: it has an axis that `k` lacks
kernel attention, op 1.0: `Z` is used as a coordinate but is no integer",
    );
}

#[test]
fn static_bounds() {
    check(
        |p| query_at(p)[2].offset = 1,
        "kernel attention, op 0: a coordinate of `Q` runs over 1..=100, outside 0..100",
    );
    check(
        |p| query_at(p)[1] = axis(1).div_floor(2) + -1i64,
        "kernel attention, op 0: a coordinate of `Q` runs over -1..=0, outside 0..3",
    );
    // With a fill, outside is allowed.
    check(
        |p| {
            query_at(p)[2].offset = 1;
            if let Op::Load { fill, .. } = &mut p.kernels[0].body[0] {
                *fill = Some(0.0);
            }
        },
        "",
    );
    // A stream over n < 40 keeps to 0..40, a whole number of chunks before it is clipped.
    let short = |limit| {
        move |p: &mut Program| {
            p.tensors[1].dims[2] = 40;
            if let Op::Stream { within, .. } = &mut p.kernels[0].body[1] {
                *within = AxisId(5).less_than(limit);
            }
        }
    };
    check(short(40), "");
    check(short(41), "kernel attention, op 1.0: a coordinate of `K` runs over 0..=40, outside 0..40");
}

#[test]
fn stores_do_not_race() {
    check(
        |p| output_at(p)[1] = Coord::fixed(0),
        "kernel attention, op 3: writes to `O` race: its coordinates do not determine grid axis `h`",
    );
    check(
        |p| output_at(p)[3] = Coord::fixed(0),
        "kernel attention, op 3: writes to `O` overlap: its coordinates do not determine axis `e`",
    );
    // h and e as digits of one coordinate are determined, as a sum they are not.
    let merged = |step: i64| {
        move |p: &mut Program| {
            p.tensors[3].dims = vec![2, 100, 3 * 8];
            let last = AxisId(1) * step + AxisId(4);
            *output_at(p) = vec![axis(0), axis(2), last.into()];
        }
    };
    check(merged(8), "");
    check(
        merged(7),
        "kernel attention, op 3: writes to `O` race: its coordinates do not determine grid axis `h`
kernel attention, op 3: writes to `O` overlap: its coordinates do not determine axis `e`",
    );
}

#[test]
fn tensors() {
    check(|p| p.tensors[3].role = TensorRole::Input, "kernel attention, op 3: input `O` is stored to");
    check(
        |p| p.tensors[2].role = TensorRole::Temporary,
        "kernel attention, op 1.8: tensor `V` is read before any kernel has written it",
    );
    check(|p| p.kernels[0].body.truncate(3), "output `O` is never stored");
    check(
        |p| {
            if let Op::Store { tensor, .. } = &mut p.kernels[0].body[3] {
                *tensor = TensorId(0);
            }
            p.tensors[0].role = TensorRole::Output;
            p.tensors[3].role = TensorRole::Temporary;
        },
        "kernel attention, op 0: tensor `Q` is both read and written by one kernel",
    );
}

#[test]
fn shapes_of_operations() {
    check(
        |p| {
            let (q, r) = (value(p, "q"), value(p, "r"));
            stream(p).1[5] = Op::Map { dst: r, expr: Scalar::Tile(q) };
        },
        "kernel attention, op 1.5: `q` does not broadcast to `r`: it has an axis that `r` lacks",
    );
    check(
        |p| {
            let r = value(p, "r");
            stream(p).1[5] = Op::Map { dst: r, expr: Scalar::Argument(0).max(AxisId(5)) };
        },
        "kernel attention, op 1.5: a monoid's argument outside a monoid
kernel attention, op 1.5: the position along `n` is not one number: `r` lacks the axis",
    );
    check(
        |p| {
            let (q, s) = (value(p, "qk"), value(p, "q"));
            stream(p).1[1] = Op::Mma { dst: q, a: s, b: s, acc: None };
        },
        "kernel attention, op 1.1: mma into `qk`: an axis of the result belongs to both factors
kernel attention, op 1.1: mma into `qk`: the result has an axis that no factor has",
    );
    check(
        |p| {
            let z = value(p, "zr");
            if let Op::Mma { acc, .. } = &mut stream(p).1[10] {
                *acc = Some(z);
            }
        },
        "kernel attention, op 1.10: accumulator `zr` must have the axes of `o`",
    );
    check(
        |p| {
            if let Op::Reduce { axis, .. } = &mut stream(p).1[7] {
                *axis = AxisId(4);
            }
        },
        "kernel attention, op 1.7: `p` is reduced along `e`, which it lacks",
    );
    check(
        |p| {
            let combine = Box::new(Scalar::Argument(0).with(BinaryOp::Max, Scalar::Argument(2)));
            if let Op::Reduce { monoid, .. } = &mut stream(p).1[7] {
                *monoid = TileMonoid::Custom { name: "top".into(), combine, identity: 0.0 };
            }
        },
        "kernel attention, op 1.7: monoid `top` uses more than its two arguments and constants",
    );
}

/// The defects of a kernel over `X[8, 9]` and `I[9]` whose axes are m (grid), n and j (whole).
fn picks(body: impl FnOnce(&mut KernelBuilder<'_>, [AxisId; 3], [ValueId; 2]), expected: &str) {
    let mut p = Builder::new("picks");
    let (x, ids) = (p.input("X", &[8, 9], DType::F32), p.input("I", &[9], DType::I32));
    p.kernel("picks", |k| {
        let axes = [k.grid("m", 8, 4), k.whole("n", 9), k.whole("j", 9)];
        let tiles = [k.load("x", x, [axes[0], axes[1]]), k.load("ids", ids, [axes[1]])];
        body(k, axes, tiles);
    });
    let defects = p.finish().err().unwrap_or_default();
    let defects: Vec<String> = defects.iter().map(|d| d.message.clone()).collect();
    assert_eq!(defects.join("\n"), expected);
}

#[test]
fn picks_need_a_whole_axis_and_what_is_not_picked_along() {
    picks(|k, [m, n, j], [x, _]| _ = k.pick("y", &[m, j], x, n, j - 20, 0.0), "");
    picks(|k, [m, _, _], [x, _]| _ = k.pick("y", &[m], x, AxisId(7), 0, 0.0), "axis 7 is not declared");
    picks(
        |k, [m, _, j], [x, _]| _ = k.pick("y", &[m, j], x, j, j, 0.0),
        "`x` is picked from along `j`, which it lacks",
    );
    picks(
        |k, [m, n, _], [x, _]| _ = k.pick("y", &[m, n], x, m, m - 1, 0.0),
        "`x` is picked from along `m`, of which not all positions are there",
    );
    picks(|k, [_, n, j], [x, _]| _ = k.pick("y", &[j], x, n, j, 0.0), "`y` must have axis `m` of `x`");
    picks(
        |k, [m, n, j], [x, _]| _ = k.pick("y", &[m], x, n, j, 0.0),
        "the position along `j` is not one number: `y` lacks the axis",
    );
    picks(
        |k, [m, n, j], [x, ids]| _ = k.pick("y", &[m, j], x, n, Coord::gather(ids), 0.0),
        "`ids` does not broadcast to `y`: it has an axis that `y` lacks",
    );
    picks(
        |k, [m, n, _], [x, _]| _ = k.pick("y", &[m, n], x, n, Coord::gather(x), 0.0),
        "`x` is used as a coordinate but is no integer",
    );
    picks(
        |k, [m, n, j], [x, _]| _ = k.pick("y", &[m, j], x, n, Coord::from(j).div_floor(0), 0.0),
        "a coordinate is divided by 0, which is not positive",
    );
    picks(
        |k, [m, n, j], [x, _]| {
            let dst = k.value("y", &[m, j], DType::Bf16);
            k.push(Op::Pick { dst, src: x, axis: n, at: Coord::axis(j), fill: 0.0 });
        },
        "`y` must have the number type of `x`, from which it is picked",
    );
    picks(|k, [m, n, j], [x, _]| _ = k.pick("y", &[m, j], x, n, j, f64::NEG_INFINITY), "");
    for dtype in [DType::U8, DType::I32, DType::E4m3, DType::B1] {
        picks(
            |k, [m, n, j], [x, _]| {
                let [whole, y] = [("z", n), ("y", j)].map(|(name, axis)| k.value(name, &[m, axis], dtype));
                k.push(Op::Map { dst: whole, expr: Scalar::Tile(x) });
                k.push(Op::Pick { dst: y, src: whole, axis: n, at: Coord::axis(j), fill: f64::NEG_INFINITY });
            },
            &format!("`y` is -inf outside, which no {dtype} is"),
        );
    }
    picks(
        |k, [m, n, j], _| {
            let [dst, src] = ["y", "z"].map(|name| k.value(name, &[m, j], DType::F32));
            k.push(Op::Pick { dst, src, axis: n, at: Coord::axis(j), fill: 0.0 });
        },
        "tile `z` is read before it is written",
    );
}

#[test]
fn the_builder_reports_tiles_with_three_axes() {
    let mut p = Builder::new("cube");
    let x = p.input("X", &[4, 5, 6], DType::F32);
    p.kernel("cube", |k| {
        let at = [k.whole("a", 4), k.whole("b", 5), k.whole("c", 6)];
        k.load("x", x, at);
    });
    let defects = p.finish().expect_err("three axes");
    assert_eq!(defects[0].to_string(), "kernel cube: tile `x` would have 3 axes; a tile has at most two");
}
