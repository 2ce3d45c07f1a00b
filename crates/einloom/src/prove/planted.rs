//! Mistakes that a rule could make, planted in derivations of programs: each proof must see each of them on its own, and
//! find nothing wrong with the same program as it is derived.
//!
//! A mistake is planted in one of two ways: as what the rule would have made of the text, written as a text itself, or
//! in the states of the derived form.

use super::{Effort, Form, prove_exactly, prove_forms};
use crate::Derived;
use crate::compare::in_f64;
use einloom_algebra::{Def, Derivation, Graph, NodeId, Reduction, Repair, Term, derive};
use einloom_cascade::{BinaryOp, Cascade, Monoid, UnaryOp};

/// What is wrong.
enum Mistake {
    /// The program is derived as if this were its text. Inputs, outputs and ranks must be declared alike.
    Text(&'static str),
    /// The derived form is changed.
    Form(fn(&mut Graph)),
}

struct Plant {
    name: &'static str,
    program: &'static str,
    mistake: Mistake,
}

const ATTENTION: &str = "input S[m,n]: f32, V[n,e]: f32\noutput O: f32\n\
    P[m,n] = exp(S[m,n] - max(n) S[m,n])\nO[m,e] = sum(n) P[m,n] / (sum(n) P[m,n]) * V[n,e]\n";
const CAUSAL: &str = "input S[m,n]: f32, V[n,e]: f32\noutput O: f32\nP[m,n] = exp(S[m,n] - max(n: n <= m) S[m,n])\n\
    O[m,e] = sum(n: n <= m) P[m,n] / (sum(n: n <= m) P[m,n]) * V[n,e]\n";
const LOGSUMEXP: &str = "input X[m,n]: f32\noutput L: f32\nL[m] = logsumexp(n) X[m,n]\n";
const VARIANCE: &str = "input X[m,n]: f32\noutput V: f32\nmu[m] = mean(n) X[m,n]\nV[m] = mean(n) (X[m,n] - mu[m])^2\n";
const COVARIANCE: &str = "input X[m,n]: f32, Y[m,n]: f32\noutput C: f32\n\
    C[m] = mean(n) (X[m,n] - mean(n) X[m,n]) * (Y[m,n] - mean(n) Y[m,n])\n";
const WEIGHTED: &str = "input X[m,n]: f32, c[n]: f32, r[m]: f32\noutput O: f32\nO[m] = sum(n) X[m,n] * c[n] * r[m]\n";
const DECAYED: &str = "input X[t,c]: f32, a[t]: f32\noutput H: f32\nH[0,c] = 0\nH[t+1,c] = a[t] * H[t,c] + X[t,c]\n";
const PREFIX: &str = "input Q[t,d]: f32, K[n,d]: f32, V[n,e]: f32\noutput O: f32\nindex t, n in T\n\
    O[t,e] = sum(n: n <= t) (sum(d) Q[t,d] * K[n,d]) * V[n,e]\n";

const RECURRENT: &str = "input Q[t,d]: f32, K[t,d]: f32, V[t,e]: f32\noutput O: f32\nH[0,d,e] = 0\n\
    H[t+1,d,e] = H[t,d,e] + K[t,d] * V[t,e]\nO[t,e] = sum(d) Q[t,d] * H[t+1,d,e]\n";

const ENTROPY: &str =
    "input X[m,n]: f32\noutput H: f32\nP[m,n] = softmax(n) X[m,n]\nH[m] = sum(n) P[m,n] * log(P[m,n])\n";
const DIFFERENCE: &str = "input A[m,n]: f32, B[m,n]: f32, V[n,e]: f32\noutput O: f32\n\
    O[m,e] = sum(n) ((softmax(n) A[m,n]) - (softmax(n) B[m,n])) * V[n,e]\n";
const NORM: &str = "input X[m,n]: f32\noutput Y: f32\na[m] = max(n) abs(X[m,n])\n\
    Y[m] = sum(n) (X[m,n] / a[m])^2\n";

const SPREAD: &str = "input X[m,n]: f32, c[m]: f32\noutput S: f32\nP[m,n] = softmax(n) X[m,n]\n\
    S[m] = sum(n) (P[m,n] - c[m])^2\n";
const MIXTURE: &str = "input X[m,n]: f32, Y[m,n]: f32\noutput S: f32\n\
    S[m] = sum(n) ((softmax(n) X[m,n]) + (softmax(n) Y[m,n]))^2\n";
const PAIRS: &str = "input X[m,n]: f32, Y[m,n]: f32\noutput O: f32\nindex i, j in N\n\
    O[m] = sum(i, j) X[m,i] * Y[m,j]\n";
const OVERLAP: &str = "input X[m,n]: f32, Y[m,n]: f32\noutput B: f32\n\
    B[m] = sum(n) sqrt((softmax(n) X[m,n]) * (softmax(n) Y[m,n]))\n";

const TIES: &str = "input X[m,n]: f32, V[n]: f32\noutput O: f32\nc[m] = max(n) X[m,n]\n\
    O[m] = (sum(n: X[m,n] == c[m]) V[n]) / sum(n) where(X[m,n] >= c[m], 1, 0)\n";
const GROUPS: &str = "input X[g,i]: f32\noutput V: f32\nmu = (sum(g, i) X[g,i]) / (G * I)\n\
    V = (sum(g) (sum(i) (X[g,i] - mu)^2)) / (G * I)\n";
const SCALED: &str = "input X[m,n]: f32\noutput Y: f32\nc[m] = mean(n) X[m,n]\nY[m] = max(n) X[m,n] * c[m]\n";
const FARTHEST: &str = "input X[m,n]: f32\noutput A: i32\nmu[m] = mean(n) X[m,n]\n\
    A[m] = argmax(n) abs(X[m,n] - mu[m])\n";

const LARGEST: &str = "input X[m,n]: f32, r[m]: f32\noutput O: f32\nO[m] = max(n) (X[m,n] + r[m])\n";
const TROPICAL: &str = "input Q[m,d]: f32, K[n,d]: f32, V[n]: f32\noutput O: f32\n\
    O[m] = max(n) ((max(d) (Q[m,d] + K[n,d])) + V[n])\n";
const RUNNING: &str =
    "input X[n]: f32, r[t]: f32\noutput O: f32\nindex t, n in T\nO[t] = max(n: n <= t) (X[n] + r[t])\n";

const PLANTS: [Plant; 43] = [
    Plant {
        name: "separate: no repair",
        program: ATTENTION,
        mistake: Mistake::Form(|g| each_reduction(g, |r| r.streaming.repair = None)),
    },
    Plant {
        name: "separate: one state of two without repair",
        program: ATTENTION,
        mistake: Mistake::Form(|g| last_reduction(g, |r| r.streaming.repair = None)),
    },
    Plant {
        name: "separate: the sign of the repair's exponent",
        program: ATTENTION,
        mistake: Mistake::Form(|g| each_repair(g, |r| r.factor = turned(&r.factor))),
    },
    Plant {
        name: "separate: the repair twice",
        program: ATTENTION,
        mistake: Mistake::Form(|g| each_repair(g, |r| r.factor = product(&r.factor, &r.factor))),
    },
    Plant {
        name: "separate: one state without its anchor",
        program: ATTENTION,
        mistake: Mistake::Form(|g| {
            last_reduction(g, |r| {
                let anchors = r.streaming.anchors.clone();
                r.body = without(&r.body, &anchors);
            });
        }),
    },
    Plant {
        name: "separate: the anchor of other elements",
        program: CAUSAL,
        mistake: Mistake::Text(
            "input S[m,n]: f32, V[n,e]: f32\noutput O: f32\nP[m,n] = exp(S[m,n] - max(n: n <= m) S[m,n])\n\
             Z[m] = sum(n: n <= m) exp(S[m,n] - max(n) S[m,n])\nO[m,e] = sum(n: n <= m) P[m,n] / Z[m] * V[n,e]\n",
        ),
    },
    Plant {
        name: "merge: maxima put together as minima",
        program: ATTENTION,
        mistake: Mistake::Form(|g| {
            each_reduction(g, |r| {
                if r.monoid == Monoid::Max {
                    r.monoid = Monoid::Min;
                }
            });
        }),
    },
    Plant {
        name: "merge: sums put together as maxima",
        program: LOGSUMEXP,
        mistake: Mistake::Form(|g| last_reduction(g, |r| r.monoid = Monoid::Max)),
    },
    Plant {
        name: "defer: a factor that carries the rank",
        program: WEIGHTED,
        mistake: Mistake::Text(
            "input X[m,n]: f32, c[n]: f32, r[m]: f32\noutput O: f32\nO[m] = (sum(n) X[m,n]) * (sum(n) c[n]) * r[m]\n",
        ),
    },
    Plant {
        name: "defer: an addend from a sum",
        program: "input X[m,n]: f32, r[m]: f32\noutput O: f32\nO[m] = sum(n) (X[m,n] + r[m])\n",
        mistake: Mistake::Text("input X[m,n]: f32, r[m]: f32\noutput O: f32\nO[m] = (sum(n) X[m,n]) + r[m]\n"),
    },
    Plant {
        name: "defer: a factor of any sign from a maximum",
        program: "input X[m,n]: f32, r[m]: f32\noutput O: f32\nO[m] = max(n) (X[m,n] * r[m])\n",
        mistake: Mistake::Text("input X[m,n]: f32, r[m]: f32\noutput O: f32\nO[m] = (max(n) X[m,n]) * r[m]\n"),
    },
    Plant {
        name: "filter: off by one",
        program: CAUSAL,
        mistake: Mistake::Text(
            "input S[m,n]: f32, V[n,e]: f32\noutput O: f32\nP[m,n] = exp(S[m,n] - max(n: n <= m) S[m,n])\n\
             O[m,e] = sum(n: n < m) P[m,n] / (sum(n: n <= m) P[m,n]) * V[n,e]\n",
        ),
    },
    Plant {
        name: "filter: an element is dropped",
        program: WEIGHTED,
        mistake: Mistake::Text(
            "input X[m,n]: f32, c[n]: f32, r[m]: f32\noutput O: f32\nO[m] = sum(n: n > 0) X[m,n] * c[n] * r[m]\n",
        ),
    },
    Plant {
        name: "stabilise: a reader that does not cancel the shift",
        program: "input X[m,n]: f32\noutput Z: f32\nZ[m] = sum(n) exp(X[m,n])\n",
        mistake: Mistake::Text("input X[m,n]: f32\noutput Z: f32\nZ[m] = sum(n) exp(X[m,n] - max(n) X[m,n])\n"),
    },
    Plant {
        name: "centre: the second moment stays when the mean moves",
        program: VARIANCE,
        mistake: Mistake::Form(|g| each_repair(g, |r| r.plus = None)),
    },
    Plant {
        name: "centre: the cross term of the moments is missing",
        program: COVARIANCE,
        mistake: Mistake::Form(|g| each_repair(g, |r| r.plus = None)),
    },
    Plant {
        name: "share: another reduction over the same elements",
        program: "input X[m,n]: f32\noutput R: f32\nR[m] = (sum(n) X[m,n]) / ((sum(n) X[m,n]^2) + 1)\n",
        mistake: Mistake::Text(
            "input X[m,n]: f32\noutput R: f32\nR[m] = (sum(n) X[m,n]^2) / ((sum(n) X[m,n]^2) + 1)\n",
        ),
    },
    Plant {
        name: "scan: the decay of the step before",
        program: DECAYED,
        mistake: Mistake::Text(
            "input X[t,c]: f32, a[t]: f32\noutput H: f32\nH[0,c] = 0\nH[t+1,c] = a[t] * (H[t,c] + X[t,c])\n",
        ),
    },
    Plant {
        name: "scan: the state before its own step",
        program: RECURRENT,
        mistake: Mistake::Text(
            "input Q[t,d]: f32, K[t,d]: f32, V[t,e]: f32\noutput O: f32\nH[0,d,e] = 0\n\
             H[t+1,d,e] = H[t,d,e] + K[t,d] * V[t,e]\nO[t,e] = sum(d) Q[t,d] * H[t,d,e]\n",
        ),
    },
    Plant {
        name: "prefix: the diagonal is missing",
        program: PREFIX,
        mistake: Mistake::Text(
            "input Q[t,d]: f32, K[n,d]: f32, V[n,e]: f32\noutput O: f32\nindex t, n in T\n\
             O[t,e] = sum(n: n < t) (sum(d) Q[t,d] * K[n,d]) * V[n,e]\n",
        ),
    },
    Plant {
        name: "logarithm: the divisor's is added",
        program: ENTROPY,
        mistake: Mistake::Text(
            "input X[m,n]: f32\noutput H: f32\nP[m,n] = softmax(n) X[m,n]\n\
             H[m] = sum(n) P[m,n] * (X[m,n] - max(n) X[m,n] + log(sum(n) exp(X[m,n] - max(n) X[m,n])))\n",
        ),
    },
    Plant {
        name: "logarithm: a factor's is missing",
        program: ENTROPY,
        mistake: Mistake::Text(
            "input X[m,n]: f32\noutput H: f32\nP[m,n] = softmax(n) X[m,n]\n\
             H[m] = sum(n) P[m,n] * (X[m,n] - max(n) X[m,n])\n",
        ),
    },
    Plant {
        name: "centre: the first moment stays when the maximum moves",
        program: ENTROPY,
        mistake: Mistake::Form(|g| each_repair(g, |r| r.plus = None)),
    },
    Plant {
        name: "addends: both get the factor of one",
        program: DIFFERENCE,
        mistake: Mistake::Text(
            "input A[m,n]: f32, B[m,n]: f32, V[n,e]: f32\noutput O: f32\n\
             O[m,e] = (sum(n) (softmax(n) A[m,n]) * V[n,e]) - sum(n) softmax(n) B[m,n]\n",
        ),
    },
    Plant {
        name: "addends: a sign",
        program: DIFFERENCE,
        mistake: Mistake::Text(
            "input A[m,n]: f32, B[m,n]: f32, V[n,e]: f32\noutput O: f32\n\
             O[m,e] = (sum(n) (softmax(n) A[m,n]) * V[n,e]) + sum(n) (softmax(n) B[m,n]) * V[n,e]\n",
        ),
    },
    Plant {
        name: "centre: the moments of exponentials stay when their mean moves",
        program: SPREAD,
        mistake: Mistake::Form(|g| each_repair(g, |r| r.plus = None)),
    },
    Plant {
        name: "centre: squares of exponentials shrink as if they were none",
        program: SPREAD,
        mistake: Mistake::Form(|g| {
            each_repair(g, |r| {
                if let Term::Binary(BinaryOp::Pow, base, _) = &r.factor {
                    r.factor = (**base).clone();
                }
            });
        }),
    },
    Plant {
        name: "addends: the product of both but once",
        program: MIXTURE,
        mistake: Mistake::Text(
            "input X[m,n]: f32, Y[m,n]: f32\noutput S: f32\nP[m,n] = softmax(n) X[m,n]\nQ[m,n] = softmax(n) Y[m,n]\n\
             S[m] = (sum(n) P[m,n]^2) + (sum(n) P[m,n] * Q[m,n]) + sum(n) Q[m,n]^2\n",
        ),
    },
    Plant {
        name: "defer: a sum over two indices along their diagonal alone",
        program: PAIRS,
        mistake: Mistake::Text(
            "input X[m,n]: f32, Y[m,n]: f32\noutput O: f32\nindex i, j in N\nO[m] = sum(i) X[m,i] * (sum(j: j == i) Y[m,j])\n",
        ),
    },
    Plant {
        name: "separate: a root that does not halve an exponent",
        program: OVERLAP,
        mistake: Mistake::Text(
            "input X[m,n]: f32, Y[m,n]: f32\noutput B: f32\nP[m,n] = softmax(n) X[m,n]\nQ[m,n] = softmax(n) Y[m,n]\n\
             B[m] = sum(n) P[m,n] * sqrt(Q[m,n])\n",
        ),
    },
    Plant {
        name: "condition: the moments of groups stay when the mean of all moves",
        program: GROUPS,
        mistake: Mistake::Form(|g| each_repair(g, |r| r.plus = None)),
    },
    Plant {
        name: "magnitude: no repair",
        program: NORM,
        mistake: Mistake::Form(|g| each_reduction(g, |r| r.streaming.repair = None)),
    },
    Plant {
        name: "magnitude: the repair twice",
        program: NORM,
        mistake: Mistake::Form(|g| each_repair(g, |r| r.factor = product(&r.factor, &r.factor))),
    },
    Plant {
        name: "ends: the largest alone, whatever the sign",
        program: SCALED,
        mistake: Mistake::Text(
            "input X[m,n]: f32\noutput Y: f32\nc[m] = mean(n) X[m,n]\nY[m] = (max(n) X[m,n]) * c[m]\n",
        ),
    },
    Plant {
        name: "ends: the smaller of both",
        program: SCALED,
        mistake: Mistake::Text(
            "input X[m,n]: f32\noutput Y: f32\nc[m] = mean(n) X[m,n]\nY[m] = min((max(n) X[m,n]) * c[m], (min(n) X[m,n]) * c[m])\n",
        ),
    },
    Plant {
        name: "ends: the position of the largest alone",
        program: FARTHEST,
        mistake: Mistake::Text("input X[m,n]: f32\noutput A: i32\nA[m] = argmax(n) X[m,n]\n"),
    },
    Plant {
        name: "ends: the position of the last of several",
        program: FARTHEST,
        mistake: Mistake::Form(|g| {
            each_reduction(g, |r| {
                if r.streaming.repair.is_some() {
                    r.monoid = Monoid::Max;
                }
            });
        }),
    },
    Plant {
        name: "extremum: an addend leaves with the other sign",
        program: LARGEST,
        mistake: Mistake::Text("input X[m,n]: f32, r[m]: f32\noutput O: f32\nO[m] = (max(n) X[m,n]) - r[m]\n"),
    },
    Plant {
        name: "extremum: an addend leaves and comes back twice",
        program: LARGEST,
        mistake: Mistake::Text("input X[m,n]: f32, r[m]: f32\noutput O: f32\nO[m] = (max(n) X[m,n]) + 2 * r[m]\n"),
    },
    Plant {
        name: "tropical: the inner extremum becomes one of the other kind",
        program: TROPICAL,
        mistake: Mistake::Text(
            "input Q[m,d]: f32, K[n,d]: f32, V[n]: f32\noutput O: f32\nO[m] = max(d) (Q[m,d] + (min(n) (K[n,d] + V[n])))\n",
        ),
    },
    Plant {
        name: "tropical: an addend is left behind",
        program: TROPICAL,
        mistake: Mistake::Text(
            "input Q[m,d]: f32, K[n,d]: f32, V[n]: f32\noutput O: f32\nO[m] = max(d) (Q[m,d] + (max(n) K[n,d])) + (max(n) V[n])\n",
        ),
    },
    Plant {
        name: "prefix: an extremum off by one",
        program: RUNNING,
        mistake: Mistake::Text(
            "input X[n]: f32, r[t]: f32\noutput O: f32\nindex t, n in T\nO[t] = (max(n: n <= t + 1) X[n]) + r[t]\n",
        ),
    },
    Plant {
        name: "root: its square loses the sign",
        program: "input X[m]: f32, v[m]: f32\noutput O: f32\nO[m] = (X[m] / sqrt(abs(v[m]) + 0.1))^2\n",
        mistake: Mistake::Text("input X[m]: f32, v[m]: f32\noutput O: f32\nO[m] = X[m]^2 / (v[m] + 0.1)\n"),
    },
];

/// What rests on two values being equal: noise parts them, so that the numeric proof excuses what the exact one sees.
const EQUAL: [Plant; 2] = [
    Plant {
        name: "attained: what attained the last extremum stays when it moves",
        program: TIES,
        mistake: Mistake::Form(|g| each_repair(g, |r| r.keep_if = Some(Term::Number(1.0)))),
    },
    Plant {
        name: "attained: nothing stays",
        program: TIES,
        mistake: Mistake::Form(|g| each_repair(g, |r| r.keep_if = Some(Term::Number(0.0)))),
    },
];

fn each_reduction(g: &mut Graph, mut change: impl FnMut(&mut Reduction)) {
    for node in &mut g.nodes {
        if let Def::Reduce(r) = &mut node.def {
            change(r);
        }
    }
}

fn last_reduction(g: &mut Graph, change: impl FnOnce(&mut Reduction)) {
    let last = g.nodes.iter_mut().rev().find_map(|n| match &mut n.def {
        Def::Reduce(r) => Some(r),
        _ => None,
    });
    change(last.expect("a reduction"));
}

fn each_repair(g: &mut Graph, mut change: impl FnMut(&mut Repair)) {
    let mut changed = 0;
    each_reduction(g, |r| {
        if let Some(repair) = &mut r.streaming.repair {
            change(repair);
            changed += 1;
        }
    });
    assert_ne!(changed, 0, "nothing is repaired");
}

fn product(a: &Term, b: &Term) -> Term {
    Term::Binary(BinaryOp::Mul, Box::new(a.clone()), Box::new(b.clone()))
}

/// `exp(-x)` for `exp(x)`.
fn turned(t: &Term) -> Term {
    match t {
        Term::Unary(UnaryOp::Exp, x) => Term::Unary(UnaryOp::Exp, Box::new(Term::Unary(UnaryOp::Neg, x.clone()))),
        other => other.map_children(&mut turned),
    }
}

/// The term with 0 for these nodes.
fn without(t: &Term, nodes: &[NodeId]) -> Term {
    match t {
        Term::Read(n, _) if nodes.contains(n) => Term::Number(0.0),
        other => other.map_children(&mut |t| without(t, nodes)),
    }
}

fn cascade(text: &str) -> Cascade {
    let parsed = einloom_cascade::parse(text);
    assert_eq!(parsed.diagnostics, [], "{text}");
    parsed.cascade
}

/// The derivation of the program with the mistake in its derived form; `wide` computes in f64.
fn planted(program: &Cascade, mistake: Option<&Mistake>, wide: bool) -> Derived {
    let width = |c: &Cascade| if wide { in_f64(c) } else { c.clone() };
    // Alternatives would be right, and a plan could take one.
    let mut d = Derivation { alternatives: vec![], ..derive(&width(program)) };
    match mistake {
        None => {}
        Some(Mistake::Form(change)) => change(&mut d.derived),
        Some(Mistake::Text(text)) => d.derived = derive(&width(&cascade(text))).derived,
    }
    Derived::from_derivation(d)
}

/// What each proof says: whether it finds nothing wrong, exactly and numerically.
fn proofs(program: &str, mistake: Option<&Mistake>) -> (bool, bool) {
    let program = cascade(program);
    let exact = prove_exactly(&planted(&program, mistake, false), 0);
    let forms = [Form { wide: planted(&program, mistake, true), declared: planted(&program, mistake, false) }];
    let machine = einloom_machine::built_in("cpu-generic").expect("built in");
    let numeric = prove_forms(&program, &forms, &machine, false, 0, Effort::QUICK, &mut |_| {}).expect("a plan");
    assert!(numeric.inputs > 0);
    (exact.sizes > 0 && exact.not_certified.is_none(), numeric.disagreements.is_empty())
}

#[test]
fn both_proofs_see_every_planted_mistake() {
    let mut wrong = vec![];
    for Plant { name, program, mistake } in &PLANTS {
        let found = proofs(program, Some(mistake));
        if found != (false, false) {
            wrong.push(format!("{name}: exactly {}, numerically {}", found.0, found.1));
        }
    }
    assert!(wrong.is_empty(), "not seen:\n{}", wrong.join("\n"));
}

#[test]
fn both_proofs_accept_what_is_right() {
    let mut wrong = vec![];
    for Plant { name, program, .. } in &PLANTS {
        let found = proofs(program, None);
        if found != (true, true) {
            wrong.push(format!("{name}: exactly {}, numerically {}", found.0, found.1));
        }
    }
    assert!(wrong.is_empty(), "not proved:\n{}", wrong.join("\n"));
}

#[test]
fn the_exact_proof_sees_what_rests_on_equality() {
    for Plant { name, program, mistake } in &EQUAL {
        assert!(!proofs(program, Some(mistake)).0, "not seen: {name}");
        assert_eq!(proofs(program, None), (true, true), "not proved: {name}");
    }
}
