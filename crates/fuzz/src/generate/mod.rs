//! Random well-typed cascades, deterministic by seed: families of programs whose derivations are known to be hard, with
//! random variations, mixed with arbitrary statements.

mod anchored;
mod chain;
mod condition;
mod coupled;
mod expression;
mod moments;
mod prefix;
mod recurrence;
mod scope;
mod scored;
mod split;
mod three;

use einloom::random::Random;
use scope::{Ix, Known, OUTER, RANKS, Tensor};
use std::collections::BTreeMap;

/// A random program and sizes for its ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// Its text.
    pub text: String,
    /// Sizes by rank name.
    pub sizes: BTreeMap<String, usize>,
}

/// The random program of a seed.
///
/// ```
/// let program = einloom_fuzz::generate::program(1);
/// assert_eq!(program, einloom_fuzz::generate::program(1));
/// ```
pub fn program(seed: u64) -> Program {
    let mut writer = Writer::new(seed);
    writer.declare();
    let target = 1 + writer.roll(6);
    while writer.statements.len() < target {
        match writer.roll(28) {
            0..=5 => writer.anchored(),
            6..=8 => writer.moments(),
            9..=11 => writer.chain(),
            12 | 24 => writer.three(),
            13 => writer.recurrence(),
            14 => writer.prefix(),
            15 => writer.outer(),
            16 => writer.again(),
            17 => writer.split(),
            18 => writer.shifted(),
            19 => writer.gathers(),
            20 | 21 => writer.scored(),
            22 => writer.semiring(),
            23 => writer.coupled(),
            _ => writer.anything(),
        }
    }
    writer.finish()
}

/// A program under way.
struct Writer {
    random: Random,
    /// Inputs and what statements define, in order.
    tensors: Vec<Tensor>,
    /// The statements' lines; a recurrence takes two.
    statements: Vec<String>,
    /// Whether some expressions may leave the numbers: divide by anything, take logarithms of anything.
    wild: bool,
    /// Declarations of parameters, ops and monoids.
    head: String,
    sizes: BTreeMap<String, usize>,
    /// Ranks beyond those of every program that this one declares.
    extra: Vec<usize>,
}

