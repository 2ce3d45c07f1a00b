//! A program's tensors while it runs on the CPU. What nothing has written is known as such, and never read as a number.

use einloom_tile::{Program, TensorDecl, TensorId, TensorRole};

/// Every tensor of a program, in f64.
#[derive(Clone, Debug, PartialEq)]
pub struct Arrays {
    tensors: Vec<Vec<Option<f64>>>,
}

impl Arrays {
    /// Inputs as given, in the order of their declarations and as long as these say; all else unwritten. Elements that
    /// are missing from `inputs` stay unwritten, too.
    pub fn new(program: &Program, inputs: &[Vec<f64>]) -> Self {
        let mut given = inputs.iter();
        let size = |t: &TensorDecl| t.dims.iter().product::<usize>();
        let one = |t: &TensorDecl| {
            let mut elements: Vec<Option<f64>> = match t.role {
                TensorRole::Input => given.next().map_or(vec![], |x| x.iter().copied().map(Some).collect()),
                TensorRole::Output | TensorRole::Temporary => vec![],
            };
            elements.resize(size(t), None);
            elements
        };
        Self { tensors: program.tensors.iter().map(one).collect() }
    }

    /// An element by its row-major place; `None` if nothing has written it.
    pub fn element(&self, tensor: TensorId, place: usize) -> Option<f64> {
        self.tensors.get(tensor.at())?.get(place).copied().flatten()
    }

    /// Writes an element.
    pub(crate) fn put(&mut self, tensor: TensorId, place: usize, value: f64) {
        if let Some(slot) = self.tensors.get_mut(tensor.at()).and_then(|t| t.get_mut(place)) {
            *slot = Some(value);
        }
    }

    /// All elements.
    ///
    /// # Errors
    /// The place of the first element that nothing has written.
    pub fn values(&self, tensor: TensorId) -> Result<Vec<f64>, usize> {
        let elements = self.tensors.get(tensor.at()).map_or(&[][..], |t| t.as_slice());
        elements.iter().enumerate().map(|(place, x)| x.ok_or(place)).collect()
    }
}
