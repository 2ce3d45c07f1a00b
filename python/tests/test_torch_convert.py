"""PyTorch functions become readable cascades that compute the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import einloom  # noqa: E402
from einloom.torch import NotConvertible, from_torch  # noqa: E402
from torch_functions import CASES, normal  # noqa: E402

TEXTS = Path(__file__).parent / "torch_texts"


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()


def several(x: Any) -> list[torch.Tensor]:
    return list(x) if isinstance(x, (tuple, list)) else [x]


def assert_same(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    """Of one shape and type, and equal within an error relative to the largest element: sums may be in another order."""
    for g, w in zip(several(got), several(want), strict=True):
        assert (g.shape, g.dtype) == (w.shape, w.dtype)
        scale = max(w.double().abs().max().item(), 1.0)
        assert (g.double() - w.double()).abs().max().item() <= tolerance * scale


@pytest.mark.parametrize("name", CASES)
def test_text_and_values(name: str) -> None:
    function, inputs = CASES[name]
    program = from_torch(function, inputs)
    expected = TEXTS / f"{name}.ein"
    if os.environ.get("EINLOOM_BLESS"):
        expected.write_text(program.text, encoding="utf-8")
    assert program.text == expected.read_text(encoding="utf-8")
    einloom.compile(program.text)
    assert_same(program(*inputs), function(*inputs))


def test_no_text_is_left_over() -> None:
    assert {p.stem for p in TEXTS.glob("*.ein")} == set(CASES)


def test_other_sizes_are_converted_when_they_come() -> None:
    function, _ = CASES["attention"]
    program = from_torch(function, [normal(1, 2, 5, 4, seed=s) for s in range(3)])
    inputs = [normal(2, 3, 9, 4, seed=s) for s in range(3)]
    assert_same(program(*inputs), function(*inputs))
    assert program.passes["N"].derived == 1


def test_modules_bring_their_parameters() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.Softmax(-1)).eval()
    program = from_torch(module, [normal(4, 6)])
    x = normal(4, 6, seed=1)
    assert_same(program(x), module(x))
    assert "weight" in program.text


@pytest.mark.parametrize(
    ("function", "operation", "reason"),
    [
        (lambda x: x.sort(-1).values, "aten.sort", "no definition"),
        (lambda x: torch.linalg.inv(x), "aten.linalg_inv", "no definition"),
        (lambda x: torch.rand_like(x) + x, "aten.rand_like", "no definition"),
        (lambda x: torch.nn.functional.dropout(x, 0.5), "aten.dropout", "random numbers"),
        (lambda x: (x > 0).to(torch.int32) << 1, "aten.__lshift__", "no definition"),
        (lambda x: x[x > 0], "aten.nonzero", "depends on the data"),
    ],
)
def test_what_cannot_be_taken_is_said_with_its_place(function: Any, operation: str, reason: str) -> None:
    with pytest.raises(NotConvertible) as refused:
        from_torch(function, [normal(4, 4)])
    assert operation in refused.value.operation
    assert reason in refused.value.reason
    assert "test_torch_convert.py" in (refused.value.place or "")


def test_a_function_without_tensors_is_refused() -> None:
    with pytest.raises(NotConvertible, match="no tensor"):
        from_torch(lambda: torch.arange(4) * 2, [])


def test_writing_to_an_input_is_refused() -> None:
    def change(x):
        return x.add_(1)

    with pytest.raises(NotConvertible, match="writes"):
        from_torch(change, [normal(4, 4)])
