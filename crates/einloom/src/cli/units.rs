//! Numbers for people.

/// Bytes with a binary unit.
pub(crate) fn bytes(value: f64) -> String {
    scaled(value, 1024.0, &["B", "KiB", "MiB", "GiB", "TiB", "PiB"])
}

/// A rate with a decimal unit, such as `GFLOP/s`.
pub(crate) fn rate(value: f64, unit: &str) -> String {
    let text = scaled(value, 1e3, &["", "k", "M", "G", "T", "P"]);
    match text.split_once(' ') {
        Some((number, prefix)) => format!("{number} {prefix}{unit}"),
        None => format!("{text} {unit}"),
    }
}

/// A time.
pub(crate) fn seconds(value: f64) -> String {
    let (factor, unit) = match value {
        v if v >= 1.0 => (1.0, "s"),
        v if v >= 1e-3 => (1e3, "ms"),
        v if v >= 1e-6 => (1e6, "µs"),
        _ => (1e9, "ns"),
    };
    format!("{} {unit}", three_digits(value * factor))
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut k = 0;
    while value >= step && k + 1 < units.len() {
        value /= step;
        k += 1;
    }
    let number = if k == 0 && value.fract() == 0.0 { format!("{value}") } else { three_digits(value) };
    format!("{number} {}", units[k]).trim_end().to_owned()
}

fn three_digits(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_and_a_unit() {
        assert_eq!(bytes(17.0), "17 B");
        assert_eq!(bytes(1536.0), "1.50 KiB");
        assert_eq!(bytes(3e12), "2.73 TiB");
        assert_eq!(rate(4.2e9, "FLOP/s"), "4.20 GFLOP/s");
        assert_eq!(rate(12.0, "B/s"), "12 B/s");
        assert_eq!(seconds(0.0123), "12.3 ms");
        assert_eq!(seconds(2.0), "2.00 s");
        assert_eq!(seconds(0.0), "0.00 ns");
    }
}
