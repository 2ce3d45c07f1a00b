//! Declarations: params, ops, monoids, ranks, indices, inputs, and number types.

use super::Resolver;
use super::elsewhere;
use super::names::{Op, TensorName, implied_rank, is_index_name, is_rank_name};
use crate::syntax::ast::{Expr, ExprKind, Name, Program};
use crate::{DType, Diagnostic, Index, IndexId, Param, ParamId, Rank, RankId, Role, SizeExpr, Span, Tensor, TensorId};
use std::collections::BTreeMap;

impl<'p> Resolver<'p> {
    /// Makes every name known that does not depend on another one's meaning.
    pub(super) fn declare(&mut self, program: &'p Program<'p>) {
        self.params(program);
        self.ops(program);
        for item in &program.indices {
            self.declared_indices(item);
        }
        let mut first = BTreeMap::new();
        for item in &program.ranks {
            self.declared_rank(item.name, *first.entry(item.name.text).or_insert(item.name.span));
        }
        self.implied_indices(program);
    }

    fn params(&mut self, program: &'p Program<'p>) {
        for item in &program.params {
            if let Some(&first) = self.names.params.get(item.name.text) {
                let first = self.cascade[first].span;
                self.report.twice(format!("parameter `{}` is declared twice", item.name.text), first, item.name.span);
                continue;
            }
            let id = ParamId(self.cascade.params.len() as u32);
            let (name, span) = (item.name.text.to_owned(), item.name.span);
            self.cascade.params.push(Param { name, default: item.value, span });
            self.names.params.insert(item.name.text, id);
        }
    }

    fn ops(&mut self, program: &'p Program<'p>) {
        for item in &program.ops {
            self.distinct_arguments(&item.arguments);
            if let Some(first) = self.names.ops.get(item.name.text) {
                self.report.twice(
                    format!("op `{}` is defined twice", item.name.text),
                    first.item.name.span,
                    item.name.span,
                );
                continue;
            }
            self.names.ops.insert(item.name.text, Op { item, called: false, looked_at: false });
        }
    }

