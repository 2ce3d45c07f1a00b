//! What contractions do in passing. Multiplications, while its result is in registers: of all that it gives by a
//! constant, and of what it starts from by a tile that varies along one axis, or along none. Additions: of a tile that is
//! where it was loaded from, and of numbers of rows or of columns. And copies: of the tiles that the next chunk of a stream loads.

use super::{
    Carrier, Contract, ElementKind, ExpressionPlan, Leaf, Product, Side, Step, Strips, Tile, Unit, Viewable, reads,
    writes,
};
use crate::kernels::contract::parts;
use crate::kernels::strip::{self, Operand};
use einloom_cascade::{BinaryOp, DType};
use einloom_tile::ValueId;

/// Absorbs what can be absorbed in all of `steps`, some of which the unit may compute.
pub(super) fn absorb(tiles: &[Tile], steps: &mut Vec<Step>, unit: Option<Unit>) {
    let uses = super::uses(tiles, steps);
    body(tiles, steps, &uses, unit);
}

fn body(tiles: &[Tile], steps: &mut Vec<Step>, uses: &[usize], unit: Option<Unit>) {
    let mut at = 0;
    while at < steps.len() {
        if let Step::Stream { body: inner, .. } = &mut steps[at] {
            body(tiles, inner, uses, unit);
            ahead(tiles, inner);
        }
        while let Some((of, by)) = inner(&steps[at], uses)
            && let Some(contract) = giving(tiles, &mut steps[..at], of)
            && (contract.times * by).is_normal()
        {
            contract.times *= by;
            if let Step::Map { plan, .. } = &mut steps[at] {
                plan.leave_product(of);
            }
        }
        let taken = multiple(tiles, &steps[at]).is_some_and(|by| match by {
            Multiple { dst, of, by: By::Constant(x) } => result(tiles, steps, at, uses, (dst, of, x)),
            Multiple { dst, of, by: By::Tile(v, kind) } => start(steps, at, uses, (dst, of), (v, kind)),
        });
        if taken {
            steps.remove(at);
        } else if !added(tiles, steps, at, uses) && !sides(tiles, steps, at, uses, unit) {
            at += 1;
        }
    }
}

/// Lets a contraction add what the map at `at` adds to its result, if that is a tile of f32 where it was loaded from and nothing else is
/// done: the contraction takes the map's place. False if it cannot.
fn added(tiles: &[Tile], steps: &mut Vec<Step>, at: usize, uses: &[usize]) -> bool {
    let Some((dst, [of, with])) = sum(tiles, &steps[at]) else { return false };
    let Some((from, of, with)) = [(of, with), (with, of)].into_iter().find_map(|(of, with)| {
        let from = steps[..at].iter().rposition(|s| matches!(s, Step::Contract(c) if c.dst == of))?;
        giving(tiles, &mut steps[from..=from], of)?;
        (uses[of.at()] == 1 && uses[with.at()] == 1).then_some((from, of, with))
    }) else {
        return false;
    };
    let here = |s: &Step| matches!(s, Step::Load { dst, view: Viewable::Near, .. } if *dst == with);
    // Nothing between moves, or reads what is only there later.
    let passes = |s: &Step| matches!(s, Step::Load { .. } | Step::Map { .. }) && !reads(s).contains(&of);
    if !steps[from..at].iter().any(here) || !steps[from + 1..at].iter().all(passes) {
        return false;
    }
    for step in &mut steps[from..at] {
        if let Step::Load { dst, view, .. } = step
            && *dst == with
        {
            *view = Viewable::Added;
        }
    }
    let Step::Contract(mut contract) = steps.remove(from) else { unreachable!("it was found there") };
    (contract.dst, contract.start, contract.apart) = (dst, Some(with), contract.times != 1.0);
    steps[at - 1] = Step::Contract(contract);
    true
}

/// Lets a contraction by multiply-adds add numbers of rows or of columns to its result, if that is all that the map at `at` does: the contraction
/// takes the map's place. False if it cannot, or if the unit may compute it, which does that otherwise.
fn sides(tiles: &[Tile], steps: &mut Vec<Step>, at: usize, uses: &[usize], unit: Option<Unit>) -> bool {
    let Some((dst, of, sides)) = with_sides(tiles, &steps[at]).filter(|(_, of, _)| uses[of.at()] == 1) else {
        return false;
    };
    let Some(from) = steps[..at].iter().rposition(|s| matches!(s, Step::Contract(c) if c.dst == of)) else {
        return false;
    };
    let by_lanes = giving(tiles, &mut steps[from..=from], of)
        .is_some_and(|c| unit.is_none_or(|unit| !unit.may([c.left, c.right].map(|v| parts(tiles[v.at()].dtype)))));
    let passes = |s: &Step| matches!(s, Step::Load { .. } | Step::Map { .. }) && !reads(s).contains(&of);
    if !by_lanes || !steps[from + 1..at].iter().all(passes) {
        return false;
    }
    let Step::Contract(mut contract) = steps.remove(from) else { unreachable!("it was found there") };
    (contract.dst, contract.sides) = (dst, Some(Box::new(sides)));
    steps[at - 1] = Step::Contract(contract);
    true
}

