//! What is wrong with a command's arguments, as data.

use super::render::{ErrorsJson, to_json};
use clap::error::{ContextKind, ContextValue};
use einloom::Finding;

/// Prints on standard output what standard error has told in words.
pub(super) fn as_json(error: &clap::Error) {
    let text = error.render().to_string();
    let message = text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_string();
    let mut finding = Finding::error("arguments", message);
    for kind in [ContextKind::Suggested, ContextKind::Usage] {
        match error.get(kind) {
            Some(ContextValue::StyledStrs(hints)) => finding.hints.extend(hints.iter().map(ToString::to_string)),
            Some(ContextValue::StyledStr(usage)) => finding.hints.push(usage.to_string()),
            _ => {}
        }
    }
    let findings = [finding];
    if let Ok(json) = serde_json::to_string(&ErrorsJson { errors: to_json(&findings, None) }) {
        println!("{json}");
    }
}
