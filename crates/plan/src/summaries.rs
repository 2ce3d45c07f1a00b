//! Kernels that find the extremes of a tensor's tiles, for guards that need them.
//!
//! A guard that compares elements which differ within a chunk asks for the smallest and the largest of them. They are
//! found once per tile of the tensor, by a small kernel just before the first one that asks, and held in two tensors
//! whose size is that of the tensor over that of the tile.

use crate::PlannedKernel;
use einloom_machine::Machine;
use einloom_model::{counts_what_guards_leave, kernel_transfers};
use einloom_tile::{
    Axis, AxisId, AxisKind, Coord, CoordAtom, Extremes, Guard, Kernel, Op, Program, TensorDecl, TensorId, TensorRole,
    TileMonoid, ValueDecl, ValueId, guard::integers, print_guard,
};
use std::collections::{BTreeMap, BTreeSet};

/// A dimension of a tensor in tiles of so many elements.
type Tiles = (TensorId, usize, usize);

/// Adds the kernels that guards need, and says what guards do.
pub(crate) fn add(program: &mut Program, planned: &mut Vec<PlannedKernel>, machine: &Machine) {
    let mut known: BTreeMap<Tiles, [TensorId; 2]> = BTreeMap::new();
    let mut names: BTreeSet<String> = program.kernels.iter().map(|k| k.name.clone()).collect();
    let mut at = 0;
    while at < program.kernels.len() {
        tell(program, &program.kernels[at], &mut planned[at].notes);
        let mut kernel = program.kernels[at].clone();
        let axes = kernel.axes.clone();
        let mut wanted: Vec<(Tiles, &mut Extremes, usize)> = vec![];
        streams(&mut kernel.body, &mut |e| {
            if let Some((dim, axis)) = moving(&axes, e) {
                let tile = axes[axis.at()].tile.min(axes[axis.at()].extent);
                wanted.push(((e.of, dim, tile), e, dim));
            }
        });
        for (tiles, e, dim) in wanted {
            let [low, high] = match known.get(&tiles) {
                Some(&pair) => pair,
                None => {
                    let pair = declare(program, tiles);
                    let mut summary = summarise(program, tiles, pair);
                    while !names.insert(summary.name.clone()) {
                        summary.name.push('_');
                    }
                    planned.insert(at, describe(program, &summary, tiles, machine));
                    program.kernels.insert(at, summary);
                    at += 1;
                    known.insert(tiles, pair);
                    pair
                }
            };
            (e.low, e.high) = (low, high);
            let numerator = Box::new(e.at[dim].clone());
            e.places[dim] = Coord { terms: vec![(1, CoordAtom::Floor(numerator, tiles.2 as i64))], offset: 0 };
        }
        program.kernels[at] = kernel;
        at += 1;
    }
}

/// What the plan says of a kernel's guards.
fn tell(program: &Program, kernel: &Kernel, notes: &mut Vec<String>) {
    let mut told = BTreeSet::new();
    guards(&kernel.body, &mut |axis, guard| {
        let text = print_guard(program, kernel, guard);
        let n = &kernel.axis(axis).name;
        let (how, work) = match guard.is_static() {
            true if counts_what_guards_leave(kernel, axis, std::slice::from_ref(guard)) => {
                ("positions alone tell which", "the work is that of the others")
            }
            true => ("positions alone tell which", "they are too many to tell apart, and the work counts them all"),
            false => ("data tells which", "the work counts them all"),
        };
        let note = format!("chunks of {n} in which `{text}` holds nowhere are left out: {how}; {work}");
        if told.insert(note.clone()) {
            notes.push(note);
        }
    });
}

fn guards<'a>(ops: &'a [Op], f: &mut dyn FnMut(AxisId, &'a Guard)) {
    for op in ops {
        if let Op::Stream { axis, guards: own, body, .. } = op {
            own.iter().for_each(|g| f(*axis, g));
            guards(body, f);
        }
    }
}

fn streams<'a>(ops: &'a mut [Op], f: &mut dyn FnMut(&'a mut Extremes)) {
    for op in ops {
        if let Op::Stream { guards, body, .. } = op {
            guards.iter_mut().for_each(|g| g.elements_mut(f));
            streams(body, f);
        }
    }
}

/// The dimension whose coordinate moves within a chunk, and the axis that moves it.
fn moving(axes: &[Axis], e: &Extremes) -> Option<(usize, AxisId)> {
    e.at.iter().enumerate().find_map(|(dim, c)| match c.terms.as_slice() {
        [(1, CoordAtom::Axis(a))] => {
            let axis = &axes[a.at()];
            let single = axis.extent == 1 || axis.tile == 1 && axis.kind != AxisKind::Whole;
            (!single).then_some((dim, *a))
        }
        _ => None,
    })
}

