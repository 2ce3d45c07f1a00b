//! The formulas of a planned kernel, beside its numbers.

use einloom::{Derived, Planned};
use einloom_model::KernelTransfers;
use serde::Serialize;

/// `null` where there is no formula: `why` tells. `h_star` alone may be missing.
#[derive(Debug, Serialize)]
pub(crate) struct KernelFormulaJson {
    h: Option<String>,
    /// `h` at the plan's sizes and tiles; values, not bytes.
    values: Option<f64>,
    /// What the tiles of the plan move.
    moved: f64,
    m: Option<String>,
    m_leading: Option<String>,
    h_star: Option<String>,
    why: Option<String>,
}

pub(crate) fn json(
    derived: &Derived,
    planned: &Planned,
    kernel: usize,
    transfers: &KernelTransfers,
) -> KernelFormulaJson {
    let elements = |t: &einloom_model::TensorTransfer| {
        let bytes = planned.program().tensor(t.tensor).dtype.bytes().max(1) as u64;
        (t.loaded_bytes / bytes) as f64 + (t.stored_bytes / bytes) as f64
    };
    let moved = transfers.tensors.iter().map(elements).sum();
    match derived.formulas(planned, kernel) {
        Ok(f) => KernelFormulaJson {
            h: Some(f.transfers.total().to_string()),
            values: f.values.map(|v| v as f64),
            moved,
            m: Some(f.memory.to_string()),
            m_leading: Some(f.memory.leading().to_string()),
            h_star: f.optimum.as_ref().ok().map(ToString::to_string),
            why: f.optimum.err().map(|e| e.reason),
        },
        Err(e) => {
            let why = Some(e.reason);
            KernelFormulaJson { h: None, values: None, moved, m: None, m_leading: None, h_star: None, why }
        }
    }
}

/// Lines of a kernel's text.
pub(crate) fn text(derived: &Derived, planned: &Planned, kernel: usize, transfers: &KernelTransfers) -> String {
    let f = json(derived, planned, kernel, transfers);
    let mut out = String::new();
    if let (Some(h), Some(m)) = (&f.h, &f.m_leading) {
        let values = match f.values {
            Some(v) if v == f.moved => format!(" = {v:.0} values"),
            Some(v) => format!(" = {v:.0} values; tiles move {:.0}", f.moved),
            None => String::new(),
        };
        out += &format!("  formula H = {h}{values}\n          {m} to leading order\n");
    }
    match (&f.h_star, &f.why) {
        (Some(h), _) => out + &format!("          {h}\n"),
        (None, Some(why)) if f.h.is_none() => format!("  formula none: {why}\n"),
        _ => out,
    }
}
