"""Operations on single elements, with PyTorch's broadcasting."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..convert import Converter, rule
from ..terms import Binary, Number, Term, Unary, binary, select, unary
from ..values import Dim, Value, as_number, as_truth, broadcast, constant


def lift(x: Any, like: torch.dtype | None = None) -> Value:
    """A value, also from a Python number."""
    if isinstance(x, Value):
        return x
    if isinstance(x, bool):
        return constant(x, torch.bool)
    return constant(x, like or (torch.float32 if isinstance(x, float) else torch.int64))


def numbers(c: Converter, *xs: Any) -> tuple[tuple[Dim, ...], list[Term]]:
    """The operands' dimensions and terms, as numbers."""
    values = [lift(x) for x in xs]
    return broadcast([v.with_term(as_number(v), torch.float32) for v in values])


def arithmetic(c: Converter, op: str, a: Any, b: Any) -> Value:
    """`a op b`."""
    dims, (x, y) = numbers(c, a, b)
    return Value(dims, binary(op, x, y), c.result_dtype)


@rule("add")
def add(c: Converter, self: Any, other: Any, *, alpha: float = 1) -> Value:
    if isinstance(self, Value) and self.dtype == torch.bool and lift(other).dtype == torch.bool:
        return logical(c, "or", self, other)
    return arithmetic(c, "+", self, other if alpha == 1 else arithmetic(c, "*", other, alpha))


@rule("sub")
def sub(c: Converter, self: Any, other: Any, *, alpha: float = 1) -> Value:
    return arithmetic(c, "-", self, other if alpha == 1 else arithmetic(c, "*", other, alpha))


@rule("rsub")
def rsub(c: Converter, self: Any, other: Any, alpha: float = 1) -> Value:
    return sub(c, other, self, alpha=alpha)


@rule("mul")
def mul(c: Converter, self: Any, other: Any) -> Value:
    if lift(self).dtype == lift(other).dtype == torch.bool:
        return logical(c, "and", self, other)
    return arithmetic(c, "*", self, other)


@rule("div", "true_divide")
def div(c: Converter, self: Any, other: Any, *, rounding_mode: str | None = None) -> Value:
    v = arithmetic(c, "/", self, other)
    if rounding_mode is None:
        return v
    return v.with_term(unary("floor", v.term) if rounding_mode == "floor" else truncated(v.term))


@rule("floor_divide")
def floor_divide(c: Converter, self: Any, other: Any) -> Value:
    return div(c, self, other, rounding_mode="floor")


@rule("remainder")
def remainder(c: Converter, self: Any, other: Any) -> Value:
    dims, (x, y) = numbers(c, self, other)
    return Value(dims, binary("-", x, binary("*", y, unary("floor", binary("/", x, y)))), c.result_dtype)


@rule("fmod")
def fmod(c: Converter, self: Any, other: Any) -> Value:
    dims, (x, y) = numbers(c, self, other)
    return Value(dims, binary("-", x, binary("*", y, truncated(binary("/", x, y)))), c.result_dtype)


def truncated(x: Term) -> Term:
    """Towards zero."""
    return select(Binary("<", x, Number(0)), unary("-", unary("floor", unary("-", x))), unary("floor", x))


@rule("pow")
def power(c: Converter, self: Any, exponent: Any) -> Value:
    return arithmetic(c, "^", self, exponent)


@rule("xlogy")
def xlogy(c: Converter, self: Any, other: Any) -> Value:
    """`x log y`, and 0 where x is 0."""
    dims, (x, y) = numbers(c, self, other)
    return Value(dims, select(Binary("==", x, Number(0)), Number(0), binary("*", x, Unary("log", y))), c.result_dtype)


@rule("square")
def square(c: Converter, self: Value) -> Value:
    return arithmetic(c, "^", self, 2)


@rule("maximum")
def maximum(c: Converter, self: Value, other: Value) -> Value:
    return arithmetic(c, "max", self, other)


@rule("minimum")
def minimum(c: Converter, self: Value, other: Value) -> Value:
    return arithmetic(c, "min", self, other)


@rule("clamp", "clip", "hardtanh")
def clamp(c: Converter, self: Value, min: Any = None, max: Any = None) -> Value:
    v = self if min is None else arithmetic(c, "max", self, min)
    return v if max is None else arithmetic(c, "min", v, max)


