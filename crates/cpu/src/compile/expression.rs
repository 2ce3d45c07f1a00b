//! Expressions over tiles as strip programs.

use super::differences::{self, Differences};
use super::products::by_constant;
use super::{Tile, simplify};
use crate::kernels::chain::Chain;
use crate::kernels::strip::{LEAST_NORMAL, Operand, Step};
use einloom_cascade::{BinaryOp, DType, UnaryOp};
use einloom_tile::{AxisId, Coverage, Predicate, Scalar, ValueId};
use std::sync::OnceLock;

/// How a leaf varies over the elements of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ElementKind {
    /// With both axes, or with the only one.
    Full,
    /// Along the outer axis only.
    Outer,
    /// Along the inner axis only.
    Inner,
    /// Not at all.
    Single,
}

/// What a strip program reads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Leaf {
    /// A tile.
    Tile(ValueId, ElementKind),
    /// A position.
    Position(AxisId, ElementKind),
    /// Whether a predicate holds: 1 or 0.
    Within(Predicate),
    /// One value per diagonal. The leaves that it is made of come before it.
    Differences(Box<Differences>),
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub(crate) struct ExpressionPlan {
    /// Computed in f64, else in f32.
    pub wide: bool,
    /// Predicates whose coverage chooses among `variants`.
    pub predicates: Vec<Predicate>,
    /// One per combination of coverages, the first predicate's varying fastest: full, partial, empty.
    pub variants: Vec<Strips>,
}

/// A strip program.
#[derive(Clone, Debug)]
pub(crate) struct Strips {
    pub steps: Vec<Step>,
    pub leaves: Vec<Leaf>,
    /// Scratch registers, register 0 included.
    pub registers: usize,
    /// The leaf that only the first step reads, into the result's own register: it may share the result's memory.
    pub first: Option<u16>,
    /// The steps as a chain, once asked for.
    chain: OnceLock<Option<Chain>>,
}

/// More predicates than this are always tested: every one triples the number of variants.
const PREDICATES: usize = 3;

impl ExpressionPlan {
    /// The plan for `dst = expr`. Tiles with both of `dst`'s axes must have its layout.
    pub(super) fn new(dst: Tile, expr: &Scalar, wide: bool, tiles: &[Tile]) -> Self {
        let mut predicates = vec![];
        collect(expr, &mut predicates);
        predicates.truncate(PREDICATES);
        let count = 3usize.pow(predicates.len() as u32);
        let variants = (0..count)
            .map(|combination| {
                let known = |p: &Predicate| {
                    let at = predicates.iter().position(|q| q == p)?;
                    Some(COVERAGES[combination / 3usize.pow(at as u32) % 3])
                };
                let expr = simplify::specialise(expr, wide, &known);
                let round = Scalar::Round(dst.dtype, Box::new(expr));
                Strips::new(dst, &simplify::simplify(&round, wide), tiles)
            })
            .collect();
        Self { wide, predicates, variants }
    }

    /// Leaves out a last rounding to `dtype`.
    pub(super) fn leave_rounding(&mut self, dtype: DType) {
        for strips in &mut self.variants {
            if strips.steps.last() == Some(&Step::Round { d: 0, dtype }) {
                strips.steps.pop();
            }
        }
    }

    /// Leaves out the product of `v` that every variant has ([`Strips::product`]).
    pub(super) fn leave_product(&mut self, v: ValueId) {
        self.variants.iter_mut().for_each(|strips| strips.leave_product(v));
    }

    /// Whether every variant that reads the elements of `v` reads them first, and only then.
    pub(super) fn reads_first(&self, v: ValueId) -> bool {
        let first = |s: &Strips| {
            let reads = s.leaves.iter().filter(|leaf| matches!(leaf, Leaf::Tile(of, _) if *of == v)).count();
            reads == 0 || reads == 1 && s.begins_with(v)
        };
        !self.wide && self.variants.iter().all(first)
    }

