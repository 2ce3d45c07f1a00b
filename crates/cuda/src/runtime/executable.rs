//! Programs ready to run.

use super::bound::Bound;
use super::driver::{Function, Module};
use super::{Buffer, Cache, Compiler, Device, RunError, View, ViewMut};
use crate::emit::{LaunchInfo, Source, emit};
use crate::schedule::Target;
use einloom_tile::{Program, TensorDecl, TensorRole};
use std::sync::Arc;

/// A finished run.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Time of all kernels on the device, in seconds.
    pub seconds: f64,
    /// One per kernel, in order.
    pub kernels: Vec<KernelReport>,
}

/// A kernel of a finished run.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelReport {
    /// Its name.
    pub name: String,
    /// Time on the device, in seconds.
    pub seconds: f64,
    /// Registers per thread.
    pub registers: usize,
    /// Bytes of local memory per thread: registers that were spilled.
    pub local_bytes: usize,
}

/// A compiled and loaded program.
#[derive(Debug)]
pub struct Executable {
    program: Program,
    pub(super) source: Source,
    pub(super) device: Device,
    /// Keeps the code of `functions`.
    _module: Arc<Module>,
    /// The values of the parameters that the code has for sizes; none if it is for these sizes alone.
    pub(super) sizes: Vec<u32>,
    pub(super) functions: Vec<Function>,
    /// The rosters that kernels read, one per kernel.
    pub(super) rosters: Vec<Option<Buffer>>,
    /// What the compiler said; empty if the code came from the cache.
    log: String,
}

/// Loaded code, which several executables may share.
#[derive(Clone, Debug)]
pub(super) struct Code {
    module: Arc<Module>,
    functions: Vec<Function>,
    log: String,
}

impl Code {
    /// Compiles and loads `text`, which has the kernels of `source`.
    pub fn new(
        source: &Source,
        text: &str,
        device: &Device,
        compiler: &Compiler,
        cache: Option<&Cache>,
    ) -> Result<Self, RunError> {
        let binary = compiler.compile(text, &device.architecture(), cache)?;
        let module = device.driver.load(&binary.cubin)?;
        let function = |k: &LaunchInfo| device.driver.function(&module, &k.function, k.shared_bytes);
        let functions = source.kernels.iter().map(function).collect::<Result<_, _>>()?;
        Ok(Self { module: Arc::new(module), functions, log: binary.log })
    }
}

/// Words of the status that kernels report gathers outside their tensor in.
const STATUS_BYTES: usize = 32;

impl Executable {
    /// Emits, compiles and loads a program for the device.
    ///
    /// # Errors
    /// If it cannot be emitted, compiled or loaded.
    pub fn new(
        program: &Program,
        device: &Device,
        compiler: &Compiler,
        cache: Option<&Cache>,
    ) -> Result<Self, RunError> {
        Self::with_target(program, device, compiler, cache, &device.target())
    }