@rule("clamp_min")
def clamp_min(c: Converter, self: Value, min: Any) -> Value:
    return arithmetic(c, "max", self, min)


@rule("clamp_max")
def clamp_max(c: Converter, self: Value, max: Any) -> Value:
    return arithmetic(c, "min", self, max)


def _function(*names: str, op: str) -> None:
    @rule(*names)
    def function(c: Converter, self: Value) -> Value:
        return self.with_term(unary(op, as_number(self)), c.result_dtype)


for _op in ("exp", "exp2", "log", "log2", "log1p", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "sin", "cos"):
    _function(_op, op=_op)
for _op in ("abs", "floor", "round", "sign", "relu", "silu"):
    _function(_op, op=_op)
_function("sgn", op="sign")
_function("neg", op="-")


@rule("ceil")
def ceil(c: Converter, self: Value) -> Value:
    return self.with_term(unary("-", unary("floor", unary("-", self.term))))


@rule("trunc")
def trunc(c: Converter, self: Value) -> Value:
    return self.with_term(truncated(self.term))


@rule("reciprocal")
def reciprocal(c: Converter, self: Value) -> Value:
    return arithmetic(c, "/", 1.0, self)


@rule("gelu")
def gelu(c: Converter, self: Value, *, approximate: str = "none") -> Value:
    if approximate == "none":
        return self.with_term(unary("gelu", self.term))
    x = c.named(self, "x").term
    inner = binary(
        "*", Number(math.sqrt(2 / math.pi)), Binary("+", x, Binary("*", Number(0.044715), Binary("^", x, Number(3))))
    )
    return self.with_term(Binary("*", Binary("*", Number(0.5), x), Binary("+", Number(1), Unary("tanh", inner))))


@rule("softplus")
def softplus(c: Converter, self: Value, beta: float = 1, threshold: float = 20) -> Value:
    """`log(1 + exp(βx)) / β`, in the form that does not overflow."""
    x = arithmetic(c, "*", c.named(self, "x"), beta).term
    soft = Binary("+", Unary("log1p", Unary("exp", unary("-", Unary("abs", x)))), Unary("relu", x))
    return self.with_term(binary("/", soft, Number(beta)))


@rule("leaky_relu")
def leaky_relu(c: Converter, self: Value, negative_slope: float = 0.01) -> Value:
    x = c.named(self, "x").term
    return self.with_term(select(Binary("<", x, Number(0)), binary("*", Number(negative_slope), x), x))


@rule("log_sigmoid")
def log_sigmoid(c: Converter, self: Value) -> Value:
    """`-softplus(-x)`."""
    v = softplus(c, self.with_term(unary("-", self.term)))
    return v.with_term(unary("-", v.term))


