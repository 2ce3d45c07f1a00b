//! `einloom verify`: programs at many sizes and in several number types against their meaning.

use super::args::{Backend, VerifyArgs};
use super::failure::Failure;
use super::passes::Ordered;
use super::progress::Progress;
use super::table::Table;
use super::ui::Ui;
use super::{prepare, source};
use einloom::formats::FileError;
use einloom::gpu::Gpu;
use einloom::verify::battery::{Battery, Checked, Effort, Runner, batteries};
use einloom::{Error, Program};
use einloom_machine::Machine;
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, Serialize)]
struct VerifyJson {
    backend: &'static str,
    device: String,
    programs: usize,
    failures: usize,
    out_of_range: usize,
    outside: usize,
    missing_sizes: Vec<String>,
    cases: Vec<CaseJson>,
}

/// A case. `verdict` is `agrees`, `range`, `disagrees`, `stopped`, or `outside` where the text has no meaning for the inputs that were
/// drawn; `range`, `stopped` and `outside` with `why`.
#[derive(Debug, Serialize)]
struct CaseJson {
    file: String,
    types: String,
    sizes: BTreeMap<String, usize>,
    path: Option<String>,
    fallbacks: Option<usize>,
    verdict: &'static str,
    why: Option<String>,
    empty_rows: usize,
    outputs: Ordered<OutputJson>,
}

#[derive(Debug, Serialize)]
struct OutputJson {
    tolerance: f64,
    error: f64,
    max_abs_error: f64,
    unwritten: usize,
    plain_error: Option<f64>,
}

/// A program with its cases.
struct Subject {
    file: String,
    battery: Battery,
}

/// One case, and what came of it.
type Done<'a> = (&'a Subject, usize, Result<Checked, String>);

pub(crate) fn command(ui: &mut Ui, args: &VerifyArgs) -> Result<(), Failure> {
    if let Some(stage) = ui.global.dump {
        return Err(super::dump_elsewhere(stage));
    }
    let gpu = (args.backend == Backend::Cuda).then(Gpu::open).transpose()?;
    let arch = gpu.as_ref().map(|gpu| args.gpu.target(gpu)).transpose()?.map(|t| t.arch);
    let machine = prepare::machine(&args.target, args.backend, arch)?;
    let runner = match &gpu {
        Some(gpu) => Runner::Cuda(gpu, args.gpu.target(gpu)?),
        None => Runner::Cpu,
    };
    let files = files(&args.paths)?;
    let (subjects, missing) = subjects(ui, &files, args)?;
    let done = check(ui, args, &subjects, runner, &machine);
    let count = |verdicts: &[&str]| done.iter().filter(|d| verdicts.contains(&verdict(&d.2))).count();
    let (failures, out_of_range, outside) = (count(&["disagrees", "stopped"]), count(&["range"]), count(&["outside"]));
    let data = VerifyJson {
        backend: if gpu.is_some() { "cuda" } else { "cpu" },
        device: gpu.as_ref().map_or_else(|| machine.name.clone(), Gpu::description),
        programs: files.len(),
        failures,
        out_of_range,
        outside,
        missing_sizes: missing,
        cases: done.iter().map(case_json).collect(),
    };
    ui.result(|| text(args, &done, &data), &data)?;
    // A program of which nothing was compared is not verified.
    let untried = |file: &str| done.iter().filter(|d| d.0.file == file).all(|d| verdict(&d.2) == "outside");
    let all_tried = subjects.iter().all(|s| !untried(&s.file));
    if failures + out_of_range == 0 && all_tried { Ok(()) } else { Err(Failure::Told) }
}

/// The programs that are named, and those in folders that are named, each folder's in the order of their names.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut out = vec![];
    for path in paths {
        let before = out.len();
        if path.is_dir() {
            collect(path, &mut out)?;
            if out.len() == before {
                return Err(FileError::new(path, "there are no programs (.ein) in this folder").into());
            }
        } else {
            out.push(path.clone());
        }
    }
    Ok(out)
}

fn collect(folder: &Path, out: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let unread = |e: std::io::Error| FileError::io(folder, "cannot read it", &e);
    let entries = std::fs::read_dir(folder).map_err(unread)?;
    let mut paths: Vec<PathBuf> = entries.map(|e| e.map(|e| e.path())).collect::<Result<_, _>>().map_err(unread)?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            collect(&path, out)?;
        } else if path.extension().is_some_and(|e| e == "ein") {
            out.push(path);
        }
    }
    Ok(())
}

/// Every program in all its number types, and the kinds of sizes that none of them can have.
fn subjects(ui: &mut Ui, files: &[PathBuf], args: &VerifyArgs) -> Result<(Vec<Subject>, Vec<String>), Failure> {
    let effort = if args.small { Effort::SMALL } else { Effort::FULL };
    let (mut subjects, mut missing) = (vec![], vec![]);
    for path in files {
        let source = source::text(path)?;
        let file = source.name.clone();
        let program = Program::from_text(&source.text);
        // What is wrong with a text is told with its lines.
        ui.source = Some(source);
        let checked = program.check()?;
        let (batteries, none) = batteries(checked.cascade(), effort, args.seed);
        subjects.extend(batteries.into_iter().map(|battery| Subject { file: file.clone(), battery }));
        missing.extend(none.iter().map(|kind| format!("{file}: {kind}")));
    }
    ui.source = None;
    Ok((subjects, missing))
}

