//! Two kernels written by hand with the [`Builder`]: what a person writes, and what the derived programs are
//! compared with.

use crate::{
    AxisId, Builder, Defect, Predicate, Program,
    TileMonoid::{Max, Sum},
    carry, select,
};
use einloom_cascade::DType;

/// `C[m, n] = sum(k) A[m, k] * B[k, n]`, in tiles of `tile = [m, n, k]`.
///
/// ```
/// use einloom_tile::{by_hand::matmul, print};
/// let program = matmul([1000, 500, 300], [128, 128, 64], einloom_cascade::DType::Bf16).expect("well-formed");
/// assert_eq!(print(&program), "\
/// program matmul
/// input  A[1000, 300]: bf16
/// input  B[300, 500]: bf16
/// output C[1000, 500]: bf16
///
/// kernel matmul(A, B → C)   grid m by 128, n by 128
///   acc = 0
///   stream k by 64
///     a = load A[m:128, k:64]
///     b = load B[k:64, n:128]
///     sum = acc + mma a · b
///     acc = sum
///   store C[m:128, n:128] = acc
/// ");
/// ```
///
/// # Errors
/// What makes the program ill-formed, such as a tile of 0.
pub fn matmul(size: [usize; 3], tile: [usize; 3], dtype: DType) -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("matmul");
    let a = p.input("A", &[size[0], size[2]], dtype);
    let b = p.input("B", &[size[2], size[1]], dtype);
    let c = p.output("C", &[size[0], size[1]], dtype);
    p.kernel("matmul", |g| {
        let (m, n) = (g.grid("m", size[0], tile[0]), g.grid("n", size[1], tile[1]));
        let k = g.stream_axis("k", size[2], tile[2]);
        let [acc] =
            g.stream(k, Predicate::always(), [carry("acc", [m, n], 0.0).typed(summed_in(dtype))], |g, [acc]| {
                let a = g.load("a", a, [m, k]);
                let b = g.load("b", b, [k, n]);
                [g.mma_onto("sum", acc, a, b)]
            });
        g.store(c, [m, n], acc);
    });
    p.finish()
}

/// What products of this number type are summed in: see [`crate::Op::Mma`].
fn summed_in(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        integer if integer.is_integer() => DType::I32,
        _ => DType::F32,
    }
}

/// The sizes of [`attention`].
#[derive(Clone, Copy, Debug)]
pub struct AttentionSizes {
    /// Batches.
    pub b: usize,
    /// Heads.
    pub h: usize,
    /// Queries.
    pub m: usize,
    /// Keys and values.
    pub n: usize,
    /// Elements of a query and a key.
    pub d: usize,
    /// Elements of a value.
    pub e: usize,
}

/// `O = softmax(Q Kᵀ / sqrt(D)) V` per batch and head, in tiles of `tile = [m, n]`; `causal` lets query `m` see the
/// keys `n <= m` only. Every query must see a finite score in its first chunk: the repair of an empty state is not
/// written here.
///
/// ```
/// use einloom_tile::{by_hand::{AttentionSizes, attention}, print_kernel};
/// let sizes = AttentionSizes { b: 2, h: 8, m: 4096, n: 4096, d: 64, e: 64 };
/// let program = attention(sizes, [128, 64], true, einloom_cascade::DType::Bf16).expect("well-formed");
/// assert_eq!(print_kernel(&program, &program.kernels[0]), "\
/// kernel attention(Q, K, V → O)   grid b, h, m by 128
///   q = load Q[b, h, m:128, :]
///   Mx, Z, O = -inf, 0, 0
///   stream n by 64 while n <= m
///     k = load K[b, h, n:64, :]
///     qk = mma q · kᵀ
///     s = where(n <= m, qk * 0.125, -inf)
///     mx = max(Mx, max(n) s)
///     p: bf16 = exp(s - mx)
///     r = exp(Mx - mx)
///     zr = Z * r
///     z = zr + sum(n) p
///     v = load V[b, h, n:64, :]
///     or = O * r
///     o = or + mma p · v
///     Mx, Z, O = mx, z, o
///   o.2 = O / Z
///   store O[b, h, m:128, :] = o.2
/// ");
/// ```
///
/// # Errors
/// What makes the program ill-formed, such as a tile of 0.
pub fn attention(s: AttentionSizes, tile: [usize; 2], causal: bool, dtype: DType) -> Result<Program, Vec<Defect>> {
    let mut p = Builder::new("attention");
    let q = p.input("Q", &[s.b, s.h, s.m, s.d], dtype);
    let keys = p.input("K", &[s.b, s.h, s.n, s.d], dtype);
    let values = p.input("V", &[s.b, s.h, s.n, s.e], dtype);
    let out = p.output("O", &[s.b, s.h, s.m, s.e], dtype);
    p.kernel("attention", |g| {
        let (b, h, m) = (g.grid("b", s.b, 1), g.grid("h", s.h, 1), g.grid("m", s.m, tile[0]));
        let (d, e, n) = (g.whole("d", s.d), g.whole("e", s.e), g.stream_axis("n", s.n, tile[1]));
        let seen = if causal { n.at_most(m) } else { Predicate::always() };
        let scale = 1.0 / (s.d as f64).sqrt();
        let q = g.load("q", q, [b, h, m, d]);
        let wide = summed_in(dtype);
        let state = |name, axes: &[AxisId], init| carry(name, axes.iter().copied(), init).typed(wide);
        let states = [state("Mx", &[m], f64::NEG_INFINITY), state("Z", &[m], 0.0), state("O", &[m, e], 0.0)];
        let [_, z, o] = g.stream(n, seen.clone(), states, |g, [top, z, o]| {
            let k = g.load("k", keys, [b, h, n, d]);
            let qk = g.mma("qk", q, k);
            let s = g.map("s", if causal { select(seen, qk * scale, f64::NEG_INFINITY) } else { qk * scale });
            let new = g.reduce_onto("mx", Max, top, s, n);
            let p = g.map("p", (s - new).exp().round_to(dtype));
            let r = g.map("r", (top - new).exp());
            let zr = g.map("zr", z * r);
            let z = g.reduce_onto("z", Sum, zr, p, n);
            let v = g.load("v", values, [b, h, n, e]);
            let or = g.map("or", o * r);
            [new, z, g.mma_onto("o", or, p, v)]
        });
        g.store(out, [b, h, m, e], o / z);
    });
    p.finish()
}
