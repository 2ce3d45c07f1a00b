//! Sizes that are in no table, against the closed forms that the published model's rows follow.

mod support;

use std::collections::BTreeMap;
use support::{close, fusemax};

struct Sizes {
    b: f64,
    h: f64,
    m: f64,
    p: f64,
    e: f64,
    f: f64,
    /// The side of the arrays.
    n: f64,
}

const HERTZ: f64 = 940e6;
const BANDWIDTH: f64 = 400.0 * 1073741824.0;
const FLAT_BUFFER: f64 = 32.0 * 1048576.0;
const FUSEMAX_BUFFER: f64 = 16.0 * 1048576.0;

impl Sizes {
    fn tiles(&self) -> f64 {
        self.b * self.h * self.m * self.p / (self.n * self.n)
    }

    /// Cycles of divisions per tile.
    fn division(&self) -> f64 {
        self.f * self.n / self.m
    }

    /// Cycles per tile, and busy cycles per tile on the two arrays.
    fn cycles(&self, configuration: &str) -> (f64, f64, f64) {
        let (e, f, n, av) = (self.e, self.f, self.n, self.division());
        let (on_2d, on_1d) = (e + f + 9.0, 10.0 + 2.0 * f + av);
        match configuration {
            "binding" => ((e + 1.0).max(1.0 + f + av) + 1.0 + 8.0 + f, on_2d, on_1d),
            "architecture" => ((e + 1.0).max(1.0 + av) + n + 1.0 + 8.0 + 2.0 * f, on_2d, on_1d),
            "cascade" => ((e + f).max(4.0 * n + 5.0 + 2.0 * f + av), e + f, 4.0 * n + 5.0 + 2.0 * f + av),
            _ => ((e + f).max(4.0 * n), e + f, 4.0 * n),
        }
    }

    /// Bytes of the one-pass cascade when a column of tiles holds `words` a position.
    fn traffic(&self, words: f64) -> f64 {
        let row = 2.0 * self.n;
        let most = ((FUSEMAX_BUFFER - row * (self.e + self.f)) / (row * words)).floor();
        let pieces = self.p / self.n;
        let block = (1..=pieces as usize).rev().map(|d| d as f64).find(|d| pieces % d == 0.0 && *d <= most).unwrap();
        let again = pieces / block;
        2.0 * self.b * self.h * (self.p * self.e + self.p * self.f + again * self.m * (self.e + self.f))
    }

    /// Bytes of FLAT's plans: scores in the buffer, which tiles of all else pass by, or in DRAM where too few rows fit.
    fn flat_traffic(&self) -> f64 {
        let (n, m, p, e, f) = (self.n, self.m, self.p, self.e, self.f);
        let (rows, columns) = ((m / n).ceil(), (p / n).ceil());
        let fits = |positions: f64| 2.0 * m * positions <= FLAT_BUFFER;
        let all = fits(p);
        let (most, divides) = (1024f64.max(n), |d: &f64| columns % d == 0.0);
        let block = (1..=columns as usize).rev().map(|d| d as f64).filter(divides);
        let Some(block) = block.map(|d| d * n).find(|&b| if all { b >= p } else { b <= most && fits(b) }) else {
            return 2.0 * self.b * self.h * (p * e + p * f + (p / 1024.0).ceil() * m * (e + f) + 4.0 * m * p);
        };
        // Q, K, V: how often DRAM delivers it, how often the arrays read it, and positions of a part.
        let tiled = [(p * e, rows, n * e), (m * e, columns, n * e), (m * f, columns, n * f)];
        let whole = |k: usize| [(p * e, 1.0, block * e), (m * e, 1.0, m * e), (m * f, 1.0, m * f)][k];
        let plans: &[&[usize]] = if all { &[&[], &[2], &[1, 2]] } else { &[&[], &[0]] };
        let mut bytes = 0.0;
        for on_chip in plans {
            let parts = [0, 1, 2].map(|k| if on_chip.contains(&k) { whole(k) } else { tiled[k] });
            let needed = 2.0 * m * block.min(p) + 4.0 * (parts.iter().map(|x| x.2).sum::<f64>() + n * f);
            let over = (1.0 - FLAT_BUFFER / needed).max(0.0);
            let delivered = |over: f64| -> f64 {
                let words = parts.iter().zip(&tiled).map(|(x, t)| x.0 * (x.1 * (1.0 - over) + t.1 * over));
                2.0 * self.b * self.h * (words.sum::<f64>() + p * f)
            };
            bytes = delivered(over) + 14.0 * self.b * self.h * m * p * over;
            let products = (e + (f / n).ceil() * n) * self.tiles() / HERTZ;
            if delivered(0.0) / BANDWIDTH <= products {
                break;
            }
        }
        bytes
    }

