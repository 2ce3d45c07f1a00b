"""Normalisations and losses, written out."""

from __future__ import annotations

from typing import Any, Sequence

import torch

from ..convert import Converter, rule
from ..index import Index
from ..terms import Binary, Number, Reduce, Unary, select, substitute
from ..values import Value, again, broadcast
from .elementwise import add, arithmetic, mul
from .indexing import gather
from .reductions import log_softmax, moments, over, reduce, without
from .views import chunk, unsqueeze


def _named(c: Converter, v: Value) -> Value:
    return c.named(v, f"{(c.node.meta.get('einloom_name') if c.node else None) or 'x'}_input")


def _scaled(c: Converter, v: Value, weight: Value | None, bias: Value | None) -> Value:
    v = v if weight is None else mul(c, v, weight)
    return v if bias is None else add(c, v, bias)


@rule("layer_norm")
def layer_norm(
    c: Converter,
    input: Value,
    normalized_shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Value:
    """`(x - mean) / sqrt(var + eps) · weight + bias` over the last dimensions."""
    v = _named(c, input)
    n = len(v.dims)
    dims = list(range(n - len(normalized_shape), n))
    mu, var = moments(c, v, dims)
    term = Binary("/", Binary("-", v.term, mu), Unary("sqrt", Binary("+", var, Number(eps))))
    return _scaled(c, v.with_term(term, c.result_dtype), weight, bias)


@rule("native_layer_norm")
def native_layer_norm(c: Converter, input: Value, shape: Any, weight: Any, bias: Any, eps: float) -> tuple[Value, ...]:
    v = _named(c, input)
    n = len(v.dims)
    dims = list(range(n - len(shape), n))
    mu, var = moments(c, v, dims)
    scale = Binary("/", Number(1), Unary("sqrt", Binary("+", var, Number(eps))))
    kept = without(v, dims, True)
    term = Binary("/", Binary("-", v.term, mu), Unary("sqrt", Binary("+", var, Number(eps))))
    y = _scaled(c, v.with_term(term, c.result_dtype), weight, bias)
    return y, Value(kept, mu, torch.float32), Value(kept, scale, torch.float32)


@rule("rms_norm", "_fused_rms_norm")
def rms_norm(
    c: Converter, input: Value, normalized_shape: Sequence[int], weight: Value | None = None, eps: float | None = None
) -> Any:
    """`x / sqrt(mean(x²) + eps) · weight` over the last dimensions."""
    v = _named(c, input)
    n = len(v.dims)
    dims = list(range(n - len(normalized_shape), n))
    eps = torch.finfo(v.dtype).eps if eps is None else eps
    bound = {a: again(a) for a in over(v, dims)}
    x = substitute(v.term, {a: Index.of(b) for a, b in bound.items()})
    squares = Reduce("mean", tuple(bound.values()), Binary("^", x, Number(2)))
    root = Unary("sqrt", Binary("+", squares, Number(eps)))
    y = _scaled(c, v.with_term(Binary("/", v.term, root), c.result_dtype), weight, None)
    if c.node is not None and isinstance(c.node.meta["val"], (tuple, list)):
        return y, Value(without(v, dims, True), Binary("/", Number(1), root), torch.float32)
    return y


def _averaged(c: Converter, losses: Value, counts: Value | None, reduction: int) -> Value:
    """Reduction 0 none, 1 mean, 2 sum."""
    if reduction == 0:
        return losses
    total = reduce(c, "sum", losses, None, False)
    if reduction == 2:
        return total
    if counts is None:
        return reduce(c, "mean", losses, None, False)
    return total.with_term(Binary("/", total.term, reduce(c, "sum", counts, None, False).term))


@rule("nll_loss", "nll_loss_nd")
def nll_loss(
    c: Converter, self: Value, target: Value, weight: Value | None = None, reduction: int = 1, ignore_index: int = -100
) -> Value:
    """`-log_p[label]`, where the label is not the one to ignore."""
    if len(self.dims) not in (1, 2):
        c.refuse("it has more than one dimension besides the classes: flatten them")
    if weight is not None:
        c.refuse("classes have weights")
    batched = len(self.dims) == 2
    picked = gather(c, self, 1 if batched else 0, unsqueeze(c, target, -1))
    dims, (picked_term, label) = broadcast([Value(picked.dims[:-1], picked.term, picked.dtype), target])
    picked = Value(dims, picked_term, picked.dtype)
    counted = Binary("!=", label, Number(ignore_index))
    losses = picked.with_term(select(counted, Unary("-", picked.term), Number(0)))
    return _averaged(c, losses, picked.with_term(select(counted, Number(1), Number(0))), reduction)


@rule("nll_loss_forward")
def nll_loss_forward(
    c: Converter, self: Value, target: Value, weight: Any, reduction: int, ignore_index: int
) -> tuple[Value, ...]:
    loss = nll_loss(c, self, target, weight, reduction, ignore_index)
    counted = select(Binary("!=", target.term, Number(ignore_index)), Number(1), Number(0))
    return loss, reduce(c, "sum", target.with_term(counted), None, False)


@rule("cross_entropy_loss")
def cross_entropy(
    c: Converter,
    self: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Value:
    """`-log_softmax(x)[label]`."""
    if target.dtype.is_floating_point:
        c.refuse("its target holds probabilities")
    if label_smoothing:
        c.refuse("its labels are smoothed")
    v = c.named(self, "logits")
    return nll_loss(c, log_softmax(c, v, -1), target, weight, reduction, ignore_index)


@rule("mse_loss")
def mse_loss(c: Converter, self: Value, target: Value, reduction: int = 1) -> Value:
    v = arithmetic(c, "^", arithmetic(c, "-", self, target), 2)
    return _averaged(c, v, None, reduction)


@rule("glu")
def glu(c: Converter, self: Value, dim: int = -1) -> Value:
    """`a · sigmoid(b)` of the two halves."""
    a, b = chunk(c, self, 2, dim)
    return mul(c, a, b.with_term(Unary("sigmoid", b.term)))
