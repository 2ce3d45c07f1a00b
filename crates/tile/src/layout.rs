//! Where the elements of a tensor are in memory.

use crate::{Program, TensorDecl, TensorRole};
use einloom_cascade::DType;

/// Where a caller's array has its elements, if not densely, row by row, from an address that fits every copy.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Elements from one coordinate to the next, per dimension. 0 repeats an input's elements.
    pub strides: Vec<usize>,
    /// The first element's address is a multiple of this many bytes: a power of two, at least an element.
    pub alignment: usize,
}

/// What arrays without a [`Layout`] begin at multiples of, in bytes: the strictest that any instruction asks for.
pub const ALIGNMENT: usize = 16;

impl Layout {
    /// Dense and aligned, as every array without a layout is.
    pub fn dense(dims: &[usize]) -> Self {
        let mut strides = vec![1; dims.len()];
        for d in (1..dims.len()).rev() {
            strides[d - 1] = dims[d].max(1).saturating_mul(strides[d]);
        }
        Self { strides, alignment: ALIGNMENT }
    }

    /// Whether an array of this shape is dense: dimensions that are beside each other are one in memory.
    pub fn is_dense(&self, shape: &[usize]) -> bool {
        let dense = Self::dense(shape).strides;
        let own = self.strides.iter().zip(dense).zip(shape);
        self.strides.len() == shape.len() && own.into_iter().all(|((own, dense), &size)| size <= 1 || *own == dense)
    }

    /// Whether no two elements of an array of this shape share memory: each stride leaps over all that smaller ones reach.
    /// An array may keep its elements apart in other ways, which count as sharing.
    pub fn keeps_apart(&self, dims: &[usize]) -> bool {
        let mut steps: Vec<(usize, usize)> =
            self.strides.iter().copied().zip(dims.iter().copied()).filter(|&(_, dim)| dim > 1).collect();
        steps.sort_unstable();
        let mut covered = 1usize;
        steps.iter().all(|&(stride, dim)| {
            let apart = stride >= covered;
            covered = covered.saturating_add(stride.saturating_mul(dim - 1));
            apart
        })
    }
}

impl Layout {
    /// The strides of the same elements, in the same order, as an array of other dimensions. None if there are none: two dimensions
    /// are one where the first's stride leaps over all of the second.
    fn of_dims(&self, shape: &[usize], dims: &[usize]) -> Option<Vec<usize>> {
        if shape.len() != self.strides.len() || shape.iter().product::<usize>() != dims.iter().product::<usize>() {
            return None;
        }
        if dims.contains(&0) {
            return Some(Self::dense(dims).strides);
        }
        // From the last dimension on, runs of the shape that are one in memory: elements, and the stride.
        let mut runs: Vec<(usize, usize)> = vec![];
        for (&size, &stride) in shape.iter().zip(&self.strides).rev().filter(|(size, _)| **size > 1) {
            match runs.last_mut() {
                Some((run, own)) if stride == *own * *run => *run *= size,
                _ => runs.push((size, stride)),
            }
        }
        let (mut runs, mut run) = (runs.into_iter(), (1, 1));
        let mut out = vec![];
        for &size in dims.iter().rev() {
            if run.0 == 1 && size > 1 {
                run = runs.next()?;
            }
            out.push(run.1);
            if run.0 % size != 0 {
                return None;
            }
            run = (run.0 / size, run.1 * size);
        }
        out.reverse();
        Some(out)
    }
}

impl TensorDecl {
    /// Elements per dimension as the caller has them.
    pub fn shape(&self) -> &[usize] {
        self.shape.as_deref().unwrap_or(&self.dims)
    }

    /// A layout of the caller's shape as one of `dims`; as it is if it is none of them, which [`crate::verify`] tells of.
    fn regrouped(&self, layout: Layout) -> Layout {
        let strides = self.shape.as_ref().and_then(|shape| layout.of_dims(shape, &self.dims));
        Layout { strides: strides.unwrap_or_else(|| layout.strides.clone()), ..layout }
    }

