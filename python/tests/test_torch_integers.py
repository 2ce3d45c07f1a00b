"""PyTorch's integers of 64 bits, which kernels read as 32-bit ones: never another number."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import einloom  # noqa: E402
from einloom.torch.integers import assert_within  # noqa: E402


def test_indices_beyond_32_bits_are_an_error_as_in_eager() -> None:
    def f(table, ids):
        return torch.softmax(table[ids], -1)

    table = torch.randn(10, 4)
    program = einloom.from_torch(f, (table, torch.tensor([1, 2])))
    for wrong in (2**32 + 1, 99):
        ids = torch.tensor([1, wrong])
        with pytest.raises(IndexError):
            f(table, ids)
        with pytest.raises(IndexError, match=str(wrong)):
            program(table, ids)


def test_the_devices_own_assertion() -> None:
    """What runs on GPUs, where it was written for any device."""
    assert_within(torch.tensor([2**31 - 1, -(2**31)]), "ids")
    assert_within(torch.zeros(0, dtype=torch.int64), "ids")
    with pytest.raises(RuntimeError, match="ids has an element that is no 32-bit integer"):
        assert_within(torch.tensor([[1], [2**31]]), "ids")