    /// Whether no variant for where a predicate does not hold reads `v`.
    pub(super) fn reads_only_where(&self, predicate: &Predicate, v: ValueId) -> bool {
        let Some(at) = self.predicates.iter().position(|p| p == predicate) else { return false };
        let elsewhere = |number: usize| COVERAGES[number / 3usize.pow(at as u32) % 3] == Coverage::Empty;
        let reads = |s: &Strips| s.leaves.iter().any(|leaf| matches!(leaf, Leaf::Tile(of, _) if *of == v));
        self.variants.iter().enumerate().all(|(number, strips)| !elsewhere(number) || !reads(strips))
    }

    /// Whether some variant takes the anchored exponential of what it reads first.
    pub(super) fn exponentiates(&self) -> bool {
        let scaled = |s: &Strips| matches!(s.steps.get(1), Some(Step::ScaledExp { d: 0, by: Operand::Const(_), .. }));
        self.variants.iter().any(scaled)
    }

    /// Multiplies what every variant that reads the elements of `v` reads first; those that only copy them are left as
    /// they are if that is told.
    pub(super) fn multiply_first(&mut self, v: ValueId, times: f64, leave_copies: bool) {
        for strips in &mut self.variants {
            if !strips.begins_with(v) || leave_copies && strips.copies(v) {
                continue;
            }
            match strips.steps.get_mut(1) {
                Some(Step::ScaledExp { d: 0, by: Operand::Const(by), .. }) => *by *= times,
                _ => {
                    let with = Operand::Const(times);
                    strips.steps.insert(1, Step::Binary { op: BinaryOp::Mul, d: 0, with, reversed: false });
                }
            }
        }
    }

    /// The program for the predicates' coverages.
    pub(crate) fn variant(&self, coverage: impl Fn(&Predicate) -> Coverage) -> &Strips {
        let digit = |p| COVERAGES.iter().position(|c| *c == coverage(p)).unwrap_or(1);
        &self.variants[self.predicates.iter().rev().fold(0, |sum, p| sum * 3 + digit(p))]
    }
}

const COVERAGES: [Coverage; 3] = [Coverage::Full, Coverage::Partial, Coverage::Empty];

fn collect(expr: &Scalar, out: &mut Vec<Predicate>) {
    match expr {
        Scalar::Within(p) if !out.contains(p) => out.push(p.clone()),
        Scalar::Round(_, x) | Scalar::Unary(_, x) => collect(x, out),
        Scalar::Binary(_, x, y) => [x, y].into_iter().for_each(|e| collect(e, out)),
        Scalar::Select(c, x, y) => [c, x, y].into_iter().for_each(|e| collect(e, out)),
        _ => {}
    }
}

impl Strips {
    /// Where the elements of `v` are copied, which are read nowhere else, if the next step multiplies them by a constant; and
    /// the constant.
    pub(super) fn product(&self, v: ValueId) -> Option<(usize, f32)> {
        let mut of = self.leaves.iter().enumerate().filter(|(_, leaf)| matches!(leaf, Leaf::Tile(x, _) if *x == v));
        let (Some((leaf, Leaf::Tile(_, ElementKind::Full))), None) = (of.next(), of.next()) else { return None };
        let leaf = Operand::Leaf(leaf as u16);
        let once = self.steps.iter().flat_map(Step::operands).filter(|x| *x == leaf).count() == 1;
        // Steps that may be skipped are counted.
        if !once || self.steps.iter().any(|step| matches!(step, Step::Shortcut { .. })) {
            return None;
        }
        let at = self.steps.iter().position(|step| matches!(step, Step::Copy { from, .. } if *from == leaf))?;
        let next = self.steps.get(at + 1).filter(|next| next.register() == self.steps[at].register())?;
        Some((at, by_constant(next)?))
    }

