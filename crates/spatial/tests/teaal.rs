//! Specifications in TeAAL's syntax: what is read of them, and what is said about the rest.

use einloom_spatial::{Block, Extent, Teaal};

const MATMUL: &str = "\
einsum:
  declaration:
    A: [K, M]
    B: [K, N]
    Z: [M, N]
  expressions:
    - Z[m, n] = A[k, m] * B[k, n]
mapping:
  rank-order:
    A: [K, M]
    Z: [M, N]
  partitioning:
    Z:
      M: [uniform_shape(16)]
      N: [uniform_shape(8)]
  loop-order:
    Z: [M1, N1, K, M0, N0]
  spacetime:
    Z:
      space: [M0, N0]
      time: [M1, N1, K]
format:
  A:
    default:
      rank-order: [K, M]
      K:
        format: U
        pbits: 32
architecture:
  Grid:
    - name: System
      attributes:
        clock_frequency: 1_000_000_000
      local:
        - name: Memory
          class: DRAM
          attributes:
            bandwidth: 512_000_000_000
      subtree:
        - name: Chip
          local:
            - name: Buffer
              class: Buffet
              attributes:
                width: 64
                depth: 65536
          subtree:
            - name: Row
              num: 16
              subtree:
                - name: PE
                  num: 8
                  local:
                    - name: Mul
                      class: Compute
                      attributes:
                        type: mul
                    - name: Add
                      class: Compute
                      attributes:
                        type: add
binding:
  Z:
    - config: Grid
      prefix: tmp/matmul
    - component: Buffer
      bindings:
        - tensor: A
          rank: M1
          type: payload
          style: lazy
    - component: Mul
      bindings:
        - op: mul
";

fn problems(text: &str) -> Vec<String> {
    Teaal::parse("spec.yaml", text).expect_err("mistakes").iter().map(ToString::to_string).collect()
}

#[test]
fn a_specification_becomes_a_cascade_a_chip_and_a_binding() {
    let read = Teaal::parse("matmul.yaml", MATMUL).unwrap_or_else(|p| panic!("{}", p[0]));
    assert_eq!(
        read.cascade,
        "cascade matmul\ninput  A[k,m]: f32, B[k,n]: f32\noutput Z: f32\n\nZ[m, n] = sum(k) A[k, m] * B[k, n]\n"
    );
    let chip = read.chip.unwrap();
    assert_eq!((chip.arrays[0].rows, chip.arrays[0].columns), (16, 8));
    assert_eq!((chip.buffer.capacity.0, chip.dram.bandwidth.0), (64 * 65536 / 8, 64e9));
    let binding = read.binding.unwrap();
    let kernel = &binding.kernels[0];
    assert_eq!((&kernel.tile["M"], &kernel.tile["N"]), (&Extent::Size(16), &Extent::Size(8)));
    assert_eq!(kernel.dataflows[0].holds, ["A"]);
    assert_eq!(kernel.dataflows[0].block, Some(Block::Fixed { rank: "M".to_owned(), size: 16 }));
    assert_eq!(binding.space["array"].rows.as_deref(), Some("M"));
    // Files of ours say the same.
    assert_eq!(einloom_spatial::Binding::parse("b", &binding.to_toml()), Ok(binding));
    assert_eq!(einloom_spatial::Chip::parse("c", &chip.to_toml()), Ok(chip));
}

#[test]
fn terms_are_summed_one_by_one() {
    let text = "einsum:\n  declaration:\n    A: [K, M]\n    B: [K]\n    C: [M]\n    T: [M]\n    Z: [M]\n  expressions:\n    \
                - T[m] = A[k, m] * B[k] - C[m]\n    - Z[m] = T[m] / C[m]\n";
    let read = Teaal::parse("terms.yaml", text).unwrap_or_else(|p| panic!("{}", p[0]));
    let expected = "T[m] = sum(k) A[k, m] * B[k] - C[m]\nZ[m] = T[m] / C[m]\n";
    assert!(read.cascade.ends_with(expected), "{}", read.cascade);
    assert_eq!((read.chip, read.binding), (None, None));
}

