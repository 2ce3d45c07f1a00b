//! Blocks against a walk: a kernel is gone through block by block, element by element, and what moves is counted.

use einloom_cascade::DType;
use einloom_machine::{Bytes, Machine, built_in};
use einloom_model::{KernelTransfers, block_elements, transfers};
use einloom_tile::by_hand::{AttentionSizes, attention, matmul};
use einloom_tile::{
    AxisId, AxisKind, Block, CoordAtom, Kernel, Op, Program, TensorId, ValueId, Window, coverage, initial_windows,
    verify,
};
use std::collections::{BTreeMap, BTreeSet};

type Element = (TensorId, Vec<usize>);

/// What a walk by blocks counts.
#[derive(Debug, Default)]
struct Walk {
    /// Elements that tiles load, store, and take along between parts of the stream.
    inner: u64,
    /// Elements that come into the cache if it keeps nothing of the last block, and if it keeps all of it; what is stored in both.
    outer: [u64; 2],
    /// The most elements that the cache has at once: what a later point of the block asks for again, and states that wait.
    held: u64,
    /// Of the last block.
    last: BTreeSet<Element>,
}

impl Walk {
    /// By the last of these blocks, which are in one another.
    fn of(program: &Program, nested: &[&Block]) -> Self {
        let kernel = &program.kernels[0];
        let mut walk = Self::default();
        let stream = kernel.outer_stream().expect("one stream");
        let mut order = kernel.grid.clone();
        order.push(stream);
        let mut blocks: Vec<Vec<Window>> =
            vec![order.iter().map(|&a| Window { base: 0, len: kernel.axis(a).extent }).collect()];
        for block in nested {
            let side = |a: AxisId| block.sides.iter().find(|s| s.0 == a).map_or(kernel.axis(a).tile, |s| s.1);
            let cut = |at: &Vec<Window>| {
                let of = |a: AxisId| at[order.iter().position(|o| *o == a).expect("an axis of the order")];
                product(&order, &|a| windows(of(a).base, of(a).base + of(a).len, side(a)))
            };
            blocks = blocks.iter().flat_map(cut).collect();
        }
        let block = nested[nested.len() - 1];
        let states: u64 =
            kernel.body.iter().filter_map(states).flatten().map(|v| tile_of_block(kernel, block, v)).sum();
        for at in blocks {
            let of = |a: AxisId| at[order.iter().position(|o| *o == a).expect("an axis of the order")];
            let part = of(stream);
            let points = product(&kernel.grid, &|a| windows(of(a).base, of(a).base + of(a).len, kernel.axis(a).tile));
            let mut uses: BTreeMap<Element, [usize; 2]> = BTreeMap::new();
            for (number, point) in points.iter().enumerate() {
                let mut now = initial_windows(kernel);
                kernel.grid.iter().zip(point).for_each(|(a, w)| now[a.at()] = *w);
                let end = part.base + part.len == kernel.axis(stream).extent;
                let mut used = vec![];
                walk.visit(program, &kernel.body, &mut now, part, end, &mut used);
                used.into_iter().for_each(|e| uses.entry(e).or_insert([number; 2])[1] = number);
            }
            let again =
                |number: usize| uses.values().filter(|[a, b]| a < b && *a <= number && number <= *b).count() as u64;
            let most = (0..points.len()).map(again).max().unwrap_or(0);
            let waits = if part.len < kernel.axis(stream).extent { states } else { 0 };
            walk.held = walk.held.max(most + waits);
            walk.outer[0] += uses.len() as u64;
            walk.outer[1] += uses.keys().filter(|e| !walk.last.contains(*e)).count() as u64;
            walk.last = uses.into_keys().collect();
        }
        walk
    }

    /// The operations at one point with one part of the stream.
    fn visit(
        &mut self,
        program: &Program,
        ops: &[Op],
        now: &mut Vec<Window>,
        part: Window,
        end: bool,
        used: &mut Vec<Element>,
    ) {
        let kernel = &program.kernels[0];
        for op in ops {
            match op {
                Op::Load { tensor, at, .. } | Op::Store { tensor, at, .. } => {
                    let store = matches!(op, Op::Store { .. });
                    if store && !end {
                        continue;
                    }
                    let mut all = vec![vec![]];
                    for coord in at {
                        let [(1, CoordAtom::Axis(a))] = coord.terms[..] else { panic!("one axis a dimension") };
                        let along = now[a.at()];
                        let more = |e: &Vec<usize>| {
                            let e = e.clone();
                            (along.base..along.base + along.len).map(move |p| [e.clone(), vec![p]].concat())
                        };
                        all = all.iter().flat_map(more).collect();
                    }
                    self.inner += all.len() as u64;
                    match store {
                        true => self.outer.iter_mut().for_each(|o| *o += all.len() as u64),
                        false => used.extend(all.into_iter().map(|e| (*tensor, e))),
                    }
                }
                Op::Stream { axis, within, body, states, .. } => {
                    let tiles: u64 = states.iter().map(|s| tile(kernel, now, s.value)).sum();
                    self.inner += tiles * u64::from(part.base > 0) + tiles * u64::from(!end);
                    for window in windows(part.base, part.base + part.len, kernel.axis(*axis).tile) {
                        now[axis.at()] = window;
                        if coverage(within, now) != einloom_tile::Coverage::Empty {
                            self.visit(program, body, now, part, end, used);
                        }
                    }
                }
                _ => {}
            }
        }
    }
}

