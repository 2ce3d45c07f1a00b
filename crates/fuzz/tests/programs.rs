//! A few thousand random programs, and proof that the search would see a mistake.

use einloom::prove::Kind;
use einloom_algebra::stream::Cut;
use einloom_algebra::{Def, Derivation, Reduction, Rule};
use einloom_cascade::Monoid;
use einloom_fuzz::campaign::Campaign;
use einloom_fuzz::examine::{Effort, Subject, Way};
use einloom_fuzz::{cases::Case, generate, shrink};

fn machine() -> einloom_machine::Machine {
    einloom_machine::built_in("cpu-generic").expect("built in")
}

const NONE: Campaign = Campaign {
    count: 0,
    seed: 0,
    jobs: 1,
    cpu_share: 0,
    planner_share: 0,
    exact_share: 0,
    enough: usize::MAX,
    shrink: 0,
};

#[test]
fn random_programs_agree() {
    let shares = Campaign { cpu_share: 20, planner_share: 8, exact_share: 50, ..NONE };
    let campaign = Campaign { count: 2000, jobs: 2, enough: 50, ..shares };
    let tally = campaign.run(&machine(), &|_| {});
    let told: Vec<String> =
        tally.found.iter().map(|f| format!("seed {}: {}\n{}", f.seed, f.told, f.case.write())).collect();
    assert!(told.is_empty(), "{}", told.join("\n"));
    // A search over programs that do not check, or in which no rule fires, proves nothing.
    assert!(tally.examined > 1950, "{tally}");
    assert!(tally.changed > 1500 && tally.ran > 100 && tally.exact[0] > 10, "{tally}");
    // Most plans are drawn, few of these are refused, and the planner's take part.
    let refused: u64 = tally.undrawn.values().sum();
    assert!(tally.drawn > 100 && 20 * refused < tally.drawn && tally.ran > tally.drawn, "{tally}");
    for rule in [
        Rule::Split,
        Rule::Filter,
        Rule::Inline,
        Rule::Defer,
        Rule::Separate,
        Rule::Stabilise,
        Rule::Centre,
        Rule::Share,
    ] {
        let programs = tally.rules.get(&rule).map_or(0, |r| r.0);
        assert!(programs >= 30, "{} fires in {programs} programs\n{tally}", rule.name());
    }
}

/// Programs whose derivation shows a mistake that is made in every reduction of the derived form, and those in which it
/// was made.
fn seen(count: u64, way: Way, mistake: impl Fn(&mut Reduction) -> bool) -> (usize, usize) {
    let (mut found, mut made) = (0, 0);
    for seed in 0..count {
        let program = generate::program(seed);
        let Ok(subject) = Subject::new(&program.text, &program.sizes) else { continue };
        let mut derivation: Derivation = subject.derivation();
        derivation.alternatives.clear();
        let mut changed = false;
        for node in &mut derivation.derived.nodes {
            if let Def::Reduce(r) = &mut node.def {
                changed |= mistake(r);
            }
        }
        if changed {
            made += 1;
            let effort = Effort {
                kinds: Kind::ALL[..4].to_vec(),
                cuts: vec![Cut::Chunks(1), Cut::Parts(2)],
                cpu: false,
                exact: false,
                plan: Some(seed),
            };
            let report = match way {
                Way::Stream => subject.examine_derivation(&derivation, &effort, seed),
                _ => subject.examine_planned(derivation, &machine(), &effort, seed),
            };
            found += usize::from(report.disagreements.iter().any(|d| d.way == way));
        }
    }
    (found, made)
}

#[test]
fn forgotten_repairs_are_seen() {
    // Where a plan takes an index whole nothing is repaired along it.
    for (way, one_in) in [(Way::Stream, 3), (Way::CpuWide, 5)] {
        let (found, made) = seen(80, way, |r| r.streaming.repair.take().is_some());
        assert!(made > 20 && one_in * found > made, "{way:?}: {found} of {made}");
    }
}

