//! The simulator issues waves; here every single element acts on its own. Small arrays are run cycle by cycle: an element
//! starts its next step when its operands are there: from the neighbour above or to the left one hop after that one has
//! started, from its own registers, or at the edge from another array, the buffer or DRAM. Nothing here knows of frames or
//! latencies between arrays. Each element must start each step in the cycle in which the simulator's wave reaches it.

#![allow(clippy::disallowed_methods)] // Studies are read from files.

use einloom_algebra::NodeId;
use einloom_cascade::RankId;
use einloom_machine::BytesPerSecond;
use einloom_spatial::{Binding, Configuration, Options, Setting, Simulated, Study, Wave, simulate};
use std::collections::{BTreeMap, BTreeSet, HashMap};

fn configuration(name: &str, rows: usize, columns: usize) -> Configuration {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/");
    let mut read = |name: &str| std::fs::read_to_string(format!("{root}{name}")).map_err(|e| e.to_string());
    let text = read("fusemax.toml").unwrap();
    let study = Study::parse("fusemax.toml", &text, &mut read).unwrap();
    let mut c = study.configuration(name).unwrap().clone();
    // DRAM that delivers everything in the first cycle: what is compared is the arrays.
    c.chip.dram.bandwidth = BytesPerSecond(1e24);
    c.chip.timing.dram = 0;
    for array in &mut c.chip.arrays {
        array.columns = columns;
        if array.rows > 1 {
            array.rows = rows;
        }
        array.element.registers = None;
    }
    c
}

fn run(c: &Configuration, binding: &Binding, sizes: &BTreeMap<String, usize>, options: &Options) -> Simulated {
    let faults = BTreeSet::new();
    let setting = Setting { program: &c.program, chip: &c.chip, binding, sizes, instances: 1.0, faults: &faults };
    match simulate(&setting, options, None, &mut |_| {}) {
        Ok(run) => run,
        Err(problems) => panic!("{}", problems.iter().map(|p| format!("{p}\n")).collect::<String>()),
    }
}

/// What a step needs from where.
struct Operand {
    /// The part that makes it; `None` for DRAM.
    from: Option<usize>,
    /// Tiles that it was made earlier.
    earlier: usize,
    /// It takes the way through the buffer.
    buffered: bool,
    /// It has as many words in an element as the reader has steps.
    by_step: bool,
    has_rows: bool,
    has_columns: bool,
}

struct Grid<'a> {
    c: &'a Configuration,
    run: &'a Simulated,
    /// Of [`einloom_spatial::KernelRun::einsums`]: index of the array.
    array_of: Vec<usize>,
    operands: Vec<Vec<Operand>>,
    reduces_rows: Vec<bool>,
    /// By array: waves in the order of their issue, with the number of the step.
    waves: Vec<Vec<(Wave, usize)>>,
    place: HashMap<(usize, usize, usize), usize>,
    /// By array, wave and element: the cycle of its start.
    starts: Vec<Vec<Vec<Option<u64>>>>,
    steps: Vec<usize>,
}

