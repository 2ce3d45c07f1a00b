//! Two schedules written by hand, independent of the passes: a product with one in flight, and attention with the second
//! product deferred by a chunk and consumers that take turns.

use einloom_cascade::DType;
use einloom_cuda::Target;
use einloom_cuda::hopper::{
    OpAt, Registers, Ring, RingId, RingTile, Specialised, Step, SwizzleBytes, Turns, descriptors,
};
use einloom_cuda::schedule::schedule;
use einloom_tile::by_hand::{self, AttentionSizes};
use einloom_tile::{AxisId, Coord, Kernel, Op, Program, TensorId, ValueId};

const BF16: DType = DType::Bf16;

/// The steps on a ring.
fn acquire(ring: RingId) -> Step {
    Step::Acquire { ring, ahead: 1 }
}
fn fill(ring: RingId) -> Step {
    Step::Fill { ring }
}
fn wait(ring: RingId) -> Step {
    Step::Await { ring, ahead: 0 }
}
fn release(ring: RingId) -> Step {
    Step::Release { ring }
}
fn settle(pending: usize) -> Step {
    Step::Settle { pending }
}

/// Steps of the stream that is operation `stream` of the body, by the names of what is written.
struct Steps<'a> {
    kernel: &'a Kernel,
    stream: usize,
}

impl Steps<'_> {
    fn at(&self, name: &str) -> OpAt {
        let Op::Stream { body, .. } = &self.kernel.body[self.stream] else { panic!("a stream") };
        let named = |op: &Op| match op {
            Op::Load { dst, .. } | Op::Map { dst, .. } | Op::Mma { dst, .. } | Op::Reduce { dst, .. } => {
                self.kernel.value(*dst).name == name
            }
            _ => false,
        };
        let op = body.iter().position(named).unwrap_or_else(|| panic!("no {name}"));
        OpAt { stream: Some(self.stream), op }
    }

    fn multiply(&self, name: &str) -> Step {
        Step::Multiply(self.at(name))
    }

    fn compute<'b>(&'b self, names: &'b str) -> impl Iterator<Item = Step> + 'b {
        names.split_whitespace().map(|n| Step::Compute(self.at(n)))
    }
}

/// A ring of one load each for these tiles, after what is there.
fn ring(kernel: &Kernel, rings: &mut Vec<Ring>, tiles: &[&str], rows: usize, stages: usize, readers: usize) -> RingId {
    let mut at = 0;
    let mut out = vec![];
    for name in tiles {
        let (value, tensor, coords) = load(&kernel.body, kernel, name);
        let decl = kernel.value(value);
        let (outer, inner) = (decl.rows.expect("rows"), decl.cols.expect("columns"));
        let size = |a: AxisId| kernel.axis(a).tile.min(kernel.axis(a).extent).next_multiple_of(16);
        let dim = |a: AxisId| coords.iter().position(|c| *c == Coord::axis(a)).expect("a plain dimension");
        let swizzle = SwizzleBytes::for_row(2 * size(inner));
        let tile = RingTile {
            value,
            tensor,
            at: coords.clone(),
            element: BF16,
            outer,
            inner,
            dims: [dim(outer), dim(inner)],
            rows: size(outer).max(if kernel.grid.contains(&outer) { rows } else { 0 }),
            columns: size(inner).next_multiple_of(swizzle.bytes() / 2),
            swizzle,
            offset: at,
            shared: None,
        };
        at = (at + tile.bytes()).next_multiple_of(1024);
        out.push(tile);
    }
    let offset = rings.last().map_or(1024, |r| r.offset + r.stages * r.stage_bytes);
    let bytes = out.iter().map(RingTile::bytes).sum();
    rings.push(Ring { name: tiles.join("_"), tiles: out, stages, offset, stage_bytes: at, readers, bytes });
    RingId(rings.len() - 1)
}