    /// Elements from one coordinate to the next, per dimension.
    pub fn strides(&self) -> Vec<usize> {
        match &self.layout {
            Some(layout) => layout.strides.clone(),
            None => Layout::dense(&self.dims).strides,
        }
    }

    /// What the first element's address is a multiple of, in bytes.
    pub fn alignment(&self) -> usize {
        self.layout.as_ref().map_or(ALIGNMENT, |l| l.alignment)
    }

    /// Elements from the first to behind the last in memory; `None` if no machine can address as many.
    pub fn reach(&self) -> Option<usize> {
        if self.dims.contains(&0) {
            return Some(0);
        }
        let last = self
            .dims
            .iter()
            .zip(self.strides())
            .try_fold(0usize, |sum, (&dim, stride)| sum.checked_add((dim - 1).checked_mul(stride)?))?;
        last.checked_add(1)
    }

    /// Bytes from the first element to behind the last; `None` if no machine can address as many.
    pub fn reach_bytes(&self) -> Option<usize> {
        self.reach()?.checked_mul(self.dtype.bytes()).filter(|&bytes| isize::try_from(bytes).is_ok())
    }

    /// The first element that is no value of the number type, if its bytes may be none: where it is, and what it is. `i4` and `u4` take a
    /// byte each, of which only some are one.
    pub fn no_value(&self, bytes: &[u8]) -> Option<(Vec<usize>, i64)> {
        let (low, high) = match self.dtype {
            DType::I4 | DType::U4 => self.dtype.integer_range()?,
            _ => return None,
        };
        let value = |byte: u8| if low < 0 { i64::from(byte as i8) } else { i64::from(byte) };
        let wrong = |byte: &u8| !(low..=high).contains(&value(*byte));
        if self.layout.is_none() && !bytes.iter().any(wrong) {
            return None;
        }
        let strides = self.strides();
        let count: usize = self.dims.iter().product();
        let indexed = |mut number: usize, dims: &[usize]| {
            let mut index = vec![0; dims.len()];
            for (at, dim) in index.iter_mut().zip(dims).rev() {
                (*at, number) = (number % dim, number / dim);
            }
            index
        };
        (0..count).find_map(|position| {
            let index = indexed(position, &self.dims);
            let place: usize = index.iter().zip(&strides).map(|(i, s)| i * s).sum();
            let wrong = bytes.get(place).filter(|b| wrong(b))?;
            Some((indexed(position, self.shape()), value(*wrong)))
        })
    }

    /// What is wrong with its layout.
    pub(crate) fn misplaced(&self) -> Option<String> {
        let layout = self.layout.as_ref()?;
        let name = &self.name;
        if layout.strides.len() != self.dims.len() {
            return Some(format!("`{name}` has {} strides for {} dimensions", layout.strides.len(), self.dims.len()));
        }
        if !layout.alignment.is_power_of_two() || layout.alignment < self.dtype.bytes() {
            return Some(format!(
                "`{name}` is aligned to {} bytes; an element has {}",
                layout.alignment,
                self.dtype.bytes()
            ));
        }
        match self.role {
            TensorRole::Temporary => Some(format!("temporary `{name}` has a layout; only a caller's arrays have one")),
            TensorRole::Output if !layout.keeps_apart(&self.dims) => {
                Some(format!("elements of output `{name}` may share memory"))
            }
            _ => None,
        }
    }
}

