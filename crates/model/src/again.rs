//! How often tiles move again, where the memory that is close does not hold them.

use crate::gpu::uses::{each, fused, reads};
use einloom_tile::{Kernel, Op, ValueId};
use std::collections::BTreeMap;

/// How often the elements of each tile pass between its operations, beside what loads and stores move, if tiles are gone
/// through element by element: written once and read once for each operation behind it, of which a stream's next chunk is one
/// where they are its state. Nothing passes where elements are made where they are read; what is loaded is there for its first
/// reader; a reduction of what a map makes takes it in passing. Tiles that nothing passes of are not named.
pub fn passed_again(kernel: &Kernel) -> BTreeMap<ValueId, usize> {
    let made_there = fused(kernel);
    let mut readers: BTreeMap<ValueId, (usize, usize)> = BTreeMap::new();
    each(&kernel.body, &mut |op| {
        for v in reads(op) {
            let (reductions, others) = readers.entry(v).or_default();
            *if matches!(op, Op::Reduce { .. }) { reductions } else { others } += 1;
        }
        if let Op::Stream { states, .. } = op {
            for state in states {
                readers.entry(state.next).or_default().1 += 1;
            }
        }
    });
    let mut out = BTreeMap::new();
    each(&kernel.body, &mut |op| {
        let (dst, times) = match op {
            Op::Load { dst, .. } => {
                let (reductions, others) = readers.get(dst).copied().unwrap_or_default();
                (dst, (reductions + others).saturating_sub(1))
            }
            Op::Map { dst, .. } | Op::Reduce { dst, .. } | Op::Pick { dst, .. } if !made_there.contains_key(dst) => {
                let (_, others) = readers.get(dst).copied().unwrap_or_default();
                (dst, if others > 0 { 1 + others } else { 0 })
            }
            _ => return,
        };
        if times > 0 {
            out.insert(*dst, times);
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::passed_again;
    use einloom_cascade::{BinaryOp, DType, UnaryOp};
    use einloom_tile::{Builder, Op, Scalar, TileMonoid};

    /// Of the normalised exponentials of a row: what is loaded is read again by the exponentials; these are written, summed in passing, and read by the quotients, which are made where
    /// they are stored.
    #[test]
    fn tiles_pass_once_for_each_reader_behind_the_first() {
        let mut p = Builder::new("softmax");
        let (x, y) = (p.input("X", &[8, 64], DType::F32), p.output("Y", &[8, 64], DType::F32));
        p.kernel("y", |k| {
            let (i, j) = (k.grid("i", 8, 2), k.whole("j", 64));
            let x = k.load("x", x, [i, j]);
            let [most, sum] = ["most", "sum"].map(|name| k.value(name, &[i], DType::F32));
            let [exp, out] = ["exp", "out"].map(|name| k.value(name, &[i, j], DType::F32));
            let two = |op, a, b| Scalar::Binary(op, Box::new(Scalar::Tile(a)), Box::new(Scalar::Tile(b)));
            let reduce = |dst, src, monoid| Op::Reduce { dst, src, axis: j, monoid, acc: None };
            k.push(reduce(most, x, TileMonoid::Max));
            k.push(Op::Map { dst: exp, expr: Scalar::Unary(UnaryOp::Exp, Box::new(two(BinaryOp::Sub, x, most))) });
            k.push(reduce(sum, exp, TileMonoid::Sum));
            k.push(Op::Map { dst: out, expr: two(BinaryOp::Div, exp, sum) });
            k.store(y, [i, j], out);
        });
        let program = p.finish().expect("well-formed");
        let kernel = &program.kernels[0];
        let passed = passed_again(kernel);
        let of =
            |name: &str| passed.iter().find(|(v, _)| kernel.value(**v).name == name).map_or(0, |(_, times)| *times);
        assert_eq!(["x", "exp", "out"].map(of), [1, 2, 0]);
    }
}
