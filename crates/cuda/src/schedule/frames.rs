//! Pass 2: frames. Tiles in registers are put into as few frames as possible, because a tile that is read in another
//! frame has to pass through shared memory. A frame is a colouring of axes with two sides; a tile with two axes needs
//! one axis on each. Products come first, so that they and what elementwise operations connect to them share one.

use super::facts::{Facts, Use, each_op};
use super::frame::{Arrangement, Frame, FrameId, Side};
use super::product::{Instruction, Product};
use einloom_tile::{AxisId, Coord, Op, TensorId, ValueId};
use std::collections::BTreeMap;

/// The frame of every tile that lives in registers and has an axis.
pub(crate) struct Frames {
    pub frames: Vec<Frame>,
    pub of: BTreeMap<ValueId, FrameId>,
}

/// Groups axes and chooses sides. Arrangements are placeholders until [`super::threads`] sets them.
pub(crate) fn choose(facts: &Facts<'_>, products: &BTreeMap<ValueId, Product>) -> Frames {
    let in_registers = |v: ValueId| !only_a_factor(facts, v) && !facts.axes(v).is_empty();
    let values = (0..facts.kernel.values.len() as u32).map(ValueId).filter(|&v| in_registers(v));
    let mut values: Vec<ValueId> = values.collect();
    values.sort_by_key(|v| !products.contains_key(v));
    let mut colours: Vec<Colours> = vec![];
    let mut of = BTreeMap::new();
    for &v in &values {
        if let [a, b] = facts.axes(v).as_slice() {
            let k = match colours.iter_mut().position(|c| c.join(*a, *b)) {
                Some(k) => k,
                None => {
                    let mut fresh = Colours::default();
                    fresh.join(*a, *b);
                    colours.push(fresh);
                    colours.len() - 1
                }
            };
            of.insert(v, FrameId(k));
        }
    }
    if colours.is_empty() {
        colours.push(Colours::default());
    }
    vectors(facts, &values, &mut colours, &mut of);
    // A reduction is computed where its source is.
    each_op(&facts.kernel.body, &mut |op| {
        if let Op::Reduce { dst, src, .. } = op
            && let (Some(&f), true) = (of.get(src), of.contains_key(dst))
        {
            of.insert(*dst, f);
        }
    });
    let frames = colours.iter().enumerate().map(|(k, c)| {
        let sides = c.sides(facts, products, &of, FrameId(k));
        Frame { arrangement: Arrangement::blocked([1, 32], 1), sides }
    });
    Frames { frames: frames.collect(), of }
}

/// Loaded and then only multiplied: it need never be in registers.
pub(crate) fn only_a_factor(facts: &Facts<'_>, v: ValueId) -> bool {
    let uses = &facts.uses[v.at()];
    let mut loaded = false;
    each_op(&facts.kernel.body, &mut |op| {
        if let Op::Load { dst, at, .. } = op {
            loaded |= *dst == v && !at.iter().any(super::facts::gathers);
        }
    });
    loaded && !uses.is_empty() && uses.iter().all(|u| matches!(u, Use::Factor(_)))
}

/// Puts every tile with one axis where most of what it meets is.
fn vectors(facts: &Facts<'_>, values: &[ValueId], colours: &mut [Colours], of: &mut BTreeMap<ValueId, FrameId>) {
    let vectors: Vec<ValueId> = values.iter().copied().filter(|v| facts.axes(*v).len() == 1).collect();
    let mut group: BTreeMap<ValueId, ValueId> = vectors.iter().map(|&v| (v, v)).collect();
    let mut votes: BTreeMap<(ValueId, FrameId), usize> = BTreeMap::new();
    let mut meet = |group: &mut BTreeMap<ValueId, ValueId>, x: ValueId, y: ValueId| match (
        group.contains_key(&x),
        group.contains_key(&y),
    ) {
        (true, true) if facts.axes(x) == facts.axes(y) => {
            let (x, y) = (root(group, x), root(group, y));
            group.insert(x, y);
        }
        (true, false) => {
            if let Some(&f) = of.get(&y) {
                *votes.entry((x, f)).or_default() += 1;
            }
        }
        (false, true) => {
            if let Some(&f) = of.get(&x) {
                *votes.entry((y, f)).or_default() += 1;
            }
        }
        _ => {}
    };
    for (v, uses) in facts.uses.iter().enumerate() {
        let v = ValueId(v as u32);
        for u in uses {
            match u {
                Use::Leaf(d) | Use::Onto(d) | Use::Reduced(d) | Use::Gather(d) | Use::Start(d) | Use::Next(d) => {
                    meet(&mut group, v, *d);
                }
                Use::Factor(_) | Use::Picked(_) | Use::Stored(_) | Use::Tested => {}
            }
        }
    }
    for &v in &vectors {
        let class = root(&group, v);
        let mut total: BTreeMap<FrameId, usize> = BTreeMap::new();
        for (&(x, f), n) in &votes {
            if root(&group, x) == class {
                *total.entry(f).or_default() += n;
            }
        }
        // Among equals the first frame.
        let best = total.iter().max_by_key(|(f, n)| (**n, std::cmp::Reverse(**f))).map_or(FrameId(0), |t| *t.0);
        of.insert(v, best);
        colours[best.0].add(facts.axes(v)[0]);
    }
}

