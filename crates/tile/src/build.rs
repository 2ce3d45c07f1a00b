//! A builder for tile programs, for people and for the planner.
//!
//! Positions and elements are written as ordinary arithmetic: `n.at_most(m)`, `i * 2 + r`, `(s - top).exp()`.
//! Shapes and number types are inferred; [`Builder::finish`] verifies the result, so that a mistake is a message
//! and never a wrong program.

mod index;
mod kernel;
mod scalar;

pub use kernel::{Carry, KernelBuilder, carry, carry_from};
pub use scalar::select;

use crate::{Defect, Kernel, Program, TensorDecl, TensorId, TensorRole, verify};
use einloom_cascade::DType;

/// Builds a [`Program`].
///
/// ```
/// use einloom_tile::{Builder, print};
/// use einloom_cascade::DType::{Bf16, F32};
///
/// let mut p = Builder::new("scale");
/// let x = p.input("X", &[1000, 64], Bf16);
/// let y = p.output("Y", &[1000, 64], F32);
/// p.kernel("scale", |k| {
///     let (m, d) = (k.grid("m", 1000, 128), k.whole("d", 64));
///     let tile = k.load("x", x, [m, d]);
///     k.store(y, [m, d], tile * 0.5);
/// });
/// let text = print(&p.finish().expect("well-formed"));
/// assert!(text.ends_with(
///     "kernel scale(X → Y)   grid m by 128
///   x = load X[m:128, :]
///   y = x * 0.5
///   store Y[m:128, :] = y
/// "
/// ));
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    program: Program,
    defects: Vec<Defect>,
}

impl Builder {
    /// An empty program.
    pub fn new(name: impl Into<String>) -> Self {
        Self { program: Program { name: name.into(), ..Program::default() }, defects: vec![] }
    }

    /// Declares a tensor that the caller gives.
    pub fn input(&mut self, name: impl Into<String>, dims: &[usize], dtype: DType) -> TensorId {
        self.tensor(name, dims, dtype, TensorRole::Input)
    }

    /// Declares a tensor that the caller gets.
    pub fn output(&mut self, name: impl Into<String>, dims: &[usize], dtype: DType) -> TensorId {
        self.tensor(name, dims, dtype, TensorRole::Output)
    }

    /// Declares a tensor that lives between kernels.
    pub fn temporary(&mut self, name: impl Into<String>, dims: &[usize], dtype: DType) -> TensorId {
        self.tensor(name, dims, dtype, TensorRole::Temporary)
    }

    /// Declares a tensor.
    pub fn tensor(&mut self, name: impl Into<String>, dims: &[usize], dtype: DType, role: TensorRole) -> TensorId {
        self.program.tensors.push(TensorDecl {
            name: name.into(),
            dims: dims.to_vec(),
            shape: None,
            dtype,
            role,
            layout: None,
        });
        TensorId(self.program.tensors.len() as u32 - 1)
    }

    /// Adds a kernel, which `body` describes. Kernels run in the order in which they are added.
    pub fn kernel(&mut self, name: impl Into<String>, body: impl FnOnce(&mut KernelBuilder)) {
        let kernel = Kernel { name: name.into(), ..Kernel::default() };
        let mut builder = KernelBuilder::new(&self.program.tensors, kernel);
        body(&mut builder);
        let (kernel, defects) = builder.finish();
        self.program.kernels.push(kernel);
        self.defects.extend(defects);
    }

    /// The program.
    ///
    /// # Errors
    /// Every rule it breaks: tiles that would need more than two axes, and whatever [`verify`] finds.
    pub fn finish(self) -> Result<Program, Vec<Defect>> {
        let Self { program, mut defects } = self;
        defects.extend(verify(&program));
        if defects.is_empty() { Ok(program) } else { Err(defects) }
    }
}
