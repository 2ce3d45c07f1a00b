use super::{Chain, Elements, To};
use crate::kernels::fold::{Monoid, Partial};
use crate::kernels::isa::{Instructions, Isa, Token, Work, dispatch};
use crate::kernels::strip::{self, Data, Operand, STRIP, Step};
use einloom_cascade::numeric::{bf16_to_f32, f32_to_bf16, f32_to_f16};
use einloom_cascade::{BinaryOp, UnaryOp};

struct Run<'a>(&'a Chain, &'a [Elements<'a>], To<'a>, usize, Option<(Monoid, &'a mut Partial)>);

impl Work for Run<'_> {
    type Output = bool;
    #[inline(always)]
    fn run<I: Instructions>(self) -> bool {
        self.0.run::<I>(self.1, self.2, self.3, self.4)
    }
}

/// The strips that the steps are otherwise.
struct Strips<'a>(&'a [Step], &'a mut [f32], &'a [Data<'a, f32>]);

impl Work for Strips<'_> {
    type Output = ();
    #[inline(always)]
    fn run<I: Instructions>(self) {
        let mut registers = vec![vec![0.0; STRIP].into_boxed_slice(); 4];
        strip::run::<f32, I>(self.0, self.1, &mut registers, |number| self.2[usize::from(number)]);
    }
}

fn tokens() -> impl Iterator<Item = Token> {
    Isa::ALL.into_iter().filter(|isa| *isa != Isa::Portable).filter_map(Token::new)
}

fn numbers(count: usize, step: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * step + i / 5) % 67) as f32 / 16.0 - 2.0).collect()
}

fn binary(op: BinaryOp, d: u8, with: Operand, reversed: bool) -> Step {
    Step::Binary { op, d, with, reversed }
}

fn leaf(d: u8, number: u16) -> Step {
    Step::Copy { d, from: Operand::Leaf(number) }
}

/// Leaf 0 is f32, 1 bf16, 2 f16, 3 the same everywhere, 4 no zero everywhere.
fn programs() -> Vec<Vec<Step>> {
    use BinaryOp::{Add, Div, Max, Min, Mul, Sub};
    use Operand::{Const, Leaf, Register};
    let every = [Add, Sub, Mul, Div, Max, Min].into_iter().flat_map(|op| [false, true].map(|r| (op, r)));
    let mut all: Vec<Vec<Step>> = every.clone().map(|(op, r)| vec![leaf(0, 1), binary(op, 0, Leaf(0), r)]).collect();
    all.extend(every.map(|(op, r)| vec![leaf(0, 0), binary(op, 0, Leaf(3), r)]));
    all.extend([UnaryOp::Neg, UnaryOp::Abs, UnaryOp::Relu].map(|op| vec![leaf(0, 0), Step::Unary { op, d: 0 }]));
    let exp = Step::ScaledExp { d: 0, by: Const(0.75), less: Leaf(3), least: crate::kernels::strip::LEAST_NORMAL };
    all.push(vec![leaf(0, 2), exp]);
    // A difference's square, and what a norm makes of a row.
    let difference = |d| [leaf(d, 1), binary(Sub, d, Leaf(3), false)];
    let square = [Step::Copy { d: 0, from: Register(1) }, binary(Mul, 0, Register(1), false)];
    all.push([&difference(1)[..], &square].concat());
    let norm = [binary(Div, 0, Const(3.0), false), binary(Mul, 0, Leaf(2), false), binary(Add, 0, Leaf(0), false)];
    all.push([&difference(0)[..], &norm].concat());
    for when in [true, false] {
        let skip = Step::Shortcut { d: 0, mask: Leaf(4), when, from: Leaf(0), skip: 2 };
        all.push(vec![skip, leaf(0, 1), binary(Add, 0, Const(1.0), false), binary(Mul, 0, Const(2.0), false)]);
    }
    all
}

#[test]
fn chains_are_strips_to_the_bit_wherever_the_results_go() {
    for token in tokens() {
        for (which, steps) in programs().into_iter().enumerate() {
            let chain = Chain::new(&steps).expect("a chain");
            for count in [1, 15, 16, 17, 31, 127, 128, 129, 300, 1000] {
                chain_with(token, &chain, &steps, count, which);
            }
        }
    }
}

fn chain_with(token: Token, chain: &Chain, steps: &[Step], count: usize, which: usize) {
    let (floats, others) = (numbers(count, 37), numbers(count, 23));
    let bf16: Vec<u16> = others.iter().map(|&x| f32_to_bf16(x)).collect();
    let f16: Vec<u16> = others.iter().map(|&x| f32_to_f16(x)).collect();
    let leaves = [
        Elements::Floats(&floats),
        Elements::Bf16(&bf16),
        Elements::F16(&f16),
        Elements::Same(0.375),
        Elements::Same(1.0),
    ];
    let data = [Data::Each(&floats), Data::Each(&others), Data::Each(&others), Data::Same(0.375), Data::Same(1.0)];
    let mut want = vec![0.0; count];
    dispatch(token, Strips(steps, &mut want, &data[..]));
    for monoid in [Monoid::Sum, Monoid::Prod, Monoid::Max, Monoid::Min] {
        let mut got = vec![f32::NAN; count + 3];
        let mut partial = Partial::all(monoid.identity());
        let run = Run(chain, &leaves, To::Floats(&mut got), count, Some((monoid, &mut partial)));
        assert!(dispatch(token, run), "program {which}");
        let same = |x: f32, y: f32| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
        assert!(got.iter().zip(&want).all(|(x, y)| same(*x, *y)), "program {which}, {count} elements");
        assert!(got[count..].iter().all(|x| x.is_nan()), "beyond the row");
        let (mut total, mut size) = (f64::from(monoid.identity()), 0.0f64);
        for &x in &want {
            size += f64::from(x.abs());
            total = match monoid {
                Monoid::Sum => total + f64::from(x),
                Monoid::Prod => total * f64::from(x),
                Monoid::Max => total.max(f64::from(x)),
                Monoid::Min => total.min(f64::from(x)),
            };
        }
        let found = f64::from(monoid.total(partial));
        let error = if monoid == Monoid::Prod { total.abs() } else { size };
        // Products of many leave the range on the way.
        let within = total.is_finite() && (monoid != Monoid::Prod || count <= 17);
        assert!(!within || (found - total).abs() <= 1e-5 * error, "program {which}: {found} for {total}");
    }
    let mut codes = vec![7; count + 3];
    assert!(dispatch(token, Run(chain, &leaves, To::Bf16(&mut codes), count, None)));
    let right = |(x, y): (&u16, &f32)| *x == f32_to_bf16(*y) || bf16_to_f32(*x).is_nan() && y.is_nan();
    assert!(codes.iter().zip(&want).all(right), "program {which}, {count} codes");
    assert_eq!(codes[count..], [7; 3]);
}

