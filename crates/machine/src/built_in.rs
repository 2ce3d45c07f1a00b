//! The descriptions in `machines/`, shipped with the library.

use crate::{Machine, parse};

/// The built-in descriptions: the machine's name and its TOML text.
pub const BUILT_IN: [(&str, &str); 8] = [
    ("h200", include_str!("../../../machines/h200_sxm.toml")),
    ("h100", include_str!("../../../machines/h100_sxm.toml")),
    ("a100", include_str!("../../../machines/a100_80gb.toml")),
    ("rtx-4090", include_str!("../../../machines/rtx_4090.toml")),
    ("cpu-generic", include_str!("../../../machines/generic_cpu.toml")),
    ("two-level", include_str!("../../../machines/two_level.toml")),
    ("three-level", include_str!("../../../machines/three_level.toml")),
    ("two-level-cluster", include_str!("../../../machines/two_level_cluster.toml")),
];

/// The built-in machine with this name.
pub fn built_in(name: &str) -> Option<Machine> {
    // A test reads all of them, so that none is lost here.
    BUILT_IN.iter().find(|m| m.0 == name).and_then(|m| parse(m.1).ok())
}