fn root(group: &BTreeMap<ValueId, ValueId>, mut v: ValueId) -> ValueId {
    while let Some(&up) = group.get(&v) {
        if up == v {
            break;
        }
        v = up;
    }
    v
}

/// Axes with a parity relative to the first axis of their component.
#[derive(Clone, Debug, Default)]
struct Colours {
    /// Component and parity.
    of: BTreeMap<AxisId, (AxisId, bool)>,
}

impl Colours {
    fn add(&mut self, axis: AxisId) {
        self.of.entry(axis).or_insert((axis, false));
    }

    /// Puts the axes on opposite sides; false if they are on the same one already.
    fn join(&mut self, a: AxisId, b: AxisId) -> bool {
        let known = |c: &Self, x| c.of.get(&x).copied();
        if let (Some((ca, pa)), Some((cb, pb))) = (known(self, a), known(self, b))
            && ca == cb
        {
            return pa != pb;
        }
        self.add(a);
        self.add(b);
        let ((ca, pa), (cb, pb)) = (self.of[&a], self.of[&b]);
        for (component, parity) in self.of.values_mut() {
            if *component == cb {
                *component = ca;
                *parity = *parity ^ pb ^ pa ^ true;
            }
        }
        true
    }

    /// Which parity is across, for every component: whichever lets products use registers as they are, then whichever
    /// makes memory adjacent across.
    fn sides(
        &self,
        facts: &Facts<'_>,
        products: &BTreeMap<ValueId, Product>,
        of: &BTreeMap<ValueId, FrameId>,
        own: FrameId,
    ) -> BTreeMap<AxisId, Side> {
        // Per component: how much better it is to have odd axes across.
        let mut score: BTreeMap<AxisId, i64> = BTreeMap::new();
        let mut prefer = |axis: AxisId, weight: i64| {
            if let Some((component, odd)) = self.of.get(&axis) {
                *score.entry(*component).or_default() += if *odd { weight } else { -weight };
            }
        };
        for (dst, p) in products {
            if of.get(dst) != Some(&own) || !matches!(p.instruction, Instruction::TensorCore(_)) {
                continue;
            }
            for factor in [p.left, p.right] {
                if of.get(&factor) == Some(&own) {
                    prefer(p.sum, 1 << 40);
                }
            }
        }
        let mut access = |v: ValueId, tensor: TensorId, at: &[Coord]| {
            if of.get(&v) != Some(&own) {
                return;
            }
            let elements: i64 = facts.axes(v).iter().map(|&a| facts.size(a) as i64).product();
            for axis in facts.axes(v) {
                if facts.stride(tensor, at, axis) == Some(1) {
                    prefer(axis, 2 * elements);
                }
            }
        };
        each_op(&facts.kernel.body, &mut |op| match op {
            Op::Load { dst, tensor, at, .. } => access(*dst, *tensor, at),
            Op::Store { src, tensor, at } => access(*src, *tensor, at),
            _ => {}
        });
        for (&v, f) in of {
            if let (true, [_, across]) = (*f == own, facts.axes(v).as_slice()) {
                prefer(*across, 1);
            }
        }
        let side = |(&axis, &(component, odd)): (&AxisId, &(AxisId, bool))| {
            let alone = self.of.values().filter(|c| c.0 == component).count() == 1;
            let odd_across = score.get(&component).copied().unwrap_or(0) > 0;
            let across = alone || odd == odd_across;
            (axis, if across { Side::Across } else { Side::Down })
        };
        self.of.iter().map(side).collect()
    }
}
