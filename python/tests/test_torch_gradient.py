"""Compiled cascades are operators of PyTorch: their reference path computes the same, and their gradients are right."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import einloom  # noqa: E402
from einloom.torch import operator_of  # noqa: E402
from einloom.torch.language import read  # noqa: E402

CASCADES = sorted((Path(__file__).resolve().parents[2] / "cascades").glob("*.ein"))

SIZES = {"J": 2, "R": 3, "W": 3}


def inputs_of(cascade: einloom.Cascade, dtype: torch.dtype) -> list[torch.Tensor]:
    """Normal numbers, and integers that are positions everywhere."""
    generator = torch.Generator().manual_seed(0)
    program = read(cascade.canonical)
    out = []
    for declared in program.inputs:
        shape = [SIZES.get(program.rank(i), 4) for i in declared.indices]
        kinds = {"i32": torch.int32, "i16": torch.int16, "i8": torch.int8, "i4": torch.int8, "u8": torch.uint8, "u4": torch.uint8}
        if declared.dtype in kinds:
            kind = kinds[declared.dtype]
            out.append(torch.randint(0, 3, shape, generator=generator).to(kind))
        elif declared.dtype == "b1":
            out.append(torch.rand(shape, generator=generator) > 0.3)
        else:
            out.append((torch.randn(shape, generator=generator, dtype=torch.float64) + 0.1).to(dtype))
    return out


def sizes_of(cascade: einloom.Cascade) -> dict[str, int]:
    """Ranks that no input and no default gives."""
    return {"W": 3} if "rank W\n" in cascade.canonical else {}


@pytest.mark.parametrize("path", CASCADES, ids=lambda p: p.stem)
def test_reference_path_is_the_meaning(path: Path) -> None:
    cascade = einloom.compile(path)
    tensors = inputs_of(cascade, torch.float32)
    made = operator_of(cascade, sizes_of(cascade))
    want = cascade(*tensors, **sizes_of(cascade))
    got = made.reference(*tensors)
    several = [x if isinstance(x, tuple) else (x,) for x in (got, want)]
    for g, w in zip(*several, strict=True):
        assert g.dtype == w.dtype and g.shape == w.shape
        assert torch.allclose(g.double(), w.double(), rtol=1e-4, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize(
    "name",
    [
        "attention",
        "attention_causal",
        "attention_gqa",
        "cross_entropy",
        "layernorm",
        "rmsnorm_matmul",
        "swiglu",
        "gated_linear_attention",
        "lstm",
    ],
)
def test_gradients_are_those_of_the_kernels(name: str) -> None:
    """The kernels' own finite differences in f64 against the gradient of the reference path."""
    text = (CASCADES[0].parent / f"{name}.ein").read_text(encoding="utf-8")
    for narrow in ("bf16", "f32"):
        text = text.replace(f": {narrow}", ": f64")
    cascade = einloom.compile("".join(_wide(line) for line in text.splitlines(keepends=True)))
    tensors = [t.requires_grad_(t.dtype.is_floating_point) for t in inputs_of(cascade, torch.float64)]
    assert torch.autograd.gradcheck(lambda *t: cascade(*t), tensors, eps=1e-6, atol=1e-5)


def _wide(line: str) -> str:
    """Intermediates in f64, too, so that differences are precise."""
    head, equals, value = line.partition(" = ")
    declares = line.split(" ", 1)[0] in ("input", "output", "rank", "param", "index", "cascade", "#")
    if not equals or declares or ":" in head or not head.endswith("]"):
        return line
    return line if head.split("[")[0] in ("O", "Y", "L") else f"{head}: f64 = {value}"


def test_operators_pass_pytorchs_own_checks() -> None:
    attention = einloom.compile(CASCADES[0].parent / "attention_causal.ein")
    made = operator_of(attention)
    tensors = tuple(torch.randn(1, 2, 8, 4, requires_grad=True) for _ in range(3))
    torch.library.opcheck(made.op, tensors)
    torch.library.opcheck(made.op, tuple(t.detach() for t in tensors))


def test_operators_are_traced_whole() -> None:
    made = operator_of(einloom.compile(CASCADES[0].parent / "rmsnorm.ein"))
    torch._dynamo.reset()
    x, g = torch.randn(3, 8), torch.randn(8)
    compiled = torch.compile(lambda x, g: made(x * 2, g) + 1, fullgraph=True, backend="aot_eager")
    assert torch.allclose(compiled(x, g), made(x * 2, g) + 1)


def test_the_report_says_which_path_ran() -> None:
    softmax = einloom.compile(
        "input X[m,n]: f32\noutput Y: f32\nP[m,n] = exp(X[m,n] - max(n) X[m,n])\nY[m,n] = P[m,n] / (sum(n) P[m,n])\n"
    )
    x = torch.randn(4, 5, requires_grad=True)
    softmax(x)[:, 0].sum().backward()
    want = torch.autograd.grad(torch.softmax(x, -1)[:, 0].sum(), x)[0]
    assert torch.allclose(x.grad, want, atol=1e-6)
    report = operator_of(softmax).report
    assert "derived kernels ran once" in report and "reference path once" in report


def test_second_derivatives_are_refused() -> None:
    cube = einloom.compile("input X[m]: f32\noutput Y: f32\nY[m] = X[m]^3\n")
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(einloom.GradientError, match="first derivatives"):
        torch.autograd.grad(cube(x).sum(), x, create_graph=True)


def test_out_takes_no_gradient() -> None:
    double = einloom.compile("input X[m]: f32\noutput Y: f32\nY[m] = 2 * X[m]\n")
    x = torch.ones(3, requires_grad=True)
    with pytest.raises(einloom.GradientError, match="out="):
        double(x, out=torch.empty(3))
    with torch.no_grad():
        assert double(x, out=torch.empty(3)).tolist() == [2, 2, 2]


def test_gradients_follow_the_sizes() -> None:
    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.softmax(q @ k.transpose(-1, -2) / 8, -1) @ v

    for n in (12, 7):
        q, k, v = (torch.randn(1, 2, n, 4).requires_grad_() for _ in range(3))
        program = einloom.from_torch(attention, [q, k, v])
        got = torch.autograd.grad(program(q, k, v).square().sum(), [q, k, v])
        want = torch.autograd.grad(attention(q, k, v).square().sum(), [q, k, v])
        for g, w in zip(got, want, strict=True):
            torch.testing.assert_close(g, w)
