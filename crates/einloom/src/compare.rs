//! How far two results are apart, and how far they may be.

use einloom_cascade::{Bound, Cascade, DType, Expr, ExprKind, Role, Step, TensorId};
use einloom_tile as tile;
use std::collections::BTreeSet;
use std::fmt;

/// The distance of a result from its reference. NaN agrees with NaN and an infinity with itself; any other pair with
/// a member that is not finite is infinitely far apart.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Distance {
    /// `max |got - reference|`.
    pub max_abs: f64,
    /// `‖got - reference‖₂ / ‖reference‖₂` over the elements that are finite in both.
    pub rel_l2: f64,
    /// `max |got - reference| / scale`, the scale of an element being the largest magnitude of the reference's row
    /// (its fibre along the last dimension): what is compared with a [`Tolerance`].
    pub scaled: f64,
    /// Where `scaled` was found, counted row-major.
    pub worst: usize,
}

/// Compares `got` with `reference`, row-major arrays with rows of `row` elements. Differences below `floor` count as
/// none: results that underflow have no relative precision.
pub fn distance(got: &[f64], reference: &[f64], row: usize, floor: f64) -> Distance {
    let mut out = Distance::default();
    let (mut difference, mut norm) = (0.0, 0.0);
    for (r, (got, reference)) in got.chunks(row.max(1)).zip(reference.chunks(row.max(1))).enumerate() {
        let scale = reference.iter().filter(|v| v.is_finite()).fold(0.0f64, |m, v| m.max(v.abs()));
        for (c, (&g, &w)) in got.iter().zip(reference).enumerate() {
            let apart = if g == w || (g.is_nan() && w.is_nan()) {
                0.0
            } else if g.is_finite() && w.is_finite() {
                (g - w).abs()
            } else {
                f64::INFINITY
            };
            let scaled = if apart <= floor { 0.0 } else { apart / scale.max(floor).max(f64::MIN_POSITIVE) };
            if scaled > out.scaled {
                out.scaled = scaled;
                out.worst = r * row.max(1) + c;
            }
            out.max_abs = out.max_abs.max(apart);
            if apart.is_infinite() {
                out.rel_l2 = f64::INFINITY;
            } else if w.is_finite() {
                difference += apart * apart;
                norm += w * w;
            }
        }
    }
    if out.rel_l2 == 0.0 && difference > 0.0 {
        out.rel_l2 = (difference / norm).sqrt();
    }
    out
}

/// The error that is allowed, and where it comes from:
/// `u(output) + c·√K·u(arithmetic) + Σ u(rounding) + sensitivity`, with unit roundoffs `u`, `K` the longest reduction
/// or recurrence and `c = 8`. The square root is the usual growth of rounding errors in a sum (N. Higham, Accuracy and Stability
/// of Numerical Algorithms, §2.6: a rule of thumb, not a bound).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tolerance {
    /// Storing the output rounds it. 0 for integers: they must agree exactly.
    pub output: f64,
    /// Sums are computed in f32, or f64.
    pub arithmetic: f64,
    /// The program or its plan rounds values on the way.
    pub rounding: f64,
    /// How much the meaning itself moves when its inputs do by the parts above: measured, and only where the result
    /// would be refused without it.
    pub sensitivity: f64,
}

impl Tolerance {
    /// All of it.
    pub fn total(&self) -> f64 {
        self.output + self.arithmetic + self.rounding + self.sensitivity
    }

    /// Whether two results may be so far apart. However sensitive the text is, no number is not a number of any size.
    pub fn allows(&self, distance: &Distance) -> bool {
        distance.scaled.is_finite() && distance.scaled <= self.total()
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1e}", self.total())?;
        let parts = [
            ("output", self.output),
            ("arithmetic", self.arithmetic),
            ("rounding", self.rounding),
            ("sensitivity", self.sensitivity),
        ];
        let parts: Vec<String> =
            parts.iter().filter(|p| p.1 > 0.0).map(|(name, value)| format!("{name} {value:.1e}")).collect();
        if parts.len() > 1 { write!(f, " = {}", parts.join(" + ")) } else { Ok(()) }
    }
}

/// Half the distance from 1 to the next number; 0 for integers and truth values.
pub fn unit_roundoff(dtype: DType) -> f64 {
    let bits = match dtype {
        DType::F64 => 53,
        DType::F32 => 24,
        DType::Tf32 | DType::F16 => 11,
        DType::Bf16 => 8,
        DType::E4m3 => 4,
        DType::E5m2 => 3,
        _ => return 0.0,
    };
    2f64.powi(-bits)
}

