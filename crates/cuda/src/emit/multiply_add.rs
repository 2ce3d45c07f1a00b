//! Products by multiply and add, where no matrix unit takes their factors. A thread has a block of the result; for every
//! term it reads a column of the left factor and a row of the right one. Factors in f32 are read four at a time, along
//! whichever axis they lie: a multiplication takes one instruction, and so does a read.

use super::element::{Emitter, variable};
use super::load::zero;
use super::scalar::bare;
use super::type_name;
use crate::schedule::{Carrier, FrameId, Product, SharedTile, Side};
use einloom_cascade::DType;
use einloom_tile::{AxisId, ValueId};

/// Elements of f32 that are read at once: 16 bytes.
const WIDE: usize = 4;

/// How a thread reads what it needs of a factor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Read {
    /// Neighbouring terms at once.
    Terms,
    /// Neighbouring elements of one term at once.
    Elements,
    /// One by one.
    Single,
}

/// One factor of a product.
struct Factor {
    name: &'static str,
    value: ValueId,
    side: Side,
    /// Its axis that the result has, in the result's frame.
    kept: Option<(FrameId, AxisId)>,
    read: Read,
    /// What a thread reads is at constant distances from one place: bytes from one of its rows to the next, or from one of
    /// its groups of neighbours to the next; see [`Emitter::from`].
    apart: Option<usize>,
}

/// Four elements so many bytes from a thread's first.
fn at(factor: &Factor, bytes: &str) -> String {
    format!("*reinterpret_cast<const Pack<float, {WIDE}>*>({}_from + {bytes})", factor.name)
}