    /// Leaves that product out; a register that then only holds the elements, too.
    fn leave_product(&mut self, v: ValueId) {
        let Some((at, _)) = self.product(v) else { return };
        self.chain = OnceLock::new();
        match &mut self.steps[at + 1] {
            Step::ScaledTanh { over, .. } => *over = 1.0,
            _ => {
                self.steps.remove(at + 1);
            }
        }
        let (Step::Copy { d: d @ 1.., from }, (_, rest)) = (self.steps[at], self.steps.split_at_mut(at + 1)) else {
            return;
        };
        let register = Operand::Register(d);
        let read = |step: &Step| step.operands().into_iter().filter(|x| *x == register).count();
        let Some(first) = rest.iter().position(|step| step.register() == d || read(step) > 0) else { return };
        // A register that begins anew is another one.
        let again = rest[first + 1..].iter().position(|step| step.register() == d || read(step) > 0);
        let anew = again.is_none_or(|at| matches!(rest[first + 1 + at], Step::Copy { d: to, .. } if to == d));
        if let Step::Binary { d: to, with, .. } = &mut rest[first]
            && *to != d
            && *with == register
            && anew
        {
            *with = from;
            self.steps.remove(at);
        }
    }

    /// Whether the elements of `v` are read first, and only then.
    fn begins_with(&self, v: ValueId) -> bool {
        let full = self.first.and_then(|leaf| self.leaves.get(usize::from(leaf)));
        matches!(full, Some(Leaf::Tile(of, ElementKind::Full)) if *of == v)
    }

    /// Whether the result is the elements of `v`.
    pub(crate) fn copies(&self, v: ValueId) -> bool {
        self.begins_with(v) && self.steps.len() == 1
    }

    fn new(dst: Tile, expr: &Scalar, tiles: &[Tile]) -> Self {
        let Emit { steps, leaves, registers, .. } = Emit::new(dst, tiles, vec![], None).all(expr);
        let first = match steps.first() {
            Some(Step::Copy { d: 0, from: Operand::Leaf(leaf) }) if reads(&steps, *leaf) == 1 => Some(*leaf),
            _ => None,
        };
        Self { steps, leaves, registers, first, chain: OnceLock::new() }
    }

    /// The steps as a chain, if they are one.
    pub(crate) fn chain(&self) -> Option<&Chain> {
        self.chain.get_or_init(|| Chain::new(&self.steps)).as_ref()
    }
}

fn reads(steps: &[Step], leaf: u16) -> usize {
    let is = |o: &Operand| usize::from(*o == Operand::Leaf(leaf));
    let count = |step: &Step| match step {
        Step::Copy { from, .. } => is(from),
        Step::Binary { with, .. } => is(with),
        Step::ScaledExp { by, less, .. } => is(by) + is(less),
        Step::Select { mask, other, .. } => is(mask) + is(other),
        Step::Shortcut { mask, from, .. } => is(mask) + is(from),
        Step::Unary { .. } | Step::ScaledTanh { .. } | Step::Round { .. } => 0,
    };
    steps.iter().map(count).sum()
}

/// Joins `exp(d * by - less)` and `tanh(d / over) * times` into one step each: the strip is read and written once and not
/// three times.
fn fuse(steps: &mut Vec<Step>) {
    let mut at = 0;
    while at < steps.len() {
        let joined = match steps[at..] {
            [
                // A factor that varies is rounded with its product: elsewhere it may have a tile of its own.
                Step::Binary { op: BinaryOp::Mul, d, with: by @ Operand::Const(_), .. },
                Step::Binary { op: BinaryOp::Sub, d: d2, with: less, reversed: false },
                Step::Unary { op: UnaryOp::Exp, d: d3 },
                ..,
            ] if d == d2 && d == d3 => Some((3, Step::ScaledExp { d, by, less, least: LEAST_NORMAL })),
            [
                Step::Binary { op: BinaryOp::Sub, d, with: less, reversed: false },
                Step::Unary { op: UnaryOp::Exp, d: d2 },
                ..,
            ] if d == d2 => Some((2, Step::ScaledExp { d, by: Operand::Const(1.0), less, least: LEAST_NORMAL })),
            // The same of a difference that is taken the other way round: wherever it is computed it ends at the same argument.
            [
                first @ Step::Binary { op: BinaryOp::Sub, d, reversed: true, .. },
                Step::Unary { op: UnaryOp::Exp, d: d2 },
                ..,
            ] if d == d2 => {
                let (by, less) = (Operand::Const(1.0), Operand::Const(0.0));
                let exp = Step::ScaledExp { d, by, less, least: LEAST_NORMAL };
                steps.splice(at..at + 2, [first, exp]);
                at += 2;
                continue;
            }
            [
                Step::Binary { op: BinaryOp::Div, d, with: Operand::Const(over), reversed: false },
                Step::Unary { op: UnaryOp::Tanh, d: d2 },
                Step::Binary { op: BinaryOp::Mul, d: d3, with: Operand::Const(times), .. },
                ..,
            ] if d == d2 && d == d3 => Some((3, Step::ScaledTanh { d, over, times })),
            _ => None,
        };
        if let Some((length, step)) = joined {
            steps.splice(at..at + length, [step]);
            for (number, step) in steps[..at].iter_mut().enumerate() {
                if let Step::Shortcut { skip, .. } = step
                    && number + *skip >= at
                {
                    *skip -= length - 1;
                }
            }
        }
        at += 1;
    }
}

