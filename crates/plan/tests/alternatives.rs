//! Every form of a derivation, planned and run, computes what the cascade means: sums in another order, recurrences
//! position by position and by chunks of every size.

mod support;

use einloom_cascade::meaning::evaluate;
use einloom_plan::{Form, Options, Work, choose, plan};
use support::{RETENTION, STATE_SPACE, inputs, interpret, machine, read, sized};

/// Plans every form, by chunks of `chunk` positions of `index`, and compares with the meaning. The number of forms.
fn check(text: &str, sizes: &str, index: &str, chunk: Option<usize>) -> usize {
    let cascade = read(text);
    let bound = sized(&cascade, sizes);
    let arrays = inputs(&cascade, &bound, 3);
    let expected = evaluate(&cascade, &bound, &arrays).expect("a meaning");
    let mut options = Options::default();
    options.tiles.extend(chunk.map(|c| (index.to_string(), c)));
    let derivation = einloom_algebra::derive(&cascade);
    let forms = Form::all(&derivation);
    for form in &forms {
        let label = format!("{text}\n{sizes}, chunks {chunk:?}, {}", form.name);
        let plan = plan(form.graph, &bound, &machine(), &options).unwrap_or_else(|e| panic!("{label}: {e}"));
        let printed = || einloom_tile::print(&plan.program);
        let defects = einloom_tile::verify(&plan.program);
        assert!(defects.is_empty(), "{label}: {defects:#?}\n{}", printed());
        let found =
            interpret::interpret(&plan.program, &arrays).unwrap_or_else(|e| panic!("{label}: {e}\n{}", printed()));
        for (name, want) in &expected {
            for (k, (&w, &g)) in want.values.iter().zip(&found[name].values).enumerate() {
                let same = w == g || w.is_nan() && g.is_nan() || (w - g).abs() <= 2e-4 * (1.0 + w.abs());
                assert!(same, "{label}: {name}[{k}] is {g}, not {w}\n{}", printed());
            }
        }
    }
    forms.len()
}

#[test]
fn a_causal_sum_with_decay() {
    for chunk in [None, Some(1), Some(2), Some(3), Some(64)] {
        assert_eq!(check(RETENTION, "H=2,M=7,N=7,D=3,E=4", "m", chunk), 3);
        check(RETENTION, "H=2,M=5,N=8,D=3,E=2", "m", chunk);
        check(RETENTION, "H=1,M=9,N=4,D=2,E=3", "m", chunk);
        check(RETENTION, "H=1,M=1,N=1,D=1,E=1", "m", chunk);
        check(RETENTION, "H=2,M=3,N=0,D=3,E=2", "m", chunk);
    }
    check(RETENTION, "H=2,M=150,N=150,D=5,E=6", "m", None);
    check(RETENTION, "H=2,M=150,N=150,D=5,E=6", "m", Some(40));
}

#[test]
fn a_recurrence_with_a_decay_per_step() {
    for chunk in [None, Some(1), Some(2), Some(3), Some(64)] {
        assert_eq!(check(STATE_SPACE, "H=2,T=7,P=3,N=4", "t", chunk), 2);
        check(STATE_SPACE, "H=1,T=1,P=1,N=1", "t", chunk);
        check(STATE_SPACE, "H=2,T=5,P=3,N=0", "t", chunk);
        check(STATE_SPACE, "H=2,T=0,P=3,N=2", "t", chunk);
    }
    check(STATE_SPACE, "H=2,T=150,P=5,N=6", "t", None);
}

