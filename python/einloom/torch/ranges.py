"""How large integers get. PyTorch's have 64 bits, the language's 32, where they stop at the largest: a program may be given
as large integers as no sum or product of it leaves 32 bits with."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Iterable, Optional, Sequence

from .index import Axis, Floor, Index
from .terms import COMPARISONS, Binary, Number, Position, Read, Reduce, Select, Statement, Tensor, Term, Unary

Range = tuple[int, int]

RANGES: dict[str, Range] = {
    "i32": (-(2**31), 2**31 - 1),
    "i16": (-(2**15), 2**15 - 1),
    "i8": (-(2**7), 2**7 - 1),
    "u8": (0, 2**8 - 1),
    "b1": (0, 1),
}
LEAST = 2**8
"""A program that takes no integer of this size is refused: it computes more than indices."""


class TooLarge(Exception):
    """An integer may leave its number type."""


def limit(inputs: Iterable[Tensor], statements: Sequence[Statement]) -> Optional[int]:
    """The largest magnitude that 32-bit and 64-bit inputs may have; `None` if they may have any of 32 bits.

    Raises `TooLarge` if there is no such limit, or hardly one.
    """
    tensors = list(inputs)
    bound: Optional[int] = None
    while True:
        try:
            known = {t: _given(t, bound) for t in tensors}
            for statement in statements:
                known[statement.tensor] = Ranges(known).of_statement(statement)
            return bound
        except TooLarge:
            bound = 2**30 if bound is None else bound // 2
            if bound < LEAST:
                raise


def _given(tensor: Tensor, bound: Optional[int]) -> Optional[Range]:
    if tensor.dtype == "i32" and bound is not None:
        return -bound, bound
    return RANGES.get(tensor.dtype or "")


@dataclass
class Ranges:
    """The ranges of tensors so far; `None` for floating-point numbers."""

    known: dict[Tensor, Optional[Range]] = field(default_factory=dict)

    def of_statement(self, statement: Statement) -> Optional[Range]:
        """The range of what a statement defines."""
        wanted = RANGES.get(statement.tensor.dtype or "")
        found = self.of(statement.term)
        if wanted is None or found is None:
            return wanted
        if found[0] < wanted[0] or found[1] > wanted[1]:
            raise TooLarge
        return found

    def of(self, term: Term) -> Optional[Range]:
        """The range of an integer term."""
        if isinstance(term, Number):
            return (int(term.value), int(term.value)) if float(term.value).is_integer() else None
        if isinstance(term, Position):
            return _in_32_bits(self.index(term.index))
        if isinstance(term, Read):
            for i in term.at:
                self.index(i)
            return self.known.get(term.tensor)
        if isinstance(term, Unary):
            return self._unary(term.op, self.of(term.x))
        if isinstance(term, Binary):
            return self._binary(term.op, self.of(term.a), self.of(term.b))
        if isinstance(term, Select):
            self.of(term.condition)
            return _union(self.of(term.then), self.of(term.otherwise))
        return self._reduce(term)

    def index(self, index: Index) -> Range:
        """The range of a position, which may be the element of a tensor. Indices are computed in 64 bits."""
        low = high = index.offset
        for atom, c in index.terms:
            if isinstance(atom, Axis):
                reach: Range = (0, max(atom.size - 1, 0))
            elif isinstance(atom, Floor):
                inner = self.index(atom.numerator)
                reach = (inner[0] // atom.denominator, inner[1] // atom.denominator)
            else:
                for i in atom.at:
                    self.index(i)
                reach = self.known.get(atom.tensor) or RANGES["i32"]
            ends = sorted((c * reach[0], c * reach[1]))
            low, high = low + ends[0], high + ends[1]
        return low, high

    def _unary(self, op: str, x: Optional[Range]) -> Optional[Range]:
        if op == "not":
            return 0, 1
        if x is not None and op == "-":
            return _in_32_bits((-x[1], -x[0]))
        if x is not None and op == "abs":
            low = 0 if x[0] <= 0 <= x[1] else min(abs(x[0]), abs(x[1]))
            return _in_32_bits((low, max(abs(x[0]), abs(x[1]))))
        return None

    def _binary(self, op: str, a: Optional[Range], b: Optional[Range]) -> Optional[Range]:
        if op in COMPARISONS or op in ("and", "or"):
            return 0, 1
        if a is None or b is None:
            return None
        if op == "+":
            return _in_32_bits((a[0] + b[0], a[1] + b[1]))
        if op == "-":
            return _in_32_bits((a[0] - b[1], a[1] - b[0]))
        if op == "*":
            ends = [x * y for x in a for y in b]
            return _in_32_bits((min(ends), max(ends)))
        if op in ("min", "max"):
            f = min if op == "min" else max
            return f(a[0], b[0]), f(a[1], b[1])
        return None

    def _reduce(self, term: Reduce) -> Optional[Range]:
        body = self.of(term.body)
        if term.filter is not None:
            self.of(term.filter)
        if body is None:
            return None
        if term.name == "sum":
            count = prod(a.size for a in term.over)
            return _in_32_bits((min(0, count * body[0]), max(0, count * body[1])))
        return body if term.name in ("max", "min") else None


def _union(a: Optional[Range], b: Optional[Range]) -> Optional[Range]:
    return None if a is None or b is None else (min(a[0], b[0]), max(a[1], b[1]))


def _in_32_bits(found: Range) -> Range:
    low, high = RANGES["i32"]
    if found[0] < low or found[1] > high:
        raise TooLarge
    return found