impl Emitter<'_> {
    pub(super) fn multiply_add(&mut self, dst: ValueId, acc: Option<ValueId>, p: &Product, number: Carrier) {
        let carrier = self.facts.carrier(dst);
        let frame = self.frame_of(dst);
        // Sums of another type than the result's have registers of their own.
        let apart = carrier != number;
        let sum = if apart { "product".to_string() } else { self.variable_of(dst, frame) };
        if apart {
            self.declare(dst, frame);
            self.w.open("");
            let count = |side| frame.and_then(|f| self.along(dst, f, side).map(|a| self.span(f, a).count.to_string()));
            let (i, j) = (count(Side::Down).unwrap_or_default(), count(Side::Across).unwrap_or_default());
            let line = format!("{} product{};", number.name(), self.brackets(dst, frame, &i, &j));
            self.w.line(line);
            let loops = self.each_element(dst, frame);
            let line = format!("product{} = {};", self.brackets(dst, frame, "i", "j"), zero(number));
            self.w.line(line);
            self.close(loops);
        } else {
            self.start_sum(dst, acc);
        }
        let factors = [("left", p.left, Side::Down), ("right", p.right, Side::Across)].map(|(name, value, side)| {
            let kept = frame.and_then(|f| self.along(dst, f, side).map(|a| (f, a)));
            let read = self.reading(value, kept, side, p.sum, number);
            Factor { name, value, side, kept, read, apart: self.apart(value, kept, read) }
        });
        let (len, size) = (self.len(p.sum), self.facts.size(p.sum));
        let fours = factors.iter().any(|f| f.read != Read::Single) && size.is_multiple_of(WIDE);
        self.w.open("");
        self.w.line("int e = 0;");
        if fours {
            factors.iter().for_each(|f| self.from(f, p.sum));
            self.w.line("#pragma unroll 2");
            self.w.open(format!("for (; e + {WIDE} <= {len}; e += {WIDE})"));
            factors.iter().filter(|f| f.read == Read::Terms).for_each(|f| self.terms(f, p.sum, number));
            self.w.unrolled("t", WIDE);
            factors.iter().filter(|f| f.read != Read::Terms).for_each(|f| self.elements(f, p.sum, number, "e + t"));
            self.add_term(dst, frame, &sum, number, &factors, true);
            self.close(2);
        }
        // What is left of a chunk that ends early.
        if !fours || len != size.to_string() {
            self.w.line(if fours { "#pragma unroll 1" } else { "#pragma unroll 4" });
            self.w.open(format!("for (; e < {len}; ++e)"));
            factors.iter().for_each(|f| self.elements(&Factor { read: Read::Single, ..*f }, p.sum, number, "e"));
            self.add_term(dst, frame, &sum, number, &factors, false);
            self.w.close("");
        }
        self.w.close("");
        if apart {
            let loops = self.each_element(dst, frame);
            let brackets = self.brackets(dst, frame, "i", "j");
            let product = format!("static_cast<double>(product{brackets})");
            let value = match acc {
                Some(a) => format!("static_cast<double>({}) + {product}", self.element(a, frame)),
                None => product,
            };
            let value = self.rounded(self.facts.dtype(dst), &value, true);
            let line = format!("{} = {value};", self.element(dst, frame));
            self.w.line(line);
            self.close(loops);
            self.w.close("");
        } else {
            self.finish_sum(dst);
        }
    }

    /// Adds one term to every element that a thread has; `of_four` if the factors read by terms hold four of them.
    fn add_term(
        &mut self,
        dst: ValueId,
        frame: Option<FrameId>,
        sum: &str,
        number: Carrier,
        factors: &[Factor; 2],
        of_four: bool,
    ) {
        let loops = self.each_element(dst, frame);
        let [left, right] = [0, 1].map(|k| {
            let f = &factors[k];
            let element = if f.kept.is_some() { format!("[{}]", variable(f.side)) } else { String::new() };
            let term = if of_four && f.read == Read::Terms { "[t]" } else { "" };
            format!("{}{element}{term}", f.name)
        });
        let target = format!("{sum}{}", self.brackets(dst, frame, "i", "j"));
        let line = match number {
            Carrier::F32 => format!("{target} = fmaf({left}, {right}, {target});"),
            Carrier::F64 => format!("{target} = fma({left}, {right}, {target});"),
            Carrier::I32 => format!("{target} += {left} * {right};"),
        };
        self.w.line(line);
        self.close(loops);
    }

    /// How a factor can be read: four at a time if its elements are f32 in shared memory, and the four exist.
    fn reading(&self, v: ValueId, kept: Option<(FrameId, AxisId)>, side: Side, sum: AxisId, number: Carrier) -> Read {
        let Some(tile) = self.shared_tile(v).filter(|t| t.element == DType::F32 && number == Carrier::F32) else {
            return Read::Single;
        };
        if tile.inner == sum {
            return Read::Terms;
        }
        let fours = kept.is_some_and(|(f, axis)| {
            let span = self.span(f, axis);
            tile.inner == axis
                && span.vector.is_multiple_of(WIDE)
                && span.cover <= self.facts.size(axis)
                && side == Side::Across
        });
        if fours { Read::Elements } else { Read::Single }
    }

    /// How far apart what a thread reads of a factor is, where that is the same for all of it and for all threads.
    fn apart(&self, v: ValueId, kept: Option<(FrameId, AxisId)>, read: Read) -> Option<usize> {
        let tile = self.shared_tile(v).filter(|t| t.swizzle.mask == 0)?;
        let (f, axis) = kept?;
        let span = self.span(f, axis);
        match read {
            _ if span.cover > self.facts.size(axis) => None,
            Read::Terms if span.vector == 1 => Some(span.step * tile.swizzle.pitch),
            Read::Elements if span.vector == WIDE => Some(span.step * tile.element.bytes()),
            _ => None,
        }
    }

    /// Where a thread's first element of a factor is: what follows is at distances that instructions contain.
    fn from(&mut self, factor: &Factor, sum: AxisId) {
        let (Some(_), Some((f, axis)), Some(tile)) = (factor.apart, factor.kept, self.shared_tile(factor.value)) else {
            return;
        };
        let first = self.position(f, axis, "0");
        let element = self.element_at_term(factor.value, &tile, sum, Some((axis, &first)), "0");
        let line = format!("const u8* const {}_from = reinterpret_cast<const u8*>(&{element});", factor.name);
        self.w.line(line);
    }

    /// Reads four terms of a factor, from term `e` on.
    fn terms(&mut self, factor: &Factor, sum: AxisId, number: Carrier) {
        let Some(tile) = self.shared_tile(factor.value) else { return };
        let k = variable(factor.side);
        let (brackets, position) = match factor.kept {
            Some((f, axis)) => {
                let span = self.span(f, axis);
                self.w.line(format!("{} {}[{}][{WIDE}];", number.name(), factor.name, span.count));
                self.w.unrolled(k, span.count);
                (format!("[{k}]"), Some((axis, self.existing(f, axis, k))))
            }
            None => {
                self.w.line(format!("{} {}[{WIDE}];", number.name(), factor.name));
                self.w.open("");
                (String::new(), None)
            }
        };
        let four = match factor.apart {
            Some(apart) => at(factor, &format!("{k} * {apart} + e * {}", tile.element.bytes())),
            None => self.four(factor.value, &tile, sum, position.as_ref().map(|(a, p)| (*a, p.as_str())), "e"),
        };
        self.w.line(format!("const auto four = {four};"));
        self.w.unrolled("t", WIDE);
        self.w.line(format!("{}{brackets}[t] = four.x[t];", factor.name));
        self.close(2);
    }

    /// Reads what a thread needs of a factor for one term.
    fn elements(&mut self, factor: &Factor, sum: AxisId, number: Carrier, term: &str) {
        let (name, v) = (factor.name, factor.value);
        let Some((f, axis)) = factor.kept else {
            let value = self.term(v, sum, None, term);
            return self.w.line(format!("const {} {name} = {}({value});", number.name(), number.name()));
        };
        let (span, k) = (self.span(f, axis), variable(factor.side));
        self.w.line(format!("{} {name}[{}];", number.name(), span.count));
        if factor.read == Read::Elements
            && let Some(tile) = self.shared_tile(v)
        {
            self.w.unrolled("y", span.count / WIDE);
            let position = self.position(f, axis, &format!("(y * {WIDE})"));
            let four = match factor.apart {
                Some(apart) => at(factor, &format!("({term}) * {} + y * {apart}", tile.swizzle.pitch)),
                None => self.four(v, &tile, sum, Some((axis, &position)), term),
            };
            self.w.line(format!("const auto four = {four};"));
            self.w.unrolled("x", WIDE);
            self.w.line(format!("{name}[y * {WIDE} + x] = four.x[x];"));
            return self.close(2);
        }
        self.w.unrolled(k, span.count);
        let position = self.existing(f, axis, k);
        let value = self.term(v, sum, Some((axis, &position)), term);
        self.w.line(format!("{name}[{k}] = {}({value});", number.name()));
        self.w.close("");
    }

    /// The position of a thread's element `k`, or the last one where it has fewer.
    fn existing(&self, f: FrameId, axis: AxisId, k: &str) -> String {
        let position = self.position(f, axis, k);
        match self.span(f, axis).cover > self.facts.size(axis) {
            true => format!("min_int({position}, {})", self.facts.size(axis) - 1),
            false => position,
        }
    }

    /// Four elements that lie side by side, from this one on.
    fn four(&self, v: ValueId, tile: &SharedTile, sum: AxisId, kept: Option<(AxisId, &str)>, term: &str) -> String {
        self.element_at_term(v, tile, sum, kept, term).replacen("F32::raw*", &format!("Pack<float, {WIDE}>*"), 1)
    }

    /// The factor's element at a term of the summed axis and a position of its other axis.
    fn term(&self, v: ValueId, sum: AxisId, kept: Option<(AxisId, &str)>, term: &str) -> String {
        let Some(tile) = self.shared_tile(v) else { return self.element(v, None) };
        let element = self.element_at_term(v, &tile, sum, kept, term);
        format!("{}::decode({element})", type_name(tile.element))
    }

    fn element_at_term(
        &self,
        v: ValueId,
        tile: &SharedTile,
        sum: AxisId,
        kept: Option<(AxisId, &str)>,
        term: &str,
    ) -> String {
        self.shared_element(v, tile, &|axis| match kept {
            _ if axis == sum => term.to_string(),
            Some((a, position)) if a == axis => format!("({})", bare(position)),
            _ => "0".to_string(),
        })
    }
}