/// What rounds to 0: half of the type's smallest positive number (for f64, that number).
fn underflow(dtype: DType) -> f64 {
    2f64.powi(match dtype {
        DType::F64 => -1074,
        DType::F32 => -150,
        DType::Tf32 => -137,
        DType::Bf16 => -134,
        DType::F16 => -25,
        DType::E5m2 => -17,
        DType::E4m3 => -10,
        _ => return 0.0,
    })
}

/// What a program's outputs are compared with: everything but the output's own number type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    /// The number type of sums.
    pub arithmetic: DType,
    /// `K`.
    pub longest: f64,
    /// Sum of the unit roundoffs of every value that is rounded on the way.
    pub rounding: f64,
}

impl Precision {
    /// Of a planned program. Rounding is read off the tile program: it says what is rounded to what.
    pub fn of(cascade: &Cascade, bound: &Bound, program: &tile::Program) -> Self {
        let all_f64 = !has_narrow_tensor(cascade)
            && cascade.tensors.iter().filter_map(|t| t.dtype).filter(|d| d.is_float()).all(|d| d == DType::F64)
            && cascade.inputs().any(|t| cascade[t].dtype == Some(DType::F64));
        let mut longest = 1.0f64;
        for statement in &cascade.statements {
            longest = longest.max(longest_reduction(cascade, bound, &statement.value));
        }
        for step in &cascade.order {
            if let Step::Iterate { rank, .. } = step {
                longest = longest.max(bound.size(*rank) as f64);
            }
        }
        Self { arithmetic: if all_f64 { DType::F64 } else { DType::F32 }, longest, rounding: roundings(program) }
    }

    /// The tolerance of an output of a number type.
    pub fn tolerance(&self, output: DType) -> Tolerance {
        if !output.is_float() {
            return Tolerance::default();
        }
        let unit = unit_roundoff(output);
        Tolerance {
            // The reference is rounded too, perhaps the other way.
            output: if unit > unit_roundoff(self.arithmetic) { 2.0 * unit } else { unit },
            arithmetic: 8.0 * self.longest.sqrt() * unit_roundoff(self.arithmetic),
            rounding: self.rounding,
            sensitivity: 0.0,
        }
    }

    /// Differences below this are none, for an output of a number type.
    pub fn floor(&self, output: DType) -> f64 {
        // Where functions of the arithmetic's type underflow, times factors of any ordinary size.
        let arithmetic = if self.arithmetic == DType::F64 { 1e-290 } else { 1e-30 };
        if output.is_float() { underflow(output).max(arithmetic) } else { 0.0 }
    }
}

/// Whether some tensor is computed from no f64 at all, but from constants, parameters and positions alone: those make
/// numbers that are computed in f32, whatever the number types of the inputs are.
fn has_narrow_tensor(cascade: &Cascade) -> bool {
    fn reads(expr: &Expr, wide: &BTreeSet<TensorId>) -> bool {
        let mut found = matches!(&expr.kind, ExprKind::Read { tensor, .. } if wide.contains(tensor));
        expr.for_each_child(&mut |child| found |= reads(child, wide));
        found
    }
    let ids = (0..cascade.tensors.len() as u32).map(TensorId);
    let mut wide: BTreeSet<TensorId> = ids.filter(|&t| cascade[t].role == Role::Input).collect();
    loop {
        let before = wide.len();
        let reached: Vec<TensorId> =
            cascade.statements.iter().filter(|s| reads(&s.value, &wide)).map(|s| s.target).collect();
        wide.extend(reached);
        if wide.len() == before {
            break;
        }
    }
    let rounds = |e: &Expr| matches!(e.kind, ExprKind::Unary(..) | ExprKind::Binary(..) | ExprKind::Reduce { .. });
    cascade.statements.iter().any(|s| !wide.contains(&s.target) && rounds(&s.value))
}

fn longest_reduction(cascade: &Cascade, bound: &Bound, expr: &Expr) -> f64 {
    let mut longest = match &expr.kind {
        ExprKind::Reduce { over, .. } => over.iter().map(|&i| bound.size(cascade[i].rank) as f64).product(),
        _ => 1.0,
    };
    expr.for_each_child(&mut |child| longest = longest_reduction(cascade, bound, child).max(longest));
    longest
}

/// Unit roundoffs of everything that the program rounds to a type narrower than f32, outputs apart.
fn roundings(program: &tile::Program) -> f64 {
    let narrow = |d: DType| if d.is_float() && d.bytes() < 4 || d == DType::Tf32 { unit_roundoff(d) } else { 0.0 };
    let mut sum: f64 =
        program.tensors.iter().filter(|t| t.role == tile::TensorRole::Temporary).map(|t| narrow(t.dtype)).sum();
    for kernel in &program.kernels {
        rounded_values(kernel, &kernel.body, &mut |dtype| sum += narrow(dtype));
    }
    sum
}