@rule("elu")
def elu(c: Converter, self: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    x = c.named(self, "x").term
    below = binary("*", Number(alpha), Binary("-", Unary("exp", binary("*", Number(input_scale), x)), Number(1)))
    return self.with_term(binary("*", Number(scale), select(Binary(">", x, Number(0)), x, below)))


@rule("hardsigmoid")
def hardsigmoid(c: Converter, self: Value) -> Value:
    return self.with_term(Binary("/", clamp(c, arithmetic(c, "+", self, 3), 0, 6).term, Number(6)))


@rule("hardswish")
def hardswish(c: Converter, self: Value) -> Value:
    x = c.named(self, "x")
    return arithmetic(c, "*", x, hardsigmoid(c, x))


@rule("addcmul")
def addcmul(c: Converter, self: Value, tensor1: Value, tensor2: Value, *, value: float = 1) -> Value:
    return add(c, self, mul(c, tensor1, tensor2), alpha=value)


@rule("addcdiv")
def addcdiv(c: Converter, self: Value, tensor1: Value, tensor2: Value, *, value: float = 1) -> Value:
    return add(c, self, div(c, tensor1, tensor2), alpha=value)


@rule("lerp")
def lerp(c: Converter, self: Value, end: Value, weight: Any) -> Value:
    x = c.named(self, "x")
    return add(c, x, mul(c, weight, sub(c, end, x)))


@rule("isnan")
def isnan(c: Converter, self: Value) -> Value:
    x = c.named(self, "x").term
    return self.with_term(Binary("!=", x, x), torch.bool)


@rule("isinf")
def isinf(c: Converter, self: Value) -> Value:
    return self.with_term(Binary("==", Unary("abs", self.term), Number(math.inf)), torch.bool)


@rule("where")
def where(c: Converter, condition: Value, self: Any = None, other: Any = None) -> Value:
    if self is None:
        c.refuse("the number of its results depends on the data")
    a, b = lift(self), lift(other)
    both = a.dtype == b.dtype == torch.bool
    a, b = (v if both else v.with_term(as_number(v), torch.float32) for v in (a, b))
    dims, (k, x, y) = broadcast([condition.with_term(as_truth(condition), torch.bool), a, b])
    if both:
        term = binary("or", binary("and", k, x), binary("and", unary("not", k), y))
        return Value(dims, term, torch.bool)
    return Value(dims, select(k, x, y), c.result_dtype)


@rule("masked_fill")
def masked_fill(c: Converter, self: Value, mask: Value, value: Any) -> Value:
    return where(c, mask, lift(value, self.dtype), self)


def _comparison(*names: str, op: str) -> None:
    @rule(*names)
    def comparison(c: Converter, self: Any, other: Any) -> Value:
        dims, (x, y) = numbers(c, self, other)
        return Value(dims, binary(op, x, y), torch.bool)


for _names, _op in ((("eq",), "=="), (("ne", "not_equal"), "!="), (("lt", "less"), "<"), (("le", "less_equal"), "<=")):
    _comparison(*_names, op=_op)
for _names, _op in ((("gt", "greater"), ">"), (("ge", "greater_equal"), ">=")):
    _comparison(*_names, op=_op)


def logical(c: Converter, op: str, self: Any, other: Any) -> Value:
    """`and` or `or` of truth values."""
    values = [lift(x) for x in (self, other)]
    dims, (x, y) = broadcast([v.with_term(as_truth(v), torch.bool) for v in values])
    return Value(dims, binary(op, x, y), torch.bool)


def _logical(*names: str, op: str, bits: bool) -> None:
    @rule(*names)
    def both(c: Converter, self: Any, other: Any) -> Value:
        if bits and any(lift(x).dtype != torch.bool for x in (self, other)):
            c.refuse("the language has no operations on bits of integers")
        if op != "xor":
            return logical(c, op, self, other)
        x, y = (logical(c, "and", v, True) for v in (self, other))
        return logical(c, "or", logical(c, "and", x, negated(y)), logical(c, "and", negated(x), y))


def negated(v: Value) -> Value:
    """`not v`."""
    return v.with_term(unary("not", as_truth(v)), torch.bool)


for _op in ("and", "or", "xor"):
    _logical(f"logical_{_op}", op=_op, bits=False)
    _logical(f"bitwise_{_op}", f"__{_op}__", op=_op, bits=True)


@rule("logical_not")
def logical_not(c: Converter, self: Value) -> Value:
    return negated(self)


@rule("bitwise_not")
def bitwise_not(c: Converter, self: Value) -> Value:
    if self.dtype != torch.bool:
        c.refuse("the language has no operations on bits of integers")
    return negated(self)


@rule("to", "_to_copy", "type_as", "type", "float", "half", "bfloat16")
def convert(c: Converter, self: Value, *args: Any, **kwargs: Any) -> Value:
    """Another number type. Between floating-point types intermediates keep f32; towards integers it truncates."""
    target = c.result_dtype
    if target == self.dtype:
        return self
    if target == torch.bool:
        return self.with_term(as_truth(self), target)
    term = as_number(self)
    if not target.is_floating_point and self.dtype.is_floating_point:
        term = truncated(c.named(self, "x").term)
    if target == torch.float64:
        return c.define(self.with_term(term, target), "wide")
    return self.with_term(term, target)


@rule(
    "clone",
    "contiguous",
    "detach",
    "alias",
    "lift_fresh_copy",
    "lift_fresh",
    "lift",
    "positive",
    "_conj",
    "resolve_conj",
    "resolve_neg",
)
def same(c: Converter, self: Value, *args: Any, **kwargs: Any) -> Value:
    return self


@rule("dropout", "native_dropout", "feature_dropout", "alpha_dropout")
def dropout(c: Converter, input: Value, p: float, train: bool) -> Value:
    if train and p > 0:
        c.refuse("it draws random numbers")
    return input


@rule("isneginf")
def isneginf(c: Converter, self: Value) -> Value:
    return self.with_term(binary("==", self.term, Number(-math.inf)), torch.bool)
