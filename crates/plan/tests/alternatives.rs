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
