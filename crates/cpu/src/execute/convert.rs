//! Elements of one number type in memory as elements of a tile of another.

use crate::kernels::isa::{Instructions, Token, Work, dispatch};
use crate::kernels::math;
use crate::kernels::memory::Shared;
use crate::kernels::real::{Real, round_tf32};
use crate::kernels::strip;
use bytemuck::Pod;
use einloom_cascade::DType;
use einloom_cascade::numeric::{bf16_to_f32, e4m3_to_f32, round};

use super::arena::Buffer;
use super::place::Rows;
use super::relayout::Transpose;
use crate::compile::Carrier;

/// A block of elements: where they are in memory and where they go. Every element exists.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    /// The first element in memory.
    pub start: i64,
    /// From row to row in memory.
    pub outer: i64,
    /// From element to element of a row in memory.
    pub inner: i64,
    pub rows: usize,
    pub columns: usize,
    /// The first element in the tile.
    pub to: usize,
    /// From row to row in the tile.
    pub pitch: usize,
}

/// Loads `block` of a tensor of type `from` into a tile of type `to`.
pub(super) fn load(token: Token, tensor: &Shared<'_>, from: DType, target: &mut Buffer, to: DType, block: Block) {
    let len = block.to + block.rows.saturating_sub(1) * block.pitch + block.columns;
    match Carrier::of(to) {
        Carrier::F32 => {
            let target = target.get_mut::<f32>(len);
            // f64 and i32 are rounded once, from what they are.
            let wide = move |x: f64| round(to, x) as f32;
            if from == DType::I32 {
                place(token, tensor.elements(), target, block, &move |x: i32| wide(f64::from(x)));
            } else {
                let decode = Decode { wide, real: |x| x, whole: |x| x as f32 };
                load_by(token, tensor, from, target, block, decode);
            }
            if !matches!(from, DType::F64 | DType::I32) && !includes(to, from) {
                for r in 0..block.rows {
                    strip::round(&mut target[block.to + r * block.pitch..][..block.columns], to);
                }
            }
        }
        Carrier::F64 => {
            let decode = Decode { wide: |x| x, real: f64::from, whole: f64::from };
            load_by(token, tensor, from, target.get_mut(len), block, decode);
        }
        Carrier::I32 => {
            let (low, high) = to.integer_range().unwrap_or((i32::MIN.into(), i32::MAX.into()));
            let (least, most) = (low as i32, high as i32);
            let (low, high) = (low as f64, high as f64);
            let wide = move |x: f64| x.to_i32(low, high);
            let whole = move |x: i32| x.clamp(least, most);
            let decode = Decode { wide, real: move |x| wide(f64::from(x)), whole };
            load_by(token, tensor, from, target.get_mut(len), block, decode);
        }
    }
}

/// Whether every value of `narrow`, which is not f64 or i32, is one of `wide`.
fn includes(wide: DType, narrow: DType) -> bool {
    use DType::{Bf16, E4m3, E5m2, F16, F32, F64, Tf32};
    match wide {
        F64 | F32 => true,
        Tf32 => matches!(narrow, Tf32 | Bf16 | F16 | E4m3 | E5m2),
        F16 => matches!(narrow, F16 | E4m3 | E5m2),
        Bf16 => matches!(narrow, Bf16 | E4m3 | E5m2),
        _ => wide == narrow,
    }
}

/// From f64, from the narrower floating-point types, and from integers.
#[derive(Clone, Copy)]
struct Decode<A, B, C> {
    wide: A,
    real: B,
    whole: C,
}

fn load_by<D, A, B, C>(
    token: Token,
    tensor: &Shared<'_>,
    from: DType,
    target: &mut [D],
    block: Block,
    Decode { wide, real, whole }: Decode<A, B, C>,
) where
    D: Pod + Default,
    A: Fn(f64) -> D + Copy,
    B: Fn(f32) -> D + Copy,
    C: Fn(i32) -> D + Copy,
{
    macro_rules! go {
        ($type:ty, $decode:expr) => {
            place(token, tensor.elements::<$type>(), target, block, &$decode)
        };
    }
    match from {
        DType::F64 => go!(f64, wide),
        DType::F32 => go!(f32, real),
        DType::Tf32 => go!(f32, move |x| real(round_tf32(x))),
        DType::Bf16 => go!(u16, move |x| real(bf16_to_f32(x))),
        DType::F16 => go!(u16, move |x| real(math::f16_to_f32(x))),
        DType::E4m3 => go!(u8, move |x| real(e4m3_to_f32(x))),
        DType::E5m2 => go!(u8, move |x| real(math::f16_to_f32(u16::from(x) << 8))),
        DType::I32 => go!(i32, whole),
        DType::I16 => go!(i16, move |x| whole(i32::from(x))),
        DType::I8 => go!(i8, move |x| whole(i32::from(x))),
        DType::I4 => go!(i8, move |x| whole(i32::from(x).clamp(-8, 7))),
        DType::U8 => go!(u8, move |x| whole(i32::from(x))),
        DType::U4 => go!(u8, move |x| whole(i32::from(x).min(15))),
        DType::B1 => go!(u8, move |x| whole(i32::from(x != 0))),
    }
}

/// Side of the blocks in which a tile is transposed whose rows are columns in memory.
const WIDTH: usize = 64;
const HEIGHT: usize = 16;

fn place<S: Pod, D: Pod + Default>(
    token: Token,
    source: &[S],
    target: &mut [D],
    block: Block,
    decode: &(impl Fn(S) -> D + Copy),
) {
    let Block { start, outer, inner, rows, columns, to, pitch } = block;
    if inner <= 1 || outer != 1 || columns == 1 || rows == 1 {
        return dispatch(token, Move { source, target, block, decode });
    }
    let mut decoded = [[D::default(); WIDTH]; HEIGHT];
    for c in (0..columns).step_by(HEIGHT) {
        let height = HEIGHT.min(columns - c);
        for r in (0..rows).step_by(WIDTH) {
            let width = WIDTH.min(rows - r);
            let start = start + inner * c as i64 + r as i64;
            let part = Block { start, outer: inner, inner: 1, rows: height, columns: width, to: 0, pitch: WIDTH };
            dispatch(token, Move { source, target: decoded.as_flattened_mut(), block: part, decode });
            let from = Rows { data: decoded.as_flattened(), pitch: WIDTH };
            let to = &mut target[to + r * pitch + c..];
            dispatch(token, Transpose { rows: height, columns: width, from, to, pitch });
        }
    }
}

struct Move<'a, S, D, F> {
    source: &'a [S],
    target: &'a mut [D],
    block: Block,
    decode: &'a F,
}

impl<S: Pod, D: Pod, F: Fn(S) -> D + Copy> Work for Move<'_, S, D, F> {
    type Output = ();

    #[inline(always)]
    fn run<I: Instructions>(self) {
        let Self { source, target, block, decode } = self;
        let Block { start, outer, inner, rows, columns, to, pitch } = block;
        let decode = *decode;
        for r in 0..rows {
            let first = start + outer * r as i64;
            let row = &mut target[to + r * pitch..][..columns];
            match inner {
                1 => {
                    for (x, &y) in row.iter_mut().zip(&source[first as usize..][..columns]) {
                        *x = decode(y);
                    }
                }
                0 => row.fill(decode(source[first as usize])),
                _ => {
                    for (c, x) in row.iter_mut().enumerate() {
                        *x = decode(source[(first + inner * c as i64) as usize]);
                    }
                }
            }
        }
    }
}
