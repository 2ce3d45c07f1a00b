//! The command line's grammar. What each command does stands in the module named after it.

use super::values::{Assignment, Count, InputSource, OutputTarget, ParamValue, Range};
use clap::{Args, Parser, Subcommand, ValueEnum};
use einloom::gpu::Gpu;
use std::path::PathBuf;

/// Naive tensor maths in, proven pass counts, the derived streaming algorithm and a fast kernel out.
#[derive(Debug, Parser)]
#[command(name = "einloom", version, about, max_term_width = 100)]
#[command(
    after_help = "Exit status: 0 done, 1 the program or its data is wrong, 2 usage, 3 the machine lacks something."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, Args)]
pub(crate) struct Global {
    /// Print JSON on standard output, also for errors
    #[arg(long, global = true)]
    pub json: bool,
    /// Print one box of the road and stop there
    #[arg(long, global = true, value_name = "BOX")]
    pub dump: Option<Stage>,
    /// When to use colours
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
    /// No progress and no notes
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

/// A box of the road, in its order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Stage {
    /// The checked program, sugar expanded
    Cascade,
    /// The steps and the streaming form
    Derivation,
    /// Kernels, tiles and transfers
    Plan,
    /// The tile program
    Tile,
    /// What the backend makes of it
    Kernel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    /// On a terminal, unless NO_COLOR is set
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Parse and type; all diagnostics at once
    Check(Source),
    /// Passes per rank, as written and as derived; live footprints
    Passes(Source),
    /// The steps with their reasons, the streaming form as pseudocode, refusals
    Derive(DeriveArgs),
    /// Tiles, transfers per level against the bound, predicted time
    Plan(PlanArgs),
    /// Formulas for what is moved and held, with sizes as symbols, and the least for a capacity
    Formula(FormulaArgs),
    /// One program on several machines and in several number types: time, what bounds it, bytes, energy
    Compare(CompareArgs),
    /// Plans for every capacity of a memory: a table and charts of transfers beside the bound, and a roofline
    Sweep(SweepArgs),
    /// Run the program on tensors from files or random ones
    Run(Box<RunArgs>),
    /// Run programs at many sizes and in several number types, and compare with the meaning
    Verify(VerifyArgs),
    /// Time it
    Bench(BenchArgs),
    /// Print the kernel's source
    Emit(EmitArgs),
    /// The machines that are built in, and this one
    Machines(MachinesArgs),
    /// Spatial chips: cascades, chips and bindings of a study, compared on its workloads or on sizes of yours
    Study(StudyArgs),
    /// Spatial chips cycle by cycle: tiles go through the arrays of a study's configurations, with their numbers
    Simulate(super::simulate::SimulateArgs),
    /// Find how a cascade runs best on a spatial chip
    Bind(super::bind::BindArgs),
    /// Read a TeAAL specification (YAML) as a cascade, a chip and a binding
    Teaal(super::teaal::TeaalArgs),
    /// What this machine offers and what is missing
    Doctor,
    /// Print a shell's completions
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
}