fn states(op: &Op) -> Option<Vec<ValueId>> {
    match op {
        Op::Stream { states, .. } => Some(states.iter().map(|s| s.value).collect()),
        _ => None,
    }
}

/// Elements of a tile where the axes stand.
fn tile(kernel: &Kernel, now: &[Window], value: ValueId) -> u64 {
    let value = kernel.value(value);
    [value.rows, value.cols].into_iter().flatten().map(|a| now[a.at()].len as u64).product()
}

/// Elements of this tile at all points of a block.
fn tile_of_block(kernel: &Kernel, block: &Block, value: ValueId) -> u64 {
    let value = kernel.value(value);
    let side = |a: AxisId| match kernel.axis(a).kind {
        AxisKind::Grid => block.sides.iter().find(|s| s.0 == a).map_or(kernel.axis(a).tile, |s| s.1),
        _ => kernel.axis(a).extent,
    };
    [value.rows, value.cols].into_iter().flatten().map(|a| side(a).min(kernel.axis(a).extent) as u64).product()
}

fn windows(from: usize, to: usize, step: usize) -> Vec<Window> {
    (from..to).step_by(step).map(|base| Window { base, len: step.min(to - base) }).collect()
}

/// Windows of all these axes, the last one fastest.
fn product(axes: &[AxisId], of: &dyn Fn(AxisId) -> Vec<Window>) -> Vec<Vec<Window>> {
    let mut out = vec![vec![]];
    for &axis in axes {
        let more = |w: &Vec<Window>| {
            let w = w.clone();
            of(axis).into_iter().map(move |x| [w.clone(), vec![x]].concat())
        };
        out = out.iter().flat_map(more).collect();
    }
    out
}

/// The machine whose cache has just room for the block, and whose buffer keeps nothing.
fn machine(cache: u64) -> Machine {
    let machine = built_in("three-level").and_then(|m| m.with_capacity(8).ok()).expect("abstract");
    machine.with_level_capacity(1, Bytes(4 * cache)).expect("consistent")
}

/// A program by blocks with these sides, by the names of axes; and the block.
fn by_blocks(mut program: Program, sides: &[(&str, usize)]) -> (Program, Block) {
    let kernel = &mut program.kernels[0];
    let axis = |name: &str| AxisId(kernel.axes.iter().position(|a| a.name == name).expect("an axis") as u32);
    let sides = sides.iter().map(|&(name, side)| (axis(name), side)).collect();
    let block = Block { memory: "cache".to_string(), sides };
    kernel.blocks = vec![block.clone()];
    assert_eq!(verify(&program), []);
    (program, block)
}

fn checked(program: Program, sides: &[(&str, usize)]) -> (KernelTransfers, Walk) {
    let (program, block) = by_blocks(program, sides);
    let held = block_elements(&program, &program.kernels[0], &block);
    let walk = Walk::of(&program, &[&block]);
    let found = transfers(&program, &machine(held)).remove(0);
    let [outer, inner] = [0, 1].map(|k: usize| found.levels[k].bytes / 4);
    assert_eq!(inner, walk.inner, "{sides:?}: what passes into the buffer");
    assert!(
        (walk.outer[1]..=walk.outer[0]).contains(&outer),
        "{sides:?}: {outer} elements pass into the cache, {:?} by the walk",
        walk.outer
    );
    // One load of a point is on its way besides.
    assert!(walk.held <= held, "{sides:?}: {held} elements are held, {} by the walk", walk.held);
    assert!(found.levels[1].resident_bytes <= 4 * held, "{sides:?}: no more than there is room for");
    (found, walk)
}

#[test]
fn a_matmul_by_blocks_moves_what_a_walk_counts() {
    let sizes = [[24, 24, 24], [20, 12, 28], [23, 17, 29], [8, 40, 9]];
    let blocks: [&[(&str, usize)]; 7] = [
        &[("m", 8), ("n", 9), ("k", 8)],
        &[("m", 12), ("n", 6), ("k", 12)],
        &[("m", 4), ("n", 12), ("k", 4)],
        &[("m", 16), ("n", 3), ("k", 28)],
        &[("m", 8), ("n", 12), ("k", 40)],
        &[("m", 40), ("n", 40), ("k", 4)],
        &[("n", 12), ("k", 8)],
    ];
    for size in sizes {
        for sides in blocks {
            let program = matmul(size, [4, 3, 4], DType::F32).expect("well-formed");
            checked(program, sides);
        }
    }
}

