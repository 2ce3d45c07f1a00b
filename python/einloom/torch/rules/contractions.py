"""Products that are summed: Einsums, and everything that is one."""

from __future__ import annotations

import math
from typing import Any, Sequence

import torch

from ..convert import Converter, rule
from ..index import Axis, Index
from ..terms import TRUE, Number, Reduce, Term, binary, substitute
from ..values import Dim, Value, as_number, axis, refresh, resolve, split_at, unify
from .elementwise import add, arithmetic, logical, where
from .reductions import softmax
from .views import pad, repeat_interleave, transpose, tril, unflatten, unsqueeze


def contract(c: Converter, operands: Sequence[Value], letters: Sequence[str], out: str) -> Value:
    """The Einsum with one letter per dimension of every operand, and the letters of the result.

    A dimension of size 1 under a letter whose size is larger is broadcast, as `torch.einsum` does.
    """
    values = [v if k == 0 else refresh(v) for k, v in enumerate(c.body(v) for v in operands)]
    terms: list[Term] = [as_number(v) for v in values]
    sizes: dict[str, int] = {}
    for v, word in zip(values, letters):
        for n, letter in zip(v.shape, word):
            sizes[letter] = max(sizes.get(letter, 1), n)
    dims: dict[str, Dim] = {}
    for k, (v, word) in enumerate(zip(values, letters)):
        own = list(v.dims)
        for place, letter in enumerate(word):
            dim = own[place]
            if math.prod(a.size for a in dim) != sizes[letter] or not dim:
                terms[k] = substitute(terms[k], {a: Index() for a in dim})
                continue
            if letter not in dims:
                dims[letter] = dim
                continue
            here: dict[Axis, Index] = {}
            there: dict[Axis, Index] = {}
            dims[letter] = unify(dims[letter], dim, here, there)
            here, there = resolve(here), resolve(there)
            # A letter may stand twice in one operand: its own axes are among those that change, too.
            terms = [substitute(substitute(t, here), there if j == k else {}) for j, t in enumerate(terms)]
    for letter, dim in dims.items():
        for a in dim:
            if len(dim) == 1 and letter.islower() and letter.isascii() and a.hint is None:
                a.hint = letter
                a.rank.hints += [letter] if letter not in a.rank.hints else []
    body = terms[0]
    for t in terms[1:]:
        body = binary("*", body, t)
    summed = tuple(a for letter, dim in dims.items() if letter not in out for a in dim)
    term: Term = Reduce("sum", summed, body) if summed else body
    return Value(tuple(dims.get(letter, ()) for letter in out), term, c.result_dtype)


@rule("einsum")
def einsum(c: Converter, equation: str, tensors: Sequence[Value], *, path: Any = None) -> Value:
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    words = left.split(",")
    most = 0
    for word, v in zip(words, tensors):
        if "..." in word:
            most = max(most, len(v.dims) - len(word) + 3)
    # Letters of no alphabet stand for the dimensions of an ellipsis.
    dots = [chr(0x100 + k) for k in range(most)]
    full = []
    for word, v in zip(words, tensors):
        count = len(v.dims) - len(word) + 3
        full.append(word.replace("...", "".join(dots[most - count :])) if "..." in word else word)
    if arrow:
        out = right.replace("...", "".join(dots))
    else:
        every = [x for x in "".join(full) if x not in dots]
        out = "".join(dots) + "".join(sorted(x for x in set(every) if every.count(x) == 1))
    return contract(c, tensors, full, out)


def product(c: Converter, a: Value, b: Value) -> Value:
    """`torch.matmul`."""
    n, m = len(a.dims), len(b.dims)
    batch = [chr(0x100 + k) for k in range(max(n - 2, m - 2, 0))]
    rows, columns = ("I" if n > 1 else ""), ("J" if m > 1 else "")
    left = "".join(batch[len(batch) - max(n - 2, 0) :]) + rows + "K"
    right = "".join(batch[len(batch) - max(m - 2, 0) :]) + "K" + columns
    return contract(c, [a, b], [left, right], "".join(batch) + rows + columns)


@rule("matmul", "mm", "bmm", "mv", "dot", "vdot", "inner", "__matmul__")
def matmul(c: Converter, self: Value, other: Value) -> Value:
    return product(c, self, other)


@rule("outer")
def outer(c: Converter, self: Value, vec2: Value) -> Value:
    return arithmetic(c, "*", unsqueeze(c, self, 1), vec2)


@rule("linear")
def linear(c: Converter, input: Value, weight: Value, bias: Value | None = None) -> Value:
    v = product(c, input, transpose(c, weight, -1, -2) if len(weight.dims) > 1 else weight)
    return v if bias is None else add(c, v, bias)


@rule("addmm", "baddbmm", "addmv", "addbmm")
def addmm(c: Converter, self: Value, mat1: Value, mat2: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    v = product(c, mat1, mat2)
    v = v if alpha == 1 else v.with_term(binary("*", v.term, Number(alpha)))
    return v if beta == 0 else add(c, v, self, alpha=beta)


@rule("scaled_dot_product_attention")
def attention(
    c: Converter,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """As its documentation defines it: `softmax(Q·Kᵀ·scale + mask)·V`."""
    if dropout_p > 0:
        c.refuse("it draws random numbers")
    if enable_gqa:
        key, value = (repeat_interleave(c, x, query.shape[-3] // x.shape[-3], -3) for x in (key, value))
    scores = product(c, query, transpose(c, key, -1, -2))
    scores = arithmetic(c, "*", scores, 1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        ones = Value(((axis(scores.shape[-2]),), (axis(scores.shape[-1]),)), TRUE, torch.bool)
        mask = tril(c, ones)
        attn_mask = mask if attn_mask is None else logical(c, "and", attn_mask, mask)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = where(c, attn_mask, scores, -math.inf)
    elif attn_mask is not None:
        scores = add(c, scores, attn_mask)
    return product(c, softmax(c, c.named(scores, "scores"), -1), value)


@rule("conv1d")
def conv1d(
    c: Converter,
    input: Value,
    weight: Value,
    bias: Value | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Value:
    """`Σ x[b, c, stride·i + dilation·r] · w[o, c, r]`, in groups of channels."""

    def one(x: Any) -> int:
        return int(x[0] if isinstance(x, (list, tuple)) else x)

    if isinstance(padding, str):
        c.refuse("padding by name: give a number")
    step, hole, edge = one(stride), one(dilation), one(padding)
    x = pad(c, input, [edge, edge]) if edge else input
    x = unflatten(c, x, 1, [groups, x.shape[1] // groups])
    w = refresh(unflatten(c, weight, 0, [groups, weight.shape[0] // groups]))
    where_, tap = axis((x.shape[3] - hole * (w.shape[3] - 1) - 1) // step + 1), axis(w.shape[3])
    x = x.substitute(
        split_at(Index.of(where_) * step + Index.of(tap) * hole, x.dims[3]), [*x.dims[:3], (where_,), (tap,)]
    )
    v = contract(c, [x, w], ["bgcit", "gnct"], "bgni")
    v = Value((v.dims[0], (*v.dims[1], *v.dims[2]), v.dims[3]), v.term, v.dtype)
    return v if bias is None else add(c, v, unsqueeze(c, bias, 1))
