//! Other people's arrays, by DLPack: where they are, without copies.
//!
//! A framework that has DLPack's exchange table (`__dlpack_c_exchange_api__`) is asked through it, which costs no call of
//! Python; every other one by `__dlpack__`. Everything `unsafe` of reading and allocating is here.
#![allow(unsafe_code)]

mod abi;
mod exchange;
mod owned;

pub(crate) use abi::{CPU, CUDA, CUDA_HOST, CUDA_MANAGED, DataType, Device};
pub(crate) use exchange::Table;
pub(crate) use owned::Owned;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

/// A caller's array as found: nothing is checked beyond that it can be described.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its number type.
    pub dtype: DataType,
    /// Where it is.
    pub device: Device,
    /// Elements per dimension.
    pub shape: Vec<i64>,
    /// Elements from one coordinate to the next, per dimension; those of a dense array where a dimension has one
    /// coordinate.
    pub strides: Vec<i64>,
    /// What its address is a multiple of: a power of two of bytes, at most [`einloom_tile::ALIGNMENT`].
    pub alignment: usize,
    /// Whether it must not be written.
    pub read_only: bool,
}

/// What is said of an array without memory.
pub(crate) const NO_MEMORY: &str = "it has no memory: it is a description of an array, as tracers use";

/// Arrays of one call: their descriptions as words, which tell calls apart that need different kernels, and where they
/// are.
#[derive(Debug, Default)]
pub(crate) struct Arrays {
    /// Per array a head, its shape and its strides.
    pub words: Vec<u64>,
    /// The address of each first element.
    pub addresses: Vec<u64>,
    /// Keeps what must not be freed before the call is over.
    pub owned: Vec<Owned>,
}

impl Arrays {
    /// Adds an array.
    ///
    /// # Safety
    /// `tensor` points into valid arrays of shape and, unless null, strides.
    unsafe fn push(&mut self, tensor: &abi::Tensor, dtype: Option<DataType>, read_only: bool) -> PyResult<()> {
        let dims = usize::try_from(tensor.dims).unwrap_or(0);
        let address = (tensor.data as u64).wrapping_add(tensor.byte_offset);
        self.words.push(head(dtype.unwrap_or(tensor.dtype), tensor.device, dims, address.trailing_zeros(), read_only));
        self.addresses.push(address);
        // SAFETY: by the contract; a tensor without dimensions may have null pointers, which are not read.
        let shape = if dims == 0 { &[][..] } else { unsafe { std::slice::from_raw_parts(tensor.shape, dims) } };
        if tensor.data.is_null() && !shape.contains(&0) {
            return Err(PyRuntimeError::new_err(NO_MEMORY));
        }
        self.words.extend(shape.iter().map(|&n| n as u64));
        if dims > 0 && !tensor.strides.is_null() {
            // SAFETY: by the contract.
            let strides = unsafe { std::slice::from_raw_parts(tensor.strides, dims) };
            self.words.extend(strides.iter().map(|&n| n as u64));
        } else {
            let mut stride = 1i64;
            let at = self.words.len();
            self.words.resize(at + dims, 0);
            for d in (0..dims).rev() {
                self.words[at + d] = stride as u64;
                stride = stride.saturating_mul(shape[d].max(1));
            }
        }
        self.without_strides_of_one(dims);
        Ok(())
    }

    /// Adds an array that is not there yet, whose address will have at least `zeros` zeros at its end. It has no address.
    pub(crate) fn expect(&mut self, dtype: DataType, device: Device, shape: &[i64], strides: &[i64], zeros: u32) {
        self.words.push(head(dtype, device, shape.len(), zeros, false));
        self.words.extend(shape.iter().chain(strides).map(|&n| n as u64));
        self.without_strides_of_one(shape.len());
    }

    /// One coordinate needs no stride; frameworks say what they like there.
    fn without_strides_of_one(&mut self, dims: usize) {
        let shape = self.words.len() - 2 * dims;
        for d in 0..dims {
            if self.words[shape + d] == 1 {
                self.words[shape + dims + d] = 0;
            }
        }
    }

    /// Whether the array whose words begin at `at` has an odd stride along a dimension of more than one coordinate.
    pub(crate) fn has_odd_stride(&self, at: usize) -> bool {
        let Some((&head, rest)) = self.words.get(at..).and_then(<[u64]>::split_first) else { return false };
        let (shape, strides) = rest.split_at(rest.len().min((head >> 24 & 0xff) as usize));
        shape.iter().zip(strides).any(|(&n, &stride)| n > 1 && stride & 1 == 1)
    }
}

/// The first of an array's words; its address ends in this many zeros.
fn head(dtype: DataType, device: Device, dims: usize, zeros: u32, read_only: bool) -> u64 {
    u64::from(dtype.code)
        | u64::from(dtype.bits) << 8
        | u64::from(dtype.lanes.min(255) as u8) << 16
        | (dims as u64 & 0xff) << 24
        | u64::from(zeros.min(einloom_tile::ALIGNMENT.trailing_zeros())) << 32
        | u64::from(read_only) << 36
        | (device.kind as u64 & 0xff) << 40
        | (device.number as u64 & 0xffff) << 48
}

/// The arrays that words describe, as [`Arrays::words`] holds them.
pub(crate) fn described(words: &[u64]) -> Vec<Found> {
    let mut out = vec![];
    let mut rest = words;
    while let Some((&head, after)) = rest.split_first() {
        let dims = (head >> 24 & 0xff) as usize;
        if after.len() < 2 * dims {
            break;
        }
        let (shape, after) = after.split_at(dims);
        let (strides, after) = after.split_at(dims);
        rest = after;
        let shape: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
        let mut strides: Vec<i64> = strides.iter().map(|&n| n as i64).collect();
        let mut dense = 1i64;
        for d in (0..dims).rev() {
            if shape[d] == 1 {
                strides[d] = dense;
            }
            dense = dense.saturating_mul(shape[d].max(1));
        }
        out.push(Found {
            dtype: DataType { code: head as u8, bits: (head >> 8) as u8, lanes: u16::from((head >> 16) as u8) },
            device: Device { kind: i32::from((head >> 40) as u8), number: i32::from((head >> 48) as u16) },
            shape,
            strides,
            alignment: 1 << (head >> 32 & 0xf),
            read_only: head >> 36 & 1 == 1,
        });
    }
    out
}
