//! `K`: operations, by what does them and on which number types.

use super::diagram::{Diagram, Kernel, NoFormula};
use super::{Partition, Poly};
use einloom_algebra::{Def, NodeId, Reduction, Term};
use einloom_cascade::{BinaryOp, DType, IndexId, Monoid, UnaryOp};
use einloom_machine::Work;
use std::collections::BTreeSet;

/// Operations of one kind in one box.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkItem {
    /// The box's array.
    pub wire: String,
    /// Who does it.
    pub work: Work,
    /// On this number type: of two factors, the narrower.
    pub dtype: DType,
    /// How many, a multiply-add being two.
    pub count: Poly,
}

/// All operations of a diagram.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operations {
    /// Box by box.
    pub items: Vec<WorkItem>,
}

impl Operations {
    /// All of one kind, whatever the number types.
    pub fn total(&self, work: Work) -> Poly {
        let own = self.items.iter().filter(|i| i.work == work);
        own.fold(Poly::default(), |sum, i| sum.plus(&i.count))
    }

    /// Those of one box.
    pub fn of(&self, wire: &str, work: Work) -> Poly {
        let own = self.items.iter().filter(|i| i.work == work && i.wire == wire);
        own.fold(Poly::default(), |sum, i| sum.plus(&i.count))
    }
}

impl Diagram {
    /// Products of contractions, special functions, and what merges batches into what is accumulated. A function
    /// that several boxes apply to the same values counts once.
    ///
    /// # Errors
    /// A partition that names an axis which the diagram lacks.
    pub fn work(&self, partition: &Partition) -> Result<Operations, NoFormula> {
        self.check(partition)?;
        let mut out = Operations::default();
        for kernel in &self.kernels {
            let mut k = Tally { d: self, partition, seen: vec![], out: &mut out };
            k.kernel(kernel);
        }
        Ok(out)
    }
}

struct Tally<'a> {
    d: &'a Diagram,
    partition: &'a Partition,
    /// Special functions that are counted already.
    seen: Vec<Term>,
    out: &'a mut Operations,
}

impl Tally<'_> {
    fn kernel(&mut self, kernel: &Kernel) {
        for &n in &kernel.nodes {
            let axes: BTreeSet<IndexId> = self.d.graph[n].axes.iter().copied().collect();
            match &self.d.graph[n].def {
                Def::Map(t) => self.special(n, t, &axes),
                Def::Reduce(r) => {
                    let all: BTreeSet<IndexId> = axes.iter().copied().chain(r.over.iter().copied()).collect();
                    self.special(n, &r.body, &all);
                    if let Some(dtype) = self.contracts(r, &all) {
                        let two = Poly::constant(2.0);
                        self.add(n, Work::Products, dtype, self.positions(&all).times(&two));
                    } else {
                        self.add(n, Work::Arithmetic, DType::F32, self.positions(&all));
                    }
                    self.merging(n, r, &axes);
                }
                Def::Input | Def::Iterative { .. } => {}
            }
        }
    }

    /// Each batch moves what is accumulated to the new anchor and adds to it.
    fn merging(&mut self, n: NodeId, r: &Reduction, axes: &BTreeSet<IndexId>) {
        let Some(repair) = &r.streaming.repair else { return };
        let streams = r.over.iter().filter(|&&i| self.partition.depth(self.d.index_name(i)).is_some());
        let batches = streams.fold(Poly::constant(1.0), |product, &i| {
            let size = self.d.rank_size(i);
            let part = self.partition.seen(self.d.index_name(i), &size);
            part.as_monomial().map_or(product.clone(), |(m, _)| product.times(&size.over(m)))
        });
        let per_batch = self.positions(axes).times(&batches);
        self.add(n, Work::Arithmetic, DType::F32, per_batch.times(&Poly::constant(2.0)));
        // The factor may lack some of the axes: it is computed once for all of them.
        let mut own = BTreeSet::new();
        repair.factor.indices(&mut own);
        let own = self.positions(&own).times(&batches);
        for f in self.new_functions(&repair.factor) {
            self.seen.push(f);
            self.add(n, Work::Special, DType::F32, own.clone());
        }
    }

    fn special(&mut self, n: NodeId, t: &Term, axes: &BTreeSet<IndexId>) {
        for f in self.new_functions(t) {
            let mut own = BTreeSet::new();
            f.indices(&mut own);
            own.retain(|i| axes.contains(i));
            self.seen.push(f);
            self.add(n, Work::Special, DType::F32, self.positions(&own));
        }
    }

    fn new_functions(&self, t: &Term) -> Vec<Term> {
        let mut out: Vec<Term> = vec![];
        t.visit(&mut |t| {
            if let Term::Unary(op, x) = t
                && is_special(*op)
                && x.any_read(&|_| true)
                && !self.seen.contains(t)
                && !out.contains(t)
            {
                out.push(t.clone());
            }
        });
        out
    }

    /// The number type of a sum of products of two factors of which each lacks an axis; `None` for other reductions.
    fn contracts(&self, r: &Reduction, all: &BTreeSet<IndexId>) -> Option<DType> {
        if r.monoid != Monoid::Sum {
            return None;
        }
        let mut factors = vec![];
        flatten(&r.body, &mut factors);
        let narrow = |t: &&Term| {
            let mut own = BTreeSet::new();
            t.indices(&mut own);
            let moves = t.any_read(&|_| true) && r.over.iter().any(|i| own.contains(i));
            (moves && !all.is_subset(&own)).then(|| self.dtype(t))
        };
        let types: Vec<DType> = factors.iter().filter_map(narrow).collect();
        // One of the factors may carry all axes, as a batched row times a matrix does.
        let moving = factors.iter().filter(|t| t.any_read(&|_| true) && t.mentions(&r.over)).count();
        (moving >= 2 && !types.is_empty())
            .then(|| factors.iter().filter(|t| t.mentions(&r.over)).map(|t| self.dtype(t)).min_by_key(|d| d.bytes()))
            .flatten()
    }

    /// The narrowest declared number type that a factor reads.
    fn dtype(&self, t: &Term) -> DType {
        let mut out = DType::F32;
        t.visit(&mut |t| {
            if let Term::Read(n, _) = t
                && let Some(own) = self.d.graph[*n].dtype
                && own.bytes() < out.bytes()
            {
                out = own;
            }
        });
        out
    }

    fn positions(&self, axes: &BTreeSet<IndexId>) -> Poly {
        axes.iter().fold(Poly::constant(1.0), |product, &i| product.times(&self.d.rank_size(i)))
    }

    fn add(&mut self, n: NodeId, work: Work, dtype: DType, count: Poly) {
        let wire = self.d.graph[n].name.clone();
        self.out.items.push(WorkItem { wire, work, dtype, count });
    }
}

fn flatten<'a>(t: &'a Term, out: &mut Vec<&'a Term>) {
    match t {
        Term::Binary(BinaryOp::Mul, a, b) => {
            flatten(a, out);
            flatten(b, out);
        }
        other => out.push(other),
    }
}

/// What units for special functions compute.
fn is_special(op: UnaryOp) -> bool {
    use UnaryOp::{Abs, Floor, Neg, Not, Relu, Round, Sign};
    !matches!(op, Neg | Not | Abs | Floor | Round | Sign | Relu)
}
