"""Scalar terms: the value of one element of a tensor, as a function of axes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Callable, Iterator, Mapping, Union

from .index import Axis, Index


@dataclass(eq=False)
class Tensor:
    """A named tensor of the cascade: an input, or what a statement defines."""

    name: str
    axes: tuple[Axis, ...]
    dtype: str | None
    """The language's number type; `None` where the language's default, f32, is meant."""

    def read_text(self, at: tuple[Index, ...], name: Callable[[Axis], str]) -> str:
        """`X[m,n]`, or the bare name of a scalar."""
        return f"{self.name}[{','.join(i.text(name) for i in at)}]" if at else self.name


class NotANumber(ValueError):
    """NaN as a constant."""


@dataclass(frozen=True)
class Number:
    """A constant. The language has none that is not a number."""

    value: float

    def __post_init__(self) -> None:
        if self.value != self.value:
            raise NotANumber("it writes NaN, for which the language has no word")


@dataclass(frozen=True)
class Position:
    """A position as a number."""

    index: Index


@dataclass(frozen=True)
class Read:
    """An element of a tensor."""

    tensor: Tensor
    at: tuple[Index, ...]


@dataclass(frozen=True)
class Unary:
    """`-`, `not`, or a function of one value."""

    op: str
    x: Term


@dataclass(frozen=True)
class Binary:
    """An operator of the language, or `min` and `max` of two values."""

    op: str
    a: Term
    b: Term


@dataclass(frozen=True)
class Select:
    """`where(condition, then, otherwise)`."""

    condition: Term
    then: Term
    otherwise: Term


@dataclass(frozen=True)
class Reduce:
    """`name(over: filter) body`, with the language's sugar (`softmax`, `logsumexp`, `mean`)."""

    name: str
    over: tuple[Axis, ...]
    body: Term
    filter: Term | None = None


Term = Union[Number, Position, Read, Unary, Binary, Select, Reduce]

TRUE, FALSE = Binary("==", Number(0), Number(0)), Binary("!=", Number(0), Number(0))
COMPARISONS = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


def children(term: Term) -> tuple[Term, ...]:
    """The terms directly inside one."""
    if isinstance(term, Unary):
        return (term.x,)
    if isinstance(term, Binary):
        return (term.a, term.b)
    if isinstance(term, Select):
        return (term.condition, term.then, term.otherwise)
    if isinstance(term, Reduce):
        return (term.body,) if term.filter is None else (term.filter, term.body)
    return ()


def walk(term: Term) -> Iterator[Term]:
    """The term and everything inside it."""
    yield term
    for child in children(term):
        yield from walk(child)


def rebuild(term: Term, f: Callable[[Term], Term], index: Callable[[Index], Index]) -> Term:
    """The same term with other parts."""
    if isinstance(term, Position):
        return Position(index(term.index))
    if isinstance(term, Read):
        return Read(term.tensor, tuple(index(i) for i in term.at))
    if isinstance(term, Unary):
        return unary(term.op, f(term.x))
    if isinstance(term, Binary):
        return binary(term.op, f(term.a), f(term.b))
    if isinstance(term, Select):
        return select(f(term.condition), f(term.then), f(term.otherwise))
    if isinstance(term, Reduce):
        return Reduce(term.name, term.over, f(term.body), term.filter and f(term.filter))
    return term


def substitute(term: Term, by: Mapping[Axis, Index]) -> Term:
    """With other positions in place of axes, where they are free. An axis that a reduction binds is its own, also where the
    same axis is free outside of it; it gives way to another where it would capture one."""
    if not by:
        return term
    if isinstance(term, Reduce) and term.name != "softmax":
        by = {a: i for a, i in by.items() if a not in term.over}
        taken = {a for i in by.values() for a in i.axes()}
        new = {a: Axis(a.rank, a.hint) for a in term.over if a in taken}
        by |= {a: Index.of(b) for a, b in new.items()}
        over = tuple(new.get(a, a) for a in term.over)
        return Reduce(term.name, over, substitute(term.body, by), term.filter and substitute(term.filter, by))
    return rebuild(term, lambda t: substitute(t, by), lambda i: i.substitute(by))


def reads(term: Term) -> Iterator[Tensor]:
    """Every tensor that is read, also by gathers."""
    for t in walk(term):
        at: tuple[Index, ...] = ()
        if isinstance(t, Read):
            yield t.tensor
            at = t.at
        elif isinstance(t, Position):
            at = (t.index,)
        for i in at:
            yield from (g.tensor for g in i.gathers())


def free_axes(term: Term) -> set[Axis]:
    """The axes that something around the term must bind."""
    if isinstance(term, Position):
        return set(term.index.axes())
    if isinstance(term, Read):
        return {a for i in term.at for a in i.axes()}
    out = set().union(*(free_axes(c) for c in children(term)))
    if isinstance(term, Reduce) and term.name != "softmax":
        out -= set(term.over)
    return out


