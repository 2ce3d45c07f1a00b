"""Views: the same elements over other axes. None of them moves anything."""

from __future__ import annotations

from math import prod
from typing import Any, Sequence

from ..convert import Converter, rule
from ..index import Axis, Index
from ..terms import Binary, Number, Position, binary, select, substitute
from ..values import (
    Value,
    as_number,
    at_position,
    axis,
    broadcast,
    fuse,
    permute,
    reshape,
    split_at,
    take,
    whole_where_repeated,
)


def shape_of(v: Value, sizes: Sequence[int]) -> list[int]:
    """Sizes with a -1 filled in."""
    sizes = [int(n) for n in sizes]
    if -1 in sizes:
        known = prod(n for n in sizes if n != -1)
        sizes[sizes.index(-1)] = prod(v.shape) // max(known, 1)
    return sizes


@rule("view", "reshape", "_unsafe_view", "_reshape_alias", "view_copy")
def view(c: Converter, self: Value, size: Any, *rest: Any) -> Value:
    if not isinstance(size, (list, tuple)):
        c.refuse("it reads the bits of a number type as those of another")
    if 0 in self.shape:
        c.refuse("it is empty")
    return reshape(self, shape_of(self, size))


@rule("flatten")
def flatten(c: Converter, self: Value, start_dim: int = 0, end_dim: int = -1) -> Value:
    n = len(self.shape)
    if n == 0:
        return reshape(self, [1])
    start, end = start_dim % n, end_dim % n
    return reshape(self, [*self.shape[:start], prod(self.shape[start : end + 1]), *self.shape[end + 1 :]])


@rule("unflatten")
def unflatten(c: Converter, self: Value, dim: int, sizes: Sequence[int]) -> Value:
    dim %= len(self.shape)
    inner = list(sizes)
    if -1 in inner:
        inner[inner.index(-1)] = self.shape[dim] // prod(n for n in inner if n != -1)
    return reshape(self, [*self.shape[:dim], *inner, *self.shape[dim + 1 :]])


@rule("permute", "permute_copy")
def permuted(c: Converter, self: Value, dims: Sequence[int]) -> Value:
    return permute(self, [d % len(self.dims) for d in dims])


@rule("transpose", "swapaxes", "swapdims")
def transpose(c: Converter, self: Value, dim0: int, dim1: int) -> Value:
    order = list(range(len(self.dims)))
    if order:
        a, b = dim0 % len(order), dim1 % len(order)
        order[a], order[b] = order[b], order[a]
    return permute(self, order)


@rule("t", "numpy_T", "mT")
def t(c: Converter, self: Value) -> Value:
    order = list(range(len(self.dims)))
    return permute(self, [*order[:-2], *order[-2:][::-1]])


@rule("movedim", "moveaxis")
def movedim(c: Converter, self: Value, source: Any, destination: Any) -> Value:
    n = len(self.dims)
    source = [d % n for d in ([source] if isinstance(source, int) else source)]
    destination = [d % n for d in ([destination] if isinstance(destination, int) else destination)]
    order = [d for d in range(n) if d not in source]
    for place, d in sorted(zip(destination, source)):
        order.insert(place, d)
    return permute(self, order)


@rule("unsqueeze")
def unsqueeze(c: Converter, self: Value, dim: int) -> Value:
    dim %= len(self.dims) + 1
    return Value((*self.dims[:dim], (), *self.dims[dim:]), self.term, self.dtype)


@rule("squeeze")
def squeeze(c: Converter, self: Value, dim: Any = None) -> Value:
    n = max(len(self.dims), 1)
    chosen = range(n) if dim is None else [d % n for d in ([dim] if isinstance(dim, int) else dim)]
    gone = [d for d in chosen if d < len(self.dims) and self.shape[d] == 1]
    by = {a: Index() for d in gone for a in self.dims[d]}
    return self.substitute(by, [d for k, d in enumerate(self.dims) if k not in gone])