fn load(ops: &[Op], kernel: &Kernel, name: &str) -> (ValueId, TensorId, Vec<Coord>) {
    let found = ops.iter().find_map(|op| match op {
        Op::Load { dst, tensor, at, .. } if kernel.value(*dst).name == name => Some((*dst, *tensor, at.clone())),
        Op::Stream { body, .. }
            if body.iter().any(|o| matches!(o, Op::Load { dst, .. } if kernel.value(*dst).name == name)) =>
        {
            Some(load(body, kernel, name))
        }
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no load of {name}"))
}

fn whole(
    program: &Program,
    rows: AxisId,
    consumers: usize,
    rings: Vec<Ring>,
    producer: Vec<Step>,
    consumer: Vec<Step>,
) -> Specialised {
    let layout = schedule(program, &program.kernels[0], &Target::SM_90A).expect("fits");
    let turns = consumer.iter().any(|s| matches!(s, Step::Chunks { first, .. } if first.contains(&Step::TakeTurn)));
    let shared_bytes = rings.last().map_or(0, |r| r.offset + r.stages * r.stage_bytes);
    Specialised {
        descriptors: descriptors(&layout.products, &rings, consumers),
        layout,
        consumers,
        rows,
        registers: Registers { producer: 24, consumer: 240 },
        rings,
        turns: turns.then_some(Turns { warpgroups: consumers }),
        cluster: None,
        apart: None,
        producer,
        consumer,
        shared_bytes,
    }
}

/// `[100, 72] = [100, 152] · [152, 72]` in tiles of 128 × 64 × 32: two consumers, three stages, one product in flight.
pub fn matmul() -> (Program, Specialised) {
    let program = by_hand::matmul([100, 72, 152], [128, 64, 32], BF16).expect("well-formed");
    let kernel = &program.kernels[0];
    let mut rings = vec![];
    let ab = ring(kernel, &mut rings, &["a", "b"], 128, 3, 2);
    let steps = Steps { kernel, stream: 0 };
    let (start, advance) = (Step::Start { stream: 0 }, Step::Advance { stream: 0 });
    let copies = vec![acquire(ab), fill(ab)];
    let producer = vec![Step::Chunks { stream: 0, first: copies.clone(), rest: copies, after: vec![] }];
    let first = vec![wait(ab), steps.multiply("sum"), advance.clone()];
    let rest = vec![wait(ab), steps.multiply("sum"), settle(1), release(ab), advance];
    let after = vec![settle(0), release(ab)];
    let store = Step::Compute(OpAt { stream: None, op: 1 });
    let consumer = vec![start, Step::Chunks { stream: 0, first, rest, after }, store];
    let rows = kernel.grid[0];
    let s = whole(&program, rows, 2, rings, producer, consumer);
    (program, s)
}

/// Attention over 100 queries and 90 keys, d 16 and e 24, two heads, in tiles of 128 × 32.
pub fn attention(causal: bool) -> (Program, Specialised) {
    let sizes = AttentionSizes { b: 1, h: 2, m: 100, n: 90, d: 16, e: 24 };
    let program = by_hand::attention(sizes, [128, 32], causal, BF16).expect("well-formed");
    let kernel = &program.kernels[0];
    let mut rings = vec![];
    let q = ring(kernel, &mut rings, &["q"], 128, 1, 2);
    let k = ring(kernel, &mut rings, &["k"], 128, 2, 2);
    let v = ring(kernel, &mut rings, &["v"], 128, 2, 2);
    let stream = 1;
    let steps = Steps { kernel, stream };
    let advance = Step::Advance { stream };
    let copies = vec![acquire(k), fill(k), acquire(v), fill(v)];
    let producer =
        vec![acquire(q), fill(q), Step::Chunks { stream, first: copies.clone(), rest: copies, after: vec![] }];
    let mut first = vec![Step::TakeTurn, wait(k), steps.multiply("qk"), Step::PassTurn, settle(0), release(k)];
    first.extend(steps.compute("s mx p r zr z or"));
    first.push(advance.clone());
    let mut rest = vec![Step::TakeTurn, wait(k), steps.multiply("qk"), wait(v), steps.multiply("o"), Step::PassTurn];
    rest.extend([settle(1), release(k)]);
    rest.extend(steps.compute("s mx r zr"));
    rest.extend([settle(0), release(v)]);
    rest.extend(steps.compute("p z or"));
    rest.push(advance);
    let after = vec![wait(v), steps.multiply("o"), settle(0), release(v)];
    let outside = |op| Step::Compute(OpAt { stream: None, op });
    let consumer = vec![
        wait(q),
        Step::Start { stream },
        Step::Chunks { stream, first, rest, after },
        release(q),
        outside(2),
        outside(3),
    ];
    let rows = kernel.grid[2];
    let s = whole(&program, rows, 2, rings, producer, consumer);
    (program, s)
}
