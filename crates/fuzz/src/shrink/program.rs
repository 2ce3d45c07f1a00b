//! Smaller programs.

use super::edit;
use super::values::crop;
use crate::cases::Case;
use crate::examine::Subject;
use einloom_cascade::{Cascade, DType, Role, TensorId, meaning, parse, print};

/// Cases with less program, boldest first.
pub(super) fn smaller(case: &Case) -> Box<dyn Iterator<Item = Case> + '_> {
    let parsed = parse(&case.text);
    if parsed.has_errors() {
        return Box::new(std::iter::empty());
    }
    let cascade = edit::without_unused(&parsed.cascade);
    let mut out: Vec<Cascade> = vec![cascade.clone()];
    if cascade.outputs.len() > 1 {
        out.extend(cascade.outputs.iter().map(|&o| edit::only_output(&cascade, o)));
    }
    let texts: Vec<Case> = out.iter().map(|c| with_text(case, c)).collect();
    let cut = cut_sizes(case, &cascade);
    let given = given_instead(case, &cascade);
    let edits = (0..cascade.statements.len()).flat_map({
        let cascade = cascade.clone();
        move |s| edits(&cascade, s)
    });
    let edited = edits.map(move |c| with_text(case, &c));
    let plain = plain_types(&cascade).into_iter().map(move |c| with_text(case, &c));
    Box::new(texts.into_iter().chain(given).chain(cut).chain(edited).chain(plain))
}

fn with_text(case: &Case, cascade: &Cascade) -> Case {
    let cascade = edit::without_unused(cascade);
    let inputs: Vec<&str> = cascade.inputs().map(|t| cascade[t].name.as_str()).collect();
    let values = case.values.iter().filter(|(name, _)| inputs.contains(&name.as_str()));
    let values = values.map(|(name, v)| (name.clone(), v.clone())).collect();
    let text = print(&cascade);
    let sizes = case.sizes.iter().filter(|(rank, _)| parse(&text).cascade.rank(rank).is_some());
    Case { sizes: sizes.map(|(r, s)| (r.clone(), *s)).collect(), text, values, plan: case.plan, open: None }
}

/// Every statement's edits.
fn edits(cascade: &Cascade, statement: usize) -> Vec<Cascade> {
    let value = &cascade.statements[statement].value;
    let mut out = vec![];
    for n in 0..edit::count(value) {
        let Some(here) = edit::nth(value, n) else { continue };
        for by in edit::replacements(here) {
            let mut edited = cascade.clone();
            edited.statements[statement].value = edit::replace(value, n, &by);
            out.push(edited);
        }
    }
    out
}

/// Computed tensors as inputs, with the values that they have.
fn given_instead(case: &Case, cascade: &Cascade) -> Vec<Case> {
    let Ok(subject) = Subject::new(&case.text, &case.sizes) else { return vec![] };
    let Some(inputs) = super::inputs(case, &subject) else { return vec![] };
    let Ok(all) = meaning::evaluate_all(&subject.wide, &subject.bound, &inputs) else { return vec![] };
    let ids = (0..cascade.tensors.len() as u32).map(TensorId).rev();
    ids.filter_map(|id| {
        let edited = edit::given(cascade, id)?;
        let name = cascade[id].name.clone();
        let mut case = case.clone();
        case.values.insert(name.clone(), all.get(&name)?.values.clone());
        Some(with_text(&case, &edited))
    })
    .collect()
}

/// Number types nobody needs.
fn plain_types(cascade: &Cascade) -> Vec<Cascade> {
    let plain = |t: &einloom_cascade::Tensor| match (t.role, t.dtype) {
        (Role::Intermediate, Some(d)) if d.is_float() => Some(None),
        (_, Some(d)) if d.is_float() && d != DType::F32 => Some(Some(DType::F32)),
        _ => None,
    };
    let one = |k: usize| {
        let mut out = cascade.clone();
        out.tensors[k].dtype = plain(&cascade.tensors[k])?;
        Some(out)
    };
    (0..cascade.tensors.len()).filter_map(one).collect()
}

/// One rank shorter.
fn cut_sizes(case: &Case, cascade: &Cascade) -> Vec<Case> {
    let mut out = vec![];
    for (rank, &size) in &case.sizes {
        let mut sizes = vec![1, size / 2, size.saturating_sub(1), 0];
        sizes.retain(|&s| s < size);
        sizes.dedup();
        for smaller in sizes {
            out.extend(crop(case, cascade, rank, smaller));
        }
    }
    out
}
