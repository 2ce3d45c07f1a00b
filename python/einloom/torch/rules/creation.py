"""Tensors that are made from nothing but positions and constants."""

from __future__ import annotations

from typing import Any, Sequence

import torch

from ..convert import Converter, rule
from ..index import Index
from ..terms import FALSE, TRUE, Binary, Number, Position, binary, select
from ..values import Value, axis


def filled(c: Converter, shape: Sequence[int], value: float) -> Value:
    """A constant in every element."""
    dims = tuple((axis(int(n)),) if n != 1 else () for n in shape)
    dtype = c.result_dtype
    return Value(dims, (TRUE if value else FALSE) if dtype == torch.bool else Number(float(value)), dtype)


@rule("full", "new_full")
def full(c: Converter, *args: Any, **kwargs: Any) -> Value:
    shape, value = args[-2:]
    return filled(c, shape, value)


@rule("full_like")
def full_like(c: Converter, self: Value, fill_value: float, **kwargs: Any) -> Value:
    return filled(c, self.shape, fill_value)


def _constant(*names: str, value: float) -> None:
    @rule(*names)
    def create(c: Converter, *args: Any, **kwargs: Any) -> Value:
        shape = args[-1] if not isinstance(args[-1], Value) else args[-1].shape
        return filled(c, shape, value)


_constant("zeros", "zeros_like", "new_zeros", value=0)
_constant("ones", "ones_like", "new_ones", value=1)


@rule("scalar_tensor", "tensor")
def scalar_tensor(c: Converter, s: float, **kwargs: Any) -> Value:
    return filled(c, (), s)


@rule("fill")
def fill(c: Converter, self: Value, value: Any) -> Value:
    return filled(c, self.shape, value) if not isinstance(value, Value) else Value(self.dims, value.term, self.dtype)


@rule("arange")
def arange(c: Converter, *args: float, **kwargs: Any) -> Value:
    start, end, step = (0, *args, 1) if len(args) == 1 else (*args, 1) if len(args) == 2 else args
    assert c.node is not None
    a = axis(int(c.node.meta["val"].shape[0]))
    at = Position(Index.of(a))
    return Value(((a,),), binary("+", binary("*", at, Number(step)), Number(start)), c.result_dtype)


@rule("linspace")
def linspace(c: Converter, start: float, end: float, steps: int, **kwargs: Any) -> Value:
    a = axis(steps)
    step = (end - start) / max(steps - 1, 1)
    return Value(((a,),), binary("+", binary("*", Position(Index.of(a)), Number(step)), Number(start)), c.result_dtype)


@rule("eye")
def eye(c: Converter, n: int, m: int | None = None, **kwargs: Any) -> Value:
    a, b = axis(n), axis(n if m is None else m)
    on = Binary("==", Position(Index.of(a)), Position(Index.of(b)))
    return Value(((a,), (b,)), select(on, Number(1), Number(0)), c.result_dtype)


@rule("one_hot")
def one_hot(c: Converter, self: Value, num_classes: int = -1) -> Value:
    if num_classes < 0:
        c.refuse("the number of classes depends on the data: give it")
    a = axis(num_classes)
    hit = Binary("==", self.term, Position(Index.of(a)))
    return Value((*self.dims, (a,)), select(hit, Number(1), Number(0)), c.result_dtype)
