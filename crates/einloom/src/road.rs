//! The road: every arrow is a method, every box a type that can be looked at.

use crate::gpu::Fitting;
use crate::{Error, Finding, Tensor};
use einloom_algebra::{Derivation, derive};
use einloom_cascade::meaning::{self, Array, Arrays};
use einloom_cascade::{Bound, Cascade, DType, Diagnostic, Given, Role, TensorId, bind};
use einloom_cpu::{Executable, Report};
use einloom_machine::Machine;
use einloom_model::KernelTransfers;
use einloom_plan::{Doubled, Lost, Plan, PlanError, PlannedKernel, TooLarge, Work};
use einloom_tile::{TensorDecl, TensorRole};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// A program's text, parsed.
#[derive(Clone, Debug)]
pub struct Program {
    cascade: Cascade,
    diagnostics: Vec<Diagnostic>,
}

impl Program {
    /// Parses a text. This never fails: what is wrong with it is in [`Program::diagnostics`].
    pub fn from_text(text: &str) -> Self {
        let parsed = einloom_cascade::parse(text);
        Self { cascade: parsed.cascade, diagnostics: parsed.diagnostics }
    }

    /// Everything there is to say about the text, errors and warnings.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// The program, if it has a meaning.
    ///
    /// # Errors
    /// [`Error::Source`] with all diagnostics.
    pub fn check(self) -> Result<Checked, Error> {
        if self.diagnostics.iter().any(Diagnostic::is_error) {
            return Err(Error::Source(self.diagnostics));
        }
        Ok(Checked { cascade: self.cascade })
    }
}

/// A program that has a meaning.
#[derive(Clone, Debug)]
pub struct Checked {
    cascade: Cascade,
}

impl Checked {
    /// The checked program: names resolved, sugar expanded.
    pub fn cascade(&self) -> &Cascade {
        &self.cascade
    }

    /// The same program with this number type for its floating-point inputs and outputs. Outputs are not made narrower
    /// than 16 bits: that is what sums of narrow products are stored in.
    pub fn in_type(&self, dtype: DType) -> Self {
        let mut cascade = self.cascade.clone();
        for tensor in cascade.tensors.iter_mut().filter(|t| t.dtype.is_none_or(DType::is_float)) {
            match tensor.role {
                Role::Input => tensor.dtype = Some(dtype),
                Role::Output => tensor.dtype = Some(if dtype.bytes() < 2 { DType::Bf16 } else { dtype }),
                Role::Intermediate => {}
            }
        }
        Self { cascade }
    }

    /// Derives the streaming form.
    pub fn derive(&self) -> Derived {
        Derived { derivation: derive(&self.cascade) }
    }
}

/// A program with its streaming form.
#[derive(Clone, Debug)]
pub struct Derived {
    derivation: Derivation,
}

impl Derived {
    /// The derived form of a checked cascade.
    pub(crate) fn of(cascade: &Cascade) -> Self {
        Self { derivation: derive(cascade) }
    }

    /// A derivation that was made, or changed, by other means.
    pub fn from_derivation(derivation: Derivation) -> Self {
        Self { derivation }
    }

    /// The program it came from.
    pub fn cascade(&self) -> &Cascade {
        &self.derivation.written.cascade
    }

    /// Both forms, the steps between them, what was refused, and the passes.
    pub fn derivation(&self) -> &Derivation {
        &self.derivation
    }

    /// Finds sizes for all ranks and chooses kernels and tiles for a machine.
    ///
    /// # Errors
    /// [`Error::Bind`] for sizes, parameters and shapes that do not fit; [`Error::Plan`].
    pub fn plan(&self, given: &Given, machine: &Machine, options: &PlanOptions) -> Result<Planned, Error> {
        let bound = bind(self.cascade(), given).map_err(Error::Bind)?;
        self.plan_bound(bound, machine, options)
    }

    /// What twice of each of the machine's resources would buy a plan that was made with these options: the program
    /// planned again for each.
    ///
    /// # Errors
    /// [`Error::Plan`].
    pub fn doubled(&self, planned: &Planned, options: &PlanOptions) -> Result<Vec<Doubled>, Error> {
        let forms = einloom_plan::Form::all(&self.derivation);
        let options = PlanOptions { too_large: planned.too_large.clone(), ..options.clone() };
        einloom_plan::doubled(&forms, &planned.bound, &planned.machine, &options).map_err(Error::Plan)
    }

