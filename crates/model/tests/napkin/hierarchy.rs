//! Several levels, bytes, caches, clusters, and the thresholds of an H100 (section 5 and appendices A and B).

use super::programs::*;
use einloom_machine::{Work, built_in};
use einloom_model::calculus::{Exchange, Feed, exchange_gain};
use num_rational::Ratio;

const N: [(&str, f64); 3] = [("Q", 4096.0), ("X", 4096.0), ("D", 128.0)];

#[test]
fn levels_add_up() {
    let best = derived(ATTENTION).optimum(&flash()).expect("a formula");
    let feeds = [Feed { capacity: 2f64.powi(24), price: 1e-12 }, Feed { capacity: 2f64.powi(16), price: 1.0 / 4e12 }];
    near(best.levels(&feeds, with(&N)), 5.57056e-6);
}

#[test]
fn narrower_values_move_less() {
    // The leading term of attention gains 4, that of a matmul 2^1.5; what moves once gains 2.
    let best = derived(ATTENTION).optimum(&flash()).expect("a formula");
    let bytes = |q: f64| best.in_bytes(q).terms(131072.0, with(&N));
    let expected = [(Ratio::from(1), [134217728.0, 33554432.0]), (Ratio::from(0), [4194304.0, 2097152.0])];
    for (k, (beta, [wide, narrow])) in expected.into_iter().enumerate() {
        assert_eq!((bytes(4.0)[k].0, bytes(2.0)[k].0), (beta, beta));
        near(bytes(4.0)[k].1, wide);
        near(bytes(2.0)[k].1, narrow);
    }
    let best = derived(MATMUL).optimum(&tiled()).expect("a formula");
    let n = [("A", 4096.0), ("B", 4096.0), ("C", 4096.0)];
    let leading = |q: f64| best.in_bytes(q).terms(131072.0, with(&n))[0].1;
    near(leading(4.0) / leading(2.0), 2f64.powf(1.5));
    near(best.in_bytes(2.0).eval(131072.0, with(&n)), 2.0 * best.eval(65536.0, with(&n)));
}

#[test]
fn a_cache_keeps_what_is_not_complete() {
    let best = derived(ATTENTION).optimum(&flash()).expect("a formula");
    near(best.cached(65536.0, 4.0, 4.0, with(&N)).expect("room"), 5242880.0);
    assert_eq!(best.cached(65536.0, 4.0, 5.0, with(&N)), None, "no room for five groups");
}

#[test]
fn clusters_save_by_copying_to_each_other() {
    // Prices measured on an H800: alone 2.04 TB/s, in clusters of two 3.27, of four 2.65.
    let saved = |cores: f64, rate: f64, text: &str, p, n: &[(&str, f64)], m: f64| {
        let best = derived(text).optimum(&p).expect("a formula");
        let mut leading = best.clone();
        leading.terms.truncate(1);
        let exchange = Exchange { cores, alone: 1.0 / 2.04, exchanged: 1.0 / rate };
        exchange_gain(&leading, exchange, m, with(n)) / (leading.eval(m, with(n)) / 2.04)
    };
    let close = |found: f64, percent: f64| assert!((100.0 * found - percent).abs() < 0.006, "{found}");
    close(saved(2.0, 3.27, ATTENTION, flash(), &N, 65536.0), 18.81);
    close(saved(4.0, 2.65, ATTENTION, flash(), &N, 65536.0), 17.26);
    let n = [("A", 4096.0), ("B", 4096.0), ("C", 4096.0)];
    close(saved(2.0, 3.27, MATMUL, tiled(), &n, 65536.0), 11.02);
    close(saved(4.0, 2.65, MATMUL, tiled(), &n, 65536.0), 11.51);
}

#[test]
fn what_an_h100_needs_at_least() {
    let best = derived(MATMUL).optimum(&tiled()).expect("a formula");
    let work = derived(MATMUL).work(&tiled()).expect("a formula").total(Work::Products);
    let h100 = built_in("h100").expect("built in");
    let bandwidth = h100.trunk().next().expect("device memory").bandwidth.0;
    // Values of two bytes per operation, from device memory; the paper has 989.4 TFLOP/s.
    let outer = bandwidth / 2.0 / 989.4e12;
    near(outer, 1.692945e-3);
    let endless = [("A", 1e15), ("B", 1e15), ("C", 1e15)];
    let capacity = best.least_capacity(&work, outer, with(&endless)).expect("a capacity");
    near(capacity * 2.0 / 1024.0, 681.46);
    let b = |m: f64, feed: f64| best.least_size(&size("B"), m, &work, feed, with(&endless)).expect("a size");
    near(b(1e17, outer), 295.343);
    let inner = 12e12 / 2.0 / 989.4e12;
    near(b(1e17, inner), 82.45);
    // The printed 151 takes the register file, 256 KiB; shared memory is 227 KiB.
    let values = |name: &str| h100.level(name).and_then(|l| l.capacity).expect("a capacity").0 as f64 / 2.0;
    assert!((b(values("registers"), inner) - 151.4).abs() < 0.05);
    assert!((b(values("shared memory"), inner) - 159.7).abs() < 0.05);
}