#[test]
fn what_is_not_supported_is_named_with_its_place() {
    let replaced = |from: &str, to: &str| {
        assert!(MATMUL.contains(from), "{from}");
        problems(&MATMUL.replacen(from, to, 1))
    };
    let cases = [
        (
            replaced("uniform_shape(16)", "uniform_occupancy(A.256)"),
            "spec.yaml:14:11: partitioning Z M: `uniform_occupancy` is not supported (uniform_shape(N) is)",
        ),
        (
            replaced("      M: [uniform_shape(16)]", "      (K, M): [flatten()]"),
            "spec.yaml:14:7: partitioning Z (K, M): several ranks at once (flatten) are not supported",
        ),
        (
            replaced("format: U", "format: C"),
            "spec.yaml:27:17: format A K: the format C is not supported (tensors are dense here: U)",
        ),
        (
            replaced("A[k, m] * B[k, n]", "take(A[k, m], B[k, n], 0)"),
            "spec.yaml:7:7: expressions: `take(…)` is not supported (+, -, *, / and reductions by sum are supported)",
        ),
        (
            replaced("class: Buffet", "class: Intersector"),
            "Buffer: a component of class Intersector is not supported (classes are DRAM, Buffet, Cache, Compute)",
        ),
        (
            replaced("space: [M0, N0]", "space: [M0.coord, N0]"),
            "spec.yaml:20:15: spacetime: `.coord` is not supported (dense tensors have positions: .pos)",
        ),
        (replaced("space: [M0, N0]", "space: [M1, N0]"), "spec.yaml:20:15: spacetime: M1 in space is not supported"),
        (replaced("component: Buffer", "component: Cache9"), "there is no component Cache9"),
        (replaced("tensor: A", "tensor: Q"), "Buffer: Q is not declared"),
        (replaced("mapping:", "maping:"), "spec.yaml:8:1: `maping` is not supported"),
        (replaced("    A: [K, M]\n    B", "    A: [K, M\n    B"), "spec.yaml:4:"),
        (replaced("type: mul", "type: sqrt"), "the type sqrt is not supported (types are mul, add, div)"),
        (replaced("A[k, m] * B", "A[k, m] * * B"), "spec.yaml:7:7: einsum: expected a value, found `*`"),
        (
            replaced("bandwidth: 512", "bandwith: 512"),
            "spec.yaml:38:13: Memory: `bandwith` is not supported (known: bandwidth, datawidth)",
        ),
        (replaced("depth: 65536", "deep: 65536"), "Buffer: `deep` is not supported (known: width, depth,"),
        (replaced("type: mul", "tipe: mul"), "spec.yaml:57:25: Mul: `tipe` is not supported (known: type, datawidth)"),
        (replaced("op: mul", "op: mull"), "Mul: the op mull is not supported (known: mul, add, div)"),
        (replaced("rank: M1\n", "rank: Q1\n"), "Buffer: there is no rank Q1 (ranks are K, M, N)"),
        (replaced("style: lazy", "style: hazy"), "Buffer: the style hazy is not supported (known: lazy, eager)"),
        (
            replaced("component: Mul\n", "component: Mull\n"),
            "there is no component Mull (they are Buffer, Mul, Add, Memory)",
        ),
        (replaced("num: 8\n", "num: 8\n                  num: 9\n"), "spec.yaml:53:19: `num` is there twice"),
        (replaced("bandwidth: 512_000_000_000", "bandwidth: fast"), "Memory: bandwidth is not a number above 0"),
    ];
    for (found, expected) in cases {
        let any = found.iter().any(|f| f.contains(expected));
        assert!(any, "{expected}\nis not among\n{found:#?}");
    }
}

#[test]
fn bad_texts_are_errors() {
    for text in
        ["", "- a\n- b\n", "einsum: 3\n", "einsum:\n  declaration: {Z: 5}\n", "a: &x 1\nb: *x\n", "\u{0}", "[[[[["]
    {
        assert!(Teaal::parse("bad.yaml", text).is_err(), "{text:?}");
    }
    let deep = "[".repeat(100_000);
    assert!(Teaal::parse("bad.yaml", &deep).is_err());
}

#[test]
fn names_in_small_letters_are_scalars_of_the_caller() {
    let text = "einsum:\n  declaration:\n    A: [M]\n    Z: [M]\n  expressions:\n    - Z[m] = a * A[m] + b * A[m]\n";
    let found = Teaal::parse("axpby.yaml", text).unwrap();
    for name in ["a", "b"] {
        assert!(found.cascade.contains(&format!("param  {name} = 1")), "{}", found.cascade);
    }
    assert!(einloom_spatial::Program::parse("cascade.ein", &found.cascade).is_ok(), "{}", found.cascade);
}
