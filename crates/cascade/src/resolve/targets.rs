//! Left-hand sides: which tensors the statements define, and their shapes.

use super::Resolver;
use super::recurrence::Slice;
use crate::syntax::ast::{Declared, Expr, Name, Program, StatementItem};
use crate::{DType, Diagnostic, IndexExpr, Role, SizeExpr, Span, Tensor};
use std::collections::{BTreeMap, BTreeSet};

/// The statements that define one tensor, in source order.
pub(super) struct Definition<'p> {
    pub name: Name<'p>,
    /// Numbers of the text's statements.
    pub statements: Vec<usize>,
}

impl<'p> Resolver<'p> {
    /// Makes every defined tensor known. Returns what each statement of the text defines, where that is understood.
    pub(super) fn targets(&mut self, program: &'p Program<'p>) -> Vec<Option<Vec<IndexExpr>>> {
        let outputs = self.outputs(program);
        let mut targets: Vec<_> = program.statements.iter().map(|s| self.target(&s.at)).collect();
        for definition in self.definitions(program) {
            self.define(program, &definition, &outputs, &mut targets);
        }
        self.outputs_in_order(program);
        targets
    }

    /// Outputs by name.
    fn outputs(&mut self, program: &'p Program<'p>) -> BTreeMap<&'p str, (Span, Option<DType>)> {
        let mut out: BTreeMap<&'p str, (Span, Option<DType>)> = BTreeMap::new();
        for Declared { name, at, dtype } in &program.outputs {
            if at.is_some() {
                self.report.add(
                    Diagnostic::error("output-shape", name.span, "an output is declared without its dimensions")
                        .hint(format!("its definition says them: write `output {}: f32`", name.text)),
                );
            }
            if let Some((first, _)) = out.get(name.text) {
                let first = *first;
                self.report.twice(format!("output `{}` is declared twice", name.text), first, name.span);
                continue;
            }
            let dtype = self.declared_dtype(*dtype, *name);
            out.insert(name.text, (name.span, dtype));
        }
        if out.is_empty() {
            let end = program.statements.last().map_or_else(Span::default, |s| super::end_of(s.span));
            self.report.add(
                Diagnostic::error("no-output", end, "the program declares no output")
                    .hint("name what to return: `output O: f32`"),
            );
        }
        out
    }

    fn outputs_in_order(&mut self, program: &Program<'p>) {
        let mut listed = BTreeSet::new();
        for item in &program.outputs {
            match self.names.tensors.get(item.name.text).map(|t| t.id) {
                Some(id) if self.cascade[id].role == Role::Output => {
                    if listed.insert(id) {
                        self.cascade.outputs.push(id);
                    }
                }
                Some(_) => {
                    let message = format!("`{}` is an input and an output", item.name.text);
                    self.report.add(
                        Diagnostic::error("input-as-output", item.name.span, message)
                            .hint("copy it under another name to return it"),
                    );
                }
                None if self.names.unread.contains(item.name.text) => {}
                None => self.undefined_output(item.name),
            }
        }
    }

    fn undefined_output(&mut self, name: Name<'p>) {
        let message = format!("output `{}` is never defined", name.text);
        let mut d = Diagnostic::error("undefined-output", name.span, message);
        let defined = self.names.tensors.iter().filter(|(_, t)| self.cascade[t.id].role != Role::Input);
        d = match self.report.suggest(name.text, defined.map(|(name, _)| *name)) {
            Some(near) => d.hint(format!("did you mean `{near}`?")),
            None => d.hint(format!("add a statement `{}[…] = …`", name.text)),
        };
        self.report.add(d);
    }

    /// The index expressions of a left-hand side, in which every index is as good as bound.
    fn target(&mut self, at: &[Expr<'p>]) -> Option<Vec<IndexExpr>> {
        self.scope.clear();
        let mut names = vec![];
        for e in at {
            collect_names(e, &mut names);
        }
        for name in names {
            if let Some(&index) = self.names.indices.get(name) {
                self.scope.bind(index);
            }
        }
        self.index_exprs(at)
    }

    fn definitions(&mut self, program: &'p Program<'p>) -> Vec<Definition<'p>> {
        let mut known: BTreeMap<&str, usize> = BTreeMap::new();
        let mut out: Vec<Definition<'p>> = vec![];
        for (k, item) in program.statements.iter().enumerate() {
            let name = item.name;
            if let Some(input) = self.names.tensors.get(name.text) {
                let declared = input.span;
                self.report.add(
                    Diagnostic::error(
                        "input-assigned",
                        name.span,
                        format!("`{}` is an input and cannot be defined", name.text),
                    )
                    .label(declared, "the input")
                    .hint("give the result another name"),
                );
                continue;
            }
            let this = *known.entry(name.text).or_insert_with(|| {
                out.push(Definition { name, statements: vec![] });
                out.len() - 1
            });
            out[this].statements.push(k);
        }
        out
    }

    fn define(
        &mut self,
        program: &'p Program<'p>,
        definition: &Definition<'p>,
        outputs: &BTreeMap<&'p str, (Span, Option<DType>)>,
        targets: &mut [Option<Vec<IndexExpr>>],
    ) {
        let items: Vec<&StatementItem<'p>> = definition.statements.iter().map(|&k| &program.statements[k]).collect();
        let (name, dims) = (definition.name, items[0].at.len());
        let output = outputs.get(name.text).copied();
        let dtype = self.annotation(&items, output);
        let mut sound = dims > 0 || self.stands_alone(name);
        for (&k, item) in definition.statements.iter().zip(&items) {
            if item.at.len() != dims {
                self.wrong_count(item.name, item.at.len(), dims, name.span, item.name.span);
                targets[k] = None;
            }
            sound &= targets[k].is_some();
        }
        let slices: Vec<_> = definition
            .statements
            .iter()
            .map(|&k| targets[k].as_deref().and_then(|at| self.slice(at, &program.statements[k])))
            .collect();
        sound &= slices.iter().all(Option::is_some);
        for (slice, &k) in slices.iter().zip(&definition.statements) {
            if slice.is_none() {
                targets[k] = None;
            }
        }
        let slices: Vec<Slice> = slices.into_iter().flatten().collect();
        let iterative = if sound { self.whole(definition, &items, &slices) } else { None };
        sound &= iterative.is_some();
        let iterative = iterative.flatten();
        // The statement that says every dimension's rank.
        let main = slices.iter().find(|s| s.fixed.is_none());
        let ranks: Vec<_> = main.map_or(vec![], |s| s.ranks.iter().copied().flatten().collect());
        let extent = |(dim, &rank): (usize, &crate::RankId)| match iterative {
            Some(d) if d == dim => SizeExpr::rank(rank).add(&SizeExpr::constant(1)),
            _ => SizeExpr::rank(rank),
        };
        let extents = ranks.iter().enumerate().map(extent).collect();
        let role = if output.is_some() { Role::Output } else { Role::Intermediate };
        let tensor = Tensor { name: name.text.to_owned(), role, ranks, extents, dtype, iterative, span: name.span };
        self.new_tensor(name, tensor, dims, sound);
    }

    /// The number type of a tensor: declared as an output's, or annotated on any of its statements.
    fn annotation(&mut self, items: &[&StatementItem<'p>], output: Option<(Span, Option<DType>)>) -> Option<DType> {
        let mut known = output.and_then(|(span, dtype)| dtype.map(|d| (span, d)));
        for name in items.iter().filter_map(|i| i.dtype) {
            let Some(dtype) = self.dtype(name) else { continue };
            match known {
                Some((first, other)) if other != dtype => {
                    self.report.add(
                        Diagnostic::error("dtype-conflict", name.span, format!("{dtype} here, but {other} before"))
                            .label(first, "declared here")
                            .hint("a tensor has one number type: say it once"),
                    );
                }
                _ => known = Some((name.span, dtype)),
            }
        }
        known.map(|(_, dtype)| dtype)
    }
}

fn collect_names<'p>(e: &Expr<'p>, out: &mut Vec<&'p str>) {
    if let crate::syntax::ast::ExprKind::Name(name) = e.kind {
        out.push(name);
    }
    e.for_each_child(&mut |c| collect_names(c, out));
}