/// The tile that a map makes by adding numbers of rows or of columns to another, which is given, and these as contractions add them.
fn with_sides(tiles: &[Tile], step: &Step) -> Option<(ValueId, ValueId, [Option<Side>; 2])> {
    let Step::Map { dst, plan: ExpressionPlan { wide: false, variants, .. }, .. } = step else { return None };
    let [strips] = variants.as_slice() else { return None };
    let (strip::Step::Copy { d: 0, from: Operand::Leaf(of) }, rest @ [_, ..]) = strips.steps.split_first()? else {
        return None;
    };
    let leaf = |number: u16| match strips.leaves.get(usize::from(number)) {
        Some(Leaf::Tile(v, kind)) if tiles[v.at()].dtype == DType::F32 => Some((*v, *kind)),
        _ => None,
    };
    let side = |step: &strip::Step| match *step {
        strip::Step::Binary {
            op: op @ (BinaryOp::Add | BinaryOp::Sub),
            d: 0,
            with: Operand::Leaf(with),
            reversed: false,
        } => leaf(with).filter(|(_, kind)| *kind != ElementKind::Full).map(|(of, kind)| Side {
            of,
            kind,
            negated: op == BinaryOp::Sub,
        }),
        _ => None,
    };
    let sides = match rest {
        [one] => [Some(side(one)?), None],
        [one, other] => [Some(side(one)?), Some(side(other)?)],
        _ => return None,
    };
    let (of, kind) = leaf(*of)?;
    let all = kind == ElementKind::Full && tiles[dst.at()].dtype == DType::F32;
    all.then_some((*dst, of, sides))
}

/// The tile that a map makes as the sum of two others of both its sides, all of f32, and these.
fn sum(tiles: &[Tile], step: &Step) -> Option<(ValueId, [ValueId; 2])> {
    let Step::Map { dst, plan, .. } = step else { return None };
    let (strips, of, second) = multiple_of(plan)?;
    let strip::Step::Binary { op: BinaryOp::Add, with: Operand::Leaf(with), .. } = second else { return None };
    let full = |number: u16| match strips.leaves.get(usize::from(number)) {
        Some(Leaf::Tile(v, ElementKind::Full)) if tiles[v.at()].dtype == DType::F32 => Some(*v),
        _ => None,
    };
    let both = [full(of)?, full(*with)?];
    (tiles[dst.at()].dtype == DType::F32 && both[0] != both[1]).then_some((*dst, both))
}

/// Lets the loads of a stream's body be made in passing, if it has a contraction that can.
fn ahead(tiles: &[Tile], body: &mut [Step]) {
    let copies = |c: &Contract| c.product == Product::Broadcast && tiles[c.dst.at()].carrier == Carrier::F32;
    if body.iter().any(|s| matches!(s, Step::Contract(c) if copies(c))) {
        for step in body {
            if let Step::Load { ahead, .. } = step {
                *ahead = true;
            }
        }
    }
}

/// `dst = of · by`, elementwise in f32.
struct Multiple {
    dst: ValueId,
    of: ValueId,
    by: By,
}

enum By {
    Constant(f32),
    Tile(ValueId, ElementKind),
}

/// The first tile that a map copies, and the step by which it becomes its result, if that is all.
fn multiple_of(plan: &ExpressionPlan) -> Option<(&Strips, u16, &strip::Step)> {
    let ExpressionPlan { wide: false, variants, .. } = plan else { return None };
    let [strips] = variants.as_slice() else { return None };
    match strips.steps.as_slice() {
        [strip::Step::Copy { d: 0, from: Operand::Leaf(of) }, second @ strip::Step::Binary { d: 0, .. }] => {
            Some((strips, *of, second))
        }
        _ => None,
    }
}

