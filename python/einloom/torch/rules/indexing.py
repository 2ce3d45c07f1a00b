"""Gathers: positions that are read from tensors."""

from __future__ import annotations

from typing import Any, Sequence

import torch

from ..convert import Converter, rule
from ..index import Axis, Gather, Index
from ..terms import Binary, Number, Position, Read, Select, Term, Unary, select, substitute
from ..values import Value, broadcast, flat, refresh, resolve, split_at, unify


def position(c: Converter, v: Value, size: int, wraps: bool = True) -> Index:
    """An integer value as a position: affine where it is made of positions, an element of an integer tensor
    otherwise. `wraps`: negative positions count from the end."""
    found = _affine(v.term)
    if found is None:
        found = _gathered(c, v)
    reach = found.bounds()
    if wraps and reach is not None and reach[0] < 0:
        if reach[1] >= 0:
            found = _wrapped(c, v, size)
        else:
            found = found + size
    return found


def _affine(term: Term) -> Index | None:
    if isinstance(term, Number) and term.value == int(term.value):
        return Index((), int(term.value))
    if isinstance(term, Position):
        return term.index
    if isinstance(term, Read) and (term.tensor.dtype or "f32")[0] in "iu":
        return Index(((Gather(term.tensor, term.at), 1),))
    if isinstance(term, Unary) and term.op == "-":
        x = _affine(term.x)
        return x and x * -1
    if isinstance(term, Binary) and term.op in ("+", "-"):
        a, b = _affine(term.a), _affine(term.b)
        return None if a is None or b is None else a + b if term.op == "+" else a - b
    if isinstance(term, Unary) and term.op == "floor" and isinstance(term.x, Binary) and term.x.op == "/":
        above, below = _affine(term.x.a), term.x.b
        if above is not None and isinstance(below, Number) and below.value == int(below.value) > 0:
            return above // int(below.value)
    if isinstance(term, Binary) and term.op == "*":
        for moving, by in ((term.a, term.b), (term.b, term.a)):
            index = _affine(moving)
            if index is not None and isinstance(by, Number) and by.value == int(by.value):
                return index * int(by.value)
    return None


def _gathered(c: Converter, v: Value) -> Index:
    name = (c.node.meta.get("einloom_name") if c.node else None) or "t"
    read = c.define(v.with_term(v.term, torch.int32), f"{name}_at").term
    assert isinstance(read, Read)
    return Index(((Gather(read.tensor, read.at), 1),))


def _wrapped(c: Converter, v: Value, size: int) -> Index:
    return _gathered(c, v.with_term(select(Binary("<", v.term, Number(0)), Binary("+", v.term, Number(size)), v.term)))


@rule("embedding")
def embedding(
    c: Converter,
    weight: Value,
    indices: Value,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Value:
    at = position(c, indices, weight.shape[0], wraps=False)
    weight = refresh(weight)
    return Value(
        (*indices.dims, weight.dims[1]),
        substitute(weight.term, split_at(at, weight.dims[0]))
        if isinstance(weight.term, Read)
        else _read(c, weight, at),
        weight.dtype,
    )


def _read(c: Converter, v: Value, at: Index) -> Term:
    return substitute(c.named(v).term, split_at(at, v.dims[0]))


@rule("index_select")
def index_select(c: Converter, self: Value, dim: int, index: Value) -> Value:
    dim %= len(self.dims)
    return index_(c, self, [*[None] * dim, index])


@rule("index", "_unsafe_index")
def index_(c: Converter, self: Value, indices: Sequence[Value | None]) -> Value:
    """`x[i, :, j]`: the dimensions of the positions stand where the first of them stood, or first if they are apart."""
    if any(i is not None and i.dtype == torch.bool for i in indices):
        c.refuse("the number of its results depends on the data: use where")
    v = refresh(c.named(self, "x"))
    chosen = [k for k, i in enumerate(indices) if i is not None]
    values = [i for i in indices if i is not None]
    dims, terms = broadcast(values)
    by: dict[Axis, Index] = {}
    for k, term in zip(chosen, terms):
        by |= split_at(position(c, Value(dims, term, torch.int64), v.shape[k]), v.dims[k])
    rest = [d for k, d in enumerate(v.dims) if k not in chosen]
    adjacent = chosen == list(range(chosen[0], chosen[-1] + 1))
    front = chosen[0] if adjacent else 0
    return v.substitute(by, [*rest[:front], *dims, *rest[front:]])


@rule("gather", "take_along_dim")
def gather(c: Converter, self: Value, dim: Any, index: Any, *, sparse_grad: bool = False) -> Value:
    """`out[i, j] = x[i, index[i, j]]`."""
    if isinstance(dim, Value):  # take_along_dim has them the other way round
        dim, index = index, dim
    dim %= max(len(self.dims), 1)
    v = c.named(self, "x") if not isinstance(self.term, (Unary, Binary, Select)) else self
    v, index = refresh(v), refresh(index)
    at = position(c, index, v.shape[dim])
    term, by = v.term, split_at(at, v.dims[dim])
    dims = list(index.dims)
    for k, d in enumerate(v.dims):
        if k == dim:
            continue
        if v.shape[k] != index.shape[k]:  # the leading part only
            by |= split_at(flat(index.dims[k]), d)
            continue
        here: dict[Axis, Index] = {}
        there: dict[Axis, Index] = {}
        dims[k] = unify(index.dims[k], d, here, there)
        here = resolve(here)
        by = {a: i.substitute(here) for a, i in by.items()} | resolve(there)
        dims = [tuple(x for a in e for x in (here[a].axes() if a in here else (a,))) for e in dims]
    return Value(tuple(dims), substitute(term, by), v.dtype, v.alias)