/// Checks every case, on several threads; the long ones first, so that none is left alone in the end.
fn check<'a>(
    ui: &Ui,
    args: &VerifyArgs,
    subjects: &'a [Subject],
    runner: Runner<'_>,
    machine: &Machine,
) -> Vec<Done<'a>> {
    let mut cases: Vec<(usize, usize)> =
        subjects.iter().enumerate().flat_map(|(s, subject)| (0..subject.battery.len()).map(move |c| (s, c))).collect();
    let work = |&(s, c): &(usize, usize)| subjects[s].battery.work(c);
    cases.sort_by(|a, b| work(b).total_cmp(&work(a)));
    let jobs = args.jobs.map(|n| n as usize);
    let jobs = jobs.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
    let (next, progress) = (AtomicUsize::new(0), Progress::start(ui, "verifying"));
    let one = |subject: &Subject, case: usize| {
        let road = || subject.battery.check(case, runner, machine, args.exact, args.seed);
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(road)) {
            Ok(result) => result.map_err(|e: Error| e.to_string()),
            Err(_) => Err("einloom itself stopped: see standard error".to_string()),
        }
    };
    let take = || {
        let mut done = vec![];
        loop {
            let k = next.fetch_add(1, Ordering::Relaxed);
            let Some(&(s, c)) = cases.get(k) else { return done };
            progress.at(k as f64 / cases.len() as f64);
            done.push(((s, c), one(&subjects[s], c)));
        }
    };
    let mut done = std::thread::scope(|scope| {
        let helpers: Vec<_> = (1..jobs.min(cases.len())).map(|_| scope.spawn(take)).collect();
        let mut done = take();
        // A thread's own mistakes are caught above.
        helpers.into_iter().for_each(|h| done.extend(h.join().unwrap_or_default()));
        done
    });
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|((s, c), result)| (&subjects[s], c, result)).collect()
}

fn agrees(result: &Result<Checked, String>) -> bool {
    result.as_ref().is_ok_and(Checked::agrees)
}

fn verdict(result: &Result<Checked, String>) -> &'static str {
    match result {
        Ok(checked) if checked.agrees() => "agrees",
        Ok(checked) if checked.outside.is_some() => "outside",
        Ok(checked) if checked.leaves_range().is_some() => "range",
        Ok(_) => "disagrees",
        Err(_) => "stopped",
    }
}

fn case_json((subject, case, result): &Done<'_>) -> CaseJson {
    let checked = result.as_ref().ok();
    let path = checked.and_then(|c| c.path.as_ref());
    let outputs = checked.map_or(&[][..], |c| &c.outputs).iter().map(|o| {
        let json = OutputJson {
            tolerance: o.run.tolerance.total(),
            error: o.run.distance.scaled,
            max_abs_error: o.run.distance.max_abs,
            unwritten: o.unwritten,
            plain_error: o.plain.map(|p| p.scaled),
        };
        (o.run.output.clone(), json)
    });
    CaseJson {
        file: subject.file.clone(),
        types: subject.battery.types.to_string(),
        sizes: subject.battery.sizes(*case),
        path: path.map(ToString::to_string),
        fallbacks: path.map(|p| p.fallbacks),
        verdict: verdict(result),
        why: match result {
            Err(why) => Some(why.clone()),
            Ok(checked) => checked.outside.clone().or_else(|| checked.leaves_range().map(ToString::to_string)),
        },
        empty_rows: checked.map_or(0, |c| c.empty_rows),
        outputs: Ordered(outputs.collect()),
    }
}

/// The largest errors of some cases, by what they may be.
#[derive(Default)]
struct Worst {
    cases: usize,
    failures: usize,
    out_of_range: usize,
    outside: usize,
    error: f64,
    plain: f64,
    /// Of the output's error in what it may be.
    share: f64,
    sizes: BTreeMap<String, usize>,
    paths: Vec<String>,
    fallbacks: usize,
}

impl Worst {
    fn add(&mut self, (subject, case, result): &Done<'_>) {
        self.cases += 1;
        self.failures += usize::from(["disagrees", "stopped"].contains(&verdict(result)));
        self.out_of_range += usize::from(verdict(result) == "range");
        self.outside += usize::from(verdict(result) == "outside");
        let Ok(checked) = result else { return };
        for output in &checked.outputs {
            let (error, allowed) = (output.run.distance.scaled, output.run.tolerance.total());
            self.error = self.error.max(error);
            self.plain = self.plain.max(output.plain.map_or(0.0, |p| p.scaled));
            let share = if error == 0.0 { 0.0 } else { error / allowed };
            if share > self.share || self.sizes.is_empty() {
                self.share = share;
                self.sizes = subject.battery.sizes(*case);
            }
        }
        if let Some(path) = &checked.path {
            let name = path.to_string();
            if !self.paths.contains(&name) {
                self.paths.push(name);
            }
            self.fallbacks = self.fallbacks.max(path.fallbacks);
        }
    }
}

