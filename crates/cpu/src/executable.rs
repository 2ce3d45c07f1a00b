//! Programs ready to run.

use crate::compile::{self, Plan, Rates, Unit};
use crate::execute::{Arena, Disorder, Job, SPOILT, Worker};
use crate::kernels::isa::{Isa, Token};
use crate::kernels::memory::{Line, Shared};
use crate::kernels::unit::{UnitToken, Way};
use crate::stretches::Stretches;
use crate::team::Team;
use crate::{
    Bf16Products, BuildError, KernelReport, Options, ProductRates, Report, RunError, RunOptions, TensorTraffic, View,
    ViewMut,
};
use einloom_tile::{Op, Program, TensorDecl, TensorId, TensorRole, grid_points, row_major, verify};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A checked program with a plan for each of its kernels.
///
/// ```
/// use einloom_cascade::DType::F32;
/// use einloom_cpu::{Executable, Options, RunOptions, View, ViewMut};
/// use einloom_tile::Builder;
///
/// let mut p = Builder::new("double");
/// let x = p.input("X", &[3], F32);
/// let y = p.output("Y", &[3], F32);
/// p.kernel("double", |k| {
///     let i = k.grid("i", 3, 2);
///     let tile = k.load("x", x, [i]);
///     k.store(y, [i], tile * 2.0);
/// });
/// let executable = Executable::new(&p.finish().unwrap(), &Options::default()).unwrap();
///
/// let (x, mut y) = ([1.0f32, 2.0, 3.0], [0.0f32; 3]);
/// let input = View { dtype: F32, dims: &[3], bytes: bytemuck::cast_slice(&x) };
/// let output = ViewMut { dtype: F32, dims: &[3], bytes: bytemuck::cast_slice_mut(&mut y) };
/// executable.run(&[input], &mut [output], &RunOptions::default()).unwrap();
/// assert_eq!(y, [2.0, 4.0, 6.0]);
/// ```
pub struct Executable {
    program: Program,
    plans: Vec<Plan>,
    token: Token,
    /// Computes the contractions whose plan says so.
    unit: Option<UnitToken>,
    /// Threads, of the numbers that runs asked for.
    teams: Mutex<Teams>,
    /// Memory for tiles that threads had in earlier runs: to be given it anew takes longer than a small run.
    arenas: Mutex<Vec<Arena>>,
}

impl std::fmt::Debug for Executable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { program, plans, token, unit, .. } = self;
        let mut all = f.debug_struct("Executable");
        all.field("program", program).field("plans", plans).field("token", token).field("unit", unit);
        all.finish_non_exhaustive()
    }
}

