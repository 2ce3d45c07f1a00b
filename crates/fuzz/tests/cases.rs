//! Every counter-example that was kept: none disagrees any more, and one that is marked open still does.

use einloom_fuzz::cases::{Case, load};
use einloom_fuzz::examine::{Effort, Report, Subject};
use einloom_fuzz::shrink;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// The case on its own values in every way, in the plan that it names and in others, and on inputs of every kind.
fn examine(case: &Case) -> Vec<Report> {
    let machine = einloom_machine::built_in("cpu-generic").expect("built in");
    let own = shrink::examine(case, &machine, true);
    let others = case.plan.and_then(|_| shrink::examine(&Case { plan: None, ..case.clone() }, &machine, true));
    let subject = Subject::new(&case.text, &case.sizes).expect("a program");
    own.into_iter().chain(others).chain([subject.examine(&machine, &Effort::full(), 0)]).collect()
}

#[test]
fn kept_cases_agree_unless_they_are_open() {
    let cases = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("cases")).expect("the cases");
    assert!(!cases.is_empty());
    for (path, case) in cases {
        // A panic is a disagreement too.
        let examined = catch_unwind(AssertUnwindSafe(|| examine(&case)));
        let panicked = examined.is_err();
        let disagreements: Vec<_> = examined.into_iter().flatten().flat_map(|r| r.disagreements).collect();
        let agrees = !panicked && disagreements.is_empty();
        match &case.open {
            None => assert!(agrees, "{}: panicked {panicked}, {disagreements:#?}", path.display()),
            Some(_) => assert!(!agrees, "{} agrees: take its mark `open` away", path.display()),
        }
    }
}