    fn check(&self) {
        let study = fusemax();
        let named = [("B", self.b), ("H", self.h), ("M", self.m), ("P", self.p), ("E", self.e), ("F", self.f)];
        let sizes: BTreeMap<String, usize> = named.iter().map(|(n, s)| (n.to_string(), *s as usize)).collect();
        let mut wrong = String::new();
        for name in ["unfused", "flat", "cascade", "architecture", "binding"] {
            let mut c = study.configuration(name).unwrap().clone();
            c.chip = c.chip.with_array(self.n as usize);
            let found = c.evaluate(&study, &sizes, &c.faults("artifact").unwrap()).unwrap();
            let (cycles, on_2d, on_1d) = self.cycles(name);
            let u = self.tiles();
            let (bh, m, p, e, f) = (self.b * self.h, self.m, self.p, self.e, self.f);
            let (seconds, traffic) = match name {
                "unfused" => {
                    let kernels = [
                        (e, 2.0 * bh * (p * e + m * e + m * p)),
                        (4.0 * self.n, 4.0 * bh * m * p),
                        (f, 2.0 * bh * (m * p + m * f + p * f)),
                    ];
                    let seconds = kernels.iter().map(|(c, bytes)| (c * u / HERTZ).max(bytes / BANDWIDTH)).sum();
                    (seconds, kernels.iter().map(|k| k.1).sum())
                }
                "flat" => ((cycles * u / HERTZ).max(self.flat_traffic() / BANDWIDTH), self.flat_traffic()),
                _ => {
                    let words = e + f + 2.0 + if name == "cascade" { 2.0 * self.n } else { 0.0 };
                    let traffic = self.traffic(words);
                    ((cycles * u / HERTZ).max(traffic / BANDWIDTH), traffic)
                }
            };
            let what = |quantity: &str| format!("{name} M={m} P={p} E={e} array {}: {quantity}", self.n);
            wrong.extend(close(found.seconds, seconds, 1e-12, &what("seconds")));
            wrong.extend(close(found.traffic_bytes, traffic, 1e-12, &what("traffic")));
            wrong.extend(close(found.utilisation["2d"], on_2d * u / HERTZ / seconds, 1e-12, &what("2d")));
            wrong.extend(close(found.utilisation["1d"], on_1d * u / HERTZ / seconds, 1e-12, &what("1d")));
        }
        assert!(wrong.is_empty(), "\n{wrong}");
    }
}

const BASE: Sizes = Sizes { b: 64.0, h: 20.0, m: 2048.0, p: 2048.0, e: 80.0, f: 80.0, n: 256.0 };

#[test]
fn other_heads_and_lengths() {
    BASE.check();
    Sizes { m: 32768.0, p: 32768.0, ..BASE }.check();
    Sizes { m: 65536.0, p: 65536.0, e: 128.0, f: 128.0, ..BASE }.check();
    Sizes { b: 1.0, h: 1.0, m: 256.0, p: 256.0, e: 1.0, f: 1.0, ..BASE }.check();
}

#[test]
fn queries_and_keys_of_different_lengths() {
    Sizes { m: 32768.0, p: 256.0, ..BASE }.check();
    Sizes { m: 2048.0, p: 262144.0, ..BASE }.check();
    Sizes { m: 16384.0, p: 3.0 * 4096.0, ..BASE }.check();
}

#[test]
fn different_widths() {
    Sizes { e: 192.0, f: 128.0, ..BASE }.check();
    Sizes { e: 64.0, f: 256.0, m: 8192.0, ..BASE }.check();
}

#[test]
fn other_arrays() {
    Sizes { n: 128.0, ..BASE }.check();
    Sizes { n: 64.0, e: 64.0, f: 64.0, m: 4096.0, p: 8192.0, ..BASE }.check();
    Sizes { n: 512.0, m: 32768.0, p: 65536.0, ..BASE }.check();
}

/// Arrays that are not square stay as oblong as they are, and a row stays a row.
#[test]
fn oblong_arrays() {
    let mut chip = fusemax().configuration("binding").unwrap().chip.clone();
    chip.arrays[0].columns = 64;
    let sides = |side| chip.with_array(side).arrays.iter().map(|a| (a.rows, a.columns)).collect::<Vec<_>>();
    assert_eq!(sides(256), [(256, 64), (1, 256)]);
    assert_eq!(sides(32), [(32, 8), (1, 32)]);
    assert_eq!(sides(1), [(1, 1), (1, 1)]);
}

/// Keys that do not fill whole tiles are filled up, and the reader is told; queries leave lanes idle.
#[test]
fn ragged_lengths() {
    let study = fusemax();
    let c = study.configuration("binding").unwrap();
    let evaluated = |m: usize, p: usize| {
        let sizes = [("B", 1), ("H", 1), ("M", m), ("P", p), ("E", 64), ("F", 64)];
        let sizes: BTreeMap<String, usize> = sizes.map(|(n, s)| (n.to_string(), s)).into();
        c.evaluate(&study, &sizes, &c.faults("artifact").unwrap()).unwrap()
    };
    let (ragged, whole) = (evaluated(1000, 1000), evaluated(1024, 1024));
    assert_eq!(ragged.notes, ["M is filled up from 1000 to 1024, whole tiles of 256"]);
    assert_eq!(whole.notes, [""; 0]);
    assert_eq!(ragged.seconds, whole.seconds);
    assert!(ragged.traffic_bytes < whole.traffic_bytes && ragged.energy.total() < whole.energy.total());
}
