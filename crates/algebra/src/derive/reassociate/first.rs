//! Running positions of extrema: the first position of the extremum over all `n <= m + c` is the one before, unless the element that joins
//! is beyond the extremum before it.
//!
//! The states are the extremum so far and its position, a recurrence each; the second reads the first before a step. The element that
//! joins takes the place if nothing has joined yet, if it is beyond the extremum, or if it is the first NaN. Of elements that are equal the
//! first keeps it; counted from the end the last takes it, which is the first of the text.
//!
//! Conditions: a prefix; what is compared does not carry m.

use super::Rewriting;
use super::build::{Join, State, rename_placeholders};
use super::insert::{insert, placeholder};
use super::prefix::{Prefix, Why};
use super::site::Site;
use crate::derive::rebuild::renumber;
use crate::{Def, Node, Recurrence, Rule, Step, Term, show};
use einloom_cascade::{BinaryOp, IndexExpr, Monoid, SizeExpr};

/// Of equal elements, which one has the position.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Equal {
    First,
    Last,
}

/// Which comparison says that an element is beyond the extremum.
fn beyond(monoid: Monoid, equal: Equal) -> BinaryOp {
    match (monoid == Monoid::ArgMax, equal) {
        (true, Equal::First) => BinaryOp::Gt,
        (true, Equal::Last) => BinaryOp::Ge,
        (false, Equal::First) => BinaryOp::Lt,
        (false, Equal::Last) => BinaryOp::Le,
    }
}

fn binary(op: BinaryOp, a: Term, b: Term) -> Term {
    Term::Binary(op, Box::new(a), Box::new(b))
}

impl Site {
    /// The position of the extremum of `body` under `filters` as two recurrences.
    pub(super) fn first(
        &self,
        p: &Prefix,
        body: &Term,
        filters: &[Term],
        monoid: Monoid,
        equal: Equal,
    ) -> Result<Option<Rewriting>, Why> {
        let carries = |t: &&Term| t.mentions(&[p.up_to]);
        if let Some(culprit) = [body].into_iter().chain(filters).find(carries) {
            let [n, m] = [p.of, p.up_to].map(|i| &self.graph.cascade[i].name);
            let reason = format!(
                "{} carries {m}, so that which {n} is first is decided anew at every {m}",
                show::term(&self.graph, culprit)
            );
            let hint = "what does not change which element is the largest may be left out of the text: a positive factor, an addend";
            return Err((reason, Some(hint.to_string())));
        }
        let mut g = (*self.graph).clone();
        let recurrence = g.recurrences.len();
        let (op, identity, what) = match monoid {
            Monoid::ArgMax => (BinaryOp::Max, f64::NEG_INFINITY, "max"),
            _ => (BinaryOp::Min, f64::INFINITY, "min"),
        };
        let kept = |old: Term| old;
        let state = State { inside: body, filters, kept: &kept, uses: &[], join: Join::Op(op), identity };
        // New node 0.
        let (mut best, best_read) = self.state_node(p, state, &[], recurrence)?;
        best.name = crate::flatten::fresh_name(&self.graph.nodes, &format!("{}.{what}", self.node.name));
        best.dtype = self.exact_for(body);
        let (Term::Read(_, at), Def::Iterative { dim, .. }) = (&best_read, &best.def) else { return Ok(None) };
        // While the position's state is made it is node 0, and the extremum another one.
        let other = placeholder(2);
        let mut at = at.clone();
        at[*dim] = IndexExpr::var(p.up_to);
        let before = Term::Read(other, at);
        let mut joins = IndexExpr::var(p.up_to);
        joins.offset = SizeExpr::constant(p.taken());
        let Some(joins) = Term::Position(p.up_to).substitute(&|_| Some(joins.clone())) else { return Ok(None) };
        let compare = beyond(monoid, equal);
        let join = |old: Term, x: Term| {
            let none = binary(BinaryOp::Lt, old.clone(), Term::Number(0.0));
            let nan = binary(BinaryOp::Ne, x.clone(), x.clone());
            let nan = match equal {
                Equal::First => binary(BinaryOp::And, nan, binary(BinaryOp::Eq, before.clone(), before.clone())),
                Equal::Last => nan,
            };
            let takes = binary(BinaryOp::Or, binary(compare, x, before.clone()), nan);
            Term::Select(Box::new(binary(BinaryOp::Or, none, takes)), Box::new(joins.clone()), Box::new(old))
        };
        let state = State { inside: body, filters, kept: &kept, uses: &[], join: Join::By(&join), identity: -1.0 };
        let (mut first, read) = self.state_node(p, state, &[], recurrence + 1)?;
        let place = |n| match n {
            n if n == placeholder(0) => placeholder(1),
            n if n == other => placeholder(0),
            n => n,
        };
        renumber(&mut first.def, &place);
        let def = Def::Map(read.rename_nodes(&place));
        let step = self.tell_first(p, &best, &first);
        let made = insert(&mut g, self.id, vec![best, first], Node { def, ..self.node.clone() });
        let rank = g.cascade[p.up_to].rank;
        let alone = |n| Recurrence { rank, index: p.up_to, members: vec![n], within: vec![] };
        g.recurrences.extend(made.into_iter().map(alone));
        Ok(Some(Rewriting { exchanged: vec![], graph: g, steps: vec![step] }))
    }

    fn tell_first(&self, p: &Prefix, best: &Node, first: &Node) -> Step {
        let shown = self.with(&[best.clone(), first.clone()]);
        let def = rename_placeholders(&first.def, self.graph.nodes.len());
        let [n, m] = [p.of, p.up_to].map(|i| self.graph.cascade[i].name.clone());
        let before = match &self.graph[self.id].def {
            Def::Reduce(written) => show::reduction(&self.graph, written),
            _ => String::new(),
        };
        Step {
            rule: Rule::Prefix,
            statement: self.node.statement.unwrap_or(0),
            node: first.name.clone(),
            ranks: vec![self.graph.cascade[self.graph.cascade[p.up_to].rank].name.clone()],
            why: format!(
                "the positions {n} that {m} sees are those that {m} - 1 sees and one more, which takes the place if it is beyond {}, the extremum before it",
                best.name
            ),
            before,
            after: format!("{} = {}", self.next_slice(first, &m), show::def(&shown, &def)),
        }
    }
}
