"""Values: a tensor as a term over the axes of its dimensions. Views only change which axes stand where."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Sequence

import torch

from .index import Axis, Index, Rank
from .terms import FALSE, TRUE, Number, Position, Read, Select, Term, Unary, binary, free_axes, select, substitute

Dim = tuple[Axis, ...]
"""A dimension as a product of axes, outermost first; a dimension of size 1 may be the empty product."""


@dataclass(frozen=True)
class Value:
    """What an operation gives: `term` at every position of `dims`."""

    dims: tuple[Dim, ...]
    term: Term
    dtype: torch.dtype
    alias: str | None = None
    """The user's name, where there is one and no statement bears it yet."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions."""
        return tuple(prod(a.size for a in d) for d in self.dims)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """All axes, outermost first."""
        return tuple(a for d in self.dims for a in d)

    def with_term(self, term: Term, dtype: torch.dtype | None = None) -> Value:
        """Another term over the same axes."""
        return Value(self.dims, term, dtype or self.dtype)

    def substitute(self, by: dict[Axis, Index], dims: Sequence[Dim]) -> Value:
        """The same elements over other axes."""
        return Value(tuple(dims), substitute(self.term, by), self.dtype, self.alias)


def axis(size: int, hint: str | None = None) -> Axis:
    """An axis over a rank of its own."""
    return Axis(Rank(size, (hint,) if hint else ()), hint)


def again(a: Axis) -> Axis:
    """Another axis over the same rank."""
    return Axis(a.rank, a.hint)


def refresh(v: Value) -> Value:
    """The same value over axes of its own, so that it can meet itself in another order."""
    new = {a: again(a) for a in v.axes}
    return v.substitute({a: Index.of(b) for a, b in new.items()}, [tuple(new[a] for a in d) for d in v.dims])


def constant(value: float | int | bool, dtype: torch.dtype) -> Value:
    """A scalar."""
    term = (TRUE if value else FALSE) if dtype == torch.bool else Number(float(value))
    return Value((), term, dtype)


def as_truth(v: Value) -> Term:
    """As a condition."""
    return v.term if v.dtype == torch.bool else binary("!=", v.term, Number(0))


def as_number(v: Value) -> Term:
    """As a number, also where it is a condition."""
    return select(v.term, Number(1), Number(0)) if v.dtype == torch.bool else v.term


def flat(dim: Dim) -> Index:
    """The position in a dimension that is made of several axes."""
    out = Index()
    for a in dim:
        out = out * a.size + Index.of(a)
    return out


def split_at(index: Index, dim: Dim) -> dict[Axis, Index]:
    """Positions of a dimension's axes, given that of the dimension."""
    out, stride = {}, prod(a.size for a in dim)
    for place, a in enumerate(dim):
        stride //= a.size
        part = index // stride
        out[a] = part % a.size if place else part
    return out


def fuse(v: Value) -> Value:
    """One axis per dimension, as statements need; dimensions of size 1 get an axis too."""
    by: dict[Axis, Index] = {}
    dims: list[Dim] = []
    for dim in v.dims:
        if len(dim) == 1:
            dims.append(dim)
            continue
        new = axis(prod(a.size for a in dim))
        by |= split_at(Index.of(new), dim)
        dims.append((new,))
    return v.substitute(by, dims)


def unify(a: Dim, b: Dim, by_a: dict[Axis, Index], by_b: dict[Axis, Index]) -> Dim:
    """The axes of two dimensions of one size, made the same: equal ranks unite, larger ones are split."""
    left, right, out = list(a), list(b), []
    while left or right:
        x, y = (left.pop() if left else None), (right.pop() if right else None)
        if x is None or y is None:  # axes of size 1 are left over
            rest, by = (x, by_a) if y is None else (y, by_b)
            assert rest is not None and rest.size == 1
            by[rest] = Index()
            continue
        if x is y or x.size == y.size:
            if x is not y:
                x.rank.unite(y.rank)
                by_b[y] = Index.of(x)
            out.append(x)
        elif x.size % y.size == 0:
            outer = _outer(x, y.size)
            by_a[x] = Index.of(outer) * y.size + Index.of(y)
            left.append(outer)
            out.append(y)
        elif y.size % x.size == 0:
            outer = _outer(y, x.size)
            by_b[y] = Index.of(outer) * x.size + Index.of(x)
            right.append(outer)
            out.append(x)
        else:  # nothing fits: both are read by the position in the whole
            whole = axis(prod(i.size for i in a))
            for dim, by in ((a, by_a), (b, by_b)):
                for i in dim:
                    by.pop(i, None)
                by |= split_at(Index.of(whole), dim)
            return (whole,)
    return tuple(reversed(out))


