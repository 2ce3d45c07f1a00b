//! Arrays in memory.

use crate::Error;
use einloom_cascade::{DType, numeric};

/// Where an array that we allocate begins: a cache line, so that no tile's row straddles one more than it must.
const ALIGNMENT: usize = 64;

/// A dense row-major array of a number type of the language.
#[derive(Clone, Debug)]
pub struct Tensor {
    dtype: DType,
    dims: Vec<usize>,
    /// The elements, little-endian, from `start` on.
    buffer: Vec<u8>,
    start: usize,
}

impl Tensor {
    /// An array of zeros.
    ///
    /// # Errors
    /// [`Error::Memory`] if this machine cannot hold it.
    pub fn zeros(dtype: DType, dims: &[usize]) -> Result<Self, Error> {
        let refused = |bytes| Error::Memory { what: format!("an array of shape {dims:?}"), bytes, available: None };
        let size = dims.iter().try_fold(dtype.bytes(), |n, &d| n.checked_mul(d)).ok_or_else(|| refused(None))?;
        let room = size.checked_add(ALIGNMENT).ok_or_else(|| refused(None))?;
        let mut buffer: Vec<u8> = vec![];
        buffer.try_reserve_exact(room).map_err(|_| refused(Some(size as u64)))?;
        let start = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        buffer.resize(start + size, 0);
        Ok(Self { dtype, dims: dims.to_vec(), buffer, start })
    }

    /// The array with these elements in row-major order, each rounded to the number type. `None` if their number is
    /// not the product of the dimensions.
    pub fn from_values(dtype: DType, dims: &[usize], values: &[f64]) -> Option<Self> {
        Self::from_bytes(dtype, dims, numeric::encode(dtype, values))
    }

    /// The array with these little-endian bytes, [`DType::bytes`] an element. `None` if their number is not what the
    /// dimensions need.
    pub fn from_bytes(dtype: DType, dims: &[usize], bytes: Vec<u8>) -> Option<Self> {
        let expected = dims.iter().try_fold(dtype.bytes(), |n, &d| n.checked_mul(d))?;
        (bytes.len() == expected).then(|| Self { dtype, dims: dims.to_vec(), buffer: bytes, start: 0 })
    }

    /// Its number type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Elements per dimension.
    pub fn dims(&self) -> &[usize] {
        &self.dims
    }

    /// Its elements, little-endian, row-major.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Its elements, little-endian, row-major, without the array around them.
    pub fn into_bytes(mut self) -> Vec<u8> {
        self.buffer.drain(..self.start);
        self.buffer
    }

    /// Its elements as numbers, row-major. Exact for every number type.
    pub fn values(&self) -> Vec<f64> {
        let mut values = Vec::with_capacity(self.bytes().len() / self.dtype.bytes());
        numeric::decode(self.dtype, self.bytes(), &mut values);
        values
    }

    /// Lends it to a run.
    pub(crate) fn view(&self) -> einloom_cpu::View<'_> {
        einloom_cpu::View { dtype: self.dtype, dims: &self.dims, bytes: self.bytes() }
    }

    /// Lends it to a run to be written.
    pub(crate) fn view_mut(&mut self) -> einloom_cpu::ViewMut<'_> {
        einloom_cpu::ViewMut { dtype: self.dtype, dims: &self.dims, bytes: &mut self.buffer[self.start..] }
    }
}

/// Equal bytes, shapes and number types: a NaN equals itself, 0 does not equal -0.
impl PartialEq for Tensor {
    fn eq(&self, other: &Self) -> bool {
        self.dtype == other.dtype && self.dims == other.dims && self.bytes() == other.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_bytes_agree() {
        let t = Tensor::from_values(DType::Bf16, &[2, 1], &[1.0, -2.5]).unwrap();
        assert_eq!(t.values(), [1.0, -2.5]);
        assert_eq!(t.bytes(), [0x80, 0x3f, 0x20, 0xc0]);
        assert_eq!(Tensor::from_values(DType::F32, &[3], &[0.0]), None);
        assert_eq!(Tensor::from_bytes(DType::F32, &[usize::MAX, 2], vec![]), None);
    }

    #[test]
    fn what_we_allocate_begins_at_a_cache_line() {
        for n in [0, 1, 1000] {
            let t = Tensor::zeros(DType::I8, &[n]).unwrap();
            assert_eq!(t.bytes().as_ptr().align_offset(ALIGNMENT), 0);
            assert_eq!(t.into_bytes(), vec![0; n]);
        }
        assert!(Tensor::zeros(DType::F64, &[usize::MAX]).is_err());
        assert!(Tensor::zeros(DType::I8, &[isize::MAX as usize]).is_err());
    }
}
