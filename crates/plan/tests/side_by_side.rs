//! Chunks of a recurrence side by side: that they change nothing, when they are taken, and when they are refused.

mod support;

use einloom_cascade::meaning::evaluate;
use einloom_machine::built_in;
use einloom_plan::{Chunks, Form, Options, Plan, choose, plan};
use support::{RETENTION, STATE_SPACE, inputs, interpret, read, sized};

/// Plans every form for both machines, `chunk` positions of `index` side by side, and compares with the meaning. How many of the plans have
/// chunks side by side.
fn check(text: &str, sizes: &str, index: &str, chunk: usize) -> usize {
    let cascade = read(text);
    let bound = sized(&cascade, sizes);
    let arrays = inputs(&cascade, &bound, 3);
    let expected = evaluate(&cascade, &bound, &arrays).expect("a meaning");
    let tiles = [(index.to_string(), chunk)].into();
    let options = Options { tiles, chunks: Chunks::SideBySide, ..Options::default() };
    let derivation = einloom_algebra::derive(&cascade);
    let mut beside = 0;
    let has = |form: &Form<'_>| form.graph.cascade.indices.iter().any(|i| i.name == index);
    for form in Form::all(&derivation).into_iter().filter(has) {
        for machine in ["cpu-generic", "h200"].map(|m| built_in(m).expect("built in")) {
            let label = format!("{text}\n{sizes}, chunks {chunk}, {}, {}", form.name, machine.name);
            let plan = match plan(form.graph, &bound, &machine, &options) {
                Ok(plan) => plan,
                // Some forms have no kernel with such tiles there.
                Err(_) if machine.lanes.is_some() => continue,
                Err(e) => panic!("{label}: {e}"),
            };
            beside += usize::from(is_beside(&plan));
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
    }
    beside
}

fn is_beside(plan: &Plan) -> bool {
    plan.splits.iter().any(|s| s.outer.ends_with("_chunk"))
}

#[test]
fn nothing_changes() {
    for (text, index, sizes) in [
        (RETENTION, "m", "H=2,M=12,N=12,D=3,E=4"),
        (STATE_SPACE, "t", "H=2,T=12,P=3,N=4"),
        // From other states than 0, with the last one wanted, and totals over all positions.
        (
            "input X[t,p]: f32, a[t]: f32, B[t,n]: f32, G[p,n]: f32\noutput Y: f32, L: f32, A: f32\n\
             H[0,p,n] = G[p,n]\nH[t+1,p,n] = exp(-abs(a[t])) * H[t,p,n] + B[t,n] * X[t,p]\n\
             Y[t,p] = sum(n) B[t,n] * H[t+1,p,n]\nL[p,n] = H[T,p,n]\nA[p] = sum(t) Y[t,p]",
            "t",
            "T=12,P=3,N=4",
        ),
        // A decay of each channel, and one that is a constant.
        (
            "input Q[t,d]: f32, K[t,d]: f32, V[t,e]: f32, g[t,d]: f32\noutput O: f32\n\
             S[0,d,e] = 0\nS[t+1,d,e] = exp(-abs(g[t,d])) * S[t,d,e] + K[t,d] * V[t,e]\n\
             O[t,e] = sum(d) Q[t,d] * S[t+1,d,e]",
            "t",
            "T=12,D=3,E=4",
        ),
        (
            "input X[t,c]: f32\noutput Y: f32\nH[0,c] = 0\nH[t+1,c] = 0.5 * H[t,c] + X[t,c]\nY[t,c] = H[t+1,c]",
            "t",
            "T=12,C=5",
        ),
        // Two states, one of which has no indices of its own, and what is made of both.
        (
            "input Q[t,d]: f32, K[t,d]: f32, V[t,e]: f32, f[t]: f32\noutput O: f32\n\
             C[0,d,e] = 0\nC[t+1,d,e] = exp(-abs(f[t])) * C[t,d,e] + K[t,d] * V[t,e]\n\
             n[0,d] = 0\nn[t+1,d] = exp(-abs(f[t])) * n[t,d] + K[t,d]\n\
             O[t,e] = (sum(d) Q[t,d] * C[t+1,d,e]) / max(abs(sum(d) Q[t,d] * n[t+1,d]), 1)",
            "t",
            "T=12,D=3,E=4",
        ),
        // One state decays by what is read of another.
        (
            "input X[t,d]: f32, V[t,e]: f32\noutput Z: f32\n\
             H[0,d] = 1\nH[t+1,d] = 0.5 * H[t,d] + X[t,d]\nY[t] = sum(d) H[t+1,d]\n\
             G[0,e] = 3\nG[t+1,e] = exp(-abs(Y[t])) * G[t,e] + V[t,e]\nZ[t,e] = G[t+1,e]",
            "t",
            "T=12,D=3,E=4",
        ),
        // Counted from the end, and in both directions.
        (
            "index t, s in T\ninput R[b,t]: f32\noutput G: f32\nG[b,t] = sum(s: s >= t) 0.5^(s - t) * R[b,s]",
            "t2",
            "B=3,T=12",
        ),
        (
            "index t, s in T\ninput X[c,t]: f32\noutput Y: f32\nY[c,t] = sum(s) exp(-abs(t - s) / 4) * X[c,s]",
            "t2",
            "C=3,T=12",
        ),
    ] {
        let mut beside = 0;
        for chunk in [1, 2, 3, 4, 6] {
            beside += check(text, sizes, index, chunk);
        }
        assert!(beside >= 9, "{beside} of 10 side by side: {text}");
    }
}

#[test]
fn lengths_that_chunks_do_not_divide_are_in_order() {
    for chunk in [5, 7, 12, 64] {
        assert_eq!(check(STATE_SPACE, "H=2,T=12,P=3,N=4", "t", chunk), 0);
    }
    for sizes in ["H=2,T=0,P=3,N=2", "H=1,T=1,P=1,N=1"] {
        assert_eq!(check(STATE_SPACE, sizes, "t", 1), 0);
    }
}

/// The plan of a program, and whether chunks of it are side by side.
fn planned(text: &str, sizes: &str, machine: &str, chunks: Chunks) -> Plan {
    let cascade = read(text);
    let derivation = einloom_algebra::derive(&cascade);
    let machine = built_in(machine).expect("built in");
    let options = Options { chunks, ..Options::default() };
    choose(&Form::all(&derivation), &sized(&cascade, sizes), &machine, &options).expect("a plan").1
}

#[test]
fn few_points_of_a_grid_decide() {
    let beside = |sizes: &str, machine: &str| is_beside(&planned(STATE_SPACE, sizes, machine, Chunks::Auto));
    assert!(beside("H=16,T=2048,P=64,N=128", "h200"));
    // So many heads fill the cores; a processor's are few.
    assert!(!beside("H=512,T=512,P=64,N=64", "h200"));
    assert!(!beside("H=16,T=2048,P=64,N=128", "cpu-generic"));
    // Where bytes alone are counted states stay inside.
    assert!(!beside("H=1,T=256,P=8,N=8", "two-level"));
    assert!(!is_beside(&planned(STATE_SPACE, "H=16,T=2048,P=64,N=128", "h200", Chunks::InOrder)));
}

/// With liberty to round, where a state is read for products with bf16 alone.
#[test]
fn states_go_through_memory_as_they_are_multiplied() {
    let text = STATE_SPACE.replace("B[t,n]: f32, C[t,n]: f32", "B[t,n]: bf16, C[t,n]: bf16");
    let cascade = read(&text);
    let bound = sized(&cascade, "H=2,T=12,P=3,N=4");
    let arrays = inputs(&cascade, &bound, 3);
    let expected = &evaluate(&cascade, &bound, &arrays).expect("a meaning")["Y"].values;
    let derivation = einloom_algebra::derive(&cascade);
    let form = Form::all(&derivation).into_iter().find(|f| f.name.ends_with("by chunks")).expect("chunks");
    for (narrow_contractions, exact, count) in [(true, false, 1), (true, true, 0), (false, false, 0)] {
        let tiles = [("t".to_string(), 3)].into();
        let options = Options { narrow_contractions, exact, tiles, chunks: Chunks::SideBySide, ..Options::default() };
        let plan = plan(form.graph, &bound, &built_in("h200").expect("built in"), &options).expect("a plan");
        assert!(is_beside(&plan));
        let narrow = plan.program.tensors.iter().filter(|t| t.name == "H.bf16").count();
        assert_eq!(narrow, count, "{narrow_contractions} {exact}");
        let found = &interpret::interpret(&plan.program, &arrays).expect("it runs")["Y"].values;
        let tolerance = if count == 1 { 2e-2 } else { 2e-4 };
        let largest = expected.iter().fold(1.0f64, |m, v| m.max(v.abs()));
        for (w, g) in expected.iter().zip(found) {
            assert!((w - g).abs() <= tolerance * largest, "{g}, not {w}");
        }
    }
}

/// Random recurrences: states with decays of every kind, read before and after a step, from either end, and joined.
fn drawn(seed: u64) -> (String, String) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut roll = move |sides: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) % sides
    };
    let mut text =
        "index t, s, u in T\ninput X[t,p]: f32, B[t,n]: f32, C[t,n]: f32, a[t]: f32, g[t,n]: f32, G[p,n]: f32\noutput "
            .to_string();
    let mut body = String::new();
    let mut parts = vec![];
    let count = 1 + roll(2);
    for k in 0..count {
        let decay =
            ["exp(-abs(a[t]))", "0.5", "1", "exp(-abs(g[t,n]))", "exp(-0.25)", "sigmoid(a[t])"][roll(6) as usize];
        let added = ["B[t,n] * X[t,p]", "X[t,p]", "B[t,n] * X[t,p] + C[t,n]", "exp(-abs(a[t])) * B[t,n] * X[t,p]"]
            [roll(4) as usize];
        let first = ["0", "G[p,n]"][roll(2) as usize];
        body += &format!("H{k}[0,p,n] = {first}\nH{k}[t+1,p,n] = {decay} * H{k}[t,p,n] + {added}\n");
        let at = ["t", "t+1"][roll(2) as usize];
        body += &format!("Y{k}[t,p] = sum(n) C[t,n] * H{k}[{at},p,n]\n");
        parts.push(format!("Y{k}[t,p]"));
    }
    if roll(3) == 0 {
        body += "Z[t,p] = sum(s: s <= t) 0.5^(t - s) * X[s,p]\n";
        parts.push("Z[t,p]".to_string());
    }
    if roll(3) == 0 {
        body += "W[t,p] = sum(s: s >= t) 0.5^(s - t) * X[s,p]\n";
        parts.push("W[t,p]".to_string());
    }
    let mut outputs = vec!["O: f32"];
    body += &format!("O[t,p] = {}\n", parts.join(" + "));
    for (chance, name, line) in [
        (3, "A: f32", "A[p] = sum(t) O[t,p]\n"),
        (4, "M: f32", "M[t,p] = O[t,p] - max(s) O[s,p]\n"),
        (3, "L: f32", "L[p,n] = H0[T,p,n]\n"),
        (5, "S: f32", "S[t,u] = sum(p) O[t,p] * O[u,p]\n"),
    ] {
        if roll(chance) == 0 {
            outputs.push(name);
            body += line;
        }
    }
    text += &outputs.join(", ");
    let sizes = format!("T={},P={},N={}", [6, 8, 12, 7][roll(4) as usize], 1 + roll(3), 1 + roll(3));
    (format!("{text}\n{body}"), sizes)
}

#[test]
fn random_recurrences() {
    const COUNT: u64 = 12;
    let mut beside = 0;
    for seed in 0..COUNT {
        let (text, sizes) = drawn(seed);
        for index in ["t", "t2"] {
            for chunk in [2, 3] {
                beside += check(&text, &sizes, index, chunk);
            }
        }
    }
    assert!(beside as u64 >= COUNT, "{beside} plans of {COUNT} programs have chunks side by side");
}