    /// As [`Derived::plan`], for sizes that are known to fit.
    pub(crate) fn plan_bound(&self, bound: Bound, machine: &Machine, options: &PlanOptions) -> Result<Planned, Error> {
        let undecided = einloom_cascade::undecided_reads(self.cascade(), &bound);
        if !undecided.is_empty() {
            return Err(Error::Bind(undecided));
        }
        let forms = einloom_plan::Form::all(&self.derivation);
        let by = |options: &PlanOptions| einloom_plan::choose(&forms, &bound, machine, options);
        let Fitting { form, plan, too_large } = crate::gpu::fitting(machine, options, &by).map_err(Error::Plan)?;
        Ok(Planned {
            cascade: self.cascade().clone(),
            bound,
            machine: machine.clone(),
            plan,
            form,
            too_large,
            transfers: OnceLock::new(),
        })
    }
}

pub use einloom_plan::Options as PlanOptions;

/// A planned program: sizes, kernels and tiles are fixed.
#[derive(Clone, Debug)]
pub struct Planned {
    cascade: Cascade,
    bound: Bound,
    machine: Machine,
    pub(crate) plan: Plan,
    form: usize,
    /// What the backend had no room for before.
    too_large: Vec<TooLarge>,
    /// See [`Planned::transfers`]; bounds take as long to find as small plans.
    transfers: OnceLock<Vec<KernelTransfers>>,
}

impl Planned {
    /// The program it came from.
    pub fn cascade(&self) -> &Cascade {
        &self.cascade
    }

    /// The size of every rank.
    pub fn bound(&self) -> &Bound {
        &self.bound
    }

    /// For which machine.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// What each kernel does, and why.
    pub fn kernels(&self) -> &[PlannedKernel] {
        &self.plan.kernels
    }

    /// Indices of the cascade that are two in the tile program.
    pub fn splits(&self) -> &[einloom_plan::Split] {
        &self.plan.splits
    }

    /// Indices of the cascade that are one in the tile program.
    pub fn merges(&self) -> &[einloom_plan::Merge] {
        &self.plan.merges
    }

    /// Indices of the cascade that reductions of the tile program go through in shares.
    pub fn shares(&self) -> &[einloom_plan::Shares] {
        &self.plan.shares
    }

    /// Predicted time of all kernels, launches included: what the planner went by.
    pub fn seconds(&self) -> f64 {
        self.plan.seconds
    }

    /// The best of the plans that were worked out and not taken.
    pub fn lost(&self) -> &[Lost] {
        &self.plan.lost
    }

    /// What the search for the plan has looked at.
    pub fn work(&self) -> Work {
        self.plan.work
    }

    /// The tile program.
    pub fn program(&self) -> &einloom_tile::Program {
        &self.plan.program
    }

    /// Bytes per kernel, level and tensor, planned and bound, and the predicted time.
    pub fn transfers(&self) -> &[KernelTransfers] {
        self.transfers.get_or_init(|| {
            let blocks = |k: usize| self.plan.kernels.get(k).and_then(|k| k.gpu.as_ref()).map_or(1, |g| g.blocks);
            einloom_model::transfers_of_blocks(&self.plan.program, &self.machine, &blocks)
        })
    }

    /// Which form of the derivation was planned: 0 the one in the order written, then its alternatives.
    pub fn form(&self) -> usize {
        self.form
    }

    /// Bytes that must move whatever the plan: every input once in, every output once out.
    pub fn compulsory_bytes(&self) -> u64 {
        let outside = self.plan.program.tensors.iter().filter(|t| t.role != TensorRole::Temporary);
        outside.map(|t| t.dims.iter().product::<usize>() as u64 * t.dtype.bytes() as u64).sum()
    }

    /// The number type of a tensor in memory.
    pub fn dtype(&self, tensor: TensorId) -> DType {
        let name = &self.cascade[tensor].name;
        let held = self.plan.program.tensors.iter().find(|t| t.name == *name).map(|t| t.dtype);
        held.or(self.cascade[tensor].dtype).unwrap_or(DType::F32)
    }

