"""Reductions over whole dimensions, and prefixes."""

from __future__ import annotations

import math
from typing import Any, Sequence

import torch

from ..convert import Converter, rule
from ..index import Axis, Index
from ..terms import Binary, Number, Position, Reduce, Term, Unary, binary, select, substitute
from ..values import Dim, Value, again, as_number, as_truth, fuse
from .elementwise import arithmetic


def chosen(v: Value, dim: Any) -> list[int]:
    """The dimensions that a `dim` argument means: all of them for `None` and for an empty list."""
    n = len(v.dims)
    if dim is None or dim == [] or dim == ():
        return list(range(n))
    return sorted({d % max(n, 1) for d in ([dim] if isinstance(dim, int) else dim)} & set(range(n)))


def without(v: Value, dims: Sequence[int], keepdim: bool) -> tuple[Dim, ...]:
    """The dimensions of the result."""
    return tuple(() if k in dims else d for k, d in enumerate(v.dims) if keepdim or k not in dims)


def over(v: Value, dims: Sequence[int]) -> tuple[Axis, ...]:
    """The axes that are reduced."""
    return tuple(a for k in dims for a in v.dims[k])


def reduce(c: Converter, name: str, v: Value, dim: Any, keepdim: bool, dtype: torch.dtype | None = None) -> Value:
    """`name(axes) v`."""
    dims = chosen(v, dim)
    axes = over(v, dims)
    v = c.body(v)
    term = Reduce(name, axes, as_number(v)) if axes else as_number(v)
    return Value(without(v, dims, keepdim), term, dtype or c.result_dtype)


