//! A specialised schedule as text.

use super::epilogue::{self, Epilogue};
use super::{Cut, OpAt, RingId, RingTile, Role, Share, Specialised, Step, roster};
use crate::schedule::facts::{Facts, written};
use crate::schedule::{Clusters, Instruction, Operand, Product, Side, Turn};
use einloom_tile::{Kernel, Op, Program, ValueId};
use std::fmt::Write;

/// The schedule, one line per ring and per step.
pub fn print(program: &Program, kernel: &Kernel, s: &Specialised) -> String {
    let facts = Facts::new(program, kernel);
    let mut out = String::new();
    let rows = &kernel.axis(s.rows).name;
    let _ = writeln!(
        out,
        "schedule of {} for {}: 1 producer of {} registers, {} consumers of {} with 64 of {rows} each, {} bytes of shared memory",
        s.layout.kernel, s.layout.target.arch, s.registers.producer, s.consumers, s.registers.consumer, s.shared_bytes
    );
    let _ = writeln!(out, "  about {} registers of a consumer hold tiles and addresses", s.layout.registers);
    for ring in &s.rings {
        let _ = writeln!(
            out,
            "  ring {}: {} {} of {} bytes at byte {}",
            ring.name,
            ring.stages,
            if ring.stages == 1 { "stage" } else { "stages" },
            ring.stage_bytes,
            ring.offset
        );
        for t in &ring.tiles {
            let _ = writeln!(
                out,
                "    {}: {}×{} {} from {}, rows of {}, panels of {} columns swizzled over {} bytes",
                facts.name(t.value),
                t.rows,
                t.columns,
                t.element,
                program.tensor(t.tensor).name,
                kernel.axis(t.inner).name,
                t.panel(),
                t.swizzle.bytes()
            );
            if let Some(share) = t.shared {
                let _ = writeln!(out, "      {}", part(s, t, share));
            }
        }
    }
    for (dst, p) in &s.layout.products {
        let _ = writeln!(out, "  {}", product(&facts, s, *dst, p));
    }
    cluster(kernel, s, &mut out);
    order(kernel, s, &mut out);
    if let Some(turns) = s.turns {
        let _ = writeln!(out, "  {} consumers start their products in turn", turns.warpgroups);
    }
    for (role, steps) in [(Role::Producer, &s.producer), (Role::Consumer, &s.consumer)] {
        let _ = writeln!(out, "  {}", if role == Role::Producer { "producer" } else { "consumer" });
        let printer = Printer { facts: &facts, s };
        printer.steps(steps, 2, &mut out);
    }
    out
}

/// The instruction of a product, and where its factors are.
fn product(facts: &Facts<'_>, s: &Specialised, dst: ValueId, p: &Product) -> String {
    let frame = s.layout.frame(p.frame);
    let across = facts.axes(dst).into_iter().find(|a| frame.sides.get(a) == Some(&Side::Across));
    let columns = across.map_or(0, |a| frame.span(Side::Across, facts.size(a)).cover);
    let (ty, depth) = match p.instruction {
        Instruction::TensorCore(operand @ Operand::F16) => ("f16", operand.depth()),
        Instruction::TensorCore(operand) => ("bf16", operand.depth()),
        Instruction::Fma(_) => ("f32", 1),
    };
    let factor = |v: ValueId| match s.tile(v) {
        None => format!("{} in registers", facts.name(v)),
        Some((ring, tile)) => {
            let major = if tile.inner == p.sum { "the summed axis" } else { "the kept axis" };
            format!("{} in ring {}, {major} adjacent", facts.name(v), s.ring(ring).name)
        }
    };
    format!(
        "{} = {} · {}: {} × wgmma m64n{columns}k{depth} {ty}, sums in f32",
        facts.name(dst),
        factor(p.left),
        factor(p.right),
        facts.size(p.sum).div_ceil(depth)
    )
}

/// Who copies what of a shared tile, and to whom.
fn part(s: &Specialised, t: &RingTile, share: Share) -> String {
    let blocks = s.blocks();
    let what = match share.cut {
        Cut::Panels => format!("{} of its panels", t.columns / t.panel() / blocks),
        Cut::Rows => format!("{} of its rows", t.rows / blocks),
    };
    let to: Vec<String> = (0..16).filter(|b| share.mask >> b & 1 == 1).map(|b| b.to_string()).collect();
    format!("each block of the cluster copies {what} to blocks {}", to.join(", "))
}

