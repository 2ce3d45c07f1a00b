//! Quantities with their units: text in, text out, base units inside.

use std::fmt;
use std::str::FromStr;

/// Why a text is no quantity of the wanted kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitError {
    /// What is wrong.
    pub message: String,
    /// What to write instead, if that can be told.
    pub hint: Option<String>,
}

impl fmt::Display for UnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if let Some(hint) = &self.hint {
            write!(f, " ({hint})")?;
        }
        Ok(())
    }
}

impl std::error::Error for UnitError {}

/// A kind of quantity: its unit's symbol, an example, and which prefixes it takes.
struct Kind {
    noun: &'static str,
    symbol: &'static str,
    example: &'static str,
    /// Takes `Ki` and the like.
    binary: bool,
    /// Takes `m` and the like.
    small: bool,
    /// A prefix counts this often: `um2` is `(um)²`.
    power: i32,
}

const BYTES: Kind = Kind { noun: "bytes", symbol: "B", example: "228 KiB", binary: true, small: false, power: 1 };
const BANDWIDTH: Kind =
    Kind { noun: "bytes per second", symbol: "B/s", example: "4.8 TB/s", binary: true, small: false, power: 1 };
const RATE: Kind = Kind {
    noun: "operations per second",
    symbol: "FLOP/s",
    example: "67 TFLOP/s",
    binary: false,
    small: false,
    power: 1,
};
const CLOCK: Kind =
    Kind { noun: "a frequency", symbol: "Hz", example: "1.98 GHz", binary: false, small: false, power: 1 };
const TIME: Kind = Kind { noun: "a time", symbol: "s", example: "3 us", binary: false, small: true, power: 1 };
const ENERGY: Kind = Kind { noun: "an energy", symbol: "J", example: "5 nJ", binary: false, small: true, power: 1 };
const ENERGY_PER_BYTE: Kind =
    Kind { noun: "energy per byte", symbol: "J/B", example: "60 pJ/B", binary: false, small: true, power: 1 };
const ENERGY_PER_OPERATION: Kind = Kind {
    noun: "energy per operation",
    symbol: "J/FLOP",
    example: "0.3 pJ/FLOP",
    binary: false,
    small: true,
    power: 1,
};
const AREA: Kind = Kind { noun: "an area", symbol: "m2", example: "1545 um2", binary: false, small: true, power: 2 };
const POWER: Kind = Kind { noun: "power", symbol: "W", example: "700 W", binary: false, small: true, power: 1 };
const KINDS: [&Kind; 10] =
    [&BYTES, &BANDWIDTH, &RATE, &CLOCK, &TIME, &ENERGY, &ENERGY_PER_BYTE, &ENERGY_PER_OPERATION, &AREA, &POWER];

const DECIMAL: [(&str, f64); 10] = [
    ("p", 1e-12),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("", 1.0),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
];
const BINARY: [(&str, f64); 4] = [("Ki", 1024.0), ("Mi", 1048576.0), ("Gi", 1073741824.0), ("Ti", 1099511627776.0)];

impl Kind {
    /// How many base units `unit` is.
    fn factor(&self, unit: &str) -> Option<f64> {
        let prefix = unit.strip_suffix(self.symbol)?;
        // KB is everyone's spelling of kB; micro is a letter of two alphabets, or its likeness.
        let prefix = match prefix {
            "K" => "k",
            "\u{b5}" | "\u{3bc}" => "u",
            other => other,
        };
        self.prefixes().find(|p| p.0 == prefix).map(|p| p.1)
    }

    fn prefixes(&self) -> impl DoubleEndedIterator<Item = (&'static str, f64)> {
        let binary = if self.binary { &BINARY[..] } else { &[] };
        let small = self.small;
        let all = DECIMAL.iter().copied().filter(move |p| small || p.1 >= 1.0).chain(binary.iter().copied());
        all.map(move |(name, factor)| (name, factor.powi(self.power)))
    }

