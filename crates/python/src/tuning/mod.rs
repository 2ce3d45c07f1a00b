//! Tiles that were measured to be better than planned ones: remembered in a file, found again.
//!
//! What to try is decided in `python/einloom/tuning.py`; here are measuring and remembering.

mod store;
mod trial;

pub(crate) use store::{Entry, lookup, remember};
pub(crate) use trial::{Call, Trial};

use crate::prepare::{Choices, Extra, retyped};
use crate::signature::{Place, Signature};
use einloom_cascade::Cascade;
use einloom_cuda::runtime::Cache;

/// Whether and how much to measure: `EINLOOM_TUNE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    Off,
    Quick,
    Full,
}

impl Effort {
    /// What the variable says; `None` for what it cannot say.
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "" | "off" => Some(Self::Off),
            "quick" => Some(Self::Quick),
            "full" => Some(Self::Full),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Quick => "quick",
            Self::Full => "full",
        }
    }
}

/// What a result is remembered by: everything that the best tiles depend on.
pub(crate) fn key(cascade: &Cascade, signature: &Signature, choices: &Choices, extra: &Extra) -> String {
    let program = einloom_cascade::print(&retyped(cascade, &signature.follows));
    let sizes = format!("{:?} {:?} {:?}", signature.shapes, choices.sizes, extra.sizes);
    let parameters = format!("{:?} {:?} {}", choices.params, extra.params, choices.exact);
    Cache::key(&[env!("CARGO_PKG_VERSION"), &program, &sizes, &parameters, &device(signature.place, choices)])
}

/// The name of what it runs on.
pub(crate) fn device(place: Place, choices: &Choices) -> String {
    match place {
        Place::Cpu => {
            // What is assumed of it is said behind a semicolon.
            let name = crate::prepare::host().description.split(';').next().unwrap_or_default();
            format!("{name}, {} threads", choices.threads())
        }
        Place::Cuda(number) => crate::gpu::device(number).map_or_else(|_| place.name(), |d| d.name()),
    }
}