/// Which blocks share something, or why none do where somebody asked for it.
fn cluster(kernel: &Kernel, s: &Specialised, out: &mut String) {
    if let Some(c) = s.cluster {
        let axis = &kernel.axis(c.axis).name;
        let rings: Vec<&str> = s.rings.iter().filter(|r| r.is_shared()).map(|r| r.name.as_str()).collect();
        let meet = match (c.meets_first, c.meets_last) {
            (true, true) => "meet before the first copy and before they leave",
            (true, false) => "meet before the first copy",
            (false, true) => "meet before they leave",
            (false, false) => "never meet",
        };
        let _ = writeln!(
            out,
            "  clusters of {} blocks, neighbours along {axis}: fill ring {} together and {meet}",
            c.size,
            rings.join(" and ring ")
        );
        for r in s.rings.iter().filter(|r| r.is_shared()) {
            let _ =
                writeln!(out, "    ring {}: {} bytes fill a stage, {} consumers empty it", r.name, r.bytes, r.readers);
        }
    } else if let (Some(reason), Clusters::Of(2..)) = (&s.apart, s.layout.target.clusters) {
        let _ = writeln!(out, "  no clusters: {reason}");
    }
}

/// Which grid points come when, and who takes them.
fn order(kernel: &Kernel, s: &Specialised, out: &mut String) {
    let order = &s.layout.order;
    let list = |turns: &[Turn]| {
        let one = |t: &Turn| {
            let name = &kernel.axis(t.axis).name;
            let each = if t.together > 1 { format!(" × {}", t.together) } else { String::new() };
            format!("{name} ({}{each}{})", t.steps, if t.backwards { ", last first" } else { "" })
        };
        turns.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let _ = match order.digits() {
        Some(turns) => writeln!(out, "  points in the order of {}", list(&turns)),
        None => {
            let sides = order.turns.iter().map(|t| format!("{}:{}", kernel.axis(t.axis).name, t.side));
            let sides = sides.collect::<Vec<_>>().join(" ");
            writeln!(out, "  points by blocks of {sides} in the order of {}", list(&order.turns))
        }
    };
    let what = if s.cluster.is_some() { "cluster" } else { "block" };
    let blocks = (s.layout.target.multiprocessors() / order.cluster()).min(order.points());
    let how = match roster(kernel, order, s.layout.target.multiprocessors()) {
        Some(_) => format!("each goes to the {what} with the least to do so far"),
        None => "in turn".to_string(),
    };
    let each = if s.cluster.is_some() { " for each of its blocks" } else { "" };
    let _ = writeln!(out, "  {blocks} {what}s stay and take {} points{each}: {how}", order.points());
}

struct Printer<'a, 'b> {
    facts: &'b Facts<'a>,
    s: &'b Specialised,
}

impl Printer<'_, '_> {
    fn steps(&self, steps: &[Step], depth: usize, out: &mut String) {
        for step in steps {
            if let Step::Chunks { stream, first, rest, after } = step {
                let axis = match self.facts.kernel.body.get(*stream) {
                    Some(Op::Stream { axis, .. }) => self.facts.kernel.axis(*axis).name.as_str(),
                    _ => "?",
                };
                let parts: &[(&str, &Vec<Step>)] = if first == rest {
                    &[("each chunk", rest)]
                } else {
                    &[("first chunk", first), ("each other chunk", rest)]
                };
                for (name, steps) in parts.iter().copied().chain((!after.is_empty()).then_some(("after", after))) {
                    let _ = writeln!(out, "{}{name} of {axis}", "  ".repeat(depth));
                    self.steps(steps, depth + 1, out);
                }
                continue;
            }
            let _ = writeln!(out, "{}{}", "  ".repeat(depth), self.step(step));
        }
    }

    fn step(&self, step: &Step) -> String {
        let ring = |r: &RingId| self.s.ring(*r).name.clone();
        match step {
            Step::Acquire { ring: r, .. } => format!("acquire {}", ring(r)),
            Step::Fill { ring: r } => format!("fill {}", ring(r)),
            Step::Await { ring: r, .. } => format!("await {}", ring(r)),
            Step::Release { ring: r } => format!("release {}", ring(r)),
            Step::Read { value, .. } => format!("read {} into registers", self.facts.name(*value)),
            Step::Compute(at) => format!("compute {}", self.op(*at)),
            Step::Multiply(at) => format!("multiply {}", self.op(*at)),
            Step::Settle { pending } => format!("settle, {pending} under way"),
            Step::TakeTurn => "take turn".to_string(),
            Step::PassTurn => "pass turn".to_string(),
            Step::Start { .. } => "start states".to_string(),
            Step::Advance { .. } => "advance states".to_string(),
            Step::Chunks { .. } => String::new(),
        }
    }

    fn op(&self, at: OpAt) -> String {
        match self.s.op(self.facts.kernel, at) {
            Some(Op::Store { tensor, at, src }) => {
                let name = &self.facts.program.tensor(*tensor).name;
                match epilogue::choose(self.facts, &self.s.layout, *tensor, at, *src) {
                    Epilogue::Quads => format!("store {name}, 16 bytes per lane after an exchange within quads"),
                    Epilogue::Lanes => format!("store {name}, as the lanes hold it"),
                }
            }
            Some(op) => written(op).map_or("?".to_string(), |v| self.facts.name(v)),
            None => "?".to_string(),
        }
    }
}