    /// As [`Self::new`], scheduled for another target that the device can run, such as sm_80 on a newer GPU.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn with_target(
        program: &Program,
        device: &Device,
        compiler: &Compiler,
        cache: Option<&Cache>,
        target: &Target,
    ) -> Result<Self, RunError> {
        let source = emit(program, target)?;
        let code = Code::new(&source, &source.text, device, compiler, cache)?;
        Self::of_code(program, source, device, &code, vec![])
    }

    /// With code that was loaded for its source, or for its size class, of which it has these `sizes`.
    pub(super) fn of_code(
        program: &Program,
        source: Source,
        device: &Device,
        code: &Code,
        sizes: Vec<u32>,
    ) -> Result<Self, RunError> {
        let rosters = source.kernels.iter().map(|k| roster(device, k)).collect::<Result<_, _>>()?;
        let Code { module, functions, log } = code.clone();
        let (program, device) = (program.clone(), device.clone());
        Ok(Self { program, source, device, _module: module, sizes, functions, rosters, log })
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// What was compiled.
    pub fn source(&self) -> &Source {
        &self.source
    }

    /// What the compiler said; empty if the code came from the cache.
    pub fn log(&self) -> &str {
        &self.log
    }

    /// Memory for every tensor of the program, and the status words.
    ///
    /// # Errors
    /// If there is not enough.
    pub fn allocate(&self) -> Result<Vec<Buffer>, RunError> {
        let mut out: Vec<Buffer> =
            self.program.tensors.iter().map(|t| self.device.allocate(bytes(t))).collect::<Result<_, _>>()?;
        let mut status = self.device.allocate(STATUS_BYTES)?;
        status.fill(0)?;
        out.push(status);
        Ok(out)
    }

    /// Puts the parameters of every kernel in place, for launches on the memory that [`Self::allocate`] gave.
    ///
    /// # Errors
    /// If the memory is not this program's, or a launch cannot be done on this device.
    pub fn bind<'a>(&'a self, memory: &'a [Buffer]) -> Result<Bound<'a>, RunError> {
        self.fits(memory)?;
        Bound::new(self, memory)
    }

    /// Launches `repeats` times and gives the median time of each kernel, after one launch that is not counted.
    ///
    /// # Errors
    /// As [`Self::bind`], or if the driver fails.
    pub fn time(&self, memory: &[Buffer], repeats: usize) -> Result<Report, RunError> {
        let bound = self.bind(memory)?;
        bound.launch()?;
        let mut seconds = vec![];
        for k in 0..self.functions.len() {
            let mut times = (0..repeats.max(1)).map(|_| bound.kernel_time(k)).collect::<Result<Vec<_>, _>>()?;
            times.sort_by(f64::total_cmp);
            seconds.push(times[times.len() / 2]);
        }
        Ok(bound.report(&seconds))
    }

    /// Runs the program: `inputs` and `outputs` in the order of the program's input and output tensors. Memory that the
    /// kernels are to write holds [`POISON`](super::POISON) before: an element that none of them writes is seen.
    ///
    /// # Errors
    /// If an array is not what its tensor is, a gather leaves its tensor, or the driver fails. What the outputs hold is
    /// then unspecified.
    pub fn run(&self, inputs: &[View<'_>], outputs: &mut [ViewMut<'_>]) -> Result<Report, RunError> {
        self.check(inputs, outputs)?;
        let mut memory = self.allocate()?;
        let mut given = inputs.iter();
        for (tensor, buffer) in self.program.tensors.iter().zip(&mut memory) {
            match tensor.role {
                TensorRole::Input => {
                    if let Some(view) = given.next() {
                        buffer.upload(view.bytes)?;
                    }
                }
                TensorRole::Output | TensorRole::Temporary => buffer.poison()?,
            }
        }
        let report = self.bind(&memory)?.run()?;
        self.status(&memory)?;
        let mut wanted = outputs.iter_mut();
        for (tensor, buffer) in self.program.tensors.iter().zip(&memory) {
            if tensor.role == TensorRole::Output
                && let Some(view) = wanted.next()
            {
                buffer.download(view.bytes)?;
            }
        }
        Ok(report)
    }

    /// Waits, and says whether a gather left its tensor.
    ///
    /// # Errors
    /// [`RunError::OutOfRange`] if one did; the driver's if a kernel failed.
    pub fn status(&self, memory: &[Buffer]) -> Result<(), RunError> {
        self.fits(memory)?;
        let mut words = [0u8; STATUS_BYTES];
        memory[memory.len() - 1].download(&mut words)?;
        let word = |k: usize| words.as_chunks::<8>().0.get(k).map_or(0, |b| i64::from_le_bytes(*b));
        self.reported([word(0), word(1), word(2), word(3)])
    }

    /// What the status words say.
    pub(super) fn reported(&self, words: [i64; 4]) -> Result<(), RunError> {
        let word = |k: usize| words[k];
        let Some(kernel) = usize::try_from(word(0) - 1).ok().and_then(|k| self.source.kernels.get(k)) else {
            return Ok(());
        };
        let load = usize::try_from(word(1)).ok().and_then(|l| kernel.checked_loads.get(l));
        Err(RunError::OutOfRange {
            kernel: kernel.kernel.clone(),
            tensor: load.map_or(String::new(), |t| self.program.tensor(*t).name.clone()),
            dimension: usize::try_from(word(2)).unwrap_or(0),
            coordinate: word(3),
        })
    }

    /// One buffer per tensor, each as long as it, and the status.
    fn fits(&self, memory: &[Buffer]) -> Result<(), RunError> {
        count("buffers", self.program.tensors.len() + 1, memory.len())?;
        for (tensor, buffer) in self.program.tensors.iter().zip(memory) {
            length(tensor, buffer.len())?;
        }
        length_of("status", STATUS_BYTES, memory[memory.len() - 1].len())
    }

    fn check(&self, inputs: &[View<'_>], outputs: &[ViewMut<'_>]) -> Result<(), RunError> {
        let role = |role| self.program.tensors.iter().filter(move |t| t.role == role);
        count("inputs", role(TensorRole::Input).count(), inputs.len())?;
        count("outputs", role(TensorRole::Output).count(), outputs.len())?;
        for (tensor, view) in role(TensorRole::Input).zip(inputs) {
            array(tensor, view.dtype, view.dims, view.bytes.len())?;
            if let Some((index, value)) = tensor.no_value(view.bytes) {
                return Err(RunError::Value { tensor: tensor.name.clone(), dtype: tensor.dtype, index, value });
            }
        }
        for (tensor, view) in role(TensorRole::Output).zip(outputs) {
            array(tensor, view.dtype, view.dims, view.bytes.len())?;
        }
        Ok(())
    }
}

/// The kernel's roster on the device, if it has one.
fn roster(device: &Device, kernel: &LaunchInfo) -> Result<Option<Buffer>, RunError> {
    let Some(roster) = &kernel.roster else { return Ok(None) };
    let bytes: Vec<u8> = roster.points.iter().flat_map(|p| p.to_ne_bytes()).collect();
    let mut buffer = device.allocate(bytes.len())?;
    buffer.upload(&bytes)?;
    Ok(Some(buffer))
}

fn bytes(tensor: &TensorDecl) -> usize {
    // More than a machine can address is refused when it is allocated.
    tensor.reach_bytes().unwrap_or(usize::MAX)
}

fn count(what: &'static str, expected: usize, given: usize) -> Result<(), RunError> {
    if expected == given { Ok(()) } else { Err(RunError::Count { what, expected, given }) }
}

fn array(tensor: &TensorDecl, dtype: einloom_cascade::DType, dims: &[usize], len: usize) -> Result<(), RunError> {
    let name = tensor.name.clone();
    if dtype != tensor.dtype {
        return Err(RunError::Type { tensor: name, expected: tensor.dtype, given: dtype });
    }
    if dims != tensor.shape() {
        return Err(RunError::Shape { tensor: name, expected: tensor.shape().to_vec(), given: dims.to_vec() });
    }
    length(tensor, len)
}

fn length(tensor: &TensorDecl, given: usize) -> Result<(), RunError> {
    length_of(&tensor.name, bytes(tensor), given)
}

fn length_of(name: &str, expected: usize, given: usize) -> Result<(), RunError> {
    if expected == given { Ok(()) } else { Err(RunError::Length { tensor: name.to_string(), expected, given }) }
}