impl Executable {
    /// Checks and plans `program`.
    ///
    /// # Errors
    /// If it is not well-formed, or cannot be run on this machine: see [`BuildError`].
    pub fn new(program: &Program, options: &Options) -> Result<Self, BuildError> {
        let defects = verify(program);
        if !defects.is_empty() {
            return Err(BuildError::Defects(defects));
        }
        for tensor in &program.tensors {
            if tensor.reach_bytes().is_none() {
                return Err(BuildError::TooLarge { tensor: tensor.name.clone() });
            }
        }
        let isa = options.isa.unwrap_or_else(Isa::best);
        let token = Token::new(isa).ok_or(BuildError::Isa { isa: isa.name() })?;
        let unit = unit(program, token, options.bf16)?;
        let known = unit.map(|(_, unit)| unit);
        let plans: Vec<Plan> =
            program.kernels.iter().map(|k| compile::compile(program, k, known)).collect::<Result<_, _>>()?;
        let (teams, arenas) = Default::default();
        Ok(Self { program: program.clone(), plans, token, unit: unit.map(|(token, _)| token), teams, arenas })
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Runs it: `inputs` and `outputs` in the order of the program's input and output tensors.
    ///
    /// # Errors
    /// If an array is not what its tensor is, or a gather leaves its tensor: see [`RunError`]. What the outputs hold
    /// is then unspecified.
    pub fn run(
        &self,
        inputs: &[View<'_>],
        outputs: &mut [ViewMut<'_>],
        options: &RunOptions<'_>,
    ) -> Result<Report, RunError> {
        let started = Instant::now();
        let aligned = self.check(inputs, outputs)?;
        let mut memory = self.memory(inputs, &aligned, outputs)?;
        if options.disturb.is_some() {
            memory.iter_mut().for_each(Memory::spoil);
        }
        let all = || options.pool.map_or_else(rayon::current_num_threads, rayon::ThreadPool::current_num_threads);
        let threads = options.threads.map_or_else(all, |wanted| wanted.max(1));
        let own = self.team(options, threads)?;
        let pool = options.pool.or(own.as_ref().map(|team| team.pool()));
        if let Some(own) = &own {
            own.make_room();
        }
        let points: Vec<usize> = self.plans.iter().map(|p| grid_points(&p.kernel)).collect();
        let all: usize = points.iter().sum();
        let mut done = 0;
        let mut kernels = vec![];
        for (plan, &count) in self.plans.iter().zip(&points) {
            let begun = Instant::now();
            let tensors = share(plan, &self.program, &mut memory);
            let job = Job { program: &self.program, plan, tensors: &tensors, token: self.token, unit: self.unit };
            let threads = if plan.parallel { threads.min(count) } else { 1 };
            let progress = Progress { report: options.progress, before: done, all };
            // Where two operations store to one element, the order decides.
            let disorder = options.disturb.map(|seed| Disorder::new(plan.parallel.then_some(seed), count));
            let work = Shift { job, count, threads, arenas: &self.arenas, progress, disorder };
            let totals = work.run(pool)?;
            done += count;
            kernels.push(KernelReport {
                name: plan.kernel.name.clone(),
                seconds: begun.elapsed().as_secs_f64(),
                traffic: if options.count { totals.traffic() } else { vec![] },
                skipped_chunks: totals.skipped,
                serial: (!plan.parallel).then_some("points of its grid may store to the same elements"),
            });
        }
        Ok(Report { seconds: started.elapsed().as_secs_f64(), kernels, isa: self.token.isa().name() })
    }

    fn role(&self, role: TensorRole) -> impl Iterator<Item = &TensorDecl> {
        self.program.tensors.iter().filter(move |t| t.role == role)
    }

    /// Checks every array; copies of the inputs that are not aligned.
    fn check(&self, inputs: &[View<'_>], outputs: &[ViewMut<'_>]) -> Result<Vec<Option<Vec<Line>>>, RunError> {
        count("inputs", self.role(TensorRole::Input).count(), inputs.len())?;
        count("outputs", self.role(TensorRole::Output).count(), outputs.len())?;
        let mut aligned = vec![];
        for (tensor, view) in self.role(TensorRole::Input).zip(inputs) {
            array(tensor, view.dtype, view.dims, view.bytes.len())?;
            values(tensor, view.bytes)?;
            aligned.push(if is_aligned(view.bytes, tensor) { None } else { Some(copied(view.bytes)?) });
        }
        for (tensor, view) in self.role(TensorRole::Output).zip(outputs) {
            array(tensor, view.dtype, view.dims, view.bytes.len())?;
            if !is_aligned(view.bytes, tensor) {
                return Err(RunError::Misaligned { tensor: tensor.name.clone(), alignment: tensor.dtype.bytes() });
            }
        }
        Ok(aligned)
    }

    /// The memory of every tensor.
    fn memory<'m>(
        &self,
        inputs: &[View<'m>],
        aligned: &'m [Option<Vec<Line>>],
        outputs: &'m mut [ViewMut<'_>],
    ) -> Result<Vec<Memory<'m>>, RunError> {
        let mut inputs = inputs.iter().zip(aligned);
        let mut outputs = outputs.iter_mut();
        let mut memory = vec![];
        for tensor in &self.program.tensors {
            let len = bytes(tensor);
            // The counts were checked.
            let next = match tensor.role {
                TensorRole::Input => inputs.next().map(|(view, copy)| match copy {
                    Some(lines) => Memory::Given(&bytemuck::cast_slice(lines)[..len]),
                    None => Memory::Given(view.bytes),
                }),
                TensorRole::Output => outputs.next().map(|view| Memory::Wanted(&mut *view.bytes)),
                TensorRole::Temporary => Some(Memory::Own(zeros(len)?, len)),
            };
            memory.extend(next);
        }
        Ok(memory)
    }

    /// Threads of the executable's own, if the run takes none at hand.
    fn team(&self, options: &RunOptions<'_>, threads: usize) -> Result<Option<Arc<Team>>, RunError> {
        /// Of all executables that are not told how many threads there are.
        static USUAL: Mutex<Teams> = Mutex::new(Teams::new());
        // Who runs in a pool, and says nothing, has its threads help.
        let at_hand = options.threads.is_none() && rayon::current_thread_index().is_some();
        if threads < 2 || options.pool.is_some() || at_hand {
            return Ok(None);
        }
        let teams = if options.threads.is_none() { &USUAL } else { &self.teams };
        let mut teams = teams.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(team) = teams.get(&threads) {
            return Ok(Some(team.clone()));
        }
        let team = Arc::new(Team::new(threads).map_err(|e| RunError::Threads { reason: e.to_string() })?);
        teams.insert(threads, team.clone());
        Ok(Some(team))
    }
}

/// What multiplies packed squares, if it may be used.
fn unit(program: &Program, token: Token, wish: Bf16Products) -> Result<Option<(UnitToken, Unit)>, BuildError> {
    fn multiplies(body: &[Op]) -> bool {
        body.iter().any(|op| match op {
            Op::Mma { .. } => true,
            Op::Stream { body, .. } => multiplies(body),
            _ => false,
        })
    }
    let wanted = |way, isa| {
        let token = UnitToken::new(token, way).ok_or(BuildError::Isa { isa })?;
        Ok(Some((token, Unit { rates: None })))
    };
    match wish {
        Bf16Products::Tiles => wanted(Way::Tiles, "amx"),
        Bf16Products::Pairs => wanted(Way::Pairs, "avx512bf16"),
        // Measured only where it may be used.
        Bf16Products::Fastest if program.kernels.iter().any(|k| multiplies(&k.body)) => Ok(UnitToken::all(token)
            .filter_map(measured)
            .min_by(|(.., x), (.., y)| x.total_cmp(y))
            .map(|(t, u, _)| (t, u))),
        Bf16Products::Fastest | Bf16Products::Widened => Ok(None),
    }
}

/// A unit with its measured rates, and the seconds of an operation.
fn measured(token: UnitToken) -> Option<(UnitToken, Unit, f64)> {
    let all = ProductRates::measured();
    let unit = all.of(token.way())?;
    Some((token, Unit { rates: Some(Rates { widened: all.widened, unit }) }, unit.single))
}

fn count(what: &'static str, expected: usize, given: usize) -> Result<(), RunError> {
    if expected == given { Ok(()) } else { Err(RunError::Count { what, expected, given }) }
}

fn bytes(tensor: &TensorDecl) -> usize {
    // Known to fit since the program was checked.
    tensor.reach_bytes().unwrap_or(usize::MAX)
}

fn array(tensor: &TensorDecl, dtype: einloom_cascade::DType, dims: &[usize], given: usize) -> Result<(), RunError> {
    let name = || tensor.name.clone();
    if dims != tensor.shape() {
        return Err(RunError::Shape { tensor: name(), expected: tensor.shape().to_vec(), given: dims.to_vec() });
    }
    if dtype != tensor.dtype {
        return Err(RunError::Type { tensor: name(), expected: tensor.dtype, given: dtype });
    }
    let expected = bytes(tensor);
    if given == expected { Ok(()) } else { Err(RunError::Length { tensor: name(), expected, given }) }
}

/// Bytes that are no value of the number type would be taken for another one.
fn values(tensor: &TensorDecl, bytes: &[u8]) -> Result<(), RunError> {
    let Some((index, value)) = tensor.no_value(bytes) else { return Ok(()) };
    Err(RunError::Value { tensor: tensor.name.clone(), dtype: tensor.dtype, index, value })
}

fn is_aligned(bytes: &[u8], tensor: &TensorDecl) -> bool {
    bytes.is_empty() || bytes.as_ptr().addr().is_multiple_of(tensor.dtype.bytes())
}

fn zeros(bytes: usize) -> Result<Vec<Line>, RunError> {
    let lines = bytes.div_ceil(size_of::<Line>());
    bytemuck::allocation::try_zeroed_vec(lines).map_err(|()| RunError::Memory { bytes })
}

fn copied(bytes: &[u8]) -> Result<Vec<Line>, RunError> {
    let mut lines = zeros(bytes.len())?;
    bytemuck::cast_slice_mut(&mut lines)[..bytes.len()].copy_from_slice(bytes);
    Ok(lines)
}

/// A tensor's memory between kernels.
enum Memory<'m> {
    Given(&'m [u8]),
    Wanted(&'m mut [u8]),
    Own(Vec<Line>, usize),
}

impl Memory<'_> {
    /// Fills what is still to be written with NaN.
    fn spoil(&mut self) {
        match self {
            Memory::Given(_) => {}
            Memory::Wanted(bytes) => bytes.fill(SPOILT),
            Memory::Own(lines, _) => bytemuck::cast_slice_mut(lines).fill(SPOILT),
        }
    }
}

/// The memory of every tensor as one kernel uses it.
fn share<'s>(plan: &Plan, program: &Program, memory: &'s mut [Memory<'_>]) -> Vec<Shared<'s>> {
    let written = plan.written();
    let tensor = |(number, memory): (usize, &'s mut Memory<'_>)| -> Shared<'s> {
        let bytes: &'s mut [u8] = match memory {
            Memory::Given(bytes) => return Shared::read_only(bytes),
            Memory::Wanted(bytes) => bytes,
            Memory::Own(lines, len) => &mut bytemuck::cast_slice_mut(lines)[..*len],
        };
        let writes = written.contains(&TensorId(number as u32));
        if writes { Shared::write_only(bytes) } else { Shared::read_only(bytes) }
    };
    debug_assert_eq!(memory.len(), program.tensors.len());
    memory.iter_mut().enumerate().map(tensor).collect()
}