impl Writer {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, "program");
        let wild = random.unit() < 0.15;
        Self {
            random,
            tensors: vec![],
            statements: vec![],
            wild,
            head: String::new(),
            sizes: BTreeMap::new(),
            extra: vec![],
        }
    }

    /// A number below `sides`.
    fn roll(&mut self, sides: usize) -> usize {
        self.random.integer(0, sides as i64 - 1) as usize
    }

    fn chance(&mut self, probability: f64) -> bool {
        self.random.unit() < probability
    }

    /// Sizes, inputs, parameters, ops and monoids.
    fn declare(&mut self) {
        for rank in &RANKS[..OUTER] {
            let size = if self.chance(0.02) { 0 } else { self.random.pick(&[1, 2, 2, 3, 3, 4, 5, 7]) };
            self.sizes.insert(rank.name.to_owned(), size);
        }
        if self.chance(0.2) {
            self.head += "op mix(u, v) = u * (1 - tanh(v))\n";
            self.head += "monoid join(u, v) = max(u, v) identity -inf\n";
            self.head += "monoid both(u, v) = u + v + u * v identity 0\n";
            self.head += "monoid lse(u, v) = max(u, v) + log1p(exp(-abs(u - v))) identity -1e30\n";
            self.head += "monoid length(u, v) = sqrt(u^2 + v^2) identity 0\n";
        }
        if self.chance(0.1) {
            self.head += "param alpha = 0.75\n";
        }
        let count = 2 + self.roll(3);
        for k in 0..count {
            let mut ranks: Vec<usize> = (0..3).filter(|_| self.chance(0.6)).collect();
            if ranks.is_empty() && self.chance(0.8) {
                ranks.push(self.roll(3));
            }
            if !ranks.is_empty() && self.chance(0.05) {
                ranks.push(self.random.pick(&ranks.clone()));
            }
            let (dtype, known) = match self.roll(24) {
                0..=15 => ("f32", Known::Real),
                16 => ("f64", Known::Real),
                17 => ("bf16", Known::Real),
                18 => ("f16", Known::Real),
                19 => ("e4m3", Known::Real),
                20 => ("i32", Known::Real),
                21 => (self.random.pick(&["i8", "u8", "i16", "i4", "u4"]), Known::Real),
                22 => ("b1", Known::Truth),
                _ => ("i32", Known::Positions(self.roll(3))),
            };
            self.tensors.push(Tensor { name: format!("X{k}"), ranks, known, is_input: true, dtype: Some(dtype) });
        }
    }

    /// Declares a rank that not every program has, with a size of its own or by that of others.
    fn declare_rank(&mut self, rank: usize, size: &str) {
        if self.extra.contains(&rank) {
            return;
        }
        self.extra.push(rank);
        match size {
            "" => {
                let size = self.random.pick(&[1, 1, 2, 2, 3, 4]);
                self.sizes.insert(RANKS[rank].name.to_owned(), size);
            }
            size => self.head += &format!("rank {size}\n"),
        }
    }

    /// Defines a new tensor over `free` and returns its name.
    fn define(&mut self, free: &[Ix], value: &str, known: Known) -> String {
        let name = format!("Y{}", self.tensors.len());
        let dtype = match (known, self.roll(40)) {
            (Known::Positions(_), _) => Some("i32"),
            (_, 0) => Some("bf16"),
            (_, 1) => Some("f16"),
            (_, 2) => Some("f64"),
            _ => None,
        };
        let annotation = dtype.map(|d| format!(": {d}")).unwrap_or_default();
        self.statements.push(format!("{name}{}{annotation} = {value}", scope::brackets(free)));
        let ranks = free.iter().map(|i| i.rank).collect();
        self.tensors.push(Tensor { name: name.clone(), ranks, known, is_input: false, dtype });
        name
    }

    /// A statement of any form.
    fn anything(&mut self) {
        let free = self.free();
        if self.chance(0.1) {
            // A position, which later statements may gather through.
            let over = self.bind_index(&free);
            let inside = scope::with(&free, over);
            let body = self.real(&inside, 1);
            let monoid = self.random.pick(&["argmax", "argmin"]);
            let filter = self.filter(&inside, over);
            self.define(&free, &format!("{monoid}({}{filter}) ({body})", over.name()), Known::Positions(over.rank));
            return;
        }
        let depth = 1 + self.roll(3);
        let value = self.real(&free, depth);
        self.define(&free, &value, Known::Real);
    }

    /// An earlier statement again, so that reductions are shared, perhaps as a factor of something else.
    fn again(&mut self) {
        let made: Vec<usize> = (0..self.tensors.len()).filter(|&k| !self.tensors[k].is_input).collect();
        if made.is_empty() {
            return self.chain();
        }
        let earlier = made[self.roll(made.len())];
        let name = format!("{}[", self.tensors[earlier].name);
        let plain = format!("{} =", self.tensors[earlier].name);
        let Some(line) = self.statements.iter().find(|l| l.starts_with(&name) || l.starts_with(&plain)).cloned() else {
            return self.chain();
        };
        let Some((_, value)) = line.split_once(" = ") else { return self.chain() };
        let (ranks, known) = (self.tensors[earlier].ranks.clone(), self.tensors[earlier].known);
        // The same index names, so that the text means the same.
        let Some(free) = scope::parse_brackets(&line) else { return self.chain() };
        if free.len() != ranks.len() || known != Known::Real {
            return self.chain();
        }
        let value = if self.chance(0.4) {
            let other = self.element(&free, None);
            format!("({value}) * {other}")
        } else {
            value.to_owned()
        };
        self.define(&free, &value, Known::Real);
    }

    fn finish(mut self) -> Program {
        let mut text = self.head.clone();
        let declared = (0..RANKS.len()).filter(|r| *r < OUTER || self.extra.contains(r));
        for rank in declared.map(|r| &RANKS[r]) {
            text += &format!("index {} in {}\n", rank.indices.join(", "), rank.name);
        }
        let inputs: Vec<String> = self
            .tensors
            .iter()
            .filter(|t| t.is_input)
            .map(|t| {
                let dims: Vec<Ix> = t.ranks.iter().map(|&rank| Ix { rank, which: 0 }).collect();
                format!("{}{}: {}", t.name, scope::brackets(&dims), t.dtype.unwrap_or("f32"))
            })
            .collect();
        text += &format!("input {}\n", inputs.join(", "));
        let made: Vec<usize> = (0..self.tensors.len()).filter(|&k| !self.tensors[k].is_input).collect();
        let last = made.last().copied();
        let outputs: Vec<String> = made
            .into_iter()
            .filter(|&k| Some(k) == last || self.random.unit() < 0.3)
            .map(|k| format!("{}: {}", self.tensors[k].name, self.tensors[k].dtype.unwrap_or("f32")))
            .collect();
        text += &format!("output {}\n", outputs.join(", "));
        text += &self.statements.join("\n");
        text.push('\n');
        Program { text, sizes: self.sizes }
    }
}