struct Emit<'a> {
    dst: Tile,
    tiles: &'a [Tile],
    /// Parts that occur more than once, in registers of their own.
    shared: Vec<(Scalar, u8)>,
    leaves: Vec<Leaf>,
    steps: Vec<Step>,
    registers: usize,
    /// The axes whose difference is a leaf, of a part that is computed per diagonal.
    along: Option<[AxisId; 2]>,
}

impl<'a> Emit<'a> {
    fn new(dst: Tile, tiles: &'a [Tile], leaves: Vec<Leaf>, along: Option<[AxisId; 2]>) -> Self {
        Self { dst, tiles, shared: vec![], leaves, steps: vec![], registers: 1, along }
    }

    /// With all that computes the expression.
    fn all(mut self, expr: &Scalar) -> Self {
        self.share(expr);
        self.whole(expr, 0);
        fuse(&mut self.steps);
        self
    }

    /// Computes the parts that occur more than once, the smallest first.
    fn share(&mut self, expr: &Scalar) {
        let mut seen: Vec<(&Scalar, usize)> = vec![];
        self.count(expr, &mut seen);
        let mut repeated: Vec<&Scalar> = seen.iter().filter(|s| s.1 > 1).map(|s| s.0).collect();
        repeated.sort_by_key(|e| self.weight(e));
        for part in repeated {
            // More registers than bytes can number, or scratch beyond the first-level cache, help nobody.
            if self.shared.len() < 6 {
                // Registers 1 and up hold what is shared; temporaries come after.
                let d = self.shared.len() as u8 + 1;
                self.registers = self.registers.max(usize::from(d) + 1);
                self.whole(part, d);
                self.shared.push((part.clone(), d));
            }
        }
    }

    /// A register that nothing at or below `d` uses.
    fn above(&mut self, d: u8) -> u8 {
        let next = d.max(self.shared.len() as u8 + 1) + 1;
        self.registers = self.registers.max(usize::from(next) + 1);
        next
    }

    fn leaf(&mut self, leaf: Leaf) -> Operand {
        let at = self.leaves.iter().position(|l| *l == leaf).unwrap_or_else(|| {
            self.leaves.push(leaf);
            self.leaves.len() - 1
        });
        Operand::Leaf(at as u16)
    }

    /// The operand for an expression that needs no step.
    fn simple(&mut self, expr: &Scalar) -> Option<Operand> {
        if let Some((_, register)) = self.shared.iter().find(|s| s.0 == *expr) {
            return Some(Operand::Register(*register));
        }
        match expr {
            Scalar::Const(x) => Some(Operand::Const(*x)),
            Scalar::Tile(v) => {
                let tile = self.tiles[v.at()];
                let kind = self.kind(tile.outer.into_iter().chain(tile.inner));
                Some(self.leaf(Leaf::Tile(*v, kind)))
            }
            Scalar::Position(a) => {
                let kind = self.kind([*a].into_iter());
                Some(self.leaf(Leaf::Position(*a, kind)))
            }
            Scalar::Within(p) => Some(self.leaf(Leaf::Within(p.clone()))),
            // The verifier allows it in monoids only, which have leaves of their own.
            Scalar::Argument(_) => Some(Operand::Const(f64::NAN)),
            Scalar::Binary(..) if self.along.is_some_and(|axes| differences::itself(expr, axes).is_some()) => {
                Some(Operand::Leaf(Differences::OWN))
            }
            Scalar::Round(..) | Scalar::Unary(..) | Scalar::Binary(..) | Scalar::Select(..) => self.differences(expr),
        }
    }