impl Program {
    /// The same program on arrays that are laid out otherwise: what it computes does not change.
    ///
    /// `layouts` are those of the inputs and outputs, in the order of their declarations.
    #[must_use]
    pub fn with_layouts(mut self, layouts: impl IntoIterator<Item = Option<Layout>>) -> Self {
        let outside = self.tensors.iter_mut().filter(|t| t.role != TensorRole::Temporary);
        for (tensor, layout) in outside.zip(layouts) {
            let layout = layout.map(|l| tensor.regrouped(l));
            let usual = layout.as_ref().is_some_and(|l| *l == Layout::dense(&tensor.dims));
            tensor.layout = layout.filter(|_| !usual);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use einloom_cascade::DType;

    fn tensor(role: TensorRole, dims: &[usize], strides: &[usize]) -> TensorDecl {
        let layout = Some(Layout { strides: strides.to_vec(), alignment: 4 });
        TensorDecl { name: "X".to_string(), dims: dims.to_vec(), shape: None, dtype: DType::F32, role, layout }
    }

    #[test]
    fn dense_arrays_reach_as_far_as_they_have_elements() {
        let dense = TensorDecl { layout: None, ..tensor(TensorRole::Input, &[2, 3, 4], &[]) };
        assert_eq!(dense.strides(), [12, 4, 1]);
        assert_eq!((dense.reach(), dense.reach_bytes()), (Some(24), Some(96)));
        let scalar = TensorDecl { dims: vec![], ..dense.clone() };
        assert_eq!(scalar.reach(), Some(1));
        let none = TensorDecl { dims: vec![0, 7], ..dense };
        assert_eq!(none.reach(), Some(0));
    }

    #[test]
    fn views_reach_from_their_first_to_their_last_element() {
        assert_eq!(tensor(TensorRole::Input, &[3, 2], &[1, 10]).reach(), Some(13));
        assert_eq!(tensor(TensorRole::Input, &[3, 2], &[0, 1]).reach(), Some(2));
        assert_eq!(tensor(TensorRole::Input, &[3, 2], &[usize::MAX, 1]).reach_bytes(), None);
    }

    #[test]
    fn dimensions_are_regrouped_where_memory_allows_it() {
        for (shape, strides, dims, regrouped) in [
            // One as two, and two as one.
            (&[8, 5][..], &[7, 1][..], &[2, 4, 5][..], Some(&[28, 7, 1][..])),
            (&[2, 4, 5], &[20, 5, 1], &[8, 5], Some(&[5, 1])),
            (&[2, 4, 5], &[40, 10, 1], &[8, 5], Some(&[10, 1])),
            // Heads as two, their second part and the queries as one.
            (&[3, 8, 4, 5], &[160, 20, 5, 1], &[3, 2, 16, 5], Some(&[160, 80, 5, 1])),
            (&[3, 8, 4, 5], &[160, 5, 40, 1], &[3, 2, 16, 5], None),
            (&[3, 8, 4, 5], &[160, 5, 40, 1], &[3, 2, 4, 4, 5], Some(&[160, 20, 5, 40, 1])),
            // What is repeated is one where all of it is.
            (&[2, 4, 5], &[0, 0, 1], &[8, 5], Some(&[0, 1])),
            (&[2, 4, 5], &[0, 5, 1], &[8, 5], None),
            // One position is anywhere.
            (&[1, 4, 5], &[3, 5, 1], &[4, 5], Some(&[5, 1])),
            (&[4, 1, 5], &[5, 9, 1], &[4, 5], Some(&[5, 1])),
            (&[2, 3], &[3, 1], &[3, 3], None),
            (&[2, 0], &[9, 1], &[0], Some(&[1])),
        ] {
            let layout = Layout { strides: strides.to_vec(), alignment: 4 };
            assert_eq!(layout.of_dims(shape, dims).as_deref(), regrouped, "{shape:?} by {strides:?} as {dims:?}");
        }
    }

    #[test]
    fn inputs_may_repeat_elements_and_outputs_may_not() {
        for (role, dims, strides, fine) in [
            (TensorRole::Input, &[3, 2][..], &[0, 1][..], true),
            (TensorRole::Input, &[3, 2], &[1], false),
            (TensorRole::Output, &[3, 2], &[2, 1], true),
            (TensorRole::Output, &[3, 2], &[1, 3], true),
            (TensorRole::Output, &[3, 2], &[10, 5], true),
            (TensorRole::Output, &[3, 2], &[0, 1], false),
            (TensorRole::Output, &[3, 2], &[1, 1], false),
            (TensorRole::Output, &[3, 2], &[1, 2], false),
            (TensorRole::Output, &[1, 2], &[0, 1], true),
            (TensorRole::Temporary, &[3, 2], &[2, 1], false),
        ] {
            assert_eq!(tensor(role, dims, strides).misplaced().is_none(), fine, "{role:?} {dims:?} {strides:?}");
        }
    }
}
