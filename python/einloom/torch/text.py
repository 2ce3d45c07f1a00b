"""Prints a cascade: names for ranks and indices, precedence, declarations."""

from __future__ import annotations

import math
import re
from typing import Iterable

from .index import Axis, Floor, Index, Rank
from .terms import Binary, Number, Position, Read, Select, Statement, Tensor, Term, Unary

RESERVED = frozenset(
    "and or not where reduce sum prod max min argmax argmin softmax logsumexp mean var inf pi abs exp exp2 log log2 "
    "log1p sqrt rsqrt tanh sigmoid erf sin cos floor round sign relu silu gelu "
    "cascade input output rank param index op monoid in identity".split()
)

# Binding strengths of the language's grammar; a reduction's body takes everything up to `+`.
OR, AND, NOT, COMPARE, ADD, MUL, NEG, POW, ATOM = range(1, 10)
_BINDING = {"or": OR, "and": AND, "+": ADD, "-": ADD, "*": MUL, "/": MUL, "^": POW} | {
    c: COMPARE for c in ("==", "!=", "<", "<=", ">", ">=")
}

# What textbooks call the dimensions of a tensor of this many, outermost first; the first free one is taken.
_USUAL = {
    1: (("c", "k", "n"),),
    2: (("m", "n", "t"), ("d", "k", "c", "e", "f")),
    3: (("b",), ("m", "n", "t", "s"), ("d", "c", "e", "f", "k")),
    4: (("b",), ("h", "j", "g"), ("m", "n", "t", "s"), ("d", "e", "f", "k")),
    5: (("b",), ("h", "j"), ("g", "i"), ("m", "n", "t", "s"), ("d", "e", "f", "k")),
}
_ANY = tuple("mndekfstucpqrxyzwvuioljgabh")


def identifier(name: str) -> str:
    """A name that the language takes, as near to the given one as it can be."""
    name = re.sub(r"\W", "_", name)
    if not name or not name[0].isalpha():
        name = "t" + name
    return name + "_" if name in RESERVED else name


class Names:
    """Names of ranks and indices. An index of rank `M` is called `m`, or has a name of its own declared over `M`."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = {t for t in taken}
        self.of_rank: dict[Rank, list[str]] = {}
        self.rank_names: dict[Rank, str] = {}
        self.sized: set[Rank] = set()

    def suggest(self, tensor: Tensor) -> None:
        """Names the ranks of a tensor's dimensions that have no name yet."""
        usual = _USUAL.get(len(tensor.axes), ())
        for place, axis in enumerate(tensor.axes):
            if axis.rank not in self.of_rank:
                self._add(axis.rank, [*axis.rank.hints, *(usual[place] if usual else ()), *_ANY])

    def _add(self, rank: Rank, wanted: list[str]) -> str:
        number = 1
        candidates = iter(wanted)
        while True:
            name = next(candidates, None)
            if name is None:
                name, number = f"{wanted[0]}{number}", number + 1
            if not self._free(name, rank):
                continue
            self.taken.add(name)
            if rank not in self.of_rank:
                self.rank_names[rank] = name.upper()
                self.taken.add(name.upper())
            self.of_rank.setdefault(rank, []).append(name)
            return name

    def _free(self, name: str, rank: Rank) -> bool:
        if name in self.taken or name in RESERVED or not name[0].islower():
            return False
        return rank in self.of_rank or name.upper() not in self.taken

    def index(self, axis: Axis, used: set[str]) -> str:
        """A name for an axis that differs from those used around it."""
        rank = axis.rank
        if rank not in self.of_rank:
            self._add(rank, [*([axis.hint] if axis.hint else []), *rank.hints, *_ANY])
        own = self.of_rank[rank]
        for name in sorted(own, key=lambda n: n != axis.hint):
            if name not in used:
                return name
        return self._add(rank, [*rank.hints, *([axis.hint] if axis.hint else []), *_ANY])

    def rank(self, rank: Rank) -> str:
        """A rank's name, for use as its size."""
        self.sized.add(rank)
        return self.rank_names[rank]


class Scope:
    """The names of the axes that are bound where a term stands."""

    def __init__(self, names: Names, bound: dict[Axis, str]) -> None:
        self.names = names
        self.bound = bound

    def __call__(self, axis: Axis) -> str:
        return self.bound[axis]

    def size(self, axis: Axis) -> str:
        """The name of the size of an axis."""
        return self.names.rank(axis.rank)

    def within(self, over: Iterable[Axis]) -> Scope:
        """With more axes bound."""
        bound = dict(self.bound)
        for axis in over:
            if axis not in bound:
                bound[axis] = self.names.index(axis, set(bound.values()))
        return Scope(self.names, bound)


def number(value: float) -> str:
    """A constant as the language spells it."""
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return repr(value)