/// The program.
#[derive(Clone, Debug, Args)]
pub(crate) struct Source {
    /// The program's text (.ein); `-` for standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// What turns a program into one that can be planned.
#[derive(Clone, Debug, Args)]
pub(crate) struct Sizing {
    /// Sizes of ranks, such as N=4096,D=64; Ki and Mi multiply by 1024 and 1024²
    #[arg(long = "size", short = 's', value_name = "RANK=SIZE", value_delimiter = ',')]
    pub sizes: Vec<Assignment>,
    /// Values of parameters, such as scale=0.125
    #[arg(long = "param", short = 'p', value_name = "NAME=VALUE", value_delimiter = ',')]
    pub params: Vec<ParamValue>,
    /// Forbid every loss of precision that the program does not ask for
    #[arg(long)]
    pub exact: bool,
    /// Tile sizes of indices in place of the planner's choice, such as m=128,n=64; one as large as the index makes it
    /// whole where that is possible
    #[arg(long = "tile", value_name = "INDEX=SIZE", value_delimiter = ',')]
    pub tiles: Vec<Assignment>,
    /// In how many shares reductions over indices are computed and then joined, in place of the planner's choice, such
    /// as n=16
    #[arg(long, value_name = "INDEX=COUNT", value_delimiter = ',')]
    pub shares: Vec<Assignment>,
}

/// For which machine.
#[derive(Clone, Debug, Args)]
pub(crate) struct Target {
    /// A built-in machine, or a description of yours (.toml); this machine if not given
    #[arg(long, value_name = "NAME|FILE")]
    pub machine: Option<String>,
    /// Number of threads of a processor; all cores if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: Option<u32>,
    /// Elements that the innermost memory of an abstract machine (two-level) holds
    #[arg(long, value_name = "ELEMENTS", allow_negative_numbers = true)]
    pub capacity: Option<Count>,
}

/// Axes are indices of the program; those that are not named are whole.
#[derive(Clone, Debug, Args)]
pub(crate) struct FormulaArgs {
    #[command(flatten)]
    pub source: Source,
    /// Axes in groups of g positions, on which cores work independently
    #[arg(long, value_name = "AXES", value_delimiter = ',')]
    pub group: Vec<String>,
    /// Axes in groups of one position
    #[arg(long, value_name = "AXES", value_delimiter = ',')]
    pub single: Vec<String>,
    /// Axes that stream past what is kept, outermost first
    #[arg(long, value_name = "AXES", value_delimiter = ',')]
    pub stream: Vec<String>,
    /// Arrays that are stored and read again, each by a kernel of its own
    #[arg(long, value_name = "ARRAYS", value_delimiter = ',')]
    pub cut: Vec<String>,
    /// Of the program as written, not as derived
    #[arg(long)]
    pub as_written: bool,
    /// Values that fit: evaluates the optimum at the sizes given
    #[arg(long, value_name = "VALUES", value_parser = clap::value_parser!(u64).range(1..))]
    pub capacity: Option<u64>,
    #[command(flatten)]
    pub sizing: Sizing,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct DeriveArgs {
    #[command(flatten)]
    pub source: Source,
    /// Compare the derived program with the meaning on random, adversarial and degenerate inputs
    #[arg(long)]
    pub prove: bool,
    /// Seed of the proof's inputs
    #[arg(long, value_name = "SEED", default_value_t = 0, requires = "prove")]
    pub seed: u64,
    /// Forbid every loss of precision that the program does not ask for
    #[arg(long)]
    pub exact: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub sizing: Sizing,
    #[command(flatten)]
    pub target: Target,
    /// Show the plans that lost and why, what twice of each resource would buy, and the energy
    #[arg(long)]
    pub explain: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub sizing: Sizing,
    /// Built-in machines, or descriptions of yours (.toml)
    #[arg(long, value_name = "NAME|FILE", value_delimiter = ',', required = true)]
    pub machine: Vec<String>,
    /// Number types of the inputs, and of outputs of 16 bits and more; as the program has them if not given
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    pub dtype: Vec<String>,
    /// Elements that the innermost memory of abstract machines (two-level) holds
    #[arg(long, value_name = "ELEMENTS", allow_negative_numbers = true)]
    pub capacity: Option<Count>,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub sizing: Sizing,
    /// A built-in machine, or a description of yours (.toml)
    #[arg(long, value_name = "NAME|FILE", default_value = "two-level")]
    pub machine: String,
    /// A memory and the capacities to plan for, such as M=32KiB..4MiB or L2=10MB..100MB; M is the innermost memory
    #[arg(long, value_name = "LEVEL=FROM..TO")]
    pub over: Range,
    /// How many capacities, in equal ratios; one for each doubling and one between if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(2..=200))]
    pub points: Option<u32>,
    /// Where the results go: NAME.csv, NAME.svg and NAME_roofline.svg; named after the program if not given
    #[arg(long, short = 'o', value_name = "NAME")]
    pub output: Option<PathBuf>,
}

/// Where tensors come from.
#[derive(Clone, Debug, Args)]
pub(crate) struct Inputs {
    /// A tensor's file (Q=q.npy, Q=file.safetensors:name), or a .safetensors file to take tensors from by name;
    /// inputs without a file are random
    #[arg(long = "input", short = 'i', value_name = "[TENSOR=]FILE")]
    pub inputs: Vec<InputSource>,
    /// Seed of the random inputs
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub seed: u64,
    /// Convert files of another number type than declared
    #[arg(long)]
    pub cast: bool,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub sizing: Sizing,
    #[command(flatten)]
    pub target: Target,
    #[command(flatten)]
    pub inputs: Inputs,
    /// What runs it
    #[arg(long, value_name = "NAME", default_value = "cpu")]
    pub backend: Backend,
    #[command(flatten)]
    pub gpu: GpuOptions,
    /// Where to write an output (O=o.npy), or a .safetensors file for all of them
    #[arg(long = "output", short = 'o', value_name = "[TENSOR=]FILE")]
    pub outputs: Vec<OutputTarget>,
    /// Compare with the meaning and print the errors
    #[arg(long)]
    pub verify: bool,
    /// Explain the derivation and show the plan and the pseudocode before the result
    #[arg(long)]
    pub explain: bool,
}

/// How kernels for GPUs are made.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct GpuOptions {
    /// Schedule for an older architecture than the GPU's
    #[arg(long, value_name = "ARCH")]
    pub arch: Option<Architecture>,
    #[command(flatten)]
    pub clusters: ClusterOptions,
}

impl GpuOptions {
    /// What to schedule for on this GPU.
    ///
    /// # Errors
    /// If the GPU does not have the architecture's instructions.
    pub fn target(&self, gpu: &Gpu) -> Result<einloom_cuda::Target, einloom::Error> {
        let target = gpu.target(self.arch.map(Architecture::arch))?;
        Ok(einloom_cuda::Target { clusters: self.clusters.clusters(), ..target })
    }
}

/// Which blocks of a kernel share what they read.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct ClusterOptions {
    /// Blocks that copy shared tiles for each other (sm_90a): 2 or 4 wherever neighbours read the same, 1 for none;
    /// where it should be faster if not given
    #[arg(long, value_name = "BLOCKS")]
    pub cluster: Option<Blocks>,
}

