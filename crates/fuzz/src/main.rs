//! The fuzzers from the command line.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)] // It prints, and keeps what it finds.

use clap::{Parser, Subcommand};
use einloom_fuzz::campaign::{Campaign, Counterexample};
use einloom_fuzz::cases::Case;
use einloom_fuzz::examine::{Effort, Subject};
use einloom_fuzz::{generate, shrink, text};
use std::path::PathBuf;
use std::time::Instant;

/// Half of the time would be spent in the system's allocator: programs are made of many small trees.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(about = "Random programs and random text against every part of Einloom")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Random programs: meaning against derived form against the processor.
    Programs {
        /// Programs to make
        #[arg(long, default_value_t = 10_000)]
        count: u64,
        /// The first program's seed
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Threads
        #[arg(long, default_value_t = 1)]
        jobs: usize,
        /// One in this many programs runs on the processor; 0 for none
        #[arg(long, default_value_t = 64)]
        cpu: u64,
        /// One in this many of these runs in the planner's plan, the others in one that is drawn; 0 for none
        #[arg(long, default_value_t = 8)]
        planner: u64,
        /// One in this many programs is tested over finite fields; 0 for none
        #[arg(long, default_value_t = 16)]
        exact: u64,
        /// Disagreements after which to stop
        #[arg(long, default_value_t = 20)]
        enough: usize,
        /// Disagreements to make small
        #[arg(long, default_value_t = 20)]
        shrink: usize,
        /// A folder for counter-examples
        #[arg(long)]
        keep: Option<PathBuf>,
    },
    /// Random text through lexer, parser, checker and printer; what checks is derived and planned.
    Text {
        /// Texts to try
        #[arg(long, default_value_t = 100_000)]
        count: u64,
        /// The first text's seed
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// Threads
        #[arg(long, default_value_t = 1)]
        jobs: usize,
        /// The folder of programs to damage
        #[arg(long, default_value = "cascades")]
        corpus: PathBuf,
        /// One in this many of the texts that check is derived; 0 for none
        #[arg(long, default_value_t = 4)]
        derive: u64,
        /// Seconds that no stage may take
        #[arg(long, default_value_t = 1.0)]
        slow: f64,
    },
    /// How the time to parse grows with the length of a text.
    Scale,
    /// How long the programs of a folder take to derive.
    Times {
        /// The folder
        folder: PathBuf,
    },
    /// The program of a seed.
    Show {
        /// The seed
        seed: u64,
    },
    /// A case on its own values, or on random ones if it has none, in the plan that it names.
    Case {
        /// The file
        file: PathBuf,
    },
}

fn main() {
    let machine = einloom_machine::built_in("cpu-generic").expect("built in");
    // A panic is a finding, told with its program.
    match Args::parse().command {
        Command::Programs { count, seed, jobs, cpu, planner, exact, enough, shrink, keep } => {
            std::panic::set_hook(Box::new(|info| eprintln!("{info}")));
            if let Some(Err(error)) = keep.as_deref().map(std::fs::create_dir_all) {
                eprintln!("--keep: {error}");
                std::process::exit(2);
            }
            let (cpu_share, planner_share, exact_share) = (cpu, planner, exact);
            let campaign = Campaign { count, seed, jobs, cpu_share, planner_share, exact_share, enough, shrink };
            let start = Instant::now();
            let told = std::sync::Mutex::new((Instant::now(), 0));
            let tally = campaign.run(&machine, &|tally| {
                let Ok(mut told) = told.lock() else { return };
                for found in &tally.found[told.1..] {
                    tell(found, keep.as_deref());
                }
                told.1 = tally.found.len();
                if told.0.elapsed().as_secs() >= 20 {
                    told.0 = Instant::now();
                    let rate = tally.programs as f64 / start.elapsed().as_secs_f64();
                    eprintln!("{} programs, {rate:.0}/s, {} disagreements", tally.programs, tally.found.len());
                }
            });
            let seconds = start.elapsed().as_secs_f64();
            println!("{tally}\nrate          {:.0} programs/s", tally.programs as f64 / seconds);
            std::process::exit(i32::from(!tally.found.is_empty()));
        }
        Command::Text { count, seed, jobs, corpus, derive, slow } => {
            std::panic::set_hook(Box::new(|_| {}));
            run_text(count, seed, jobs, &corpus, derive, slow);
        }
        Command::Scale => {
            let lengths = [1 << 17, 1 << 18, 1 << 19, 1 << 20];
            for pattern in text::PATTERNS {
                let (seconds, exponent) = text::growth(&pattern, &lengths);
                let seconds: Vec<String> = seconds.iter().map(|s| format!("{:8.2}", s * 1e3)).collect();
                println!("{:<36} {} ms  length^{exponent:.2}", pattern.name, seconds.join(" "));
            }
        }
        Command::Times { folder } => match text::corpus(&folder) {
            Ok(texts) => times(&texts),
            Err(error) => eprintln!("{error}"),
        },
        Command::Show { seed } => {
            let program = generate::program(seed);
            print!("{}", Case { text: program.text, sizes: program.sizes, ..Case::default() }.write());
        }
        Command::Case { file } => {
            let read = std::fs::read_to_string(&file).map_err(|e| e.to_string());
            match read.and_then(|text| Case::read(&text)) {
                Err(error) => eprintln!("{}: {error}", file.display()),
                Ok(case) => {
                    // What panicked is kept without values: any will do.
                    let random = || {
                        let subject = Subject::new(&case.text, &case.sizes).ok()?;
                        Some(subject.examine(&machine, &Effort { plan: case.plan, ..Effort::full() }, 0))
                    };
                    match shrink::examine(&case, &machine, true).or_else(random) {
                        None => eprintln!("{}: no program, or sizes that do not fit", file.display()),
                        Some(report) => println!("{report:#?}"),
                    }
                }
            }
        }
    }
}