def spell(term: Term, scope: Scope) -> tuple[str, int]:
    """A term and how tightly its outermost operator binds."""
    if isinstance(term, Number):
        return number(term.value), NEG if term.value < 0 else ATOM
    if isinstance(term, Position):
        text = term.index.text(scope)
        if "/" in text:  # inside brackets `/` rounds down, outside it does not
            return _rounded(term, scope), ADD
        return text, ATOM if text.isalnum() else ADD
    if isinstance(term, Read):
        return term.tensor.read_text(term.at, scope), ATOM
    if isinstance(term, Unary):
        if term.op == "-":
            return f"-{_at_least(term.x, NEG, scope)}", NEG
        if term.op == "not":
            return f"not {_at_least(term.x, NOT, scope)}", NOT
        return f"{term.op}({spell(term.x, scope)[0]})", ATOM
    if isinstance(term, Select):
        parts = (term.condition, term.then, term.otherwise)
        return f"where({', '.join(spell(p, scope)[0] for p in parts)})", ATOM
    if isinstance(term, Binary):
        if term.op in ("min", "max"):
            return f"{term.op}({spell(term.a, scope)[0]}, {spell(term.b, scope)[0]})", ATOM
        level = _BINDING[term.op]
        left, right = (level + 1, level) if term.op == "^" else (level, level + 1)
        if level == COMPARE:
            left += 1
        return f"{_at_least(term.a, left, scope)} {term.op} {_at_least(term.b, right, scope)}", level
    inner = scope.within(term.over)
    over = ", ".join(inner(a) for a in term.over)
    filter = "" if term.filter is None else f": {spell(term.filter, inner)[0]}"
    body = _at_least(term.body, MUL, inner)
    if body.startswith("-"):
        body = f"({body})"
    return f"{term.name}({over}{filter}) {body}", ADD


def _rounded(position: Position, scope: Scope) -> str:
    out = ""
    for atom, c in position.index.terms:
        if isinstance(atom, Floor):
            body = f"floor(({spell(Position(atom.numerator), scope)[0]}) / {atom.denominator})"
        else:
            body = Index(((atom, 1),)).text(scope)
        factor = "" if abs(c) == 1 else f" * {abs(c)}"
        out += ("-" if c < 0 else "") + body + factor if not out else (" - " if c < 0 else " + ") + body + factor
    offset = position.index.offset
    return out + (f" {'+' if offset > 0 else '-'} {abs(offset)}" if offset else "")


def _at_least(term: Term, level: int, scope: Scope) -> str:
    text, binds = spell(term, scope)
    return text if binds >= level else f"({text})"


def cascade_text(
    name: str, inputs: list[Tensor], statements: list[Statement], outputs: list[Tensor], comment: str = ""
) -> tuple[str, dict[str, int]]:
    """The text of a cascade, and the size of every rank by its name."""
    defined = [s.tensor for s in statements]
    # A tensor without dimensions is read by its bare name, which no index or rank may have; the others may share
    # names with ranks, but reading is easier if no index is called like a tensor.
    taken = {t.name for t in [*inputs, *defined] if not t.axes}
    names = Names(taken | {t.name for t in [*inputs, *defined]})
    for tensor in inputs:
        names.suggest(tensor)
    lines = []
    for statement in statements:
        names.suggest(statement.tensor)
        scope = Scope(names, {}).within(statement.tensor.axes)
        at = ",".join(scope(a) for a in statement.tensor.axes)
        kind = f": {statement.tensor.dtype}" if statement.tensor.dtype and statement.tensor not in outputs else ""
        if statement.comment:
            lines.append(f"# {statement.comment}")
        target = f"{statement.tensor.name}[{at}]" if at else statement.tensor.name
        lines.append(f"{target}{kind} = {spell(statement.term, scope)[0]}")
    text = "\n".join([*_header(name, inputs, outputs, names, comment), "", *lines]) + "\n"
    return text, {name: rank.size for rank, name in names.rank_names.items()}


def _header(name: str, inputs: list[Tensor], outputs: list[Tensor], names: Names, comment: str) -> list[str]:
    head = [f"# {line}".rstrip() for line in comment.splitlines()] + [f"cascade {identifier(name)}"]
    for tensor in inputs:
        at = [names.index(axis, set()) for axis in tensor.axes]  # the same rank may stand twice
        dims = f"[{','.join(at)}]" if at else ""
        head.append(f"input  {tensor.name}{dims}: {tensor.dtype or 'f32'}")
    for tensor in outputs:
        head.append(f"output {tensor.name}: {tensor.dtype or 'f32'}")
    known = {a.rank for t in inputs for a in t.axes}
    for rank, own in names.of_rank.items():
        if rank not in known:
            head.append(f"rank   {names.rank_names[rank]} = {rank.size}")
    for rank, own in names.of_rank.items():
        if len(own) > 1:
            head.append(f"index  {', '.join(own)} in {names.rank_names[rank]}")
    return head
