"""A cascade in PyTorch's own operations: the reference path, which PyTorch can differentiate.

Tensors carry the names of the indices that they move with. Nothing is fused: every reduction of a product is one
`torch.einsum`, everything else is elementwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Mapping, Sequence

import torch
from torch import Tensor

from ..errors import GradientError
from .convert import NUMBER_TYPES
from .language import Apply, Definition, Element, Expr, Fold, Literal, Name, Program
from .recurrence import Recurrence, circles

TYPES: dict[str, torch.dtype] = {v: k for k, v in reversed(NUMBER_TYPES.items())} | {"i32": torch.int32}

_FUNCTIONS = {
    "abs": torch.abs, "exp": torch.exp, "exp2": torch.exp2, "log": torch.log, "log2": torch.log2,
    "log1p": torch.log1p, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "erf": torch.erf, "sin": torch.sin, "cos": torch.cos, "floor": torch.floor, "round": torch.round,
    "sign": torch.sign, "relu": torch.relu, "silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu,
    "not": torch.logical_not, "and": torch.logical_and, "or": torch.logical_or,
    "+": torch.add, "-": torch.sub, "*": torch.mul, "/": torch.true_divide, "^": torch.pow,
    "==": torch.eq, "!=": torch.ne, "<": torch.lt, "<=": torch.le, ">": torch.gt, ">=": torch.ge,
    "max": torch.maximum, "min": torch.minimum, "where": torch.where,
}  # fmt: skip


@dataclass(frozen=True)
class Named:
    """A tensor with one index per dimension."""

    data: Tensor
    names: tuple[str, ...]

    def over(self, names: Sequence[str]) -> Tensor:
        """With dimensions in this order, of size 1 where it does not move."""
        present = [n for n in names if n in self.names]
        data = self.data.permute([self.names.index(n) for n in present])
        for place, name in enumerate(names):
            if name not in self.names:
                data = data.unsqueeze(place)
        return data


def _union(values: Sequence[Named]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(n for v in values for n in v.names))


def sizes_of(program: Program, shapes: Mapping[str, Sequence[Any]], given: Mapping[str, int]) -> dict[str, Any]:
    """The size of every rank, from shapes, what is given, and declared sizes."""
    sizes: dict[str, Any] = dict(given)
    for declared in program.inputs:
        for index, n in zip(declared.indices, shapes[declared.name], strict=True):
            sizes.setdefault(program.rank(index), n)
    for _ in program.sizes:
        for rank, expr in program.sizes.items():
            value = None if rank in sizes else _size(expr, sizes)
            if value is not None:
                sizes[rank] = value
    return sizes


def _size(e: Expr, sizes: Mapping[str, Any]) -> Any:
    if isinstance(e, Literal):
        return int(e.value)
    if isinstance(e, Name):
        return sizes.get(e.text)
    if not isinstance(e, Apply):
        return None
    args = [_size(a, sizes) for a in e.args]
    if any(a is None for a in args):
        return None
    if len(args) == 1:
        return -args[0]
    a, b = args
    return a + b if e.op == "+" else a - b if e.op == "-" else a * b if e.op == "*" else a // b


def _widened(tensor: Tensor) -> Tensor:
    """What is narrower than 32 bits, in a type in which it is computed: PyTorch's own arithmetic would wrap, or round."""
    if tensor.dtype == torch.bool or tensor.dtype.itemsize >= 4:
        return tensor
    return tensor.float() if tensor.dtype.is_floating_point else tensor.to(torch.int32)