    /// Makes it ready to run on this computer's processor.
    ///
    /// # Errors
    /// [`Error::Build`] if the tile program is not one the processor can run.
    pub fn compile(&self) -> Result<Compiled<'_>, Error> {
        let bf16 = crate::host::bf16_products().map_err(Error::Build)?;
        let options = einloom_cpu::Options { bf16, ..einloom_cpu::Options::default() };
        let executable = Executable::new(&self.plan.program, &options).map_err(Error::Build)?;
        Ok(Compiled { planned: self, executable })
    }

    /// Compiles and runs it once.
    ///
    /// # Errors
    /// Those of [`Planned::compile`] and [`Compiled::run`].
    pub fn run(&self, inputs: &BTreeMap<String, Tensor>, options: &RunOptions) -> Result<Outcome, Error> {
        self.compile()?.run(inputs, options)
    }

    /// What the reference says the outputs are.
    ///
    /// # Errors
    /// [`Error::Meaning`].
    pub fn meaning(&self, inputs: &BTreeMap<String, Tensor>, progress: &mut dyn FnMut(f64)) -> Result<Arrays, Error> {
        let array = |t: &Tensor| Array { shape: t.dims().to_vec(), values: t.values() };
        let inputs = inputs.iter().map(|(name, t)| (name.clone(), array(t))).collect();
        Ok(meaning::evaluate_with_progress(&self.cascade, &self.bound, &inputs, progress)?)
    }
}

/// A program that this computer's processor can run, again and again.
#[derive(Debug)]
pub struct Compiled<'a> {
    planned: &'a Planned,
    executable: Executable,
}

/// How to run.
#[derive(Clone, Copy, Default)]
pub struct RunOptions<'a> {
    /// Number of threads; all cores if `None`. The results do not depend on it.
    pub threads: Option<usize>,
    /// Whether to count the bytes moved per kernel and tensor.
    pub count: bool,
    /// Told the done fraction now and then.
    pub progress: Option<&'a (dyn Fn(f64) + Sync)>,
    /// For tests: another order of the grid's points, and memory that holds NaN until it is written to. The results do
    /// not depend on it.
    pub disturb: Option<u64>,
}

impl std::fmt::Debug for RunOptions<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunOptions").field("threads", &self.threads).field("count", &self.count).finish_non_exhaustive()
    }
}

/// What a run gives.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The outputs by name.
    pub outputs: BTreeMap<String, Tensor>,
    /// Times per kernel, and bytes moved if they were counted.
    pub report: Report,
}

impl Compiled<'_> {
    /// What it was made of.
    pub fn planned(&self) -> &Planned {
        self.planned
    }

    /// Runs it on these inputs.
    ///
    /// # Errors
    /// [`Error::Input`] for an input that is missing or of the wrong shape or number type, [`Error::Memory`],
    /// [`Error::Run`].
    pub fn run(&self, inputs: &BTreeMap<String, Tensor>, options: &RunOptions) -> Result<Outcome, Error> {
        let mut outputs = self.outputs()?;
        let report = self.run_into(inputs, &mut outputs, options)?;
        let names = self.decls(TensorRole::Output).map(|t| t.name.clone());
        Ok(Outcome { outputs: names.zip(outputs).collect(), report })
    }

    /// Arrays for the outputs, in the tile program's order.
    ///
    /// # Errors
    /// [`Error::Memory`].
    pub fn outputs(&self) -> Result<Vec<Tensor>, Error> {
        self.decls(TensorRole::Output).map(|t| Tensor::zeros(t.dtype, t.shape())).collect()
    }

    /// Runs it into arrays made by [`Compiled::outputs`].
    ///
    /// # Errors
    /// Those of [`Compiled::run`].
    pub fn run_into(
        &self,
        inputs: &BTreeMap<String, Tensor>,
        outputs: &mut [Tensor],
        options: &RunOptions,
    ) -> Result<Report, Error> {
        let mut views = vec![];
        for decl in self.decls(TensorRole::Input) {
            let given = inputs.get(&decl.name).ok_or_else(|| {
                Error::Input(Finding::error("missing-input", format!("the input {} is missing", decl.name)))
            })?;
            views.push(given.view());
        }
        let mut outputs: Vec<_> = outputs.iter_mut().map(Tensor::view_mut).collect();
        let RunOptions { threads, count, progress, disturb } = *options;
        let options = einloom_cpu::RunOptions { threads, pool: None, count, progress, disturb };
        self.executable.run(&views, &mut outputs, &options).map_err(Error::Run)
    }

    fn decls(&self, role: TensorRole) -> impl Iterator<Item = &TensorDecl> {
        self.planned.plan.program.tensors.iter().filter(move |t| t.role == role)
    }
}

/// Why there is no plan, for the user.
pub(crate) fn plan_finding(error: &PlanError) -> Finding {
    Finding::error("plan", error.to_string()).hint(error.hint.clone())
}
