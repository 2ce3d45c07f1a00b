//! What can be said about shared memory before anything runs.

use super::{Hazard, HazardKind};
use crate::hopper::{Ring, Specialised};

/// Bytes of a barrier. PTX ISA, "mbarrier".
const BARRIER: usize = 8;
/// A panel's swizzle pattern repeats at such addresses.
const ALIGNMENT: usize = 1024;

/// A part of shared memory.
struct Region {
    name: String,
    from: usize,
    to: usize,
}

/// Whether every ring's stages, its tiles in a stage and the barriers, which lie at the start, have their own bytes.
pub(super) fn check(s: &Specialised) -> Result<(), Hazard> {
    let wrong = |text: String| Err(Hazard::new(HazardKind::Memory, text));
    let stages: usize = s.rings.iter().map(|r| r.stages).sum();
    let mut regions = vec![Region { name: "the barriers".to_string(), from: 0, to: 2 * BARRIER * stages }];
    for ring in &s.rings {
        if ring.stages == 0 || ring.readers == 0 {
            return wrong(format!("ring {} has no stage or no reader", ring.name));
        }
        tiles(ring)?;
        for stage in 0..ring.stages {
            let base = ring.offset + stage * ring.stage_bytes;
            for t in &ring.tiles {
                let from = base + t.offset;
                if !from.is_multiple_of(ALIGNMENT) {
                    return wrong(format!("stage {stage} of ring {} begins at byte {from}", ring.name));
                }
                let name = format!("stage {stage} of ring {}", ring.name);
                regions.push(Region { name, from, to: from + t.bytes() });
            }
        }
    }
    regions.sort_by_key(|r| r.from);
    for pair in regions.windows(2) {
        if pair[0].to > pair[1].from {
            let (a, b) = (&pair[0], &pair[1]);
            return wrong(format!("{} and {} overlap at byte {}", a.name, b.name, b.from));
        }
    }
    match regions.iter().find(|r| r.to > s.shared_bytes) {
        Some(r) => wrong(format!("{} ends at byte {} of {}", r.name, r.to, s.shared_bytes)),
        None => Ok(()),
    }
}

fn tiles(ring: &Ring) -> Result<(), Hazard> {
    for t in &ring.tiles {
        if t.element.bytes() != 2 || t.columns == 0 || !t.columns.is_multiple_of(t.panel()) {
            let text = format!("ring {}: {} columns of {} are no whole panels", ring.name, t.columns, t.element);
            return Err(Hazard::new(HazardKind::Memory, text));
        }
        if t.offset + t.bytes() > ring.stage_bytes {
            let text = format!("ring {}: a tile ends beyond the {} bytes of its stage", ring.name, ring.stage_bytes);
            return Err(Hazard::new(HazardKind::Memory, text));
        }
    }
    Ok(())
}