@rule("expand", "expand_copy", "broadcast_to")
def expand(c: Converter, self: Value, size: Sequence[int], *, implicit: bool = False) -> Value:
    new = len(size) - len(self.dims)
    dims = [*((),) * new, *self.dims]
    by: dict[Axis, Index] = {}
    for k, n in enumerate(size):
        if n not in (-1, 1) and (k < new or self.shape[k - new] == 1) and n != 1:
            by |= {a: Index() for a in dims[k]}
            dims[k] = (axis(int(n)),)
    return self.substitute(by, dims)


@rule("expand_as")
def expand_as(c: Converter, self: Value, other: Value) -> Value:
    return expand(c, self, other.shape)


@rule("slice", "slice_copy")
def slice_(
    c: Converter, self: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    dim %= len(self.dims)
    positions = range(self.shape[dim])[slice(start, end, step)]
    if not positions:
        c.refuse("it is empty")
    return take(self, dim, positions.start, len(positions), step)


@rule("narrow")
def narrow(c: Converter, self: Value, dim: int, start: Any, length: int) -> Value:
    if not isinstance(start, int):
        c.refuse("its start depends on the data")
    return take(self, dim % len(self.dims), start % max(self.shape[dim], 1), length)


@rule("select", "select_copy")
def select_(c: Converter, self: Value, dim: int, index: int) -> Value:
    dim %= len(self.dims)
    return at_position(self, dim, Index((), index % self.shape[dim]))


@rule("split", "split_with_sizes", "split_copy", "tensor_split", "unsafe_split")
def split(c: Converter, self: Value, split_size: Any, dim: int = 0) -> tuple[Value, ...]:
    dim %= len(self.dims)
    size = self.shape[dim]
    if isinstance(split_size, int):
        split_size = [min(split_size, size - s) for s in range(0, size, split_size)]
    out, start = [], 0
    for n in split_size:
        out.append(take(self, dim, start, n))
        start += n
    return tuple(out)


@rule("chunk", "unsafe_chunk")
def chunk(c: Converter, self: Value, chunks: int, dim: int = 0) -> tuple[Value, ...]:
    return split(c, self, -(-self.shape[dim] // chunks), dim)


@rule("unbind")
def unbind(c: Converter, self: Value, dim: int = 0) -> tuple[Value, ...]:
    return tuple(select_(c, self, dim, k) for k in range(self.shape[dim]))


@rule("cat", "concat", "concatenate")
def cat(c: Converter, tensors: Sequence[Value], dim: int = 0) -> Value:
    """Position by position, from whichever tensor has it."""
    tensors = [v for v in tensors if v.shape != (0,)]
    n = len(tensors[0].dims)
    dim %= n
    whole = axis(sum(v.shape[dim] for v in tensors))
    parts, start = [], 0
    for v in tensors:
        at = split_at(Index.of(whole) + -start, v.dims[dim])
        parts.append((start, v.shape[dim], substitute(as_number(v), at), [*v.dims[:dim], (), *v.dims[dim + 1 :]]))
        start += v.shape[dim]
    dims, terms = broadcast([Value(tuple(d), term, tensors[0].dtype) for _, _, term, d in parts])
    out = terms[-1]
    for (start, size, _, _), term in list(zip(parts, terms))[-2::-1]:
        out = select(Binary("<", Position(Index.of(whole)), Number(start + size)), term, out)
    dims = (*dims[:dim], (whole,), *dims[dim + 1 :])
    if tensors[0].dtype.is_floating_point or tensors[0].dtype != c.result_dtype:
        return Value(dims, out, c.result_dtype)
    v = Value(dims, out, c.result_dtype)
    return v.with_term(binary("!=", out, Number(0))) if str(v.dtype) == "torch.bool" else v


@rule("stack")
def stack(c: Converter, tensors: Sequence[Value], dim: int = 0) -> Value:
    dim %= len(tensors[0].dims) + 1
    return cat(c, [unsqueeze(c, v, dim) for v in tensors], dim)


@rule("repeat", "tile")
def repeat(c: Converter, self: Value, repeats: Sequence[int]) -> Value:
    new = max(len(repeats) - len(self.dims), 0)
    repeats = [1] * (len(self.dims) - len(repeats)) + list(repeats)
    dims = [*((),) * new, *self.dims]
    copies = tuple(((axis(n), *d) if n > 1 else d) for n, d in zip(repeats, dims))
    return whole_where_repeated(Value(copies, self.term, self.dtype))


@rule("repeat_interleave")
def repeat_interleave(
    c: Converter, self: Value, repeats: Any, dim: int | None = None, *, output_size: Any = None
) -> Value:
    if not isinstance(repeats, int):
        c.refuse("the number of repetitions depends on the data")
    v = self if dim is not None else flatten(c, self)
    dim = 0 if dim is None else dim % len(v.dims)
    return whole_where_repeated(
        Value((*v.dims[:dim], (*v.dims[dim], axis(repeats)), *v.dims[dim + 1 :]), v.term, v.dtype)
    )


@rule("flip")
def flip(c: Converter, self: Value, dims: Sequence[int]) -> Value:
    v = self
    for d in dims:
        d %= len(v.dims)
        new = axis(v.shape[d])
        at = split_at(Index.of(new) * -1 + (v.shape[d] - 1), v.dims[d])
        v = v.substitute(at, [*v.dims[:d], (new,), *v.dims[d + 1 :]])
    return v


@rule("roll")
def roll(c: Converter, self: Value, shifts: Any, dims: Any = ()) -> Value:
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not dims:
        return reshape(roll(c, flatten(c, self), shifts, [0]), self.shape)
    v = self
    for shift, d in zip(shifts, dims):
        d %= len(v.dims)
        n = v.shape[d]
        new = axis(n)
        at = split_at((Index.of(new) + (-shift % n)) % n, v.dims[d])
        v = v.substitute(at, [*v.dims[:d], (new,), *v.dims[d + 1 :]])
    return v


@rule("constant_pad_nd", "pad")
def pad(c: Converter, self: Value, pad: Sequence[int], mode: Any = "constant", value: float | None = None) -> Value:
    """The value inside, a constant around it."""
    if isinstance(mode, (int, float)):
        mode, value = "constant", mode
    if mode != "constant":
        c.refuse(f"padding of the kind {mode!r}")
    v = self
    for k in range(len(pad) // 2):
        before, after = pad[2 * k], pad[2 * k + 1]
        if before == after == 0:
            continue
        d = len(v.dims) - 1 - k
        n = v.shape[d]
        new = axis(n + before + after)
        inner = v.substitute(split_at(Index.of(new) + -before, v.dims[d]), [*v.dims[:d], (new,), *v.dims[d + 1 :]])
        at = Position(Index.of(new))
        term = inner.term
        if after > 0:
            term = select(Binary("<", at, Number(before + n)), term, Number(float(value or 0)))
        if before > 0:
            term = select(Binary(">=", at, Number(before)), term, Number(float(value or 0)))
        v = Value(inner.dims, term, v.dtype)
    return v


@rule("diagonal")
def diagonal(c: Converter, self: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    a, b = dim1 % len(self.dims), dim2 % len(self.dims)
    rows, columns = self.shape[a] + min(offset, 0), self.shape[b] - max(offset, 0)
    new = axis(min(rows, columns))
    at = split_at(Index.of(new) + max(-offset, 0), self.dims[a]) | split_at(
        Index.of(new) + max(offset, 0), self.dims[b]
    )
    rest = [d for k, d in enumerate(self.dims) if k not in (a, b)]
    return self.substitute(at, [*rest, (new,)])


def triangle(c: Converter, self: Value, diagonal: int, op: str) -> Value:
    """What is on one side of a diagonal, 0 elsewhere."""
    v = fuse(self) if any(len(d) != 1 for d in self.dims[-2:]) else self
    row, column = (Position(Index.of(d[0])) for d in v.dims[-2:])
    bound = binary("+", row, Number(diagonal))
    if str(v.dtype) == "torch.bool":
        return v.with_term(binary("and", Binary(op, column, bound), v.term))
    return v.with_term(select(Binary(op, column, bound), v.term, Number(0)))


@rule("tril")
def tril(c: Converter, self: Value, diagonal: int = 0) -> Value:
    return triangle(c, self, diagonal, "<=")


@rule("triu")
def triu(c: Converter, self: Value, diagonal: int = 0) -> Value:
    return triangle(c, self, diagonal, ">=")
