//! The steps of a role for one block, with loops unrolled. No step depends on data, so that this is known beforehand;
//! chunks that only data could leave out are visited, which guards allow.

use super::Hazard;
use crate::hopper::walk;
use crate::hopper::{OpAt, RingId, Specialised, Step};
use crate::schedule::Order;
use crate::schedule::facts::written;
use einloom_tile::{AxisId, Kernel, Op, Program, ValueId, Window, unknown, visited};
use std::rc::Rc;

/// A step at its windows.
#[derive(Clone, Debug)]
pub(super) struct Event<'a> {
    pub step: &'a Step,
    /// The block's windows: the producer's.
    pub windows: Rc<[Window]>,
    /// The how-manyth grid point of the block.
    pub point: usize,
    /// Inside a stream, its axis.
    pub stream: Option<AxisId>,
    /// In a chunk, its number.
    pub chunk: Option<usize>,
}

/// The steps for the grid points of block `block` of a cluster that takes these places of the order.
pub(super) fn unroll<'a>(
    kernel: &Kernel,
    steps: &'a [Step],
    order: &Order,
    places: &[usize],
    block: usize,
) -> Result<Vec<Event<'a>>, Hazard> {
    let mut out = vec![];
    for (point, &place) in places.iter().enumerate() {
        if place >= order.points() {
            return Err(Hazard::malformed(format!("there is no place {place} in the order")));
        }
        let windows = walk::windows(kernel, order, place, block);
        let outside: Rc<[Window]> = windows.as_slice().into();
        for step in steps {
            let Step::Chunks { stream, first, rest, after } = step else {
                out.push(Event { step, windows: outside.clone(), point, stream: None, chunk: None });
                continue;
            };
            let Some(Op::Stream { axis, within, guards, .. }) = kernel.body.get(*stream) else {
                return Err(Hazard::malformed(format!("operation {stream} of the kernel is no stream")));
            };
            let mut count = 0;
            for window in visited(kernel, (*axis, within, guards), &windows, &unknown) {
                let mut inside = windows.clone();
                inside[axis.at()] = window;
                let inside: Rc<[Window]> = inside.into();
                let body = if count == 0 { first } else { rest };
                let event =
                    |step| Event { step, windows: inside.clone(), point, stream: Some(*axis), chunk: Some(count) };
                push(body, &event, &mut out)?;
                count += 1;
            }
            if count > 0 {
                let event = |step| Event { step, windows: outside.clone(), point, stream: Some(*axis), chunk: None };
                push(after, &event, &mut out)?;
            }
        }
    }
    Ok(out)
}

fn push<'a>(steps: &'a [Step], event: &dyn Fn(&'a Step) -> Event<'a>, out: &mut Vec<Event<'a>>) -> Result<(), Hazard> {
    for step in steps {
        if matches!(step, Step::Chunks { .. }) {
            return Err(Hazard::malformed("chunks inside chunks"));
        }
        out.push(event(step));
    }
    Ok(())
}

/// The tile's name for people.
pub(super) fn name(kernel: &Kernel, v: ValueId) -> String {
    let name = &kernel.value(v).name;
    if name.is_empty() { format!("tile {}", v.0) } else { name.clone() }
}

/// A step for people.
pub(super) fn describe(program: &Program, kernel: &Kernel, s: &Specialised, step: &Step) -> String {
    let ring = |r: &RingId| s.rings.get(r.0).map_or("?", |r| r.name.as_str());
    let op = |at: &OpAt| match s.op(kernel, *at) {
        Some(Op::Store { tensor, .. }) => format!("store {}", program.tensor(*tensor).name),
        Some(op) => written(op).map_or("?".to_string(), |v| name(kernel, v)),
        None => "?".to_string(),
    };
    match step {
        Step::Acquire { ring: r, .. } => format!("acquire {}", ring(r)),
        Step::Fill { ring: r } => format!("fill {}", ring(r)),
        Step::Await { ring: r, .. } => format!("await {}", ring(r)),
        Step::Release { ring: r } => format!("release {}", ring(r)),
        Step::Read { ring: r, value } => format!("read {} of {}", name(kernel, *value), ring(r)),
        Step::Compute(at) => format!("compute {}", op(at)),
        Step::Multiply(at) => format!("multiply {}", op(at)),
        Step::Settle { pending } => format!("settle {pending}"),
        Step::TakeTurn => "take turn".to_string(),
        Step::PassTurn => "pass turn".to_string(),
        Step::Start { .. } => "start".to_string(),
        Step::Advance { .. } => "advance".to_string(),
        Step::Chunks { .. } => "chunks".to_string(),
    }
}

/// Where windows stand, for people: the grid's, and the chunk's.
pub(super) fn windows(kernel: &Kernel, event: &Event<'_>) -> String {
    let one = |a: &AxisId| format!("{}={}", kernel.axis(*a).name, event.windows[a.at()].base);
    let grid: Vec<String> = kernel.grid.iter().map(one).collect();
    let mut out = if grid.is_empty() { "the only grid point".to_string() } else { grid.join(" ") };
    if let Some(axis) = event.stream {
        out += &match event.chunk {
            None => format!(" after the chunks of {}", kernel.axis(axis).name),
            Some(_) => format!(" chunk {}", one(&axis)),
        };
    }
    out
}