def _plain(*names: str, op: str) -> None:
    @rule(*names)
    def reduction(c: Converter, self: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
        return reduce(c, op, self, dim, keepdim)


_plain("sum", op="sum")
_plain("amax", op="max")
_plain("amin", op="min")
_plain("prod", op="prod")


@rule("mean")
def mean(c: Converter, self: Value, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Value:
    return reduce(c, "mean", self, dim, keepdim)


@rule("logsumexp")
def logsumexp(c: Converter, self: Value, dim: Any, keepdim: bool = False) -> Value:
    return reduce(c, "logsumexp", self, dim, keepdim)


@rule("softmax", "_softmax", "_safe_softmax")
def softmax(c: Converter, self: Value, dim: int, dtype: Any = None) -> Value:
    """A statement of its own: it has a value for each position that it runs over, and only a left side says for which."""
    dims = chosen(self, dim)
    v = c.body(self)
    return c.named(Value(v.dims, Reduce("softmax", over(v, dims), v.term), c.result_dtype))


@rule("log_softmax", "_log_softmax")
def log_softmax(c: Converter, self: Value, dim: int, dtype: Any = None) -> Value:
    """`x - logsumexp(x)`."""
    dims = chosen(self, dim)
    v = self if isinstance(self.term, Unary) else c.named(self, "x")
    bound = {a: again(a) for a in over(v, dims)}
    body = substitute(v.term, {a: Index.of(b) for a, b in bound.items()})
    return v.with_term(Binary("-", v.term, Reduce("logsumexp", tuple(bound.values()), body)), c.result_dtype)


def moments(c: Converter, v: Value, dims: Sequence[int]) -> tuple[Term, Term]:
    """The mean and the mean squared difference from it, as terms over what is not reduced."""
    v = c.body(v)
    axes = over(v, dims)
    mu: Term = Reduce("mean", axes, as_number(v))
    bound = {a: again(a) for a in axes}
    x = substitute(as_number(v), {a: Index.of(b) for a, b in bound.items()})
    name = (c.node.meta.get("einloom_name") or "x") if c.node else "x"
    kept = Value(without(v, dims, False), mu, v.dtype)
    mu = c.define(kept, f"{name}_mean").term
    squares = Reduce("mean", tuple(bound.values()), Binary("^", Binary("-", x, mu), Number(2)))
    return mu, squares


def _variance(c: Converter, v: Value, dim: Any, correction: float) -> tuple[Term, Term, list[int]]:
    dims = chosen(v, dim)
    mu, var = moments(c, v, dims)
    count = math.prod(v.shape[d] for d in dims)
    if correction:
        var = binary("*", var, Number(count / max(count - correction, 0)) if count > correction else Number(math.inf))
    return mu, var, dims


def _correction(unbiased: Any, correction: Any) -> float:
    if correction is not None:
        return float(correction)
    return 1.0 if unbiased is None or unbiased else 0.0


def _dim_and_correction(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, float, bool]:
    """The overloads `var(x, unbiased)`, `var(x, dim, unbiased, keepdim)` and `var(x, dim, correction=, keepdim=)`."""
    args_list = list(args)
    dim = kwargs.get("dim")
    unbiased = kwargs.get("unbiased")
    if args_list and isinstance(args_list[0], bool):
        unbiased = args_list.pop(0)
    elif args_list:
        dim = args_list.pop(0)
    if args_list and isinstance(args_list[0], bool):
        unbiased = args_list.pop(0)
    keepdim = kwargs.get("keepdim", args_list.pop(0) if args_list else False)
    return dim, _correction(unbiased, kwargs.get("correction")), keepdim


@rule("var")
def var(c: Converter, self: Value, *args: Any, **kwargs: Any) -> Value:
    dim, correction, keepdim = _dim_and_correction(args, kwargs)
    _, term, dims = _variance(c, self, dim, correction)
    return Value(without(self, dims, keepdim), term, c.result_dtype)


@rule("std")
def std(c: Converter, self: Value, *args: Any, **kwargs: Any) -> Value:
    v = var(c, self, *args, **kwargs)
    return v.with_term(Unary("sqrt", v.term))


@rule("var_mean")
def var_mean(c: Converter, self: Value, *args: Any, **kwargs: Any) -> tuple[Value, Value]:
    dim, correction, keepdim = _dim_and_correction(args, kwargs)
    mu, term, dims = _variance(c, self, dim, correction)
    kept = without(self, dims, keepdim)
    return Value(kept, term, self.dtype), Value(kept, mu, self.dtype)


@rule("norm", "linalg_vector_norm")
def norm(c: Converter, self: Value, ord: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Value:
    v = c.body(self)
    x = v.term
    ord = 2.0 if ord is None else float(ord)
    if math.isinf(ord):
        return reduce(c, "max" if ord > 0 else "min", v.with_term(Unary("abs", x)), dim, keepdim)
    if ord == 0:
        c.refuse("the number of elements that are not 0: write (x != 0).sum()")
    body = x if ord == 2 else Unary("abs", x)
    total = reduce(c, "sum", v.with_term(binary("^", body, Number(ord))), dim, keepdim)
    root = Unary("sqrt", total.term) if ord == 2 else binary("^", total.term, Number(1 / ord))
    return total.with_term(root)


@rule("any")
def any_(c: Converter, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    v = reduce(c, "max", self.with_term(select(as_truth(self), Number(1), Number(0)), torch.int32), dim, keepdim)
    return v.with_term(binary("!=", v.term, Number(0)), torch.bool)


@rule("all")
def all_(c: Converter, self: Value, dim: Any = None, keepdim: bool = False) -> Value:
    v = reduce(c, "min", self.with_term(select(as_truth(self), Number(1), Number(0)), torch.int32), dim, keepdim)
    return v.with_term(binary("!=", v.term, Number(0)), torch.bool)


def _extremum(name: str) -> None:
    @rule(f"arg{name}")
    def position(c: Converter, self: Value, dim: int | None = None, keepdim: bool = False) -> Value:
        """The first position of the extremum (PyTorch leaves open which of several)."""
        dims = chosen(self, dim)
        v = c.body(self)
        axes = over(v, dims)
        if len(axes) != 1:
            v = (
                fuse(Value((tuple(axes),), v.term, v.dtype))
                if len(dims) == len(v.dims)
                else c.refuse("it runs over several dimensions at once")
            )
            axes, kept = v.axes, without(self, dims, keepdim)
        else:
            kept = without(v, dims, keepdim)
        return Value(kept, Reduce(f"arg{name}", axes, as_number(v)), c.result_dtype)

    @rule(name)
    def extremum(c: Converter, self: Value, dim: Any = None, keepdim: bool = False) -> Any:
        """`max(x)`, `max(x, y)`, and `max(x, dim)`, which gives values and positions."""
        if isinstance(dim, Value):
            return arithmetic(c, name, self, dim)
        values = reduce(c, name, self, dim, keepdim, self.dtype)
        if dim is None:
            return values
        at = position(c, self, dim, keepdim)
        return values, at.with_term(at.term, torch.int64)


_extremum("max")
_extremum("min")


@rule("cumsum")
def cumsum(c: Converter, self: Value, dim: int, *, dtype: Any = None) -> Value:
    """The sum over all positions up to one."""
    d = dim % max(len(self.dims), 1)
    v = c.named(self, "x")
    if len(v.dims[d]) != 1:
        c.refuse("it runs along a dimension that is made of several")
    (here,) = v.dims[d]
    before = again(here)
    body = substitute(as_number(v), {here: Index.of(before)})
    upto = Binary("<=", Position(Index.of(before)), Position(Index.of(here)))
    return Value(v.dims, Reduce("sum", (before,), body, upto), c.result_dtype)
