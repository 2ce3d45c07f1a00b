//! Which way a result takes to each of its readers.

use super::{Op, Setup};
use crate::simulate::part::{Along, At, Carried, Part, Read};
use std::collections::HashMap;

/// The ways of one part.
#[derive(Clone, Debug, Default)]
pub(super) struct Routes {
    /// By read.
    pub reads: Vec<Route>,
    /// Its result is spread over the rows of its array and leaves it: row by row, on links of its own.
    pub drains: bool,
    /// Cycles from the end of a step until the last row has got out, where it does not drain.
    pub out: i64,
}

/// A way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Route {
    pub by: By,
    /// Cycles on the way, from the maker's frame to the reader's; for DRAM, from the buffer.
    pub latency: i64,
    /// Cycles in which rows are shifted into the array, for a word of what is spread over rows and columns.
    pub fill: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum By {
    /// Stays in the registers of its element.
    Local,
    /// From the edge of one array to the edge of another, or of the same one.
    Edge,
    Buffer,
    #[default]
    Dram,
}

pub(super) fn routes(setup: &Setup<'_>) -> Vec<Routes> {
    let (program, chip) = (setup.setting.program, setup.setting.chip);
    let timing = &chip.timing;
    let (hop, link, buffer) = (timing.hop as i64, timing.link as i64, timing.buffer as i64);
    let tallest = chip.arrays.iter().map(|a| a.rows).max().unwrap_or(1);
    let offset = |a: usize| if chip.arrays[a].rows == 1 && tallest > 1 { tallest as i64 * hop } else { 0 };
    let spread = |p: &Part<'_>| {
        let sides = &setup.sides[p.array];
        let dims = program.dims(p.einsum.node);
        let rows = sides.row_count > 1 && sides.rows.is_some_and(|r| dims.contains(&r));
        let columns = sides.column_count > 1 && sides.columns.is_some_and(|r| dims.contains(&r));
        (rows, columns)
    };
    let out = |p: &Part<'_>| {
        let sides = &setup.sides[p.array];
        let (rows, columns) = spread(p);
        let down = if sides.row_count == 1 { link } else { sides.row_count as i64 * hop };
        let down = if rows { 0 } else { down };
        let over = sides.columns.is_some_and(|r| p.einsum.ranks.contains(&r));
        down + if over && !columns && sides.column_count > 1 { sides.column_count as i64 * hop } else { 0 }
    };
    let one = |part: &Part<'_>, read: &Read| {
        let sides = &setup.sides[part.array];
        let dims = program.dims(read.node);
        let both =
            sides.row_count > 1 && [sides.rows, sides.columns].iter().all(|s| s.is_some_and(|r| dims.contains(&r)));
        let fill = if both { sides.row_count as i64 * hop } else { 0 };
        let Some(from) = read.from else {
            return Route { by: By::Dram, latency: buffer - offset(part.array), fill };
        };
        let maker = &setup.parts[from];
        let way = offset(maker.array) + out(maker) - offset(part.array);
        let (rows, columns) = spread(maker);
        let stays = (rows || sides.row_count == 1) && (columns || sides.column_count == 1 || sides.columns.is_none());
        if read.buffered {
            Route { by: By::Buffer, latency: way + 2 * buffer, fill }
        } else if maker.array != part.array {
            Route { by: By::Edge, latency: way, fill }
        } else if stays {
            Route { by: By::Local, latency: 0, fill: 0 }
        } else {
            Route { by: By::Edge, latency: way + link, fill }
        }
    };
    let mut all: Vec<Routes> = setup
        .parts
        .iter()
        .map(|p| Routes { reads: p.reads.iter().map(|r| one(p, r)).collect(), drains: false, out: out(p) })
        .collect();
    for p in 0..all.len() {
        for (read, route) in setup.parts[p].reads.iter().zip(all[p].reads.clone()) {
            if let Some(from) = read.from
                && route.by != By::Local
            {
                all[from].drains |= spread(&setup.parts[from]).0;
            }
        }
        all[p].drains |= setup.parts[p].exported && spread(&setup.parts[p]).0;
    }
    all
}

/// How many operations read what `op` makes, through this read of this part.
pub(super) fn readers(setup: &Setup<'_>, op: &Op, reader: &Part<'_>, read: &Read) -> u32 {
    let at = setup.nest.at(op.tile as usize);
    let mut product = 1u32;
    for (c, cut) in setup.nest.cuts.iter().enumerate() {
        let slice = at[c] as usize + 1;
        product *= match read.at[c] {
            At::Whole if reader.along[c] == Along::Every => cut.pieces as u32,
            At::Whole | At::Same | At::After => 1,
            At::Before => u32::from(slice < cut.pieces),
            At::Final => u32::from(slice == cut.pieces),
        };
    }
    product
}

/// How many tiles contribute to what a part makes.
pub(super) fn contributions(setup: &Setup<'_>, part: &Part<'_>) -> u32 {
    let cuts = setup.nest.cuts.iter().zip(&part.along).zip(&part.result);
    let over = cuts.filter(|((_, along), result)| **along == Along::Every && **result == Carried::No);
    over.map(|((cut, _), _)| cut.pieces as u32).product()
}

/// All readers of what `op` makes, DRAM included.
pub(super) fn uses(setup: &Setup<'_>, op: &Op) -> u32 {
    let p = op.part as usize;
    let mut sum = u32::from(setup.parts[p].exported);
    for reader in setup.parts {
        for read in reader.reads.iter().filter(|r| r.from == Some(p)) {
            sum += readers(setup, op, reader, read);
        }
    }
    sum
}

/// Bytes of the buffer that computed tensors take at the most if everything runs in its order.
pub(super) fn reserve(setup: &Setup<'_>, ops: &[Vec<Op>]) -> u64 {
    let program = setup.setting.program;
    let mut order: Vec<(u64, usize, usize)> = vec![];
    for (a, list) in ops.iter().enumerate() {
        order.extend(list.iter().enumerate().map(|(k, op)| (op.group, a, k)));
    }
    order.sort_unstable();
    let mut live: HashMap<(u16, u32, u64), (u32, u64)> = HashMap::new();
    let (mut now, mut most) = (0u64, 0u64);
    for (_, a, k) in order {
        let op = &ops[a][k];
        let part = &setup.parts[op.part as usize];
        if part.in_buffer {
            let key = (op.part, op.instance, setup.result(op));
            live.entry(key).or_insert_with(|| {
                let dims = setup.extents(op.tile as usize).tensor(program, part.einsum.node, Some(&part.result));
                let bytes = dims.iter().map(|d| d.1 as u64).product::<u64>() * setup.setting.chip.word.0;
                now += bytes;
                (uses(setup, op), bytes)
            });
            most = most.max(now);
        }
        for read in &part.reads {
            let Some(from) = read.from else { continue };
            let key = (from as u16, op.instance, setup.key(op, &read.at));
            if let Some((uses, bytes)) = live.get_mut(&key) {
                *uses -= u32::from(*uses > 0);
                // What DRAM takes goes a little later; it is counted as long as the others need it.
                if *uses <= u32::from(setup.parts[from].exported) {
                    now -= *bytes;
                    live.remove(&key);
                }
            }
        }
        let key = (op.part, op.instance, setup.result(op));
        if live.get(&key).is_some_and(|l| l.0 <= u32::from(part.exported)) && contributions(setup, part) <= 1 {
            now -= live.remove(&key).map_or(0, |l| l.1);
        }
    }
    most
}