impl ClusterOptions {
    /// As the backend knows them.
    pub fn clusters(self) -> einloom_cuda::Clusters {
        self.cluster.map_or_else(einloom_cuda::Clusters::default, |blocks| einloom_cuda::Clusters::Of(blocks.number()))
    }
}

/// Sizes of clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Blocks {
    #[value(name = "1")]
    One,
    #[value(name = "2")]
    Two,
    #[value(name = "4")]
    Four,
}

impl Blocks {
    fn number(self) -> usize {
        match self {
            Self::One => 1,
            Self::Two => 2,
            Self::Four => 4,
        }
    }
}

/// With `--backend cuda` the L2 cache is overwritten (256 MiB) before every timed run, and the times are those of events
/// around a run's kernels. The host's time per launch is the median over launches without waiting.
#[derive(Clone, Debug, Args)]
pub(crate) struct BenchArgs {
    /// The program's text (.ein); `-` for standard input
    #[arg(value_name = "FILE", required_unless_present = "suite")]
    pub file: Option<PathBuf>,
    /// Time the cases that this JSON file lists, one after the other in one process, one line each; all of them are
    /// compiled before the first is timed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "sizes", "params", "inputs"])]
    pub suite: Option<PathBuf>,
    /// Compile the suite's cases, so that their kernels are in the cache, and time nothing
    #[arg(long, requires = "suite")]
    pub compile_only: bool,
    #[command(flatten)]
    pub sizing: Sizing,
    #[command(flatten)]
    pub target: Target,
    #[command(flatten)]
    pub inputs: Inputs,
    /// What runs it
    #[arg(long, value_name = "NAME", default_value = "cpu")]
    pub backend: Backend,
    #[command(flatten)]
    pub gpu: GpuOptions,
    /// Timed runs
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub repeat: u32,
    /// Runs before the timed ones; a GPU runs for 25 ms at least
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub warmup: u32,
}