/// Codes of every kind of number, and quotients of them.
#[test]
fn what_is_no_number_is_rounded_and_divided_as_elsewhere() {
    let special = [0x7fc0_0001u32, 0xff80_0001, 0x7f80_0000, 0xff80_0000, 0, 0x8000_0000, 1, 0x7f7f_ffff];
    let ties = (0..64u32).map(|i| 0x3f80_0000 + i * 0x4000);
    let x: Vec<f32> = special.into_iter().chain(ties).map(f32::from_bits).collect();
    let by = Step::Binary { op: BinaryOp::Div, d: 0, with: Operand::Leaf(1), reversed: false };
    for token in tokens() {
        for steps in [vec![leaf(0, 0)], vec![leaf(0, 0), by]] {
            let chain = Chain::new(&steps).expect("a chain");
            for over in [3.0, 1e-38, 1e38, 0.0, f32::INFINITY, f32::NAN] {
                let leaves = [Elements::Floats(&x), Elements::Same(over)];
                let (mut want, mut codes) = (vec![0.0; x.len()], vec![0; x.len()]);
                dispatch(token, Strips(&steps, &mut want, &[Data::Each(&x), Data::Same(over)]));
                assert!(dispatch(token, Run(&chain, &leaves, To::Bf16(&mut codes), x.len(), None)));
                for (&code, &y) in codes.iter().zip(&want) {
                    let nan = bf16_to_f32(code).is_nan() && y.is_nan();
                    assert!(nan || code == f32_to_bf16(y), "{code:x} for {y} by {over}");
                }
            }
        }
    }
}

#[test]
fn a_result_takes_the_place_of_its_operand() {
    for token in tokens() {
        let steps = [leaf(0, 0), binary(BinaryOp::Mul, 0, Operand::Leaf(0), false)];
        let chain = Chain::new(&steps).expect("a chain");
        let mut x = numbers(203, 11);
        let want: Vec<f32> = x.iter().map(|x| x * x).collect();
        assert!(dispatch(token, Run(&chain, &[Elements::Own], To::Floats(&mut x), 203, None)));
        assert_eq!(x, want);
    }
}

#[test]
fn bits_choose_as_numbers_do() {
    for (token, count) in tokens().flat_map(|token| [1, 31, 128, 300].map(|count| (token, count))) {
        let (x, y) = (numbers(count, 37), numbers(count, 11));
        let mask: Vec<f32> = (0..count).map(|i| f32::from(u8::from(i * i % 7 < 3))).collect();
        let bits = crate::kernels::truths::of_numbers(&mask);
        for (other, flipped) in [(Operand::Leaf(2), false), (Operand::Const(-1.5), true), (Operand::Leaf(2), true)] {
            let select = Step::Select { d: 0, mask: Operand::Leaf(1), other, flipped };
            let after = binary(BinaryOp::Add, 0, Operand::Leaf(2), false);
            let steps = [leaf(0, 0), binary(BinaryOp::Mul, 0, Operand::Const(0.5), false), select, after];
            let chain = Chain::new(&steps).expect("a chain");
            let (mut want, mut got) = (vec![0.0; count], vec![0.0; count]);
            dispatch(token, Strips(&steps, &mut want, &[Data::Each(&x), Data::Each(&mask), Data::Each(&y)]));
            let mut leaves = [Elements::Floats(&x), Elements::Bits(&bits), Elements::Floats(&y)];
            assert!(dispatch(token, Run(&chain, &leaves, To::Floats(&mut got), count, None)));
            assert_eq!(got, want, "{count} {other:?} {flipped}");
            // Numbers choose in strips only.
            leaves[1] = Elements::Floats(&mask);
            assert!(!dispatch(token, Run(&chain, &leaves, To::Floats(&mut got), count, None)));
            assert_eq!(got, want);
        }
    }
}

#[test]
fn other_steps_and_masks_that_differ_are_refused() {
    let mask = [1.0, 0.0];
    assert!(Chain::new(&[Step::Unary { op: UnaryOp::Gelu, d: 0 }]).is_none());
    assert!(Chain::new(&[leaf(9, 0)]).is_none());
    assert!(Chain::new(&[leaf(0, 0); 17]).is_none());
    let skip = Step::Shortcut { d: 0, mask: Operand::Leaf(0), when: true, from: Operand::Leaf(0), skip: 0 };
    let chain = Chain::new(&[skip]).expect("a chain");
    for token in tokens() {
        let mut to = [7.0; 2];
        assert!(!dispatch(token, Run(&chain, &[Elements::Floats(&mask)], To::Floats(&mut to), 2, None)));
        assert_eq!(to, [7.0; 2]);
    }
}
