//! Names in the emitted source: those of the program, made unique and legal.

use einloom_tile::{AxisId, Kernel, Program, TensorId, ValueId};
use std::collections::BTreeSet;

/// Identifiers of one kernel.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// The kernel function.
    pub kernel: String,
    axes: Vec<String>,
    values: Vec<String>,
    tensors: Vec<String>,
}

/// Words that mean something else in the emitted source: C++'s that are likely names, and what the emitter itself calls so. The preludes'
/// functions are taken besides.
const TAKEN: &[&str] = &[
    "alignas",
    "and",
    "asm",
    "auto",
    "bool",
    "break",
    "case",
    "catch",
    "char",
    "class",
    "const",
    "continue",
    "default",
    "delete",
    "do",
    "double",
    "else",
    "enum",
    "explicit",
    "export",
    "extern",
    "false",
    "float",
    "for",
    "friend",
    "goto",
    "if",
    "inline",
    "int",
    "long",
    "mutable",
    "namespace",
    "new",
    "not",
    "operator",
    "or",
    "private",
    "protected",
    "public",
    "register",
    "return",
    "short",
    "signed",
    "sizeof",
    "static",
    "struct",
    "switch",
    "template",
    "this",
    "throw",
    "true",
    "try",
    "typedef",
    "typename",
    "union",
    "unsigned",
    "using",
    "virtual",
    "void",
    "volatile",
    "while",
    "xor",
    "compl",
    "bitand",
    "bitor",
    "u8",
    "u16",
    "u32",
    "u64",
    "i64",
    "Status",
    "Bool",
    "Pack",
    "F64",
    "F32",
    "TF32",
    "BF16",
    "F16",
    "E4M3",
    "E5M2",
    "I32",
    "I16",
    "I8",
    "I4",
    "U8",
    "U4",
    "B1",
    "DEVICE",
    "Integer",
    "inf",
    "place",
    "report",
    "exp",
    "log",
    "exp2",
    "log2",
    "sqrt",
    "rsqrt",
    "tanh",
    "erf",
    "sin",
    "cos",
    "floor",
    "round",
    "abs",
    "pow",
    "power",
    "min",
    "max",
    "i",
    "j",
    "k",
    "shared",
    "status",
    "thread",
    "point",
    "scratch",
    "x",
    "sum",
    "ahead",
    "own",
    "low",
    "high",
    "pair",
    "pack",
    "from",
    "to",
    "into",
    "start",
    "y",
    "some",
    "product",
    "part",
    "turn",
    "full",
    "signbit",
    "y0",
    "y1",
    "j0",
    "j1",
    "jn",
    "yn",
    "max_int",
    "min_int",
    "floor_div",
    "to_odd",
    "warp",
    "lane",
    "left",
    "right",
    "e",
    "row",
    "column",
    "stage",
    "printf",
    "malloc",
    "free",
    "clock",
    "div",
    "memcpy",
    "memset",
    "assert",
    "main",
    "threadIdx",
    "blockIdx",
    "gridDim",
    "blockDim",
    "warpSize",
    "NULL",
    "norm",
    "rint",
    "gamma",
];

/// Endings of names that the emitter makes from others.
const DERIVED: &[&str] = &[
    "_base", "_len", "_at", "_full", "_stage", "_begin", "_end", "_fetch", "_chunk", "_in", "_next", "_ahead",
    "_reach", "_kind", "_other", "_from", "_test", "_held", "_first", "_many",
];

impl Names {
    /// The names of a kernel, the `number`th of its program.
    pub fn new(program: &Program, kernel: &Kernel, number: usize) -> Self {
        let preludes = [super::PTX, super::PRELUDE, super::hopper::PTX, super::hopper::CLUSTER];
        let mut taken: BTreeSet<String> = TAKEN.iter().map(|s| s.to_string()).collect();
        taken.extend(preludes.into_iter().flat_map(functions).map(str::to_string));
        let tensors = program.tensors.iter().map(|t| unique(&t.name, "tensor", &mut taken)).collect();
        let values = kernel.values.iter().map(|v| unique(&v.name, "tile", &mut taken)).collect();
        let axes = kernel.axes.iter().map(|a| unique(&a.name, "axis", &mut taken)).collect();
        let kernel = format!("{}_{number}", legal(&kernel.name, "kernel"));
        Self { kernel, axes, values, tensors }
    }

    /// The axis; its window is `…_base` and `…_len`.
    pub fn axis(&self, id: AxisId) -> &str {
        &self.axes[id.at()]
    }

    /// The tile.
    pub fn value(&self, id: ValueId) -> &str {
        &self.values[id.at()]
    }

    /// The tensor's pointer.
    pub fn tensor(&self, id: TensorId) -> &str {
        &self.tensors[id.at()]
    }
}

/// The functions that a prelude defines.
fn functions(prelude: &str) -> impl Iterator<Item = &str> {
    let heads = prelude.lines().filter_map(|line| line.trim_start().strip_prefix("DEVICE ")?.split_once('('));
    heads.filter_map(|(head, _)| head.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next())
}

fn legal(name: &str, otherwise: &str) -> String {
    let mut out: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    // Double underscores and a leading underscore belong to the compiler.
    while out.contains("__") {
        out = out.replace("__", "_");
    }
    let out = out.trim_matches('_');
    match out.chars().next() {
        None => otherwise.to_string(),
        Some(c) if c.is_ascii_digit() => format!("{otherwise}_{out}"),
        Some(_) => out.to_string(),
    }
}

fn unique(name: &str, otherwise: &str, taken: &mut BTreeSet<String>) -> String {
    let base = legal(name, otherwise);
    let derived = DERIVED.iter().any(|s| base.trim_end_matches(|c: char| c.is_ascii_digit()).ends_with(s));
    let mut candidate = if derived || taken.contains(&base) { format!("{base}_1") } else { base.clone() };
    let mut n = 2;
    while !taken.insert(candidate.clone()) {
        candidate = format!("{base}_{n}");
        n += 1;
    }
    candidate
}

#[cfg(test)]
mod tests {
    use super::super::{PRELUDE, PTX, hopper};
    use super::functions;
    use std::collections::BTreeSet;

    #[test]
    fn functions_of_preludes_are_found() {
        let all: BTreeSet<&str> = [PTX, PRELUDE, hopper::PTX].into_iter().flat_map(functions).collect();
        for name in ["forget", "from_f16", "floor_div", "barrier_wait"] {
            assert!(all.contains(name), "{name}: {all:?}");
        }
    }
}
