"""Random chains of views, met by operations that make their dimensions one: the index maps are right."""

from __future__ import annotations

import math
import random
from typing import Callable

import pytest

torch = pytest.importorskip("torch")

from einloom.torch import from_torch  # noqa: E402

Step = Callable[["torch.Tensor"], "torch.Tensor"]


def factors(n: int, choose: random.Random) -> list[int]:
    """A shape of `n` elements."""
    shape: list[int] = []
    while n > 1 and len(shape) < 3:
        divisor = choose.choice([d for d in range(1, n + 1) if n % d == 0])
        shape.append(divisor)
        n //= divisor
    return [*shape, n]


def step(shape: tuple[int, ...], choose: random.Random) -> Step:
    """One view that tensors of this shape have."""
    kind = choose.choice(["reshape", "permute", "slice", "flip", "repeat", "expand", "roll", "select", "stride"])
    dim = choose.randrange(len(shape))
    n = shape[dim]
    if kind == "reshape":
        to = factors(math.prod(shape), choose)
        return lambda x: x.reshape(to)
    if kind == "permute":
        order = choose.sample(range(len(shape)), len(shape))
        return lambda x: x.permute(order)
    if kind == "slice":
        start = choose.randrange(n)
        return lambda x: x.narrow(dim, start, choose_length(n - start, start))
    if kind == "flip":
        return lambda x: x.flip(dim)
    if kind == "repeat" and math.prod(shape) < 200:
        return lambda x: x.repeat_interleave(2, dim)
    if kind == "expand" and math.prod(shape) < 200:
        return lambda x: x.unsqueeze(dim).expand(*shape[:dim], 3, *shape[dim:])
    if kind == "roll":
        return lambda x: x.roll(n // 2, dim)
    if kind == "select" and len(shape) > 1:
        return lambda x: x.select(dim, n // 2)
    return lambda x: x[(*[slice(None)] * dim, slice(None, None, 2))]


def choose_length(most: int, start: int) -> int:
    """Between 1 and all that is left, by where it starts."""
    return 1 + start % most


def chain(shape: tuple[int, ...], choose: random.Random) -> tuple[list[Step], tuple[int, ...]]:
    """Some views in a row, and the shape at their end."""
    steps, x = [], torch.empty(shape)
    for _ in range(choose.randrange(1, 5)):
        steps.append(step(tuple(x.shape), choose))
        x = steps[-1](x)
        if x.dim() == 0:
            steps.append(lambda x: x.reshape(1))
            x = x.reshape(1)
    return steps, tuple(x.shape)


@pytest.mark.parametrize("seed", range(40))
def test_views(seed: int) -> None:
    choose = random.Random(seed)
    shape = tuple(choose.choice([1, 2, 3, 4, 6]) for _ in range(choose.randrange(1, 4)))
    first, end = chain(shape, choose)
    dim = choose.randrange(len(end))
    way = choose.randrange(4)

    def f(x, y):
        for s in first:
            x = s(x)
        y = y.reshape(end)
        if way == 0:
            return x + y.flip(0)
        if way == 1:
            return (x * y).softmax(dim)
        if way == 2:
            return (x + y).sum(dim)
        return x.reshape(end[0], -1) @ y.reshape(end[0], -1).T

    torch._dynamo.reset()
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.randn(shape, generator=generator), torch.randn(math.prod(end), generator=generator)
    got, want = from_torch(f, (x, y))(x, y), f(x, y)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
