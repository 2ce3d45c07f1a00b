//! `einloom bench --suite`: many measurements in one process, so that the driver, the compiler and the GPU's clock start
//! once.

use super::args::{Architecture, BenchArgs, GpuOptions, Sizing, Target};
use super::bench::{self, BenchJson};
use super::failure::Failure;
use super::ui::Ui;
use super::values::{Assignment, ParamValue};
use super::{data, prepare, source};
use einloom::formats::FileError;
use einloom::gpu::{Gpu, GpuProgram};
use einloom::{Error, Planned, Program, Tensor};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A measurement that a suite asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// What its line is called.
    name: String,
    /// The program's text; a relative path starts at the suite's folder.
    file: PathBuf,
    #[serde(default)]
    sizes: BTreeMap<String, usize>,
    #[serde(default)]
    params: BTreeMap<String, f64>,
    #[serde(default)]
    exact: bool,
    /// Tile sizes by index, in place of the planner's.
    #[serde(default)]
    tiles: BTreeMap<String, usize>,
    /// In place of the command line's.
    #[serde(default)]
    arch: Option<Architecture>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Line {
    Measured {
        name: String,
        #[serde(flatten)]
        data: BenchJson,
    },
    Failed {
        name: String,
        error: String,
    },
}

pub(crate) fn command(ui: &Ui, args: &BenchArgs, gpu: Option<&Gpu>, path: &Path) -> Result<(), Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| FileError::io(path, "cannot read it", &e))?;
    let cases: Vec<Case> = serde_json::from_str(&text).map_err(|e| {
        let hint =
            r#"it is a list of {"name": …, "file": …, "sizes": {…}}, and params, exact, tiles and arch where they are needed"#;
        FileError::new(path, format!("it is no suite: {e}")).hint(hint)
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let planned = in_parallel(&cases, |case| {
        plan(case, folder, args, gpu).map_err(|f| f.findings().first().map_or_else(String::new, |f| f.message.clone()))
    });
    let programs = in_parallel(&planned, |planned| match (planned, gpu) {
        (Ok((planned, arch)), Some(gpu)) => {
            Some(compile(planned, gpu, GpuOptions { arch: arch.or(args.gpu.arch), ..args.gpu.clone() }))
        }
        _ => None,
    });
    if args.compile_only {
        return Ok(());
    }
    let mut evicting = gpu.map(Gpu::evicting_memory).transpose()?;
    let mut failed = false;
    let mut inputs = Inputs::default();
    for ((case, planned), program) in cases.iter().zip(&planned).zip(programs) {
        let result = match (planned, program, &mut evicting) {
            (Err(message), ..) => Err(message.clone()),
            (Ok((planned, _)), Some(program), Some(evicting)) => program
                .and_then(|program| {
                    let inputs = inputs.of(case, planned, args.inputs.seed)?;
                    bench::on_the_gpu(args, planned, &program, inputs, evicting)
                })
                .map_err(|e| e.to_string()),
            (Ok((planned, _)), ..) => {
                let inputs = inputs.of(case, planned, args.inputs.seed);
                inputs.and_then(|inputs| bench::on_the_processor(ui, args, planned, inputs)).map_err(|e| e.to_string())
            }
        };
        failed |= result.is_err();
        let name = case.name.clone();
        let line = match result {
            Ok(data) => Line::Measured { name, data },
            Err(error) => Line::Failed { name, error },
        };
        let text = || match &line {
            Line::Measured { name, data } => bench::text(name, data),
            Line::Failed { name, error } => format!("{name}: FAILED: {error}\n"),
        };
        ui.result(text, &line)?;
    }
    if failed { Err(Failure::Told) } else { Ok(()) }
}

fn assignments(all: &BTreeMap<String, usize>) -> Vec<Assignment> {
    all.iter().map(|(rank, &size)| Assignment { rank: rank.clone(), size }).collect()
}

type PlannedCase = (Planned, Option<Architecture>);

fn plan(case: &Case, folder: &Path, args: &BenchArgs, gpu: Option<&Gpu>) -> Result<PlannedCase, Failure> {
    let source = source::text(&folder.join(&case.file))?;
    let derived = Program::from_text(&source.text).check()?.derive();
    let sizing = Sizing {
        sizes: assignments(&case.sizes),
        tiles: assignments(&case.tiles),
        shares: vec![],
        params: case.params.iter().map(|(name, &value)| ParamValue { name: name.clone(), value }).collect(),
        exact: case.exact || args.sizing.exact,
    };
    let given = prepare::given(&sizing, BTreeMap::new())?;
    let target: &Target = &args.target;
    let options = GpuOptions { arch: case.arch.or(args.gpu.arch), ..args.gpu.clone() };
    let arch = gpu.map(|gpu| options.target(gpu)).transpose()?.map(|t| t.arch);
    let planned = prepare::planned(&derived, &given, &sizing, target, args.backend, arch)?;
    prepare::memory(&planned, false)?;
    Ok((planned, case.arch))
}

fn compile<'a>(planned: &'a Planned, gpu: &Gpu, options: GpuOptions) -> Result<GpuProgram<'a>, Error> {
    planned.compile_for_target(gpu, &options.target(gpu)?)
}

/// Random tensors for the case at hand: those of the case before where that is the same program at the same sizes, as
/// when tiles are compared. They depend on nothing else.
#[derive(Default)]
struct Inputs<'a> {
    of: Option<&'a Case>,
    tensors: BTreeMap<String, Tensor>,
}

impl<'a> Inputs<'a> {
    fn of(&mut self, case: &'a Case, planned: &Planned, seed: u64) -> Result<&BTreeMap<String, Tensor>, Error> {
        let same = |of: &Case| (&of.file, &of.sizes, &of.params) == (&case.file, &case.sizes, &case.params);
        if !self.of.is_some_and(same) {
            // The old ones go first: two sets may not fit.
            *self = Self::default();
            self.tensors = data::random(planned, seed)?;
            self.of = Some(case);
        }
        Ok(&self.tensors)
    }
}

/// `f` of every item, on all cores, in order.
pub(crate) fn in_parallel<'a, T: Sync, R: Send>(items: &'a [T], f: impl Fn(&'a T) -> R + Sync) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = vec![];
        loop {
            let k = next.fetch_add(1, Ordering::Relaxed);
            match items.get(k) {
                Some(item) => done.push((k, f(item))),
                None => return done,
            }
        }
    };
    let mut all = std::thread::scope(|scope| {
        let helpers: Vec<_> = (1..cores.min(items.len())).map(|_| scope.spawn(work)).collect();
        let mut all = work();
        for helper in helpers {
            match helper.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        all
    });
    all.sort_by_key(|(k, _)| *k);
    all.into_iter().map(|(_, r)| r).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn results_stand_in_the_order_of_the_items() {
        let items: Vec<u64> = (0..1000).collect();
        assert_eq!(super::in_parallel(&items, |n| n * n), items.iter().map(|n| n * n).collect::<Vec<_>>());
        assert_eq!(super::in_parallel(&[] as &[u64], |n| *n), [] as [u64; 0]);
    }
}