def positions_only(term: Term) -> bool:
    """Whether it depends on positions and constants alone, as masks do."""
    return not any(isinstance(t, (Read, Reduce)) for t in walk(term)) and not any(True for _ in reads(term))


def reduces(term: Term) -> bool:
    """Whether there is a reduction inside."""
    return any(isinstance(t, Reduce) for t in walk(term))


def unary(op: str, x: Term) -> Term:
    """Folds constants, double negations, and negated comparisons (of integers and positions: a NaN has no
    complement)."""
    if op == "not":
        if x == TRUE or x == FALSE:
            return FALSE if x == TRUE else TRUE
        if isinstance(x, Unary) and x.op == "not":
            return x.x
        if isinstance(x, Binary) and x.op in COMPARISONS and positions_only(x):
            return Binary(COMPARISONS[x.op], x.a, x.b)
    if op == "-":
        if isinstance(x, Number):
            return Number(-x.value)
        if isinstance(x, Position):
            return Position(x.index * -1)
        if isinstance(x, Unary) and x.op == "-":
            return x.x
    return Unary(op, x)


def _integer(x: Term) -> int | None:
    if isinstance(x, Number) and math.isfinite(x.value) and x.value == int(x.value) and abs(x.value) < 2**53:
        return int(x.value)
    return None


def _fold(op: str, a: float, b: float) -> Term | None:
    if op in ("+", "-", "*"):
        return Number(a + b if op == "+" else a - b if op == "-" else a * b)
    if op in ("min", "max"):
        return Number(min(a, b) if op == "min" else max(a, b))
    compare = {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}.get(op)
    return None if compare is None else TRUE if compare else FALSE


def binary(op: str, a: Term, b: Term) -> Term:
    """Folds constants, neutral elements, arithmetic of positions, and truth values that were numbers meanwhile."""
    if isinstance(a, Number) and isinstance(b, Number) and not math.isnan(a.value + b.value):
        folded = _fold(op, a.value, b.value)
        if folded is not None and not (isinstance(folded, Number) and math.isnan(folded.value)):
            return folded
    ia, ib = _integer(a), _integer(b)
    if isinstance(a, Position) and isinstance(b, Position) and op in "+-":
        return _position(a.index + b.index if op == "+" else a.index - b.index)
    if isinstance(a, Position) and ib is not None and op in ("+", "-", "*"):
        return _position(a.index * ib if op == "*" else a.index + (ib if op == "+" else -ib))
    if isinstance(b, Position) and ia is not None and op in ("+", "-", "*"):
        return _position(b.index * ia if op == "*" else (b.index if op == "+" else b.index * -1) + ia)
    if op in ("+", "-") and ib == 0 or op in ("*", "/", "^") and ib == 1:
        return a
    if op == "+" and ia == 0 or op == "*" and ia == 1:
        return b
    if op in ("and", "or"):
        for x, y in ((a, b), (b, a)):
            if x in (TRUE, FALSE):
                return y if (x == TRUE) == (op == "and") else x
    if (
        op in ("<", "<=", ">", ">=")
        and isinstance(a, Unary)
        and a.op == "abs"
        and positions_only(a)
        and positions_only(b)
    ):
        # Both bounds apart are affine in the positions, which makes loop bounds of them.
        low = unary("-", a.x)
        return binary("and" if op[0] == "<" else "or", binary(op, a.x, b), binary(op, low, b))
    if op in COMPARISONS and isinstance(a, Select) and isinstance(b, Number):
        # `where(c, 1, 0) == 0` is `not c`: what a truth value was made into is undone.
        then, other = (_fold(op, x.value, b.value) if isinstance(x, Number) else None for x in (a.then, a.otherwise))
        if then in (TRUE, FALSE) and other in (TRUE, FALSE):
            if then == other:
                return then
            return a.condition if then == TRUE else unary("not", a.condition)
    return Binary(op, a, b)


def _position(index: Index) -> Term:
    return Position(index) if index.terms else Number(index.offset)


def select(condition: Term, then: Term, otherwise: Term) -> Term:
    """Decides constant conditions and takes a negation out by exchanging the branches."""
    if condition == TRUE or then == otherwise:
        return then
    if condition == FALSE:
        return otherwise
    if isinstance(condition, Unary) and condition.op == "not":
        return Select(condition.x, otherwise, then)
    # A mask reads best as what it lets through.
    if isinstance(then, Number) and not isinstance(otherwise, Number) and isinstance(condition, Binary):
        flipped = unary("not", condition)
        if not isinstance(flipped, Unary):
            return Select(flipped, otherwise, then)
    return Select(condition, then, otherwise)


@dataclass
class Statement:
    """`tensor[axes] = term`."""

    tensor: Tensor
    term: Term
    comment: str | None = field(default=None)