    fn parse(&self, text: &str) -> Result<f64, UnitError> {
        let text = text.trim();
        let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '_');
        let digits = text.find(|c| !is_number(c)).unwrap_or(text.len());
        if text.strip_prefix('-').is_some_and(|rest| rest.trim_start().starts_with(is_number)) {
            return Err(UnitError { message: format!("`{text}` is less than nothing"), hint: None });
        }
        let (number, unit) = (text[..digits].replace('_', ""), text[digits..].trim());
        let example = || Some(format!("write {} as `{}`", self.noun, self.example));
        let fail = |message: String, hint| Err(UnitError { message, hint });
        let Ok(value) = number.parse::<f64>() else {
            return fail(format!("`{text}` does not start with a number"), example());
        };
        if unit.is_empty() {
            return fail(format!("`{text}` has no unit"), example());
        }
        match self.factor(unit) {
            Some(factor) if (value * factor).is_finite() => Ok(value * factor),
            Some(_) => fail(format!("`{text}` is too large"), None),
            None => fail(self.mistake(unit), self.correction(&number, unit).or_else(example)),
        }
    }

    fn mistake(&self, unit: &str) -> String {
        match KINDS.iter().find(|k| k.factor(unit).is_some()) {
            Some(other) => format!("`{unit}` measures {}, not {}", other.noun, self.noun),
            None => format!("`{unit}` is not a unit of {}", self.noun),
        }
    }

    /// The likeliest intended spelling.
    fn correction(&self, number: &str, unit: &str) -> Option<String> {
        let bits = ["bit/s", "bps", "b/s"].iter().find_map(|b| unit.strip_suffix(b)).filter(|p| p.len() <= 1);
        if self.symbol == "B/s"
            && let (Some(prefix), Ok(value)) = (bits, number.parse::<f64>())
            && self.factor(&format!("{prefix}B/s")).is_some()
        {
            return Some(format!("bits are an eighth of bytes: `{} {prefix}B/s`", value / 8.0));
        }
        let spelled = unit.to_lowercase().replace("flops", "flop/s").replace("bytes", "b").replace("byte", "b");
        let mut known = self.prefixes().map(|p| format!("{}{}", p.0, self.symbol));
        known.find(|k| k.to_lowercase() == spelled).map(|k| format!("did you mean `{number} {k}`?"))
    }

    /// With the prefix that leaves a number from 1 to 1000, and four digits.
    fn print(&self, value: f64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimal = || self.prefixes().filter(|p| !p.0.ends_with('i'));
        let fits = decimal().rfind(|p| value.abs() >= p.1);
        let (prefix, factor) = fits.or_else(|| decimal().next().filter(|_| value != 0.0)).unwrap_or(("", 1.0));
        let scaled = value / factor;
        let digits = if scaled.abs() >= 100.0 {
            1
        } else if scaled.abs() >= 10.0 {
            2
        } else {
            3
        };
        let text = format!("{scaled:.digits$}");
        let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
        write!(f, "{text} {prefix}{}", self.symbol)
    }
}

macro_rules! quantities {
    ($($(#[$doc:meta])* $name:ident = $kind:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
        pub struct $name(pub f64);

        impl FromStr for $name {
            type Err = UnitError;
            fn from_str(text: &str) -> Result<Self, UnitError> {
                $kind.parse(text).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                $kind.print(self.0, f)
            }
        }
    )*};
}

quantities! {
    /// A bandwidth in bytes per second.
    BytesPerSecond = BANDWIDTH,
    /// A rate of arithmetic operations per second, a multiply-add being two.
    FlopsPerSecond = RATE,
    /// A frequency in hertz.
    Hertz = CLOCK,
    /// A time in seconds.
    Seconds = TIME,
    /// An energy in joules.
    Joules = ENERGY,
    /// An energy per byte moved, in joules.
    JoulesPerByte = ENERGY_PER_BYTE,
    /// Power in watts.
    Watts = POWER,
    /// An area in square metres.
    SquareMetres = AREA,
    /// An energy per arithmetic operation, a multiply-add being two, in joules.
    JoulesPerOperation = ENERGY_PER_OPERATION,
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = UnitError;
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let value = BYTES.parse(text)?;
        if value >= u64::MAX as f64 {
            return Err(UnitError { message: format!("`{}` is too large", text.trim()), hint: None });
        }
        // Of many bytes a part of one is rounding.
        if value < 1024.0 && (value - value.round()).abs() > 1e-9 * value {
            return Err(UnitError { message: format!("`{}` is no whole number of bytes", text.trim()), hint: None });
        }
        Ok(Self(value.round() as u64))
    }
}

