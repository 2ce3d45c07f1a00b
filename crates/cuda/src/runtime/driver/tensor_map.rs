//! Encoding of tensor maps.

use super::super::RunError;
use super::{Address, Driver};
use crate::emit::{TensorMapSpec, TmaSwizzle};
use einloom_cascade::DType;
use std::ffi::{c_int, c_void};

/// `CUtensorMap`: opaque, and a parameter by value.
#[repr(C, align(128))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::runtime) struct TensorMap([u64; 16]);

/// Most dimensions of a tensor map.
const DIMENSIONS: usize = 5;

impl Driver {
    /// The tensor map of memory at `address`, which the caller has checked to be as long as the description reaches
    /// ([`reach`]).
    pub fn encode(&self, spec: &TensorMapSpec, address: Address) -> Result<TensorMap, RunError> {
        let newer = self.newer()?;
        let mut map = TensorMap::default();
        let steps = [1u32; DIMENSIONS];
        let (no_interleave, promote_to_256, fill_with_0) = (0, 3, 0);
        // SAFETY: every array is as long as the number of dimensions; the driver reads them and writes the map.
        let code = unsafe {
            (newer.encode_tiled)(
                &mut map,
                element(spec.element),
                spec.dims.len() as u32,
                address as *mut c_void,
                spec.dims.as_ptr(),
                spec.strides.as_ptr(),
                spec.tile_box.as_ptr(),
                steps.as_ptr(),
                no_interleave,
                swizzle(spec.swizzle),
                promote_to_256,
                fill_with_0,
            )
        };
        self.check("cuTensorMapEncodeTiled", code)?;
        Ok(map)
    }
}

/// Bytes from the tensor's start to the end of its last element; `None` if the description contradicts itself.
pub(in crate::runtime) fn reach(spec: &TensorMapSpec) -> Option<u64> {
    let rank = spec.dims.len();
    let fits = (1..=DIMENSIONS).contains(&rank) && spec.strides.len() == rank - 1 && spec.tile_box.len() == rank;
    if !fits || spec.dims.contains(&0) {
        return None;
    }
    let row = spec.dims[0].checked_mul(spec.element.bytes() as u64)?;
    spec.dims[1..].iter().zip(&spec.strides).try_fold(row, |n, (d, s)| n.checked_add((d - 1).checked_mul(*s)?))
}

/// `CUtensorMapDataType`. What decides is the width, and for the floating-point types what the copy unit may add up.
fn element(dtype: DType) -> c_int {
    match dtype {
        DType::E4m3 | DType::E5m2 | DType::I8 | DType::I4 | DType::U8 | DType::U4 | DType::B1 => 0,
        DType::I16 => 1,
        DType::I32 => 3,
        DType::F16 => 6,
        DType::F32 | DType::Tf32 => 7,
        DType::F64 => 8,
        DType::Bf16 => 9,
    }
}

/// `CUtensorMapSwizzle`.
fn swizzle(swizzle: TmaSwizzle) -> c_int {
    match swizzle {
        TmaSwizzle::None => 0,
        TmaSwizzle::B32 => 1,
        TmaSwizzle::B64 => 2,
        TmaSwizzle::B128 => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use einloom_tile::TensorId;

    fn spec(dims: &[u64], strides: &[u64], tile_box: &[u32]) -> TensorMapSpec {
        TensorMapSpec {
            tensor: TensorId(0),
            element: DType::Bf16,
            dims: dims.to_vec(),
            strides: strides.to_vec(),
            tile_box: tile_box.to_vec(),
            swizzle: TmaSwizzle::B128,
        }
    }

    #[test]
    fn a_map_reaches_to_the_end_of_its_last_element() {
        assert_eq!(reach(&spec(&[100, 7], &[256], &[64, 8])), Some(6 * 256 + 200));
        assert_eq!(reach(&spec(&[3], &[], &[3])), Some(6));
    }

    #[test]
    fn contradictions_reach_nowhere() {
        for (dims, strides, tile_box) in [
            (&[][..], &[][..], &[][..]),
            (&[8, 8], &[16, 16], &[8, 8]),
            (&[8, 8], &[16], &[8]),
            (&[8, 0], &[16], &[8, 8]),
            (&[8, u64::MAX], &[16], &[8, 8]),
            (&[1; 6], &[16; 5], &[1; 6]),
        ] {
            assert_eq!(reach(&spec(dims, strides, tile_box)), None, "{dims:?}");
        }
    }
}
