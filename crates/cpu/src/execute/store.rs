//! Stores of tiles.

use super::place::Rows;
use super::worker::Worker;
use crate::compile::{Access, Carrier, Dimension};
use crate::kernels::isa::{Instructions, Token, Work, dispatch};
use crate::kernels::memory::Shared;
use crate::kernels::real::{Real, round_tf32};
use bytemuck::Pod;
use einloom_cascade::DType;
use einloom_cascade::numeric::{f32_to_bf16, f32_to_e4m3, f32_to_e5m2, f32_to_f16, round};
use einloom_tile::{CoordAtom, TensorId, ValueId};

/// Where a tile goes.
#[derive(Clone, Copy)]
struct Target<'a> {
    memory: &'a Shared<'a>,
    start: i64,
    outer: i64,
    inner: i64,
    rows: usize,
    columns: usize,
}

impl Worker<'_> {
    pub(super) fn store(&mut self, tensor: TensorId, access: &Access, src: ValueId) {
        let tiles = self.tiles();
        let (rows, columns) = tiles.lengths(src);
        let decl = self.job.program.tensor(tensor);
        let (start, outer, inner) = self.place_in_memory(access);
        let target = Target { memory: &self.job.tensors[tensor.at()], start, outer, inner, rows, columns };
        let (token, to) = (self.job.token, decl.dtype);
        match tiles.tile(src).carrier {
            Carrier::F32 => store_f32(token, tiles.rows::<f32>(src), target, to),
            Carrier::F64 => store_f64(token, tiles.rows::<f64>(src), target, to),
            Carrier::I32 => store_i32(token, tiles.rows::<i32>(src), target, to),
        }
        self.stored[tensor.at()] += (rows * columns * to.bytes()) as u64;
    }

    /// The first element of a tile that is stored, and the elements from row to row and along a row.
    pub(super) fn place_in_memory(&self, access: &Access) -> (i64, i64, i64) {
        let base = |d: &Dimension| {
            let axes = d.axes.iter().map(|&(c, a)| c * self.windows[a.at()].base as i64).sum::<i64>();
            let bent = d.irregular.iter().map(|(c, atom)| c * self.standing(atom)).sum::<i64>();
            (d.offset + axes + bent) * d.stride as i64
        };
        let sum = |f: &dyn Fn(&Dimension) -> i64| access.dimensions.iter().map(f).sum::<i64>();
        (sum(&base), sum(&|d| d.outer * d.stride as i64), sum(&|d| d.inner * d.stride as i64))
    }

    /// A coordinate that does not vary over the tile, as those of stores are.
    fn standing(&self, atom: &CoordAtom) -> i64 {
        match atom {
            CoordAtom::Axis(axis) => self.windows[axis.at()].base as i64,
            CoordAtom::Floor(inner, d) => {
                let sum = inner.terms.iter().map(|(c, atom)| c * self.standing(atom)).sum::<i64>();
                (inner.offset + sum).div_euclid(*d)
            }
            CoordAtom::Tile(_) => 0,
        }
    }
}

fn store_f32(token: Token, from: Rows<'_, f32>, target: Target<'_>, to: DType) {
    macro_rules! go {
        ($encode:expr) => {
            dispatch(token, Put { from, target, encode: $encode })
        };
    }
    match to {
        DType::F32 => go!(|x: f32| x),
        DType::F64 => go!(f64::from),
        DType::Tf32 => go!(round_tf32),
        DType::Bf16 => go!(f32_to_bf16),
        DType::F16 => go!(f32_to_f16),
        DType::E4m3 => go!(f32_to_e4m3),
        DType::E5m2 => go!(f32_to_e5m2),
        DType::B1 => go!(|x: f32| u8::from(x != 0.0)),
        integer => {
            let (low, high) = bounds(integer);
            // Doubles: the largest i32 is no f32.
            let (low, high) = (f64::from(low), f64::from(high));
            store_integer(token, from, target, integer, move |x: f32| f64::from(x).to_i32(low, high));
        }
    }
}

