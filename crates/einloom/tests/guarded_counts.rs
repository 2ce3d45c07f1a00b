//! What is predicted of streams of which positions alone leave chunks out is what the executor counts, at sizes that tiles do not divide.

use einloom::random::random_values;
use einloom::{PlanOptions, Program, RunOptions, Tensor};
use einloom_cascade::Given;

/// Attention where a condition on positions says what of K and V a row sees.
fn attention(condition: &str) -> String {
    format!(
        "input Q[m,d]: f32, K[n,d]: f32, V[n,e]: f32\noutput O: f32\n\
         S[m,n] = sum(d) Q[m,d] * K[n,d] / sqrt(D)\n\
         P[m,n] = exp(S[m,n] - max(n: {condition}) S[m,n])\n\
         O[m,e] = sum(n: {condition}) P[m,n] / (sum(n: {condition}) P[m,n]) * V[n,e]\n"
    )
}

/// A product of which a condition on positions leaves terms out.
fn product(condition: &str) -> String {
    format!(
        "input A[m,n]: f32, B[n,e]: f32\noutput C: f32\n\
         C[m,e] = sum(n: {condition}) A[m,n] * B[n,e]\n"
    )
}

fn sized(text: &str, sizes: &[(&str, usize)]) -> (einloom::Derived, Given) {
    let derived = Program::from_text(text).check().unwrap_or_else(|e| panic!("{text}: {e}")).derive();
    let mut given = Given::default();
    for rank in derived.cascade().ranks.iter().filter(|r| r.default.is_none()) {
        let size = sizes.iter().find(|s| s.0 == rank.name).unwrap_or_else(|| panic!("{}", rank.name));
        given.sizes.insert(rank.name.clone(), size.1);
    }
    (derived, given)
}

#[test]
fn chunks_that_positions_leave_are_counted_as_executed() {
    let machine = einloom::machines::find("cpu-generic").expect("built in");
    // With whether chunks of few positions are left out.
    let programs = [
        (attention("n <= m and (m - n < 9 or n < 4)"), true),
        (attention("n <= m and (m - n < 9 or n == 3 * floor(n / 3))"), true),
        (attention("n <= m and m - 2 * floor(m / 2) == n - 2 * floor(n / 2)"), true),
        (product("n - 3 * floor(n / 3) == m - 3 * floor(m / 3)"), true),
        (product("n < 5 or n >= m + 20 or abs(m - n) < 3"), true),
        (product("n + m == 2 * floor((n + m) / 2) and n < 100"), false),
    ];
    let sizes = [[("M", 37), ("N", 53), ("D", 5), ("E", 7)], [("M", 61), ("N", 61), ("D", 8), ("E", 3)]];
    let (mut compared, mut guarded, mut left) = (0, 0, 0);
    for (text, leaves) in &programs {
        for sizes in &sizes {
            for tiles in [None, Some([1, 1]), Some([1, 7]), Some([4, 3]), Some([7, 5]), Some([16, 16])] {
                let (derived, given) = sized(text, sizes);
                let mut options = PlanOptions::default();
                if let Some([m, n]) = tiles {
                    options.tiles = [("m".to_string(), m), ("n".to_string(), n)].into();
                }
                let planned = derived.plan(&given, &machine, &options).unwrap_or_else(|e| panic!("{text}: {e}"));
                let inputs = derived.cascade().inputs().map(|t| {
                    let values = random_values(derived.cascade(), planned.bound(), t, 1);
                    let shape = planned.bound().shape(derived.cascade(), t);
                    let tensor = Tensor::from_values(planned.dtype(t), &shape, &values).expect("the shape's values");
                    (derived.cascade()[t].name.clone(), tensor)
                });
                let outcome = planned
                    .run(&inputs.collect(), &RunOptions { count: true, ..RunOptions::default() })
                    .unwrap_or_else(|e| panic!("{text}: {e}"));
                let mut notes = planned.kernels().iter().flat_map(|k| &k.notes);
                let told = notes.any(|n| n.contains("the work is that of the others"));
                guarded += usize::from(told);
                for (predicted, counted) in planned.transfers().iter().zip(&outcome.report.kernels) {
                    let place = format!("{text} {}, {sizes:?} {tiles:?}", predicted.name);
                    assert!(!predicted.data_dependent, "{place}");
                    for level in &predicted.levels {
                        let (bytes, bound) = (level.bytes, level.bound_bytes);
                        assert!(bytes >= bound, "{place}: {bytes} below its bound {bound} at {}", level.level);
                    }
                    for t in &predicted.tensors {
                        let found = counted.traffic.iter().find(|c| c.tensor == t.tensor);
                        let found = found.map_or((0, 0), |c| (c.loaded_bytes, c.stored_bytes));
                        assert_eq!((t.loaded_bytes, t.stored_bytes), found, "{place}");
                        compared += 1;
                    }
                    left += usize::from(*leaves && told);
                }
            }
        }
    }
    assert!(compared > 150 && guarded > 20 && left > 15, "{compared} {guarded} {left}");
}

/// Sinks are one chunk more.
#[test]
fn a_window_with_sinks_takes_little_longer_than_without() {
    let sizes = [("M", 8192), ("N", 8192), ("D", 64), ("E", 64)];
    for name in ["h200", "cpu-generic"] {
        let machine = einloom::machines::find(name).expect("built in");
        let seconds = |condition: &str| -> f64 {
            let (derived, given) = sized(&attention(condition), &sizes);
            let planned = derived.plan(&given, &machine, &PlanOptions::default()).expect("planned");
            planned.transfers().iter().map(|k| k.seconds).sum()
        };
        let window = seconds("n <= m and m - n < 128");
        let sinks = seconds("n <= m and (m - n < 128 or n < 4)");
        assert!((window..2.5 * window).contains(&sinks), "{name}: {sinks} for {window}");
    }
}