def _outer(a: Axis, inner: int) -> Axis:
    return axis(a.size // inner)


def resolve(by: dict[Axis, Index]) -> dict[Axis, Index]:
    """A substitution whose results may mention axes that it substitutes too, made one that is done at once."""
    out = dict(by)
    for _ in range(len(by) + 1):
        if not any(a in by for i in out.values() for a in i.axes()):
            break
        out = {a: i.substitute(by) for a, i in out.items()}
    return out


def broadcast(values: Sequence[Value]) -> tuple[tuple[Dim, ...], list[Term]]:
    """Dimensions of the common shape, and every value's term over them (PyTorch's rules)."""
    values = [values[0], *(refresh(v) for v in values[1:])]
    count = max((len(v.dims) for v in values), default=0)
    dims: list[Dim] = [()] * count
    terms: list[Term] = []
    for v in values:
        terms.append(v.term)
    for place in range(count):
        have: Dim | None = None
        # Sizes other than 1 win over 1; axes of size 1 win over none.
        which = [(k, v.dims[place - count + len(v.dims)]) for k, v in enumerate(values) if place >= count - len(v.dims)]
        size = max((prod(a.size for a in d) for _, d in which), default=1)
        for k, dim in which:
            dim_size = prod(a.size for a in dim)
            if dim_size != size:
                terms[k] = substitute(terms[k], {a: Index() for a in dim})
                continue
            if have is None or (not have and dim):
                have = dim
                continue
            if not dim:
                continue
            by_have: dict[Axis, Index] = {}
            by_dim: dict[Axis, Index] = {}
            have = unify(have, dim, by_have, by_dim)
            by_have, by_dim = resolve(by_have), resolve(by_dim)
            for j, _ in which:
                terms[j] = substitute(terms[j], by_dim if j == k else by_have)
        dims[place] = have or ()
    return tuple(dims), terms


def reshape(v: Value, shape: Sequence[int]) -> Value:
    """The same elements in order, in another shape."""
    source = [a for a in v.axes]
    by: dict[Axis, Index] = {}
    pending = [a for a in source if a.size > 1]
    dims: list[list[Axis]] = [[] for _ in shape]
    place = 0
    wanted = [(k, n) for k, n in enumerate(shape) if n > 1]
    for k, n in wanted:
        rest = n
        while rest > 1:
            if place >= len(pending):
                raise AssertionError("sizes agree")
            a = pending[place]
            if rest % a.size == 0:
                dims[k].append(a)
                rest //= a.size
                place += 1
            elif a.size % rest == 0:
                outer, inner = axis(rest), axis(a.size // rest)
                by[a] = Index.of(outer) * inner.size + Index.of(inner)
                dims[k].append(outer)
                pending[place] = inner
                rest = 1
            else:
                return _reshape_flat(v, shape)
    # An axis of size 1 has one position. It stays with the dimensions of size 1, in order, as far as there are any.
    singles = [a for a in source if a.size == 1]
    for k in (k for k, n in enumerate(shape) if n == 1):
        if singles:
            dims[k] = [singles.pop(0)]
    by |= {a: Index() for a in singles}
    return whole_where_repeated(v.substitute(resolve(by), [tuple(d) for d in dims]))


def whole_where_repeated(v: Value) -> Value:
    """One axis for every dimension in which elements only repeat along a factor: `k[h / G]` rather than a dimension of
    its own for the copies."""
    used = free_axes(v.term)
    by: dict[Axis, Index] = {}
    dims = []
    for dim in v.dims:
        if len(dim) > 1 and any(a not in used for a in dim):
            new = axis(prod(a.size for a in dim))
            by |= split_at(Index.of(new), dim)
            dim = (new,)
        dims.append(dim)
    return v.substitute(by, dims)


def _reshape_flat(v: Value, shape: Sequence[int]) -> Value:
    dims = [(axis(n),) if n > 1 else () for n in shape]
    whole = flat(tuple(a for d in dims for a in d))
    return v.substitute(split_at(whole, v.axes), dims)


def permute(v: Value, order: Sequence[int]) -> Value:
    """Dimensions in another order."""
    return replace(v, dims=tuple(v.dims[k] for k in order))


def take(v: Value, dim: int, start: int, count: int, step: int = 1) -> Value:
    """Every `step`-th position of a dimension."""
    if start == 0 and step == 1 and count == v.shape[dim]:
        return v
    new = axis(count)
    at = split_at(Index.of(new) * step + start, v.dims[dim])
    return v.substitute(at, [*v.dims[:dim], (new,), *v.dims[dim + 1 :]])


def at_position(v: Value, dim: int, position: Index) -> Value:
    """One position of a dimension, which goes."""
    return v.substitute(split_at(position, v.dims[dim]), [*v.dims[:dim], *v.dims[dim + 1 :]])


def is_simple(term: Term) -> bool:
    """Reads, constants and positions: nothing is saved by giving them a name."""
    if isinstance(term, Unary):
        return term.op in ("-", "not") and is_simple(term.x)
    if isinstance(term, Select):
        return all(is_simple(t) for t in (term.condition, term.then, term.otherwise))
    return isinstance(term, (Read, Number, Position))