    /// The difference of positions of which a part is a function.
    fn difference(&self, expr: &Scalar) -> Option<differences::Difference> {
        let axes = [self.dst.outer?, self.dst.inner?];
        let single = |axes: &[AxisId]| self.kind(axes.iter().copied()) == ElementKind::Single;
        let alike = |e: &Scalar| match e {
            Scalar::Const(_) => true,
            Scalar::Tile(v) => {
                let tile = self.tiles[v.at()];
                [tile.outer, tile.inner].iter().flatten().all(|axis| single(&[*axis]))
            }
            Scalar::Position(axis) => single(&[*axis]),
            _ => false,
        };
        if axes[0] == axes[1] { None } else { differences::difference(expr, axes, &alike) }
    }

    /// The leaf for a part that is one.
    fn differences(&mut self, expr: &Scalar) -> Option<Operand> {
        let difference = self.difference(expr)?;
        let axes = [self.dst.outer?, self.dst.inner?];
        let dst = Tile { outer: None, inner: None, ..self.dst };
        let part = Emit::new(dst, self.tiles, std::mem::take(&mut self.leaves), Some(axes)).all(expr);
        self.leaves = part.leaves;
        let (of, steps, registers) = (expr.clone(), part.steps, part.registers);
        Some(self.leaf(Leaf::Differences(Box::new(Differences { of, difference, steps, registers }))))
    }

    fn kind(&self, axes: impl Iterator<Item = AxisId>) -> ElementKind {
        let (mut outer, mut inner) = (false, false);
        for axis in axes {
            outer |= self.dst.outer == Some(axis);
            inner |= self.dst.inner == Some(axis);
        }
        match (outer, inner) {
            (true, false) => ElementKind::Outer,
            (false, false) => ElementKind::Single,
            (false, true) if self.dst.outer.is_some() => ElementKind::Inner,
            _ => ElementKind::Full,
        }
    }

    fn copy(&mut self, from: Operand, d: u8) {
        if from != Operand::Register(d) {
            self.steps.push(Step::Copy { d, from });
        }
    }

    /// Leaves the expression's value in register `d`.
    fn whole(&mut self, expr: &Scalar, d: u8) {
        if let Some(from) = self.simple(expr) {
            return self.copy(from, d);
        }
        match expr {
            Scalar::Round(dtype, x) => {
                self.whole(x, d);
                self.steps.push(Step::Round { d, dtype: *dtype });
            }
            Scalar::Unary(op, x) => {
                self.whole(x, d);
                self.steps.push(Step::Unary { op: *op, d });
            }
            Scalar::Binary(op, x, y) => self.binary(*op, x, y, d),
            Scalar::Select(c, x, y) => self.select(c, x, y, d),
            _ => {}
        }
    }

    fn operand(&mut self, expr: &Scalar, scratch: u8) -> Operand {
        self.simple(expr).unwrap_or_else(|| {
            self.whole(expr, scratch);
            Operand::Register(scratch)
        })
    }

    /// Which side goes first: the one that needs more registers; of two leaves, one that could be changed in place.
    fn rank(&self, expr: &Scalar) -> usize {
        2 * self.weight(expr) + usize::from(self.is_in_place(expr))
    }

    fn is_in_place(&self, expr: &Scalar) -> bool {
        matches!(expr, Scalar::Tile(v) if self.tiles[v.at()].inner == self.dst.inner
            && self.tiles[v.at()].outer == self.dst.outer)
    }

    /// Whether `x` could be changed in place by what has no such tile.
    fn is_changed(&self, x: &Scalar, by: &Scalar) -> bool {
        self.is_in_place(x) && !super::reuse::any(by, &|e| self.is_in_place(e))
    }