/// Sizes are chosen by the program's shape: whole and ragged tiles, one position, long ranks. Number types are those of
/// the text, and bf16, f16 and f32 in place of any of these three. Outputs hold NaN before a run.
#[derive(Clone, Debug, Args)]
pub(crate) struct VerifyArgs {
    /// Programs (.ein), or folders of them
    #[arg(value_name = "FILE|FOLDER", required = true)]
    pub paths: Vec<PathBuf>,
    #[command(flatten)]
    pub target: Target,
    /// What runs them
    #[arg(long, value_name = "NAME", default_value = "cpu")]
    pub backend: Backend,
    #[command(flatten)]
    pub gpu: GpuOptions,
    /// Few cases of few elements, as memory checkers want them
    #[arg(long)]
    pub small: bool,
    /// A line for every case, not only for each program and number type
    #[arg(long)]
    pub all: bool,
    /// Forbid every loss of precision that the program does not ask for
    #[arg(long)]
    pub exact: bool,
    /// Seed of sizes and inputs
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub seed: u64,
    /// Cases at a time; as many as there are cores if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub jobs: Option<u32>,
}

/// Without `--size` every workload of the study at every length, averages in every accounting, what each fault of the
/// published counts changes, and arrays of other sizes.
#[derive(Clone, Debug, Args)]
pub(crate) struct StudyArgs {
    /// A built-in study (fusemax), or a study of yours (.toml)
    #[arg(value_name = "NAME|FILE")]
    pub study: String,
    /// Compare the configurations at these sizes, such as B=64,H=12,M=4096,P=4096,E=64,F=64
    #[arg(long = "size", short = 's', value_name = "RANK=SIZE", value_delimiter = ',')]
    pub sizes: Vec<Assignment>,
    /// Add the layers around the cascade, with these sizes, such as D=768,S=3072
    #[arg(long, value_name = "RANK=SIZE", value_delimiter = ',', requires = "sizes")]
    pub linear: Vec<Assignment>,
    /// How to count, by a name that the chips' files give; the study's own if not given
    #[arg(long, value_name = "NAME")]
    pub accounting: Option<String>,
    /// Arrays of this side in place of the chips': the longest sides, shorter ones in proportion
    #[arg(long, value_name = "SIDE", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub array: Option<u32>,
    /// Draw the study as SVG files into this folder
    #[arg(long, value_name = "FOLDER", conflicts_with = "sizes")]
    pub plots: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Backend {
    /// This machine's processor
    Cpu,
    /// NVIDIA GPUs
    Cuda,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct EmitArgs {
    #[command(flatten)]
    pub source: Source,
    #[command(flatten)]
    pub sizing: Sizing,
    #[command(flatten)]
    pub target: Target,
    /// The language to emit
    #[arg(long = "target", value_name = "LANGUAGE")]
    pub language: Language,
    /// The architecture that GPU code is for; the machine's if not given
    #[arg(long, value_name = "ARCH")]
    pub arch: Option<Architecture>,
    #[command(flatten)]
    pub clusters: ClusterOptions,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Deserialize)]
pub(crate) enum Architecture {
    /// Ampere and everything since
    #[value(name = "sm_80")]
    #[serde(rename = "sm_80")]
    Sm80,
    /// Hopper
    #[value(name = "sm_90a")]
    #[serde(rename = "sm_90a")]
    Sm90a,
}

impl Architecture {
    /// As the backend knows it.
    pub fn arch(self) -> einloom_cuda::Arch {
        match self {
            Self::Sm80 => einloom_cuda::Arch::Sm80,
            Self::Sm90a => einloom_cuda::Arch::Sm90a,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// Pseudocode of the tile program
    Pseudo,
    /// CUDA C++ with inline PTX
    Cuda,
    /// What NVRTC makes of it
    Ptx,
    /// Machine code, as nvdisasm or cuobjdump shows it
    Sass,
}

#[derive(Clone, Debug, Args)]
pub(crate) struct MachinesArgs {
    /// Show these in full: built-in machines, `host`, or descriptions of yours (.toml), which are checked
    #[arg(value_name = "NAME|FILE")]
    pub names: Vec<String>,
    /// Print the description of this machine, its bandwidths and rates measured, to start a file of yours from
    ///
    /// Takes a fraction of a second; nothing else should run meanwhile. Plans use it where it is given: `--machine FILE`.
    #[arg(long, conflicts_with = "names")]
    pub detect: bool,
}