struct Progress<'a> {
    report: Option<&'a (dyn Fn(f64) + Sync)>,
    /// Points of the kernels before.
    before: usize,
    all: usize,
}

/// One kernel's points, to be shared out among threads.
struct Shift<'a> {
    job: Job<'a>,
    count: usize,
    threads: usize,
    arenas: &'a Mutex<Vec<Arena>>,
    progress: Progress<'a>,
    disorder: Option<Disorder>,
}

/// What the threads did.
#[derive(Default)]
struct Totals {
    loaded: Vec<u64>,
    stored: Vec<u64>,
    skipped: u64,
}

impl Totals {
    fn traffic(&self) -> Vec<TensorTraffic> {
        let both = self.loaded.iter().zip(&self.stored).enumerate();
        both.filter(|(_, (loaded, stored))| **loaded + **stored > 0)
            .map(|(k, (&loaded_bytes, &stored_bytes))| TensorTraffic {
                tensor: TensorId(k as u32),
                loaded_bytes,
                stored_bytes,
            })
            .collect()
    }
}

/// By how many threads there are with the caller's.
type Teams = BTreeMap<usize, Arc<Team>>;

/// Gives work to the threads of a scope, of which the one at hand is one.
fn hand_out<'s>(scope: &rayon::Scope<'s>, threads: usize, busy: &'s AtomicUsize, work: &'s (impl Fn() + Sync)) {
    for _ in 1..threads {
        busy.fetch_add(1, Ordering::Relaxed);
        scope.spawn(|_| {
            work();
            busy.fetch_sub(1, Ordering::Release);
        });
    }
    work();
    await_last(busy);
}

