//! Pass 3: which products run under which arithmetic.
//!
//! In a chunk of a stream, products whose factors are all copied start first (*early*). A product that only adds to a
//! state, with a left factor computed in this chunk, is *deferred* by one chunk: it starts right after the next chunk's
//! early products, so that their results are worked on while it still runs. FlashAttention-3 (arXiv 2407.08608, section
//! 3.2) does this by hand for attention. Where a chunk has nothing but early products that add to states, they form one
//! chain through all chunks, and a stage is released one chunk late (*chained*).

use super::OpAt;
use super::bulk::Copied;
use crate::schedule::Product;
use crate::schedule::facts::{Facts, Use, each_use, written};
use einloom_tile::{Op, ValueId};
use std::collections::{BTreeMap, BTreeSet};

/// The products of one stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Overlap {
    /// Started first in each chunk.
    pub early: Vec<OpAt>,
    /// Started in the next chunk.
    pub deferred: Vec<OpAt>,
    /// Started and waited for where they stand.
    pub plain: Vec<OpAt>,
    /// Whether the early products need not complete within the chunk.
    pub chained: bool,
}

/// What the pass knows.
pub(super) struct Known<'a, 'b> {
    pub facts: &'b Facts<'a>,
    pub products: &'b BTreeMap<ValueId, Product>,
    pub copied: &'b BTreeMap<ValueId, Copied>,
    pub in_place: &'b BTreeMap<ValueId, ValueId>,
}

/// Divides the products of the stream at place `stream` of the kernel's body.
pub(super) fn divide(known: &Known<'_, '_>, stream: usize, body: &[Op]) -> Overlap {
    let mut out = Overlap::default();
    let place = |op| OpAt { stream: Some(stream), op };
    for (k, op) in body.iter().enumerate() {
        let Op::Mma { dst, acc, .. } = op else { continue };
        let Some(p) = known.products.get(dst) else { continue };
        let from_memory = !p.left_in_registers || !made_in(body, p.left);
        // What reads the state before the product means the value that the product would overwrite.
        let onto_state = acc.is_some_and(|a| !made_in(body, a) && !body[..k].iter().any(|op| reads(op, a)));
        if from_memory && (acc.is_none() || onto_state) {
            out.early.push(place(k));
        } else if deferrable(known, *dst, p, body) {
            out.deferred.push(place(k));
        } else {
            out.plain.push(place(k));
        }
    }
    if out.early.is_empty() {
        out.plain.append(&mut out.deferred);
        out.plain.sort_unstable();
    }
    // A chain: nothing in the chunk waits for an early product.
    let only_next = |at: &OpAt| written(&body[at.op]).is_some_and(|dst| adds_to_a_state(known, dst));
    out.chained = out.deferred.is_empty() && out.plain.is_empty() && out.early.iter().all(only_next);
    out
}

fn reads(op: &Op, v: ValueId) -> bool {
    let mut found = false;
    each_use(op, &mut |x, _| found |= x == v);
    found
}

fn made_in(body: &[Op], v: ValueId) -> bool {
    body.iter().any(|op| written(op) == Some(v))
}

/// Whether the product's result is nothing but the next value of a state, in the state's registers.
fn adds_to_a_state(known: &Known<'_, '_>, dst: ValueId) -> bool {
    known.in_place.contains_key(&dst) && known.facts.uses[dst.at()].iter().all(|u| matches!(u, Use::Next(_)))
}

/// Conditions: it adds to a state; its left factor is in registers and nobody else's accumulator; no other product reads
/// its right factor, which has to stay in its stage one chunk longer; and its left factor is no state.
fn deferrable(known: &Known<'_, '_>, dst: ValueId, p: &Product, body: &[Op]) -> bool {
    let readers = known.products.values().filter(|o| o.left == p.right || o.right == p.right).count();
    let elsewhere = known.copied.get(&p.right).is_some_and(|c| c.read.is_some());
    adds_to_a_state(known, dst)
        && p.left_in_registers
        && made_in(body, p.left)
        && made_in(body, p.right)
        && readers == 1
        && !elsewhere
}

/// Operations of the body that have to wait until the deferred products have completed: those that read their results
/// or what follows from them, and those that write registers which they read.
pub(super) fn after_deferred(known: &Known<'_, '_>, overlap: &Overlap, body: &[Op]) -> BTreeSet<usize> {
    let home = |v: ValueId| known.in_place.get(&v).copied().unwrap_or(v);
    let mut late: BTreeSet<ValueId> = BTreeSet::new();
    let mut left: BTreeSet<ValueId> = BTreeSet::new();
    for at in &overlap.deferred {
        if let Some(dst) = written(&body[at.op]) {
            late.insert(home(dst));
            left.extend(known.products.get(&dst).map(|p| p.left));
        }
    }
    let mut out = BTreeSet::new();
    for (k, op) in body.iter().enumerate() {
        let mut waits = written(op).is_some_and(|dst| left.contains(&dst) || late.contains(&home(dst)));
        each_use(op, &mut |v, _| waits |= late.contains(&home(v)));
        if waits {
            out.insert(k);
            late.extend(written(op).map(home));
        }
    }
    out
}
