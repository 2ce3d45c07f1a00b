//! The tables of names, and what someone who mistyped one may have meant.

use crate::syntax::ast::OpItem;
use crate::{IndexId, MonoidId, ParamId, RankId, Span, TensorId};
use std::collections::{BTreeMap, BTreeSet};

/// Everything that has a name. Tensors with dimensions are always followed by brackets, so they may share a name
/// with a rank; all names that can stand alone are distinct.
#[derive(Debug, Default)]
pub(super) struct Names<'p> {
    pub ranks: BTreeMap<String, RankId>,
    pub indices: BTreeMap<&'p str, IndexId>,
    pub params: BTreeMap<&'p str, ParamId>,
    pub monoids: BTreeMap<&'p str, MonoidId>,
    pub ops: BTreeMap<&'p str, Op<'p>>,
    pub tensors: BTreeMap<&'p str, TensorName>,
    /// Tensors that lines define which could not be read: that they are not known is no mistake of its own.
    pub unread: BTreeSet<&'p str>,
}

/// A user's op.
#[derive(Debug)]
pub(super) struct Op<'p> {
    pub item: &'p OpItem<'p>,
    /// Whether a statement, or an op that is looked at, calls it: its body was checked then.
    pub called: bool,
    /// Whether its body was checked with arguments that nothing is known of: doing so again finds nothing new, and ops
    /// that call ops would be walked through once for each of them.
    pub looked_at: bool,
}

/// A tensor that the text declares or defines.
#[derive(Clone, Copy, Debug)]
pub(super) struct TensorName {
    pub id: TensorId,
    /// Whether its shape could be understood.
    pub sound: bool,
    /// Number of dimensions as first written.
    pub dims: usize,
    /// Whether some statement reads it.
    pub read: bool,
    /// Its declaration or first definition.
    pub span: Span,
}

/// Whether an index may be called so.
pub(super) fn is_index_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_lowercase())
}

/// Whether a rank may be called so.
pub(super) fn is_rank_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase())
}

/// The rank that an index ranges over if nothing else is declared.
pub(crate) fn implied_rank(index: &str) -> String {
    index.to_ascii_uppercase()
}

/// The candidate that looks most like `name`, if one looks much like it. The number and length of candidates that
/// are looked at is bounded: this must stay cheap on any text.
pub(crate) fn nearest<'c>(name: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    const LONGEST: usize = 40;
    if name.len() > LONGEST {
        return None;
    }
    let allowed = if name.len() <= 4 { 1 } else { 2 };
    candidates
        .take(1000)
        .filter(|c| c.len() <= LONGEST && *c != name)
        .filter(|c| c.len() > 1 || c.eq_ignore_ascii_case(name))
        .map(|c| (strsim::osa_distance(&name.to_lowercase(), &c.to_lowercase()), c))
        .filter(|(distance, c)| *distance <= allowed && *distance < c.len().min(name.len()))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c)
}
