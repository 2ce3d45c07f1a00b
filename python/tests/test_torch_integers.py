"""PyTorch's integers of 64 bits, which kernels read as 32-bit ones: never another number."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import einloom  # noqa: E402
from einloom.torch.integers import assert_within, check_within  # noqa: E402


def test_indices_are_as_in_eager() -> None:
    def f(table, ids):
        return torch.softmax(table[ids], -1)

    table = torch.randn(10, 4)
    program = einloom.from_torch(f, (table, torch.tensor([1, 2])))
    for wrong in (2**32 + 1, 99):
        ids = torch.tensor([1, wrong])
        with pytest.raises(IndexError):
            f(table, ids)
        with pytest.raises(IndexError, match=f"index {wrong} is out of bounds"):
            program(table, ids)
    from_the_end = torch.tensor([1, -1])
    torch.testing.assert_close(program(table, from_the_end), f(table, from_the_end))
    assert program.operator.replaced and "PyTorch computed" in program.report


def test_the_devices_own_assertion() -> None:
    """What runs on GPUs, where it was written for any device."""
    assert_within(torch.tensor([2**31 - 1, -(2**31)]), "ids")
    assert_within(torch.zeros(0, dtype=torch.int64), "ids")
    with pytest.raises(RuntimeError, match="ids has an element that is no 32-bit integer"):
        assert_within(torch.tensor([[1], [2**31]]), "ids")


LARGE = torch.tensor([2**30, 2**30, -7, 5])


@pytest.mark.parametrize(
    ("f", "limit"),
    [
        (lambda x: x + x, 2**29),
        (lambda x: x * 8 - 1, 2**27),
        (lambda x: x.sum(), 2**28),
        (lambda x: x.cumsum(0), 2**28),
        (lambda x: (x * x).float().sqrt(), 2**15),
        (lambda x: (x * 8).float(), 2**27),
    ],
)
def test_arithmetic_that_would_leave_32_bits_is_left_to_pytorch(f, limit: int) -> None:
    """Which goes on in 64 bits."""
    program = einloom.from_torch(f, (torch.tensor([1, 2, 3, 4]),))
    assert program.operator.limit == limit
    small = LARGE.clamp(-1000, 1000)
    torch.testing.assert_close(program(small), f(small))
    edge = torch.full((4,), limit - 1)
    torch.testing.assert_close(program(edge), f(edge))
    assert program.operator.replaced == 0
    torch.testing.assert_close(program(LARGE), f(LARGE))
    assert program.operator.replaced == 1


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x[1:] == x[:-1],
        lambda x: torch.where(x > 5, x, -1),
        lambda x: (x > 0).sum() + (x > 0).cumsum(0),
        lambda x: x.clamp(-100, 100) * 1000,
        lambda x: x.amax() + 0 * x,
    ],
)
def test_other_integers_are_taken_whole(f) -> None:
    program = einloom.from_torch(f, (torch.tensor([1, 2, 3, 4]),))
    assert program.operator.limit is None
    torch.testing.assert_close(program(LARGE), f(LARGE))
    assert program.operator.replaced == 0


def test_arithmetic_that_leaves_its_type_with_any_input_is_refused() -> None:
    for f, given in ((lambda x: x + 2**40, LARGE), (lambda x: x + x, torch.ones(3, dtype=torch.int8))):
        with pytest.raises(einloom.torch.NotConvertible, match="may not fit into their number type"):
            einloom.from_torch(f, (given,))


def test_a_region_of_a_graph_is_refused_and_the_rest_runs() -> None:
    def f(x, n):
        return torch.softmax(x, -1) + (n + 2**40).float()

    x, n = torch.randn(64, 64), torch.arange(64)
    fast = torch.compile(f, backend=einloom.torch.backend, dynamic=False, options={"rest": "eager"})
    torch.testing.assert_close(fast(x, n), f(x, n))


def test_the_devices_own_check_of_a_limit() -> None:
    check_within(torch.zeros(0, dtype=torch.int64), 5, "ids")
    check_within(torch.tensor([5, -5]), 5, "ids")
    for wrong in (6, -6, -(2**63)):
        with pytest.raises(einloom.OutOfRange, match=f"ids has an element {wrong}"):
            check_within(torch.tensor([0, wrong]), 5, "ids")


def test_what_pytorch_computes_is_dense_as_the_kernels_results() -> None:
    def f(x, ids):
        return torch.softmax(x[ids], -1).transpose(0, 1), x[ids]

    x = torch.randn(16, 32)
    program = einloom.from_torch(f, (x, torch.arange(8)))
    for ids in (torch.arange(8), torch.arange(-8, 0)):
        for got, want in zip(program(x, ids), f(x, ids), strict=True):
            torch.testing.assert_close(got, want)
    made = program.operator
    given = {"x": x, "ids": torch.arange(-8, 0)}
    results = made(*(given[name] for name in made.inputs))
    assert made.replaced == 2
    for r in results if isinstance(results, tuple) else (results,):
        assert r.is_contiguous() and r.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()