/// Waits for a short time until nobody is busy any more: all work is taken, and who sleeps meanwhile may be woken as late as half
/// a small run takes (60 us, measured in a guest).
fn await_last(busy: &AtomicUsize) {
    const SHORT: Duration = Duration::from_micros(200);
    let begun = Instant::now();
    while busy.load(Ordering::Acquire) > 0 && begun.elapsed() < SHORT {
        // Who waits for this processor gets it.
        std::thread::yield_now();
        (0..32).for_each(|_| std::hint::spin_loop());
    }
    // The scope learns of the last one's end a little later.
    (0..64).for_each(|_| std::hint::spin_loop());
}

impl Shift<'_> {
    /// Shares it out among threads of the pool (of rayon's at hand if there is none). The caller's thread is one of them: it
    /// need not be woken.
    fn run(&self, pool: Option<&rayon::ThreadPool>) -> Result<Totals, RunError> {
        let (stretches, done) = (Stretches::new(self.count, self.threads), AtomicUsize::new(0));
        let busy = AtomicUsize::new(0);
        let failed = AtomicUsize::new(usize::MAX);
        let outcome = Mutex::new(Ok(Totals {
            loaded: vec![0; self.job.tensors.len()],
            stored: vec![0; self.job.tensors.len()],
            skipped: 0,
        }));
        let one = || {
            let arena = self.arenas.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default();
            let mut worker = Worker::new(self.job, arena, self.threads);
            let failed = self.points(&mut worker, (&stretches, &done), &failed);
            worker.kept.clear(&mut worker.arena.spare);
            let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
            match (&mut *outcome, failed) {
                (Ok(totals), None) => {
                    totals.loaded.iter_mut().zip(&worker.loaded).for_each(|(x, y)| *x += y);
                    totals.stored.iter_mut().zip(&worker.stored).for_each(|(x, y)| *x += y);
                    totals.skipped += worker.skipped;
                }
                // The first point that failed decides, whoever got there first.
                (Err((before, _)), Some((point, _))) if *before < point => {}
                (state, Some(failed)) => *state = Err(failed),
                (Err(_), None) => {}
            }
            self.arenas.lock().unwrap_or_else(PoisonError::into_inner).push(worker.arena);
        };
        if self.threads > 1 {
            match pool {
                Some(pool) => pool.in_place_scope(|scope| hand_out(scope, self.threads, &busy, &one)),
                None => rayon::in_place_scope(|scope| hand_out(scope, self.threads, &busy, &one)),
            }
        } else if self.count > 0 {
            one();
        }
        outcome.into_inner().unwrap_or_else(PoisonError::into_inner).map_err(|(_, error)| error)
    }

    /// Runs points until none is left; the one that failed. After that only those before it are run, so that the first one is told whatever the threads.
    fn points(
        &self,
        worker: &mut Worker<'_>,
        (stretches, done): (&Stretches, &AtomicUsize),
        failed: &AtomicUsize,
    ) -> Option<(usize, RunError)> {
        let own = stretches.begin();
        let percent = (self.progress.all / 100).max(1);
        let place = |number: usize| self.disorder.as_ref().map_or(number, |disorder| disorder.point(number));
        let mut early = None;
        while let Some(points) = early.take().or_else(|| stretches.take(own)) {
            let last = points.end - 1;
            for number in points.clone() {
                // The next ones are taken a point early, so that what they begin with can be asked for.
                if number == last {
                    early = stretches.take_early(own);
                }
                let then = if number < last { Some(number + 1) } else { early.as_ref().map(|points| points.start) };
                if number > failed.load(Ordering::Relaxed) {
                    continue;
                }
                let (point, following) = (place(number), then.map(place));
                if self.disorder.is_some() {
                    worker.arena.spoil();
                }
                if let Err(error) = worker.point(point, following) {
                    failed.fetch_min(number, Ordering::Relaxed);
                    return Some((point, error));
                }
            }
            if let Some(report) = self.progress.report {
                let before = self.progress.before + done.fetch_add(points.len(), Ordering::Relaxed);
                let now = before + points.len();
                if before / percent != now / percent || now == self.progress.all {
                    report(now as f64 / self.progress.all as f64);
                }
            }
        }
        None
    }
}

impl Plan {
    /// Which line of points that differ along the fastest axis only the point of this number belongs to, and its
    /// row-major number: of a line those in one block follow each other.
    pub(crate) fn point(&self, number: usize) -> (usize, usize) {
        let point = row_major(&self.visits, number);
        (point / self.visits.iter().rev().find(|v| v.steps > 1).map_or(1, |v| v.steps), point)
    }

    /// The tensors that it stores to.
    fn written(&self) -> Vec<TensorId> {
        let mut out = vec![];
        compile::each_step(&self.body, &mut |step| {
            out.extend(step.stores_to());
        });
        out
    }
}