fn tell(found: &Counterexample, keep: Option<&std::path::Path>) {
    println!("seed {}: {}\n{}", found.seed, found.told, found.case.write());
    if let Some(folder) = keep {
        let path = folder.join(format!("seed_{}.ein", found.seed));
        if let Err(error) = std::fs::write(&path, found.case.write()) {
            eprintln!("{}: {error}", path.display());
        }
    }
}

/// Prints the milliseconds that each derivation takes, the slowest first: the fastest of five, without the printing of
/// an explanation.
fn times(texts: &[String]) {
    let mut times: Vec<(f64, String, usize)> = vec![];
    for text in texts {
        let cascade = einloom_cascade::parse(text).cascade;
        let once = || {
            let start = Instant::now();
            std::hint::black_box(einloom_algebra::derive(&cascade));
            start.elapsed().as_secs_f64()
        };
        let seconds = (0..5).map(|_| once()).fold(f64::INFINITY, f64::min);
        times.push((seconds, cascade.name.clone(), cascade.statements.len()));
    }
    times.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (seconds, name, statements) in times {
        println!("{name:<32} {statements:3} statements {:9.3} ms", seconds * 1e3);
    }
}

/// Texts; a text that takes longer than this many seconds hangs, and ends the program.
const HANGS: u64 = 30;

fn run_text(count: u64, seed: u64, jobs: usize, corpus: &std::path::Path, derive: u64, slow: f64) {
    let machine = einloom_machine::built_in("cpu-generic").expect("built in");
    let corpus = match text::corpus(corpus) {
        Ok(corpus) if !corpus.is_empty() => corpus,
        Ok(_) => {
            eprintln!("no programs in {}", corpus.display());
            std::process::exit(2);
        }
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(2);
        }
    };
    let campaign = text::Campaign { count, seed, jobs, corpus: &corpus, derive_share: derive, slow };
    let watch: Vec<text::Watch> = (0..jobs.max(1)).map(|_| Default::default()).collect();
    let start = Instant::now();
    let told = std::sync::Mutex::new((Instant::now(), 0));
    let (done, finished) = std::sync::mpsc::channel::<()>();
    let tally = std::thread::scope(|scope| {
        scope.spawn(|| {
            let finished = finished;
            let second = std::time::Duration::from_secs(1);
            // Seconds that this thread saw pass with the same text: those in which all of us stood still do not count.
            let mut seen = vec![(None, 0); watch.len()];
            while finished.recv_timeout(second) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                for (state, seen) in watch.iter().zip(&mut seen) {
                    let state = state.lock().map(|s| *s).unwrap_or_default();
                    *seen = if state.is_some() && seen.0 == state { (state, seen.1 + 1) } else { (state, 0) };
                    if let (Some((_, seed)), HANGS..) = *seen {
                        println!("seed {seed} hangs for {} s\n{}", seen.1, text::text(seed, &corpus));
                        std::process::exit(1);
                    }
                }
            }
        });
        let tally = campaign.run(&machine, &watch, &|tally| {
            let Ok(mut told) = told.lock() else { return };
            for found in &tally.findings[told.1..] {
                println!("seed {}: {}\n{}\n", found.seed, found.what, found.text);
            }
            told.1 = tally.findings.len();
            if told.0.elapsed().as_secs() >= 20 {
                told.0 = Instant::now();
                let rate = tally.texts as f64 / start.elapsed().as_secs_f64();
                eprintln!("{} texts, {rate:.0}/s, {} findings", tally.texts, tally.findings.len());
            }
        });
        drop(done);
        tally
    });
    println!("{tally}\nrate          {:.0} texts/s", tally.texts as f64 / start.elapsed().as_secs_f64());
    std::process::exit(i32::from(!tally.findings.is_empty()));
}
