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

impl TensorDecl {
    /// Elements per dimension as the caller has them.
    pub fn shape(&self) -> &[usize] {
        self.shape.as_deref().unwrap_or(&self.dims)
    }

    /// A layout of the caller's shape as one of `dims`.
    fn split(&self, layout: Layout) -> Layout {
        let Some(shape) = self.shape.as_ref().filter(|s| s.len() == layout.strides.len()) else { return layout };
        let mut dims = self.dims.iter().copied().peekable();
        let mut strides = vec![];
        for (&size, &stride) in shape.iter().zip(&layout.strides) {
            let mut parts: Vec<usize> = dims.by_ref().take(1).collect();
            while parts.iter().product::<usize>() < size && dims.peek().is_some() {
                parts.extend(dims.next());
            }
            strides.extend(Layout::dense(&parts).strides.iter().map(|s| s.saturating_mul(stride)));
        }
        Layout { strides, ..layout }
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
            let layout = layout.map(|l| tensor.split(l));
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