fn store_f64(token: Token, from: Rows<'_, f64>, target: Target<'_>, to: DType) {
    macro_rules! go {
        ($encode:expr) => {
            dispatch(token, Put { from, target, encode: $encode })
        };
    }
    // To what f32 holds exactly, so that nothing is rounded twice.
    let narrow = move |x: f64| round(to, x) as f32;
    match to {
        DType::F64 => go!(|x: f64| x),
        DType::F32 => go!(|x: f64| x as f32),
        DType::Tf32 => go!(narrow),
        DType::Bf16 => go!(move |x| f32_to_bf16(narrow(x))),
        DType::F16 => go!(move |x| f32_to_f16(narrow(x))),
        DType::E4m3 => go!(move |x| f32_to_e4m3(narrow(x))),
        DType::E5m2 => go!(move |x| f32_to_e5m2(narrow(x))),
        DType::B1 => go!(|x: f64| u8::from(x != 0.0)),
        integer => {
            let (low, high) = bounds(integer);
            let (low, high) = (f64::from(low), f64::from(high));
            store_integer(token, from, target, integer, move |x: f64| x.to_i32(low, high));
        }
    }
}

fn store_i32(token: Token, from: Rows<'_, i32>, target: Target<'_>, to: DType) {
    match to {
        // Every i32 is rounded once.
        DType::F32 => dispatch(token, Put { from, target, encode: |x: i32| x as f32 }),
        DType::F64 => dispatch(token, Put { from, target, encode: f64::from }),
        DType::I32 => dispatch(token, Put { from, target, encode: |x: i32| x }),
        DType::B1 => dispatch(token, Put { from, target, encode: |x: i32| u8::from(x != 0) }),
        DType::Tf32 => {
            dispatch(token, Put { from, target, encode: move |x: i32| round(to, f64::from(x)) as f32 });
        }
        DType::Bf16 | DType::F16 => {
            let encode = move |x: i32| {
                let x = round(to, f64::from(x)) as f32;
                if to == DType::Bf16 { f32_to_bf16(x) } else { f32_to_f16(x) }
            };
            dispatch(token, Put { from, target, encode });
        }
        DType::E4m3 | DType::E5m2 => {
            let encode = move |x: i32| {
                let x = round(to, f64::from(x)) as f32;
                if to == DType::E4m3 { f32_to_e4m3(x) } else { f32_to_e5m2(x) }
            };
            dispatch(token, Put { from, target, encode });
        }
        integer => {
            let (low, high) = bounds(integer);
            store_integer(token, from, target, integer, move |x: i32| x.clamp(low, high));
        }
    }
}

fn bounds(integer: DType) -> (i32, i32) {
    integer.integer_range().map_or((i32::MIN, i32::MAX), |(low, high)| (low as i32, high as i32))
}

fn store_integer<S: Pod + Default>(
    token: Token,
    from: Rows<'_, S>,
    target: Target<'_>,
    to: DType,
    whole: impl Fn(S) -> i32 + Copy,
) {
    match to {
        DType::I32 => dispatch(token, Put { from, target, encode: whole }),
        DType::I16 => dispatch(token, Put { from, target, encode: move |x| whole(x) as i16 }),
        DType::I8 | DType::I4 => dispatch(token, Put { from, target, encode: move |x| whole(x) as i8 }),
        _ => dispatch(token, Put { from, target, encode: move |x| whole(x) as u8 }),
    }
}

struct Put<'a, S, F> {
    from: Rows<'a, S>,
    target: Target<'a>,
    encode: F,
}

impl<S: Pod + Default, T: Pod, F: Fn(S) -> T + Copy> Work for Put<'_, S, F> {
    type Output = ();

    #[inline(always)]
    fn run<I: Instructions>(self) {
        let Self { from, target, encode } = self;
        let Target { memory, start, outer, inner, rows, columns } = target;
        if outer == 1 && inner != 1 && rows > 1 {
            // Columns of the tile are adjacent in memory: gather a piece of one, then write it at once.
            let mut column = [S::default(); 64];
            for r0 in (0..rows).step_by(column.len()) {
                let height = column.len().min(rows - r0);
                for c in 0..columns {
                    for (r, x) in column[..height].iter_mut().enumerate() {
                        *x = from.data[(r0 + r) * from.pitch + c];
                    }
                    memory.store(start + r0 as i64 + inner * c as i64, 1, &column[..height], encode);
                }
            }
            return;
        }
        for r in 0..rows {
            let row = &from.data[r * from.pitch..][..columns];
            memory.store(start + outer * r as i64, inner, row, encode);
        }
    }
}