#[test]
fn attention_by_blocks_moves_what_a_walk_counts() {
    for (m, n) in [(24, 24), (21, 30), (5, 33)] {
        for sides in [[("m", 8), ("n", 8)], [("m", 12), ("n", 12)], [("m", 4), ("n", 16)], [("m", 24), ("n", 36)]] {
            let sizes = AttentionSizes { b: 1, h: 2, m, n, d: 5, e: 6 };
            let program = attention(sizes, [4, 4], false, DType::F32).expect("well-formed");
            let (found, _) = checked(program, &sides);
            // Queries come again at each part of the keys, and three states leave and come back between them.
            let again = n.div_ceil(sides[1].1) as u64 - 1;
            assert_eq!(found.levels[1].carried_bytes, 4 * 2 * again * (2 * m * (6 + 2)) as u64);
        }
    }
}

#[test]
fn blocks_inside_blocks_move_what_a_walk_counts() {
    let text = |far: u64, near: u64| {
        format!(
            "name = \"four\"\ndescription = \"four\"\ncores = 1\nclock = \"1 GHz\"\nelement = \"4 B\"\n\
            [[level]]\nname = \"memory\"\nbandwidth = \"1 GB/s\"\n\
            [[level]]\nname = \"cache\"\ncapacity = \"{} B\"\nbandwidth = \"4 GB/s\"\n\
            [[level]]\nname = \"near\"\ncapacity = \"{} B\"\nbandwidth = \"16 GB/s\"\n\
            [[level]]\nname = \"buffer\"\ncapacity = \"40 B\"\nbandwidth = \"64 GB/s\"\n\
            [rates]\nf32 = \"2 GFLOP/s\"\n",
            4 * far,
            4 * near
        )
    };
    let cases = [
        ([("m", 12), ("n", 12), ("k", 12)], [("m", 4), ("n", 6), ("k", 4)]),
        ([("m", 24), ("n", 12), ("k", 24)], [("m", 8), ("n", 6), ("k", 12)]),
        ([("m", 12), ("n", 24), ("k", 24)], [("m", 12), ("n", 6), ("k", 24)]),
        ([("m", 24), ("n", 24), ("k", 12)], [("m", 24), ("n", 3), ("k", 4)]),
    ];
    for (outer, inner) in cases {
        let (mut program, far) = by_blocks(matmul([24, 24, 24], [4, 3, 4], DType::F32).expect("well-formed"), &outer);
        let (_, mut near) = by_blocks(program.clone(), &inner);
        near.memory = "near".to_string();
        program.kernels[0].blocks = vec![far.clone(), near.clone()];
        assert_eq!(verify(&program), []);
        let kernel = &program.kernels[0];
        let [held, close] = [&far, &near].map(|b| block_elements(&program, kernel, b));
        let machine = einloom_machine::parse(&text(held.max(close + 1), close.max(12))).expect("a machine");
        let found = transfers(&program, &machine).remove(0);
        let moved: Vec<u64> = found.levels.iter().map(|l| l.bytes / 4).collect();
        let walk = Walk::of(&program, &[&far]);
        assert!((walk.outer[1]..=walk.outer[0]).contains(&moved[0]), "{outer:?}: {moved:?}, {:?}", walk.outer);
        let walk = Walk::of(&program, &[&far, &near]);
        // Sums of all points leave and come back between parts of the outer block's stream.
        let carried = 24 * 24 * 2 * (24usize.div_ceil(outer[2].1) as u64 - 1);
        let [most, least] = walk.outer.map(|o| o + carried);
        assert!((least..=most).contains(&moved[1]), "{outer:?} {inner:?}: {moved:?}, {:?}", walk.outer);
        assert_eq!(moved[2], walk.inner, "{outer:?} {inner:?}");
    }
}

#[test]
fn under_a_mask_a_walk_counts_no_more() {
    let sizes = AttentionSizes { b: 1, h: 1, m: 32, n: 32, d: 4, e: 4 };
    let program = attention(sizes, [4, 4], true, DType::F32).expect("well-formed");
    let (program, block) = by_blocks(program, &[("m", 8), ("n", 16)]);
    let held = block_elements(&program, &program.kernels[0], &block);
    let found = transfers(&program, &machine(held)).remove(0);
    let walk = Walk::of(&program, &[&block]);
    assert!(found.levels[1].bytes / 4 >= walk.inner && found.levels[0].bytes / 4 >= walk.outer[1]);
    assert!(walk.held <= held);
}

#[test]
fn blocks_do_not_matter_where_memories_are_as_large() {
    // One block is the whole kernel: what moves is what moves without.
    let size = [24, 24, 24];
    let plain = matmul(size, [4, 4, 4], DType::F32).expect("well-formed");
    let (blocked, _) = by_blocks(plain.clone(), &[("m", 24), ("n", 24), ("k", 24)]);
    let machine = machine(3 * 576).with_capacity(3 * 576 - 1).expect("consistent");
    let [plain, blocked] = [plain, blocked].map(|p| transfers(&p, &machine).remove(0));
    let moved = |t: &KernelTransfers| t.levels.iter().map(|l| l.bytes).collect::<Vec<_>>();
    assert_eq!(moved(&plain), moved(&blocked));
}