    fn binary(&mut self, op: BinaryOp, x: &Scalar, y: &Scalar, d: u8) {
        let reversed = self.is_changed(y, x) || !self.is_changed(x, y) && self.rank(y) > self.rank(x);
        let (x, y) = if reversed { (y, x) } else { (x, y) };
        self.whole(x, d);
        let scratch = self.above(d);
        let with = self.operand(y, scratch);
        self.steps.push(Step::Binary { op, d, with, reversed });
    }

    /// Begins a selection between something that is there and something to compute, by what is the same for a whole
    /// row, with a test of whether it need be computed at all; where the test is.
    fn shortcut(&mut self, c: &Scalar, y: &Scalar, d: u8, computed_when: bool) -> Option<usize> {
        let Scalar::Tile(mask) = c else { return None };
        let tile = self.tiles[mask.at()];
        let kind = self.kind(tile.outer.into_iter().chain(tile.inner));
        let there = matches!(y, Scalar::Tile(_) | Scalar::Const(_));
        if !there || !matches!(kind, ElementKind::Outer | ElementKind::Single) {
            return None;
        }
        let (mask, from) = (self.simple(c)?, self.simple(y)?);
        self.steps.push(Step::Shortcut { d, mask, when: !computed_when, from, skip: 0 });
        Some(self.steps.len() - 1)
    }

    fn select(&mut self, c: &Scalar, x: &Scalar, y: &Scalar, d: u8) {
        let flipped = self.rank(y) > self.rank(x);
        let (x, y) = if flipped { (y, x) } else { (x, y) };
        let shortcut = self.shortcut(c, y, d, !flipped);
        self.whole(x, d);
        let scratch = self.above(d);
        let other = self.operand(y, scratch);
        let scratch = self.above(scratch);
        let mask = self.operand(c, scratch);
        self.steps.push(Step::Select { d, mask, other, flipped });
        if let Some(at) = shortcut {
            let length = self.steps.len() - at - 1;
            if let Step::Shortcut { skip, .. } = &mut self.steps[at] {
                *skip = length;
            }
        }
    }

    /// Whether an operation needs no step.
    fn is_leaf(&self, expr: &Scalar) -> bool {
        let operation = matches!(expr, Scalar::Round(..) | Scalar::Unary(..) | Scalar::Binary(..) | Scalar::Select(..));
        let own = || self.along.is_some_and(|axes| differences::itself(expr, axes).is_some());
        operation && (own() || self.difference(expr).is_some())
    }

    /// Number of operations, leaves counting as fewer the less they vary.
    fn weight(&self, expr: &Scalar) -> usize {
        match expr {
            Scalar::Const(_) => 0,
            Scalar::Tile(_) | Scalar::Position(_) | Scalar::Within(_) | Scalar::Argument(_) => 1,
            _ if self.is_leaf(expr) => 1,
            Scalar::Round(_, x) | Scalar::Unary(_, x) => 1 + self.weight(x),
            Scalar::Binary(_, x, y) => 1 + self.weight(x) + self.weight(y),
            Scalar::Select(c, x, y) => 1 + self.weight(c) + self.weight(x) + self.weight(y),
        }
    }

    /// Counts how often every operation occurs.
    fn count<'e>(&self, expr: &'e Scalar, seen: &mut Vec<(&'e Scalar, usize)>) {
        if self.weight(expr) <= 1 {
            return;
        }
        if let Some(entry) = seen.iter_mut().find(|s| s.0 == expr) {
            // What it is made of is then shared with it.
            entry.1 += 1;
            return;
        }
        seen.push((expr, 1));
        match expr {
            Scalar::Round(_, x) | Scalar::Unary(_, x) => self.count(x, seen),
            Scalar::Binary(_, x, y) => [x, y].into_iter().for_each(|e| self.count(e, seen)),
            Scalar::Select(c, x, y) => [c, x, y].into_iter().for_each(|e| self.count(e, seen)),
            _ => {}
        }
    }
}
