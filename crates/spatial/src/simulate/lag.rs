//! By how many tiles an Einsum must stay behind the newest one so that what it needs has been started before it.

use super::nest::Nest;
use super::part::{Along, At, Carried, Part, Read};
use crate::Problem;

/// Whether a part takes part in a tile.
pub(super) fn runs(nest: &Nest, part: &Part<'_>, tile: usize) -> bool {
    let at = nest.at(tile);
    part.along.iter().zip(at).zip(&nest.cuts).all(|((along, &x), cut)| match along {
        Along::Every => true,
        Along::First => x == 0,
        Along::Last => x as usize + 1 == cut.pieces,
    })
}

/// The tile after which what is read at `tile` is complete; `None` if that is before the first.
fn made_at(nest: &Nest, tile: usize, read: &Read, from: &Part<'_>, scratch: &mut Vec<u32>) -> Option<usize> {
    scratch.clear();
    scratch.extend_from_slice(nest.at(tile));
    for (c, x) in scratch.iter_mut().enumerate() {
        let last = nest.cuts[c].pieces.saturating_sub(1) as u32;
        match (read.at[c], from.along[c]) {
            (At::Same | At::After, _) => {}
            (At::Before, _) => *x = x.checked_sub(1)?,
            (At::Final, _) | (At::Whole, Along::Every | Along::Last) => *x = last,
            (At::Whole, Along::First) => *x = 0,
        }
    }
    Some(nest.number(scratch))
}

/// Whether what is read always comes from the reader's own tile.
pub(super) fn same_tile(nest: &Nest, part: &Part<'_>, read: &Read, from: &Part<'_>) -> bool {
    let own = |c: usize| match (read.at[c], from.along[c], part.along[c]) {
        _ if nest.cuts[c].pieces == 1 && from.result[c] != Carried::Slices => true,
        (At::Same | At::After, ..) => true,
        (At::Before, ..) => false,
        (At::Final, _, along) => along == Along::Last,
        (At::Whole, Along::First, along) => along == Along::First,
        (At::Whole, _, along) => along == Along::Last,
    };
    (0..nest.cuts.len()).all(own)
}

/// A part that reads what another makes.
struct Need {
    reader: usize,
    maker: usize,
    /// From the reader's tile to the one after which all is made.
    far: i64,
    /// Tiles more that it should be behind.
    more: i64,
    buffered: bool,
}

impl Need {
    /// By how many tiles the reader must be further behind than the maker.
    fn distance(&self, parts: &[Part<'_>]) -> i64 {
        let (reader, maker) = (&parts[self.reader], &parts[self.maker]);
        let other = reader.array != maker.array;
        let together = reader.phase == maker.phase;
        let behind = reader.phase < maker.phase || (together && !other && reader.order <= maker.order);
        // What goes through the buffer from another array is given a step, so that both can work at once.
        let given = reader.given_lag.is_some();
        let step = behind || (together && other && self.buffered && !given && self.far == 0);
        self.far + self.more.max(i64::from(step))
    }
}

fn needs(nest: &Nest, parts: &[Part<'_>], more: &dyn Fn(usize, usize) -> i64) -> Vec<Need> {
    let mut needs = vec![];
    let mut scratch = vec![];
    for (p, part) in parts.iter().enumerate() {
        for (r, read) in part.reads.iter().enumerate() {
            let Some(from) = read.from else { continue };
            let far = (0..nest.tiles()).filter(|&t| runs(nest, part, t));
            let far = far
                .filter_map(|t| made_at(nest, t, read, &parts[from], &mut scratch).map(|made| made as i64 - t as i64));
            if let Some(far) = far.max() {
                needs.push(Need { reader: p, maker: from, far, more: more(p, r), buffered: read.buffered });
            }
        }
    }
    needs
}

/// Moves every part as near to its readers as it may be: what it makes then waits for as short as can be. Parts without
/// readers stay.
pub(super) fn delay(nest: &Nest, parts: &mut [Part<'_>], more: &dyn Fn(usize, usize) -> i64) {
    let needs = needs(nest, parts, more);
    // Delaying one part lets those that it reads be delayed; each round reaches one further.
    for _ in 0..parts.len() {
        for p in 0..parts.len() {
            let own = needs.iter().filter(|n| n.maker == p && n.reader != p);
            let latest = own.map(|n| parts[n.reader].lag as i64 - n.distance(parts)).min();
            if let Some(latest) = latest.filter(|&l| l > parts[p].lag as i64) {
                parts[p].lag = latest as usize;
            }
        }
    }
}

/// Raises the lags until every part comes after what it needs, by as many tiles more as `more` says for a part and its
/// read, and gives a note for every one that the binding has lower.
pub(super) fn raise(
    nest: &Nest,
    parts: &mut [Part<'_>],
    more: &dyn Fn(usize, usize) -> i64,
) -> Result<Vec<String>, Vec<Problem>> {
    let needs = needs(nest, parts, more);
    let most = (nest.tiles() as i64 + 2) * (parts.len() as i64 + 1);
    loop {
        let mut changed = None;
        for need in &needs {
            let (p, lag) = (need.reader, parts[need.maker].lag as i64 + need.distance(parts));
            if lag > parts[p].lag as i64 {
                parts[p].lag = lag as usize;
                changed = Some(p);
            }
        }
        match changed {
            None => break,
            Some(p) if parts[p].lag as i64 > most => {
                let message = "needs what comes after it in the order of the binding";
                let hint = "put it into a later phase, or after what it needs";
                return Err(vec![Problem::new(format!("Einsum {}", parts[p].einsum.name), message).hint(hint)]);
            }
            Some(_) => {}
        }
    }
    let low = parts.iter().filter_map(|p| Some((p, p.given_lag?))).filter(|(p, given)| p.lag > *given);
    let note = |(p, given): (&Part<'_>, usize)| {
        let name = &p.einsum.name;
        format!("{name} runs {} tiles behind, not {given}: what it needs is not started earlier", p.lag)
    };
    Ok(low.map(note).collect())
}