    /// Two arguments of one op or monoid need two names.
    pub(super) fn distinct_arguments(&mut self, arguments: &[Name<'p>]) {
        let mut first = BTreeMap::new();
        for argument in arguments {
            let first = *first.entry(argument.text).or_insert(argument.span);
            if first != argument.span {
                self.report.twice(format!("two arguments are called `{}`", argument.text), first, argument.span);
            }
        }
    }

    fn declared_indices(&mut self, item: &crate::syntax::ast::IndexItem<'p>) {
        if !is_rank_name(item.rank.text) {
            self.not_upper_case(item.rank);
            return;
        }
        let rank = self.rank(item.rank.text, item.rank.span);
        for &name in &item.names {
            if !is_index_name(name.text) {
                self.not_lower_case(name);
            } else if self.names.indices.contains_key(name.text) {
                self.report.add(Diagnostic::error(
                    "defined-twice",
                    name.span,
                    format!("index `{}` is declared twice", name.text),
                ));
            } else if self.is_free(name) {
                self.new_index(name.text, rank);
            }
        }
    }

    fn declared_rank(&mut self, name: Name<'p>, first: Span) {
        if !is_rank_name(name.text) {
            self.not_upper_case(name);
            return;
        }
        // An `index` line may have made it known, which is no declaration of the rank.
        if first != name.span {
            self.report.twice(format!("rank `{}` is declared twice", name.text), first, name.span);
        }
        self.rank(name.text, name.span);
    }

    /// Indices need no declaration: `m` ranges over `M` wherever it is bound.
    fn implied_indices(&mut self, program: &'p Program<'p>) {
        let positions = program.inputs.iter().flat_map(|d| d.at.iter().flatten());
        for e in positions.chain(program.statements.iter().flat_map(|s| &s.at)) {
            self.implied_in_position(e);
        }
        let bodies = program.ops.iter().filter_map(|o| o.body.as_ref());
        for e in bodies.chain(program.statements.iter().filter_map(|s| s.value.as_ref())) {
            self.implied_in_value(e);
        }
    }

    fn implied_in_position(&mut self, e: &'p Expr<'p>) {
        if let ExprKind::Name(name) = e.kind {
            self.implied_index(Name { text: name, span: e.span });
        }
        e.for_each_child(&mut |c| self.implied_in_position(c));
    }

    fn implied_in_value(&mut self, e: &'p Expr<'p>) {
        if let ExprKind::Reduce(reduce) = &e.kind {
            reduce.over.iter().for_each(|&name| self.implied_index(name));
        }
        e.for_each_child(&mut |c| self.implied_in_value(c));
    }

    fn implied_index(&mut self, name: Name<'p>) {
        let taken = self.names.indices.contains_key(name.text) || self.names.params.contains_key(name.text);
        if is_index_name(name.text) && !taken {
            let rank = self.rank(&implied_rank(name.text), name.span);
            self.new_index(name.text, rank);
        }
    }

    fn new_index(&mut self, name: &'p str, rank: RankId) {
        let id = IndexId(self.cascade.indices.len() as u32);
        self.cascade.indices.push(Index { name: name.to_owned(), rank });
        self.names.indices.insert(name, id);
    }

    /// The rank with this name, made if there is none yet.
    fn rank(&mut self, name: &str, span: Span) -> RankId {
        if let Some(&rank) = self.names.ranks.get(name) {
            return rank;
        }
        let id = RankId(self.cascade.ranks.len() as u32);
        self.cascade.ranks.push(Rank { name: name.to_owned(), default: None, span });
        self.names.ranks.insert(name.to_owned(), id);
        id
    }

    /// The inputs as tensors.
    pub(super) fn inputs(&mut self, program: &'p Program<'p>) {
        for item in &program.inputs {
            let name = item.name;
            if let Some(first) = self.names.tensors.get(name.text) {
                let first = first.span;
                self.report.twice(format!("input `{}` is declared twice", name.text), first, name.span);
                continue;
            }
            let at = item.at.as_deref().unwrap_or_default();
            let ranks: Vec<_> = at.iter().map(|e| self.dimension(e)).collect();
            let dtype = self.declared_dtype(item.dtype, name);
            let sound = ranks.iter().all(Option::is_some) && (!at.is_empty() || self.stands_alone(name));
            let ranks: Vec<_> = ranks.into_iter().flatten().collect();
            let extents = ranks.iter().map(|&r| SizeExpr::rank(r)).collect();
            let (role, iterative) = (Role::Input, None);
            let tensor = Tensor { name: name.text.to_owned(), role, ranks, extents, dtype, iterative, span: name.span };
            self.new_tensor(name, tensor, at.len(), sound);
        }
    }

    /// Adds a tensor under its name.
    pub(super) fn new_tensor(&mut self, name: Name<'p>, tensor: Tensor, dims: usize, sound: bool) {
        let id = TensorId(self.cascade.tensors.len() as u32);
        self.cascade.tensors.push(tensor);
        self.names.tensors.insert(name.text, TensorName { id, sound, dims, read: false, span: name.span });
    }

    /// A dimension of an input: an index stands for its rank.
    fn dimension(&mut self, e: &Expr<'p>) -> Option<RankId> {
        if let ExprKind::Name(name) = e.kind {
            if let Some(&index) = self.names.indices.get(name) {
                return Some(self.cascade[index].rank);
            }
            let name = Name { text: name, span: e.span };
            if is_index_name(name.text) {
                self.is_free(name);
            } else {
                self.not_lower_case(name);
            }
            return None;
        }
        self.report.add(
            Diagnostic::error("not-an-index", e.span, "a dimension of an input is named by an index")
                .hint("write an index such as `m`, whose rank `M` is the size; `rank M = 3` gives a size"),
        );
        None
    }

    /// A number type that must be given.
    pub(super) fn declared_dtype(&mut self, dtype: Option<Name<'p>>, owner: Name<'p>) -> Option<DType> {
        match dtype {
            Some(name) => self.dtype(name),
            None => {
                let message = format!("`{}` needs a number type", owner.text);
                self.report.add(
                    Diagnostic::error("missing-dtype", super::end_of(owner.span), message)
                        .hint("write it after a colon, such as `: f32`")
                        .hint(all_dtypes()),
                );
                None
            }
        }
    }

    /// A number type by its name.
    pub(super) fn dtype(&mut self, name: Name<'p>) -> Option<DType> {
        let found = DType::from_name(name.text);
        if found.is_none() {
            let mut d =
                Diagnostic::error("unknown-dtype", name.span, format!("there is no number type `{}`", name.text));
            let near = elsewhere::dtype(name.text);
            if let Some(near) = near.or_else(|| self.report.suggest(name.text, DType::ALL.into_iter().map(DType::name)))
            {
                d = d.hint(format!("did you mean `{near}`?"));
            }
            self.report.add(d.hint(all_dtypes()));
        }
        found
    }

    /// Whether an index may have this name; reports if not.
    pub(super) fn is_free(&mut self, name: Name<'p>) -> bool {
        if let Some(&param) = self.names.params.get(name.text) {
            let declared = self.cascade[param].span;
            self.report.add(
                Diagnostic::error("name-conflict", name.span, format!("`{}` is a parameter, not an index", name.text))
                    .label(declared, "the parameter"),
            );
            return false;
        }
        true
    }

    /// Whether a tensor without dimensions may have this name, which stands alone when it is read; reports if not.
    pub(super) fn stands_alone(&mut self, name: Name<'p>) -> bool {
        let other = if self.names.params.contains_key(name.text) {
            "a parameter"
        } else if self.names.indices.contains_key(name.text) {
            "an index"
        } else if self.names.ranks.contains_key(name.text) {
            "a rank"
        } else {
            return true;
        };
        self.report.add(
            Diagnostic::error("name-conflict", name.span, format!("`{}` is also the name of {other}", name.text))
                .hint("a tensor without dimensions is read by its bare name: choose another"),
        );
        false
    }

    pub(super) fn not_lower_case(&mut self, name: Name<'_>) {
        self.report.add(
            Diagnostic::error("not-an-index", name.span, format!("`{}` is not the name of an index", name.text))
                .hint(format!("indices start in lower case and ranks in upper case: `{}`", name.text.to_lowercase())),
        );
    }

    fn not_upper_case(&mut self, name: Name<'_>) {
        self.report.add(
            Diagnostic::error("not-a-rank", name.span, format!("`{}` is not the name of a rank", name.text))
                .hint(format!("ranks start in upper case: `{}`", name.text.to_uppercase())),
        );
    }
}

fn all_dtypes() -> String {
    let names: Vec<_> = DType::ALL.into_iter().map(DType::name).collect();
    format!("the number types are {}", names.join(", "))
}
