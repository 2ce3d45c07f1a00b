//! What passes ask of a kernel: how large its tiles can be, who reads a tile, and in which order.

use einloom_cascade::DType;
use einloom_tile::{ALIGNMENT, AxisId, Coord, CoordAtom, Init, Kernel, Op, Program, Scalar, TensorId, ValueId};
use std::collections::BTreeSet;

/// How a tile's elements are held in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Carrier {
    /// f32 and all narrower floating-point types, and truth values (1 and 0).
    F32,
    /// f64.
    F64,
    /// Every integer type.
    I32,
}

impl Carrier {
    /// What holds this number type.
    pub fn of(dtype: DType) -> Self {
        match dtype {
            DType::F64 => Self::F64,
            d if d.is_integer() => Self::I32,
            _ => Self::F32,
        }
    }

    /// Registers per element.
    pub fn words(self) -> usize {
        if self == Self::F64 { 2 } else { 1 }
    }

    /// Its type in CUDA C++.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "float",
            Self::F64 => "double",
            Self::I32 => "int",
        }
    }
}

/// A reader of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// A leaf of a map.
    Leaf(ValueId),
    /// A factor of a product.
    Factor(ValueId),
    /// What a product is added to, or a reduction combined with.
    Onto(ValueId),
    /// Reduced.
    Reduced(ValueId),
    /// Coordinates of a load, or positions at which elements are picked.
    Gather(ValueId),
    /// Picked from.
    Picked(ValueId),
    /// Stored.
    Stored(TensorId),
    /// Tested by a skip.
    Tested,
    /// The start of a state.
    Start(ValueId),
    /// The next value of a state.
    Next(ValueId),
}

/// A kernel with answers.
#[derive(Clone, Debug)]
pub(crate) struct Facts<'a> {
    pub program: &'a Program,
    pub kernel: &'a Kernel,
    /// Readers, per value.
    pub uses: Vec<Vec<Use>>,
    /// Tiles that may be off by a relative 2^-20: see [`super::tolerance`].
    pub loose: BTreeSet<ValueId>,
    /// Tiles that carry roundings of f32 sums.
    pub rounded: BTreeSet<ValueId>,
}

impl<'a> Facts<'a> {
    pub fn new(program: &'a Program, kernel: &'a Kernel) -> Self {
        let mut uses = vec![vec![]; kernel.values.len()];
        each_op(&kernel.body, &mut |op| each_use(op, &mut |v, u| uses[v.at()].push(u)));
        let mut facts = Self { program, kernel, uses, loose: BTreeSet::new(), rounded: BTreeSet::new() };
        facts.loose = super::tolerance::loose(&facts);
        facts.rounded = crate::rewrite::rounded(kernel);
        facts
    }

    /// Most positions of the axis's window.
    pub fn size(&self, axis: AxisId) -> usize {
        let a = self.kernel.axis(axis);
        a.tile.min(a.extent).max(1)
    }

    /// Whether the axis makes a side of a tile: a window of always one position does not.
    pub fn wide(&self, axis: AxisId) -> bool {
        let a = self.kernel.axis(axis);
        a.tile.min(a.extent) != 1
    }

    /// The tile's wide axes, rows first.
    pub fn axes(&self, v: ValueId) -> Vec<AxisId> {
        let decl = self.kernel.value(v);
        [decl.rows, decl.cols].into_iter().flatten().filter(|&a| self.wide(a)).collect()
    }

    pub fn dtype(&self, v: ValueId) -> DType {
        self.kernel.value(v).dtype
    }

    pub fn carrier(&self, v: ValueId) -> Carrier {
        Carrier::of(self.dtype(v))
    }

    /// Whether a reduction of `src` onto `acc` to `dst` combines numbers of 64 bits.
    pub fn reduces_wide(&self, dst: ValueId, src: ValueId, acc: Option<ValueId>) -> bool {
        [Some(dst), Some(src), acc].into_iter().flatten().any(|v| self.carrier(v) != Carrier::F32)
    }

    /// The name people see.
    pub fn name(&self, v: ValueId) -> String {
        let name = &self.kernel.value(v).name;
        if name.is_empty() { format!("tile {}", v.0) } else { name.clone() }
    }

    /// Elements between neighbours in each dimension of a tensor.
    pub fn strides(&self, tensor: TensorId) -> Vec<i64> {
        let strides = self.program.tensor(tensor).strides();
        strides.into_iter().map(|s| i64::try_from(s).unwrap_or(i64::MAX)).collect()
    }

    /// How many elements a step along the axis moves in memory; `None` if that varies.
    pub fn stride(&self, tensor: TensorId, at: &[Coord], axis: AxisId) -> Option<i64> {
        let mut total = 0i64;
        for (coord, stride) in at.iter().zip(self.strides(tensor)) {
            for (c, atom) in &coord.terms {
                match atom {
                    CoordAtom::Axis(a) if *a == axis => total += c * stride,
                    CoordAtom::Axis(_) => {}
                    other if self.mentions(other, axis) => return None,
                    _ => {}
                }
            }
        }
        Some(total)
    }