class Evaluation:
    """One run of the reference path."""

    def __init__(self, program: Program, sizes: Mapping[str, Any], params: Mapping[str, float]) -> None:
        self.program = program
        self.sizes = sizes
        self.params = {**program.params, **params}
        self.tensors: dict[str, Tensor] = {}
        self.device = torch.device("cpu")
        self.fixed: dict[str, int] = {}
        self.types: dict[str, torch.dtype] = {}
        self.running: list[Recurrence] = []

    def run(self, inputs: Sequence[Tensor], output_types: Sequence[torch.dtype]) -> tuple[Tensor, ...]:
        """The outputs, in order. Floating-point types narrower than f32 are computed in f32, as everywhere, and integers where none wraps."""
        for declared, tensor in zip(self.program.inputs, inputs, strict=True):
            self.device = tensor.device
            self.tensors[declared.name] = _widened(tensor)
        self.types = {o.name: t for o, t in zip(self.program.outputs, output_types, strict=True)}
        groups = circles(self.program)
        for statement in self.program.statements:
            members = next((c for c in groups if statement.name in c), None)
            if statement.name in self.tensors:
                continue
            if members is None:
                self._define(statement)
                continue
            recurrence = Recurrence(self, members)
            self.running.append(recurrence)
            made = recurrence.run()
            self.running.pop()
            self.tensors.update(made)
        return tuple(self.tensors[o.name].to(self.types[o.name]) for o in self.program.outputs)

    def _define(self, statement: Definition) -> None:
        names = [i.text for i in statement.at if isinstance(i, Name)]
        value = self.value(statement.value)
        data = value.over(names).expand([self.sizes[self.program.rank(n)] for n in names])
        self.tensors[statement.name] = self.rounded(statement, data)

    def rounded(self, statement: Definition, data: Tensor) -> Tensor:
        """In the number type that a statement says, and what holds it afterwards."""
        kind = self.types.get(statement.name) or (TYPES.get(statement.dtype) if statement.dtype else None)
        if kind is not None and data.dtype != kind:
            if not kind.is_floating_point and kind != torch.bool:  # integers saturate
                data = data.clamp(torch.iinfo(kind).min, torch.iinfo(kind).max)
            data = data.to(kind)
        return _widened(data)

    def value(self, e: Expr) -> Named:
        """An expression's value at all positions of the indices it mentions."""
        if isinstance(e, Literal):
            return self._scalar(e.value)
        if isinstance(e, Name):
            return self._name(e.text)
        if isinstance(e, Element):
            return self._element(e)
        if isinstance(e, Fold):
            return self._fold(e)
        if e.op == "-" and len(e.args) == 1:
            inner = self.value(e.args[0])
            return Named(-inner.data, inner.names)
        return self._apply(e.op, [self.value(a) for a in e.args])

    def _apply(self, op: str, args: list[Named]) -> Named:
        if op in ("max", "min") and len(args) > 2:
            return self._apply(op, [self._apply(op, args[:2]), *args[2:]])
        names = _union(args)
        data = [a.over(names) for a in args]
        if op in ("max", "min", "where"):
            kind = torch.promote_types(data[-2].dtype, data[-1].dtype)
            data = [*data[:-2], data[-2].to(kind), data[-1].to(kind)]
        return Named(_FUNCTIONS[op](*data), names)

    def _scalar(self, value: float) -> Named:
        whole = math.isfinite(value) and value == int(value) and abs(value) < 2**31
        return Named(torch.tensor(int(value) if whole else value, device=self.device), ())

    def _name(self, name: str) -> Named:
        if name in self.tensors:
            return Named(self.tensors[name], ())
        if name in ("inf", "pi"):
            return self._scalar(math.inf if name == "inf" else math.pi)
        if name in self.params:
            return self._scalar(self.params[name])
        if name[0].isupper():
            return self._scalar(self.sizes[name])
        if name in self.fixed:
            return self._scalar(self.fixed[name])
        return Named(torch.arange(self.sizes[self.program.rank(name)], device=self.device), (name,))

    def _element(self, e: Element) -> Named:
        for recurrence in self.running:
            if e.tensor in recurrence.places:
                return recurrence.element(e)
        return self.element_of(self.tensors[e.tensor], e.at)

    def element_of(self, data: Tensor, at: Sequence[Expr]) -> Named:
        """Elements of a tensor at all positions of the indices that are mentioned."""
        plain = [i.text for i in at if isinstance(i, Name) and i.text not in self.fixed]
        known = len(plain) == len(at) == len(set(plain)) and all(p[0].islower() for p in plain)
        if known and [self.sizes[self.program.rank(p)] for p in plain] == list(data.shape):
            return Named(data, tuple(plain))
        where = [self.position(i) for i in at]
        names = _union(where)
        # A read under a condition may stand outside; what it reads there is not used.
        chosen = [a.over(names).clamp(0, n - 1) for a, n in zip(where, data.shape)]
        return Named(data[tuple(torch.broadcast_tensors(*chosen))], names)

    def position(self, e: Expr) -> Named:
        """An index expression's value: `/` rounds down."""
        if isinstance(e, Apply) and len(e.args) == 2:
            a, b = (self.position(x) for x in e.args)
            names = _union([a, b])
            x, y = a.over(names), b.over(names)
            if e.op == "/":
                return Named(torch.div(x, y, rounding_mode="floor"), names)
            return Named(_FUNCTIONS[e.op](x, y), names)
        v = self.value(e)
        return Named(v.data.long(), v.names)

    def _fold(self, e: Fold) -> Named:
        if e.op in self.program.monoids:
            raise GradientError(f"{e.op}: a monoid of the program's own has no gradient")
        condition = self.value(e.filter) if e.filter is not None else None
        if e.op == "sum":
            return self._sum(e, condition)
        body = self.value(e.body)
        empty = {"prod": 1.0, "max": -math.inf, "argmax": -math.inf}.get(e.op, math.inf)
        if condition is not None:
            body = self._apply("where", [condition, body, self._scalar(empty)])
        body = self._spread(body, e.over)
        rest = tuple(n for n in body.names if n not in e.over)
        data = body.over([*rest, *e.over]).flatten(len(rest)) if len(e.over) > 1 else body.over([*rest, *e.over])
        if e.op in ("argmax", "argmin"):
            return Named(getattr(data, e.op)(-1), rest)
        reduced = {"prod": lambda x: x.prod(-1), "max": lambda x: x.amax(-1), "min": lambda x: x.amin(-1)}[e.op](data)
        return Named(reduced, rest)

    def _spread(self, v: Named, over: Sequence[str]) -> Named:
        """Moves with all of `over`, also where it is the same at all positions."""
        missing = [n for n in over if n not in v.names]
        names = (*v.names, *missing)
        shape = [*v.data.shape, *(self.sizes[self.program.rank(n)] for n in missing)]
        return Named(v.over(names).expand(shape), names)

    def _sum(self, e: Fold, condition: Named | None) -> Named:
        """A sum of a product is one Einsum; what does not move with the summed indices is a factor of the result."""
        factors = [self.value(f) for f in _factors(e.body)]
        if condition is not None:
            # The mask goes to a factor that moves with all it moves with, so that none grows.
            fits = [k for k, f in enumerate(factors) if set(condition.names) <= set(f.names)]
            chosen = fits[0] if fits else 0
            factors[chosen] = self._apply("where", [condition, factors[chosen], self._scalar(0)])
        inner = [f for f in factors if set(f.names) & set(e.over)]
        outer = [f for f in factors if not set(f.names) & set(e.over)]
        if not inner:
            inner, outer = outer, []
        kind = inner[0].data.dtype
        for f in inner[1:]:
            kind = torch.promote_types(kind, f.data.dtype)
        missing = [n for n in e.over if not any(n in f.names for f in inner)]
        inner[0] = self._spread(inner[0], missing)
        rest = tuple(n for n in _union(inner) if n not in e.over)
        letters = {n: chr(97 + k) if k < 26 else chr(65 + k - 26) for k, n in enumerate(_union(inner))}
        left = ",".join("".join(letters[n] for n in f.names) for f in inner)
        equation = f"{left}->{''.join(letters[n] for n in rest)}"
        # Sums of integers are exact in f64 as far as the language's 32 bits go.
        wide = kind if kind.is_floating_point else torch.float64
        summed = torch.einsum(equation, *(f.data.to(wide) for f in inner))
        total = Named(summed if wide == kind else summed.to(torch.int64), rest)
        for factor in outer:
            total = self._apply("*", [total, factor])
        if outer and condition is not None:  # a sum over nothing is 0, whatever its factors are
            spread = self._spread(condition, [n for n in e.over if n in condition.names])
            kept = tuple(n for n in spread.names if n not in e.over)
            some = spread.over([*kept, *e.over]).flatten(len(kept)).any(-1)
            total = self._apply("where", [Named(some, kept), total, self._scalar(0)])
        return total


def _factors(e: Expr) -> list[Expr]:
    if isinstance(e, Apply) and len(e.args) == 2 and e.op in ("*", "/"):
        right = _factors(e.args[1]) if e.op == "*" else [Apply("/", (Literal(1.0), e.args[1]))]
        return _factors(e.args[0]) + right
    return [e]
