//! A schedule as text.

use super::facts::{self, Carrier, Facts, each_op};
use super::{Arrangement, Copy, Frame, Instruction, Made, Operand, Order, Schedule, Side, Turn};
use einloom_tile::{Kernel, Op, Program, ValueId};
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// The schedule of `kernel`, a kernel of `program`, as text, one decision a line.
pub fn print(program: &Program, kernel: &Kernel, schedule: &Schedule) -> String {
    let mut out = String::new();
    let facts = Facts::new(program, kernel);
    // Writing to a string cannot fail.
    let _ = writeln!(
        out,
        "schedule {} for {}   {} warps, {} bytes of shared memory, about {} registers",
        schedule.kernel, schedule.target.arch, schedule.warps, schedule.shared_bytes, schedule.registers
    );
    for (k, frame) in schedule.frames.iter().enumerate() {
        if !frame.sides.is_empty() {
            let _ = writeln!(out, "  frame {k}: {}", arrangement(&facts, frame));
        }
    }
    let mut written = BTreeSet::new();
    each_op(&kernel.body, &mut |op| {
        written.extend(facts::written(op));
        if let Op::Stream { states, .. } = op {
            written.extend(states.iter().map(|s| s.value));
        }
    });
    // Rewriting leaves declarations of tiles that nothing writes any more.
    for v in (0..kernel.values.len() as u32).map(ValueId).filter(|v| written.contains(v)) {
        let _ = writeln!(out, "  {}", tile(&facts, schedule, v));
    }
    for (dst, p) in &schedule.products {
        let place = match p.left_in_registers {
            true => " from registers",
            false if schedule.held.contains(dst) => " kept in registers",
            false => "",
        };
        let _ = writeln!(
            out,
            "  {} = mma {}{place} · {}: {}",
            facts.name(*dst),
            facts.name(p.left),
            facts.name(p.right),
            instruction(p.instruction)
        );
    }
    for p in schedule.pipelines.iter().filter(|p| !p.loads.is_empty()) {
        let loads: Vec<String> = p.loads.iter().map(|&v| facts.name(v)).collect();
        let _ = writeln!(out, "  stream: {} in {} stages", loads.join(", "), p.stages);
    }
    if let Some(text) = order(&facts, &schedule.order) {
        let _ = writeln!(out, "  order: {text}");
    }
    for f in &schedule.fallbacks {
        let _ = writeln!(out, "  slower: {}: {}", f.op, f.reason);
    }
    out
}

/// The order of the grid, unless it is that of the program.
fn order(facts: &Facts<'_>, order: &Order) -> Option<String> {
    let name = |t: &Turn| {
        let name = &facts.kernel.axis(t.axis).name;
        if t.backwards { format!("{name} from the last on") } else { name.clone() }
    };
    let names = |turns: &[Turn]| turns.iter().map(name).collect::<Vec<_>>().join(", ");
    if let Some(turns) = order.digits() {
        let plain = turns.iter().all(|t| !t.backwards) && turns.iter().map(|t| t.axis).eq(facts.kernel.grid.clone());
        return (!plain).then(|| names(&turns));
    }
    let (outside, inside): (Vec<Turn>, Vec<Turn>) = order.turns.iter().partition(|t| t.side == 1);
    let cut = |t: &&Turn| t.is_cut();
    let part = |t: &Turn| format!("{} of {}", t.side, facts.kernel.axis(t.axis).name);
    let blocks: Vec<String> = inside.iter().filter(cut).map(part).collect();
    let of = if outside.is_empty() { String::new() } else { format!("for each of {}, ", names(&outside)) };
    Some(format!("{of}blocks of {}; in each {}", blocks.join(" and "), names(&inside)))
}

fn arrangement(facts: &Facts<'_>, frame: &Frame) -> String {
    let on = |side: Side| {
        let axes = frame.sides.iter().filter(|s| *s.1 == side);
        let names: Vec<String> = axes.map(|(a, _)| facts.kernel.axis(*a).name.clone()).collect();
        if names.is_empty() { "nothing".to_string() } else { names.join(", ") }
    };
    let (down, across) = (on(Side::Down), on(Side::Across));
    match frame.arrangement {
        Arrangement::Fragment { warps } => {
            format!("{down} down × {across} across, fragments of {} × {} warps", warps[0], warps[1])
        }
        Arrangement::Blocked { warps, lanes, vector, .. } => {
            let threads = [warps[0] * lanes[0], warps[1] * lanes[1]];
            let plain = lanes[1] == threads[1].min(32);
            let each = if plain { String::new() } else { format!(", {} × {} in a warp", lanes[0], lanes[1]) };
            format!(
                "{down} down × {across} across, {} × {} threads{each} with {vector} neighbours each",
                threads[0], threads[1]
            )
        }
    }
}

fn tile(facts: &Facts<'_>, schedule: &Schedule, v: ValueId) -> String {
    let home = schedule.home(v);
    let place = match home.made {
        _ if schedule.inlined.contains(&v) => "computed where it is read".to_string(),
        _ if schedule.fused.values().any(|f| f.source == v) => "summed and packed as it comes".to_string(),
        Made::Everywhere => "in every thread".to_string(),
        Made::Registers(f) => {
            let frame = schedule.frame(f);
            let along = |side| facts.axes(v).into_iter().find(|a| frame.sides.get(a) == Some(&side));
            let count = frame.registers(
                along(Side::Down).map(|a| facts.size(a)),
                along(Side::Across).map(|a| facts.size(a)),
                Carrier::F32,
            );
            match schedule.in_place.get(&v) {
                Some(state) => format!("{count} registers, those of {}", facts.name(*state)),
                None if schedule.packed.contains(&v) => format!("{} registers of pairs in frame {}", count / 2, f.0),
                None => format!("{count} registers in frame {}", f.0),
            }
        }
        Made::Shared => "in shared memory".to_string(),
    };
    let shared = home.shared.as_ref().map_or(String::new(), |t| {
        let copy = match schedule.copies.get(&v) {
            Some(Copy::Async { bytes }) => format!(", cp.async of {bytes} bytes"),
            Some(Copy::Elementwise { .. }) => ", copied element by element".to_string(),
            None => String::new(),
        };
        let swizzle = match t.swizzle.mask {
            0 if t.swizzle.pitch == t.columns * t.element.bytes() => "in plain rows",
            0 => "padded",
            _ => "swizzled",
        };
        format!(
            "; {}×{} {} {swizzle} at byte {}, {} × {} bytes{copy}",
            t.rows,
            t.columns,
            t.element,
            t.offset,
            t.stages,
            t.stage_bytes()
        )
    });
    let back: Vec<String> = home.read_back.iter().map(|f| f.0.to_string()).collect();
    let partial = if schedule.partial.contains_key(&v) { ", every thread a part" } else { "" };
    let back = if back.is_empty() { String::new() } else { format!("; read back in frame {}", back.join(", ")) };
    format!("{}: {} {place}{partial}{shared}{back}", facts.name(v), facts.dtype(v))
}

fn instruction(i: Instruction) -> &'static str {
    match i {
        Instruction::TensorCore(Operand::Bf16) => "mma.sync.m16n8k16 bf16, sums in f32",
        Instruction::TensorCore(Operand::F16) => "mma.sync.m16n8k16 f16, sums in f32",
        Instruction::TensorCore(Operand::Bytes(_)) => "mma.sync.m16n8k32 bytes, sums in i32",
        Instruction::Fma(Carrier::F32) => "multiply and add in f32",
        Instruction::Fma(Carrier::F64) => "multiply and add in f64",
        Instruction::Fma(Carrier::I32) => "multiply and add in i32",
    }
}