#[test]
fn running_extrema_and_decays_of_every_element() {
    let programs = [
        // max-plus, with a way that is ruled out.
        "input A[t,c]: f32, B[t,c]: f32\noutput Y: f32\nM[0,c] = 0\n\
         M[t+1,c] = max(M[t,c] + where(B[t,c] > 0.5, -inf, A[t,c]), B[t,c])\nY[t,c] = M[t+1,c]",
        // Kadane's largest sum of a run: one extremum reads another, which adds to itself.
        "input A[t,c]: f32, B[t,c]: f32\noutput Y: f32\nE[0,c] = 0\nE[t+1,c] = max(E[t,c], 0) + A[t,c]\n\
         M[0,c] = -inf\nM[t+1,c] = max(M[t,c], E[t+1,c])\nY[c] = M[T,c] + (sum(t) B[t,c])",
        // A minimum that moves by the same at every step, read by its neighbours.
        "input A[t,c]: f32, B[t,c]: f32\noutput Y: f32\nM[0,c] = B[0,c]\nM[t+1,c] = min(M[t,c] + 0.25, A[t,c])\n\
         Y[t,c] = M[t,c] * B[t,c] + M[t+1,c]",
        // Each channel decays by itself.
        "input A[t,c]: f32, B[t,c]: f32\noutput Y: f32\nH[0,c] = 0\n\
         H[t+1,c] = sigmoid(A[t,c]) * H[t,c] + B[t,c]\nY[t,c] = H[t+1,c]",
        // Relative to a maximum that runs beside it.
        "index t, s in T\ninput A[t,c]: f32, B[t,c]: f32\noutput Y: f32\nm[t,c] = max(s: s <= t) A[s,c]\n\
         l[t,c] = sum(s: s <= t) exp(A[s,c] - m[t,c])\nY[t,c] = (sum(s: s <= t) exp(A[s,c] - m[t,c]) * B[s,c]) / l[t,c]",
    ];
    for text in programs {
        for chunk in [None, Some(1), Some(2), Some(3), Some(64)] {
            assert!(check(text, "T=7,C=3", "t", chunk) >= 2, "{text}");
            check(text, "T=1,C=1", "t", chunk);
        }
        check(text, "T=70,C=5", "t", None);
    }
}

#[test]
fn a_chunk_of_one_position_has_one_inside() {
    let text = "index k in C\ninput X[b,c]: f32, W[b]: f32\noutput Y: f32\nS = sum(b) W[b]\nZ[a,b,c] = 0\n\
        Y[a,b,c] = (sum(k: k <= c) (X[b,k] * S)^2) - (sum(k) Z[a,b,k])";
    for sizes in ["A=3,B=3,C=17", "A=17,B=5,C=7", "A=1,B=2,C=2"] {
        assert!(check(text, sizes, "c", None) >= 3);
    }
}

/// The name of the form that is taken at these sizes.
fn chosen(text: &str, sizes: &str) -> String {
    let cascade = read(text);
    let derivation = einloom_algebra::derive(&cascade);
    let forms = Form::all(&derivation);
    let bound = sized(&cascade, sizes);
    let (k, plan) = choose(&forms, &bound, &machine(), &Options::default()).unwrap_or_else(|e| panic!("{e}"));
    let told = &plan.kernels[0].notes[0];
    assert!(forms.iter().all(|f| told.contains(&format!("{}: predicted", f.name))), "{told}");
    forms[k].name.to_string()
}

#[test]
fn sizes_decide() {
    let chain = "input Q[m,d]: f32, K[n,d]: f32, V[n,e]: f32\noutput O: f32\n\
        S[m,n] = sum(d) Q[m,d] * K[n,d]\nO[m,e] = sum(n) S[m,n] * V[n,e]";
    assert_eq!(chosen(chain, "M=2048,N=2048,D=16,E=16"), "O summed in another order");
    assert_eq!(chosen(chain, "M=8,N=8,D=1024,E=1024"), "in the order written");
    assert_eq!(
        chosen(RETENTION, "H=2,M=4096,N=4096,D=64,E=64"),
        "O.state carried from position to position, by chunks"
    );
}

#[test]
fn a_form_has_the_same_plan_whatever_was_planned_before_it() {
    let text = format!("{RETENTION}\nM1[h,m] = max(e) O[h,m,e]").replace("output O", "output O, M1");
    let cascade = read(&text);
    let bound = sized(&cascade, "H=2,M=64,N=64,D=16,E=16");
    let derivation = einloom_algebra::derive(&cascade);
    let forms = Form::all(&derivation);
    let machines = ["two-level", "h200", "cpu-generic"].map(|m| einloom_machine::built_in(m).expect("built in"));
    for machine in &machines {
        let (chosen, together) = choose(&forms, &bound, machine, &Options::default()).expect("a plan");
        let alone = plan(forms[chosen].graph, &bound, machine, &Options::default()).expect("a plan");
        assert_eq!(together.program, alone.program, "{}", machine.name);
        assert_eq!(together.seconds, alone.seconds, "{}", machine.name);
        // What was found for the forms before counts as if it had been looked for. Machines with lanes refuse some forms.
        if machine.lanes.is_none() {
            let mut work = Work::default();
            for form in &forms {
                // One whose smallest tiles do not fit has no plan, alone or among others.
                work += plan(form.graph, &bound, machine, &Options::default()).map(|p| p.work).unwrap_or_default();
            }
            assert_eq!(together.work, work, "{}", machine.name);
        }
    }
}