    fn mentions(&self, atom: &CoordAtom, axis: AxisId) -> bool {
        match atom {
            CoordAtom::Axis(a) => *a == axis,
            CoordAtom::Floor(inner, _) => inner.terms.iter().any(|(_, a)| self.mentions(a, axis)),
            CoordAtom::Tile(v) => self.axes(*v).contains(&axis),
        }
    }

    /// The largest number of elements that divides every address an access can start at, when it moves freely along
    /// all axes but steps of `inner` within its window. 0 stands for an address that is always 0.
    pub fn alignment(&self, tensor: TensorId, at: &[Coord], inner: AxisId) -> i64 {
        let decl = self.program.tensor(tensor);
        // Every copy is content with an array that begins where arrays do.
        let start = (decl.alignment() < ALIGNMENT).then(|| (decl.alignment() / decl.dtype.bytes()) as i64);
        let mut gcd = start.unwrap_or(0);
        for (coord, stride) in at.iter().zip(self.strides(tensor)) {
            gcd = common(gcd, coord.offset * stride);
            for (c, atom) in &coord.terms {
                let step = match atom {
                    CoordAtom::Axis(a) if *a == inner => {
                        let decl = self.kernel.axis(*a);
                        // A window that never moves starts at 0.
                        if decl.tile >= decl.extent { 0 } else { decl.tile as i64 }
                    }
                    _ => 1,
                };
                gcd = common(gcd, c * stride * step);
            }
        }
        gcd
    }
}

fn common(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Whether a coordinate depends on the elements of a tile.
pub(crate) fn gathers(coord: &Coord) -> bool {
    let mut found = false;
    coord_tiles(coord, &mut |_| found = true);
    found
}

/// Calls `f` with every operation, outer ones first, in program order.
pub(crate) fn each_op<'a>(ops: &'a [Op], f: &mut dyn FnMut(&'a Op)) {
    for op in ops {
        f(op);
        if let Op::Stream { body, .. } = op {
            each_op(body, f);
        }
    }
}

/// Calls `f` with every tile the operation itself reads; not those that a stream's body reads.
pub(crate) fn each_use(op: &Op, f: &mut dyn FnMut(ValueId, Use)) {
    match op {
        Op::Load { dst, at, .. } => at.iter().for_each(|c| coord_tiles(c, &mut |v| f(v, Use::Gather(*dst)))),
        Op::Store { src, tensor, .. } => f(*src, Use::Stored(*tensor)),
        Op::Map { dst, expr } => leaves(expr, &mut |v| f(v, Use::Leaf(*dst))),
        Op::Mma { dst, a, b, acc } => {
            f(*a, Use::Factor(*dst));
            f(*b, Use::Factor(*dst));
            acc.iter().for_each(|v| f(*v, Use::Onto(*dst)));
        }
        Op::Reduce { dst, src, acc, .. } => {
            f(*src, Use::Reduced(*dst));
            acc.iter().for_each(|v| f(*v, Use::Onto(*dst)));
        }
        Op::Pick { dst, src, at, .. } => {
            f(*src, Use::Picked(*dst));
            coord_tiles(at, &mut |v| f(v, Use::Gather(*dst)));
        }
        Op::Stream { states, .. } => {
            for s in states {
                if let Init::Value(v) = s.init {
                    f(v, Use::Start(s.value));
                }
                f(s.next, Use::Next(s.value));
            }
        }
        Op::SkipUnless { any } => f(*any, Use::Tested),
    }
}

/// The tile that the operation writes.
pub(crate) fn written(op: &Op) -> Option<ValueId> {
    match op {
        Op::Load { dst, .. }
        | Op::Map { dst, .. }
        | Op::Mma { dst, .. }
        | Op::Reduce { dst, .. }
        | Op::Pick { dst, .. } => Some(*dst),
        Op::Store { .. } | Op::Stream { .. } | Op::SkipUnless { .. } => None,
    }
}

/// Calls `f` with every tile of the expression.
pub(crate) fn leaves(expr: &Scalar, f: &mut dyn FnMut(ValueId)) {
    match expr {
        Scalar::Tile(v) => f(*v),
        Scalar::Const(_) | Scalar::Position(_) | Scalar::Within(_) | Scalar::Argument(_) => {}
        Scalar::Round(_, x) | Scalar::Unary(_, x) => leaves(x, f),
        Scalar::Binary(_, x, y) => [x, y].into_iter().for_each(|e| leaves(e, f)),
        Scalar::Select(c, x, y) => [c, x, y].into_iter().for_each(|e| leaves(e, f)),
    }
}

/// Calls `f` with every tile of the coordinate.
pub(crate) fn coord_tiles(coord: &Coord, f: &mut dyn FnMut(ValueId)) {
    for (_, atom) in &coord.terms {
        match atom {
            CoordAtom::Axis(_) => {}
            CoordAtom::Floor(inner, _) => coord_tiles(inner, f),
            CoordAtom::Tile(v) => f(*v),
        }
    }
}
