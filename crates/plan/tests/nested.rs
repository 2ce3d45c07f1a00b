//! Reductions over several indices, nested: every order, planned and run, computes what the cascade means, and the plan that is
//! chosen takes the order that its sizes ask for.

mod support;

use einloom_cascade::meaning::evaluate;
use einloom_machine::built_in;
use einloom_plan::{Form, Options, choose, plan};
use support::{inputs, interpret, machine, read, sized};

const CHAIN: &str = "input A[i,j]: f32, B[j,k]: f32, C[k,l]: f32, x[l]: f32\noutput y: f32\n\
    y[i] = sum(j,k,l) A[i,j] * B[j,k] * C[k,l] * x[l]";

const MATRICES: &str = "input A[i,j]: f32, B[j,k]: f32, C[k,l]: f32\noutput Y: f32\n\
    Y[i,l] = sum(j,k) A[i,j] * B[j,k] * C[k,l]";

const TUCKER: &str = "input G[p,q,r]: f32, A[i,p]: f32, B[j,q]: f32, C[k,r]: f32\noutput X: f32\n\
    X[i,j,k] = sum(p,q,r) G[p,q,r] * A[i,p] * B[j,q] * C[k,r]";

const DISTANCE: &str = "index i, j in D\ninput X[n,i]: f32, P[i,j]: f32\noutput L: f32\n\
    L[n] = sum(i,j) X[n,i] * P[i,j] * X[n,j]";

const TROPICAL: &str = "input A[i,k]: f32, B[k,l]: f32, x[l]: f32\noutput C: f32\n\
    C[i] = min(k,l) (A[i,k] + B[k,l] + x[l])";

/// Plans every form and compares with the meaning. The number of forms.
fn check(text: &str, sizes: &str) -> usize {
    let cascade = read(text);
    let bound = sized(&cascade, sizes);
    let arrays = inputs(&cascade, &bound, 3);
    let expected = evaluate(&cascade, &bound, &arrays).expect("a meaning");
    let derivation = einloom_algebra::derive(&cascade);
    let forms = Form::all(&derivation);
    for form in &forms {
        let label = format!("{text}\n{sizes}, {}", form.name);
        let plan = plan(form.graph, &bound, &machine(), &Options::default()).unwrap_or_else(|e| panic!("{label}: {e}"));
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
fn every_order_computes_the_meaning() {
    assert_eq!(check(CHAIN, "I=5,J=3,K=4,L=2"), 2);
    assert_eq!(check(MATRICES, "I=5,J=3,K=4,L=2"), 3);
    assert_eq!(check(TUCKER, "P=2,Q=3,R=2,I=4,J=3,K=5"), 7);
    assert_eq!(check(DISTANCE, "N=5,D=3"), 2);
    assert_eq!(check(TROPICAL, "I=5,K=4,L=3"), 2);
    check(MATRICES, "I=70,J=3,K=40,L=33");
    check(CHAIN, "I=5,J=0,K=4,L=2");
    check(TROPICAL, "I=5,K=4,L=0");
}

/// The form that is chosen, and how many times faster than the one in the order written it is predicted to be.
fn chosen(text: &str, sizes: &str) -> (String, f64) {
    let cascade = read(text);
    let bound = sized(&cascade, sizes);
    let derivation = einloom_algebra::derive(&cascade);
    let forms = Form::all(&derivation);
    let flat = plan(forms[0].graph, &bound, &machine(), &Options::default()).expect("planned");
    let (k, best) = choose(&forms, &bound, &machine(), &Options::default()).expect("planned");
    (forms[k].name.to_string(), flat.seconds / best.seconds)
}

#[test]
fn sizes_choose_the_order() {
    let (name, gain) = chosen(CHAIN, "I=256,J=256,K=256,L=256");
    assert!(name == "y over l, then k, then j" && gain > 500.0, "{name}: {gain}");
    // The one with the smaller product first.
    let (name, gain) = chosen(MATRICES, "I=1024,J=1024,K=16,L=1024");
    assert!(name == "Y over j, then k" && gain > 4.0, "{name}: {gain}");
    let (name, gain) = chosen(MATRICES, "I=1024,J=16,K=1024,L=1024");
    assert!(name == "Y over k, then j" && gain > 4.0, "{name}: {gain}");
    let (name, gain) = chosen(TUCKER, "P=16,Q=16,R=16,I=128,J=128,K=128");
    assert!(gain > 10.0, "{name}: {gain}");
    let (name, gain) = chosen(DISTANCE, "N=4096,D=256");
    assert!(gain >= 1.0, "{name}: {gain}");
    let (name, gain) = chosen(TROPICAL, "I=1024,K=1024,L=1024");
    assert!(name == "C over l, then k" && gain > 50.0, "{name}: {gain}");
}

/// Seconds of the transfers of the chosen plan on a memory of so many elements, with some tiles asked for.
fn transfers(text: &str, sizes: &str, capacity: u64, tiles: &[(&str, usize)]) -> f64 {
    let cascade = read(text);
    let machine = built_in("two-level").expect("built in").with_capacity(capacity).expect("a capacity");
    let tiles = tiles.iter().map(|(index, tile)| (index.to_string(), *tile)).collect();
    let options = Options { tiles, ..Options::default() };
    let derivation = einloom_algebra::derive(&cascade);
    choose(&Form::all(&derivation), &sized(&cascade, sizes), &machine, &options).expect("planned").1.seconds
}

#[test]
fn no_tiles_that_are_asked_for_move_much_less() {
    let sizes = "P=16,Q=16,R=16,I=64,J=64,K=64";
    for capacity in [256, 1024] {
        let planned = transfers(TUCKER, sizes, capacity, &[]);
        // What visits one index of the result by one and the others by tiles, or reduces in small steps.
        let asked: [&[(&str, usize)]; 5] =
            [&[("i", 1)], &[("j", 1)], &[("k", 1)], &[("i", 1), ("q", 2)], &[("p", 2), ("q", 8), ("r", 16)]];
        for asked in asked {
            let other = transfers(TUCKER, sizes, capacity, asked);
            assert!(planned <= 1.05 * other, "{capacity} elements: {planned:e} as planned, {other:e} with {asked:?}");
        }
    }
}
