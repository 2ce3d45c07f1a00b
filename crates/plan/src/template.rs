//! Kernels without tile sizes: one is emitted per *shape* of tiling (which indices are in the grid, streamed, whole or visited
//! one by one); sizes are then only put in, and what was counted for some of them serves for others.

use crate::PlanError;
use crate::build::{Tried, Workshop};
use crate::cone::Cone;
use crate::cuts::{Roles, Style};
use crate::known::Shared;
use crate::problem::Problem;
use crate::products::Products;
use crate::program::program_of;
use crate::tiling::Tiling;
use crate::written::Attempts;
use einloom_algebra::NodeId;
use einloom_cascade::IndexId;
use einloom_model::Counts;
use einloom_tile::{AxisKind, Kernel, Program};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Which indices are cut how, without sizes: the kind and whether tiles have a side along it. First, which index gives way
/// where a tile would have too many axes.
pub(crate) type Shape = (bool, Vec<(IndexId, u8, bool)>);

/// An emitted kernel whose tile sizes are to be put in.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// The kernel in the tiling that it was emitted for.
    pub tried: Tried,
    /// The kernel as a program.
    pub program: Program,
    /// What was counted of it.
    pub counts: Arc<Counts>,
    /// Its number among the kernels that are known, by the matrix unit that it is for.
    numbers: BTreeMap<Option<String>, usize>,
}

/// What determines the kernels of a cone but for their tiles: roots, what is read from memory, what is computed, and how products
/// are multiplied.
type Key = (Vec<NodeId>, BTreeSet<NodeId>, BTreeSet<NodeId>, Products);

/// The kernels that a plan emitted: units, arithmetic lanes and kernels that are looked at again have many of them in common.
#[derive(Debug, Default)]
pub(crate) struct Emitted(BTreeMap<Key, Templates>);

/// The kernels of one cone.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    /// Those that were emitted, or why there is none.
    pub kernels: BTreeMap<Shape, Result<Template, PlanError>>,
    pub attempts: Attempts,
}

impl Template {
    /// As emitted.
    pub(crate) fn kernel(&self) -> &Kernel {
        &self.program.kernels[0]
    }

    /// Puts tile sizes into the program.
    pub(crate) fn put(&mut self, p: &Problem, tiling: &Tiling) {
        self.program.kernels.iter_mut().for_each(|kernel| put_sizes(p, tiling, kernel));
    }

    /// Its number among the kernels that are known, for a matrix unit or none.
    pub(crate) fn number(&mut self, known: &Shared, unit: Option<&str>) -> usize {
        let unit = unit.map(str::to_string);
        match self.numbers.get(&unit) {
            Some(number) => *number,
            None => {
                let number = known.number(&mut self.program, unit.as_deref());
                self.numbers.insert(unit, number);
                number
            }
        }
    }

    /// The kernel in this tiling.
    pub(crate) fn with(&self, p: &Problem, tiling: Tiling) -> Tried {
        let mut tried = self.tried.clone();
        put_sizes(p, &tiling, &mut tried.kernel);
        Tried { tiling, ..tried }
    }
}

impl Workshop<'_> {
    /// What `find` gives with the kernels that were emitted for a cone, to which it adds.
    pub(crate) fn with_templates<T>(&mut self, cone: &Cone, find: impl FnOnce(&mut Self, &mut Templates) -> T) -> T {
        let roots = cone.roots.iter().map(|r| r.0).collect();
        let key: Key = (roots, cone.loads.clone(), cone.computed.clone(), self.products);
        let mut templates = self.emitted.0.remove(&key).unwrap_or_default();
        let found = find(self, &mut templates);
        self.emitted.0.insert(key, templates);
        found
    }

    /// The shape of a style, and the kernel emitted for it: now, if it is the first of its shape. With some tiles given, by the
    /// names of their indices.
    pub(crate) fn template<'t>(
        &mut self,
        templates: &'t mut Templates,
        cone: &Cone,
        roles: &Roles,
        style: &Style,
        tiles: &BTreeMap<String, usize>,
        name: &str,
    ) -> (Tiling, &'t mut Result<Template, PlanError>) {
        let wished = roles.tiling(self.p, style, &Default::default(), tiles);
        self.template_of(templates, cone, roles, (style, tiles, wished), name)
    }

    /// The same of a style whose tiling is known.
    pub(crate) fn template_of<'t>(
        &mut self,
        templates: &'t mut Templates,
        cone: &Cone,
        roles: &Roles,
        (style, tiles, wished): (&Style, &BTreeMap<String, usize>, Tiling),
        name: &str,
    ) -> (Tiling, &'t mut Result<Template, PlanError>) {
        let shape = shape(style.parallel_first, &wished);
        let Templates { kernels, attempts } = templates;
        let template = kernels.entry(shape).or_insert_with(|| {
            self.emit_knowing(cone, roles, (style, tiles), name, attempts).map(|tried| {
                let program = program_of(self.p, self.x, self.types, vec![tried.kernel.clone()]);
                Template { tried, program, counts: Arc::default(), numbers: BTreeMap::new() }
            })
        });
        match template {
            Ok(t) if !t.tried.demoted.is_empty() => (roles.tiling(self.p, style, &t.tried.demoted, tiles), template),
            _ => (wished, template),
        }
    }
}

/// Tile sizes into a kernel that was emitted for a tiling of the same shape.
pub(crate) fn put_sizes(p: &Problem, tiling: &Tiling, kernel: &mut Kernel) {
    for (&index, cut) in &tiling.cuts {
        let own = kernel.axes.iter_mut().filter(|a| a.name == p[index].name);
        own.for_each(|a| a.tile = cut.tile.max(1));
    }
}

pub(crate) fn kind(kind: AxisKind) -> u8 {
    match kind {
        AxisKind::Grid => 0,
        AxisKind::Stream => 1,
        AxisKind::Whole => 2,
    }
}

pub(crate) fn shape(parallel_first: bool, tiling: &Tiling) -> Shape {
    (parallel_first, tiling.cuts.iter().map(|(&i, c)| (i, kind(c.kind), tiling.tiled(i))).collect())
}