/// The tensors of the smallest and the largest elements of each tile.
fn declare(program: &mut Program, (of, dim, tile): Tiles) -> [TensorId; 2] {
    let base = program.tensor(of).clone();
    let mut dims = base.dims.clone();
    dims[dim] = dims[dim].div_ceil(tile.max(1));
    ["low", "high"].map(|what| {
        let name = format!("{}.{what}{tile}", base.name);
        let decl = TensorDecl {
            name,
            dims: dims.clone(),
            shape: None,
            dtype: base.dtype,
            role: TensorRole::Temporary,
            layout: None,
        };
        program.tensors.push(decl);
        TensorId(program.tensors.len() as u32 - 1)
    })
}

/// The kernel that finds them.
fn summarise(program: &Program, (of, dim, tile): Tiles, to: [TensorId; 2]) -> Kernel {
    let decl = program.tensor(of);
    let name = format!("{}_extremes_{tile}", decl.name).replace('.', "_").to_lowercase();
    let mut kernel = Kernel { name, ..Kernel::default() };
    let mut from = vec![];
    let mut place = vec![];
    for (d, &size) in decl.dims.iter().enumerate() {
        let id = AxisId(kernel.axes.len() as u32);
        let (name, extent) = match d == dim {
            true => ("block".to_string(), size.div_ceil(tile.max(1))),
            false => (format!("i{d}"), size),
        };
        kernel.axes.push(Axis { name, extent, tile: 1, kind: AxisKind::Grid });
        kernel.grid.push(id);
        from.push(Coord::axis(id));
        place.push(Coord::axis(id));
    }
    let inside = AxisId(kernel.axes.len() as u32);
    kernel.axes.push(Axis { name: "i".to_string(), extent: tile, tile, kind: AxisKind::Whole });
    from[dim] = Coord {
        terms: vec![(tile as i64, CoordAtom::Axis(kernel.grid[dim])), (1, CoordAtom::Axis(inside))],
        offset: 0,
    };
    let (least, most) = integers(decl.dtype).unwrap_or_default();
    let ragged = !decl.dims[dim].is_multiple_of(tile.max(1));
    let mut value = |name: &str, cols, dtype| {
        kernel.values.push(ValueDecl { name: name.to_string(), rows: None, cols, dtype });
        ValueId(kernel.values.len() as u32 - 1)
    };
    // A tile at the end is filled up with what is no extreme.
    let sides = [("low", TileMonoid::Min, most), ("high", TileMonoid::Max, least)];
    let whole = value(&decl.name.to_lowercase(), Some(inside), decl.dtype);
    let again = if ragged { value(&decl.name.to_lowercase(), Some(inside), decl.dtype) } else { whole };
    let wide = if decl.dtype == einloom_cascade::DType::I32 { decl.dtype } else { einloom_cascade::DType::F32 };
    let found = sides.each_ref().map(|(name, ..)| value(name, None, wide));
    for (k, (_, monoid, fill)) in sides.into_iter().enumerate() {
        let src = [whole, again][k];
        if k == 0 || ragged {
            let fill = ragged.then_some(fill);
            kernel.body.push(Op::Load { dst: src, tensor: of, at: from.clone(), fill });
        }
        kernel.body.push(Op::Reduce { dst: found[k], src, axis: inside, monoid, acc: None });
        kernel.body.push(Op::Store { tensor: to[k], at: place.clone(), src: found[k] });
    }
    kernel
}

fn describe(program: &Program, kernel: &Kernel, (of, _, tile): Tiles, machine: &Machine) -> PlannedKernel {
    let transfers = kernel_transfers(program, kernel, machine);
    let axes = |kind| {
        let chosen = kernel.axes.iter().filter(|a| a.kind == kind);
        chosen.map(|a| (a.name.clone(), a.tile)).collect::<Vec<_>>()
    };
    let name = &program.tensor(of).name;
    let notes = vec![format!("extremes of {name} by {tile}, for the conditions that leave chunks out")];
    PlannedKernel {
        name: kernel.name.clone(),
        statements: vec![],
        group: axes(AxisKind::Grid),
        stream: vec![],
        materialised: ["low", "high"].map(|what| format!("{name}.{what}{tile}")).to_vec(),
        notes,
        seconds: transfers.seconds + machine.overhead.kernel.0,
        bound_by: transfers.bound_by.clone(),
        parts: (transfers.levels.iter().map(|l| (l.level.clone(), l.seconds)))
            .chain([("launch".to_string(), machine.overhead.kernel.0)])
            .collect(),
        gpu: None,
        part: None,
    }
}
