"""`from_torch` where indices meet: what a reduction binds is its own, whatever stands around it; and programs that share code,
hold constants, or name tensors that they do not read."""

from __future__ import annotations

import shutil
from typing import Any, Callable

import pytest

torch = pytest.importorskip("torch")

import einloom  # noqa: E402
from einloom.torch import NotConvertible, backend, from_torch  # noqa: E402

F = torch.nn.functional

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "softmax of the second operand": lambda x, y: y * torch.softmax(x, -1),
    "softmaxes along different dimensions": lambda x, y: torch.softmax(x, -1) * torch.softmax(y, -2),
    "softmax, cut": lambda x, y: torch.softmax(x, -1)[:, :, 1:4] * y[:, :, :3],
    "softmax, rolled": lambda x, y: x.softmax(-1).roll(1, -1) * y.sum(-1)[:, None],
    "softmax of merged dimensions": lambda x, y: F.softmax(x.reshape(24, 6), -1).view(4, 6, 6) - F.softmax(y, 0),
    "the diagonal of a softmax": lambda x, y: torch.einsum("bii->bi", x.softmax(-1)) * y.sum(1),
    "two norms": lambda x, y: F.normalize(x, dim=-1) * F.normalize(y, dim=-1),
    "two norms in a product": lambda x, y: F.normalize(y, dim=-1) @ F.normalize(x, dim=-1).transpose(1, 2),
    "cosine": lambda x, y: F.cosine_similarity(x, y, -1),
    "cosine of all pairs": lambda x, y: F.cosine_similarity(x[:, :, None], y[:, None], -1),
    "means across each other": lambda x, y: x.mean(1, keepdim=True) * y.mean(-1, keepdim=True) - x.sum((1, 2), True),
    "variance and extremum": lambda x, y: (x - x.mean(-1, keepdim=True)).pow(2).mean(-2) * y.amax(1),
    "an operand that is not read": lambda x, y: torch.meshgrid(x[0, 0], y[0, 0], indexing="ij")[0] * 2,
    "a number that is a tensor": lambda x, y: torch.where(x > 0, y, torch.tensor(0.0)),
    "a constant": lambda x, y: x * torch.tensor([1.0, 2, 3, 4, 5, 6]) + y,
    "a part replaced": lambda x, y: torch.slice_scatter(x, y[:2] * 2, 0, 1, 3),
    "divergence": lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_equals_pytorch(name: str) -> None:
    f = FUNCTIONS[name]
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(4, 6, 6, generator=generator) for _ in range(2))
    torch._dynamo.reset()
    torch.testing.assert_close(from_torch(f, (x, y))(x, y), f(x, y), rtol=1e-5, atol=1e-5)


def test_nan_is_refused_where_it_is_written() -> None:
    with pytest.raises(NotConvertible, match="NaN") as refused:
        from_torch(lambda x: torch.where(x > 0, x, float("nan")), (torch.ones(3),))
    assert "test_torch_scopes.py" in (refused.value.place or "")


def test_any_number_of_shapes() -> None:
    """Dynamo gives up on a piece of code after eight variants."""
    program = from_torch(lambda x: x - x.amax(-1, keepdim=True), (torch.randn(2, 3),))
    for n in range(4, 16):
        x = torch.randn(n, n + 1)
        torch.testing.assert_close(program(x), x - x.amax(-1, keepdim=True))


def test_any_number_of_programs_of_the_same_code() -> None:
    def scaled(factor: float) -> Callable[..., Any]:
        return lambda x: torch.softmax(x * factor, -1)

    x = torch.randn(3, 5)
    for k in range(12):
        torch.testing.assert_close(from_torch(scaled(k), (x,))(x), torch.softmax(x * k, -1))


@pytest.mark.skipif(not any(shutil.which(c) for c in ("g++", "clang++", "c++")), reason="inductor needs a compiler")
def test_inductor_does_not_write_operators_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text of an argument grows exponentially with the graph before it: no operator may come to inductor unannounced."""
    import torch._inductor.graph as lowering

    unannounced, make_fallback = [], lowering.make_fallback

    def record(operator: Any, *args: Any, **kwargs: Any) -> Any:
        unannounced.append(str(operator))
        return make_fallback(operator, *args, **kwargs)

    def f(x: torch.Tensor) -> torch.Tensor:
        p = torch.exp(x - x.amax(-1, keepdim=True))
        return (p / p.sum(-1, keepdim=True)).sort(-1).values

    torch._dynamo.reset()
    monkeypatch.setattr(lowering, "make_fallback", record)
    x = torch.randn(16, 16)
    fast = torch.compile(f, backend=backend, dynamic=False, options={"rest": "inductor"})
    torch.testing.assert_close(fast(x), f(x), rtol=1e-4, atol=1e-5)
    assert einloom.torch.reports()[-1].regions
    assert not [name for name in unannounced if "einloom" in name]
