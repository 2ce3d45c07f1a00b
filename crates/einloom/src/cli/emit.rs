//! `einloom emit`: a kernel's source.

use super::args::{EmitArgs, Language};
use super::failure::Failure;
use super::ui::Ui;
use super::{prepare, source};
use einloom::Finding;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Debug, Serialize)]
struct EmitJson {
    target: &'static str,
    source: String,
}

pub(crate) fn command(ui: &mut Ui, args: &EmitArgs) -> Result<(), Failure> {
    if args.language == Language::Cuda {
        return Err(Failure::Lacks(
            Finding::error("no-backend", "this build has no CUDA backend yet").hint(Some("use --target pseudo")),
        ));
    }
    let derived = source::checked(ui, &args.source)?.derive();
    let given = prepare::given(&args.sizing, BTreeMap::new())?;
    let planned = prepare::planned(&derived, &given, &args.sizing, &args.target)?;
    if prepare::dumped(ui, &derived, &planned)? {
        return Ok(());
    }
    let source = einloom_tile::print(planned.program());
    ui.result(|| source.clone(), &EmitJson { target: "pseudo", source: source.clone() })
}
