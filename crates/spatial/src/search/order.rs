//! In which order the Einsums of a tile run: each after those whose results of the same tile it needs, so that words
//! wait as short as they can where elements take Einsums in turn.

use crate::Program;
use einloom_algebra::{Def, NodeId, Term};
use std::collections::BTreeSet;

/// The program's Einsums, each after what it reads of its own step. What a recurrence left one step ago is there
/// anyway; a cycle that is none in that sense stays in the program's order.
pub(super) fn order(program: &Program) -> Vec<usize> {
    let needs: Vec<BTreeSet<NodeId>> = program.einsums.iter().map(|e| needs(program, e.node)).collect();
    let mut left: Vec<usize> = (0..needs.len()).collect();
    let mut out = vec![];
    while !left.is_empty() {
        let waits = |e: usize| left.iter().any(|&o| o != e && needs[e].contains(&program.einsums[o].node));
        let next = left.iter().position(|&e| !waits(e)).unwrap_or(0);
        out.push(left.remove(next));
    }
    out
}

/// What an Einsum reads, but for slices that a recurrence left one step ago.
fn needs(program: &Program, node: NodeId) -> BTreeSet<NodeId> {
    let mut out = BTreeSet::new();
    let mut read = |term: &Term| {
        term.visit(&mut |t| {
            let Term::Read(from, at) = t else { return };
            let before = match &program.graph[*from].def {
                Def::Iterative { dim, .. } => at.get(*dim).and_then(|e| e.as_shifted_var()).is_some_and(|v| v.1 == 0),
                _ => false,
            };
            if !before {
                out.insert(program.root(*from));
            }
        });
    };
    match &program.graph[node].def {
        Def::Input => {}
        Def::Map(term) => read(term),
        Def::Reduce(r) => {
            r.filter.iter().for_each(&mut read);
            read(&r.body);
        }
        Def::Iterative { step, initial, .. } => {
            read(step);
            initial.iter().for_each(|(_, t)| read(t));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_recurrence_needs_comes_before_it() {
        let text = "cascade c\ninput A[i]: f32\noutput Z: f32\nrank I\n\nR[0] = 0\nD[i] = R[i] * 2\n\
                    R[i+1] = D[i] + A[i]\nZ = R[I] * 3\n";
        let program = Program::parse("c", text).unwrap();
        let names: Vec<&str> = order(&program).into_iter().map(|e| program.einsums[e].name.as_str()).collect();
        let place = |name: &str| names.iter().position(|n| *n == name).unwrap();
        assert!(place("D") < place("R") && place("R") < place("Z"), "{names:?}");
    }
}