/// The types of the values that operations compute, as opposed to load, and of what is rounded within them.
fn rounded_values(kernel: &tile::Kernel, ops: &[tile::Op], f: &mut impl FnMut(DType)) {
    for op in ops {
        match op {
            tile::Op::Map { dst, expr } => {
                f(kernel.value(*dst).dtype);
                rounded_within(expr, f);
            }
            tile::Op::Mma { dst, .. } | tile::Op::Reduce { dst, .. } => f(kernel.value(*dst).dtype),
            tile::Op::Stream { body, .. } => rounded_values(kernel, body, f),
            // What is picked is rounded already.
            tile::Op::Load { .. } | tile::Op::Store { .. } | tile::Op::Pick { .. } | tile::Op::SkipUnless { .. } => {}
        }
    }
}

fn rounded_within(expr: &tile::Scalar, f: &mut impl FnMut(DType)) {
    match expr {
        tile::Scalar::Round(dtype, x) => {
            f(*dtype);
            rounded_within(x, f);
        }
        tile::Scalar::Unary(_, x) => rounded_within(x, f),
        tile::Scalar::Binary(_, x, y) => [x, y].into_iter().for_each(|e| rounded_within(e, f)),
        tile::Scalar::Select(c, x, y) => [c, x, y].into_iter().for_each(|e| rounded_within(e, f)),
        tile::Scalar::Const(_)
        | tile::Scalar::Tile(_)
        | tile::Scalar::Argument(_)
        | tile::Scalar::Position(_)
        | tile::Scalar::Within(_) => {}
    }
}

/// The same program with every floating-point tensor in f64: what is left of an error then is not a rounding.
pub fn in_f64(cascade: &Cascade) -> Cascade {
    let mut out = cascade.clone();
    for tensor in &mut out.tensors {
        let float = tensor.dtype.is_none_or(DType::is_float);
        if float && (tensor.dtype.is_some() || tensor.role != Role::Intermediate) {
            tensor.dtype = Some(DType::F64);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_finite_agrees_with_itself_alone() {
        let (inf, nan) = (f64::INFINITY, f64::NAN);
        assert_eq!(distance(&[inf, nan, 1.0], &[inf, nan, 1.0], 3, 0.0).scaled, 0.0);
        for (got, reference) in [(nan, 1.0), (1.0, nan), (inf, -inf), (0.0, inf), (inf, nan)] {
            let d = distance(&[got], &[reference], 1, 0.0);
            assert_eq!((d.max_abs, d.rel_l2, d.scaled), (inf, inf, inf), "{got} {reference}");
        }
    }

    #[test]
    fn no_sensitivity_allows_what_is_no_number() {
        let anything = Tolerance { sensitivity: f64::INFINITY, ..Tolerance::default() };
        assert!(anything.allows(&distance(&[5.0], &[1.0], 1, 0.0)));
        assert!(!anything.allows(&distance(&[f64::NAN], &[1.0], 1, 0.0)));
    }

    #[test]
    fn every_row_has_its_own_scale() {
        // An error that drowns beside the large row is seen beside the small one.
        let d = distance(&[1e6, 0.0, 0.5, 1.0], &[1e6, 0.0, 0.25, 1.0], 2, 0.0);
        assert_eq!((d.max_abs, d.scaled, d.worst), (0.25, 0.25, 2));
        assert!(d.rel_l2 < 1e-6);
        assert_eq!(distance(&[1e-40], &[0.0], 1, 1e-30).scaled, 0.0);
        assert!(distance(&[1e-20], &[0.0], 1, 1e-30).scaled > 1.0);
        assert_eq!(distance(&[], &[], 0, 0.0), Distance::default());
    }

    #[test]
    fn unit_roundoffs_are_those_of_the_formats() {
        for dtype in DType::ALL {
            let u = unit_roundoff(dtype);
            if u > 0.0 {
                let round = |x| einloom_cascade::numeric::round(dtype, x);
                assert_eq!(round(1.0 + u), 1.0, "{dtype}: ties to even");
                assert!(round(1.0 + 1.01 * u) > 1.0, "{dtype}");
                // Half of the smallest f64 is no f64.
                if dtype != DType::F64 {
                    assert_eq!(round(underflow(dtype)), 0.0, "{dtype}");
                    assert!(round(1.01 * underflow(dtype)) > 0.0, "{dtype}");
                }
            }
        }
    }
}