fn multiple(tiles: &[Tile], step: &Step) -> Option<Multiple> {
    let Step::Map { dst, plan, .. } = step else { return None };
    let (strips, of, second) = multiple_of(plan)?;
    let strip::Step::Binary { with, .. } = second else { return None };
    let leaf = |number: u16| match strips.leaves.get(usize::from(number)) {
        Some(Leaf::Tile(v, kind)) if tiles[v.at()].dtype == DType::F32 => Some((*v, *kind)),
        _ => None,
    };
    let by = match (by_constant(second), second, with) {
        (Some(x), ..) => By::Constant(x),
        (None, strip::Step::Binary { op: BinaryOp::Mul, .. }, Operand::Leaf(number)) => {
            let (v, kind) = leaf(*number)?;
            By::Tile(v, kind)
        }
        _ => return None,
    };
    let (of, kind) = leaf(of)?;
    let by = match (kind, by) {
        (ElementKind::Full, by) => Some((of, by)),
        // A product may be written either way.
        (kind, By::Tile(full, ElementKind::Full)) => Some((full, By::Tile(of, kind))),
        _ => None,
    };
    let (of, by) = by.filter(|(_, by)| !matches!(by, By::Tile(_, ElementKind::Full)))?;
    (tiles[dst.at()].dtype == DType::F32).then_some(Multiple { dst: *dst, of, by })
}

/// The constant by which a step multiplies the sums of a contraction, at first or at all. Where it divides them, the product
/// with the reciprocal rounds once more: less than the sums were rounded to become what they are.
pub(super) fn by_constant(step: &strip::Step) -> Option<f32> {
    let reciprocal = |x: f64| {
        // Beyond that either the reciprocal or the product of a sum that it should have kept would be lost.
        let small = x.abs() < f64::from(f32::MAX).sqrt() && x.abs() > f64::from(f32::MIN_POSITIVE).sqrt();
        small.then_some((1.0 / x) as f32)
    };
    match *step {
        strip::Step::Binary { op: BinaryOp::Mul, with: Operand::Const(x), .. } => Some(x as f32),
        strip::Step::Binary { op: BinaryOp::Div, with: Operand::Const(x), reversed: false, .. } => reciprocal(x),
        strip::Step::ScaledTanh { over, .. } if over != 1.0 => reciprocal(over),
        _ => None,
    }
}

/// The tile that a map multiplies by a constant before it does anything else with it, and the constant; nothing else reads
/// the tile. Not the product that is all of a map.
fn inner(step: &Step, uses: &[usize]) -> Option<(ValueId, f32)> {
    let Step::Map { plan: plan @ ExpressionPlan { wide: false, .. }, .. } = step else { return None };
    if multiple_of(plan).is_some() {
        return None;
    }
    let (first, rest) = plan.variants.split_first()?;
    let tiles = first.leaves.iter().filter_map(|leaf| match leaf {
        Leaf::Tile(v, ElementKind::Full) if uses[v.at()] == 1 => Some(*v),
        _ => None,
    });
    tiles.into_iter().find_map(|v| {
        let (_, by) = first.product(v)?;
        rest.iter().all(|strips| strips.product(v).is_some_and(|(_, other)| other == by)).then_some((v, by))
    })
}

/// The contraction among `steps` that computes `of` and could multiply it by a constant, or by another one.
fn giving<'s>(tiles: &[Tile], steps: &'s mut [Step], of: ValueId) -> Option<&'s mut Contract> {
    let contract = steps.iter_mut().rev().find_map(|s| match s {
        Step::Contract(c) if c.dst == of => Some(c),
        _ => None,
    })?;
    let free = contract.start.is_none() && contract.sides.is_none() && contract.product == Product::Broadcast;
    (free && tiles[of.at()].carrier == Carrier::F32).then_some(contract)
}

/// Lets the contraction that computes `of`, which only the map at `at` reads, give the map's result.
fn result(
    tiles: &[Tile],
    steps: &mut [Step],
    at: usize,
    uses: &[usize],
    (dst, of, by): (ValueId, ValueId, f32),
) -> bool {
    match giving(tiles, &mut steps[..at], of).filter(|c| uses[of.at()] == 1 && c.times == 1.0) {
        Some(contract) => {
            (contract.dst, contract.times) = (dst, by);
            true
        }
        None => false,
    }
}

/// Lets the contraction that starts from `dst`, which nothing else reads, start from `of · by`; nothing before it
/// writes either. Rounds once less than the map would.
fn start(
    steps: &mut [Step],
    at: usize,
    uses: &[usize],
    (dst, of): (ValueId, ValueId),
    by: (ValueId, ElementKind),
) -> bool {
    let Some(found) = steps[at + 1..].iter().position(|s| reads(s).contains(&dst)) else { return false };
    let (between, rest) = steps[at + 1..].split_at_mut(found);
    let kept = between.iter().all(|s| !writes(s).contains(&of) && !writes(s).contains(&by.0));
    match &mut rest[0] {
        Step::Contract(Contract { start: Some(start), scale: scale @ None, product: Product::Broadcast, .. })
            if *start == dst && uses[dst.at()] == 1 && kept =>
        {
            (*start, *scale) = (of, Some(by));
            true
        }
        _ => false,
    }
}