impl<'a> Grid<'a> {
    fn new(c: &'a Configuration, binding: &Binding, run: &'a Simulated, tiles_of_p: usize) -> Self {
        let program = &c.program;
        let kernel = &run.kernels[0];
        let rank = |name: &str| program.graph.cascade.rank(name).unwrap();
        let side = |name: &Option<String>| name.as_ref().map(|n| rank(n));
        let arrays: Vec<&str> = c.chip.arrays.iter().map(|a| a.name.as_str()).collect();
        let node = |k: usize| program.node(&kernel.einsums[k].name).unwrap();
        let part_of = |n: NodeId| (0..kernel.einsums.len()).find(|&k| node(k) == n);
        let array_of: Vec<usize> =
            kernel.einsums.iter().map(|e| arrays.iter().position(|a| *a == e.array).unwrap()).collect();
        let mut waves = vec![];
        let mut place = HashMap::new();
        let mut steps = vec![0; kernel.einsums.len()];
        for (a, array) in kernel.arrays.iter().enumerate() {
            let mut done: HashMap<(usize, usize), usize> = HashMap::new();
            let mut list = vec![];
            for wave in &array.trace {
                let step = done.entry((wave.part, wave.tile)).or_default();
                place.insert((wave.part, wave.tile, *step), list.len());
                list.push((*wave, *step));
                *step += 1;
                steps[wave.part] = steps[wave.part].max(*step);
            }
            assert_eq!(a, waves.len());
            waves.push(list);
        }
        let mut operands = vec![];
        let mut reduces_rows = vec![];
        for (k, &own_steps) in steps.iter().enumerate() {
            let space = &binding.space[&kernel.einsums[k].array];
            let (rows, columns) = (side(&space.rows), side(&space.columns));
            let dims = program.dims(node(k));
            let has = |r: Option<RankId>, dims: &[RankId]| r.is_some_and(|r| dims.contains(&r));
            let einsum = program.einsum(&kernel.einsums[k].name).unwrap();
            reduces_rows.push(has(rows, &einsum.ranks) && !has(rows, &dims));
            let mut list = vec![];
            for operand in program.graph.operands(node(k)) {
                let dims = program.dims(operand.node);
                let from = part_of(operand.node);
                // A slice of a recurrence: that before the step is made by the tile before along the recurrence.
                let before = from.is_some_and(|f| {
                    let iterated = matches!(program.graph[node(f)].def, einloom_algebra::Def::Iterative { .. });
                    let m1 = dims.iter().position(|r| *r == rank("M1"));
                    iterated && m1.is_some_and(|d| operand.at[d].as_var().is_some())
                });
                list.push(Operand {
                    from,
                    earlier: if before { tiles_of_p } else { 0 },
                    buffered: before || binding.kernels[0].through.contains(&program.graph[operand.node].name),
                    by_step: dims.contains(&rank("F")) || (from.is_none() && own_steps > 1),
                    has_rows: has(rows, &dims),
                    has_columns: has(columns, &dims),
                });
            }
            operands.push(list);
        }
        let elements = |a: usize| c.chip.arrays[a].elements();
        let starts = waves.iter().enumerate().map(|(a, w)| vec![vec![None; elements(a)]; w.len()]).collect();
        Self { c, run, array_of, operands, reduces_rows, waves, place, starts, steps }
    }

    fn start(&self, part: usize, tile: usize, step: usize, row: usize, column: usize) -> Option<u64> {
        let a = self.array_of[part];
        let wave = *self.place.get(&(part, tile, step))?;
        self.starts[a][wave][row * self.c.chip.arrays[a].columns + column]
    }

    /// When a word of a column has left the array that makes it, on the way to another edge.
    fn left(&self, part: usize, tile: usize, word: usize, column: usize) -> Option<u64> {
        let a = self.array_of[part];
        let rows = self.c.chip.arrays[a].rows;
        let step = self.word_step(part, word);
        let start = self.start(part, tile, step, rows - 1, column)?;
        let cycles = self.waves[a][self.place[&(part, tile, step)]].0.cycles;
        let hop = if rows > 1 { self.c.chip.timing.hop } else { self.c.chip.timing.link };
        Some(start + cycles + hop)
    }

    /// The step that completes a word.
    fn word_step(&self, part: usize, word: usize) -> usize {
        let f = self.c.program.graph.cascade.rank("F").unwrap();
        let dims = self.c.program.dims(self.c.program.node(&self.run.kernels[0].einsums[part].name).unwrap());
        if dims.contains(&f) { word } else { self.steps[part] - 1 }
    }

    /// Whether an element's operands for a wave are there in a cycle.
    fn is_ready(&self, a: usize, w: usize, row: usize, column: usize, now: u64) -> bool {
        let (wave, step) = self.waves[a][w];
        let (part, tile) = (wave.part, wave.tile);
        let timing = &self.c.chip.timing;
        let there = |time: Option<u64>| time.is_some_and(|t| t <= now);
        let above = || there(self.start(part, tile, step, row - 1, column).map(|t| t + timing.hop));
        let beside = || there(self.start(part, tile, step, row, column - 1).map(|t| t + timing.hop));
        let multi_row = self.c.chip.arrays[a].rows > 1;
        if self.reduces_rows[part] && row > 0 && !above() {
            return false;
        }
        self.operands[part].iter().all(|o| {
            let word = if o.by_step { step } else { 0 };
            let passes_down = multi_row && !o.has_rows;
            let passes_right = !o.has_columns;
            if passes_down && row > 0 {
                return above();
            }
            if passes_right && column > 0 {
                return beside();
            }
            let Some(from) = o.from else { return now > timing.buffer };
            let Some(made) = tile.checked_sub(o.earlier) else { return true };
            if o.buffered {
                // Such as running values.
                return there(self.left(from, made, word, column).map(|t| t + 2 * timing.buffer));
            }
            if self.array_of[from] == a && (o.has_rows || !multi_row) {
                let last = self.word_step(from, word);
                let Some(start) = self.start(from, made, last, row, column) else { return false };
                return there(Some(start + self.waves[a][self.place[&(from, made, last)]].0.cycles));
            }
            there(self.left(from, made, word, column))
        })
    }