#[test]
fn a_maximum_in_place_of_a_minimum_is_seen() {
    let (found, made) = seen(80, Way::Stream, |r| {
        let other = match r.monoid {
            Monoid::Max if r.streaming.anchors.is_empty() => Monoid::Min,
            _ => return false,
        };
        r.monoid = other;
        true
    });
    // A maximum that is only an anchor is as good as a minimum on small numbers.
    assert!(made > 20 && 6 * found > made, "{found} of {made}");
}

#[test]
fn forgotten_filters_are_seen() {
    for way in [Way::Stream, Way::CpuWide] {
        let (found, made) = seen(80, way, |r| !std::mem::take(&mut r.filter).is_empty());
        assert!(made > 10 && 3 * found > made, "{way:?}: {found} of {made}");
    }
}

/// A mistake that whole tiles hide is seen in some of the plans that are drawn, and in each of these again.
#[test]
fn a_mistake_is_seen_again_in_the_plan_that_a_case_names() {
    let text = "index n, k in N\ninput X[n]: f64\noutput Y: f64\nY = sum(n) exp(X[n] - max(k) X[k])\n";
    let subject = Subject::new(text, &[("N".to_owned(), 7)].into()).expect("a program");
    let mut derivation = subject.derivation();
    let mut forgotten = 0;
    for node in &mut derivation.derived.nodes {
        if let Def::Reduce(r) = &mut node.def {
            forgotten += usize::from(r.streaming.repair.take().is_some());
        }
    }
    assert_eq!(forgotten, 1, "{:?}", derivation.derived);
    // Of the plan for a way the number is so much larger.
    let more = Way::CpuWide as u64;
    let seen = |plan: u64| {
        let kinds = vec![Kind::Normal];
        let effort = Effort { kinds, plan: Some(plan.wrapping_sub(more)), ..Effort::full() };
        let report = subject.examine_planned(derivation.clone(), &machine(), &effort, 0);
        report.disagreements.into_iter().find(|d| d.way == Way::CpuWide)
    };
    let found: Vec<u64> = (0..40).filter_map(|k| seen(1000 * k)?.plan).collect();
    assert!(found.len() > 10 && found.len() < 40, "{found:?}");
    for plan in found {
        let case = Case { text: text.to_owned(), plan: Some(plan), ..Case::default() };
        let read = Case::read(&case.write()).expect("a case");
        let again = seen(read.plan.expect("it names one")).expect("it is seen again");
        assert_eq!(again.plan, Some(plan));
    }
}

#[test]
fn cases_shrink_to_what_matters() {
    // Whatever else is in the program, what is to stay is a product under a maximum.
    let wanted = |c: &Case| {
        let parsed = einloom_cascade::parse(&c.text);
        !parsed.has_errors() && c.text.contains("max(") && c.text.contains(" * ") && c.sizes.values().sum::<usize>() > 1
    };
    let text = "input A[m,n]: bf16, B[n]: f32, C[m]: f32\noutput Y: f32, Z: f16\n\
        S[m,n] = A[m,n] * B[n] + exp(C[m])\nT[m] = sum(n: n > 1) S[m,n] / (1 + C[m])\n\
        Y[m] = T[m] + max(n: n <= 3) (B[n] * A[m,n] - 2)\nZ[m] = sqrt(T[m])\n";
    let sizes = [("M".to_string(), 4), ("N".to_string(), 6)].into();
    let subject = Subject::new(text, &sizes).expect("a program");
    let inputs = einloom::prove::inputs(&subject.cascade, &subject.bound, einloom::prove::Kind::Normal, 0);
    let small = shrink::shrink(shrink::case(&subject, &inputs), &wanted);
    let lines = small.text.lines().filter(|l| !l.is_empty()).count();
    assert!(wanted(&small) && lines <= 4 && small.text.len() < 90, "{}", small.write());
    assert!(small.values.values().flatten().all(|v| *v == 0.0), "{}", small.write());
}