fn text(args: &VerifyArgs, done: &[Done<'_>], data: &VerifyJson) -> String {
    let on_gpu = args.backend == Backend::Cuda;
    let mut head = vec!["program", "types", "cases", "error", "plain", "of allowed", "verdict"];
    if on_gpu {
        head.extend(["path", "slower ways"]);
    }
    head.push(if args.all { "sizes" } else { "worst sizes" });
    let mut table = Table::new(&head);
    let mut groups: Vec<(&Subject, Worst)> = vec![];
    for one in done {
        let same = |(subject, _): &&mut (&Subject, Worst)| std::ptr::eq(*subject, one.0) && !args.all;
        match groups.last_mut().filter(|g| same(g)) {
            Some((_, worst)) => worst.add(one),
            None => {
                let mut worst = Worst::default();
                worst.add(one);
                groups.push((one.0, worst));
            }
        }
    }
    for (subject, worst) in &groups {
        let number = |x: f64| if x.is_finite() { format!("{x:.1e}") } else { "inf".to_string() };
        let verdict = match (worst.failures, worst.out_of_range) {
            (0, 0) if worst.outside == worst.cases => "not tried".to_string(),
            (0, 0) if worst.outside > 0 => format!("agrees, {} not tried", worst.outside),
            (0, 0) => "agrees".to_string(),
            (0, n) => format!("{n} out of range"),
            (n, _) => format!("{n} FAILED"),
        };
        let mut row = vec![name(&subject.file), subject.battery.types.to_string(), worst.cases.to_string()];
        row.extend([number(worst.error), number(worst.plain), format!("{:.2}", worst.share), verdict]);
        if on_gpu {
            row.extend([worst.paths.join(", "), worst.fallbacks.to_string()]);
        }
        row.push(sizes_text(&worst.sizes));
        table.row(row);
    }
    let mut out = format!("{} programs on {}\n{}", data.programs, data.device, table.text());
    out += "error, plain: largest difference from the meaning relative to the largest value of its row, of the run and of\n\
            the program as written, one kernel per reduction, in the same number types; of allowed: by the tolerance\n";
    let empty: usize = done.iter().filter_map(|d| d.2.as_ref().ok()).map(|c| c.empty_rows).sum();
    out +=
        &format!("{empty} rows of outputs are 0 or not finite by the meaning, as those that are masked altogether\n");
    for kind in &data.missing_sizes {
        out += &format!("not tried, for no such sizes fit: {kind}\n");
    }
    for (subject, case, result) in done.iter().filter(|d| !agrees(&d.2)) {
        let sizes = sizes_text(&subject.battery.sizes(*case));
        let what = match result {
            Err(why) => why.clone(),
            Ok(checked) => {
                let wrong = checked.outputs.iter().filter(|o| !o.agrees());
                let one = |o: &einloom::verify::battery::Compared| {
                    let v = &o.run;
                    let at = v.distance.worst;
                    let what = format!("{} element {at}: error {:.1e}", v.output, v.distance.scaled);
                    let unwritten = match o.unwritten {
                        0 => String::new(),
                        n => format!(", {n} elements never written"),
                    };
                    format!("{what}, allowed {}{unwritten}", v.tolerance)
                };
                wrong.map(one).collect::<Vec<_>>().join("; ")
            }
        };
        let (file, types) = (&subject.file, subject.battery.types);
        if let Some(outside) = result.as_ref().ok().and_then(|checked| checked.outside.as_ref()) {
            let why = "the text reads outside a tensor with the inputs that were drawn";
            out += &format!("not tried, for {why}: {file} {types} at {sizes}: {outside}\n");
            continue;
        }
        out += &match result.as_ref().ok().and_then(Checked::leaves_range) {
            Some(finding) => format!("OUT OF RANGE {file} {types} at {sizes}: {finding}; everything else agrees\n"),
            None => format!("FAILED {file} {types} at {sizes}: {what}\n"),
        };
    }
    out += &format!("{} cases, {} failed", done.len(), data.failures);
    if data.outside > 0 {
        out += &format!(", {} not tried", data.outside);
    }
    if data.out_of_range > 0 {
        out += &format!(", {} out of range by the text itself", data.out_of_range);
    }
    out.push('\n');
    out
}

/// The file without its folders and ending.
fn name(file: &str) -> String {
    Path::new(file).file_stem().map_or_else(|| file.to_string(), |s| s.to_string_lossy().into_owned())
}

fn sizes_text(sizes: &BTreeMap<String, usize>) -> String {
    sizes.iter().map(|(rank, size)| format!("{rank}={size}")).collect::<Vec<_>>().join(" ")
}