/// In binary units where they are exact to a thousandth or better (`228 KiB`), else in decimal ones (`80 GB`).
impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.0 as f64;
        let binary = BINARY.iter().rev().find(|p| value >= p.1);
        match binary {
            Some((prefix, factor)) if (value / factor * 8.0).fract() == 0.0 => {
                write!(f, "{} {prefix}B", value / factor)
            }
            _ => BYTES.print(value, f),
        }
    }
}

impl std::ops::Div<BytesPerSecond> for Bytes {
    type Output = Seconds;
    fn div(self, bandwidth: BytesPerSecond) -> Seconds {
        Seconds(self.0 as f64 / bandwidth.0)
    }
}

impl std::ops::Mul<JoulesPerByte> for Bytes {
    type Output = Joules;
    fn mul(self, energy: JoulesPerByte) -> Joules {
        Joules(self.0 as f64 * energy.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: FromStr<Err = UnitError> + fmt::Display>(text: &str, expected: &str) {
        let found = match text.parse::<T>() {
            Ok(value) => value.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{text}");
    }

    #[test]
    fn quantities_read_and_print() {
        check::<Bytes>("228 KiB", "228 KiB");
        check::<Bytes>("80GB", "80 GB");
        check::<Bytes>("1_000 B", "1 kB");
        check::<Bytes>("0 B", "0 B");
        check::<Bytes>("1.5 MiB", "1.5 MiB");
        check::<Bytes>("0.29 kB", "290 B");
        check::<Bytes>("1.1 MiB", "1.153 MB");
        check::<BytesPerSecond>("4.8 TB/s", "4.8 TB/s");
        check::<BytesPerSecond>("4800 GB/s", "4.8 TB/s");
        check::<FlopsPerSecond>("989.5 TFLOP/s", "989.5 TFLOP/s");
        check::<FlopsPerSecond>("1979 TFLOP/s", "1.979 PFLOP/s");
        check::<Hertz>("1.98 GHz", "1.98 GHz");
        check::<Seconds>("3.25 us", "3.25 us");
        check::<Seconds>("5 \u{b5}s", "5 us");
        check::<Seconds>("5 \u{3bc}s", "5 us");
        check::<SquareMetres>("5 \u{b5}m2", "5 um2");
        check::<Joules>("5 nJ", "5 nJ");
        check::<Watts>("0.7 kW", "700 W");
        check::<JoulesPerByte>("60 pJ/B", "60 pJ/B");
        check::<SquareMetres>("1545 um2", "1545 um2");
        check::<SquareMetres>("12.2 cm2", "`cm2` is not a unit of an area (write an area as `1545 um2`)");
        check::<SquareMetres>("814 mm2", "814 mm2");
        check::<JoulesPerOperation>("0.295 pJ/FLOP", "0.295 pJ/FLOP");
    }

    #[test]
    fn mistakes_say_what_to_write() {
        check::<BytesPerSecond>(
            "4.8 TB",
            "`TB` measures bytes, not bytes per second (write bytes per second as `4.8 TB/s`)",
        );
        check::<BytesPerSecond>(
            "100 Gbit/s",
            "`Gbit/s` is not a unit of bytes per second (bits are an eighth of bytes: `12.5 GB/s`)",
        );
        check::<Bytes>("228", "`228` has no unit (write bytes as `228 KiB`)");
        check::<Bytes>("0.5 B", "`0.5 B` is no whole number of bytes");
        check::<Bytes>("227.0001 B", "`227.0001 B` is no whole number of bytes");
        check::<Bytes>("lots", "`lots` does not start with a number (write bytes as `228 KiB`)");
        check::<Bytes>("50 mb", "`mb` is not a unit of bytes (did you mean `50 MB`?)");
        check::<FlopsPerSecond>(
            "67 TFLOPS",
            "`TFLOPS` is not a unit of operations per second (did you mean `67 TFLOP/s`?)",
        );
        check::<Hertz>("1.98 GiHz", "`GiHz` is not a unit of a frequency (write a frequency as `1.98 GHz`)");
        check::<Bytes>("99999999 PB", "`99999999 PB` is too large");
    }
}