    /// Runs until every element has done every wave; gives the cycle in which the last one is done.
    fn play(&mut self) -> u64 {
        let arrays = self.waves.len();
        let mut next: Vec<Vec<usize>> = (0..arrays).map(|a| vec![0; self.c.chip.arrays[a].elements()]).collect();
        let mut free: Vec<Vec<u64>> = next.iter().map(|n| vec![0; n.len()]).collect();
        let mut end = 0;
        let mut idle = 0;
        let mut now = 0;
        while (0..arrays).any(|a| next[a].iter().any(|&n| n < self.waves[a].len())) {
            let mut moved = false;
            for a in 0..arrays {
                let columns = self.c.chip.arrays[a].columns;
                for e in 0..next[a].len() {
                    while next[a][e] < self.waves[a].len()
                        && free[a][e] <= now
                        && self.is_ready(a, next[a][e], e / columns, e % columns, now)
                    {
                        let w = next[a][e];
                        self.starts[a][w][e] = Some(now);
                        free[a][e] = now + self.waves[a][w].0.cycles;
                        end = end.max(free[a][e]);
                        next[a][e] += 1;
                        moved = true;
                    }
                }
            }
            idle = if moved { 0 } else { idle + 1 };
            assert!(idle < 10_000, "the elements wait for ever in cycle {now}");
            now += 1;
        }
        end
    }
}

fn compare(name: &str, rows: usize, columns: usize, sizes: &[(&str, usize)], in_turn: bool) {
    let mut c = configuration(name, rows, columns);
    for phase in &mut c.binding.kernels[0].phases {
        phase.in_turn = in_turn;
    }
    let sizes: BTreeMap<String, usize> = sizes.iter().map(|(n, s)| ((*n).to_owned(), *s)).collect();
    let options = Options { trace: true, free: true, ..Options::default() };
    let run = run(&c, &c.binding, &sizes, &options);
    let mut grid = Grid::new(&c, &c.binding, &run, sizes["P"].div_ceil(columns));
    let end = grid.play();
    let hop = c.chip.timing.hop;
    for (a, array) in run.kernels[0].arrays.iter().enumerate() {
        let of = &c.chip.arrays[a];
        for (w, (wave, step)) in grid.waves[a].iter().enumerate() {
            for e in 0..of.elements() {
                let skew = (e / of.columns + e % of.columns) as u64 * hop;
                let expected = (wave.at + array.offset) as u64 + skew;
                assert_eq!(
                    grid.starts[a][w][e],
                    Some(expected),
                    "{name} {rows}x{columns} {sizes:?}: {} step {step} of tile {} at element {e} of {}",
                    run.kernels[0].einsums[wave.part].name,
                    wave.tile,
                    of.name
                );
            }
        }
    }
    assert_eq!(end, run.kernels[0].arrays.iter().zip(&c.chip.arrays).map(|(r, a)| last(r, a, hop)).max().unwrap());
}

/// The cycle in which an array's last element is done.
fn last(run: &einloom_spatial::ArrayRun, array: &einloom_spatial::Array, hop: u64) -> u64 {
    let end = run.trace.iter().map(|w| w.at + w.cycles as i64).max().unwrap();
    (end + run.offset) as u64 + (array.rows + array.columns - 2) as u64 * hop
}

#[test]
fn every_element_of_small_arrays_starts_every_step_when_the_wave_says() {
    for name in ["architecture", "binding"] {
        for (rows, columns) in [(2, 2), (2, 5), (4, 3), (7, 2), (8, 8)] {
            for (e, f) in [(1, 1), (3, 5), (6, 2), (9, 9)] {
                for (parts, tiles) in [(1, 1), (2, 1), (3, 2), (2, 3)] {
                    let sizes = [("M", parts * rows), ("P", tiles * columns), ("E", e), ("F", f)];
                    compare(name, rows, columns, &sizes, false);
                }
            }
        }
    }
}

#[test]
fn so_they_do_when_einsums_take_turns() {
    for (rows, columns) in [(2, 2), (4, 3), (7, 2)] {
        for (e, f) in [(3, 5), (6, 2)] {
            compare("binding", rows, columns, &[("M", 3 * rows), ("P", 2 * columns), ("E", e), ("F", f)], true);
        }
    }
}
